# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boards, sockets, cores and threads that slurmd finds on a machine, from /sys and /proc alone.

slurmd counts the objects of a tree that hwloc makes (src/slurmd/common/xcpuinfo.c, xcpuinfo_hwloc_topo_get, Slurm
24.11). The tree is made here by hwloc's rules (hwloc/topology-linux.c, topology.c, distances.c and cpukinds.c of hwloc
2.12), as far as slurmd's numbers depend on them: packages, dies, third-level caches, cores and threads, groups of all
kinds, NUMA nodes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.answer_records import CpuNumbers
from ansible_collections.gpucluster.slurm.plugins.module_utils.errors import CollectionError
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree, bits, first, of

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"

# Of two objects with the same CPUs the one of the lower rank is the parent (obj_type_order).
RANKS = {"machine": 0, "group": 1, "package": 4, "die": 5, "l3cache": 8, "core": 14, "pu": 18}
# Of two groups with the same CPUs the one of the lower kind stays (HWLOC_GROUP_KIND_*).
BOOK, CLUSTER, DISTANCE, MEMORY = 110, 222, 900, 1001


class TopologyError(CollectionError):
    """The machine's files do not say which CPUs it has."""


@dataclass(frozen=True)
class Topology:
    """The words of a node line, as C(slurmd -C) prints them, and the CPUs of each core by its index."""

    cpus: int
    boards: int
    sockets_per_board: int
    cores_per_socket: int
    threads_per_core: int
    cores: tuple[int, ...]

    @property
    def numbers(self) -> CpuNumbers:
        """The words of the node line alone, by the names of the facts."""
        return {
            "cpus": self.cpus,
            "boards": self.boards,
            "sockets_per_board": self.sockets_per_board,
            "cores_per_socket": self.cores_per_socket,
            "threads_per_core": self.threads_per_core,
        }


@dataclass(eq=False)
class Object:
    """A part of the machine: its CPUs, its children by their first CPU, and how many NUMA nodes are attached to it."""

    type: str
    cpus: int
    kind: int = 0
    subkind: int = 0
    children: list[Object] = field(default_factory=list)
    nodes: int = 0

    @property
    def sort(self) -> tuple[str, int, int]:
        """Objects of the same sort make a level of the tree."""
        return self.type, self.kind, self.subkind

    def become(self, other: Object) -> None:
        """Be the other object, in this place."""
        self.type, self.cpus, self.kind, self.subkind = other.type, other.cpus, other.kind, other.subkind

    def all(self, kind: str) -> list[Object]:
        """The objects of a type in this part, itself included, in order."""
        own = [self] if self.type == kind else []
        return own + [found for child in self.children for found in child.all(kind)]

    def has(self, sort: tuple[str, int, int]) -> bool:
        return any(child.sort == sort or child.has(sort) for child in self.children)


# -- the tree --------------------------------------------------------------------------------------------------------


def merged(old: Object, new: Object) -> bool:
    """Whether an object is already there: a group gives way to anything with the same CPUs.

    hwloc__insert_try_merge_group.
    """
    if old.type == new.type == "group":
        if new.kind < old.kind:
            old.become(new)
        return True
    if "group" not in (old.type, new.type):
        return False
    group, other = (new, old) if new.type == "group" else (old, new)
    if other.type == "pu" and group.kind == MEMORY:
        return False  # memory is never attached to a thread
    if old is group:
        old.become(new)
    return True


def relation(new: Object, old: Object) -> str:
    """Where an object belongs that has not been merged with a child of its parent-to-be."""
    common = new.cpus & old.cpus
    if not common:
        return "beside"
    if new.cpus == old.cpus:
        if new.type == old.type:
            return "same"
        return "inside" if RANKS[new.type] > RANKS[old.type] else "around"
    if common == new.cpus:
        return "inside"
    return "around" if common == old.cpus else "across"


