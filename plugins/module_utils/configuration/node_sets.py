# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that the parameter Nodes of a partition names: nodes, node sets, functions, or ALL.

The rules are those of `nodespec_to_hostlist` in `src/slurmctld/read_config.c`, and of `_parse_hostlist_function` in
`src/common/node_conf.c` for the functions, such as `switch{s1}`, which Slurm has since 24.11.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ..language.hostlist import expand, fold

FUNCTIONS = ("block", "blockwith", "feature", "switch", "switchwith")
"""The functions of a list of nodes. Their argument is in braces."""

# The name begins after a delimiter; without this condition, a long text would be searched from each of its letters.
_FUNCTION = re.compile(r"(?<![^\s,{}])([^\s,{}]*)\{([^{}]*)\}")


class NodeSet(NamedTuple):
    """A line NodeSet=."""

    name: str
    feature: str
    """All nodes with this feature are in the set; empty without."""
    nodes: str
    """A hostlist of more nodes, or ALL."""

    @classmethod
    def of(cls, values: Iterable[tuple[Any, ...]]) -> NodeSet:
        """The node set of a line, whose keys can have any case."""
        given = {str(key).lower(): "" if value is None else str(value) for key, value in values}
        return cls(given.get("nodeset", ""), given.get("feature", ""), given.get("nodes", ""))


def is_all(nodes: str) -> bool:
    """Whether a list of nodes stands for all nodes (`xstrcasecmp`)."""
    return nodes.upper() == "ALL"


def functions(nodes: str) -> list[tuple[str, str]]:
    """The functions in a list of nodes, each with its argument."""
    return _FUNCTION.findall(nodes)


def names_in(nodes: str) -> list[str]:
    """The names in a list of nodes, which are nodes and node sets, without its functions.

    Raises:
        ValueError: it is no hostlist.
    """
    return expand(_FUNCTION.sub("", nodes))


def folded(nodes: str) -> str:
    """A list of nodes with its names folded, followed by its functions.

    Raises:
        ValueError: it is no hostlist.
    """
    return ",".join(filter(None, [fold(names_in(nodes)), *(f"{name}{{{of}}}" for name, of in functions(nodes))]))


def members(nodes: str, node_sets: Iterable[NodeSet], features: Mapping[str, Collection[str]]) -> list[str]:
    """The nodes of a partition, each once, and the names that are neither nodes nor node sets.

    The functions about switches and blocks give none, because only slurmctld knows the topology.

    Args:
        nodes: the value of Nodes.
        node_sets: in the order of the file, since Slurm replaces one after the other.
        features: the features of each node of the cluster, in the order of the nodes.

    Raises:
        ValueError: a list of nodes is none.
    """
    if is_all(nodes):
        return [*features]
    names = dict.fromkeys(names_in(nodes))
    for node_set in node_sets:
        if node_set.name in names:
            del names[node_set.name]
            names.update(dict.fromkeys(_with_feature(node_set.feature, features)))
            names.update(dict.fromkeys(features if is_all(node_set.nodes) else names_in(node_set.nodes)))
    for function, argument in functions(nodes):
        if function == "feature":
            names.update(dict.fromkeys(_with_feature(argument, features)))
    return [*names]


def _with_feature(feature: str, features: Mapping[str, Collection[str]]) -> list[str]:
    """The nodes with a feature, none for an empty one."""
    return [node for node, own in features.items() if feature and feature in own]
