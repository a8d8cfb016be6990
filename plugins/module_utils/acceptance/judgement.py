# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names what is slow or broken in the results of an acceptance run, and never a node that is as good as its kind.

A value is slow if it lies below the other values of its kind by more than these differ, or under a floor. A node is
named if it was slow in several jobs, since a program of the system can make any one job slow. Noise and faults make
values worse, hardly ever better, so nothing is named for being better than others.

docs/design/acceptance.md has the rates of false and missed names in simulations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import median

from ..language.hostlist import fold
from .baseline import BaselineEntry, Conditions, comparable, conditions_of, unused
from .catalog import TESTS, AcceptanceTest, Scope
from .measurements import MeasuredValue, branch
from .pairs import Blame, Pair, PairVerdict, SlowGroup, blame, pair_of
from .published import PublishedMachine, published_floor
from .spread import UNSEEN, needed, outside

LEAST_PEERS = 4
"""Nodes or GPUs of a kind that are needed to compare them. Of three, one that is slow and one that is slow by chance
are more than half."""

LEAST_CONTROLS = 3
"""Controls of which the median is taken as the change of all between two jobs."""

MOST_CONTROLS = 8
"""Nodes that are measured again together with those that were slow."""

SPREADS_OF_JOBS = 6.0
"""Spreads between the jobs of the same unit by which a value has to be worse to mean anything."""

MOST_JOBS = 8
"""If a node had to be slow in more jobs to be named, the values are too noisy to name anyone."""

NOTICED = 0.05
"""A note names what is worse by more than this share, and not by enough to be named: some tests tolerate more."""

NOISY = 2.0
"""A note says that the values are uneven, if they have to differ by as many tolerances to be named."""

Unit = tuple[str, "int | None"]
"""A node, or a GPU of it."""


@dataclass(frozen=True)
class Options:
    """What a caller can choose."""

    jobs: int = 3
    """In how many jobs a node has to be slow before it is named; in more, if good ones were slow in some as well."""
    machines: Mapping[str, PublishedMachine] = field(default_factory=dict)
    """What is known of machine types, for published figures."""


@dataclass(frozen=True)
class AcceptanceFinding:
    """Something that is named."""

    kind: str
    """node, gpu: it is at fault. path, group: what lies between nodes is, or one cannot tell which of them."""
    nodes: tuple[str, ...]
    gpu: int | None
    test: str
    size: int | None
    value: float
    expected: float
    unit: str
    source: str
    """What it was compared with: check, peers, baseline, published."""
    text: str
    """The finding in words, without the names."""


@dataclass
class Judgement:
    """What results mean."""

    findings: list[AcceptanceFinding] = field(default_factory=list)
    again: dict[str, list[str]] = field(default_factory=dict)
    """Nodes to measure again, by test."""
    controls: dict[str, list[str]] = field(default_factory=dict)
    """Nodes to measure at the same time, by test."""
    pairs: dict[str, list[Pair]] = field(default_factory=dict)
    """Pairs to measure next, by test."""
    notes: list[str] = field(default_factory=list)

    @property
    def named(self) -> list[str]:
        """The nodes that are at fault, themselves or one of their GPUs."""
        return sorted({finding.nodes[0] for finding in self.findings if finding.kind in ("node", "gpu")})


def judge(
    values: Iterable[MeasuredValue],
    baseline: Sequence[BaselineEntry] = (),
    options: Options | None = None,
    switches: Mapping[str, str] | None = None,
) -> Judgement:
    """What the results of a run mean.

    Args:
        values: all values of the run so far, also those of earlier rounds.
        baseline: the reviewed baseline.
        switches: the switch of each node, if it is known.
    """
    options, judgement, values = options or Options(), Judgement(), [*values]
    checks, kinds = _sort(values, judgement)
    _judge_checks(checks, judgement)
    judgement.notes += _odd_drivers(values)
    if baseline:
        judgement.notes += unused(baseline, {conditions_of(value) for own in kinds.values() for value in own})
    for conditions, own in kinds.items():
        kind = _ComparedValues(TESTS[conditions.test], conditions, own, _floors(conditions, baseline, options))
        if kind.test.scope is Scope.PAIR:
            _judge_pairs(kind, switches or {}, judgement)
        elif kind.test.scope is Scope.MANY:
            _judge_many(kind, judgement)
        else:
            _judge_units(kind, options, judgement)
    judgement.findings = sorted({*judgement.findings}, key=lambda one: (one.nodes, one.gpu or 0, one.test, one.source))
    return judgement


