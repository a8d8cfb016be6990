# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Makes the MIG instances of this host when it boots, because a reboot removes them."""

from __future__ import annotations

import json
import sys

from ..client.commands import run
from ..gpu.nvidia import mig

SETTINGS = "/etc/gpucluster-slurm/mig.json"
"""The generic resources of this host, as the cluster file has them."""
SLURMD = "/etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf"
"""Role slurmd names this service there while the cluster file has instances for this host."""


def nvidia_smi(command: mig.Command) -> tuple[int, str]:
    """Exit status and output of a command. A command that hangs is ended after a time limit."""
    answer = run(["nvidia-smi", *command], seconds=mig.COMMAND)
    return answer.status, answer.output + answer.errors


def left_over() -> bool:
    """Whether the cluster file has no instances for this host any more. False if role slurmd has not run."""
    try:
        with open(SLURMD, encoding="utf-8") as file:
            return "slurm-mig.service" not in file.read()
    except FileNotFoundError:
        return False


def main() -> int:
    """Make the instances."""
    if left_over():
        print("The cluster file has no MIG instances for this host any more: its GPUs are left alone.")
        return 0
    with open(SETTINGS, encoding="utf-8") as file:
        gres = json.load(file)
    try:
        for gpu in mig.set_layouts(nvidia_smi, mig.layouts(gres))[1]:
            print(f"GPU {gpu.index}: {gpu.shown}")
    except mig.MigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
