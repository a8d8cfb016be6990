# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A policy as data: judged, compared with what Slurm has, and the commands that make the difference.

What a policy does not name is left alone, or with `purge` removed: limits as well as QOS, accounts and users.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.limits import LIMITS, NAME, Limit, find, meaning, told
from ansible_collections.gpucluster.slurm.plugins.module_utils.sacctmgr import Entity, Job, Settings, State
from ansible_collections.gpucluster.slurm.plugins.module_utils.spelling import nearest

ROOT = "root"
OWN = frozenset((Entity("qos", "normal"), Entity("account", ROOT), Entity("user", ROOT)))
"""What Slurm makes itself, and would make again."""

LINE = 3500
"""Length of a list of names; sacctmgr takes lines of 4,096 characters where it has no readline (`_getline`)."""

Wanted = dict[Entity, Settings]
Partitions = Mapping[str, Iterable[tuple[str, Any]]]
"""Parameters of partitions, by the partition's name."""

_QOS_OF_PARTITIONS = ("qos", "allowqos", "denyqos")
"""Parameters in small letters. slurmctld ends where a QOS is not there (`_build_single_partitionline_info`)."""


class PolicyError(ValueError):
    """All that is wrong with a policy, a line each."""


# -- partitions ------------------------------------------------------------------------------------------------------


def _names(value: Any) -> list[str]:
    """The names that a parameter has, in small letters; none for `ALL`."""
    names = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return [name for name in (str(name).strip().lower() for name in names) if name not in ("", "all")]


def qos_of_partitions(policy: Mapping[str, Any], partitions: Partitions) -> dict[str, Any]:
    """The part of a policy that partitions need: the QOS that they name, without limits."""
    named = {
        name
        for parameters in partitions.values()
        for key, value in parameters
        if key.lower() in _QOS_OF_PARTITIONS
        for name in _names(value)
    }
    return {"qos": [{"name": qos["name"]} for qos in policy["qos"] if str(qos.get("name", "")).lower() in named]}


# -- judge -----------------------------------------------------------------------------------------------------------


