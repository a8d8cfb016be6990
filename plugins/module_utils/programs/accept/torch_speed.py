# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures GPUs by PyTorch, inside of a container."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .accept_results import GIB, Results

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
    data, copy = (torch.empty(size, dtype=torch.uint8, device=index) for _ in range(2))
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
    one, other = (torch.randn(order, order, dtype=torch.bfloat16, device=index) for _ in range(2))
    seconds = timed(torch, lambda: one @ other)
    results.add("gpu_matrix", 2 * order**3 / seconds / 1e12, index, 2 * order**2)


def timed(torch: Any, work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Seconds of one repetition, after three that do not count."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    begin, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(rounds):
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
