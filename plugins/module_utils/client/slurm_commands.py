# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs commands of Slurm and of the programs that it depends on, with a time limit and a fixed output format.

A daemon that hangs must not hang the play, and `AnsibleModule.run_command` has no time limit. It also writes all of the
input before it reads, and does not work in several threads. What may take any time is left to it: apt and dpkg, the
start of a service, the build of a kernel module.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ..language.errors import CollectionError
from .environment import own_environment

SECONDS = 60
"""The time limit of a command in seconds, including its own retries."""

NO_ANSWER = 124
"""Exit status of a command that was killed because it took too long, the same as that of timeout(1)."""

NOT_STARTED = 127
"""Exit status of a command that does not exist or cannot be started, the same as that of the shell."""


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


def run(command: Sequence[str], stdin: str = "", seconds: float = SECONDS, conf: str = "") -> Answer:
    """Run a command.

    Args:
        command: the command and its arguments.
        stdin: its standard input.
        seconds: the time after which it is killed.
        conf: path of a slurm.conf instead of the host's own.
    """
    try:
        # The module's run_command has no limit of time.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command,
            input=stdin,
            env={**own_environment(), **({"SLURM_CONF": conf} if conf else {})},
            timeout=seconds,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return Answer(NO_ANSWER, "", f"no answer in {seconds} s")
    except FileNotFoundError:
        return Answer(NOT_STARTED, "", "command not found")
    except OSError as error:
        return Answer(NOT_STARTED, "", error.strerror or str(error))
    except ValueError as error:  # no command can have such an argument, with a null byte for example
        return Answer(NOT_STARTED, "", str(error))
    return Answer(done.returncode, done.stdout, done.stderr)


def output(command: Sequence[str]) -> str:
    """The output of a command. Raises CommandError with its message if it fails."""
    answer = run(command)
    if answer.status:
        raise CommandError(f"{' '.join(command)}: {answer.message}")
    return answer.output
