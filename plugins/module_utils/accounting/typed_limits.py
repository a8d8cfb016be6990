# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits on a type of GPU, which jobs pass that name no type.

Slurm compares a limit with what a job requests: `--gres=gpu:8` is 8 of `gres/gpu` and none of `gres/gpu:h100`, whatever
GPUs the job gets (resource_limits.html, "Specific limits over GRES"; `_foreach_set_type_tres_cnt` in
`src/stepmgr/gres_stepmgr.c`). Only a limit on `gres/gpu` beside it counts such a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .differences import kept_lines
from .entities import Entity
from .limits import LIMITS
from .policy import entities_of


class PassedLimit(NamedTuple):
    """A limit on types of a GRES that stands without one on all of its types."""

    entity: Entity
    name: str
    """Slurm's term for the limit."""
    counts: Mapping[str, int]
    """By the resource, such as `gres/gpu:h100`."""

    @property
    def closes(self) -> bool:
        """Whether it only says that there are none of a type: no number of GPUs of all types says that."""
        return not any(self.counts.values())

    @property
    def text(self) -> str:
        """What is wrong with it."""
        wanted = sorted({resource.partition(":")[0] for resource in self.counts})
        kind = wanted[0].partition("/")[2]
        return (
            f"{self.name}: found {', '.join(sorted(self.counts))} without {', '.join(wanted)}, so jobs that name no "
            f"type (--gres={kind}:1) pass it"
        )


def find_passed(policy: Mapping[str, Any], tracked: Iterable[str]) -> Iterator[PassedLimit]:
    """The limits of a policy that jobs without a type pass.

    tracked: the value of AccountingStorageTRES. Where it has a type and not the GRES itself, Slurm counts jobs that
    name no type under a type.
    """
    known = {*tracked}
    for entity, settings in entities_of(policy).items():
        for name, value in settings.items():
            if LIMITS[entity.kind][name].kind != "tres" or name.startswith("Min"):
                continue
            counts = {pair.partition("=")[0]: int(pair.partition("=")[2]) for pair in value.split(",") if pair}
            passed = {resource: count for resource, count in counts.items() if _is_passed(resource, {*counts}, known)}
            if passed:
                yield PassedLimit(entity, name, passed)


def _is_passed(resource: str, limited: set[str], tracked: set[str]) -> bool:
    """Whether a resource is a type of a GRES that is counted as a whole, and whose whole has no limit."""
    whole, _colon, name = resource.partition(":")
    return bool(name) and whole.startswith("gres/") and whole in tracked and whole not in limited


def describe_passed(limits: Iterable[PassedLimit]) -> list[str]:
    """The limits as text; equal ones of several names are one line."""
    texts: dict[str, dict[Entity, str]] = {}
    for limit in limits:
        texts.setdefault(limit.name, {})[limit.entity] = limit.text
    return [line for of_name in texts.values() for line in kept_lines(of_name)]