# -- sorting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Floor:
    """What has to be reached."""

    value: float
    expected: float
    source: str
    text: str
    driver: str | None = None
    """The branch of the driver for which it holds; None for all."""

    def holds_for(self, value: MeasuredValue) -> bool:
        return self.driver in (None, conditions_of(value).driver)


@dataclass(frozen=True)
class _ComparedValues:
    """The values that can be compared with each other: of a machine type, with any driver. A node with another driver
    would else be compared with nobody, and would be missing among the others."""

    test: AcceptanceTest
    conditions: Conditions
    values: Sequence[MeasuredValue]
    floors: Sequence[_Floor]

    def worse(self, value: float, expected: float) -> float:
        """By which share a value is worse than another one; below 0 if it is better."""
        return 1 - value / expected if self.test.higher else value / expected - 1

    def worst(self, values: Iterable[float]) -> float:
        return min(values) if self.test.higher else max(values)

    def under(self, value: MeasuredValue) -> _Floor | None:
        """The floor that a value does not reach."""
        floors = (floor for floor in self.floors if floor.holds_for(value))
        return next((floor for floor in floors if self.worse(value.value, floor.value) > 0), None)

    @property
    def title(self) -> str:
        """The test and its conditions, for notes."""
        size = f", {_bytes(self.conditions.size)}" if self.conditions.size else ""
        return f"{self.test.name} ({self.conditions.hardware or 'no machine type'}{size})"


def _sort(
    values: Iterable[MeasuredValue], judgement: Judgement
) -> tuple[list[MeasuredValue], dict[Conditions, list[MeasuredValue]]]:
    """Checks, and values by what they depend on; and notes about nodes that did not reach the largest size."""
    checks: list[MeasuredValue] = []
    measured: list[MeasuredValue] = []
    for value in values:
        (checks if TESTS[value.test].is_check else measured).append(value)
    kinds = comparable(measured, across_drivers=True)
    reached = {replace(conditions, size=None): own for conditions, own in kinds.items()}
    short: dict[Conditions, set[str]] = {}
    for value in measured:
        short.setdefault(replace(conditions_of(value), driver="", size=None), set()).update(value.nodes)
    for conditions, names in short.items():
        own = reached[conditions]
        if missing := names - {name for value in own for name in value.nodes}:
            size = _bytes(own[0].size)
            judgement.notes.append(f"{conditions.test}: {fold(sorted(missing))} did not reach the largest size, {size}")
    return checks, kinds


def _odd_drivers(values: Iterable[MeasuredValue]) -> list[str]:
    """The nodes of a machine type whose branch of NVIDIA's driver is not that of most, a line for each branch."""
    branches: dict[str, dict[str, str]] = {}
    for value in values:
        if len(value.nodes) == 1 and value.driver:
            branches.setdefault(value.hardware, {})[value.nodes[0]] = branch(value.driver)
    notes = []
    for hardware, by_node in branches.items():
        nodes = {driver: sorted(name for name in by_node if by_node[name] == driver) for driver in by_node.values()}
        usual = max(sorted(nodes), key=lambda driver: len(nodes[driver]))
        notes += [
            f"{fold(nodes[driver])} ({hardware or 'no machine type'}): branch {driver} of NVIDIA's driver, and "
            f"{usual} on {fold(nodes[usual])}: their values are compared with each other"
            for driver in sorted(nodes)
            if driver != usual
        ]
    return notes


