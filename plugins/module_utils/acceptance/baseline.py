# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reviewed baseline: what the machines of a cluster have reached, and what they must reach.

It is a list of entries in `NAME.baseline.yml` next to the cluster file, as the measured hardware is. accept.yml adds
entries and raises floors that are its own; a floor is lowered only by a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cache
from statistics import median
from typing import Annotated, Any

from ..language.formatting import message, shown
from ..language.hostlist import MAX_HOSTS
from ..language.records import Check, Form, Most, Pattern, Range, check_of, checks_of, refused
from ..language.spelling import nearest
from .catalog import TESTS, AcceptanceTest, Scope
from .measurements import DRIVER, IMAGE, LARGEST_SIZE, LARGEST_VALUE, MeasuredValue, Text, above_zero, branch
from .spread import SPREADS, outside, robust_spread

MOST_ENTRIES = 10_000
HISTORY = 12
"""Medians of earlier runs that an entry keeps; a run on the same day replaces the one before it."""

LEAST_VALUES = 4
"""Values from which a floor is proposed. From fewer, one slow node would set the measure for all."""

_HARDWARE = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,254}"
Day = Annotated[str, Form.DAY]


@dataclass(frozen=True)
class Conditions:
    """What a value depends on."""

    hardware: str
    driver: str
    """The branch of NVIDIA's driver: 580."""
    image: str
    test: str
    nodes: int
    size: int | None


@dataclass(frozen=True)
class BaselineEntry:
    """What a kind of machine reaches in a test."""

    hardware: Annotated[str, Pattern(_HARDWARE, 255, "a machine type")]
    driver: Annotated[str, Pattern(DRIVER, words="the branch of a driver such as '580', or an empty text")]
    image: Annotated[str, Pattern(IMAGE, 255, "the name of a container image, or an empty text")]
    test: Text
    nodes: Annotated[int, Range(MAX_HOSTS)]
    size: Annotated[int, Range(LARGEST_SIZE, 1, "bytes")] | None
    median: Annotated[float, above_zero(LARGEST_VALUE)]
    spread: Annotated[float, Range(LARGEST_VALUE, words="a number from 0")]
    floor: Annotated[float, above_zero(LARGEST_VALUE)]
    unit: Text
    values: Annotated[int, Range(10**9, 1, "a whole number above 0")]
    measured: Day
    """The day of the last run."""
    history: Annotated[
        tuple[tuple[Day, Annotated[float, above_zero(LARGEST_VALUE)]], ...],
        Most(HISTORY, f"a list of up to {HISTORY} days with medians, such as [['2026-11-28', 391.2]]"),
    ] = ()
    """Days and medians of earlier runs, the oldest first."""

    @property
    def conditions(self) -> Conditions:
        return Conditions(self.hardware, self.driver, self.image, self.test, self.nodes, self.size)


class BaselineError(ValueError):
    """All problems of a baseline, a line each."""


def conditions_of(value: MeasuredValue) -> Conditions:
    """What a value depends on. Driver and image count only in tests that use a GPU, or can run in a container."""
    test = TESTS[value.test]
    driver = branch(value.driver) if test.gpus else ""
    return Conditions(
        value.hardware, driver, value.image if test.container else "", value.test, len(value.nodes), value.size
    )


