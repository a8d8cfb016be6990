# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a failure does to users: rows of docs/admin/failures.md for which no other scenario has a test.

A failure begins while a job runs, which ends before the repair. Jobs write their begin and end to a file of their own,
on a file system that all hosts of the scenario share. Afterwards each job has run once and is in the database.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from lab import Lab, container, podman

HEAD = "fault-head"
NODES = ("fault01", "fault02")
NODE = NODES[0]
LEDGER = "/home/ledger"
STATE, DATABASE = "/var/lib/slurm/slurmctld", "/var/lib/mysql"
SBATCH = "sbatch --output=/dev/null --ntasks=1 --mem=100 --wrap true"
SQUEUE = "squeue -h -o %T"


@dataclass(frozen=True)
class Failure:
    """A failure of a host.

    make, undo: shell commands on the host. command: what a user tries meanwhile on the controller, which is the login
    host as well. answer: a part of what it prints.
    """

    host: str
    make: str
    undo: str
    command: str
    answer: str


def fill(unit: str, directory: str, start: int) -> tuple[str, str]:
    """Commands that give a daemon's directory a file system without room, and that take this back.

    start: MiB that the daemon writes when it starts.
    """
    mount = (
        f"cp -a {directory} /root/kept && mount -t tmpfs -o size=$(($(du -sm {directory} | cut -f1) + {start}))m none "
        f"{directory} && chown --reference=/root/kept {directory} && chmod --reference=/root/kept {directory} && "
        f"cp -a /root/kept/. {directory}/"
    )
    back = (
        f"cp -a {directory}/. /root/kept/ && umount {directory} && cp -a /root/kept/. {directory}/ && rm -r /root/kept"
    )
    # cat fails when the disk is full, which is its purpose.
    make = f"systemctl stop {unit}; {mount} && systemctl start {unit}; cat /dev/zero >{directory}/fill || true"
    return make, f"rm {directory}/fill; systemctl stop {unit}; {back}; systemctl start {unit} slurmdbd"


FAILURES: dict[str, Failure] = {
    "slurmctld": Failure(
        HEAD, "systemctl stop slurmctld", "systemctl start slurmctld", SBATCH, "Unable to contact slurm controller"
    ),
    "MariaDB": Failure(
        HEAD, "systemctl stop mariadb", "systemctl start mariadb slurmdbd", "sacct", "Problem talking to the database"
    ),
    "jobs without MariaDB": Failure(
        HEAD, "systemctl stop mariadb", "systemctl start mariadb slurmdbd", SBATCH, "Submitted batch job"
    ),
    "munged of the controller": Failure(
        HEAD, "systemctl stop munge", "systemctl start munge slurmdbd slurmctld", SBATCH, "Munge encode failed"
    ),
    "munged of a node": Failure(NODE, "systemctl stop munge", "systemctl start munge slurmd", SQUEUE, "RUNNING"),
    "slurmd": Failure(NODE, "systemctl stop slurmd", "systemctl start slurmd", SQUEUE, "RUNNING"),
    "full StateSaveLocation": Failure(
        HEAD, *fill("slurmctld", STATE, 4), SBATCH, "I/O error writing script/environment to file"
    ),
    "full disk of the database": Failure(HEAD, *fill("mariadb", DATABASE, 32), SBATCH, "Submitted batch job"),
}


def submit(lab: Lab, seconds: int, *options: str) -> str:
    """A job that runs, and whose start slurmctld has saved; its number."""
    script = f"echo $SLURM_JOB_ID begin >>{LEDGER}; sleep {seconds}; echo $SLURM_JOB_ID end >>{LEDGER}"
    given = f"timeout 60 sbatch --parsable --ntasks=1 --mem=100 --output=/dev/null {' '.join(options)}"
    job = str(lab.command(HEAD, f"{given} --wrap '{script}'"))
    lab.wait_for(HEAD, f"timeout 60 squeue -h -j {job} -o %T", "RUNNING")
    time.sleep(10)  # slurmctld saves its state every 5 s
    return job


def wait_until_well(lab: Lab) -> None:
    """Return when all nodes take jobs, and no message waits for slurmdbd."""
    for node in NODES:
        lab.wait_until_idle(HEAD, node, 400)
    lab.wait_for(HEAD, "timeout 60 sdiag | grep 'DBD Agent queue size' | tr -d ' '", "size:0")


def ledger(lab: Lab, job: str) -> list[str]:
    """What a job has written."""
    lines = lab.command(HEAD, f"cat {LEDGER}").split("\n")
    return [line.partition(" ")[2] for line in lines if line.split()[0] == job]


