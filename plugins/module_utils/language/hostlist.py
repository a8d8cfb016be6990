# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's hostlists, such as `n[01-04,7]`, and their names.

The rules are those of Slurm's `src/common/hostlist.c`, so that a list means the same here and in Slurm: the width of
a number is kept, order and duplicates are kept, and only the last number of a name is folded. ClusterShell's NodeSet
is not used: it is a set, which sorts, drops duplicates and folds several numbers at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from .formatting import shown

MAX_HOSTS = 64 * 1024
"""Most hosts in a list. A cluster has no more (`MAX_SLURM_NODES` in `slurm/slurm.h`), and Slurm refuses a longer range
(`MAX_RANGE` in `src/common/hostlist.c`)."""

MAX_NAME = 1024
"""Most characters of a name (`NI_MAXHOST` of the C library is 1025)."""

Range = tuple[int, int, int]
"""First and last number, and the width of the first."""

_SEPARATORS = re.compile(r"[\s,]+")
_TERM = re.compile(r"(?:[^\s,\[\]]|\[[^\[\]]*\])+")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_NAME = re.compile(r"([^\s,\[\]]*?)([0-9]*)")


def _parse_ranges(text: str, term: str) -> list[Range]:
    """The ranges of `01-03,7`."""
    ranges: list[Range] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part[: 2 * MAX_NAME])
        if not match:
            raise ValueError(f"bad hostlist {shown(term)}: {shown(part)} is neither a number nor a range like 01-16")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"bad hostlist {shown(term)}: the range {shown(part)} ends before it starts")
        if last - first >= MAX_HOSTS:
            what = f"has more than {MAX_HOSTS} hosts"
            raise ValueError(f"bad hostlist {shown(term)}: the range {shown(part)} {what}")
        ranges.append((first, last, len(match[1])))
    return ranges


def _numbers(ranges: list[Range]) -> list[str]:
    """The numbers of ranges, each as wide as the start of its range."""
    return [f"{number:0{width}d}" for first, last, width in ranges for number in range(first, last + 1)]


@dataclass(frozen=True)
class _Term:
    """A term of a hostlist, such as `r[1-2]c[01-04]`."""

    text: str
    fixed: list[str]
    """The texts around the brackets."""
    ranges: list[list[Range]]
    """The content of each pair of brackets."""

    @property
    def count(self) -> int:
        """The number of its names."""
        return prod(sum(last - first + 1 for first, last, _width in some) for some in self.ranges)

    @property
    def longest(self) -> int:
        """The characters of its longest name."""
        digits = [max(max(width, len(str(last))) for _first, last, width in some) for some in self.ranges]
        return sum(map(len, self.fixed)) + sum(digits)

    def names(self) -> list[str]:
        """Its names. Slurm runs through the last brackets fastest, then through the first, the second and so on."""
        if not self.ranges:
            return [self.text]
        *outer, last = map(_numbers, self.ranges)
        names: list[str] = []
        for numbers in product(*reversed(outer)):
            prefix = "".join(text + number for text, number in zip(self.fixed, reversed(numbers)))
            names.extend(f"{prefix}{self.fixed[-2]}{number}{self.fixed[-1]}" for number in last)
        return names


def _terms(hostlist: str) -> Iterator[_Term]:
    """The terms of a hostlist. Raises ValueError for an invalid one, before any name is expanded."""
    position, end, left = 0, len(hostlist), MAX_HOSTS
    while True:
        gap = _SEPARATORS.match(hostlist, position)
        position = gap.end() if gap else position
        if position == end:
            return
        match = _TERM.match(hostlist, position)
        position = match.end() if match else position
        if not match or (position < end and not _SEPARATORS.match(hostlist, position)):
            raise ValueError(f"bad hostlist {shown(hostlist)}: its brackets do not match")
        texts = _BRACKETS.split(match[0])
        term = _Term(match[0], texts[::2], [_parse_ranges(text, match[0]) for text in texts[1::2]])
        left -= term.count
        if left < 0:
            raise ValueError(f"bad hostlist {shown(hostlist)}: allowed: up to {MAX_HOSTS} hosts")
        if term.longest > MAX_NAME:
            raise ValueError(f"bad hostlist {shown(hostlist)}: allowed: names of up to {MAX_NAME} characters")
        yield term


def count(hostlist: str) -> int:
    """The number of names of a hostlist, without the time and memory of `expand`. Raises ValueError as it does."""
    return sum(term.count for term in _terms(hostlist))


def expand(hostlist: str) -> list[str]:
    """The names of a hostlist, the same as `scontrol show hostnames`: in order, with duplicates.

    Terms are separated by commas or blanks. An empty hostlist has no names.
    Raises ValueError for an invalid hostlist, and for one of more than MAX_HOSTS names.
    """
    return [name for term in _terms(hostlist) for name in term.names()]


def without(hostlist: str, places: Collection[int]) -> str:
    """A hostlist without the names at these places, counted from 0; terms that lose no name keep their text.

    Raises ValueError as `expand` does.
    """
    kept: list[str] = []
    first = 0
    for term in _terms(hostlist):
        names = term.names()
        left = [name for place, name in enumerate(names, first) if place not in places]
        first += len(names)
        if left:
            kept.append(term.text if len(left) == len(names) else fold(left))
    return ("," if "," in hostlist else " ").join(kept)


def fold(names: list[str]) -> str:
    """The hostlist of these names, the same as `scontrol show hostlist`; `expand(fold(names)) == names`.

    Neighbours in the list that differ only in their last number share brackets; consecutive numbers are a range.
    Raises ValueError for a name that has a comma, a blank or a bracket, or is empty.
    """
    terms: list[tuple[str, list[list[str]]]] = []  # (prefix, its ranges as [first, last]); no ranges: a plain name
    following = ""  # the number that would lengthen the last range
    for name in names:
        match = _NAME.fullmatch(name)
        if not match or not name:
            raise ValueError(f"{shown(name)} is not a host name: it is empty or has a comma, a blank or a bracket")
        prefix, number = match.groups()
        if not number or not terms or terms[-1][0] != prefix or not terms[-1][1]:
            terms.append((prefix, [[number, number]] if number else []))
        elif number == following:
            terms[-1][1][-1][1] = number
        else:
            terms[-1][1].append([number, number])
        if number:
            following = f"{int(number) + 1:0{len(terms[-1][1][-1][0])}d}"
    return ",".join(prefix + _ranges(ranges) for prefix, ranges in terms)


def _ranges(ranges: list[list[str]]) -> str:
    """Ranges as text, in brackets where it is more than one number."""
    text = ",".join(first if first == last else f"{first}-{last}" for first, last in ranges)
    return f"[{text}]" if len(ranges) > 1 or (ranges and ranges[0][0] != ranges[0][1]) else text
