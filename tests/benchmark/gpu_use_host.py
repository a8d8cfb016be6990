# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of gpu_use.py that runs on the node, as root."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROUNDS = 200
TIMER_ROUNDS = 20
CONF = "/run/slurm/conf"
BASE = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": f"{CONF}/slurm.conf"}
JOB = {
    "SLURM_JOB_ID": "999999999",
    "SLURM_JOB_USER": "alice",
    "SLURM_JOB_UID": "2001",
    "SLURM_JOB_ACCOUNT": "physics",
    "SLURM_JOB_PARTITION": "all",
    "SLURM_JOB_START_TIME": "1",
    "SLURMD_NODENAME": os.uname().nodename,
}
GPUS = {"SLURM_JOB_GPUS": "0,1,2,3"}
DATA = Path("/run/gpucluster-slurm/gpu-job-data") / JOB["SLURM_JOB_ID"]


def run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Seconds and processor seconds of a command and its children."""
    begin = time.monotonic()
    process = os.posix_spawn(command[0], [*command], environment)
    _process, status, used = os.wait4(process, 0)
    seconds = time.monotonic() - begin
    assert status == 0, command
    return seconds, used.ru_utime + used.ru_stime


def show(what: str, rounds: Sequence[tuple[float, float]], base: float) -> float:
    """Print the medians in ms; return that of the processor time."""
    wall, used = (statistics.median(values) * 1000 for values in zip(*rounds))
    print(f"{what:45} {wall:7.1f} {used:7.1f} {used / (base or used):6.1f}", flush=True)
    return float(used)


def of_cgroup(command: Sequence[str]) -> float:
    """Processor seconds of a command and all that it starts, by the accounting of a cgroup."""
    first = Path("/sys/fs/cgroup/cpuacct")
    group = (first if first.exists() else Path("/sys/fs/cgroup")) / "gpu-use-cost"
    group.mkdir()
    script = f'echo $$ >{group}/cgroup.procs && exec "$@"'
    subprocess.run(["sh", "-c", script, "sh", *command], check=True, stdout=subprocess.DEVNULL)
    if first.exists():
        seconds = int((group / "cpuacct.usage").read_text()) / 1e9
    else:
        seconds = int((group / "cpu.stat").read_text().split()[1]) / 1e6
    group.rmdir()
    return seconds


def main() -> None:
    """Measure and print. Cases take turns, so that each has the same load of the machine."""
    bash = ["/bin/bash", "-c", "exit 0"]
    prolog, epilog = (["/bin/bash", f"{CONF}/slurm-{stage}"] for stage in ("prolog", "epilog"))
    cases = {
        "bash alone": (bash, JOB),
        "prolog of a job without GPUs": (prolog, JOB),
        "epilog of a job without GPUs": (epilog, JOB),
        "prolog of a job with 4 GPUs": (prolog, JOB | GPUS),
        "epilog of a job with 4 GPUs": (epilog, JOB | GPUS),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _round in range(ROUNDS):
        for name, (command, environment) in cases.items():
            found[name].append(run(command, BASE | environment))
    assert not DATA.exists()
    print(f"{'medians of ' + str(ROUNDS):45} {'ms':>7} {'CPU ms':>7} {'ratio':>6}")
    base = 0.0
    for name, rounds in found.items():
        used = show(name, rounds, base)
        base = base or used
    smi = "/usr/local/bin/nvidia-smi"
    query, pmon = [smi, "--query-gpu=index", "--format=csv,noheader,nounits"], [smi, "pmon", "-c", "1"]
    program = [of_cgroup(["/usr/local/sbin/slurm-gpu-metrics"]) for _round in range(TIMER_ROUNDS)]
    calls = [of_cgroup(query) + of_cgroup(pmon) for _round in range(TIMER_ROUNDS)]
    for name, times in {"a run of slurm-gpu-metrics": program, "two calls of nvidia-smi in it": calls}.items():
        print(f"{name:45} {'':7} {statistics.median(times) * 1000:7.1f}")


if __name__ == "__main__":
    main()
