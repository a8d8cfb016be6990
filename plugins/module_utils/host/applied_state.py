# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records on a host of what modules have applied, by which slurm_host_facts knows whether it still holds.

A record has a checksum of the options of the module, what the kernel knows of each file, and the start of the service.
A change of any of them, also a restart or a boot, ends the record, and the module then compares everything anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping

from .files import File, write
from .json_files import read_record

RECORDS = "/run/gpucluster-slurm/made"
"""The directory of the records. They end with a boot."""

PROPERTIES = ("Id", "ActiveState", "UnitFileState", "NeedDaemonReload", "InvocationID")
"""The properties of a unit that tell whether it is as it was (systemctl(1), show)."""

Unit = Mapping[str, str]


def units(shown: str) -> dict[str, Unit]:
    """The properties of services by name, from the output of systemctl: an empty line separates two units."""
    parsed = (dict(line.split("=", 1) for line in part.split("\n") if "=" in line) for part in shown.split("\n\n"))
    return {unit["Id"].removesuffix(".service"): unit for unit in parsed if "Id" in unit}


def invocation(unit: Unit) -> str:
    """The start of a service that runs and starts with the host, by its invocation; empty if it does not."""
    well = (
        unit.get("ActiveState") == "active"
        and unit.get("UnitFileState") == "enabled"
        and unit.get("NeedDaemonReload") == "no"
    )
    return unit.get("InvocationID", "") if well else ""


def identity(path: str) -> str:
    """What the kernel knows of a file. The time of its last change cannot be set back. Empty without the file."""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def keep(name: str, digest: str, paths: Iterable[str], started: str = "") -> None:
    """Write a record.

    Args:
        name: name of the record; that of the service if there is one.
        digest: a checksum of the module's options; without one, an earlier record is removed.
        paths: files and directories, also those that must not exist.
        started: the invocation of the service.

    Raises OSError, FileError.
    """
    file = os.path.join(RECORDS, name)
    if digest:
        record = {"digest": digest, "paths": {path: identity(path) for path in paths}, "started": started}
        write([File(file, f"{json.dumps(record)}\n".encode(), mode=0o600)])
    elif os.path.exists(file):
        os.unlink(file)


def holding(names: Iterable[str], found: Mapping[str, Unit]) -> dict[str, str]:
    """The checksums of the records that hold, by name. found: the properties of services, by name."""
    result = {}
    for name in names:
        record = read_record(os.path.join(RECORDS, name))
        try:
            if record["started"] == (invocation(found[name]) if name in found else "") and all(
                identity(path) == known for path, known in record["paths"].items()
            ):
                result[name] = str(record["digest"])
        except (AttributeError, KeyError, TypeError):  # none, or of another version of the collection
            continue
    return result
