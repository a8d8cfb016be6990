# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller that loses its power, also in the middle of a change of keys, and one that returns.

alice submits a job every second, and each job writes its start and its end into a ledger. She pauses before a loss,
since slurmctld writes a change within ten seconds, and what is younger is lost. Some of her jobs end while nobody
serves.
"""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from lab import Lab, container, podman
from test_munge import FIRST, HOSTS, LOGIN, ROTATE, SECOND, is_whole, store, unit

# Minutes each.
pytestmark = pytest.mark.rare

WORK = "/home/alice/lost"
STATE = "/home/rotation-state"
TOKENS = ("rotate_keys", "--extra-vars=rotate=jwt")

RUNS = "echo =$(systemctl is-active slurmctld)="

TIMEOUT = 60
TAKEOVER = TIMEOUT * 4 / 3 + 15
"""Seconds until a standby serves: it asks three times in SlurmctldTimeout, and once more (src/slurmctld/backup.c)."""
RETURN = 60
"""Seconds without service when the primary returns. Up to 15 were measured; hosts may be busy."""

JOB = """\
#!/bin/sh
echo "start $SLURM_JOB_ID" >>ledger
sleep $1
echo "end $SLURM_JOB_ID" >>ledger
"""

# A line for each try: when it ended, and the job; 0 if it failed.
LOAD = """\
until [ -e stop ]; do
    [ -e pause ] && sleep 0.5 && continue
    job=$(sbatch --parsable --no-requeue --mem=20 --output=/dev/null --job-name=lost job 4 2>>errors)
    echo "$(date +%s.%N) ${job:-0}" >>tries
    sleep 1
