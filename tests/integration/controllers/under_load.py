# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two controllers under load: a client that submits jobs, the times without service, and hosts that are away or lost.

alice submits a job every three seconds, and each job writes its start and its end into a ledger, so that no test needs
accounting for it. `OUTAGES` has the longest time without a submitted job that a test allows.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import ROOT, Lab, Run, container, podman, with_cluster

FIRST, SECOND, DATABASE, LOGIN, NODE = "two-ctl1", "two-ctl2", "two-db", "two-login", "two-node2"
HOSTS = [FIRST, SECOND, DATABASE, LOGIN, "two-node1", NODE]
MORE = "two-node3"
"""A host that is not in the cluster file."""

PINNED = "/etc/apt/preferences.d/00-lab"
"""With this file, apt offers Slurm 24.11, and otherwise 26.05 (molecule/shared/vars/image.yml, upgrade-bare)."""

STATE = "/home/two-state"
SERIAL = "/var/lib/gpucluster-slurm/serial"
BOTH = f"Slurmctld(primary) at {FIRST} is UP\nSlurmctld(backup) at {SECOND} is UP"
FIRST_SERVES = f"The controller {FIRST} serves; {SECOND} stands by."
SECOND_SERVES = f"The controller {SECOND} serves in place of {FIRST}"
OLDER = "slurmctld is not started: its files are older"

TIMEOUT = 60
WAIT = TIMEOUT // 2
"""A command that all controllers refuse waits this long (`slurm_send_recv_controller_msg` in slurm_protocol_api.c)."""

OUTAGES = {
    # The standby asks three times in SlurmctldTimeout, and needs one more question (src/slurmctld/backup.c).
    "a takeover by itself": 2 * TIMEOUT + WAIT,
    "a standby that a run restarts": 25 + WAIT,
    # CONTROL_TIMEOUT of src/slurmctld/slurmctld.h, if the standby was busy.
    "a primary that returns": 40 + WAIT,
    "an upgrade": 240,
    "a patch release": 120,
}
"""Seconds without service that are allowed."""

RESTART = {"MaxJobCount": 9000, "SlurmctldPidFile": "/run/slurmctld/other.pid"}
"""Parameters of which the second one needs a restart of slurmctld."""

LOAD = """\
#!/bin/sh
# A job every three seconds; a line for each one that slurmctld took, with the time.
cd /home/alice
while :; do
    if job=$(timeout 100 sbatch --parsable --no-requeue --mem=20 -J ledger -o /dev/null job 2>/dev/null); then
        echo "$(date +%s) $job" >>submitted
    fi
    sleep 3
done
"""
JOB = """\
#!/bin/sh
echo "start $SLURM_JOB_ID" >>/home/alice/ledger
sleep 5
echo "end $SLURM_JOB_ID" >>/home/alice/ledger
"""


def start_load(lab: Lab) -> None:
    """Let alice submit."""
    unit = "systemd-run --quiet --uid=alice --unit=load --collect /home/alice/load"
    lab.command(LOGIN, unit)


def stop_load(lab: Lab) -> None:
    """Let alice submit no more, and wait for her last job.

    slurmctld writes a change within ten seconds: a controller that is killed loses what is younger.
    """
    lab.command(LOGIN, "systemctl stop load")
    for _attempt in range(120):
        if not lab.host(LOGIN).run("timeout 60 squeue -h --name=ledger -o %i").stdout.strip():
            break
        time.sleep(1)
    time.sleep(10)


def submitted(lab: Lab) -> list[tuple[int, int]]:
    """The time and the number of each job that slurmctld took."""
    rows = (line.split() for line in lab.command(LOGIN, "cat /home/alice/submitted").splitlines())
    return [(int(when), int(job)) for when, job in rows]


@contextmanager
def outage(lab: Lab, what: str) -> Iterator[None]:
    """Measure the longest time without a submitted job in this block, until the next one after it."""
    since = int(lab.command(LOGIN, "date +%s"))
    yield
    ended = int(lab.command(LOGIN, "date +%s"))
    deadline = time.monotonic() + 3 * TIMEOUT
    while not any(when > ended for when, _job in submitted(lab)):
        assert time.monotonic() < deadline, f"{what}: no job was submitted afterwards"
        time.sleep(1)
    times = [since, *(when for when, _job in submitted(lab) if when > since)]
    longest = max(after - before for before, after in zip(times, times[1:]))
    print(f"measured: {what}: {longest} s without service; SlurmctldTimeout is {TIMEOUT} s")
    assert longest <= OUTAGES[what]


@contextmanager
def away(lab: Lab, host: str) -> Iterator[None]:
    """Stop slurmctld and ssh on a controller. Both start again, as at a boot, when a file appears in /home."""
    back = f"/home/{host}-comes-back"
    script = (
        "systemctl stop slurmctld ssh.socket ssh.service; pkill sshd; "
        f"until test -e {back}; do sleep 1; done; rm {back}; systemctl start ssh slurmctld"
    )
    lab.command(host, f"systemd-run --collect --unit=away sh -c '{script}'")
    try:
        yield
    finally:
        lab.command(LOGIN, f"touch {back}")
        lab.wait_for(host, "systemctl is-active away", "inactive", 60)


