# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When no node may be taken into treatment, whatever is wrong with it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .cases import PERSON, NodeCase, open_cases

OBSERVE, REBOOT, FULL = "observe", "reboot", "full"
"""The modes: only people do something; nodes are booted; GPUs are reset, and machines switched off, as well."""

DAY = 86400.0


@dataclass(frozen=True)
class Rules:
    """The key `repair` of the cluster file."""

    mode: str = OBSERVE
    has_machines: bool = False
    """Whether machines can be switched off and on (the key `machines`)."""
    most_percent: float = 2.0
    """Nodes in treatment at a time, in percent of all; one at least."""
    shared_percent: float = 5.0
    shared_least: int = 3
    """Nodes with the same finding that stop everything: percent of all nodes, and at least. The health check has the
    same numbers."""
    shared_seconds: float = 3600.0
    """In how long they have failed."""
    tries: int = 2
    days: float = 7.0
    """Treatments of a node in so many days."""
    least: Mapping[str, int] = field(default_factory=dict)
    """Nodes that a partition keeps in service."""
    quiet: tuple[int, int] | None = None
    """Hours of the day, such as (22, 6), in which nothing begins."""
    job_seconds: float = 7 * DAY
    """How long jobs of a drained node may go on."""
    boot_seconds: float = 3600.0
    """How long a node may take to boot."""
    stopped: str = ""
    """Who has stopped everything; empty if nobody has."""


@dataclass(frozen=True)
class Fleet:
    """What the brakes need to know of the cluster."""

    nodes: int
    """All nodes."""
    hour: int
    """The hour of the day, 0 to 23, on the controller."""
    in_service: Mapping[str, int] = field(default_factory=dict)
    """Nodes in service by partition."""
    partitions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The partitions of a node that is in service."""


def treatments_left(node: str, cases: Iterable[NodeCase], rules: Rules, now: float) -> int:
    """How often a node may be treated yet."""
    done = sum(now - each.when < rules.days * DAY for case in cases if case.node == node for each in case.treatments)
    return max(0, rules.tries - done)


def brake(case: NodeCase, cases: Sequence[NodeCase], rules: Rules, fleet: Fleet) -> str:
    """Why a node must not be taken into treatment, or treated, now; empty if it may."""
    others = [other for other in open_cases(cases) if other.number != case.number]
    if rules.stopped:
        return f"stopped by {rules.stopped}"
    if shared := _shared([*others, case], rules, fleet.nodes):
        return shared
    if rules.quiet and _within(fleet.hour, rules.quiet):
        return f"from {rules.quiet[0]} to {rules.quiet[1]} o'clock nothing begins"
    most = max(1, int(rules.most_percent / 100 * fleet.nodes))
    treated = sum(other.is_treated for other in others)
    if not case.is_treated and treated >= most:
        return f"{treated} of at most {most} nodes are in treatment"
    for partition in fleet.partitions.get(case.node, ()):
        left, least = fleet.in_service.get(partition, 0) - 1, rules.least.get(partition, 0)
        if left < least:
            return f"partition {partition} would have {left} nodes in service, and keeps {least}"
    return ""


def _shared(cases: Iterable[NodeCase], rules: Rules, nodes: int) -> str:
    """A finding that so many nodes have at once that its cause is not theirs: a file server, a switch, an update."""
    opened: dict[str, list[float]] = {}
    for case in sorted(cases, key=lambda case: case.opened):
        if case.state != PERSON:
            opened.setdefault(case.finding, []).append(case.opened)
    needed = max(rules.shared_least, rules.shared_percent / 100 * nodes)
    for name, times in opened.items():
        count = max(bisect_right(times, first + rules.shared_seconds) - place for place, first in enumerate(times))
        if count >= needed:
            return f"{count} nodes have {name}: the cause is shared, and a person is needed"
    return ""


def _within(hour: int, quiet: tuple[int, int]) -> bool:
    begin, end = quiet
    return begin <= hour < end if begin <= end else hour >= begin or hour < end
