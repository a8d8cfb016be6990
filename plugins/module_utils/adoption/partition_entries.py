# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The partitions of a cluster that is translated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..cluster import schema
from ..configuration.meaning import by_key, is_yes
from ..configuration.node_sets import folded, functions, is_all, names_in
from ..configuration.sources import SourceLine
from ..language.hostlist import fold
from .cluster_files import ClusterFiles, Entry, find_error, plain_value
from .comments import LEFT_OUT


def translate_partitions(source: ClusterFiles, nodes: Sequence[str], conf: Mapping[str, Any]) -> list[Entry]:
    """The partitions, in their order. conf: the parameters of slurm.conf, with its sets of nodes."""
    sets = conf.get("NodeSet") or []
    known = {*nodes, *(str(line["NodeSet"]) for line in (sets if isinstance(sets, list) else [sets]))}
    partitions = source.says.partitions
    defaults = [name for name, pairs in partitions.items() if is_yes(by_key(pairs).get("default", ""))]
    entries = []
    for name, pairs in partitions.items():
        line = source.of_partitions[name]
        if why := find_error(schema.partition_name, name):
            source.add_comment(LEFT_OUT, line, "PartitionName", why, "PartitionName", name)
            continue
        values = {key.lower(): value for key, value in pairs}
        members = _translate_members(source, line, name, values.get("nodes", ""), known)
        entry: Entry = {"name": plain_value(name), "nodes": members}
        if name in defaults[:-1]:
            why = f"the last of several is the default, {defaults[-1]}"
            source.add_comment(LEFT_OUT, line, "Default", why, "PartitionName", name)
        elif name in defaults:
            entry["default"] = True
        for key, text in pairs:
            if key.lower() in ("default", "nodes"):
                continue
            place = source.find_place(line, key)
            parameter = source.find_name("PartitionName", key, text, place, schema.PARTITION, name)
            if parameter:
                entry[parameter] = plain_value(text)
        entries.append(entry)
    return entries


def _translate_members(source: ClusterFiles, line: SourceLine, partition: str, nodes: str, known: set[str]) -> str:
    """The nodes of a partition, each once; Slurm ignores names that it does not know."""
    if is_all(nodes):
        return "ALL"
    names = [*dict.fromkeys(names_in(nodes))]
    if why := find_error(schema.partition_nodes, ",".join(names)):
        source.add_comment(LEFT_OUT, line, "Nodes", why, "PartitionName", partition)
        return ""
    strange = [name for name in names if name not in known]
    if strange:
        source.add_comment(LEFT_OUT, line, "Nodes", f"{fold(strange)} are no nodes", "PartitionName", partition)
    others = [f"{function}{{{argument}}}" for function, argument in functions(nodes)]
    return folded(",".join([*(name for name in names if name in known), *others]))
