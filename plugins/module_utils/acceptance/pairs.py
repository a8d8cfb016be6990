# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes are measured in pairs, and whose fault a slow pair is: a node, the path between two, or a switch.

Nodes are points, and a pair that was fast joins two of them: both are good, and so is the path. Who is joined with most
nodes is good. A node that nothing joins, although it was measured with several of these, is slow itself. Several nodes
that are joined with each other and with nobody else are good, and what lies between them and the others is slow: a
switch, or its uplinks. A slow pair of nodes that are joined by way of others has a slow path.

So a good node is never blamed for its partner, however many of its partners are slow.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .spread import UNSEEN, needed

NEEDED = 3
"""Slow measurements with different good partners that make a node guilty, if the others show no noise."""

MOST_NEEDED = 8
"""If more were needed, the measurements are too noisy for any blame."""

FEW = 8
"""Nodes of which all pairs are measured: of so few, one can have met bad ones alone in three rounds."""

SUSPECTS = 6
"""Small parts that are all measured with each other. Of more, each with as many others as this less one."""

Pair = tuple[str, str]
"""Two names, in order."""


@dataclass(frozen=True)
class PairVerdict:
    """A measurement of a pair."""

    nodes: Pair
    slow: bool


@dataclass(frozen=True)
class SlowGroup:
    """Nodes that are fast with each other, and slow with these others."""

    nodes: tuple[str, ...]
    others: tuple[str, ...]
    switches: tuple[str, ...] = ()
    """The switches that they are on, if the topology is known, and the others are on none of these."""


@dataclass
class Blame:
    """Whose fault the slow pairs are."""

    nodes: dict[str, list[str]] = field(default_factory=dict)
    """Guilty nodes, with the good partners with which they were slow."""
    paths: list[Pair] = field(default_factory=list)
    groups: list[SlowGroup] = field(default_factory=list)
    suspects: list[str] = field(default_factory=list)
    """Nodes without a fast pair, of which more has to be known."""
    following: list[Pair] = field(default_factory=list)
    """The next pairs to measure; each node is in one at most."""
    notes: list[str] = field(default_factory=list)


def pair_of(one: str, other: str) -> Pair:
    """The names in order."""
    return (one, other) if one < other else (other, one)


# -- what is measured ------------------------------------------------------------------------------------------------


def schedule(names: Sequence[str], rounds: int, seed: int) -> list[list[Pair]]:
    """Rounds in which each node has one partner, and another one in each; of an odd number, another one rests.

    As many as `rounds`, and of few nodes all; none for 0.
    It is the tournament in which one stays in its place and the others move on by one, which repeats no pair. There are
    fewer rounds if all pairs have had theirs. The same names and seed give the same rounds.
    """
    places: list[str | None] = [*sorted({*names})]
    if len(places) < 2 or rounds < 1:
        return []
    random.Random(seed).shuffle(places)
    if len(places) % 2:
        places.append(None)
    result = []
    for _ in range(min(rounds, len(places) - 1) if len(places) > FEW else len(places) - 1):
        half = len(places) // 2
        facing = zip(places[:half], reversed(places[half:]))
        result.append(sorted(pair_of(one, other) for one, other in facing if one is not None and other is not None))
        places = [places[0], places[-1], *places[1:-1]]
    return result


# -- whose fault it is -----------------------------------------------------------------------------------------------


class _Graph:
    """The pairs that were measured, and the sets of nodes that fast ones join, the largest first."""

    def __init__(self, verdicts: Iterable[PairVerdict]) -> None:
        self.measured: dict[Pair, list[bool]] = {}
        for verdict in verdicts:
            self.measured.setdefault(pair_of(*verdict.nodes), []).append(verdict.slow)
        self.names = sorted({name for pair in self.measured for name in pair})
        self.joined = {name: {name} for name in self.names}
        for (one, other), slow in self.measured.items():
            if not all(slow) and self.joined[one] is not self.joined[other]:
                few, many = sorted((self.joined[one], self.joined[other]), key=len)
                many |= few
                for name in few:
                    self.joined[name] = many
        unique = {id(part): part for part in self.joined.values()}
        self.parts = sorted((sorted(part) for part in unique.values()), key=lambda part: (-len(part), part))
        self.partners: dict[str, set[str]] = {name: set() for name in self.names}
        for one, other in self.measured:
            self.partners[one].add(other)
            self.partners[other].add(one)

    def slow_between(self, some: Collection[str], others: Collection[str]) -> int:
        """The number of slow measurements between two sets of nodes, of which fast pairs join none."""
        few = some if len(some) <= len(others) else others
        rest = {*(others if few is some else some)}
        return sum(len(self.measured[pair_of(name, partner)]) for name in few for partner in self.partners[name] & rest)

    def are_joined(self, pair: Pair) -> bool:
        """Whether fast pairs join the nodes of a pair."""
        return self.joined[pair[0]] is self.joined[pair[1]]

    def inner_slow(self) -> list[Pair]:
        """Pairs that were slow, while other pairs join their nodes."""
        return sorted(pair for pair, slow in self.measured.items() if any(slow) and self.are_joined(pair))


