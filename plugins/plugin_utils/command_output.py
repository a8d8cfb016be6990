# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What commands of the control host print, such as secrets: each is run once in a run, and nothing goes to a disk.

Ansible forks a process for each task of each host. They share memory without a name, which the main process has made
before, and which the kernel frees with the last of them, also after a kill -9. Without a playbook of this collection
there is none, and each process runs the command itself.
"""

from __future__ import annotations

import base64
import fcntl
import json
import mmap
import os
import resource
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from ..module_utils.client.bounded_command import HangingCommandError, run_bounded

SIZE = 4 << 20
"""Bytes of the memory. The kernel gives those that are written."""

HANGS = "a command has not ended"
"""The key of the answer for all commands that have not been run before."""

_HEAD = struct.Struct("<Q")

Answer = dict[str, str]
"""`output` in base64, or `error`."""


class Memory:
    """Answers by the command, which processes that are forked from this one share.

    The first number is the end of the last answer. It is written after the answer, so a process that is killed
    leaves nothing half.
    """

    def __init__(self, lock: str) -> None:
        """lock: the path of an empty file."""
        self.lock = lock
        self.map = mmap.mmap(-1, SIZE)
        self.map[: _HEAD.size] = _HEAD.pack(_HEAD.size)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let one process run a command at a time, and the others wait for its answer."""
        with os.fdopen(os.open(self.lock, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def find(self, key: str) -> Answer | None:
        """The answer to a command; None if nobody has asked."""
        (end,) = _HEAD.unpack(self.map[: _HEAD.size])
        for line in self.map[_HEAD.size : end].split(b"\n")[:-1]:
            found, answer = json.loads(line)
            if found == key:
                return dict(answer)
        return None

    def add(self, key: str, answer: Answer) -> None:
        """Keep an answer, if there is room."""
        (begin,) = _HEAD.unpack(self.map[: _HEAD.size])
        line = json.dumps([key, answer]).encode() + b"\n"
        if begin + len(line) <= SIZE:
            self.map[begin : begin + len(line)] = line
            self.map[: _HEAD.size] = _HEAD.pack(begin + len(line))


_memories: dict[str, Memory] = {}
"""The memory of this run, by the path of its lock."""


def share_outputs(directory: str) -> None:
    """Let the processes that this one will fork share answers, and let none of them leave a core (core(5)).

    directory: that of Ansible for the run, for the lock.
    """
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    path = f"{directory}/gpucluster-outputs.lock"
    if path not in _memories:
        _memories.clear()
        _memories[path] = Memory(path)


def output(command: Sequence[str], directory: str) -> bytes:
    """What a command prints in a directory, from the first process of the run that asks.

    Raises:
        ValueError: it has failed; the next process that asks gets the same error. After one that has not ended in
            time, no other command is run, since they are mostly one program.
    """
    memory = next(iter(_memories.values()), None)
    if memory is None:
        return run_bounded(command, directory)
    key = json.dumps([directory, *command])
    with memory.locked():
        answer = memory.find(key) or memory.find(HANGS)
        if answer is None:
            answer = _answer(command, directory, memory)
            memory.add(key, answer)
    if "error" in answer:
        raise ValueError(answer["error"])
    return base64.b64decode(answer["output"])


def _answer(command: Sequence[str], directory: str, memory: Memory) -> Answer:
    try:
        return {"output": base64.b64encode(run_bounded(command, directory)).decode()}
    except HangingCommandError as error:
        memory.add(HANGS, {"error": f"not run, because another command for a secret {error}"})
        return {"error": str(error)}
    except ValueError as error:
        return {"error": str(error)}
