# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a report comes from a node to the controllers: sealed by munge, over a connection of its own.

The node connects, sends a line with the credential, and reads a line: ACCEPTED, with KEEPS if repair has the node,
TREAT with what the node is to do and a key, and what a person has closed on the controllers, a time and names of
findings; or why the report was refused.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..client.commands import run
from ..language.errors import CollectionError
from ..language.formatting import visible

ACCEPTED = "accepted"
KEEPS = "keeps"
TREAT = "treat"
PROGRAM = "/usr/local/sbin/slurm-treatment"
"""What does on a node that TREAT names."""
MEASURED = "measured"
"""The second word of a result: the node, this, its key and the job are in the first line."""
LARGEST = 1 << 21
"""Bytes of a line. munge takes up to 1 MiB, which base64 makes a third longer."""
SECONDS = 5.0
"""Time limit of a connection and of each part of its conversation."""


class ReportError(CollectionError):
    """A report that did not come through, in one line."""


class Opened(NamedTuple):
    """What was in a credential."""

    uid: int
    """The user who has sealed it."""
    text: str


def seal(text: str, reader: str) -> str:
    """A credential for a text, which only this user can open. Raises ReportError."""
    answer = run(["munge", "--zip=zlib", f"--restrict-uid={reader}"], stdin=text, seconds=SECONDS)
    if answer.status:
        raise ReportError(f"munge: {answer.message[:200]}")
    return answer.output.strip()


def unseal(credential: str) -> Opened:
    """The content of a credential. Raises ReportError if it is none, was opened before, is old or for somebody else."""
    answer = run(["unmunge"], stdin=credential, seconds=SECONDS)
    head, _blank, text = answer.output.partition("\n\n")
    if answer.status:
        status = re.search(r"^STATUS:\s+(.*)$", head, re.MULTILINE)
        raise ReportError(f"unmunge: {visible(status[1] if status else answer.message)[:200]}")
    uid = re.search(r"^UID:\s+.*\((\d+)\)$", head, re.MULTILINE)
    if not uid:
        raise ReportError("unmunge: no UID in its answer")
    return Opened(int(uid[1]), text)


class ClosedFindings(NamedTuple):
    """What a person has closed on the controllers."""

    when: float
    """In seconds since 1970. The clocks agree, since munge takes no credential otherwise."""
    names: Sequence[str]


class NodeOrder(NamedTuple):
    """What a node is to do by itself."""

    what: str
    """One of `repair/cases.BY_NODE`."""
    key: str
    """Tells treatments apart: each is carried out once."""


class ReportReply(NamedTuple):
    """What the controllers say about a report that they have accepted."""

    keeps: bool = False
    """Whether repair returns the node to service, and not its health check."""
    closed: ClosedFindings | None = None
    order: NodeOrder | None = None


class Sent(NamedTuple):
    """What has come of a report."""

    errors: Sequence[str]
    """Why no controller has accepted it; empty if one has."""
    reply: ReportReply = ReportReply()


def accepted(reply: ReportReply) -> str:
    """The line for a node whose report is accepted."""
    closed = (f"{reply.closed.when:.0f}", *reply.closed.names) if reply.closed else ()
    order = (TREAT, *reply.order) if reply.order else ()
    return " ".join((ACCEPTED, *([KEEPS] if reply.keeps else ()), *order, *closed))


def _reply(words: Sequence[str]) -> ReportReply:
    """What is behind ACCEPTED."""
    keeps = [*words[:1]] == [KEEPS]
    left = words[1:] if keeps else words
    is_order = len(left) > 2 and left[0] == TREAT
    order = NodeOrder(left[1], left[2]) if is_order else None
    return ReportReply(keeps, _closed(left[3:] if is_order else left), order)


def _closed(words: Sequence[str]) -> ClosedFindings | None:
    """A time and the findings that were closed then; None without any, or if it cannot be understood."""
    if len(words) < 2 or not words[0].isdecimal():
        return None
    return ClosedFindings(float(words[0]), words[1:])


def send(credential: str, controllers: Sequence[str], port: int) -> Sent:
    """Give a credential to the first controller that accepts it."""
    errors = []
    for controller in controllers:
        try:
            said = _talk(credential, controller, port)
        except OSError as error:
            errors.append(f"{controller}:{port}: {error.strerror or error}")
            continue
        first, *words = said.split() or [""]
        if first == ACCEPTED:
            return Sent([], _reply(words))
        errors.append(f"{controller}:{port}: {visible(said)[:200] or 'no answer'}")
    return Sent(errors)


def _talk(credential: str, controller: str, port: int) -> str:
    """The answer of a controller. Raises OSError."""
    with socket.create_connection((controller, port), timeout=SECONDS) as connection:
        connection.sendall(f"{credential}\n".encode("ascii"))
        return _line(connection, 1000)


def receive(connection: socket.socket) -> str:
    """The credential that a node sends. Raises ReportError or OSError."""
    connection.settimeout(SECONDS)
    line = _line(connection, LARGEST)
    if not line:
        raise ReportError("no credential, or one that is too long")
    return line


def _line(connection: socket.socket, most: int) -> str:
    """A line, without its end; empty if it does not end within so many bytes. Raises OSError."""
    found = b""
    while b"\n" not in found:
        part = connection.recv(65536)
        found += part
        if not part or len(found) > most:
            return ""
    return found.partition(b"\n")[0].decode("ascii", "replace")


def is_from(address: str, names: Iterable[str]) -> bool:
    """Whether an address is one of these hosts."""
    plain = address.removeprefix("::ffff:")
    for name in names:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except OSError:
            continue
        if plain in {str(entry[4][0]).partition("%")[0] for entry in found}:
            return True
    return False
