# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of the health checks of a node, derived from the cluster file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..cluster.machine_types import fabric_ports, gres_count, machine_of
from ..gpu.devices import VENDORS
from ..hardware.network_ports import format_connected
from ..language.hostlist import expand
from .registration import memory_percent


def _gpus(gres: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The device files of all GPUs, the number of GPUs whose vendor lists them, and the number of MIG instances."""
    entries = [entry for entry in gres if entry["name"] == "gpu"]
    files = [file for entry in entries for file in expand(entry.get("file") or "")]
    checked = [vendor for vendor in VENDORS.values() if vendor.list_command]
    methods = {method for vendor in checked for method in vendor.methods}
    detected = [entry for entry in entries if entry.get("autodetect") in methods and not entry.get("file")]
    whole = sum(any(vendor.has_file(file) for vendor in checked) for file in files)
    return {
        "HEALTH_GPU_FILES": " ".join(files),
        "HEALTH_GPUS": str(whole + sum(int(entry.get("count") or 1) for entry in detected)),
        "HEALTH_MIG": str(sum(gres_count(entry) for entry in detected if entry.get("mig"))),
    }


def _ports(machine: Mapping[str, Any]) -> dict[str, str]:
    """The ports of a machine type; nothing without any."""
    ports = fabric_ports(machine)
    return {"HEALTH_PORTS": format_connected(ports)} if ports else {}


def health_environment(
    nodes: Iterable[Mapping[str, Any]], hardware: Mapping[str, Mapping[str, Any]], slurm_conf: Mapping[str, Any]
) -> dict[str, dict[str, str]]:
    """The environment of the checks of each node, by host. Equal nodes share one object.

    `HEALTH_MEMORY` is in MiB, the memory with which slurmctld would accept a node (`node_reg_mem_percent`). Raises
    ValueError if the hardware of a node is not known.
    """
    result = {}
    for node in nodes:
        machine = machine_of(node, hardware)
        memory = int(int(machine["real_memory"]) * memory_percent(node, slurm_conf) / 100)
        environment = {**_gpus(machine.get("gres") or []), **_ports(machine), "HEALTH_MEMORY": str(memory)}
        result.update(dict.fromkeys(expand(node["hosts"]), environment))
    return result