def _floors(conditions: Conditions, baseline: Iterable[BaselineEntry], options: Options) -> list[_Floor]:
    """The floors for values: those of the baseline, each for its driver, and a published one."""
    floors = []
    for entry in baseline:
        if replace(entry.conditions, driver="") == conditions:
            what = f"the baseline of {entry.measured}: floor {_number(entry.floor)}, median {_number(entry.median)}"
            floors.append(_Floor(entry.floor, entry.median, "baseline", what, entry.driver))
    figure = published_floor(options.machines, conditions.hardware, conditions.test, conditions.nodes, conditions.size)
    if figure:
        what = f"a published figure: {_number(figure.floor)} ({figure.source})"
        floors.append(_Floor(figure.floor, figure.floor, "published", what))
    return floors


# -- checks ----------------------------------------------------------------------------------------------------------


def _judge_checks(checks: Iterable[MeasuredValue], judgement: Judgement) -> None:
    """What is broken needs no comparison. The last result counts: a node may have been repaired in between."""
    last = {
        (check.test, check.nodes, check.gpu): check for check in sorted(checks, key=lambda one: (one.time, one.job))
    }
    for check in last.values():
        if not check.value:
            text = f"{TESTS[check.test].meaning}: {check.text or 'not as it should be'}"
            kind = "node" if check.gpu is None else "gpu"
            judgement.findings.append(
                AcceptanceFinding(kind, check.nodes, check.gpu, check.test, None, 0.0, 1.0, check.unit, "check", text)
            )


# -- nodes and GPUs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Peers:
    """What the units of a kind do."""

    median: float
    limit: float
    """The share by which a value has to be worse to lie outside."""
    number: int
    drift: float = 1.0
    """What is left of the median when units are measured again."""

    def text(self, what: str) -> str:
        return f"the median of {self.number} {what}, {_number(self.median)}"


def _peers(kind: _ComparedValues, firsts: Mapping[Unit, float]) -> _Peers | None:
    """What the first values of all units say; None for too few."""
    if len(firsts) < LEAST_PEERS:
        return None
    middle = median(firsts.values())
    limit = outside([*firsts.values()], middle, kind.test.tolerance)
    return _Peers(middle, limit, len(firsts))


def _judge_units(kind: _ComparedValues, options: Options, judgement: Judgement) -> None:
    """Nodes, or GPUs of nodes, each compared with all others of its kind and with floors."""
    measured: dict[Unit, list[MeasuredValue]] = {}
    for value in kind.values:
        measured.setdefault((value.nodes[0], value.gpu), []).append(value)
    by_unit = {unit: [value.value for value in values] for unit, values in measured.items()}
    firsts = {unit: values[0] for unit, values in by_unit.items()}
    what = "GPUs" if kind.test.scope is Scope.GPU else "nodes"
    peers = _peers(kind, firsts)
    if peers is None:
        judgement.notes.append(_too_few(kind, len(firsts), what))
    else:
        peers = _after_jobs(kind, peers, by_unit)
    if peers and peers.limit > NOISY * kind.test.tolerance:
        judgement.notes.append(
            f"{kind.title}: the values of {len(firsts)} {what} differ so much that one has to be worse by "
            f"{100 * peers.limit:.0f} % to be named"
        )
    verdicts = {unit: _verdicts(kind, peers, values, what) for unit, values in measured.items()}
    judgement.notes += _within_tolerance(kind, peers, verdicts, firsts)
    # A floor comes with what is known of the noise; a few peers show little of it.
    by_floor, by_peers = (_jobs_needed(options, verdicts, unseen) for unseen in (0.0, UNSEEN))
    slow: dict[Unit, _Slow] = {}
    noisy = False
    for unit, found in verdicts.items():
        normal = [one for one in found if one]
        if len(normal) < len(found):
            continue
        jobs = by_peers if any(one.source == "peers" for one in normal) else by_floor
        if jobs > MOST_JOBS:
            noisy = True
        elif len(found) >= jobs:
            slow[unit] = _Slow(kind.worst(by_unit[unit]), normal[0])
        else:
            _append(judgement.again, kind.test.name, unit[0])
    if noisy:
        judgement.notes.append(f"{kind.title}: good {what} were slow in some jobs as well: too noisy to name all")
    if kind.test.name in judgement.again:
        suspects = {*judgement.again[kind.test.name], *(unit[0] for unit in slow)}
        judgement.controls[kind.test.name] = _controls(firsts, suspects)
    judgement.findings += _unit_findings(kind, slow, by_unit)