@dataclass
class _Reader:
    """Takes a policy in, and keeps what is wrong with it."""

    state: State
    purge: bool
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

    def entries(self, what: str, found: Any) -> Iterator[Mapping[str, Any]]:
        """The entries of a list; a name stands for an entry that has no more."""
        if found is not None and not isinstance(found, list):
            self.errors.append(f"{what}: found {found!r}, allowed: a list")
            return
        for entry in found or []:
            yield entry if isinstance(entry, Mapping) else {"name": entry}

    def policy(self, policy: Mapping[str, Any], cluster: str) -> None:
        """All of a policy."""
        if policy.get("limits") is not None:
            entity = Entity("cluster", cluster)
            self.add(entity, self.settings(entity.words, policy["limits"], [], "cluster")["cluster"])
        self.qos(policy.get("qos"))
        self.accounts("accounts", policy.get("accounts"))
        self.users(policy.get("users"))

    def qos(self, found: Any) -> None:
        """QOS."""
        for entry in self.entries("qos", found):
            entity = Entity("qos", self.name("qos", entry))
            self.add(entity, self.settings(entity.words, entry, ["name"], "qos")["qos"])

    def accounts(self, what: str, found: Any, parent: str = "") -> None:
        """Accounts, with those that are in them."""
        for entry in self.entries(what, found):
            entity = Entity("account", self.name("account", entry))
            settings = self.settings(entity.words, entry, ["name", "accounts"], "account")["account"]
            if parent and settings.setdefault("Parent", parent) != parent:
                self.errors.append(f"{entity.words}: Parent: found {settings['Parent']!r}, but it is in {parent}")
            self.add(entity, settings)
            self.accounts(f"{entity.words}: accounts", entry.get("accounts"), entity.name)

    def users(self, found: Any) -> None:
        """Users, with their accounts. Where no default is named, it is the one that stays, or else the first."""
        for entry in self.entries("users", found):
            entity = Entity("user", self.name("user", entry))
            own = ["name", "accounts"]
            settings = self.settings(entity.words, entry, own, "user", "association")
            places = [*self.entries(f"{entity.words}: accounts", entry.get("accounts"))]
            names = [str(place.get("name", "")).lower() for place in places]
            there = self.state.entities.get(entity, {}).get("DefaultAccount", "")
            stays = there if there in names or not self.purge else ""
            default = settings["user"].setdefault("DefaultAccount", stays or "".join(names[:1]))
            if not default:
                self.errors.append(f"{entity.words}: has no account; name its DefaultAccount, or accounts")
                continue
            self.add(entity, settings["user"])
            for place in places if default in names else [{"name": default}, *places]:
                account, partition = self.name(entity.words, place), str(place.get("partition") or "")
                if partition and not NAME.fullmatch(partition):
                    self.errors.append(f"{entity.words}: partition: found {partition!r}, allowed: a name")
                where = Entity("association", entity.name, account, partition)
                special = self.settings(where.words, place, ["name", "partition"], "association")["association"]
                self.add(where, {**settings["association"], **special})

    def partitions(self, partitions: Partitions) -> None:
        """The QOS that partitions name, which are known to the policy or to Slurm."""
        known = self.known("qos")
        for name, parameters in partitions.items():
            for key, value in parameters:
                if key.lower() in _QOS_OF_PARTITIONS:
                    self._known(f"partition {name}: {key}", _names(value), known)

    def known(self, kind: str) -> set[str]:
        """The names that there are after the change."""
        stays = () if self.purge else self.state.entities
        return {entity.name for entity in (*self.wanted, *stays, *OWN) if entity.kind == kind}

    def references(self) -> None:
        """What is named somewhere must be known: to the policy, or to Slurm if it stays there."""
        state = self.state
        known = {kind: self.known(kind) for kind in ("qos", "account")}
        for entity, settings in self.wanted.items():
            if entity.kind == "association":
                self._known(f"{entity.words}: account", [entity.account], known["account"])
            for key, value in settings.items():
                if LIMITS[entity.kind][key].kind == "tres" and state.tres:
                    resources = [pair.partition("=")[0] for pair in value.split(",") if pair]
                    if state.grows:
                        resources = [resource for resource in resources if "/" not in resource]
                    self._known(f"{entity.words}: {key}", resources, state.tres)
                elif key in ("QOS", "DefaultQOS", "Preempt"):
                    self._known(f"{entity.words}: {key}", filter(None, value.split(",")), known["qos"])
                elif key == "Parent":
                    self._known(f"{entity.words}: {key}", [value], known["account"])

    def circles(self) -> None:
        """No account is in itself."""
        parents = parents_of(self.state.entities, self.wanted)
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


def read(
    policy: Mapping[str, Any], cluster: str, state: State, purge: bool = False, partitions: Partitions | None = None
) -> Wanted:
    """What a policy wants of the cluster, with the limits that it names, or with `purge` all limits.

    policy: `limits` of the cluster, `qos`, `accounts`, `users`. partitions: those whose QOS have to be known.

    Raises:
        PolicyError: with all that is wrong.
    """
    reader = _Reader(state, purge)
    reader.policy(policy, cluster)
    reader.references()
    reader.partitions(partitions or {})
    reader.circles()
    if reader.errors:
        raise PolicyError("\n".join(reader.errors))
    return {entity: _all(entity, settings) for entity, settings in reader.wanted.items()} if purge else reader.wanted


def problems(policy: Mapping[str, Any], purge: bool, partitions: Partitions) -> list[str]:
    """What is wrong with a policy whatever Slurm has. Without `purge`, what it does not know may be there."""
    reader = _Reader(State(), purge)
    reader.policy(policy, "")
    if purge:
        reader.references()
        reader.partitions(partitions)
    reader.circles()
    return reader.errors


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


class Batch(NamedTuple):
    """Something for one process of sacctmgr."""

    load: bool
    """Whether it is a file for `sacctmgr load`, or commands."""
    lines: list[str]


@dataclass(frozen=True)
class _Work:
    """What an entity needs."""

    entity: Entity
    created: bool
    removed: bool
    settings: tuple[tuple[Limit, str], ...]
    """Limits, and what Slurm is told for each."""

    @property
    def words(self) -> str:
        """The settings for a command, each after a blank."""
        return "".join(
            f' {limit.name}="{value}"' if limit.kind == "text" else f" {limit.name}={value}"
            for limit, value in self.settings
        )

    @property
    def options(self) -> str:
        """The settings for a line of a file, each after a colon."""
        return "".join(f":{limit.name}='{value}'" for limit, value in self.settings)


