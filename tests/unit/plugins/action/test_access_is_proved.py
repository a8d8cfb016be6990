# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of a change by a new connection, with a connection that is none; tests/integration/people has ssh."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.gpucluster.slurm.plugins.action.checked_answers import ActionModule as Checked
from ansible_collections.gpucluster.slurm.plugins.action.slurm_access import NEW, ActionModule

CHANGED = {"changed": True, "files": ["/etc/pam.d/sshd"], "unproven": True}
FORMER = {"ssh_args": "-o ControlPersist=60s", "reconnection_retries": 0}


class Connection:
    """A connection with options, of which an old one works, and a new one only if it is said so."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def has_option(self, name: str) -> bool:
        return name in self.options

    def get_option(self, name: str) -> Any:
        return self.options.get(name)

    def set_option(self, name: str, value: Any) -> None:
        self.options[name] = value


class Run:
    """A run of the action. broken: the states of the module that fail, with what they raise or return."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], result: dict[str, Any]) -> None:
        self.action = object.__new__(ActionModule)
        self.action._task = SimpleNamespace(action="gpucluster.slurm.slurm_access")
        self.action._connection = Connection({"remote_user": "ops1", **options})
        self.states: list[tuple[str, Any]] = []
        self.broken: dict[str, Any] = {}
        monkeypatch.setattr(Checked, "run", lambda *_arguments: dict(result))
        monkeypatch.setattr(ActionModule, "_execute_module", self.execute)

    def execute(self, name: str, arguments: dict[str, Any], **_options: Any) -> dict[str, Any]:
        assert name == "gpucluster.slurm.slurm_access"
        state = arguments["state"]
        self.states.append((state, self.action._connection.get_option("ssh_args")))
        answer = self.broken.get(state, {"changed": True, "files": [], "unproven": False})
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    def result(self) -> dict[str, Any]:
        return self.action.run(None, {})


@pytest.mark.parametrize("result", [{**CHANGED, "unproven": False}, {"failed": True, "msg": "x", "unproven": True}])
def test_without_a_change_there_is_no_check(monkeypatch: pytest.MonkeyPatch, result: dict[str, Any]) -> None:
    run = Run(monkeypatch, dict(FORMER), result)
    assert run.result() == result
    assert run.states == []


def test_a_change_is_checked_over_a_connection_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, dict(FORMER), CHANGED)
    assert run.result() == {**CHANGED, "unproven": False}
    assert run.states == [("proven", NEW["ssh_args"])]
    assert run.action._connection.options == {"remote_user": "ops1", **FORMER}, "the previous options are back"


def test_another_connection_than_ssh_has_no_such_options(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, {}, CHANGED)
    assert run.result()["unproven"] is False
    assert run.action._connection.options == {"remote_user": "ops1"}


@pytest.mark.parametrize(
    "answer",
    [AnsibleConnectionFailure("Permission denied"), {"failed": True, "msg": "Permission denied by sudo"}],
)
def test_the_previous_files_come_back_over_the_first_connection(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    run = Run(monkeypatch, dict(FORMER), CHANGED)
    run.broken["proven"] = answer
    found = run.result()
    assert [*map(bool, (found["failed"], found["changed"], found["unproven"]))] == [True, False, False]
    assert found["msg"].startswith("No new connection as ops1 could become root")
    assert "so the previous files were restored: Permission denied" in found["msg"]
    assert run.states[1] == ("former", FORMER["ssh_args"])


def test_without_any_connection_the_host_helps_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(monkeypatch, dict(FORMER), CHANGED)
    run.broken = dict.fromkeys(("proven", "former"), AnsibleConnectionFailure("Connection refused"))
    found = run.result()
    assert "so the host undoes the change within two minutes (Connection refused)" in found["msg"]
    assert found["changed"] is True
