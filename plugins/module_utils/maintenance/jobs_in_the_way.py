# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that a maintenance concerns: running ones that reach into it, and queued ones that do not start before it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import NamedTuple

from ..accounting.limits import seconds
from ..language.formatting import align_columns, visible
from ..language.hostlist import expand
from .window import NAME, MaintenanceWindow, clock

SQUEUE = ["squeue", "--noheader", "--all"]
SQUEUE += ["--states=PENDING,RUNNING,SUSPENDED,CONFIGURING,STOPPED,SIGNALING,STAGE_OUT"]
SQUEUE += ["--format=%i|%T|%u|%P|%l|%L|%v|%n|%N"]
"""Jobs that are queued or have nodes, an array's queued tasks in one line. Completing ones end by themselves."""

SHOWN = 20
"""Jobs of each kind that are told one by one."""

_unfolded = lru_cache(maxsize=65536)(lambda text: frozenset(expand(text)))
"""The hosts of a hostlist; thousands of jobs have few different ones."""


class ListedJob(NamedTuple):
    """A job, as squeue(1) shows it."""

    job_id: str
    state: str
    user: str
    partitions: str
    limit: str
    left: str
    reservation: str
    requested: frozenset[str]
    """Nodes that a queued job must have."""
    nodes: frozenset[str]
    """Nodes that it has."""

    @property
    def queued(self) -> bool:
        """Whether it has not started."""
        return self.state == "PENDING"


class Partition(NamedTuple):
    """A partition, as scontrol shows it."""

    nodes: frozenset[str]
    limit: float
    """MaxTime in seconds."""


class ConcernedJob(NamedTuple):
    """A job as the report has it."""

    job: str
    user: str
    partition: str
    limit: str
    end: int | None
    """When its limit ends it, in Unix seconds; None for a queued job and for one without a limit."""


@dataclass
class Concerned:
    """The jobs and users that a maintenance concerns."""

    running: list[ConcernedJob] = field(default_factory=list)
    """Running jobs that reach into it."""
    waiting: list[ConcernedJob] = field(default_factory=list)
    """Queued jobs that do not start before it."""
    users: set[str] = field(default_factory=set)
    """Users with running or queued jobs on its nodes, also jobs that end before it."""


def jobs_of(text: str) -> list[ListedJob]:
    """The jobs in the output of `SQUEUE`."""
    found = []
    for line in filter(None, text.split("\n")):
        first = line.split("|", 8)
        if len(first) == 9:
            job_id, state, user, partitions, limit, left, reservation, requested, nodes = first
            hosts = _unfolded(_value(requested)), _unfolded(_value(nodes))
            found.append(ListedJob(job_id, state, user, partitions, limit, left, reservation, *hosts))
    return found


def _value(text: str) -> str:
    """A value that is none of the ways in which squeue says that there is none."""
    return "" if text.strip("()") in ("null", "N/A", "None") else text


def partitions_of(records: Iterable[Mapping[str, str]]) -> dict[str, Partition]:
    """The partitions in the records of scontrol."""
    return {
        record["PartitionName"]: Partition(_unfolded(record.get("Nodes", "")), duration(record.get("MaxTime", "")))
        for record in records
        if "PartitionName" in record
    }


def duration(text: str) -> float:
    """The seconds of a time limit, or of the time left. Without bounds for everything that is no time.

    squeue writes UNLIMITED, NOT_SET, and INVALID for more than a year and for less than nothing: a job that
    OverTimeLimit lets go on (`_print_secs` in src/squeue/print.c of 22.05 to 26.05).
    """
    return seconds(text) if text[:1].isdigit() else math.inf


