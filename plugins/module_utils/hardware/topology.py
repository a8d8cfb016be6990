# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boards, sockets, cores and threads that slurmd finds on a machine, from /sys and /proc alone.

slurmd counts the objects of a tree that hwloc makes (src/slurmd/common/xcpuinfo.c, xcpuinfo_hwloc_topo_get, Slurm
24.11). The modules object_tree, cpu_files, numa_nodes and cpu_kinds make that tree.

Counting the ids in /sys is not enough: of 22 real machines it gives other numbers for 1 (boards), for 3 with
SlurmdParameters=l3cache_as_socket, and for 9 with numa_node_as_socket, where one has no sockets and slurmd does not
start. C(slurmd -C) cannot replace it either: it ignores SlurmdParameters, and a bare host has no slurmd.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cpu_files import CPU, TopologyError, architecture, cpu_tree
from .cpu_kinds import fast_cpus
from .numa_nodes import add_nodes
from .object_tree import Object, drop_plain_levels, levels, restrict
from .sysfs import Tree

if TYPE_CHECKING:
    from ...plugin_utils.results.fact_records import CpuNumbers
    from ...plugin_utils.results.module_results import HardwareDifference


@dataclass(frozen=True)
class Topology:
    """The parameters of a node line, as C(slurmd -C) prints them, and the CPUs of each core by its index."""

    cpus: int
    boards: int
    sockets_per_board: int
    cores_per_socket: int
    threads_per_core: int
    cores: tuple[int, ...]

    @property
    def numbers(self) -> CpuNumbers:
        """The parameters of the node line alone, by the names of the facts."""
        return {
            "cpus": self.cpus,
            "boards": self.boards,
            "sockets_per_board": self.sockets_per_board,
            "cores_per_socket": self.cores_per_socket,
            "threads_per_core": self.threads_per_core,
        }


@dataclass(frozen=True)
class View:
    """The effects of the cluster's SlurmdParameters on a machine. C(slurmd -C) does not use them."""

    l3cache_as_socket: bool = False
    numa_node_as_socket: bool = False
    allow_ecores: bool = False


def parse_view(parameters: Sequence[str]) -> View:
    """The parameters that matter here. Slurm finds their names anywhere in the value, in letters of any size.

    Of both kinds of sockets third-level caches win (parse_slurmd_params in Slurm's read_config.c). Slurm 22.05 does
    not know allow_ecores: it always has all cores.
    """
    text = ",".join(parameters).lower()
    caches = "l3cache_as_socket" in text
    return View(caches, not caches and "numa_node_as_socket" in text, "allow_ecores" in text)


def first_with_memory(part: Object) -> Object | None:
    """The object that the first NUMA node is attached to: parts come before the whole (hwloc_list_special_objects)."""
    return next(filter(None, map(first_with_memory, part.children)), part if part.nodes else None)


def socket_type(root: Object, view: View) -> str:
    """The type of the objects that Slurm counts as sockets."""
    if view.l3cache_as_socket:
        return "l3cache"
    if view.numa_node_as_socket:
        return (first_with_memory(root) or root).type
    return "package"


def count_boards(root: Object, table: list[list[Object]]) -> int:
    """The number of groups of the highest level, or 1."""
    highest = root.children[0]
    return next(len(level) for level in table if highest in level) if highest.type == "group" else 1


def count_objects(root: Object, view: View) -> Topology:
    """Slurm's numbers (xcpuinfo_hwloc_topo_get): averages, rounded down where a machine is irregular.

    Raises:
        TopologyError: hwloc has what is counted on several levels of the tree, and then does not count it.
    """
    table, socket = levels(root), socket_type(root, view)
    for kind in (socket, "core"):
        if len([level for level in table if level[0].type == kind]) > 1:
            raise TopologyError(
                f"slurmd does not start here: its sockets are of type {socket}, and it cannot count {kind}s"
            )
    boards = count_boards(root, table)
    parts, cores, threads = (root.all(kind) for kind in (socket, "core", "pu"))
    sockets = len([part for part in parts if part.all("core")]) or len(parts) or 1
    number = len(cores) or 1
    return Topology(
        cpus=len(threads),
        boards=boards,
        sockets_per_board=sockets // boards,
        cores_per_socket=number // sockets,
        threads_per_core=len(threads) // number,
        cores=tuple(core.cpus for core in cores) or (root.cpus,),
    )


def read_topology(tree: Tree, slurmd_parameters: Sequence[str] = ()) -> Topology:
    """The machine's CPUs as slurmd counts them, without those that are offline.

    Args:
        tree: the machine's files.
        slurmd_parameters: the cluster's SlurmdParameters; those that do not change what slurmd sees do not matter.

    Raises:
        TopologyError: no CPU is online, the files are missing, or slurmd would not start with these parameters.
    """
    view = parse_view(slurmd_parameters)
    machine = architecture(tree)
    root = cpu_tree(tree, machine)
    if not root.cpus:
        raise TopologyError(f"no CPU with a topology is online in {tree.path(CPU)}")
    kept = root.cpus if view.allow_ecores else fast_cpus(tree, root.cpus)
    add_nodes(root, tree, machine)
    restrict(root, root.cpus)
    drop_plain_levels(root)
    if kept != root.cpus:
        root.cpus = kept
        restrict(root, kept)
        drop_plain_levels(root)
    return count_objects(root, view)


def read_memory(tree: Tree) -> int | None:
    """The machine's memory in MiB, as slurmd counts it: rounded down. None if a dump does not tell."""
    match = re.search(r"^MemTotal:\s*(\d+) kB", tree.text("/proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) // 1024 if match else None


# -- what slurmd prints ----------------------------------------------------------------------------------------------

PARAMETERS = {
    "CPUs": "cpus",
    "Boards": "boards",
    "SocketsPerBoard": "sockets_per_board",
    "CoresPerSocket": "cores_per_socket",
    "ThreadsPerCore": "threads_per_core",
    "RealMemory": "real_memory",
}


def parse_node_line(text: str) -> dict[str, int]:
    """The numbers in what C(slurmd -C) prints, by the names that they have in the facts."""
    return {PARAMETERS[name]: int(value) for name, value in re.findall(r"(\w+)=(\d+)", text) if name in PARAMETERS}


def differences(facts: Mapping[str, Any], reported: dict[str, int]) -> list[HardwareDifference]:
    """The facts for which slurmd reports other values."""
    return [
        {"name": name, "measured": facts[name], "slurmd": value}
        for name, value in reported.items()
        if facts[name] != value
    ]
