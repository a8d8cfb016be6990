# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Characters that no line of a configuration file can have, named without the text around them."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
"""Characters that change how a line is read or shown.

Control characters, other ends of lines, the direction of writing, blanks without a width, and halves of characters,
which UTF-8 does not have. Those that join letters of a word stay, since languages need them.
"""

_NAMES = {"\0": "a NUL character", "\t": "a tab", "\n": "a newline", "\r": "a carriage return"}

ONE_LINE = "one line without tabs and control characters"
"""What is allowed, for messages."""


def name_of(character: str) -> str:
    """A character as messages name it: `a newline`, `the control character U+0007`."""
    if "\ud800" <= character <= "\udfff":  # how Python keeps such a byte
        return "a byte that is not UTF-8"
    return _NAMES.get(character, f"the control character U+{ord(character):04X}")


def one_line(value: object) -> str:
    """A value as text, which may become a part of a line.

    Raises:
        ValueError: it has a control character. The message has this character and its place, not the value, which may
            be a secret.
    """
    text = str(value)
    if found := _CONTROL.search(text):
        raise ValueError(f"found {name_of(found[0])} (character {found.start() + 1}), allowed: {ONE_LINE}")
    return text
