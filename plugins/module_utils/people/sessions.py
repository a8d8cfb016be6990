# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of users who may no longer log in: their sessions are ended, and the processes of jobs are not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from ansible_collections.gpucluster.slurm.plugins.module_utils.job_processes import Process, belongs_to_job, processes

PATIENCE = 3.0
"""Seconds for the processes to end by themselves, before they are killed."""

LIMIT = 10.0
"""Seconds after which the rest is left, such as processes that wait for a disk."""


def outside_jobs(uids: Collection[int], running: Mapping[int, Process]) -> list[int]:
    """The processes of these users that belong to no job."""
    wanted = frozenset(uids)
    return [
        pid
        for pid, process in running.items()
        if wanted.intersection(process.uids) and not belongs_to_job(pid, running)
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
