# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes a rolling change takes next, as pure functions of what Slurm says and of what the run has done so far.

docs/design/rolling.md has the states of a node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..client import drains
from ..client.scontrol import reason_of
from ..language.errors import CollectionError
from ..language.hostlist import expand, fold

DONE, FAILED, WORKING, CHANGED = "done", "failed", "working", "changed"
"""States of a node in the record; a node without one is still to be changed. CHANGED is still to be checked."""

BUSY = frozenset(("ALLOCATED", "MIXED", "COMPLETING"))
OUT = frozenset(("DOWN", "FAIL", "FAILING", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "FUTURE"))
"""States in which a node is out of service without a drain."""
SILENT = frozenset(("NOT_RESPONDING", "UNKNOWN"))
"""States in which nobody knows what runs on a node."""

MEASURED = f"measured by {drains.OWNERS[drains.REPAIR]}"
"""Why a node in service is left out."""

ALL = "*"
"""The key of the budget of the partitions that have none of their own."""


class RollingError(CollectionError):
    """An option that cannot be used."""


@dataclass(frozen=True)
class Node:
    """A node as Slurm shows it."""

    name: str
    flags: frozenset[str]
    partitions: tuple[str, ...] = ()
    reason: str = ""
    user: str = ""
    """Who has set the reason."""
    measured: bool = False
    """Whether repair measures it: it is in service for that alone."""

    @property
    def drained(self) -> bool:
        """Whether it gets no new jobs, whoever has drained it."""
        return "DRAIN" in self.flags

    @property
    def ours(self) -> bool:
        """Whether rolling has drained it, and nobody has added another reason since."""
        return self.drained and drains.is_only(drains.ROLLING, self.reason)

    @property
    def first_ours(self) -> bool:
        """Whether rolling has drained it first."""
        return self.drained and self.reason.startswith(drains.ROLLING.rstrip())


@dataclass(frozen=True)
class Job:
    """A job that runs, or is about to end."""

    job_id: str
    user: str
    nodes: frozenset[str]
    end: str = ""
    """When its time limit ends it at the latest, as Slurm writes it; empty without a limit."""
    requeue: bool = False
    """Whether it may start again. Known after the deadline only."""

    def __str__(self) -> str:
        return f"job {self.job_id} of {self.user} until {self.end or 'it ends by itself'}"


@dataclass
class Decision:
    """What happens next."""

    ready: list[str] = field(default_factory=list)
    """Nodes without jobs that rolling has drained: they are changed now."""
    drain: list[str] = field(default_factory=list)
    resume: list[str] = field(default_factory=list)
    """Nodes that rolling has drained and does not change."""
    requeue: list[str] = field(default_factory=list)
    """Numbers of jobs that end now and start again."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Drained nodes with jobs, and what they wait for."""
    later: list[str] = field(default_factory=list)
    """Nodes for which there is no budget yet."""
    failed: dict[str, str] = field(default_factory=dict)
    """Nodes that have broken while they waited."""
    out: dict[str, str] = field(default_factory=dict)
    """Nodes that somebody else has taken out of service: nothing is done to them."""
    late: dict[str, str] = field(default_factory=dict)
    """Nodes that are left as they are, since their jobs last longer than the deadline, or there is no budget."""
    stopped: str = ""
    """Why no further node is changed."""

    @property
    def over(self) -> bool:
        """Whether nothing is left to be done or to be waited for."""
        return bool(self.stopped) or not (self.ready or self.drain or self.waiting or self.requeue)


# -- what Slurm says -------------------------------------------------------------------------------------------------


def nodes_of(records: Iterable[Mapping[str, str]], reservations: Iterable[Mapping[str, str]]) -> dict[str, Node]:
    """All nodes by name, from the records of `scontrol show node` and `scontrol show reservation`."""
    names = {reservation.get("ReservationName", "") for reservation in reservations}
    return {record["NodeName"]: node_of(record, names) for record in records}


def node_of(record: Mapping[str, str], reservations: Container[str] = ()) -> Node:
    """A node from a record of `scontrol show node`.

    reservations: the names of all. The record of a node shows its reservation some seconds later.
    """
    flags = frozenset(re.sub(r"[^A-Z_+]", "", record.get("State", "UNKNOWN")).split("+")) - {""}
    if "*" in record.get("State", ""):
        flags |= {"NOT_RESPONDING"}
    reason = reason_of(record)
    partitions = tuple(filter(None, record.get("Partitions", "").split(",")))
    measured = f"{drains.MEASURES}{record['NodeName']}" in reservations
    return Node(record["NodeName"], flags, partitions, reason.text, reason.user, measured)


