# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notes on a controller of the run that changes the cluster: at most one run at a time has a note.

A rolling change has the note ROLLING from its beginning to its end, and the note RUN only while it changes nodes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import File, write
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.locks import locked

FOLDER = "/run/gpucluster-slurm"
"""In memory: when the controller boots, every run on it has ended."""

RUN, ROLLING = "run", "rolling"
"""The notes, by the names of their files."""

LOCKED = 30
"""Seconds to wait for another run that reads and writes a note, which takes a moment."""

Note = dict[str, str]
"""Control host, user and process of a run, and since when it has the note."""

OPTION = {
    "type": "dict",
    "default": {},
    "options": {name: {"type": "str", "required": True} for name in ("host", "user", "process")},
}
"""The option of a module that names this run."""


def noted(name: str) -> Note:
    """The run that a note is about; empty without one. A note that a person has damaged counts as none."""
    try:
        with open(f"{FOLDER}/{name}", encoding="utf-8", errors="replace") as file:
            note = json.load(file)
    except (FileNotFoundError, ValueError):
        return {}
    return {str(key): str(value) for key, value in note.items()} if isinstance(note, dict) else {}


@contextmanager
def _locked() -> Iterator[None]:
    os.makedirs(FOLDER, mode=0o755, exist_ok=True)
    with locked("run", LOCKED):
        yield


def other(name: str, own: Mapping[str, str]) -> Note:
    """The run that a note is about, if it is another one than this run; otherwise nothing."""
    note = noted(name)
    return {} if {key: note.get(key) for key in own} == own else note


def take(
    name: str, own: Mapping[str, str], former: Collection[str] = (), take_over: bool = False, check_mode: bool = False
) -> Note:
    """Write a note; the other run that prevents it, or nothing. Raises FileError, OSError.

    Args:
        name: the note.
        own: control host, user and process of this run.
        former: processes on this control host that have ended, so that their notes are replaced.
        take_over: whether every note is replaced.
        check_mode: whether nothing is written.
    """
    with _locked():
        note = other(name, own)
        ended = take_over or (note.get("host") == own["host"] and note.get("process") in former)
        if note and not ended:
            return note
        if not check_mode and (note or not noted(name)):
            text = json.dumps({**own, "since": time.strftime("%Y-%m-%d %H:%M")})
            write([File(f"{FOLDER}/{name}", f"{text}\n".encode())])
    return {}


def give_back(name: str, own: Mapping[str, str]) -> None:
    """Remove a note of this run; that of another run stays. Raises OSError."""
    with _locked():
        if noted(name) and not other(name, own):
            os.unlink(f"{FOLDER}/{name}")
