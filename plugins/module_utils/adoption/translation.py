# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the files of a cluster that exists to a cluster file that means the same.

Nothing is dropped silently: each parameter is in the cluster file, or there is a note about it, with its file and line.
The cluster file is neutral: a value that the collection would set, and that the files do not have, is taken away with
null, so that the cluster stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.resources import express
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import core_specialization, render, schema
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.machine_types import gres_names
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, ModelError, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import parameters
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import Pairs, table_of
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.equivalence import lines_for, node_shape
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.meaning import by_key, is_yes
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.node_sets import (
    folded,
    functions,
    is_all,
    names_in,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables.defaults import (
    SLURM_DEFAULTS,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_values import whole_number
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.sources import (
    TRANSLATED,
    Files,
    SourceError,
    SourceLine,
    configuration_of,
    other_files,
    source_lines,
    whole_text,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import expand, fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.discovery import type_name
from ansible_collections.gpucluster.slurm.plugins.module_utils.texts import shown

LEFT_OUT = "left out"
"""It is not in the cluster file."""
KEPT = "kept"
"""It is in the cluster file as it is, and the collection does not manage it."""
CHANGED = "changed"
"""The cluster file says it otherwise."""

Machine = dict[str, Any]


@dataclass(frozen=True)
class Note:
    """What became of a parameter that the cluster file does not say in the same way."""

    effect: str
    """LEFT_OUT, KEPT or CHANGED."""
    place: str
    """Its file and line, `slurm.conf:12`."""
    table: str
    """The table of parameters that it is in: a file, NodeName or PartitionName."""
    subject: str
    """The nodes (a hostlist) or the partition; empty for a parameter of the whole file."""
    key: str
    why: str

    def __str__(self) -> str:
        subject = f"{self.table}={self.subject} " if self.subject else ""
        return f"{self.place}: {subject}{self.key}: {self.effect}: {self.why}"


@dataclass
class Adoption:
    """A cluster file, and the notes about it."""

    cluster: dict[str, Any]
    """The content of the cluster file."""
    notes: list[Note]
    unset: list[str]
    """Parameters of slurm.conf and cgroup.conf that the collection would set and the cluster does not have."""
    problems: list[str]
    """What the model finds wrong in the cluster file: a person has to correct it."""


def adopt(files: Files, defaults: Mapping[str, Iterable[str]], version: str) -> Adoption:
    """The cluster file of a cluster.

    Args:
        files: its files, `slurm.conf` and others.
        defaults: the names of the parameters that the collection sets by itself, by file.
        version: of its Slurm, such as 24.11.5.

    Raises:
        SourceError: a file cannot be read, or the cluster has no name or no controller.
        ValueError: the version is not known.
    """
    return _Translation(files, defaults, version).result()


@dataclass
class _Translation:
    files: Files
    defaults: Mapping[str, Iterable[str]]
    version: str
    notes: list[Note] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines = {name: source_lines(self.files, name) for name in TRANSLATED}
        if not self.lines["slurm.conf"]:
            raise SourceError(["slurm.conf: missing, or it has no lines"])
        self.says = configuration_of(self.lines)
        self.of_nodes: dict[str, SourceLine] = {}
        self.of_partitions: dict[str, SourceLine] = {}
        self.of_defaults: list[SourceLine] = []
        self._find_places()

    def result(self) -> Adoption:
        """The cluster file."""
        conf = self._settings("slurm.conf", schema.SLURM_CONF)
        name, controllers, controller_addresses = self._controllers()
        hardware, nodes = self._nodes()
        node_names = [host for node in nodes for host in expand(node["hosts"])]
        controllers = self._own_labels(controllers, node_names)
        partitions = self._partitions(node_names, conf)
        self._resource_types(conf, hardware)
        unset = self._neutral("slurm.conf", conf, render.DERIVED)
        cgroup_conf = self._settings("cgroup.conf", schema.CGROUP_CONF)
        unset += self._neutral("cgroup.conf", cgroup_conf)
        self._unmanaged()
        cluster: dict[str, Any] = {
            "plugin": schema.PLUGIN,
            "name": name,
            "controllers": ",".join(controllers),
            "hardware": hardware,
            "nodes": nodes,
            "partitions": partitions,
            "addresses": self._addresses(controllers, controller_addresses, nodes),
            "slurm_conf": conf,
            "cgroup_conf": cgroup_conf,
            "plugstack": self._plugstack(),
            "slurm_files": self._other_files(conf),
        }
        needed = ("plugin", "name", "controllers", "nodes", "partitions")
        cluster = {key: value for key, value in cluster.items() if value or key in needed}
        problems: list[str] = []
        try:
            load(Document("the cluster file", cluster))
        except ModelError as error:
            problems = error.problems
        return Adoption(cluster, _merged(self.notes), unset, problems)

    def _note(self, effect: str, line: SourceLine | str, key: str, why: str, table: str, subject: str = "") -> None:
        """Add a note."""
        self.notes.append(Note(effect, str(line), table, subject, key, why))

    def _find_places(self) -> None:
        """The lines of nodes and partitions. Of two lines for one of them, Slurm refuses to start with the second."""
        for line in self.lines["slurm.conf"]:
            kind, name = table_of("slurm.conf", line.pairs), line.pairs[0][1]
            if name.upper() == "DEFAULT":
                self.of_defaults.append(line)
            elif kind == "NodeName":
                again = [host for host in expand(name) if host in self.of_nodes]
                if again:
                    first = self.of_nodes[again[0]]
                    self._note(LEFT_OUT, first, "NodeName", f"it is there again in {line}", kind, fold(again))
                self.of_nodes.update(dict.fromkeys(expand(name), line))
            elif kind == "PartitionName":
                if name in self.of_partitions:
                    first = self.of_partitions[name]
                    self._note(LEFT_OUT, first, "PartitionName", f"it is there again in {line}", kind, name)
                self.of_partitions[name] = line

    def _place(self, line: SourceLine, key: str) -> SourceLine:
        """The line that gives a node or a partition a parameter: its own, or the last DEFAULT before it that has it."""
        lines = self.lines["slurm.conf"]
        earlier = lines[: lines.index(line)]
        given = [
            other
            for other in self.of_defaults
            if other.pairs[0][0].lower() == line.pairs[0][0].lower() and other in earlier
        ]
        return next(
            (place for place in (line, *reversed(given)) if key.lower() in (name.lower() for name, _ in place.pairs)),
            line,
        )

    # -- parameters of a whole file ------------------------------------------------------------------------------

    def _settings(self, file: str, kind: schema.Kind) -> dict[str, Any]:
        """The parameters of a file, in its order, by name in Slurm's spelling."""
        found: dict[str, tuple[SourceLine, Any]] = {}
        for line in self.lines[file]:
            first = line.pairs[0][0].lower()
            if table_of(file, line.pairs) in ("NodeName", "PartitionName"):
                continue
            if first == "frontendname":
                self._note(LEFT_OUT, line, "FrontendName", "the collection has no front ends", file)
                continue
            own = next((name for name in parameters.LINES if name.lower() == first), None)
            given: Iterable[tuple[str, Any]] = line.pairs
            if own and file == "slurm.conf":
                given = [(own, self._of_line(own, line))]
            for key, value in given:
                if value is None or key.lower() in _CONTROLLERS:
                    continue
                name = self._known(file, key, value, line, kind)
                if name and name in parameters.REPEATED and name in found:
                    before = found[name][1]
                    value = [*(before if isinstance(before, list) else [before]), value]
                elif name and name in found:
                    self._note(LEFT_OUT, found[name][0], name, f"{line} sets it again, and Slurm uses the last", file)
                if name:
                    found[name] = (line, value)
        return {name: _plain(value) for name, (_line, value) in found.items()}

    def _of_line(self, table: str, line: SourceLine) -> dict[str, Any] | None:
        """A line with parameters of its own, such as NodeSet=; None if there is nothing left of it."""
        found: dict[str, Any] = {}
        for key, value in line.pairs:
            parameter = parameters.find(table, key)
            if parameter is None:
                self._note(LEFT_OUT, line, key, "Slurm has no such parameter", "slurm.conf")
            elif why := parameters.unread(table, key, self.version):
                self._note(LEFT_OUT, line, key, why, "slurm.conf")
            else:
                found[parameter.name] = value
        return found if table in found else None

    def _known(self, table: str, key: str, value: Any, line: SourceLine, kind: schema.Kind) -> str | None:
        """The name of a parameter in Slurm's spelling; None, with a note, if it cannot be in the cluster file."""
        parameter = parameters.find(table, key)
        if parameter is None:
            self._note(LEFT_OUT, line, key, "Slurm has no such parameter", table)
            return None
        why = parameters.unread(table, key, self.version) or _refused(kind, parameter.name, value)
        if why:
            self._note(LEFT_OUT, line, parameter.name, why, table)
            return None
        return parameter.name

    def _neutral(self, file: str, conf: dict[str, Any], others: Iterable[str] = ()) -> list[str]:
        """Take away what the collection would set and the cluster does not have; returns these parameters."""
        unset = [key for key in (*self.defaults[file], *others) if key not in conf]
        for key in unset:
            conf[key] = SLURM_DEFAULTS.get(key)
        return unset

    def _unmanaged(self) -> None:
        """Say what stays with the site though the collection could have a part in it."""
        for line in self.lines["slurm.conf"]:
            for key, value in line.pairs:
                if key.lower() == "accountingstoragetype" and value.lower().endswith("slurmdbd"):
                    why = "slurmdbd and its database stay as they are; the key database would let site.yml manage them"
                    self._note(KEPT, line, "AccountingStorageType", why, "slurm.conf")

    # -- name and controllers ------------------------------------------------------------------------------------

    def _controllers(self) -> tuple[str, list[str], dict[str, str]]:
        """The name of the cluster, its controllers, and the addresses that the files have for these."""
        found: dict[str, tuple[SourceLine, str]] = {}
        hosts: list[str] = []
        addresses: dict[str, str] = {}
        for line in self.lines["slurm.conf"]:
            for key, value in line.pairs:
                if key.lower() == "slurmctldhost":
                    host, _parenthesis, address = value.partition("(")
                    hosts.append(host.strip())
                    addresses.update({host.strip(): address.rstrip(") ")} if address else {})
                elif key.lower() in _CONTROLLERS:
                    found[key.lower()] = (line, value)
        if not hosts:  # the names that these had before SlurmctldHost
            for key, address_key in (("controlmachine", "controladdr"), ("backupcontroller", "backupaddr")):
                if key in found:
                    hosts.append(found[key][1])
                    addresses.update({hosts[-1]: found[address_key][1]} if address_key in found else {})
        else:
            for key in ("controlmachine", "controladdr", "backupcontroller", "backupaddr"):
                if key in found:
                    why = "Slurm uses SlurmctldHost"
                    self._note(LEFT_OUT, found[key][0], parameters.FILES["slurm.conf"][key].name, why, "slurm.conf")
        problems = []
        name = found["clustername"][1].lower() if "clustername" in found else ""
        try:
            schema.cluster_name(name)
        except ValueError as error:
            place = f"{found['clustername'][0]}: " if name else "slurm.conf: "
            problems.append(f"{place}ClusterName: {f'found {shown(name)}' if name else 'missing'}, {error}")
        if not hosts:
            problems.append("slurm.conf: SlurmctldHost: missing")
        if problems:
            raise SourceError(problems)
        return name, hosts, {host: address for host, address in addresses.items() if address != host}

    def _own_labels(self, controllers: list[str], nodes: list[str]) -> list[str]:
        """Controllers by the names that their nodes have: `head` and `head.example.org` are one host to Slurm."""
        labels = {node.partition(".")[0]: node for node in nodes}
        names = [labels.get(host.partition(".")[0], host) for host in controllers]
        for host, name in zip(controllers, names):
            if host != name:
                why = f"{name}, as its node is called: a host has one name"
                self._note(CHANGED, "slurm.conf", "SlurmctldHost", f"{host} is {why}", "slurm.conf")
        return names

    def _addresses(
        self, controllers: list[str], addresses: Mapping[str, str], nodes: list[dict[str, Any]]
    ) -> dict[str, str]:
        """The addresses of controllers. A host has one address: that of its node, if it has one."""
        of_nodes = {
            host: address
            for node in nodes
            if "address" in node
            for host, address in zip(expand(node["hosts"]), expand(node["address"]))
        }
        for host in controllers:
            own = addresses.get(host)
            if host in of_nodes and own != of_nodes[host]:
                why = f"its address is that of its node, {of_nodes[host]}, and not {own or 'its name'}: a host has one"
                self._note(CHANGED, self.of_nodes[host], "SlurmctldHost", f"{host}: {why}", "slurm.conf")
        return {host: addresses[host] for host in controllers if host in addresses and host not in of_nodes}

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _nodes(self) -> tuple[dict[str, Machine], list[dict[str, Any]]]:
        """The machine types by name, and the entries of nodes, equal ones together."""
        types: list[Machine] = []
        entries: dict[tuple[Any, ...], list[tuple[str, str, str]]] = {}
        made: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}
        renamed: dict[SourceLine, list[str]] = {}
        everywhere = self.says.gres.get("", ())
        for name, pairs in self.says.nodes.items():
            line, own = self.of_nodes[name], by_key(tuple(pair for pair in pairs if pair[0].lower() in _OWN))
            shared = tuple(pair for pair in pairs if pair[0].lower() not in _OWN)
            value = by_key(shared).get("gres", "")
            key = (line, shared, lines_for(value, self.says.gres.get(name, ()), everywhere))
            if key not in made:
                machine, rest = self._node(line, shared, key[2])
                if machine not in types:
                    types.append(machine)
                made[key] = (types.index(machine), rest)
            number, rest = made[key]
            address = own.get("nodeaddr", "") or own.get("nodehostname", "")
            address = "" if address == name else address
            if own.get("nodehostname", name) != name:
                renamed.setdefault(line, []).append(name)
            place = (number, repr(rest), bool(address), "port" in own)
            entries.setdefault((*place, line if "port" in own else None), []).append(
                (name, address, own.get("port", ""))
            )
        for line, hosts_of_line in renamed.items():
            self._note(LEFT_OUT, line, "NodeHostname", "a node is named as its host", "NodeName", fold(hosts_of_line))
        self._unused_resources()
        names = _names_of(types)
        rests = {(number, repr(rest)): rest for number, rest in made.values()}
        nodes = []
        for (number, text, *_place), hosts in entries.items():
            ports = [port for _name, _address, port in hosts]
            port = ports[0] if len({*ports}) == 1 else fold(ports)
            nodes.append(
                {
                    "hosts": fold([name for name, _address, _port in hosts]),
                    "hardware": names[number],
                    **({"address": fold([address for _name, address, _port in hosts])} if hosts[0][1] else {}),
                    **({"Port": _plain(port)} if port else {}),
                    **rests[number, text],
                }
            )
        return dict(zip(names, types)), nodes

    def _node(self, line: SourceLine, pairs: Pairs, gres_texts: tuple[str, ...]) -> tuple[Machine, dict[str, Any]]:
        """The machine type of a node, and its other parameters."""
        subject = line.pairs[0][1]
        values = by_key(pairs)
        machine = self._machine(line, values)
        value = values.get("gres", "")
        resources = express(value, gres_texts, machine)
        machine |= {"gres": resources.entries} if resources.entries else {}
        machine |= {"Gres": resources.text} if resources.text else {}
        machine |= {"gres_conf": resources.texts} if resources.texts else {}
        if resources.text:
            why = f"{resources.text} in words of Slurm: the collection neither measures nor validates it"
            self._note(KEPT, self._place(line, "Gres"), "Gres", why, "NodeName", subject)
        rest: dict[str, Any] = {}
        for key, text in pairs:
            if key.lower() in _OF_MACHINE:
                continue
            name = self._known_of("NodeName", key, text, line, schema.NODE, subject)
            if name:
                rest[name] = _plain(text)
        for key, what in [*core_specialization.problems(rest, machine)]:
            if key in rest:
                del rest[key]
                self._note(LEFT_OUT, self._place(line, key), key, f"Slurm ignores it: {what}", "NodeName", subject)
        return machine, rest

    def _known_of(
        self, table: str, key: str, value: str, line: SourceLine, kind: schema.Kind, subject: str
    ) -> str | None:
        """As `_known`, for a parameter of a node or a partition."""
        before = len(self.notes)
        name = self._known(table, key, value, self._place(line, key), kind)
        self.notes[before:] = [
            Note(note.effect, note.place, table, subject, note.key, note.why) for note in self.notes[before:]
        ]
        return name

    def _machine(self, line: SourceLine, values: Mapping[str, str]) -> Machine:
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
                self._note(CHANGED, self._place(line, key), name, what, "NodeName", subject)
        threads = shape["sockets"] * shape["cores"] * shape["threads"]
        if "realmemory" not in values:
            why = "missing: Slurm takes 1 MiB, and so does the cluster file; measure it with the playbook discover"
            self._note(CHANGED, line, "RealMemory", why, "NodeName", subject)
        return {
            "sockets": shape["sockets"],
            "cores_per_socket": shape["cores"],
            "threads_per_core": shape["threads"],
            **({"cpus": shape["cpus"]} if shape["cpus"] != threads else {}),
            **({"boards": shape["boards"]} if shape["boards"] > 1 else {}),
            "real_memory": numbers.get("realmemory") or 1,
            **({"tmp_disk": numbers["tmpdisk"]} if numbers.get("tmpdisk") else {}),
        }

    def _unused_resources(self) -> None:
        """Lines of gres.conf for nodes that do not have them."""
        for line in self.lines["gres.conf"]:
            values = {key.lower(): value for key, value in line.pairs}
            nodes = expand(values["nodename"]) if "nodename" in values else [*self.says.nodes]
            name = values.get("name", "gpu")
            users = [
                node
                for node in nodes
                if name in {part.partition(":")[0] for part in _gres_of(self.says.nodes.get(node, ())).split(",")}
            ]
            if not users:
                why = f"no node of the line has {name} in its Gres, so that Slurm does not use it"
                self._note(LEFT_OUT, line, "Name", why, "gres.conf")

    def _resource_types(self, conf: dict[str, Any], hardware: Mapping[str, Machine]) -> None:
        """Leave GresTypes to the collection where it has the names of the nodes; Slurm drops names that it lacks."""
        wanted = set().union(*map(gres_names, hardware.values())) if hardware else set()
        given = {name.strip() for name in str(conf.get("GresTypes", "")).split(",") if name.strip()}
        if missing := sorted(wanted - given):
            why = f"with {', '.join(missing)} of the nodes, which Slurm leaves out"
            self._note(CHANGED, "slurm.conf", "GresTypes", why, "slurm.conf")
        if given <= wanted:
            conf.pop("GresTypes", None)
        elif missing:
            conf["GresTypes"] = sorted(wanted | given)

    # -- partitions ----------------------------------------------------------------------------------------------

    def _partitions(self, nodes: list[str], conf: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The partitions, in their order."""
        sets = conf.get("NodeSet") or []
        known = {*nodes, *(str(line["NodeSet"]) for line in (sets if isinstance(sets, list) else [sets]))}
        defaults = [name for name, pairs in self.says.partitions.items() if is_yes(by_key(pairs).get("default", ""))]
        result = []
        for name, pairs in self.says.partitions.items():
            line = self.of_partitions[name]
            if why := _wrong(schema.partition_name, name):
                self._note(LEFT_OUT, line, "PartitionName", why, "PartitionName", name)
                continue
            values = {key.lower(): value for key, value in pairs}
            entry: dict[str, Any] = {"name": _plain(name), "nodes": self._members(line, name, values, known)}
            if name in defaults[:-1]:
                why = f"the last of several is the default, {defaults[-1]}"
                self._note(LEFT_OUT, line, "Default", why, "PartitionName", name)
            elif name in defaults:
                entry["default"] = True
            for key, text in pairs:
                if key.lower() in ("default", "nodes"):
                    continue
                parameter = self._known_of("PartitionName", key, text, line, schema.PARTITION, name)
                if parameter:
                    entry[parameter] = _plain(text)
            result.append(entry)
        return result

    def _members(self, line: SourceLine, partition: str, values: Mapping[str, str], known: set[str]) -> str:
        """The nodes of a partition, each once; Slurm ignores names that it does not know."""
        nodes = values.get("nodes", "")
        if is_all(nodes):
            return "ALL"
        if why := _wrong(schema.partition_nodes, ",".join(dict.fromkeys(names_in(nodes)))):
            self._note(LEFT_OUT, line, "Nodes", why, "PartitionName", partition)
            return ""
        names = [*dict.fromkeys(names_in(nodes))]
        strange = [name for name in names if name not in known]
        if strange:
            self._note(LEFT_OUT, line, "Nodes", f"{fold(strange)} are no nodes", "PartitionName", partition)
        others = [f"{function}{{{argument}}}" for function, argument in functions(nodes)]
        return folded(",".join([*(name for name in names if name in known), *others]))

    # -- other files ---------------------------------------------------------------------------------------------

    def _plugstack(self) -> list[dict[str, Any]]:
        """The SPANK plugins, in their order."""
        found: list[dict[str, Any]] = []
        for line in self.lines["plugstack.conf"]:
            word, rest = line.pairs[0]
            plugin, *arguments = rest.split() or [""]
            if word.lower() not in ("required", "optional") or not plugin:
                self._note(LEFT_OUT, line, word, "allowed: required or optional, and a plugin", "plugstack.conf")
            elif plugin in (entry["plugin"] for entry in found):
                self._note(LEFT_OUT, line, plugin, "it is there twice", "plugstack.conf")
            else:
                entry = {"plugin": plugin, **({"arguments": arguments} if arguments else {})}
                found.append({**entry, "required": True} if word.lower() == "required" else entry)
        return found

    def _other_files(self, conf: Mapping[str, Any]) -> dict[str, str]:
        """Files that are kept as they are, with what they include."""
        programs = [conf.get(key) or [] for key in ("Prolog", "Epilog")]
        scripts = [path for value in programs for path in (value if isinstance(value, list) else [value])]
        found: dict[str, str] = {}
        for name in other_files(self.files):
            unread = parameters.unread_files([name], self.version)
            if unread:
                self._note(LEFT_OUT, name, name, unread[0].text, name)
            elif name in parameters.SITE_FILES or name in scripts:
                found[name] = whole_text(self.files, name)
            else:
                self._note(LEFT_OUT, name, name, "Slurm reads no file of this name beside slurm.conf", name)
        return found


_CONTROLLERS = ("backupaddr", "backupcontroller", "clustername", "controladdr", "controlmachine", "slurmctldhost")
_OWN = ("nodeaddr", "nodehostname", "port")
_SIZES = ("boards", "corespersocket", "cpus", "realmemory", "sockets", "socketsperboard", "threadspercore", "tmpdisk")
_OF_MACHINE = {*_SIZES, "gres", "procs"}


def _gres_of(pairs: Pairs) -> str:
    """The Gres of a node."""
    return next((value for key, value in pairs if key.lower() == "gres"), "")


def _names_of(types: list[Machine]) -> list[str]:
    """A name for each machine type; a number tells equal ones apart."""
    names: list[str] = []
    for machine in types:
        name = re.sub("[^A-Za-z0-9._-]", "-", type_name(machine))
        number = 2
        while (name if number == 2 else f"{name}-{number - 1}") in names:
            number += 1
        names.append(name if number == 2 else f"{name}-{number - 1}")
    return names


def _plain(value: Any) -> Any:
    """A value for YAML: a number where the text is one that is written in the same way."""
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {key: _plain(element) for key, element in value.items()}
    return int(value) if isinstance(value, str) and re.fullmatch("0|[1-9][0-9]{0,14}", value) else value


def _wrong(typed: Callable[[Any], Any], value: Any) -> str:
    """Why a type refuses a value; empty if it does not."""
    try:
        typed(value)
    except ValueError as error:
        return f"found {shown(value)}, {error}"
    return ""


def _refused(kind: schema.Kind, name: str, value: Any) -> str:
    """Why the cluster file cannot have a parameter with this value; empty if it can."""
    if name not in kind.types:
        return f"it is derived from {kind.made[name]}" if name in kind.made else "the cluster file has no such key"
    return _wrong(kind.types[name], value)


def _merged(notes: Iterable[Note]) -> list[Note]:
    """Notes that differ in the node or partition alone become one."""
    found: dict[Note, list[str]] = {}
    for note in notes:
        found.setdefault(replace(note, subject=""), []).append(note.subject)
    return [replace(note, subject=",".join(filter(None, dict.fromkeys(subjects)))) for note, subjects in found.items()]


def explained(notes: Iterable[Note], table: str, subject: str, key: str) -> Iterator[Note]:
    """Why a parameter is not in the cluster file, or not as it was. subject: a node or a partition, or empty."""
    for note in notes:
        if note.effect == KEPT:
            continue
        same = not note.subject or note.subject == subject or subject in _hosts(note.subject)
        if note.table == table and same and note.key.lower() in (key.lower(), table.lower()):
            yield note


def _hosts(text: str) -> list[str]:
    """The names of a hostlist, or the text itself."""
    try:
        return expand(text)
    except ValueError:
        return [text]
