# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plugin of pytest that writes each test's start and end to the file named by STAGE_EVENTS, for tests/tools/stages.

A line is an event in JSON: its kind (`test`, `play` or `playbook`), its name and, at its end, the seconds that it took
and `words`, the first words of the error. The lines are also there when a stage hangs or is killed.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Ansible's callback imports this module as well, and needs no pytest.
    import pytest

LENGTH = 600  # characters of an error

took: dict[str, float] = {}  # seconds of the phases of the test that runs: setup, call, teardown
wrong: dict[str, str] = {}


def tell(kind: str, name: str, seconds: float | None = None, words: str = "") -> None:
    """Write one event; an event without seconds is a start."""
    with open(os.environ["STAGE_EVENTS"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"kind": kind, "name": name, "seconds": seconds, "words": words}) + "\n")


def words(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The first words of a failure, in one line: those of the exception if pytest knows them, else of the traceback."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join(str(crash.message if crash else report.longrepr).split())[:LENGTH]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be imported counts as a failed test with the name of the file."""
    if report.failed:
        tell("test", report.nodeid, 0, words(report))


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins, its fixtures included."""
    tell("test", nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A phase of a test has ended; only the first failure is kept."""
    took[report.nodeid] = took.get(report.nodeid, 0) + report.duration
    if report.failed:
        wrong.setdefault(report.nodeid, words(report))


def pytest_runtest_logfinish(nodeid: str) -> None:
    """A test has ended."""
    tell("test", nodeid, took.pop(nodeid, 0), wrong.pop(nodeid, ""))
