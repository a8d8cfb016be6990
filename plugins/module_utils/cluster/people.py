# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The people of a cluster: `users`, `groups` and `people` of the cluster file, and the variable slurm_people.

`people` is a file with the users, or with both lists, or `directory`. The variable has the lists with every default
filled in, so that no host needs to know the defaults.
"""

from __future__ import annotations

import csv
import io
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.limits import find, meaning, name_of
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.policy import CLOSED, account_names
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import (
    LONGEST_NAME,
    Checker,
    Kind,
    any_text,
    anything,
    mapping,
    sequence,
    text,
    unknown,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.characters import one_line
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.directories import directory_for
from ansible_collections.gpucluster.slurm.plugins.module_utils.texts import limited, shown

DIRECTORY = "directory"
"""The people of a site with LDAP or AD, which hosts know already."""

ALLOWED = "a file such as people.csv or people.yml, or directory"

STATES = ("present", "suspended", "absent")
JOBS = ("stay", "end")

IDS = ((1000, 60000), (65536, 2**32 - 3))
"""Ids of people: UID_MIN to UID_MAX of login.defs(5), and those above the old 16 bits.

Debian and systemd keep those between for services and nobody, and the two highest mean that there is none
(https://www.debian.org/doc/debian-policy/ch-opersys.html#uid-and-gid-classes).
"""

RESERVED = ("root", "nobody", "nogroup", "munge", "slurm", "people")
"""Names that every host has for something else; `people` is the group of all users of the plan."""

_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")  # useradd(8); Slurm lowers names, and shadow's tools refuse dots
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_FILE = re.compile(r".+\.(csv|ya?ml)")
_TABLE = re.compile(r".+\.csv")


# -- types -----------------------------------------------------------------------------------------------------------


def user_name(value: Any) -> str:
    """The name of a user or a group."""
    if not _NAME.fullmatch(text(value)):
        raise ValueError("allowed: up to 32 small letters, digits, '_' and '-', a letter or '_' first, such as alice")
    if value in RESERVED:
        raise ValueError("allowed: any other name, since every host has this one for something else")
    return text(value)


def identity(value: Any) -> int:
    """A uid or a gid."""
    if isinstance(value, bool) or not isinstance(value, int) or not any(low <= value <= high for low, high in IDS):
        raise ValueError("allowed: " + " and ".join(f"{low} to {high}" for low, high in IDS))
    return value


def full_name(value: Any) -> str:
    """The full name of a user, a part of the fifth field of passwd(5), where signs end it."""
    try:
        line = one_line(text(value))
    except ValueError:
        line = ":"
    if {":", ","} & {*line}:
        raise ValueError("allowed: a text of one line without ':' and ','")
    if len(text(value)) > LONGEST_NAME:
        raise ValueError(f"allowed: up to {LONGEST_NAME} characters")
    return text(value)


def shell(value: Any) -> str:
    """The program of a login."""
    return directory_for("shell")(text(value))


def home(value: Any) -> str:
    """A home: a directory below another one, since that of all homes belongs to no user."""
    return directory_for("home")(text(value))


def limits(value: Any) -> dict[str, Any]:
    """Limits of a user in the policy for accounting, by Slurm's own names."""
    found = {}
    for key, setting in mapping(value).items():
        _kind, limit = find(("association", "user"), str(key))
        if limit.name == "DefaultAccount":
            raise ValueError("DefaultAccount: allowed: the key account")
        meaning(limit, setting)
        found[limit.name] = setting
    return found


def account(value: Any) -> Any:
    """A further account of a user: its name, or a mapping with name, partition and limits, as in a policy."""
    if not isinstance(value, Mapping):
        return _name_of(value)
    own = {key: _name_of(value[key]) for key in ("name", "partition") if value.get(key) is not None}
    if "name" not in own:
        raise ValueError("allowed: the name of an account, or a mapping with name, partition and limits")
    return {**own, **limits({key: setting for key, setting in value.items() if key not in own})}


def _name_of(value: Any) -> str:
    """A name in Slurm's accounting."""
    try:
        return name_of(value)
    except ValueError as error:
        raise ValueError(f"allowed: {error}") from None


def choice(what: str, words: Sequence[str]) -> Callable[[Any], str]:
    """The type of a word out of some."""

    def typed(value: Any) -> str:
        """The word."""
        if value not in words:
            raise ValueError(unknown(what, text(value), words, ", ".join(words)))
        return text(value)

    return typed


def each(element: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    """The type of a list whose values have a type, none twice."""

    def typed(value: Any) -> list[Any]:
        """The list."""
        values: list[Any] = []
        for found in sequence(value):
            try:
                values.append(element(found))
            except ValueError as error:
                raise ValueError(f"{_found(found)}, {error}") from None
            if values[-1] in values[:-1]:
                raise ValueError(f"{_found(found)} twice")
        return values

    return typed


# -- keys ------------------------------------------------------------------------------------------------------------

_PRIVATE = re.compile(r"PRIVATE KEY|\bb3BlbnNzaC1rZXktdjE")
"""Any private key in PEM, and OpenSSH's own format in base64 (PROTOCOL.key of its source)."""

_FIELDS = {
    "ssh-ed25519": 2,
    "ssh-rsa": 3,
    "ecdsa-sha2-nistp256": 3,
    "ecdsa-sha2-nistp384": 3,
    "ecdsa-sha2-nistp521": 3,
    "sk-ssh-ed25519@openssh.com": 3,
    "sk-ecdsa-sha2-nistp256@openssh.com": 4,
}
"""The types of public keys that OpenSSH 10 takes, and the number of fields in their data (RFC 4253, PROTOCOL.u2f)."""

_OPTIONS = (
    *("agent-forwarding", "command", "environment", "expiry-time", "from", "no-agent-forwarding"),
    *("no-port-forwarding", "no-pty", "no-touch-required", "no-user-rc", "no-X11-forwarding", "permitlisten"),
    *("permitopen", "port-forwarding", "pty", "restrict", "tunnel", "user-rc", "verify-required", "X11-forwarding"),
)
"""Options of a key in authorized_keys (sshd(8)), without those of certificates. sshd ignores a key with another one."""

_KEY = re.compile(
    r'(?:(?P<options>(?:[^\s"]|"(?:[^"\\]|\\.)*")+)[ \t]+)?'
    rf"(?P<type>{'|'.join(map(re.escape, _FIELDS))})[ \t]+(?P<data>[A-Za-z0-9+/]+={{0,2}})(?:[ \t]+(?P<comment>.*))?"
)
_OPTION = re.compile(r'(?P<name>[^=,"]+)(?:="(?:[^"\\]|\\.)*")?(?:,|$)')


def public_key(value: Any) -> str:
    """A public SSH key, as a line of authorized_keys."""
    line = any_text(value).strip()
    match = _KEY.fullmatch(line)
    if not match or _CONTROL.search(line):
        types = ", ".join(_FIELDS)
        raise ValueError(f"allowed: one line TYPE DATA COMMENT of a public key, perhaps after options; types: {types}")
    kind, fields = match["type"], _fields(match["data"])
    if fields[:1] != [kind.encode()] or len(fields) != _FIELDS[kind]:
        inner = fields[0].decode(errors="replace") if fields else kind
        what = "are incomplete" if inner == kind else f"are those of {shown(inner)}"
        raise ValueError(f"whose data {what}, allowed: all data of a key of type {kind}")
    place, options = 0, match["options"] or ""
    while place < len(options):
        option = _OPTION.match(options, place)
        names = {name.lower(): name for name in _OPTIONS}
        if not option or option["name"].lower() not in names:
            name = option["name"] if option else options[place:]
            raise ValueError(unknown("option", name, _OPTIONS, ", ".join(_OPTIONS)))
        place = option.end()
    if options.endswith(","):
        raise ValueError("allowed: no ',' after the last option")
    return line


def _fields(data: str) -> list[bytes]:
    """The fields in the data of a public key; none if they do not end with the data."""
    try:
        rest = b64decode(data, validate=True)
    except ValueError:
        return []
    fields = []
    while rest:
        length = int.from_bytes(rest[:4], "big")
        fields.append(rest[4 : 4 + length])
        if len(rest) < 4 + length:
            return fields[:1]
        rest = rest[4 + length :]
    return fields


def _data(key: str) -> str:
    """Type and data of a right key, which are the same for all spellings of it."""
    match = _KEY.fullmatch(key)
    return f"{match['type']} {match['data'].rstrip('=')}" if match else key


def _found(value: Any) -> str:
    """A value as messages name it; a private key is never shown."""
    return "found a private key" if _PRIVATE.search(str(value)) else f"found {shown(value)}"


# -- kinds -----------------------------------------------------------------------------------------------------------

PEOPLE = Kind(own={"groups": {"type": anything}, "users": {"type": anything}})

GROUP = Kind(own={"name": {"type": user_name, "required": True}, "gid": {"type": identity, "required": True}})

_USER: dict[str, dict[str, Any]] = {
    "name": {"type": user_name, "required": True},
    "uid": {"type": identity, "required": True},
    "gid": {"type": identity},
    "groups": {"type": each(user_name)},
    "full_name": {"type": full_name},
    "home": {"type": home},
    "shell": {"type": shell},
    "keys": {"type": each(public_key)},
    "state": {"type": choice("state", STATES)},
    "jobs": {"type": choice("word", JOBS)},
}

USER = Kind(
    own={**_USER, "account": {"type": _name_of}, "accounts": {"type": each(account)}, "limits": {"type": limits}},
)

COMPLETE_USER = Kind(own={key: {**spec, "required": True} for key, spec in _USER.items()})

COMPLETE = Kind(
    own={
        "source": {"type": choice("source", ("list", DIRECTORY)), "required": True},
        "groups": {"type": sequence, "required": True},
        "users": {"type": sequence, "required": True},
    }
)


# -- tables ----------------------------------------------------------------------------------------------------------

_LISTS = ("groups", "keys", "accounts")
_NUMBERS = ("uid", "gid")
_LIMIT = "limits."
"""How the column of a limit starts: `limits.MaxJobs`."""


@dataclass(frozen=True)
class Table:
    """A CSV file, as it was read."""

    file: str
    """Its name, for messages."""
    rows: list[list[str]]
    """Its rows that have a value; the first one names the columns."""
    lines: list[int]
    """The line at which each row starts."""
    problem: tuple[int, str] | None = None
    """The line where it is no CSV, and why."""


def read_table(file: str, content: str) -> Table:
    """Read a CSV file (RFC 4180); rows without any value are left out, as spreadsheets write them."""
    broken = re.search("[\udc80-\udcff]", content)  # Ansible's way to keep bytes that are no UTF-8
    if broken:
        line = content.count("\n", 0, broken.start()) + 1
        return Table(file, [], [], (line, "is not in UTF-8, allowed: a file in UTF-8"))
    reader = csv.reader(io.StringIO(content.removeprefix("\ufeff"), newline=""), strict=True)
    rows, lines, problem, line = list[list[str]](), list[int](), None, 1
    try:
        for row in reader:
            values = [value.strip() for value in row]
            if any(values):
                rows.append(values)
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        problem = line, f"cannot be read as CSV: {error}"
    return Table(file, rows, lines, problem)


_ROW = re.compile(r"\w+\[(\d+)\]\.?(.*)", re.DOTALL)


class TableChecker(Checker):
    """A checker of a table, which names lines in the place of indexes: `line 7: uid`."""

    def __init__(self, table: Table, problems: list[str]) -> None:
        super().__init__(table.file, problems)
        self._lines = table.lines[1:]
        if table.problem:
            self.problem(f"line {table.problem[0]}", table.problem[1])

    def key(self, key: str) -> str:
        """A key such as `users[5].uid` by its line."""
        match = _ROW.fullmatch(key)
        return ": ".join(filter(None, (f"line {self._lines[int(match[1])]}", match[2]))) if match else key


def _entries(checker: Checker, table: Table, kind: Kind) -> list[dict[str, Any]]:
    """The rows of a table as a cluster file has them; none if their form is wrong."""
    before = len(checker.problems)
    columns, *rows = table.rows or [[]]
    first, *lines = table.lines or [1]
    names = [*(name for name in kind.own if name != "limits"), *([f"{_LIMIT}NAME"] if "limits" in kind.own else [])]
    for column in dict.fromkeys(columns):
        if column.startswith(_LIMIT) and "limits" in kind.own:
            try:
                limits({column.removeprefix(_LIMIT): None})
            except ValueError as error:
                checker.problem(f"line {first}", f"{_LIMIT}{error}")
        elif column not in names:
            what = unknown("column", column, names, ", ".join(names))
            separator = "columns are separated by ',': " if ";" in column or "\t" in column else ""
            checker.problem(f"line {first}", f"found {shown(column)}, {separator}{what}")
        elif columns.count(column) > 1:
            checker.problem(f"line {first}", f"found the column {column} twice")
    for name, spec in kind.own.items():
        if spec.get("required") and name not in columns and not table.problem:
            checker.problem(f"line {first}", f"the column {name} is missing")
    for line, row in zip(lines, rows):
        if len(row) != len(columns):
            what = f"found {len(row)} values, allowed: {len(columns)}, one for each column"
            checker.problem(f"line {line}", f"{what}; a value with ',' is in double quotes")
    return [_entry(columns, row) for row in rows] if len(checker.problems) == before else []


def _entry(columns: Sequence[str], row: Sequence[str]) -> dict[str, Any]:
    """A row as a cluster file has it; a column without a value is a missing key."""
    entry: dict[str, Any] = {}
    for column, value in zip(columns, row):
        if not value:
            continue
        if column in _LISTS:
            entry[column] = [part for part in map(str.strip, value.split(";")) if part]
        elif column in _NUMBERS and re.fullmatch("[0-9]{1,10}", value):
            entry[column] = int(value)
        elif column.startswith(_LIMIT):
            entry.setdefault("limits", {})[column.removeprefix(_LIMIT)] = value
        else:
            entry[column] = value
    return entry


# -- check -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class People:
    """The people of a cluster."""

    variable: dict[str, Any]
    """The variable slurm_people; empty where the site does not use it."""
    policy: list[dict[str, Any]]
    """Users of the policy for accounting, one for each user with an account."""


@dataclass(frozen=True)
class _Listed:
    """The valid parts of groups or users, with their place."""

    checker: Checker
    key: str
    entries: list[dict[str, Any]]

    def problem(self, i: int, key: str, what: str) -> None:
        """Note a problem with a key of an entry."""
        self.checker.problem(f"{self.key}[{i}].{key}", what)

    def words(self, i: int) -> str:
        """An entry by its name and place."""
        return f"{self.entries[i].get('name', 'another one')} ({self.checker.key(f'{self.key}[{i}]')})"

    def once(self, key: str, one: str, values: Callable[[Any], Iterable[Any]] = lambda value: [value]) -> None:
        """Check that no two entries have a value of a key in common; one: a value in words."""
        first: dict[Any, int] = {}
        for i, entry in enumerate(self.entries):
            for value in values(entry[key]) if key in entry else ():
                other = first.setdefault(value, i)
                if other != i:
                    what = f"found {shown(value)}, the {one} of {self.words(other)}"
                    self.problem(i, key, f"{what}, allowed: another {one}")


def files(data: Any) -> list[str]:
    """The file of people that the data of a cluster file names, if it names one."""
    found = data.get("people") if isinstance(data, Mapping) else None
    return [found] if isinstance(found, str) and _FILE.fullmatch(found) else []


def is_table(file: str) -> bool:
    """Whether a file is a CSV file."""
    return bool(_TABLE.fullmatch(file))


def check(
    checker: Checker,
    file: Mapping[str, Any],
    beside: Mapping[str, tuple[Checker, Any]] | None,
    policy: Mapping[str, Any],
) -> People:
    """Check the keys `people`, `groups` and `users` of a cluster file.

    beside: the content of the file that `people` names, a Table or the data of YAML, with its checker; None: none can
    be named. policy: the policy for accounting without these users.
    """
    found = file.get("people")
    lists = {key: file[key] for key in PEOPLE.own if file.get(key) is not None}
    named = beside[found] if isinstance(found, str) and beside and found in beside else None
    table = named is not None and isinstance(named[1], Table)
    taken = [] if found is None else [key for key in lists if key == "users" or not table]
    for key in taken:
        checker.problem(key, f"found with people: {shown(found)}, which has the {key} already, allowed: one of both")
    if found == DIRECTORY:
        return People({"source": DIRECTORY, "groups": [], "users": []}, [])
    if named and table:
        lists["users"] = found
    elif named:
        checker, content = named
        if not isinstance(content, Mapping):
            checker.problem("", f"{_found(content)}, allowed: a mapping with groups and users")
            return People({}, [])
        lists, beside = checker.check(PEOPLE, "", content), None
    elif found is not None:
        checker.problem("people", f"{_found(found)}, allowed: {ALLOWED}")
    if not lists:
        return People({}, [])
    groups, users = (
        _listed(checker, key, lists.get(key, []), kind, beside) for key, kind in (("groups", GROUP), ("users", USER))
    )
    _check_together(groups, users)
    complete = [_complete(user) for user in users.entries if {"name", "uid"} <= user.keys()]
    return People(
        {"source": "list", "groups": groups.entries, "users": complete},
        _policy(users, policy),
    )


def check_variable(checker: Checker, found: Any, policy: Any, slurm_user_id: Any) -> None:
    """Check the variable slurm_people, which has every key; policy: the variable slurm_accounting_users."""
    if not found:
        return
    if not isinstance(found, Mapping) or "source" not in found:
        what = f"{_found(found)}, allowed: a mapping with source, groups and users, as the filter people returns it"
        checker.problem("people", what)
        return
    given = checker.check(COMPLETE, "people", found)
    groups, users = (
        _listed(checker, f"people.{name}", given.get(name, []), kind)
        for name, kind in (("groups", GROUP), ("users", COMPLETE_USER))
    )
    _check_together(groups, users)
    for listed, key in ((users, "uid"), (users, "gid"), (groups, "gid")):
        for i, entry in enumerate(listed.entries):
            if key in entry and entry[key] == slurm_user_id:
                listed.problem(i, key, f"found {slurm_user_id}, which is slurm_user_id, allowed: another id")
    open_to = {
        str(entry.get("name"))
        for entry in (policy if isinstance(policy, list) else [])
        if isinstance(entry, Mapping) and any(str(entry.get(key)) != "0" for key in CLOSED)
    }
    for i, user in enumerate(users.entries):
        if user.get("state") == "suspended" and user.get("name") in open_to:
            closed = ", ".join(f"{key}: 0" for key in CLOSED)
            what = f"found 'suspended', but the user may submit jobs, allowed: {closed} in slurm_accounting_users"
            users.problem(i, "state", what)


def complete(found: Any) -> dict[str, Any]:
    """The variable slurm_people for a mapping with the keys `groups` and `users`, or for `directory`.

    Raises ValueError with all that is wrong.
    """
    problems: list[str] = []
    checker = Checker("", problems)
    people = check(checker, checker.check(PEOPLE, "", found) if found != DIRECTORY else {"people": found}, None, {})
    if people.policy:
        problems.append("account, accounts and limits are read from a cluster file only: use slurm_accounting_users")
    if problems:
        raise ValueError("\n".join(limited(problems)))
    return people.variable


def _listed(
    checker: Checker, key: str, found: Any, kind: Kind, beside: Mapping[str, tuple[Checker, Any]] | None = None
) -> _Listed:
    """The checked entries of a list, or of the table that is named in its place; None: no table may be."""
    if isinstance(found, str) and beside and found in beside:
        checker, table = beside[found]
        found, key = _entries(checker, table, kind), key.rpartition(".")[2]
    if not isinstance(found, list):
        checker.problem(key, f"{_found(found)}, allowed: a list")
        found = []
    return _Listed(checker, key, [_checked(checker, kind, f"{key}[{i}]", entry) for i, entry in enumerate(found)])


def _checked(checker: Checker, kind: Kind, key: str, found: Any) -> dict[str, Any]:
    """As Checker.check, but a private key is never shown."""
    if _PRIVATE.search(str(found)):
        checker.problem(
            key,
            "has a private key, which is not shown here, allowed: public keys, such as the line in id_ed25519.pub; "
            "the private key is no secret any more, so make a new pair",
        )
        return {}
    return checker.check(kind, key, found)


def _complete(user: Mapping[str, Any]) -> dict[str, Any]:
    """A user with every default."""
    defaults = {
        "gid": user["uid"],
        "groups": [],
        "full_name": "",
        "home": f"/home/{user['name']}",
        "shell": "/bin/bash",
        "keys": [],
        "state": STATES[0],
        "jobs": JOBS[0],
    }
    return {key: user.get(key, defaults.get(key)) for key in _USER}


def _check_together(groups: _Listed, users: _Listed) -> None:
    """Check groups and users together: names, ids, homes and keys."""
    for listed, key in ((groups, "name"), (users, "name"), (groups, "gid"), (users, "uid")):
        listed.once(key, key)
    users.once("keys", "key", lambda keys: map(_data, keys))
    _check_groups(groups, users)
    _check_homes(users)


def _check_groups(groups: _Listed, users: _Listed) -> None:
    """Check the groups of users. A primary group that is not listed is the user's own, and has the user's name."""
    listed = {group["name"]: group.get("gid") for group in groups.entries if "name" in group}
    ids = {gid: name for name, gid in listed.items()}
    own: dict[int, int] = {}
    for i, user in enumerate(users.entries):
        gid, name = user.get("gid", user.get("uid")), user.get("name")
        key = "gid" if "gid" in user else "uid"
        if gid is not None and gid not in ids:
            other = own.setdefault(gid, i)
            if user.get("uid") != users.entries[other].get("uid"):  # the same uid is a problem of its own
                what = f"found {gid}, the gid of the own group of {users.words(other)}"
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


def _check_homes(users: _Listed) -> None:
    """Check that each home has one user, and that none is in that of another user."""
    homes: dict[str, int] = {}
    for i, user in enumerate(users.entries):
        path = user.get("home") or (f"/home/{user['name']}" if "name" in user else "")
        other = homes.setdefault(path, i)
        if path and user.get("name") != users.entries[other].get("name"):
            users.problem(i, "home", f"found {shown(path)}, the home of {users.words(other)}, allowed: another one")
    for path, i in homes.items():
        above = path.rpartition("/")[0]
        while above:
            if above in homes:
                what = f"found {shown(path)}, which is in the home of {users.words(homes[above])}"
                users.problem(i, "home", f"{what}, allowed: a path outside")
                break
            above = above.rpartition("/")[0]


def _policy(users: _Listed, policy: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of the users in the policy for accounting."""
    accounts = account_names(policy)
    listed = policy.get("users")
    there = {
        str(entry.get("name") if isinstance(entry, Mapping) else entry).lower()
        for entry in (listed if isinstance(listed, list) else [])
    }
    entries = []
    for i, user in enumerate(users.entries):
        if user.get("name") in there:
            what = f"found {shown(user['name'])}, which is in {users.checker.key('accounting.users')} too"
            users.problem(i, "name", f"{what}, allowed: one entry, here with account, accounts and limits")
        elif not user.keys() & {"account", "accounts"}:
            if "limits" in user:
                users.problem(i, "limits", "need an account, allowed: limits with account or accounts")
        elif "name" in user and user.get("state") != "absent":
            unknown_ones = _unknown_accounts(user, accounts)
            for key, what in unknown_ones:
                users.problem(i, key, what)
            entries += [] if unknown_ones else [_policy_entry(user)]
    return entries


def _policy_entry(user: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a user in the policy for accounting.

    A policy leaves limits that it does not name as they are. So those of a suspended user are named for others, too.
    """
    closed = user.get("state") == "suspended"
    own = user.get("limits", {})
    places = [
        {key: value for key, value in place.items() if key not in CLOSED}
        if closed and isinstance(place, dict)
        else place
        for place in user.get("accounts", [])
    ]
    entry = {"name": user["name"], "DefaultAccount": user.get("account"), "accounts": places}
    return {
        **{key: value for key, value in entry.items() if value},
        **own,
        **({"AdminLevel": "None"} if closed else {}),
        **{key: 0 if closed else own.get(key, -1) for key in CLOSED},
    }


def _unknown_accounts(user: Mapping[str, Any], accounts: Collection[str]) -> list[tuple[str, str]]:
    """Accounts of a user that the policy does not have, as (key, problem); accounts: those of the policy, or none."""
    names = [place.get("name") if isinstance(place, Mapping) else place for place in user.get("accounts", [])]
    named = [*([("account", user["account"])] if "account" in user else []), *(("accounts", name) for name in names)]
    return [
        (key, f"found {shown(name)}, {unknown('account', str(name), accounts, 'those of accounting.accounts')}")
        for key, name in named
        if accounts and str(name).lower() not in accounts
    ]
