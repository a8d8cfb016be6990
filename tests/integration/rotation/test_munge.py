# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another key of munge while jobs run: a stream of jobs, squeue once a second, srun, and sessions that wait.

A run is killed at each of its steps, and the next one completes the switch or goes back.
"""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import Lab, Run

LOGIN, FIRST, SECOND, NODE = "rot-login", "rot-ctl1", "rot-ctl2", "rot-node2"
HOSTS = (FIRST, SECOND, LOGIN, "rot-node1", NODE)
ROTATE = ("rotate_keys", "--extra-vars=rotate=munge")
WORK = "/home/alice/rotation"

MOST_REFUSED = 30
"""Seconds in which a command may end with an error."""

# Each loop writes: its name, begin, end and exit status of each command.
LOAD = """\
#!/bin/bash
cd {work}
again() {{
    name=$1 pause=$2
    shift 2
    while ! [ -e stop ]; do
        begin=$(date +%s.%N)
        "$@" >>$name.out 2>>$name.err
        status=$?
        echo "$name $begin $(date +%s.%N) $status" >>requests
        sleep $pause
    done
}}
again squeue 1 squeue --noheader --format=%i &
again sbatch 1 sbatch --parsable --mem=20 --output=/dev/null --job-name=stream --wrap 'sleep 4' &
again srun 4 srun --quiet --mem=20 --job-name=short hostname &
wait
"""

STEPS = """\
#!/bin/sh
# A job of two nodes, whose steps begin and end all the time. One that asks slurmctld while this ends its connections
# fails ("Connection reset by peer"), as at each restart of slurmctld.
until [ -e go ]; do srun -N2 --mem=10 sleep 1 || echo refused >>steps.refused; done
"""

SESSIONS = {
    # They run, and wait for a file.
    "running": "srun -N2 --mem=20 --job-name=running sh -c 'until [ -e go ]; do sleep 1; done; echo ended'",
    # They wait for the job with the steps.
    "waiting": "srun --mem=20 --job-name=waiting --dependency=afterany:{job} echo ended",
    "salloc": "salloc --mem=20 --job-name=salloc --dependency=afterany:{job} srun echo ended",
    "allocated": "salloc --mem=20 --job-name=allocated sh -c 'until [ -e go ]; do sleep 1; done; srun echo ended'",
}


def as_alice(lab: Lab, command: str) -> str:
    """The output of a command of alice on the login host."""
    return str(lab.command(LOGIN, f"cd {WORK} && runuser -u alice -- {command}"))


def unit(lab: Lab, name: str, command: str, work: str = WORK) -> None:
    """Start a command of alice that goes on."""
    lab.command(LOGIN, f"cd {work} && echo {_quoted(command)} >{name}.sh && chown alice {name}.sh")
    start = f"systemd-run --quiet --collect --uid=alice --unit=rotation-{name} --working-directory={work}"
    lab.command(LOGIN, f"{start} bash -c 'exec bash {name}.sh >{name}.log 2>&1'")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def store(lab: Lab) -> Path:
    return Path(lab.inventory.parent, "secrets/rotation/munge.key")


def keys(lab: Lab) -> dict[str, str]:
    """The checksum of the key of each host, and whether munged has it."""
    found = {}
    credential = lab.command(FIRST, "munge --no-input")
    for host in HOSTS:
        lab.command(host, f"echo '{credential}' | unmunge --no-output")
        found[host] = lab.command(host, "sha256sum </etc/munge/munge.key").split()[0]
    return found


def is_whole(lab: Lab) -> None:
    """All hosts have the key of the store, slurmctld runs, and nothing of a switch is left."""
    digest = hashlib.sha256(store(lab).read_bytes()).hexdigest()
    assert keys(lab) == dict.fromkeys(HOSTS, digest)
    assert not Path(f"{store(lab)}.next").exists()
    for host in HOSTS:
        assert lab.command(host, "ls /etc/munge /run/gpucluster-munge-switch.* 2>/dev/null || true") == (
            "/etc/munge:\nmunge.key"
        )
    assert lab.command(LOGIN, "timeout 60 sinfo -h -o %D") == "2"
    for controller in (FIRST, SECOND):
        assert lab.command(controller, "systemctl is-active slurmctld") == "active"
        # systemd refuses a start after too many, and slurmctld would stay stopped.
        assert "repeated too quickly" not in lab.command(controller, "journalctl --unit=slurmctld")


@pytest.fixture(name="work")
def directory_of_alice(lab: Lab) -> Iterator[None]:
    """An empty directory that all hosts see."""
    lab.command(LOGIN, f"rm -rf {WORK}; install -d -o alice -g alice {WORK}")
    yield
    lab.host(LOGIN).run(f"touch {WORK}/stop {WORK}/go; sleep 5; scancel --user=alice")


def longest(rows: list[tuple[float, float, bool]]) -> tuple[float, float]:
    """The longest time in which commands failed, and the longest one that succeeded."""
    refused, since = 0.0, None
    for begin, end, good in rows:
        if good:
            since = None
        else:
            since = begin if since is None else since
            refused = max(refused, end - since)
    return refused, max((end - begin for begin, end, good in rows if good), default=0.0)


@pytest.mark.usefixtures("work")
def test_no_job_is_lost(lab: Lab) -> None:
    since = lab.command(LOGIN, "date +%Y-%m-%dT%H:%M:%S")
    old = lab.command(FIRST, "munge --no-input --ttl=3600")
    before = store(lab).read_bytes()
    unit(lab, "load", LOAD.format(work=WORK))
    lab.command(LOGIN, f"cd {WORK} && echo {_quoted(STEPS)} >steps && chown alice steps")
    job = as_alice(lab, "sbatch --parsable -N2 --mem=30 --job-name=steps --output=steps.log steps")
    for name, command in SESSIONS.items():
        unit(lab, name, command.format(job=job))
    for name in ("running", "allocated", "steps"):
        lab.wait_for(LOGIN, f"squeue -h --name={name} -o %T", "RUNNING")
    for name in ("waiting", "salloc"):
        lab.wait_for(LOGIN, f"squeue -h --name={name} -o %T", "PENDING")
    time.sleep(5)

    begin = time.monotonic()
    run = lab.playbook(*ROTATE)
    print(f"measured: the run took {time.monotonic() - begin:.0f} s")
    assert (run.rc, run.failed) == (0, {}), run.output[-3000:]
    time.sleep(15)
    lab.command(LOGIN, f"touch {WORK}/go {WORK}/stop")
    lab.wait_for(LOGIN, "found=$(timeout 60 squeue -h -o %i) && echo =$found=", "==", 900)

    assert store(lab).read_bytes() != before
    is_whole(lab)
    for host in HOSTS:
        refused = lab.host(host).run(f"echo '{old}' | unmunge --no-output")
        assert (refused.rc, "Invalid credential" in refused.stderr) == (14, True), refused.stderr

    rows: dict[str, list[tuple[float, float, bool]]] = {}
    for line in lab.command(LOGIN, f"cat {WORK}/requests").splitlines():
        name, first, last, status = line.split()
        rows.setdefault(name, []).append((float(first), float(last), status == "0"))
    for name, requests in rows.items():
        refused_for, waited = longest(requests)
        bad = sum(not good for *_times, good in requests)
        text = f"measured: {name}: {len(requests)} requests, {bad} refused, for {refused_for:.1f} s"
        print(f"{text}; the longest that succeeded took {waited:.1f} s")
        if bad:
            print(lab.command(LOGIN, f"sort {WORK}/{name}.err | uniq -c | sort -n | tail -n 8"))
    for name in SESSIONS:
        assert "ended" in lab.command(LOGIN, f"cat {WORK}/{name}.log"), name
    time.sleep(5)
    fields = "--noheader --parsable2 --allocations --duplicates --format=JobID,JobName,State,ExitCode"
    found = lab.command(FIRST, f"sacct --user=alice --starttime={since} {fields}").splitlines()
    refused_steps = lab.command(LOGIN, f"cat {WORK}/steps.refused 2>/dev/null | wc -l")
    print(f"measured: {len(found)} jobs; {refused_steps} steps refused")
    assert int(refused_steps) <= 2
    assert [line for line in found if not line.endswith("|COMPLETED|0:0")] == []
    submitted = lab.command(LOGIN, f"cat {WORK}/sbatch.out").split()
    assert {*submitted} <= {line.split("|")[0] for line in found}
    for name, requests in rows.items():
        assert longest(requests)[0] <= MOST_REFUSED, name
    states = lab.command(LOGIN, "sinfo -h -N -o '%N %T %E'")
    assert not [state for state in ("down", "drain") if state in states], states


def test_the_next_run_changes_nothing(lab: Lab) -> None:
    starts = {
        host: lab.command(host, "systemctl show -p MainPID munge slurmctld slurmdbd slurmd sackd") for host in HOSTS
    }
    run = lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {})
    assert starts == {
        host: lab.command(host, "systemctl show -p MainPID munge slurmctld slurmdbd slurmd sackd") for host in HOSTS
    }
    run = lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed, run.changed) == (0, {}, {})


def test_a_wrong_option_is_refused(lab: Lab) -> None:
    run = lab.playbook("rotate_keys", "--extra-vars=rotate=munge,registri")
    assert all(words in str(run.failed) for words in ("found 'registri'", "did you mean 'registry'"))
    assert run.changed == {}


def test_a_host_that_is_away_stops_the_run_before_the_switch(lab: Lab) -> None:
    before = keys(lab)
    # Connections that are open would go on.
    away = "sleep 1; systemctl stop ssh.socket ssh; pkill -9 sshd; sleep 60; systemctl start ssh"
    lab.command(NODE, f"systemd-run --collect --unit=away sh -c '{away}'")
    time.sleep(3)
    run = lab.playbook(*ROTATE)
    assert run.rc != 0
    assert f"{NODE} cannot take part" in str(run.failed), run.failed
    lab.wait_for(NODE, "uname -n", NODE, 120)
    assert keys(lab) == before
    assert run.changed == {}


def refused_by_site(lab: Lab, words: str) -> None:
    run = lab.playbook("site", "--skip-tags=validate")
    assert run.rc != 0
    assert words in str(run.failed), run.failed
    assert run.changed == {}


def test_site_refuses_another_key_than_the_cluster_has(lab: Lab) -> None:
    key, digests = store(lab).read_bytes(), keys(lab)
    store(lab).write_bytes(bytes(range(256)))
    try:
        refused_by_site(lab, "is not the munge key of the running cluster")
    finally:
        store(lab).write_bytes(key)
    assert keys(lab) == digests


STEPS_OF_RUN = (
    ("rotation : Stage the next key", 0),
    ("rotation : Arm the hosts", 3),
    ("rotation : Arm the controllers", 0),
    ("rotation : Wait until the hosts have switched", 0),
    ("rotation : The next key becomes the key", 0),
    ("munge : Run munge with its key", 0),
    ("rotation : Remove what the switch has left", 0),
)


@pytest.mark.parametrize(("task", "seconds"), STEPS_OF_RUN, ids=[task for task, _seconds in STEPS_OF_RUN])
def test_the_next_run_completes_a_killed_one(lab: Lab, task: str, seconds: int) -> None:
    before = hashlib.sha256(store(lab).read_bytes()).hexdigest()
    run = lab.start(*ROTATE)
    run.wait_for_task(task)
    time.sleep(seconds)
    run.kill()
    if Path(f"{store(lab)}.next").exists():
        refused_by_site(lab, "the cluster gets another munge key")
    for host in HOSTS:
        lab.wait_for(host, "systemctl is-active gpucluster-munge-switch || true", "inactive", 120)
    # Nothing is asked of an administrator until then: jobs run.
    assert len(lab.command(LOGIN, "cd /tmp && runuser -u alice -- timeout 100 srun -N2 --mem=20 hostname").split()) == 2
    following: Run = lab.playbook(*ROTATE)
    assert (following.rc, following.failed) == (0, {}), following.output[-3000:]
    is_whole(lab)
    assert hashlib.sha256(store(lab).read_bytes()).hexdigest() != before


# The second signal is what a connection that breaks sends.
@pytest.mark.parametrize(
    ("task", "number"),
    [
        ("rotation : Arm the controllers", signal.SIGINT),
        ("rotation : Wait until the hosts have switched", signal.SIGINT),
        ("rotation : Wait until the hosts have switched", signal.SIGHUP),
    ],
    ids=["arm-int", "wait-int", "wait-hup"],
)
def test_a_run_after_one_that_was_interrupted_begins_at_once(lab: Lab, task: str, number: signal.Signals) -> None:
    before = hashlib.sha256(store(lab).read_bytes()).hexdigest()
    run = lab.start(*ROTATE)
    run.wait_for_task(task)
    run.process.send_signal(number)
    run.finish()
    begin = time.monotonic()
    following = lab.playbook(*ROTATE)
    print(f"measured: the run after {number.name} took {time.monotonic() - begin:.0f} s")
    assert (following.rc, following.failed) == (0, {}), following.output[-3000:]
    is_whole(lab)
    assert hashlib.sha256(store(lab).read_bytes()).hexdigest() != before
