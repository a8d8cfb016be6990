# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machine types and nodes of the cluster file, and those that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..configuration.parameter_values import LIMITS
from ..language.formatting import short, shown
from ..language.hostlist import MAX_HOSTS, count, expand, fold
from . import core_specialization, gres, schema
from .machine_types import DETECTED, fabric_ports
from .schema import Checker, Fabric, MachineType, NodeEntry, unknown


@dataclass(frozen=True)
class MeasuredHardware:
    """The hardware that was measured."""

    hardware: dict[str, MachineType] = field(default_factory=dict)
    """Machine types by name."""
    types: dict[str, str] = field(default_factory=dict)
    """The machine type of each host."""


def check_hardware(checker: Checker, found: Mapping[str, Any]) -> dict[str, MachineType]:
    """The machine types by name."""
    hardware = {}
    for name, value in found.items():
        key = f"hardware.{name}"
        machine = checker.check(schema.HARDWARE, key, value)
        if name == DETECTED:
            checker.problem(key, f"'{DETECTED}' stands for hardware that is measured, choose another name")
        try:
            schema.name(name)
        except ValueError as error:
            checker.problem(key, f"found {shown(name)}, {error}")
        _check_cpus(checker, key, machine)
        if "gres" in machine:
            machine["gres"] = gres.check_machine(checker, f"{key}.gres", machine)
        gres.check_own(checker, key, machine)
        if "fabric" in machine:
            machine["fabric"] = _check_fabric(checker, f"{key}.fabric", machine["fabric"])
        hardware[str(name)] = machine
    return hardware


def _check_fabric(checker: Checker, key: str, found: Any) -> Fabric:
    """The valid parts of what connects a machine type to others."""
    fabric = checker.check(schema.FABRIC, key, found)
    before, seen = len(checker.problems), set()
    ports = [
        checker.check(schema.FABRIC_PORT, f"{key}.ports[{i}]", port) for i, port in enumerate(fabric.get("ports", ()))
    ]
    if len(checker.problems) > before:
        return {"ports": []}
    for i, entry in enumerate(ports):
        for port in fabric_ports({"fabric": {"ports": [entry]}}):
            if port.name in seen:
                checker.problem(f"{key}.ports[{i}].device", f"found {port.name}, which is listed twice")
            seen.add(port.name)
    return {"ports": ports}


def _check_cpus(checker: Checker, key: str, machine: Mapping[str, Any]) -> None:
    """Check the numbers of boards, sockets and CPUs of a machine type."""
    sockets, boards = machine.get("sockets", 0), machine.get("boards", 1)
    if sockets % boards:
        checker.problem(f"{key}.sockets", f"found {sockets}, allowed: a multiple of boards, {boards}")
    cores = sockets * machine.get("cores_per_socket", 1)
    cpus = cores * machine.get("threads_per_core", 1)
    if machine.get("cpus", cpus) not in (sockets, cores, cpus):  # else Slurm corrects it (`_parse_nodename`)
        allowed = ", ".join(map(str, sorted({sockets, cores, cpus})))
        checker.problem(f"{key}.cpus", f"found {machine['cpus']}, allowed: {allowed}")
    if cpus > LIMITS["u16"]:  # slurm_conf_node_t in read_config.h
        checker.problem(key, f"found {cpus} CPUs, allowed: up to {LIMITS['u16']}")


def check_measured(checker: Checker, found: Any) -> MeasuredHardware:
    """The machine types that were measured, and the type of each host."""
    file = checker.check(schema.DETECTED_FILE, "", found)
    hardware = check_hardware(checker, file.get("hardware", {}))
    nodes = [checker.check(schema.DETECTED_NODE, f"nodes[{i}]", node) for i, node in enumerate(file.get("nodes", []))]
    check_hosts_of_nodes(checker, nodes)
    types: dict[str, str] = {}
    for i, node in enumerate(nodes):
        name = node.get("hardware")
        if name is not None and name not in hardware:
            what = unknown("machine type", name, hardware, ", ".join(hardware))
            checker.problem(f"nodes[{i}].hardware", f"found {shown(name)}, {what}")
        types.update(dict.fromkeys(expand(node.get("hosts", "")), str(name)))
    return MeasuredHardware(hardware, types)