def insert(parent: Object, new: Object) -> Object | None:
    """Put an object where its CPUs belong; gives what stands there then, or None if it would cut another in two.

    hwloc___insert_object_by_cpuset: the children of an object never share CPUs and are sorted by their first one,
    those without CPUs last.
    """
    inside: list[Object] = []
    for child in parent.children:
        if new.cpus and new.cpus == child.cpus and merged(child, new):
            return child
        where = relation(new, child)
        if where == "same":
            return child
        if where == "inside":
            return insert(child, new)
        if where == "across":
            return None
        if where == "around":
            inside.append(child)
            if child.cpus == new.cpus:
                new.nodes, child.nodes = child.nodes, 0
    new.children = inside
    parent.children = [child for child in parent.children if child not in inside]
    place = next((i for i, child in enumerate(parent.children) if _before(new, child)), len(parent.children))
    parent.children.insert(place, new)
    return new


def _before(one: Object, other: Object) -> bool:
    return bool(one.cpus) and (not other.cpus or first(one.cpus) < first(other.cpus))


def attach_node(root: Object, cpus: int) -> None:
    """Attach a NUMA node to the highest object that has its CPUs; a group is made if there is none.

    hwloc__find_insert_memory_parent.
    """
    path = [root]
    while cpus and (path[-1] is root or path[-1].cpus != cpus):
        child = next((child for child in path[-1].children if cpus & ~child.cpus == 0), None)
        if child is None:
            break
        path.append(child)
    parent = path[-2] if path[-1].type == "pu" else path[-1]
    if parent is root or parent.cpus != cpus:
        parent = insert(parent, Object("group", cpus, MEMORY)) or parent
    parent.nodes += 1


def restrict(parent: Object, cpus: int) -> None:
    """Leave only these CPUs, and no part without CPUs unless it has memory.

    fixup_sets and remove_empty, restrict_object_by_cpuset.
    """
    for child in parent.children:
        child.cpus &= cpus
        restrict(child, child.cpus)
    kept = [child for child in parent.children if child.cpus or child.children or child.nodes]
    # Sorted anew: the first CPU of a part may have gone. The order of the others stays.
    parent.children = sorted(kept, key=lambda child: first(child.cpus) if child.cpus else float("inf"))


def levels(root: Object) -> list[list[Object]]:
    """The objects by level, from the root down (hwloc_connect_levels)."""
    result = [[root]]
    front = root.children
    while front:
        top = next((found for found in front if found.type != "pu"), front[0])
        for other in front:
            if other.sort != top.sort and other.has(top.sort):
                top = other
        result.append([found for found in front if found.sort == top.sort])
        front = [below for found in front for below in (found.children if found.sort == top.sort else [found])]
    return result


def drop_plain_levels(root: Object) -> None:
    """Remove groups that say nothing, a level at a time: each has one child, or is the only child.

    hwloc_filter_levels_keep_structure.
    """
    table = levels(root)
    for i in range(len(table) - 1, 0, -1):
        above, below = table[i - 1], table[i]
        types = above[0].type, below[0].type
        drop_below = types[1] == "group" or types == ("package", "die")
        if not drop_below and types[0] != "group":
            continue
        plain = len(above) == len(below) and all(
            parent.children == [child] and not (types[1] == "pu" and parent.nodes)
            for parent, child in zip(above, below)
        )
        if not plain:
            continue
        for parent, child in zip(above, below):
            nodes, children = parent.nodes + child.nodes, child.children
            if not drop_below:
                parent.become(child)
            parent.nodes, parent.children = nodes, children
        # Either way the upper object stays and stands for both.
        del table[i]


# -- CPUs ------------------------------------------------------------------------------------------------------------


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
    words = dict(re.findall(r"^([^\t:]+?)\s*: *(.*)$", processor, re.MULTILINE))
    return words.get("vendor_id") == "AuthenticAMD" and words.get("cpu family") in ("21", "22")


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


# -- NUMA nodes ------------------------------------------------------------------------------------------------------


def node_cpus(tree: Tree, numbers: list[int]) -> dict[int, int]:
    """The CPUs of each NUMA node, by number; a node without a cpumap, or with CPUs of another node, is left out.

    look_sysfsnode.
    """
    result: dict[int, int] = {}
    seen = 0
    overlap = "numa=fake=" in (tree.text("/proc/cmdline") or "")
    for number in numbers:
        cpus = tree.cpu_mask(f"{NODE}/node{number}/cpumap")
        if cpus is None or (cpus & seen and not overlap):
            continue
        seen |= cpus
        result[number] = cpus
    return result


