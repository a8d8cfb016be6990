# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values that Slurm's parameters can have, by the second column of `parameter_tables`.

Each check takes a value as text and returns its problem, or nothing. A value that Slurm accepts has no problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from ..language.formatting import shown
from ..language.hostlist import expand
from ..language.spelling import nearest
from .parameter_tables.choices import BOOLEANS, CHOICES, FLAGS, HINTS, LEVELS, PLUGINS, WHOLE
from .parameter_tables.releases import RELEASES

REFUSED = "refused"
"""Slurm does not start with it; a running one keeps its old configuration."""
IGNORED = "ignored"
"""Slurm ignores it, with or without a warning."""
FOREIGN = "foreign"
"""It is not part of Slurm, which refuses it unless the site has added it."""

Verdict = tuple[str, str]
"""One of these three effects, and the allowed values."""

TEXTS = ("text", "host", "hosts", "user", "path", "dir", "program")
"""Kinds of any text, whose names are for a reader."""

KEYWORDS = ("one", "word", "flags", "hints", "plugin", "plugins", "level")
"""Kinds of values out of a set of keywords."""

LIMITS = {"u16": 2**16 - 1, "u32": 2**32 - 1, "u64": 2**64 - 1}
"""The highest numbers of the kinds of whole numbers, `s_p_handle_uint16` and the like in `src/common/parse_value.c`."""

LOCAL = ("localhost", "127.0.0.1", "::1")
"""How a parameter names the host of its daemon."""

_UNLIMITED = ("unlimited", "infinite")
_NEVER = ("infinite", "none", "-1")
_WHOLE = re.compile(r"\s*\+?(?P<digits>0x[0-9a-f]+|0[0-7]*|[1-9][0-9]*|)(?P<kibi>k?)", re.I | re.A)  # strtoul(3)
_TIME = re.compile(r"\d+-\d*(:\d*){0,2}|\d*(:\d*){0,2}", re.A)  # `_is_valid_timespec` in `src/common/parse_time.c`
# `slurmdb_parse_purge`
_AGE = re.compile(r"\d+(m|mo|mon|mont|month|months|h|ho|hou|hour|hours|d|da|day|days)?", re.I | re.A)
_PORTS = re.compile(r"\s*\+?(\d+)(-\s*\+?(\d+).*)?", re.A)
_RANGE = re.compile(r"(\d+)\.\.(\d*)")
_SPAN = re.compile(r"(?P<since>\d\d\.\d\d)(\.(?P<patch>\d+))?\+|(?P<first>\d\d\.\d\d)?-(?P<last>\d\d\.\d\d)")


@dataclass(frozen=True)
class Span:
    """Releases from one to another, both included."""

    first: str = RELEASES[0]
    last: str = RELEASES[-1]
    patch: int = 0
    """The first of the patch releases of `first`, 1 of 23.02.1."""

    @classmethod
    def parse(cls, text: str) -> Span:
        """`23.02+`, `23.02.1+`, `-24.11`, `23.11-24.11`, or nothing: all. ValueError: it is none of these."""
        match = _SPAN.fullmatch(text)
        if text and not match:
            raise ValueError(f"{text!r} are no releases")
        first = (match and (match["since"] or match["first"])) or cls.first
        span = cls(first, (match and match["last"]) or cls.last, int((match and match["patch"]) or 0))
        if not {span.first, span.last} <= {*RELEASES} or span.first > span.last:
            raise ValueError(f"{text!r} are no releases")
        return span

    def __contains__(self, release: str) -> bool:
        return RELEASES.index(self.first) <= RELEASES.index(release) <= RELEASES.index(self.last)

    def has(self, release: str, patch: int | None) -> bool:
        """Whether a patch release is among them, 0 of 23.02.0; None: any patch release, taken for the newest."""
        return release in self and not (release == self.first and patch is not None and patch < self.patch)

    def __str__(self) -> str:
        first = f"{self.first}.{self.patch}" if self.patch else self.first
        if self.last == RELEASES[-1]:
            return "all releases" if first == RELEASES[0] else f"{first} and later"
        return f"{self.first} to {self.last}" if self.first != self.last else self.first

    @property
    def verb(self) -> str:
        """The verb after it."""
        return "does" if self.first == self.last else "do"


@cache
def words(text: str) -> Mapping[str, Span]:
    """The words of a set, each with the releases that know it."""
    return {word: Span.parse(span.rstrip("}")) for word, _brace, span in (w.partition("{") for w in text.split())}


