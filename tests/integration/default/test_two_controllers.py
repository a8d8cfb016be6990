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


STAGES = "--tags=base,controller,compute,login"


def described(lab: Lab, **slurm_conf: Any) -> dict[str, Any]:
    """The cluster with login1 as the second controller."""
    slurm_conf |= {"StateSaveLocation": STATE, "SlurmctldTimeout": 10}
    return {**lab.cluster, "controllers": "head,login1", "slurm_conf": slurm_conf}


def two_controllers(lab: Lab, directory: Path, **slurm_conf: Any) -> Run:
    """Make login1 the second controller."""
    run = with_cluster(lab, directory, described(lab, **slurm_conf)).playbook("site", STAGES)
    assert (run.rc, run.failed) == (0, {})
    return run


def as_they_are(lab: Lab) -> dict[str, str]:
    """The configuration of both controllers, as it is and as it is kept, and the processes of slurmctld."""
    show = "sha256sum /etc/slurm/*.conf /var/lib/gpucluster-slurm/good/*; pidof slurmctld"
    return {host: lab.command(host, show) for host in ("head", "login1")}


@pytest.fixture(name="job", scope="module")
def job_of_a_cluster_with_two_controllers(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its number. Afterwards the second controller is a login host again."""
    try:
        two_controllers(lab, tmp_path_factory.mktemp("two"))
        job = lab.command("compute01", "sbatch --parsable --output=/dev/null --wrap 'sleep 900'")
        lab.wait_for("compute01", f"squeue -h -j {job} -o %T", "RUNNING")
        yield job
    finally:
        lab.host("login1").run("scancel --user=root; systemctl disable --now slurmctld; rm /etc/slurm/*.conf")


@pytest.mark.usefixtures("job")
def test_what_is_refused_reaches_neither_controller_and_no_other_host(lab: Lab, tmp_path: Path) -> None:
    """A partition with a job is renamed, and there is something that stage base would repair."""
    lab.command("compute02", "cp /etc/hosts /root/hosts; sed -i /login1/d /etc/hosts")
    before = as_they_are(lab)
    cluster = described(lab)
    cluster["partitions"] = [{**lab.cluster["partitions"][0], "name": "renamed"}]
    renamed = with_cluster(lab, tmp_path, cluster)
    for arguments in ([STAGES, "--check"], [STAGES]):
        run = renamed.playbook("site", *arguments)
        assert (run.rc, run.changed) == (2, {})
        assert "this would end 1 jobs" in str(run.failed["head"])
        assert as_they_are(lab) == before
    lab.command("compute02", "mv /root/hosts /etc/hosts")


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
    assert lab.command("compute01", f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"
    lab.command("head", "systemctl stop slurmctld")
    lab.wait_for("compute01", "timeout 60 scontrol show config", "KillWait                = 44 sec")
    assert lab.command("compute01", f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"
