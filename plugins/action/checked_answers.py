# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of all modules of this collection (meta/runtime.yml): it sets their umask, and checks their
answers, their size and their time.
"""

from __future__ import annotations

import signal
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action.normal import ActionModule as Normal
from ansible.plugins.loader import module_loader
from ansible.utils.display import Display

from ..module_utils.language.formatting import indented, visible
from ..plugin_utils.answer_limit import OWN_LIMIT, limit_answers
from ..plugin_utils.answers import checked, fact_problems, printed
from ..plugin_utils.program_diffs import shortened

UMASK = "0022"
"""The umask of all modules, and so of the programs that they run. Slurm, apt and users read what modules write."""


Variables = dict[str, Any]
"""The variables of a host, by name."""

Answer = dict[str, Any]
"""The result of a module, as Ansible passes it on."""


class NoAnswer(BaseException):
    """The task has reached its limit of time. No `Exception`, since Ansible handles some of them as if a host had
    answered.
    """


def no_answer(*_: object) -> None:
    """The handler of the signal with which Ansible ends a task at its limit of time."""
    raise NoAnswer


class ActionModule(Normal):
    """Ansible's own action, which also runs in check mode, with a diff and asynchronously, with the answer checked."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Answer:
        """Run the module and return the checked part of its result.

        Raises:
            AnsibleActionFail: earlier answers of the host have replaced variables; nothing is sent to the host.
        """
        known = task_vars or {}
        if problem := fact_problems(str(known.get("inventory_hostname", "")), known.get("ansible_facts") or {}):
            raise AnsibleActionFail(problem)
        # A module can be called by the name that it had (meta/runtime.yml).
        module = module_loader.find_plugin_with_context(self._task.action, collection_list=self._task.collections)
        name = str(module.resolved_fqcn).rpartition(".")[2]
        limit_answers(limit=OWN_LIMIT)
        # Ansible's handler would say "Timed out", and nothing about what to do.
        previous, seconds = signal.getsignal(signal.SIGALRM), round(signal.getitimer(signal.ITIMER_REAL)[0])
        if seconds:
            signal.signal(signal.SIGALRM, no_answer)
        try:
            result = checked(name, super().run(tmp, task_vars), self._task.args)
            if "diff" in result and not Display().verbosity:
                result["diff"] = shortened(result["diff"])
            return result
        except NoAnswer:
            return self._without_answer(
                f"{name} did not answer within {seconds} s, and the host is left out of this run. Check whether its "
                "shell, sudo and Python answer (ansible HOST -m ping --become), and check its load and its disks."
            )
        finally:
            signal.signal(signal.SIGALRM, previous)

    def _without_answer(self, why: str) -> Answer:
        """The result of a task that has reached its limit of time."""
        return {"failed": True, "msg": why}

    def _low_level_execute_command(self, cmd: str, *args: Any, **options: Any) -> Answer:
        """Run a command on the host, which is a module or what Ansible needs for one.

        It has a umask of its own, since that of the login or of sudo may be any. Ansible gets the output without
        characters that a terminal obeys.
        """
        try:
            result: Answer = super()._low_level_execute_command(f"umask {UMASK} && {cmd}", *args, **options)
        except AnsibleConnectionFailure as error:
            raise AnsibleConnectionFailure(indented(visible(str(error)))) from None
        return {key: printed(value) if isinstance(value, str) else value for key, value in result.items()}