@dataclass(frozen=True)
class _Normal:
    """What a slow value was compared with."""

    expected: float
    source: str
    text: str


@dataclass(frozen=True)
class _Slow:
    """A unit that was slow in all its jobs."""

    value: float
    normal: _Normal


def _after_jobs(kind: _ComparedValues, peers: _Peers, by_unit: Mapping[Unit, Sequence[float]]) -> _Peers:
    """The same with what good units show that were measured again: the change of all, and the noise of jobs.

    The change only excuses. The noise is that between jobs of the same unit, and widens the limit: with four nodes, it
    is known better than the spread between nodes.
    """
    good = [
        values
        for values in by_unit.values()
        if len(values) > 1 and any(kind.worse(value, peers.median) <= peers.limit for value in values)
    ]
    if len(good) < LEAST_CONTROLS:
        return peers
    later = [value / values[0] for values in good for value in values[1:]]
    change = median(later)
    # The median absolute deviation: a good unit that is slow now and then is counted by _jobs_needed.
    noise = 1.4826 * median(abs(ratio - change) for ratio in later) / sqrt(2)
    drift = min(change, 1.0) if kind.test.higher else max(change, 1.0)
    return replace(peers, drift=drift, limit=max(peers.limit, SPREADS_OF_JOBS * noise))


def _within_tolerance(
    kind: _ComparedValues,
    peers: _Peers | None,
    verdicts: Mapping[Unit, Sequence[_Normal | None]],
    firsts: Mapping[Unit, float],
) -> list[str]:
    """A note about what is worse than the others, and not by enough."""
    if not peers:
        return []
    shares = {unit: kind.worse(value, peers.median) for unit, value in firsts.items() if not any(verdicts[unit])}
    names = {unit[0] for unit, share in shares.items() if share > NOTICED}
    if not names:
        return []
    return [
        f"{kind.title}: {fold(sorted(names))} up to {100 * max(shares.values()):.1f} % worse than the median, "
        f"{_number(peers.median)}; what is more than {100 * peers.limit:.0f} % worse is named"
    ]


def _verdicts(
    kind: _ComparedValues, peers: _Peers | None, values: Sequence[MeasuredValue], what: str
) -> list[_Normal | None]:
    """For each job of a unit what its value was worse than, if it was worse."""
    found: list[_Normal | None] = []
    for number, value in enumerate(values):
        floor = kind.under(value)
        if floor:
            found.append(_Normal(floor.expected, floor.source, floor.text))
        elif peers and kind.worse(value.value, peers.median * (peers.drift if number else 1.0)) > peers.limit:
            found.append(_Normal(peers.median, "peers", peers.text(what)))
        else:
            found.append(None)
    return found


def _jobs_needed(options: Options, verdicts: Mapping[Unit, Sequence[_Normal | None]], unseen: float) -> int:
    """In how many jobs a unit has to be slow, by what good ones show."""
    good = [found for found in verdicts.values() if not all(found)]
    slow = sum(len(found) - found.count(None) for found in good)
    return needed(options.jobs, slow, sum(map(len, good)), len(verdicts), unseen)


def _controls(firsts: Mapping[Unit, float], suspects: Collection[str]) -> list[str]:
    """The nodes nearest to the median: an extreme one would be less so the next time, without any change."""
    middle = median(firsts.values())
    nearest = sorted(firsts, key=lambda unit: (abs(firsts[unit] - middle), unit[0]))
    return [*dict.fromkeys(unit[0] for unit in nearest if unit[0] not in suspects)][:MOST_CONTROLS]


