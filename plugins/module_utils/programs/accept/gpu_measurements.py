# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks GPUs, and measures them by PyTorch in a container, nvbandwidth and nccl-tests."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from ...health import seen_findings
from ...health.gpu_findings import DriverReport, fabric_fault, gpu_findings, read_report, value_of
from ...host.kernel_messages import KernelMessagesError
from .accept_results import GIB, MIB, MeasureError, Results, run, run_any, there
from .node_speed import on_node

DIAGNOSES = {"dcgm_1": 180, "dcgm_2": 1200, "dcgm_3": 7200}
"""Seconds for `dcgmi diag` by test, whose name ends in the level."""

OF_GPUS = ("gpu_ecc", "gpu_remapped_rows", "gpu_pcie", "gpu_clocks")
"""Checks of each GPU in `nvidia-smi -q -x`."""


def check_gpus(results: Results, number: int, xids: Sequence[int]) -> None:
    """The checks by nvidia-smi and by the kernel's log. number: GPUs that the node must have."""
    report = None
    with results.named("gpu_count", "gpu_driver", "fabric_manager", *OF_GPUS):
        answer = run(["nvidia-smi", "-q", "-x"], 60)
        log, report = ElementTree.fromstring(answer), read_report(answer)
        results.driver = log.findtext("driver_version", "")
        gpus = log.findall("gpu")
        results.check("gpu_count", "" if len(gpus) == number else f"{len(gpus)} of {number} GPUs")
        results.check("gpu_driver", "" if results.driver else "nvidia-smi shows no driver")
        for index, gpu in enumerate(gpus):
            for test, fault in gpu_faults(gpu).items():
                results.check(test, fault, index)
        states = [fabric_fault(gpu) for gpu in gpus]
        if any(fault is not None for fault in states):
            faults = [f"GPU {index}: {fault}" for index, fault in enumerate(states) if fault]
            results.check("fabric_manager", ", ".join(faults))
    if results.wanted("gpu_nvlink"):
        with results.named("gpu_nvlink"):
            for gpu_index, fault in nvlink_faults(run(["nvidia-smi", "nvlink", "-s"], 60)).items():
                results.check("gpu_nvlink", fault, gpu_index)
    if results.wanted("gpu_xid"):
        with results.named("gpu_xid"):
            results.check("gpu_xid", last_error(report, xids))


def gpu_faults(gpu: ElementTree.Element) -> dict[str, str]:
    """The fault of a GPU by check, from its element of `nvidia-smi -q -x`; what a GPU does not have is no fault."""
    said = {finding.name: text for finding, text in gpu_findings(gpu)}
    ecc = [said[name] for name in ("gpu-ecc", "gpu-ecc-contained", "gpu-memory-failed") if name in said]
    ecc += ["ECC is disabled"] if value_of(gpu, "ecc_mode/current_ecc") == "Disabled" else []
    rows = [
        text for name, text in said.items() if name in ("gpu-rows-pending", "gpu-rows-failed", "gpu-repair-pending")
    ]
    return {
        "gpu_ecc": ", ".join(ecc),
        "gpu_remapped_rows": ", ".join(rows),
        "gpu_pcie": said.get("gpu-pcie", ""),
        "gpu_clocks": said.get("gpu-slowed", ""),
    }


def last_error(report: DriverReport | None, xids: Sequence[int]) -> str:
    """The last error of a GPU that no boot or reset has mended. Raises MeasureError."""
    try:
        return "".join(one.text for one in seen_findings.current(report, xids)[-1:])
    except KernelMessagesError as error:
        raise MeasureError(str(error)) from error


def nvlink_faults(text: str) -> dict[int, str]:
    """The links of each GPU that are down, by its index; no GPU without links. text: `nvidia-smi nvlink -s`."""
    faults: dict[int, str] = {}
    gpu, down = None, list[str]()
    for line in text.split("\n"):
        head = re.match(r"GPU (\d+):", line)
        link = re.match(r"\s+Link (\d+): (.*)", line)
        if head:
            gpu, down = int(head[1]), []
        elif link and gpu is not None:
            down += [link[1]] if "inactive" in link[2].lower() else []
            faults[gpu] = f"links down: {','.join(down)}" if down else ""
    return faults


def diagnose(results: Results) -> None:
    """`dcgmi diag` at the highest of the wanted levels, which has the tests of the lower ones."""
    for test in results.wanted(*DIAGNOSES)[-1:]:
        with results.named(test):
            command = ["dcgmi", "diag", "-r", test[-1], "-j"]
            if not there("dcgmi"):
                raise MeasureError("dcgmi is not installed")
            results.check(test, diagnosis_faults(run_any(command, DIAGNOSES[test])))


