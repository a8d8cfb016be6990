# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster that is right is left alone; one that was damaged is repaired, and nothing but the damage is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lab import Lab, with_cluster

ROLE = "gpucluster.slurm."

# Damage to what a login host has its configuration from, and the task that mends it: with sackd, and without.
SACKD = "systemctl stop sackd", "slurm_client : Run sackd with its settings"
COPY = "echo KillWait=99 >>/etc/slurm/slurm.conf", "slurmctld : Keep a copy of the configuration"

# What is done to the cluster by hand, by host, and the tasks that say so and mend it, in their order.
DAMAGE = {
    "daemons and a key": {
        "head": (
            "systemctl kill --signal=KILL slurmctld",
            ["slurmctld : Run slurmctld"],
        ),
        "login1": (
            "systemctl stop munge; CLIENT",
            ["munge : Run munge with its key", "CLIENT"],
        ),
        "compute02": (
            "head -c 1024 /dev/urandom >/etc/munge/munge.key && systemctl restart munge",
            ["munge : Run munge with its key"],
        ),
    },
    "files": {
        "head": (
            "echo NoSuchKey=1 >>/etc/slurm/slurm.conf; chmod 644 /etc/slurm/slurmdbd.conf",
            ["slurmdbd : Apply slurmdbd's configuration", "slurmctld : Apply Slurm's configuration"],
        ),
        "login1": (
            "sed -i /compute01/d /etc/hosts",
            ["base : Name the hosts of the cluster in the hosts file"],
        ),
        "compute01": (
            "sed -i s/head:6817/elsewhere:6817/ /etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf",
            ["slurmd : Run slurmd with its settings"],
        ),
    },
}


@pytest.fixture(name="client", scope="module")
def what_gives_login_hosts_their_configuration(lab: Lab) -> tuple[str, str]:
    """Damage to it, and the task that mends it."""
    return SACKD if lab.has_sackd else COPY


@pytest.fixture(name="job")
def job_that_runs(lab: Lab) -> Iterator[str]:
    """A job that runs on compute01; nothing here may end it.

    slurmctld saves its state a few seconds after a change, such as a comment. One that is killed before does not know
    that the job runs.
    """
    job = lab.command("login1", "sbatch --parsable -w compute01 --output=/dev/null --wrap 'sleep 900'")
    try:
        lab.wait_for("login1", f"squeue -h -j {job} -o %T", "RUNNING")
        lab.command("head", f"touch /run/job-runs; scontrol update jobid={job} comment=save-me")
        lab.wait_for("head", "find /var/lib/slurm/slurmctld/job_state -newer /run/job-runs", "job_state")
        yield job
    finally:
        lab.host("login1").run(f"scancel {job}")


def test_a_second_run_changes_nothing_and_warns_of_nothing(lab: Lab) -> None:
    run = lab.playbook("site")
    assert (run.rc, run.changed, run.failed) == (0, {}, {})
    assert "WARNING" not in run.output


def test_check_mode_predicts_no_change(lab: Lab) -> None:
    run = lab.playbook("site", "--check", "--diff")
    assert (run.rc, run.changed, run.failed) == (0, {}, {})


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_named_and_repaired(
    lab: Lab, job: str, client: tuple[str, str], damage: dict[str, tuple[str, list[str]]]
) -> None:
    client_damage, client_task = client
    for host, (command, _tasks) in damage.items():
        lab.command(host, command.replace("CLIENT", client_damage))
    expected = {
        host: [ROLE + task.replace("CLIENT", client_task) for task in tasks]
        for host, (_command, tasks) in damage.items()
    }

    plan = lab.playbook("site", "--check", "--diff", "--skip-tags=validate")
    assert (plan.rc, plan.changed, plan.failed) == (0, expected, {})

    run = lab.playbook("site", "--diff", "--skip-tags=validate")
    assert (run.rc, run.changed, run.failed) == (0, expected, {})

    assert lab.command("login1", f"squeue -h -j {job} -o '%T %r %N'") == "RUNNING None compute01"
    assert lab.command("login1", f"sacct -nPX -j {job} -o State") == "RUNNING"
    assert " Restarts=0 " in lab.command("login1", f"scontrol --oneliner show job {job}")
    assert lab.command("login1", "timeout 180 srun -w compute02 hostname") == "compute02"


def test_one_node_alone_is_repaired_with_limit(lab: Lab) -> None:
    lab.command("compute02", "systemctl stop slurmd")
    run = lab.playbook("site", "--limit=compute02", "--skip-tags=validate")
    assert (run.rc, run.changed, run.failed) == (0, {"compute02": [ROLE + "slurmd : Run slurmd with its settings"]}, {})


def test_a_stage_runs_alone_by_its_tag(lab: Lab, client: tuple[str, str]) -> None:
    damage, task = client
    lab.command("login1", damage)
    run = lab.playbook("site", "--tags=login")
    expected = {"login1": [ROLE + task]}
    assert (run.rc, run.changed, run.failed) == (0, expected, {})


def test_a_node_goes_and_comes_while_a_job_runs(lab: Lab, job: str, tmp_path: Path) -> None:
    cluster = yaml.safe_load(lab.inventory.read_text())
    cluster["nodes"][0] |= {"hosts": "compute01", "address": "10.213.7.21"}
    cluster["partitions"][0]["nodes"] = "compute01"
    smaller = with_cluster(lab, tmp_path, cluster)
    for which, nodes in ((smaller, ["compute01"]), (lab, ["compute01", "compute02"])):
        run = which.playbook("site", "--skip-tags=validate")
        assert (run.rc, run.failed) == (0, {})
        assert lab.command("login1", "timeout 60 sinfo -h -N -o %N").split() == nodes
    lab.wait_until_idle("login1", "compute02")
    assert sorted(lab.command("login1", "timeout 180 srun -N2 hostname").split()) == ["compute01", "compute02"]
    assert " Restarts=0 " in lab.command("login1", f"scontrol --oneliner show job {job}")


def test_a_configuration_that_slurm_does_not_accept_is_not_written(lab: Lab) -> None:
    before = lab.command("head", "sha256sum /etc/slurm/slurm.conf; pidof slurmctld")
    run = lab.playbook("site", "--tags=controller", """--extra-vars={"slurm_conf": {"NoSuchParameter": 1}}""")
    (message,) = run.failed["head"]
    assert "slurm.conf: NoSuchParameter: unknown to Slurm" in message
    assert lab.command("head", "sha256sum /etc/slurm/slurm.conf; pidof slurmctld") == before


def test_a_host_that_does_not_fit_is_refused_before_it_is_changed(lab: Lab) -> None:
    run = lab.playbook("site", "--limit=compute01", "--tags=base", "--extra-vars=slurm_user_id=4711")
    (message,) = run.failed["compute01"]
    assert "the user slurm has id 64030 here and 4711 in this cluster" in message
    assert run.changed == {}


def test_a_host_of_an_unknown_platform_is_refused_before_it_is_changed(lab: Lab) -> None:
    lab.command("compute01", "sed s/^VERSION_ID=.*/VERSION_ID=9/ /etc/os-release >/run/other-release")
    lab.command("compute01", "mount --bind /run/other-release /etc/os-release")
    run = lab.playbook("site", "--limit=compute01", "--tags=base")
    lab.command("compute01", "umount /etc/os-release")
    (message,) = run.failed["compute01"]
    assert f"debian 9 with Slurm {lab.release} is no platform of this collection; it knows debian 12" in message
    assert run.changed == {}
