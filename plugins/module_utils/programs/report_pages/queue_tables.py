# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue: who has what, what waits, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from ...client.slurm_records import WAITING
from ...language.job_reasons import NOT_PLANNED, explain
from .report_texts import (
    NO_TIME,
    NOTHING,
    SENTENCE,
    Time,
    at,
    count_of,
    duration,
    expand,
    hostlist_of,
    number,
    number_of,
    plural,
    records_of,
    short,
    text_of,
    time_of,
)

LISTED = 300
"""Jobs of a table. More would make the page slow to open, and nobody reads them."""

PEOPLE = 100
"""Users or accounts of a table."""

OF_USER, OF_USERS = 20, 2000
"""Jobs that are listed for each user, and for all together."""

ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}


class Gpus(NamedTuple):
    """GPUs of one type."""

    type: str
    total: int


class GpuShare(NamedTuple):
    """Shares of GPUs. kind: shard or mps."""

    kind: str
    type: str
    total: int

    @property
    def shown(self) -> str:
        """In words: `2 h100 shards`."""
        kind = f"{self.kind}s" if self.kind == "shard" and self.total > 1 else self.kind
        return " ".join(filter(None, (str(self.total), self.type, kind)))


class QueueJob(NamedTuple):
    """A line of squeue. tasks: how many jobs it stands for. gpus and shares are those of one of them."""

    id: str
    tasks: int
    user: str
    account: str
    partition: str
    name: str
    word: str
    reason: str
    submit: Time
    start: Time
    expected: Time
    limit: float | None
    nodes: str
    cpus: int
    gpus: tuple[Gpus, ...]
    priority: float
    waits: bool
    shares: tuple[GpuShare, ...] = ()

    @property
    def suspended(self) -> bool:
        """Whether it is suspended: it keeps its GPUs and its memory, and other jobs may have its CPUs."""
        return self.word == "SUSPENDED"

    @property
    def end(self) -> float:
        """When it ends at the latest, in seconds since 1970; 0 without a limit, and while it is suspended."""
        ends = self.start.seconds and self.limit is not None and not self.suspended
        return self.start.seconds + (self.limit or 0) if ends else 0

    @property
    def end_time(self) -> Time:
        """The same as a time."""
        return at(self.end, self.start)

    @property
    def gpu_count(self) -> int:
        """The GPUs of one job."""
        return sum(some.total for some in self.gpus)

    @property
    def wanted(self) -> str:
        """The GPUs, and shares of GPUs, in words: `4 h100`."""
        gpus = [
            f"{some.total} {some.type}" if some.type else plural(some.total, "GPU") for some in self.gpus if some.total
        ]
        return ", ".join([*gpus, *(some.shown for some in self.shares if some.total)]) or NOTHING

    @property
    def place(self) -> str:
        """The nodes as a cell shows them."""
        return short(self.nodes, 60) or NOTHING

    @property
    def time_limit(self) -> str:
        """The limit of its time in words."""
        return duration(self.limit) if self.limit is not None else "none"

    @property
    def why(self) -> str:
        """Why it waits, in plain words; empty if there are none."""
        found = explain(self.reason)
        return "" if found == self.reason else found


def read_job(record: Mapping[str, Any], now: Time = NO_TIME) -> QueueJob | None:
    """A job of the data; None if it has ended."""
    state = text_of(record, "state").split("+")[0].split(" ")[0].upper()
    if state in ENDED:
        return None
    reason, expected = text_of(record, "reason", SENTENCE), time_of(record, "expected_start")
    if now.seconds and expected.seconds > now.seconds + NOT_PLANNED and reason != "BeginTime":
        expected = NO_TIME
    return QueueJob(
        id=text_of(record, "id", 40),
        tasks=max(1, count_of(record, "array_tasks")),
        user=text_of(record, "user"),
        account=text_of(record, "account"),
        partition=text_of(record, "partition"),
        name=text_of(record, "name"),
        word=state,
        reason=reason,
        submit=time_of(record, "submit"),
        start=time_of(record, "start"),
        expected=expected,
        limit=number_of(record, "time_limit"),
        nodes=hostlist_of(record, "nodes"),
        cpus=count_of(record, "cpus"),
        gpus=tuple(Gpus(text_of(some, "type", 24), count_of(some, "count")) for some in records_of(record, "gpus")),
        priority=number_of(record, "priority") or 0,
        waits=state in WAITING,
        shares=tuple(
            GpuShare(text_of(some, "kind", 24), text_of(some, "type", 24), count_of(some, "count"))
            for some in records_of(record, "shares")
        ),
    )


