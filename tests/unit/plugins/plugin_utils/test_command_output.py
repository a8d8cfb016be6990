# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands whose output all processes of a run know."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import bounded_command
from ansible_collections.gpucluster.slurm.plugins.plugin_utils import command_output

SECRET = "s3cret"


@pytest.fixture(autouse=True)
def no_memory() -> Iterator[None]:
    """No run before or after a test."""
    command_output._memories.clear()
    yield
    command_output._memories.clear()


def program(directory: Path, text: str) -> list[str]:
    """A command that notes that it was called, and then does this."""
    path = directory / "give"
    path.write_text(f"#!/bin/sh\necho >>{directory}/calls\n{text}\n")
    path.chmod(0o700)
    return [str(path)]


def calls(directory: Path) -> int:
    """How often it was called."""
    return (directory / "calls").read_text().count("\n")


def in_processes(count: int, command: list[str], directory: Path) -> list[int]:
    """Fork processes that ask at the same time; their exit statuses: 0 for the secret, 1 for an error."""
    numbers = []
    for _process in range(count):
        if (number := os.fork()) == 0:
            try:
                os._exit(0 if command_output.output(command, str(directory)).strip() == SECRET.encode() else 2)
            except ValueError:
                os._exit(1)
        numbers.append(number)
    return [os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) for number in numbers]


def test_one_process_asks_and_the_others_know_it(tmp_path: Path) -> None:
    command_output.share_outputs(str(tmp_path))
    command = program(tmp_path, f"sleep 0.2; echo {SECRET}")
    assert in_processes(8, command, tmp_path) == [0] * 8
    assert calls(tmp_path) == 1
    assert command_output.output(command, str(tmp_path)) == f"{SECRET}\n".encode()
    assert calls(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir() if path.stat().st_size > 50] == ["give"]


def test_an_error_is_known_as_well(tmp_path: Path) -> None:
    command_output.share_outputs(str(tmp_path))
    assert in_processes(3, program(tmp_path, "exit 1"), tmp_path) == [1] * 3
    assert calls(tmp_path) == 1


def test_a_process_that_is_killed_while_it_asks_leaves_the_question_to_the_next(tmp_path: Path) -> None:
    command_output.share_outputs(str(tmp_path))
    command = program(tmp_path, f"test -e {tmp_path}/go || sleep 30; echo {SECRET}")
    if (number := os.fork()) == 0:
        command_output.output(command, str(tmp_path))
        os._exit(0)
    while not (tmp_path / "calls").exists():
        time.sleep(0.01)
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    (tmp_path / "go").touch()
    assert in_processes(2, command, tmp_path) == [0, 0]
    assert calls(tmp_path) == 2


def test_without_a_run_each_process_asks(tmp_path: Path) -> None:
    command = program(tmp_path, f"echo {SECRET}")
    assert in_processes(2, command, tmp_path) == [0, 0]
    assert calls(tmp_path) == 2


def test_another_directory_is_another_question(tmp_path: Path) -> None:
    command_output.share_outputs(str(tmp_path))
    assert command_output.output(["pwd"], "/") == b"/\n"
    assert command_output.output(["pwd"], "/usr") == b"/usr\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"echo {SECRET}; echo one >&2; printf 'a\\033[31m  two\\n\\n' >&2; exit 3", "ended with 3: a[31m two"),
        (f"echo {SECRET}; exit 1", "ended with 1: no message"),
        ("kill -9 $$", "ended with signal 9: no message"),
        ("echo", "printed nothing"),
        ("head -c 65537 /dev/zero", "printed more than 65536 bytes"),
    ],
)
def test_errors_have_nothing_of_the_output(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(error)}$"):
        command_output.output(program(tmp_path, text), str(tmp_path))


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot run: No such file or directory: /nonexistent/pass"):
        command_output.output(["/nonexistent/pass"], str(tmp_path))


def test_a_command_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_command, "SECONDS", 0.2)
    with pytest.raises(ValueError, match="has not ended within"):
        command_output.output(program(tmp_path, f"sleep 60 & echo $! >{tmp_path}/child; wait"), str(tmp_path))
    child = int((tmp_path / "child").read_text())
    for _time in range(100):
        if not Path(f"/proc/{child}").exists():
            break
        time.sleep(0.02)
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().rpartition(")")[2]


def test_the_command_has_no_standard_input(tmp_path: Path) -> None:
    assert command_output.output(["sh", "-c", "cat; echo end"], str(tmp_path)) == b"end\n"
