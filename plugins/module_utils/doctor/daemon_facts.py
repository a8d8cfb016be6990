# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Daemons of a host, the last errors of their logs, and file systems in which they cannot write."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ..client.commands import run
from ..host.timeout_call import TimeoutCallError, call_with_timeout
from ..language.formatting import short, visible
from .evidence import DaemonState, complete

LINES = 12
"""Lines of a log that are kept."""
LENGTH = 300
"""Characters of a line that are kept."""
TAIL = 1 << 20
"""Bytes at the end of a log that are read."""
JOURNAL = 60
"""Lines of the journal that are read."""
SECONDS = 10
"""For a command of systemd."""
TIMEOUT = 3
"""Seconds for a file system."""

ERROR = re.compile(r"\b(?:error|fatal|failed|failure|out of memory|oom-kill)\b|\[ERROR\]", re.IGNORECASE)
NOISE = re.compile(r"Zero Bytes were transmitted or received|\.service(?:: | - )")
"""What a daemon logs when somebody only tries its port, as doctor does, and systemd's own lines about units."""
STARTED = re.compile(r"\bslurm(?:d|ctld|dbd) version \S+ started")
PREFIX = re.compile(r"^\[[^\]]*\]\s*|^slurm(?:d|ctld|dbd): |^\S+\[\d+\]: |^munged: ")
"""Times and names of daemons at the beginning of a line, which would make equal lines differ."""
ATTEMPT = re.compile(r"(?:: No error)?, attempt number -?\d+$")
"""The number at the end of a line (`xgetaddrinfo` in src/common/util-net.c). The attempts would fill the lines."""

PROPERTIES = "--property=Id,LoadState,ActiveState,UnitFileState,Result,ActiveExitTimestampMonotonic"


def read_units(shown: str, now: float) -> dict[str, DaemonState]:
    """The units in the output of `systemctl show`, by their names without suffix, without those that are missing.

    now: the monotonic clock of the host.
    """
    found: dict[str, DaemonState] = {}
    for block in shown.strip().split("\n\n"):
        unit = dict(line.partition("=")[::2] for line in block.split("\n"))
        if unit.get("LoadState", "not-found") != "not-found":
            stopped = int(unit.get("ActiveExitTimestampMonotonic") or 0) / 1e6
            active = unit.get("ActiveState", "")
            found[unit["Id"].removesuffix(".service")] = complete(
                DaemonState,
                active=active,
                enabled=unit.get("UnitFileState", "").startswith(("enabled", "static", "alias", "generated")),
                result=unit.get("Result", ""),
                down_seconds=max(now - stopped, 0.0) if stopped and active != "active" else 0.0,
                masked=unit["LoadState"] == "masked",
                log=(),
            )
    return found


def find_errors(text: str) -> list[str]:
    """The last errors in a log, without times, the newest one last.

    Those before the start count as well: a reconfigure starts slurmd anew.
    """
    lines = text.split("\n")
    found = [
        short(visible(strip_prefixes(line)), LENGTH) for line in lines if ERROR.search(line) and not NOISE.search(line)
    ]
    return [*dict.fromkeys(reversed(found[-10 * LINES :]))][:LINES][::-1]


def strip_prefixes(line: str) -> str:
    """A line of a log without its time, the name of its daemon, and the number of an attempt."""
    while (match := PREFIX.match(line)) and match.end():
        line = line[match.end() :]
    return ATTEMPT.sub("", line.strip())


def read_tail(path: str) -> str:
    """The end of a log file; empty if there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def read_journal(unit: str) -> str:
    """The last lines of a unit in the journal."""
    command = ["journalctl", f"--unit={unit}", f"--lines={JOURNAL}", "--output=cat", "--no-pager", "--quiet"]
    return run(command, seconds=SECONDS).output


def read_daemons(logs: Mapping[str, str]) -> dict[str, DaemonState]:
    """The daemons of a host, by the names of their units; what the host does not have is left out.

    logs: the file of each daemon's log; empty if it has none.
    """
    shown = run(["systemctl", "show", PROPERTIES, *(f"{unit}.service" for unit in logs)], seconds=SECONDS)
    found = read_units(shown.output, time.monotonic())
    for unit, daemon in found.items():
        path = logs.get(unit, "")
        log = find_errors(read_tail(path)) if path else []
        if daemon.active != "active":
            # A daemon that ends early has not opened its log yet.
            log = [*log, *find_errors(read_journal(unit))][-LINES:]
        found[unit] = replace(daemon, log=log)
    return found


def find_old(keys: Mapping[str, str], max_age: int) -> dict[str, int]:
    """The days since the last change of those files that are older than so many days; missing files are left out.

    max_age: 0 is no limit.
    """
    ages = {}
    for name, path in keys.items() if max_age else ():
        with suppress(OSError):
            ages[name] = int((time.time() - os.stat(path).st_mtime) // 86400)
    return {name: days for name, days in ages.items() if days >= max_age}


def find_full(directories: Iterable[str]) -> list[str]:
    """Those of the existing directories in which nothing can be written any more, with the reason."""
    found: dict[str, str] = {}
    for path in directories:
        try:
            blocks, inodes = call_with_timeout(_measure_room(path), TIMEOUT)
        except TimeoutCallError:
            continue  # it is missing, or does not answer
        if blocks < 1:
            found[path] = f"{path} has no space left"
        elif not inodes:
            found[path] = f"{path} has no inodes left"
    return [*found.values()]


def _measure_room(path: str) -> Callable[[], Sequence[int]]:
    def room() -> Sequence[int]:
        status = os.statvfs(path)
        free = status.f_bavail * status.f_frsize >> 20
        return (free, int(status.f_files == 0 or status.f_favail > 0))

    return room