class Share(NamedTuple):
    """What a user or an account has and wants."""

    name: str
    running: int = 0
    gpus: int = 0
    cpus: int = 0
    waiting: int = 0
    gpus_wanted: int = 0


class WaitReason(NamedTuple):
    """Why jobs wait: Slurm's word, plain words, how many jobs, the GPUs that they want."""

    word: str
    why: str
    jobs: int
    gpus: int


class Own(NamedTuple):
    """The jobs of a user: how many run, are suspended and wait, the first of them, and how many more there are."""

    user: str
    running: int
    suspended: int
    waiting: int
    jobs: Sequence[QueueJob]
    note: str


class Queue(NamedTuple):
    """The jobs as the page shows them. The notes say what a table leaves out; empty if it has everything."""

    running: int
    suspended: int
    waiting: int
    gpus_wanted: int
    listed_running: Sequence[QueueJob]
    listed_waiting: Sequence[QueueJob]
    running_note: str
    waiting_note: str
    reasons: Sequence[WaitReason]
    reasons_note: str
    users: Sequence[Share]
    users_note: str
    accounts: Sequence[Share]
    accounts_note: str
    own: Sequence[Own]


def rest_of(count: int, shown: int, one: str, more: str = "") -> str:
    """A note on what a table leaves out."""
    return f"and {plural(count - shown, one, more)} more" if count > shown else ""


def _shares(jobs: Iterable[QueueJob], name_of: Callable[[QueueJob], str]) -> list[Share]:
    """What each user or account has, from the one with the most GPUs and CPUs."""
    counts: dict[str, list[int]] = {}
    for job in jobs:
        name = name_of(job)
        if not name:
            continue
        found = counts.setdefault(name, [0] * 5)
        if job.waits:
            found[3] += job.tasks
            found[4] += job.tasks * job.gpu_count
        else:
            found[0] += 0 if job.suspended else job.tasks
            found[1] += job.tasks * job.gpu_count
            found[2] += 0 if job.suspended else job.tasks * job.cpus
    shares = [Share(name, *values) for name, values in counts.items()]
    return sorted(shares, key=lambda share: (-share.gpus, -share.cpus, -share.gpus_wanted, -share.waiting, share.name))


def _shares_note(shares: Sequence[Share], what: str) -> str:
    """What the table of shares leaves out."""
    rest = shares[PEOPLE:]
    if not rest:
        return ""
    running, waiting = sum(share.running for share in rest), sum(share.waiting for share in rest)
    return f"{rest_of(len(shares), PEOPLE, what)}, with {number(running)} running and {number(waiting)} waiting jobs"


def _reasons(jobs: Iterable[QueueJob]) -> list[WaitReason]:
    """Why jobs wait, from the most frequent reason. Words after the first are names of nodes."""
    counts: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    for job in jobs:
        word = job.reason.split(",")[0].split(" ")[0] or "None"
        counts[word] += job.tasks
        gpus[word] += job.tasks * job.gpu_count
    found = [WaitReason(short(word, 64), explain(word), count, gpus[word]) for word, count in counts.items()]
    return sorted(found, key=lambda reason: (-reason.jobs, reason.word))


