# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_database with recorded answers of MariaDB 11.8."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import mariadb_client as mariadb
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.mariadb_client import MariadbError
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_database

HASH = "*8FCAB92DC3EC7AA2E0F8B6CBF0B81EDA7AFEB5D7"
USAGE = f"GRANT USAGE ON *.* TO `slurm`@`localhost` IDENTIFIED BY PASSWORD '{HASH}'"
ALL = "GRANT ALL PRIVILEGES ON `acct`.* TO `slurm`@`localhost`"


class Server:
    """MariaDB: its databases, its users with the hashes of their passwords, their grants, and what it was asked."""

    def __init__(self) -> None:
        self.databases = {"mysql"}
        self.users: dict[str, str] = {}
        self.grants: list[str] = []
        self.asked: list[str] = []
        self.error = ""

    def run(self, command: list[str], stdin: str) -> Answer:
        """Answer the client."""
        assert command == ["mariadb", "--socket=/s", "--batch", "--default-character-set=utf8mb4"]
        mode, _semicolon, statement = stdin.partition("; ")
        assert mode == "SET SESSION sql_mode = ''"
        self.asked.append(statement)
        return Answer(1, "", self.error) if self.error else Answer(0, self.answer(statement), "")

    def answer(self, statement: str) -> str:
        """What the client prints."""
        if "information_schema.schemata" in statement:
            return "found\n1\n" if any(f"'{name}'" in statement for name in self.databases) else ""
        user = next((one for one in self.users if statement.startswith("S") and f"'{one}'" in statement), None)
        if user is None:
            return ""
        if "authentication_string" in statement:
            return f"kept\n{self.users[user]}\n"
        return "Grants\n" + "".join(f"{line}\n" for line in self.grants) if "GRANTS" in statement else "found\n1\n"

    @property
    def changes(self) -> list[str]:
        """The statements that change something."""
        return [statement for statement in self.asked if not statement.startswith(("SELECT", "SHOW"))]


@pytest.fixture(name="server")
def mariadb_server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """A MariaDB without slurmdbd's database."""
    found = Server()
    monkeypatch.setattr(mariadb, "run", found.run)
    return found


def result(check_mode: bool = False, **options: Any) -> dict[str, Any]:
    """The result of the module."""
    nothing: dict[str, Any] = {
        "name": None,
        "user": None,
        "password": None,
        "absent_databases": [],
        "absent_users": [],
        "queries": [],
    }
    return {**slurm_database.change(Mock(params={"socket": "/s", **nothing, **options}, check_mode=check_mode))}


WANTED: dict[str, Any] = {"name": "acct", "user": "slurm", "password": "it's a \\ secret"}


def made(server: Server) -> None:
    """The database and its user are as they are wanted."""
    server.databases.add("acct")
    server.users["slurm"] = mariadb.password_hash(WANTED["password"])
    server.grants = [USAGE, ALL]


def test_the_hash_is_that_of_mariadb() -> None:
    """SELECT PASSWORD('secret')."""
    assert mariadb.password_hash("secret") == "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7"


def test_the_database_and_its_user_are_made(server: Server) -> None:
    done = result(**WANTED)
    kept = mariadb.password_hash(WANTED["password"])
    assert server.changes == [
        "CREATE DATABASE `acct`",
        f"CREATE USER 'slurm'@'localhost' IDENTIFIED BY PASSWORD '{kept}'",
        "GRANT ALL PRIVILEGES ON `acct`.* TO 'slurm'@'localhost'",
    ]
    shown = "".join(part["after"] for part in done["diff"])
    assert shown == "database acct\nuser slurm@localhost\nuser slurm@localhost: all rights to acct\n"
    assert "secret" not in str([server.asked, done])


def test_a_second_run_and_check_mode_change_nothing(server: Server) -> None:
    assert result(check_mode=True, **WANTED)["changed"]
    assert server.changes == []
    made(server)
    assert not result(**WANTED)["changed"]
    assert server.changes == []


def test_another_password_is_replaced(server: Server) -> None:
    made(server)
    done = result(**(WANTED | {"password": "new"}))
    assert server.changes == [f"ALTER USER 'slurm'@'localhost' IDENTIFIED BY PASSWORD '{mariadb.password_hash('new')}'"]
    assert done["diff"] == [{"before": "user slurm@localhost, another password\n", "after": "user slurm@localhost\n"}]


def test_other_rights_of_the_user_are_taken_back(server: Server) -> None:
    made(server)
    server.grants = [
        "GRANT SELECT, FILE ON *.* TO `slurm`@`localhost` IDENTIFIED BY PASSWORD '*00' WITH GRANT OPTION",
        f"{ALL} WITH GRANT OPTION",
        "GRANT INSERT ON `x y`.`t` TO `slurm`@`localhost`",
        "GRANT `auditors` TO `slurm`@`localhost`",
    ]
    result(**WANTED)
    assert server.changes == [
        "REVOKE SELECT, FILE, GRANT OPTION ON *.* FROM 'slurm'@'localhost'",
        "REVOKE GRANT OPTION ON `acct`.* FROM 'slurm'@'localhost'",
        "REVOKE INSERT ON `x y`.`t` FROM 'slurm'@'localhost'",
    ]


def test_users_and_databases_are_removed_once(server: Server) -> None:
    server.databases.add("test")
    server.users[""] = ""
    wanted: dict[str, Any] = {
        "absent_users": [{"user": "", "host": "%"}, {"user": "root", "host": "h"}],
        "absent_databases": ["test"],
    }
    assert result(**wanted)["changed"]
    assert server.changes == ["DROP DATABASE `test`", "DROP USER ''@'%'"]
    server.databases.remove("test")
    server.users.clear()
    assert not result(**wanted)["changed"]


def test_names_stay_names() -> None:
    assert mariadb.account("a'; DROP", "\\") == "'a''; DROP'@'\\\\'"
    assert mariadb.identifier("a`b") == "`a``b`"


def test_rows_have_the_characters_that_the_client_escapes() -> None:
    assert mariadb.rows("") == []
    found = mariadb.rows("user\thost\na\\tb\t%\n\t\\\\n\n")
    assert found == [{"user": "a\tb", "host": "%"}, {"user": "", "host": "\\n"}]


def test_the_error_of_mariadb_is_shown(server: Server) -> None:
    server.error = "ERROR 2002 (HY000): Can't connect to local server through socket '/s' (2)"
    with pytest.raises(MariadbError, match=r"^MariaDB: ERROR 2002 .*'/s' \(2\)$"):
        result(**WANTED)
