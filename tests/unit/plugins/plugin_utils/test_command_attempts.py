# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command for secrets can do to the control host: its memory, its time, and processes that stay."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import bounded_command
from ansible_collections.gpucluster.slurm.plugins.plugin_utils import command_output

SECRET = "s3cret"
GIVES = f"{SECRET}\n".encode()
LIMIT = bounded_command.LARGEST
LITTLE = 1.0
"""Seconds of a command that hangs. Others have as many as in a run: an answer shows that nobody has waited for it."""

MEMORY = 64 << 20
"""Bytes of memory that a process needs at most for a command."""

TOO_MUCH = f"printed more than {LIMIT} bytes"
HANGS = "has not ended within"


@pytest.fixture(autouse=True)
def no_memory() -> Iterator[None]:
    """No run before or after a test."""
    command_output._memories.clear()
    yield
    command_output._memories.clear()


@pytest.fixture(name="little_time")
def little_time_for_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command that hangs end soon."""
    monkeypatch.setattr(bounded_command, "SECONDS", LITTLE)


def shell(text: str) -> list[str]:
    """A command that does this."""
    return ["sh", "-c", text]


def ask(text: str, directory: Path) -> tuple[bytes | str, int]:
    """The output or the error, and the bytes of memory of a process that asks."""
    read, write = os.pipe()
    if (number := os.fork()) == 0:
        try:
            said = command_output.output(shell(text), str(directory))
        except ValueError as error:
            said = b"!" + str(error).encode()
        os.write(write, said[: 1 << 12])
        os._exit(0)
    os.close(write)
    said = os.read(read, 1 << 12)
    os.close(read)
    _number, status, used = os.wait4(number, 0)
    assert status == 0
    more = used.ru_maxrss * 1024 - resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return said[1:].decode() if said[:1] == b"!" else said, more


ENDLESS = {
    "yes": ("yes", TOO_MUCH),
    "zeros": ("cat /dev/zero", TOO_MUCH),
    "a secret and zeros": (f"echo {SECRET}; cat /dev/zero", TOO_MUCH),
    "zeros of a child": ("cat /dev/zero & wait", TOO_MUCH),
    "both": ("yes & yes >&2", TOO_MUCH),
    "one byte too much, and then a long wait": (f"head -c {LIMIT + 1} /dev/zero; sleep 60", TOO_MUCH),
    "one byte too much, and then an error": (f"head -c {LIMIT + 1} /dev/zero; exit 3", TOO_MUCH),
    "much at once": ("head -c 300000000 /dev/zero; exit 0", TOO_MUCH),
}
KEPT_OPEN = {
    "output": (f"echo {SECRET}; sleep 60 &", GIVES),
    "errors": (f"echo {SECRET}; sleep 60 >/dev/null &", GIVES),
    "output, by another session": (f"echo {SECRET}; setsid sleep 60 &", GIVES),
    "output, by twenty": (f"for i in $(seq 20); do sleep 60 & done; echo {SECRET}", GIVES),
    "output, of a command that fails": ("sleep 60 & echo no such secret >&2; exit 4", "ended with 4: no such secret"),
    "output, of a command that prints nothing": ("sleep 60 & exit 0", "printed nothing"),
    "output, of a command that is killed": ("sleep 60 & kill -9 $$", "ended with signal 9: no message"),
}
SOON = {
    "ten million bytes of errors": (f"echo {SECRET}; head -c 10000000 /dev/zero >&2", GIVES),
    "an error after ten million bytes": (
        "head -c 10000000 /dev/zero | tr '\\0' '\\n' >&2; echo locked >&2; exit 2",
        "ended with 2: locked",
    ),
    "a line of ten million bytes": (
        "head -c 10000000 /dev/zero | tr '\\0' x >&2; exit 2",
        "ended with 2: " + 300 * "x",
    ),
    "byte by byte": (f"printf s; sleep 0.1; printf 3; sleep 0.1; echo {SECRET[2:]}", GIVES),
    "closed errors": (f"exec 2>&-; echo {SECRET}", GIVES),
    "closed output": ("exec >&-; exit 0", "printed nothing"),
    "its own group is killed": ("kill -9 0", "ended with signal 9: no message"),
    "a terminal": ("cat /dev/tty", "ended with 1: cat: /dev/tty: No such device or address"),
}
HANGING = {
    "sleep": "sleep 60",
    "without output": "exec >&-; sleep 60",
    "without output and errors": "exec >&- 2>&-; sleep 60",
    "stopped": "kill -STOP $$",
    "no end by a signal": "trap '' TERM INT HUP; sleep 60 & wait",
    "errors without end": "yes >&2",
    "a secret before": f"echo {SECRET}; sleep 60",
}


@pytest.mark.parametrize("name", [*ENDLESS, *KEPT_OPEN, *SOON])
def test_an_answer_comes_soon_and_needs_little_memory(name: str, tmp_path: Path) -> None:
    text, expected = {**ENDLESS, **KEPT_OPEN, **SOON}[name]
    said, memory = ask(text, tmp_path)
    assert said == expected or (isinstance(said, str) and said.startswith(str(expected)))
    assert memory < MEMORY


@pytest.mark.usefixtures("little_time")
@pytest.mark.parametrize("name", HANGING)
def test_a_command_that_hangs_is_ended(name: str, tmp_path: Path) -> None:
    said, memory = ask(f"echo $$ >{tmp_path}/process; {HANGING[name]}", tmp_path)
    assert str(said).startswith(HANGS)
    assert memory < MEMORY
    assert not alive(int((tmp_path / "process").read_text()))


def alive(process: int) -> bool:
    """Whether a process runs, or has ended a moment later."""
    for _time in range(1500):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except OSError:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.usefixtures("little_time")
def test_after_a_command_that_hangs_the_others_are_not_run(tmp_path: Path) -> None:
    command_output.share_outputs(str(tmp_path))
    assert command_output.output(shell(f"echo {SECRET}"), str(tmp_path)) == GIVES
    errors = []
    for number in range(5):
        with pytest.raises(ValueError, match="has not ended within") as error:
            command_output.output(shell(f"echo {number} >>{tmp_path}/calls; sleep 60"), str(tmp_path))
        errors.append(str(error.value))
    assert (tmp_path / "calls").read_text() == "0\n"
    assert errors[0].startswith(HANGS)
    assert {re.sub(r"[0-9.]+ s", "N s", error) for error in errors[1:]} == {
        "not run, because another command for a secret has not ended within N s"
    }
    # What is known stays known.
    assert command_output.output(shell(f"echo {SECRET}"), str(tmp_path)) == GIVES


@pytest.mark.usefixtures("little_time")
def test_other_processes_know_of_a_command_that_hangs(tmp_path: Path) -> None:
    command_output.share_outputs(str(tmp_path))
    first, *others = [ask(f"sleep 60; echo {number}", tmp_path)[0] for number in range(4)]
    assert str(first).startswith(HANGS)
    assert {str(said).startswith("not run") for said in others} == {True}


@pytest.mark.usefixtures("little_time")
def test_without_a_run_each_command_has_its_time(tmp_path: Path) -> None:
    assert str(ask("sleep 60", tmp_path)[0]).startswith(HANGS)
    assert ask(f"echo {SECRET}", tmp_path)[0] == GIVES


ASKS = """
import os, sys, time
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import bounded_command
from ansible_collections.gpucluster.slurm.plugins.plugin_utils import command_output
if os.fork() == 0:
    open(sys.argv[1] + "/worker", "w").write(str(os.getpid()))
    command_output.output(["sh", "-c", sys.argv[2]], sys.argv[1])
    os._exit(0)
