# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run stages as processes of make, two lanes at a time, and watch them in one loop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from stage_board import Board, State
from stage_reading import Reading
from stage_times import Result, clock, keep

LOGS = Path(".cache/test")
TIMES = LOGS / "times.json"
REPORTING = Path(__file__).resolve().parent / "reporting"
BESIDE = 2  # lanes; a third one slows the others down as much as it gains, and emulated machines time out
TICK = 0.1  # seconds between two looks at what runs
GRACE = 5  # seconds that a stage has to end after its signal


def environment(events: Path) -> dict[str, str]:
    """The environment of a stage: plain output, and plugins of pytest and Ansible that write events."""

    def joined(name: str, separator: str, value: str) -> str:
        return separator.join(filter(None, (os.environ.get(name), value)))

    return {
        **os.environ,
        "NO_COLOR": "1",
        "PY_COLORS": "0",
        "COLUMNS": "250",
        "STAGE_EVENTS": str(events.absolute()),
        "PYTHONPATH": joined("PYTHONPATH", ":", str(REPORTING)),
        "PYTEST_ADDOPTS": joined("PYTEST_ADDOPTS", " ", "-p stage_events"),
        "ANSIBLE_CALLBACK_PLUGINS": joined("ANSIBLE_CALLBACK_PLUGINS", ":", str(REPORTING / "callback_plugins")),
    }


class Stage:
    """One `make STAGE` that runs, its output going into a log file."""

    def __init__(self, name: str) -> None:
        self.name, self.start = name, time.monotonic()
        log, events = LOGS / f"{name}.log", LOGS / f"{name}.events"
        events.write_bytes(b"")
        with log.open("w") as output:
            # In a process group of its own, so that all of it can be ended.
            self.process = subprocess.Popen(
                ["make", "--no-print-directory", name],
                env=environment(events),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.reading = Reading(log, events)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    @property
    def state(self) -> State:
        """The stage and its current step."""
        return State(self.name, self.reading.doing, self.seconds, time.monotonic() - self.reading.since)

    def tell_news(self, board: Board) -> None:
        """Print its news."""
        for text in self.reading.news:
            board.say(f"{self.name}: {text}")
        self.reading.news.clear()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self) -> None:
        """End it early, with all of its processes."""
        self.send(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        self.send(signal.SIGKILL)


def run(lane: Sequence[str], limits: Mapping[str, float], board: Board) -> Generator[Stage | Result]:
    """Run the stages of a lane, one after another. Yields the stage while it runs, and its result at its end."""
    for name in lane:
        board.say(f"{name}: started")
        stage, late = Stage(name), ""
        try:
            while stage.process.poll() is None:
                if stage.seconds > limits[name] and not late:
                    late = f", ended by its limit during {stage.reading.doing or 'its start'}"
                    stage.send(signal.SIGKILL)
                stage.reading.look()
                stage.tell_news(board)
                yield stage
        finally:
            if stage.process.poll() is None:  # the lane was closed
                stage.end()
        stage.reading.finish()
        stage.tell_news(board)
        result = Result(name, stage.seconds, stage.process.returncode == 0, stage.reading)
        keep(TIMES, result)
        board.say(f"{name}: {'passed in' if result.passed else 'FAILED after'} {clock(result.seconds)}{late}")
        yield result


def run_all(lanes: Sequence[Sequence[str]], limits: Mapping[str, float], board: Board) -> list[Result]:
    """Run every lane, BESIDE of them at a time. limits: seconds after which each stage is ended."""
    waiting = [run(lane, limits, board) for lane in lanes]
    running: list[Generator[Stage | Result]] = []
    results: list[Result] = []
    try:
        while waiting or running:
            while waiting and len(running) < BESIDE:
                running.append(waiting.pop(0))
            states = []
            for lane in list(running):
                now = next(lane, None)
                if now is None:
                    running.remove(lane)
                elif isinstance(now, Result):
                    results.append(now)
                else:
                    states.append(now.state)
            board.show(states)
            time.sleep(TICK)
    finally:
        for lane in running:
            lane.close()
    return results
