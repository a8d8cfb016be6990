# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The control host's side of slurm_access and slurm_firewall (meta/runtime.yml): a new connection checks their change.

The change, its check and the return of the previous files are one task, since a play starts the next task only when
all hosts have ended this one, and the host undoes an unconfirmed change after two minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ..plugin_utils.answers import checked
from .checked_answers import Answer, Variables
from .image_options import ActionModule as Checked

NEW = {"ssh_args": "-o ControlMaster=no -o ControlPath=none", "reconnection_retries": 2}
"""Options of the connection plugin ssh for a connection that shares nothing with an open one. ssh takes the first
value of an option, so that these win over its configuration and ansible_ssh_common_args. sshd, which has just read its
configuration again, may refuse the first attempt. After four failed logins in a row, sshd of OpenSSH 9.8 and later
would refuse the control host for a while, although the previous files are back (PerSourcePenalties in sshd_config(5):
5 s for each, enforced from 15 s on)."""


class ActionModule(Checked):
    """The module, and after a change the module again over a new connection."""

    def run(self, tmp: str | None = None, task_vars: Variables | None = None) -> Answer:
        """Run the module and return its result, a failure if the change was not confirmed."""
        result = super().run(tmp, task_vars)
        if result.get("failed") or not result.get("unproven"):
            return result
        with self._new_connection():
            problem = self._problem("proven", task_vars)
        if problem:
            lost = self._problem("former", task_vars)
            user = self._connection.get_option("remote_user") or "the user of the connection"
            result |= {
                "changed": bool(lost),
                "failed": True,
                "msg": f"No new connection as {user} could become root, so the host undoes the change within two "
                f"minutes ({lost}): {problem}"
                if lost
                else f"No new connection as {user} could become root, so the previous files were restored: {problem}",
            }
        return {**result, "unproven": False}

    def _problem(self, state: str, task_vars: Variables | None) -> str:
        """Run the module with a state; return why it failed, or nothing."""
        arguments, module = {"state": state}, self._task.action.rpartition(".")[2]
        try:
            answer = self._execute_module(f"gpucluster.slurm.{module}", arguments, task_vars=task_vars)
        except (AnsibleConnectionFailure, AnsibleError) as error:
            return " ".join(str(error).split())
        answer = checked(module, answer, arguments)
        return str(answer.get("msg") or "no answer") if answer.get("failed") else ""

    @contextmanager
    def _new_connection(self) -> Iterator[None]:
        """A connection of its own for each command. Other connection plugins than ssh have one for each command."""
        connection = self._connection
        previous = {name: connection.get_option(name) for name in NEW if connection.has_option(name)}
        try:
            for name in previous:
                connection.set_option(name, NEW[name])
            yield
        finally:
            for name, value in previous.items():
                connection.set_option(name, value)
