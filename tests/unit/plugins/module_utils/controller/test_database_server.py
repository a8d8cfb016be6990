# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A database server of others, with a stand-in for MariaDB's client; the lab asks a real MariaDB."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import database_server
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.database_server import (
    NEEDED,
    Connection,
    DatabaseAccount,
    UnusableDatabaseError,
    inspect,
    missing_rights,
)
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_database_server

SERVER = DatabaseAccount("db.x.org", 3306, "slurm", "slurm_acct_db", tls=False)
ALL = "GRANT ALL PRIVILEGES ON `slurm\\_acct\\_db`.* TO `slurm`@`%`"
DENIED = "ERROR 1045 (28000): Access denied for user 'slurm'@'10.0.0.4' (using password: YES)"


def client(
    monkeypatch: pytest.MonkeyPatch, grants: str = ALL, databases: Sequence[str] = ("slurm_acct_db",), error: str = ""
) -> Connection:
    """A connection whose client answers as one of a server with the tables of Slurm, or with an error."""
    answers = {
        "SHOW GRANTS": ["10.0.0.4", grants],
        "schemata": databases,
        "information_schema.tables": ["cluster_table"],
        "rpc_version": ["10752"],
        "column_name": ["a", "b"],
    }

    def run(command: list[str], stdin: str, seconds: float) -> Answer:
        assert command[:2] == ["mariadb", "--defaults-extra-file=/run/x.cnf"]
        assert seconds
        (rows,) = (rows for word, rows in answers.items() if word in stdin)
        return Answer(1, "", error) if error else Answer(0, "".join(f"{row}\n" for row in rows), "")

    monkeypatch.setattr(database_server, "run", run)
    return Connection(SERVER, "/run/x.cnf")


def error_of(connection: Connection) -> str:
    """Why the server cannot be used."""
    with pytest.raises(UnusableDatabaseError) as caught:
        inspect(connection)
    return str(caught.value)


def test_a_database_that_slurmdbd_can_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspect(client(monkeypatch)) == ["10752", "a", "b"]


def test_a_server_that_refuses_the_user_gets_the_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    message = error_of(client(monkeypatch, error=DENIED))
    assert "database server db.x.org, port 3306, user slurm: Access denied for user 'slurm'@'10.0.0.4'" in message
    assert "  CREATE DATABASE IF NOT EXISTS `slurm_acct_db`;" in message
    assert "  GRANT ALL PRIVILEGES ON `slurm_acct_db`.* TO 'slurm'@'10.0.0.4';" in message
    blocked = "ERROR 1130 (HY000): Host '10.0.0.5' is not allowed to connect to this MariaDB server"
    assert "CREATE USER IF NOT EXISTS 'slurm'@'10.0.0.5'" in error_of(client(monkeypatch, error=blocked))
    early = (
        "ERROR 2026 (HY000): Received error packet before completion of TLS handshake. The authenticity of the "
        "following error cannot be verified: 1130 - Host '10.0.0.6' is not allowed to connect to this MariaDB server"
    )
    assert "CREATE USER IF NOT EXISTS 'slurm'@'10.0.0.6'" in error_of(client(monkeypatch, error=early))


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("ERROR 2002 (HY000): Can't connect to server on 'db.x.org' (115)", "Can't connect to server on 'db.x.org'"),
        ("ERROR 2026 (HY000): TLS/SSL error: self-signed certificate", "TLS/SSL error: self-signed certificate. "),
        ("it did not end within 60 s", "it did not end within 60 s. "),
    ],
)
def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, message: str, what: str) -> None:
    found = error_of(client(monkeypatch, error=message))
    assert f"user slurm: {what}" in found
    assert found.endswith("Correct database_server, or ask who runs it")
    assert "CREATE" not in found


def test_a_user_without_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    message = error_of(client(monkeypatch, "GRANT USAGE ON *.* TO `slurm`@`%`"))
    assert f"lacks these rights on database slurm_acct_db: {', '.join(NEEDED)}" in message
    assert "GRANT ALL PRIVILEGES ON `slurm_acct_db`.* TO 'slurm'@'10.0.0.4';" in message


def test_a_database_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    message = error_of(client(monkeypatch, databases=()))
    assert "user slurm: there is no database slurm_acct_db.\n" in message
    assert "  CREATE DATABASE IF NOT EXISTS `slurm_acct_db`;" in message


@pytest.mark.parametrize("ca", ["", "-----BEGIN CERTIFICATE-----\n"])
def test_the_password_is_in_a_file_for_root(tmp_path: Path, ca: str) -> None:
    params: dict[str, Any] = {"host": "db", "port": 3307, "user": "slurm", "password": 'a"b #\\', "ca": ca}
    path = Path(slurm_database_server.client_options(params, str(tmp_path)))
    text = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert "host = db\nport = 3307\nuser = slurm\n" in text
    assert (f"ssl-ca = {tmp_path}/ca.pem" in text) == bool(ca)
    assert ("ssl = OFF" in text) == (not ca)


@pytest.mark.parametrize(
    ("grants", "missing"),
    [
        ([ALL], []),
        (["GRANT ALL PRIVILEGES ON *.* TO `slurm`@`%` WITH GRANT OPTION"], []),
        (["GRANT ALL PRIVILEGES ON `slurm%`.* TO `slurm`@`%`"], []),
        (["GRANT ALL PRIVILEGES ON `slurm_acct_db`.* TO `slurm`@`%`"], []),
        ([f"GRANT {', '.join(NEEDED)}, EVENT ON `slurm_acct_db`.* TO `slurm`@`%`"], []),
        (["GRANT `dba`@`%` TO `slurm`@`%`"], []),
        (["GRANT ALL PRIVILEGES ON `other`.* TO `slurm`@`%`"], [*NEEDED]),
        (["GRANT ALL PRIVILEGES ON `slurm\\_acct`.* TO `slurm`@`%`"], [*NEEDED]),
        (["GRANT SELECT ON *.* TO `s`@`%`", "GRANT DROP ON `slurm_acct_db`.* TO `s`@`%`"], ["DROP", "SELECT"]),
    ],
)
def test_rights(grants: list[str], missing: list[str]) -> None:
    found = missing_rights(grants, "slurm_acct_db")
    assert found == (missing if missing != ["DROP", "SELECT"] else [one for one in NEEDED if one not in missing])


def test_the_statements_ask_for_tls_where_the_key_has_it() -> None:
    server = DatabaseAccount("db.x.org", 3306, "slurm", "slurm_acct_db", tls=True)
    assert "IDENTIFIED BY 'PASSWORD' REQUIRE SSL;" in database_server.statements(server, "10.0.0.4")
