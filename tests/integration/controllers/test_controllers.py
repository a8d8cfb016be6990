# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two controllers under load: each of them away, lost, restored and upgraded, and who serves afterwards.

The tests need each other and run in this order. alice submits a job every three seconds, and each job writes its start
and its end into a ledger, so that the last test needs no accounting: each job ran once. `OUTAGES` has the longest time
without a submitted job that each test allows, beside SlurmctldTimeout, which is 60 s.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab import ROOT, Lab, Run, container, podman, with_cluster

FIRST, SECOND, DATABASE, LOGIN, NODE = "two-ctl1", "two-ctl2", "two-db", "two-login", "two-node2"
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
    """Remove hosts with their disks, and make them anew, bare but for the packages."""
    podman("rm", "--force", "--time=0", *map(container, hosts))
    environment = os.environ | {"MOLECULE_GLOB": "molecule/*/molecule.yml"}
    for command in ("reset", "create"):
        molecule = ["molecule", command, f"--scenario-name={lab.scenario}"]
        subprocess.run(molecule, cwd=ROOT, check=True, capture_output=True, env=environment)
    for host in hosts:
        lab.wait_for(host, "uname -n", host, 60)


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


@pytest.fixture(scope="module", name="job", autouse=True)
def load_of_alice(lab: Lab) -> Iterator[str]:
    """A job that runs until the last test, and alice, who submits others."""
    for name, text in (("load", LOAD), ("job", JOB)):
        lab.script(LOGIN, f"cat >/home/alice/{name}; chmod 755 /home/alice/{name}", text.encode())
    until = "until test -e /home/alice/go; do sleep 1; done"
    lab.command(LOGIN, "rm -f /home/alice/go /home/alice/ledger /home/alice/submitted; chown -R alice: /home/alice")
    job = lab.command(
        LOGIN, f"runuser -u alice -- timeout 60 sbatch --parsable -w two-node1 -D / -o /dev/null --wrap '{until}'"
    )
    job_runs(lab, job)
    start_load(lab)
    yield job
    lab.host(LOGIN).run("systemctl stop load; touch /home/alice/go")


def test_a_second_run_changes_nothing_and_says_who_serves(lab: Lab) -> None:
    # Each controller reaches the other one through its firewall.
    assert {lab.command(host, "timeout 60 scontrol ping") for host in (FIRST, SECOND, LOGIN)} == {BOTH}
    run = site(lab)
    succeeded(run, FIRST_SERVES)
    assert run.changed == {}
    records = {lab.command(host, f"cat {SERIAL}") for host in (FIRST, SECOND)}
    assert records == {lab.command(SECOND, f"cat {STATE}/gpucluster-slurm-serial")}
    for host in (FIRST, SECOND):
        assert "ExecCondition" in lab.command(host, "systemctl show slurmctld")


def test_a_standby_that_a_run_restarts_takes_over_at_once(lab: Lab, job: str, tmp_path: Path) -> None:
    """The primary is away. Its return with older files is that of the next test."""
    stop_load(lab)
    with away(lab, FIRST):
        start_load(lab)
        with outage(lab, "a takeover by itself"):
            serves(lab, SECOND)
        with outage(lab, "a standby that a run restarts"):
            run = site(with_conf(lab, tmp_path, **RESTART))
        assert (run.rc, run.stats[FIRST]["unreachable"]) == (4, 1), run.output[-3000:]
        has_said(run, SECOND_SERVES)
        assert "MaxJobCount             = 9000" in lab.command(LOGIN, "timeout 60 scontrol show config")
        job_runs(lab, job)
        # Without the node of the long job, for which it would wait.
        (tmp_path / "roll.yml").write_text("- name: Touch\n  ansible.builtin.command: {cmd: touch /tmp/rolled}\n")
        changed = with_conf(lab, tmp_path, **RESTART)
        run = site(changed, "-e", "rolling_tasks=roll.yml", f"--limit={SECOND},{NODE}", playbook="rolling")
        assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
        has_said(run, SECOND_SERVES)
        assert lab.command(NODE, "ls /tmp/rolled") == "/tmp/rolled"


def test_a_primary_that_returns_does_not_take_control_with_older_files(lab: Lab, job: str, tmp_path: Path) -> None:
    assert lab.command(FIRST, "systemctl is-active slurmctld", 3) == "inactive"
    assert OLDER in lab.command(FIRST, "journalctl --no-pager --unit=slurmctld --lines=20")
    assert lab.command(FIRST, "systemctl start slurmctld; systemctl show -P Result slurmctld") == "exec-condition"
    serves(lab, SECOND)
    doctor = lab.playbook("doctor")
    assert "its files are older than those in force" in doctor.output
    changed = with_conf(lab, tmp_path, **RESTART)
    with outage(lab, "a primary that returns"):
        succeeded(site(changed), FIRST_SERVES)
    serves(lab, FIRST)
    assert "MaxJobCount             = 9000" in lab.command(LOGIN, "timeout 60 scontrol show config")
    job_runs(lab, job)


