# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two controllers with their state on a file system that both have: the second one takes over and gives back.

These tests are the last of the scenario, so the cluster is not made again as it was: a run of site.yml does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Run, with_cluster

STATE = "/home/slurm-state"
ROLE = "gpucluster.slurm.slurmctld : "


def two_controllers(lab: Lab, directory: Path, **slurm_conf: Any) -> Run:
    """Make login1 the second controller."""
    slurm_conf |= {"StateSaveLocation": STATE, "SlurmctldTimeout": 10}
    cluster = {**lab.cluster, "controllers": "head,login1", "slurm_conf": slurm_conf}
    run = with_cluster(lab, directory, cluster).playbook("site", "--tags=base,controller,compute,login")
    assert (run.rc, run.failed) == (0, {})
    return run


@pytest.fixture(name="job")
def job_of_a_cluster_with_two_controllers(lab: Lab, tmp_path: Path) -> Iterator[str]:
    """Its number. Afterwards the second controller is a login host again."""
    try:
        two_controllers(lab, tmp_path)
        job = lab.command("compute01", "sbatch --parsable --output=/dev/null --wrap 'sleep 900'")
        lab.wait_for("compute01", f"squeue -h -j {job} -o %T", "RUNNING")
        yield job
    finally:
        lab.host("login1").run("scancel --user=root; systemctl disable --now slurmctld; rm /etc/slurm/*.conf")


def test_the_second_controller_takes_over_and_has_every_change(lab: Lab, job: str, tmp_path: Path) -> None:
    both = "Slurmctld(primary) at head is UP\nSlurmctld(backup) at login1 is UP"
    assert lab.command("compute01", "scontrol ping") == both

    lab.command("head", "systemctl stop slurmctld")
    lab.wait_for("compute01", f"timeout 60 squeue -h -j {job} -o %T", "RUNNING")
    assert lab.command("compute02", "timeout 180 srun hostname") in ("compute01", "compute02")

    # A change while the second one serves: the first one comes back with it, and the second one has it as well.
    run = two_controllers(lab, tmp_path, KillWait=44)
    assert {task for tasks in run.changed.values() for task in tasks} <= {
        f"{ROLE}Apply Slurm's configuration",
        f"{ROLE}Run slurmctld",
    }
    lab.wait_for("compute01", "timeout 60 scontrol ping", both)
    lab.command("head", "systemctl stop slurmctld")
    lab.wait_for("compute01", "timeout 60 scontrol show config", "KillWait                = 44 sec")
    assert lab.command("compute01", f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"
    lab.command("head", "systemctl start slurmctld")
    lab.wait_for("compute01", "timeout 60 scontrol ping", "Slurmctld(primary) at head is UP")
    assert lab.command("compute01", f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"
