# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A database server that the collection does not manage: whether slurmdbd can use it, and what it has of Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing

from ..language.errors import CollectionError
from .conversion import COLUMNS
from .mysql_protocol import Connection, DatabaseError, DatabaseLogin, DatabaseRefusalError

NEEDED = (
    *("ALTER", "ALTER ROUTINE", "CREATE", "CREATE ROUTINE", "DELETE", "DROP", "EXECUTE", "INDEX", "INSERT", "SELECT"),
    "UPDATE",
)
"""Rights with which slurmdbd makes, converts and fills its tables (`src/plugins/accounting_storage/mysql`)."""

_GRANT = re.compile(r"GRANT (.+?) ON (?:TABLE )?(\*|`(?:[^`]|``)+`)\.\* TO ")


class UnusableDatabaseError(CollectionError):
    """Why slurmdbd cannot use the database, with what a database administrator does."""


def statements(login: DatabaseLogin, name: str, address: str) -> str:
    """What a database administrator runs on the server, without the password."""
    user = f"'{login.user}'@'{address}'"
    tls = " REQUIRE SSL" if login.ca else ""
    return "\n".join(
        (
            "Correct the user, the password (file slurmdbd_storage_pass) or database_server.ca, without which there is "
            "no TLS; or let a database administrator run:",
            f"  CREATE DATABASE IF NOT EXISTS `{name}`;",
            f"  CREATE USER IF NOT EXISTS {user};",
            f"  ALTER USER {user} IDENTIFIED BY 'PASSWORD'{tls};",
            f"  GRANT ALL PRIVILEGES ON `{name}`.* TO {user};",
        )
    )


def missing_rights(grants: Iterable[str], name: str) -> list[str]:
    """The rights that slurmdbd needs and these grants do not give; those of a role are not known."""
    given, roles = set[str](), False
    for grant in grants:
        match = _GRANT.match(grant)
        roles = roles or " ON " not in grant
        if match and _covers(match[2], name):
            given.update(right.strip() for right in match[1].upper().split(","))
    known = roles or "ALL PRIVILEGES" in given
    return [] if known else [right for right in NEEDED if right not in given]


def _covers(pattern: str, name: str) -> bool:
    """Whether the database of a grant, in which % and _ are wildcards, is one of this name."""
    if pattern == "*":
        return True
    parts = re.findall(r"\\.|[^\\]", pattern[1:-1].replace("``", "`"))
    wildcards = {"%": ".*", "_": "."}
    return bool(re.fullmatch("".join(wildcards.get(part, re.escape(part[-1])) for part in parts), name))


def asked(connection: Connection, query: str) -> Iterator[str]:
    """The first value of each row; nothing where a table is missing."""
    try:
        yield from (row[0] for row in connection.query(query))
    except DatabaseRefusalError:
        return


def inspect(login: DatabaseLogin, name: str) -> list[str]:
    """The protocol of Slurm in the database, and the columns that tell its release, after a check of all rights.

    Raises UnusableDatabaseError.
    """
    where = f"database server {login.host}, port {login.port}, user {login.user}"
    try:
        with closing(Connection(login)) as connection:
            grants = [row[0] for row in connection.query("SHOW GRANTS")]
            if missing := missing_rights(grants, name):
                lacking = f"lacks these rights on database {name}: {', '.join(missing)}"
                raise UnusableDatabaseError(f"{where}: {lacking}.\n{statements(login, name, connection.address)}")
            exists = f"SELECT schema_name FROM information_schema.schemata WHERE schema_name = '{name}'"
            if not connection.query(exists):  # slurmdbd would make it, and then end (libmariadb 3.4, error 5027)
                raise UnusableDatabaseError(
                    f"{where}: there is no database {name}.\n{statements(login, name, connection.address)}"
                )
            protocol = f"SELECT MAX(rpc_version) FROM `{name}`.cluster_table WHERE deleted = 0"
            columns = COLUMNS.format(name=name).strip().removesuffix(";")
            return [next(asked(connection, protocol), ""), *asked(connection, columns)]
    except DatabaseRefusalError as error:
        address = re.search(r"(?:'@|^Host )'([^']+)'", str(error))
        hint = statements(login, name, address[1] if address else "ADDRESS")
        raise UnusableDatabaseError(f"{where}: {error}.\n{hint}") from None
    except DatabaseError as error:
        raise UnusableDatabaseError(f"{where}: {error}. Correct database_server, or ask who runs it") from None
