# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of slurm_acceptance (meta/runtime.yml): it waits for jobs, and shows how far the run is."""

from __future__ import annotations

from .checked_answers import Answer, Variables
from .slurm_rolling import Waiting
from .slurm_run import WithRun, describe_run


class ActionModule(Waiting, WithRun):
    """The module with this run as its option: one run of accept.yml at a time uses the reservation."""

    title = "accept"

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Answer:
        """Run the module and return its result, a failure if another run goes on."""
        result = super().run(tmp, task_vars)
        if result.get("failed") or not result.get("others") or self._task.check_mode:
            return result
        message = (
            f"{describe_run(result['others'][0])}. Wait for its end. If it was killed, add -e slurm_take_over=true: "
            "this run continues it."
        )
        return {**result, "failed": True, "msg": message}
