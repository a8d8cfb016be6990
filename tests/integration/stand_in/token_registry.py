# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for a vendor's registry, which has no images: it gives tokens for a user and a password.

usage: token_registry.py PORT ACCOUNT REQUESTS

ACCOUNT: file with USER:PASSWORD, read at each request. REQUESTS: file that gets a line for each request of a token,
accepted or refused.
"""

from __future__ import annotations

import base64
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT, ACCOUNT, REQUESTS = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
TOKEN = "token"


class Registry(BaseHTTPRequestHandler):
    """The registry, and at /token its place for tokens."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        if self.path.startswith("/token?"):
            account = base64.b64encode(ACCOUNT.read_text().strip().encode()).decode()
            accepted = given == f"Basic {account}"
            with REQUESTS.open("a") as requests:
                print("accepted" if accepted else "refused", file=requests)
            self.answer(200 if accepted else 401, {"token": TOKEN} if accepted else {})
        elif given == f"Bearer {TOKEN}":
            self.answer(200 if self.path == "/v2/" else 404, {})
        else:
            self.answer(401, {}, f'Bearer realm="http://{self.headers["Host"]}/token",service="stand-in"')

    def answer(self, status: int, content: dict[str, str], challenge: str = "") -> None:
        """Send an answer."""
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Length", str(len(body)))
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


ThreadingHTTPServer(("0.0.0.0", PORT), Registry).serve_forever()
