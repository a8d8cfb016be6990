# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of users who may no longer log in: their sessions are ended, and the processes of jobs are not."""

from __future__ import annotations

import os
import pwd
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from ..host.job_processes import Process, belongs_to_job, processes

TIMEOUT = 3.0
"""Seconds for the processes to end by themselves, before they are killed."""

LIMIT = 10.0
"""Seconds after which the rest is left, such as processes that wait for a disk."""


SUBORDINATE = "/etc/subuid"


def all_ids(users: Mapping[int, str], file: str = SUBORDINATE) -> list[range]:
    """The ids that processes of these users can have: their own, and the subordinate ones of subuid(5).

    A process in a user namespace, such as that of a container without root's rights, has a subordinate id outside.

    Args:
        users: the names of users, by their ids.
        file: has lines NAME:FIRST:COUNT, or UID:FIRST:COUNT.
    """
    found = [range(uid, uid + 1) for uid in users]
    names = {*users.values(), *map(str, users)}
    with suppress(OSError), open(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            owner, _colon, numbers = line.strip().partition(":")
            first, _colon, count = numbers.partition(":")
            if owner in names and first.isdecimal() and count.isdecimal():
                found.append(range(int(first), int(first) + int(count)))
    return found


def outside_jobs(ids: Sequence[range], running: Mapping[int, Process]) -> list[int]:
    """The processes with one of these ids that belong to no job."""
    return [pid for pid in _of_ids(ids, running) if not belongs_to_job(pid, running)]


def _of_ids(ids: Sequence[range], running: Mapping[int, Process]) -> list[int]:
    """The processes with one of these ids."""
    own = {uid for uid in {uid for process in running.values() for uid in process.uids} if _is_one_of(uid, ids)}
    return [pid for pid, process in running.items() if own.intersection(process.uids)]


def _is_one_of(uid: int, ids: Sequence[range]) -> bool:
    """Whether an id is one of these. A subordinate id that is also that of a user of the host is this user's."""
    if range(uid, uid + 1) in ids:
        return True
    if not any(uid in some for some in ids):
        return False
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return True
    return False


def end(uids: Mapping[int, str], terminate: Callable[[str], object]) -> int:
    """End the sessions of users, by id and name; the number of processes that have not ended.

    A process that starts another one and ends all the time is in no list of processes, or is another one when it gets
    its signal. So the last step is `_sweep`.

    terminate: ends the sessions of a user that logind knows, with their leftovers.
    """
    start = time.monotonic()
    signalled: set[int] = set()
    ids = all_ids(uids)
    if outside_jobs(ids, processes()):
        for name in uids.values():
            terminate(name)
    while left := outside_jobs(ids, processes()):
        if time.monotonic() - start > TIMEOUT:
            break
        for pid in left:
            if pid not in signalled:
                _signal(pid, signal.SIGTERM)
        signalled |= {*left}
        time.sleep(0.1)
    _sweep(uids, ids, bool(signalled or left))
    while (left := outside_jobs(ids, processes())) and time.monotonic() - start < LIMIT:
        _sweep(uids, ids, True)
        time.sleep(0.1)
    return len(left)


def _sweep(uids: Iterable[int], ids: Sequence[range], found: bool) -> None:
    """Kill all processes outside of jobs, so that none starts another one meanwhile.

    A user with processes of jobs has all of them stopped for a moment, only if there was something to end. Those that
    were stopped before, such as the ones of a suspended job, stay so.

    uids: the users. ids: those of their processes. found: whether there was something to end.
    """
    before = processes()
    outside = outside_jobs(ids, before)
    of_jobs = {uid for pid in {*_of_ids(ids, before)}.difference(outside) for uid in before[pid].uids}
    real = {before[pid].uids[0] for pid in outside}  # that of another user who runs a setuid program is not in ids
    for uid in {*uids, *(uid for uid in real if _is_one_of(uid, ids))}:
        if uid not in of_jobs:
            _signal_all(uid, signal.SIGKILL)
        elif found:
            _signal_all(uid, signal.SIGSTOP)
    now = processes()
    for pid in outside_jobs(ids, now):
        _signal(pid, signal.SIGKILL)
    for pid in {*_of_ids(ids, now)}.difference(outside):
        if now[pid].stopped and not (pid in before and before[pid].stopped):
            _signal(pid, signal.SIGCONT)


def _signal_all(uid: int, number: int) -> None:
    """Signal all processes of a user in one step of the kernel, also one that is just starting (kill(2)).

    Only a process of the user can do this, without the right to signal others. It does not get the signal itself.
    """
    if uid == 0:
        return
    child = os.fork()
    if child == 0:
        with suppress(OSError):
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            with open("/proc/self/status", encoding="utf-8") as file:
                if "CapEff:\t0000000000000000\n" in file.read():
                    os.kill(-1, number)
        os._exit(0)  # pylint: disable=protected-access  # the child must not go on as the module
    # The user can stop or kill the child.
    for _turn in range(100):
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
