# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks on a hundred hosts, with the time and the processor time that each takes on the control host.

The tests run in this order. Each prints a line "measured", for docs/design/benchmarks.md; no test asserts a time.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import Lab, Run, with_cluster

CONTROLLERS, LOGIN = ("big-ctl1", "big-ctl2"), "big-login"
ADDED = {"hosts": "big-cpu[39-48]", "hardware": "cpu", "address": "10.213.6.[139-148]"}


def measured(lab: Lab, what: str, playbook: str, *arguments: str) -> Run:
    """Run a playbook, and print what it took."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run = lab.playbook(playbook, *arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    hosts = len(run.stats)
    print(
        f"measured: {what}: {time.monotonic() - start:.0f} s, processor {processor:.0f} s, {hosts} hosts, rc {run.rc}"
    )
    return run


def succeeded(run: Run) -> None:
    assert (run.rc, run.failed) == (0, {}), run.failed or run.output[-4000:]


def changed(lab: Lab, directory: Path, **values: Any) -> Lab:
    """The lab with other values in its cluster file."""
    return with_cluster(lab, directory, {**lab.cluster, **values})


@pytest.fixture(scope="module", name="grown")
def lab_with_ten_more(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The lab with ten more nodes."""
    return changed(lab, tmp_path_factory.mktemp("grown"), nodes=[*lab.cluster["nodes"], ADDED])


def test_a_hundred_hosts_become_a_cluster(lab: Lab) -> None:
    succeeded(measured(lab, "site on 90 hosts, packages in the image", "site", "--skip-tags=validate"))
    assert lab.command(LOGIN, "timeout 300 srun --nodes=86 hostname | sort -u | wc -l") == "86"


def test_a_second_run_changes_nothing(lab: Lab) -> None:
    run = measured(lab, "site again, nothing to do", "site", "--skip-tags=validate")
    succeeded(run)
    assert run.changed == {}


def test_the_check_of_a_value(lab: Lab, tmp_path: Path) -> None:
    other = changed(lab, tmp_path, slurm_conf={**lab.cluster["slurm_conf"], "KillWait": 45})
    run = measured(lab, "--check --diff, nothing to do", "site", "--skip-tags=validate", "--check", "--diff")
    succeeded(run)
    run = measured(
        other, "--check --diff of a value of slurm.conf", "site", "--skip-tags=validate", "--check", "--diff"
    )
    succeeded(run)
    assert {*run.changed} == {*CONTROLLERS}


def test_ten_nodes_join_and_leave(grown: Lab) -> None:
    succeeded(measured(grown, "site with ten more nodes", "site", "--skip-tags=validate"))
    assert "big-cpu48" in grown.command(LOGIN, "timeout 60 sinfo -h -N -o %N")
    run = measured(
        grown,
        "remove_nodes of ten",
        "remove_nodes",
        "-e",
        "remove_nodes=big-cpu[39-48]",
        "-e",
        "remove_nodes_write=true",
    )
    succeeded(run)
    assert "big-cpu48" not in grown.command(LOGIN, "timeout 60 sinfo -h -N -o %N")
    assert "big-cpu48" not in str(yaml.safe_load(grown.inventory.read_text())["nodes"])


def test_doctor_of_a_healthy_cluster(lab: Lab) -> None:
    run = measured(lab, "doctor of a healthy cluster", "doctor")
    succeeded(run)
    assert run.changed == {}
