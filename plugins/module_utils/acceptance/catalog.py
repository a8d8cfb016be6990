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


_HPCC = ("hpcc",)
_FIO = ("fio",)
_NCCL = "NCCL's bus bandwidth"

TESTS: dict[str, AcceptanceTest] = {
    test.name: test
    for test in (
        # A GPU that is lost is in no list, so the number comes from the cluster file.
        AcceptanceTest("gpu_count", "number of GPUs", "quick", Scope.NODE, programs=("nvidia-smi",)),
        _check("gpu_driver", "NVIDIA driver"),
        _check("gpu_xid", "Xid errors in the kernel's messages"),
        _check("fabric_manager", "fabric manager", gpus=2),
        _gpu_check("gpu_ecc", "uncorrected ECC errors"),
        _gpu_check("gpu_remapped_rows", "remapped rows of the memory"),
        _gpu_check("gpu_pcie", "PCIe generation and width"),
        _gpu_check("gpu_nvlink", "NVLinks"),
        _gpu_check("gpu_clocks", "reasons for low clocks"),
        AcceptanceTest(
            "gpu_memory_bandwidth",
            "memory bandwidth of the GPU",
            "quick",
            Scope.GPU,
            "GB/s",
            gpus=1,
            programs=("nvbandwidth",),
            container=True,
            seconds=10,
        ),
        # Chips of a kind differ by some percent in the clock that they keep at their power limit.
        AcceptanceTest(
            "gpu_matrix",
            "throughput of bf16 matrices",
            "quick",
            Scope.GPU,
            "TFLOP/s",
            tolerance=0.08,
            gpus=1,
            container=True,
            seconds=20,
        ),
        *(
            AcceptanceTest(
                name,
                meaning,
                "quick",
                Scope.GPU,
                "GB/s",
                gpus=1,
                programs=("nvbandwidth",),
                container=True,
                seconds=10,
            )
            for name, meaning in (
                ("host_to_gpu", "copies from the host to the GPU"),
                ("gpu_to_host", "copies from the GPU to the host"),
            )
        ),
        AcceptanceTest(
            "gpu_to_gpu",
            "copies from one GPU to the others",
            "medium",
            Scope.GPU,
            "GB/s",
            gpus=2,
            programs=("nvbandwidth",),
            container=True,
            seconds=20,
        ),
        AcceptanceTest(
            "all_reduce_node",
            f"{_NCCL} of all_reduce on a node",
            "quick",
            Scope.NODE,
            "GB/s",
            gpus=2,
            programs=("all_reduce_perf",),
            container=True,
            seconds=60,
        ),
        AcceptanceTest(
            "all_reduce_pair",
            f"{_NCCL} of all_reduce on two nodes",
            "medium",
            Scope.PAIR,
            "GB/s",
            gpus=1,
            programs=("all_reduce_perf",),
            container=True,
            seconds=60,
        ),
        AcceptanceTest(
            "all_gather_pair",
            f"{_NCCL} of all_gather on two nodes",
            "medium",
            Scope.PAIR,
            "GB/s",
            gpus=1,
            programs=("all_gather_perf",),
            container=True,
            seconds=60,
        ),
        AcceptanceTest(
            "all_reduce_many",
            f"{_NCCL} of all_reduce on all nodes",
            "long",
            Scope.MANY,
            "GB/s",
            gpus=1,
            programs=("all_reduce_perf",),
            container=True,
            seconds=120,
        ),
        AcceptanceTest(
            "all_gather_many",
            f"{_NCCL} of all_gather on all nodes",
            "long",
            Scope.MANY,
            "GB/s",
            gpus=1,
            programs=("all_gather_perf",),
            container=True,
            seconds=120,
        ),
        AcceptanceTest(
            "stream", "memory bandwidth (STREAM Triad)", "quick", Scope.NODE, "GB/s", programs=_HPCC, seconds=30
        ),
        AcceptanceTest(
            "dgemm", "throughput of the CPUs (DGEMM)", "quick", Scope.NODE, "GFLOP/s", programs=_HPCC, seconds=30
        ),
        # Disks of a kind differ by age and fill, and a shared file system by who else uses it.
        AcceptanceTest(
            "disk_write_local",
            "writing to the local disk",
            "quick",
            Scope.NODE,
            "MB/s",
            tolerance=0.15,
            programs=_FIO,
            seconds=20,
        ),
        AcceptanceTest(
            "disk_read_local",
            "reading from the local disk",
            "quick",
            Scope.NODE,
            "MB/s",
            tolerance=0.15,
            programs=_FIO,
            seconds=20,
        ),
        AcceptanceTest(
            "disk_write_shared",
            "writing to the shared file system",
            "medium",
            Scope.NODE,
            "MB/s",
            tolerance=0.25,
            programs=_FIO,
            shared=True,
            seconds=30,
        ),
        AcceptanceTest(
            "disk_read_shared",
            "reading from the shared file system",
            "medium",
            Scope.NODE,
            "MB/s",
            tolerance=0.25,
            programs=_FIO,
            shared=True,
            seconds=30,
        ),
        AcceptanceTest(
            "network_tcp", "TCP between two nodes", "medium", Scope.PAIR, "Gb/s", programs=("iperf3",), seconds=15
        ),
        AcceptanceTest(
            "network_rdma",
            "RDMA writes between two nodes",
            "medium",
            Scope.PAIR,
            "Gb/s",
            programs=("ib_write_bw",),
            seconds=15,
        ),
        AcceptanceTest("dcgm_1", "dcgmi diag, level 1", "quick", Scope.NODE, gpus=1, programs=("dcgmi",), seconds=10),
        AcceptanceTest("dcgm_2", "dcgmi diag, level 2", "medium", Scope.NODE, gpus=1, programs=("dcgmi",), seconds=120),
        AcceptanceTest("dcgm_3", "dcgmi diag, level 3", "long", Scope.NODE, gpus=1, programs=("dcgmi",), seconds=1800),
    )
}
"""The tests by name."""


def of_level(level: str) -> Sequence[AcceptanceTest]:
    """The tests of a level, with those of the levels before it. Raises ValueError for another name."""
    return [test for test in TESTS.values() if LEVELS.index(test.level) <= LEVELS.index(level)]
