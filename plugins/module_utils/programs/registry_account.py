# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Asks a registry whether it accepts a user and a password, in the way of docker-registry: by a token.

docker-registry 2 gives user and password to the place that the registry names for tokens, and never to the registry
itself (registry/proxy/proxyauth.go of distribution 2.8.3; 3.0 does).

The argument is the address of the registry; standard input has {"username": ..., "password": ...}. The reason of a
failure is one line on standard error, without the password.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Mapping
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, build_opener

from ..language.errors import CollectionError

SECONDS = 30


class AccountError(CollectionError):
    """Why the account is not accepted, in one line."""


def account(text: str) -> str:
    """The header with user and password."""
    given = json.loads(text)
    pair = f"{given['username']}:{given['password']}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def ask(url: str, headers: Mapping[str, str]) -> tuple[int, str]:
    """The status of an answer, and its challenge. Raises AccountError without an answer."""
    try:
        with build_opener().open(Request(url, headers=dict(headers)), timeout=SECONDS) as answer:
            return answer.status, ""
    except HTTPError as error:
        return error.code, error.headers.get("WWW-Authenticate", "")
    except (URLError, OSError, ValueError) as error:
        raise AccountError(f"{url} does not answer: {getattr(error, 'reason', error)}") from error


def prove(registry: str, text: str) -> None:
    """Raises AccountError if the registry does not accept the account."""
    url, headers = f"{registry.rstrip('/')}/v2/", {"Authorization": account(text)}
    status, challenge = ask(url, {})
    if status == 200:
        raise AccountError(f"{url} asks for no password, so that nothing can be proved")
    kind, _blank, rest = challenge.partition(" ")
    if kind.lower() != "bearer":
        raise AccountError(
            f"{url} ended with {status}, found {kind or 'no challenge'}, allowed: Bearer. docker-registry 2 sends no "
            "password to a registry that gives no tokens"
        )
    asked = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    if "realm" not in asked:
        raise AccountError(f"{url} names no place for tokens")
    query = {key: value for key, value in asked.items() if key in ("service", "scope")}
    url = f"{asked['realm']}?{urlencode(query)}"
    status, _challenge = ask(url, headers)
    if status != 200:
        raise AccountError(f"{url.partition('?')[0]} does not accept the user and the password ({status})")


def main() -> int:
    """Returns the exit status."""
    try:
        prove(sys.argv[1], sys.stdin.read())
    except AccountError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
