#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_state_directory
short_description: Check that controllers keep Slurm's state in the same directory
description:
  - Returns the mount of a directory, and shows whether several hosts have the same directory. Each host writes its own
    file (O(write)), then reads the files of the other hosts (O(see)), and then removes its own (O(remove)). The
    role checks the answers.
  - It has the rights of the user that runs slurmctld, since an NFS server may map root to nobody.
  - In check mode nothing is written. Then hosts can only be compared by the directory's inode. It is equal on all hosts
    that share a file system, but can also be equal by chance, so that only a real run checks it.
  - It does not wait for a file system that does not answer; C(error) says so.
extends_documentation_fragment: [gpucluster.slurm.reading, gpucluster.slurm.arguments.slurm_state_directory]
"""

EXAMPLES = r"""
- name: Write a file
  gpucluster.slurm.slurm_state_directory: {path: /shared/slurm, user_id: 64030, write: true}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

from typing import TYPE_CHECKING, cast

from ..module_utils.controller.state_save_location import (
    StateDirectoryError,
    as_user,
    read_directory,
    remove,
    unseen,
    write,
)
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option, several, switch
from ..module_utils.host.timeout_call import Answer

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import StateDirectoryResult


def answer(params: Params, check_mode: bool) -> StateDirectoryResult:
    """The module's result."""
    path, user_id = params["path"], params["user_id"]

    def work() -> Answer:
        """The part that runs with the rights of the user."""
        result = read_directory(path)
        owned = result.pop("owner") == user_id
        result["file"] = write(path) if params["write"] and owned and not check_mode else ""
        result["missing"] = unseen(path, params["see"]) if params["see"] else []
        if not check_mode:
            remove(path, params["remove"])
        return result

    nothing: StateDirectoryResult = {
        "changed": False,
        "mount": {},
        "inode": None,
        "file": "",
        "missing": [],
        "error": "",
    }
    try:
        return cast("StateDirectoryResult", {**nothing, **as_user(user_id, work)})
    except StateDirectoryError as error:
        return {**nothing, "error": str(error)}


ARGUMENTS = {
    "path": option("The directory. It is not created if it is missing.", "path", required=True),
    "user_id": option(
        "The id of the user, which need not exist yet. If Ansible is not root on the host, the module uses the rights "
        "of Ansible's user.",
        "int",
        required=True,
    ),
    "write": switch(
        "Whether to write a file into the directory, if the user owns the directory. Files that are older than ten "
        "minutes, from runs that were killed, are removed."
    ),
    "see": several("Names of files that other hosts have written. The module waits five seconds for them."),
    "remove": several("Names of files to remove."),
}


def main() -> None:
    run_module(lambda module: answer(module.params, module.check_mode), ARGUMENTS)


if __name__ == "__main__":
    main()
