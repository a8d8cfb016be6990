# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for a GPU, so that `check --stand-ins` runs on a machine without one.

NVIDIA's library and nvidia-smi are those of the lab (tests/integration/stand_in). nvidia-smi also answers what `check`
asks besides; the programs for loads print figures that are named as those of a stand-in. PyTorch is stand_in_torch.py.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import acceptance
from machine import Machine
from root import COLLECTION, Root
from steps import StepError, Steps

SOURCES = COLLECTION / "tests/integration/stand_in"
TORCH = Path(__file__).with_name("stand_in_torch.py")
GPU = "NVIDIA H100 80GB HBM3"
UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
SERIAL = "1650000000001"
ADDRESS = "0000:01:00.0"
DEVICES = {"nvidia0": (195, 0), "nvidiactl": (195, 255), "nvidia-uvm": (510, 0)}
NVIDIA_SMI = f"""#!/usr/bin/python3
# A stand-in for nvidia-smi with the answers of the lab's, and some more.
import os, sys
words = sys.argv[1:]
answers = {{
    "-q -x": "<nvidia_smi_log><gpu id='00000000:01:00.0'><serial>{SERIAL}</serial>"
             "<uuid>{UUID}</uuid></gpu><driver_version>550.00.01</driver_version></nvidia_smi_log>",
    "--help-query-gpu": '"index"\\nZero based index of the GPU.\\n"name" or "gpu_name"\\nThe official product name.\\n',
    "--query-gpu=index,pci.bus_id,name,memory.total,mig.mode.current,driver_version --format=csv,noheader,nounits":
        "0, 00000000:01:00.0, {GPU}, 81559, Disabled, 550.00.01",
    "": "a stand-in for nvidia-smi",
}}
if " ".join(words) in answers:
    print(answers[" ".join(words)])
    sys.exit()
os.environ.setdefault("NVML_STAND_IN", "/etc/nvml-stand-in")
os.environ.setdefault("NVIDIA_SMI_STAND_IN_LOADS", "/tmp/stand-in-loads")
exec(compile(LAB, "nvidia_smi.py", "exec"))
"""
LOAD = """#!/bin/sh
# A stand-in for gpu_load: it prints figures of the same form, which mean nothing. The stand-in for nvidia-smi shows the
# load of `busy`.
case $1 in
  compute) echo '{"device": "stand-in", "elements": 0, "wrong": 0}' ;;
  memory) echo '{"device": "stand-in", "bytes": 0, "gb_per_s": 0}' ;;
  copies) echo '{"device": "stand-in", "bytes": 0, "to_gpu_gb_per_s": 0, "to_host_gb_per_s": 0}' ;;
  matrix) echo '{"device": "stand-in", "size": 0, "tflop_per_s": 0}' ;;
  busy) echo "0 $2 1" >/tmp/stand-in-loads; trap 'rm -f /tmp/stand-in-loads' EXIT; sleep "$3" ;;
esac
"""
INFORMATION = f"""Model: 		 {GPU}
IRQ:   		 0
GPU UUID: 	 {UUID}
Bus Location: 	 {ADDRESS}
Device Minor: 	 0
"""


def make(steps: Steps, directory: Path) -> Machine:
    """Make the stand-ins in a directory, and return them as a machine."""
    for name in ("lib", "bin", "dev", "driver/nvidia/gpus/" + ADDRESS):
        (directory / name).mkdir(parents=True)
    library = directory / "lib/libnvidia-ml.so.1"
    compiler = ["gcc", "-shared", "-fPIC", "-o", library, SOURCES / "nvml.c"]
    answer = steps.command(compiler, 60)
    if answer.status:
        raise StepError(f"the stand-in for NVIDIA's library: {answer.message}")
    program = directory / "bin/nvidia-smi"
    lab = (SOURCES / "nvidia_smi.py").read_text()
    program.write_text(NVIDIA_SMI.replace("LAB", repr(lab), 1))
    program.chmod(0o755)
    (directory / "gpus").write_text(f"{GPU}\n")
    os.environ["NVML_STAND_IN"] = str(directory / "gpus")
    for name, numbers in DEVICES.items():
        path = directory / "dev" / name
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*numbers))
        path.chmod(0o666)
    (directory / f"driver/nvidia/gpus/{ADDRESS}/information").write_text(INFORMATION)
    (directory / "driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX Open Kernel Module  550.00.01\n")
    return Machine(
        nvidia_smi=str(program),
        libraries=[str(library)],
        devices=[str(directory / "dev" / name) for name in DEVICES],
        driver_files=str(directory / "driver"),
        torch="stand-in",
        stand_ins=True,
    )


def install(root: Root) -> None:
    """Install in the root what is not bound there."""
    root.write("/etc/nvml-stand-in", f"{GPU}\n")
    root.write("/usr/local/bin/gpu_load", LOAD, 0o755)
    root.write("/opt/cublas/libcublas.so.0", "")
    root.write(f"{acceptance.PLACE}/python/torch.py", TORCH.read_text())
