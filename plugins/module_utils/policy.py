# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A policy as data: judged, compared with what Slurm has, and the commands that make the difference.

What a policy does not name is left alone, or with `purge` removed: limits as well as QOS, accounts and users.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.limits import LIMITS, NAME, find, meaning, setting
from ansible_collections.gpucluster.slurm.plugins.module_utils.parameter_values import nearest
from ansible_collections.gpucluster.slurm.plugins.module_utils.sacctmgr import Entity, Job, Settings, State

ROOT = "root"
OWN = frozenset((Entity("qos", "normal"), Entity("account", ROOT), Entity("user", ROOT)))
"""What Slurm makes itself, and would make again."""

LINE = 3500
"""Length of a list of names; sacctmgr takes lines of 4,096 characters where it has no readline (`_getline`)."""

Wanted = dict[Entity, Settings]


class PolicyError(ValueError):
    """All that is wrong with a policy, a line each."""


# -- judge -----------------------------------------------------------------------------------------------------------


@dataclass
class _Reader:
    """Takes a policy in, and keeps what is wrong with it."""

    wanted: Wanted = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def name(self, what: str, entry: Mapping[str, Any]) -> str:
        """The name of an entry, as Slurm keeps it."""
        name = str(entry.get("name", ""))
        if not NAME.fullmatch(name):
            self.errors.append(f"{what}: name: found {name!r}, allowed: a name without blanks, commas and quotes")
        return name.lower()

    def settings(
        self, what: str, entry: Mapping[str, Any], own: Sequence[str], *kinds: str
    ) -> dict[str, dict[str, str]]:
        """The limits of an entry by kind of entity; `own` are the keys that are no limits."""
        found: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
        for key, value in entry.items():
            if key in own:
                continue
            try:
                kind, limit = find(kinds, key, own)
                found[kind][limit.name] = meaning(limit, value)
            except ValueError as error:
                self.errors.append(f"{what}: {error}")
        return found

    def add(self, entity: Entity, settings: Settings) -> None:
        """An entity that must be there."""
        if entity in self.wanted:
            self.errors.append(f"{entity.words}: is there twice")
        self.wanted[entity] = settings

    def qos(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """QOS."""
        for entry in entries:
            entity = Entity("qos", self.name("qos", entry))
            self.add(entity, self.settings(entity.words, entry, ["name"], "qos")["qos"])

    def accounts(self, entries: Iterable[Mapping[str, Any]], parent: str = "") -> None:
        """Accounts, with those that are in them."""
        for entry in entries:
            entity = Entity("account", self.name("account", entry))
            settings = self.settings(entity.words, entry, ["name", "accounts"], "account")["account"]
            if parent and settings.setdefault("Parent", parent) != parent:
                self.errors.append(f"{entity.words}: Parent: found {settings['Parent']!r}, but it is in {parent}")
            self.add(entity, settings)
            self.accounts(entry.get("accounts") or [], entity.name)

    def users(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Users, with their accounts. The first one is the default where no other is named."""
        for entry in entries:
            entity = Entity("user", self.name("user", entry))
            own = ["name", "accounts"]
            settings = self.settings(entity.words, entry, own, "user", "association")
            places = [place if isinstance(place, Mapping) else {"name": place} for place in entry.get("accounts") or []]
            names = [str(place.get("name", "")).lower() for place in places]
            default = settings["user"].setdefault("DefaultAccount", names[0] if names else "")
            if not default:
                self.errors.append(f"{entity.words}: has no account; name its DefaultAccount, or accounts")
                continue
            self.add(entity, settings["user"])
            for place in places if default in names else [{"name": default}, *places]:
                account, partition = self.name(entity.words, place), str(place.get("partition") or "")
                where = Entity("association", entity.name, account, partition)
                special = self.settings(where.words, place, ["name", "partition"], "association")["association"]
                self.add(where, {**settings["association"], **special})

    def references(self, state: State, purge: bool) -> None:
        """What is named somewhere must be known: to the policy, or to Slurm if it stays there."""
        stays = () if purge else state.entities
        known = {
            kind: {entity.name for entity in (*self.wanted, *stays, *OWN) if entity.kind == kind}
            for kind in ("qos", "account")
        }
        for entity, settings in self.wanted.items():
            if entity.kind == "association":
                self._known(f"{entity.words}: account", [entity.account], known["account"])
            for key, value in settings.items():
                if LIMITS[entity.kind][key].kind == "tres":
                    resources = [pair.partition("=")[0] for pair in value.split(",") if pair]
                    self._known(f"{entity.words}: {key}", resources, state.tres)
                elif key in ("QOS", "DefaultQOS", "Preempt"):
                    self._known(f"{entity.words}: {key}", filter(None, value.split(",")), known["qos"])
                elif key == "Parent":
                    self._known(f"{entity.words}: {key}", [value], known["account"])
        parents = parents_of(state.entities, self.wanted)
        for entity in self.wanted:
            if entity.kind == "account" and (circle := _circle(entity.name, parents)):
                self.errors.append(f"{entity.words}: is in itself: {' in '.join(circle)}")

    def _known(self, where: str, names: Iterable[str], known: Iterable[str]) -> None:
        """Report names that are not known."""
        known = [*known]
        for name in names:
            if name not in known:
                meant = nearest(name, known)
                self.errors.append(f"{where}: {name!r} is unknown" + (f", did you mean {meant!r}?" if meant else ""))


def parents_of(*entities: Mapping[Entity, Settings]) -> dict[str, str]:
    """The parent of each account; later ones win."""
    return {
        entity.name: settings["Parent"]
        for some in entities
        for entity, settings in some.items()
        if entity.kind == "account" and "Parent" in settings
    }


def _circle(account: str, parents: Mapping[str, str]) -> list[str]:
    """The accounts from one to itself; none if it is in no circle."""
    path = [account]
    while (above := parents.get(path[-1], ROOT)) not in (ROOT, *path[1:]):
        path.append(above)
        if above == account:
            return path
    return []


def depth(account: str, parents: Mapping[str, str]) -> int:
    """How many accounts an account is in."""
    steps = 0
    while account in parents and steps <= len(parents):
        account, steps = parents[account], steps + 1
    return steps


def read(policy: Mapping[str, Any], cluster: str, state: State, purge: bool = False) -> Wanted:
    """What a policy wants of the cluster, with the limits that it names, or with `purge` all limits.

    policy: `cluster` (limits of all), `qos`, `accounts`, `users`.

    Raises:
        PolicyError: with all that is wrong.
    """
    reader = _Reader()
    if policy.get("cluster") is not None:
        entity = Entity("cluster", cluster)
        reader.add(entity, reader.settings(entity.words, policy["cluster"], [], "cluster")["cluster"])
    reader.qos(policy.get("qos") or [])
    reader.accounts(policy.get("accounts") or [])
    reader.users(policy.get("users") or [])
    reader.references(state, purge)
    if reader.errors:
        raise PolicyError("\n".join(reader.errors))
    return {entity: _all(entity, settings) for entity, settings in reader.wanted.items()} if purge else reader.wanted


def _all(entity: Entity, settings: Settings) -> Settings:
    """The settings with those that are not named, but for words, which are never unset."""
    unset = {name: limit.default for name, limit in LIMITS[entity.kind].items() if limit.kind != "text"}
    return settings if entity.kind == "cluster" else {**unset, **settings}


# -- compare ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """A difference."""

    entity: Entity
    key: str
    """The limit; empty: the entity itself."""
    before: str | None
    after: str | None
    """Meanings (limits.py); None: not there."""

    @property
    def what(self) -> str:
        """What changes in words: `qos high MaxWall`."""
        return f"{self.entity.words} {self.key}".strip()


def surplus(state: State, wanted: Mapping[Entity, Settings]) -> list[Entity]:
    """What is there and not wanted, but for what is Slurm's own. Users that go take their associations with them."""
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


def in_use(state: State, unwanted: Iterable[Entity], jobs: Iterable[Job]) -> dict[Entity, list[str]]:
    """What must not be removed, with the jobs that need it: QOS, and users with all of their accounts."""
    parents = parents_of(state.entities)
    places: dict[str, list[Entity]] = {}
    for entity in state.entities:
        if entity.kind == "association":
            places.setdefault(entity.name, []).append(entity)
    needed: dict[Entity, list[str]] = {}
    for job in jobs:
        own = {Entity("qos", job.qos), Entity("user", job.user), *places.get(job.user, [])}
        for account in [job.account, *(place.account for place in places.get(job.user, []))]:
            while account in parents:
                own.add(Entity("account", account))
                account = parents[account]
        for entity in own:
            needed.setdefault(entity, []).append(job.number)
    return {entity: needed[entity] for entity in unwanted if entity in needed}


def compare(state: State, wanted: Mapping[Entity, Settings], unwanted: Iterable[Entity] = ()) -> list[Change]:
    """In what the state differs from what is wanted, and what is there that is not wanted."""
    changes = []
    for entity, settings in wanted.items():
        there = state.entities.get(entity)
        if there is None:
            changes.append(Change(entity, "", None, entity.name))
        unset = {name: limit.default for name, limit in LIMITS[entity.kind].items()}
        for key, after in settings.items():
            before = unset[key] if there is None else there.get(key, unset[key])
            if before != after:
                changes.append(Change(entity, key, before, after))
    return changes + [Change(entity, "", entity.name, None) for entity in unwanted if entity in state.entities]


# -- commands --------------------------------------------------------------------------------------------------------


def commands(state: State, changes: Sequence[Change], cluster: str) -> list[str]:
    """The commands for changes, in the order in which Slurm takes them; equal ones are one with a list of names."""
    here = f" cluster={cluster}"
    by_entity: dict[Entity, list[Change]] = {}
    for change in changes:
        by_entity.setdefault(change.entity, []).append(change)
    parents = parents_of(state.entities)
    parents |= {c.entity.name: c.after or "" for c in changes if c.key == "Parent"}
    first = {c.entity.name: c.after for c in changes if c.key == "DefaultAccount"}
    lists: dict[tuple[int, int, str, str], list[str]] = {}
    for entity, own in by_entity.items():
        for step, order, start, end in _commands(entity, own, here, parents, first, len(state.clusters) > 1):
            lists.setdefault((step, order, start, end), []).append(entity.name)
    return [
        f"{start}{','.join(names)}{end}"
        for (_step, _order, start, end), all_names in sorted(lists.items())
        for names in _parts(all_names)
    ]


def _commands(
    entity: Entity,
    changes: Sequence[Change],
    here: str,
    parents: Mapping[str, str],
    first: Mapping[str, str | None],
    several: bool,
) -> Iterator[tuple[int, int, str, str]]:
    """For an entity: step, order in the step, and the command before and after its name."""
    whole = next((change for change in changes if not change.key), None)
    created, removed = whole is not None and whole.after is not None, whole is not None and whole.after is None
    limits = LIMITS[entity.kind]
    # A new user's first account is the default.
    own = [change for change in changes if change.key and not (created and change.key == "DefaultAccount")]
    texts = [setting(limits[change.key], change.before or "", change.after or "") for change in own]
    settings = "".join(f" {text}" for text in texts)
    scope = here if several else ""  # removed from all clusters where there is no other one
    partition = f" partition={entity.partition}"
    if entity.kind == "cluster":
        if created:
            yield 0, 0, "add cluster ", ""
        elif removed:
            yield 9, 0, "delete cluster ", ""
        if settings:
            yield 3, 0, f"modify account where name={ROOT} cluster=", f" set{settings}"
    elif entity.kind == "qos":
        if created:
            yield 1, 0, "add qos name=", ""
        elif removed:
            yield 9, 0, "delete qos where name=", ""
        if settings:
            yield 2, 0, "modify qos where name=", f" set{settings}"
    elif entity.kind == "account":
        level = depth(entity.name, parents)
        if created:
            yield 3, level, "add account name=", f"{here}{settings}"
        elif removed:
            yield 8, -level, "delete account where name=", scope
        elif settings:
            yield 3, level, "modify account where name=", f"{here} set{settings}"
    elif entity.kind == "association":
        place = f" account={entity.account}{here}"
        if created:
            step = 4 if first.get(entity.name) == entity.account else 5
            yield step, 0, "add user name=", f"{place}{partition if entity.partition else ''}{settings}"
        elif removed:
            yield 7, 0, "delete user where name=", f"{place}{partition}"
        elif settings:
            yield 5, 1, "modify user where name=", f"{place}{partition} set{settings}"
    elif removed:
        yield 7, 1, "delete user where name=", scope
    elif settings:
        yield 6, 0, "modify user where name=", f"{here} set{settings}"


def _parts(names: Sequence[str]) -> Iterator[list[str]]:
    """Names in lists that are short enough."""
    part: list[str] = []
    length = 0
    for name in names:
        length += len(name) + 1
        if part and length > LINE:
            yield part
            part, length = [], len(name) + 1
        part.append(name)
    yield part


# -- words -----------------------------------------------------------------------------------------------------------


def table(changes: Iterable[Change]) -> list[str]:
    """The changes as text; what is the same of several names is one line."""
    same: dict[tuple[Entity, str, str], list[str]] = {}
    for change in changes:
        before, after = change.before, change.after
        becomes = f"{before or '-'} -> {after or '-'}" if change.key else "gone" if after is None else "new"
        same.setdefault((change.entity._replace(name=""), change.key, becomes), []).append(change.entity.name)
    rows = [
        (f"{entity._replace(name=fold(names)).words} {key}".strip(), becomes)
        for (entity, key, becomes), names in same.items()
    ]
    width = max((len(what) for what, _becomes in rows), default=0)
    return [f"{what:{width}}  {becomes}" for what, becomes in rows]
