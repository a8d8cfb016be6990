# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmdbd is away. Below MaxDBDMsgs no record is lost; above it doctor names the loss while it happens and afterwards.

Jobs write their begin and end to a file of their own. 10,000 messages are 10,000 changes of one held job by one
scontrol: 10 s with Slurm 24.11.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab import Lab

HEAD = "fault-head"
LIMIT = 10_000
"""Slurm's least MaxDBDMsgs."""
LEDGER = "/home/ledger"
JOB = f"echo $SLURM_JOB_ID begin >>{LEDGER}; srun true; srun true; echo $SLURM_JOB_ID end >>{LEDGER}"
RECORDS = ["", ".0", ".1", ".batch", ".extern"]
"""The job and its steps, as sacct has them."""


def submit(lab: Lab, command: str, *options: str) -> str:
    """A job of one core; its number."""
    given = f"timeout 60 sbatch --parsable --ntasks=1 --mem=100 --output=/dev/null {' '.join(options)}"
    return str(lab.command(HEAD, f"{given} --wrap '{command}'"))


def wait_until_ended(lab: Lab, held: str) -> None:
    """Return when slurmctld has no other job than the held one. sacct is not asked: slurmdbd is away."""
    lab.wait_for(HEAD, "echo =$(timeout 60 squeue -h -o %i | xargs)=", f"={held}=")


def waiting(lab: Lab) -> int:
    """The messages that wait in slurmctld for slurmdbd."""
    return int(lab.command(HEAD, "timeout 60 sdiag | sed -n 's/^DBD Agent queue size: *//p'"))


def flood(lab: Lab, held: str, count: int) -> None:
    """Give slurmctld as many messages for slurmdbd."""
    changes = "".join(f"update JobId={held} TimeLimit={5 + number % 2}\n" for number in range(count))
    lab.script(HEAD, "timeout 300 scontrol >/dev/null", changes.encode())


def findings(lab: Lab, directory: Path) -> dict[str, str]:
    """What doctor says of the server, by cause."""
    report = directory / "report.json"
    run = lab.playbook("doctor", "-e", f"doctor_report={report}")
    assert run.rc == 0, run.failed or run.output[-3000:]
    return {one["cause"]: one["words"] for one in json.loads(report.read_text())["findings"] if one["hosts"] == HEAD}


@pytest.fixture(scope="module", name="held")
def held_job_and_a_small_queue(lab: Lab) -> Iterator[str]:
    """The number of a job that does not start. slurmctld forgets ended jobs soon, so that doctor finds lost ones."""
    with lab.configuration_kept():
        lines = f"-e /^MinJobAge=/d -e '$a MinJobAge=20' -e '$a MaxDBDMsgs={LIMIT}'"
        lab.command(HEAD, f"sed -i {lines} /etc/slurm/slurm.conf")
        lab.command(HEAD, "timeout 60 scontrol reconfigure")
        lab.wait_for(HEAD, "timeout 60 scontrol show config", f"MaxDBDMsgs              = {LIMIT}")
        yield submit(lab, "true", "--hold")
        lab.command(HEAD, f"timeout 60 scancel --user=root; rm -f {LEDGER}")


@contextmanager
def slurmdbd_away(lab: Lab) -> Iterator[None]:
    """Stop slurmdbd; afterwards all messages reach it."""
    lab.command(HEAD, "systemctl stop slurmdbd")
    try:
        yield
    finally:
        lab.command(HEAD, "systemctl start slurmdbd")
        lab.wait_for(HEAD, "timeout 60 sdiag | grep 'DBD Agent queue size' | tr -d ' '", "size:0")


def test_below_the_limit_no_record_is_lost(lab: Lab, held: str, tmp_path: Path) -> None:
    """slurmctld is stopped and started meanwhile."""
    with slurmdbd_away(lab):
        jobs = [submit(lab, JOB) for _number in range(10)]
        wait_until_ended(lab, held)
        flood(lab, held, LIMIT - 500 - waiting(lab))
        lab.command(HEAD, "systemctl restart slurmctld")
        lab.wait_for(HEAD, "timeout 60 scontrol ping", "UP")
        assert LIMIT - 500 <= waiting(lab) < LIMIT - 1
        said = findings(lab, tmp_path)["messages-waiting"]
        assert re.search(rf"^\d+ of at most {LIMIT} messages for slurmdbd wait in slurmctld; at the rate of the", said)
        assert said.endswith("slurmctld then discards those of steps, then each new one")
    ledger = sorted(f"{job} {word}" for job in jobs for word in ("begin", "end"))
    assert sorted(lab.command(HEAD, f"cat {LEDGER}").split("\n")) == ledger
    booked = lab.command(HEAD, f"timeout 60 sacct -nP -o JobID,State -j {','.join(jobs)}").split("\n")
    assert sorted(booked) == sorted(f"{job}{part}|COMPLETED" for job in jobs for part in RECORDS)
    assert "messages-waiting" not in findings(lab, tmp_path)


def test_above_the_limit_the_loss_is_named(lab: Lab, held: str, tmp_path: Path) -> None:
    """Jobs that have ended before have no steps in the database; one that ends has no end; a new one is not there."""
    ends = submit(lab, "sleep 7200")
    lab.wait_for(HEAD, f"timeout 60 sacct -nPX -o State -j {ends}", "RUNNING")
    with slurmdbd_away(lab):
        ended = submit(lab, JOB)
        lab.wait_for(HEAD, f"cat {LEDGER}", f"{ended} end")
        flood(lab, held, LIMIT + 500)
        lab.command(HEAD, f"timeout 60 scancel {ends}")
        lost = submit(lab, JOB)
        wait_until_ended(lab, held)
        said = findings(lab, tmp_path)
        assert said["messages-waiting"].startswith(f"{LIMIT} of at most {LIMIT} messages for slurmdbd")
        assert "this is the limit, and slurmctld discards" in said["messages-waiting"]
        assert f"agent queue is full ({LIMIT}), discarding" in said["messages-discarded"]
    # squeue fails for a job that slurmctld has forgotten, and its message is what is waited for.
    lab.wait_for(HEAD, f"timeout 60 squeue -h -a -t all -j {ends} 2>&1 || true", "Invalid job id")
    booked = lab.command(HEAD, f"timeout 60 sacct -nP -o JobID,State -j {ended},{ends},{lost}").split("\n")
    running = [f"{ends}{part}|RUNNING" for part in ("", ".batch", ".extern")]
    assert sorted(booked) == sorted([f"{ended}|COMPLETED", *running])
    said = findings(lab, tmp_path)
    assert said["runaway-jobs"].endswith(f": {ends}")
    assert "discarding" in said["messages-discarded"]
    lab.command(HEAD, "echo y | timeout 60 sacctmgr show runawayjobs")
    assert lab.command(HEAD, f"timeout 60 sacct -nPX -o State -j {ends}") == "COMPLETED"
