# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about generic resources: GresTypes, the Gres of nodes and gres.conf (`cross_checks`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..configuration.generic_resources import Gres, gres_of_lines, gres_of_node
from ..configuration.parameter_tables import releases
from ..configuration.parameters import IGNORED, REFUSED, SHARED_GRES
from ..language.hostlist import expand, fold
from .configured_cluster import ConfiguredCluster, Finding, suggest


@dataclass(frozen=True)
class _GresProblem:
    """What is wrong with the generic resources of a node; many nodes have the same."""

    file: str
    key: str
    text: str
    effect: str


def check_gres(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """GresTypes, the Gres of nodes and gres.conf. Nodes that have the same are checked once."""
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, values in cluster.nodes.items():
        lines = cluster.says.gres.get(name, ())
        if lines or "gres" in values:
            alike.setdefault((values.get("gres", ""), lines), []).append(name)
    types = cluster.list_of("GresTypes")
    nodes_by_problem: dict[_GresProblem, list[str]] = {}
    for (value, lines), names in alike.items():
        problems = [*_check_names(value, types)]
        if cluster.gres_conf:
            problems += _compare_with_lines(value, lines, cluster.says.gres.get("", ()))
        for problem in problems:
            nodes_by_problem.setdefault(problem, []).extend(names)
    for problem, names in nodes_by_problem.items():
        yield Finding(f"{problem.file}: NodeName={fold(names)}", problem.key, problem.text, problem.effect)
    listed = {gres.name for texts in {*cluster.says.gres.values()} for gres in gres_of_lines(texts)}
    for name in sorted(listed):
        if name not in types:  # `_parse_gres_config`
            yield Finding("gres.conf", "Name", _not_in_types(name, types), IGNORED)


def _not_in_types(name: str, types: list[str]) -> str:
    """The message for a name that is not in GresTypes."""
    return f"found {name!r}, allowed: {', '.join(types) or 'nothing'}, the GresTypes{suggest(name, types)}"


def _check_names(value: str, types: list[str]) -> Iterator[_GresProblem]:
    """Names that slurmctld leaves out (`gres_name_filter`); types that some have, which slurmd refuses."""
    configured = gres_of_node(value)
    for name in dict.fromkeys(gres.name for gres in configured):
        if name not in types:
            yield _GresProblem("slurm.conf", "Gres", _not_in_types(name, types), IGNORED)
        if len({bool(gres.kind) for gres in configured if gres.name == name}) > 1:  # `_foreach_slurm_conf`
            what = f"found {value!r}, allowed: all or none of the {name} with a type"
            yield _GresProblem("slurm.conf", "Gres", what, REFUSED)


def _compare_with_lines(value: str, lines: tuple[str, ...], everywhere: tuple[str, ...]) -> Iterator[_GresProblem]:
    """Compare the Gres of a node with its lines in gres.conf, as slurmd does (`_merge_gres2`, `_find_fileless_gres`).

    Only the node knows the devices that slurmd detects.

    Args:
        value: the Gres of the node.
        lines: its lines.
        everywhere: the lines of all nodes.
    """
    if any(re.search(r"\bautodetect=(?!off\b)", text, re.IGNORECASE) for text in (*lines, *everywhere)):
        return
    configured, listed = gres_of_node(value), gres_of_lines((*lines, *everywhere))
    for gres in configured:
        yield from _compare_configured(gres, [line for line in listed if line.name == gres.name], value)
    yield from _compare_listed(gres_of_lines(lines), configured)


def _compare_configured(gres: Gres, lines: Iterable[Gres], value: str) -> Iterator[_GresProblem]:
    """Compare one of the Gres of a node with the lines of its name.

    slurmd leaves out GPUs without a file: the node has fewer than configured, and becomes INVAL. So does one whose
    types are spelled otherwise, which slurmctld tells apart (not that of 22.05).
    """
    kinds = [*dict.fromkeys(line.kind for line in lines if line.kind)]
    files = sum(line.number for line in lines if line.files and gres.kind in ("", line.kind))
    if gres.name == "gpu" and files < gres.number:
        guess = suggest(gres.kind, kinds) if gres.kind not in ("", *kinds) else ""
        what = f"found '{gres}:{gres.number}', allowed: up to {files}, the files in gres.conf{guess}"
        yield _GresProblem("slurm.conf", "Gres", what, REFUSED)
    if kinds and not gres.kind:
        what = f"found {', '.join(kinds)!r}, allowed: where Gres in slurm.conf has a type, found {value!r}"
        yield _GresProblem("gres.conf", "Type", what, IGNORED)


def _compare_listed(listed: Iterable[Gres], configured: Iterable[Gres]) -> Iterator[_GresProblem]:
    """Compare the lines of a node with its Gres. Shares are spread over GPUs: their lines have counts of their own."""
    counts: dict[tuple[str, str], int] = {}
    for line in listed:
        counts[line.name, line.kind] = counts.get((line.name, line.kind), 0) + line.number
    for (name, kind), count in counts.items():
        wanted = sum(gres.number for gres in configured if gres.name == name and gres.kind in ("", kind))
        if name not in SHARED_GRES and count > wanted:
            what = f"found '{Gres(name, kind, count, True)}:{count}', allowed: up to {wanted}, the Gres in slurm.conf"
            yield _GresProblem("gres.conf", "Name", what, IGNORED)


_CORES = re.compile(r"\b(?:Cores|CPUs)=([\d,-]+)", re.IGNORECASE)
_NAME = re.compile(r"\bName=(\S+)", re.IGNORECASE)


@dataclass(frozen=True)
class _CoreRange:
    """The cores of a line of gres.conf, on nodes with these sockets."""

    cores: str
    sockets: int
    cores_per_socket: int

    def is_allowed(self, one_socket: bool) -> bool:
        """Whether these are whole sockets; `one_socket`: one of them, or all."""
        indexes = {int(core) for core in expand(f"[{self.cores}]")}
        touched = {index // self.cores_per_socket for index in indexes}
        are_whole = len(indexes) == len(touched) * self.cores_per_socket
        return are_whole and (not one_socket or len(touched) in (1, self.sockets))


def _find_core_ranges(cluster: ConfiguredCluster) -> dict[_CoreRange, list[str]]:
    """The cores in gres.conf of generic resources that nodes have, and these nodes."""
    ranges: dict[_CoreRange, list[str]] = {}
    for name, values in cluster.nodes.items():
        gres_names = {gres.name for gres in gres_of_node(values.get("gres", ""))}
        if not gres_names or "corespersocket" not in values:
            continue
        for text in (*cluster.says.gres.get(name, ()), *cluster.says.gres.get("", ())):
            cores, gres_name = _CORES.search(text), _NAME.search(text)
            if cores and gres_name and gres_name[1] in gres_names:
                core_range = _CoreRange(cores[1], _count_sockets(values), int(values["corespersocket"]))
                ranges.setdefault(core_range, []).append(name)
    return ranges


def check_cores(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Cores that are a part of a socket, for which slurmctld sets the node down (`_check_core_range_matches_sock`)."""
    if cluster.release < releases.GRES_SOCKETS:
        return
    one_socket = cluster.release >= releases.GRES_ONE_SOCKET
    for core_range, names in _find_core_ranges(cluster).items():
        if not core_range.is_allowed(one_socket):
            size = core_range.cores_per_socket
            allowed = f"all {size} cores of {'one' if one_socket else 'a'} socket, such as 0-{size - 1}"
            if one_socket and core_range.sockets > 1:
                allowed += f", or all cores, 0-{core_range.sockets * size - 1}"
            what = f"found {core_range.cores!r}, allowed: {allowed}, with Slurm {cluster.release}"
            yield Finding(f"gres.conf: NodeName={fold(names)}", "Cores", what, REFUSED)


def _count_sockets(values: Mapping[str, str]) -> int:
    """The sockets of a node, those of all its boards (`_parse_nodename` in `src/common/read_config.c`)."""
    boards, of_board = int(values.get("boards", "1")), values.get("socketsperboard")
    if of_board is not None:
        return boards * int(of_board)
    cores = int(values["corespersocket"]) * int(values.get("threadspercore", "1"))
    return int(values.get("sockets", "0")) or int(values.get("cpus", values.get("procs", "0"))) // cores or 1


RULES = (check_gres, check_cores)
