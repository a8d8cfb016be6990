# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a host that a mount would hide."""

from __future__ import annotations

import os
import re

MARK = "Managed by gpucluster.slurm (key storage)"
"""In the units of mounts of the collection."""

_HOME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*):[^:]*:[0-9]+:[0-9]+:[^:]*:(/[A-Za-z0-9+._/@%:-]+?)/*:", re.MULTILINE)
"""User and home in a line of passwd(5)."""


def entries(path: str) -> list[str]:
    """The names in a directory; none without one. Raises OSError."""
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


def is_ours(unit: str) -> bool:
    """Whether a unit, by its text, was written for the key storage: what is below its directory was there before."""
    return MARK in unit


def homes_below(passwd: str, path: str) -> dict[str, str]:
    """The homes in a directory, by the user of the host itself whose they are."""
    return {user: home for user, home in _HOME.findall(passwd) if home.startswith(f"{path.rstrip('/')}/")}
