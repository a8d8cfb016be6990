# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a job gets with each GPU, and what it is charged for: DefCPUPerGPU, DefMemPerGPU and TRESBillingWeights.

A job that asks for a GPU alone gets one CPU and DefMemPerCPU by Slurm's defaults. With the value `auto`, it gets the
node's share of a GPU, so that as many jobs run as a node has GPUs, and each has enough CPUs to feed its GPU
(slurm.conf(5)).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..language.hostlist import expand
from .machine_types import gres_count, machine_of
from .partitions import resolver
from .schema import AUTO, PARTITION, Partition, cores

WITHOUT_GPUS = "allowed: a number, since no node of this partition is known to have GPUs"


def with_gpu_defaults(
    partitions: Iterable[Mapping[str, Any]],
    nodes: Iterable[Mapping[str, Any]],
    hardware: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
) -> list[Partition]:
    """The partitions with numbers instead of AUTO.

    Args:
        partitions: the variable slurm_partitions.
        nodes: the variable slurm_nodes.
        hardware: the variable slurm_hardware_types.
        settings: the variable slurm_conf, which has the node sets.

    Raises:
        ValueError: no node of such a partition has GPUs, or its hardware is not known.
    """
    given = [dict(partition) for partition in partitions]
    if not any(automatic(partition) for partition in given):
        return given
    entries = list(nodes)
    shares, resolve = _shares(entries, hardware), resolver(entries, hardware, settings)
    for partition in given:
        if asked := automatic(partition):
            hosts = [host for host in resolve(partition["nodes"]) if host in shares]
            partition.update(_values(partition, asked, [shares[host] for host in hosts]))
    return given


def automatic(partition: Mapping[str, Any]) -> list[str]:
    """The parameters of a partition whose value is AUTO."""
    return [key for key in PARTITION.automatic if partition.get(key) == AUTO]


def _values(partition: Mapping[str, Any], asked: list[str], shares: list[tuple[int, int]]) -> dict[str, int]:
    """The values of parameters by what each node has for a GPU: the least of all nodes."""
    if not shares:
        raise ValueError(f"partition {partition['name']}: {asked[0]}: found {AUTO}, {WITHOUT_GPUS}")
    least = dict(zip(PARTITION.automatic, map(min, zip(*shares))))
    return {key: least[key] for key in asked}


def billing_weights(
    partitions: Iterable[Mapping[str, Any]],
    nodes: Iterable[Mapping[str, Any]],
    hardware: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
) -> dict[str, str]:
    """TRESBillingWeights of each partition with GPUs, by its name; the arguments are those of `with_gpu_defaults`.

    A CPU counts 1, as in partitions without weights. A GPU counts as many as its share of CPUs, and so does its share
    of the memory. With PriorityFlags=MAX_TRES a whole node is then charged for its CPUs, whatever a job asks for.
    """
    entries = list(nodes)
    shares, resolve = _shares(entries, hardware), resolver(entries, hardware, settings)
    weights = {}
    for partition in partitions:
        if found := [shares[host] for host in resolve(partition["nodes"]) if host in shares]:
            cpus, memory = map(min, zip(*found))
            weights[str(partition["name"])] = f"CPU=1,Mem={cpus * 1024 / memory:.4g}G,GRES/gpu={cpus}"
    return weights


def _shares(nodes: list[Mapping[str, Any]], hardware: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """CPUs and MiB for each GPU of each node that has GPUs."""
    found = {}
    for node in nodes:
        machine = {**machine_of(node, hardware), **node}
        if gpus := sum(map(gres_count, gpus_of(machine))):
            found.update(dict.fromkeys(expand(node["hosts"]), _share(machine, gpus)))
    return found


def gpus_of(machine: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The generic resources of a machine type that are GPUs."""
    return [gres for gres in machine.get("gres") or () if gres.get("name") == "gpu"]


def _share(machine: Mapping[str, Any], gpus: int) -> tuple[int, int]:
    """CPUs, in whole cores, and MiB for each GPU of a machine, without what it sets aside for the system."""
    all_cores = int(machine["sockets"]) * int(machine["cores_per_socket"])
    cpus = int(machine.get("cpus") or all_cores * int(machine["threads_per_core"]))
    threads = cpus // all_cores or 1  # as many as Slurm counts
    cpus -= int(machine.get("CoreSpecCount") or 0) * threads
    if reserved := machine.get("CPUSpecList"):
        cpus -= len(expand(f"[{cores(reserved)}]"))
    memory = int(machine["real_memory"]) - int(machine.get("MemSpecLimit") or 0)
    whole = cpus // gpus // threads * threads
    return whole or max(cpus // gpus, 1), max(memory // gpus, 1)
