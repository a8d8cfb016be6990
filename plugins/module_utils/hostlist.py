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
from itertools import product

MAX_RANGE = 64 * 1024
"""Most hosts in one range (`MAX_RANGE` in Slurm); Slurm refuses a longer one."""

_SEPARATORS = re.compile(r"[\s,]+")
_TERM = re.compile(r"(?:[^\s,\[\]]|\[[^\[\]]*\])+")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_NAME = re.compile(r"([^\s,\[\]]*?)([0-9]*)")


def _numbers(text: str, term: str) -> list[str]:
    """The numbers of `01-03,7`, each as wide as the start of its range."""
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if not match:
            raise ValueError(f"bad hostlist '{term}': '{part}' is neither a number nor a range like 01-16")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"bad hostlist '{term}': the range '{part}' ends before it starts")
        if last - first >= MAX_RANGE:
            raise ValueError(f"bad hostlist '{term}': the range '{part}' has more than {MAX_RANGE} hosts")
        width = len(match[1])
        numbers.extend(f"{number:0{width}d}" for number in range(first, last + 1))
    return numbers


def _expand_term(term: str) -> list[str]:
    """The names of one term, such as `r[1-2]c[01-04]`."""
    texts = _BRACKETS.split(term)
    fixed, brackets = texts[::2], [_numbers(text, term) for text in texts[1::2]]
    if not brackets:
        return [term]
    # Slurm runs through the last brackets fastest, then through the first, the second and so on.
    *outer, last = brackets
    names: list[str] = []
    for numbers in product(*reversed(outer)):
        prefix = "".join(text + number for text, number in zip(fixed, reversed(numbers)))
        names.extend(f"{prefix}{fixed[-2]}{number}{fixed[-1]}" for number in last)
    return names


def expand(hostlist: str) -> list[str]:
    """The names of a hostlist, the same as `scontrol show hostnames`: in order, with duplicates.

    Terms are separated by commas or blanks. An empty hostlist has no names.
    Raises ValueError for an invalid hostlist.
    """
    names: list[str] = []
    position, end = 0, len(hostlist)
    while True:
        gap = _SEPARATORS.match(hostlist, position)
        position = gap.end() if gap else position
        if position == end:
            return names
        term = _TERM.match(hostlist, position)
        position = term.end() if term else position
        if not term or (position < end and not _SEPARATORS.match(hostlist, position)):
            raise ValueError(f"bad hostlist '{hostlist}': its brackets do not match")
        names.extend(_expand_term(term[0]))


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
            raise ValueError(f"'{name}' is not a host name: it is empty or has a comma, a blank or a bracket")
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
