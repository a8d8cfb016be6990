# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of a module."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import locks
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.module_run import run_module
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.errors import CollectionError

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a module with the argument `name`, and give its result."""

    def run_with_name(work: Callable[[AnsibleModule], dict[str, Any]], **options: Any) -> dict[str, Any]:
        with patch_module_args({"name": "n1"}), pytest.raises(SystemExit):
            run_module(work, {"name": {"type": "str"}}, **options)
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run_with_name


def fail(error: Exception) -> Callable[[AnsibleModule], dict[str, Any]]:
    """Work that raises an error."""

    def work(_module: AnsibleModule) -> dict[str, Any]:
        raise error

    return work


def test_the_result_of_the_work_is_that_of_the_module(run: Run) -> None:
    result = run(lambda module: {"changed": True, "name": module.params["name"]})
    assert (result["changed"], result["name"]) == (True, "n1")


@pytest.mark.parametrize("error", [CollectionError("no node"), OSError("no node"), ValueError("no node")], ids=repr)
def test_an_error_is_one_message(run: Run, error: Exception) -> None:
    result = run(fail(error), message="node {name}: {error}", failed={"jobs": []})
    assert (result["failed"], result["msg"], result["jobs"]) == (True, "node n1: no node", [])


def test_an_error_can_have_further_keys_of_the_result(run: Run) -> None:
    result = run(fail(CollectionError("no GPU", commands=["nvidia-smi"])), failed={"commands": [], "jobs": []})
    assert (result["commands"], result["jobs"]) == (["nvidia-smi"], [])


def test_a_bug_keeps_its_traceback() -> None:
    with patch_module_args({}), pytest.raises(KeyError):
        run_module(fail(KeyError("bug")), {})


def test_the_lock_is_held_meanwhile(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOCKS", str(tmp_path / "run/locks"))

    def work(_module: AnsibleModule) -> dict[str, Any]:
        with locks.locked("storage", 0):
            return {}

    assert "lock storage: held by" in run(work, lock=("storage", 0))["msg"]
    assert "msg" not in run(work, lock=("packages", 0))


def test_each_error_of_a_module_is_caught() -> None:
    """So that no module needs a list of errors."""
    plugins = Path(inspect.getfile(run_module)).parents[2]
    places = [*(plugins / "modules").glob("*.py"), *(plugins / "module_utils").rglob("*.py")]
    strange = [path.name for path in places if path.name != "errors.py" and "(Exception):\n" in path.read_text()]
    assert strange == []


CRASH = """
import os
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.module_run import run_module
with patch_module_args({"name": "a secret"}):
    run_module(lambda module: os.abort(), {"name": {"type": "str"}})
"""


def test_a_module_that_crashes_leaves_no_core(tmp_path: Path) -> None:
    """Where /proc/sys/kernel/core_pattern is a program, only its log would show one."""
    given = ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh", sys.executable, "-c", CRASH]
    crashed = subprocess.run(given, cwd=tmp_path, env=os.environ, check=False)
    assert crashed.returncode == -signal.SIGABRT
    assert list(tmp_path.iterdir()) == []
