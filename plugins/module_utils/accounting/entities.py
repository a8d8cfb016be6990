# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of slurmdbd: clusters, QOS, accounts, users and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Entity(NamedTuple):
    """Something that has limits."""

    kind: str
    """A key of LIMITS. `cluster` is its root, `association` a user in an account."""
    name: str
    account: str = ""
    partition: str = ""
    """Those of an association, which may be for one partition."""

    @property
    def text(self) -> str:
        """`qos high`, `user alice in physics, partition gpu`."""
        place = f" in {self.account}" if self.account else ""
        place += f", partition {self.partition}" if self.partition else ""
        # A policy does not name its cluster.
        return f"{'user' if self.kind == 'association' else self.kind} {self.name}{place}".rstrip()


Settings = Mapping[str, str]
"""Meanings (limits.py) by the limit's name."""


@dataclass
class State:
    """The data of slurmdbd about a cluster."""

    entities: dict[Entity, Settings] = field(default_factory=dict)
    clusters: list[str] = field(default_factory=list)
    """All of the database."""
    tres: list[str] = field(default_factory=list)
    """Resources that it knows."""
    grows: bool = False
    """Whether slurmctld may make more resources known, such as `gres/gpu`, before the policy is applied."""
    elsewhere: dict[Entity, Settings] = field(default_factory=dict)
    """Accounts and users without an association in the cluster, with their settings in all clusters."""

    all_coordinators: dict[str, set[str]] = field(default_factory=dict)
    """All coordinators by account. The setting Coordinators has those who were named for the account."""
    coordinators: list[Entity] = field(default_factory=list)
    """Coordinators of accounts, as (`coordinator`, user, account), who must not be any longer."""

    def others(self, cluster: str) -> list[str]:
        """The other clusters of the database."""
        return [other for other in self.clusters if other != cluster]


class JobAssociation(NamedTuple):
    """The association and QOS of a job that has not ended."""

    number: str
    user: str
    account: str
    qos: str


class QueuedJob(NamedTuple):
    """What slurmctld has accepted a job by that has not ended."""

    number: str
    user: str
    account: str
    partition: str
    """One, or several of a pending job."""
    qos: str


ROOT = "root"
OWN = frozenset((Entity("qos", "normal"), Entity("account", ROOT), Entity("user", ROOT)))
"""The entities that Slurm adds itself, and would add again."""


def parents_of(*entities: Mapping[Entity, Settings]) -> dict[str, str]:
    """The parent of each account; later ones win."""
    return {
        entity.name: settings["Parent"]
        for some in entities
        for entity, settings in some.items()
        if entity.kind == "account" and "Parent" in settings
    }
