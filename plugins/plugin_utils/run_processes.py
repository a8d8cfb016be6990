# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of a run on the control host: ansible-playbook, and its process for each task of each host.

A kill -9 of ansible-playbook ends it alone. The others end with their tasks, which change hosts until then, so they
have a mark: a socket that they inherit, with the identity of ansible-playbook as its name. It is open nowhere else,
since other programs such as ssh do not inherit it.

A process that has ended its task writes its answer into a pipe, of which all of them inherit the reading end: nobody
would ever read it, and the process would wait for ever. So each closes its own reading end when it begins, and the end
of ansible-playbook is the end of the pipe.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress

from ansible.executor.process.worker import WorkerProcess

MARK = "gpucluster-slurm-run-"

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
        WorkerProcess.run = _closing(WorkerProcess.run)


def _closing(run: Callable[[WorkerProcess], None]) -> Callable[[WorkerProcess], None]:
    """The beginning of a process for a task, before its own one."""

    def begin(process: WorkerProcess) -> None:
        with suppress(AttributeError, OSError):  # another ansible-core may have other names
            process._final_q._reader.close()  # pylint: disable=protected-access
        run(process)

    return begin


def is_orphaned() -> bool:
    """Whether the ansible-playbook that has started this process has ended."""
    return bool(_marks) and os.getppid() not in _marks


def find_marked(process: str) -> list[int]:
    """The processes with the mark of a run, as far as this user can know them. They end with their tasks.

    process: the identity of its ansible-playbook.
    """
    with suppress(OSError), open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        inodes = re.findall(rf" (\d+) @{MARK}{process}$", file.read(), re.MULTILINE)
        numbers = [int(number) for number in os.listdir("/proc") if inodes and number.isdecimal()]
        return [number for number in numbers if _has_open(number, inodes)]
    return []


def _has_open(number: int, inodes: list[str]) -> bool:
    """Whether a process has one of these sockets open."""
    links = {f"socket:[{inode}]" for inode in inodes}
    with suppress(OSError):
        return any(os.readlink(f"/proc/{number}/fd/{name}") in links for name in os.listdir(f"/proc/{number}/fd"))
    return False
