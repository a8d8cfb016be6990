# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads of the GPU: the program gpu_load.cu, built by nvcc of the machine, and run by jobs in the root."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from machine import Machine
from steps import AbsentError, Answer, StepError, Steps

SOURCE = Path(__file__).with_name("gpu_load.cu")
PROGRAM = "/usr/local/bin/gpu_load"
ARCHITECTURE = "sm_90"
"""H100 and H200. The GPU's own is asked for, and this is taken without an answer."""


def architecture(answer: str) -> str:
    """nvcc's name for what nvidia-smi says of compute_cap: "9.0" is sm_90."""
    found = re.match(r"\s*(\d+)\.(\d+)\s*$", answer.partition("\n")[0])
    return f"sm_{found[1]}{found[2]}" if found else ARCHITECTURE


def build(steps: Steps, machine: Machine, program: Path) -> str:
    """Build the program. Returns a line about how."""
    if not machine.nvcc:
        raise AbsentError("no nvcc was found")
    asked = [machine.nvidia_smi, "--query-gpu=compute_cap", "--format=csv,noheader"]
    wanted = architecture(steps.command(asked).output if machine.nvidia_smi else "")
    steps.answer([machine.nvcc, "-O3", "-std=c++17", f"-arch={wanted}", "-o", program, SOURCE], 90)
    program.chmod(0o755)
    return f"{machine.nvcc}, {wanted}, {program.stat().st_size // 1024} KiB"


def cublas(place: Path) -> Path:
    """The path of libcublas.so in a directory. Raises AbsentError without one."""
    found = sorted(place.glob("libcublas.so.*"))
    if not found:
        raise AbsentError("no libcublas.so was found")
    return found[0]


def shown(answer: Answer) -> str:
    """The figures of a load as a text. Raises StepError if it has failed."""
    if answer.status:
        raise StepError(answer.message)
    try:
        figures: dict[str, Any] = json.loads(answer.output.strip().split("\n")[-1])
    except ValueError:
        raise StepError(f"no figures in {answer.output!r}") from None
    return ", ".join(f"{name} {value}" for name, value in figures.items())
