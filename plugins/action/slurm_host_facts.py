# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of slurm_host_facts (meta/runtime.yml): what to ask a host, and what it needs.

It decides in the process of the task, in parallel for several hosts, and puts the host into the groups of stages that
have work there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ..module_utils.decisions.known.run_host import ANSWER
from ..module_utils.decisions.playbooks import report_content
from ..module_utils.decisions.run import questions, requirements, stages
from ..plugin_utils.templated_host import TemplatedHost
from .checked_answers import Answer, Variables
from .host_clock import ActionModule as WithClock

QUESTIONS: Mapping[str, Callable[[TemplatedHost], dict[str, Any]]] = {
    "site": questions.questions,
    "report": questions.questions,
    "lists": lambda host: questions.questions(host, update_lists=True),
    "role": questions.role_questions,
    "cluster": questions.cluster_questions,
    "new": questions.new_host_questions,
}
"""By the option `purpose` of the module."""


class ActionModule(WithClock):
    """The module, and the decisions that follow from the answer."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Answer:
        """Run the module and return its result, for site.yml with the `objections` and `stages` of the host."""
        variables, purpose = task_vars or {}, self._task.args.pop("purpose", "")
        if purpose:
            self._task.args = QUESTIONS[purpose](TemplatedHost(variables, self._templar, self._loader))
        if purpose == "new":
            return self._answer_or_reason(task_vars)
        result = super().run(tmp, task_vars)
        if purpose not in ("site", "lists", "report") or "slurm_host" not in result.get("ansible_facts", {}):
            return result
        host = TemplatedHost({**variables, ANSWER: result}, self._templar, self._loader)
        objections = requirements.objections(host)
        needed = [] if objections else stages.stages(host)
        if purpose == "report":
            told = {"objections": objections, "stages": needed, "drift": report_content.own(host, objections)}
            return {**result, **told}
        return {**self._grouped(needed, variables), **result, "objections": objections, "stages": needed}

    def _answer_or_reason(self, task_vars: Variables | None) -> Answer:
        """The result, or why there is none, which is no failure: a playbook shows a table of all hosts."""
        try:
            result = super().run(None, task_vars)
        except AnsibleError as error:
            return {"no_answer": {"unreachable": isinstance(error, AnsibleConnectionFailure), "msg": str(error)}}
        failed = result.get("failed") or "slurm_host" not in result.get("ansible_facts", {})
        reason = {name: str(result.get(name, "")) for name in ("msg", "module_stderr")}
        return {"no_answer": {"unreachable": bool(result.get("unreachable")), **reason}} if failed else result

    def _grouped(self, needed: list[str], task_vars: Variables) -> Answer:
        """Put the host into the groups of these stages, as the module group_by does it in this release of Ansible.

        Hosts with the same stages are in one group, which has the groups of its stages as parents: Ansible walks
        through all groups for each host that joins one.
        """
        if not needed:
            return {}
        digest = hashlib.sha256(" ".join(needed).encode()).hexdigest()
        task = self._task.copy()
        task.args = {"key": f"slurm_work_{digest[:12]}", "parents": [f"slurm_needs_{stage}" for stage in needed]}
        action = self._shared_loader_obj.action_loader.get(
            "ansible.builtin.group_by",
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        grouped: Answer = action.run(task_vars=task_vars)
        return {name: value for name, value in grouped.items() if name in ("add_group", "parent_groups")}
