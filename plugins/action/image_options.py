# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of modules that start something (meta/runtime.yml): in an image they start nothing."""

from __future__ import annotations

from ..module_utils.decisions.known import image
from ..plugin_utils.templated_host import TemplatedHost
from .checked_answers import ActionModule as Checked
from .checked_answers import Answer, Variables


class ActionModule(Checked):
    """The module, with the options that it has where an image is built (`slurm_image` of role slurm)."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Answer:
        """Run the module and return its result."""
        known = task_vars or {}
        options = image.MODULE_OPTIONS.get(self._task.action.rpartition(".")[2], {})
        if "slurm_image" in known and options and image.builds(TemplatedHost(known, self._templar, self._loader)):
            self._task.args = {**self._task.args, **options}
        return super().run(tmp, task_vars)
