# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes: a grid by state, GPUs by type, and a table of equal states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from .queue_tables import NodeUse, QueueJob, use_lines
from .report_texts import (
    NO_TIME,
    SENTENCE,
    Time,
    at,
    count_of,
    expand,
    fold,
    hostlist_of,
    memory,
    natural,
    number,
    number_of,
    records_of,
    short,
    text_of,
    texts_of,
)


class Group(NamedTuple):
    """A group of states. sign: it tells the group without its colour. starts: whether jobs can start there."""

    key: str
    title: str
    sign: str
    words: frozenset[str]
    starts: bool = False


def _group(key: str, title: str, sign: str, words: str, starts: bool = False) -> Group:
    return Group(key, title, sign, frozenset(words.split()), starts)


GROUPS = (
    _group("used", "In use", "●", "ALLOCATED MIXED COMPLETING", starts=True),
    _group("idle", "Idle", "○", "IDLE PLANNED", starts=True),
    _group("drained", "Drained or draining", "▲", "DRAIN DRAINED DRAINING"),
    _group("down", "Down", "✕", "DOWN ERROR FAIL FAILING UNKNOWN NOT_RESPONDING INVALID INVALID_REG FUTURE"),
    _group("reserved", "Reserved or in maintenance", "◆", "MAINT MAINTENANCE RESERVED BLOCKED PERFCTRS"),
    _group(
        "off",
        "Powered down or starting",
        "◌",
        "POWERED_DOWN POWERING_DOWN POWERING_UP POWER_DOWN POWER_UP REBOOT REBOOT_ISSUED REBOOT_REQUESTED",
    ),
    _group("other", "Other states", "?", ""),
)
"""In the order of the page. The states are those of scontrol(1), `node state` in sinfo(1)."""

BY_WEIGHT = ("down", "drained", "reserved", "off", "used", "idle")
"""Which group decides if a state has words of several: DOWN+DRAIN is down."""

LEVELS = 8
"""How full a cell can look."""

LARGE, MIDDLE = 64, 400
"""Most nodes for cells with users, and for cells with a name."""


def group_of(state: str) -> Group:
    """The group of a state such as `IDLE+DRAIN`."""
    words = {word.rstrip("*~#!%$@^-") for word in state.upper().split("+")}
    by_key = {group.key: group for group in GROUPS}
    return next((by_key[key] for key in BY_WEIGHT if by_key[key].words & words), GROUPS[-1])


class NodeGpu(NamedTuple):
    """GPUs of one type on a node."""

    type: str
    total: int
    allocated: int


class NodeRow(NamedTuple):
    """A node of the data."""

    name: str
    state: str
    partitions: Sequence[str]
    cpus: int
    cpus_allocated: int
    memory: float | None
    memory_allocated: float | None
    gpus: Sequence[NodeGpu]

    @property
    def gpu_count(self) -> int:
        """All GPUs."""
        return sum(some.total for some in self.gpus)

    @property
    def gpus_allocated(self) -> int:
        """The GPUs that jobs have."""
        return sum(some.allocated for some in self.gpus)


def read_node(record: Mapping[str, Any]) -> NodeRow:
    """A node of the data."""
    gpus = [
        NodeGpu(text_of(some, "type", 24), count_of(some, "count"), count_of(some, "allocated"))
        for some in records_of(record, "gpus")
    ]
    return NodeRow(
        text_of(record, "name"),
        text_of(record, "state") or "UNKNOWN",
        texts_of(record, "partitions"),
        count_of(record, "cpus"),
        count_of(record, "cpus_allocated"),
        number_of(record, "memory"),
        number_of(record, "memory_allocated"),
        gpus,
    )


class Cell(NamedTuple):
    """A node in the grid. text: all of it, in lines. level: how full it is, 0 to LEVELS. used: `6/8`."""

    name: str
    text: str
    level: int
    used: str
    users: str


class CellGroup(NamedTuple):
    """The nodes of a group. gpus: `12 of 16 GPUs`, empty without GPUs."""

    group: Group
    cells: Sequence[Cell]
    gpus: str


class TypeRow(NamedTuple):
    """GPUs of a type. unavailable: on nodes that start no jobs, and not in use.

    next: when the next job ends that has one, at the latest, in words and as seconds since 1970; empty if that is not
    known, or if one is free.
    """

    type: str
    total: int
    used: int
    free: int
    unavailable: int
    next: Time = Time("", "")


class StateRow(NamedTuple):
    """Nodes with the same state."""

    state: str
    total: int
    gpus: int
    gpus_allocated: int
    cpus: int
    cpus_allocated: int
    names: str


class Grid(NamedTuple):
    """All nodes as the page shows them. size: how much a cell can show."""

    total: int
    gpus: int
    gpus_allocated: int
    cpus: int
    cpus_allocated: int
    starting: int
    size: str
    groups: Sequence[CellGroup]
    types: Sequence[TypeRow]
    states: Sequence[StateRow]


def level_of(used: int, total: int) -> int:
    """How full a cell is. Only an unused node is empty, and only a full one is full."""
    if used <= 0 or total <= 0:
        return 0
    return LEVELS if used >= total else min(LEVELS - 1, max(1, round(LEVELS * used / total)))


