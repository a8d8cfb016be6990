# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of slurm_rolling and slurm_removal (meta/runtime.yml): it waits for nodes, and shows how far
the run is."""

from __future__ import annotations

import time
from typing import Any

from ansible.utils.display import Display
from ansible_collections.gpucluster.slurm.plugins.action.checked_answers import ActionModule as Checked

PAUSE = 20
"""Seconds before slurmctld is asked again after it has not answered."""


class ActionModule(Checked):
    """The module, for the step `next` again and again until nodes can be changed or the run is over."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module and return its result."""
        shown: list[str] = []
        what = self._task.action.rpartition("slurm_")[2]
        while True:
            result = super().run(tmp, task_vars)
            if self._task.args.get("step") != "next" or result.get("unreachable") or self._task.check_mode:
                return result
            # While the state of nodes cannot be read, all of them count as busy.
            table = [f"waiting   {result.get('msg', '')}"] if result.get("failed") else result["table"]
            if table != shown:
                shown = table
                Display().display("\n".join([time.strftime(f"%H:%M:%S {what}"), *(f"  {line}" for line in table)]))
            if result.get("failed"):
                time.sleep(PAUSE)
            elif result["ready"] or result["over"]:
                return result
