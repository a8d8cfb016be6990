# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup `decision`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: decision
short_description: Ask a rule of this collection about a host
version_added: 0.3.0
author: gpucluster.slurm contributors (!UNKNOWN)
description:
  - For the roles of this collection. It calls a function of C(plugins/module_utils/decisions), which decides in Python
    what a role does on this host.
  - Rules and their results can change with every release.
options:
  _terms:
    description: A file of C(decisions) and a function or constant in it, such as V(munge.service).
    type: list
    elements: str
    required: true
  shown:
    description:
      - The lines of a rule are for a person. Ansible's output format V(json) shows each entry of a list on one line.
        YAML would fold long entries, so it gets one text of several lines.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show the service
  ansible.builtin.debug:
    msg: "{{ lookup('gpucluster.slurm.decision', 'munge.service') }}"
"""

RETURN = r"""
_raw:
  description: What each rule has decided.
  type: list
  elements: raw
"""

from dataclasses import asdict, is_dataclass
from importlib import import_module
from multiprocessing import parent_process
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.loader import lookup_loader
from ansible.plugins.lookup import LookupBase

from ..plugin_utils.rules import DECISIONS, PACKAGE
from ..plugin_utils.templated_host import TemplatedHost

ANSWERS: dict[tuple[str, str, str], Any] = {}
"""The answers that this process has had, by host, rule and arguments."""

ROOMS = {path.stem: path.parent.name for path in DECISIONS.glob("*/*.py")}
"""The package of each file of rules, whose name is used once."""


class LookupModule(LookupBase):
    """Asks rules."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        """Return what each rule decides, given further arguments of the rule.

        Raises:
            AnsibleLookupError: a value of the user is wrong.
        """
        host = TemplatedHost(variables or {}, self._templar, self._loader)
        shown = kwargs.pop("shown", False)
        found = [self._answer(host, str(term), kwargs) for term in terms]
        return ["\n".join(lines) for lines in found] if shown and self._has_yaml(variables) else found

    def _has_yaml(self, variables: dict[str, Any] | None) -> bool:
        """Whether Ansible shows results as YAML."""
        config = lookup_loader.get("ansible.builtin.config", loader=self._loader, templar=self._templar)
        return bool(config.run(["result_format"], variables, plugin_type="callback", plugin_name="default") != ["json"])

    def _answer(self, host: TemplatedHost, term: str, arguments: dict[str, Any]) -> Any:
        """What a rule decides. The options of a task may ask for it several times, and each task has its process."""
        if parent_process() is None:
            return ask(host, term, arguments)
        key = (host.name, term, repr(arguments))
        if key not in ANSWERS:
            ANSWERS[key] = ask(host, term, arguments)
        return ANSWERS[key]


def ask(host: TemplatedHost, term: str, arguments: dict[str, Any]) -> Any:
    """What one rule decides."""
    file, _point, name = term.partition(".")
    rule = getattr(import_module(f"{PACKAGE}.{ROOMS[file]}.{file}"), name)
    try:
        result = rule if name.isupper() else rule(host, **arguments)
    except (ValueError, TypeError) as error:
        raise AnsibleLookupError(str(error)) from error
    return asdict(result) if is_dataclass(result) and not isinstance(result, type) else result
