# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of Slurm that a node has next to its own slurm.conf, and that it no longer reads when it is taken over.

slurmd with --conf-server reads the files that slurmctld sends, and no file next to a slurm.conf of its own
(`_establish_configuration` in `src/slurmd/slurmd/slurmd.c`, `get_extra_conf_path` in `src/common/read_config.c`). What
only the node's files say would be lost silently. One comparison serves both sides: the playbook adopt takes the
nodes' files into the cluster file, and site.yml refuses to take over a node whose files say something else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..configuration import parameters
from ..configuration.conf_file import KEY_VALUE, Pairs
from ..configuration.equivalence import lines_for, resources
from ..configuration.meaning import by_key, meaning, patch_release_of
from ..configuration.parameter_tables.display import IF_NOT_SAID
from ..configuration.sources import Files, SourceError, SourceLine, configuration_of, source_lines, whole_text
from ..language.formatting import shown
from ..language.hostlist import expand, fold

NODE_FILES: Mapping[str, str] = {
    "acct_gather.conf": "slurm_files",
    "cgroup.conf": "cgroup_conf",
    "cli_filter.lua": "slurm_files",
    "gres.conf": "gres of its hardware",
    "helpers.conf": "slurm_files",
    "job_container.conf": "slurm_files",
    "mpi.conf": "slurm_files",
    "namespace.yaml": "slurm_files",
    "oci.conf": "slurm_files",
    "plugstack.conf": "plugstack",
    "scrun.lua": "slurm_files",
}
"""The files that decide what a node does, each with its key of the cluster file.

They are those of `slurmd_config_files` in `src/common/fetch_config.c`, without the topology, which slurmctld decides.
"""

_ORDER = "the order of the plugins"
_LINES = "the lines of its resources"
_TEXT = "its text"

Meanings = Mapping[str, tuple[str, object]]
"""What a file says, by parameter or plugin: the value as it is shown, and what it means to Slurm."""


@dataclass(frozen=True)
class NodeDifference:
    """What a file of a node says, and the files of the cluster do not."""

    file: str
    key: str
    own: str
    """The value on the node; empty without one."""
    cluster: str
    """The value in the cluster; empty without one."""

    def __str__(self) -> str:
        if self.key == _TEXT:
            return f"{self.key} differs from that in the cluster"
        if self.key.lower().endswith("pass"):
            return f"{self.key}: its value differs from that in the cluster"
        return f"{self.key}: found {_or_nothing(self.own)}, the cluster has {_or_nothing(self.cluster)}"


def node_differences(own: Files, node: str, before: Files, after: Files, version: str) -> list[NodeDifference]:
    """What the files of a node say, and would no longer be said when the node reads the files of the cluster.

    A parameter counts if the node has another value than the cluster had before, and will have. So a value that a
    person has changed in the cluster file since does not count on nodes that still have the earlier one.

    Args:
        own: the files that slurmd of the node reads, with its slurm.conf; empty if it reads none of its own.
        node: its name.
        before: the files of the controller, as they were before the collection wrote its own.
        after: the files that the node will fetch.
        version: of Slurm, such as 24.11.5.

    Raises:
        SourceError: a file cannot be read.
        ValueError: the version is not known.
    """
    return _find_differences(own, node, _Side(before), _Side(after), version)


class _Side:
    """The files of a cluster. What all nodes share is read once."""

    def __init__(self, files: Files) -> None:
        self.files = files

    @cached_property
    def nodes(self) -> dict[str, Pairs]:
        """The nodes of slurm.conf with their parameters."""
        return configuration_of({"slurm.conf": source_lines(self.files, "slurm.conf")}).nodes

    @cached_property
    def gres(self) -> dict[str, tuple[str, ...]]:
        """The lines of gres.conf by node."""
        return _read_gres(self.files)

    def lines_of(self, node: str) -> tuple[str, ...]:
        """The lines of gres.conf that matter to a node."""
        return _select_lines(self.gres, node, self.gres_value(node) or "")

    def gres_value(self, node: str) -> str | None:
        """Gres of a node; None if the cluster has no such node."""
        return by_key(self.nodes[node]).get("gres", "") if node in self.nodes else None


def _find_differences(own: Files, node: str, before: _Side, after: _Side, version: str) -> list[NodeDifference]:
    """The same, for several nodes of a cluster."""
    found: list[NodeDifference] = []
    for file in NODE_FILES:
        if file not in own or parameters.unread_files([file], version):
            continue
        if file == "gres.conf":
            found += _compare_resources(own, node, before, after)
            continue
        mine, was, becomes = (_read_meanings(files, file, node, version) for files in (own, before.files, after.files))
        for key in dict.fromkeys([*mine, *becomes]):
            meant, earlier, later = (_meant(file, key, side, version) for side in (mine, was, becomes))
            if meant not in (earlier, later):
                found.append(NodeDifference(file, key, *(side.get(key, ("",))[0] for side in (mine, becomes))))
    return found


