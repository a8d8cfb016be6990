# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MariaDB on this host, asked by root through its socket with MariaDB's own client.

A statement is the client's standard input, since other users see command lines. A password never leaves this module:
MariaDB gets its hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from ..client.commands import run
from ..language.errors import CollectionError

LOCAL = "localhost"
"""The host from which slurmdbd's user comes: the socket."""

PLUGIN = "mysql_native_password"
"""How slurmdbd's user logs in (MariaDB's manual, mysql_native_password)."""

ESCAPES = {r"\t": "\t", r"\n": "\n", r"\0": "\0", r"\\": "\\"}
"""How the client writes characters of a value in its mode batch (mariadb(1), --batch)."""

Row = dict[str, str]


class MariadbError(CollectionError):
    """The message of MariaDB or of its client."""


def text(value: str) -> str:
    """A text of a statement, for any sql_mode without NO_BACKSLASH_ESCAPES."""
    return "'" + value.replace("\\", r"\\").replace("'", "''") + "'"


def identifier(name: str) -> str:
    """The name of a database in a statement."""
    return "`" + name.replace("`", "``") + "`"


def account(user: str, host: str) -> str:
    """A user in a statement."""
    return f"{text(user)}@{text(host)}"


def password_hash(password: str) -> str:
    """What MariaDB keeps of a password (its function PASSWORD)."""
    once = hashlib.sha1(password.encode(), usedforsecurity=False).digest()
    return "*" + hashlib.sha1(once, usedforsecurity=False).hexdigest().upper()


def rows(output: str) -> list[Row]:
    """The rows of one query, by the names of the columns. Without rows the client prints nothing."""
    table = [line.split("\t") for line in output.split("\n")[:-1]]
    values = [[re.sub(r"\\[tn0\\]", lambda found: ESCAPES[found[0]], value) for value in line] for line in table]
    return [dict(zip(values[0], line)) for line in values[1:]]


class Mariadb:
    """MariaDB as root reaches it."""

    def __init__(self, socket: str) -> None:
        self.command = ["mariadb", f"--socket={socket}", "--batch", "--default-character-set=utf8mb4"]

    def ask(self, statement: str) -> list[Row]:
        """The rows of a statement; those without rows, such as CREATE, have none. Raises MariadbError."""
        answer = run(self.command, stdin=f"SET SESSION sql_mode = ''; {statement}")
        if answer.status:
            raise MariadbError(f"MariaDB: {answer.message}")
        return rows(answer.output)

    def has_database(self, name: str) -> bool:
        """Whether there is a database."""
        where = f"schema_name = {text(name)}"
        return bool(self.ask(f"SELECT 1 AS found FROM information_schema.schemata WHERE {where}"))

    def has_user(self, user: str, host: str) -> bool:
        """Whether there is a user."""
        return bool(self.ask(f"SELECT 1 AS found FROM mysql.user WHERE user = {text(user)} AND host = {text(host)}"))

    def takes(self, user: str, password: str) -> bool:
        """Whether a local user logs in with a password."""
        where = f"user = {text(user)} AND host = {text(LOCAL)} AND plugin = {text(PLUGIN)}"
        found = self.ask(f"SELECT authentication_string AS kept FROM mysql.user WHERE {where}")
        return [row["kept"] for row in found] == [password_hash(password)]

    def grants(self, user: str) -> list[str]:
        """The rights of a local user, as statements."""
        found = self.ask(f"SHOW GRANTS FOR {account(user, LOCAL)}") if self.has_user(user, LOCAL) else []
        return [statement for row in found for statement in row.values()]


def wanted_grant(database: str) -> str:
    """The beginning of the one grant of slurmdbd's user."""
    return f"GRANT ALL PRIVILEGES ON {identifier(database)}.* TO "


def surplus(grants: Sequence[str], database: str) -> list[str]:
    """What a user with these grants has besides all rights to one database, as `RIGHTS ON WHERE` of REVOKE.

    Roles are kept. The line of USAGE is no right; it has the hash of the password.
    """
    found = []
    for grant in grants:
        parts = re.match(r"GRANT (.+?) ON (.+?) TO `", grant)
        if not parts:
            continue
        rights = [] if grant.startswith(wanted_grant(database)) or parts[1] == "USAGE" else [parts[1]]
        rights += ["GRANT OPTION"] if grant.endswith(" WITH GRANT OPTION") else []
        if rights:
            found.append(f"{', '.join(rights)} ON {parts[2]}")
    return found