def _too_few(kind: _ComparedValues, number: int, what: str) -> str:
    known = f"; judged by {', '.join(floor.source for floor in kind.floors)} alone" if kind.floors else ""
    return (
        f"{kind.title}: {number} {what}, and {LEAST_PEERS} are needed for a comparison, since of fewer one cannot say "
        f"which are as they should be{known}"
    )


def _unit_findings(
    kind: _ComparedValues, slow: Mapping[Unit, _Slow], by_unit: Mapping[Unit, Sequence[float]]
) -> list[AcceptanceFinding]:
    """A finding for each unit, or one for a node of whose GPUs more than half are slow."""
    findings = []
    gpus: dict[str, list[Unit]] = {}
    for unit in by_unit:
        gpus.setdefault(unit[0], []).append(unit)
    for node, units in gpus.items():
        bad = [unit for unit in units if unit in slow]
        if len(bad) * 2 > len(units) > 1:
            worst = kind.worst(slow[unit].value for unit in bad)
            normal = slow[bad[0]].normal
            which = f"{len(bad)} of {len(units)} GPUs, down to "
            findings.append(_finding(kind, "node", (node,), None, worst, normal, which))
            continue
        for unit in bad:
            scope = "node" if unit[1] is None else "gpu"
            findings.append(_finding(kind, scope, (node,), unit[1], slow[unit].value, slow[unit].normal))
    return findings


def _finding(
    kind: _ComparedValues,
    scope: str,
    nodes: tuple[str, ...],
    gpu: int | None,
    value: float,
    normal: _Normal,
    before: str = "",
) -> AcceptanceFinding:
    share = 100 * abs(kind.worse(value, normal.expected))
    way = "less" if kind.test.higher else "more"
    size = f" at {_bytes(kind.conditions.size)}" if kind.conditions.size else ""
    words = (
        f"{kind.test.meaning}: {before}{_number(value)} {kind.test.unit}{size}, {share:.1f} % {way} than {normal.text}"
    )
    return AcceptanceFinding(
        scope,
        nodes,
        gpu,
        kind.test.name,
        kind.conditions.size,
        value,
        normal.expected,
        kind.test.unit,
        normal.source,
        words,
    )


# -- pairs and more nodes --------------------------------------------------------------------------------------------


def _judge_pairs(kind: _ComparedValues, switches: Mapping[str, str], judgement: Judgement) -> None:
    """Pairs, of which each has a verdict; `blame` then says whose fault the slow ones are."""
    names = {name for value in kind.values for name in value.nodes}
    typical, limit = _fast_pairs(kind)
    by_peers = [value for value in kind.values if kind.worse(value.value, typical) > limit]
    if len(names) < LEAST_PEERS:
        judgement.notes.append(_too_few(kind, len(names), "nodes"))
    else:
        normal = _Normal(typical, "peers", f"what fast pairs do, {_number(typical)}")
        _blame(kind, by_peers, normal, switches, judgement, majority=True)
    for floor in kind.floors:
        own = replace(kind, values=[value for value in kind.values if floor.holds_for(value)])
        under = [value for value in own.values if kind.worse(value.value, floor.value) > 0]
        _blame(own, under, _Normal(floor.expected, floor.source, floor.text), switches, judgement, majority=False)


