# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of `make test` while it runs: lines that stay, and one line for each lane that a terminal updates."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stage_times import clock

SELDOM = 60.0  # seconds after which an unchanged line of a lane is written again
OFTEN = 5.0  # seconds between two lines of a lane: there are thousands of unit tests


class State(NamedTuple):
    """The stage of a lane and its current step, with the seconds since the start of the stage and of the step."""

    stage: str
    doing: str
    seconds: float
    since: float

    def __str__(self) -> str:
        return f"{self.stage} {clock(self.seconds)}: {self.doing or 'started'} ({clock(self.since)})"


class Board:
    """The lines of a run, also written to a plain log file. Without a terminal the same lines are printed."""

    def __init__(self, log: Path) -> None:
        self.file = log.open("w", encoding="utf-8")
        self.terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.start = time.monotonic()
        self.drawn: list[str] = []  # lines that are updated
        self.drawn_at = 0.0
        self.written: dict[str, tuple[str, float]] = {}  # by stage: the step in its last line, and the time of the line

    def write(self, *lines: str, file_only: bool = False) -> None:
        """Add lines that stay."""
        text = "".join(f"{line}\n" for line in lines)
        print(text, end="", file=self.file, flush=True)
        if not file_only:
            drawn = self.drawn
            self.draw([])
            print(text, end="", flush=True)
            self.draw(drawn)
            self.drawn_at = 0.0  # these lines are out of date by now

    def say(self, text: str, file_only: bool = False) -> None:
        """Add a line that stays, after the time since the start."""
        self.write(f"[{clock(time.monotonic() - self.start):>6}] {text}", file_only=file_only)

    def show(self, states: Sequence[State]) -> None:
        """Show the state of each lane: updated each second; as new lines on a change, and at least each minute."""
        now = time.monotonic()
        for state in states:
            doing, at = self.written.get(state.stage, ("", now))
            if now - at >= (OFTEN if doing != state.doing else SELDOM):
                self.say(str(state), file_only=self.terminal)
                doing, at = state.doing, now
            self.written[state.stage] = doing, at
        if self.terminal and now - self.drawn_at >= 1:
            self.draw([f"  {state}" for state in states])

    def draw(self, lines: list[str]) -> None:
        """Replace the lines that were drawn last with these."""
        if not self.terminal or not (lines or self.drawn):
            return
        width = shutil.get_terminal_size().columns - 1  # a line that wraps could not be taken back
        back = f"\x1b[{len(self.drawn)}A" if self.drawn else ""
        print(back + "\x1b[J" + "".join(f"{line[:width]}\n" for line in lines), end="", flush=True)
        self.drawn, self.drawn_at = lines, time.monotonic()
