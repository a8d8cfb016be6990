# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times of the stages of `make test`: the expected times from the last run, and the report at the end of a run."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stage_reading import Reading, Spent

KEPT = 10  # slowest tests, plays, playbooks and steps of a stage, each, that the file keeps
SHOWN = 5  # slowest ones of each kind that are printed at the end, of all stages together
VERDICTS = 10  # failed tests that are printed for a stage at the end
LENGTH = 300  # characters of each; the excerpts above have more

Times = Mapping[str, Mapping[str, Any]]  # the times that are kept, by stage


class Result(NamedTuple):
    """One stage that has ended."""

    stage: str
    seconds: float
    passed: bool
    reading: Reading


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The times kept, by stage; empty if nothing was run yet, or if the file has another form."""
    try:
        kept = json.loads(path.read_text())
        return {stage: times for stage, times in kept.items() if "seconds" in times}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def slowest(spent: Mapping[str, Spent]) -> list[dict[str, Any]]:
    """The names that took longest."""
    order = sorted(spent.items(), key=lambda item: -item[1].seconds)
    return [{"name": name, "seconds": round(one.seconds, 1), "times": one.times} for name, one in order[:KEPT]]


def keep(path: Path, result: Result) -> None:
    """Write a stage's times to the file at once, so that an interrupted run keeps them."""
    reading = result.reading
    times = {
        "seconds": round(result.seconds, 1),
        "passed": result.passed,
        "playbook_runs": reading.playbook_runs,
        "tests": slowest(reading.tests),
        "plays": slowest(reading.plays),
        "playbooks": slowest(reading.playbooks),
        "steps": slowest(reading.steps),
    }
    written = path.with_suffix(".new")
    written.write_text(json.dumps(read(path) | {result.stage: times}, indent=1, sort_keys=True) + "\n")
    os.replace(written, path)


def longest_first(lanes: Sequence[Sequence[str]], times: Times) -> list[Sequence[str]]:
    """The lanes, longest first by the last run; in the given order if a stage was never run."""
    if not all(stage in times for lane in lanes for stage in lane):
        return list(lanes)
    return sorted(lanes, key=lambda lane: -sum(times[stage]["seconds"] for stage in lane))


def expected(lanes: Sequence[Sequence[str]], times: Times, beside: int) -> float:
    """Seconds until the last lane ends; stages that were never run count as 0."""
    ends = [0.0] * beside
    for lane in lanes:
        ends.sort()
        ends[0] += sum(times[stage]["seconds"] for stage in lane if stage in times)
    return max(ends)


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def plan(lanes: Sequence[Sequence[str]], times: Times, beside: int) -> Iterator[str]:
    """The lanes that will run, with the seconds of each stage's last run, and the expected end."""
    yield f"{beside} lanes run at a time, the next one begins when one ends. Times of each stage's last run:"
    for number, lane in enumerate(lanes, 1):
        stages = []
        for stage in lane:
            last = f"{times[stage]['seconds']:.0f} s" if stage in times else "not run yet"
            stages.append(f"{stage} ({last}{'' if times.get(stage, {}).get('passed', True) else ', failed'})")
        yield f"{number:4}  {', then '.join(stages)}"
    new = [stage for lane in lanes for stage in lane if stage not in times]
    seconds = expected(lanes, times, beside)
    end = time.strftime("%H:%M", time.localtime(time.time() + seconds))
    yield f"Expected: {clock(seconds)}, until {end}" + (f", plus the times of {', '.join(new)}" if new else "")


def excerpts(results: Sequence[Result]) -> Iterator[str]:
    """For each failed stage, the lines of its output that report failures, and its last lines."""
    for result in results:
        if not result.passed:
            yield f"\n==== {result.stage}: lines of its output that report failures, and its last lines"
            yield from (f"    {line}" for line in result.reading.excerpt())


def verdict(results: Sequence[Result]) -> Iterator[str]:
    """The failed stages, each with its log, its command, and its failed tests with the first words of their errors."""
    failed = [result for result in results if not result.passed]
    if failed:
        yield "\nfailed stages:"
    for result in failed:
        after, log, verdicts = clock(result.seconds), result.reading.log, result.reading.verdicts()
        yield f"    {result.stage} after {after}    log: {log}    again: make {result.stage}"
        yield from (f"        {shortened(text)}" for text in verdicts[:VERDICTS])
        if more := verdicts[VERDICTS:]:
            yield f"        and {len(more)} more"


def shortened(text: str) -> str:
    """A text of at most LENGTH characters."""
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 3]}..."


def table(results: Sequence[Result], before: Times) -> Iterator[str]:
    """Seconds of each stage, with those of its last run, and the slowest tests, plays and playbooks of all stages."""
    width = max(5, *(len(result.stage) for result in results))
    yield f"\n{'stage':{width}}          seconds  last time  runs of ansible-playbook"
    for stage, seconds, passed, reading in sorted(results, key=lambda result: -result.seconds):
        last = f"{before[stage]['seconds']:.0f}" if stage in before else "-"
        outcome, runs = "passed" if passed else "FAILED", reading.playbook_runs or "-"
        yield f"{stage:{width}}  {outcome} {seconds:8.0f}  {last:>9}  {runs:>24}"
    for kind in ("tests", "plays", "playbooks"):
        spent = [(one, name, result.stage) for result in results for name, one in getattr(result.reading, kind).items()]
        if spent:
            yield f"slowest {kind}:"
        for one, name, stage in sorted(spent, key=lambda item: -item[0].seconds)[:SHOWN]:
            times = f" in {one.times} runs" if one.times > 1 else ""
            yield f"{one.seconds:8.1f} s{times}  {name}  ({stage})"
