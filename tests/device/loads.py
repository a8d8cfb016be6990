# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads of the GPU: the program gpu_load.cu, built by nvcc of the machine, and run by jobs in the root."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cluster import Cluster
from machine import Machine
from root import Root
from steps import AbsentError, StepError, Steps

SOURCE = Path(__file__).with_name("gpu_load.cu")
PROGRAM = "/usr/local/bin/gpu_load"
ARCHITECTURE = "sm_90"
"""H100 and H200. The GPU's own is asked for, and this is taken without an answer."""


def architecture(answer: str) -> str:
    """nvcc's word for what nvidia-smi says of compute_cap: "9.0" is sm_90."""
    found = re.match(r"\s*(\d+)\.(\d+)\s*$", answer.partition("\n")[0])
    return f"sm_{found[1]}{found[2]}" if found else ARCHITECTURE


def build(steps: Steps, machine: Machine, root: Root) -> str:
    """Build the program into the root. Returns how, in words."""
    if machine.stand_ins:
        return "stand-in for gpu_load"
    if not machine.nvcc:
        raise AbsentError("no nvcc was found")
    asked = [machine.nvidia_smi, "--query-gpu=compute_cap", "--format=csv,noheader"]
    wanted = architecture(steps.command(asked).output if machine.nvidia_smi else "")
    target = root.inner(PROGRAM)
    steps.answer([machine.nvcc, "-O3", "-std=c++17", f"-arch={wanted}", "-o", target, SOURCE], 90)
    target.chmod(0o755)
    return f"{machine.nvcc}, {wanted}, {target.stat().st_size // 1024} KiB"


def cublas(root: Root) -> str:
    """The path of libcublas.so in the root. Raises AbsentError without one."""
    place = root.inner("/opt/cublas")
    names = sorted(path.name for path in place.glob("libcublas.so.*")) if place.is_dir() else []
    if not names:
        raise AbsentError("no libcublas.so was found")
    return f"/opt/cublas/{names[0]}"


def load(cluster: Cluster, *words: str, seconds: float = 60) -> dict[str, Any]:
    """What a load says in a job with one GPU."""
    if not cluster.root.inner(PROGRAM).exists():
        raise AbsentError("gpu_load was not built")
    answer = cluster.job("env", "LD_LIBRARY_PATH=/opt/cublas", PROGRAM, *words, seconds=seconds)
    if answer.status:
        raise StepError(f"{words[0]}: {answer.words}")
    try:
        figures: dict[str, Any] = json.loads(answer.output.strip().split("\n")[-1])
    except ValueError:
        raise StepError(f"{words[0]}: no figures in {answer.output!r}") from None
    return figures


def shown(figures: dict[str, Any]) -> str:
    """Figures in words."""
    return ", ".join(f"{name} {value}" for name, value in figures.items())
