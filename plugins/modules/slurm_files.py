#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_files
short_description: Write files that no daemon has to load, and correct directories
description:
  - Replaces each file atomically, and removes files of a directory that it wrote before and that are no longer wanted.
    One task and one connection serve any number of files.
  - For files of a daemon use M(gpucluster.slurm.slurm_service), which restarts the daemon.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_files]
"""

EXAMPLES = r"""
- name: Create a directory
  gpucluster.slurm.slurm_files: {directories: [{path: /srv/registry, owner: docker-registry}]}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import os
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host import applied_state
from ..module_utils.host.directories import OPTION as DIRECTORIES
from ..module_utils.host.directories import Directories
from ..module_utils.host.directories import from_options as wanted_directories
from ..module_utils.host.files import OPTION, SECRET_OPTIONS, check, from_options, from_secret_options, replace
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option, several

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import FilesResult

MARK = b"Managed by gpucluster.slurm"
"""The text by which files of this collection are recognized."""


KIB = 1024


def unwanted(directory: str | None, wanted: set[str]) -> list[str]:
    """The files of a directory that are marked and not wanted. Only the first and the last KiB of each are read."""
    found = []
    for name in sorted(os.listdir(directory)) if directory and os.path.isdir(directory) else []:
        path = os.path.join(directory or "", name)
        if path not in wanted and os.path.isfile(path):
            with open(path, "rb") as file:
                head = file.read(KIB)
                file.seek(-min(KIB, os.fstat(file.fileno()).st_size), os.SEEK_END)
                if MARK in head or MARK in file.read(KIB):
                    found.append(path)
    return found


def change_files(module: AnsibleModule) -> FilesResult:
    """Change the files and directories, and return the module's result. Raises FileError, OSError and ValueError."""
    params = module.params
    directories = Directories(wanted_directories(params["directories"]))
    directories.check()
    files = [*from_options(params["files"]), *from_secret_options(params["secrets"])]
    changes = [file for file in files if file.changes]
    gone = unwanted(params["purge"], {file.path for file in files})
    diff = directories.diff + [file.diff for file in changes]
    diff += [{"before_header": path, "after_header": path, "before": "present\n", "after": "absent\n"} for path in gone]
    check(files)
    if not module.check_mode:
        directories.repair()
        replace(files)
        for path in gone:
            os.unlink(path)
        if params["record"]:
            purged = [params["purge"]] if params["purge"] else []
            applied_state.keep(params["record"], params["digest"] or "", [*(file.path for file in files), *purged])
    paths = [file.path for file in changes] + gone
    return {"changed": bool(paths or directories.differ), "files": paths, "diff": diff}


ARGUMENTS = {
    "files": OPTION,
    "directories": DIRECTORIES,
    "secrets": several(
        "Files with secret content, which is never shown.", "dict", options=SECRET_OPTIONS, no_log=False
    ),
    "purge": option(
        "Directory from which other files are removed if they contain C(Managed by gpucluster.slurm) in their first "
        "or last KiB.",
        "path",
    ),
    "record": option("Name of the record that keeps O(digest)."),
    "digest": option(
        "A checksum of the other options. While nothing of what the module has applied changes, the fact C(applied) of "
        "M(gpucluster.slurm.slurm_host_facts) has it for O(record), and the module need not run again."
    ),
}


def main() -> None:
    run_module(change_files, ARGUMENTS, required_by={"digest": "record"})


if __name__ == "__main__":
    main()
