# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of slurm_run, with a controller that is none; tests/integration/default has a real one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.action import slurm_run
from ansible_collections.gpucluster.slurm.plugins.action.checked_answers import ActionModule as Checked
from ansible_collections.gpucluster.slurm.plugins.action.slurm_run import ActionModule
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.run_processes import find_marked
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.run_processes import identify_process as process


def ended_process() -> str:
    child = subprocess.Popen(["sleep", "60"])
    identity = process(child.pid)
    child.kill()
    child.wait()
    return identity


def lock_of(host: str, identity: str, **more: str) -> dict[str, str]:
    """Another run, as the module returns it."""
    return {
        "host": host,
        "user": "alice",
        "process": identity,
        "since": "2026-11-24 10:02",
        "nodes": "",
        "common": "",
        **more,
    }


def run_of(monkeypatch: pytest.MonkeyPatch, *locks: dict[str, str], check_mode: bool = False) -> Any:
    """The result of the action, and the options of the module in each of its calls, given these locks."""
    action, calls = object.__new__(ActionModule), []
    action._task = SimpleNamespace(args={"state": "begun", "take_over": False}, check_mode=check_mode)

    def module(self: Any, *_arguments: Any) -> dict[str, Any]:
        calls.append(dict(self._task.args))
        return {
            "changed": False,
            "others": [lock for lock in locks if lock["process"] not in self._task.args["former"]],
        }

    monkeypatch.setattr(Checked, "run", module)
    return action.run(None, {}), calls


def test_a_process_is_known_by_its_start() -> None:
    number, _, start = process(os.getpid()).partition(" ")
    assert (int(number), start.isdecimal()) == (os.getpid(), True)
    assert process(int(ended_process().partition(" ")[0])) == ""


