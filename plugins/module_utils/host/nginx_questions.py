# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers to nginx, which asks on a unix socket whether a request may go on (ngx_http_auth_request_module).

204: it may, with the headers of the answer. 401: it has no valid login. 403: its user may not do this. The header
Reason says why.
"""

from __future__ import annotations

import os
import socketserver
import time
from collections.abc import Callable, Mapping
from email.message import Message
from http.server import BaseHTTPRequestHandler
from typing import Any

from ..language.errors import CollectionError

SHADOW = "/etc/shadow"
DAY = 86400


class RefusedUserError(CollectionError):
    """The user of a request may not do this. The message says why, without a secret."""

    status = 403


class InvalidLoginError(RefusedUserError):
    """The request has no valid login."""

    status = 401


def has_expired(name: str) -> bool:
    """Whether an account has expired (shadow(5)), as that of a suspended user. One of a directory is not there."""
    with open(SHADOW, encoding="utf-8", errors="replace") as file:
        fields = next((line.split(":") for line in file if line.startswith(f"{name}:")), [])
    return len(fields) > 7 and bool(fields[7]) and time.time() // DAY >= int(fields[7])


class NginxHandler(BaseHTTPRequestHandler):
    """Answers one question."""

    timeout = 30
    server: NginxServer

    def do_GET(self) -> None:
        """Answer."""
        try:
            status, headers = 204, self.server.check(self.headers)
        except RefusedUserError as error:
            status, headers = error.status, {"Reason": str(error)}
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: a line of a request could have a token, and nginx has a log of the requests."""


class NginxServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A program that answers, on a unix socket."""

    daemon_threads = True
    request_queue_size = 1024
    """Connections that wait. nginx has one for each request, and answers 500 if there are more of them."""

    def __init__(self, socket: str, check: Callable[[Message], Mapping[str, str]]) -> None:
        """check: the headers of the answer to a request with these headers.

        It raises RefusedUserError, or any other error if it cannot ask: nginx gets no answer then, and refuses.
        """
        self.check = check
        if os.path.lexists(socket):
            os.unlink(socket)
        super().__init__(socket, NginxHandler)
