# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Calls of the GPU driver's programs by slurm-gpu-metrics, and what it keeps between two runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypedDict

from ...client.environment import own_environment
from ...host.json_files import read_record
from ...host.replacing import replace
from ...language.series import Series


def read(path: Path) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def number(text: str | None) -> float | None:
    """The number at the beginning of a value such as `36` or `78.22 W`; None for `[N/A]` and the like."""
    found = re.match(r"-?\d+(\.\d+)?", (text or "").strip())
    return float(found[0]) if found else None


class GpuUse(TypedDict):
    """What samples say of a job on a GPU. Times are seconds since boot."""

    labels: dict[str, str]
    start: str
    """When the job has started, since a requeued job has its number again."""
    since: float
    """When it had the GPU first."""
    busy: float
    measured: float
    seen: float
    """When the job had the GPU last."""


@dataclass
class GpuState:
    """What is kept between two runs, until the next boot."""

    failures: dict[str, int] = field(default_factory=dict)
    """Failed calls by query."""
    hanging: list[int] = field(default_factory=list)
    """The process that could not be killed, and its start in clock ticks since boot."""
    unknown: list[str] = field(default_factory=list)
    """Fields that this nvidia-smi does not know."""
    xids: dict[str, int] = field(default_factory=dict)
    """The last Xid by PCI address without the function."""
    xids_until: int = -1
    """The time of the last of them, in microseconds since boot."""
    xid_log: list[list[Any]] = field(default_factory=list)
    """Time, PCI address and number of the last ones."""
    slurmd_after: float = 0.0
    """When slurmd may be asked again, after an answer that was of no use."""
    use: dict[str, GpuUse] = field(default_factory=dict)
    """By job and GPU."""
    recent: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Times, in seconds since boot, and values of the last samples, by GPU."""

    @classmethod
    def load(cls, path: Path) -> GpuState:
        """What the last run has kept. What is no longer understood is left out."""
        found = read_record(str(path))
        return cls(**{key: found[key] for key, value in vars(cls()).items() if isinstance(found.get(key), type(value))})

    def save(self, path: Path) -> None:
        """Keep it."""
        replace(str(path), json.dumps(vars(self)).encode(), 0o600)


def start_of(process: int) -> int | None:
    """When a process has started, in clock ticks since boot; None if it has ended."""
    stat = read(Path(f"/proc/{process}/stat"))
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] != "Z" else None


class DriverCalls:
    """Runs the driver's programs, each with a time limit, and none while one hangs in the kernel."""

    def __init__(self, state: GpuState, series: Series) -> None:
        self._state = state
        self._series = series

    def hangs(self) -> bool:
        """Whether a process of this or an earlier run is still there."""
        if self._state.hanging and start_of(self._state.hanging[0]) != self._state.hanging[1]:
            self._state.hanging = []
        return bool(self._state.hanging)

    def run(self, query: str, command: Sequence[str], seconds: float) -> tuple[int, str] | None:
        """Exit status and output of a command; None if it was not started, or took too long."""
        if self.hangs():
            return None
        started = time.monotonic()
        answer = self._answer(command, seconds)
        self._series.add("gpucluster_gpu_query_seconds", round(time.monotonic() - started, 3), query=query)
        return answer

    def count_failure(self, query: str) -> None:
        """Record that a query had no answer of use."""
        self._state.failures[query] = self._state.failures.get(query, 0) + 1

    def _answer(self, command: Sequence[str], seconds: float) -> tuple[int, str] | None:
        # A file in memory, since a process that is left behind would hold a pipe open.
        with os.fdopen(os.memfd_create("output"), "w+b") as output:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=own_environment(),
                    start_new_session=True,
                )
            except OSError:
                return None
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._end(process)
                return None
            return status, _content(output)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a process. One that waits in the kernel (state D) takes no signal, and is left behind."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            self._state.hanging = [process.pid, start_of(process.pid) or 0]


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
