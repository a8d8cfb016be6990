# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a command of the site for a secret, with bounds for what it prints and for its time, and reads keys from it."""

from __future__ import annotations

import base64
import binascii
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, cast

LARGEST = 1 << 16
"""Bytes that a command may print."""

SECONDS = 60
"""The time that a command has. A person may have to type a PIN, and preflight has 600 s for all secrets."""

LAST = 1 << 12
"""Bytes of its errors that are kept, the last ones."""

PAUSE = 0.1
"""Seconds after which one looks whether the command, or the run that needs it, has ended."""


KEY_BYTES = (32, 65536)
"""The least bytes that munged takes for a key, and more than any key has."""


class HangingCommandError(ValueError):
    """A command that has not ended in time."""


def run_bounded(command: Sequence[str], directory: str) -> bytes:
    """What a command prints. It runs without a shell, without input, and in a session of its own.

    It is killed with its group when it prints too much, when its time ends, and when the parent of this process has
    ended. What it has started, and still runs when it ends, may go on: an agent of a password store does.

    Raises:
        HangingCommandError: it has not ended in time.
        ValueError: it has failed, with the last line of its errors and never its output.
    """
    parent = os.getppid()  # before the command runs: the parent may end as soon as it does
    try:
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise ValueError(f"cannot run: {error.strerror}: {error.filename}") from error
    with process:
        try:
            printed, errors = _read(process, parent)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        how = f"signal {-process.returncode}" if process.returncode < 0 else str(process.returncode)
        raise ValueError(f"ended with {how}: {_last_line(errors)}")
    if not printed.strip():
        raise ValueError("printed nothing")
    return printed


def _read(process: subprocess.Popen[bytes], parent: int) -> tuple[bytes, bytes]:
    """What a process prints until it ends, and the last of its errors. Its children may keep both open."""
    printed, errors = bytearray(), bytearray()
    deadline = time.monotonic() + SECONDS
    with selectors.DefaultSelector() as selector:
        for pipe, content in ((process.stdout, printed), (process.stderr, errors)):
            selector.register(cast(IO[bytes], pipe), selectors.EVENT_READ, content)
        while True:
            # Asked before the pipes are read: nothing comes after what is read then.
            ended = process.poll() is not None
            ready = selector.select(0 if ended else PAUSE)
            for key, _events in ready:
                chunk = os.read(key.fd, LARGEST)
                key.data.extend(chunk)
                if not chunk:
                    selector.unregister(key.fileobj)
            del errors[:-LAST]
            if len(printed) > LARGEST:
                raise ValueError(f"printed more than {LARGEST} bytes")
            if ended and not ready:
                return bytes(printed), bytes(errors)
            if time.monotonic() > deadline:
                raise HangingCommandError(f"has not ended within {SECONDS} s")
            if os.getppid() != parent:
                raise ValueError("the run has ended")


def _last_line(errors: bytes) -> str:
    """The last line of the errors of a command, without control characters."""
    lines = [" ".join(line.split()) for line in errors.decode(errors="replace").split("\n")]
    shown = ["".join(letter for letter in line if letter.isprintable())[:300] for line in lines if line]
    return shown[-1] if shown else "no message"


def decoded_key(output: bytes) -> bytes:
    """A key, which a command prints raw or in base64. Text that is no base64 is no key, but rather a message.

    Raises ValueError.
    """
    try:
        key = base64.b64decode(b"".join(output.split()), validate=True)
    except binascii.Error:
        key = output
        if output.isascii() and output.decode().replace("\n", " ").replace("\r", " ").isprintable():
            raise ValueError("found text that is not base64, allowed: a key, raw or in base64") from None
    return sized_key(key)


def sized_key(key: bytes) -> bytes:
    """A key. Raises ValueError if it has another size."""
    least, most = KEY_BYTES
    if not least <= len(key) <= most:
        found = f"more than {most}" if len(key) > most else str(len(key))
        raise ValueError(f"found {found} bytes, allowed: a key of {least} to {most} bytes")
    return key
