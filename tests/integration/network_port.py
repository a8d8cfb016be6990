# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for a port of InfiniBand on a host of the lab: files where the kernel has those of real ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lab import Lab

CLASS = "/run/test-class"
PORT = f"{CLASS}/infiniband/mlx5_0/ports/1"
UP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp"}
DOWN = {"state": "1: DOWN", "phys_state": "2: Polling"}
FILES = {
    "link_layer": "InfiniBand",
    **UP,
    "rate": "400 Gb/sec (4X NDR)",
    "counters/link_downed": "0",
    "counters/symbol_error": "0",
}


def set_port(lab: Lab, host: str, files: Mapping[str, str]) -> None:
    """Write files of the port."""
    lab.command(host, "; ".join(f"echo '{value}' >{PORT}/{name}" for name, value in files.items()))


@contextmanager
def with_port(lab: Lab, host: str) -> Iterator[None]:
    """The host has an adapter, by an overlay over /sys/class."""
    lab.command(host, f"mkdir -p {PORT}/counters")
    set_port(lab, host, FILES)
    lab.command(host, f"mount -t overlay overlay -o lowerdir={CLASS}:/sys/class /sys/class")
    try:
        yield
    finally:
        lab.command(host, f"umount /sys/class; rm -r {CLASS}")
