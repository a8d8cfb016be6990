#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_state_directory
short_description: Prove that controllers keep Slurm's state in one directory
version_added: 0.2.0
description:
  - Says on which mount a directory is, and shows whether it is the same one on several hosts. Each of them writes a
    file of its own (O(write)), then each looks for those of the others (O(see)), and then each removes its own
    (O(remove)). The filter P(gpucluster.slurm.state_directory_errors#filter) checks the answers.
  - It acts with the rights of the user that Slurm's controller runs as, since a server of NFS may take root for nobody.
  - In check mode nothing is written. The directory's inode is what hosts can be compared by then. It is equal on all
    hosts of a shared file system, and may be equal by chance on others, so that only a run proves something.
  - It does not wait for a file system that does not answer, and says so.
options:
  path:
    description: The directory. One that is not there is not made.
    type: path
    required: true
  user_id:
    description: The id of the user, who need not be there yet. A host on which Ansible is not root asks as itself.
    type: int
    required: true
  write:
    description:
      - Whether a file is written into the directory, if the user owns it.
      - Files that a run which was killed has left there more than ten minutes ago are removed.
    type: bool
    default: false
  see:
    description: Files that other hosts have written, by name. They are looked for during five seconds.
    type: list
    elements: str
    default: []
  remove:
    description: Files that are removed, by name.
    type: list
    elements: str
    default: []
extends_documentation_fragment: [gpucluster.slurm.reading]
seealso:
  - plugin: gpucluster.slurm.state_directory_errors
    plugin_type: filter
  - ref: gpucluster.slurm.slurmctld <ansible_collections.gpucluster.slurm.slurmctld_role>
    description: The role that proves it on each run.
"""

EXAMPLES = r"""
- name: Write a file
  gpucluster.slurm.slurm_state_directory:
    path: /shared/slurm
    user_id: 64030
    write: true
  register: written

- name: See the file of the other controller
  gpucluster.slurm.slurm_state_directory:
    path: /shared/slurm
    user_id: 64030
    see: ["{{ hostvars.head2.written.file }}"]
  register: seen

- name: Remove the file
  gpucluster.slurm.slurm_state_directory:
    path: /shared/slurm
    user_id: 64030
    remove: ["{{ written.file }}"]
"""

RETURN = r"""
mount:
  description: The mount on which the directory is, or would be made; empty after an error.
  type: dict
  returned: always
  contains:
    point:
      description: Where it is mounted.
      type: str
      returned: without an error
      sample: /shared
    type:
      description: The type of its file system.
      type: str
      returned: without an error
      sample: nfs4
    source:
      description: What is mounted.
      type: str
      returned: without an error
      sample: nfs1:/export/shared
    root:
      description: Whether the directory is one of the root file system.
      type: bool
      returned: without an error
      sample: false
    guard:
      description:
        - The mount point that has to be one so that the directory is not one of the host's own. It is that of the
          automount, if one has mounted the file system.
      type: str
      returned: without an error
      sample: /shared
    automount:
      description: Whether an automount has mounted the file system.
      type: bool
      returned: without an error
      sample: false
inode:
  description: Number of the directory's inode; null if the directory is not there.
  type: int
  returned: always
  sample: 9437186
file:
  description: Name of the file that was written; empty if none was.
  type: str
  returned: always
  sample: .gpucluster-slurm-0123456789abcdef
missing:
  description: Those of O(see) that are not in the directory.
  type: list
  elements: str
  returned: always
  sample: []
error:
  description: Why the directory cannot be used; empty if it can. It does not fail the task, so that hosts go on.
  type: str
  returned: always
  sample: ""
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.state_directory import (
    StateDirectoryError,
    as_user,
    look,
    remove,
    unseen,
    write,
)


def answer(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """The module's result."""
    path, user_id = params["path"], params["user_id"]

    def work() -> dict[str, Any]:
        """What is done with the rights of the user."""
        found = look(path)
        owned = found.pop("owner") == user_id
        found["file"] = write(path) if params["write"] and owned and not check_mode else ""
        found["missing"] = unseen(path, params["see"]) if params["see"] else []
        if not check_mode:
            remove(path, params["remove"])
        return found

    nothing = {"changed": False, "mount": {}, "inode": None, "file": "", "missing": [], "error": ""}
    try:
        return {**nothing, **as_user(user_id, work)}
    except StateDirectoryError as error:
        return {**nothing, "error": str(error)}


def main() -> None:
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "user_id": {"type": "int", "required": True},
            "write": {"type": "bool", "default": False},
            "see": names,
            "remove": names,
        },
        supports_check_mode=True,
    )
    module.exit_json(**answer(module.params, module.check_mode))


if __name__ == "__main__":
    main()