done
"""


@pytest.fixture(name="load", autouse=True)
def jobs_of_alice(lab: Lab) -> Iterator[None]:
    """alice submits during a test. Each job that slurmctld took has begun and ended once, and no other one."""
    lab.command(LOGIN, f"rm -rf {WORK}; install -d -o alice -g alice {WORK}; touch {WORK}/errors {WORK}/tries")
    lab.script(LOGIN, f"cat >{WORK}/job; chown alice {WORK}/*", JOB.encode())
    # slurmctld writes what slurmdbd says of users every 300 s (PERIODIC_CHECKPOINT); slurmdbd is lost with the primary.
    lab.wait_for(SECOND, f"grep -q alice {STATE}/assoc_mgr_state && echo saved", "saved", 330)
    unit(lab, "lost", LOAD, WORK)
    lab.wait_for(LOGIN, f"wc -l <{WORK}/tries", "3", 60)
    yield
    lab.host(LOGIN).run(f"touch {WORK}/stop; while systemctl is-active --quiet rotation-lost; do sleep 1; done")
    lab.wait_for(LOGIN, "found=$(timeout 100 squeue -h --name=lost -o %i) && echo =$found=", "==", 300)
    ledger = Counter(lab.command(LOGIN, f"cat {WORK}/ledger").splitlines())
    taken = [job for _end, job in tries(lab) if job]
    begun = [int(line.split()[1]) for line in ledger if line.startswith("start")]
    print(f"measured: {len(taken)} jobs were taken, {len({*begun} - {*taken})} others ran")
    print(lab.command(LOGIN, f"sort {WORK}/errors | uniq -c"))
    assert {line: times for line, times in ledger.items() if times != 1} == {}
    assert [job for job in begun if f"end {job}" not in ledger] == []
    assert [job for job in taken if job not in begun] == []
    assert len(taken) == len({*taken})


def tries(lab: Lab) -> list[tuple[float, int]]:
    rows = (line.split() for line in lab.command(LOGIN, f"cat {WORK}/tries").splitlines())
    return [(float(end), int(job)) for end, job in rows]


def without_service(lab: Lab, since: float) -> float:
    """The longest time without a job that slurmctld took, since then."""
    ends = [since, *(end for end, job in tries(lab) if job and end > since)]
    return max(after - before for before, after in zip(ends, ends[1:]))


def wait_until_serving(lab: Lab, host: str, since: float, seconds: float = 300) -> float:
    """When slurmctld of this host has begun to serve."""
    said = f"journalctl --unit=slurmctld --output=short-unix --since=@{since:.0f} | grep 'Running as primary' || true"
    return float(lab.wait_for(host, said, "Running", int(seconds)).split()[0])


def pause(lab: Lab) -> str:
    """Jobs that run over the loss; alice submits no others, and slurmctld has written all that it knows."""
    long = "sbatch --parsable --no-requeue --mem=20 --output=/dev/null --job-name=lost job 100"
    script = f"cd {WORK} && touch pause && for each in 1 2; do runuser -u alice -- {long}; done"
    jobs = ",".join(lab.command(LOGIN, script).split())
    lab.wait_for(LOGIN, "echo =$(timeout 60 squeue -h --name=lost -o %i | sort -n | paste -sd,)=", f"={jobs}=")
    time.sleep(12)
    return jobs


def pull_the_plug(lab: Lab, host: str) -> float:
    podman("kill", container(host))
    lost = time.time()
    lab.command(LOGIN, f"rm -f {WORK}/pause")
    return lost


def have_completed(lab: Lab, jobs: str) -> None:
    """The ends of these jobs, which nobody served, are known."""
    states = f"timeout 60 sacct --noheader -X --jobs={jobs} --format=state%12 | sort | uniq -c"
    lab.wait_for(SECOND, states, "2    COMPLETED", 300)


def power_on(lab: Lab, host: str) -> float:
    podman("start", container(host))
    begin = time.time()
    lab.wait_for(host, "uname -n", host, 60)
    return begin


@contextmanager
def power_comes_back(lab: Lab) -> Iterator[None]:
    """The first controller has power and serves after this block."""
    try:
        yield
    finally:
        with suppress(subprocess.CalledProcessError):
            power_on(lab, FIRST)
        last = f"timeout 60 squeue -h >/dev/null && od -An -tu1 -j15 -N1 {STATE}/heartbeat"
        lab.wait_for(LOGIN, last, "   0", 200)
        lab.wait_for(SECOND, RUNS, "=active=", 60)


def taken_over(lab: Lab, lost: float, what: str) -> None:
    seconds = wait_until_serving(lab, SECOND, lost) - lost
    print(f"measured: {what}: the standby serves after {seconds:.0f} s; SlurmctldTimeout is {TIMEOUT} s")
    assert seconds <= TAKEOVER


def key_of(lab: Lab, host: str) -> str:
    return str(lab.command(host, "sha256sum </etc/munge/munge.key").split()[0])


def next_key_of_store(lab: Lab) -> str:
    return hashlib.sha256(Path(f"{store(lab)}.next").read_bytes()).hexdigest()


def test_a_primary_that_returns(lab: Lab) -> None:
    """No command that waits is refused, and the service goes on after seconds."""
    jobs = pause(lab)
    with power_comes_back(lab):
        taken_over(lab, pull_the_plug(lab, FIRST), "a lost primary")
        time.sleep(10)
        refused = lab.command(LOGIN, f"cat {WORK}/errors")
        begin = power_on(lab, FIRST)
        seconds = wait_until_serving(lab, FIRST, begin) - begin
        time.sleep(20)
    gap = without_service(lab, begin)
    print(f"measured: the primary serves {seconds:.0f} s after its power; {gap:.0f} s without service")
    have_completed(lab, jobs)
    assert gap <= RETURN
    assert "timed out" not in lab.command(LOGIN, f"cat {WORK}/errors").removeprefix(refused)


def test_power_is_lost_while_the_switch_is_armed(lab: Lab) -> None:
    """All hosts keep their key, and the standby takes over as at any other time."""
    before, jobs = store(lab).read_bytes(), pause(lab)
    run = lab.start(*ROTATE)
    with power_comes_back(lab):
        run.wait_for_task("rotation : Wait until the hosts have switched")
        taken_over(lab, pull_the_plug(lab, FIRST), "power lost while the switch is armed")
        result = run.finish()
        assert result.rc != 0
        assert [*result.failed] == [FIRST]
        old = hashlib.sha256(before).hexdigest()
        assert {key_of(lab, host) for host in HOSTS if host != FIRST} == {old}
    have_completed(lab, jobs)
    following = lab.playbook(*ROTATE)
    assert (following.rc, following.failed) == (0, {}), following.output[-3000:]
    is_whole(lab)
    assert store(lab).read_bytes() != before


def test_power_is_lost_in_the_middle_of_the_switch(lab: Lab) -> None:
    """slurmctld of the primary has just stopped. The others have the next key, and the primary returns without it."""
    before, jobs = store(lab).read_bytes(), pause(lab)
    run = lab.start(*ROTATE)
    with power_comes_back(lab):
        run.wait_for_task("rotation : Wait until the hosts have switched")
        # The program of the switch stops there, so that a busy machine does not lose the power after the switch.
        halt = (
            "while systemctl --quiet is-active slurmctld; do sleep 0.1; done; pkill -STOP -f [g]pucluster-munge-switch"
        )
        podman("exec", container(FIRST), "sh", "-c", halt)
        taken_over(lab, pull_the_plug(lab, FIRST), "power lost in the middle of the switch")
        assert run.finish().rc != 0
        found = {host: key_of(lab, host) for host in HOSTS if host != FIRST}
        assert {*found.values()} == {next_key_of_store(lab)}

        # Its disk did not get the next key in time.
        disk = Path(podman("mount", container(FIRST)).strip())
        (disk / "etc/munge/munge.key").write_bytes(before)
        podman("umount", container(FIRST))
        begin = power_on(lab, FIRST)
        said = f"journalctl --unit=slurmctld --since=@{begin:.0f} --no-pager"
        lab.wait_for(FIRST, said, "serves with another munge key", 120)
        assert "Running as primary" not in lab.command(FIRST, said)
        following = lab.playbook(*ROTATE)
        assert (following.rc, following.failed) == (0, {}), following.output[-3000:]
        site = lab.playbook("site", "--skip-tags=validate")
        assert (site.rc, site.failed) == (0, {}), site.output[-3000:]
    have_completed(lab, jobs)
    is_whole(lab)


def test_a_change_of_tokens_that_is_killed_leaves_no_standby_stopped(lab: Lab) -> None:
    run = lab.start(*TOKENS)
    run.wait_for_task("rotation : Run the daemons with the new keys")
    run.kill()
    assert lab.command(SECOND, "systemctl is-active slurmctld", 3) == "inactive"
    begin = time.monotonic()
    lab.wait_for(SECOND, RUNS, "=active=", 90)
    print(f"measured: the standby runs {time.monotonic() - begin:.0f} s after the end of the run")
    following = lab.playbook(*TOKENS)
    assert (following.rc, following.failed) == (0, {}), following.output[-3000:]
    is_whole(lab)


def test_a_serving_controller_that_does_not_start_with_the_tokens_key_is_replaced(lab: Lab) -> None:
    place = "/run/systemd/system/slurmctld.service.d/test.conf"
    lab.script(FIRST, f"mkdir -p $(dirname {place}); cat >{place}", b"[Service]\nRestart=no\nExecStartPre=/bin/false\n")
    lab.command(FIRST, "systemctl daemon-reload")
    try:
        begin = time.time()
        run = lab.playbook(*TOKENS)
        assert (run.rc, [*run.failed]) == (2, [FIRST])
        stopped = f"journalctl --unit=slurmctld --output=short-unix --since=@{begin:.0f} | grep 'Stopped slurmctld'"
        lost = float(lab.command(FIRST, stopped).split()[0])
        seconds = wait_until_serving(lab, SECOND, lost) - lost
        print(f"measured: the standby serves {seconds:.0f} s after the stop of the primary")
        assert seconds <= TAKEOVER + 30
    finally:
        lab.command(FIRST, f"rm {place}; systemctl daemon-reload; systemctl reset-failed slurmctld")
        with power_comes_back(lab):
            lab.command(FIRST, "systemctl start slurmctld")
    following = lab.playbook(*TOKENS)
    assert (following.rc, following.failed) == (0, {}), following.output[-3000:]
    is_whole(lab)
