# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Slurm's commands are run, with stand-ins for the commands."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import (
    CommandError,
    CommandsUntil,
    output,
    run,
)
from programs import StandIn


def test_a_command_has_the_environment_on_which_its_output_depends(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "LC_ALL": "de_DE.UTF-8",
        "SLURM_TIME_FORMAT": "relative",
        "SLURM_CONF": "/etc/own.conf",
    }.items():
        monkeypatch.setenv(name, value)
    stand_in("sinfo", 'echo "$LC_ALL $SLURM_TIME_FORMAT $SLURM_CONF"')
    assert run(["sinfo"]).output == "C.UTF-8 standard \n"
    assert run(["sinfo"], conf="/run/candidate/slurm.conf").output == "C.UTF-8 standard /run/candidate/slurm.conf\n"


def test_a_command_reads_what_it_is_given_and_nothing_else(stand_in: StandIn) -> None:
    stand_in("sbatch", "cat")
    assert run(["sbatch"], "#!/bin/sh\nhostname\n") == (0, "#!/bin/sh\nhostname\n", "")
    assert run(["sbatch"]).output == ""


def test_more_than_a_pipe_holds_is_written_and_read(stand_in: StandIn) -> None:
    stand_in("sacctmgr", "cat")
    text = "add qos name=x\n" * 100_000
    assert run(["sacctmgr", "-i"], text).output == text


def test_bytes_that_are_no_text_are_shown_as_such(stand_in: StandIn) -> None:
    stand_in("sinfo", r"printf '\377'")
    assert run(["sinfo"]).output == "\ufffd"


def test_a_command_that_hangs_is_ended(stand_in: StandIn) -> None:
    stand_in("scontrol", "echo 'not all'; sleep 60")
    start = time.monotonic()
    answer = run(["scontrol", "ping"], seconds=0.2)
    assert (answer.status, answer.message) == (124, "no answer in 0.2 s")
    assert time.monotonic() - start < 30


def test_a_command_of_the_group_of_its_caller_is_ended(stand_in: StandIn) -> None:
    stand_in("squeue", "exec sleep 60")
    start = time.monotonic()
    assert run(["squeue"], seconds=0.2, own_group=False).status == 124
    assert time.monotonic() - start < 30


def test_the_children_of_a_command_that_hangs_are_ended(stand_in: StandIn, tmp_path: Path) -> None:
    """A child that holds the output would be waited for, and would outlive the run."""
    stand_in("scontrol", f"(sleep 60; echo late >{tmp_path}/late) & echo $! >{tmp_path}/child; wait")
    start = time.monotonic()
    assert run(["scontrol"], seconds=0.5).status == 124
    assert time.monotonic() - start < 30
    child = (tmp_path / "child").read_text().strip()
    assert not Path(f"/proc/{child}").exists() or " Z " in Path(f"/proc/{child}/stat").read_text()


def test_a_command_with_a_grace_can_end_its_tasks_in_its_directory(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in("srun", "trap 'echo ended >said; exit' TERM; sleep 60 & wait")
    assert run(["srun"], seconds=0.3, directory=str(tmp_path), grace=5).status == 124
    assert (tmp_path / "said").read_text() == "ended\n"


def test_commands_until_one_deadline(stand_in: StandIn) -> None:
    stand_in("sinfo", "echo idle")
    stand_in("sacct", "sleep 60")
    commands = CommandsUntil(1.5)
    assert commands.output("sinfo") == "idle\n"
    stand_in("sreport", "echo 'sreport: error: one' >&2; echo 'sreport: fatal: two' >&2; exit 1")
    with pytest.raises(CommandError, match=r"^sreport: sreport: fatal: two$"):
        commands.output("sreport", "cluster")
    with pytest.raises(CommandError, match=r"^sacct: no answer in "):
        commands.output("sacct")
    with pytest.raises(CommandError, match=r"^sinfo: no answer in 0 s$"):
        commands.output("sinfo")


def test_what_is_not_installed_is_told_as_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", str(tmp_path))
    assert (run(["scontrol", "ping"]).status, run(["scontrol", "ping"]).message) == (127, "command not found")
    (tmp_path / "scontrol").touch(mode=0o644)
    assert run(["scontrol", "ping"]).message == "Permission denied"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'Invalid node name specified' >&2; exit 1", "Invalid node name specified"),
        ("echo ' Nothing modified'; exit 1", "Nothing modified"),
        ("echo ' Nothing modified'; echo ' Unknown option: x=1' >&2; exit 1", "Unknown option: x=1 Nothing modified"),
        ("exit 3", "exit status 3"),
    ],
)
def test_a_failure_has_the_message_of_the_command(stand_in: StandIn, script: str, message: str) -> None:
    stand_in("scontrol", script)
    assert run(["scontrol"]).message == message
    with pytest.raises(CommandError) as error:
        output(["scontrol", "show", "node", "n1"])
    assert str(error.value) == f"scontrol show node n1: {message}"


def test_what_a_command_prints_is_returned_where_it_succeeds(stand_in: StandIn) -> None:
    stand_in("scontrol", "echo NodeName=n1; echo 'scontrol: warning' >&2")
    assert output(["scontrol", "show", "node"]) == "NodeName=n1\n"


def test_a_word_that_no_command_can_have_is_an_answer() -> None:
    assert run(["true", "a\0b"]) == (127, "", "embedded null byte")
