# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `backup` of the cluster file."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypedDict

from ..formats.directory_purposes import LONGEST, directory_error
from ..formats.systemd import calendar
from ..language.formatting import shown
from .schema import Checker, Kind, count, kind_of, mapping, text, unknown

SCHEMES = ("azure", "b2", "gs", "rclone", "rest", "s3", "sftp", "swift")
"""The kinds of repositories that restic knows, apart from a directory."""

_REST = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]+")
_OPTION = re.compile(r"(?:^|[/@])-")
_PASSWORD = re.compile(r"//[^/@]*:[^/@]*@")


def target(value: Any) -> str:
    """A repository of restic: a directory, or one that begins with its scheme."""
    allowed = f"a directory such as /srv/backup, or a repository of restic that begins with {', '.join(SCHEMES)}"
    scheme, colon, rest = text(value).partition(":")
    if colon and rest and "/" not in scheme:
        if scheme not in SCHEMES:
            raise ValueError(unknown("scheme", scheme, SCHEMES, allowed))
        if _PASSWORD.search(rest):
            raise ValueError("allowed: a repository without a password; its variables belong in backup.env")
        if not _REST.fullmatch(rest) or len(rest.encode()) > LONGEST:
            raise ValueError(f"allowed: up to {LONGEST} bytes without blanks and control characters after the scheme")
        if _OPTION.search(rest) or ".." in re.split("[/:]", rest):  # sftp: gives its host to ssh as an argument
            raise ValueError("allowed: a repository without '..' whose parts do not begin with '-'")
    elif not str(value).startswith("/"):
        raise ValueError(f"allowed: {allowed}")
    elif error := directory_error(text(value), "backup"):
        raise ValueError(error)
    return text(value)


def times(value: Any) -> str:
    """A calendar event of systemd."""
    return calendar(text(value))


class BackupKey(TypedDict, total=False):
    """The value of the key."""

    target: Annotated[str, target, "required"]
    times: Annotated[str, times]
    keep: Annotated[dict[str, int], mapping]
    max_age: Annotated[int, count]


BACKUP = kind_of(BackupKey)

KEEP: Kind[dict[str, int]] = Kind(
    own={name: {"type": count} for name in ("last", "hourly", "daily", "weekly", "monthly", "yearly")},
)


def check(checker: Checker, found: Any) -> BackupKey:
    """The checked value of the key `backup`."""
    if not found:
        return {}
    backup = checker.check(BACKUP, "backup", found)
    if "keep" in backup:
        backup["keep"] = checker.check(KEEP, "backup.keep", backup["keep"])
        if not any(value is not None for value in found["keep"].values()):
            checker.problem("backup.keep", f"found {shown(found['keep'])}, allowed: how many backups stay, by interval")
    return backup
