# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of slurm_rolling (meta/runtime.yml): it waits for nodes, and shows how far the run is."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.utils.display import Display
from ansible_collections.gpucluster.slurm.plugins.action.checked_answers import ActionModule as Checked
from ansible_collections.gpucluster.slurm.plugins.action.slurm_run import WithRun, words

PAUSE = 20
"""Seconds before a controller that could not be reached is asked again."""


class Waiting(Checked):
    """A module, for the step `next` again and again until nodes are ready or the run is over."""

    title = ""
    """The name of the playbook, for the table."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module and return its result."""
        waits = self._task.args.get("step") == "next" and not self._task.check_mode
        shown: list[str] = []
        while True:
            try:
                result = super().run(tmp, task_vars)
            except AnsibleConnectionFailure as error:
                # For example while the controller boots.
                if not waits:
                    raise
                result = {"table": [f"waiting   the controller cannot be reached: {error}"]}
                self._connection._shell.tmpdir = None
                time.sleep(PAUSE)
            if not waits or result.get("failed") or result.get("unreachable"):
                return result
            table = result["table"] + ([f"waiting   {words(result['other'])}"] if result.get("other") else [])
            if table != shown:
                shown = table
                lines = [time.strftime(f"%H:%M:%S {self.title}"), *(f"  {line}" for line in table)]
                Display().display("\n".join(lines))
            if result.get("ready") or result.get("over"):
                return result


class ActionModule(Waiting, WithRun):
    """The module with this run as its option, since other runs may change the cluster while it waits."""

    title = "rolling"
