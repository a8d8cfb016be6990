# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of hosts as they are shown: without characters that a terminal obeys."""

from __future__ import annotations

import re

# Controls except tab and newline, changes of the direction of writing, other ends of lines, half characters.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def visible(text: str) -> str:
    """A text without characters that a terminal obeys: `\\x1b[2J` in the place of a clear screen."""
    return _INVISIBLE.sub(lambda found: ascii(found[0])[1:-1], text)


def indented(text: str) -> str:
    """A text whose second line, and all after it, are indented, so that they look like no other line of an output."""
    return re.sub(r"\n(?!  )", "\n  ", text)
