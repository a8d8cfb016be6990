# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of people on a host: its account files, their keys, sshd's setting, and the note of the last run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.people.accounts import FILES, Noted, fingerprint
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.plan import PEOPLE, PeoplePlan, Person

NOTE = "/var/lib/gpucluster-slurm/people"

KEYS = "/etc/ssh/people.keys.d"
"""Has the keys of each user, in a file with the user's name. Only root can write there."""

SSHD = "/etc/ssh/sshd_config.d/gpucluster-people.conf"

SSHD_TEXT = f"""\
# Managed by gpucluster.slurm: changes here are overwritten.
# The keys of these users are in the plan of people, and nowhere else.
Match Group {PEOPLE}
    AuthorizedKeysFile {KEYS}/%u
"""


def key_path(name: str) -> str:
    """The file with the keys of a user."""
    return f"{KEYS}/{name}"


def key_text(user: Person) -> str | None:
    """The text of this file; None where there must be none."""
    if not user.usable or not user.keys:
        return None
    return "".join(f"{line}\n" for line in ("# Managed by gpucluster.slurm: changes here are overwritten.", *user.keys))


def read(path: str) -> str | None:
    """The text of a file, byte for byte; None where there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None


def read_texts(root: str = "") -> dict[str, str]:
    """The account files of a host. Raises OSError if one of them is missing; gshadow may be."""
    texts = {}
    for name in FILES:
        text = read(f"{root}/etc/{name}")
        if text is None and name != "gshadow":
            raise FileNotFoundError(f"{root}/etc/{name} is missing")
        if text is not None:
            texts[name] = text
    return texts


def read_note(root: str = "") -> Noted:
    """The note of the last run; an empty one if there is none, or one that no run has written."""
    try:
        return Noted(**json.loads(read(f"{root}{NOTE}") or "{}"))
    except (ValueError, TypeError):
        return Noted()


def note(plan: PeoplePlan, checksum: str, before: Noted, root: str = "") -> Noted:
    """The note about a host as it is now. checksum: that of the plan's text."""
    texts = read_texts(root)
    lines = {line.partition(":")[0] for line in texts["passwd"].split("\n")}
    named = {user.name for user in plan.users}
    new = Noted(
        plan=checksum,
        users={user.name: user.uid for user in plan.accounts.values()},
        groups=plan.groups,
        absent=sorted(plan.absent),
        left={name: uid for name, uid in before.known.items() if name not in named and name in lines},
    )
    return Noted(**{**vars(new), "state": fingerprint(new, texts, _files(new.users, root))})


def note_text(noted: Noted) -> str:
    """A note as text."""
    return json.dumps(vars(noted), sort_keys=True) + "\n"


def noted_plan(root: str = "") -> str:
    """The checksum of the plan that a host has; empty without one, or if something is not as the last run left it."""
    noted = read_note(root)
    try:
        if noted.plan and noted.state == fingerprint(noted, read_texts(root), _files(noted.users, root)):
            return noted.plan
    except (OSError, TypeError):
        pass
    return ""


def _files(names: Iterable[str], root: str) -> dict[str, Any]:
    """Content, owner and mode of the files of sshd, by path; None for a file that is missing."""
    return {path: _file(f"{root}{path}") for path in (SSHD, KEYS, *map(key_path, names))}


def _file(path: str) -> list[Any] | None:
    try:
        status = os.stat(path)
        text = "" if os.path.isdir(path) else read(path) or ""
    except OSError:
        return None
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
    return [digest, status.st_uid, status.st_gid, status.st_mode & 0o7777]
