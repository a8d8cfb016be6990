# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Groups and users together: names, ids, homes and keys that they have in common, and their part of the policy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..accounting.policy import CLOSED, account_names
from ..language.formatting import shown
from .account_groups import accounts_by_group, add_accounts
from .public_keys import data_of
from .schema import Checker, Settings, unknown


@dataclass(frozen=True)
class PeopleList:
    """The valid parts of groups or users, with their place."""

    checker: Checker
    key: str
    entries: Sequence[Mapping[str, Any]]

    def problem(self, i: int, key: str, what: str) -> None:
        """Report a problem with a key of an entry."""
        self.checker.problem(f"{self.key}[{i}].{key}", what)

    def describe(self, i: int) -> str:
        """An entry by its name and place."""
        return f"{self.entries[i].get('name', 'another one')} ({self.checker.key(f'{self.key}[{i}]')})"

    def once(self, key: str, one: str, values: Callable[[Any], Iterable[Any]] = lambda value: [value]) -> None:
        """Check that no two entries have a value of a key in common; one: what a value is called."""
        first: dict[Any, int] = {}
        for i, entry in enumerate(self.entries):
            for value in values(entry[key]) if key in entry else ():
                other = first.setdefault(value, i)
                if other != i:
                    what = f"found {shown(value)}, the {one} of {self.describe(other)}"
                    self.problem(i, key, f"{what}, allowed: another {one}")


def check_together(groups: PeopleList, users: PeopleList) -> None:
    """Check groups and users together: names, ids, homes and keys."""
    for listed, key in ((groups, "name"), (users, "name"), (groups, "gid"), (users, "uid")):
        listed.once(key, key)
    users.once("keys", "key", lambda keys: map(data_of, keys))
    _check_groups(groups, users)
    _check_homes(users)


def _check_groups(groups: PeopleList, users: PeopleList) -> None:
    """Check the groups of users. A primary group that is not listed is the user's own, and has the user's name.

    Users of a group whose entry is wrong may mean it.
    """
    if any({"name", "gid"} - group.keys() for group in groups.entries):
        return
    listed = {group["name"]: group["gid"] for group in groups.entries}
    ids = {gid: name for name, gid in listed.items()}
    own_groups: dict[int, int] = {}
    for i, user in enumerate(users.entries):
        gid, name = user.get("gid", user.get("uid")), user.get("name")
        key = "gid" if "gid" in user else "uid"
        if gid is not None and gid not in ids:
            other = own_groups.setdefault(gid, i)
            if user.get("uid") != users.entries[other].get("uid"):  # the same uid is a problem of its own
                what = f"found {gid}, the gid of the own group of {users.describe(other)}"
                users.problem(i, key, f"{what}, allowed: an own gid, or that of a group in groups")
            elif name in listed:
                what = f"found {gid}, but the group {name} in groups has gid {listed[name]}"
                users.problem(i, key, f"{what}, allowed: {listed[name]}, or another name of the group")
        for group in user.get("groups", []):
            if group not in listed:
                allowed = f"{unknown('group', group, listed, 'those of groups')}"
                users.problem(i, "groups", f"found {shown(group)}, {allowed}")
            elif listed[group] == gid:
                users.problem(
                    i, "groups", f"found {shown(group)}, the primary group of the user, allowed: other groups"
                )


def _check_homes(users: PeopleList) -> None:
    """Check that each home has one user, and that none is in that of another user."""
    homes: dict[str, int] = {}
    for i, user in enumerate(users.entries):
        path = user.get("home") or (f"/home/{user['name']}" if "name" in user else "")
        other = homes.setdefault(path, i)
        if path and user.get("name") != users.entries[other].get("name"):
            users.problem(i, "home", f"found {shown(path)}, the home of {users.describe(other)}, allowed: another one")
    for path, i in homes.items():
        above = path.rpartition("/")[0]
        while above:
            if above in homes:
                what = f"found {shown(path)}, which is in the home of {users.describe(homes[above])}"
                users.problem(i, "home", f"{what}, allowed: a path outside")
                break
            above = above.rpartition("/")[0]


def policy_of_users(users: PeopleList, groups: PeopleList, policy: Mapping[str, Any]) -> list[Settings]:
    """The entries of the users in the policy for accounting."""
    accounts, of_groups = account_names(policy), accounts_by_group(policy)
    primary = {group.get("gid"): group.get("name", "") for group in groups.entries}
    listed = policy.get("users")
    names_in_policy = {
        str(entry.get("name") if isinstance(entry, Mapping) else entry).lower()
        for entry in (listed if isinstance(listed, list) else [])
    }
    entries = []
    for i, listed_user in enumerate(users.entries):
        own_groups = [primary.get(listed_user.get("gid"), ""), *listed_user.get("groups", [])]
        user = add_accounts(listed_user, own_groups, of_groups)
        if user.get("name") in names_in_policy:
            what = f"found {shown(user['name'])}, which is in {users.checker.key('accounting.users')} too"
            users.problem(i, "name", f"{what}, allowed: one entry, here with account, accounts and limits")
        elif not user.keys() & {"account", "accounts"}:
            if "limits" in user:
                users.problem(i, "limits", "need an account, allowed: limits with account or accounts")
        elif "name" in user and user.get("state") != "absent":
            problems = _find_unknown_accounts(user, accounts)
            for key, what in problems:
                users.problem(i, key, what)
            entries += [] if problems else [_make_policy_entry(user)]
    return entries


def _make_policy_entry(user: Mapping[str, Any]) -> Settings:
    """The entry of a user in the policy for accounting.

    A policy leaves limits that it does not name as they are. So those of a suspended user are named for others, too.
    """
    closed = user.get("state") == "suspended"
    user_limits = user.get("limits", {})
    places = [
        {key: value for key, value in place.items() if key not in CLOSED}
        if closed and isinstance(place, dict)
        else place
        for place in user.get("accounts", [])
    ]
    entry = {"name": user["name"], "DefaultAccount": user.get("account"), "accounts": places}
    return {
        **{key: value for key, value in entry.items() if value},
        **user_limits,
        **({"AdminLevel": "None"} if closed else {}),
        **{key: 0 if closed else user_limits.get(key, -1) for key in CLOSED},
    }


def _find_unknown_accounts(user: Mapping[str, Any], accounts: Collection[str]) -> list[tuple[str, str]]:
    """Accounts of a user that the policy does not have, as (key, problem); accounts: those of the policy, or none."""
    names = [place.get("name") if isinstance(place, Mapping) else place for place in user.get("accounts", [])]
    named = [*([("account", user["account"])] if "account" in user else []), *(("accounts", name) for name in names)]
    return [
        (key, f"found {shown(name)}, {unknown('account', str(name), accounts, 'those of accounting.accounts')}")
        for key, name in named
        if accounts and str(name).lower() not in accounts
    ]
