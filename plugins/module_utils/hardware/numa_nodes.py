# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NUMA nodes of a machine, and groups of those near to each other, by hwloc's rules (topology-linux.c,
distances.c).
"""

from __future__ import annotations

import re

from .object_tree import DISTANCE, Object, attach_node, insert
from .sysfs import Tree, bits

NODE = "/sys/devices/system/node"


def read_cpuless_memory(tree: Tree) -> int:
    """The memory in MiB of online NUMA nodes without CPUs, such as that of the GPUs of a GH200, or CXL."""
    total = 0
    for number in bits(tree.cpu_list(f"{NODE}/online") or 0):
        shown = re.search(r"MemTotal:\s*(\d+) kB", tree.text(f"{NODE}/node{number}/meminfo") or "")
        if shown and tree.cpu_list(f"{NODE}/node{number}/cpulist") == 0:
            total += int(shown[1])
    return total // 1024


def has_fake_nodes(tree: Tree) -> bool:
    """Whether the kernel was started with NUMA nodes that the machine does not have."""
    return "numa=fake=" in (tree.text("/proc/cmdline") or "")


def node_cpus(tree: Tree, numbers: list[int]) -> dict[int, int]:
    """The CPUs of each NUMA node, by number; a node without a cpumap, or with CPUs of another node, is left out.

    look_sysfsnode.
    """
    result: dict[int, int] = {}
    seen = 0
    overlap = has_fake_nodes(tree)
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


def add_cpus_nearby(
    tree: Tree, number: int, numbers: list[int], nodes: dict[int, int], distances: list[list[int]] | None
) -> None:
    """Give a node the CPUs that are near to it."""
    without_cpus = nodes[number] == 0
    if not has_fake_nodes(tree):
        add_initiators(tree, number, nodes)
    if without_cpus and nodes[number] == 0 and distances:
        place_by_distance(number, numbers, nodes, distances)


def add_nodes(root: Object, tree: Tree, machine: str) -> None:
    """Attach the NUMA nodes; a machine that names none has one (hwloc_discover)."""
    online = tree.cpu_list(f"{NODE}/online")
    numbers = list(bits(tree.numbered(NODE, "node") if online is None else online))
    nodes = node_cpus(tree, numbers)
    place_gpu_memory(tree, machine, nodes)
    distances = node_distances(tree, numbers)
    order = sorted(nodes, key=lambda number: nodes[number] == 0)
    for number in order:
        add_cpus_nearby(tree, number, numbers, nodes, distances)
    for cpus in [nodes[number] for number in order] or [root.cpus]:
        attach_node(root, cpus)
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
