# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup `cluster_file_without`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cluster_file_without
short_description: The text of a cluster file without some nodes
version_added: 0.2.0
author: gpucluster.slurm contributors (!UNKNOWN)
description:
  - Returns the text of a cluster file in which no value names the nodes any more. Comments, order and layout stay.
  - Nodes that the file does not name are ignored. A file that needs the decision of a person is an error.
options:
  _terms:
    description: The cluster file.
    type: list
    elements: path
    required: true
  nodes:
    description: The nodes.
    type: list
    elements: str
    required: true
  diff:
    description: Whether the lines that differ are returned instead of the whole text, as diff(1) shows them.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show a cluster file without two nodes
  ansible.builtin.debug:
    msg: "{{ lookup('gpucluster.slurm.cluster_file_without', 'my.cluster.yml', nodes=['gpu13', 'gpu14']) }}"
"""

RETURN = r"""
_raw:
  description: The text of each file.
  type: list
  elements: str
"""

from difflib import unified_diff
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ..module_utils.cluster.model import ModelError
from ..module_utils.cluster.removal import edits, nodes_of
from ..plugin_utils.cluster_file import edited
from ..plugin_utils.documents import read


class LookupModule(LookupBase):
    """Edits cluster files."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        """Return the text of each file without the nodes."""
        self.set_options(var_options=variables, direct=kwargs)
        nodes = [str(name) for name in self.get_option("nodes")]
        paths = [Path(str(term)) for term in terms]
        try:
            texts = [without(path, nodes) for path in paths]
        except ModelError as error:
            raise AnsibleLookupError(str(error)) from None
        return [*map(difference, paths, texts)] if self.get_option("diff") else texts


def difference(path: Path, after: str) -> str:
    """The lines of a file that differ from another text, with one line around them."""
    before = path.read_text(encoding="utf-8")
    return "\n".join(unified_diff(before.split("\n"), after.split("\n"), str(path), str(path), lineterm="", n=1))


def without(path: Path, nodes: list[str]) -> str:
    """The text of a cluster file without those of the nodes that it has. Raises ModelError."""
    text = path.read_text(encoding="utf-8")
    if text.startswith("$ANSIBLE_VAULT"):
        raise ModelError([f"{path.name}: is encrypted: change it with ansible-vault edit"])
    data = read(path.name, text.encode()).data
    there = [name for name in nodes if name in nodes_of(data)]
    return edited(path.name, text, edits(path.name, data, there)) if there else text
