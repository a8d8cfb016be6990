# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The account files of a host (passwd, shadow, group, gshadow) as texts: what a plan makes of them.

Lines of others stay as they are, byte for byte. Texts have the bytes of the files, decoded with `surrogateescape`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .plan import PEOPLE, PEOPLE_ID, PeoplePlan, Person

FILES = ("group", "gshadow", "shadow", "passwd")
"""The files in /etc, in the order in which they are replaced: a user is there when all of the account is."""

EXPIRED = "1"
"""The day on which the account of a suspended user has expired (shadow(5)): the day after 1970-01-01."""

RESERVED = (65534, 65535)
"""The id of nobody, and what is -1 in 16 bits."""

Texts = Mapping[str, str]
"""The files that the host has, by name. gshadow may be missing."""


@dataclass(frozen=True)
class Lowest:
    """The lowest ids that are not the system's (login.defs(5))."""

    uid: int = 1000
    gid: int = 1000


@dataclass(frozen=True)
class PeopleRecord:
    """What an earlier run has recorded about a host."""

    plan: str = ""
    """The checksum of its plan."""
    state: str = ""
    """The checksum of what it left on the host (`fingerprint`)."""
    users: Mapping[str, int] = field(default_factory=dict)
    """The ids of the users of its plan who have an account."""
    groups: Mapping[str, int] = field(default_factory=dict)
    absent: Sequence[str] = ()
    left: Mapping[str, int] = field(default_factory=dict)
    """The ids of users of earlier plans who are in no plan any more."""

    @property
    def known(self) -> dict[str, int]:
        """The ids of all users whose account a run has created or taken over."""
        return {**self.left, **self.users}


def lowest(login_defs: str) -> Lowest:
    """The lowest ids, from the text of /etc/login.defs."""
    found = dict(re.findall(r"^[ \t]*([UG]ID_MIN)[ \t]+([0-9]+)", login_defs, re.MULTILINE))
    return Lowest(int(found.get("UID_MIN", 1000)), int(found.get("GID_MIN", 1000)))


