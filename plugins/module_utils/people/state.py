# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of people on a host: its account files, their keys, sshd's setting, and the record of the last run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

from .accounts import FILES, PeopleRecord, fingerprint
from .plan import PEOPLE, PeoplePlan, Person

RECORD = "/var/lib/gpucluster-slurm/people"

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


def read_record(root: str = "") -> PeopleRecord:
    """The record of the last run; an empty one if there is none, or one that no run has written."""
    try:
        return PeopleRecord(**json.loads(read(f"{root}{RECORD}") or "{}"))
    except (ValueError, TypeError):
        return PeopleRecord()


def build_record(plan: PeoplePlan, checksum: str, before: PeopleRecord, root: str = "") -> PeopleRecord:
    """The record of a host as it is now. checksum: that of the plan's text."""
    texts = read_texts(root)
    lines = {line.partition(":")[0] for line in texts["passwd"].split("\n")}
    named = {user.name for user in plan.users}
    new = PeopleRecord(
        plan=checksum,
        users={user.name: user.uid for user in plan.accounts.values()},
        groups=plan.groups,
        absent=sorted(plan.absent),
        left={name: uid for name, uid in before.known.items() if name not in named and name in lines},
    )
    return PeopleRecord(**{**vars(new), "state": fingerprint(new, texts, _files(new.users, root))})


def record_text(record: PeopleRecord) -> str:
    """A record as text."""
    return json.dumps(vars(record), sort_keys=True) + "\n"


def read_applied_plan(root: str = "") -> str:
    """The checksum of the plan that a host has; empty without one, or if something is not as the last run left it."""
    record = read_record(root)
    try:
        if record.plan and record.state == fingerprint(record, read_texts(root), _files(record.users, root)):
            return record.plan
    except (OSError, TypeError):
        pass
    return ""


def _files(names: Iterable[str], root: str) -> dict[str, list[Any] | None]:
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
