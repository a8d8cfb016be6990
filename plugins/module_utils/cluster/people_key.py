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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from ..accounting.limits import find, meaning, move_gpu_hours, name_of
from ..accounting.policy import CLOSED
from ..formats.characters import one_line
from ..formats.directory_purposes import directory_for
from ..language.formatting import limited, shown
from .people_lists import PeopleList, check_together, policy_of_users
from .public_keys import PRIVATE, found_value, public_key
from .schema import (
    LONGEST_NAME,
    Checker,
    Kind,
    Raw,
    Settings,
    anything,
    choice,
    kind_of,
    mapping,
    sequence,
    text,
    unknown,
)

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
    found, meanings = {}, {}
    for key, setting in mapping(value).items():
        _kind, limit = find(("association", "user"), str(key))
        if limit.name == "DefaultAccount":
            raise ValueError("DefaultAccount: allowed: the key account")
        meanings[limit.name] = meaning(limit, setting)
        if limit.name in found:
            raise ValueError(f"{limit.name} is given twice")
        found[limit.name] = setting
    move_gpu_hours(meanings)
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


def each(element: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    """The type of a list whose values have a type, none twice."""

    def typed(value: Any) -> list[Any]:
        """The list."""
        values: list[Any] = []
        for found in sequence(value):
            try:
                values.append(element(found))
            except ValueError as error:
                raise ValueError(f"{found_value(found)}, {error}") from None
            if values[-1] in values[:-1]:
                raise ValueError(f"{found_value(found)} twice")
        return values

    return typed


# -- kinds -----------------------------------------------------------------------------------------------------------

PEOPLE: Kind[Raw] = Kind(own={"groups": {"type": anything}, "users": {"type": anything}})

GROUP: Kind[Raw] = Kind(
    own={"name": {"type": user_name, "required": True}, "gid": {"type": identity, "required": True}}
)


class User(TypedDict, total=False):
    """A user, as the variable has it."""

    name: Annotated[str, user_name, "required"]
    uid: Annotated[int, identity, "required"]
    gid: Annotated[int, identity]
    groups: Annotated[list[str], each(text)]  # each is the name of an entry of groups
    full_name: Annotated[str, full_name]
    home: Annotated[str, home]
    shell: Annotated[str, shell]
    keys: Annotated[list[str], each(public_key)]
    state: Annotated[str, choice(STATES, "state")]
    jobs: Annotated[str, choice(JOBS)]


class ListedUser(User, total=False):
    """A user of a cluster file."""

    account: Annotated[str, _name_of]
    accounts: Annotated[list[Any], each(account)]
    limits: Annotated[dict[str, Any], limits]


USER = kind_of(ListedUser)

COMPLETE_USER: Kind[User] = Kind(own={key: {**spec, "required": True} for key, spec in kind_of(User).own.items()})


class PeopleVariable(TypedDict, total=False):
    """The variable slurm_people."""

    source: Annotated[str, choice(("list", DIRECTORY), "source"), "required"]
    groups: Annotated[list[Any], sequence, "required"]
    users: Annotated[list[Any], sequence, "required"]


COMPLETE = kind_of(PeopleVariable)


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


def _read_rows(checker: Checker, table: Table, kind: Kind[Any]) -> list[dict[str, Any]]:
    """The rows of a table as a cluster file has them; none if their form is wrong."""
    before = len(checker.problems)
    columns, *rows = table.rows or [[]]
    first, *lines = table.lines or [1]
    for column in dict.fromkeys(columns):
        if what := _column_problem(column, columns.count(column), kind):
            checker.problem(f"line {first}", what)
    for name, spec in kind.own.items():
        if spec.get("required") and name not in columns and not table.problem:
            checker.problem(f"line {first}", f"the column {name} is missing")
    for line, row in zip(lines, rows):
        if len(row) != len(columns):
            what = f"found {len(row)} values, allowed: {len(columns)}, one for each column"
            checker.problem(f"line {line}", f"{what}; a value with ',' is in double quotes")
    return [_read_row(columns, row) for row in rows] if len(checker.problems) == before else []


def _column_problem(column: str, times: int, kind: Kind[Any]) -> str:
    """The problem of a column of a table, which is there so many times; empty if it has none."""
    has_limits = "limits" in kind.own
    twice = f"found the column {column} twice" if times > 1 else ""
    if has_limits and column.startswith(_LIMIT):
        try:
            limits({column.removeprefix(_LIMIT): None})
        except ValueError as error:
            return f"{_LIMIT}{error}"
        return twice
    names = [*(name for name in kind.own if name != "limits"), *([f"{_LIMIT}NAME"] if has_limits else [])]
    if column not in names:
        separator = "columns are separated by ',': " if ";" in column or "\t" in column else ""
        return f"found {shown(column)}, {separator}{unknown('column', column, names, ', '.join(names))}"
    return twice


def _read_row(columns: Sequence[str], row: Sequence[str]) -> dict[str, Any]:
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

    variable: PeopleVariable
    """The variable slurm_people; empty where the site does not use it."""
    policy: list[Settings]
    """Users of the policy for accounting, one for each user with an account."""


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
    contents: Mapping[str, tuple[Checker, Any]] | None,
    policy: Mapping[str, Any],
) -> People:
    """Check the keys `people`, `groups` and `users` of a cluster file.

    contents: the content of the file that `people` names, a Table or the data of YAML, with its checker; None: none can
    be named. policy: the policy for accounting without these users.
    """
    people = file.get("people")
    lists = {key: file[key] for key in PEOPLE.own if file.get(key) is not None}
    named = contents.get(people) if contents and isinstance(people, str) else None
    table = named is not None and isinstance(named[1], Table)
    for key in lists if people is not None else ():
        if key == "users" or not table:
            what = f"found with people: {shown(people)}, which has the {key} already, allowed: one of both"
            checker.problem(key, what)
    if people == DIRECTORY:
        return People({"source": DIRECTORY, "groups": [], "users": []}, [])
    if table:
        lists["users"] = people
    elif named:
        checker, content = named
        lists, contents = _read_lists(checker, content), None
    elif people is not None:
        checker.problem("people", f"{found_value(people)}, allowed: {ALLOWED}")
    return _check_lists(checker, lists, contents, policy) if lists else People({}, [])


