# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runs of accept.yml: the last one with what it has named, and how each median has changed since earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from .plots import Curve, curve
from .queue_tables import rest_of
from .report_texts import (
    SENTENCE,
    Time,
    age,
    count_of,
    memory,
    number_of,
    plural,
    records_of,
    text_of,
    texts_of,
    time_of,
)
from .upkeep_tables import PageCheck, names_of, size_of

RUNS = 50
"""Runs that are shown."""

FINDINGS = 100
"""Findings that are listed."""

TRENDS = 100
"""Tests and machine types that are listed."""


class AcceptanceRun(NamedTuple):
    """A run. measured, left, named: numbers of nodes; names: those that are named, and how many more there are."""

    finished: Time
    age: str
    ok: bool
    level: str
    measured: int
    left: int
    named: int
    names: str


class Point(NamedTuple):
    """The median of a run. values: of how many nodes, GPUs or pairs."""

    finished: Time
    median: float
    shown: str
    values: int


class Trend(NamedTuple):
    """The medians of a test on a machine type, the newest first.

    conditions: what the values depend on as well, in words. change: of the newest one, in words; empty if there is
    nothing to compare it with. to: with what it is compared. worse: whether that is more than healthy machines differ.
    is_last: whether it is of the last run.
    """

    test: str
    meaning: str
    hardware: str
    conditions: str
    unit: str
    points: Sequence[Point]
    curve: Curve | None
    change: str
    to: str
    worse: bool
    is_last: bool


class Acceptance(NamedTuple):
    """The runs that are known: the last one with its findings, earlier ones, and the trends."""

    last: AcceptanceRun
    findings: Sequence[str]
    findings_note: str
    earlier: Sequence[AcceptanceRun]
    trends: Sequence[Trend]
    trends_note: str


Record = Mapping[str, Any]


def digits(value: float) -> str:
    """A value with the digits that a person reads."""
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.5g}"


def _run(record: Record, now: Time) -> AcceptanceRun:
    finished, named = time_of(record, "finished"), count_of(record, "named")
    more = rest_of(named, size_of(record, "names"), "node")
    return AcceptanceRun(
        finished,
        age(finished, now),
        bool(record.get("ok")),
        text_of(record, "level", 24),
        count_of(record, "measured"),
        count_of(record, "left"),
        named,
        f"{names_of(record, 'names')} {more}".strip(),
    )


def _positive(record: Record, key: str) -> float | None:
    """A number above 0; None if there is none."""
    value = number_of(record, key)
    return value if value and value > 0 else None


SAME = ("test", "hardware", "nodes", "size", "driver", "image", "unit")
"""What medians have in common that can be compared, as those of a baseline have."""


def _conditions(record: Record) -> str:
    """What values depend on, apart from the machine type."""
    nodes, driver, image = count_of(record, "nodes"), text_of(record, "driver", 24), text_of(record, "image")
    # One node, or a pair, is in the meaning of the test.
    size = memory(bytes_ / 2**20) if (bytes_ := number_of(record, "size")) else ""
    found = [plural(nodes, "node") if nodes > 2 else "", size, f"driver {driver}" if driver else "", image]
    return ", ".join(filter(None, found))


def _trend(rows: Sequence[tuple[AcceptanceRun, Record]], last: AcceptanceRun) -> Trend:
    """The trend of medians that can be compared, the newest first."""
    medians = [_positive(record, "median") or 0 for _run, record in rows]
    newest, earlier = rows[0][1], medians[1:]
    baseline = _positive(newest, "baseline")
    expected = baseline or (median(earlier) if earlier else None)
    change = medians[0] / expected - 1 if expected else 0
    runs = "the run before" if len(earlier) == 1 else f"the median of {len(earlier)} earlier runs"
    return Trend(
        test=text_of(newest, "test"),
        meaning=text_of(newest, "meaning", 80),
        hardware=text_of(newest, "hardware"),
        conditions=_conditions(newest),
        unit=text_of(newest, "unit", 16),
        points=[
            Point(run.finished, value, digits(value), count_of(record, "values"))
            for (run, record), value in zip(rows, medians)
        ],
        curve=curve(medians[::-1], baseline),
        change=f"{100 * change:+.1f} %" if expected else "",
        to=f"the baseline, {digits(baseline)}" if baseline else runs,
        worse=(change if newest.get("higher") is False else -change) > (number_of(newest, "tolerance") or 0),
        is_last=rows[0][0] is last,
    )


def trends_of(runs: Sequence[AcceptanceRun], records: Sequence[Record]) -> list[Trend]:
    """The trends of runs, the newest first. Those of one test follow each other."""
    together: dict[str, dict[tuple[str, ...], list[tuple[AcceptanceRun, Record]]]] = {}
    for run, record in zip(runs, records):
        for row in records_of(record, "values"):
            if _positive(row, "median"):
                same = tuple(str(row.get(key)) for key in SAME)
                together.setdefault(same[0], {}).setdefault(same, []).append((run, row))
    return [_trend(rows, runs[0]) for groups in together.values() for rows in groups.values()]


def acceptance_of(data: Record, now: Time) -> Acceptance | None:
    """The runs of the data; None if there is none."""
    records = records_of(data, "acceptance")[:RUNS]
    if not records:
        return None
    runs = [_run(record, now) for record in records]
    trends = trends_of(runs, records)
    findings = texts_of(records[0], "findings", SENTENCE)[:FINDINGS]
    return Acceptance(
        last=runs[0],
        findings=findings,
        findings_note=rest_of(count_of(records[0], "faults"), len(findings), "finding"),
        earlier=runs[1:],
        trends=trends[:TRENDS],
        trends_note=rest_of(len(trends), TRENDS, "line"),
    )


def acceptance_check(found: Acceptance | None) -> PageCheck:
    """About the last run of accept."""
    title, link = "Acceptance", "acceptance"
    if not found:
        return PageCheck(title, "unknown", "no run is known", link)
    run = found.last
    when = f"{run.age} ago ({run.level})"
    text = "nothing named" if run.ok else f"{run.names} named" if run.named else "failed"
    return PageCheck(title, "good" if run.ok else "bad", f"{text} {when}", link, run.finished, run.age)
