# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages, dies, third-level caches, cores and threads of a machine, by hwloc's rules (topology-linux.c)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ..language.errors import CollectionError
from .object_tree import BOOK, CLUSTER, Object, insert
from .sysfs import Tree, bits, first, of

CPU = "/sys/devices/system/cpu"


class TopologyError(CollectionError):
    """The machine's files do not say which CPUs it has."""


def architecture(tree: Tree) -> str:
    """The machine's name as C(uname -m) gives it; a dump has it in /proc/hwloc-nofile-info, or nobody knows.

    hwloc_gather_system_info: for a dump hwloc knows no architecture either, and then leaves out what only one of them
    has.
    """
    if os.path.realpath(tree.root) == "/":
        return os.uname().machine
    match = re.search(r"^Architecture: (.*)$", tree.text("/proc/hwloc-nofile-info") or "", re.MULTILINE)
    return match[1] if match else ""


def has_compute_units(tree: Tree, machine: str) -> bool:
    """Whether the CPUs are of AMD's families 21 and 22, whose threads are cores if they have own core ids."""
    if not re.fullmatch(r"x86_64|i.86|k1om", machine):
        return False
    processor = (tree.text("/proc/cpuinfo") or "").split("\n\n")[0]
    fields = dict(re.findall(r"^([^\t:]+?)\s*: *(.*)$", processor, re.MULTILINE))
    return fields.get("vendor_id") == "AuthenticAMD" and fields.get("cpu family") in ("21", "22")


def topology_names(tree: Tree) -> tuple[str, str] | None:
    """The names of the files with the CPUs of a core and of a package; None if the kernel has neither.

    check_sysfs_cpu_path.
    """
    online = tree.number(f"{CPU}/online")
    for cpu in (0, *([] if online is None else [online])):
        for names in (("core_cpus", "package_cpus"), ("thread_siblings", "core_siblings")):
            if any(tree.exists(f"{CPU}/cpu{cpu}/topology/{name}") for name in names):
                return names
    return None


def online_cpus(tree: Tree) -> int:
    """The CPUs that are online, those without a directory of their own excepted."""
    present = tree.numbered(CPU, "cpu")
    online = tree.cpu_list(f"{CPU}/online")
    if online is not None:
        return present & online
    return of(cpu for cpu in bits(present) if tree.number(f"{CPU}/cpu{cpu}/online") != 0)


def counted_cpus(tree: Tree) -> int:
    """The CPUs of a machine whose kernel has no topology: those of /proc/cpuinfo where /sys has none."""
    online = online_cpus(tree)
    if online:
        return online
    processors = re.findall(r"^processor[\t ]*:?[\t ]*(\d+)", tree.text("/proc/cpuinfo") or "", re.MULTILINE)
    if not processors:
        raise TopologyError(f"no CPUs in {tree.path(CPU)} nor in {tree.path('/proc/cpuinfo')}")
    return of(map(int, processors))


@dataclass
class CpuFiles:
    """The topology files of the CPUs (look_sysfscpu)."""

    tree: Tree
    cpus: int
    names: tuple[str, str]
    units: bool | None  # each thread is a core of its own; None: not known yet

    def siblings(self, cpu: int, name: str) -> int | None:
        """The CPUs that share something with this one, of those with a topology; None if the kernel does not tell."""
        found = self.tree.cpu_mask(f"{CPU}/cpu{cpu}/topology/{name}")
        return None if found is None else found & self.cpus

    def core_id(self, cpu: int) -> int | None:
        return self.tree.number(f"{CPU}/cpu{cpu}/topology/core_id")

    def add_core(self, root: Object, cpu: int) -> bool:
        """Whether the CPU is not the first one of its core."""
        core = self.siblings(cpu, self.names[0])
        if core is None:
            return False
        if core & (core - 1) and self.units is None:
            other = first(core & ~(1 << cpu))
            self.units = self.core_id(other) != self.core_id(cpu)
        later = first(core) != cpu
        if self.units is not False:
            insert(root, Object("core", 1 << cpu))
        elif not later:
            insert(root, Object("core", core))
        return later

    def shared(self, cpu: int, name: str) -> tuple[int | None, bool]:
        """The CPUs of a cluster or die of several, if this CPU is its first one; and whether another one is."""
        found = self.siblings(cpu, name)
        if found is None or bin(found).count("1") == 1:
            return None, False
        return (found, False) if first(found) == cpu else (None, True)

    def add_parts(self, root: Object, cpu: int) -> None:
        """Add the core, package, cluster and die that begin with this CPU; the others are there already."""
        cluster = die = None
        later = self.add_core(root, cpu)
        if not later:
            cluster, later = self.shared(cpu, "cluster_cpus")
        if not later:
            die, later = self.shared(cpu, "die_cpus")
            if cluster == die:
                cluster = None
        if not later:
            package = self.siblings(cpu, self.names[1])
            if cluster == package:
                cluster = None
            if package and first(package) == cpu:
                insert(root, Object("package", package))
        if cluster:
            insert(root, Object("group", cluster, CLUSTER))
        if die:
            insert(root, Object("die", die))

    def add_books(self, root: Object, cpu: int) -> None:
        """Books and drawers hold the packages of an s390."""
        for subkind, name in enumerate(("book", "drawer")):
            cpus = self.siblings(cpu, f"{name}_siblings")
            if cpus is None:
                return
            if first(cpus) == cpu and self.tree.number(f"{CPU}/cpu{cpu}/topology/{name}_id") is not None:
                insert(root, Object("group", cpus, BOOK, subkind))

    def add_cache(self, root: Object, cpu: int) -> None:
        """A third-level cache can be what a NUMA node is attached to."""
        for index in range(10):
            directory = f"{CPU}/cpu{cpu}/cache/index{index}"
            if self.tree.number(f"{directory}/level") != 3 or self.tree.text(f"{directory}/type") == "Instruction":
                continue
            cpus = self.tree.cpu_mask(f"{directory}/shared_cpu_map")
            if cpus == 0:
                cpus = self.tree.cpu_mask(f"{CPU}/cpu{cpu}/topology/{self.names[0]}") or 0
            if cpus is not None and first(cpus & self.cpus) == cpu:
                insert(root, Object("l3cache", cpus & self.cpus))


def cpu_tree(tree: Tree, machine: str) -> Object:
    """The machine's packages, dies, caches, cores and threads; threads alone if the kernel has no topology."""
    names = topology_names(tree)
    if names is None:
        cpus = counted_cpus(tree)
        return Object("machine", cpus, children=[Object("pu", 1 << cpu) for cpu in bits(cpus)])
    cpus = of(cpu for cpu in bits(online_cpus(tree)) if tree.exists(f"{CPU}/cpu{cpu}/topology"))
    root = Object("machine", cpus)
    files = CpuFiles(tree, cpus, names, None if has_compute_units(tree, machine) else False)
    for cpu in bits(cpus):
        files.add_parts(root, cpu)
        if machine.startswith("s390"):
            files.add_books(root, cpu)
        insert(root, Object("pu", 1 << cpu))
        files.add_cache(root, cpu)
    return root