def comparable(values: Iterable[MeasuredValue], across_drivers: bool = False) -> dict[Conditions, list[MeasuredValue]]:
    """Values by what they depend on: at the largest size of each test alone, in the order of time.

    An average over sizes would hide a slow link. It is the largest size that half of all reached: one that prints a
    larger size is not compared with itself, and the others are not left without a comparison. The median of the
    repetitions in a job is its value, so a node has one vote in each job however much it prints.

    across_drivers: whether all branches of the driver are together, under an empty text.
    """
    by_test: dict[Conditions, list[MeasuredValue]] = {}
    for value in values:
        kind = replace(conditions_of(value), size=None)
        by_test.setdefault(replace(kind, driver="") if across_drivers else kind, []).append(value)
    kinds: dict[Conditions, list[MeasuredValue]] = {}
    for conditions, all_sizes in by_test.items():
        size = _largest_size(all_sizes)
        repeated: dict[tuple[tuple[str, ...], int | None, int], list[MeasuredValue]] = {}
        for value in all_sizes:
            if value.size == size:
                repeated.setdefault((value.nodes, value.gpu, value.job), []).append(value)
        merged = [replace(each[0], value=median(one.value for one in each)) for each in repeated.values()]
        kinds[replace(conditions, size=size)] = sorted(merged, key=lambda value: (value.time, value.job))
    return kinds


def _largest_size(values: Iterable[MeasuredValue]) -> int | None:
    """The largest size that half of all nodes, GPUs or pairs reached."""
    reached: dict[int | None, set[tuple[tuple[str, ...], int | None]]] = {}
    for value in values:
        reached.setdefault(value.size, set()).add((value.nodes, value.gpu))
    most = len(set().union(*reached.values()))
    common = [size for size, units in reached.items() if len(units) * 2 >= most]
    return max(common or reached, key=lambda size: size or 0)


def unit_medians(values: Iterable[MeasuredValue]) -> list[float]:
    """One value for each node, GPU or pair: the median of its jobs. What was measured again has no more votes."""
    units: dict[tuple[tuple[str, ...], int | None], list[float]] = {}
    for value in values:
        units.setdefault((value.nodes, value.gpu), []).append(value.value)
    return [median(each) for each in units.values()]


def baseline_file(cluster_file: str) -> str:
    """The baseline of a cluster file: `my.cluster.yml` -> `my.baseline.yml`, next to it."""
    return re.sub(r"cluster(\.ya?ml)$", r"baseline\1", cluster_file)


# -- reading ---------------------------------------------------------------------------------------------------------

_FIELDS = tuple(BaselineEntry.__dataclass_fields__)
_OPTIONAL = ("driver", "image", "size", "history")


def read_baseline(data: Any, file: str) -> list[BaselineEntry]:
    """The entries of a baseline, from the data of its YAML. None for no data, as an empty file has.

    Raises BaselineError with all problems: `FILE: [3].floor: found 500, allowed: ...`.
    """
    if data is None:
        return []
    if not isinstance(data, list) or len(data) > MOST_ENTRIES:
        raise BaselineError(f"{file}: found {shown(data)}, allowed: a list of up to {MOST_ENTRIES} entries")
    entries: list[BaselineEntry] = []
    problems: list[str] = []
    places: dict[Conditions, int] = {}
    for number, item in enumerate(data):
        found = [message(f"{file}: [{number}]{problem}") for problem in _entry_problems(item)]
        problems += found
        if found:
            continue
        entry = _make_entry(item)
        if entry.conditions in places:
            problems.append(f"{file}: [{number}]: is the same as [{places[entry.conditions]}], allowed: one for each")
        places.setdefault(entry.conditions, number)
        entries.append(entry)
    if problems:
        raise BaselineError("\n".join(problems))
    return entries


def _entry_problems(item: Any) -> list[str]:
    """The problems of an entry, each beginning with the key."""
    if not isinstance(item, Mapping):
        return [f": found {shown(item)}, allowed: a mapping with the keys {', '.join(_FIELDS)}"]
    problems = []
    for key in item:
        if key not in _FIELDS:
            meant = nearest(key, _FIELDS) if isinstance(key, str) else None
            hint = f"; did you mean {meant}?" if meant else ""
            problems.append(f": found the key {shown(key)}, allowed: {', '.join(_FIELDS)}{hint}")
    problems += [f": {key} is missing" for key in _FIELDS if key not in item and key not in _OPTIONAL]
    if problems:
        return problems
    test = item["test"]
    if not isinstance(test, str) or test not in TESTS or TESTS[test].is_check:
        values = [name for name, each in TESTS.items() if not each.is_check]
        meant = nearest(test, values) if isinstance(test, str) else None
        hint = f"; did you mean {meant}?" if meant else ""
        return [f".test: found {shown(test)}, allowed: {', '.join(values)}{hint}"]
    given = _plain(item)
    checks = {**_checks(), "nodes": _check_of_nodes(TESTS[test]), "unit": _check_of_unit(TESTS[test])}
    problems = [f".{key}: {what}" for key, value in given.items() if (what := checks[key](value))]
    if not problems and not _consistent(item, TESTS[test].higher):
        which = "above 0 and at most" if TESTS[test].higher else "at least"
        problems.append(f".floor: found {item['floor']}, allowed: {which} the median, {item['median']}")
    return problems


