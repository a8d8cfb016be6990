# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The AMD GPUs of a machine, from the topology that the kernel's driver amdkfd shows.

Its layout is that of `drivers/gpu/drm/amd/amdkfd/kfd_topology.c` and of trees that were recorded on machines with MI50,
MI210, MI300X and MI308X. A partition of a GPU is a node of its own there, with a device file of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...hardware.sysfs import Tree
from ..pci import PCI, near_cores, numa_node, pci_model
from ..vendor import Ask, GpuVendor, Warn, gres_type

if TYPE_CHECKING:
    from ....plugin_utils.results.fact_records import GpuFact

NODES = "/sys/class/kfd/kfd/topology/nodes"
VENDOR = 0x1002
GPU_HEAPS = (1, 2)
"""Values of heap_type: memory of the GPU that CPUs can reach, and memory that they cannot."""
LEAST_MEMORY = 4096
"""MiB of its own. The graphics part of a CPU has less, and is not for jobs."""

_PLAIN = {"amd", "ati", "radeon", "instinct", "graphics"}
_VARIANTS = {"xt", "xtx", "gre", "duo"}


def _read_properties(tree: Tree, path: str) -> dict[str, int]:
    """The numbers of a file `properties`, by name."""
    found = re.findall(r"^(\w+) (\d+)$", tree.text(f"{path}/properties") or "", re.MULTILINE)
    return {name: int(number) for name, number in found}


def _read_memory(tree: Tree, node: str) -> int | None:
    """The memory of a GPU in MiB; None if it is not shown."""
    banks = [_read_properties(tree, f"{node}/mem_banks/{bank}") for bank in tree.names(f"{node}/mem_banks")]
    own = [bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in GPU_HEAPS]
    return sum(own) // 1024**2 if own else None


def _read_nodes(tree: Tree) -> list[tuple[dict[str, int], int | None]]:
    """The properties and the memory of each GPU, in the order of the device files."""
    found = []
    for name in tree.names(NODES):
        node = _read_properties(tree, f"{NODES}/{name}")
        is_gpu = node.get("vendor_id") == VENDOR and node.get("simd_count") and not node.get("cpu_cores_count")
        memory = _read_memory(tree, f"{NODES}/{name}")
        if is_gpu and node.get("drm_render_minor") and (memory is None or memory >= LEAST_MEMORY):
            found.append((node, memory))
    return sorted(found, key=lambda gpu: gpu[0]["drm_render_minor"])


def pci_address(node: Mapping[str, int]) -> str:
    """The PCI address of a GPU; partitions of a GPU have its address with other functions."""
    place = node.get("location_id", 0)
    return f"{node.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def _read_gpu(tree: Tree, cores: Sequence[int], node: Mapping[str, int], memory: int | None) -> GpuFact:
    """The fact about a GPU."""
    address = pci_address(node)
    device = address if tree.exists(f"{PCI}/{address}") else f"{address[:-1]}0"
    model = tree.text(f"{PCI}/{device}/product_name") or pci_model(tree, f"0x{VENDOR:04x}", device)
    return {
        "vendor": "amd",
        "minor": node["drm_render_minor"],
        "pci_address": address,
        "model": model,
        # PCI has one name for several products, such as MI250X/MI250.
        "type": gres_type(model, _PLAIN, _VARIANTS) if model and "/" not in model else None,
        "memory_mb": memory,
        "numa_node": numa_node(tree, device),
        "cores": near_cores(tree, device, cores),
        "mig": [],
    }


class Amd(GpuVendor):
    """AMD's GPUs, as far as recorded trees show them: no program of AMD is asked.

    Slurm's RSMI plugin names them by a table of ROCm's library, or by the name that this library finds, so the type
    cannot be told from here; nor is there a recorded answer of amd-smi by which their health could be checked.
    """

    name = "AMD"
    file_prefix = "/dev/dri/renderD"
    first_number = 128
    methods = ("rsmi",)
    types_are_known = False
    environment = "ROCR_VISIBLE_DEVICES"
    environment_flag = "amd_gpu_env"
    # Without a flag, Slurm also sets CUDA_VISIBLE_DEVICES, and ROCm would apply both, one after the other.
    file_flags = (environment_flag,)

    def find(self, tree: Tree) -> list[str]:
        return [pci_address(node) for node, _memory in _read_nodes(tree)]

    def read(self, tree: Tree, cores: Sequence[int], _ask: Ask | None, _warn: Warn, /) -> list[GpuFact]:
        return [_read_gpu(tree, cores, node, memory) for node, memory in _read_nodes(tree)]
