#!/usr/bin/python
# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_mig
short_description: Create the MIG instances of NVIDIA GPUs
description:
  - Creates the declared MIG instances of a host's GPUs with nvidia-smi. GPUs that already have them are not changed; on
    the other GPUs all instances are destroyed and created again.
  - As few GPUs as possible are changed, since a layout is for a number of GPUs, not for particular ones.
  - No program may be using the GPUs that change. The module does not check for jobs; role
    P(gpucluster.slurm.nvidia_mig#role) does.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.nvidia_mig]
"""

EXAMPLES = r"""
- name: Divide a GPU
  gpucluster.slurm.nvidia_mig:
    gres: [{name: gpu, type: h100_80gb_hbm3, count: 1, mig: {1g.10gb: 7}}]
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import os
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.client.commands import run
from ..module_utils.gpu.nvidia import mig
from ..module_utils.gpu.nvidia.nvidia_gpus import CHANGED
from ..module_utils.host.files import opener
from ..module_utils.host.module_run import run_module
from ..module_utils.host.options import option
from ..module_utils.language.errors import CollectionError

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import MigResult


def touch(path: str) -> None:
    """Record that instances change."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(path, "w", encoding="utf-8", opener=opener(0o644)):
        os.utime(path)


class Commands:
    """nvidia-smi on this host, and the commands that it ran."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.changes: list[str] = []

    def run(self, command: mig.Command) -> tuple[int, str]:
        """Exit status and output of a command. A command that hangs is killed."""
        changes = command not in (mig.QUERY, mig.LIST, mig.INSTANCES)
        if changes:
            self.changes.append(" ".join(["nvidia-smi", *command]))
            touch(CHANGED)  # a run may be killed while the command is under way
        answer = run([self.program, *command], seconds=mig.COMMAND)
        if changes:
            touch(CHANGED)
        return answer.status, answer.output + answer.errors


def change_layouts(module: AnsibleModule) -> MigResult:
    """Set the wanted layouts, and return the module's result. Raises CollectionError."""
    program = module.get_bin_path("nvidia-smi")
    commands = Commands(program or "")
    before: list[mig.Gpu] = []
    after: list[mig.Gpu] = []
    try:
        wanted = mig.layouts(module.params["gres"])
        if program and wanted:
            before, after = mig.set_layouts(commands.run, wanted, change=not module.check_mode)
    except mig.MigError as error:
        raise CollectionError(str(error), commands=commands.changes) from None
    lines = ["".join(f"GPU {gpu.index} ({gpu.name}): {gpu.shown}\n" for gpu in side) for side in (before, after)]
    return {
        "changed": bool(before),
        "driver": program is not None,
        "commands": commands.changes,
        "gpus": {str(gpu.index): gpu.shown for gpu in after},
        "diff": {"before": lines[0], "after": lines[1]},
    }


ARGUMENTS = {
    "gres": option(
        "Generic resources of the machine, as in the cluster file. Entries named C(gpu) describe the wanted layouts "
        "with C(type), C(count) and C(mig), the number of instances by profile. A GPU with C(mig={}) or without "
        "C(mig) is not divided. If no entry has C(mig), nothing is done.",
        "list",
        elements="dict",
        required=True,
    )
}


def main() -> None:
    run_module(change_layouts, ARGUMENTS)


if __name__ == "__main__":
    main()
