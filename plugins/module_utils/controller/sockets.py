# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections to ports, and the processes of this host that listen on them.

The processes are read from /proc (proc(5), `/proc/net/tcp` and `/proc/PID/fd`).
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import sys
from collections.abc import Iterator
from typing import NamedTuple

PROC = "/proc"
LISTENS = "0A"
"""The state of a socket that listens (`TCP_LISTEN` in Linux, include/net/tcp_states.h)."""


def connection_error(host: str, port: int | str, seconds: float) -> str:
    """The reason why a port of a host takes no connection within some seconds; empty if it does."""
    try:
        with socket.create_connection((host, int(port)), timeout=seconds):
            return ""
    except (OSError, ValueError, OverflowError) as error:
        return str(getattr(error, "strerror", "") or error or type(error).__name__)


def is_served(host: str, port: int | str, seconds: float) -> bool:
    """Whether a process takes and ends connections to a port: the kernel of a host that hangs takes them as well."""
    try:
        with socket.create_connection((host, int(port)), timeout=seconds) as connection:
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
    except ConnectionResetError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True


class Socket(NamedTuple):
    """A socket that listens."""

    address: str
    """Where it can be reached from this host: the loopback address if it listens on all addresses."""
    port: int
    inode: str


def listening(table: str) -> Iterator[Socket]:
    """The sockets that listen, from the text of /proc/net/tcp or /proc/net/tcp6."""
    for line in table.split("\n")[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == LISTENS:
            address, _colon, port = fields[1].partition(":")
            yield Socket(_reachable(address), int(port, 16), fields[9])


def _reachable(digits: str) -> str:
    """An address of the table, which has words of 4 bytes in the byte order of the host."""
    words = (int(word, 16).to_bytes(4, sys.byteorder) for word in re.findall("." * 8, digits))
    address = ipaddress.ip_address(b"".join(words))
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address)


def sockets(port: int) -> list[Socket]:
    """The sockets of this host that listen on a port."""
    tables = (_text(f"{PROC}/net/{name}") for name in ("tcp", "tcp6"))
    return [found for table in tables for found in listening(table) if found.port == port]


def address_of(process: int, port: int) -> str:
    """The address on which a process listens on a port; empty if it does not."""
    inodes = _inodes(process)
    return next((found.address for found in sockets(port) if found.inode in inodes), "")


def listener(port: int) -> tuple[int, str]:
    """Number and name of the process that listens on a port; 0 if there is none that can be seen."""
    wanted = {found.inode for found in sockets(port)}
    for name in os.listdir(PROC) if wanted else []:
        if name.isdecimal() and wanted & _inodes(int(name)):
            return int(name), _text(f"{PROC}/{name}/comm").strip()
    return 0, ""


def _inodes(process: int) -> set[str]:
    """The inodes of the sockets of a process; none if it has ended."""
    directory, found = f"{PROC}/{process}/fd", set()
    try:
        for name in os.listdir(directory):
            if match := re.fullmatch(r"socket:\[(\d+)\]", _link(f"{directory}/{name}")):
                found.add(match[1])
    except OSError:
        pass  # the process has ended
    return found


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # it was closed meanwhile
        return ""


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # a kernel without IPv6, or a process that has ended
        return ""
