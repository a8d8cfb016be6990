# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run lock, a file on a controller: runs that could meet do not change the cluster at the same time.

A run has the lock alone, or for compute nodes: it changes these and nothing else, and shares the lock with runs that
change others. A rolling change has the lock ROLLING from its beginning to its end, and the lock RUN only while it
changes nodes. An acceptance run has ACCEPT, and changes nothing on which other runs depend.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from ..language.formatting import short
from ..language.hostlist import expand, fold
from .files import File, write
from .locks import locked
from .options import option, several

if TYPE_CHECKING:
    from ...plugin_utils.results.module_results import Run

FOLDER = "/run/gpucluster-slurm"
"""In memory: when the controller boots, every run on it has ended."""

RUN, ROLLING, ACCEPT = "run", "rolling", "accept"
"""The locks, by the names of their files."""

SHARED = "0"
"""The process in the file of a lock that runs share. Their own file (`shared_file`) has each of them.

The file itself names all of them as if they were one: an earlier version of the collection reads no other file. It
finds that the process 0 has not ended, and refuses.
"""

SHOWN = 200
"""Characters of a hostlist in a message."""
MOST = 64
"""Other runs in a result."""

LOCKED = 30
"""Seconds to wait for another run that reads and writes a lock, which takes a moment."""

KEYS = ("host", "user", "process", "since")
RunLock = dict[str, str]
"""Control host, user and process of a run, since when it has the lock, and for which `nodes`, as a hostlist; without
nodes it has the lock alone."""

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


def shared_file(name: str) -> str:
    """The file of the runs that share a lock."""
    return f"{FOLDER}/{name}.shared"


def _read(path: str) -> Any:
    """The content of a file; None without one. What a person has damaged counts as no file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return None


def read_lock(name: str) -> list[RunLock]:
    """The runs that have a lock."""
    lock = _read(f"{FOLDER}/{name}")
    shared = isinstance(lock, dict) and lock.get("process") == SHARED
    found = _read(shared_file(name)) if shared else [lock]
    records = found if isinstance(found, list) else []
    records = [each for each in records if isinstance(each, dict) and {*KEYS} <= {*each}]
    return [{key: str(record.get(key, "")) for key in (*KEYS, "nodes")} for record in records]


def write_lock(name: str, held: Sequence[RunLock]) -> None:
    """Write the runs that have a lock: one alone, or those that share it. Raises FileError, OSError."""
    path, shared = f"{FOLDER}/{name}", [lock for lock in held if lock["nodes"]]
    if not held:
        for each in (path, shared_file(name)):
            with suppress(FileNotFoundError):
                os.unlink(each)
        return
    lock = held[0]
    if shared:
        write([File(shared_file(name), f"{json.dumps(shared)}\n".encode())])
        named = {key: ", ".join(dict.fromkeys(each[key] for each in shared)) for key in ("host", "user")}
        lock = {**named, "process": SHARED, "since": min(each["since"] for each in shared)}
    text = json.dumps({key: lock[key] for key in KEYS})
    write([File(path, f"{text}\n".encode())])


@contextmanager
def _locked() -> Iterator[None]:
    os.makedirs(FOLDER, mode=0o755, exist_ok=True)
    with locked("run", LOCKED):
        yield


def is_own(lock: Mapping[str, str], own: Mapping[str, str]) -> bool:
    """Whether a lock is that of this run."""
    return {key: lock.get(key) for key in own} == own


def others(held: Sequence[RunLock], own: Mapping[str, str], nodes: Collection[str] = ()) -> list[RunLock]:
    """The other runs that a run could meet, each with the nodes that both would change (`common`).

    Args:
        held: the runs that have the lock.
        own: control host, user and process of this run.
        nodes: the compute nodes that it changes, and nothing else; none if it must be alone.
    """
    found, wanted = [], {*nodes}
    for lock in held:
        common = fold([name for name in expand(lock["nodes"]) if name in wanted])
        if not is_own(lock, own) and (common or not nodes or not lock["nodes"]):
            found.append({**lock, "common": common})
    return found


def other(name: str, own: Mapping[str, str]) -> list[RunLock]:
    """The runs that have a lock which is not shared, if this run is none of them."""
    return others(read_lock(name), own)


def shown(found: Sequence[RunLock]) -> list[Run]:
    """Other runs for the result of a module, with the beginnings of long hostlists."""
    return [cast("Run", {key: short(value, SHOWN) for key, value in lock.items()}) for lock in found[:MOST]]


def acquire(
    name: str,
    own: Mapping[str, str],
    ended: Collection[str] = (),
    take_over: bool = False,
    check_mode: bool = False,
    nodes: Sequence[str] = (),
) -> list[RunLock]:
    """Acquire a lock. Returns the other runs that prevent it (`others`). Raises FileError, OSError.

    A run that has the lock alone keeps it so.

    Args:
        name: the lock.
        own: control host, user and process of this run.
        ended: processes on this control host that have ended, so that their locks are replaced.
        take_over: whether every lock is replaced that prevents this one.
        check_mode: whether nothing is written.
        nodes: as `others` takes them.
    """
    with _locked():
        held = read_lock(name)
        mine = next((lock for lock in held if is_own(lock, own)), None)
        wanted = fold([*nodes]) if mine is None else mine["nodes"] and fold([*nodes])
        met = others(held, own, expand(wanted))
        prevent = [lock for lock in met if lock["host"] != own["host"] or lock["process"] not in ended]
        if prevent and not take_over:
            return prevent
        if not check_mode and (mine is None or mine["nodes"] != wanted):
            since = time.strftime("%Y-%m-%d %H:%M") if mine is None else mine["since"]
            kept = [lock for lock in held if not is_own(lock, own) and not others([lock], own, expand(wanted))]
            write_lock(name, [*kept, {**own, "since": since, "nodes": wanted}])
    return []


def release(name: str, own: Mapping[str, str]) -> None:
    """Release a lock of this run; those of other runs stay. Raises FileError, OSError."""
    with _locked():
        held = read_lock(name)
        left = [lock for lock in held if not is_own(lock, own)]
        if len(left) < len(held):
            write_lock(name, left)
