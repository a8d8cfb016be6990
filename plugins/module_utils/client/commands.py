# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs commands with a time limit, in a process group of their own, with an environment that fixes their output.

A daemon that hangs must not hang the play, and `AnsibleModule.run_command` has no time limit. It also writes all of the
input before it reads, and does not work in several threads. What may take any time is left to it: apt and dpkg, the
start of a service, the build of a kernel module.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ..language.errors import CollectionError
from ..language.formatting import short
from .environment import own_environment

SECONDS = 60
"""The time limit of a command in seconds, including its own retries."""

NO_ANSWER = 124
"""Exit status of a command that was killed because it took too long, the same as that of timeout(1)."""

NOT_STARTED = 127
"""Exit status of a command that does not exist or cannot be started, the same as that of the shell."""

_SHOWN = 200
"""Characters of a command in the message of its error; some have the names of all packages."""


class CommandError(CollectionError):
    """A command that has failed, with its message."""


class Answer(NamedTuple):
    """The result of a command."""

    status: int
    """Its exit status, NO_ANSWER or NOT_STARTED."""
    output: str
    errors: str

    @property
    def message(self) -> str:
        """The message of a command that has failed. Some commands of Slurm print their errors to standard output."""
        said = f"{self.errors.strip()} {self.output.strip()}".strip()
        if self.status < 0:
            with suppress(ValueError):  # a signal without a name
                return f"ended by {signal.Signals(-self.status).name}{f': {said}' if said else ''}"
        return said or f"exit status {self.status}"


def run(
    command: Sequence[str],
    stdin: str = "",
    seconds: float | None = SECONDS,
    conf: str = "",
    environment: Mapping[str, str] | None = None,
    own_group: bool = True,
    directory: str | None = None,
    grace: float = 0,
) -> Answer:
    """Run a command in a process group of its own, which ends with it if it takes too long.

    Args:
        command: the command and its arguments.
        stdin: its standard input.
        seconds: the time after which it is killed; None: never.
        conf: path of a slurm.conf instead of the host's own.
        environment: further variables, or other values of the collection's own.
        own_group: whether it has its own process group and session. A person ends those of the terminal with Ctrl-C.
        directory: the directory in which it runs, instead of the present one.
        grace: the seconds in which it can end itself before it is killed.
    """
    try:
        # The module's run_command has no limit of time.
        process = subprocess.Popen(  # pylint: disable=ansible-bad-function
            command,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=directory,
            env={**own_environment(), **({"SLURM_CONF": conf} if conf else {}), **(environment or {})},
            start_new_session=own_group,
            encoding="utf-8",
            errors="replace",
        )
    except FileNotFoundError:
        return Answer(NOT_STARTED, "", "command not found")
    except OSError as error:
        return Answer(NOT_STARTED, "", error.strerror or str(error))
    except ValueError as error:  # no command can have such an argument, with a null byte for example
        return Answer(NOT_STARTED, "", str(error))
    try:
        said, errors = process.communicate(stdin or None, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        end(process, grace)
        return Answer(NO_ANSWER, "", f"no answer in {round(error.timeout, 1):g} s")
    except BaseException:  # a signal, such as that of Ctrl-C, ends this program alone
        end(process)
        raise
    return Answer(process.returncode, said, errors)


def end(process: subprocess.Popen[Any], grace: float = 0) -> None:
    """Kill a command and its children. grace: the seconds in which it can end them itself, as srun ends its tasks.

    The kernel may not be able to end one that waits for a file server, so it is waited for a second only.
    """
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 1)):
        if seconds:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            process.send_signal(number)  # one without a group of its own
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=seconds)
                return


def output(command: Sequence[str], seconds: float = SECONDS, environment: Mapping[str, str] | None = None) -> str:
    """The output of a command. Raises CommandError with its message if it fails."""
    answer = run(command, seconds=seconds, environment=environment)
    if answer.status:
        raise CommandError(f"{short(' '.join(command), _SHOWN)}: {answer.message}")
    return answer.output


class CommandsUntil:
    """Commands that all end before one deadline."""

    def __init__(self, seconds: float, environment: Mapping[str, str] | None = None) -> None:
        """Begin the time. environment: as for `run`."""
        self._deadline = time.monotonic() + seconds
        self._environment = environment

    def output(self, *command: str) -> str:
        """The output of a command. Raises CommandError, in one line, if it fails or does not end in time."""
        seconds = min(SECONDS, max(0.0, self._deadline - time.monotonic()))
        answer = run(command, seconds=seconds, environment=self._environment)
        if answer.status:
            last_line = answer.message.rpartition("\n")[2]
            raise CommandError(f"{command[0]}: {last_line[:300]}")
        return answer.output