def blame(verdicts: Sequence[PairVerdict], switches: Mapping[str, str] | None = None, majority: bool = True) -> Blame:
    """Whose fault the slow pairs are, and what to measure next if that is not known.

    Args:
        verdicts: all measurements so far.
        switches: the switch of each node, if it is known.
        majority: whether only nodes that are more than half of all can be the measure for the others. It has to be so
            where slow means slower than others; with a floor, any that reach it can be.
    """
    graph, result = _Graph(verdicts), Blame()
    if not any(any(slow) for slow in graph.measured.values()):
        return result
    good = graph.parts[0]
    if len(good) < 2:
        result.notes.append("every pair is slow, so none of them shows whose fault it is")
        return result
    boundaries = _slow_boundaries(graph, switches or {})
    explained = {pair for pairs in boundaries.values() for pair in pairs}
    inner = [pair for pair in graph.inner_slow() if pair not in explained]
    noise = sum(sum(graph.measured[pair]) == 1 for pair in inner)
    known = sum(len(graph.measured[pair]) for pair in graph.measured if graph.are_joined(pair))
    enough = needed(NEEDED, noise, known, len(graph.names), UNSEEN if majority else 0.0)
    if enough > MOST_NEEDED:
        result.notes.append(f"{len(inner)} of {len(graph.measured)} pairs were slow without a pattern: too noisy")
        return result
    result.groups += [
        SlowGroup(_on(graph, switches or {}, one), _on(graph, switches or {}, other), (one, other))
        for one, other in boundaries
    ]
    plan = _Plan(graph)
    _plan_small_parts(graph, switches or {}, plan)
    _judge_groups(graph, switches or {}, enough, result, plan)
    if majority and len(good) * 2 <= len(graph.names):
        result.following = sorted(plan.pairs)
        lonely = [part[0] for part in graph.parts if len(part) == 1]
        if lonely and not result.following:
            result.notes.append(
                f"{len(lonely)} of {len(graph.names)} nodes are slow in all pairs: too many to say who is right"
            )
        return result
    _judge_nodes(graph, enough, result, plan)
    for pair in inner:
        if not all(graph.measured[pair]):
            continue
        if len(graph.measured[pair]) >= enough:
            result.paths.append(pair)
        else:
            plan.add(pair)
    result.following = sorted(plan.pairs)
    return result


class _Plan:
    """The pairs of the next round."""

    def __init__(self, graph: _Graph) -> None:
        self.graph = graph
        self.pairs: set[Pair] = set()
        self.busy: set[str] = set()

    def add(self, pair: Pair) -> bool:
        """Take a pair, unless one of its nodes is in another one."""
        if self.busy & {*pair}:
            return False
        self.busy |= {*pair}
        self.pairs.add(pair)
        return True

    def with_one_of(self, name: str, others: Iterable[str]) -> None:
        """Measure a node with one of these: one that it has not met, or else the one that it has met least."""
        free = [other for other in others if other not in self.busy and other != name]
        if name not in self.busy and free:
            met = self.graph.measured
            self.add(pair_of(name, min(free, key=lambda other: len(met.get(pair_of(name, other), ())))))


def _judge_nodes(graph: _Graph, enough: int, result: Blame, plan: _Plan) -> None:
    """Nodes that nothing joins: slow with enough good nodes, and with the others that are not joined with these."""
    good = graph.parts[0]
    for part in graph.parts[1:]:
        if len(part) > 1:
            continue
        (name,) = part
        with_good = sorted(graph.partners[name] & {*good})
        known = graph.slow_between(part, good) >= enough and len(with_good) >= min(NEEDED, len(good))
        if known and _met_all(graph, part):
            result.nodes[name] = with_good
            continue
        result.suspects.append(name)
        plan.with_one_of(name, good)


def _judge_groups(graph: _Graph, switches: Mapping[str, str], enough: int, result: Blame, plan: _Plan) -> None:
    """Nodes that are joined with each other, and not with the largest part."""
    good = graph.parts[0]
    for part in graph.parts[1:]:
        if len(part) < 2:
            continue
        if graph.slow_between(part, good) >= enough and _met_all(graph, part):
            theirs = {switches.get(name, "") for name in part}
            known = "" not in theirs and not theirs & {switches.get(name, "") for name in good}
            result.groups.append(SlowGroup(tuple(part), tuple(good), tuple(sorted(theirs)) if known else ()))
            continue
        result.suspects += part
        for name in part:
            plan.with_one_of(name, good)


def _unmet(graph: _Graph, part: Sequence[str]) -> list[list[str]]:
    """The other small parts with which a part was not measured: fast pairs would show that they are one."""
    met = {name for own in part for name in graph.partners[own]}
    return [other for other in graph.parts[1:] if other != part and not met & {*other}]


def _met_all(graph: _Graph, part: Sequence[str]) -> bool:
    """Whether a part was measured with all other small ones; of many, with enough."""
    others = len(graph.parts) - 2
    return others - len(_unmet(graph, part)) >= min(others, SUSPECTS - 1)


def _plan_small_parts(graph: _Graph, switches: Mapping[str, str], plan: _Plan) -> None:
    """Measure small parts with each other, those of the same switch first."""
    for part in graph.parts[1:]:
        if _met_all(graph, part):
            continue
        name = part[0]
        like = sorted(
            _unmet(graph, part), key=lambda other: (switches.get(other[0]) != switches.get(name), len(other), other)
        )
        for other in like:
            if plan.add(pair_of(name, other[0])):
                break


def _slow_boundaries(graph: _Graph, switches: Mapping[str, str]) -> dict[Pair, list[Pair]]:
    """Pairs of switches between which all pairs of nodes were slow, two at least, while other ways join these nodes."""
    crossing: dict[Pair, list[Pair]] = {}
    for pair in graph.measured:
        one, other = (switches.get(name, "") for name in pair)
        if one and other and one != other:
            crossing.setdefault(pair_of(one, other), []).append(pair)
    inner = {*graph.inner_slow()}
    return {
        place: pairs
        for place, pairs in sorted(crossing.items())
        if len({name for pair in pairs for name in pair}) >= 4
        and all(all(graph.measured[pair]) and pair in inner for pair in pairs)
    }


def _on(graph: _Graph, switches: Mapping[str, str], switch: str) -> tuple[str, ...]:
    """The nodes on a switch."""
    return tuple(name for name in graph.names if switches.get(name) == switch)
