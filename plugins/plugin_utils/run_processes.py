# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of a run on the control host: ansible-playbook, and its process for each task of each host.

A kill -9 of ansible-playbook ends it alone. The others end with their tasks, which change hosts until then, so they
have a mark: a socket that they inherit, with the identity of ansible-playbook as its name. It is open nowhere else,
since other programs such as ssh do not inherit it.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress

MARK = "gpucluster-slurm-run-"

ANSWERS, QUEUES = "pipe_write", "futex"
"""Parts of the places in the kernel where processes wait whose tasks have ended, and whose answers nobody reads: one
writes its answer, with a lock for which the others wait."""

_marks: dict[int, socket.socket] = {}
"""The mark, by the number of ansible-playbook's process."""


def identify_process(number: int) -> str:
    """Number and start of a process; empty if it has ended. Without /proc, the number alone.

    The start, in clock ticks since the boot, tells it from a later process with the same number (proc(5)).
    """
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass  # a process of another user
    try:
        with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
            return f"{number} {file.read().rpartition(')')[2].split()[19]}"
    except OSError:
        return f"{number}"


def mark_processes() -> None:
    """Mark this process and those that it forks from now on. Without Linux there is no mark."""
    if not _marks:
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        _marks[os.getpid()] = mark
        with suppress(OSError):
            mark.bind(f"\0{MARK}{identify_process(os.getpid())}")


def is_orphaned() -> bool:
    """Whether the ansible-playbook that has started this process has ended."""
    return bool(_marks) and os.getppid() not in _marks


def find_marked(process: str) -> list[int]:
    """The processes with the mark of a run that still have a task, as far as this user can know them.

    process: the identity of its ansible-playbook.
    """
    waiting: dict[int, str] = {}
    with suppress(OSError), open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        inodes = re.findall(rf" (\d+) @{MARK}{process}$", file.read(), re.MULTILINE)
        numbers = [number for number in os.listdir("/proc") if inodes and number.isdecimal()]
        waiting = {int(number): place for number in numbers if (place := _place(number, inodes)) is not None}
    is_blocked = any(ANSWERS in place for place in waiting.values())
    return [
        number
        for number, place in waiting.items()
        if not (is_blocked and any(blocked in place for blocked in (ANSWERS, QUEUES)))
    ]


def _place(number: str, inodes: list[str]) -> str | None:
    """Where in the kernel a process waits that has one of these sockets open; nothing for another process."""
    links = {f"socket:[{inode}]" for inode in inodes}
    with suppress(OSError):
        opened = {os.readlink(f"/proc/{number}/fd/{name}") for name in os.listdir(f"/proc/{number}/fd")}
        if links & opened:
            with open(f"/proc/{number}/wchan", encoding="utf-8") as file:
                return file.read()
    return None
