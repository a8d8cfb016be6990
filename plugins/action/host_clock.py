# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of modules that gather facts (meta/runtime.yml): it measures the host's clock."""

from __future__ import annotations

import time

from .checked_answers import ActionModule as Checked
from .checked_answers import Answer, Variables


def offset(told: float, before: float, after: float) -> float:
    """Seconds by which a clock is ahead, at least, if it told a time between two moments of this host."""
    return told - before if told < before else max(0.0, told - after)


class ActionModule(Checked):
    """The module, with the difference of the clocks."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Answer:
        """Run the module and return its result."""
        before = time.time()
        result = super().run(tmp, task_vars)
        if "time" in result:
            result["clock_offset"] = round(offset(result["time"], before, time.time()), 1)
        return result
