# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine type of a node in a cluster file, and its generic resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..configuration.conf_file import value_text
from ..configuration.parameters import SHARED_GRES
from ..hardware.network_ports import ConnectedPort, port_name
from ..language.formatting import shown
from ..language.hostlist import expand

_NOT_THERE = ("CLOUD", "FUTURE")
"""States of nodes that Slurm starts when it needs them, or that do not exist yet (slurm.conf(5), State)."""

DETECTED = "detected"
"""The machine type of nodes whose hardware is measured (playbook discover), not declared."""


def required(entry: Mapping[str, Any], key: str) -> Any:
    """The value of a key that an entry must have."""
    if entry.get(key) is None:
        raise ValueError(f"{shown(dict(entry))} has no '{key}'")
    return entry[key]


def machine_of(node: Mapping[str, Any], hardware: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The machine type of a node entry."""
    name = required(node, "hardware")
    if name in hardware:
        return hardware[name]
    if name == DETECTED:
        raise ValueError(f"the hardware of {required(node, 'hosts')} is not known yet: run gpucluster.slurm.discover")
    raise ValueError(f"{required(node, 'hosts')}: unknown hardware '{name}', known: {', '.join(hardware) or 'none'}")


def gres_kinds(gres: Mapping[str, Any]) -> list[tuple[str | None, int]]:
    """The number of devices of a generic resource by type; the type is None if it has none.

    One for each device file, or else the count, or else one. A GPU with a MIG layout has the instances of the layout
    instead of itself; their type is that of the GPU and the profile, as Slurm's NVML plugin joins them
    (`_handle_mig` in `src/plugins/gpu/nvml/gpu_nvml.c`).
    """
    files = gres.get("file") if required(gres, "name") not in SHARED_GRES else None
    count = len(expand(files)) if files else int(gres.get("count") or 1)
    layout: Mapping[str, int] = gres.get("mig") or {}
    if layout:
        return [(f"{required(gres, 'type')}_{profile}", count * instances) for profile, instances in layout.items()]
    return [(gres.get("type"), count)]


def gres_count(gres: Mapping[str, Any]) -> int:
    """The number of devices of a generic resource, of all types."""
    return sum(count for _kind, count in gres_kinds(gres))


def gres_names(machine: Mapping[str, Any]) -> set[str]:
    """The names of a machine type's generic resources, also those in its own Gres."""
    own = value_text(machine.get("Gres") or "").strip('"').split(",")
    return {required(gres, "name") for gres in machine.get("gres") or ()} | {
        name for text in own if (name := text.partition(":")[0].strip())
    }


def fabric_ports(machine: Mapping[str, Any]) -> list[ConnectedPort]:
    """The ports by which a machine is connected to others."""
    return [
        ConnectedPort(port_name(device, entry.get("port", 1)), entry["link"], entry["rate"])
        for entry in (machine.get("fabric") or {}).get("ports", ())
        for device in expand(entry["device"])
    ]


def is_there(node: Mapping[str, Any]) -> bool:
    """Whether the hosts of an entry of the nodes are machines that run, by its State."""
    return str(node.get("State", "")).upper() not in _NOT_THERE
