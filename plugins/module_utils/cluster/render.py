# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the lines of Slurm's configuration files from data.

The data are the shared variables (role slurm), from the inventory plugin or written by hand.
Equal nodes become one line, in the order in which they first appear. All problems are ValueErrors that name the entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ..configuration.conf_file import value_text
from ..configuration.node_sets import folded
from ..configuration.parameters import REPEATED, SHARED_GRES
from ..language.formatting import shown
from ..language.hostlist import expand, fold
from .gpu_defaults import with_gpu_defaults
from .machine_types import gres_kinds, gres_names, machine_of, required
from .schema import Settings

Result = TypeVar("Result")

HARDWARE_KEYS = (
    "sockets",
    "cores_per_socket",
    "threads_per_core",
    "real_memory",
    "boards",
    "cpus",
    "tmp_disk",
    "gres",
    "gres_conf",
    "fabric",
)
"""Keys of a machine type that are not spelled as Slurm spells them: the model writes those parameters itself."""

NODE_KEYS = ("hosts", "hardware", "address")
"""Keys of a node entry that are not spelled as Slurm spells them."""

PARTITION_KEYS = ("name", "nodes", "default")
"""Keys of a partition that are not spelled as Slurm spells them."""

_REPEATED = {key.lower() for key in REPEATED}


def _others(entry: Mapping[str, Any], known: Iterable[str]) -> Settings:
    """The parameters of an entry that are spelled as Slurm spells them."""
    return {key: value for key, value in entry.items() if key not in known}


def _line(parameters: Mapping[str, Any]) -> str:
    """`Key=value Key=value`; a parameter that is None is left out."""
    return " ".join(f"{key}={value_text(value)}" for key, value in parameters.items() if value is not None)


def _text(lines: Iterable[str]) -> str:
    """Lines as text, each with a newline."""
    return "".join(f"{line}\n" for line in lines)


def pair(hosts: str, address: str) -> list[tuple[str, str]]:
    """Hosts and their addresses, two hostlists of one length."""
    names, addresses = expand(hosts), expand(address)
    if len(names) != len(addresses):
        raise ValueError(f"{shown(hosts)} has {len(names)} hosts, but {shown(address)} has {len(addresses)} addresses")
    return list(zip(names, addresses))


def _by_type(
    nodes: Iterable[Mapping[str, Any]],
    hardware: Mapping[str, Mapping[str, Any]],
    function: Callable[[Mapping[str, Any]], Result],
) -> Iterator[tuple[Mapping[str, Any], Result]]:
    """Each node entry with the result of a function of its machine type.

    The function is called once for each type, since in a template Ansible processes each value that it reads.
    """
    results: dict[str, Result] = {}
    for node in nodes:
        name = required(node, "hardware")
        if name not in results:
            results[name] = function(machine_of(node, hardware))
        yield node, results[name]


def gres_value(machine: Mapping[str, Any]) -> str | None:
    """The value of a node's Gres, such as `gpu:t4:2,shard:8`, ending with the type's own Gres; None without."""
    counts: dict[str, int] = {}
    for gres in machine.get("gres") or ():
        for kind, count in gres_kinds(gres):
            name = f"{gres['name']}:{kind}" if kind else gres["name"]
            counts[name] = counts.get(name, 0) + count
    own = machine.get("Gres")
    return (
        ",".join([*(f"{name}:{count}" for name, count in counts.items()), *([value_text(own)] if own else [])]) or None
    )


def _gres_records(gres: Mapping[str, Any]) -> list[str]:
    """The lines of an entry in gres.conf, without the nodes.

    Devices that AutoDetect finds need no line of their own: slurm.conf has their number by type (`_merge_gres2` in
    `src/interfaces/gres.c`). Only settings that it cannot find are written: the files to use, and flags.
    """
    autodetect, files = gres.get("autodetect"), gres.get("file")
    if autodetect and not files and not gres.get("flags"):
        return [_line({"AutoDetect": autodetect})]
    return [
        _line(
            {
                "AutoDetect": autodetect,
                "Name": gres["name"],
                "Type": kind,
                "Count": count if not files or gres["name"] in SHARED_GRES else None,
                "File": files,
                "Cores": gres.get("cores"),
                "Links": gres.get("links"),
                "Flags": gres.get("flags"),
            }
        )
        for kind, count in gres_kinds(gres)
    ]