def _consistent(item: Mapping[str, Any], higher: bool) -> bool:
    """Whether the floor is on the worse side of the median: else half of the healthy nodes would be under it."""
    return bool(item["floor"] <= item["median"]) if higher else bool(item["floor"] >= item["median"])


def _plain(item: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as JSON has it. YAML reads days, and branches of drivers, as no texts where they have no quotes."""
    given = {key: value for key, value in item.items() if value is not None or key not in _OPTIONAL}
    if type(item.get("driver")) is int:
        given["driver"] = str(item["driver"])
    given["measured"] = _day(given["measured"])
    if isinstance(given.get("history"), list):
        given["history"] = [[*map(_day, one)] if isinstance(one, list) else one for one in given["history"]]
    return given


def _day(value: Any) -> Any:
    return str(value) if isinstance(value, date) else value


@cache
def _checks() -> dict[str, Check]:
    """The checks of the fields; the control host alone needs them."""
    return checks_of(BaselineEntry)


def _check_of_nodes(test: AcceptanceTest) -> Check:
    least, most = {Scope.PAIR: (2, 2), Scope.MANY: (2, MAX_HOSTS)}.get(test.scope, (1, 1))
    words = f"{least} for {test.name}" if least == most else f"{least} or more"
    return check_of(Annotated[int, Range(most, least, words)])


def _check_of_unit(test: AcceptanceTest) -> Check:
    return lambda value: "" if value == test.unit else refused(value, f"{test.unit}, the unit of {test.name}")


def _make_entry(item: Mapping[str, Any]) -> BaselineEntry:
    """The entry of checked data."""
    return BaselineEntry(
        hardware=item["hardware"],
        driver=branch(str(item.get("driver") or "")),
        image=item.get("image") or "",
        test=item["test"],
        nodes=item["nodes"],
        size=item.get("size"),
        median=float(item["median"]),
        spread=float(item["spread"]),
        floor=float(item["floor"]),
        unit=item["unit"],
        values=item["values"],
        measured=str(item["measured"]),
        history=tuple((str(day), float(value)) for day, value in item.get("history") or ()),
    )


# -- which entries hold ----------------------------------------------------------------------------------------------


def unused(entries: Iterable[BaselineEntry], measured: Iterable[Conditions]) -> list[str]:
    """Why values have no entry although there is one of the same test: another machine type, driver, image or size."""
    by_test: dict[tuple[str, int], list[BaselineEntry]] = {}
    for entry in entries:
        by_test.setdefault((entry.test, entry.nodes), []).append(entry)
    notes = []
    for wanted in sorted({*measured}, key=repr):
        like = by_test.get((wanted.test, wanted.nodes), [])
        if like and all(entry.conditions != wanted for entry in like):
            closest = min(like, key=lambda entry: sum(map(int, _differences(entry, wanted).values())))
            which = [name for name, differs in _differences(closest, wanted).items() if differs]
            theirs = ", ".join(f"{name} {_named(getattr(closest, name))}" for name in which)
            ours = ", ".join(f"{name} {_named(getattr(wanted, name))}" for name in which)
            notes.append(f"{wanted.test}: the baseline is of {theirs} and is not used for {ours}")
    return notes


def _differences(entry: BaselineEntry, wanted: Conditions) -> dict[str, bool]:
    return {name: getattr(entry, name) != getattr(wanted, name) for name in ("hardware", "driver", "image", "size")}


def _named(value: Any) -> str:
    return str(value) if value not in ("", None) else "none"


# -- a proposal ------------------------------------------------------------------------------------------------------


def proposed(
    entries: Sequence[BaselineEntry], values: Iterable[MeasuredValue], today: str, left_out: Iterable[str] = ()
) -> list[BaselineEntry]:
    """The baseline after a run, for a person to review: medians and spreads of this run, floors that never fall.

    Args:
        entries: the reviewed baseline. Those that this run has no values for stay as they are.
        values: the values of the run. Each node, GPU or pair counts once, with the median of its jobs. Nodes without a
            machine type in the cluster file have no kind whose baseline it would be.
        left_out: nodes that the judgement names. What they reached is no measure for others.
        today: a day, such as 2026-11-28.
    """
    bad = {*left_out}
    measured = [
        value
        for value in values
        if not TESTS[value.test].is_check
        and not bad & {*value.nodes}
        and re.fullmatch(_HARDWARE, value.hardware, re.ASCII)
    ]
    known = {entry.conditions: entry for entry in entries}
    for conditions, own in comparable(measured).items():
        numbers = unit_medians(own)
        old = known.get(conditions)
        if len(numbers) >= LEAST_VALUES or (TESTS[conditions.test].scope is Scope.MANY and not old):
            known[conditions] = _proposed_entry(conditions, numbers, old, today)
    return sorted(
        known.values(), key=lambda entry: (entry.hardware, entry.test, entry.nodes, entry.size or 0, repr(entry))
    )


def _proposed_entry(
    conditions: Conditions, numbers: Sequence[float], old: BaselineEntry | None, today: str
) -> BaselineEntry:
    test = TESTS[conditions.test]
    middle, spread = median(numbers), robust_spread(numbers)
    # Few values can agree by chance; what was known of the spread before counts as well.
    distance = max(outside(numbers, middle, test.tolerance) * middle, SPREADS * old.spread if old else 0.0)
    floor = max(middle - distance, middle * 0.01) if test.higher else middle + distance
    entry = BaselineEntry(
        **asdict(conditions),
        median=_digits(middle),
        spread=_digits(spread),
        floor=_digits(floor),
        unit=test.unit,
        values=len(numbers),
        measured=today,
    )
    if old is None:
        return entry
    best = max(old.floor, entry.floor) if test.higher else min(old.floor, entry.floor)
    # A run of slow machines has its median under the floor: the baseline then stays as it is.
    if (middle < best) == test.higher and middle != best:
        return replace(old, history=_with(old, entry))
    return replace(entry, floor=best, history=_with(old))


def _with(old: BaselineEntry, *new: BaselineEntry) -> tuple[tuple[str, float], ...]:
    """The history with a further entry: one median for a day, the newest ones."""
    days = dict((*old.history, (old.measured, old.median), *((entry.measured, entry.median) for entry in new)))
    return tuple(sorted(days.items())[-HISTORY:])


def _digits(value: float) -> float:
    """A number with 5 digits, as a person reads it."""
    return float(f"{value:.5g}")


def trend(entry: BaselineEntry, now: float) -> str:
    """How a median has changed: `-0.8 % since 2026-11-28 (4 runs)`; empty without a change to name."""
    past = [*entry.history, (entry.measured, entry.median)]
    day, first = past[0]
    change = 100 * (now / first - 1)
    return f"{change:+.1f} % since {day} ({len(past)} run{'s' if len(past) > 1 else ''})"


def written(entry: BaselineEntry) -> dict[str, object]:
    """An entry as the file has it, in its order."""
    data = asdict(entry)
    data["history"] = [list(item) for item in entry.history]
    return {key: value for key, value in data.items() if key != "history" or value}