def place_gpu_memory(tree: Tree, machine: str, nodes: dict[int, int]) -> None:
    """The memory of a GPU is near the GPU's CPUs; on POWER it is not shown at all."""
    directory = "/proc/driver/nvidia/gpus"
    for address in tree.names(directory):
        match = re.search(r"Node:[ \t]*(\d+)", tree.text(f"{directory}/{address}/numa_status") or "")
        if not match or int(match[1]) not in nodes:
            continue
        if machine.startswith(("ppc", "power")):
            del nodes[int(match[1])]
        else:
            nodes[int(match[1])] = tree.cpu_mask(f"/sys/bus/pci/devices/{address}/local_cpus") or 0


def node_distances(tree: Tree, numbers: list[int]) -> list[list[int]] | None:
    """How far the nodes are from each other; None if that is not known for all of them.

    hwloc_parse_nodes_distances.
    """
    rows = [list(map(int, re.findall(r"\d+", tree.text(f"{NODE}/node{number}/distance") or ""))) for number in numbers]
    size = len(numbers)
    return [row[:size] for row in rows] if size > 1 and all(len(row) >= size for row in rows) else None


def add_initiators(tree: Tree, number: int, nodes: dict[int, int]) -> None:
    """A node is also near the CPUs that reach it fastest (read_node_initiators)."""
    for access in ("access1", "access0"):
        directory = f"{NODE}/node{number}/{access}/initiators"
        if tree.exists(directory):
            for other in bits(tree.numbered(directory, "node")):
                nodes[number] |= nodes.get(other, 0)
            return


def place_by_distance(number: int, numbers: list[int], nodes: dict[int, int], distances: list[list[int]]) -> None:
    """A node without CPUs is near the CPUs of the nearest nodes, unless all are as near.

    fixup_cpuless_node_locality_from_distances.
    """
    row = dict(zip(numbers, distances[numbers.index(number)]))
    others = {other: row[other] for other in nodes if other != number}
    if not others:
        return
    nearest = min(others.values())
    near = [other for other, distance in others.items() if distance == nearest]
    if nearest > row[number] and len(near) != len(numbers) - 1:
        for other in near:
            nodes[number] |= nodes[other]


def add_nodes(root: Object, tree: Tree, machine: str) -> None:
    """Attach the NUMA nodes; a machine that names none has one (hwloc_discover)."""
    online = tree.cpu_list(f"{NODE}/online")
    numbers = list(bits(tree.numbered(NODE, "node") if online is None else online))
    nodes = node_cpus(tree, numbers)
    place_gpu_memory(tree, machine, nodes)
    distances = node_distances(tree, numbers)
    honest = "numa=fake=" not in (tree.text("/proc/cmdline") or "")
    order = sorted(nodes, key=lambda number: nodes[number] == 0)
    for number in order:
        alone = nodes[number] == 0
        if honest:
            add_initiators(tree, number, nodes)
        if alone and nodes[number] == 0 and distances:
            place_by_distance(number, numbers, nodes, distances)
    for number in order:
        attach_node(root, nodes[number])
    if not nodes:
        attach_node(root, root.cpus)
    if distances and len(nodes) > 1:
        known = [i for i, number in enumerate(numbers) if number in nodes]
        group_by_distance(root, [nodes[numbers[i]] for i in known], [[distances[i][j] for j in known] for i in known])


def is_metric(distances: list[list[int]]) -> bool:
    """Whether the way back is as long, and every node is nearest to itself (hwloc__check_grouping_matrix)."""
    size = range(len(distances))
    return all(
        distances[i][j] == distances[j][i] and distances[i][j] > distances[i][i] for i in size for j in size if i < j
    )


