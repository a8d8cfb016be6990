# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run changes nothing on a correct cluster, and repairs only the damage on a damaged one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab, with_cluster

ROLE = "gpucluster.slurm."

# Damage to the source of a login host's configuration, and the task that repairs it: with sackd, and without.
SACKD = "systemctl stop sackd; echo NoSuchKey=1 >/etc/slurm/slurm.conf", "slurm_client : Run sackd with its settings"
COPY = "echo KillWait=99 >>/etc/slurm/slurm.conf", "slurmctld : Keep a copy of the configuration"

# Restarts services whose libraries were replaced, and the file that keeps it from slurmd.
NEEDRESTART = "apt-get -qq install --yes --no-install-recommends needrestart"
KEPT_FROM_SLURMD = "/etc/needrestart/conf.d/gpucluster-slurm.conf"

# Damage that is done by hand, by host, and the tasks that report and repair it, in their order.
DAMAGE = {
    "head": (
        "systemctl kill --signal=KILL slurmctld; echo NoSuchKey=1 >>/etc/slurm/slurm.conf;"
        "chmod 644 /etc/slurm/slurmdbd.conf; chmod 777 /etc/munge;"
        "chown root: /var/lib/slurm/slurmctld",
        [
            "base : Prepare the host",
            "slurmdbd : Apply slurmdbd's configuration",
            "slurmctld : Apply Slurm's configuration",
        ],
    ),
    "login1": (
        "sed -i /compute01/d /etc/hosts; systemctl stop munge; CLIENT",
        ["base : Prepare the host", "munge : Run munge with its key", "CLIENT"],
    ),
    "compute01": (
        "sed -i s/head:6817/elsewhere:6817/ /etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf;"
        f"apt-mark unhold slurmd; {NEEDRESTART}",
        ["base : Prepare the host", "slurmd : Run slurmd with its settings"],
    ),
    "compute02": (
        "head -c 1024 /dev/urandom >/etc/munge/munge.key && systemctl restart munge",
        ["munge : Run munge with its key"],
    ),
}


@pytest.fixture(name="client", scope="module")
def what_gives_login_hosts_their_configuration(lab: Lab) -> tuple[str, str]:
    """Damage to the source of their configuration, and the task that repairs it."""
    return SACKD if lab.has_sackd else COPY


@pytest.fixture(name="job")
def job_that_runs(lab: Lab) -> Iterator[str]:
    """A job that runs on compute01; no test here must end it.

    slurmctld saves its state a few seconds after a change, such as a comment. If slurmctld is killed before, it does
    not know after its restart that the job runs.
    """
    job = lab.command("login1", "sbatch --parsable -w compute01 --output=/dev/null --wrap 'sleep 900'")
    try:
        lab.wait_for("login1", f"squeue -h -j {job} -o %T", "RUNNING")
        lab.command("head", f"touch /run/job-runs; scontrol update jobid={job} comment=save-me")
        lab.wait_for("head", "find /var/lib/slurm/slurmctld/job_state -newer /run/job-runs", "job_state")
        yield job
    finally:
        lab.host("login1").run(f"scancel {job}")


def test_damage_is_named_and_repaired(lab: Lab, job: str, client: tuple[str, str]) -> None:
    client_damage, client_task = client
    for host, (command, _tasks) in DAMAGE.items():
        lab.command(host, command.replace("CLIENT", client_damage))
    expected = {
        host: [ROLE + task.replace("CLIENT", client_task) for task in tasks]
        for host, (_command, tasks) in DAMAGE.items()
    }

    plan = lab.playbook("site", "--check", "--diff")
    assert (plan.rc, plan.changed, plan.failed) == (0, expected, {})

    # A key that is lost on the control host is fetched from the cluster.
    key = lab.inventory.parent / "secrets/demo/munge.key"
    content = key.read_bytes()
    key.unlink()
    expected["head"][1:1] = [f"{ROLE}munge : Fetch the key", f"{ROLE}munge : Restrict the key to its owner"]

    run = lab.playbook("site", "--diff", "--skip-tags=validate")
    assert (run.rc, run.changed, run.failed) == (0, expected, {})
    assert key.read_bytes() == content

    assert lab.command("login1", f"squeue -h -j {job} -o '%T %r %N'") == "RUNNING None compute01"
    assert lab.command("login1", f"sacct -nPX -j {job} -o State") == "RUNNING"
    assert " Restarts=0 " in lab.command("login1", f"scontrol --oneliner show job {job}")
    assert lab.command("login1", "timeout 180 srun -w compute02 hostname") == "compute02"