def machine_records(machine: Mapping[str, Any]) -> list[str]:
    """The lines of a machine type in gres.conf, without the nodes and without duplicates."""
    lines = [line for gres in machine.get("gres") or () for line in _gres_records(gres)]
    return list(dict.fromkeys([*lines, *(machine.get("gres_conf") or ())]))


def _machine_parameters(machine: Mapping[str, Any]) -> Settings:
    """The parameters of a NodeName line that come from the machine type."""
    sockets, boards = int(required(machine, "sockets")), int(machine.get("boards") or 1)
    # With more than one board, Slurm reads Sockets as sockets per board.
    topology = {"Boards": boards, "SocketsPerBoard": sockets // boards} if boards > 1 else {"Sockets": sockets}
    return {
        **topology,
        "CoresPerSocket": required(machine, "cores_per_socket"),
        "ThreadsPerCore": required(machine, "threads_per_core"),
        "CPUs": machine.get("cpus"),
        "RealMemory": required(machine, "real_memory"),
        "TmpDisk": machine.get("tmp_disk"),
        **_others(machine, HARDWARE_KEYS),
        "Gres": gres_value(machine),
    }


def node_lines(nodes: Iterable[Mapping[str, Any]], hardware: Mapping[str, Mapping[str, Any]]) -> str:
    """The NodeName lines of slurm.conf."""
    # Nodes with and without an address cannot share a line: NodeAddr must have as many entries as NodeName. Nor can
    # entries whose nodes have a port each.
    equal: dict[tuple[str, bool, str], tuple[list[str], list[str]]] = {}
    for node, machine in _by_type(nodes, hardware, _machine_parameters):
        # Values of the node entry replace those of its machine type.
        parameters = _line({**machine, **_others(node, NODE_KEYS)})
        own = node["hosts"] if re.search("[-,]", str(node.get("Port", ""))) else ""
        names, addresses = equal.setdefault((parameters, bool(node.get("address")), own), ([], []))
        if node.get("address"):
            pairs = pair(required(node, "hosts"), node["address"])
            names.extend(name for name, address in pairs)
            addresses.extend(address for name, address in pairs)
        else:
            names.extend(expand(required(node, "hosts")))
    return _text(
        f"{_line({'NodeName': fold(names), 'NodeAddr': fold(addresses) or None})} {parameters}"
        for (parameters, _addressed, _own), (names, addresses) in equal.items()
    )


def gres_lines(nodes: Iterable[Mapping[str, Any]], hardware: Mapping[str, Mapping[str, Any]]) -> str:
    """The lines of gres.conf."""
    equal: dict[str, list[str]] = {}
    for node, lines in _by_type(nodes, hardware, machine_records):
        for line in lines:
            equal.setdefault(line, []).extend(expand(required(node, "hosts")))
    return _text(f"NodeName={fold(names)} {line}" for line, names in equal.items())


def partition_lines(
    partitions: Iterable[Mapping[str, Any]],
    nodes: Iterable[Mapping[str, Any]] = (),
    hardware: Mapping[str, Mapping[str, Any]] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> str:
    """The PartitionName lines of slurm.conf; the other arguments are those of `with_gpu_defaults`."""
    return _text(
        _line(
            {
                "PartitionName": required(partition, "name"),
                "Nodes": folded(required(partition, "nodes")) or None,
                "Default": partition.get("default"),
                **_others(partition, PARTITION_KEYS),
            }
        )
        for partition in with_gpu_defaults(partitions, nodes, hardware or {}, settings or {})
    )


def slurm_conf(*layers: Mapping[str, Any] | None) -> str:
    """`Key=value` lines of slurm.conf, cgroup.conf and the like.

    A later layer replaces values of an earlier one; keys are compared without case, as Slurm does; None removes a key.
    A list is joined by commas, or has a line for each element where Slurm wants one (REPEATED). An element that is a
    mapping is a line of several parameters: `NodeSet: {NodeSet: fast, Feature: h100}`. Raises ValueError for a key that
    is no text, such as YAML's `on` or `1`.
    """
    merged: dict[str, tuple[str, Any]] = {}
    for layer in layers:
        for key, value in (layer or {}).items():
            if not isinstance(key, str):
                raise ValueError(f"found {key!r} as the name of a parameter, allowed: a text")
            if value is None:
                merged.pop(key.lower(), None)
            else:
                merged[key.lower()] = (merged.get(key.lower(), (key,))[0], value)
    lines: list[str] = []
    for key, value in merged.values():
        values = value if isinstance(value, (list, tuple)) and key.lower() in _REPEATED else [value]
        lines.extend(_line(element if isinstance(element, Mapping) else {key: element}) for element in values)
    return _text(lines)


DERIVED = ("DefMemPerCPU",)
"""Parameters of slurm.conf that follow from the nodes and that a cluster may be without."""


def _resources(machine: Mapping[str, Any]) -> tuple[set[str], int, int, Any]:
    """The names of the generic resources, CPUs, MiB and the MemSpecLimit of a machine type."""
    threads = int(machine["sockets"]) * int(machine["cores_per_socket"]) * int(machine["threads_per_core"])
    return (
        gres_names(machine),
        int(machine.get("cpus") or threads),
        int(machine["real_memory"]),
        machine.get("MemSpecLimit"),
    )


def node_parameters(nodes: Iterable[Mapping[str, Any]], hardware: Mapping[str, Mapping[str, Any]]) -> Settings:
    """The parameters of slurm.conf that follow from the nodes.

    `GresTypes`: the names of all generic resources. `DefMemPerCPU` (MiB): the most that lets a job have every CPU of
    any node without asking for memory; without it, one such job takes all memory of a node where memory is consumable.
    """
    gres_types: set[str] = set()
    memory_per_cpu: list[int] = []
    for node, (names, cpus, memory, reserve) in _by_type(nodes, hardware, _resources):
        gres_types |= names
        memory_per_cpu.append((memory - int(node.get("MemSpecLimit", reserve) or 0)) // cpus)
    parameters: Settings = {"GresTypes": sorted(gres_types)} if gres_types else {}
    return {**parameters, "DefMemPerCPU": min(memory_per_cpu)} if memory_per_cpu else parameters


def host_addresses(addresses: Iterable[Mapping[str, Any]], hosts: Iterable[str] | None = None) -> list[dict[str, str]]:
    """Each host and its address, in order; those of `hosts` alone if these are given."""
    wanted = None if hosts is None else set(hosts)
    return [
        {"name": name, "address": address}
        for entry in addresses
        for name, address in pair(required(entry, "hosts"), required(entry, "address"))
        if wanted is None or name in wanted
    ]


def every_address(
    addresses: Iterable[Mapping[str, Any]], further: Iterable[Mapping[str, Any]], hosts: Iterable[str] | None = None
) -> list[dict[str, str]]:
    """Each name of a host and its address, also of `further_addresses`; those of `hosts` alone if these are given."""
    wanted = None if hosts is None else {*hosts}
    own = [{"host": entry["name"], **entry} for entry in host_addresses(addresses, wanted)]
    more = [
        {"host": host, "name": name, "address": address}
        for entry in further
        for (host, address), name in zip(pair(entry["hosts"], entry["address"]), expand(entry["names"]))
        if wanted is None or host in wanted
    ]
    return own + more


def autodetect_hosts(
    nodes: Iterable[Mapping[str, Any]], hardware: Mapping[str, Mapping[str, Any]], method: str
) -> list[str]:
    """The hosts whose slurmd finds generic resources by a method, such as `nvml`."""

    def uses(machine: Mapping[str, Any]) -> bool:
        """Whether a machine type has the method."""
        return any(gres.get("autodetect") == method for gres in machine.get("gres") or ())

    return [host for node, found in _by_type(nodes, hardware, uses) if found for host in expand(node["hosts"])]


def mig_gres(
    nodes: Iterable[Mapping[str, Any]], hardware: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[Mapping[str, Any]]]:
    """The GPUs of each host that has MIG layouts, by host; of equal nodes it is the same object."""

    def gpus(machine: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The GPUs of a machine type, if one of them has the key `mig`."""
        found = [gres for gres in machine.get("gres") or () if gres.get("name") == "gpu"]
        return found if any("mig" in gres for gres in found) else []

    return {host: found for node, found in _by_type(nodes, hardware, gpus) if found for host in expand(node["hosts"])}
