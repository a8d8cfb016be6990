# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the kernel that a large cluster needs (role base)."""

from __future__ import annotations

from dataclasses import dataclass

from ..known import image
from ..known.run_host import RunHost

TABLE: tuple[tuple[int, dict[str, int]], ...] = (
    (
        256,
        {
            "fs.file-max": 388067,
            "net.core.somaxconn": 4096,
            "net.ipv4.tcp_max_syn_backlog": 4096,
            "net.ipv4.neigh.default.gc_thresh1": 4096,
            "net.ipv4.neigh.default.gc_thresh2": 8192,
            "net.ipv4.neigh.default.gc_thresh3": 16384,
        },
    ),
    (
        1024,
        {
            "net.core.somaxconn": 8192,
            "net.ipv4.tcp_max_syn_backlog": 8192,
            "net.ipv4.neigh.default.gc_thresh1": 16384,
            "net.ipv4.neigh.default.gc_thresh2": 32768,
            "net.ipv4.neigh.default.gc_thresh3": 65536,
        },
    ),
)
"""Least values from so many hosts on; later entries win.

Slurm's Large Cluster Administration Guide (doc/html/big_sys.shtml) asks for the first three: open files, and bursts of
connections. The table of neighbours (arp(7), gc_thresh) has an entry for each address in the same network that a host
talks to. A host has up to four (Ethernet, InfiniBand, management, BMC). Up to gc_thresh1 no entry is removed, and with
gc_thresh3 the table is full and a new connection fails; the kernel's own values are 128, 512 and 1024.
"""

FILE = "/etc/sysctl.d/60-gpucluster-slurm.conf"
HEAD = "# Managed by gpucluster.slurm: changes here are overwritten.\n"


def wanted_settings(host: RunHost) -> dict[str, int]:
    """Least values of the settings of the kernel on this host, with those of the site."""
    hosts = len(host.members("slurm_cluster"))
    settings: dict[str, int] = {}
    for least, values in TABLE:
        settings |= values if hosts >= least else {}
    own: dict[str, int] = host.option("base", "base_kernel_settings")
    return settings | own


@dataclass(frozen=True)
class Kernel:
    """What a host needs of these settings. A container has the kernel of its host, and needs none.

    They follow from the kernel's own values, so an image has none either."""

    text: str
    """The content of FILE; empty if the host gets none.

    A larger value of the host stays, and has no line, so that nothing is lowered. A value that is equal has one, since
    it can come from this file."""
    low: list[str]
    """Settings that are smaller than they should be, such as those that somebody has set after the file was read."""
    unknown: list[str]
    """Settings of the site that this kernel does not have."""


def kernel(host: RunHost) -> Kernel:
    """What this host needs."""
    if host.facts["container"] != "none" or image.builds(host):
        return Kernel("", [], [])
    wanted, found = wanted_settings(host), host.facts["kernel"]
    ordered = sorted(wanted.items(), key=lambda item: item[0].lower())
    lines = [f"{name} = {least}\n" for name, least in ordered if int(found.get(name, least)) <= int(least)]
    return Kernel(
        text=HEAD + "".join(lines) if lines or FILE in host.facts["files"] else "",
        low=[name for name, least in ordered if name in found and found[name] < int(least)],
        unknown=sorted((name for name in wanted if name not in found), key=str.lower),
    )
