# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `groups` of an account in a cluster file: the people of these groups are users of the account."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..language.formatting import shown
from .schema import Checker, unknown


def accounts_by_group(policy: Mapping[str, Any]) -> dict[str, list[str]]:
    """The accounts that the people of a group are in, by the name of the group."""
    found: dict[str, list[str]] = {}
    for account, groups in _groups(policy.get("accounts")):
        for group in groups if isinstance(groups, list) else ():
            found.setdefault(str(group), []).append(account)
    return found


def check_groups(checker: Checker, policy: Mapping[str, Any], known: Iterable[str]) -> Mapping[str, Any]:
    """Check that each group is one of the people's; the policy without the groups, as Slurm can have it."""
    names = [*known]
    for account, groups in _groups(policy.get("accounts")):
        what = f"account {account.lower()}: groups: found"
        if not isinstance(groups, list):
            checker.problem("accounting", f"{what} {shown(groups)}, allowed: a list of groups of people")
            continue
        for group in groups:
            if group not in names:
                allowed = unknown("group", str(group), names, "those of groups")
                checker.problem("accounting", f"{what} {shown(group)}, {allowed}")
    return {**policy, "accounts": _without_groups(policy["accounts"])} if "accounts" in policy else policy


def add_accounts(
    user: Mapping[str, Any], groups: Iterable[str], accounts: Mapping[str, list[str]]
) -> Mapping[str, Any]:
    """A user with the accounts of these groups; an entry of the user's own for an account is the one that counts."""
    own = [{"name": place} if isinstance(place, str) else place for place in user.get("accounts", [])]
    named = {str(place["name"]).lower() for place in own if "partition" not in place}
    named.add(str(user.get("account", "")).lower())
    more = {account.lower(): account for group in groups for account in accounts.get(group, ())}
    added = [account for name, account in more.items() if name not in named]
    return {**user, "accounts": [*user.get("accounts", []), *added]} if added else user


def _groups(accounts: Any) -> Iterator[tuple[str, Any]]:
    """The accounts that have groups, with these."""
    for entry in accounts if isinstance(accounts, list) else ():
        if isinstance(entry, Mapping):
            if entry.get("groups") is not None:
                yield str(entry.get("name")), entry["groups"]
            yield from _groups(entry.get("accounts"))


def _without_groups(accounts: Any) -> Any:
    """A list of accounts without their groups."""
    if not isinstance(accounts, list):
        return accounts
    return [
        {key: _without_groups(value) if key == "accounts" else value for key, value in entry.items() if key != "groups"}
        if isinstance(entry, Mapping)
        else entry
        for entry in accounts
    ]
