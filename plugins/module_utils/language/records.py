# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks records that hosts or people wrote, by their types: a TypedDict or dataclass whose fields have bounds.

Types are evaluated when a check is built, which only the control host does.

Bounds are no tuples: `typing` keeps an annotated type for all that is equal to it, and tuples of two classes are.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

from .formatting import shown

Check = Callable[[Any], str]
"""Returns the error in a value, or an empty text."""

CORES = 2**14
"""More cores than a machine has. Sets of cores become numbers with as many bits."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The bounds of a number, whole if its type is int, and what is allowed, in words."""

    most: float
    least: float = 0
    words: str = ""


@dataclasses.dataclass(frozen=True)
class Pattern:
    """The form of a text (re.fullmatch, in ASCII), its length, and what is allowed, in words."""

    pattern: str
    most: int = 200
    words: str = ""


LINE = Pattern(r"[^\n]*", 1000, "a text of one line, of at most 1000 characters")
TEXT = Pattern("(?s:.*)", 1 << 62, "a text")
"""Any text: the size of a whole answer is limited."""


class Form(Enum):
    """The form of a text, in words."""

    CORES = "a list of cores, such as 0-3,8, with numbers that a machine can have"
    DAY = "a day such as 2026-11-28"


@dataclasses.dataclass(frozen=True)
class Most:
    """How many items a list or mapping may have, 4096 without it, and what is allowed as a whole, in words."""

    items: int
    words: str = ""


def refused(value: Any, allowed: str) -> str:
    """The error in a value."""
    return f"found {shown(value)}, allowed: {allowed}"


def _number(bound: Range, whole: bool = True) -> Check:
    """The check of a number. Bounds refuse what is infinite or no number."""
    allowed = bound.words or f"a number from {bound.least} to {bound.most}"

    def check(value: Any) -> str:
        right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        return "" if right and bound.least <= value <= bound.most else refused(value, allowed)

    return check


def _text(bound: Pattern) -> Check:
    allowed = bound.words or f"a text like {bound.pattern}, of at most {bound.most} characters"

    def check(value: Any) -> str:
        right = isinstance(value, str) and len(value) <= bound.most and re.fullmatch(bound.pattern, value, re.ASCII)
        return "" if right else refused(value, allowed)

    return check


def _truth(value: Any) -> str:
    return "" if isinstance(value, bool) else refused(value, "true or false")


def _list(of: Check, most: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, list) or len(value) > most:
            return refused(value, f"a list of at most {most}")
        return next((f"[{i}]: {what}" for i, item in enumerate(value) if (what := of(item))), "")

    return check


def _pair(*parts: Check) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, list) or len(value) != len(parts):
            return refused(value, f"a list of {len(parts)}")
        return next((what for part, item in zip(parts, value) if (what := part(item))), "")

    return check


def _in_words(check: Check, words: str) -> Check:
    return (lambda value: refused(value, words) if check(value) else "") if words else check


def _mapping(key: Check, of: Check, most: int) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, Mapping) or len(value) > most:
            return refused(value, f"a mapping of at most {most}")
        wrong = ((name, what) for name, item in value.items() if (what := key(name) or of(item)))
        return next((f"{shown(name)}: {what}" for name, what in wrong), "")

    return check


def _record(fields: Mapping[str, Check], optional: Collection[str]) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, Mapping):
            return refused(value, "a mapping")
        for name, of in fields.items():
            if name not in value:
                if name in optional:
                    continue
                return f"{name}: is missing"
            if what := of(value[name]):
                return f"{name}: {what}" if not what.startswith("[") else f"{name}{what}"
        return next((f"found {shown(name)}, which is no such fact" for name in value if name not in fields), "")

    return check


def _cores(value: Any) -> str:
    wrong = _text(Pattern(r"([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?", 4096))(value)
    if not wrong and any(int(core) >= CORES for core in re.findall(r"[0-9]+", value)):
        wrong = refused(value, f"numbers below {CORES}")
    return wrong


def _day(value: Any) -> str:
    with suppress(ValueError):
        if isinstance(value, str) and len(value) == 10 and date.fromisoformat(value):
            return ""
    return refused(value, Form.DAY.value)


def anything(_value: Any) -> str:
    return ""


_FORMS: dict[Form, Check] = {Form.CORES: _cores, Form.DAY: _day}


def _optional(check: Check, other: Any, words: str = "") -> Check:
    return lambda value: "" if value == other else (what := check(value)) and f"{what}{words}"


def is_record(kind: Any) -> bool:
    """Whether a type is a TypedDict or a dataclass."""
    return hasattr(kind, "__total__") or dataclasses.is_dataclass(kind)


def check_of(kind: Any, names: Mapping[str, Any] | None = None) -> Check:
    """The check of a record's or a field's type. A value may be null, or an empty mapping, if the type says so.

    names: what the annotations of records name, apart from what their modules have.

    Raises:
        TypeError: a text or number has no bounds, or the type is no other one of JSON.
    """
    bounds = getattr(kind, "__metadata__", ())
    kind = kind.__origin__ if bounds else kind
    inner = get_args(kind)
    if type(None) in inner:
        return _optional(check_of(inner[0], names), None, ", or null")
    if kind is Any:
        return anything
    if is_record(kind):
        return _record(checks_of(kind, names), getattr(kind, "__optional_keys__", ()))
    most = next((bound for bound in bounds if isinstance(bound, Most)), Most(4096))
    if get_origin(kind) in (tuple, list, Sequence, dict, Mapping):
        return _in_words(_check_of_items(kind, inner, most, names), most.words)
    if inner and is_record(inner[-1]) and not checks_of(inner[-1]):
        return _optional(check_of(inner[0], names), {})
    return _truth if kind is bool else _check_of_bounds(kind, bounds)


def _check_of_items(kind: Any, inner: Sequence[Any], most: Most, names: Mapping[str, Any] | None) -> Check:
    """The check of a list, of a pair or of a mapping. JSON has lists alone."""
    first, *others = [check_of(each, names) for each in inner if each is not ...]
    if get_origin(kind) in (dict, Mapping):
        return _mapping(first, others[0], most.items)
    return _pair(first, *others) if others else _list(first, most.items)


def _check_of_bounds(kind: Any, bounds: Sequence[Any]) -> Check:
    """The check of a text or number by its bounds. Raises TypeError without any."""
    for bound in bounds:
        if isinstance(bound, Range):
            return _number(bound, whole=kind is int)
        if isinstance(bound, Pattern):
            return _text(bound)
        if isinstance(bound, Form):
            return _FORMS[bound]
    raise TypeError(f"{kind} has no bounds")


def checks_of(record: Any, names: Mapping[str, Any] | None = None) -> dict[str, Check]:
    """The checks of a record's fields, by name. Arguments as of `check_of`."""
    hints = get_type_hints(record, localns=dict(names or {}), include_extras=True)
    return {name: check_of(hint, names) for name, hint in hints.items()}