def _read_lists(checker: Checker, content: Any) -> Raw:
    """The lists of groups and users in the data of a YAML file; none if it is no mapping."""
    if isinstance(content, Mapping):
        return checker.check(PEOPLE, "", content)
    checker.problem("", f"{found_value(content)}, allowed: a mapping with groups and users")
    return {}


def _check_lists(
    checker: Checker,
    lists: Mapping[str, Any],
    contents: Mapping[str, tuple[Checker, Any]] | None,
    policy: Mapping[str, Any],
) -> People:
    """The people of lists of groups and users, which have been checked."""
    groups = _read_list(checker, "groups", lists.get("groups", []), GROUP, contents)
    users = _read_list(checker, "users", lists.get("users", []), USER, contents)
    check_together(groups, users)
    complete = [_fill_defaults(user) for user in users.entries if {"name", "uid"} <= user.keys()]
    return People(
        {"source": "list", "groups": [*groups.entries], "users": complete},
        policy_of_users(users, groups, policy),
    )


def check_variable(checker: Checker, found: Any, policy: Any, slurm_user_id: Any) -> None:
    """Check the variable slurm_people, which has every key; policy: the variable slurm_accounting_users."""
    if not found:
        return
    if not isinstance(found, Mapping) or "source" not in found:
        what = "allowed: a mapping with source, groups and users, as the filter people returns it"
        checker.problem("people", f"{found_value(found)}, {what}")
        return
    given = checker.check(COMPLETE, "people", found)
    groups = _read_list(checker, "people.groups", given.get("groups", []), GROUP)
    users = _read_list(checker, "people.users", given.get("users", []), COMPLETE_USER)
    check_together(groups, users)
    for listed, key in ((users, "uid"), (users, "gid"), (groups, "gid")):
        for i, entry in enumerate(listed.entries):
            if key in entry and str(entry[key]) == str(slurm_user_id):  # with -e, the variable is a text
                listed.problem(i, key, f"found {slurm_user_id}, which is slurm_user_id, allowed: another id")
    _check_suspended(users, policy if isinstance(policy, list) else [])


def _check_suspended(users: PeopleList, policy: Iterable[Any]) -> None:
    """Check that no suspended user may submit jobs; policy: the entries of slurm_accounting_users."""
    open_to = {
        str(entry.get("name"))
        for entry in policy
        if isinstance(entry, Mapping) and any(str(entry.get(key)) != "0" for key in CLOSED)
    }
    for i, user in enumerate(users.entries):
        if user.get("state") == "suspended" and user.get("name") in open_to:
            closed = ", ".join(f"{key}: 0" for key in CLOSED)
            what = f"found 'suspended', but the user may submit jobs, allowed: {closed} in slurm_accounting_users"
            users.problem(i, "state", what)


def complete(found: Any) -> PeopleVariable:
    """The variable slurm_people for a mapping with the keys `groups` and `users`, or for `directory`.

    Raises ValueError with all that is wrong.
    """
    problems: list[str] = []
    checker = Checker("", problems)
    file = {"people": found} if found == DIRECTORY else checker.check(PEOPLE, "", found)
    people = check(checker, file, None, {})
    if people.policy:
        problems.append("account, accounts and limits are read from a cluster file only: use slurm_accounting_users")
    if problems:
        raise ValueError("\n".join(limited(problems)))
    return people.variable


def _read_list(
    checker: Checker, key: str, found: Any, kind: Kind[Any], contents: Mapping[str, tuple[Checker, Any]] | None = None
) -> PeopleList:
    """The checked entries of a list, or of the table that is named in its place; None: no table may be."""
    if isinstance(found, str) and contents and found in contents:
        checker, table = contents[found]
        found, key = _read_rows(checker, table, kind), key.rpartition(".")[2]
    if not isinstance(found, list):
        checker.problem(key, f"{found_value(found)}, allowed: a list")
        found = []
    return PeopleList(
        checker, key, [_check_entry(checker, kind, f"{key}[{i}]", entry) for i, entry in enumerate(found)]
    )


def _check_entry(checker: Checker, kind: Kind[Any], key: str, found: Any) -> Mapping[str, Any]:
    """As Checker.check, but a private key is never shown."""
    if PRIVATE.search(str(found)):
        checker.problem(
            key,
            "has a private key, which is not shown here, allowed: public keys, such as the line in id_ed25519.pub; "
            "the private key is no secret any more, so make a new pair",
        )
        return {}
    entry: Mapping[str, Any] = checker.check(kind, key, found)
    return entry


def _fill_defaults(user: Mapping[str, Any]) -> dict[str, Any]:
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
    return {key: user.get(key, defaults.get(key)) for key in COMPLETE_USER.own}
