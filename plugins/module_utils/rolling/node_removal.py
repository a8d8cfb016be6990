# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether nodes can leave the cluster: no job runs on them, and no job waits for one of them by its name.

slurmctld ends a pending job that asks for a node that it does not have (`_sync_detail_bitmaps` in
`src/slurmctld/read_config.c`). A job that excludes such a node goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..client import drains
from ..language.hostlist import expand, fold
from .next_nodes import BUSY, Job, Node, describe_last, jobs_by_node

SQUEUE = ["squeue", "--noheader", "--all", "--array", "--format=%A|%u|%e|%N|%T|%n"]
SQUEUE += ["--states=PENDING,RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED,SIGNALING,STAGE_OUT"]
"""The jobs that have nodes, and those that wait."""


@dataclass(frozen=True)
class Claims:
    """The jobs because of which nodes cannot leave yet."""

    placed: tuple[Job, ...] = ()
    """Jobs that have nodes."""
    pending: tuple[Job, ...] = ()
    """Jobs that wait, with the nodes that they ask for by name."""


def claims_of(text: str) -> Claims:
    """The jobs in the output of `SQUEUE`."""
    placed, pending = [], []
    for line in filter(None, text.split("\n")):
        job_id, user, end, nodes, state, required = line.split("|", 5)
        if state != "PENDING":
            placed.append(Job(job_id, user, frozenset(expand(nodes)), end if end[:1].isdigit() else ""))
        elif required not in ("", "(null)"):
            pending.append(Job(job_id, user, frozenset(expand(required))))
    return Claims(tuple(placed), tuple(pending))


@dataclass
class RemovalDecision:
    """What happens next."""

    ready: list[str] = field(default_factory=list)
    """Nodes without jobs that get none any more, and nodes that Slurm does not have any more."""
    drain: list[str] = field(default_factory=list)
    resume: list[str] = field(default_factory=list)
    """Nodes that remove_nodes has drained, and that stay."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Nodes with jobs, and what they wait for."""
    late: dict[str, str] = field(default_factory=dict)
    """Nodes with jobs that last longer than the deadline."""

    @property
    def over(self) -> bool:
        """Whether nothing is left to be done or to be waited for."""
        return not (self.drain or self.waiting)


def decide_removal(
    names: Sequence[str], nodes: Mapping[str, Node], claims: Claims, late: bool = False, end_jobs: bool = False
) -> RemovalDecision:
    """What happens next. All nodes leave together, or none.

    Args:
        names: the nodes that leave.
        nodes: all nodes of Slurm, by name.
        claims: the jobs.
        late: whether the deadline has passed.
        end_jobs: whether pending jobs that ask for one of the nodes may end.
    """
    decision = RemovalDecision()
    placed, asking = jobs_by_node(claims.placed), jobs_by_node(() if end_jobs else claims.pending)
    for name in names:
        node = nodes.get(name)
        if node is None:
            decision.ready.append(name)
            continue
        claim = _describe_claim(node, placed.get(name, []), asking.get(name, []))
        if claim:
            decision.waiting[name] = claim
        elif node.drained:
            decision.ready.append(name)
        if not node.drained and not (late and claim):
            decision.drain.append(name)
    if late and decision.waiting:
        resume = [name for name in names if name in nodes and is_ours(nodes[name])]
        return RemovalDecision(resume=resume, late=decision.waiting)
    return decision


def _describe_claim(node: Node, placed: Sequence[Job], asking: Sequence[Job]) -> str:
    """The job that keeps a node, for a person; empty without one."""
    if placed or (node.flags & BUSY and "DOWN" not in node.flags):
        return describe_last(placed)
    return _describe_asking(asking) if asking else ""


def is_ours(node: Node) -> bool:
    """Whether remove_nodes has drained a node, and nobody has added another reason since."""
    return node.drained and drains.is_only(drains.LEAVING, node.reason)


def _describe_asking(jobs: Sequence[Job]) -> str:
    """Pending jobs that ask for a node, for a person."""
    first = jobs[0]
    more = f", and {len(jobs) - 1} more" if len(jobs) > 1 else ""
    return (
        f"job {first.job_id} of {first.user} is pending and asks for it by name{more}: cancel it, or change it with "
        f"scontrol update JobId={first.job_id} ReqNodeList="
    )


def describe_reservations(names: Sequence[str], reservations: Sequence[Mapping[str, str]]) -> list[str]:
    """Why reservations keep nodes from leaving, a message each."""
    messages = []
    for reservation in reservations:
        reserved = {*expand(reservation.get("Nodes", ""))}
        if leaving := [name for name in names if name in reserved]:
            name = reservation.get("ReservationName", "")
            messages.append(
                f"reservation {name} has {fold(leaving)}: take them out first (scontrol update ReservationName={name} "
                f"Nodes-={fold(leaving)}), or wait until {reservation.get('EndTime', 'its end')}"
            )
    return messages


def table(decision: RemovalDecision, names: Sequence[str]) -> list[str]:
    """The state of the run: which nodes are ready, and which wait for which job until when."""
    lines = [f"ready     {len(decision.ready)} of {len(names)}{': ' + fold(decision.ready) if decision.ready else ''}"]
    if decision.drain:
        lines.append(f"next      {fold(decision.drain)}: drained, so that no new job starts there")
    lines += [f"waiting   {name}: {what}" for name, what in decision.waiting.items()]
    return lines + [f"stays     {name}: after the deadline, {what}" for name, what in decision.late.items()]