def test_a_standby_that_was_away_gets_the_files_as_well(lab: Lab, tmp_path: Path) -> None:
    with away(lab, SECOND):
        run = site(with_conf(lab, tmp_path, MaxJobCount=9100))
        assert (run.rc, [*run.failed]) == (4, [SECOND])
        assert f"The controller {FIRST} serves; slurmctld does not answer on {SECOND}" in run.output
    assert OLDER in lab.command(SECOND, "journalctl --no-pager --unit=slurmctld --lines=20")
    succeeded(site(with_conf(lab, tmp_path, MaxJobCount=9100)), FIRST_SERVES)
    succeeded(site(lab), FIRST_SERVES)


def test_the_disk_of_the_primary_is_lost_while_the_standby_serves(lab: Lab, job: str) -> None:
    """The state is alive in /home: restore.yml leaves it, and site.yml makes the host anew."""
    lab.command(FIRST, "slurm-backup run")
    stop_load(lab)
    lose(lab, FIRST)
    start_load(lab)
    serves(lab, SECOND)
    time.sleep(10)  # jobs that the backup does not have
    before = lab.command(SECOND, f"ls -i {STATE}/clustername")
    run = lab.playbook("restore")
    assert run.rc != 0
    assert re.search(f"Nothing is lost: {DATABASE} has the database, two-ctl[12] has the state", str(run.failed))
    assert lab.command(SECOND, f"ls -i {STATE}/clustername") == before
    succeeded(site(lab), FIRST_SERVES)
    assert lab.command(LOGIN, "timeout 60 scontrol ping") == BOTH
    job_runs(lab, job)


def test_both_controllers_and_the_state_are_lost(lab: Lab, job: str) -> None:
    """The restore makes the first one anew, with the state of the backup, and the second one as its standby."""
    stop_load(lab)
    lab.command(FIRST, "slurm-backup run")
    lose(lab, FIRST, SECOND)
    lab.command(LOGIN, f"find {STATE} -mindepth 1 -delete")
    run = site(lab, playbook="restore")
    succeeded(run, FIRST_SERVES)
    assert "the state of slurmctld is back" in run.output
    assert lab.command(LOGIN, "timeout 60 scontrol ping") == BOTH
    job_runs(lab, job)
    start_load(lab)


def test_an_upgrade_while_the_primary_is_away(lab: Lab, job: str) -> None:
    """Its slurmctld of the previous release could not read the state: it would take control and end."""
    stop_load(lab)
    with away(lab, FIRST):
        start_load(lab)
        serves(lab, SECOND)
        with outage(lab, "an upgrade"):
            run = site(lab, playbook="upgrade")
        assert (run.rc, run.stats[FIRST]["unreachable"]) == (4, 1), run.output[-3000:]
        assert f"{FIRST} was not reached, and its slurmctld does not start with the previous release" in run.output
        has_said(run, SECOND_SERVES)
        assert "26.05" in lab.command(SECOND, "slurmctld -V")
        job_runs(lab, job)
    assert lab.command(FIRST, "systemctl is-active slurmctld", 3) == "inactive"
    assert OLDER in lab.command(FIRST, "journalctl --no-pager --unit=slurmctld --lines=20")
    serves(lab, SECOND)
    refused = site(lab)
    assert refused.rc != 0
    assert "run gpucluster.slurm.upgrade" in str(refused.failed)
    with outage(lab, "a primary that returns"):
        succeeded(site(lab, playbook="upgrade"), FIRST_SERVES)
    assert "26.05" in lab.command(FIRST, "slurmctld -V")
    assert lab.command(LOGIN, "timeout 60 scontrol ping") == BOTH
    job_runs(lab, job)


def test_a_host_that_is_taken_out_of_the_controllers_stops_its_slurmctld(lab: Lab, tmp_path: Path) -> None:
    """It was the primary: the other one starts as the only controller when it has stopped."""
    stop_load(lab)
    alone = {**lab.cluster, "controllers": SECOND, "login": f"{LOGIN},{FIRST}"}
    run = site(with_cluster(lab, tmp_path, alone))
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    assert lab.command(FIRST, "systemctl is-enabled slurmctld", 1) == "disabled"
    lab.command(FIRST, "test -e /etc/slurm/slurm.conf", 1)
    assert f"Slurmctld(primary) at {SECOND} is UP" in lab.command(FIRST, "timeout 60 scontrol ping")


def test_each_job_ran_once(lab: Lab, job: str) -> None:
    job_runs(lab, job)
    lab.command(LOGIN, "touch /home/alice/go")
    lab.wait_for(LOGIN, f"timeout 60 squeue -h -j {job} -o %T; echo end", "end", 60)
    ledger = Counter(lab.command(LOGIN, "cat /home/alice/ledger").splitlines())
    jobs = [number for _when, number in submitted(lab)]
    assert len(jobs) == len({*jobs}) > 100
    wrong = {line: times for line, times in ledger.items() if times != 1}
    missing = [f"{what} {number}" for number in jobs for what in ("start", "end") if f"{what} {number}" not in ledger]
    assert (wrong, missing) == ({}, [])
    record = f"timeout 60 sacct --noheader -X -P --jobs={job} --format=state"
    lab.wait_for(LOGIN, record, "COMPLETED", 90)
