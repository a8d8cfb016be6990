# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The differences of a policy from slurmdbd's data, and the entities that cannot be removed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..language.hostlist import fold
from .entities import OWN, Entity, JobAssociation, Settings, State, parents_of
from .limits import LIMITS, NAME


@dataclass(frozen=True)
class AccountingChange:
    """A difference."""

    entity: Entity
    key: str
    """The limit; empty: the entity itself."""
    before: str | None
    after: str | None
    """Meanings (limits.py); None: not there."""

    @property
    def what(self) -> str:
        """The name of the changed limit: `qos high MaxWall`."""
        return f"{self.entity.text} {self.key}".strip()


def surplus(state: State, wanted: Mapping[Entity, Settings]) -> list[Entity]:
    """The entities that exist and are not wanted, except Slurm's own.

    The associations of a user are removed with the user.
    """
    return [
        entity
        for entity in state.entities
        if entity not in wanted
        and entity not in OWN
        and entity.kind != "cluster"
        and (entity.kind != "association" or Entity("user", entity.name) in wanted)
    ]


def contents(state: State, account: str) -> list[Entity]:
    """The accounts and users that are in an account."""
    return [
        entity
        for entity, settings in state.entities.items()
        if entity.account == account or (entity.kind == "account" and settings["Parent"] == account)
    ]


def in_use(state: State, unwanted: Iterable[Entity], jobs: Iterable[JobAssociation]) -> dict[Entity, list[str]]:
    """The entities that must not be removed, with the jobs that need them:

    QOS, users, and their associations with the account of the job, which is in others.
    """
    parents = parents_of(state.entities)
    places: dict[tuple[str, str], list[Entity]] = {}
    for entity in state.entities:
        if entity.kind == "association":
            places.setdefault((entity.name, entity.account), []).append(entity)
    needed: dict[Entity, list[str]] = {}
    for job in jobs:
        needs = {Entity("qos", job.qos), Entity("user", job.user), *places.get((job.user, job.account), [])}
        account = job.account
        while account in parents:
            needs.add(Entity("account", account))
            account = parents[account]
        for entity in needs:
            needed.setdefault(entity, []).append(job.number)
    return {entity: needed[entity] for entity in unwanted if entity in needed}


def users_that_go(state: State, unwanted: Iterable[Entity]) -> dict[Entity, Entity]:
    """The users whom Slurm would remove, by the unwanted entities: themselves, or all of their associations."""
    gone = dict.fromkeys(unwanted)
    stay = {entity.name for entity in state.entities if entity.kind == "association" and entity not in gone}
    return {
        entity: Entity("user", entity.name)
        for entity in gone
        if entity.kind == "user" or (entity.kind == "association" and entity.name not in stay)
    }


def not_removed(state: State, unwanted: Iterable[Entity], elsewhere: Iterable[Entity] = ()) -> dict[Entity, str]:
    """The entities that no command removes, or not alone, with the reason.

    Since 23.11 slurmdbd removes accounts and users by `lineage like '%/NAME/%'`, where `_` is any character
    (`as_mysql_remove_accts` and `as_mysql_remove_users` in `src/plugins/accounting_storage/mysql`): `a_b` also
    removes `a-b`, with its users.

    elsewhere: the users and accounts of other clusters. A user who has no association any more is removed from all
    clusters, and so are users with such a name there; accounts are removed from one cluster.
    """
    unwanted = dict.fromkeys(unwanted)
    users = users_that_go(state, unwanted)
    removed = {*unwanted, *users.values()}
    remaining = [entity for entity in state.entities if entity not in removed]
    remaining += [entity for entity in elsewhere if entity.kind == "user"]
    names: dict[tuple[str, int], list[str]] = {}
    for entity in dict.fromkeys(remaining):
        names.setdefault((entity.kind, len(entity.name)), []).append(entity.name)
    reasons = {}
    for entity in unwanted:
        if not all(NAME.fullmatch(name) for name in filter(None, entity[1:])):
            reasons[entity] = "has a name that sacctmgr cannot take in a command"
        elif entity.kind == "account" or entity in users:
            kind = users.get(entity, entity).kind
            if others := _find_names_like(entity.name, names.get((kind, len(entity.name)), ())):
                reasons[entity] = f"Slurm would remove {', '.join(others)} with it"
    return reasons


def _find_names_like(name: str, others: Iterable[str]) -> list[str]:
    """The others for which MariaDB's `like` takes a name, in which `_` is any character."""
    if "_" not in name:
        return []
    pattern = re.compile(re.escape(name).replace("_", "."))
    return [other for other in others if other != name and pattern.fullmatch(other)]


