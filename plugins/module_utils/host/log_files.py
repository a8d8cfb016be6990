# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a daemon has written into the file of its log since a moment."""

from __future__ import annotations

import os

MOST = 65536
"""Bytes that are read of it, from its end."""


def log_size(path: str) -> int:
    """The size of a log; 0 if it cannot be read."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def read_log(path: str, start: int) -> list[str]:
    """The lines from a place on, or all of a log that was rotated since; none if it cannot be read."""
    size = log_size(path)
    try:
        with open(path, "rb") as file:
            file.seek(max(start if size >= start else 0, size - MOST))
            return file.read(MOST).decode(errors="replace").split("\n")
    except OSError:
        return []
