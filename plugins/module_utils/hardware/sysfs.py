# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's data about a machine in /sys and /proc, read from the machine itself or from a dump of another one.

Sets of CPUs are integers, a bit for each CPU: CPU 0 is bit 0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_SPAN = re.compile(r"(\d+)(?:-(\d+))?")


def bits(cpus: int) -> Iterator[int]:
    """The numbers of the CPUs in a set, ascending."""
    while cpus:
        lowest = cpus & -cpus
        yield lowest.bit_length() - 1
        cpus ^= lowest


def first(cpus: int) -> int:
    """The lowest number in a set; -1 for the empty set."""
    return (cpus & -cpus).bit_length() - 1


def of(numbers: Iterable[int]) -> int:
    """The set of these numbers."""
    result = 0
    for number in numbers:
        result |= 1 << number
    return result


def parse_list(text: str) -> int:
    """The set that a list of the kernel names: "0-3,8"."""
    result = 0
    for low, high in _SPAN.findall(text):
        result |= ((1 << (int(high or low) - int(low) + 1)) - 1) << int(low)
    return result


def format_list(cpus: int) -> str:
    """A set as the kernel lists it, which is also Slurm's form of Cores= in gres.conf: "0-3,8"."""
    spans: list[list[int]] = []
    for number in bits(cpus):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def parse_mask(text: str) -> int:
    """The set that a mask of the kernel names: hexadecimal words of 32 bits, the highest first."""
    result = 0
    for word in re.findall(r"[0-9a-fA-F]+", text):
        result = result << 32 | int(word, 16)
    return result


@dataclass(frozen=True)
class Tree:
    """The files of a machine below a directory; / is this machine. A file that is not there is None."""

    root: str = "/"

    def path(self, name: str) -> str:
        return os.path.join(self.root, name.lstrip("/"))

    def exists(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def names(self, name: str) -> list[str]:
        """The names in a directory, sorted; none if there is no such directory."""
        try:
            return sorted(os.listdir(self.path(name)))
        except OSError:
            return []

    def text(self, name: str) -> str | None:
        """The content of a file, without blanks around it."""
        try:
            with open(self.path(name), encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return None

    def content(self, name: str) -> bytes:
        """The content of a file; empty without it, or if it cannot be read."""
        try:
            with open(self.path(name), "rb") as file:
                return file.read()
        except OSError:
            return b""

    def number(self, name: str) -> int | None:
        """The number that a file begins with."""
        match = re.match(r"-?\d+", self.text(name) or "")
        return int(match[0]) if match else None

    def cpu_mask(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else parse_mask(text)

    def cpu_list(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else parse_list(text)

    def numbered(self, directory: str, prefix: str) -> int:
        """The set of N for which the directory holds PREFIX followed by N."""
        found = (re.fullmatch(prefix + r"(\d+)", name) for name in self.names(directory))
        return of(int(match[1]) for match in found if match)
