# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a running service has read its files without a restart, which systemd does not record."""

from __future__ import annotations

import os

from .files import opener

DIRECTORY = "/run/gpucluster-slurm"
"""Has a file for each service, whose time is that of the reload. It ends with a boot."""


def write_load_time(service: str, when: float) -> None:
    """Record when a running service has read its files, in seconds since the epoch."""
    os.makedirs(DIRECTORY, mode=0o755, exist_ok=True)
    path = os.path.join(DIRECTORY, service)
    with open(path, "w", encoding="utf-8", opener=opener(0o644)):
        os.utime(path, (when, when))


def read_load_time(service: str) -> float:
    """The recorded time, in seconds since the epoch; 0 without one."""
    try:
        return os.stat(os.path.join(DIRECTORY, service)).st_mtime
    except FileNotFoundError:
        return 0
