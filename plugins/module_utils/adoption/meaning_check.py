# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that a cluster file means the same as the files that it was translated from.

The cluster file is rendered as site.yml would do it. Both sides are then brought into one form, in which everything is
named and spelled as Slurm understands it, and compared parameter by parameter, node by node, partition by partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..cluster import render
from ..cluster.model import Document, load
from ..configuration.conf_file import KEY_VALUE, Configuration
from ..configuration.equivalence import CONTROLLERS, SHAPE, controllers, lines_for, node_shape, resources
from ..configuration.meaning import by_key, is_yes, meaning, patch_release_of
from ..configuration.node_sets import functions, members
from ..configuration.parameter_tables.display import IF_NOT_SAID
from ..configuration.parameter_tables.slurm_defaults import SLURM_DEFAULTS
from ..configuration.parameter_values import whole_number
from ..configuration.parameters import find
from ..configuration.sources import (
    TRANSLATED,
    Files,
    SourceLine,
    configuration_of,
    other_files,
    source_lines,
    whole_text,
)
from ..configuration.spank import plugstack_lines
from ..language.hostlist import expand, fold
from .comments import find_explanations
from .translation import Adoption

DEFAULT = "a value of the collection"
"""Stands for the value of a parameter that the collection sets: a neutral cluster file lets none of them through."""

ALWAYS = "enable_configless"
"""The option that the collection adds to SlurmctldParameters."""


@dataclass(frozen=True)
class Difference:
    """A parameter that would not mean the same any more."""

    table: str
    """The table of parameters: a file, NodeName or PartitionName."""
    subject: str
    """The nodes (a hostlist) or the partition; empty for a parameter of the whole file."""
    key: str
    before: str | None
    after: str | None
    """The values; None without one."""
    reason: str
    """Empty if there is none: then the translation is wrong."""

    def __str__(self) -> str:
        subject = f"{self.table}={self.subject}" if self.subject else self.table
        change = f"{self.before or 'nothing'} -> {self.after or 'nothing'}"
        shown = "its value" if _is_secret(self.key) else change
        return f"{subject} {self.key}: {shown}: {self.reason or 'no reason is known'}"


@dataclass(frozen=True)
class Comparison:
    """What was compared."""

    parameters: int
    nodes: int
    partitions: int
    differences: list[Difference]


def compare(files: Files, adoption: Adoption, defaults: Mapping[str, Iterable[str]], version: str) -> Comparison:
    """Compare the files of a cluster with those that its cluster file makes.

    Args:
        files, defaults, version: as of `adopt`, whose result is `adoption`.

    Raises:
        ModelError: the cluster file is not valid.
        SourceError: a file cannot be read.
    """
    rendered = render_files(load(Document("the cluster file", adoption.cluster)).variables, defaults)
    release = patch_release_of(version)
    before, after = (_Meanings(side, release) for side in (files, rendered))
    found = [
        *_compare_files(before, after),
        *_compare_parts("NodeName", before.nodes, after.nodes),
        *_compare_parts("PartitionName", before.partitions, after.partitions),
    ]
    return Comparison(
        sum(len(values) for values in before.files.values()),
        len(before.nodes),
        len(before.partitions),
        [Difference(*difference, _find_reason(adoption, difference)) for difference in found],
    )