def batches(state: State, changes: Sequence[Change], cluster: str) -> list[Batch]:
    """What makes the changes, in the order in which Slurm takes them.

    What is new is loaded: Slurm takes 3,000 users in seconds from a file, and in minutes from commands. A command costs
    about the same with one name or hundreds.
    """
    parents = parents_of(state.entities) | {c.entity.name: c.after or "" for c in changes if c.key == "Parent"}
    works = _works(changes)
    trees = [work for work in works if work.entity.kind in ("account", "cluster")]
    trees.sort(key=lambda work: depth(work.entity.name, parents))
    places = [work for work in works if work.entity.kind == "association"]
    users = {work.entity.name: work for work in works if work.entity.kind == "user"}
    scope = f" cluster={cluster}" if len(state.clusters) > 1 else ""  # else they go from everywhere
    found = [
        Batch(False, [*_new_cluster(trees), *_qos(works)]),
        Batch(True, _file(cluster, _account_lines(trees, parents))),
        Batch(False, _joined(_account_limits(trees, cluster))),
        Batch(True, _file(cluster, _user_lines(state, places, users))),
        Batch(
            False,
            _joined([*_user_limits(state, places, users, cluster), *_removals(works, trees[::-1], cluster, scope)]),
        ),
    ]
    return [batch for batch in found if batch.lines]


def _works(changes: Iterable[Change]) -> list[_Work]:
    """The changes by entity."""
    by_entity: dict[Entity, list[Change]] = {}
    for change in changes:
        by_entity.setdefault(change.entity, []).append(change)
    works = []
    for entity, own in by_entity.items():
        created = any(not change.key and change.before is None for change in own)
        removed = any(not change.key and change.after is None for change in own)
        limits = [(LIMITS[entity.kind][change.key], change) for change in own if change.key]
        settings = tuple((limit, told(limit, change.before or "", change.after or "")) for limit, change in limits)
        works.append(_Work(entity, created, removed, settings))
    return works


_Command = tuple[str, str, str]
"""A command before a name, the name, and after it."""


def _joined(commands: Iterable[_Command]) -> list[str]:
    """Commands, those that are equal but for the name as one with a list of names, where the first of them was."""
    lists: dict[tuple[str, str], dict[str, None]] = {}
    for start, name, end in commands:
        lists.setdefault((start, end), {})[name] = None
    return [f"{start}{','.join(part)}{end}" for (start, end), names in lists.items() for part in _parts([*names])]


def _new_cluster(trees: Iterable[_Work]) -> Iterator[str]:
    """The cluster, where the database does not know it."""
    return (f"add cluster {work.entity.name}" for work in trees if work.entity.kind == "cluster" and work.created)


def _qos(works: Iterable[_Work]) -> list[str]:
    """QOS may preempt each other: all are there before one gets its limits."""
    own = [work for work in works if work.entity.kind == "qos"]
    new = [("add qos name=", work.entity.name, "") for work in own if work.created]
    limits = [("modify qos where name=", work.entity.name, f" set{work.words}") for work in own if work.settings]
    return [*_joined(new), *_joined(limits)]


def _file(cluster: str, lines: Iterable[tuple[str, str]]) -> list[str]:
    """A file to load, from lines with the account that each is in; empty without lines."""
    in_account: dict[str, list[str]] = {}
    for account, line in lines:
        in_account.setdefault(account, []).append(line)
    text = [line for account, own in in_account.items() for line in (f"Parent - '{account}'", *own)]
    return [f"Cluster - '{cluster}'", *text] if text else []


