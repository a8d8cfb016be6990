# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Tell nginx whose token a request to slurmrestd has, and whether this user may come in (docs/design/rest.md).

usage: slurm-rest-auth SOCKET SLURM_USER <KEY

The headers of the answer have the token and its user, which nginx sends to slurmrestd.
"""

from __future__ import annotations

import pwd
import re
import sys
import time
from collections.abc import Mapping
from email.message import Message
from functools import partial

try:
    import jwt
except ImportError:  # The host of the key `rest` has it.
    jwt = None  # type: ignore[assignment]

from ..host.nginx_questions import InvalidLoginError, NginxServer, RefusedUserError, has_expired

LONGEST_TOKEN = 4096
"""Characters. A token of Slurm has about 130."""

SHORTEST_KEY = 32
"""Bytes, those of a hash of HS256 (RFC 7518, 3.2)."""

TOKEN, NAME = "X-SLURM-USER-TOKEN", "X-SLURM-USER-NAME"
"""Headers of slurmrestd (`src/slurmrestd/plugins/auth/jwt/jwt.c`)."""

REASONS = {
    "InvalidAlgorithmError": "the token is not signed with HS256",
    "InvalidSignatureError": "the token was not made by this cluster, or its key was replaced",
    "ExpiredSignatureError": "the token has expired",
    "MissingRequiredClaimError": "the token has expired",
    "ImmatureSignatureError": "the token is not valid yet",
}
"""By exceptions of PyJWT. All others say that a text is no token."""

_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
"""Three parts in base64url. PyJWT skips other characters of the signature."""


def user_of(token: str, key: bytes) -> str:
    """The user whom a token names: its claim `sun`, or else `username`, as for Slurm.

    Raises:
        InvalidLoginError: it was not signed with the key (HS256), has expired, or names no user.
    """
    if len(token) > LONGEST_TOKEN:
        raise InvalidLoginError(f"the token has more than {LONGEST_TOKEN} characters")
    if not _FORM.fullmatch(token):
        raise InvalidLoginError("this is no token")
    try:
        # What Slurm does not look at does not count: the clock of the controller that made a token may be ahead.
        claims = jwt.decode(
            token, key, algorithms=["HS256"], options={"require": ["exp"], "verify_aud": False, "verify_iat": False}
        )
    except (jwt.PyJWTError, ArithmeticError, RecursionError, TypeError, ValueError) as error:
        raise InvalidLoginError(REASONS.get(type(error).__name__, "this is no token")) from error
    # PyJWT takes texts, and 2.3 takes a token for a second more.
    end = claims["exp"]
    if not isinstance(end, int) or end <= time.time():
        raise InvalidLoginError(REASONS["ExpiredSignatureError"])
    name = claims.get("sun", claims.get("username"))
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
    name = user_of(token, key)
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
