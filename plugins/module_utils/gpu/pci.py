# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs on PCI, of any vendor: what they are, and which CPUs are near."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..hardware.sysfs import Tree, bits, format_list, of

PCI = "/sys/bus/pci/devices"
NODES = "/sys/devices/system/node/online"
PCI_NAMES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
CLASSES = ("0x0300", "0x0302")  # VGA compatible and 3D controllers


def pci_model(tree: Tree, vendor: str, address: str) -> str | None:
    """The model of a device, from the machine's PCI names; what is in brackets is the product."""
    device = (tree.text(f"{PCI}/{address}/device") or "").replace("0x", "")
    names = next(filter(None, map(tree.text, PCI_NAMES)), "")
    devices = re.search(rf"^{vendor[2:]}\s.*\n((?:[\t#].*\n?|\n)*)", names, re.MULTILINE)
    found = re.search(rf"^\t{device}\s+(.*)$", devices[1], re.MULTILINE) if devices and device else None
    if found is None:
        return None
    product = re.search(r"\[(.*)\]", found[1])
    return product[1] if product else found[1]


def is_display(tree: Tree, address: str) -> bool:
    """Whether a PCI device draws or computes, of any programming interface."""
    return (tree.text(f"{PCI}/{address}/class") or "")[:6] in CLASSES


def numa_node(tree: Tree, address: str) -> int | None:
    """The NUMA node that is nearest to a PCI device; None if it is not known.

    Where the kernel says -1, as in most virtual machines, it is the machine's only node (`nvidia-smi topo -m`).
    """
    node = tree.number(f"{PCI}/{address}/numa_node")
    if node is not None and node >= 0:
        return node
    nodes = list(bits(tree.cpu_list(NODES) or 0))
    return nodes[0] if len(nodes) == 1 else None


def near_cores(tree: Tree, address: str, cores: Sequence[int]) -> str:
    """The indexes of the cores near a PCI device, as a list; cores: the CPUs of each core, in Slurm's order."""
    near = tree.cpu_list(f"{PCI}/{address}/local_cpulist") or 0
    return format_list(of(i for i, core in enumerate(cores) if core & near))
