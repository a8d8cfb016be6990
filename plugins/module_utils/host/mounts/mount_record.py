# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of a host's storage: what the last run has applied, so that the next one sees whether it still holds.

Everything that is compared is on the disk of the host, or in the kernel: no file system of a server is asked.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection

from ..files import File, write
from ..json_files import Record, read_record
from .mountinfo import mounted

PATH = "/var/lib/gpucluster-slurm/storage"
ETAB = "/var/lib/nfs/etab"
"""The directories that the NFS server exports now (exportfs(8))."""

INCOMPLETE = "incomplete"
"""The state of a host that has something to do: a run was killed, something has changed, a mount waits for its end."""


def read() -> Record:
    """The record; empty without one, or if it cannot be read."""
    return read_record(PATH)


def keep(record: Record) -> None:
    """Write the record in one step. Raises OSError, FileError."""
    write([File(PATH, f"{json.dumps(record, indent=1, sort_keys=True)}\n".encode())])


def state(installed: Collection[str]) -> str:
    """The digest of the plan that holds on this host, INCOMPLETE if not all of it does; empty without a record.

    installed: the names of the installed packages, of those that plans name.
    """
    record = read()
    if not record:
        return INCOMPLETE if os.path.exists(PATH) else ""
    try:
        points = mounted()
        holds = (
            not record["pending"]
            and all(checksum(path) == wanted for path, wanted in record["files"].items())
            and all(point in points for point in record["mounts"])
            and all(changed(path) == when for path, when in record["homes"].items())
            and {*record["packages"]} <= {*installed}
            and {*record["exports"]} <= exported()
        )
        return str(record["plan"]) if holds else INCOMPLETE
    except (AttributeError, KeyError, TypeError):  # of another version of the collection
        return INCOMPLETE


def checksum(path: str) -> str:
    """SHA-256 of a file, in hexadecimal; empty without one."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def changed(path: str) -> int:
    """When an entry of a directory was created or removed last, in nanoseconds; 0 without it."""
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:
        return 0


def exported() -> set[str]:
    """The directories that the NFS server exports now."""
    try:
        with open(ETAB, encoding="utf-8", errors="replace") as file:
            return {line.split("\t")[0] for line in file}
    except OSError:
        return set()
