# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about nodes and partitions of Slurm's files (`cross_checks`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ..configuration.meaning import is_yes
from ..configuration.node_sets import functions, members
from ..configuration.parameter_tables import releases
from ..configuration.parameters import FILES, IGNORED, REFUSED
from ..language.hostlist import expand, fold
from .configured_cluster import ConfiguredCluster, Finding, suggest


def check_repeated_lines(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Nodes and partitions with two lines (`_push_to_hashtbls`, `_build_single_partitionline_info`)."""
    for kind in ("NodeName", "PartitionName"):
        lines = (name for name, _values in cluster.of_kind(kind) if name.upper() != "DEFAULT")
        names = Counter(name for line in lines for name in (expand(line) if kind == "NodeName" else [line]))
        repeated = [name for name, number in names.items() if number > 1]
        if repeated:
            shown = fold(repeated) if kind == "NodeName" else ", ".join(repeated)
            yield Finding("slurm.conf", kind, f"found {shown!r} more than once, allowed: one line for each", REFUSED)


@dataclass(frozen=True)
class _NamedNodes:
    """A setting whose names have to be nodes."""

    place: str
    key: str
    names: list[str]
    effect: str
    """What slurmctld does with other names."""


def _find_named_nodes(cluster: ConfiguredCluster) -> Iterator[_NamedNodes]:
    """The settings that name nodes; slurmctld refuses unknown ones in partitions only (`_build_part_bitmaps`)."""
    features = {
        name: values.get("feature", values.get("features", "")).split(",") for name, values in cluster.nodes.items()
    }
    for name, values in cluster.partitions.items():
        names = members(values.get("nodes", ""), cluster.says.node_sets, features)
        yield _NamedNodes(f"slurm.conf: PartitionName={name}", "Nodes", names, REFUSED)
    for hosts, _values in cluster.of_kind("DownNodes"):
        yield _NamedNodes("slurm.conf", "DownNodes", expand(hosts), IGNORED)
    yield _NamedNodes("gres.conf", "NodeName", [name for name in cluster.says.gres if name], IGNORED)


def check_named_nodes(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Names that are no nodes."""
    for named in _find_named_nodes(cluster):
        unknown = [name for name in named.names if name not in cluster.nodes]
        if unknown:
            sets = {node_set.name for node_set in cluster.says.node_sets if named.key == "Nodes"} - {*unknown}
            allowed = f"{'nodes and nodesets' if sets else 'nodes'} of slurm.conf"
            what = f"found {fold(unknown)!r}, allowed: {allowed}{suggest(unknown[0], [*cluster.nodes, *sets])}"
            yield Finding(named.place, named.key, what, named.effect)


def check_functions_of_nodes(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Functions in the nodes of a partition, which an older release does not have."""
    if cluster.release >= releases.FUNCTIONS_OF_NODES:
        return
    for name, values in cluster.partitions.items():
        for function, argument in functions(values.get("nodes", ""))[:1]:
            what = f"found '{function}{{{argument}}}', allowed: nodes and nodesets; Slurm {cluster.release}"
            since = f"has no functions, {releases.FUNCTIONS_OF_NODES} and later do"
            yield Finding(f"slurm.conf: PartitionName={name}", "Nodes", f"{what} {since}", REFUSED)


def check_topology(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Nodes of topology.conf that do not exist, of which slurmctld only says so in its log (`_validate_switches`)."""
    for (file, _key), (line, text) in cluster.says.settings.items():
        hosts = re.search(r"\bNodes=(\S+)", text, re.IGNORECASE) if file == "topology.conf" else None
        strange = [name for name in expand(hosts[1]) if name not in cluster.nodes] if hosts else []
        if strange:
            what = f"found {fold(strange)!r}, allowed: nodes of slurm.conf{suggest(strange[0], cluster.nodes)}"
            yield Finding(f"topology.conf: {line}", "Nodes", what, IGNORED)


def check_partitions(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Several defaults (`_build_single_partitionline_info`), unknown alternates (`_alt_part_test` in job_mgr.c)."""
    defaults = [name for name, values in cluster.partitions.items() if is_yes(values.get("default", ""))]
    if len(defaults) > 1:
        what = f"found on {', '.join(defaults)}, allowed: one; Slurm takes the last, {defaults[-1]!r}"
        yield Finding(f"slurm.conf: PartitionName={defaults[0]}", "Default", what, IGNORED)
    for name, values in cluster.partitions.items():
        other = values.get("alternate")
        if other and other not in cluster.partitions:
            what = f"found {other!r}, allowed: {', '.join(cluster.partitions)}{suggest(other, cluster.partitions)}"
            yield Finding(f"slurm.conf: PartitionName={name}", "Alternate", what, IGNORED)


_NO_JOB = {
    "maxtime": "a time, or UNLIMITED",
    "maxnodes": "1 or more, or UNLIMITED",
    "maxcpuspernode": "1 or more, or UNLIMITED",
    "maxcpuspersocket": "1 or more, or UNLIMITED",
}
"""Limits of a partition of which 0 allows no job; of DefaultTime, it makes users give a time."""


def check_limits_without_jobs(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Limits under which a partition has no job, of which slurmctld says nothing.

    `_valid_job_part` in `src/slurmctld/job_mgr.c`, `job_limits_check` there for jobs that have been taken, and
    `_allocate_sc` in `src/plugins/select/cons_tres/job_test.c` for CPUs.
    """
    for name, values in cluster.partitions.items():
        for key, allowed in _NO_JOB.items():
            value = values.get(key, "1")
            if re.fullmatch("[0:-]+", value):
                what = f"found {value!r}, allowed: {allowed}; no job could start, for which there is State=DOWN"
                yield Finding(f"slurm.conf: PartitionName={name}", FILES["PartitionName"][key].name, what, REFUSED)


RULES = (
    check_repeated_lines,
    check_named_nodes,
    check_functions_of_nodes,
    check_topology,
    check_partitions,
    check_limits_without_jobs,
)
