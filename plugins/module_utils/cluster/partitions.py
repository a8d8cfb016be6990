# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of partitions of a cluster file, in which a name can be a node set of `slurm_conf`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..configuration.node_sets import NodeSet, members
from ..language.hostlist import expand


def node_sets(slurm_conf: Mapping[str, Any]) -> list[NodeSet]:
    """The node sets in `slurm_conf`, where NodeSet is a mapping or a list of mappings."""
    found = next((value for key, value in slurm_conf.items() if key.lower() == "nodeset"), None) or []
    lines = found if isinstance(found, list) else [found]
    return [NodeSet.of(line.items()) for line in lines if isinstance(line, Mapping)]


def resolver(
    nodes: Iterable[Mapping[str, Any]], hardware: Mapping[str, Mapping[str, Any]], slurm_conf: Mapping[str, Any]
) -> Callable[[str], list[str]]:
    """A function that returns the nodes of a partition, and names that are none, for its key `nodes`.

    Args:
        nodes: the shared variable slurm_nodes. Values of an entry replace those of its machine type.
        hardware: the shared variable slurm_hardware_types.
        slurm_conf: the shared variable slurm_conf, which has the node sets.
    """
    features: dict[str, frozenset[str]] = {}
    for node in nodes:
        own = _features({**hardware.get(str(node.get("hardware", "")), {}), **node})
        features.update(dict.fromkeys(expand(node.get("hosts", "")), own))
    known = node_sets(slurm_conf)
    return lambda hosts: members(hosts, known, features)


def _features(parameters: Mapping[str, Any]) -> frozenset[str]:
    """The features of a node; of the two names, Slurm reads Feature first (`_parse_nodename`)."""
    value = next((parameters[key] for key in ("Feature", "Features") if parameters.get(key) is not None), ())
    texts = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return frozenset(str(text).strip() for text in texts)
