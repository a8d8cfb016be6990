# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mounts of a host, from a file of the kernel. Reading it touches no file system."""

from __future__ import annotations

import re
from dataclasses import dataclass

MOUNTINFO = "/proc/self/mountinfo"


@dataclass(frozen=True)
class Mount:
    """A line of /proc/self/mountinfo (proc_pid_mountinfo(5))."""

    number: int
    parent: int
    device: str
    """Major and minor number, which parts of one file system have in common, subvolumes of btrfs as well."""
    root: str
    """The directory of the file system that is mounted."""
    point: str
    type: str
    source: str


def mounts(mountinfo: str) -> list[Mount]:
    """The mounts, in the order in which they were mounted; of several on one path, the last one is visible."""
    found = []
    for line in filter(None, mountinfo.split("\n")):
        own, _dash, of_type = line.partition(" - ")
        number, parent, device, root, point = own.split(" ")[:5]
        kind, source = of_type.split(" ")[:2]
        found.append(Mount(int(number), int(parent), device, _path(root), _path(point), kind, _path(source)))
    return found


def mounted() -> dict[str, Mount]:
    """The visible mounts of this host by their paths."""
    with open(MOUNTINFO, encoding="utf-8", errors="replace") as file:
        return {mount.point: mount for mount in mounts(file.read())}


def _path(text: str) -> str:
    """A path of mountinfo, in which blanks and backslashes are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)
