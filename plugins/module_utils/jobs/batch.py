# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many jobs at a time: sbatch commands, answers of squeue and sacct, and the comparison with the expected ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..client.drains import owner

FINAL_STATES = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
)
"""The states that end a job (squeue(1), "JOB STATE CODES")."""

REFUSED = "REFUSED"
ACCEPTED = "ACCEPTED"
"""The state of a job about which Slurm was only asked."""
"""Our state of a job that sbatch did not accept."""

UNKNOWN = "UNKNOWN"
"""Our state of a job that slurmctld has forgotten (`MinJobAge`) before anybody saw its end."""

NOT_BOOKED = "sacct does not show its end"
"""A part of the message about a job that has ended, and whose end is not in the database."""

WORKING = re.compile(r"(idle|allocated|mixed|completing|planned)[~^#%$@+-]?( \(.*)?")
"""sinfo's states of a node that takes jobs, sooner or later. Not so `idle*`, which does not respond."""

BY_A_PERSON = re.compile(r"drain\S* by a person \(")
"""The state of a node that a person has drained (`_state`)."""

OTHERS = ("Resources", "Priority")
BUSY = (
    *OTHERS,
    "Nodes required for job are DOWN, DRAINED or reserved",
    "ReqNodeNotAvail, May be reserved for other job",
    "ReqNodeNotAvail, UnavailableNodes:",
)
"""How the reasons of a job start that waits for others.

Slurm gives the last three also for a node that works, if a job of a partition with a higher PriorityTier waits for it
(`select_nodes` in src/slurmctld/node_scheduler.c). So they count only with the states of the nodes.
"""

Job = dict[str, Any]
"""The options of slurm_job for a job."""

SBATCH_OPTIONS = (
    *("partition", "nodelist", "nodes", "ntasks", "cpus_per_task", "memory", "gres", "array", "time"),
    *("account", "qos", "begin", "output"),
)
"""Options of a job that are options of sbatch too: `cpus_per_task` is `--cpus-per-task`."""

NO_ASSOCIATION = re.compile(r"Invalid account or account/partition|Invalid qos specification")
"""Slurm's messages for jobs that no association or its QOS allow (`src/common/slurm_errno.c`)."""

SQUEUE_FIELDS = ("ArrayJobID", "ArrayTaskID", "State", "exit_code", "TimeUsed", "SubmitTime", "NodeList", "Reason")
SACCT_FIELDS = ("JobID", "State", "ExitCode", "ElapsedRaw", "Submit", "NodeList")

# The colon with no width after it is the whole field; without it squeue cuts at 20 characters (Slurm 22.05).
SQUEUE = ["squeue", "--me", "--all", "--array", "--states=all", "--noheader"]
SQUEUE += ["--Format", ",".join(f"{field}:|" for field in SQUEUE_FIELDS)]
"""All jobs of the user, in one call: slurmctld filters by user, but by job number squeue does that itself."""


@dataclass(frozen=True)
class JobRecord:
    """The state of a job, or of one task of an array, in Slurm."""

    job_id: int
    task: str = ""
    """The index in the array; empty for a job that is no array."""
    state: str = UNKNOWN
    exit_code: str = ""
    """`CODE:SIGNAL`, as sacct has it."""
    elapsed: int = 0
    """Seconds."""
    submitted: str = ""
    """Slurm's time stamp: it distinguishes a job from an older one with the same number."""
    nodes: str = ""
    """A hostlist; empty for a job that has not started."""
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether the state is one that does not change any more."""
        return self.state in FINAL_STATES or self.state in (ACCEPTED, REFUSED, UNKNOWN)


def sbatch_arguments(job: Mapping[str, Any]) -> list[str]:
    """The sbatch command of a job. The script goes to its standard input, so it is on no command line."""
    options = {"job-name": job["name"], "output": "/dev/null"}
    for key in SBATCH_OPTIONS:
        if job.get(key) is not None:
            options["mem" if key == "memory" else key.replace("_", "-")] = job[key]
    options.update(job.get("options") or {})
    # True is an option without a value (--exclusive); null and false take one away.
    given = {key: value for key, value in options.items() if value is not None and value is not False}
    return [
        "sbatch",
        "--parsable",
        *(f"--{key}" if value is True else f"--{key}={value}" for key, value in given.items()),
    ]


def batch_script(job: Mapping[str, Any]) -> str:
    """The text that sbatch runs: the script as it is, or the command under /bin/sh."""
    return str(job["script"]) if job.get("script") else f"#!/bin/sh\n{job['command']}\n"


def refusal(stderr: str) -> str:
    """Slurm's reason for the refusal of a job, on one line."""
    lines = (re.sub(r"^sbatch: (error|fatal): ", "", line.strip()) for line in stderr.split("\n"))
    return "; ".join(line.replace("Batch job submission failed: ", "") for line in lines if line)


