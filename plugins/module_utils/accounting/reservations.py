# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parameters of reservations: their allowed values, and their differences from the present ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from ..language.errors import CollectionError
from ..language.formatting import limited, short, shown
from ..language.hostlist import expand
from ..language.spelling import nearest
from .limits import KINDS, name_of, seconds


class ReservationError(CollectionError):
    """Parameters of a reservation that Slurm would refuse, a line for each."""


RESERVATION = {
    "Accounts": "names",
    "BurstBuffer": "text",
    "CoreCnt": "count",
    "Duration": "duration",
    "EndTime": "moment",
    "Features": "text",
    "Flags": "flags",
    "Groups": "names",
    "Licenses": "names",
    "MaxStartDelay": "duration",
    "NodeCnt": "count",
    "Nodes": "hosts",
    "PartitionName": "text",
    "StartTime": "moment",
    "Users": "names",
}
"""Parameters of a reservation (scontrol(1)) that it shows, and the kinds of their values."""

_DERIVED = {"SPEC_NODES", "ALL_NODES"}
"""Flags that follow from Nodes."""
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d)(:\d\d)?)?", re.ASCII)
# `parse_time` in `src/common/parse_time.c`: names, times and dates one after the other.
_WORD = r"today|tomorrow|midnight|noon|elevenses|fika|teatime"
_NOW = r"now(?:[+-]\d+(?:second|minute|hour|day|week)?s?)?"
_CLOCK = r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?:[ap]m)?"
_DAY = r"(?:0?[1-9]|1[0-2])[./]?(?:0?[1-9]|[12]\d|3[01])(?:[./]?\d\d)?"
_DATE = rf"\d{{4}}-(?:0?[1-9]|1[0-2])-(?:0?[1-9]|[12]\d|3[01])|{_DAY}"
_OTHER_MOMENT = re.compile(rf"uts\d{{7,}}|(?:(?:{_WORD}|{_NOW}|{_CLOCK}|{_DATE})[T-]?)+", re.ASCII | re.IGNORECASE)


def _meaning(kind: str, value: str) -> str:
    """The one text for what a value means. Raises ValueError."""
    if kind == "hosts":
        return ",".join(sorted(expand(value)))
    if kind == "flags":
        return ",".join(sorted({*value.upper().split(",")} - _DERIVED - {""}))
    if kind == "moment":
        match = _MOMENT.fullmatch(value)
        if match:
            return datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00'}{match[3] or ':00'}").isoformat()
        if value and not _OTHER_MOMENT.fullmatch(value):
            raise ValueError("a time such as 2027-03-01T09:00, 09:00, tomorrow or now+1hour")
        return ""
    if kind == "duration":
        return value.upper() if value.upper() in ("INFINITE", "UNLIMITED") else KINDS["minutes"](value)
    if kind == "names":
        return ",".join(sorted({*value.split(",")} - {""}))
    return KINDS[kind](value) if kind == "count" else value


def _given(value: Any) -> str:
    """A value as text: lists may be lists, and YAML makes times of some texts.

    Raises:
        ValueError: it is something else, such as a boolean that YAML reads in place of a name.
    """
    if isinstance(value, date):
        return value.isoformat()
    elements = value if isinstance(value, list) else [value]
    if not all(isinstance(element, (str, int, float)) and not isinstance(element, bool) for element in elements):
        raise ValueError("texts and numbers; in quotes where YAML reads them as something else")
    text = ",".join(map(str, elements))
    if re.search(r"[\s\"']", text) or not text.isprintable():
        raise ValueError("a value without blanks and quotation marks")
    return text


_RECURRING = {"HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY"}
"""Flags that let Slurm move a reservation on when it is over (scontrol(1))."""


def over(wanted: Mapping[str, Any], now: datetime) -> bool:
    """Whether a reservation has ended for good, so that Slurm would refuse to make it. Times are the host's own."""
    given = {key.lower(): _given(value) for key, value in wanted.items()}
    start, end = (_meaning("moment", given.get(key, "")) for key in ("starttime", "endtime"))
    length = _meaning("duration", given["duration"]) if "duration" in given else "INFINITE"
    if _RECURRING & {*given.get("flags", "").upper().split(",")} or not (end or (start and length[0].isdigit())):
        return False
    last = datetime.fromisoformat(end or start)
    return (last if end else last + timedelta(seconds=seconds(length))) < now


class ReservationChange(NamedTuple):
    """A parameter that is not as wanted."""

    key: str
    before: str
    after: str
    given: str
    """As it was given."""


def check_name(name: Any) -> str:
    """The name of a reservation. Raises ReservationError for a text that is no name."""
    try:
        return name_of(name)
    except ValueError as error:
        raise ReservationError(f"name: found {name!r}, allowed: {error}") from None


def differences(wanted: Mapping[str, Any], there: Mapping[str, str] | None) -> list[ReservationChange]:
    """The differences of a reservation from the wanted one. Times such as V(now+1hour) are used only for a new one.

    there: its record in scontrol; None if it does not exist.

    Raises:
        ReservationError: with all parameters and values that Slurm would not take.
    """
    errors, changes = [], []
    names = {name.lower(): name for name in RESERVATION}
    for key, value in wanted.items():
        name = names.get(str(key).lower())
        if name is None:
            meant = nearest(str(key), RESERVATION)
            errors.append(f"{short(str(key))}: unknown to Slurm" + (f", did you mean {meant!r}?" if meant else ""))
            continue
        try:
            change = _compare_parameter(name, value, there)
        except ValueError as error:
            errors.append(f"{name}: found {shown(value)}, allowed: {error}")
            continue
        if change:
            changes.append(change)
    if errors:
        raise ReservationError("\n".join(limited(errors)))
    return changes


def _compare_parameter(name: str, value: Any, there: Mapping[str, str] | None) -> ReservationChange | None:
    """The difference of a parameter; None if Slurm has the wanted value. Raises ValueError with what is allowed."""
    kind = RESERVATION[name]
    given = _given(value)
    if name in ("Accounts", "Groups", "Users"):
        for word in filter(None, given.split(",")):
            name_of(word.removeprefix("-"))  # all others, scontrol(1)
    after = _meaning(kind, given)
    relative = kind == "moment" and not after
    if there is None:
        return ReservationChange(name, "", given if relative else after, given)
    before = _meaning(kind, there[name]) if there.get(name) else ""
    everything = kind == "hosts" and given.upper() == "ALL" and "ALL_NODES" in there.get("Flags", "")
    return None if before == after or relative or everything else ReservationChange(name, before, after, given)


def updates(changes: Iterable[ReservationChange]) -> list[list[str]]:
    """The arguments with which scontrol makes changes, for each command. Flags are added and taken away one by one."""
    arguments, further = [], []
    for change in changes:
        if change.key == "Flags":
            before, after = ({*flags.split(",")} - {""} for flags in (change.before, change.after))
            further += [[f"Flags+={','.join(sorted(after - before))}"]] if after - before else []
            further += [[f"Flags-={','.join(sorted(before - after))}"]] if before - after else []
        else:
            arguments.append(f"{change.key}={change.given}")
    return ([arguments] if arguments else []) + further