def check_nodes(checker: Checker, found: list[Any], hardware: Mapping[str, Any]) -> list[NodeEntry]:
    """The valid parts of the entries of nodes; none if there are more nodes than Slurm allows."""
    if not _has_few_nodes(checker, found):
        return []
    nodes = [checker.check(schema.NODE, f"nodes[{i}]", node) for i, node in enumerate(found)]
    for i, node in enumerate(nodes):
        if node.get("hardware", DETECTED) not in {*hardware, DETECTED}:
            what = unknown("machine type", node["hardware"], hardware, ", ".join({**hardware, DETECTED: None}))
            checker.problem(f"nodes[{i}].hardware", f"found {shown(node['hardware'])}, {what}")
    return nodes


def _has_few_nodes(checker: Checker, nodes: list[Any]) -> bool:
    """Whether a cluster has at most the nodes that Slurm allows. They are counted before their names are expanded."""
    number = 0
    for node in nodes:
        if isinstance(node, Mapping) and isinstance(node.get("hosts"), str):
            with suppress(ValueError):  # the check of the entry names it
                number += count(node["hosts"])
    if number > MAX_HOSTS:
        checker.problem("nodes", f"found {number} hosts, allowed: up to {MAX_HOSTS}")
    return number <= MAX_HOSTS


def check_specialized(
    checker: Checker,
    nodes: list[NodeEntry],
    types: dict[str, str],
    hardware: dict[str, MachineType],
) -> None:
    """Check the cores and memory that nodes set aside for the system, on each of their machine types."""
    for i, node in enumerate(nodes):
        hosts = expand(node.get("hosts", ""))
        names = {types.get(host) for host in hosts} if node.get("hardware") == DETECTED else {node.get("hardware")}
        machines = [hardware[str(name)] for name in sorted(map(str, names)) if name in hardware]
        found = [
            problem
            for machine in machines
            if schema.HARDWARE.required <= machine.keys()  # else it has a problem of its own
            for problem in core_specialization.problems(node, machine)
        ]
        for key, what in dict.fromkeys(found):
            checker.problem(f"nodes[{i}].{key}", what)


def check_hosts_of_nodes(checker: Checker, nodes: list[NodeEntry]) -> list[str]:
    """The hosts of all nodes, in order. A host must not be in two entries."""
    entry: dict[str, int] = {}
    for i, node in enumerate(nodes):
        hosts = expand(node.get("hosts", ""))
        again = [host for host in hosts if host in entry]
        for j in dict.fromkeys(entry[host] for host in again):
            twice = short(fold([host for host in again if entry[host] == j]))
            checker.problem(f"nodes[{i}].hosts", f"{twice} is defined twice, first in {checker.key(f'nodes[{j}]')}")
        entry.update((host, i) for host in hosts if host not in entry)
    return list(entry)


def check_labels(checker: Checker, nodes: list[NodeEntry], servers: Mapping[str, str]) -> None:
    """Check that no two hosts have the same first label, the part of a name before its first dot.

    srun, salloc and scontrol name their host by this label (`xshort_hostname`), and slurmctld sends its messages for an
    srun to the address of the label. srun ends its step at the message that a step is complete, whichever step that is
    (`_job_complete_handler` in `src/api/step_launch.c`). slurmd tries the label before the whole name.
    """
    places = [(f"nodes[{i}].hosts", node.get("hosts", "")) for i, node in enumerate(nodes)]
    places += servers.items()
    first: dict[str, str] = {}
    for key, hosts in places:
        for host in expand(hosts):
            label, _dot, rest = host.partition(".")
            other = first.setdefault(label, host)
            if other != host:
                names = " and ".join(map(shown, (other, host)))
                why = f"Slurm calls both hosts {shown(label)}, the part before the first dot"
                example = f", such as {rest}" if label not in (host, other) else ""
                checker.problem(key, f"found {names}, {why}, allowed: host names that differ before it{example}")
                break


def split_by_type(node: NodeEntry, types: dict[str, str]) -> list[NodeEntry]:
    """A node entry, split by the machine types that were measured; hosts without one stay `detected`."""
    if node["hardware"] != DETECTED:
        return [node]
    hosts = expand(node["hosts"])
    addresses = expand(node.get("address", "")) or [""] * len(hosts)
    split: dict[str, tuple[list[str], list[str]]] = {}
    for host, address in zip(hosts, addresses):
        names, theirs = split.setdefault(types.get(host, DETECTED), ([], []))
        names.append(host)
        theirs.append(address)
    return [
        {**node, "hosts": fold(names), "hardware": hardware, **({"address": fold(theirs)} if "address" in node else {})}
        for hardware, (names, theirs) in split.items()
    ]
