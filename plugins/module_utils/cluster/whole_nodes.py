# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a limit on GPUs means in whole nodes of the cluster: a team counts machines, and Slurm counts GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .gpu_defaults import gpus_of
from .machine_types import gres_kinds, machine_of

_IN_NODES = ("GrpTRES", "MaxTRESPerAccount", "MaxTRESPerJob", "MaxTRESPerUser")
"""The limits that count GPUs in use, and not time, nor what a job has on one node."""
_NAMED = 3
"""The most names in a line about equal limits."""


def gpus_of_nodes(
    nodes: Iterable[Mapping[str, Any]], hardware: Mapping[str, Mapping[str, Any]]
) -> dict[str, Counter[str]]:
    """The GPUs of a node by resource, such as `gres/gpu` and `gres/gpu:h100`, for each machine type that has any.

    Args:
        nodes: the variable slurm_nodes.
        hardware: the variable slurm_hardware_types.
    """
    found: dict[str, Counter[str]] = {}
    for node in nodes:
        counts: Counter[str] = Counter()
        for gres in gpus_of({**machine_of(node, hardware), **node}):
            for kind, count in gres_kinds(gres):
                counts["gres/gpu"] += count
                if kind:
                    counts[f"gres/gpu:{kind}".lower()] += count
        if counts:
            found.setdefault(node["hardware"], counts)
    return found


def describe_limits(changes: Iterable[Mapping[str, Any]], machines: Mapping[str, Counter[str]]) -> list[str]:
    """The changed limits on GPUs in whole nodes; equal ones of several accounts or users are one line.

    Args:
        changes: the plan of the module slurm_accounting.
        machines: what gpus_of_nodes has found.
    """
    same: dict[str, list[str]] = {}
    for change in changes:
        of, _blank, name = change["what"].rpartition(" ")
        for resource, count in _limits(change.get("after") or "") if name in _IN_NODES else ():
            if meaning := in_nodes(resource, count, machines):
                same.setdefault(f"{name} {resource}={count}: {meaning}", []).append(of)
    return [f"{_short(names)}: {text}" for text, names in same.items()]


def _limits(value: str) -> Iterator[tuple[str, int]]:
    """The limits on GPUs in a value that is set."""
    for pair in value.split(","):
        resource, _equals, count = pair.partition("=")
        if resource.partition(":")[0] == "gres/gpu" and int(count):
            yield resource, int(count)


def in_nodes(resource: str, count: int, machines: Mapping[str, Counter[str]]) -> str:
    """So many GPUs in nodes of each machine type that has them: `1 node of hgx (8 GPUs)`; empty if none has."""
    by_size: dict[int, list[str]] = {}
    for name, counts in machines.items():
        if counts[resource.lower()]:
            by_size.setdefault(counts[resource.lower()], []).append(name)
    return ", or ".join(_describe(count, size, " or ".join(names)) for size, names in sorted(by_size.items()))


def _describe(count: int, size: int, name: str) -> str:
    """So many GPUs in nodes that have `size` of them."""
    whole, rest = divmod(count, size)
    gpus = f"{size} GPU{'s' * (size > 1)}"
    if not whole:
        return f"less than 1 node of {name} ({gpus})"
    nodes = f"1 node of {name} ({gpus})" if whole == 1 else f"{whole:,} nodes of {name} ({gpus} each)"
    return nodes + (f" and {rest} GPU{'s' * (rest > 1)}" if rest else "")


def _short(names: list[str]) -> str:
    """A few names, and how many more."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
