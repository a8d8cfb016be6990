# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the other clusters of a database need, and what stays for them when a policy of one cluster is applied.

A database has one table for the QOS of all clusters (`qos_table`), one for users with their AdminLevel (`user_table`),
one for accounts with Description and Organization (`acct_table`), and one for coordinators (`acct_coord_table`; all in
`src/plugins/accounting_storage/mysql/accounting_storage_mysql.c`). Associations and WCKeys belong to one cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .differences import users_that_go
from .entities import Entity, Settings, State
from .limits import LEFT_ALONE, LIMITS, of_all_clusters


@dataclass
class OtherClusters:
    """What the other clusters of a database have."""

    clusters: Sequence[str]
    """Their names."""
    qos: dict[str, list[str]] = field(default_factory=dict)
    """What uses a QOS, as text, by the QOS."""
    members: dict[Entity, list[str]] = field(default_factory=dict)
    """The clusters that a user or an account has associations in."""
    without_association: dict[str, list[str]] = field(default_factory=dict)
    """What a user has there that needs no association, as text, by the user."""

    @property
    def text(self) -> str:
        """`cluster a`, `clusters a, b`."""
        return name_clusters(self.clusters)


def name_clusters(clusters: Iterable[str]) -> str:
    """Names of clusters as text: `cluster a`, `clusters a, b`."""
    names = [*clusters]
    return f"cluster{'s' if len(names) > 1 else ''} {', '.join(names)}"


def kept_for_other_clusters(
    state: State, unwanted: Iterable[Entity], others: OtherClusters, purge: bool
) -> dict[Entity, str]:
    """The unwanted entities that are not removed because other clusters need them, with the reason.

    purge: the policy does not name them. Then they also stay where nobody knows whether another cluster needs them:
    the database does not know the QOS of partitions, without which slurmctld does not start
    (`_build_single_partitionline_info` in `src/slurmctld/read_config.c`), nor where a user works as Operator.
    Without `purge` a person has named each of them.

    With the last association of a user, sacctmgr removes the user with everything that the user has in all clusters
    (`sacctmgr_delete_user` in `src/sacctmgr/user_functions.c`). Accounts and users with associations in other clusters
    can be removed: the commands name the cluster.
    """
    unwanted = [*unwanted]
    users = users_that_go(state, unwanted)
    kept = {}
    for entity in unwanted:
        reason = ""
        if entity.kind == "qos":
            reason = _use_of_qos(entity.name, others, purge)
        elif entity in users and users[entity] not in others.members:
            reason = _use_of_user(users[entity], state, others, purge)
        if reason:
            kept[entity] = reason
    return kept


def _use_of_qos(name: str, others: OtherClusters, purge: bool) -> str:
    """Why other clusters need a QOS; empty if they do not."""
    if name in others.qos:
        return ", ".join(others.qos[name])
    return f"a partition of {others.text} may name it, which the database does not know" if purge else ""


def _use_of_user(user: Entity, state: State, others: OtherClusters, purge: bool) -> str:
    """Why other clusters need a user who has no association there; empty if they do not."""
    if user.name in others.without_association:
        return ", ".join(others.without_association[user.name])
    level = state.entities[user].get("AdminLevel", "None")
    return f"is {level} in all clusters of the database" if purge and level != "None" else ""


def in_other_clusters(removed: Iterable[Entity], others: OtherClusters) -> dict[Entity, str]:
    """The users and accounts that are removed from this cluster only, with the clusters that keep them as text."""
    return {entity: f"in {name_clusters(others.members[entity])}" for entity in removed if entity in others.members}


def kept_settings(state: State, named: Mapping[Entity, Settings]) -> dict[Entity, str]:
    """The settings that the policy does not name, and that `purge` would remove if the database had one cluster.

    They are settings of all clusters. Texts are never removed.
    """
    kept = {}
    for entity, settings in named.items():
        present = state.entities.get(entity) or state.elsewhere.get(entity, {})
        values = [
            f"{name} {present[name]}"
            for name, limit in LIMITS[entity.kind].items()
            if of_all_clusters(entity.kind, name)
            and limit.kind not in LEFT_ALONE
            and name not in settings
            and present.get(name, limit.default) != limit.default
        ]
        if values:
            kept[entity] = f"keeps {', '.join(values)}, which holds in all clusters of the database"
    return kept
