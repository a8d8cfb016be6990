# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of accept.yml does next on the controller, as pure functions of what Slurm says and of its record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..client import drains
from ..jobs.batch import JobRecord
from ..language.hostlist import fold
from ..rolling.next_nodes import BUSY, MEASURED, OUT, SILENT, Job, Node, describe_last, jobs_by_node

SUBMITTED, ENDED, READ, FAILED = "submitted", "ended", "read", "failed"
"""States of a task: it has a job, the job has ended, its output is in the record, or there is none."""

ROLLING_RECORD = "/var/lib/gpucluster-slurm/accept/rolling.json"
"""What a rolling change has measured so far, on the controller."""

PATIENCE = 900
"""Seconds that a job may wait although its nodes have no others, before it counts as one that cannot start."""


@dataclass
class ChosenNodes:
    """Which nodes are measured."""

    taken: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    """Nodes that are not measured, and why."""


def choose(names: Sequence[str], nodes: Mapping[str, Node], jobs: Iterable[Job], waits: bool) -> ChosenNodes:
    """The nodes that are measured: those in service without jobs, and others if the run waits for their jobs.

    Args:
        names: the wanted nodes.
        nodes: all nodes of Slurm, by name.
        jobs: the jobs that run, except those of this run.
        waits: whether nodes with jobs are waited for.
    """
    choice, by_node = ChosenNodes(), jobs_by_node(jobs)
    for name in names:
        why = why_out(nodes.get(name))
        if not why and by_node.get(name) and not waits:
            why = f"has {describe_last(by_node[name])}"
        if why:
            choice.left[name] = why
        else:
            choice.taken.append(name)
    return choice


def why_out(node: Node | None) -> str:
    """Why a node takes no job of the run; empty if it does."""
    if node is None:
        return "Slurm does not know this node"
    if node.drained:
        return f"drained by {drains.owner(node.reason, node.user)} ({node.reason})"
    if node.measured:
        return MEASURED
    if node.flags & (OUT | SILENT):
        return f"{'+'.join(sorted(node.flags))} ({node.reason or 'no reason'})"
    return ""


def to_reserve(
    wanted: Sequence[str],
    reserved: Iterable[str],
    nodes: Mapping[str, Node],
    jobs: Iterable[Job],
    budget: Mapping[str, int],
) -> list[str]:
    """The nodes of the reservation: those that are in it, further ones without jobs, and busy ones within the budget.

    Args:
        wanted: nodes of tasks that have not ended.
        reserved: nodes of the reservation now.
        nodes: all nodes of Slurm, by name.
        jobs: the jobs that run, except those of this run.
        budget: how many nodes with jobs may be reserved at the same time, by partition.
    """
    busy, chosen = {*jobs_by_node(jobs)}, [name for name in reserved if name in nodes]
    waiting = Counter(place for name in chosen if name in busy for place in nodes[name].partitions)
    for name in wanted:
        node = nodes.get(name)
        if node is None or name in chosen or why_out(node):
            continue
        if name in busy or node.flags & BUSY:
            if any(waiting[place] >= budget.get(place, 0) for place in node.partitions):
                continue
            waiting.update(node.partitions)
        chosen.append(name)
    return chosen


@dataclass(frozen=True)
class TaskJob:
    """The job of a task, as it is now."""

    task: str
    nodes: tuple[str, ...]
    record: JobRecord | None
    """None for a task that has no job yet."""


def judge_job(job: TaskJob, nodes: Mapping[str, Node], waited: float) -> tuple[str, str]:
    """The state of a task, and why it has failed.

    A job that cannot start any more has failed: one of its nodes was drained or went down, or it waits for nothing.
    waited: seconds since its nodes have no other job.
    """
    record = job.record
    if record is None or record.state != "PENDING":
        if record is None or not record.ended:
            return SUBMITTED, ""
        good = record.state in ("COMPLETED", "UNKNOWN")
        return ENDED, "" if good else f"job {record.job_id} ended as {record.state} ({record.exit_code})"
    for name in job.nodes:
        if why := why_out(nodes.get(name)):
            return FAILED, f"job {record.job_id} cannot start: {name} is {why}"
    if waited > PATIENCE:
        return FAILED, f"job {record.job_id} has not started in {waited:.0f} s: {record.reason}"
    return SUBMITTED, ""


def table(
    states: Mapping[str, str], running: Iterable[str], waiting: Mapping[str, str], left: Mapping[str, str]
) -> list[str]:
    """How far the run is, for a person.

    Args:
        states: the state of each task of this round; empty for one without a job.
        running: nodes that are measured now.
        waiting: nodes that are waited for, and their jobs.
        left: nodes that are not measured, and why.
    """
    done = sum(state in (ENDED, READ, FAILED) for state in states.values())
    lines = [f"measured  {done} of {len(states)} jobs"]
    lines += [f"now       {fold(sorted({*running}))}"] if running else []
    lines += [f"waiting   {name}: {what}" for name, what in waiting.items()]
    return lines + [f"left out  {name}: {why}" for name, why in left.items()]