def check_value(kind: str, value: str, release: str) -> Iterator[Verdict]:
    """The problem of a value.

    Args:
        kind: the second column of a table, such as `u16 s`.
        value: as it is in the file, without quotes and escapes.
        release: one of RELEASES.
    """
    name, _blank, rest = kind.partition(" ")
    if name in _CHECKS:
        yield from _CHECKS[name](value, rest, release)
    elif name not in TEXTS:
        raise ValueError(f"{kind!r} is no kind of value")


def _unless(right: bool, allowed: str) -> Iterator[Verdict]:
    """A refusal, unless the value is right."""
    if not right:
        yield REFUSED, f"allowed: {allowed}"


def _is_float(value: str) -> bool:
    """Whether strtof(3) reads all of it. Python's numbers may have `_`, C's may be hexadecimal."""
    try:
        float(value or "0")
    except ValueError:
        return value.lower() == "unlimited" or value.lower().lstrip("+-").startswith("0x")
    return "_" not in value and value.isascii()


def _are_ports(value: str) -> bool:
    """Whether it is a list of ports as `expand_nodeline_info` in `src/common/node_conf.c` reads it; none is one."""
    try:
        ports = expand(value if value[:1] in ("", "[") else f"[{value}]")
        return all(0 < int(port) < 2**16 for port in ports)
    except ValueError:
        return False


def _ports(value: str, of: str) -> Iterator[Verdict]:
    """A port or a range; of `nodes`: one for each of them."""
    if of == "nodes":
        yield from _unless(_are_ports(value), "a port from 1 to 65535, or one for each node such as 7000-7003")
        return
    match = _PORTS.fullmatch(value)
    first = int(match[1]) if match else 0
    in_order = match is None or match[2] is None or int(match[3] or first) > first
    yield from _unless(first > 0 and in_order, "a port, or a range such as 6817-6820")


def _whole(value: str, highest: int, limits: str, *, suffix: bool) -> Iterator[Verdict]:
    """A whole number; all but the short ones may be followed by `k`, times 1,024."""
    limit = _RANGE.fullmatch(limits)
    lowest, highest_allowed = (int(limit[1]), int(limit[2] or highest)) if limit else (0, highest)
    number = highest if value.lower() in _UNLIMITED else whole_number(value, suffix=suffix)
    allowed = f"a whole number from {lowest} to {highest_allowed}"
    yield from _unless(lowest <= number <= highest_allowed, allowed if limit else f"{allowed}, or UNLIMITED")


def whole_number(value: str, *, suffix: bool = False) -> int:
    """A whole number in any base, as strtoul(3) reads it, optionally times 1,024 with a `k` behind; -1: it is none."""
    match = _WHOLE.fullmatch(value)
    if not match or (match["kibi"] and not suffix):
        return -1
    digits = match["digits"].lower() or "0"
    number = int(digits, 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10)
    return number * 1024 if match["kibi"] else number


def _time(value: str, *, finite: bool) -> Iterator[Verdict]:
    """A time as `time_str2secs` in `src/common/parse_time.c` reads it; a finite one is more than nothing, too."""
    allowed = "minutes, minutes:seconds, hours:minutes:seconds, days-hours and so on"
    is_time = bool(value and _TIME.fullmatch(value))
    if finite:
        yield from _unless(is_time and any(digit in value for digit in "123456789"), f"{allowed}, at least 1")
    else:
        yield from _unless(is_time or value.lower() in (*_UNLIMITED, "-1"), f"{allowed}, or UNLIMITED")


def _choice(value: str, known: Mapping[str, Span], release: str, effect: str) -> Iterator[Verdict]:
    """One of a closed set."""
    allowed = {word.rstrip("*"): word for word, span in known.items() if release in span}
    if not any(
        value.lower() == name.lower() or (word.endswith((":", "*")) and value.lower().startswith(name.lower()))
        for name, word in allowed.items()
    ):
        match = nearest(value, allowed)
        yield effect, f"{f'did you mean {match!r}? ' if match else ''}allowed: {', '.join(allowed)}"


