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

# The task at whose start the run is killed, and what is to do for it at that moment.
POINTS = {
    "packages, with dpkg": ("Install packages", "apt-get -qy purge slurmd slurm-client munge libpmix2t64"),
    "key written, not loaded": ("munge : Run munge", ""),
    "configuration written, not loaded": ("Run slurmctld with its configuration", ""),
    "settings of slurmd written, not loaded": ("slurmd : Run slurmd", ""),
}


def state(lab: Lab) -> dict[str, str]:
    """Files with owner, mode and content, states of units, and users, by host."""
    show = (
        f"find {FILES} -type f -exec stat -c '%n %U %a' {{}} + -exec sha256sum {{}} + 2>/dev/null | sort;"
        f"systemctl is-active {UNITS}; id munge; id slurm; true"
    )
    return {host: lab.command(host, show) for host in HOSTS}


@pytest.mark.parametrize(("task", "before"), POINTS.values(), ids=POINTS.keys())
def test_the_next_run_finishes_what_a_killed_one_began(lab: Lab, task: str, before: str) -> None:
    wanted = state(lab)
    key = lab.inventory.parent / "secrets/demo/munge.key"
    old_key = key.read_bytes()
    drop_in = "/etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf"
    # Work for every stage: a new key, changed configuration, changed settings, and packages where the case asks for it.
    key.write_bytes(os.urandom(1024))
    new_conf = """--extra-vars={"slurm_conf": {"KillWait": 31}}"""
    lab.command("compute02", f"echo >>{drop_in}; {before or 'true'}")

    run = lab.start("site", new_conf, "--skip-tags=validate")
    run.wait_for_task(task)
    if before:
        time.sleep(2)
        lab.command("compute02", "pkill -KILL -x apt-get; pkill -KILL -x dpkg; true")
    run.kill()

    # The run that follows is the real thing, back to the old key and configuration in the last step.
    following = lab.playbook("site", new_conf)
    assert (following.rc, following.failed) == (0, {}), following.failed
    assert "KillWait                = 31" in lab.command("login1", "scontrol show config")
    credential = lab.command("head", "munge -n")
    for host in HOSTS:
        assert "Success" in lab.command(host, f"echo {credential} | unmunge")

    key.write_bytes(old_key)
    last = lab.playbook("site", "--skip-tags=validate")
    assert (last.rc, last.failed) == (0, {}), last.failed
    assert state(lab) == wanted
