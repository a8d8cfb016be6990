# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record how the same measurement differs from run to run on one machine, as noise for acceptance_simulation.py.

Needs fio, hpcc, iperf3, openssl and numpy. Each line of the output is one run: test, value, and the load of the machine
before it.    usage: python acceptance_noise.py DIRECTORY ROUNDS >> runs.jsonl
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

MEMORY = """
import numpy, time
a = numpy.ones(16 * 2**20); b = numpy.empty_like(a); numpy.copyto(b, a)
start = time.perf_counter()
for _ in range(10): numpy.copyto(b, a)
print(20 * a.nbytes / (time.perf_counter() - start) / 1e9)
"""
"""Copies of 128 MiB, larger than the caches; GB/s read and written."""

HPCC = """
{0}
{0}
HPL.out
6
1
1500
1
80
0
1
1
1
16.0
1
2
1
4
1
2
1
1
1
0
1
2
1
0
2
64
0
0
1
8
"""


def output(*command: str, directory: Path) -> str:
    """What a command prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    ).stdout


def hpcc(directory: Path) -> dict[str, float]:
    """DGEMM in Gflop/s, and STREAM Triad in GB/s with arrays that the caches hold."""
    (directory / "hpccinf.txt").write_text(HPCC.lstrip().format("acceptance"))
    (directory / "hpccoutf.txt").unlink(missing_ok=True)
    output("hpcc", directory=directory)
    text = (directory / "hpccoutf.txt").read_text()
    names = {"dgemm": "SingleDGEMM_Gflops", "stream": "SingleSTREAM_Triad"}
    return {name: float(re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)[0]) for name, key in names.items()}


def memory(directory: Path) -> dict[str, float]:
    """Bandwidth of the memory in GB/s."""
    return {"memory": float(output(sys.executable, "-c", MEMORY, directory=directory))}


def disk(directory: Path) -> dict[str, float]:
    """Sequential write and read of 128 MiB without the page cache, in MB/s."""
    found = {}
    for way in ("write", "read"):
        common = ("--name=run", "--filename=fio.tmp", "--size=128M", "--bs=4M", "--direct=1", "--output-format=json")
        answer = json.loads(output("fio", f"--rw={way}", "--end_fsync=1", *common, directory=directory))
        found[f"disk_{way}"] = answer["jobs"][0][way]["bw_bytes"] / 1e6
    return found


def network(directory: Path) -> dict[str, float]:
    """One second of TCP over the loopback, in Gb/s."""
    with subprocess.Popen(["iperf3", "-s", "-1", "-p", "15201"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        time.sleep(0.3)
        answer = json.loads(output("iperf3", "-c", "127.0.0.1", "-p", "15201", "-t", "1", "-J", directory=directory))
    return {"network": answer["end"]["sum_received"]["bits_per_second"] / 1e9}


def cipher(directory: Path) -> dict[str, float]:
    """AES-128-GCM on one core, in MB/s."""
    lines = output("openssl", "speed", "-seconds", "1", "-bytes", "16384", "-evp", "aes-128-gcm", directory=directory)
    return {"cipher": float(lines.split()[-1].rstrip("k")) / 1e3}


MEASUREMENTS: tuple[Callable[[Path], dict[str, float]], ...] = (hpcc, memory, disk, network, cipher)


def main() -> None:
    """Run each measurement in turn, so that runs of the same one are some seconds apart."""
    directory, rounds = Path(sys.argv[1]), int(sys.argv[2])
    for _ in range(rounds):
        for measure in MEASUREMENTS:
            load = os.getloadavg()[0]
            for name, value in measure(directory).items():
                print(json.dumps({"test": name, "value": float(f"{value:.5g}"), "load": round(load, 2)}), flush=True)
    (directory / "fio.tmp").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
