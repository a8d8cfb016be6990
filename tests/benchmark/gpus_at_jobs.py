# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what jobs with GPUs wait for the health check: 200 of each, with it and without it.

The hosts are those of the lab's scenario `containers`, as `molecule create` leaves them. GPUs and nvidia-smi, which
prints what a real one has said, are stand-ins. The two states take turns.    usage: python gpus_at_jobs.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
from pathlib import Path

from timed_role import playbook

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SSH_CONFIG = ROOT / ".lab/containers/ssh_config"
HEAD, NODES = "front", ("box01", "box02")
TURNS, ROUNDS = 8, 25
WITHOUT, WITH = "without", "with"
MODES = {WITHOUT: "644", WITH: "755"}
REPORT = ROOT / "tests/unit/recorded/h200/nvidia-smi/q-x"
SMI = """#!/bin/sh
case $1 in -q) cat /run/q-x ;; *) printf 'GPU 0: H100\\nGPU 1: H100\\n' ;; esac
"""
TIMES = """
import json, subprocess, sys, time
argv, found = sys.argv[2:], []
for _round in range(int(sys.argv[1])):
    begin = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    found.append(time.monotonic() - begin)
print(json.dumps(found))
"""


def on_host(host: str, *command: str, text: bytes = b"") -> str:
    """The output of a command as root on a host."""
    argv = ["ssh", "-F", str(SSH_CONFIG), host, "sudo", *command]
    return subprocess.run(argv, input=text, stdout=subprocess.PIPE, check=True).stdout.decode()


def times(host: str, *command: str) -> list[float]:
    """Seconds of each run of a command on a host."""
    found: list[float] = json.loads(on_host(host, "python3", "-", str(ROUNDS), *command, text=TIMES.encode()))
    return found


def shown(name: str, values: list[float]) -> str:
    """Median and 99th percentile in milliseconds."""
    return f"{name:36}{statistics.median(values) * 1000:8.0f} {statistics.quantiles(values, n=100)[98] * 1000:8.0f}"


def main() -> None:
    """Measure, and print a table."""
    playbook(str(SSH_CONFIG), "gpucluster.slurm.site", "-i", str(HERE / "waits.cluster.yml"))
    for node in NODES:
        on_host(node, "tee", "/run/q-x", text=REPORT.read_bytes())
        on_host(node, "tee", "/usr/local/bin/nvidia-smi", text=SMI.encode())
        on_host(node, "chmod", "755", "/usr/local/bin/nvidia-smi")
    found: dict[str, list[float]] = {}
    for turn in range(TURNS):
        for state in (WITHOUT, WITH) if turn % 2 else (WITH, WITHOUT):
            for node in NODES:
                on_host(node, "chmod", MODES[state], "/usr/local/sbin/slurm-health")
            found.setdefault(f"srun with a GPU, {state}", []).extend(times(HEAD, "srun", "--gres=gpu:1", "true"))
        for moment in ("before", "after"):
            on_host(NODES[0], "chmod", MODES[WITH], "/usr/local/sbin/slurm-health")
            command = ["/usr/local/sbin/slurm-health", f"--{moment}-job"]
            found.setdefault(f"slurm-health --{moment}-job", []).extend(times(NODES[0], *command))
        print(f"turn {turn + 1} of {TURNS}", flush=True)
    print(f"{'milliseconds':36}{'median':>8} {'99 %':>8}")
    print(*(shown(*row) for row in found.items()), sep="\n")


if __name__ == "__main__":
    main()
