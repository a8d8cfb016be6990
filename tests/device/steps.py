# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of `check`: their time limits, their lines and the log of their commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from anonymous import Names

TIMED_OUT = 124
"""Exit status of a command that took too long, as of timeout(1)."""
NOT_STARTED = 127
"""Exit status of a command that cannot be started, as of the shell."""


class StepError(Exception):
    """A step that failed, with the reason."""


class AbsentError(Exception):
    """A step that this machine cannot take, with the reason. It is no failure."""


class Answer(NamedTuple):
    """The result of a command."""

    status: int
    output: str
    errors: str

    @property
    def message(self) -> str:
        """The last line that it printed, errors first, or its exit status."""
        lines = [line.strip() for line in f"{self.output}\n{self.errors}".split("\n") if line.strip()]
        return lines[-1] if lines else f"exit status {self.status}"


def content(file: IO[bytes]) -> str:
    """What a command has written to a file."""
    file.seek(0)
    return file.read().decode(errors="replace")


class Steps:
    """Runs steps and commands, within one time limit for all of them.

    Args:
        out: the directory of the results.
        seconds: the time limit of all steps together.
    """

    def __init__(self, out: Path, seconds: float) -> None:
        self.out = out
        self.end = time.monotonic() + seconds
        self.names = Names()
        self.lines: list[dict[str, object]] = []
        self._log = (out / "check.log").open("w", encoding="utf-8")

    def log(self, text: str) -> None:
        """Write text to the log, without what identifies the machine."""
        self._log.write(self.names.replaced(text) + "\n")
        self._log.flush()

    def command(
        self,
        command_line: Sequence[str | Path],
        seconds: float = 20,
        stdin: str = "",
        logged: bool = True,
    ) -> Answer:
        """Run a command, log it with its output, and return its answer. A command that hangs is killed."""
        started = time.monotonic()
        limit = max(1.0, min(seconds, self.end - started))
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as given:
            given.write(stdin.encode())
            given.seek(0)
            try:
                process = subprocess.Popen(
                    [str(part) for part in command_line],
                    stdin=given,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,
                )
                status = process.wait(limit)
                late = ""
            except subprocess.TimeoutExpired:
                # What a hung driver holds cannot be killed, so it is not waited for.
                os.killpg(process.pid, signal.SIGKILL)
                status, late = TIMED_OUT, f"\nno answer in {limit:.0f} s\n"
            except OSError as error:
                status, late = NOT_STARTED, f"{error}\n"
            answer = Answer(status, content(output), content(errors) + late)
        took = time.monotonic() - started
        if logged:
            shown = " ".join(map(str, command_line))
            self.log(f"$ {shown}\n{answer.output}{answer.errors}[{answer.status}, {took:.2f} s]\n")
        return answer

    def answer(self, command_line: Sequence[str | Path], seconds: float = 20, stdin: str = "") -> str:
        """The output of a command that has to succeed; otherwise the step fails with its message."""
        answer = self.command(command_line, seconds, stdin)
        if answer.status:
            raise StepError(f"{Path(command_line[0]).name}: {answer.message}")
        return answer.output

    def take(self, name: str, function: Callable[[], str]) -> None:
        """Take a step. Its figures or the reason of its failure become a line."""
        started = time.monotonic()
        self.log(f"==== {name}")
        try:
            if started > self.end:
                raise StepError("the time of the whole check was over before it")
            result, figures = "pass", function()
        except AbsentError as reason:
            result, figures = "none", str(reason)
        except StepError as reason:
            result, figures = "fail", str(reason)
        except Exception as error:  # one step must not take the others with it
            result, figures = "fail", f"{type(error).__name__}: {error}"
        seconds = round(time.monotonic() - started, 1)
        self.log(f"{result} {name}: {figures} ({seconds} s)\n")
        figures = self.names.replaced(" ".join(figures.split()))
        print(f"{result} {name}: {figures} ({seconds} s)", flush=True)
        self.lines.append({"result": result, "step": name, "figures": figures, "seconds": seconds})
        # Written after each step: a run that is killed leaves what it has.
        (self.out / "check.json").write_text(json.dumps(self.lines, indent=2) + "\n")

    def failed(self) -> int:
        """The number of steps that failed."""
        return sum(line["result"] == "fail" for line in self.lines)


def wait_for(condition: Callable[[], object], seconds: float, pause: float = 0.3) -> bool:
    """Wait until a condition holds. Returns whether it does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(pause)
    return bool(condition())


def say(text: str) -> None:
    """Print a line that is no result."""
    print(text, file=sys.stderr, flush=True)
