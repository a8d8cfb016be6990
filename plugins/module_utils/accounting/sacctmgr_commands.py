# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of sacctmgr, and files for it, that make the differences, in the order that Slurm needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from .differences import AccountingChange
from .entities import ROOT, Entity, State, parents_of
from .limits import LIMITS, Limit, new_value
from .unmanaged import can_name

LINE = 3500
"""Length of a list of names; sacctmgr takes lines of 4,096 characters where it has no readline (`_getline`)."""


def depth(account: str, parents: Mapping[str, str]) -> int:
    """How many accounts an account is in."""
    steps = 0
    while account in parents and steps <= len(parents):
        account, steps = parents[account], steps + 1
    return steps


class Batch(NamedTuple):
    """Something for one process of sacctmgr."""

    load: bool
    """Whether it is a file for `sacctmgr load`, or commands."""
    lines: list[str]


@dataclass(frozen=True)
class _Work:
    """The changes of an entity."""

    entity: Entity
    created: bool
    removed: bool
    settings: tuple[tuple[Limit, str], ...]
    """Limits, and the value that Slurm gets for each."""
    members: tuple[tuple[str, str, str], ...] = ()
    """Limits whose names are added and removed: the limit, the names to add, and those to remove."""

    @property
    def assignments(self) -> str:
        """The settings for a command, each after a blank."""
        return "".join(
            f' {limit.name}="{value}"' if limit.kind == "text" else f" {limit.name}={value}"
            for limit, value in self.settings
        )

    @property
    def options(self) -> str:
        """The settings for a line of a file, each after a colon."""
        return "".join(f":{limit.name}='{value}'" for limit, value in self.settings)


def batches(state: State, changes: Sequence[AccountingChange], cluster: str) -> list[Batch]:
    """The processes that make the changes, in the order in which Slurm accepts them.

    What is new is loaded: Slurm takes 3,000 users in seconds from a file, and in minutes from commands. A command costs
    about the same with one name or hundreds.
    """
    parents = parents_of(state.entities) | {c.entity.name: c.after or "" for c in changes if c.key == "Parent"}
    works = _works(changes)
    trees = [work for work in works if work.entity.kind in ("account", "cluster")]
    trees.sort(key=lambda work: depth(work.entity.name, parents))
    places = [work for work in works if work.entity.kind == "association"]
    users = {work.entity.name: work for work in works if work.entity.kind == "user"}
    scope = f" cluster={cluster}" if state.others(cluster) else ""  # else they go from everywhere
    all_batches = [
        Batch(False, [*_new_cluster(trees), *_qos(works)]),
        Batch(True, _file(cluster, _account_lines(trees, parents))),
        Batch(False, _joined(_account_limits(trees, cluster))),
        Batch(True, _file(cluster, _user_lines(state, places, users))),
        Batch(
            False,
            _joined(
                [
                    *_user_limits(state, places, users, cluster),
                    *_members(works, cluster),
                    *_removals(works, trees[::-1], cluster, scope),
                ]
            ),
        ),
    ]
    return [batch for batch in all_batches if batch.lines]


def _works(changes: Iterable[AccountingChange]) -> list[_Work]:
    """The changes by entity."""
    by_entity: dict[Entity, list[AccountingChange]] = {}
    for change in changes:
        by_entity.setdefault(change.entity, []).append(change)
    works = []
    for entity, of_entity in by_entity.items():
        created = any(not change.key and change.before is None for change in of_entity)
        removed = any(not change.key and change.after is None for change in of_entity)
        limits = [(LIMITS[entity.kind][change.key], change) for change in of_entity if change.key]
        settings = tuple(
            (limit, new_value(limit, change.before or "", change.after or ""))
            for limit, change in limits
            if limit.kind != "members"
        )
        members = tuple(
            (limit.name, _without(change.after, change.before), _without(change.before, change.after))
            for limit, change in limits
            if limit.kind == "members"
        )
        works.append(_Work(entity, created, removed, settings, members))
    return works


def _without(names: str | None, others: str | None) -> str:
    """The names that are not among the others."""
    return ",".join(sorted({*filter(None, (names or "").split(","))} - {*(others or "").split(",")}))


_Command = tuple[str, str, str]
"""A command before a name, the name, and after it."""


def _joined(commands: Iterable[_Command]) -> list[str]:
    """The commands; those that differ only in the name are one with a list of names, in the place of the first."""
    lists: dict[tuple[str, str], dict[str, None]] = {}
    for start, name, end in commands:
        lists.setdefault((start, end), {})[name] = None
    return [f"{start}{','.join(part)}{end}" for (start, end), names in lists.items() for part in _parts([*names])]