SQUEUE = ["squeue", "--noheader", "--all", "--array"]
SQUEUE += ["--states=RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED,SIGNALING,STAGE_OUT", "--format=%A|%u|%e|%N"]
"""The jobs that have nodes."""


def jobs_of(text: str) -> list[Job]:
    """The jobs in the output of `SQUEUE`."""
    jobs = []
    for line in filter(None, text.split("\n")):
        job_id, user, end, nodes = line.split("|", 3)
        jobs.append(Job(job_id, user, frozenset(expand(nodes)), end if end[:1].isdigit() else ""))
    return jobs


# -- options ---------------------------------------------------------------------------------------------------------


def allowed(budget: Mapping[str, str], sizes: Mapping[str, int], option: str = "rolling_budget") -> dict[str, int]:
    """How many nodes of each partition may be out of service for the change at the same time; one at least.

    Args:
        budget: a number or a share by partition; `*` is for the others.
        sizes: the number of nodes of each partition.
        option: the name of the option, for errors.
    """
    if unknown := [name for name in budget if name not in (ALL, *sizes)]:
        raise RollingError(
            f"{option}: found the partition {unknown[0]!r}, allowed: {', '.join(sorted(sizes))} or '{ALL}'"
        )
    limits = {}
    for name, size in sizes.items():
        given = str(budget.get(name, budget.get(ALL, "10%"))).strip()
        number = re.fullmatch(r"([0-9]{1,6})(%?)", given)
        if not number or not int(number[1]) or (number[2] and int(number[1]) > 100):
            raise RollingError(
                f"{option}: found {given!r} for partition {name!r}, allowed: a number such as 2 or a share such as 10%"
            )
        limits[name] = max(1, size * int(number[1]) // 100) if number[2] else int(number[1])
    return limits


def deadline_of(given: str, began: datetime, option: str = "rolling_deadline") -> datetime | None:
    """The deadline: a date and time, or minutes after the beginning of the run; None without one."""
    if not given:
        return None
    if re.fullmatch("[0-9]{1,7}", given):
        return began + timedelta(minutes=int(given))
    try:
        deadline = datetime.fromisoformat(given)
    except ValueError:
        deadline = None
    if deadline is None or deadline.tzinfo:
        raise RollingError(
            f"{option}: found {given!r}, allowed: a date and time such as 2026-12-01T18:00, by the "
            "controller's clock, or a number of minutes"
        )
    return deadline


# -- the decision ----------------------------------------------------------------------------------------------------


def places(node: Node) -> tuple[str, ...]:
    """The budgets that a node counts against."""
    return node.partitions or ("",)


def decide(
    names: Sequence[str],
    nodes: Mapping[str, Node],
    jobs: Iterable[Job],
    progress: Mapping[str, str],
    budget: Mapping[str, int],
    late: bool = False,
) -> Decision:
    """What happens next.

    Args:
        names: the nodes of this run.
        nodes: all nodes of Slurm, by name.
        jobs: the jobs that run.
        progress: the states of nodes in the record.
        budget: the nodes that may be out of service at the same time, by partition (`allowed`).
        late: whether the deadline has passed.
    """
    decision, jobs_of_nodes = Decision(), jobs_by_node(jobs)
    candidates: list[Node] = []
    for name in names:
        if progress.get(name) in (DONE, FAILED):
            continue
        node = nodes.get(name)
        if node is None:
            decision.out[name] = "Slurm does not know this node"
        elif _is_in_service(node):
            candidates.append(node)
        else:
            _place_out_of_service(decision, node, jobs_of_nodes.get(name, []), late)
    failed = {*decision.failed, *(name for name in nodes if progress.get(name) == FAILED)}
    if used := _find_used_budgets((nodes[name] for name in failed), budget):
        decision.stopped = (
            f"{fold(sorted(failed))} failed, which uses up the budget of partition {', '.join(sorted(used))}, so no "
            "other node is changed"
        )
        decision.resume += [name for name in (*decision.ready, *decision.waiting) if nodes[name].ours]
        decision.later, decision.ready, decision.waiting, decision.requeue = [n.name for n in candidates], [], {}, []
        return decision
    taken = _count(node for node in nodes.values() if node.name not in decision.resume and _is_out(node, progress))
    _choose(decision, candidates, jobs_of_nodes, taken, budget, late)
    return decision


def _is_in_service(node: Node) -> bool:
    """Whether a node gets new jobs and answers, so that it can be drained."""
    return not node.drained and not node.measured and not node.flags & (OUT | SILENT)


def _place_out_of_service(decision: Decision, node: Node, jobs: Sequence[Job], late: bool) -> None:
    """Decide about a node that is not in service."""
    if node.ours:
        _continue_drained(decision, node, jobs, late)
    elif node.first_ours:
        decision.failed[node.name] = f"somebody else set another reason while the node waited: {node.reason}"
    elif node.drained:
        decision.out[node.name] = f"drained by {drains.owner(node.reason, node.user)} ({node.reason})"
    elif node.measured:
        decision.out[node.name] = MEASURED
    elif node.flags & OUT:
        decision.out[node.name] = f"{'+'.join(sorted(node.flags))} ({node.reason or 'no reason'})"
    else:
        # For a moment after a resume as well. Slurm sets it down if it goes on (SlurmdTimeout).
        decision.waiting[node.name] = "slurmd does not answer"


def _find_used_budgets(failed: Iterable[Node], budget: Mapping[str, int]) -> list[str]:
    """The partitions of which as many nodes have failed as may be out of service."""
    return [place or "none" for place, number in _count(failed).items() if number >= budget.get(place, 1)]


def _is_out(node: Node, progress: Mapping[str, str]) -> bool:
    return node.first_ours or progress.get(node.name) in (FAILED, WORKING, CHANGED)


def _count(nodes: Iterable[Node]) -> Counter[str]:
    return Counter(place for node in nodes for place in places(node))


def jobs_by_node(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    """The jobs of each node that has some."""
    by_node: dict[str, list[Job]] = {}
    for job in jobs:
        for name in job.nodes:
            by_node.setdefault(name, []).append(job)
    return by_node


def describe_last(jobs: Sequence[Job]) -> str:
    """The job that ends last, for a person."""
    if not jobs:
        return "a job that is about to end"
    last = max(jobs, key=lambda job: job.end or "9")
    return str(last) if len(jobs) == 1 else f"{last}, and {len(jobs) - 1} more"


def _continue_drained(decision: Decision, node: Node, jobs: Sequence[Job], late: bool) -> None:
    """A node that rolling has drained."""
    if "DOWN" in node.flags and not jobs and "NOT_RESPONDING" in node.flags:
        decision.failed[node.name] = f"the node does not answer ({'+'.join(sorted(node.flags))})"
    elif not jobs and not node.flags & (BUSY | SILENT):
        decision.ready.append(node.name)
    elif late and jobs and not all(job.requeue for job in jobs):
        decision.resume.append(node.name)
        decision.late[node.name] = f"after the deadline, {describe_last([job for job in jobs if not job.requeue])}"
    else:
        decision.waiting[node.name] = describe_last(jobs)
        decision.requeue += [job.job_id for job in jobs if late and job.job_id not in decision.requeue]


def _choose(
    decision: Decision,
    candidates: Sequence[Node],
    on: Mapping[str, Sequence[Job]],
    taken: Counter[str],
    budget: Mapping[str, int],
    late: bool,
) -> None:
    """Drain further nodes within the budget: those without jobs first, then by the end of their last job."""

    def order(node: Node) -> tuple[bool, str]:
        jobs = on.get(node.name, [])
        return bool(jobs or node.flags & BUSY), max((job.end or "9" for job in jobs), default="")

    for node in sorted(candidates, key=order):
        jobs = on.get(node.name, [])
        if late and not all(job.requeue for job in jobs):
            decision.late[node.name] = f"after the deadline, {describe_last([job for job in jobs if not job.requeue])}"
        elif all(taken[place] < budget.get(place, 1) for place in places(node)):
            decision.drain.append(node.name)
            taken.update(places(node))
        else:
            decision.later.append(node.name)
    if decision.later and not (decision.ready or decision.drain or decision.waiting):
        decision.late |= dict.fromkeys(decision.later, "the budget is used up by nodes that are not in this run")
        decision.later = []


# -- what a person sees ----------------------------------------------------------------------------------------------


def table(decision: Decision, progress: Mapping[str, str], errors: Mapping[str, str], total: int) -> list[str]:
    """The state of the run: done, waiting for which job until when, failed and why."""
    done = sorted(name for name, state in progress.items() if state == DONE)
    working = sorted(name for name, state in progress.items() if state in (WORKING, CHANGED))
    now = [*working, *(name for name in decision.ready if name not in working)]
    rows = [
        ("done", f"{len(done)} of {total}{': ' + fold(done) if done else ''}"),
        ("now", fold(now)),
        ("next", fold(decision.drain)),
        *_describe("waiting", decision.waiting),
        ("later", f"{len(decision.later)}: {fold(decision.later)}" if decision.later else ""),
        *_describe("failed", {**errors, **decision.failed}),
        *_describe("left out", {**decision.out, **decision.late}),
        ("stopped", decision.stopped),
    ]
    return [f"{title:<10}{text}" for title, text in rows if text]


def _describe(title: str, reasons: Mapping[str, str]) -> list[tuple[str, str]]:
    """A row for each node."""
    return [(title, f"{name}: {what}") for name, what in reasons.items()]
