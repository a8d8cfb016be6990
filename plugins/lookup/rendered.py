# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup `rendered`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: rendered
short_description: Render template files without a copy of all variables
version_added: 0.2.0
author: gpucluster.slurm contributors (!UNKNOWN)
description:
  - Returns the text of template files on the control host, like P(ansible.builtin.template#lookup).
  - That lookup copies all variables of the host, with all their values, for each file. In a run of C(site.yml) with
    nothing to do, these copies took more time than the templates.
options:
  _terms:
    description: The files, by their names in C(templates) of the role, or by their paths.
    type: list
    elements: path
    required: true
  template_vars:
    description: Further variables of the templates.
    type: dict
    default: {}
seealso:
  - plugin: ansible.builtin.template
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Run sackd with its settings
  gpucluster.slurm.slurm_service:
    name: sackd
    files:
      - path: /etc/systemd/system/sackd.service.d/site.conf
        content: "{{ lookup('gpucluster.slurm.rendered', 'sackd.service.j2') }}"
"""

RETURN = r"""
_raw:
  description: The text of each file.
  type: list
  elements: str
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.templated_host import render


class LookupModule(LookupBase):
    """Renders files."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        """Return the text of each file. Raises AnsibleLookupError where there is none."""
        self.set_options(var_options=variables, direct=kwargs)
        known = {**(variables or {}), **self.get_option("template_vars")}
        templar = self._templar.copy_with_new_env(available_variables=known)
        return [self._rendered(templar, known, str(term)) for term in terms]

    def _rendered(self, templar: Any, variables: dict[str, Any], name: str) -> str:
        path = self.find_file_in_search_path(variables, "templates", name)
        if not path:
            raise AnsibleLookupError(f"{name}: there is no such template")
        return render(templar, self._loader, path)
