# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""The results of slurm-accept, and the commands that it runs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from ...acceptance.catalog import TESTS
from ...client import commands
from ...client.environment import ENVIRONMENT
from ...language.errors import CollectionError

MIB, GIB = 1 << 20, 1 << 30

TEXT = 300
"""Characters of a text."""

CLEAN = {
    "PATH": ENVIRONMENT["PATH"],
    "HOME": "/tmp",
    # mpirun refuses root without these.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
"""Variables of programs of this node alone. With those of Slurm, mpirun would start its tasks by srun."""

GRACE = 5
"""Seconds in which srun can end its tasks."""


class MeasureError(CollectionError):
    """Why there is no value, in one line."""


@dataclass
class Results:
    """What is wanted, and where the results go."""

    nodes: list[str]
    tests: frozenset[str]
    hardware: str = ""
    image: str = ""
    driver: str = ""

    def wanted(self, *tests: str) -> list[str]:
        """The wanted ones of these tests."""
        return [test for test in tests if test in self.tests]

    @property
    def other(self) -> str:
        """The other node of a pair. Slurm runs the script on the one that it knows first."""
        return next(name for name in self.nodes if name != os.environ.get("SLURMD_NODENAME", self.nodes[0]))

    def add(self, test: str, value: float, gpu: int | None = None, size: int | None = None, text: str = "") -> None:
        """Print a value, if its test is wanted. text: the part of the node that it is of, if it is not a GPU."""
        if not math.isfinite(value) or value <= 0:
            self.miss(test, f"the value is {value}")
        elif test in self.tests:
            self._print(test, float(f"{value:.6g}"), TESTS[test].unit, text, gpu, size)

    def check(self, test: str, fault: str, gpu: int | None = None) -> None:
        """Print the result of a check, if it is wanted: the fault, or nothing."""
        if test in self.tests:
            self._print(test, 0 if fault else 1, "ok", fault, gpu, None)

    def miss(self, test: str, why: str) -> None:
        """Say why a wanted test has no result."""
        if test in self.tests:
            print(f"not measured: {test}: {' '.join(why.split())[:TEXT]}", flush=True)

    def _print(self, test: str, value: float, unit: str, text: str, gpu: int | None, size: int | None) -> None:
        result = {
            "test": test,
            "value": value,
            "unit": unit,
            "nodes": self.nodes,
            "gpu": gpu,
            "size": size,
            "text": " ".join(text.split())[:TEXT],
            "hardware": self.hardware,
            "driver": self.driver,
            "image": self.image,
            "job": int(os.environ.get("SLURM_JOB_ID", "0")),
            "time": int(time.time()),
        }
        print(json.dumps(result), flush=True)

    @contextlib.contextmanager
    def named(self, *tests: str) -> Iterator[None]:
        """Turn an error into lines that say why these tests have no result."""
        try:
            yield
        except (MeasureError, OSError, ValueError, LookupError, ElementTree.ParseError) as error:
            why = str(error) if isinstance(error, (MeasureError, OSError)) else f"unknown output: {error}"
            for test in tests:
                self.miss(test, why)


def run(command: Sequence[str], seconds: float, clean: bool = True, directory: str | None = None) -> str:
    """The output of a command. Raises MeasureError if it is missing, fails or does not end in time."""
    variables = CLEAN if clean else os.environ
    answer = commands.run(command, seconds=seconds, environment=variables, directory=directory, grace=GRACE)
    if answer.status:
        said = (answer.errors.strip() or answer.output.strip()).split("\n")[-1]
        how = "" if answer.status in (commands.NO_ANSWER, commands.NOT_STARTED) else f" ended with {answer.status}"
        raise MeasureError(f"{command[0]}{how}: {said}")
    return answer.output


@contextlib.contextmanager
def background(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs meanwhile. Raises MeasureError if it is missing."""
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        raise MeasureError(f"{command[0]}: {error.strerror}") from error
    try:
        yield process
    finally:
        commands.end(process, GRACE)


def there(program: str) -> str:
    """The path of a program; empty if it is not installed."""
    return shutil.which(program, path=CLEAN["PATH"]) or ""


def run_any(command: Sequence[str], seconds: float) -> str:
    """The output of a command whose exit status is part of its answer. Raises MeasureError."""
    return run(["sh", "-c", '"$@" || true', "sh", *command], seconds)