def render_files(variables: Mapping[str, Any], defaults: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """The files that role slurmctld makes of the shared variables, with DEFAULT for values of the collection."""
    nodes, hardware, hosts = (variables[f"slurm_{key}"] for key in ("nodes", "hardware_types", "controllers"))
    addresses = {
        entry["name"]: entry["address"] for entry in render.host_addresses(variables["slurm_addresses"], hosts)
    }
    own = variables["slurm_conf"]
    given = own.get("SlurmctldParameters") or []
    options = (given if isinstance(given, list) else str(given).split(",")) if given else []
    always = {"SlurmctldParameters": [*dict.fromkeys([ALWAYS, *options])]}
    controllers = [
        f"{host}({addresses[host]})" if host in addresses else host for host in variables["slurm_controllers"]
    ]
    layers = (dict.fromkeys(defaults["slurm.conf"], DEFAULT), render.node_parameters(nodes, hardware), own, always)
    conf = [
        render.slurm_conf({"ClusterName": variables["slurm_cluster_name"], "SlurmctldHost": controllers}),
        render.slurm_conf(*layers),
        render.node_lines(nodes, hardware),
        render.partition_lines(variables["slurm_partitions"], nodes, hardware, own),
    ]
    cgroup = render.slurm_conf(dict.fromkeys(defaults["cgroup.conf"], DEFAULT), variables["slurm_cgroup_conf"])
    return {
        "slurm.conf": "".join(conf),
        "gres.conf": render.gres_lines(nodes, hardware),
        "cgroup.conf": cgroup,
        "plugstack.conf": plugstack_lines(variables.get("slurm_plugstack", [])),
        **variables["slurm_files"],
    }


Meant = Mapping[str, tuple[str, object]]
"""Parameters by their names: the value as it is shown, and what it means."""


class _Meanings:
    """Files in the one form in which they are compared."""

    def __init__(self, files: Files, release: str) -> None:
        self._release = release
        lines = {name: source_lines(files, name) for name in TRANSLATED}
        self._says = configuration_of(lines)
        self.files: dict[str, Meant] = {
            "slurm.conf": self._of_file("slurm.conf", self._says),
            "cgroup.conf": self._of_file("cgroup.conf", self._says),
            "plugstack.conf": _read_plugins(lines["plugstack.conf"]),
            **{name: {name: ("its text", _text(files, name))} for name in other_files(files)},
        }
        kinds: dict[tuple[Any, ...], Meant] = {}
        self.nodes: dict[str, Meant] = {}
        everywhere = self._says.gres.get("", ())
        for name, pairs in self._says.nodes.items():
            own = by_key(pairs)
            texts = lines_for(own.get("gres", ""), self._says.gres.get(name, ()), everywhere)
            if (pairs, texts) not in kinds:
                kinds[pairs, texts] = self._of_node(own, texts)
            host = own.get("nodehostname", name)
            self.nodes[name] = {
                **kinds[pairs, texts],
                "NodeHostname": (host, host),
                "NodeAddr": (own.get("nodeaddr", host),) * 2,
            }
        features = {name: str(values["Features"][0]).split(",") for name, values in self.nodes.items()}
        default = [name for name, pairs in self._says.partitions.items() if is_yes(by_key(pairs).get("default", ""))]
        self.partitions: dict[str, Meant] = {
            name: self._of_partition(by_key(pairs), features, name in default[-1:])
            for name, pairs in self._says.partitions.items()
        }

    def _means(self, table: str, key: str, value: str) -> tuple[str, tuple[str, object]]:
        """A parameter by its name, with what its value means."""
        parameter = find(table, key)
        if parameter is None:
            return key, (value, value)
        return parameter.name, (value, meaning(table, key, value, self._release))

    def _of_file(self, file: str, says: Configuration) -> Meant:
        """The parameters of a file."""
        found: dict[str, tuple[str, object]] = {}
        servers: dict[str, str] = {}
        for (name, key), (spelled, text) in says.settings.items():
            if name != file or key in ("include", "slurmctldaddr"):
                continue
            if key in CONTROLLERS:
                servers[key] = text
            elif key == "clustername":
                found["ClusterName"] = (text, text.lower())
            elif find(file, key):
                parameter, meant = self._means(file, key, text)
                found[parameter] = meant
            else:  # a line with parameters of its own, or one that Slurm does not know
                found[spelled] = (text, frozenset(text.split(" ")))
        if file == "slurm.conf":
            text = controllers(servers)
            found["SlurmctldHost"] = (text, text)
            for key, value in SLURM_DEFAULTS.items():
                found.setdefault(key, self._means(file, key.lower(), str(value))[1])
        return found

    def _of_node(self, values: Mapping[str, str], texts: tuple[str, ...]) -> Meant:
        """The parameters of a node, but its names and addresses."""
        numbers = {key: max(whole_number(values[key], suffix=True), 0) for key in SHAPE if key in values}
        found: dict[str, tuple[str, object]] = {
            key: (str(number), number) for key, number in node_shape(numbers).items()
        }
        value = values.get("gres", "")
        found["Gres"] = ("; ".join([value, *texts]), resources(value, texts))
        said = {**IF_NOT_SAID["NodeName"], "state": "UNKNOWN", **values}
        for key, text in said.items():
            if key not in (*SHAPE, "gres", "nodeaddr", "nodehostname"):
                parameter, meant = self._means("NodeName", key, text)
                found[parameter] = meant
        return found

    def _of_partition(self, values: Mapping[str, str], features: Mapping[str, list[str]], default: bool) -> Meant:
        """The parameters of a partition."""
        nodes = values.get("nodes", "")
        there = frozenset(name for name in members(nodes, self._says.node_sets, features) if name in features)
        found: dict[str, tuple[str, object]] = {
            "Nodes": (nodes, (there, frozenset(functions(nodes)))),
            "Default": ("YES" if default else "NO", default),
        }
        for key, text in {**IF_NOT_SAID["PartitionName"], **values}.items():
            if key not in ("nodes", "default"):
                parameter, meant = self._means("PartitionName", key, text)
                found[parameter] = meant
        return found


def _read_plugins(lines: list[SourceLine]) -> Meant:
    """The SPANK plugins, each with its place, since they run in their order."""
    texts = [" ".join([line.pairs[0][0].lower(), *line.pairs[0][1].split()]) for line in lines]
    return {text.split(" ")[1] if " " in text else text: (text, (place, text)) for place, text in enumerate(texts)}


def _text(files: Files, name: str) -> object:
    """What a file that is kept as it is means: its lines without comments, or its text."""
    if name in KEY_VALUE:
        return [line.pairs for line in source_lines(files, name)]
    return whole_text(files, name)


_Found = tuple[str, str, str, "str | None", "str | None"]
"""Table, subject, key, and both values."""


def _compare_files(before: _Meanings, after: _Meanings) -> Iterator[_Found]:
    """Differences of files."""
    for file in dict.fromkeys([*before.files, *after.files]):
        for key, was, becomes in _list_differences(before.files.get(file, {}), after.files.get(file, {})):
            yield file, "", key, was, becomes


def _compare_parts(table: str, before: Mapping[str, Meant], after: Mapping[str, Meant]) -> Iterator[_Found]:
    """Differences of nodes, equal ones of several nodes as one, or of partitions."""
    found: dict[tuple[str, str | None, str | None], list[str]] = {}
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            sides = (name if name in before else None, name if name in after else None)
            found.setdefault((table, *sides), []).append(name)
        elif before[name] != after[name]:
            for difference in _list_differences(before[name], after[name]):
                found.setdefault(difference, []).append(name)
    for (key, was, becomes), names in found.items():
        if table == "NodeName":
            yield table, fold(names), key, was, becomes
        else:
            yield from ((table, name, key, was, becomes) for name in names)


def _list_differences(before: Meant, after: Meant) -> Iterator[tuple[str, str | None, str | None]]:
    """The parameters that do not mean the same, with both values."""
    for key in dict.fromkeys([*before, *after]):
        was, becomes = before.get(key), after.get(key)
        if (was and was[1]) != (becomes and becomes[1]):
            yield key, was and was[0], becomes and becomes[0]


def _find_reason(adoption: Adoption, found: _Found) -> str:
    """Why a parameter does not mean the same."""
    table, subject, key, _before, after = found
    if key == "SlurmctldParameters" and ALWAYS in (after or ""):
        return "the other hosts get their files from slurmctld"
    names = expand(subject) if table == "NodeName" and subject else [subject]
    comments = {
        comment.why: comment for name in names[:1] for comment in find_explanations(adoption.comments, table, name, key)
    }
    return "; ".join(f"{comment.place}: {comment.why}" for comment in comments.values())


def _is_secret(key: str) -> bool:
    """Whether a parameter is a password."""
    return key.lower().endswith("pass")
