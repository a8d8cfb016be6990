# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A database server that the collection does not manage: whether slurmdbd can use it, and what it has of Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..client.commands import run
from ..language.errors import CollectionError
from .conversion import COLUMNS

CLIENT = "mariadb"
OPTIONS = ("--batch", "--raw", "--skip-column-names", "--connect-timeout=15", "--default-character-set=utf8mb4")
ERROR = re.compile(r"ERROR (\d+)(?: \(\w+\))?(?: at line \d+)?: (.*)")
"""The number and the message of an error that the client prints."""

OF_SERVER = re.compile(r"before completion of TLS handshake.*: (\d+) - (.*)")
"""The same of an error of the server that comes before the TLS handshake, in an error of the client."""

OF_CLIENT = 2000
"""The number of the first error of the client's library; those before are the server's (MariaDB's error codes)."""

NEEDED = (
    *("ALTER", "ALTER ROUTINE", "CREATE", "CREATE ROUTINE", "DELETE", "DROP", "EXECUTE", "INDEX", "INSERT", "SELECT"),
    "UPDATE",
)
"""Rights with which slurmdbd makes, converts and fills its tables (`src/plugins/accounting_storage/mysql`)."""

_GRANT = re.compile(r"GRANT (.+?) ON (?:TABLE )?(\*|`(?:[^`]|``)+`)\.\* TO ")


@dataclass(frozen=True)
class DatabaseAccount:
    """A server, the user of slurmdbd, and its database."""

    host: str
    port: int
    user: str
    name: str
    tls: bool
    """Whether the connection has TLS."""


class UnusableDatabaseError(CollectionError):
    """Why slurmdbd cannot use the database, with what a database administrator does."""


def statements(server: DatabaseAccount, address: str) -> str:
    """What a database administrator runs on the server, without the password."""
    user, name = f"'{server.user}'@'{address}'", server.name
    tls = " REQUIRE SSL" if server.tls else ""
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


class Connection:
    """The server, asked by MariaDB's client, which has the library that slurmdbd has.

    Args:
        server: the server.
        options_file: the client's options, with the password.
    """

    def __init__(self, server: DatabaseAccount, options_file: str) -> None:
        self.server = server
        self.command = [CLIENT, f"--defaults-extra-file={options_file}", *OPTIONS]

    def ask(self, query: str) -> list[str]:
        """The rows of queries. Raises UnusableDatabaseError."""
        answer = run(self.command, stdin=query, seconds=60)
        if answer.status:
            raise self.error(answer.message)
        return answer.output.split("\n")[:-1]

    def error(self, message: str) -> UnusableDatabaseError:
        """The error for a message of the client, with what to do."""
        found = OF_SERVER.search(message) or ERROR.search(message)
        if found is None or int(found[1]) >= OF_CLIENT:
            what = found[2] if found else message
            return UnusableDatabaseError(f"{self.where}: {what}. Correct database_server, or ask who runs it")
        address = re.search(r"(?:'@|^Host )'([^']+)'", found[2])
        return self.refusal(found[2], address[1] if address else "ADDRESS")

    def refusal(self, what: str, address: str) -> UnusableDatabaseError:
        """The error for what a database administrator has to do; address: what the server calls this host."""
        return UnusableDatabaseError(f"{self.where}: {what}.\n{statements(self.server, address)}")

    @property
    def where(self) -> str:
        """The server, for messages."""
        return f"database server {self.server.host}, port {self.server.port}, user {self.server.user}"


def inspect(connection: Connection) -> Sequence[str]:
    """The protocol of Slurm in the database, and the columns that tell its release, after a check of all rights.

    Raises UnusableDatabaseError.
    """
    name = connection.server.name
    address, *grants = connection.ask("SELECT SUBSTRING_INDEX(USER(), '@', -1); SHOW GRANTS;")
    if missing := missing_rights(grants, name):
        raise connection.refusal(f"lacks these rights on database {name}: {', '.join(missing)}", address)
    # slurmdbd would make it, and then end (libmariadb 3.4, error 5027)
    if not connection.ask(f"SELECT schema_name FROM information_schema.schemata WHERE schema_name = '{name}'"):
        raise connection.refusal(f"there is no database {name}", address)
    tables = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{name}'"
    if "cluster_table" not in connection.ask(tables):
        return [""]
    protocol = connection.ask(f"SELECT MAX(rpc_version) FROM `{name}`.cluster_table WHERE deleted = 0")
    return [*protocol, *connection.ask(COLUMNS.format(name=name))]