def test_apt_changes_no_package_of_slurm(lab: Lab) -> None:
    """All of them are held, after the installation and after the repair."""
    shown = "dpkg-query --show --showformat='${db:Status-Status} ${source:Package} ${Package}\\n'"
    installed = f"{shown} | sed -n 's/^installed slurm-wlm[a-z-]* //p'"
    for host in ("head", "login1", "compute01"):
        names = {*lab.command(host, installed).split()}
        assert "slurm-client" in names
        assert {*lab.command(host, "apt-mark showhold").split()} == names


def test_slurmd_is_not_restarted_when_a_library_is_upgraded(lab: Lab, job: str) -> None:
    slurmd = "systemctl show --property=MainPID --value slurmd"
    # As after an upgrade, slurmd and munged have a file that is no longer there.
    replace = "for file in /usr/lib/*/libmunge.so.2.*; do cp -p $file $file.new && mv $file.new $file; done"
    restart = "needrestart -r a -l 2>&1"
    before = lab.command("compute01", slurmd)
    deferred = lab.command("compute01", f"{replace}; {restart}").partition("being deferred:")[2]
    assert "systemctl restart slurmd.service" in deferred
    assert lab.command("compute01", slurmd) == before
    away = "/root/needrestart.conf"
    lab.command("compute01", f"mv {KEPT_FROM_SLURMD} {away}; {restart}; mv {away} {KEPT_FROM_SLURMD}")
    assert lab.command("compute01", slurmd) != before
    assert lab.command("login1", f"squeue -h -j {job} -o '%T %r %N'") == "RUNNING None compute01"


def test_a_run_with_tags_and_a_limit_leaves_the_rest_alone(lab: Lab) -> None:
    """One damage is on another host, one is that of another stage. The limit excludes the controller."""
    lab.command("compute02", "systemctl stop slurmd; cp /etc/hosts /root/hosts; sed -i /login1/d /etc/hosts")
    lab.command("compute01", "systemctl stop slurmd")
    run = lab.playbook("site", "--tags=compute", "--limit=compute02")
    lab.command("compute01", "systemctl start slurmd")
    lab.command("compute02", "mv /root/hosts /etc/hosts")
    assert (run.rc, run.changed, run.failed) == (0, {"compute02": [ROLE + "slurmd : Run slurmd with its settings"]}, {})


@pytest.mark.rare
def test_a_node_goes_and_comes_while_a_job_runs(lab: Lab, job: str, tmp_path: Path) -> None:
    (entry,), (partition,) = lab.cluster["nodes"], lab.cluster["partitions"]
    smaller = {
        **lab.cluster,
        "nodes": [{**entry, "hosts": "compute01", "address": "10.213.7.21"}],
        "partitions": [{**partition, "nodes": "compute01"}],
    }
    for which, nodes in ((with_cluster(lab, tmp_path, smaller), ["compute01"]), (lab, ["compute01", "compute02"])):
        run = which.playbook("site", "--tags=base,controller,compute,login")
        assert (run.rc, run.failed) == (0, {})
        assert lab.command("login1", "timeout 60 sinfo -h -N -o %N").split() == nodes
    lab.wait_until_idle("login1", "compute02")
    assert sorted(lab.command("login1", "timeout 180 srun -N2 hostname").split()) == ["compute01", "compute02"]
    assert " Restarts=0 " in lab.command("login1", f"scontrol --oneliner show job {job}")


def test_hosts_that_do_not_fit_are_refused_before_they_are_changed(lab: Lab) -> None:
    lab.command("compute01", "sed s/^VERSION_ID=.*/VERSION_ID=9/ /etc/os-release >/run/other-release")
    lab.command("compute01", "mount --bind /run/other-release /etc/os-release")
    try:
        run = lab.playbook("site", "--limit=slurm_compute", "--tags=base", "--extra-vars=slurm_user_id=4711")
    finally:
        lab.command("compute01", "umount /etc/os-release")
    (platform,), (user,) = run.failed["compute01"], run.failed["compute02"]
    assert "this collection does not know the distribution debian 9; it knows debian 12" in platform
    assert "the user slurm has id 64030 here and 4711 in this cluster" in user
    assert run.changed == {}
