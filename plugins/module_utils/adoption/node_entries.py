# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine types and the entries of nodes of a cluster that is translated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..cluster import core_specialization, schema
from ..cluster.machine_types import gres_names
from ..configuration import parameters
from ..configuration.conf_file import Pairs
from ..configuration.equivalence import lines_for, node_shape
from ..configuration.meaning import by_key
from ..configuration.parameter_values import whole_number
from ..configuration.sources import SourceLine
from ..language.hostlist import expand, fold
from ..nodes.discovery import type_name
from .cluster_files import ClusterFiles, Entry, plain_value
from .comments import CHANGED, KEPT, LEFT_OUT
from .resources import express

Machine = Entry
"""A machine type, as the cluster file has it."""

_OF_HOST = ("nodeaddr", "nodehostname", "port")
_SIZES = ("boards", "corespersocket", "cpus", "realmemory", "sockets", "socketsperboard", "threadspercore", "tmpdisk")
_OF_MACHINE = {*_SIZES, "gres", "procs"}


@dataclass(frozen=True)
class _EntryHost:
    """What an entry says of each of its hosts."""

    name: str
    address: str
    """Empty if it is the name."""
    port: str
    """Empty without one."""


@dataclass(frozen=True)
class _NodeKind:
    """What an entry says of all of its hosts together."""

    machine: int
    """The place of its machine type."""
    parameters: Entry


@dataclass(frozen=True)
class _Entry:
    """An entry of the cluster file."""

    kind: _NodeKind
    hosts: list[_EntryHost] = field(default_factory=list)

    def content(self, hardware: str) -> Entry:
        """The entry, with the name of its machine type."""
        ports = [host.port for host in self.hosts]
        port = ports[0] if len({*ports}) == 1 else fold(ports)
        return {
            "hosts": fold([host.name for host in self.hosts]),
            "hardware": hardware,
            **({"address": fold([host.address for host in self.hosts])} if self.hosts[0].address else {}),
            **({"Port": plain_value(port)} if port else {}),
            **self.kind.parameters,
        }


def translate_nodes(source: ClusterFiles) -> tuple[dict[str, Machine], list[Entry]]:
    """The machine types by name, and the entries of nodes, equal ones together."""
    types: list[Machine] = []
    kinds: dict[tuple[Any, ...], _NodeKind] = {}
    entries: dict[tuple[Any, ...], _Entry] = {}
    everywhere = source.says.gres.get("", ())
    for name, pairs in source.says.nodes.items():
        line, shared = source.of_nodes[name], tuple(pair for pair in pairs if pair[0].lower() not in _OF_HOST)
        texts = lines_for(by_key(shared).get("gres", ""), source.says.gres.get(name, ()), everywhere)
        if (line, shared, texts) not in kinds:
            machine, others = _translate_node(source, line, shared, texts)
            if machine not in types:
                types.append(machine)
            kinds[line, shared, texts] = _NodeKind(types.index(machine), others)
        kind, own = kinds[line, shared, texts], _values_of_host(pairs)
        address = own.get("nodeaddr", "") or own.get("nodehostname", "")
        host = _EntryHost(name, "" if address == name else address, own.get("port", ""))
        # Ports of several lines are not one list.
        place = (kind.machine, repr(kind.parameters), bool(host.address), line if "port" in own else None)
        entries.setdefault(place, _Entry(kind)).hosts.append(host)
    _comment_on_host_names(source)
    _comment_on_unused_resources(source)
    names = _name_types(types)
    return dict(zip(names, types)), [entry.content(names[entry.kind.machine]) for entry in entries.values()]


def _values_of_host(pairs: Pairs) -> dict[str, str]:
    """The parameters that each host of a line has for itself."""
    return by_key(tuple(pair for pair in pairs if pair[0].lower() in _OF_HOST))


def _comment_on_host_names(source: ClusterFiles) -> None:
    """Comments on nodes that have another name than their hosts."""
    nodes: dict[SourceLine, list[str]] = {}
    for name, pairs in source.says.nodes.items():
        if _values_of_host(pairs).get("nodehostname", name) != name:
            nodes.setdefault(source.of_nodes[name], []).append(name)
    for line, names in nodes.items():
        source.add_comment(LEFT_OUT, line, "NodeHostname", "a node is named as its host", "NodeName", fold(names))