time.sleep(60)
"""


@pytest.mark.parametrize("text", ["exec sleep 60", "exec >&- 2>&-; exec sleep 60", "exec yes >&2"])
def test_nothing_outlives_a_run_that_is_killed(text: str, tmp_path: Path) -> None:
    names = ("worker", "process")
    command = [sys.executable, "-c", ASKS, str(tmp_path), f"echo $$ >{tmp_path}/process; {text}"]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as run:
        deadline = time.monotonic() + 30
        while not all((tmp_path / name).exists() and (tmp_path / name).read_text() for name in names):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        run.send_signal(signal.SIGKILL)
    assert {name: alive(int((tmp_path / name).read_text())) for name in names} == dict.fromkeys(names, False)


@pytest.mark.parametrize("size", [1, LIMIT - 1, LIMIT])
def test_all_of_what_is_allowed_is_read(size: int, tmp_path: Path) -> None:
    command_output.share_outputs(str(tmp_path))
    output = command_output.output(shell(f"head -c {size} /dev/zero | tr '\\0' x"), str(tmp_path))
    assert output == b"x" * size


def test_what_has_no_room_in_the_memory_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_output, "SIZE", 4096)
    command_output.share_outputs(str(tmp_path))
    text = f"echo >>{tmp_path}/calls; head -c 5000 /dev/zero | tr '\\0' x"
    assert [len(command_output.output(shell(text), str(tmp_path))) for _time in range(2)] == [5000, 5000]
    assert (tmp_path / "calls").read_text() == "\n\n"
