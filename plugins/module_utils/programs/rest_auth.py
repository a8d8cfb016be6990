# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Tell nginx whose token a request to slurmrestd has, and whether this user may come in (docs/design/rest.md).

usage: slurm-rest-auth SOCKET SLURM_USER <KEY

The headers of the answer have the token and its user, which nginx sends to slurmrestd.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import pwd
import re
import sys
import time
from collections.abc import Mapping
from email.message import Message
from functools import partial
from typing import Any

from ..host.nginx_questions import InvalidLoginError, NginxServer, RefusedUserError, has_expired

LONGEST_TOKEN = 4096
"""Characters. A token of Slurm has about 130."""

SHORTEST_KEY = 32
"""Bytes, those of a hash of HS256 (RFC 7518, 3.2)."""

TOKEN, NAME = "X-SLURM-USER-TOKEN", "X-SLURM-USER-NAME"
"""Headers of slurmrestd (`src/slurmrestd/plugins/auth/jwt/jwt.c`)."""

_PART = re.compile(r"[A-Za-z0-9_-]+")


def _decoded(part: str) -> bytes:
    """A part of a token (base64url without padding)."""
    if not _PART.fullmatch(part):
        raise InvalidLoginError("this is no token")
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError as error:
        raise InvalidLoginError("this is no token") from error


def _mapping(part: str) -> dict[str, Any]:
    """A part of a token that is JSON."""
    try:
        found = json.loads(_decoded(part))
    except (ValueError, RecursionError) as error:
        raise InvalidLoginError("this is no token") from error
    if not isinstance(found, dict):
        raise InvalidLoginError("this is no token")
    return found


def user_of(token: str, key: bytes, now: float) -> str:
    """The user whom a token names: its claim `sun`, or else `username`, as for Slurm.

    Raises:
        InvalidLoginError: it was not signed with the key (HS256), has expired, or names no user.
    """
    if len(token) > LONGEST_TOKEN:
        raise InvalidLoginError(f"the token has more than {LONGEST_TOKEN} characters")
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidLoginError("this is no token")
    header, claims, signature = parts
    if _mapping(header).get("alg") != "HS256":
        raise InvalidLoginError("the token is not signed with HS256")
    expected = hmac.new(key, f"{header}.{claims}".encode(), hashlib.sha256).digest()
    if not hmac.compare_digest(expected, _decoded(signature)):
        raise InvalidLoginError("the token was not made by this cluster, or its key was replaced")
    found = _mapping(claims)
    end = found.get("exp")
    if not isinstance(end, int) or end <= now:
        raise InvalidLoginError("the token has expired")
    name = found.get("sun", found.get("username"))
    if not isinstance(name, str) or not name:
        raise InvalidLoginError("the token names no user")
    return name


def require_user(name: str, slurm_user: str) -> None:
    """Raise RefusedUserError unless a user may come in.

    Args:
        name: the user of the token. It is the name of an account: Slurm would take a number as well.
        slurm_user: SlurmUser, whose tokens may act as anybody, as those of root.
    """
    try:
        account = pwd.getpwnam(name)
    except (KeyError, ValueError) as error:
        raise RefusedUserError("the user of the token has no account here") from error
    if account.pw_name != name:
        raise RefusedUserError("the user of the token has another name here")
    if account.pw_uid in (0, pwd.getpwnam(slurm_user).pw_uid):
        raise RefusedUserError("tokens of root and SlurmUser are refused, since they may act as anybody")
    if has_expired(name):
        raise RefusedUserError("the account of the token's user is suspended or has expired")


def token_in(headers: Message) -> str:
    """The token of a request; slurmrestd knows two headers for it.

    Raises:
        InvalidLoginError: it has none, or several.
    """
    given = headers.get_all(TOKEN, [])
    bearers = headers.get_all("Authorization", [])
    if len(given) + len(bearers) > 1:
        raise InvalidLoginError("the request has several tokens")
    if given:
        return str(given[0])
    if not bearers:
        raise InvalidLoginError(f"the request has no token, in the header {TOKEN} or as Authorization: Bearer TOKEN")
    scheme, _blank, token = str(bearers[0]).partition(" ")
    if scheme.lower() != "bearer":
        raise InvalidLoginError("the header Authorization is not Bearer TOKEN")
    return token


def checked(headers: Message, key: bytes, slurm_user: str) -> Mapping[str, str]:
    """The token of a request, and its user, who may come in, as headers for slurmrestd.

    Raises:
        InvalidLoginError: there is no valid token.
        RefusedUserError: its user is refused.
        OSError: the accounts cannot be read.
    """
    token = token_in(headers)
    name = user_of(token, key, time.time())
    if {*headers.get_all(NAME, [])} - {name}:
        raise InvalidLoginError(f"the header {NAME} names another user than the token")
    require_user(name, slurm_user)
    return {TOKEN: token, NAME: name}


def check(headers: Message, key: bytes, slurm_user: str) -> Mapping[str, str]:
    """The same; the journal has what is refused."""
    try:
        return checked(headers, key, slurm_user)
    except RefusedUserError as error:
        print(f"refused: {error}", file=sys.stderr, flush=True)
        raise


def main() -> int:
    """Answer until the end."""
    socket, slurm_user = sys.argv[1:]
    key = sys.stdin.buffer.read()
    if len(key) < SHORTEST_KEY:
        sys.exit(f"slurm-rest-auth: the key has {len(key)} bytes, allowed: {SHORTEST_KEY} or more")
    with NginxServer(socket, partial(check, key=key, slurm_user=slurm_user)) as server:
        server.serve_forever()
    return 0