def _flags(value: str, known: Mapping[str, Span], release: str, *, cased: bool) -> Iterator[Verdict]:
    """Words of a closed set."""
    spelled = {word if cased else word.lower(): word for word in known}
    for word in filter(None, value.split(",")):
        key = word.removeprefix("RLIMIT_") if cased else word.lower()
        if key not in spelled:
            yield REFUSED, f"{shown(word)} is unknown, {_unknown(word, known, release)}"
        elif release not in known[spelled[key]]:
            yield (
                REFUSED,
                f"Slurm {release} does not know {shown(word)}, {known[spelled[key]]} {known[spelled[key]].verb}",
            )


def _hints(value: str, known: Mapping[str, Span], release: str) -> Iterator[Verdict]:
    """Words that Slurm looks for anywhere in the value."""
    for word in filter(None, value.split(",")):
        spans = [span for name, span in known.items() if _finds(name, word)]
        if not spans:
            name = word.partition("=")[0]
            yield IGNORED, f"{shown(name)} is unknown, {_unknown(name, known, release)}"
        elif not any(release in span for span in spans):
            yield IGNORED, f"Slurm {release} does not know {shown(word)}, {spans[-1]} {spans[-1].verb}"


def without_version(plugin: str) -> str:
    """The name of a plugin without its version: MPI's plugin `pmix_v5` is `pmix`."""
    return re.sub(r"_v\d+$", "", plugin)


def _finds(name: str, word: str) -> bool:
    """Whether Slurm finds a hint in a word."""
    return name.lower() == word.lower() if name in WHOLE else name.lower() in word.lower()


def _plugins(values: Iterable[str], known: Mapping[str, Span], release: str) -> Iterator[Verdict]:
    """Plugins, with or without their kind before a slash. MPI's have versions, `pmix_v5`."""
    for value in values:
        name = without_version(value.rpartition("/")[2])
        name = "none" if name.lower() == "none" else name
        if not name or (name in known and release in known[name]):
            continue
        if name in known:
            yield FOREIGN, f"Slurm {release} does not come with {shown(value)}, {known[name]} {known[name].verb}"
        else:
            yield FOREIGN, f"Slurm does not come with {shown(value)}, {_unknown(name, known, release)}"


def _unknown(word: str, known: Mapping[str, Span], release: str) -> str:
    """The message for an unknown word, after the word."""
    allowed = [name for name, span in known.items() if release in span]
    match = nearest(word, allowed)
    return f"{f'did you mean {match!r}? ' if match else ''}allowed: {', '.join(allowed) or 'none'}"


Check = Callable[[str, str, str], Iterator[Verdict]]
"""It takes a value, the rest of its kind, and the release."""

_CHECKS: Mapping[str, Check] = {
    "u16": lambda value, rest, _release: _whole(value, LIMITS["u16"], rest, suffix=False),
    "u32": lambda value, rest, _release: _whole(value, LIMITS["u32"], rest, suffix=True),
    "u64": lambda value, rest, _release: _whole(value, LIMITS["u64"], rest, suffix=True),
    "bool": lambda value, _rest, _release: _unless(value.lower() in BOOLEANS, "YES or NO"),
    "float": lambda value, _rest, _release: _unless(_is_float(value), "a number, or UNLIMITED"),
    "minutes": lambda value, rest, _release: _time(value, finite=bool(rest)),
    "seconds": lambda value, rest, _release: _time(value, finite=bool(rest)),
    "idle": lambda value, _rest, _release: _unless(  # `_parse_suspend_time` takes any other text for 0
        value.lower() in _NEVER or value.isdecimal(), "a number of seconds, or INFINITE"
    ),
    "ports": lambda value, rest, _release: _ports(value, rest),
    "purge": lambda value, _rest, _release: _unless(
        bool(_AGE.fullmatch(value)), "a number and hours, days or months, such as 12months"
    ),
    "level": lambda value, _rest, _release: _unless(
        "0" <= value[:1] <= "9" or value.lower() in LEVELS, f"{', '.join(LEVELS)}, or 0 to 9"
    ),
    "one": lambda value, rest, release: _choice(value, words(CHOICES[rest]), release, REFUSED),
    "word": lambda value, rest, release: _choice(value, words(CHOICES[rest]), release, IGNORED),
    "flags": lambda value, rest, release: _flags(value, words(FLAGS[rest]), release, cased=rest == "ResourceLimits"),
    "hints": lambda value, rest, release: _hints(value, words(HINTS[rest]), release),
    "plugin": lambda value, rest, release: _plugins([value], words(PLUGINS[rest]), release),
    "plugins": lambda value, rest, release: _plugins(value.split(","), words(PLUGINS[rest]), release),
}
"""The check of each kind of value that is not any text."""
