# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values in units of systemd, and in files that EnvironmentFile= names."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.characters import one_line

_CALENDAR = re.compile(r"[A-Za-z0-9*.,:/~+ -]+")


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

    Raises:
        ValueError: says what is allowed.
    """
    if not _CALENDAR.fullmatch(str(value)):
        raise ValueError("allowed: times as in systemd.time(7), such as daily or 02:30")
    return str(value)
