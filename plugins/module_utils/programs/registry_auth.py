# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell nginx whether the user of a request may change the registry. Everybody may pull, and nginx does not ask then.

usage: slurm-registry-auth SOCKET REGISTRY [GROUP...]

A user logs in with a credential of munge for this registry as the password (`munge -s REGISTRY`). Munge decodes a
credential once, within five minutes, and clients send the password with each request: so a credential that was
decoded stays good for some hours, here alone. The groups are those of administrators.
"""

from __future__ import annotations

import base64
import grp
import hashlib
import os
import pwd
import re
import sys
import threading
import time
from collections.abc import Mapping
from email.message import Message
from functools import partial
from typing import NamedTuple

from ..client.commands import NO_ANSWER, NOT_STARTED, CommandError, run
from ..host.nginx_questions import InvalidLoginError, NginxServer, RefusedUserError, has_expired

HOURS = 12
"""How long a login is good: longer than the push of any image."""

MOST_LOGINS = 100
"""Of one user; the oldest ends with the next one."""

PING = ("GET", "HEAD")
"""nginx asks about these for the path /v2/ alone, by which a client tries its login."""

CHANGES = ("POST", "PUT", "PATCH", "DELETE")

GROUP, SITE = "group", "site"
"""First parts of names of images that are no user's, also if a user has this name."""

RULE = f"users change images below their own name, members of a group below {GROUP}/NAME, and administrators all"

_CREDENTIAL = re.compile(r"MUNGE:[A-Za-z0-9+/=]{16,4000}:")
_UID = re.compile(r"UID: +\S+ \(([0-9]+)\)")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(
    rf"/v2/({_PART}(?:/{_PART})*)/"
    r"(?:manifests/[A-Za-z0-9_.:+-]+|blobs/[a-z0-9.+_-]+:[0-9a-f]+|blobs/uploads/[A-Za-z0-9_.=-]*)(?:\?.*)?"
)
"""The paths of docker-registry that change something, without the forms that two programs may read in two ways."""


class Login(NamedTuple):
    """Who has shown a credential, and until when it is good."""

    uid: int
    end: float


def may_change(name: str, groups: set[str], administrators: set[str], repository: str) -> bool:
    """Whether a user may change the images of a repository.

    Args:
        name: the user.
        groups: the groups of the user.
        administrators: the groups of administrators.
        repository: the name of the images without host and tag.
    """
    if name == "root" or groups & administrators:
        return True
    parts = repository.split("/")
    if parts[0] == GROUP:
        return len(parts) > 2 and parts[1] in groups
    return len(parts) > 1 and parts[0] == name != SITE


def repository_of(method: str, uri: str) -> str:
    """The repository that a request changes.

    Raises:
        RefusedUserError: it is none of the requests that change one.
    """
    found = _PATH.fullmatch(uri)
    if method not in CHANGES or not found:
        raise RefusedUserError("this request is none that pushes or deletes an image")
    return found[1]


def password_in(headers: Message) -> tuple[str, str]:
    """The user and the credential that a request has.

    Raises:
        InvalidLoginError: it has none, or several.
    """
    given = headers.get_all("Authorization", [])
    scheme, _blank, encoded = str(given[0] if len(given) == 1 else "").partition(" ")
    if scheme.lower() != "basic":
        raise InvalidLoginError("pushing and deleting need a login")
    try:
        name, _colon, credential = base64.b64decode(encoded, validate=True).decode("ascii").partition(":")
    except ValueError as error:
        raise InvalidLoginError("this is no login") from error
    if not _CREDENTIAL.fullmatch(credential):
        raise InvalidLoginError("the password is no credential of munge")
    return name, credential


def decoded(credential: str, registry: str) -> int:
    """The uid of the user who has made a credential for this registry. Munge decodes it once.

    Raises:
        InvalidLoginError: munge refuses it, or it was made for something else.
        CommandError: munge cannot be asked.
    """
    answer = run(["unmunge", "--keys=STATUS,UID"], stdin=credential, seconds=10)
    if answer.status in (NO_ANSWER, NOT_STARTED):
        raise CommandError(f"unmunge: {answer.message}")
    metadata, _line, payload = answer.output.partition("\n\n")
    uid = _UID.search(metadata)
    if answer.status or not uid:
        why = re.sub(r"[^A-Za-z0-9 -]", "", answer.errors.rpartition("Error: ")[2].strip())
        raise InvalidLoginError(f"munge refuses the credential, log in again: {why}")
    if payload != registry:
        raise InvalidLoginError("the credential is not for this registry")
    return int(uid[1])


def groups_of(name: str, uid: int) -> set[str]:
    """The groups of a user, who has an account now that has not expired.

    Raises:
        InvalidLoginError: the account is another one.
        RefusedUserError: it has expired.
    """
    try:
        account = pwd.getpwnam(name)
    except (KeyError, ValueError) as error:
        raise InvalidLoginError("the user has no account on the host of the registry") from error
    # A directory may not look at the case of letters.
    if (account.pw_name, account.pw_uid) != (name, uid):
        raise InvalidLoginError("the credential is of another user than the name")
    if has_expired(name):
        raise RefusedUserError("the account is suspended or has expired")
    return {grp.getgrgid(gid).gr_name for gid in os.getgrouplist(name, account.pw_gid)}


class Logins:
    """The credentials that munge has decoded, as digests."""

    def __init__(self, registry: str) -> None:
        self.registry = registry
        self._key = os.urandom(32)
        self._found: dict[bytes, Login] = {}
        self._lock = threading.Lock()

    def uid(self, credential: str, now: float) -> int:
        """The uid of the user of a credential. A client may send a new one in several requests at once.

        Raises:
            InvalidLoginError: it is not valid, or is so no more.
        """
        digest = hashlib.blake2b(credential.encode(), key=self._key).digest()
        with self._lock:
            login = self._found.get(digest)
            if login is None or login.end <= now:
                login = self._new(digest, decoded(credential, self.registry), now)
        return login.uid

    def _new(self, digest: bytes, uid: int, now: float) -> Login:
        own = [key for key, login in self._found.items() if login.uid == uid]
        for key in own[: max(0, len(own) + 1 - MOST_LOGINS)]:
            del self._found[key]
        self._found[digest] = Login(uid, now + HOURS * 3600)
        return self._found[digest]


def check(headers: Message, logins: Logins, administrators: set[str]) -> Mapping[str, str]:
    """Whether the user of a request may make it. The answer has no headers.

    Raises:
        InvalidLoginError: there is no valid login.
        RefusedUserError: its user may not make it.
        OSError, CommandError: munge or the accounts cannot be asked.
    """
    name, credential = password_in(headers)
    groups = groups_of(name, logins.uid(credential, time.time()))
    method, uri = headers["X-Original-Method"], headers["X-Original-URI"]
    if method not in PING:
        repository = repository_of(method, uri)
        if not may_change(name, groups, administrators, repository):
            raise RefusedUserError(f"you may not change {repository}: {RULE}")
    return {}


def main() -> int:
    """Answer until the end."""
    socket, registry, *administrators = sys.argv[1:]
    with NginxServer(socket, partial(check, logins=Logins(registry), administrators={*administrators})) as server:
        server.serve_forever()
    return 0