def _seconds(text: str) -> int:
    """Seconds of squeue's `[DAYS-][HOURS:]MINUTES:SECONDS`; 0 for what is no time (`INVALID`)."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not match:
        return 0
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _exit_code(text: str) -> str:
    """`CODE:SIGNAL`. Slurm 22.05 prints wait(2)'s number instead."""
    return f"{int(text) >> 8}:{int(text) & 0x7F}" if text.isdigit() else text


def parse_squeue(text: str) -> list[JobRecord]:
    """The records in the output of `SQUEUE`."""
    records = []
    for line in filter(None, text.split("\n")):
        job_id, task, state, exit_code, elapsed, submitted, nodes, reason = line.split("|")[: len(SQUEUE_FIELDS)]
        task, reason = task.replace("N/A", ""), reason.replace("None", "")
        records.append(
            JobRecord(int(job_id), task, state, _exit_code(exit_code), _seconds(elapsed), submitted, nodes, reason)
        )
    return records


def sacct_arguments(job_ids: Iterable[int]) -> list[str]:
    """The sacct command that shows these jobs, a line each (an array: a line for each task)."""
    ids = ",".join(map(str, job_ids))
    return ["sacct", "--allocations", "--noheader", "--parsable2", "--jobs", ids, "--format", ",".join(SACCT_FIELDS)]


def parse_sacct(text: str) -> list[JobRecord]:
    """The records in the output of `sacct_arguments`. Tasks that wait are one line, `12_[2-3]`: that is kept."""
    records = []
    for line in filter(None, text.split("\n")):
        name, state, exit_code, elapsed, submitted, nodes = line.split("|")
        job_id, _separator, task = name.partition("_")
        # "CANCELLED by 1000"
        state = state.split(" ")[0]
        nodes = nodes.replace("None assigned", "")
        records.append(JobRecord(int(job_id), task, state, exit_code, int(elapsed or 0), submitted, nodes))
    return records


Known = dict[tuple[int, str], JobRecord]
"""The records of our jobs, by job and array index."""


def updated(known: Known, answer: Iterable[JobRecord], job_ids: Iterable[int]) -> Known:
    """The records of these jobs after a full answer of squeue.

    A record that has ended stays, because slurmctld forgets jobs some time after their end (`MinJobAge`).
    If a job is not in the answer and its end was not seen, its final state is unknown.
    """
    ours = set(job_ids)
    news = {(record.job_id, record.task): record for record in answer if record.job_id in ours}
    lost = {key: replace(old, state=UNKNOWN) for key, old in known.items() if key not in news and not old.ended}
    result = {**known, **lost, **news}
    never_seen = ours - {job_id for job_id, _task in result}
    return {**result, **{(job_id, ""): JobRecord(job_id) for job_id in never_seen}}


def by_job(records: Iterable[JobRecord]) -> dict[int, list[JobRecord]]:
    """The records of each job."""
    jobs: dict[int, list[JobRecord]] = {}
    for record in records:
        jobs.setdefault(record.job_id, []).append(record)
    return jobs


