# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages that a host has because of this collection, with all that came along, and those that it holds.

A package is recorded if the host did not have it before an installation. The playbook reset removes these, and no
others: a package that the site had, or has installed meanwhile, stays.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import Optional

from ..files import File, write

RECORD = "/var/lib/gpucluster-slurm/packages.json"

PackageRecord = dict[str, Optional[list[str]]]
"""`added`; `held`; and `before`, what the host had before an installation that has not ended."""


def read_record() -> PackageRecord:
    """The record; empty without one, or if a person has damaged it."""
    try:
        with open(RECORD, encoding="utf-8") as file:
            found = json.load(file)
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(record: PackageRecord) -> None:
    """Write a record that has changed. Raises FileError, OSError."""
    if record != read_record():
        write([File(RECORD, f"{json.dumps(record, sort_keys=True)}\n".encode())])


def begin(present: Iterable[str]) -> None:
    """Record what the host has before an installation. One that was killed has begun with fewer.

    Raises FileError, OSError.
    """
    record = read_record()
    write_record({**record, "before": record.get("before") or sorted(present)})


def end(present: Iterable[str], held: Iterable[str]) -> None:
    """Record what an installation has added and holds. Raises FileError, OSError."""
    record = read_record()
    before = record.get("before")
    new = {*present} - {*before} if before else set()
    added = sorted({*(record.get("added") or []), *new})
    write_record({"added": added, "held": sorted({*(record.get("held") or []), *held})})


def removable(record: PackageRecord, present: Collection[str], kept: Collection[str]) -> list[str]:
    """The packages that were added and are still there, without those whose names match a pattern of `kept`."""
    added = [name for name in record.get("added") or [] if name in present]
    return [name for name in added if not matches(name, kept)]


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether the name of a package matches one of these patterns, as of a shell."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