@pytest.fixture(autouse=True)
def without_jobs(lab: Lab) -> Iterator[None]:
    """No jobs and no file of others before, and none afterwards."""
    clean = f"timeout 60 scancel --user=root; rm -f {LEDGER}"
    lab.command(HEAD, clean)
    wait_until_well(lab)
    yield
    lab.host(HEAD).run(clean)


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_of_a_daemon_or_disk(lab: Lab, name: str) -> None:
    failure = FAILURES[name]
    job = submit(lab, 40, f"--nodelist={NODE}")
    try:
        lab.command(failure.host, failure.make)
        said = lab.host(HEAD).run(f"timeout 120 {failure.command} 2>&1").stdout
        assert failure.answer in said
        lab.wait_for(HEAD, f"cat {LEDGER}", f"{job} end", 120)
    finally:
        lab.command(failure.host, failure.undo)
    lab.wait_for(HEAD, "timeout 60 scontrol ping", "UP")
    lab.wait_for(HEAD, f"timeout 60 sacct -nPX -o State -j {job}", "COMPLETED")
    wait_until_well(lab)
    assert ledger(lab, job) == ["begin", "end"]
    lab.wait_for(HEAD, "timeout 60 srun -N2 hostname | sort | xargs", " ".join(NODES))


def test_a_network_that_is_away_for_less_than_slurmd_timeout(lab: Lab) -> None:
    job = submit(lab, 30, f"--nodelist={NODE}")
    link = "systemd-run --quiet --timer-property=AccuracySec=100ms --on-active={} ip link set eth0 {}"
    # The link comes back by itself: nobody can log in.
    lab.command(NODE, f"{link.format(60, 'up')}; {link.format(1, 'down')}")
    lab.wait_for(HEAD, f"cat {LEDGER}", f"{job} end", 60)
    assert lab.command(HEAD, f"timeout 60 squeue -h -j {job} -o %T") == "RUNNING"
    lab.wait_for(HEAD, f"timeout 60 sacct -nPX -o State -j {job}", "COMPLETED")
    assert ledger(lab, job) == ["begin", "end"]


def test_a_lost_node(lab: Lab) -> None:
    """Its host loses power. After SlurmdTimeout its batch job runs again, from its beginning, on another node."""
    with lab.configuration_kept():
        lab.command(HEAD, "sed -i s/^SlurmdTimeout=.*/SlurmdTimeout=30/ /etc/slurm/slurm.conf")
        lab.command(HEAD, "timeout 60 scontrol reconfigure")
        drain = f"timeout 60 scontrol update NodeName={NODES[1]} State="
        lab.command(HEAD, f"{drain}DRAIN Reason=test")
        job = submit(lab, 20)
        lab.command(HEAD, f"{drain}RESUME")
        podman("kill", container(NODE))
        try:
            lab.wait_for(HEAD, f"timeout 60 sacct -nPX -o State,NodeList -j {job}", f"COMPLETED|{NODES[1]}", 400)
        finally:
            podman("start", container(NODE))
        runs = lab.command(HEAD, f"timeout 60 sacct -nPXD -o State,NodeList -j {job}").split("\n")
        assert sorted(runs) == [f"COMPLETED|{NODES[1]}", f"NODE_FAIL|{NODE}"]
        assert ledger(lab, job) == ["begin", "begin", "end"]
        lab.wait_until_idle(HEAD, NODE, 400)


def test_a_lost_login_host(lab: Lab) -> None:
    """srun ends without a word to slurmctld: its command goes on, and its job stays until somebody cancels it."""
    script = f"echo $SLURM_JOB_ID begin >>{LEDGER}; sleep 20; echo $SLURM_JOB_ID end >>{LEDGER}"
    lab.command(
        HEAD, f"systemd-run --quiet --unit=login --expand-environment=no srun --ntasks=1 --mem=100 sh -c '{script}'"
    )
    job = lab.wait_for(HEAD, f"cat {LEDGER}", "begin").split()[0]
    lab.command(HEAD, "systemctl kill --signal=KILL login")
    lab.wait_for(HEAD, f"cat {LEDGER}", f"{job} end", 60)
    time.sleep(10)
    assert lab.command(HEAD, f"timeout 60 squeue -h -j {job} -o %T") == "RUNNING"
    lab.command(HEAD, f"timeout 60 scancel {job}")
    wait_until_well(lab)


def test_a_full_tmp_of_a_node(lab: Lab) -> None:
    check = "timeout 60 /usr/local/sbin/slurm-health || true"  # it fails if it drains the node
    lab.command(NODE, "mount -t tmpfs -o size=64k none /tmp")
    try:
        write = "dd if=/dev/zero of=/tmp/file bs=1M count=1"
        said = lab.host(HEAD).run(f"timeout 60 srun --chdir=/ --nodelist={NODE} --mem=100 {write} 2>&1").stdout
        assert "No space left on device" in said
        lab.command(NODE, check)
        assert "health check disk: /tmp has 0 MiB free" in lab.command(HEAD, f"timeout 60 sinfo -h -n {NODE} -o %E")
    finally:
        lab.command(NODE, f"umount /tmp; {check}")
    lab.wait_until_idle(HEAD, NODE)
