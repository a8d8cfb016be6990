# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of people as a host gets it: users and groups, with every default filled in (`slurm_people`)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..language.formatting import shown

PEOPLE = "people"
"""The group of all people of the plan, by which sshd knows them."""

PEOPLE_ID = 967
"""The id of this group, unless the plan has another one: an id of the system, since the group owns no files."""

STATES = ("present", "suspended", "absent")
JOBS = ("stay", "end")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,30}[A-Za-z0-9_$.-]?", re.ASCII)
_FIELD = re.compile(r"[^:\x00-\x1f\x7f]*")
_PATH = re.compile(r"/[^:\x00-\x1f\x7f]*")
_KEY = re.compile(r"[^\x00-\x1f\x7f]+")
_LARGEST_ID = 2**32 - 2


class PlanError(ValueError):
    """A plan that cannot be written into the files of a host, and why."""


@dataclass(frozen=True)
class Person:
    """A user of the plan."""

    name: str
    uid: int
    gid: int
    groups: tuple[str, ...]
    """The names of further groups."""
    full_name: str
    home: str
    shell: str
    keys: tuple[str, ...]
    state: str
    jobs: str
    """What happens to the running jobs of a suspended user: `stay` or `end`."""

    @property
    def usable(self) -> bool:
        """Whether the user may log in."""
        return self.state == "present"


@dataclass(frozen=True)
class PeoplePlan:
    """Users and groups."""

    users: tuple[Person, ...]
    listed_groups: Mapping[str, int]
    """The groups that the plan lists, with their ids."""

    @cached_property
    def accounts(self) -> dict[str, Person]:
        """The users who have an account on the host, suspended ones included, by name."""
        return {user.name: user for user in self.users if user.state != "absent"}

    @cached_property
    def absent(self) -> dict[str, Person]:
        """The users whose account is removed, by name."""
        return {user.name: user for user in self.users if user.state == "absent"}

    @cached_property
    def groups(self) -> dict[str, int]:
        """All groups of the plan: its own, the group of all people, and one for each primary group without a name."""
        groups = dict(self.listed_groups)
        groups.setdefault(PEOPLE, PEOPLE_ID)
        ids = {*groups.values()}
        for user in self.accounts.values():
            if user.gid not in ids:
                groups[user.name] = user.gid
                ids.add(user.gid)
        return groups

    @cached_property
    def members(self) -> dict[str, list[str]]:
        """The members of each group of the plan."""
        members: dict[str, list[str]] = {name: [] for name in self.groups}
        for user in self.accounts.values():
            for group in dict.fromkeys((*user.groups, PEOPLE)):
                members[group].append(user.name)
        return members


def _checked(key: str, value: Any, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise PlanError(f"{key}: found {shown(value)}, allowed: a text like {pattern.pattern}")
    return value


def _number(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST_ID:
        raise PlanError(f"{key}: found {shown(value)}, allowed: a number from 0 to {_LARGEST_ID}")
    return value


def _choice(key: str, value: Any, choices: Collection[str]) -> str:
    if value not in choices:
        raise PlanError(f"{key}: found {shown(value)}, allowed: {', '.join(choices)}")
    return str(value)


def _list(key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise PlanError(f"{key}: found {shown(value)}, allowed: a list")
    return value


def _person(key: str, entry: Any) -> Person:
    if not isinstance(entry, Mapping):
        raise PlanError(f"{key}: found {shown(entry)}, allowed: a mapping")
    uid = _number(f"{key}.uid", entry.get("uid"))
    name = _checked(f"{key}.name", entry.get("name"), _NAME)
    texts = {"full_name": "", "home": f"/home/{name}", "shell": "/bin/bash"}
    patterns = {"full_name": _FIELD, "home": _PATH, "shell": _PATH}
    return Person(
        name=name,
        uid=uid,
        gid=_number(f"{key}.gid", entry.get("gid", uid)),
        groups=tuple(_checked(f"{key}.groups", one, _NAME) for one in _list(key, entry.get("groups", []))),
        keys=tuple(_checked(f"{key}.keys", one, _KEY) for one in _list(key, entry.get("keys", []))),
        state=_choice(f"{key}.state", entry.get("state", STATES[0]), STATES),
        jobs=_choice(f"{key}.jobs", entry.get("jobs", JOBS[0]), JOBS),
        **{field: _checked(f"{key}.{field}", entry.get(field, texts[field]), patterns[field]) for field in texts},
    )


def read_plan(text: str) -> PeoplePlan:
    """The plan in a JSON text. Raises PlanError; the cluster file has been checked before, with better messages.

    What is refused here would make the files of a host unreadable.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise PlanError(f"plan: {error}") from None
    if not isinstance(data, Mapping):
        raise PlanError(f"plan: found {shown(data)}, allowed: a mapping with users and groups")
    users = tuple(_person(f"users[{i}]", entry) for i, entry in enumerate(_list("users", data.get("users", []))))
    plan = PeoplePlan(users, _read_groups(_list("groups", data.get("groups", []))))
    _refuse_repeated("name", [user.name for user in users])
    _refuse_repeated("uid", [user.uid for user in plan.accounts.values()])
    for user in plan.accounts.values():
        _refuse_unknown_groups(user, plan)
    return plan


def _read_groups(entries: Sequence[Any]) -> dict[str, int]:
    """The ids of the listed groups. Raises PlanError."""
    groups: dict[str, int] = {}
    for i, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise PlanError(f"groups[{i}]: found {shown(entry)}, allowed: a mapping")
        name = _checked(f"groups[{i}].name", entry.get("name"), _NAME)
        if name in groups:
            raise PlanError(f"groups[{i}].name: {name} is listed twice")
        groups[name] = _number(f"groups[{i}].gid", entry.get("gid"))
    return groups


def _refuse_repeated(what: str, values: Sequence[str | int]) -> None:
    """Raise PlanError for users with the same name or number."""
    if len({*values}) < len(values):
        repeated = next(value for value in values if values.count(value) > 1)
        raise PlanError(f"users: two users have the {what} {repeated}")


def _refuse_unknown_groups(user: Person, plan: PeoplePlan) -> None:
    """Raise PlanError for a user with a group that the plan does not have."""
    groups = plan.listed_groups
    if groups.get(user.name, user.gid) != user.gid and user.gid not in groups.values():
        raise PlanError(f"users: gid {user.gid} of {user.name} is in no group, but group {user.name} has another")
    if unknown := [name for name in user.groups if name not in plan.groups]:
        raise PlanError(f"users: {user.name} is in the group {unknown[0]}, which is not in the plan")
