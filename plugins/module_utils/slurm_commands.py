# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs commands of Slurm, and those of what it depends on: with a limit of time, and with output of one form.

A daemon that hangs must not hang the play, and `AnsibleModule.run_command` knows no limit of time. That also writes all
of the input before it reads, and is not made for several threads.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

SECONDS = 60
"""The time that a command may take, its own retries included."""

NO_ANSWER = 124
"""Exit status of a command that was ended because it took too long, as timeout(1) has it."""

NOT_STARTED = 127
"""Exit status of a command that is not there or cannot be started, as the shell has it."""

ENVIRONMENT = {"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "standard"}
"""Variables on which the output of Slurm's commands depends, such as how scontrol writes times."""


class CommandError(Exception):
    """A command that has failed, with its words."""


class Answer(NamedTuple):
    """What has become of a command."""

    status: int
    """Its exit status, NO_ANSWER or NOT_STARTED."""
    output: str
    errors: str

    @property
    def words(self) -> str:
        """What a command that has failed says of it; some commands of Slurm print their errors as output."""
        return f"{self.errors.strip()} {self.output.strip()}".strip() or f"exit status {self.status}"


def run(command: Sequence[str], stdin: str = "", seconds: float = SECONDS, conf: str = "") -> Answer:
    """Run a command.

    Args:
        command: the command and its arguments.
        stdin: what it reads.
        seconds: the time after which it is ended.
        conf: path of a slurm.conf instead of the host's own.
    """
    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command,
            input=stdin,
            env={**os.environ, **ENVIRONMENT, **({"SLURM_CONF": conf} if conf else {})},
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
    return Answer(done.returncode, done.stdout, done.stderr)


def output(command: Sequence[str]) -> str:
    """What a command prints. Raises CommandError with the words of one that fails."""
    answer = run(command)
    if answer.status:
        raise CommandError(f"{' '.join(command)}: {answer.words}")
    return answer.output
