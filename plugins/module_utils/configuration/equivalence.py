# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations of one meaning: nodes by their CPUs alone, or by sockets and cores, for example.

The files of a cluster of another origin are compared so with those that the collection creates from its cluster file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..language.hostlist import expand
from .conf_file import Configuration, ConfigurationChange, lines
from .generic_resources import Gres, count_of, gres_of_node
from .meaning import by_key, is_yes, meaning
from .node_sets import functions, members
from .parameter_tables.display import IF_NOT_SAID
from .parameter_tables.slurm_defaults import SLURM_DEFAULTS
from .parameter_values import whole_number
from .parameters import SHARED_GRES, find

CONTROLLERS = ("backupaddr", "backupcontroller", "controladdr", "controlmachine", "slurmctldhost")
"""The parameters that name the controllers, those of old releases too."""

SHAPE = ("boards", "corespersocket", "cpus", "sockets", "socketsperboard", "threadspercore")
"""The parameters of a node that follow from one another."""


def differing(
    changes: Iterable[ConfigurationChange], old: Configuration, new: Configuration, release: str
) -> list[ConfigurationChange]:
    """The changes that mean something else to Slurm.

    Args:
        changes: the differences of the two configurations (`conf_file.changes`).
        old, new: the configurations.
        release: as `meaning.patch_release_of` returns it.
    """
    return [change for change in changes if not _same(change, old, new, release)]


def _same(change: ConfigurationChange, old: Configuration, new: Configuration, release: str) -> bool:
    """Whether a change keeps the meaning."""
    key = change.key.lower()
    if change.file == "NodeName" and key != "nodename":
        return all(_same_of_node(key, name, old, new, release) for name in expand(change.subject)[:1])
    if change.file == "gres.conf":
        return not other_resources(old, new, expand(change.subject))
    if change.file == "PartitionName" and key != "partitionname":
        before, after = (by_key(side.partitions[change.subject]) for side in (old, new))
        if key == "nodes":
            return _members(before, old) == _members(after, new)
        if key == "default":
            return is_yes(before.get(key, "")) == is_yes(after.get(key, ""))
        return _same_values("PartitionName", key, change, release)
    if change.file == "slurm.conf" and key in CONTROLLERS:
        return controllers(_texts(old)) == controllers(_texts(new))
    if change.file == "slurm.conf" and key == "clustername":
        return str(change.before).lower() == str(change.after).lower()
    return _same_values(change.file, key, change, release)


def _same_values(table: str, key: str, change: ConfigurationChange, release: str) -> bool:
    """Whether both values mean the same; a missing one is Slurm's default, as far as the tables have it."""
    missing = IF_NOT_SAID.get(table, {}).get(key)
    if missing is None and table == "slurm.conf":
        missing = next((str(value) for name, value in SLURM_DEFAULTS.items() if name.lower() == key), None)
    before, after = (missing if value is None else value for value in (change.before, change.after))
    if before is None or after is None:
        return False
    if find(table, key) is None:  # a line with parameters of its own
        return sorted(before.split()) == sorted(after.split())
    return meaning(table, key, before, release) == meaning(table, key, after, release)


def _same_of_node(key: str, name: str, old: Configuration, new: Configuration, release: str) -> bool:
    """Whether a parameter of a node means the same. Equal changes are one change, so one node stands for all."""
    before, after = (by_key(side.nodes[name]) for side in (old, new))
    if key in (*SHAPE, "procs"):
        return _shape(before) == _shape(after)
    if key == "gres":
        return _gres(name, old) == _gres(name, new)
    key = next(iter(by_key(((key, ""),))))
    change = ConfigurationChange("NodeName", name, key, before.get(key), after.get(key))
    return _same_values("NodeName", key, change, release)


def _shape(values: Mapping[str, str]) -> dict[str, int]:
    """The shape of a node."""
    return node_shape({key: max(whole_number(values[key], suffix=True), 0) for key in SHAPE if key in values})


def _gres(name: str, side: Configuration) -> frozenset[tuple[object, ...]]:
    """What the generic resources of a node are."""
    value = by_key(side.nodes[name]).get("gres", "")
    return resources(value, lines_for(value, side.gres.get(name, ()), side.gres.get("", ())))


def other_resources(old: Configuration, new: Configuration, names: Collection[str] = ()) -> list[str]:
    """Those of the nodes whose generic resources mean something else. names: all nodes of both, if it is empty."""
    both = names or [name for name in new.nodes if name in old.nodes]
    return [name for name in both if _gres(name, old) != _gres(name, new)]


def _members(values: Mapping[str, str], side: Configuration) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """The nodes of a partition."""
    features = {name: by_key(pairs).get("features", "").split(",") for name, pairs in side.nodes.items()}
    nodes = values.get("nodes", "")
    present = frozenset(name for name in members(nodes, side.node_sets, features) if name in features)
    return present, frozenset(functions(nodes))


def _texts(side: Configuration) -> dict[str, str]:
    """The parameters that name the controllers."""
    pairs = ((key, side.settings.get(("slurm.conf", key))) for key in CONTROLLERS)
    return {key: value[1] for key, value in pairs if value}


