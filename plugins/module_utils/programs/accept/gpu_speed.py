# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures GPUs by PyTorch in a container, nvbandwidth and nccl-tests."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from .accept_results import GIB, MIB, MeasureError, Results, run, there
from .node_speed import on_node
from .torch_speed import ROUNDS

COLLECTIVE_SECONDS = 1800


@dataclass(frozen=True)
class Container:
    """How programs run with PyTorch."""

    image: str
    runtime: str
    """`apptainer` or `pyxis`; empty without a container."""
    mounts: Sequence[str] = ()

    def command(self, node: str, *command: str) -> list[str]:
        """A command in the container, on one node of the job."""
        if self.runtime == "pyxis":
            return [*on_node(node), *self.options(), *command]
        return [*self.options(), *command]

    def options(self) -> list[str]:
        """The words before a command, after srun's own for pyxis."""
        mounts = [f"{path}:{path}" for path in self.mounts]
        if self.runtime == "pyxis":
            return [f"--container-image={self.image}", f"--container-mounts={','.join(mounts)}"]
        if self.runtime == "apptainer":
            return ["apptainer", "exec", "--nv", *(f"--bind={mount}" for mount in mounts), self.image]
        return []


PYTHON = ("python3", "-B")
"""That of the container, which leaves no compiled files on the node."""


def this_program() -> str:
    """The path of this program. Its library is in the same directory."""
    return os.path.realpath(sys.argv[0])


OF_TORCH = ("gpu_memory_bandwidth", "gpu_matrix", "host_to_gpu", "gpu_to_host", "gpu_to_gpu")
"""Tests of each GPU."""


def measure_gpus(results: Results, gpus: int, container: Container, nccl_tests: str) -> None:
    """The GPUs of this node by PyTorch in a container or nvbandwidth, and their all_reduce by nccl-tests or PyTorch."""
    wanted = results.wanted(*OF_TORCH)
    if not container.image:
        measure_copies(results)
        results.miss("gpu_matrix", "accept_container names no image with PyTorch")
    elif wanted:
        with results.named(*wanted):
            command = [*PYTHON, this_program(), "gpus", f"--tests={','.join(wanted)}"]
            repeat(results, run(container.command(results.nodes[0], *command), 1800, clean=False))
    measure_collectives(results, gpus, "node", container, nccl_tests)


COPIES = {
    "gpu_memory_bandwidth": "device_local_copy",
    "host_to_gpu": "host_to_device_memcpy_ce",
    "gpu_to_host": "device_to_host_memcpy_ce",
    "gpu_to_gpu": "device_to_device_memcpy_write_ce",
}
"""Test cases of nvbandwidth, by test."""


def measure_copies(results: Results) -> None:
    """The GPUs of this node by nvbandwidth, where no image has PyTorch."""
    wanted = results.wanted(*COPIES)
    if not wanted:
        return
    with results.named(*wanted):
        if not there("nvbandwidth"):
            raise MeasureError("accept_container names no image with PyTorch, and nvbandwidth is not installed")
        text = run(["nvbandwidth", "-b", str(GIB // MIB), "-t", *(COPIES[test] for test in wanted)], 1800)
        for test in wanted:
            with results.named(test):
                # Each byte of a local copy is read and written, and nvbandwidth counts it once.
                times = 2 if test == "gpu_memory_bandwidth" else 1
                for gpu, rate in read_nvbandwidth(text, COPIES[test]).items():
                    results.add(test, times * rate, gpu, GIB)


def read_nvbandwidth(text: str, case: str) -> dict[int, float]:
    """GB/s of each GPU in the table of a test case: its column of a single row, or the least of its row of others.

    Raises MeasureError without such a table: nvbandwidth waives what the GPUs cannot do.
    """
    table = text.partition(f"Running {case}.")[2].partition("Running ")[0]
    rows = [
        [float(rate) if rate != "N/A" else 0.0 for rate in row.split()]
        for row in re.findall(r"^ *\d+((?: +(?:\d+\.\d+|N/A))+) *$", table, re.MULTILINE)
    ]
    if not rows:
        raise MeasureError(f"nvbandwidth shows no table of {case}")
    # 0 and N/A are in the place of a GPU with itself.
    return dict(enumerate(rows[0] if len(rows) == 1 else (min(filter(None, row), default=0.0) for row in rows)))


def repeat(results: Results, text: str) -> None:
    """Print the results that a program in a container has printed, as those of this job. Raises MeasureError."""
    lines = [json.loads(line) for line in text.split("\n") if line.startswith('{"test"')]
    if not lines:
        raise MeasureError("the program in the container printed no result")
    for line in lines:
        results.add(line["test"], line["value"], line["gpu"], line["size"])


COLLECTIVES = {"all_reduce": "16G", "all_gather": "8G"}
"""The largest size of each in nccl-tests, that of published figures. nccl-tests takes less on GPUs with less memory."""


def measure_collectives(results: Results, gpus: int, scope: str, container: Container, nccl_tests: str) -> None:
    """Collectives of all GPUs of the job, by nccl-tests, or all_reduce by PyTorch; scope: node, pair or many."""
    nodes = len(results.nodes)
    for collective, largest in COLLECTIVES.items():
        test = f"{collective}_{scope}"
        if not results.wanted(test):
            continue
        with results.named(test):
            if nccl_tests:
                options = ["-b", "1G", "-e", largest, "-f", "2", "-n", str(ROUNDS), "-w", "5", "-c", "0"]
                program = [f"{nccl_tests}/{collective}_perf", *options]
                if nodes == 1:
                    command = container.command(results.nodes[0], *program, "-g", str(gpus))
                else:
                    where = [f"--nodes={nodes}", f"--ntasks={nodes * gpus}", f"--ntasks-per-node={gpus}", "--overlap"]
                    command = ["srun", *where, "--mpi=pmix", *container.options(), *program, "-g", "1"]
                size, value = read_nccl_tests(run(command, COLLECTIVE_SECONDS, clean=False))
                results.add(test, value, size=size)
            elif container.image and collective == "all_reduce":
                where = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--overlap", "--mpi=none"]
                program = [*PYTHON, this_program(), "ranks", f"--tests={test}"]
                program += [f"--nodes={','.join(results.nodes)}"]
                command = ["srun", *where, *container.options(), *program]
                repeat(results, run(command, COLLECTIVE_SECONDS, clean=False))
            else:
                raise MeasureError("accept_nccl_tests and accept_container name nothing that measures it")


ROW = re.compile(
    r"^ *(?:\d+:)?\s*(\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+\s+([\d.]+)\s+[\d.]+\s+([\d.]+)\s+\S+(.*)$", re.MULTILINE
)
"""A row of nccl-tests: size, count, type, redop, root, and for both columns time, algbw, busbw, wrong values. `srun -l`
puts the task before it."""


def read_nccl_tests(text: str) -> tuple[int, float]:
    """Size in bytes, and the bus bandwidth out of place, of the largest size. Its average over all sizes is not used.

    Raises MeasureError without a table, and if values were wrong.
    """
    rows = [(int(size), float(bus)) for size, _time, bus, _rest in ROW.findall(text)]
    if not rows:
        raise MeasureError("nccl-tests shows no table")
    wrong = re.search(r"Out of bounds values : (\d+)", text)
    if wrong and int(wrong[1]):
        raise MeasureError(f"nccl-tests found {wrong[1]} wrong values")
    return max(rows)
