# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress and times of a stage of `make test`, read from its output and its events (reporting/)."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# Steps of a stage, in its output: headings of the Makefile, molecule's actions, ansible-test's tests.
STEP = re.compile(r'(?:==> (.+)|INFO +\[\S+ > (\w+)\] Execut.*|Running sanity test "([\w-]+)")')
# Lines that report a failure.
TELLING = re.compile(
    r"fatal: |failed: |UNREACHABLE|FAILED!|^E  |CRITICAL|Traceback"
    r"|^ERROR: |: error: |^ +\d+:\d+ +error"  # ansible-test, mypy, yamllint
)
# Numbers of lines that are shown: from each such line on, of all of them together, and at the end of the output.
FOLLOWING, TOLD, TAIL = 6, 40, 15
LONG = 5  # seconds after which the end of a test is news
LENGTH = 120  # characters of a name; names of tests include their parameters


@dataclass
class Spent:
    """The seconds that all items of one name took together, and their number."""

    seconds: float = 0
    times: int = 0

    def add(self, seconds: float) -> None:
        """Add one item."""
        self.seconds, self.times = self.seconds + seconds, self.times + 1


Counts = defaultdict[str, Spent]  # by name


class Growing:
    """A file that another process is writing."""

    def __init__(self, path: Path) -> None:
        self.file = path.open(encoding="utf-8", errors="replace")
        self.rest = ""

    def lines(self) -> Iterator[str]:
        """The lines that were completed since the last call."""
        while part := self.file.readline():
            self.rest += part
            if part.endswith("\n"):
                yield self.rest[:-1]
                self.rest = ""


@dataclass
class Reading:
    """One stage, read from the files that its processes write: `look` reads on.

    doing: the step or test, and the play, that runs; since: when it began. news: messages to print at once; the caller
    that prints them removes them. failures: tests that failed, each with the first words of its error. playbook_runs:
    how often ansible-playbook was started, including runs that were killed and have no time.
    """

    log: Path
    events: Path
    doing: str = ""
    since: float = field(default_factory=time.monotonic)
    news: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    playbook_runs: int = 0
    steps: Counts = field(default_factory=lambda: defaultdict(Spent))
    tests: Counts = field(default_factory=lambda: defaultdict(Spent))
    plays: Counts = field(default_factory=lambda: defaultdict(Spent))
    playbooks: Counts = field(default_factory=lambda: defaultdict(Spent))

    def __post_init__(self) -> None:
        self.output, self.events_told = Growing(self.log), Growing(self.events)
        self.step, self.step_began = "", self.since
        self.running: dict[str, str] = {}  # names, by kind

    def look(self) -> None:
        """Read the lines that were written since the last call."""
        for line in self.output.lines():
            if found := STEP.match(line):
                self.begin_step(next(filter(None, found.groups())))
        for line in self.events_told.lines():
            with contextlib.suppress(ValueError):  # a process that was killed while it wrote
                self.take(**json.loads(line))
        doing = " > ".join(filter(None, (self.running.get("test") or self.step, self.running.get("play"))))
        if doing != self.doing:
            self.doing, self.since = doing, time.monotonic()

    def begin_step(self, name: str) -> None:
        """A step begins, and ends the one before; an empty name only ends that one."""
        now = time.monotonic()
        if self.step:
            self.steps[self.step].add(now - self.step_began)
        self.step, self.step_began = name, now

    def take(self, kind: str, name: str, seconds: float | None, words: str) -> None:
        """Take in one event."""
        file, colons, test = name.partition("::")
        short = f"{file.rpartition('/')[2]}{colons}{test}"[:LENGTH]
        if kind == "test":
            self.running.pop("play", None)  # a play that a test has killed writes no end
        if seconds is None:
            self.running[kind] = short
            self.playbook_runs += kind == "playbook"
            return
        self.running.pop(kind, None)
        {"test": self.tests, "play": self.plays, "playbook": self.playbooks}[kind][short].add(seconds)
        if words:
            self.failures.append(f"{name} - {words}")
            self.news.append(f"{short} FAILED after {seconds:.0f} s: {words}")
        elif kind == "test" and seconds >= LONG:
            self.news.append(f"{short} ended after {seconds:.0f} s")

    def finish(self) -> None:
        """Read the rest, once the stage has ended."""
        self.look()
        self.begin_step("")

    def lines(self) -> list[str]:
        """The output."""
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()

    def verdicts(self) -> list[str]:
        """The failed tests; or the last line of the output that reports a failure, if a stage failed without tests."""
        return self.failures or [line for line in self.lines() if TELLING.search(line)][-1:]

    def excerpt(self) -> list[str]:
        """The lines of the output that report failures, and its last lines."""
        lines = self.lines()
        told: list[str] = []
        following = 0
        for line in lines[:-TAIL]:
            following = FOLLOWING if TELLING.search(line) else following - 1
            if following > 0:
                told.append(line)
        return [*told[-TOLD:], *(["..."] if told else []), *lines[-TAIL:]]
