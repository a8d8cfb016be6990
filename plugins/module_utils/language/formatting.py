# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of users and hosts as they are shown: without characters that a terminal obeys, and not too long."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

SHOWN = 80
"""Characters of a wrong value that are shown."""

KEY = 200
"""Characters of a key, such as `accounting.users[1].MaxJobs`."""

MESSAGE = 2000
"""Characters of a message; the allowed values of the longest parameters fit."""

PROBLEMS = 100
"""Messages that are shown together."""

AS_BOOLEAN = "YAML reads it as a boolean, so write it in quotes"
"""How to write a text such as `no`."""

READ_AS = ", which YAML reads as "
"""Before another value than is written."""

OR_TEXT = ", or a text in quotes"
"""The second way to write a value that YAML reads as another one than its text."""

# Controls except tab and newline, changes of the direction of writing, other ends of lines, half characters.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def visible(text: str) -> str:
    """A text without characters that a terminal obeys: `\\x1b[2J` in the place of a clear screen."""
    return _INVISIBLE.sub(lambda found: ascii(found[0])[1:-1], text)


def indented(text: str) -> str:
    """A text whose second line, and all after it, are indented, so that they look like no other line of an output."""
    return re.sub(r"\n(?!  )", "\n  ", text)


_PASSWORD = re.compile(r"(//[^/@\s]*?:)[^/@\s]*@")
"""The password of a URL."""

_SECRET = re.compile(r"\b(pass|passwd|password2?|secret)=[^\s,'\"\]]+")
"""A secret among the options of mount.cifs(8) or mount.ceph(8)."""


def without_passwords(text: str) -> str:
    """A text in which the passwords of URLs and of mount options are not shown."""
    return _SECRET.sub(r"\1=...", _PASSWORD.sub(r"\1...@", text))


def short(text: str, most: int = SHOWN) -> str:
    """A text, cut if it is long."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def shown(value: Any, most: int = SHOWN) -> str:
    """A value of a user as messages show it: printable, and cut if it is long."""
    try:
        # A host can answer with a list of long texts, in which the search for passwords would take hours.
        text = repr(value[: 2 * most] if isinstance(value, str) else value)[: 10 * most]
        return short(visible(without_passwords(text)), most)
    except (ValueError, RecursionError):  # a number of thousands of digits, a list that is in itself
        return f"a very large {type(value).__name__}"


def message(text: str) -> str:
    """A message of one line, printable, and cut if a value in it made it long."""
    return short(visible(text).replace("\n", " "), MESSAGE)


def limited(messages: Sequence[str]) -> list[str]:
    """Messages as they are shown. Of very many only the first are, since one mistake made most of them."""
    rest = len(messages) - PROBLEMS
    return [*map(message, messages[:PROBLEMS]), *([f"and {rest} more problems"] if rest > 0 else [])]


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows of a table as lines."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def listed(messages: Callable[..., Iterator[str]]) -> Callable[..., list[str]]:
    """A function that yields messages, as one that returns a list of them."""
    return wraps(messages)(lambda *arguments: [*messages(*arguments)])