def nearest_groups(distances: list[list[int]]) -> list[list[int]]:
    """Those that the smallest distance connects, directly or through others; none if that is all of them.

    hwloc__find_groups_by_min_distance.
    """
    size = range(len(distances))
    smallest = min(distances[i][j] for i in size for j in size if i != j)
    groups: list[list[int]] = []
    seen: set[int] = set()
    for start in size:
        if start in seen:
            continue
        group, front = {start}, [start]
        while front:
            near = front.pop()
            found = [other for other in size if other not in seen | group and distances[near][other] == smallest]
            group.update(found)
            front.extend(found)
        if len(group) > 1:
            groups.append(sorted(group))
            seen |= group
    return [] if groups == [list(size)] else groups


def group_by_distance(root: Object, members: list[int], distances: list[list[int]], depth: int = 0) -> None:
    """Put those near to each other in groups, and these in groups again (hwloc__groups_by_distances)."""
    if len(members) <= 2 or (depth == 0 and not is_metric(distances)):
        return
    groups = nearest_groups(distances)
    placed = []
    for group in groups:
        cpus = 0
        for member in group:
            cpus |= members[member]
        placed.append(insert(root, Object("group", cpus, DISTANCE, depth)))
    if not groups or None in placed:
        return
    means = [
        [sum(distances[i][j] for i in one for j in other) // (len(one) * len(other)) for other in groups]
        for one in groups
    ]
    group_by_distance(root, [found.cpus for found in placed if found], means, depth + 1)


# -- kinds of CPUs ---------------------------------------------------------------------------------------------------


@dataclass
class CpuKind:
    """CPUs about which the same is known."""

    cpus: int
    facts: dict[str, Any]
    rank: int | None = None


def register(kinds: list[CpuKind], cpus: int, name: str, value: Any, rank: int | None = None) -> None:
    """A new fact about some CPUs splits the kinds that it is only partly true of.

    hwloc_internal_cpukinds_register.
    """
    for kind in list(kinds):
        common = kind.cpus & cpus
        if not common:
            continue
        cpus &= ~common
        if common == kind.cpus:
            kind.facts.setdefault(name, value)
            kind.rank = rank if kind.rank is None else kind.rank
        else:
            kind.cpus &= ~common
            kinds.append(CpuKind(common, {**kind.facts, name: value}, rank))
    if cpus:
        kinds.append(CpuKind(cpus, {name: value}, rank))


def ranked(kinds: list[CpuKind]) -> list[CpuKind]:
    """The kinds from the slowest to the fastest, or as they came if that cannot be told.

    hwloc_internal_cpukinds_rank.
    """
    forced = [kind.rank for kind in kinds]
    core_types = [{"IntelAtom": 1, "IntelCore": 2}.get(kind.facts.get("type", ""), 0) for kind in kinds]
    base = [kind.facts.get("base", 0) for kind in kinds]
    top = [kind.facts.get("max", 0) for kind in kinds]
    by_facts = [(kind << 20) + speed for kind, speed in zip(core_types, base if all(base) else top)]
    for ranks, usable in ((forced, None not in forced), (by_facts, all(core_types) or all(base) or all(top))):
        if usable and len(set(ranks)) == len(kinds):
            return [kinds[i] for i in sorted(range(len(kinds)), key=lambda i: ranks[i] or 0)]
    return kinds


def adjusted(base: dict[int, int], top: dict[int, int]) -> dict[int, int]:
    """The highest frequencies, in kHz: of one base frequency, and less than a tenth apart, they count as the lowest."""
    result = dict(top)
    for value in set(base.values()):
        same = [cpu for cpu in base if base[cpu] == value]
        low, high = min(top[cpu] for cpu in same), max(top[cpu] for cpu in same)
        if low and (high - low) * 10 < low:
            result.update(dict.fromkeys(same, low))
    return result


def frequencies(tree: Tree, cpus: int) -> tuple[dict[int, int], dict[int, int]]:
    """The base and the highest frequency of each CPU, in kHz, 0 where the kernel does not tell.

    look_sysfscpukinds.
    """
    base, top = {}, {}
    nominal: bool | None = None  # whether to ask ACPI for what the driver does not tell: decided by the first CPU
    blind = False
    for cpu in bits(cpus):
        directory = f"{CPU}/cpu{cpu}"
        top[cpu] = tree.number(f"{directory}/cpufreq/cpuinfo_max_freq") or 0
        found = tree.number(f"{directory}/cpufreq/base_frequency")
        base[cpu] = found or 0
        if found is not None:
            nominal = False
        if nominal is not False:
            found = tree.number(f"{directory}/acpi_cppc/nominal_freq")
            nominal = bool(found)
            base[cpu] = (found or 0) * 1000
        blind |= bool(top[cpu] and not found)
    return base, top if blind else adjusted(base, top)


def fast_cpus(tree: Tree, cpus: int) -> int:
    """The CPUs that slurmd keeps: not the efficient cores of an Intel hybrid (_remove_ecores in Slurm's xcpuinfo.c).

    Those are dropped that are not of the first kind of type IntelCore, unless they are as fast as that kind.
    """
    core = (tree.cpu_list("/sys/devices/cpu_core/cpus") or 0) & cpus
    if not core:
        return cpus
    kinds: list[CpuKind] = []
    base, top = frequencies(tree, cpus)
    capacity = {cpu: tree.number(f"{CPU}/cpu{i}/cpu_capacity") or 0 for i, cpu in enumerate(bits(cpus))}
    for name, values in (
        ("max", {cpu: value // 1000 for cpu, value in top.items() if value}),
        ("base", {cpu: value // 1000 for cpu, value in base.items() if value}),
        ("capacity", {cpu: value for cpu, value in capacity.items() if value}),
    ):
        for rank, value in enumerate(sorted(set(values.values()))):
            same = of(cpu for cpu in values if values[cpu] == value)
            register(kinds, same, name, value, rank if name == "capacity" else None)
    register(kinds, (tree.cpu_list("/sys/devices/cpu_atom/cpus") or 0) & cpus, "type", "IntelAtom")
    register(kinds, core, "type", "IntelCore")
    register(kinds, (tree.cpu_list("/sys/devices/cpu_lowpower/cpus") or 0) & cpus, "type", "IntelLowPower")
    kinds = ranked(kinds)
    chosen = next((kind for kind in kinds if kind.facts.get("type") == "IntelCore"), None)
    if chosen is None:
        return cpus
    speed = chosen.facts.get("max")
    return chosen.cpus | of(c for kind in kinds if speed and kind.facts.get("max") == speed for c in bits(kind.cpus))


# -- what Slurm makes of it ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """The effects of the cluster's SlurmdParameters on a machine. C(slurmd -C) does not use them."""

    l3cache_as_socket: bool = False
    numa_node_as_socket: bool = False
    allow_ecores: bool = False


def parse_view(parameters: Sequence[str]) -> View:
    """The parameters that matter here. Slurm looks for their names anywhere in the value, in letters of any size.

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


def count(root: Object, view: View) -> Topology:
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
    boards = 1
    if root.children[0].type == "group":
        boards = next(len(level) for level in table if root.children[0] in level)
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
    return count(root, view)


def read_memory(tree: Tree) -> int | None:
    """The machine's memory in MiB, as slurmd counts it: rounded down. None if a dump does not tell."""
    match = re.search(r"^MemTotal:\s*(\d+) kB", tree.text("/proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) // 1024 if match else None


# -- slurmd's own word -----------------------------------------------------------------------------------------------

WORDS = {
    "CPUs": "cpus",
    "Boards": "boards",
    "SocketsPerBoard": "sockets_per_board",
    "CoresPerSocket": "cores_per_socket",
    "ThreadsPerCore": "threads_per_core",
    "RealMemory": "real_memory",
}


def parse_node_line(text: str) -> dict[str, int]:
    """The numbers in what C(slurmd -C) prints, by the names that they have in the facts."""
    return {WORDS[word]: int(value) for word, value in re.findall(r"(\w+)=(\d+)", text) if word in WORDS}


def differences(facts: dict[str, Any], words: dict[str, int]) -> list[dict[str, Any]]:
    """The facts for which slurmd reports other values."""
    return [
        {"name": name, "measured": facts[name], "slurmd": value}
        for name, value in words.items()
        if facts[name] != value
    ]
