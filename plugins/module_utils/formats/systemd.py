# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values in units of systemd, and in files that EnvironmentFile= names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ..host.file_checks import calendar_refusal
from ..language.spelling import nearest
from .characters import one_line

LONGEST = 200
"""Characters of a calendar event."""

TIMES = "a time of systemd.time(7), such as daily, 02:30 or Mon..Fri 22:00"
"""What is allowed, for messages."""

UNREADABLE = "which is no time"
"""The reason for a text that has not even the parts of a time."""

_SHORTHANDS = ("minutely", "hourly", "daily", "monthly", "weekly", "yearly", "annually", "quarterly", "semiannually")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DAY = "|".join(f"{day}|{day[:3]}" for day in _DAYS)
_WEEKDAYS = re.compile(rf"(?:{_DAY})(?:(?:\.\.|-|,)(?:{_DAY}))*,?", re.IGNORECASE)
_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")
_NUMBERS = re.compile(r"\*|\d[\d.,/*]*")
_LEAST_AND_MOST = {
    "year": (1970, 9999),
    "month": (1, 12),
    "day": (1, 31),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
_ZONES = "/usr/share/zoneinfo"


def setting(value: Any) -> str:
    """A value that is the whole text of a setting, such as What= or AssertPathIsMountPoint=.

    A `%` begins a specifier (systemd.unit(5)). Blanks at the ends are removed, and a backslash at the end continues the
    line (systemd.syntax(7)); neither can be escaped.

    Raises:
        ValueError: a setting cannot have it.
    """
    text = one_line(value)
    if text != text.strip():
        raise ValueError("found a blank at an end, allowed: a text without blanks at its ends")
    if text.endswith("\\"):
        raise ValueError("found a backslash at the end, allowed: a text that does not end in a backslash")
    return text.replace("%", "%%")


def quoted(value: Any) -> str:
    """A value in double quotes, in a setting that is a list of words, such as RequiresMountsFor=.

    Raises:
        ValueError: a setting cannot have it.
    """
    escaped = one_line(value).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def environment_value(value: Any) -> str:
    """The value of a variable in a file that EnvironmentFile= names.

    In double quotes, a backslash escapes these four characters and nothing else (`parse_env_file_internal` in
    `src/basic/env-file.c`). There are no specifiers.

    Raises:
        ValueError: a line cannot have it.
    """
    escaped = re.sub(r'(["\\`$])', r"\\\1", one_line(value))
    return f'"{escaped}"'


def calendar(value: Any) -> str:
    """A time as OnCalendar= has it (systemd.time(7)).

    Its form is checked first, since the control host may have no systemd. Then systemd judges it, if it is there.

    Raises:
        ValueError: says what is allowed.
    """
    text = one_line(value)
    if len(text) > LONGEST:
        raise ValueError(f"a text of {len(text)} characters, allowed: up to {LONGEST}, {TIMES}")
    if reason := _form_error(text) or calendar_refusal(_without_unknown_zone(text)):
        raise ValueError(f"{reason}, allowed: {TIMES}")
    return text


def _form_error(text: str) -> str:
    """Why a text cannot be a calendar event; empty if it can be.

    The order of its parts is that of `calendar_spec_from_string` in `src/shared/calendarspec.c`. What this accepts may
    still be wrong; what it refuses is.
    """
    parts = text.split(" ")
    if not text.isascii() or "" in parts:
        return UNREADABLE
    if len(parts) > 1 and _ZONE.fullmatch(parts[-1]) and not _WEEKDAYS.fullmatch(parts[-1]):
        parts.pop()
    first = parts[0]
    if len(parts) == 1 and first.lower() in (*_SHORTHANDS, "bi-annually", "biannually", "semi-annually", "anually"):
        return ""
    if _WEEKDAYS.fullmatch(first):
        return _dates_and_times_error(parts[1:])
    if first.isalpha() and (near := nearest(first, [*_SHORTHANDS, *_DAYS])):
        return f"where {near!r} was probably meant"
    return _dates_and_times_error(parts)


def _dates_and_times_error(parts: list[str]) -> str:
    """Why parts are not a date and a time, or one of both; empty if they are."""
    dates = [part for part in parts if ":" not in part]
    times = [part for part in parts if ":" in part]
    if parts != dates + times or len(dates) > 1 or len(times) > 1:
        return UNREADABLE
    errors = (*map(_date_error, dates), *map(_time_error, times))
    return next((error for error in errors if error), "")


def _date_error(date: str) -> str:
    """Why a text is no date, such as `*-*-1` or `*-02~01`; `@` and a number are seconds since 1970."""
    if re.fullmatch(r"@\d+", date):
        return ""
    parts = re.split("[-~]", date)
    if len(parts) not in (2, 3):
        return f"where {date!r} is neither a date nor a time"
    return _parts_error(date, dict(zip(("year", "month", "day")[-len(parts) :], parts)))


def _time_error(time: str) -> str:
    """Why a text is no time, such as `02:30`, `*:0/15` or `8..17:00:00`."""
    parts = time.split(":")
    if len(parts) not in (2, 3):
        return f"where {time!r} is no time"
    seconds = [re.sub(r"(?<=\d)\.\d+", "", part) for part in parts[2:]]
    return _parts_error(time, dict(zip(("hour", "minute"), parts))) or _parts_error(time, {"second": "".join(seconds)})


def _parts_error(text: str, parts: Mapping[str, str]) -> str:
    """Why the numbers of a date or of a time cannot be; the number after `/` is a step."""
    for name, part in parts.items():
        least, most = _LEAST_AND_MOST[name]
        if part and not _NUMBERS.fullmatch(part):
            return f"where {text!r} has something else than numbers"
        for number in re.findall(r"(?<![\d/])\d+", part):
            short_year = name == "year" and int(number) < 100
            if len(number) > 4 or not (least <= int(number) <= most or short_year):
                return f"where {number} is no {name}"
    return ""


def _without_unknown_zone(text: str) -> str:
    """A calendar event for the systemd of this host, which may have no time zones; then those of the hosts count."""
    before, _blank, zone = text.rpartition(" ")
    known = os.path.isdir(_ZONES) or zone.upper() == "UTC" or not before or "/" not in zone or ":" in zone
    return text if known else before