def _account_lines(trees: Iterable[_Work], parents: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """New accounts, from the root on."""
    for work in trees:
        if work.created and work.entity.kind == "account":
            name = work.entity.name
            settings = tuple(pair for pair in work.settings if pair[0].name != "Parent")
            yield parents.get(name, ROOT), f"Account - '{name}'{replace(work, settings=settings).options}"


def _user_lines(state: State, places: Iterable[_Work], users: Mapping[str, _Work]) -> Iterator[tuple[str, str]]:
    """Users in accounts that are new to them. Each line says their default, Slurm would take the account."""
    for work in places:
        if work.created:
            name, account, partition = work.entity[1:]
            there = state.entities.get(Entity("user", name), {})
            own = {"DefaultAccount": there.get("DefaultAccount", account)}
            own |= {limit.name: value for limit, value in (users[name].settings if name in users else ())}
            own |= {"Partition": partition} if partition else {}
            options = "".join(f":{key}='{value}'" for key, value in own.items())
            yield account, f"User - '{name}'{options}{work.options}"


def _account_limits(trees: Iterable[_Work], cluster: str) -> Iterator[_Command]:
    """Other limits of accounts, from the root on, so that one that moves is never below itself."""
    for work in trees:
        if work.settings and (work.entity.kind == "cluster" or not work.created):
            name = ROOT if work.entity.kind == "cluster" else work.entity.name
            yield "modify account where name=", name, f" cluster={cluster} set{work.words}"


def _user_limits(state: State, places: Sequence[_Work], users: Mapping[str, _Work], cluster: str) -> Iterator[_Command]:
    """Other limits of users in their accounts, which are not named where they get the same ones in all of them."""
    texts: dict[str, set[str]] = {}
    of_place = {work.entity: "" if work.created else work.words for work in places if not work.removed}
    gone = {work.entity for work in places if work.removed}
    for entity in {*state.entities, *of_place} - gone:
        if entity.kind == "association":
            texts.setdefault(entity.name, set()).add(of_place.get(entity, ""))
    for work in places:
        name, account, partition = work.entity[1:]
        if work.settings and not work.created:
            where = "" if len(texts[name]) == 1 else f" account={account} partition={partition}"
            yield "modify user where name=", name, f" cluster={cluster}{where} set{work.words}"
    for work in users.values():
        if work.settings and not work.created:
            yield "modify user where name=", work.entity.name, f" cluster={cluster} set{work.words}"


def _removals(works: Iterable[_Work], leaves: Iterable[_Work], cluster: str, scope: str) -> Iterator[_Command]:
    """What goes: users, then accounts from the leaves on, then the rest."""
    others = (work for work in works if work.entity.kind != "account")
    removed = [work.entity for work in (*others, *leaves) if work.removed]
    for kind, name, account, partition in removed:
        if kind == "association":
            yield "delete user where name=", name, f" account={account} partition={partition} cluster={cluster}"
    for kind in ("user", "account", "qos"):
        for name in (entity.name for entity in removed if entity.kind == kind):
            yield f"delete {kind} where name=", name, "" if kind == "qos" else scope
    for entity in removed:
        if entity.kind == "cluster":
            yield "delete cluster ", entity.name, ""


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


# -- back to data ----------------------------------------------------------------------------------------------------


def policy_of(state: State) -> dict[str, Any]:
    """What there is as a policy: limits that are set, and all but what Slurm makes itself."""

    def entries(kind: str) -> Iterator[tuple[Entity, dict[str, Any]]]:
        """Entities of a kind with their limits."""
        for entity, settings in state.entities.items():
            if entity.kind == kind and entity not in OWN and entity.name != ROOT:
                unset = {name: limit.default for name, limit in LIMITS[kind].items()}
                yield entity, {key: value for key, value in settings.items() if value != unset[key]}

    accounts = {entity.name: {"name": entity.name, **own} for entity, own in entries("account")}
    users = {entity.name: {"name": entity.name, **own} for entity, own in entries("user")}
    for entity, own in entries("association"):
        place = {"name": entity.account, **({"partition": entity.partition} if entity.partition else {}), **own}
        users[entity.name].setdefault("accounts", []).append(place)
    cluster = [own for _entity, own in entries("cluster")]
    return {
        "limits": cluster[0] if cluster else {},
        "qos": [{"name": entity.name, **own} for entity, own in entries("qos")],
        "accounts": list(accounts.values()),
        "users": list(users.values()),
    }


# -- words -----------------------------------------------------------------------------------------------------------


def table(changes: Iterable[Change]) -> list[str]:
    """The changes as text; what is the same of several names is one line."""
    same: dict[tuple[Entity, str, str], list[str]] = {}
    for change in changes:
        before, after = change.before, change.after
        becomes = f"{before or '-'} -> {after or '-'}" if change.key else "gone" if after is None else "new"
        same.setdefault((change.entity._replace(name=""), change.key, becomes), []).append(change.entity.name)
    return [
        f"{entity._replace(name=fold(names)).words} {key}".strip() + f"  {becomes}"
        for (entity, key, becomes), names in same.items()
    ]
