# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run lock, a file on a controller: at most one run at a time changes the cluster.

A rolling change has the lock ROLLING from its beginning to its end, and the lock RUN only while it changes nodes. An
acceptance run has ACCEPT, and changes nothing on which other runs depend.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from .files import File, write
from .locks import locked
from .options import option, several

FOLDER = "/run/gpucluster-slurm"
"""In memory: when the controller boots, every run on it has ended."""

RUN, ROLLING, ACCEPT = "run", "rolling", "accept"
"""The locks, by the names of their files."""

LOCKED = 30
"""Seconds to wait for another run that reads and writes a lock, which takes a moment."""

RunLock = dict[str, str]
"""Control host, user and process of a run, and since when it has the lock."""

OPTION = option(
    "This run. The control host fills it in.",
    "dict",
    default={},
    options={
        "host": option("The control host.", required=True),
        "user": option("The user of ansible-playbook there.", required=True),
        "process": option("Number and start of its process there.", required=True),
    },
)
"""The option of a module that names this run."""
FORMER = several("Processes of runs that have ended on the same control host. The control host fills them in.")


def read_lock(name: str) -> RunLock:
    """The run that has a lock; empty without one. A file that a person has damaged counts as no lock."""
    try:
        with open(f"{FOLDER}/{name}", encoding="utf-8", errors="replace") as file:
            lock = json.load(file)
    except (FileNotFoundError, ValueError):
        return {}
    return {str(key): str(value) for key, value in lock.items()} if isinstance(lock, dict) else {}


@contextmanager
def _locked() -> Iterator[None]:
    os.makedirs(FOLDER, mode=0o755, exist_ok=True)
    with locked("run", LOCKED):
        yield


def other(name: str, own: Mapping[str, str]) -> RunLock:
    """The run that has a lock, if it is another one than this run; otherwise nothing."""
    lock = read_lock(name)
    return {} if {key: lock.get(key) for key in own} == own else lock


def acquire(
    name: str, own: Mapping[str, str], ended: Collection[str] = (), take_over: bool = False, check_mode: bool = False
) -> RunLock:
    """Acquire a lock. Returns the other run that has it, or nothing. Raises FileError, OSError.

    Args:
        name: the lock.
        own: control host, user and process of this run.
        ended: processes on this control host that have ended, so that their locks are replaced.
        take_over: whether every lock is replaced.
        check_mode: whether nothing is written.
    """
    with _locked():
        held = other(name, own)
        replaced = take_over or (held.get("host") == own["host"] and held.get("process") in ended)
        if held and not replaced:
            return held
        if not check_mode and (held or not read_lock(name)):
            text = json.dumps({**own, "since": time.strftime("%Y-%m-%d %H:%M")})
            write([File(f"{FOLDER}/{name}", f"{text}\n".encode())])
    return {}


def release(name: str, own: Mapping[str, str]) -> None:
    """Release a lock of this run; that of another run stays. Raises OSError."""
    with _locked():
        if read_lock(name) and not other(name, own):
            os.unlink(f"{FOLDER}/{name}")
