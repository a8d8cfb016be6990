# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what jobs have measured: lines of JSON that nodes wrote, and that may therefore be anything.

A line that is wrong gives one error and no value. A node speaks only of its own job and of the nodes of that job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any

from ..language.formatting import message, shown, visible
from ..language.records import TEXT, Check, Most, Pattern, Range, checks_of
from ..language.spelling import nearest
from .catalog import TESTS, AcceptanceTest, Scope

MOST_LINES = 20_000
"""Lines of a job. The largest has one for each of 8 GPUs, some tests, 20 sizes and 5 repetitions of a few nodes."""

LONGEST_LINE = 65_536
"""Characters of a line; the names of 512 nodes fit."""

Text = Annotated[str, TEXT]

LONGEST_TEXT = 500
"""Characters of the text of a check."""

MOST_ERRORS = 20
"""Errors of a job that are shown."""

LARGEST_VALUE = 1e12
LARGEST_SIZE = 1 << 50
LATEST = 1 << 40
MOST_GPUS = 256

DRIVER = r"([0-9]{2,4}(\.[0-9]{1,4}){0,3})?"
"""A release of NVIDIA's driver; empty without one."""

IMAGE = r"[A-Za-z0-9._/@:#+-]{0,255}"
"""A container image as users name it; empty without one."""


def above_zero(most: float) -> Range:
    """The bounds of a number above zero."""
    return Range(most, 1e-12, f"a number above 0, up to {most:g}")


@dataclass(frozen=True)
class MeasuredValue:
    """A value, or the result of a check."""

    test: Text
    value: Annotated[float, above_zero(LARGEST_VALUE)]
    unit: Text
    nodes: Annotated[tuple[Text, ...], Most(LONGEST_LINE)]
    gpu: Annotated[int, Range(MOST_GPUS - 1, words=f"a whole number from 0 to {MOST_GPUS - 1}")] | None
    size: Annotated[int, Range(LARGEST_SIZE, 1, f"a whole number from 1 to {LARGEST_SIZE}")] | None
    text: Annotated[str, Pattern(TEXT.pattern, LONGEST_TEXT, f"a text of up to {LONGEST_TEXT} characters")]
    hardware: Text
    driver: Annotated[str, Pattern(DRIVER, words="a release such as 580.159.04, or an empty text")]
    image: Annotated[str, Pattern(IMAGE, 255, "the name of an image, or an empty text")]
    job: Annotated[int, Range(1 << 32)]
    time: Annotated[float, above_zero(LATEST)]


@dataclass(frozen=True)
class Asked:
    """The job that was to measure."""

    job: int
    nodes: Mapping[str, str]
    """Its nodes, with their machine types by the cluster file; an empty text where that names none."""


@dataclass
class Reading:
    """The content of an output."""

    values: list[MeasuredValue] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """One for each wrong line; of very many the first ones, and their number."""


FIELDS = tuple(MeasuredValue.__dataclass_fields__)


class _WrongLineError(ValueError):
    """What is wrong with a line."""


def branch(driver: str) -> str:
    """The branch of a driver: 580 for 580.159.04. An entry of the baseline holds for one."""
    return driver.partition(".")[0]


def read_lines(text: str, asked: Asked, where: str) -> Reading:
    """The values that a job printed; other lines than those that begin with a brace are output of programs.

    where: what errors begin with, such as `job 17`.
    """
    reading = Reading()
    wrong = 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("{"):
            continue
        if len(reading.values) + wrong >= MOST_LINES:
            reading.errors.append(f"{where}: line {number}: more than {MOST_LINES} results, the others are left out")
            break
        try:
            reading.values.append(_read(line, asked))
        except _WrongLineError as error:
            wrong += 1
            if wrong <= MOST_ERRORS:
                reading.errors.append(message(f"{where}: line {number}: {error}"))
    if wrong > MOST_ERRORS:
        reading.errors.append(f"{where}: and {wrong - MOST_ERRORS} more lines are wrong")
    return reading