def node_file_errors(own: Mapping[str, Any], node: str, before: Files, after: Files, version: str) -> list[str]:
    """Why a node cannot be taken over as it is: a text for each of its files that says what the cluster does not.

    Args:
        own: the result of the module slurm_configuration_info for slurmd of the node, also one that has failed.
        node, before, after, version: as of `node_differences`.
    """
    if "files" not in own:
        return [f"{node}: its own files of Slurm cannot be compared with the cluster's: {own.get('msg', 'no answer')}"]
    try:
        found = node_differences(own["files"], node, before, after, version)
    except SourceError as error:
        return [f"{node}: {own['directory']}/{problem}" for problem in error.problems]
    errors = []
    for file in dict.fromkeys(difference.file for difference in found):
        differences = "; ".join(str(difference) for difference in found if difference.file == file)
        errors.append(
            f"{node}: {own['directory']}/{file}: {differences}. A node that is taken over reads the files of the "
            f"cluster instead of its own. Say the same in the cluster file ({NODE_FILES[file]}), or move this file "
            f"away on {node} if it is not needed any more, or put {node} into unmanaged. Nothing was changed on {node}."
        )
    return errors


@dataclass(frozen=True)
class Merged:
    """The files of a cluster with those of its nodes."""

    files: dict[str, str]
    comments: list[str]
    """What was taken from nodes, and what could not be."""


def merge(files: Files, own: Mapping[str, Mapping[str, Any]], fetching: Collection[str], version: str) -> Merged:
    """Take what only the nodes' files say into the files of the cluster, as far as one file can say it.

    Resources are those of each node. A file that all nodes have, with one meaning, becomes that of the cluster.

    Args:
        files: the files of the controller.
        own: the results of slurm_configuration_info for slurmd, by node.
        fetching: the nodes that fetch the files of the controller.
        version: of Slurm.

    Raises:
        SourceError: a file of the controller cannot be read.
    """
    cluster = _Side(files)
    result = Merged({**files}, [])
    nodes = _compare_nodes(cluster, own, version)
    result.comments.extend(nodes.unreadable)
    all_read = {*nodes.readable} == {*cluster.nodes} and {*nodes.readable}.isdisjoint(fetching)
    for file, differences in nodes.differences.items():
        if file == "gres.conf":
            _take_resources(result, cluster, {node: nodes.readable[node]["files"] for node in differences})
        elif all_read and _is_same_on_all(file, nodes.readable, version):
            _take_file(result, file, nodes.readable)
        else:
            result.comments.extend(_describe_left_out(file, differences, nodes.readable))
    result.comments.extend(_name_missing_files(cluster, nodes, version))
    return result


@dataclass(frozen=True)
class _NodesCompared:
    """What was found when the files of nodes were compared with those of the cluster."""

    readable: dict[str, Mapping[str, Any]]
    """The answers of nodes whose files can be read."""
    unreadable: list[str]
    """Comments on the files of other nodes."""
    differences: dict[str, dict[str, list[NodeDifference]]]
    """By file and node."""


def _compare_nodes(cluster: _Side, own: Mapping[str, Mapping[str, Any]], version: str) -> _NodesCompared:
    """Compare the files of the nodes that have any."""
    compared = _NodesCompared({}, [], {})
    for node in cluster.nodes:
        if node not in own or not own[node]["files"]:
            continue
        try:
            differences = _find_differences(own[node]["files"], node, cluster, cluster, version)
        except SourceError as error:
            place = f"{node}:{own[node]['directory']}/{'; '.join(error.problems)}"
            compared.unreadable.append(f"{place}: left out: Slurm would not read it either")
            continue
        compared.readable[node] = own[node]
        for difference in differences:
            compared.differences.setdefault(difference.file, {}).setdefault(node, []).append(difference)
    return compared


def _take_file(result: Merged, file: str, own: Mapping[str, Mapping[str, Any]]) -> None:
    """Take a file that all nodes have into the files of the cluster."""
    of_controller = "has a different one" if file in result.files else "has none"
    result.files[file] = whole_text(next(iter(own.values()))["files"], file)
    result.comments.append(f"{file}: changed: it comes from {fold([*own])}; the controller {of_controller}")


def _name_missing_files(cluster: _Side, nodes: _NodesCompared, version: str) -> Iterator[str]:
    """Comments on files of the controller that nodes do not have, and whose meaning they get."""
    for file in NODE_FILES:
        if file not in cluster.files or file in nodes.differences:
            continue
        lacking = [node for node, answer in nodes.readable.items() if file not in answer["files"]]
        if lacking and _says_something(cluster, file, lacking[0], version):
            yield f"{file}: {fold(lacking)} have no such file: a take-over gives them that of the controller"