def whole(records: list[JobRecord]) -> JobRecord:
    """The job that these array tasks make up.

    It is as its first task that has not ended, else as the first that is not COMPLETED.
    """
    first = min(records, key=lambda record: (record.ended, record.state == "COMPLETED"))
    nodes = ",".join(dict.fromkeys(record.nodes for record in records if record.nodes))
    return replace(first, task="", nodes=nodes, elapsed=max(record.elapsed for record in records))


def booked(seen: list[JobRecord], answer: list[JobRecord]) -> list[JobRecord] | None:
    """The accounting record of a job whose end squeue has shown; None while the record is not complete.

    `answer` is sacct's answer for this job. An older job of the same number has an earlier time of submission.
    Accounting does not store the reason of the end, so it is squeue's.
    """
    reasons = {record.task: record.reason for record in seen if record.submitted}
    times = {record.submitted for record in seen if record.submitted}
    matching = [
        replace(record, reason=reasons.get(record.task, ""))
        for record in answer
        if not times or record.submitted in times
    ]
    complete = matching and reasons.keys() <= {record.task for record in matching}
    return matching if complete and all(record.ended for record in matching) else None


def parse_sinfo(text: str) -> dict[str, str]:
    """State of each node, with the owner of a drain and the reason, from `sinfo --Node --format '%N|%T|%u|%E'`.

    A reason may have lines of its own; they are left out.
    """
    rows = (line.split("|", 3) for line in text.split("\n"))
    return {row[0]: _state(*row[1:]) for row in rows if len(row) == 4}


def _state(state: str, user: str, reason: str) -> str:
    """The state of a node as people see it: `drained by the health check (health check gpu: ...)`."""
    if reason == "none":
        return state
    by = f" by {owner(reason, user)}" if state.startswith(("drain", "down")) else ""
    return f"{state}{by} ({reason})"


def why_waiting(reason: str, node_states: Mapping[str, str]) -> str:
    """Why a job has not started: its nodes are `unavailable` (drained, down) or `busy`, or it has an `other` reason.

    A job without a reason is one that slurmctld has not tried to start, as behind many others (default_queue_depth).
    """
    if not all(WORKING.fullmatch(state) for state in node_states.values()):
        return "unavailable"
    untried = not reason and node_states and not any(state.startswith("idle") for state in node_states.values())
    return "busy" if untried or reason.startswith(BUSY) else "other"


def are_left_out(node_states: Mapping[str, str]) -> bool:
    """Whether people have drained all of these nodes that do not take jobs, and there are such nodes."""
    out = [state for state in node_states.values() if not WORKING.fullmatch(state)]
    return bool(out) and all(BY_A_PERSON.match(state) for state in out)


def waits_for_others(record: JobRecord, node_states: Mapping[str, str]) -> bool:
    """Whether a job has not started because others use its nodes, or people have drained them.

    Without nodes of its own, only its reason tells.
    """
    known = node_states or record.reason.startswith(OTHERS)
    busy = bool(known) and why_waiting(record.reason, node_states) == "busy"
    return record.state == "PENDING" and (busy or are_left_out(node_states))


def status_of(job: Mapping[str, Any], record: JobRecord, waited: int) -> tuple[str, str]:
    """The status of a job (`passed`, `failed`, `waiting`) after so many seconds, and one line that says why."""
    expected = job.get("expect") or "COMPLETED"
    reason = f": {record.reason}" if record.reason else ""
    if record.state == "PENDING":
        return "waiting", f"has not started in {waited} s{reason}"
    if not record.ended:
        return "failed", f"has not ended in {waited} s: {record.state} on {record.nodes or 'no node'}{reason}"
    if record.state == UNKNOWN:
        return "failed", "squeue no longer shows it, and there is no accounting: its end is unknown"
    if record.state != expected:
        code = f" (exit code {record.exit_code})" if record.exit_code else ""
        return "failed", f"{record.state}{code}, expected {expected}{reason}"
    wanted = job.get("expect_reason")
    if wanted and not re.search(wanted, record.reason):
        return "failed", f"{record.state} as expected, but Slurm's reason '{record.reason}' does not match '{wanted}'"
    return "passed", ""
