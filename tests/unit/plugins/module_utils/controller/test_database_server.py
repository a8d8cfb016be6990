# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A database server of others, with a stand-in that speaks the protocol; the lab has asked a real MariaDB."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import database_server, mysql_protocol
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.database_server import (
    NEEDED,
    UnusableDatabaseError,
    inspect,
    missing_rights,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.mysql_protocol import DatabaseLogin

SALT = b"12345678abcdefghijkl"
OK, EOF = bytes(7), b"\xfe\0\0\0\0"
DENIED = b"\xff\x15\x04#28000Access denied for user 'slurm'@'10.0.0.4' (using password: YES)"
ALL = "GRANT ALL PRIVILEGES ON `slurm\\_acct\\_db`.* TO `slurm`@`%`"
Answers = Callable[[bytes], list[bytes]]


def greeting(plugin: str = mysql_protocol.NATIVE) -> bytes:
    """The first packet of a server without TLS."""
    offered = mysql_protocol.BASE
    low, high = (offered & 0xFFFF).to_bytes(2, "little"), (offered >> 16).to_bytes(2, "little")
    return (
        b"\x0a8.4\0"
        + bytes(4)
        + SALT[:8]
        + b"\0"
        + low
        + b"\x2d\2\0"
        + high
        + b"\x15"
        + bytes(10)
        + SALT[8:]
        + b"\0"
        + plugin.encode()
        + b"\0"
    )


def rows(*values: str) -> list[bytes]:
    """The packets of a query with one column."""
    return [b"\1", b"\3def", EOF, *(bytes([len(value)]) + value.encode() for value in values), EOF]


@contextmanager
def server(first: list[bytes], answers: Answers) -> Iterator[DatabaseLogin]:
    """A stand-in: its first packets, and those after each packet of the client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _address = listener.accept()
            with connection, suppress(OSError):
                number = 0
                for packet in first:
                    connection.sendall(len(packet).to_bytes(3, "little") + bytes([number]) + packet)
                while head := connection.recv(4):
                    number = head[3] + 1
                    for packet in answers(connection.recv(int.from_bytes(head[:3], "little"))):
                        connection.sendall(len(packet).to_bytes(3, "little") + bytes([number]) + packet)
                        number += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield DatabaseLogin("127.0.0.1", listener.getsockname()[1], "slurm", "pass word", "")
        thread.join(5)


def slurms(
    grants: str, login: list[bytes], proofs: list[bytes] | None = None, databases: Sequence[str] = ("slurm_acct_db",)
) -> Answers:
    """The answers of a server with the tables of Slurm."""

    def answers(packet: bytes) -> list[bytes]:
        if not packet.startswith(b"\3"):
            (proofs if proofs is not None else []).append(packet)
            return login
        tables = {b"schemata": databases, b"rpc_version": ["10752"], b"column_name": ["a", "b"]}
        for word, values in {b"GRANTS": [grants], **tables}.items():
            if word in packet:
                return rows(*values)
        return [DENIED]

    return answers


def error_of(first: list[bytes], answers: Answers) -> str:
    """Why the server cannot be used."""
    with server(first, answers) as login, pytest.raises(UnusableDatabaseError) as caught:
        inspect(login, "slurm_acct_db")
    assert "pass word" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("plugin", [mysql_protocol.NATIVE, mysql_protocol.SHA2, "client_ed25519"])
def test_a_database_that_slurmdbd_can_use(plugin: str) -> None:
    proofs = list[bytes]()
    with server([greeting(plugin)], slurms(ALL, [OK], proofs)) as login:
        assert inspect(login, "slurm_acct_db") == ["10752", "a", "b"]
    proof = mysql_protocol.PROOFS[mysql_protocol.NATIVE](b"pass word", SALT)
    assert proofs[0].endswith(b"slurm\0" + bytes([len(proof)]) + proof + mysql_protocol.NATIVE.encode() + b"\0")


@pytest.mark.parametrize(
    ("plugin", "digest", "order"), [(mysql_protocol.NATIVE, "sha1", 1), (mysql_protocol.SHA2, "sha256", -1)]
)
def test_the_server_finds_the_hash_that_it_keeps(plugin: str, digest: str, order: int) -> None:
    def hashed(data: bytes) -> bytes:
        return hashlib.new(digest, data).digest()

    kept = hashed(hashed(b"pass word"))
    mask = hashed(b"".join((SALT, kept)[::order]))
    once = bytes(a ^ b for a, b in zip(mysql_protocol.PROOFS[plugin](b"pass word", SALT), mask))
    assert hashed(once) == kept


def test_a_server_that_refuses_the_user_gets_the_statements() -> None:
    message = error_of([greeting()], slurms(ALL, [DENIED]))
    assert "port " in message
    assert "user slurm: Access denied for user 'slurm'@'10.0.0.4'" in message
    assert "  CREATE DATABASE IF NOT EXISTS `slurm_acct_db`;" in message
    assert "  GRANT ALL PRIVILEGES ON `slurm_acct_db`.* TO 'slurm'@'10.0.0.4';" in message
    blocked = b"\xff\x6a\x04Host '10.0.0.5' is not allowed to connect to this MariaDB server"
    assert "CREATE USER IF NOT EXISTS 'slurm'@'10.0.0.5'" in error_of([blocked], slurms(ALL, []))


def test_a_user_without_rights() -> None:
    message = error_of([greeting()], slurms("GRANT USAGE ON *.* TO `slurm`@`%`", [OK]))
    assert f"lacks these rights on database slurm_acct_db: {', '.join(NEEDED)}" in message
    assert "GRANT ALL PRIVILEGES ON `slurm_acct_db`.* TO 'slurm'@'127.0.0.1';" in message


def test_a_database_that_is_not_there() -> None:
    message = error_of([greeting()], slurms(ALL, [OK], databases=()))
    assert "user slurm: there is no database slurm_acct_db.\n" in message
    assert "  CREATE DATABASE IF NOT EXISTS `slurm_acct_db`;" in message


def test_who_asks_for_the_password_itself_without_tls_does_not_get_it() -> None:
    sent = list[bytes]()
    error_of([greeting()], slurms(ALL, [mysql_protocol.FULL], sent))
    assert sent
    assert not any(b"pass word" in packet for packet in sent)


def test_other_ways_to_log_in_are_named() -> None:
    switch = b"\xfeclient_ed25519\0" + SALT
    assert "user slurm logs in with client_ed25519, allowed: " in error_of([greeting()], slurms(ALL, [switch]))
    switch = b"\xfecaching_sha2_password\0" + SALT
    sha2 = error_of([greeting(mysql_protocol.SHA2)], slurms(ALL, [switch]))
    assert "caching_sha2_password, which needs TLS: set database_server.ca" in sha2


@pytest.mark.parametrize("first", [b"SSH-2.0-OpenSSH", b"\x05\0\0\0\x09abcd", b"\x05\0\0\0\x0aabcd"])
def test_another_service(first: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(first)
    theirs.close()
    connection = mysql_protocol.Connection.__new__(mysql_protocol.Connection)
    connection.socket, connection.number = ours, 0
    with ours, pytest.raises(mysql_protocol.DatabaseError, match="it does not answer as MariaDB or MySQL does"):
        connection._log_in(DatabaseLogin("h", 1, "u", "p", ""))


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UnusableDatabaseError, match=r"no connection: .*refused. Correct database_server"):
        inspect(DatabaseLogin("127.0.0.1", port, "slurm", "p", ""), "n")


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
    login = DatabaseLogin("db.x.org", 3306, "slurm", "secret", "-----BEGIN CERTIFICATE-----")
    text = database_server.statements(login, "slurm_acct_db", "10.0.0.4")
    assert "IDENTIFIED BY 'PASSWORD' REQUIRE SSL;" in text
    assert "secret " not in text
    assert "secret" not in repr(login)
