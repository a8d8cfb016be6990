# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run that dies anywhere is finished by the next one, and the cluster is then as after an undisturbed run."""

from __future__ import annotations

import os
import time

import pytest
from lab import Lab

HOSTS = ("head", "login1", "compute01", "compute02")
UNITS = "munge mariadb slurmdbd slurmctld slurmd sackd"
FILES = "/etc/munge /etc/slurm /etc/hosts /etc/tmpfiles.d /etc/systemd/system/*.service.d"
SLURMD = "/etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf"

# The cluster goes back and forth between two wanted states, each with a key and a configuration of its own.
NEW = """--extra-vars={"slurm_conf": {"KillWait": 31}}"""

# Where it is to go, the task at whose start the run is killed, and what is done to compute02 before.
CASES = {
    "packages, with dpkg": ("new", "Install packages", "apt-get -qy purge slurmd slurm-client munge libpmix2t64"),
    "key": ("old", "munge : Run munge", "true"),
    "configuration": ("new", "Apply Slurm's configuration", "true"),
    "settings of slurmd": ("old", "slurmd : Run slurmd", f"echo >>{SLURMD}"),
}


def state(lab: Lab) -> dict[str, str]:
    """Files with owner, mode and content, states of units, and users, by host."""
    show = (
        f"find {FILES} -type f -exec stat -c '%n %U %a' {{}} + -exec sha256sum {{}} + 2>/dev/null | sort;"
        f"systemctl is-active {UNITS}; id munge; id slurm; true"
    )
    return {host: lab.command(host, show) for host in HOSTS}


@pytest.fixture(name="wanted", scope="module")
def wanted_states(lab: Lab) -> dict[str, tuple[bytes, dict[str, str]]]:
    """Key and state of each of the two; the old one is what the scenario's undisturbed run has left."""
    key = lab.inventory.parent / "secrets/demo/munge.key"
    return {"old": (key.read_bytes(), state(lab)), "new": (os.urandom(1024), {})}


@pytest.mark.parametrize(("to", "task", "before"), CASES.values(), ids=CASES.keys())
def test_the_next_run_finishes_what_a_killed_one_began(
    lab: Lab, wanted: dict[str, tuple[bytes, dict[str, str]]], to: str, task: str, before: str
) -> None:
    key, expected = wanted[to]
    (lab.inventory.parent / "secrets/demo/munge.key").write_bytes(key)
    arguments = ["--skip-tags=validate", *([NEW] if to == "new" else [])]
    lab.command("compute02", before)

    run = lab.start("site", *arguments)
    run.wait_for_task(task)
    if "purge" in before:
        time.sleep(2)
        lab.command("compute02", "pkill -KILL -x apt-get; pkill -KILL -x dpkg; true")
    run.kill()
    following = lab.playbook("site", *arguments)

    assert (following.rc, following.failed) == (0, {}), following.failed
    assert f"KillWait                = {31 if to == 'new' else 30}" in lab.command("login1", "scontrol show config")
    credential = lab.command("head", "munge -n")
    for host in HOSTS:
        assert "Success" in lab.command(host, f"echo {credential} | unmunge")
    if expected:
        assert state(lab) == expected
    else:
        wanted[to] = (key, state(lab))
