# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of all modules of this collection (meta/runtime.yml): it sets their umask, and checks their
answers.
"""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action.normal import ActionModule as Normal
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.answers import checked, fact_problems, printed
from ansible_collections.gpucluster.slurm.plugins.module_utils.texts import indented, visible

UMASK = "0022"
"""The umask of all modules, and so of the programs that they run. Slurm, apt and users read what modules write."""


class ActionModule(Normal):
    """Ansible's own action, which also runs in check mode, with a diff and asynchronously, with the answer checked."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module and return the checked part of its result.

        Raises:
            AnsibleActionFail: earlier answers of the host have replaced variables; nothing is sent to the host.
        """
        known = task_vars or {}
        if problem := fact_problems(str(known.get("inventory_hostname", "")), known.get("ansible_facts") or {}):
            raise AnsibleActionFail(problem)
        name = self._task.action.rpartition(".")[2]
        return checked(name, super().run(tmp, task_vars), self._task.args)

    def _low_level_execute_command(self, cmd: str, *args: Any, **options: Any) -> dict[str, Any]:
        """Run a command on the host, which is a module or what Ansible needs for one.

        It has a umask of its own, since that of the login or of sudo may be any. Ansible gets the output without
        characters that a terminal obeys.
        """
        try:
            result: dict[str, Any] = super()._low_level_execute_command(f"umask {UMASK} && {cmd}", *args, **options)
        except AnsibleConnectionFailure as error:
            raise AnsibleConnectionFailure(indented(visible(str(error)))) from None
        return {key: printed(value) if isinstance(value, str) else value for key, value in result.items()}
