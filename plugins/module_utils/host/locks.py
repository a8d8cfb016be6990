# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks that root alone can open, with a limit of time, and the processes that hold them.

A user who can open a lock file can hold its lock for ever: flock(2) needs no right to write. In a directory in which
users can write, the file can also be a link to another file of root.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

LOCKS = "/run/gpucluster-slurm/locks"
"""The directory of all locks of this collection. It belongs to root, and nobody else can open it."""

ACCOUNTS = "/etc/.pwd.lock"
"""The lock of passwd, shadow, group and gshadow (lckpwdf(3))."""

_PAUSE = 0.1
_SHOWN = 3
_LENGTH = 200


class LockError(OSError):
    """A lock that cannot be acquired, and who holds it. A kind of OSError, which all modules report."""


def _command(process: str) -> str:
    """The command line of a process in one line."""
    try:
        with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:
            command = file.read().replace("\0", " ")
    except OSError:
        return ""
    command = "".join(letter if letter.isprintable() else "?" for letter in command.strip())
    return command if len(command) <= _LENGTH else f"{command[:_LENGTH]}..."


def holders(descriptor: int) -> list[str]:
    """The processes that hold a lock on an open file, such as `process 71 (/usr/sbin/useradd alice)`.

    proc(5) shows the locks of each open file in fdinfo. /proc/locks names the process that has acquired a lock, which
    may have ended and left the open file to a process that it had started.
    """
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    lock = re.compile(rf"^lock:.*:{os.fstat(descriptor).st_ino} ", re.MULTILINE)
    found = []
    for process in sorted(filter(str.isdecimal, os.listdir("/proc")), key=int):
        with suppress(OSError):  # it has ended, or belongs to somebody else
            for number in os.listdir(f"/proc/{process}/fd"):
                if os.readlink(f"/proc/{process}/fd/{number}") != path:
                    continue
                with open(f"/proc/{process}/fdinfo/{number}", encoding="utf-8") as file:
                    if lock.search(file.read()):
                        found.append(f"process {process} ({_command(process)})")
                        break
    return found


def _directory(path: str, mode: int) -> int:
    """Open a directory of this process's user, which is created if it is missing. Its mode is corrected.

    Raises LockError if it is a link or belongs to somebody else.
    """
    with suppress(FileExistsError):
        os.mkdir(path, mode)
    wanted = f"allowed: a directory of root with mode {mode:04o}; remove what is there"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise LockError(f"{path}: found something else ({error.strerror}), {wanted}") from None
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid():
        os.close(descriptor)
        raise LockError(f"{path}: found a directory of the user with id {status.st_uid}, {wanted}")
    if stat.S_IMODE(status.st_mode) != mode:
        os.fchmod(descriptor, mode)
    return descriptor


def _file(path: str, directory: int | None = None) -> int:
    """Open a lock file. With `directory`, the path is relative to it.

    Raises LockError if another user could have opened it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO would be waited for
    wanted = "allowed: a file of root with one name; remove what is there"
    try:
        descriptor = os.open(path, flags, 0o600, dir_fd=directory)
    except OSError as error:
        raise LockError(f"lock {path}: found something else ({error.strerror}), {wanted}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink != 1:
        os.close(descriptor)
        raise LockError(f"lock {path}: found something else, {wanted}")
    if stat.S_IMODE(status.st_mode) != 0o600:
        os.fchmod(descriptor, 0o600)
    return descriptor


@contextmanager
def _held(descriptor: int, name: str, seconds: float, acquire: Callable[[int, int], None]) -> Iterator[None]:
    """Hold a lock of an open file, which is closed afterwards. Raises LockError after `seconds`."""
    deadline = time.monotonic() + seconds
    try:
        while True:
            try:
                acquire(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):  # fcntl(2) allows both for a lock that another process holds
                if time.monotonic() >= deadline:
                    found = holders(descriptor)
                    who = ", ".join(found[:_SHOWN]) or "a process that cannot be seen from here"
                    waited = f", for more than {seconds:g} s" if seconds else ""
                    raise LockError(f"lock {name}: held by {who}{waited}; run this again when it has ended") from None
                time.sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def locked(name: str, seconds: float) -> Iterator[None]:
    """Hold a lock of this collection on this host.

    Args:
        name: the name of its file.
        seconds: how long to wait for another process; 0: not at all.

    Raises:
        LockError: another process holds it, with its command, or its directory is not root's.
    """
    parent = os.path.dirname(LOCKS)
    os.makedirs(os.path.dirname(parent), mode=0o755, exist_ok=True)
    os.close(_directory(parent, 0o755))
    directory = _directory(LOCKS, 0o700)
    try:
        descriptor = _file(name, directory)
    finally:
        os.close(directory)
    with _held(descriptor, name, seconds, fcntl.flock):
        yield


@contextmanager
def accounts_locked(seconds: float) -> Iterator[None]:
    """Hold the lock of the account files, as lckpwdf(3), useradd and passwd do. Raises LockError after `seconds`."""
    with _held(_file(ACCOUNTS), ACCOUNTS, seconds, fcntl.lockf):
        yield
