# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts, numbers, times and hostlists as the page shows them.

A text of a user or a host is shown without characters that are not to be seen, and not too long. Jinja2 escapes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from ...language import hostlist

NAME = 64
"""Characters of a name that are shown."""

SENTENCE = 400
"""Characters of a comment, a reason or a message that are shown."""

LONGEST = 200_000
"""Characters of a hostlist: 64 Ki names of a usual length are folded to less."""

MARKS = 2
"""Accents of one character; more of them would cover the lines above and below."""

NOTHING = "\N{EN DASH}"
"""What a cell without a value shows."""

_RISKY = re.compile(r"[^ -~]")
"""Texts of printable ASCII are shown as they are. This is quicker than a look at each character."""


def visible(text: str) -> str:
    """A text whose controls, changes of the direction of writing, half characters and other characters without a look
    of their own are written as escapes, such as `\\x1b[2J` for a clear screen."""
    if not _RISKY.search(text):
        return text
    shown, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.combining(character) or unicodedata.category(character) == "Me" else 0
        if character.isprintable() and marks <= MARKS:
            shown.append(character)
        else:
            shown.append(ascii(character)[1:-1])
    return "".join(shown)


def short(text: str, most: int) -> str:
    """A text, cut if it is long."""
    return text if len(text) <= most else text[: most - 1] + "…"


def text_of(record: Mapping[str, Any], key: str, most: int = NAME) -> str:
    """A text of a record as it is shown; empty if there is none."""
    value = record.get(key)
    return "" if value is None else short(visible(str(value)[: 2 * most]), most)


def hostlist_of(record: Mapping[str, Any], key: str) -> str:
    """A hostlist of a record, for expand; empty if there is none."""
    value = record.get(key)
    return visible(value[:LONGEST]) if isinstance(value, str) else ""


def number_of(record: Mapping[str, Any], key: str) -> float | None:
    """A number of a record; None if there is none."""
    value = record.get(key)
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e15 else None  # not NaN


def count_of(record: Mapping[str, Any], key: str) -> int:
    """A count of a record; 0 if there is none."""
    return max(0, int(number_of(record, key) or 0))


def records_of(record: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The list of records that a record has; empty if there is none."""
    return [item for item in list_of(record, key) if isinstance(item, Mapping)]


def list_of(record: Mapping[str, Any], key: str) -> list[Any]:
    """A list of a record; empty if there is none."""
    value = record.get(key)
    return value if isinstance(value, list) else []


def texts_of(record: Mapping[str, Any], key: str, most: int = NAME) -> list[str]:
    """The list of texts that a record has; empty if there is none."""
    return [short(visible(str(item)[: 2 * most]), most) for item in list_of(record, key)]


# -- Numbers ---------------------------------------------------------------------------------------------------------


def number(value: float | None, digits: int = 0) -> str:
    """A number with separators of thousands."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def hours(value: float | None) -> str:
    """A number of hours; small ones with a digit after the point."""
    return number(value, 1 if value and abs(value) < 10 else 0)


def plural(count: int, one: str, more: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{number(count)} {one if count == 1 else more or one + 's'}"


def memory(mebibytes: float | None) -> str:
    """An amount of memory."""
    if mebibytes is None:
        return NOTHING
    return f"{mebibytes / 1024:,.0f} GiB" if mebibytes >= 1024 else f"{mebibytes:.0f} MiB"


# -- Times -----------------------------------------------------------------------------------------------------------


class Time(NamedTuple):
    """A time as it is shown. iso: for programs, empty if it is not a time."""

    iso: str = ""
    shown: str = NOTHING
    seconds: float = 0.0
    """Since 1970; 0 if it is not a time."""


NO_TIME = Time()


def read_time(value: Any) -> datetime | None:
    """A time in ISO 8601 with its offset; None if it is not one."""
    if not isinstance(value, str) or len(value) > NAME:
        return None
    try:
        found = datetime.fromisoformat(value[:-1] + "+00:00" if value.endswith("Z") else value)
        return found if found.tzinfo and timedelta(days=1) > abs(found.utcoffset() or timedelta()) else None
    except ValueError:
        return None


def time_of(record: Mapping[str, Any], key: str) -> Time:
    """A time of a record. What is not a time is shown as it is."""
    value = record.get(key)
    if value is None or value == "":
        return Time()
    found = read_time(value)
    if found is None or not 1970 < found.year < 9000:
        return Time(shown=text_of(record, key, 40))
    offset = found.strftime("%z")
    return Time(
        found.isoformat(timespec="seconds"), f"{found:%Y-%m-%d %H:%M} {offset[:3]}:{offset[3:5]}", found.timestamp()
    )


def at(seconds: float, now: Time) -> Time:
    """A number of seconds since 1970 as a time, with the offset that another time has."""
    zone = datetime.fromisoformat(now.iso).tzinfo if now.iso else timezone.utc
    return time_of({"": datetime.fromtimestamp(seconds, zone).isoformat()}, "")


def duration(seconds: float | None) -> str:
    """A duration in its two largest units."""
    if seconds is None:
        return NOTHING
    minutes = max(0, int(seconds)) // 60
    days, rest = divmod(minutes, 24 * 60)
    if days:
        return f"{days} d {rest // 60} h" if rest >= 60 and days < 100 else f"{days} d"
    if rest >= 60:
        return f"{rest // 60} h {rest % 60} min" if rest % 60 else f"{rest // 60} h"
    return f"{rest} min"


def age(since: Time, now: Time) -> str:
    """How long ago a time was."""
    return duration(now.seconds - since.seconds) if since.iso and now.iso else NOTHING


# -- Hostlists -------------------------------------------------------------------------------------------------------


def expand(text: str) -> list[str]:
    """The names of a hostlist; a text that is none is one name."""
    try:
        return hostlist.expand(text)
    except ValueError:
        return [short(text, NAME)]


def fold(names: Iterable[str]) -> str:
    """Names as a hostlist, sorted. Names that no host can have are listed as they are."""
    given = sorted(names, key=natural)
    try:
        return hostlist.fold(given)
    except ValueError:
        return ",".join(given)


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts n2 before n10."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"([0-9]{1,9})", name) if part
    ]
