# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values in files of other programs: paths, logrotate, modprobe.d, the registry."""

from __future__ import annotations

import json
import re
from typing import Any

from .characters import one_line
from .systemd import environment_value

_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SUITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,63}")


def logrotate_path(value: Any) -> str:
    """The path of a log in a file of logrotate(8), which takes words in quotes, and expands patterns after that.

    logrotate has no escape in quotes (`readPath` and `poptParseArgvString`), and a backslash in a pattern escapes.

    Raises:
        ValueError: a file of logrotate cannot have it.
    """
    text = one_line(value)
    if found := re.search(r"""["'\\*?\[\]{}~]""", text):
        raise ValueError(f"found {found[0]}, allowed: a path without quotes, backslashes and patterns")
    return f'"{text}"' if re.search(r"\s|#", text) else text


def module_name(value: Any) -> str:
    """The name of a kernel module, in modules-load.d(5) and modprobe.d(5).

    Raises:
        ValueError: says what is allowed.
    """
    if not _MODULE.fullmatch(str(value)):
        raise ValueError("allowed: names of kernel modules, such as nvidia_uvm")
    return str(value)


def module_options(value: Any) -> str:
    """The options of a kernel module in modprobe.d(5), where a backslash escapes (`freadline_wrapped` of kmod).

    Raises:
        ValueError: a line cannot have them.
    """
    return one_line(value).replace("\\", "\\\\")


def suite(value: Any) -> str:
    """The codename of a suite, in sources.list(5) and apt_preferences(5); empty for none.

    Raises:
        ValueError: says what is allowed.
    """
    if value and not _SUITE.fullmatch(str(value)):
        raise ValueError("allowed: the codename of a suite, such as sid")
    return str(value)


def registry_variable(value: Any) -> str:
    """The value of a variable of docker-registry's EnvironmentFile=.

    The registry reads the value as YAML (`overwriteStruct` in `configuration/parser.go`): without quotes of YAML, a `#`
    after a blank would be a comment, and `123456` or `true` no text.

    Raises:
        ValueError: a line cannot have it.
    """
    return environment_value(json.dumps(one_line(value), ensure_ascii=False))
