# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of slurm_rolling, without a controller; tests/integration/rolling has a real one."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action.normal import ActionModule as Normal
from ansible_collections.gpucluster.slurm.plugins.action import slurm_rolling
from ansible_collections.gpucluster.slurm.plugins.action.checked_answers import ActionModule as Checked
from ansible_collections.gpucluster.slurm.plugins.plugin_utils import run_processes

WAITS = {"ready": [], "over": False, "table": ["waiting   n1: job 7"], "others": []}
READY = {"ready": ["n1"], "over": False, "table": ["now       n1"], "others": []}
OTHER = {"host": "adm2", "user": "bob", "process": "100 5", "since": "2026-11-24 10:02", "nodes": "", "common": ""}


def run_of(monkeypatch: pytest.MonkeyPatch, *answers: Any, step: str = "next") -> tuple[Any, list[str], int]:
    """The result of the action on a controller with these answers, what it shows, and how many answers are left."""
    action, left = object.__new__(slurm_rolling.ActionModule), [*answers]
    shown: list[str] = []
    action._task = SimpleNamespace(args={"step": step}, check_mode=False, timeout=0)
    action._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="/tmp/x"))

    def module(*_arguments: Any) -> dict[str, Any]:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    monkeypatch.setattr(Checked, "run", module)
    monkeypatch.setattr(slurm_rolling, "PAUSE", 0)
    monkeypatch.setattr(slurm_rolling, "Display", lambda: SimpleNamespace(display=shown.append))
    return action.run(None, {}), shown, len(left)


def test_it_waits_for_nodes_and_shows_each_table_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result, shown, left = run_of(monkeypatch, WAITS, WAITS, READY)
    assert (result["ready"], left) == (["n1"], 0)
    assert [text.partition("\n")[2].strip() for text in shown] == ["waiting   n1: job 7", "now       n1"]


def test_a_table_that_stays_is_shown_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_rolling, "HEARTBEAT", 0)
    _result, shown, _left = run_of(monkeypatch, WAITS, WAITS, READY)
    assert [text.partition("\n")[2].strip() for text in shown] == ["waiting   n1: job 7"] * 2 + ["now       n1"]


def test_the_end_of_ansible_playbook_is_the_end_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for hours, and would change nodes next to the run that goes on."""
    monkeypatch.setattr(run_processes, "_marks", {-1: None})
    result, _shown, left = run_of(monkeypatch, WAITS, WAITS, READY)
    assert (result["failed"], left) == (True, 2)
    monkeypatch.setattr(run_processes, "_marks", {os.getppid(): None})
    assert run_of(monkeypatch, WAITS, WAITS, READY)[2] == 0


def test_a_controller_that_cannot_be_reached_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    result, shown, _left = run_of(monkeypatch, WAITS, AnsibleConnectionFailure("no route"), READY)
    assert result["ready"] == ["n1"]
    assert "the controller cannot be reached: no route" in shown[1]


def test_a_controller_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is there, and the task has no limit of time, since it waits for jobs."""
    ready = {**READY, "changed_earlier": [], "ok": False, "done": [], "broken": {}, "left": {}}
    times = [60, 0]
    shown: list[str] = []
    action = object.__new__(slurm_rolling.ActionModule)
    action._task = SimpleNamespace(
        args={"step": "next"}, check_mode=False, timeout=0, action="gpucluster.slurm.slurm_rolling", collections=[]
    )
    action._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="/tmp/x"))

    def module(*_arguments: Any) -> dict[str, Any]:
        time.sleep(times.pop(0))
        return ready

    monkeypatch.setattr(Normal, "run", module)
    monkeypatch.setattr(slurm_rolling, "PAUSE", 0)
    monkeypatch.setattr(slurm_rolling, "ANSWER", 1)
    monkeypatch.setattr(slurm_rolling, "Display", lambda: SimpleNamespace(display=shown.append))
    assert action.run(None, {})["ready"] == ["n1"]
    assert "the controller cannot be reached: slurm_rolling did not answer within 1 s" in shown[0]


def test_another_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _result, shown, _left = run_of(monkeypatch, {**WAITS, "others": [OTHER]}, READY)
    assert "waiting   bob on adm2 has been running a playbook of this collection on this cluster since" in shown[0]


def test_an_error_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _shown, left = run_of(monkeypatch, {"failed": True, "msg": "rolling_budget"}, READY)
    assert (result["msg"], left) == ("rolling_budget", 1)


def test_the_other_steps_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleConnectionFailure):
        run_of(monkeypatch, AnsibleConnectionFailure("no route"), step="judge")
    _result, shown, left = run_of(monkeypatch, WAITS, READY, step="judge")
    assert (shown, left) == ([], 1)