def diagnosis_faults(text: str) -> str:
    """What `dcgmi diag -j` calls failed, with its first warning. Raises ValueError if it is no JSON."""
    faults = []
    answer = json.loads(text[text.index("{") :])
    found = answer.get("DCGM Diagnostic") or answer.get("DCGM GPU Diagnostic") or {}
    for category in found.get("test_categories", []):
        for test in category.get("tests", []):
            for result in test.get("results", []):
                if str(result.get("status", "")).lower() == "fail":
                    warnings = result.get("warnings") or result.get("warning") or ""
                    first = warnings[0] if isinstance(warnings, list) and warnings else warnings
                    said = first.get("warning", "") if isinstance(first, Mapping) else str(first)
                    gpu = result.get("gpu_id", result.get("gpu_ids", result.get("entity_id", "")))
                    faults.append(f"{test.get('name', 'a test')} of GPU {gpu}: {said}")
    return "; ".join(faults)


# -- speed ------------------------------------------------------------------------------------------------------------

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


# -- with PyTorch, inside of a container ------------------------------------------------------------------------------

ROUNDS = 50
"""Repetitions on a GPU."""

LARGEST = 16 * GIB
"""Bytes of the largest message of a collective, if the GPUs have the memory for it."""


def torch_gpus(results: Results) -> None:
    """Measure each GPU of this node."""
    import torch  # only in the container

    count = torch.cuda.device_count()
    for index in range(count):
        torch.cuda.set_device(index)
        copy_on_gpu(torch, results, index, count)
        torch.cuda.empty_cache()
        multiply(torch, results, index)
        torch.cuda.empty_cache()


def copy_on_gpu(torch: Any, results: Results, index: int, count: int) -> None:
    """Memory bandwidth of a GPU, and copies to and from the host and the other GPUs."""
    size = min(4 * GIB, torch.cuda.mem_get_info(index)[0] // 4)
    data, copy = (torch.empty(size, dtype=torch.uint8, device=index) for _time in range(2))
    host = torch.empty(min(size, GIB), dtype=torch.uint8, pin_memory=True)
    part = data[: len(host)]
    # Each byte is read and written.
    results.add("gpu_memory_bandwidth", 2 * copy_rate(torch, data, copy), index, size)
    results.add("host_to_gpu", copy_rate(torch, host, part), index, len(host))
    results.add("gpu_to_host", copy_rate(torch, part, host), index, len(host))
    others = [other for other in range(count) if other != index] if results.wanted("gpu_to_gpu") else []
    rates = [copy_rate(torch, data, torch.empty(size, dtype=torch.uint8, device=other)) for other in others]
    if rates:
        results.add("gpu_to_gpu", min(rates), index, size)


def copy_rate(torch: Any, source: Any, target: Any) -> float:
    """GB/s of copies between two tensors of bytes."""
    return float(len(source) / timed(torch, lambda: target.copy_(source, non_blocking=True)) / 1e9)


def multiply(torch: Any, results: Results, index: int) -> None:
    """Throughput of products of large matrices: two operations for each pair of numbers."""
    order = 8192
    one, other = (torch.randn(order, order, dtype=torch.bfloat16, device=index) for _time in range(2))
    seconds = timed(torch, lambda: one @ other)
    results.add("gpu_matrix", 2 * order**3 / seconds / 1e12, index, 2 * order**2)


def timed(torch: Any, work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Seconds of one repetition, after three that do not count."""
    for _time in range(3):
        work()
    torch.cuda.synchronize()
    begin, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _time in range(rounds):
        work()
    ended.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(ended)) / 1000 / rounds


def torch_collective(test: str, nodes: Sequence[str]) -> None:
    """all_reduce of all GPUs of these nodes. A process for each GPU."""
    import torch  # only in the container

    gpus, place = torch.cuda.device_count(), nodes.index(os.environ["SLURMD_NODENAME"])
    port = 24000 + int(os.environ.get("SLURM_JOB_ID", "0")) % 5000
    os.environ["MASTER_ADDR"] = nodes[0] if len(nodes) > 1 else "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    # Its processes import this module. With the file of the program, they would run it anew.
    sys.modules["__main__"].__file__ = None
    torch.multiprocessing.spawn(torch_rank, (test, gpus, len(nodes) * gpus, place), gpus)


def torch_rank(local: int, test: str, gpus: int, world: int, place: int) -> None:
    """One process of all_reduce. The first one prints the bus bandwidth, which nccl-tests computes in the same way."""
    import torch  # only in the container

    torch.cuda.set_device(local)
    torch.distributed.init_process_group("nccl", rank=place * gpus + local, world_size=world)
    size = LARGEST
    while size > torch.cuda.mem_get_info(local)[0] // 2:
        size //= 2
    # All take the same size, that of the smallest GPU.
    agreed = torch.tensor([size], device=local)
    torch.distributed.all_reduce(agreed, torch.distributed.ReduceOp.MIN)
    size = int(agreed.item())
    data = torch.zeros(size // 4, dtype=torch.float32, device=local)
    seconds = timed(torch, lambda: torch.distributed.all_reduce(data), 20)
    if place == local == 0:
        Results([], frozenset([test])).add(test, 2 * (world - 1) / world * size / seconds / 1e9, size=size)
    torch.distributed.destroy_process_group()