def test_the_run_is_ansible_playbook(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = run_of(monkeypatch)
    assert not result.get("failed")
    assert [call["run"]["process"] for call in calls] == [process(os.getppid())]
    assert calls[0]["run"]["host"] == socket.gethostname()


def test_a_run_of_this_host_that_has_ended_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = lock_of(socket.gethostname(), ended_process())
    result, calls = run_of(monkeypatch, lock)
    assert not result.get("failed")
    assert [call["former"] for call in calls] == [[], [lock["process"]]]


@pytest.mark.parametrize("here", [True, False])
def test_another_run_is_named(monkeypatch: pytest.MonkeyPatch, here: bool) -> None:
    running = process(os.getpid()) if here else ended_process()
    lock = lock_of(socket.gethostname() if here else "adm2", running)
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


def test_runs_that_share_the_lock_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = lock_of("adm2", "100 5", nodes="n[1-2]", common="n2")
    alice = "alice on adm2 has been running site.yml on n[1-2] since 2026-11-24 10:02 (process 100 there)"
    result, _calls = run_of(monkeypatch, shared)
    assert result["msg"] == (
        f"{alice}, and this run has n2 as well. Two runs at the same time would undo each other's work, so wait for "
        "its end, or leave these nodes out (--limit). If it has failed or been killed, add -e slurm_take_over=true: "
        "this run completes what is left."
    )
    # A run that is to be alone.
    result, _calls = run_of(monkeypatch, {**shared, "common": ""}, lock_of("adm3", "7 7", nodes="n3"))
    assert result["msg"] == (
        f"{alice}; alice on adm3 has been running site.yml on n3 since 2026-11-24 10:02 (process 7 there). Two runs at "
        "the same time would undo each other's work, so wait for their end. If all have failed or been killed, add -e "
        "slurm_take_over=true: this run completes what is left."
    )
    planned, _calls = run_of(monkeypatch, shared, lock_of("adm3", "7 7"), check_mode=True)
    assert not planned.get("failed")
    assert len(planned["warnings"]) == 2


def test_runs_of_this_host_that_were_killed_are_replaced_together_and_not_beside_one_that_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = socket.gethostname()
    one, two = (lock_of(here, ended_process(), nodes=node) for node in ("n1", "n2"))
    result, calls = run_of(monkeypatch, one, two)
    assert not result.get("failed")
    assert [call["former"] for call in calls] == [[], [one["process"], two["process"]]]
    result, calls = run_of(monkeypatch, one, lock_of(here, process(os.getpid()), nodes="n3"))
    assert (result["failed"], len(calls)) == (True, 1)
    assert "site.yml on n1" in result["msg"]
    assert "site.yml on n3" in result["msg"]


PLAY = """
- hosts: "{{ 'all' | gpucluster.slurm.limit_answers }}"
  connection: local
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  gather_facts: false
  tasks:
    - ansible.builtin.shell: touch began-{{ inventory_hostname }}; sleep 4; printf %0200000d 0
"""


def killed_run(directory: Path, number: signal.Signals, group: bool = False) -> str:
    """The identity of a real ansible-playbook that a signal has ended while each of its three hosts has a task."""
    (directory / "play.yml").write_text(PLAY)
    program = Path(sys.executable).with_name("ansible-playbook")
    run = subprocess.Popen(
        # Started under nohup, the tests ignore this signal, and so would their child.
        ["env", "--default-signal=HUP", program, "--inventory=one,two,three,", "play.yml"],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    identity = process(run.pid)
    end = time.monotonic() + 60
    while len([*directory.glob("began-*")]) < 3 and time.monotonic() < end:
        time.sleep(0.1)
    (os.killpg if group else os.kill)(run.pid, number)
    run.wait()
    return identity


def processes_of(directory: Path) -> list[int]:
    """All processes that a run in this directory has left."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cwd").readlink() == directory and b"play.yml" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.mark.once
# The second one is what a connection that breaks sends.
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_the_tasks_of_a_killed_run_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals
) -> None:
    """They survive, and would change hosts next to this run."""
    identity = killed_run(tmp_path, number)
    lock = lock_of(socket.gethostname(), identity)
    left = find_marked(identity)
    assert len(left) == 3

    monkeypatch.setattr(slurm_run, "LEFT", 0)
    result, calls = run_of(monkeypatch, lock)
    assert (result["failed"], len(calls)) == (True, 1)
    assert "After 0 s, the run of alice since 2026-11-24 10:02 was killed (process " in result["msg"]
    assert f"`ps -o pid,etime,args -p {','.join(map(str, left))}`" in result["msg"]
    planned, _calls = run_of(monkeypatch, lock, check_mode=True)
    assert not planned.get("failed")

    monkeypatch.setattr(slurm_run, "LEFT", 60)
    shown: list[str] = []
    monkeypatch.setattr(slurm_run, "Display", lambda: SimpleNamespace(display=shown.append))
    result, calls = run_of(monkeypatch, lock)
    assert not result.get("failed"), result["msg"]
    assert [text.partition(" since")[0] for text in shown] == ["waiting   the run of alice"]
    assert [call["former"] for call in calls] == [[], [identity]]
    for each in processes_of(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


@pytest.mark.once
def test_a_process_whose_answer_nobody_reads_ends_after_its_task(tmp_path: Path) -> None:
    """A kill of the whole group does not end it, since Ansible gives each of them a session of its own."""
    killed_run(tmp_path, signal.SIGKILL, group=True)
    assert processes_of(tmp_path), "the tasks go on"
    end = time.monotonic() + 60
    while (left := processes_of(tmp_path)) and time.monotonic() < end:
        time.sleep(0.2)
    for each in left:
        os.kill(each, signal.SIGKILL)
    assert left == []


@pytest.mark.once
def test_a_run_that_was_interrupted_leaves_no_task(tmp_path: Path) -> None:
    """Ctrl-C: the next run begins at once."""
    identity = killed_run(tmp_path, signal.SIGINT)
    assert find_marked(identity) == []
    assert processes_of(tmp_path) == []
