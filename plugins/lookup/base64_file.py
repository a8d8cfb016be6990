# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup `base64_file`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: base64_file
short_description: Read files on the control host as bytes
version_added: 0.2.0
author: gpucluster.slurm contributors (!UNKNOWN)
description:
  - Returns the content of files on the control host in base64, decrypted where they are encrypted with ansible-vault.
    The lookup P(ansible.builtin.file#lookup) reads files as UTF-8 text, and a munge key is not text.
options:
  _terms:
    description: Paths of the files. Relative ones are found as those of P(ansible.builtin.file#lookup).
    type: list
    elements: path
    required: true
"""

EXAMPLES = r"""
- name: Show a key
  ansible.builtin.debug:
    msg: "{{ lookup('gpucluster.slurm.base64_file', '/root/lab/munge.key') }}"
"""

RETURN = r"""
_raw:
  description: The content of each file in base64.
  type: list
  elements: str
"""

import base64
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError, AnsibleLookupError
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    """Reads files as bytes."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        """Return the content of each file in base64. Raises AnsibleLookupError where there is none."""
        self.set_options(var_options=variables, direct=kwargs)
        return [
            self._content(
                self.find_file_in_search_path(variables, "files", str(term), ignore_missing=True) or str(term)
            )
            for term in terms
        ]

    def _content(self, path: str) -> str:
        try:
            # Decrypted if need be, into a file that is removed below, or by Ansible at its end.
            real = self._loader.get_real_file(path)
            content = Path(real).read_bytes()
            self._loader.cleanup_tmp_file(real)
        except (AnsibleError, OSError) as error:
            raise AnsibleLookupError(f"{path}: {error}") from error
        return base64.b64encode(content).decode()