def _own(jobs: Iterable[QueueJob]) -> list[Own]:
    """The jobs of each user, by name: those that have nodes, then those that wait."""
    by_user: dict[str, list[QueueJob]] = {}
    for job in jobs:
        if job.user:
            by_user.setdefault(job.user, []).append(job)
    most = max(1, min(OF_USER, OF_USERS // max(1, len(by_user))))
    return [
        Own(
            user,
            sum(job.tasks for job in some if not job.waits and not job.suspended),
            sum(job.tasks for job in some if job.suspended),
            sum(job.tasks for job in some if job.waits),
            some[:most],
            rest_of(len(some), most, "line of the queue", "lines of the queue"),
        )
        for user, some in sorted(by_user.items())[:OF_USERS]
    ]


def queue_of(jobs: Sequence[QueueJob]) -> Queue:
    """The queue of all jobs."""
    running = sorted(
        (job for job in jobs if not job.waits), key=lambda job: (-job.gpu_count, -job.cpus, job.start.seconds)
    )
    waiting = sorted((job for job in jobs if job.waits), key=lambda job: (-job.priority, job.submit.seconds))
    users, accounts = _shares(jobs, attrgetter("user")), _shares(jobs, attrgetter("account"))
    reasons = _reasons(waiting)
    lines = "line of the queue", "lines of the queue"
    return Queue(
        running=sum(job.tasks for job in running if not job.suspended),
        suspended=sum(job.tasks for job in running if job.suspended),
        waiting=sum(job.tasks for job in waiting),
        gpus_wanted=sum(job.tasks * job.gpu_count for job in waiting),
        listed_running=running[:LISTED],
        listed_waiting=waiting[:LISTED],
        running_note=rest_of(len(running), LISTED, *lines),
        waiting_note=rest_of(len(waiting), LISTED, *lines),
        reasons=reasons[:PEOPLE],
        reasons_note=rest_of(len(reasons), PEOPLE, "reason"),
        users=users[:PEOPLE],
        users_note=_shares_note(users, "user"),
        accounts=accounts[:PEOPLE],
        accounts_note=_shares_note(accounts, "account"),
        own=_own([*running, *waiting]),
    )


# -- On a node -------------------------------------------------------------------------------------------------------

USERS_OF_NODE = 6
JOBS_OF_USER = 4


class NodeUse(NamedTuple):
    """What a user has on a node."""

    user: str
    jobs: Sequence[str]
    gpus: int


def uses_of_nodes(jobs: Iterable[QueueJob], known: Iterable[str]) -> dict[str, list[NodeUse]]:
    """Who uses which node, the user of the most GPUs first.

    A job's GPUs are shared out evenly to its nodes, since the data have only their sum.
    """
    found: dict[str, dict[str, list[Any]]] = {name: {} for name in known}
    for job in jobs:
        if job.waits or not job.nodes:
            continue
        names = expand(job.nodes)
        gpus = job.gpu_count // max(1, len(names))
        for name in names:
            if name in found:
                use = found[name].setdefault(job.user, [[], 0])
                use[0].append(job.id)
                use[1] += gpus
    return {
        name: sorted(
            (NodeUse(user, ids, gpus) for user, (ids, gpus) in users.items()), key=lambda use: (-use.gpus, use.user)
        )
        for name, users in found.items()
    }


def use_lines(uses: Sequence[NodeUse]) -> list[str]:
    """Who uses a node, in words: `alice: 4 GPUs, jobs 12, 13`."""
    lines = []
    for use in uses[:USERS_OF_NODE]:
        ids = ", ".join(islice(use.jobs, JOBS_OF_USER))
        more = f" and {len(use.jobs) - JOBS_OF_USER} more" if len(use.jobs) > JOBS_OF_USER else ""
        gpus = f"{plural(use.gpus, 'GPU')}, " if use.gpus else ""
        jobs = f"{gpus}{'job' if len(use.jobs) == 1 else 'jobs'} {ids}{more}"
        lines.append(f"{use.user}: {jobs}" if use.user else jobs)
    return [*lines, *filter(None, [rest_of(len(uses), USERS_OF_NODE, "user")])]
