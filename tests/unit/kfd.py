# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the files that the kernel has about AMD GPUs, generated: no machine with these GPUs was at hand.

The layout is that of amdkfd, as recorded trees of real machines show it: a node for each NUMA node, and then one for
each GPU, or for each partition of a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping

from sysfs import Memory, listing

NODES = "sys/class/kfd/kfd/topology/nodes"
CPU_NODE = "cpu_cores_count 8\nsimd_count 0\nvendor_id 0\ndevice_id 0\nlocation_id 0\ndrm_render_minor 0\n"


def gpu_node(
    bus: int, minor: int, function: int = 0, domain: int = 0, memory_mib: int | None = 65536, cpu_cores: int = 0
) -> Mapping[str, str]:
    """The files of a GPU, below its node."""
    location = bus << 8 | function
    properties = f"cpu_cores_count {cpu_cores}\nsimd_count 416\nvendor_id 4098\ndevice_id 29711\n"
    properties += f"location_id {location}\ndomain {domain}\ndrm_render_minor {minor}\n"
    bank = f"heap_type 1\nsize_in_bytes {(memory_mib or 0) << 20}\nflags 0\n"
    return {"properties": properties} | ({"mem_banks/0/properties": bank} if memory_mib is not None else {})


def pci_files(bus: int, numa: int, domain: int = 0, model: str = "") -> dict[str, str]:
    """The files of a GPU on PCI, near the eight CPUs of a NUMA node."""
    device = f"sys/bus/pci/devices/{domain:04x}:{bus:02x}:00.0"
    found = {
        "vendor": "0x1002",
        "device": "0x740f",
        "class": "0x038000",
        "numa_node": str(numa),
        "local_cpulist": listing(range(numa * 8, numa * 8 + 8)),
    }
    return {f"{device}/{name}": text for name, text in (found | ({"product_name": model} if model else {})).items()}


def tree(*gpus: Mapping[str, str], more: Mapping[str, str] | None = None) -> Memory:
    """A machine with two NUMA nodes and these GPUs."""
    nodes = [{"properties": CPU_NODE}, {"properties": CPU_NODE}, *gpus]
    files = {f"{NODES}/{i}/{name}": text for i, node in enumerate(nodes) for name, text in node.items()}
    return Memory(files={**files, **(more or {})})
