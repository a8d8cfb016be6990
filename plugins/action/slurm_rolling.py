# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of slurm_rolling (meta/runtime.yml): it waits for nodes, and shows how far the run is."""

from __future__ import annotations

import signal
import time

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display

from ..plugin_utils.run_processes import is_orphaned
from .checked_answers import ActionModule as Checked
from .checked_answers import Answer, Variables, no_answer
from .slurm_run import WithRun, describe_run

PAUSE = 20
"""Seconds before a controller that could not be reached is asked again."""

HEARTBEAT = 300
"""Seconds after which a table that has not changed is shown again: the run is alive, and its output is not idle."""

ANSWER = 600
"""Seconds for one answer. The task has no limit, since it waits for jobs; the module waits for a minute at a time."""


class Waiting(Checked):
    """A module, for the step `next` again and again until nodes are ready or the run is over."""

    title = ""
    """The name of the playbook, for the table."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Answer:
        """Run the module and return its result."""
        waits = self._task.args.get("step") == "next" and not self._task.check_mode
        shown: list[str] = []
        since = time.monotonic()
        while True:
            try:
                result = self._one_answer(tmp, task_vars) if waits else super().run(tmp, task_vars)
            except AnsibleConnectionFailure as error:
                # For example while the controller boots.
                if not waits:
                    raise
                result = {"table": [f"waiting   the controller cannot be reached: {error}"]}
                self._connection._shell.tmpdir = None
                time.sleep(PAUSE)
            if not waits or result.get("failed") or result.get("unreachable"):
                return result
            if is_orphaned():
                return {**result, "failed": True, "msg": "ansible-playbook has ended, and this task ends as well."}
            others = result.get("others") or []
            table = result["table"] + [f"waiting   {describe_run(other)}" for other in others]
            if table != shown or time.monotonic() - since >= HEARTBEAT:
                shown, since = table, time.monotonic()
                lines = [time.strftime(f"%H:%M:%S {self.title}"), *(f"  {line}" for line in table)]
                Display().display("\n".join(lines))
            if result.get("ready") or result.get("over"):
                return result

    def _one_answer(self, tmp: str | None, task_vars: Variables | None) -> Answer:
        """Run the module once.

        Raises:
            AnsibleConnectionFailure: the controller does not answer.
        """
        if self._task.timeout:
            return super().run(tmp, task_vars)
        signal.signal(signal.SIGALRM, no_answer)
        signal.alarm(ANSWER)
        try:
            return super().run(tmp, task_vars)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _without_answer(self, why: str) -> Answer:
        """The controller is asked again, as if it could not be reached."""
        if self._task.timeout:
            return super()._without_answer(why)
        raise AnsibleConnectionFailure(why)


class ActionModule(Waiting, WithRun):
    """The module with this run as its option, since other runs may change the cluster while it waits."""

    title = "rolling"
