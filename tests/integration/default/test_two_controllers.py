# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two controllers with their state on a shared file system: the second one takes over, and gives control back.

These tests are the last of the scenario, so they do not restore the cluster; a run of site.yml restores it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Run, with_cluster

# Minutes; few sites have several controllers.
pytestmark = pytest.mark.rare

STATE = "/home/slurm-state"
ROLE = "gpucluster.slurm.slurmctld : "
APPLY = f"{ROLE}Apply Slurm's configuration"
BOTH = "Slurmctld(primary) at head is UP\nSlurmctld(backup) at login1 is UP"
AS_IT_IS = "sha256sum /etc/slurm/*.conf /var/lib/gpucluster-slurm/good/*; pidof slurmctld"

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
    """The configuration of both controllers, their kept copies of it, and the processes of slurmctld."""
    return {host: lab.command(host, AS_IT_IS) for host in ("head", "login1")}


@pytest.fixture(name="job", scope="module")
def job_of_a_cluster_with_two_controllers(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The number of the job. Afterwards the second controller is a login host again.

    `test_state_directory.py` has made the second controller, unless these tests run alone.
    """
    try:
        if lab.host("head").run("scontrol ping").stdout.strip() != BOTH:
            two_controllers(lab, tmp_path_factory.mktemp("two"))
        job = lab.command("compute01", "sbatch --parsable --output=/dev/null --wrap 'sleep 900'")
        lab.wait_for("compute01", f"squeue -h -j {job} -o %T", "RUNNING")
        yield job
    finally:
        lab.host("login1").run("scancel --user=root; systemctl disable --now slurmctld; rm /etc/slurm/*.conf")


@contextmanager
def outage_of_the_primary(lab: Lab) -> Iterator[None]:
    """Stop slurmctld and ssh on head. They start again, as at a boot, when a file appears in a shared directory."""
    back = "/home/head-comes-back"
    script = (
        "systemctl stop slurmctld ssh.socket ssh.service; pkill sshd; "
        f"until test -e {back}; do sleep 1; done; rm {back}; systemctl start ssh slurmctld"
    )
    lab.command("head", f"systemd-run --collect --unit=outage sh -c '{script}'")
    try:
        yield
    finally:
        lab.command("login1", f"touch {back}")
        lab.wait_for("head", "systemctl is-active outage", "inactive", 60)


def renamed(lab: Lab, directory: Path) -> Lab:
    """The cluster with another name for its partition, in which a job runs."""
    cluster = described(lab)
    cluster["partitions"] = [{**lab.cluster["partitions"][0], "name": "renamed"}]
    return with_cluster(lab, directory, cluster)


@pytest.mark.usefixtures("job")
def test_what_is_refused_reaches_neither_controller_and_no_other_host(lab: Lab, tmp_path: Path) -> None:
    """A host has damage that stage base would repair; the refused run must not repair it."""
    lab.command("compute02", "cp /etc/hosts /root/hosts; sed -i /login1/d /etc/hosts")
    before = as_they_are(lab)
    for arguments in ([STAGES, "--check"], [STAGES]):
        run = renamed(lab, tmp_path).playbook("site", *arguments)
        assert (run.rc, run.changed) == (2, {})
        assert "These changes would end jobs (1)" in str(run.failed["head"])
        assert as_they_are(lab) == before
    lab.command("compute02", "mv /root/hosts /etc/hosts")


def test_an_outage_of_the_primary(lab: Lab, job: str, tmp_path: Path) -> None:
    """The run uses and changes the second controller, names the host that it left out, and does not succeed."""
    assert lab.command("compute01", "scontrol ping") == BOTH
    with outage_of_the_primary(lab):
        lab.wait_for("compute01", f"timeout 60 squeue -h -j {job} -o %T", "RUNNING")
        before = lab.command("login1", AS_IT_IS)
        run = renamed(lab, tmp_path).playbook("site", STAGES)
        assert (run.rc, run.changed) == (4, {})
        assert "These changes would end jobs (1)" in str(run.failed["login1"])
        assert lab.command("login1", AS_IT_IS) == before

        run = with_cluster(lab, tmp_path, described(lab, KillWait=44)).playbook("site", STAGES, "--tags=validate")
        assert (run.rc, [*run.failed], run.stats["head"]["unreachable"]) == (4, ["head"], 1), run.failed
        assert "left out of this run: head" in run.output
        assert run.changed == {"login1": [APPLY]}
        assert "KillWait                = 44 sec" in lab.command("compute01", "timeout 60 scontrol show config")
        assert lab.command("compute02", "timeout 60 srun hostname") in ("compute01", "compute02")
        assert lab.command("compute01", f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"

    # The primary has older files and does not start; the next run installs the change there.
    assert lab.command("head", "systemctl is-active slurmctld", 3) == "inactive"
    assert "its files are older" in lab.command("head", "journalctl --no-pager --unit=slurmctld --lines=20")
    run = two_controllers(lab, tmp_path, KillWait=44)
    assert run.changed["head"] == [f"{ROLE}Run slurmctld"]
    assert "The controller head serves; login1 stands by." in run.output
    lab.wait_for("compute01", "timeout 60 scontrol ping", BOTH)
    assert "KillWait                = 44 sec" in lab.command("compute01", "timeout 60 scontrol show config")
    assert lab.command("compute01", f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"


@pytest.mark.usefixtures("job")
def test_what_is_refused_after_a_killed_run_reaches_neither_controller(lab: Lab, tmp_path: Path) -> None:
    """The run was killed before the second controller had the change. In the next test it takes over nevertheless."""
    live = with_cluster(lab, tmp_path, described(lab, KillWait=43)).start("site", STAGES)
    live.wait_for_task("Run slurmctld")
    live.kill()
    lab.wait_for("compute01", "timeout 60 scontrol ping", BOTH)
    before = as_they_are(lab)
    run = renamed(lab, tmp_path).playbook("site", STAGES)
    assert (run.rc, run.changed, as_they_are(lab)) == (2, {}, before)


def test_the_primary_comes_back_with_every_change(lab: Lab, job: str, tmp_path: Path) -> None:
    """The primary's slurmctld is down, its host is up. The second controller is changed, then gives control back."""
    lab.command("head", "systemctl stop slurmctld")
    lab.wait_for("compute01", f"timeout 60 squeue -h -j {job} -o %T", "RUNNING")
    run = two_controllers(lab, tmp_path, KillWait=45)
    assert run.changed == {"login1": [APPLY], "head": [f"{ROLE}Run slurmctld"]}
    lab.wait_for("compute01", "timeout 60 scontrol ping", BOTH)
    lab.wait_for("compute01", "timeout 60 scontrol show config", "KillWait                = 45 sec")
    assert lab.command("compute01", f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"