def kept_accounts(state: State, unwanted: Iterable[Entity], kept: Mapping[Entity, str]) -> dict[Entity, str]:
    """The unwanted accounts that are not removed, with the reason, by the users and accounts that stay in them.

    Slurm removes an account with all that is in it.
    """
    found, left = dict(kept), [account for account in unwanted if account not in kept]
    while True:
        reasons = _accounts_around(state, found) | not_removed(state, left)
        more = {account: reasons[account] for account in left if account in reasons}
        if not more:
            return {account: reason for account, reason in found.items() if account not in kept}
        found |= more
        left = [account for account in left if account not in more]


def _accounts_around(state: State, kept: Mapping[Entity, str]) -> dict[Entity, str]:
    """The accounts with users and accounts that stay, and the accounts that those are in, with the reason."""
    parents = parents_of(state.entities)
    reasons: dict[Entity, str] = {}
    for entity in state.entities:
        if entity.kind == "account":
            inside, account = entity, parents.get(entity.name, "")
        else:
            inside, account = Entity("user", entity.name), entity.account
        if inside in kept:
            while account in parents:
                reasons.setdefault(Entity("account", account), f"{inside.text} stays in it")
                account = parents[account]
    return reasons


def compare(state: State, wanted: Mapping[Entity, Settings], unwanted: Iterable[Entity] = ()) -> list[AccountingChange]:
    """The differences of the state from the wanted one, and the entities that exist and are not wanted.

    The coordinators of the state are not wanted either.
    """
    changes = []
    for entity, settings in wanted.items():
        existing = state.entities.get(entity)
        if existing is None:
            changes.append(AccountingChange(entity, "", None, entity.name))
        unset = {name: limit.default for name, limit in LIMITS[entity.kind].items()}
        present = state.elsewhere.get(entity, {}) if existing is None else existing
        for key, after in settings.items():
            before = present.get(key, unset[key])
            if key == "Coordinators":
                before = _present_coordinators(state, entity.name, before, after)
            if before != after:
                changes.append(AccountingChange(entity, key, before, after))
    return changes + [
        AccountingChange(entity, "", entity.name, None)
        for entity in (*(entity for entity in unwanted if entity in state.entities), *state.coordinators)
    ]


def after_changes(
    state: State, wanted: Mapping[Entity, Settings], unwanted: Iterable[Entity]
) -> dict[Entity, Settings]:
    """The entities after the changes."""
    gone = {*unwanted}
    merged = {entity: {**state.entities.get(entity, {}), **settings} for entity, settings in wanted.items()}
    found = {**state.entities, **merged}
    users = {entity.name for entity in gone if entity.kind == "user"}
    return {
        entity: settings
        for entity, settings in found.items()
        if entity not in gone and not (entity.kind == "association" and entity.name in users)
    }


def _present_coordinators(state: State, account: str, named: str, wanted: str) -> str:
    """The coordinators of an account that a policy would keep or remove.

    Somebody who is wanted and is one already, by an account above, need not be named. Those who go in any case are
    changes of their own.
    """
    gone = {coordinator.name for coordinator in state.coordinators if coordinator.account == account}
    already = {*wanted.split(",")} & state.all_coordinators.get(account, set())
    return ",".join(sorted(({*filter(None, named.split(","))} - gone) | already))


def table(changes: Iterable[AccountingChange]) -> list[str]:
    """The changes as text; equal changes of several names are one line."""
    same: dict[tuple[Entity, str, str], list[str]] = {}
    for change in changes:
        before, after = change.before, change.after
        becomes = f"{before or '-'} -> {after or '-'}" if change.key else "gone" if after is None else "new"
        same.setdefault((change.entity._replace(name=""), change.key, becomes), []).append(change.entity.name)
    return [
        f"{entity._replace(name=_folded(names)).text} {key}".strip() + f"  {becomes}"
        for (entity, key, becomes), names in same.items()
    ]


def kept_lines(kept: Mapping[Entity, str]) -> list[str]:
    """What is not removed, and why, as text; equal reasons of several names are one line."""
    same: dict[tuple[Entity, str], list[str]] = {}
    for entity, reason in kept.items():
        same.setdefault((entity._replace(name=""), reason), []).append(entity.name)
    return [f"{entity._replace(name=_folded(names)).text}: {reason}" for (entity, reason), names in same.items()]


def _folded(names: list[str]) -> str:
    """Names in short; names that Slurm has, and that no hostlist can have, as they are."""
    return fold(names) if all(map(NAME.fullmatch, names)) else ",".join(names)