def _read(line: str, asked: Asked) -> MeasuredValue:
    """The value of a line. Raises _WrongLineError."""
    if len(line) > LONGEST_LINE:
        raise _WrongLineError(f"found {len(line)} characters, allowed: up to {LONGEST_LINE}")
    try:
        data = json.loads(line, object_pairs_hook=_unique, parse_constant=_no_constant)
    except _WrongLineError:
        raise
    except (ValueError, RecursionError):
        raise _WrongLineError(f"found {shown(line)}, allowed: an object in JSON") from None
    if missing := [name for name in FIELDS if name not in data]:
        raise _WrongLineError(f"{missing[0]}: is missing")
    if others := [name for name in data if name not in FIELDS]:
        raise _WrongLineError(f"found the field {shown(others[0])}, allowed: {', '.join(FIELDS)}")
    test = _test(data["test"])
    nodes = _nodes(data["nodes"], test, asked)
    _equals("unit", data["unit"], test.unit)
    if data["job"] != asked.job or isinstance(data["job"], bool):
        raise _WrongLineError(f"job: found {shown(data['job'])}, allowed: {asked.job}, the job that printed it")
    _check_value_and_gpu(data, test)
    # A node cannot choose with whom it is compared: the cluster file knows its machine type.
    hardware = "+".join(sorted({asked.nodes[name] for name in nodes}))
    _equals("hardware", data["hardware"], hardware)
    for name, check in _checks().items():
        if (name != "value" or not test.is_check) and (what := check(data[name])):
            raise _WrongLineError(f"{name}: {what}")
    text = visible(" ".join(data["text"].split()))
    return MeasuredValue(
        **{**data, "nodes": nodes, "text": text, "value": float(data["value"]), "time": float(data["time"])}
    )


@cache
def _checks() -> dict[str, Check]:
    """The checks of the fields; the control host alone needs them."""
    return checks_of(MeasuredValue)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    """An object of JSON, whose keys Python would else let replace each other."""
    data = dict(pairs)
    if len(data) != len(pairs):
        raise _WrongLineError("a field is given twice")
    return data


def _no_constant(name: str) -> Any:
    """NaN and Infinity, which Python's parser takes and JSON does not have."""
    raise _WrongLineError(f"found {name}, allowed: a number")


def _test(name: Any) -> AcceptanceTest:
    if isinstance(name, str) and name in TESTS:
        return TESTS[name]
    meant = nearest(name, TESTS) if isinstance(name, str) and len(name) < 100 else None
    raise _WrongLineError(
        f"test: found {shown(name)}, allowed: a test of the catalog{f', such as {meant}' if meant else ''}"
    )


def _nodes(names: Any, test: AcceptanceTest, asked: Asked) -> tuple[str, ...]:
    """The names of a value's nodes: as many as its test has, and only those of the job."""
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise _WrongLineError(f"nodes: found {shown(names)}, allowed: a list of names")
    if strangers := [name for name in names if name not in asked.nodes]:
        raise _WrongLineError(f"nodes: found {shown(strangers[0])}, allowed: the nodes of this job")
    least, most = {Scope.PAIR: (2, 2), Scope.MANY: (2, len(asked.nodes))}.get(test.scope, (1, 1))
    if len({*names}) != len(names) or not least <= len(names) <= most:
        number = str(least) if least == most else f"{least} to {most}"
        raise _WrongLineError(f"nodes: found {shown(names)}, allowed for {test.name}: {number}, each once")
    return tuple(sorted(names))


def _check_value_and_gpu(data: Mapping[str, Any], test: AcceptanceTest) -> None:
    """What depends on the test: a check has 0 or 1, and tests of a GPU name it."""
    value, gpu = data["value"], data["gpu"]
    if test.is_check and (isinstance(value, bool) or value not in (0, 1)):
        raise _WrongLineError(f"value: found {shown(value)}, allowed for {test.name}: 1 if it is right, or else 0")
    if (gpu is None) == (test.scope is Scope.GPU):
        allowed = "the index of a GPU" if gpu is None else "null"
        found = "null" if gpu is None else shown(gpu)
        raise _WrongLineError(f"gpu: found {found}, allowed for {test.name}: {allowed}")


def _equals(name: str, value: Any, expected: str) -> None:
    if value != expected:
        raise _WrongLineError(f"{name}: found {shown(value)}, allowed here: {shown(expected)}")