def lose(lab: Lab, *hosts: str) -> None:
    """Remove hosts with their disks, and make them anew, as bare hosts."""
    podman("rm", "--force", "--time=0", *map(container, hosts))
    environment = os.environ | {"MOLECULE_GLOB": "molecule/*/molecule.yml"}
    for command in ("reset", "create"):
        molecule = ["molecule", command, f"--scenario-name={lab.scenario}"]
        subprocess.run(molecule, cwd=ROOT, check=True, capture_output=True, env=environment)
    for host in hosts:
        lab.wait_for(host, "uname -n", host, 60)


def make_anew(lab: Lab) -> None:
    """Make all hosts anew, and let site.yml install them: without state, database and backup."""
    lab.command(LOGIN, f"find {STATE} /home/two-backup -mindepth 1 -delete")
    lose(lab, *HOSTS)
    succeeded(site(lab), FIRST_SERVES)
    assert "24.11" in lab.command(FIRST, "slurmctld -V")


def offer_the_next_release(lab: Lab) -> None:
    """Let apt offer Slurm 26.05 on all hosts."""
    for host in HOSTS:
        lab.command(host, f"rm {PINNED}")


def serves(lab: Lab, host: str, seconds: int = 180) -> None:
    """Wait until a controller serves: the others answer a ping only."""
    place = 0 if host == FIRST else 1
    number = f"od -An -tu1 -j15 -N1 {STATE}/heartbeat"
    lab.wait_for(LOGIN, f"timeout 60 squeue -h >/dev/null && echo serves $({number})", f"serves {place}", seconds)


def with_conf(lab: Lab, directory: Path, **slurm_conf: Any) -> Lab:
    """The lab with further parameters of slurm.conf."""
    return with_cluster(lab, directory, {**lab.cluster, "slurm_conf": {**lab.cluster["slurm_conf"], **slurm_conf}})


def site(lab: Lab, *arguments: str, playbook: str = "site") -> Run:
    """A run without the jobs of `validate`."""
    return lab.playbook(playbook, "--skip-tags=validate", *arguments)


def succeeded(run: Run, line: str) -> None:
    """The run has succeeded, and has said who serves."""
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    has_said(run, line)


def has_said(run: Run, line: str) -> None:
    """The last lines of a run name the controller that serves."""
    said = [result.get("msg") for _host, task, result in run.results if "which controller serves" in task]
    assert any(line in str(each) for each in said), said


def job_runs(lab: Lab, job: str) -> None:
    lab.wait_for(LOGIN, f"timeout 60 squeue -h -j {job} -o %T", "RUNNING", 120)


@contextmanager
def jobs_of_alice(lab: Lab) -> Iterator[str]:
    """A job that runs as long as this block, whose number this is, and alice, who submits others."""
    for name, text in (("load", LOAD), ("job", JOB)):
        lab.script(LOGIN, f"cat >/home/alice/{name}; chmod 755 /home/alice/{name}", text.encode())
    until = "until test -e /home/alice/go; do sleep 1; done"
    lab.command(LOGIN, "rm -f /home/alice/go /home/alice/ledger /home/alice/submitted; chown -R alice: /home/alice")
    job = lab.command(
        LOGIN, f"runuser -u alice -- timeout 60 sbatch --parsable -w two-node1 -D / -o /dev/null --wrap '{until}'"
    )
    job_runs(lab, job)
    start_load(lab)
    try:
        yield job
    finally:
        lab.host(LOGIN).run("systemctl stop load; touch /home/alice/go")


def each_job_ran_once(lab: Lab, job: str, least: int) -> None:
    """The long job still runs and completes, and each job that slurmctld took has begun and ended once."""
    lab.host(LOGIN).run("systemctl stop load")
    lab.wait_for(LOGIN, "timeout 60 squeue -h --name=ledger -o %i | wc -l", "0", 120)
    job_runs(lab, job)
    lab.command(LOGIN, "touch /home/alice/go")
    lab.wait_for(LOGIN, f"timeout 60 squeue -h -j {job} -o %T; echo end", "end", 60)
    ledger = Counter(lab.command(LOGIN, "cat /home/alice/ledger").splitlines())
    jobs = [number for _when, number in submitted(lab)]
    assert len(jobs) == len({*jobs}) > least
    wrong = {line: times for line, times in ledger.items() if times != 1}
    missing = [f"{what} {number}" for number in jobs for what in ("start", "end") if f"{what} {number}" not in ledger]
    assert (wrong, missing) == ({}, [])
    record = f"timeout 60 sacct --noheader -X -P --jobs={job} --format=state"
    lab.wait_for(LOGIN, record, "COMPLETED", 90)
