# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the MIG instances of this host when it boots, because a reboot removes them."""

from __future__ import annotations

import json
import subprocess
import sys

ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
"""The environment of nvidia-smi."""
LIBRARY = "/usr/local/lib/gpucluster-slurm"
"""Directory of the copy of plugins/module_utils/nvidia/mig.py."""
SETTINGS = "/etc/gpucluster-slurm/mig.json"
"""The generic resources of this host, as the cluster file has them."""
SLURMD = "/etc/systemd/system/slurmd.service.d/gpucluster-slurm.conf"
"""Role slurmd names this service there while the cluster file has instances for this host."""

sys.path.insert(0, LIBRARY)
import mig  # noqa: E402 (the line above is how it is found)


def nvidia_smi(command: tuple[str, ...]) -> tuple[int, str]:
    """Exit status and output of a command. A command that hangs is ended after a time limit."""
    words = ["timeout", str(mig.COMMAND), "nvidia-smi", *command]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=ENVIRONMENT, text=True, check=False
    )
    return done.returncode, done.stdout


def left_over() -> bool:
    """Whether the cluster file has no instances for this host any more. False if role slurmd has not run."""
    try:
        with open(SLURMD, encoding="utf-8") as file:
            return "slurm-mig.service" not in file.read()
    except FileNotFoundError:
        return False


if left_over():
    print("The cluster file has no MIG instances for this host any more: its GPUs are left alone.")
    sys.exit()
with open(SETTINGS, encoding="utf-8") as file:
    wanted = mig.layouts(json.load(file))
try:
    for gpu in mig.set_layouts(nvidia_smi, wanted)[1]:
        print(f"GPU {gpu.index}: {gpu.shown}")
except mig.MigError as error:
    sys.exit(str(error))
