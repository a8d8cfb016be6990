# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of slurm_run (meta/runtime.yml): it knows the processes of the control host."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.action.checked_answers import ActionModule as Checked


def process(number: int) -> str:
    """Number and start of a process; empty if it has ended. Without /proc, the number alone.

    The start, in clock ticks since the boot, tells it from a later process with the same number (proc(5)).
    """
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass  # a process of another user
    try:
        with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
            return f"{number} {file.read().rpartition(')')[2].split()[19]}"
    except OSError:
        return f"{number}"


def has_ended(lock: dict[str, str], own: dict[str, str]) -> bool:
    """Whether a run of this control host has ended without removing its run lock."""
    number = lock["process"].partition(" ")[0]
    return lock["host"] == own["host"] and process(int(number)) != lock["process"]


def describe_run(other: dict[str, str]) -> str:
    """A sentence about another run."""
    return (
        f"{other['user']} on {other['host']} has been running a playbook of this collection on this cluster since "
        f"{other['since']} (process {other['process'].partition(' ')[0]} there)"
    )


class WithRun(Checked):
    """A module with this run as its option, and again if it has found the run lock of a run that has ended."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module and return its result, with the run that prevents this one as `other`."""
        # The parent of this process is ansible-playbook, which has a process for each task.
        own = {"host": socket.gethostname(), "user": getpass.getuser(), "process": process(os.getppid())}
        ended: list[str] = []
        while True:
            self._task.args = {**self._task.args, "run": own, "former": ended}
            result = super().run(tmp, task_vars)
            other = result.get("other")
            if result.get("failed") or not other or other["process"] in ended or not has_ended(other, own):
                return result
            ended = [*ended, other["process"]]


class ActionModule(WithRun):
    """The module, and a failure if another run goes on."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module and return its result."""
        result = super().run(tmp, task_vars)
        other = result.get("other")
        if result.get("failed") or not other:
            return result
        if self._task.check_mode:
            return {
                **result,
                "warnings": [*result.get("warnings", []), f"{describe_run(other)}; the plan may change meanwhile."],
            }
        return {
            **result,
            "failed": True,
            "msg": f"{describe_run(other)}. Two runs at the same time would undo each other's work, so wait for its "
            "end. If it has failed or was killed, add -e slurm_take_over=true: this run completes what is left.",
        }
