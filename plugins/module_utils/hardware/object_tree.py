# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine as a tree of objects, by hwloc's rules: where an object belongs, and which levels say nothing.

The rules are those of topology.c of hwloc 2.12, as far as slurmd's numbers depend on them. A docstring names the
function whose rule it has.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .sysfs import first

NODE = "/sys/devices/system/node"

# Of two objects with the same CPUs the one of the lower rank is the parent (obj_type_order).
RANKS = {"machine": 0, "group": 1, "package": 4, "die": 5, "l3cache": 8, "core": 14, "pu": 18}
# Of two groups with the same CPUs the one of the lower kind stays (HWLOC_GROUP_KIND_*).
BOOK, CLUSTER, DISTANCE, MEMORY = 110, 222, 900, 1001


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


def merge_group(old: Object, new: Object) -> bool:
    """Whether an object is already there: a group becomes anything else that has the same CPUs.

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


def find_relation(new: Object, old: Object) -> str:
    """Where an object belongs that has not been merged with a child of its parent-to-be."""
    common = new.cpus & old.cpus
    if not common:
        return "apart"
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
        if new.cpus and new.cpus == child.cpus and merge_group(child, new):
            return child
        where = find_relation(new, child)
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
    """Attach a NUMA node to the highest object that has its CPUs; a new group if there is none.

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
