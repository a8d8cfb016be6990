# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup `control_files`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: control_files
short_description: Pack what the control host has of a cluster
version_added: 0.2.0
author: gpucluster.slurm contributors (!UNKNOWN)
description:
  - Returns a tar archive in base64 with the cluster file, the files beside it that it names, the hardware file,
    C(group_vars), C(host_vars) and the secrets. The same files always give the same archive.
  - Encrypted files stay encrypted. Paths in the archive begin with C(cluster/) or C(secrets/).
options:
  _terms:
    description: The directory of the cluster file.
    type: list
    elements: path
    required: true
  name:
    description: The name of the cluster.
    type: str
    required: true
  secrets:
    description: The directory of its secrets.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Show the size of the archive
  ansible.builtin.debug:
    msg: "{{ lookup('gpucluster.slurm.control_files', slurm_cluster_dir, name=slurm_cluster_name,
      secrets=slurm_secrets_dir) | length }}"
"""

RETURN = r"""
_raw:
  description: The archive of each directory.
  type: list
  elements: str
"""

import base64
from typing import Any

from ansible.plugins.lookup import LookupBase
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.control_files import archive


class LookupModule(LookupBase):
    """Packs the files of a cluster."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        """Return the archive of each directory in base64."""
        self.set_options(var_options=variables, direct=kwargs)
        name, secrets = str(self.get_option("name")), str(self.get_option("secrets"))
        return [base64.b64encode(archive(str(term), name, secrets)).decode() for term in terms]
