# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks: their directory, their limit of time, and the name of a holder, which is a real second process."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import locks
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.locks import LockError, accounts_locked, locked
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.timeout_call import call_with_timeout

HOLD = "from fcntl import *; import time; f = open('{}', 'a'); {}(f, LOCK_EX); print(flush=True); time.sleep(99)"


@contextmanager
def held(path: Path, call: str = "flock") -> Iterator[int]:
    """Another process holds the lock of a file; its process id."""
    command = [sys.executable, "-c", HOLD.format(path, call)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.fixture(name="directory")
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the locks, which is not there yet."""
    path = tmp_path / "run/gpucluster-slurm/locks"
    monkeypatch.setattr(locks, "LOCKS", str(path))
    monkeypatch.setattr(locks, "ACCOUNTS", str(tmp_path / ".pwd.lock"))
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o077])
def test_only_root_enters_the_directory_of_locks(directory: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with locked("storage", 0):
            assert (mode(directory), mode(directory / "storage")) == (0o700, 0o600)
    finally:
        os.umask(before)
    directory.chmod(0o777)
    (directory / "storage").chmod(0o666)
    with locked("storage", 0):
        assert (mode(directory.parent), mode(directory), mode(directory / "storage")) == (0o755, 0o700, 0o600)


@pytest.mark.parametrize("seconds", [0, 0.3])
def test_a_held_lock_is_named_within_the_limit(directory: Path, seconds: float) -> None:
    with locked("storage", 0):
        pass
    with held(directory / "storage") as process:
        began = time.monotonic()
        with pytest.raises(LockError) as error, locked("storage", seconds):
            pass
        assert seconds <= time.monotonic() - began < 30
    assert f"lock storage: held by process {process} ({sys.executable} -c from fcntl" in str(error.value)
    assert str(error.value).endswith(
        f"{f', for more than {seconds} s' if seconds else ''}; run this again when it has ended"
    )
    with locked("storage", 0):
        pass


def test_the_holder_is_the_process_that_has_the_lock_now(directory: Path) -> None:
    """A program that was started with the lock holds it after the process that took it has ended.

    The child may not have become sleep yet.
    """
    with locked("storage", 0):
        pass
    script = f"exec 9>>{directory}/storage; flock 9; sleep 99 & echo $!"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout
        child = int(process.stdout.readline())
        process.wait()
        try:
            with pytest.raises(LockError, match=rf"held by process {child} \("), locked("storage", 0):
                pass
        finally:
            os.kill(child, 9)


def test_the_lock_of_the_account_files_is_that_of_useradd(directory: Path) -> None:
    path = Path(locks.ACCOUNTS)
    with accounts_locked(0):
        assert mode(path) == 0o600
    with held(path, "lockf") as process, pytest.raises(LockError) as error, accounts_locked(0.2):
        pass
    assert f"lock {path}: held by process {process} (" in str(error.value)
    assert not directory.exists()


def test_a_process_that_cannot_be_ended_does_not_keep_a_lock(directory: Path) -> None:
    """It waits for a lost server of NFS for ever, and the next run has to repair just that."""
    with locked("storage", 0):
        opened = call_with_timeout(
            lambda: [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")], 30
        )
        assert str(directory / "storage") not in opened
        with open(directory / "storage", "a", encoding="utf-8") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