def _fast_pairs(kind: _ComparedValues) -> tuple[float, float]:
    """What fast pairs do, and by which share a pair has to be worse to be slow.

    Three bad ones of eight nodes make two thirds of the pairs slow, so the median of all pairs says nothing. But a good
    node is fast with half of its partners. So each node begins with the last of its better half, and then all pairs
    count that are as fast.
    """
    of_node: dict[str, list[float]] = {}
    for value in kind.values:
        for name in value.nodes:
            of_node.setdefault(name, []).append(value.value)
    fast = [sorted(own, reverse=kind.test.higher)[max(1, len(own) // 2) - 1] for own in of_node.values()]
    for _ in range(5):
        typical = median(fast)
        limit = outside(fast, typical, kind.test.tolerance)
        fast = [value.value for value in kind.values if kind.worse(value.value, typical) <= limit]
    return typical, limit


def _blame(
    kind: _ComparedValues,
    slow: Sequence[MeasuredValue],
    normal: _Normal,
    switches: Mapping[str, str],
    judgement: Judgement,
    majority: bool,
) -> None:
    """Add what the verdicts mean."""
    marked = {id(value) for value in slow}
    verdicts = [PairVerdict(pair_of(*value.nodes), id(value) in marked) for value in kind.values]
    result = blame(verdicts, switches, majority)
    judgement.notes += [f"{kind.title}: {note}" for note in result.notes]
    judgement.findings += _pair_findings(kind, result, slow, normal)
    if result.following:
        planned = judgement.pairs.setdefault(kind.test.name, [])
        busy = {name for pair in planned for name in pair}
        planned += [pair for pair in result.following if not busy & {*pair}]
    if result.suspects:
        judgement.notes.append(f"{kind.title}: more pairs have to show whose fault it is: {fold(result.suspects)}")


def _pair_findings(
    kind: _ComparedValues, result: Blame, slow: Sequence[MeasuredValue], normal: _Normal
) -> list[AcceptanceFinding]:
    found = []
    for name, partners in result.nodes.items():
        own = [each for each in slow if name in each.nodes]
        value = kind.worst(each.value for each in own)
        before = f"with each of {fold(partners)}, which are fast with others, {_over(own)}down to "
        found.append(_finding(kind, "node", (name,), None, value, normal, before))
    for pair in result.paths:
        own = [each for each in slow if {*each.nodes} == {*pair}]
        value = kind.worst(each.value for each in own)
        before = f"both nodes are fast with others, so the path between them is slow: {_over(own)}"
        found.append(_finding(kind, "path", pair, None, value, normal, before))
    for group in result.groups:
        one, other = {*group.nodes}, {*group.others}
        between = [each.value for each in slow if one & {*each.nodes} and other & {*each.nodes}]
        value = kind.worst(between)
        found.append(_finding(kind, "group", group.nodes, None, value, normal, _group_text(group)))
    return found


def _over(slow: Sequence[MeasuredValue]) -> str:
    """The port that is the slowest one in all of these values, for a text; empty if they have none in common."""
    ports = {value.text for value in slow}
    return f"slowest over {slow[0].text}, " if len(ports) == 1 and slow[0].text else ""


def _group_text(group: SlowGroup) -> str:
    where = f", on {' and '.join(group.switches)}," if group.switches else ""
    return (
        f"these nodes{where} are fast with each other and slow with {fold([*group.others])}, so what lies between is "
        "slow, such as a switch or its uplinks: "
    )


def _judge_many(kind: _ComparedValues, judgement: Judgement) -> None:
    """Many nodes at once have floors alone, and none of them is named."""
    if not kind.floors:
        judgement.notes.append(
            f"{kind.title}: there is no baseline and no published figure for {kind.conditions.nodes} nodes"
        )
    for value in kind.values[-1:]:
        if floor := kind.under(value):
            normal = _Normal(floor.expected, floor.source, floor.text)
            before = f"{len(value.nodes)} nodes together, of which pairs can tell the slow ones: "
            found = _finding(kind, "group", value.nodes, None, value.value, normal, before)
            judgement.findings.append(found)


# -- words -----------------------------------------------------------------------------------------------------------


def _append(lists: dict[str, list[str]], key: str, name: str) -> None:
    """Add a name to a list, once."""
    if name not in lists.setdefault(key, []):
        lists[key].append(name)


def _number(value: float) -> str:
    """A number as a person reads it: 391.2, 0.0123, 24810."""
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def _bytes(size: int | None) -> str:
    """A size in binary units."""
    number, units = size or 0, ("B", "KiB", "MiB", "GiB", "TiB")
    for unit in units[:-1]:
        if number < 1024 or number % 1024:
            return f"{number} {unit}"
        number //= 1024
    return f"{number} {units[-1]}"
