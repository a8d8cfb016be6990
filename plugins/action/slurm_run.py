# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of slurm_run (meta/runtime.yml): it knows the processes of the control host."""

from __future__ import annotations

import getpass
import os
import socket
import time

from ansible.utils.display import Display

from ..plugin_utils.run_processes import find_marked, identify_process
from .checked_answers import ActionModule as Checked
from .checked_answers import Answer, Variables

LEFT = 600
"""Seconds to wait for the tasks of a run that was killed."""


def has_ended(lock: dict[str, str], own: dict[str, str]) -> bool:
    """Whether a run of this control host has ended without removing its run lock."""
    number = lock["process"].partition(" ")[0]
    return lock["host"] == own["host"] and identify_process(int(number)) != lock["process"]


def wait_for_tasks(lock: dict[str, str], seconds: float) -> list[int]:
    """Wait until the tasks of a run that was killed have ended. Returns the processes that still have one."""
    end = time.monotonic() + seconds
    if seconds and (left := find_marked(lock["process"])):
        Display().display(f"waiting   {describe_tasks(lock, left)}")
    while (left := find_marked(lock["process"])) and time.monotonic() < end:
        time.sleep(1)
    return left


def describe_run(other: dict[str, str]) -> str:
    """A sentence about another run."""
    what = f"site.yml on {other['nodes']}" if other["nodes"] else "a playbook of this collection on this cluster"
    shared = f", and this run has {other['common']} as well" if other["common"] else ""
    return (
        f"{other['user']} on {other['host']} has been running {what} since {other['since']} "
        f"(process {other['process'].partition(' ')[0]} there){shared}"
    )


def describe_runs(others: list[dict[str, str]]) -> str:
    """What to do about other runs that go on."""
    their, they_have = ("its", "it has") if len(others) == 1 else ("their", "all have")
    limit = ", or leave these nodes out (--limit)" if all(other["common"] for other in others) else ""
    return (
        f"{'; '.join(map(describe_run, others))}. Two runs at the same time would undo each other's work, so wait for "
        f"{their} end{limit}. If {they_have} failed or been killed, add -e slurm_take_over=true: this run completes "
        "what is left."
    )


def describe_tasks(other: dict[str, str], left: list[int]) -> str:
    """What to do about the tasks of a run that was killed."""
    numbers = " ".join(map(str, left))
    return (
        f"the run of {other['user']} since {other['since']} was killed (process {other['process'].partition(' ')[0]}), "
        f"but tasks of it still change hosts. `ps -o pid,etime,args -p {numbers.replace(' ', ',')}` shows their "
        f"processes on this control host. `kill {numbers}` ends these, and what they have started on hosts can go on."
    )


class WithRun(Checked):
    """A module with this run as its option, and again if it has found the run lock of a run that has ended."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Answer:
        """Run the module and return its result, with the run that prevents this one as `other`."""
        # The parent of this process is ansible-playbook, which has a process for each task.
        own = {"host": socket.gethostname(), "user": getpass.getuser(), "process": identify_process(os.getppid())}
        ended: list[str] = []
        while True:
            self._task.args = {**self._task.args, "run": own, "former": ended}
            result = super().run(tmp, task_vars)
            others = result.get("others") or []
            # One that goes on prevents this run, whatever becomes of those that were killed.
            if result.get("failed") or not all(has_ended(other, own) for other in others):
                return result
            if not (killed := [other for other in others if other["process"] not in ended]):
                return result
            for other in killed:
                if left := wait_for_tasks(other, 0 if self._task.check_mode else LEFT):
                    return {**result, "killed_tasks": left, "others": [other]}
            ended = [*ended, *(other["process"] for other in killed)]


class ActionModule(WithRun):
    """The module, and a failure if another run goes on."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Answer:
        """Run the module and return its result."""
        result = super().run(tmp, task_vars)
        others, left = result.get("others"), result.pop("killed_tasks", None)
        if result.get("failed") or not others:
            return result
        if left and not self._task.check_mode:
            message = (
                f"After {LEFT} s, {describe_tasks(others[0], left)} Wait for their end, then start this run again."
            )
            return {**result, "failed": True, "msg": message}
        if self._task.check_mode:
            warnings = [f"{describe_run(other)}; the plan may change meanwhile." for other in others]
            return {**result, "warnings": [*result.get("warnings", []), *warnings]}
        return {**result, "failed": True, "msg": describe_runs(others)}
