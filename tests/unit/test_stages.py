# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/tools/stages, which runs the stages of `make test`: here with a Makefile of a few small ones."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.once

TOOLS = Path(__file__).parents[1] / "tools"
# Each stage records that it ran. left and right wait for one another: they pass only in parallel.
MAKEFILE = f"""\
.RECIPEPREFIX = >
SHELL := bash
record = @echo $@ >> ran
meet = touch $@; for i in {{1..100}}; do [[ -e $(1) ]] && exit; sleep 0.1; done; false
good:
> $(record)
> @echo '==> first'; echo '==> second'
bad:
> $(record)
> @echo 'fatal: it broke'; exit 3
tests:
> $(record)
> @PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -q -p no:cacheprovider test_small.py
play:
> $(record)
> @echo played
left:
> @$(call meet,right)
right:
> @$(call meet,left)
late:
> @[[ -e left && -e right ]]
hang hang2:
> @sleep 1000 & echo $$! > $@.pid; wait
"""
TESTS = """\
import pytest

@pytest.mark.parametrize("path", ["a/b"])
def test_good(path):
    pass

def test_bad():
    assert 1 == 2, "one is not two"
"""

Start = Callable[..., "subprocess.Popen[str]"]
Run = Callable[..., list[str]]


def prepare(directory: Path) -> Start:
    """Write the Makefile and the files for its stages. Returns a function that starts stages there, with arguments."""
    for name, content in (("Makefile", MAKEFILE), ("test_small.py", TESTS)):
        (directory / name).write_text(content)

    def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, str(TOOLS / "stages"), *arguments]
        return subprocess.Popen(command, cwd=directory, text=True, **{"stdout": subprocess.PIPE} | options)

    return start


def finish(process: subprocess.Popen[str], rc: int) -> list[str]:
    """The lines that stages print until they end with this status."""
    output, _errors = process.communicate(timeout=120)
    assert process.returncode == rc, output
    return output.splitlines()


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts stages with arguments."""
    return prepare(tmp_path)


@pytest.fixture
def run(start: Start) -> Run:
    """A function that runs stages to their end, and returns their output."""
    return lambda *arguments, rc=0: finish(start(*arguments), rc)


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run with two failed stages: its directory and its output."""
    directory = tmp_path_factory.mktemp("failing")
    return directory, finish(prepare(directory)("tests", "play good bad"), 1)


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Return when the condition is true; a busy machine has a minute for it."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def has_ended(file: Path) -> bool:
    """Whether the process whose number the file has is gone; a zombie without a parent that reaps it counts as gone."""
    try:
        return not Path("/proc", file.read_text().strip(), "cmdline").read_bytes()
    except OSError:
        return True


def test_what_failed_is_told_after_the_table_and_the_count_last(failing: tuple[Path, list[str]]) -> None:
    _directory, printed = failing
    assert re.fullmatch(r"2 passed, 2 failed in \d+:\d\d", printed[-1])
    verdict = printed.index("        FAILED test_small.py::test_bad - AssertionError: one is not two")
    (where,) = [number for number, line in enumerate(printed) if "log: .cache/test/bad.log    again: make bad" in line]
    table = [number for number, line in enumerate(printed) if re.match(r"\w+ +(passed|FAILED) +\d+$", line)]
    assert max(table) < verdict
    assert printed[where + 1] == "        fatal: it broke"
    assert len(table) == 4
    assert "    fatal: it broke" in printed[: min(table)]
    assert "again: make good" not in " ".join(printed)


def test_no_stage_is_run_twice(failing: tuple[Path, list[str]]) -> None:
    directory, _printed = failing
    assert sorted((directory / "ran").read_text().split()) == ["bad", "good", "play", "tests"]


def test_two_lanes_run_in_parallel_and_the_next_when_one_ends(run: Run) -> None:
    assert run("left", "right", "late")[-1].startswith("3 passed, 0 failed")


def test_only_the_stages_chosen(run: Run, tmp_path: Path) -> None:
    assert run("--only", "good", "bad good", "tests")[-1].startswith("1 passed, 0 failed")
    assert run("--only", "", "bad")[-1].startswith("0 passed, 0 failed")
    assert (tmp_path / "ran").read_text().split() == ["good"]
    run("--only", "nothing", "good", rc=2)


def test_a_stage_that_hangs_is_ended(run: Run, tmp_path: Path) -> None:
    printed = run("hang@0.005 good", rc=1)
    assert any("hang: FAILED after 0:0" in line and "ended by its limit" in line for line in printed)
    assert printed[-1].startswith("1 passed, 1 failed")
    wait_until(lambda: has_ended(tmp_path / "hang.pid"), "what a stage started has to end with it")


def test_a_signal_ends_everything(start: Start, tmp_path: Path) -> None:
    process = start("good hang", "hang2")
    pids = [tmp_path / "hang.pid", tmp_path / "hang2.pid"]
    wait_until(lambda: all(pid.exists() and pid.read_text() for pid in pids), "both lanes hang")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    wait_until(lambda: all(has_ended(pid) for pid in pids), "no stage runs on")


def test_the_last_line_of_a_stage_is_printed_each_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loader = SourceFileLoader("stages", str(TOOLS / "stages"))
    stages: Any = ModuleType("stages")
    monkeypatch.setitem(sys.modules, "stages", stages)
    loader.exec_module(stages)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stages, "LOGS", tmp_path)
    monkeypatch.setattr(stages, "MINUTE", 0.01)
    runs = stages.Stage("runs", 60, process=object(), began=time.monotonic())
    runs.log.write_text("TASK [First]\n\n")
    has_ended, ended = stages.Stage("ended", 60, process=object(), status=0), threading.Event()
    thread = threading.Thread(target=stages.report_progress, args=([runs, has_ended], ended))
    thread.start()
    time.sleep(0.5)
    ended.set()
    thread.join()
    printed = capsys.readouterr().out
    assert "runs 0:00: TASK [First]" in printed
    assert "ended 0:" not in printed
