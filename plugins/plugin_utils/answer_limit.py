# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits for what a host can do to the control host through ssh: the output of a command, and processes that stay.

Ansible reads the output of ssh into memory until it ends, and leaves an ssh running whose task has reached its limit of
time. The connection plugin has no option for either, so its processes are replaced by `Ssh`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import types
from typing import IO, Any, ClassVar

from ansible.errors import AnsibleError
from ansible.plugins.connection import ssh as plugin

LIMIT = 2**22
"""Bytes of the output of one command on a host. Ansible shows all of it if it is no answer of a module."""

OWN_LIMIT = 2**24
"""The same for modules of this collection, whose answers are checked. The largest plans have some millions."""

CHUNK = 2**20
"""Bytes that are read at most at once. The plugin copies what it has for each chunk."""

AFTERWARDS = 10
"""Seconds for a command without a limit of its own, if an earlier one had to be ended: Ansible removes temporary files
after the limit of a task (`ActionBase.cleanup`)."""


def limit_answers(value: Any = None, limit: int = LIMIT) -> Any:
    """From now on, limit what hosts do through ssh in this process and in its children.

    Args:
        value: what is returned, so that a playbook can use this as a filter.
        limit: bytes of the output of one command.
    """
    Ssh.limit = limit
    limited = types.ModuleType(subprocess.__name__)
    vars(limited).update(vars(subprocess))
    vars(limited)["Popen"] = Ssh
    vars(plugin)["subprocess"] = limited
    return value


class Ssh(subprocess.Popen[bytes]):
    """A process of ssh that is ended when it has said too much, and when nobody listens to it any longer."""

    limit: ClassVar[int] = LIMIT
    """Bytes of its output."""

    had_to_be_ended: ClassVar[bool] = False
    """Whether this process has ended an ssh before it was ready."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.said = 0
        if self.stdin:
            self.stdin = Input(self, self.stdin)  # type: ignore[assignment]
        if self.stdout and self.stderr:
            self.stdout, self.stderr = Output(self, self.stdout), Output(self, self.stderr)  # type: ignore[assignment]
        if Ssh.had_to_be_ended and not signal.getitimer(signal.ITIMER_REAL)[0]:
            timer = threading.Timer(AFTERWARDS, self.end)
            timer.daemon = True
            timer.start()

    def end(self) -> None:
        """End it, if it has not ended by itself."""
        if self.poll() is None:
            Ssh.had_to_be_ended = True
            self.kill()

    def count(self, size: int) -> None:
        """Count output.

        Raises:
            AnsibleError: it is too much.
        """
        self.said += size
        if self.said > self.limit:
            self.end()
            raise AnsibleError(
                f"The host answered one command with more than {self.limit >> 20} MiB. The answer was cut off, and the "
                "host is left out of this run. Check what its shell, sudo and Python print when they start (ssh HOST "
                "true | wc -c), and whether somebody has taken it over."
            )


class Output:
    """The output of ssh, or its errors."""

    def __init__(self, ssh: Ssh, stream: IO[bytes]) -> None:
        self._ssh, self._stream = ssh, stream

    def read(self) -> bytes:
        """The next bytes; none at the end. Python's own `read` would not return while a host is faster than it."""
        chunk = bytearray()
        with contextlib.suppress(BlockingIOError):
            while len(chunk) < CHUNK and (part := os.read(self._stream.fileno(), CHUNK)):
                chunk += part
        self._ssh.count(len(chunk))
        return bytes(chunk)

    def close(self) -> None:
        """Close it. The plugin waits for the end of ssh before, unless it has given up."""
        self._ssh.end()
        self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Input:
    """The input of ssh, without a buffer. The plugin closes it also when it has given up, and a buffer would then still
    be written, to a host that does not read it.
    """

    def __init__(self, ssh: Ssh, stream: IO[bytes]) -> None:
        self._ssh = ssh
        self._raw: Any = stream.detach() if hasattr(stream, "detach") else stream

    def write(self, data: bytes) -> int:
        """Write all of it. If the limit of time is reached meanwhile, nobody else ends ssh."""
        left = memoryview(data)
        try:
            while left:
                left = left[self._raw.write(left) :]
        except OSError:
            raise  # ssh has ended, or no longer reads
        except BaseException:
            self._ssh.end()
            raise
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)
