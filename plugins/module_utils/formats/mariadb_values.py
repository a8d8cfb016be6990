# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values in MariaDB's option files (my.cnf)."""

from __future__ import annotations

import re
from typing import Any

from .characters import one_line

LONGEST = 4000
"""Bytes of a name and its value: MariaDB reads lines of 4,096 bytes (`search_default_file_with_ext`)."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")


def option_name(name: Any) -> str:
    """The name of an option.

    Raises:
        ValueError: says what is allowed.
    """
    if not _NAME.fullmatch(str(name)):
        raise ValueError("allowed: names of MariaDB's options, such as max_connections")
    return str(name)


def option_value(value: Any) -> str:
    """The value of an option as a line of an option file has it.

    A `#` starts a comment outside of quotes, a backslash escapes, blanks at the ends and quotes around a value are
    removed (`mysys/my_default.c` of MariaDB), among them the byte 0xa0, with which characters of UTF-8 can end. A value
    without these is written as it is.

    Raises:
        ValueError: a line cannot have it.
    """
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    if not isinstance(value, (str, int, float)):
        raise ValueError("allowed: a text, a number or a boolean")
    text = one_line(value)
    if len(text.encode()) > LONGEST:
        raise ValueError(f"found {len(text.encode())} bytes, allowed: up to {LONGEST}")
    if text and text.isascii() and text == text.strip() and not re.search(r"""[#\\'"]""", text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
