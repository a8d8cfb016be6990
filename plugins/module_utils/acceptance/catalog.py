# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tests of an acceptance run, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

LEVELS: Final = ("quick", "medium", "long")
"""The levels, of which each has the tests of those before it."""

OK: Final = "ok"
"""The unit of a check, whose value is 1 or 0."""


class Scope(Enum):
    """What a value is about."""

    GPU = "gpu"
    NODE = "node"
    PAIR = "pair"
    MANY = "many"


@dataclass(frozen=True)
class AcceptanceTest:
    """A test: a check that is right or wrong, or a value that is compared."""

    name: str
    meaning: str
    """What is measured, as a finding names it."""
    level: str
    scope: Scope
    unit: str = OK
    higher: bool = True
    """Whether more is better."""
    tolerance: float = 0.05
    """The least relative difference that means anything. Healthy units of a kind differ by less."""
    gpus: int = 0
    """How many GPUs a node needs to have for it."""
    programs: tuple[str, ...] = ()
    """Programs of which the node needs one; with none, the collection's own program does it."""
    container: bool = False
    """Whether the container that the site names can do it in their place."""
    shared: bool = False
    """Whether nodes use the same thing at the same time, so that one is blamed only if controls were measured too."""
    seconds: int = 1
    """How long it takes on a node or pair, about."""

    @property
    def is_check(self) -> bool:
        return self.unit == OK


def _check(name: str, meaning: str, gpus: int = 1, programs: tuple[str, ...] = ("nvidia-smi",)) -> AcceptanceTest:
    return AcceptanceTest(name, meaning, "quick", Scope.NODE, gpus=gpus, programs=programs)


def _gpu_check(name: str, meaning: str) -> AcceptanceTest:
    return AcceptanceTest(name, meaning, "quick", Scope.GPU, gpus=1, programs=("nvidia-smi",))


def _bandwidth(
    name: str, meaning: str, level: str, scope: Scope, program: str, gpus: int = 1, seconds: int = 10
) -> AcceptanceTest:
    common = (name, meaning, level, scope, "GB/s")
    return AcceptanceTest(*common, gpus=gpus, programs=(program,), container=True, seconds=seconds)


def _disk(name: str, meaning: str, level: str, tolerance: float, shared: bool = False) -> AcceptanceTest:
    seconds = 30 if shared else 20
    common = (name, meaning, level, Scope.NODE, "MB/s")
    return AcceptanceTest(*common, tolerance=tolerance, programs=("fio",), shared=shared, seconds=seconds)


def _hpcc(name: str, meaning: str, unit: str) -> AcceptanceTest:
    return AcceptanceTest(name, meaning, "quick", Scope.NODE, unit, programs=("hpcc",), seconds=30)


def _network(name: str, meaning: str, program: str, seconds: int = 15) -> AcceptanceTest:
    return AcceptanceTest(name, meaning, "medium", Scope.PAIR, "Gb/s", programs=(program,), seconds=seconds)


def _dcgm(number: int, level: str, seconds: int) -> AcceptanceTest:
    meaning = f"dcgmi diag, level {number}"
    return AcceptanceTest(f"dcgm_{number}", meaning, level, Scope.NODE, gpus=1, programs=("dcgmi",), seconds=seconds)


_NCCL = "NCCL's bus bandwidth"
_REDUCE, _GATHER = "all_reduce_perf", "all_gather_perf"

TESTS: dict[str, AcceptanceTest] = {
    test.name: test
    for test in (
        # A GPU that is lost is in no list, so the number comes from the cluster file.
        _check("gpu_count", "number of GPUs", gpus=0),
        _check("gpu_driver", "NVIDIA driver"),
        _check("gpu_xid", "Xid errors in the kernel's messages"),
        _check("fabric_manager", "fabric manager", gpus=2),
        _gpu_check("gpu_ecc", "uncorrected ECC errors"),
        _gpu_check("gpu_remapped_rows", "remapped rows of the memory"),
        _gpu_check("gpu_pcie", "PCIe generation and width"),
        _gpu_check("gpu_nvlink", "NVLinks"),
        _gpu_check("gpu_clocks", "reasons for low clocks"),
        _bandwidth("gpu_memory_bandwidth", "memory bandwidth of the GPU", "quick", Scope.GPU, "nvbandwidth"),
        # Chips of a kind differ by some percent in the clock that they keep at their power limit.
        AcceptanceTest(
            *("gpu_matrix", "throughput of bf16 matrices", "quick", Scope.GPU, "TFLOP/s"),
            tolerance=0.08,
            gpus=1,
            container=True,
            seconds=20,
        ),
        _bandwidth("host_to_gpu", "copies from the host to the GPU", "quick", Scope.GPU, "nvbandwidth"),
        _bandwidth("gpu_to_host", "copies from the GPU to the host", "quick", Scope.GPU, "nvbandwidth"),
        _bandwidth("gpu_to_gpu", "copies from one GPU to the others", "medium", Scope.GPU, "nvbandwidth", 2, 20),
        _bandwidth("all_reduce_node", f"{_NCCL} of all_reduce on a node", "quick", Scope.NODE, _REDUCE, 2, 60),
        _bandwidth("all_reduce_pair", f"{_NCCL} of all_reduce on two nodes", "medium", Scope.PAIR, _REDUCE, 1, 60),
        _bandwidth("all_gather_pair", f"{_NCCL} of all_gather on two nodes", "medium", Scope.PAIR, _GATHER, 1, 60),
        _bandwidth("all_reduce_many", f"{_NCCL} of all_reduce on all nodes", "long", Scope.MANY, _REDUCE, 1, 120),
        _bandwidth("all_gather_many", f"{_NCCL} of all_gather on all nodes", "long", Scope.MANY, _GATHER, 1, 120),
        _hpcc("stream", "memory bandwidth (STREAM Triad)", "GB/s"),
        _hpcc("dgemm", "throughput of the CPUs (DGEMM)", "GFLOP/s"),
        # Disks of a kind differ by age and fill, and a shared file system by who else uses it.
        _disk("disk_write_local", "writing to the local disk", "quick", 0.15),
        _disk("disk_read_local", "reading from the local disk", "quick", 0.15),
        _disk("disk_write_shared", "writing to the shared file system", "medium", 0.25, shared=True),
        _disk("disk_read_shared", "reading from the shared file system", "medium", 0.25, shared=True),
        _network("network_tcp", "TCP between two nodes", "iperf3"),
        _network("network_rdma", "RDMA writes between two nodes", "ib_write_bw"),
        _network("network_rdma_across", "RDMA writes to another rail of a node", "ib_write_bw", 30),
        _dcgm(1, "quick", 10),
        _dcgm(2, "medium", 120),
        _dcgm(3, "long", 1800),
    )
}
"""The tests by name."""


def of_level(level: str) -> Sequence[AcceptanceTest]:
    """The tests of a level, with those of the levels before it. Raises ValueError for another name."""
    return [test for test in TESTS.values() if LEVELS.index(test.level) <= LEVELS.index(level)]