def _new_cluster(trees: Iterable[_Work]) -> Iterator[str]:
    """The cluster, where the database does not know it."""
    return (f"add cluster {work.entity.name}" for work in trees if work.entity.kind == "cluster" and work.created)


def _qos(works: Iterable[_Work]) -> list[str]:
    """QOS may preempt each other: all are there before one gets its limits."""
    qos = [work for work in works if work.entity.kind == "qos"]
    new = [("add qos name=", work.entity.name, "") for work in qos if work.created]
    limits = [("modify qos where name=", work.entity.name, f" set{work.assignments}") for work in qos if work.settings]
    return [*_joined(new), *_joined(limits)]


def _file(cluster: str, lines: Iterable[tuple[str, str]]) -> list[str]:
    """A file to load, from lines with the account that each is in; empty without lines.

    A `#` starts a comment in it, even in quotes (`_strip_comments` in `src/sacctmgr/file_functions.c`).
    """
    in_account: dict[str, list[str]] = {}
    for account, line in lines:
        in_account.setdefault(account, []).append(line)
    text = [line for account, own in in_account.items() for line in (f"Parent - '{account}'", *own)]
    return [f"Cluster - '{cluster}'", *(line.replace("#", "\\#") for line in text)] if text else []


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
            present = state.entities.get(Entity("user", name), {})
            settings = {"DefaultAccount": present.get("DefaultAccount", account)}
            settings |= {limit.name: value for limit, value in (users[name].settings if name in users else ())}
            settings |= {"Partition": partition} if partition else {}
            options = "".join(f":{key}='{value}'" for key, value in settings.items())
            yield account, f"User - '{name}'{options}{work.options}"


def _account_limits(trees: Iterable[_Work], cluster: str) -> Iterator[_Command]:
    """Other limits of accounts, from the root on, so that one that moves is never below itself."""
    for work in trees:
        if work.settings and (work.entity.kind == "cluster" or not work.created):
            name = ROOT if work.entity.kind == "cluster" else work.entity.name
            yield "modify account where name=", name, f" cluster={cluster} set{work.assignments}"


def _user_limits(state: State, places: Sequence[_Work], users: Mapping[str, _Work], cluster: str) -> Iterator[_Command]:
    """Other limits of users in their accounts, which are not named where they get the same ones in all of them.

    Nor where no command can name the account: a user who is suspended, or is back, gets the same in all of them.
    """
    texts: dict[str, set[str]] = {}
    of_place = {work.entity: "" if work.created else work.assignments for work in places if not work.removed}
    gone = {work.entity for work in places if work.removed}
    for entity in {*state.entities, *of_place} - gone:
        if entity.kind == "association":
            texts.setdefault(entity.name, set()).add(of_place.get(entity, ""))
    for work in places:
        name, account, partition = work.entity[1:]
        if work.settings and not work.created:
            where = (
                "" if len(texts[name]) == 1 or not can_name(account) else f" account={account} partition={partition}"
            )
            yield "modify user where name=", name, f" cluster={cluster}{where} set{work.assignments}"
    for work in users.values():
        if work.settings and not work.created:
            yield "modify user where name=", work.entity.name, f" cluster={cluster} set{work.assignments}"


def _members(works: Iterable[_Work], cluster: str) -> Iterator[_Command]:
    """Coordinators and WCKeys, for which accounts and users have to be there.

    A command that deletes a user with a WCKey deletes the WCKey alone (`sacctmgr_delete_user` in user_functions.c).
    """
    for work in works:
        for limit, added, removed in work.members:
            for verb, names in (("add", added), ("delete", removed)):
                if names and limit == "Coordinators":
                    yield f"{verb} coordinator account=", work.entity.name, f" names={names}"
                elif names:
                    yield f"{verb} user name=", work.entity.name, f" wckeys={names} cluster={cluster}"


def _removals(works: Iterable[_Work], leaves: Iterable[_Work], cluster: str, scope: str) -> Iterator[_Command]:
    """What goes: users, then accounts from the leaves on, then the rest."""
    others = (work for work in works if work.entity.kind != "account")
    removed = [work.entity for work in (*others, *leaves) if work.removed]
    for kind, name, account, partition in removed:
        if kind == "coordinator":
            yield "delete coordinator names=", name, f" account={account}"
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
