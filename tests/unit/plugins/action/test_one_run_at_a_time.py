# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of slurm_run, with a controller that is none; tests/integration/default has a real one."""

from __future__ import annotations

import os
import socket
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.action.checked_answers import ActionModule as Checked
from ansible_collections.gpucluster.slurm.plugins.action.slurm_run import ActionModule, process


def ended_process() -> str:
    child = subprocess.Popen(["sleep", "60"])
    identity = process(child.pid)
    child.kill()
    child.wait()
    return identity


def run_of(monkeypatch: pytest.MonkeyPatch, lock: dict[str, str], check_mode: bool = False) -> Any:
    """The result of the action, and the options of the module in each of its calls, on a controller with this lock."""
    action, calls = object.__new__(ActionModule), []
    action._task = SimpleNamespace(args={"state": "begun", "take_over": False}, check_mode=check_mode)

    def module(self: Any, *_arguments: Any) -> dict[str, Any]:
        calls.append(dict(self._task.args))
        return {"changed": False, "other": {} if self._task.args.get("former") else dict(lock)}

    monkeypatch.setattr(Checked, "run", module)
    return action.run(None, {}), calls


def test_a_process_is_known_by_its_start() -> None:
    number, _, start = process(os.getpid()).partition(" ")
    assert (int(number), start.isdecimal()) == (os.getpid(), True)
    assert process(int(ended_process().partition(" ")[0])) == ""


def test_the_run_is_ansible_playbook(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = run_of(monkeypatch, {})
    assert not result.get("failed")
    assert [call["run"]["process"] for call in calls] == [process(os.getppid())]
    assert calls[0]["run"]["host"] == socket.gethostname()


def test_a_run_of_this_host_that_has_ended_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = {"host": socket.gethostname(), "user": "alice", "process": ended_process(), "since": "2026-11-24 10:02"}
    result, calls = run_of(monkeypatch, lock)
    assert not result.get("failed")
    assert [call["former"] for call in calls] == [[], [lock["process"]]]


@pytest.mark.parametrize("here", [True, False])
def test_another_run_is_named(monkeypatch: pytest.MonkeyPatch, here: bool) -> None:
    running = process(os.getpid()) if here else ended_process()
    lock = {
        "host": socket.gethostname() if here else "adm2",
        "user": "alice",
        "process": running,
        "since": "2026-11-24 10:02",
    }
    result, calls = run_of(monkeypatch, lock)
    assert (result["failed"], len(calls)) == (True, 1)
    assert result["msg"].startswith(
        f"alice on {lock['host']} has been running a playbook of this collection on this cluster since "
        f"2026-11-24 10:02 (process {running.partition(' ')[0]} there). Two runs"
    )
    assert "-e slurm_take_over=true" in result["msg"]

    planned, _calls = run_of(monkeypatch, lock, check_mode=True)
    assert not planned.get("failed")
    assert "the plan may change meanwhile" in planned["warnings"][0]