def rows(text: str, fields: int) -> dict[str, list[str]]:
    """The fields of each line by its name; of several lines with one name, the first counts, as it does for getent."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        row = line.split(":")
        if len(row) >= fields:
            found.setdefault(row[0], row)
    return found


def _people(texts: Texts) -> dict[str, list[str]]:
    return {name: row for name, row in rows(texts["passwd"], 7).items() if row[2].isdecimal()}


def _groups(texts: Texts) -> dict[str, list[str]]:
    return {name: row for name, row in rows(texts["group"], 4).items() if row[2].isdecimal()}


def _members(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _names_by_id(found: Mapping[str, list[str]]) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {}
    for name, row in found.items():
        names.setdefault(int(row[2]), []).append(name)
    return names


# -- conflicts -------------------------------------------------------------------------------------------------------


def homes_to_check(plan: PeoplePlan, texts: Texts, record: PeopleRecord) -> list[str]:
    """The homes whose owner has to be checked: those of users who are new here, or get another home."""
    people = _people(texts)
    return [
        user.home
        for user in plan.accounts.values()
        if record.known.get(user.name) != user.uid or people.get(user.name, [""] * 6)[5] != user.home
    ]


def conflicts(
    plan: PeoplePlan, texts: Texts, record: PeopleRecord, least: Lowest, owners: Mapping[str, int]
) -> list[str]:
    """What contradicts the plan on a host, as texts. With any of it, nothing may be changed.

    An account that a run has created with the id of the plan is no conflict if it has another id now: that is repaired.

    owners: ids of the owners of the homes of `homes_to_check`, by path; those that do not exist are left out.
    """
    people = _people(texts)
    ids = {name: int(row[2]) for name, row in people.items()}
    names = _names_by_id(people)
    holders = {row[5]: name for name, row in people.items() if ids[name] >= least.uid}
    of_plan = {user.name for user in plan.users}
    problems = []
    for user in plan.users:
        problems += _id_conflicts(user, ids.get(user.name), record, least)
        if user.state == "absent":
            continue
        others = [name for name in names.get(user.uid, []) if name not in of_plan]
        problems += [f"uid {user.uid} of user {user.name} belongs to user {other} here" for other in others]
        holder = holders.get(user.home, user.name)
        if holder not in of_plan:
            problems.append(f"home {user.home} of user {user.name} belongs to user {holder} here")
        elif owners.get(user.home, 0) not in (0, user.uid):
            problems.append(f"home {user.home} of user {user.name} belongs to uid {owners[user.home]} here")
    return problems + _group_conflicts(plan, texts, record, least)


def _id_conflicts(user: Person, here: int | None, record: PeopleRecord, least: Lowest) -> list[str]:
    """What contradicts the id of a user, who has the id `here` on the host, or no account."""
    if here is not None and here < least.uid:
        return [f"user {user.name} is a system user here, with uid {here}"]
    if user.uid < least.uid or user.uid in RESERVED:
        return [
            f"uid {user.uid} of user {user.name} is reserved for the system: below {least.uid}, or the id of nobody"
        ]
    if here not in (None, user.uid) and record.known.get(user.name) != user.uid:
        return [f"user {user.name} has uid {here} here, and {user.uid} in the plan"]
    return []


def _group_conflicts(plan: PeoplePlan, texts: Texts, record: PeopleRecord, least: Lowest) -> list[str]:
    groups = _groups(texts)
    names = _names_by_id(groups)
    found = []
    for name, gid in plan.groups.items():
        here = int(groups[name][2]) if name in groups else gid
        own = (name, gid) == (PEOPLE, PEOPLE_ID)
        if not own and (gid < least.gid or gid in RESERVED):
            found.append(
                f"gid {gid} of group {name} is reserved for the system: below {least.gid}, or the id of nobody"
            )
        elif here != gid and record.groups.get(name) != gid:
            found.append(f"group {name} has gid {here} here, and {gid} in the plan")
        others = [other for other in names.get(gid, []) if other not in plan.groups and other not in plan.absent]
        hint = f"; give group {name} another gid in the plan" if own else ""
        found += [f"gid {gid} of group {name} belongs to group {other} here{hint}" for other in others]
    return found


# -- the new texts ---------------------------------------------------------------------------------------------------


def edited(text: str, lines: Mapping[str, str | None]) -> str:
    """A text with other lines, by their names: replaced where they are, added at the end, or removed (None)."""
    kept, done = [], set()
    for line in text.removesuffix("\n").split("\n") if text else []:
        name = line.partition(":")[0]
        if name not in lines:
            kept.append(line)
        elif name not in done:
            done.add(name)
            if (new := lines[name]) is not None:
                kept.append(new)
    kept += [line for name, line in lines.items() if name not in done and line is not None]
    return "".join(f"{line}\n" for line in kept)


def _passwd_line(user: Person, found: Sequence[str] | None) -> str:
    # The fields after the first comma are the user's own (chfn(1)).
    gecos = [user.full_name, *(found[4].split(",")[1:] if found else [])]
    return ":".join([user.name, "x", str(user.uid), str(user.gid), ",".join(gecos), user.home, user.shell])


def is_suspended(row: Sequence[str]) -> bool:
    """Whether a line of shadow is that of a suspended user."""
    return row[7] == EXPIRED and row[1].startswith("!")


def _shadow_line(user: Person, found: Sequence[str] | None, password: str) -> str:
    """The line of shadow; password: that of a line of passwd without one in shadow.

    A password stays in the line of a suspended user, with a mark that makes it invalid (passwd -l). A new user has no
    password and, as keys do not age, no age of a password.
    """
    row = [*found] if found else [user.name, password, "", "", "", "", "", "", ""]
    if user.usable and row[7] == EXPIRED:
        row[7] = ""
        # "!" alone would become an empty password, with which everybody can log in.
        row[1] = (row[1][1:] or "*") if row[1].startswith("!") else row[1]
    elif not user.usable and not is_suspended(row):
        row[1], row[7] = f"!{row[1]}", EXPIRED
    return ":".join(row)


def _joined(found: Iterable[str], plan: PeoplePlan, wanted: Sequence[str]) -> str:
    """The members of a group of the plan: those of the plan, and those who are not in the plan."""
    new = {*wanted}
    kept = [name for name in found if name in new or (name not in plan.accounts and name not in plan.absent)]
    present = {*kept}
    return ",".join(kept + [name for name in wanted if name not in present])


def _group_lines(plan: PeoplePlan, found: Mapping[str, list[str]], new: str, ids: bool) -> dict[str, str | None]:
    """The lines of group, or of gshadow, which has administrators in the place of ids."""
    lines: dict[str, str | None] = {}
    for name, gid in plan.groups.items():
        row = [*found.get(name, [name, new, "", ""])]
        if ids:
            row[2] = str(gid)
        row[3] = _joined(_members(row[3]), plan, plan.members[name])
        lines[name] = ":".join(row)
    if plan.absent:
        for name, row in found.items():
            if name not in lines:
                parts = [*row[:2], *([row[2]] if ids else [_without(row[2], plan)]), _without(row[3], plan)]
                if parts != row:
                    lines[name] = ":".join(parts)
    return lines


def _without(members: str, plan: PeoplePlan) -> str:
    """The members of a group without users who are absent; the same text if there are none."""
    names = members.split(",")
    kept = [name for name in names if name not in plan.absent]
    return ",".join(kept) if len(kept) < len(names) else members


def new_texts(plan: PeoplePlan, texts: Texts) -> dict[str, str]:
    """The files as the plan wants them, without regard to conflicts."""
    people, shadows = rows(texts["passwd"], 7), rows(texts["shadow"], 9)
    passwd: dict[str, str | None] = dict.fromkeys(plan.absent)
    shadow: dict[str, str | None] = dict.fromkeys(plan.absent)
    for name, user in plan.accounts.items():
        row = people.get(name)
        passwd[name] = _passwd_line(user, row)
        shadow[name] = _shadow_line(user, shadows.get(name), row[1] if row and row[1] not in ("x", "") else "*")
    group = _group_lines(plan, rows(texts["group"], 4), "x", ids=True)
    new = {"passwd": edited(texts["passwd"], passwd), "shadow": edited(texts["shadow"], shadow)}
    # The group of an absent user goes, as userdel(8) removes it, unless it is somebody else's, too.
    primary = {row[3] for row in rows(new["passwd"], 7).values()}
    gone = [
        name
        for name, row in _groups(texts).items()
        if name in plan.absent and name not in plan.groups and row[2] not in primary and not _without(row[3], plan)
    ]
    new["group"] = edited(texts["group"], {**group, **dict.fromkeys(gone)})
    if "gshadow" in texts:
        secret = _group_lines(plan, rows(texts["gshadow"], 4), "!", ids=False)
        new["gshadow"] = edited(texts["gshadow"], {**secret, **dict.fromkeys(gone)})
    return {name: new[name] for name in FILES if name in new}


# -- differences -----------------------------------------------------------------------------------------------------


def _shown(file: str, row: Sequence[str] | None) -> str | None:
    """A line as a diff has it: without passwords and their hashes."""
    if row is None:
        return None
    if file == "passwd":
        return ":".join(row[2:])
    if file == "group":
        return f"{row[2]}: {row[3]}"
    return row[3] if file == "gshadow" else "account expired, password locked" if is_suspended(row) else "usable"


_WHAT = {"group": ("group", 4), "gshadow": ("group in gshadow", 4), "shadow": ("login of", 9), "passwd": ("user", 7)}
"""The name of a line of each file in messages, and its number of fields."""


def differences(before: Texts, after: Texts) -> list[dict[str, str | None]]:
    """The changed lines, each with its name (`what`) and its value `before` and `after`; None: it is not there.

    They have no passwords and no hashes of passwords.
    """
    changes: list[dict[str, str | None]] = []
    for file, text in after.items():
        what, fields = _WHAT[file]
        old, new = rows(before[file], fields), rows(text, fields)
        for name in dict.fromkeys([*old, *new]):
            if old.get(name) != new.get(name):
                values = {side: _shown(file, rows_.get(name)) for side, rows_ in (("before", old), ("after", new))}
                changes.append({"what": f"{what} {name}", **values})
    return changes


# -- the record of a run ---------------------------------------------------------------------------------------------


def fingerprint(record: PeopleRecord, texts: Texts, others: Any) -> str:
    """The checksum of what a plan decides on a host, and no more: users may change their passwords, and hosts get users
    of packages, without any work for the next run.

    others: further data of the host, such as checksums of its files.
    """
    people, shadows, groups = _people(texts), rows(texts["shadow"], 9), _groups(texts)
    secrets = rows(texts.get("gshadow", ""), 4)
    state: dict[str, object] = {"others": others, "absent": [name for name in record.absent if name in people]}
    for name in record.users:
        row = people.get(name)
        shadow = shadows.get(name)
        own = row and [*row[2:4], row[4].partition(",")[0], *row[5:]]
        state[f"user {name}"] = [own, bool(shadow and is_suspended(shadow)), bool(shadow and shadow[7] == EXPIRED)]
    for name in record.groups:
        found = [table.get(name) for table in (groups, secrets)]
        members = [row and sorted(one for one in _members(row[3]) if one in record.users) for row in found]
        state[f"group {name}"] = [found[0] and found[0][2], members]
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
