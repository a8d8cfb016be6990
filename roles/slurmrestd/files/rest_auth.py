# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell nginx whose token a request to slurmrestd has, and whether this user may come in (docs/design/rest.md).

usage: slurm-rest-auth SOCKET SLURM_USER <KEY

nginx asks by a subrequest with the headers of its client (ngx_http_auth_request_module). 204: the headers of the
answer have the token and its user, which nginx sends to slurmrestd. 401: there is no valid token. 403: its user is
refused. The header Reason says why.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import pwd
import re
import socketserver
import sys
import time
from email.message import Message
from http.server import BaseHTTPRequestHandler
from typing import Any

LONGEST_TOKEN = 4096
"""Characters. A token of Slurm has about 130."""

SHORTEST_KEY = 32
"""Bytes, those of a hash of HS256 (RFC 7518, 3.2)."""

SHADOW = "/etc/shadow"
DAY = 86400

TOKEN, NAME = "X-SLURM-USER-TOKEN", "X-SLURM-USER-NAME"
"""Headers of slurmrestd (`src/slurmrestd/plugins/auth/jwt/jwt.c`)."""

_PART = re.compile(r"[A-Za-z0-9_-]+")


class InvalidTokenError(Exception):
    """The request has no valid token; the message says why, without the token."""


class RefusedUserError(Exception):
    """The token is valid, and its user may not come in; the message says why."""


def _decoded(part: str) -> bytes:
    """A part of a token (base64url without padding)."""
    if not _PART.fullmatch(part):
        raise InvalidTokenError("this is no token")
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError as error:
        raise InvalidTokenError("this is no token") from error


def _mapping(part: str) -> dict[str, Any]:
    """A part of a token that is JSON."""
    try:
        found = json.loads(_decoded(part))
    except (ValueError, RecursionError) as error:
        raise InvalidTokenError("this is no token") from error
    if not isinstance(found, dict):
        raise InvalidTokenError("this is no token")
    return found


def user_of(token: str, key: bytes, now: float) -> str:
    """The user whom a token names: its claim `sun`, or else `username`, as for Slurm.

    Raises:
        InvalidTokenError: it was not signed with the key (HS256), has expired, or names no user.
    """
    if len(token) > LONGEST_TOKEN:
        raise InvalidTokenError(f"the token has more than {LONGEST_TOKEN} characters")
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidTokenError("this is no token")
    header, claims, signature = parts
    if _mapping(header).get("alg") != "HS256":
        raise InvalidTokenError("the token is not signed with HS256")
    expected = hmac.new(key, f"{header}.{claims}".encode(), hashlib.sha256).digest()
    if not hmac.compare_digest(expected, _decoded(signature)):
        raise InvalidTokenError("the token was not made by this cluster, or its key was replaced")
    found = _mapping(claims)
    end = found.get("exp")
    if not isinstance(end, int) or end <= now:
        raise InvalidTokenError("the token has expired")
    name = found.get("sun", found.get("username"))
    if not isinstance(name, str) or not name:
        raise InvalidTokenError("the token names no user")
    return name


def expiry(name: str, shadow: str) -> int | None:
    """The day, counted from 1970-01-01, from which on an account is expired (shadow(5)); None without one.

    Args:
        name: the account.
        shadow: the text of /etc/shadow. An account of a directory is not there.
    """
    for line in shadow.split("\n"):
        fields = line.split(":")
        if fields[0] == name and len(fields) > 7 and fields[7]:
            return int(fields[7])
    return None


def require_user(name: str, slurm_user: str, shadow: str, now: float) -> None:
    """Raise RefusedUserError unless a user may come in.

    Args:
        name: the user of the token. It is the name of an account: Slurm would take a number as well.
        slurm_user: SlurmUser, whose tokens may act as anybody, as those of root.
        shadow: the text of /etc/shadow.
        now: the time, in seconds.
    """
    try:
        account = pwd.getpwnam(name)
    except (KeyError, ValueError) as error:
        raise RefusedUserError("the user of the token has no account here") from error
    if account.pw_name != name:
        raise RefusedUserError("the user of the token has another name here")
    if account.pw_uid in (0, pwd.getpwnam(slurm_user).pw_uid):
        raise RefusedUserError("tokens of root and SlurmUser are refused, since they may act as anybody")
    end = expiry(name, shadow)
    if end is not None and now // DAY >= end:
        raise RefusedUserError("the account of the token's user is suspended or has expired")


def token_in(headers: Message) -> str:
    """The token of a request; slurmrestd knows two headers for it.

    Raises:
        InvalidTokenError: it has none, or several.
    """
    given = headers.get_all(TOKEN, [])
    bearers = headers.get_all("Authorization", [])
    if len(given) + len(bearers) > 1:
        raise InvalidTokenError("the request has several tokens")
    if given:
        return str(given[0])
    if not bearers:
        raise InvalidTokenError(f"the request has no token, in the header {TOKEN} or as Authorization: Bearer TOKEN")
    scheme, _blank, token = str(bearers[0]).partition(" ")
    if scheme.lower() != "bearer":
        raise InvalidTokenError("the header Authorization is not Bearer TOKEN")
    return token


class Handler(BaseHTTPRequestHandler):
    """Answers one question of nginx."""

    timeout = 10
    server: Server

    def do_GET(self) -> None:
        """Answer."""
        try:
            token, name = self.server.check(self.headers)
        except InvalidTokenError as error:
            self._refuse(401, str(error))
        except RefusedUserError as error:
            self._refuse(403, str(error))
        else:
            self._answer(204, {TOKEN: token, NAME: name})

    def _refuse(self, status: int, reason: str) -> None:
        print(f"refused: {reason}", file=sys.stderr, flush=True)
        self._answer(status, {"Reason": reason})

    def _answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: a line of a request could have a token."""


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """The program, on a unix socket."""

    daemon_threads = True
    request_queue_size = 1024
    """Connections that wait. nginx has one for each request, and answers 500 if there are more of them."""

    def __init__(self, socket: str, key: bytes, slurm_user: str) -> None:
        self.key, self.slurm_user = key, slurm_user
        super().__init__(socket, Handler)

    def check(self, headers: Message) -> tuple[str, str]:
        """The token of a request, and its user, who may come in.

        Raises:
            InvalidTokenError: there is no valid token.
            RefusedUserError: its user is refused.
            OSError: the accounts cannot be read. nginx gets no answer and refuses.
        """
        token, now = token_in(headers), time.time()
        name = user_of(token, self.key, now)
        if {*headers.get_all(NAME, [])} - {name}:
            raise InvalidTokenError(f"the header {NAME} names another user than the token")
        with open(SHADOW, encoding="utf-8", errors="replace") as file:
            require_user(name, self.slurm_user, file.read(), now)
        return token, name


def main(socket: str, slurm_user: str) -> None:
    """Answer until the end."""
    key = sys.stdin.buffer.read()
    if len(key) < SHORTEST_KEY:
        sys.exit(f"slurm-rest-auth: the key has {len(key)} bytes, allowed: {SHORTEST_KEY} or more")
    if os.path.lexists(socket):
        os.unlink(socket)
    with Server(socket, key, slurm_user) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