def _translate_node(
    source: ClusterFiles, line: SourceLine, pairs: Pairs, gres_texts: tuple[str, ...]
) -> tuple[Machine, Entry]:
    """The machine type of a node, and its other parameters."""
    subject = line.pairs[0][1]
    values = by_key(pairs)
    machine = _translate_machine(source, line, values)
    resources = express(values.get("gres", ""), gres_texts, machine)
    keys = {"gres": resources.entries, "Gres": resources.text, "gres_conf": resources.texts}
    machine |= {key: value for key, value in keys.items() if value}
    if resources.text:
        why = f"{resources.text} stays in Slurm's notation: the collection neither measures nor validates it"
        source.add_comment(KEPT, source.find_place(line, "Gres"), "Gres", why, "NodeName", subject)
    others: Entry = {}
    for key, text in pairs:
        if key.lower() in _OF_MACHINE:
            continue
        name = source.find_name("NodeName", key, text, source.find_place(line, key), schema.NODE, subject)
        if name:
            others[name] = plain_value(text)
    for key, what in [*core_specialization.problems(others, machine)]:
        place = source.find_place(line, key)
        if (
            key == "CoreSpecCount"
            and "CPUSpecList" not in others
            and machine["sockets"] * machine["cores_per_socket"] > 1
        ):
            others[key] = 1
            source.add_comment(CHANGED, place, key, f"Slurm uses 1: {what}", "NodeName", subject)
        elif key in others:
            del others[key]
            source.add_comment(LEFT_OUT, place, key, f"Slurm ignores it: {what}", "NodeName", subject)
    return machine, others


def _translate_machine(source: ClusterFiles, line: SourceLine, values: Mapping[str, str]) -> Machine:
    """The shape and memory of a node, as Slurm derives them (`_parse_nodename` in `src/common/read_config.c`)."""
    subject = line.pairs[0][1]
    numbers = {key: max(whole_number(values[key], suffix=True), 0) for key in _SIZES if key in values}
    if "procs" in values and "cpus" not in values:
        numbers["cpus"] = max(whole_number(values["procs"]), 0)
    shape = node_shape(numbers)
    for key in ("boards", "cpus"):
        if key in numbers and max(numbers[key], 1) != shape[key]:
            name = parameters.FILES["NodeName"][key].name
            what = f"found {numbers[key]}, which fits no sockets, cores or threads: Slurm uses {shape[key]}"
            source.add_comment(CHANGED, source.find_place(line, key), name, what, "NodeName", subject)
    threads = shape["sockets"] * shape["cores"] * shape["threads"]
    if not numbers.get("realmemory"):
        missing = "missing: Slurm takes 1 MiB, and so does the cluster file"
        what = "found 0, and the cluster file has 1" if "realmemory" in values else missing
        why = f"{what}; measure it with the playbook discover"
        source.add_comment(CHANGED, line, "RealMemory", why, "NodeName", subject)
    return {
        "sockets": shape["sockets"],
        "cores_per_socket": shape["cores"],
        "threads_per_core": shape["threads"],
        **({"cpus": shape["cpus"]} if shape["cpus"] != threads else {}),
        **({"boards": shape["boards"]} if shape["boards"] > 1 else {}),
        "real_memory": numbers.get("realmemory") or 1,
        **({"tmp_disk": numbers["tmpdisk"]} if numbers.get("tmpdisk") else {}),
    }


def _comment_on_unused_resources(source: ClusterFiles) -> None:
    """Comments on lines of gres.conf for nodes that do not have their resources."""
    names = {node: _name_resources(pairs) for node, pairs in source.says.nodes.items()}
    for line in source.lines["gres.conf"]:
        values = {key.lower(): value for key, value in line.pairs}
        nodes = expand(values["nodename"]) if "nodename" in values else names
        name = values.get("name", "gpu")
        if not any(name in names.get(node, ()) for node in nodes):
            why = f"no node of the line has {name} in its Gres, so that Slurm does not use it"
            source.add_comment(LEFT_OUT, line, "Name", why, "gres.conf")


def _name_resources(pairs: Pairs) -> set[str]:
    """The names in the Gres of a node."""
    value = next((value for key, value in pairs if key.lower() == "gres"), "")
    return {part.partition(":")[0] for part in value.split(",")}


def drop_resource_types(source: ClusterFiles, conf: Entry, hardware: Mapping[str, Machine]) -> None:
    """Leave GresTypes to the collection where it has the names of the nodes; Slurm drops names that it lacks."""
    wanted = set().union(*map(gres_names, hardware.values())) if hardware else set()
    given = {name.strip() for name in str(conf.get("GresTypes", "")).split(",") if name.strip()}
    if missing := sorted(wanted - given):
        why = f"{', '.join(missing)} of the nodes is added, which Slurm has ignored"
        source.add_comment(CHANGED, "slurm.conf", "GresTypes", why, "slurm.conf")
    if given <= wanted:
        conf.pop("GresTypes", None)
    elif missing:
        conf["GresTypes"] = sorted(wanted | given)


def _name_types(types: list[Machine]) -> list[str]:
    """A name for each machine type; a number tells equal ones apart."""
    names: list[str] = []
    for machine in types:
        base = re.sub("[^A-Za-z0-9._-]", "-", type_name(machine))
        name, number = base, 1
        while name in names:
            number += 1
            name = f"{base}-{number}"
        names.append(name)
    return names