def _lines(node: NodeRow, uses: Sequence[NodeUse], reason: str) -> list[str]:
    """What there is to say about a node."""
    parts = [
        f"{some.allocated} of {some.total} {some.type or 'GPU'}{'' if some.type else 's'}"
        for some in node.gpus
        if some.total
    ]
    if node.cpus:
        parts.append(f"{number(node.cpus_allocated)} of {number(node.cpus)} CPUs")
    if node.memory:
        parts.append(f"{memory(node.memory_allocated or 0)} of {memory(node.memory)}")
    found = [f"{node.name} · {node.state}", " · ".join(parts)]
    if node.partitions:
        found.append(f"Partitions: {short(', '.join(node.partitions), 120)}")
    if reason:
        found.append(f"Reason: {short(reason, 160)}")
    return [*filter(None, found), *use_lines(uses)]


def _cell(node: NodeRow, uses: Sequence[NodeUse], reason: str) -> Cell:
    """A node in the grid. Without GPUs its CPUs fill it."""
    used, total = (node.gpus_allocated, node.gpu_count) if node.gpu_count else (node.cpus_allocated, node.cpus)
    return Cell(
        node.name,
        "\n".join(_lines(node, uses, reason)),
        level_of(used, total),
        f"{used}/{total}",
        short(", ".join(use.user for use in uses if use.user), 40),
    )


def reasons_of_nodes(drains: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Why nodes are drained, by name."""
    return {
        name: text_of(drain, "reason", SENTENCE) for drain in drains for name in expand(hostlist_of(drain, "nodes"))
    }


def ends_of_types(jobs: Iterable[QueueJob], nodes: Iterable[NodeRow]) -> dict[str, float]:
    """When the next GPU of each type becomes free at the latest, on nodes that start jobs, in seconds since 1970."""
    types = {node.name: [some.type for some in node.gpus] for node in nodes if group_of(node.state).starts}
    found: dict[str, float] = {}
    for job in jobs:
        if job.waits or not job.end or not (job.gpus or job.shares):
            continue
        own = {some.type for some in job.gpus} | {some.type for some in job.shares}
        here = {kind for name in expand(job.nodes) for kind in types.get(name, ())}
        # Slurm may not say of which type a job's GPUs are.
        for kind in here & own or (here if own == {""} and len(here) == 1 else ()):
            found[kind] = min(job.end, found.get(kind, job.end))
    return found


def _types(nodes: Iterable[NodeRow], ends: Mapping[str, float], now: Time) -> list[TypeRow]:
    """GPUs by type."""
    total: Counter[str] = Counter()
    used: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for node in nodes:
        starts = group_of(node.state).starts
        for some in node.gpus:
            total[some.type] += some.total
            used[some.type] += some.allocated
            free[some.type] += max(0, some.total - some.allocated) if starts else 0
    return [
        TypeRow(
            name or "GPU",
            count,
            used[name],
            free[name],
            max(0, count - used[name] - free[name]),
            Time("", "") if free[name] or name not in ends else at(max(ends[name], now.seconds), now),
        )
        for name, count in sorted(total.items(), key=lambda item: (-item[1], item[0]))
        if count
    ]


def _states(nodes: Iterable[NodeRow]) -> list[StateRow]:
    """Nodes by state, from the most frequent one."""
    by_state: dict[str, list[NodeRow]] = {}
    for node in nodes:
        by_state.setdefault(node.state, []).append(node)
    rows = [
        StateRow(
            state,
            len(some),
            sum(node.gpu_count for node in some),
            sum(node.gpus_allocated for node in some),
            sum(node.cpus for node in some),
            sum(node.cpus_allocated for node in some),
            fold(node.name for node in some),
        )
        for state, some in by_state.items()
    ]
    return sorted(rows, key=lambda row: (-row.total, row.state))


def grid_of(
    nodes: Sequence[NodeRow],
    uses: Mapping[str, Sequence[NodeUse]],
    reasons: Mapping[str, str],
    ends: Mapping[str, float] = MappingProxyType({}),
    now: Time = NO_TIME,
) -> Grid:
    """The grid of all nodes. uses, reasons: by the names of nodes. ends: by types of GPUs (ends_of_types)."""
    members: dict[str, list[NodeRow]] = {}
    for node in sorted(nodes, key=lambda node: natural(node.name)):
        members.setdefault(group_of(node.state).key, []).append(node)
    groups = []
    for group in GROUPS:
        some = members.get(group.key, [])
        if some:
            cells = [_cell(node, uses.get(node.name, ()), reasons.get(node.name, "")) for node in some]
            total, used = sum(node.gpu_count for node in some), sum(node.gpus_allocated for node in some)
            groups.append(CellGroup(group, cells, f"{number(used)} of {number(total)} GPUs in use" if total else ""))
    return Grid(
        total=len(nodes),
        gpus=sum(node.gpu_count for node in nodes),
        gpus_allocated=sum(node.gpus_allocated for node in nodes),
        cpus=sum(node.cpus for node in nodes),
        cpus_allocated=sum(node.cpus_allocated for node in nodes),
        starting=sum(1 for node in nodes if group_of(node.state).starts),
        size="large" if len(nodes) <= LARGE else "middle" if len(nodes) <= MIDDLE else "small",
        groups=groups,
        types=_types(nodes, ends, now),
        states=_states(nodes),
    )
