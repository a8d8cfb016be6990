# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Partitions of the cluster file: their names, their nodes, and defaults for GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..language.formatting import short, shown
from ..language.hostlist import expand, fold
from . import gpu_defaults, schema
from .partitions import node_sets, resolver
from .schema import Checker, MachineType, NodeEntry, Partition, Settings, unknown


def check_partitions(checker: Checker, found: Iterable[Any]) -> list[Partition]:
    """The valid parts of the partitions. Each has a name of its own, and one is the default."""
    partitions = [checker.check(schema.PARTITION, f"partitions[{i}]", value) for i, value in enumerate(found)]
    names: dict[str, int] = {}
    default: int | None = None
    for i, partition in enumerate(partitions):
        key = f"partitions[{i}]"
        first = names.setdefault(partition.get("name", ""), i)
        if first != i and "name" in partition:
            first_one = checker.key(f"partitions[{first}]")
            checker.problem(f"{key}.name", f"'{partition['name']}' is defined twice, first in {first_one}")
        if partition.get("default"):
            if default is not None:
                first_one = checker.key(f"partitions[{default}]")
                checker.problem(f"{key}.default", f"{first_one} is the default already, allowed: one")
            default = i if default is None else default
    return partitions


def check_members(
    checker: Checker,
    partitions: list[Partition],
    nodes: list[NodeEntry],
    hardware: dict[str, MachineType],
    slurm_conf: Settings,
) -> list[list[str]]:
    """The hosts of each partition. Unknown names are a problem, unless an entry of the nodes has lost its hosts."""
    node_hosts = dict.fromkeys(host for node in nodes for host in expand(node["hosts"]))
    resolve, sets = resolver(nodes, hardware, slurm_conf), [node_set.name for node_set in node_sets(slurm_conf)]
    result = []
    for i, partition in enumerate(partitions):
        try:
            names = resolve(partition.get("nodes", ""))
        except ValueError as error:  # of a node set
            checker.problem("slurm_conf.NodeSet", str(error))
            names = []
        strange = [name for name in names if name not in node_hosts]
        if strange and all(node["hosts"] for node in nodes):
            allowed = ", ".join(filter(None, ["ALL", *sets, short(fold([*node_hosts]))]))
            what = unknown("node", strange[0], [*node_hosts, *sets], allowed)
            checker.problem(f"partitions[{i}].nodes", f"found {shown(fold(strange))}, {what}")
        result.append([name for name in names if name in node_hosts])
    return result


def check_gpu_defaults(
    checker: Checker,
    partitions: list[Partition],
    members: list[list[str]],
    nodes: list[NodeEntry],
    hardware: dict[str, MachineType],
) -> None:
    """Check that a partition with `auto` has GPUs. Hardware that is not measured yet, or wrong, may have them."""
    without = {
        host
        for node in nodes
        if node["hardware"] in hardware and not gpu_defaults.gpus_of(hardware[node["hardware"]])
        for host in expand(node["hosts"])
    }
    for i, (partition, hosts) in enumerate(zip(partitions, members)):
        if without.issuperset(hosts):
            for key in gpu_defaults.automatic(partition):
                checker.problem(f"partitions[{i}].{key}", f"found {schema.AUTO}, {gpu_defaults.WITHOUT_GPUS}")