def controllers(values: Mapping[str, str]) -> str:
    """The controllers with their addresses, in their order, by the names that they had before SlurmctldHost as well."""
    if "slurmctldhost" in values:
        pairs = [host.rstrip(")").partition("(")[::2] for host in values["slurmctldhost"].split()]
    else:
        keys = (("controlmachine", "controladdr"), ("backupcontroller", "backupaddr"))
        pairs = [(values[host], values.get(address, "")) for host, address in keys if host in values]
    return " ".join(f"{host}({address})" if address not in ("", host) else host for host, address in pairs)


def node_shape(numbers: Mapping[str, int]) -> dict[str, int]:
    """Boards, sockets of all boards, cores of a socket, threads of a core and CPUs of a node, as Slurm corrects them.

    numbers: those that the node line has, by key in small letters. The rules are those of `_parse_nodename` in
    `src/common/read_config.c`.
    """
    cores, threads, boards = (numbers.get(key) or 1 for key in ("corespersocket", "threadspercore", "boards"))
    cpus = (numbers["cpus"] or 1) if "cpus" in numbers else None
    if "socketsperboard" in numbers:
        sockets = boards * (numbers["socketsperboard"] or 1)
    elif "sockets" in numbers:
        sockets = numbers["sockets"] or 1
    elif cpus and cpus % (cores * threads) == 0:
        sockets = cpus // (cores * threads)
    else:
        sockets = boards
    boards = 1 if sockets < boards else boards
    if cpus not in (sockets, sockets * cores):
        cpus = sockets * cores * threads
    return {"boards": boards, "sockets": sockets, "cores": cores, "threads": threads, "cpus": cpus}


# -- generic resources -----------------------------------------------------------------------------------------------

Values = Mapping[str, str]
"""The parameters of a line of gres.conf, by key in small letters."""

_NAMES = {"files": "file", "cpus": "cores", "link": "links"}
"""Other names of parameters (`_gres_options` in `src/interfaces/gres.c`)."""


def lines_for(value: str, own: Iterable[str], everywhere: Iterable[str]) -> tuple[str, ...]:
    """The lines of gres.conf that matter to a node: those with a name in its Gres, and AutoDetect if it has GPUs.

    Args:
        value: Gres of the node.
        own, everywhere: the lines of gres.conf for this node and for all nodes, without NodeName.
    """
    names = {resource.name for resource in asked(value)}
    needed = []
    for text in (*everywhere, *own):
        values = values_of(text)
        if values["name"] in names if "name" in values else "gpu" in names:
            needed.append(text)
    return tuple(needed)


def asked(value: str) -> list[Gres]:
    """The generic resources of a node; a count of 0 is none."""
    return [resource for resource in gres_of_node(value) if resource.number]


def resources(value: str, texts: Iterable[str]) -> frozenset[tuple[Any, ...]]:
    """What Gres and lines of gres.conf mean together, so that two descriptions can be compared.

    Devices are counted one by one. Slurm ignores a Type where Gres has none, and knows from Gres how many there are
    where a line has no File, or where there is no line (`_merge_gres2` in `src/interfaces/gres.c`).
    """
    counts: dict[tuple[str, str, bool], int] = {}
    for resource in asked(value):
        key = (resource.name, resource.kind, resource.no_consume)
        counts[key] = counts.get(key, 0) + resource.number
    lines_of_node = [*map(values_of, texts)]
    meanings: set[tuple[Any, ...]] = {("gres", *key, number) for key, number in counts.items()}
    method = autodetect(lines_of_node)
    if method and "gpu" in {name for name, *_rest in counts}:
        meanings.add(("autodetect", method))
    typed = {name for name, kind, _no_consume in counts if kind}
    for values in lines_of_node:
        meanings |= _read_meanings_of_line(values, values.get("type", "") if values.get("name") in typed else "")
    named = {values.get("name") for values in lines_of_node}
    for (name, kind, _no_consume), number in counts.items():
        if name in SHARED_GRES and not kind and name not in named:
            meanings.add(("share", name, (), number, None, None, frozenset()))
    return frozenset(meanings)


def _read_meanings_of_line(values: Values, kind: str) -> set[tuple[Any, ...]]:
    """What a line of gres.conf means, by the type that its resources have in Gres."""
    name = values.get("name", "")
    flags = frozenset(filter(None, values.get("flags", "").lower().split(",")))
    others = (values.get("cores"), values.get("links"), flags)
    if not name:
        return set()
    if name in SHARED_GRES:
        files = tuple(expand(values.get("file", "")))
        return {("share", name, files, count_of(values.get("count", "1")), *others)}
    if "file" in values:
        return {("device", name, kind, file, *others) for file in expand(values["file"])}
    return {("line", name, kind, count_of(values.get("count", "1")), *others)} if any(others) else set()


def values_of(text: str) -> dict[str, str]:
    """The parameters of a line."""
    (pairs,) = lines("gres.conf", text)
    return {_NAMES.get(key.lower(), key.lower()): value for key, value in pairs}


def autodetect(parsed: Iterable[Values]) -> str:
    """The method of AutoDetect, that of the last line that has one."""
    methods = [values["autodetect"].lower() for values in parsed if "autodetect" in values]
    return methods[-1] if methods and methods[-1] != "off" else ""