def concerned(
    jobs: Iterable[ListedJob],
    partitions: Mapping[str, Partition],
    reserved: frozenset[str] | None,
    window: MaintenanceWindow,
    now: int,
) -> Concerned:
    """The jobs that a maintenance concerns, those that end first first.

    A queued job is only said to wait if all nodes that it may use are reserved: otherwise it may start elsewhere. Its
    limit is that of its partition where it has none of its own.

    Args:
        reserved: the nodes; None for all.
        window: the time, in Unix seconds.
        now: Unix time.
    """
    found = Concerned()
    # Thousands of jobs are in few combinations of partitions and nodes.
    place_of = lru_cache(maxsize=None)(partial(_place, partitions, reserved))
    for job in jobs:
        place = place_of(job.partitions)
        own = job.requested if job.queued else job.nodes
        on_reserved = reserved is None or (not own.isdisjoint(reserved) if own else job.queued and place.touched)
        if _value(job.reservation) == NAME or not on_reserved:
            continue
        found.users.add(job.user)
        if not job.queued:
            end = now + duration(job.left)
            if end > window.start:
                last = None if math.isinf(end) else int(end)
                found.running.append(ConcernedJob(job.job_id, job.user, job.partitions, job.limit, last))
        elif (own or place.enclosed) and now + _limit(job, place) > window.start:
            found.waiting.append(ConcernedJob(job.job_id, job.user, job.partitions, job.limit, None))
    found.running.sort(key=lambda job: (job.end is None, job.end or 0))
    return found


class _JobPartitions(NamedTuple):
    """The partitions of a queued job, against the reserved nodes."""

    touched: bool
    """Whether they have reserved nodes."""
    enclosed: bool
    """Whether they have no others."""
    limit: float
    """The least of their limits, in seconds."""


def _limit(job: ListedJob, place: _JobPartitions) -> float:
    """The seconds that a queued job may run: its own limit, or else that of its partitions."""
    own = duration(job.limit)
    return place.limit if math.isinf(own) else own


def _place(partitions: Mapping[str, Partition], reserved: frozenset[str] | None, text: str) -> _JobPartitions:
    """The partitions that a job names."""
    known = [partitions[name] for name in text.split(",") if name in partitions]
    limit = min((partition.limit for partition in known), default=math.inf)
    if reserved is None:
        return _JobPartitions(True, True, limit)
    usable = frozenset().union(*(partition.nodes for partition in known))
    return _JobPartitions(not usable.isdisjoint(reserved), bool(usable) and usable <= reserved, limit)


# -- for people ------------------------------------------------------------------------------------------------------


def report(found: Concerned, begun: bool = False) -> list[str]:
    """Lines about the jobs, and what an administrator can do that loses nothing. begun: whether it has begun."""
    if not found.running and not found.waiting:
        return ["No running job reaches into it, and no queued job waits for its end."]
    return [*_running_lines(found.running, begun), *_waiting_lines(found.waiting, begun)]


def _running_lines(jobs: list[ConcernedJob], begun: bool) -> list[str]:
    if not jobs:
        return ["No running job reaches into it."]
    last = jobs[-1].end
    ends = "one has no time limit" if last is None else f"the last limit ends {clock(last)}"
    later = "" if begun else f" begin later ({ends});"
    return [
        f"{_count(jobs, 'running job')} {'reaches' if len(jobs) == 1 else 'reach'} into it. Slurm does not end running "
        "jobs: the nodes stay in use.",
        *_table(jobs),
        f"  Without loss: ask the users to end or checkpoint them;{later} or leave the nodes out (maintenance_nodes).",
        "  `scontrol requeue` is safe only for jobs that continue where they were.",
    ]


def _waiting_lines(jobs: list[ConcernedJob], begun: bool) -> list[str]:
    if not jobs:
        return ["No queued job waits for its end."]
    stays = "waits" if len(jobs) == 1 else "wait"
    if begun:
        return [f"{_count(jobs, 'queued job')} {stays} for its end:", *_table(jobs)]
    return [
        f"{_count(jobs, 'queued job')} will not start before it, and {stays} for its end:",
        *_table(jobs),
        "  With a shorter limit that fits, a job can start before: `scontrol update JobId=ID TimeLimit=...`, which its",
        "  user can do as well.",
    ]


def _count(jobs: list[ConcernedJob], what: str) -> str:
    return f"{len(jobs)} {what}{'' if len(jobs) == 1 else 's'}"


def _table(jobs: list[ConcernedJob]) -> list[str]:
    rows = [("job", "user", "partition", "limit", "ends")]
    for job in jobs[:SHOWN]:
        ends = "" if job.end is None else clock(job.end)
        rows.append((job.job, visible(job.user), visible(job.partition), job.limit, ends))
    rest = len(jobs) - SHOWN
    return [f"    {line}" for line in align_columns(rows)] + ([f"    and {rest} more"] if rest > 0 else [])
