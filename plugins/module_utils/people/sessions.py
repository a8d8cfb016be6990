# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of users who may no longer log in: their sessions are ended, and the processes of jobs are not."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

PATIENCE = 3.0
"""Seconds for the processes to end by themselves, before they are killed."""

LIMIT = 10.0
"""Seconds after which the rest is left, such as processes that wait for a disk."""

_JOB = re.compile(r"/job_[0-9]+/step_(?!extern(?:/|$))", re.MULTILINE)
"""A part of the cgroup of a job's processes, with any version of cgroups (src/plugins/cgroup).

The step extern of a job has logins of its user (pam_slurm_adopt), and its own processes are children of slurmstepd.
"""

_STEP = "slurmstepd"
"""The process that starts the processes of a job's step."""


@dataclass(frozen=True)
class Process:
    """A process of a host."""

    name: str
    parent: int
    uids: frozenset[int]
    """The real, effective, saved and file system id of its user."""
    cgroup: str


def processes(proc: str = "/proc") -> dict[int, Process]:
    """All processes, by their ids, without those that have ended."""
    found = {}
    for entry in os.listdir(proc):
        if not entry.isdecimal():
            continue
        with suppress(OSError, KeyError):  # it has ended meanwhile
            with open(f"{proc}/{entry}/status", encoding="utf-8", errors="replace") as file:
                status = dict(line.partition(":")[::2] for line in file.read().split("\n"))
            with open(f"{proc}/{entry}/cgroup", encoding="utf-8", errors="replace") as file:
                cgroup = file.read()
            if status["State"].split()[0] not in ("Z", "X"):
                uids = frozenset(map(int, status["Uid"].split()))
                found[int(entry)] = Process(status["Name"].strip(), int(status["PPid"]), uids, cgroup)
    return found


def ancestors(pid: int, running: Mapping[int, Process]) -> Iterator[Process]:
    """A process and those that have started it, the nearest first."""
    seen = set()
    while pid in running and pid not in seen:
        seen.add(pid)
        yield running[pid]
        pid = running[pid].parent


def outside_jobs(uids: Collection[int], running: Mapping[int, Process]) -> list[int]:
    """The processes of these users that belong to no job."""
    wanted = frozenset(uids)
    return [
        pid
        for pid, process in running.items()
        if process.uids & wanted
        and not _JOB.search(process.cgroup)
        and all(one.name != _STEP for one in ancestors(pid, running))
    ]


def end(uids: Mapping[int, str], terminate: Callable[[str], object]) -> int:
    """End the sessions of users, by id and name; the number of processes that have not ended.

    terminate: ends the sessions of a user that logind knows, with their leftovers.
    """
    start = time.monotonic()
    told: set[int] = set()
    if outside_jobs(uids, processes()):
        for name in uids.values():
            terminate(name)
    while left := outside_jobs(uids, processes()):
        waited = time.monotonic() - start
        if waited > LIMIT:
            break
        for pid in left:
            if waited > PATIENCE or pid not in told:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if waited > PATIENCE else signal.SIGTERM)
        told |= {*left}
        time.sleep(0.1)
    return len(left)
