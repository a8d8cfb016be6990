# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a registry accepts a user and a password: a stand-in for a registry, with real HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import ModuleType

import pytest
from programs import load

pytestmark = pytest.mark.once

RIGHT = f"Basic {base64.b64encode(b'cache:s3cret').decode()}"


class Registry(BaseHTTPRequestHandler):
    """At /bearer it names a place for tokens, at /basic it asks for a password itself, and /open asks for nothing."""

    def do_GET(self) -> None:
        known = self.headers.get("Authorization") == RIGHT
        challenges = {
            "/basic/v2/": 'Basic realm="x"',
            "/bearer/v2/": f'Bearer realm="http://{self.headers["Host"]}/token",service="reg"',
        }
        right = self.path == "/open/v2/" or (known and self.path == "/token?service=reg")
        self.send_response(200 if right else 401)
        if self.path in challenges:
            self.send_header("WWW-Authenticate", challenges[self.path])
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def account() -> ModuleType:
    module: ModuleType = load("registry_account")
    return module


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def given(password: str) -> str:
    return json.dumps({"username": "cache", "password": password})


def test_an_account_is_accepted_or_refused(account: ModuleType, url: str) -> None:
    account.prove(f"{url}/bearer", given("s3cret"))
    with pytest.raises(account.AccountError, match=r"does not accept the user and the password .401.") as found:
        account.prove(f"{url}/bearer", given("wr0ng"))
    assert "wr0ng" not in str(found.value)


def test_a_registry_that_proves_nothing(account: ModuleType, url: str) -> None:
    with pytest.raises(account.AccountError, match="asks for no password, so that nothing can be proved"):
        account.prove(f"{url}/open", given("s3cret"))
    for path, kind in (("basic", "Basic"), ("other", "no challenge")):
        with pytest.raises(account.AccountError, match=f"ended with 401, found {kind}, allowed: Bearer"):
            account.prove(f"{url}/{path}", given("s3cret"))
    with pytest.raises(account.AccountError, match="does not answer"):
        account.prove("http://127.0.0.1:1", given("s3cret"))
