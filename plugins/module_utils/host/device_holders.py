# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes have device files open, and of which services they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

_SERVICE = re.compile(r"^[0-9]+:[^:]*:/system\.slice/(?:[^/\n]+\.slice/)*([^/\n]+\.service)(?:/|$)", re.MULTILINE)
"""A service in /proc/PID/cgroup. What users make is below user.slice, whatever its name is."""


class DeviceHolder(NamedTuple):
    """A process that has a device file open."""

    pid: int
    name: str
    """For people only: a user chooses it."""
    service: str
    """The unit of systemd; empty if it is of none, such as a person's process."""


def device_holders(prefix: str, proc: str = "/proc") -> list[DeviceHolder]:
    """The processes with an open file whose path begins like this.

    proc: the directory of the kernel's files about processes (proc(5)).
    """
    found = []
    for pid in sorted(map(int, filter(str.isdecimal, os.listdir(proc)))):
        with suppress(OSError):  # it has ended
            if any(path.startswith(prefix) for path in _open_files(f"{proc}/{pid}/fd")):
                service = _SERVICE.search(_text(f"{proc}/{pid}/cgroup"))
                found.append(DeviceHolder(pid, _text(f"{proc}/{pid}/comm").strip(), service[1] if service else ""))
    return found


def _open_files(directory: str) -> Iterator[str]:
    """The paths of the open files of a process. Raises OSError if it has ended."""
    for number in os.listdir(directory):
        with suppress(FileNotFoundError):  # it was closed
            yield os.readlink(f"{directory}/{number}")


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
