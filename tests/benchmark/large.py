# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cluster files of any size, as a large site has them: 12 kinds of machines, and nodes that differ from their kind."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import fold

BLOCK = 50
"""Number of nodes in an entry and in a network."""


def _machine(sockets: int, cores: int, memory: int, *gres: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    """A machine type: sockets, cores per socket with two threads each, memory in MiB, and other keys."""
    machine = {"sockets": sockets, "cores_per_socket": cores, "threads_per_core": 2, "real_memory": memory}
    return {**machine, **({"gres": list(gres)} if gres else {}), **parameters}


def _gpus(kind: str, files: str, cores: str) -> dict[str, Any]:
    """GPUs by their device files, next to some cores."""
    return {"name": "gpu", "type": kind, "file": f"/dev/nvidia[{files}]", "cores": cores}


def _found(kind: str, count: int, **layout: Any) -> dict[str, Any]:
    """GPUs that Slurm detects itself."""
    return {"name": "gpu", "type": kind, "count": count, "autodetect": "nvml", **layout}


KINDS: dict[str, dict[str, Any]] = {
    "cpu-small": _machine(2, 16, 191000),
    "cpu-disk": _machine(2, 64, 772000, tmp_disk=900000),
    "cpu-dense": _machine(2, 96, 1547000, CoreSpecCount=4, MemSpecLimit=8192),
    "cpu-boards": _machine(4, 28, 6190000, boards=2),
    "t4": _machine(2, 16, 191000, _gpus("t4", "0-1", "0-15"), _gpus("t4", "2-3", "16-31")),
    "v100": _machine(2, 20, 385000, _gpus("v100", "0-3", "0-39"), Weight=5),
    "a100": _machine(2, 64, 1031000, _gpus("a100", "0-3", "0-63"), _gpus("a100", "4-7", "64-127")),
    "shards": _machine(2, 32, 515000, _gpus("l40s", "0-3", "0-63"), {"name": "shard", "count": 32}),
    "two-types": _machine(2, 32, 515000, _gpus("a40", "0-1", "0-31"), _gpus("a16", "2-5", "32-63")),
    "h100": _machine(2, 56, 2063000, _gpus("h100", "0-7", "0-111"), CoreSpecCount=4, MemSpecLimit=16384),
    "h100-mig": _machine(2, 56, 2063000, _found("h100", 6), _found("h100_80gb_hbm3", 2, mig={"1g.10gb": 7})),
    "b200": _machine(2, 72, 4126000, _found("b200", 8)),
}
"""The kinds of machines."""


def cluster(nodes: int, network: int = 10) -> dict[str, Any]:
    """The data of a cluster file with about as many nodes of each kind.

    In each block, one node has half of the memory, one has a weight, and one has features and a reason of its own.
    `network` is the first number of all addresses of nodes; in network 127 each address is the machine itself.
    """
    hardware: dict[str, dict[str, Any]] = {}
    entries: list[dict[str, Any]] = []
    partitions: list[dict[str, Any]] = [{"name": "all", "nodes": "ALL", "default": True, "MaxTime": "1-00:00:00"}]
    block = 0
    for index, (kind, machine) in enumerate(KINDS.items()):
        hardware |= {kind: machine, f"{kind}-half": {**machine, "real_memory": machine["real_memory"] // 2}}
        names = [f"{kind}-{number:04d}" for number in range((nodes + index) // len(KINDS))]
        partitions.append({"name": kind, "nodes": fold(names), "MaxTime": "2-00:00:00"})
        for first in range(0, len(names), BLOCK):
            own: dict[int, dict[str, Any]] = {
                10: {"hardware": f"{kind}-half"},
                20: {"Weight": 100},
                30: {"Features": ["test"], "Reason": "kept for tests"},
            }
            numbers = range(min(BLOCK, len(names) - first))
            equal: dict[str, Any] = {"Features": [f"row{block}"]}
            for parameters, members in [
                (equal, [number for number in numbers if number not in own]),
                *((own[number], [number]) for number in own if number in numbers),
            ]:
                entries.append(
                    {
                        "hosts": fold([names[first + number] for number in members]),
                        "hardware": kind,
                        "address": fold([f"{network}.1.{block}.{number + 1}" for number in members]),
                        **parameters,
                    }
                )
            block += 1
    return {
        "plugin": "gpucluster.slurm.cluster",
        "name": "scale",
        "controllers": "head",
        "database": "db",
        "login": "login[1-4]",
        "hardware": hardware,
        "nodes": entries,
        "partitions": partitions,
        "addresses": {"head": "10.0.0.1", "db": "10.0.0.2", "login[1-4]": "10.0.0.[11-14]"},
    }