def _describe_left_out(
    file: str, nodes: Mapping[str, list[NodeDifference]], own: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Comments on a file that is not the same on all nodes, equal ones of several nodes as one."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for node, differences in nodes.items():
        texts = "; ".join(map(str, differences))
        hosts.setdefault((own[node]["directory"], texts), []).append(node)
    for (directory, texts), names in hosts.items():
        yield (
            f"{fold(names)}:{directory}/{file}: left out: {texts}; site.yml refuses to take over such a node until "
            f"the cluster file says the same ({NODE_FILES[file]})"
        )


def _take_resources(result: Merged, cluster: _Side, own: Mapping[str, Files]) -> None:
    """Write gres.conf anew, with the lines of some nodes from their own files."""
    hosts: dict[tuple[str, ...], list[str]] = {}
    for node in cluster.nodes:
        mine = _select_lines(_read_gres(own[node]), node, cluster.gres_value(node) or "") if node in own else None
        texts = cluster.lines_of(node) if mine is None else mine
        hosts.setdefault(texts, []).append(node)
    result.files["gres.conf"] = "".join(
        f"NodeName={fold(names)} {text}\n" for texts, names in hosts.items() for text in texts
    )
    result.comments.append(f"gres.conf: changed: the lines of {fold([*own])} come from the nodes' own files")


def _is_same_on_all(file: str, own: Mapping[str, Mapping[str, Any]], version: str) -> bool:
    """Whether a file is on all nodes, and means the same everywhere."""
    if not all(file in found["files"] for found in own.values()):
        return False
    first, *others = (_read_meanings(found["files"], file, node, version) for node, found in own.items())
    return all(
        _meant(file, key, first, version) == _meant(file, key, other, version)
        for other in others
        for key in dict.fromkeys([*first, *other])
    )


def _says_something(cluster: _Side, file: str, node: str, version: str) -> bool:
    """Whether a file of the cluster has a meaning for a node that lacks it."""
    if file == "gres.conf":
        return bool(cluster.lines_of(node))
    says = _read_meanings(cluster.files, file, node, version)
    return any(_meant(file, key, says, version) != _meant(file, key, {}, version) for key in says)


def _read_meanings(files: Files, file: str, node: str, version: str) -> Meanings:
    """What a file other than gres.conf says about a node."""
    if file not in files:
        return {}
    if file not in KEY_VALUE:
        text = [line.rstrip() for line in files[file].split("\n") if line.strip() and line.strip()[0] != "#"]
        return {_TEXT: (_TEXT, text)} if text else {}
    lines = source_lines(files, file)
    return _read_plugins(lines) if file == "plugstack.conf" else _read_parameters(file, lines, node, version)


def _read_plugins(lines: list[SourceLine]) -> Meanings:
    """The SPANK plugins, and their order, since they run one after the other."""
    found: dict[str, tuple[str, object]] = {}
    for line in lines:
        requirement, rest = line.pairs[0]
        plugin, *arguments = rest.split() or [""]
        text = " ".join([requirement.lower(), plugin, *arguments])
        found[plugin] = (text, text)
    if len(found) > 1:
        order = [*found]
        found[_ORDER] = (" ".join(order), order)
    return found


def _read_parameters(file: str, lines: list[SourceLine], node: str, version: str) -> Meanings:
    """The parameters of a file. Lines with a NodeName are those of the nodes that it names."""
    release = patch_release_of(version)
    found: dict[str, tuple[str, object]] = {}
    for line in lines:
        hosts = next((value for key, value in line.pairs if key.lower() == "nodename"), None)
        if hosts is not None and node not in expand(hosts):
            continue
        for key, value in line.pairs:
            parameter = parameters.find(file, key)
            if key.lower() == "nodename" or (parameter and parameters.unread(file, key, version)):
                continue
            name, means = (parameter.name, meaning(file, key.lower(), value, release)) if parameter else (key, value)
            found[name] = (value, means)
    return found


def _meant(file: str, key: str, side: Meanings, version: str) -> object:
    """The meaning of a parameter on one side; without a value that of Slurm's own one."""
    if key in side:
        return side[key][1]
    if file not in KEY_VALUE or file == "plugstack.conf" or not parameters.find(file, key):
        return None
    unset = IF_NOT_SAID.get(file, {}).get(key.lower(), "")
    return meaning(file, key.lower(), unset, patch_release_of(version))


def _compare_resources(own: Files, node: str, before: _Side, after: _Side) -> list[NodeDifference]:
    """The lines of gres.conf, as far as they matter to the Gres that the cluster gives the node."""
    mine = _read_gres(own)
    texts: tuple[str, str] | None = None
    for side in (before, after):
        value = side.gres_value(node)
        if value is None:  # the cluster did not have this node
            continue
        lines, theirs = _select_lines(mine, node, value), side.lines_of(node)
        if resources(value, lines) == resources(value, theirs):
            return []
        texts = "; ".join(lines), "; ".join(theirs)
    return [NodeDifference("gres.conf", _LINES, *texts)] if texts else []


def _read_gres(files: Files) -> dict[str, tuple[str, ...]]:
    """The lines of gres.conf by node, those for all nodes under an empty name."""
    return configuration_of({"gres.conf": source_lines(files, "gres.conf")}).gres


def _select_lines(gres: Mapping[str, tuple[str, ...]], node: str, value: str) -> tuple[str, ...]:
    """The lines of gres.conf that matter to a node with this Gres."""
    return lines_for(value, gres.get(node, ()), gres.get("", ()))


def _or_nothing(value: str) -> str:
    """A value in quotes, or that there is none."""
    return shown(value) if value else "nothing"
