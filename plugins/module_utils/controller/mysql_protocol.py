# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of MariaDB and MySQL: a bare host has no other one when the run checks the server, before any change.

The protocol is in MySQL's "Client/Server Protocol" and MariaDB's "Clients & Utilities: Client/Server Protocol".
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..language.errors import CollectionError

SECONDS = 15
"""How long an answer of the server may take."""

LONGEST = 2**20
"""Bytes of a packet; the answers of our queries have less."""

BASE, TLS = 0x1 | 0x200 | 0x8000 | 0x80000, 0x800
"""Capabilities: long passwords, protocol 4.1, its authentication, plugins; TLS."""

UTF8MB4 = 45

NATIVE, SHA2 = "mysql_native_password", "caching_sha2_password"

VERSION, OK, LAST, ERROR, NULL = 10, 0x00, 0xFE, 0xFF, 0xFB
"""The first byte of a packet: a greeting, and answers; of a value, NULL."""

NO_SERVER = "it does not answer as MariaDB or MySQL does"

FULL = b"\x01\x04"
"""caching_sha2_password: the server wants the password itself."""


class DatabaseError(CollectionError):
    """Why the server does not answer."""


class DatabaseRefusalError(DatabaseError):
    """The message of the server that refuses a login or a query."""


@dataclass(frozen=True)
class DatabaseLogin:
    """A server, and a user of it."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    ca: str
    """The certificates that may have signed that of the server. Without them, the connection has no TLS."""


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other))


def _native(password: bytes, salt: bytes) -> bytes:
    once = hashlib.sha1(password, usedforsecurity=False).digest()
    twice = hashlib.sha1(once, usedforsecurity=False).digest()
    return _xor(once, hashlib.sha1(salt + twice, usedforsecurity=False).digest())


def _sha2(password: bytes, salt: bytes) -> bytes:
    once = hashlib.sha256(password).digest()
    return _xor(once, hashlib.sha256(hashlib.sha256(once).digest() + salt).digest())


PROOFS: Mapping[str, Callable[[bytes, bytes], bytes]] = {NATIVE: _native, SHA2: _sha2}
"""How a user proves to know the password, by the plugin of the user."""


def _until_nul(data: bytes) -> tuple[bytes, bytes]:
    """A text that ends with NUL, and the rest."""
    one, _nul, rest = data.partition(b"\0")
    return one, rest


def _number(data: bytes) -> tuple[int, bytes]:
    """A length-encoded number, and the rest."""
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(data[0], 0)
    return (int.from_bytes(data[1 : 1 + size], "little"), data[1 + size :]) if size else (data[0], data[1:])


def _values(row: bytes) -> list[str]:
    """The values of a row; NULL is empty."""
    found = []
    while row:
        if row[0] == NULL:
            size, row = 0, row[1:]
        else:
            size, row = _number(row)
        found.append(row[:size].decode(errors="replace"))
        row = row[size:]
    return found


class Connection:
    """A connection of a user. Raises DatabaseError."""

    def __init__(self, login: DatabaseLogin) -> None:
        self.number = 0
        try:
            self.socket: socket.socket = socket.create_connection((login.host, login.port), SECONDS)
        except OSError as error:
            raise DatabaseError(f"no connection: {error}") from None
        try:
            self._log_in(login)
        except BaseException:
            self.socket.close()
            raise

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    @property
    def address(self) -> str:
        """The address of this host, as the server sees it without a translation of addresses."""
        return str(self.socket.getsockname()[0])

    def query(self, statement: str) -> list[list[str]]:
        """The rows of a query; NULL is empty."""
        self.number = 0
        self._write(b"\x03" + statement.encode())
        self._read()  # the number of the columns
        while self._read()[0] != LAST:
            pass  # the definitions of the columns
        rows = []
        while not ((packet := self._read())[0] == LAST and len(packet) < 9):
            rows.append(_values(packet))
        return rows

    def _log_in(self, login: DatabaseLogin) -> None:
        greeting = self._read()
        _version, rest = _until_nul(greeting[1:])
        if greeting[0] != VERSION or len(rest) < 44:
            raise DatabaseError(NO_SERVER)
        salt, offered, size = rest[4:12], int.from_bytes(rest[13:15] + rest[18:20], "little"), rest[20]
        end = 31 + max(13, size - 8)
        salt, plugin = salt + rest[31 : end - 1], _until_nul(rest[end:])[0].decode()
        flags = BASE | (TLS if login.ca else 0)
        head = flags.to_bytes(4, "little") + LONGEST.to_bytes(4, "little") + bytes([UTF8MB4]) + bytes(23)
        if login.ca:
            if not offered & TLS:
                raise DatabaseError("the server does not offer TLS, which database_server.ca asks for")
            self._write(head)
            self._encrypt(login)
        plugin = plugin if plugin in PROOFS and login.ca else NATIVE
        proof = self._proof(plugin, login, salt)
        self._write(head + login.user.encode() + b"\0" + bytes([len(proof)]) + proof + plugin.encode() + b"\0")
        while (answer := self._read())[0] != OK:
            if answer[0] == LAST:
                name, salt = _until_nul(answer[1:])
                self._write(self._proof(name.decode(), login, salt[:20]))
            elif answer == FULL and login.ca:
                self._write(login.password.encode() + b"\0")
            elif answer == FULL:  # who does not have the password would get it
                raise DatabaseError(NO_SERVER)

    def _proof(self, plugin: str, login: DatabaseLogin, salt: bytes) -> bytes:
        if plugin not in PROOFS:
            raise DatabaseError(f"user {login.user} logs in with {plugin}, allowed: {' or '.join(PROOFS)}")
        if plugin == SHA2 and not login.ca:
            raise DatabaseError(f"user {login.user} logs in with {SHA2}, which needs TLS: set database_server.ca")
        return PROOFS[plugin](login.password.encode(), salt)

    def _encrypt(self, login: DatabaseLogin) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=login.ca)
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname=login.host)
        except OSError as error:
            raise DatabaseError(f"TLS: {getattr(error, 'verify_message', '') or error}") from None

    def _write(self, packet: bytes) -> None:
        try:
            self.socket.sendall(len(packet).to_bytes(3, "little") + bytes([self.number % 256]) + packet)
        except OSError as error:
            raise DatabaseError(f"the connection has ended: {error}") from None
        self.number += 1

    def _read(self) -> bytes:
        """The next packet, which is never empty."""
        head = self._bytes(4)
        size, self.number = int.from_bytes(head[:3], "little"), head[3] + 1
        if not 0 < size <= LONGEST:
            raise DatabaseError(NO_SERVER)
        packet = self._bytes(size)
        if packet[0] == ERROR:
            text = packet[3:].decode(errors="replace")
            raise DatabaseRefusalError(text[6:] if text.startswith("#") else text)
        return packet

    def _bytes(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            try:
                part = self.socket.recv(size - len(found))
            except OSError as error:
                raise DatabaseError(f"the connection has ended: {error}") from None
            if not part:
                raise DatabaseError("the server has closed the connection")
            found += part
        return found
