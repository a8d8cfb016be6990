# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for PyTorch with one GPU, with only what slurm-accept calls. It computes nothing.

Its clock goes on by what each operation would take at the rates below, about those of an H100, with some noise.
"""

# The arguments are those of PyTorch.
# ruff: noqa: ARG001, ARG002

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

ON_GPU, TO_HOST, MATRIX = 1500e9, 55e9, 800e12
"""Bytes each second of copies on the GPU, and to and from the host; operations of a product of matrices."""
NOISE = 0.003
uint8, bfloat16 = 1, 2
"""Types, as their bytes."""

now = 0.0
"""Seconds."""


def spend(seconds: float) -> None:
    """Let the clock go on."""
    global now
    now += seconds * random.gauss(1, NOISE)


class Tensor:
    """A size and a place."""

    def __init__(self, *shape: int, dtype: int, on_gpu: bool) -> None:
        self.shape, self.dtype, self.on_gpu = shape, dtype, on_gpu

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> Tensor:
        return Tensor(part.stop, dtype=self.dtype, on_gpu=self.on_gpu)

    def copy_(self, other: Tensor, non_blocking: bool = False) -> None:
        """Copy from another tensor."""
        spend(len(other) / (ON_GPU if self.on_gpu and other.on_gpu else TO_HOST))

    def __matmul__(self, other: Tensor) -> None:
        spend(2 * self.shape[0] * self.shape[1] * other.shape[1] / MATRIX)


def empty(size: int, dtype: int, device: int | None = None, pin_memory: bool = False) -> Tensor:
    """A tensor without content."""
    return Tensor(size, dtype=dtype, on_gpu=device is not None)


def randn(*shape: int, dtype: int, device: int) -> Tensor:
    """A tensor of random numbers."""
    return Tensor(*shape, dtype=dtype, on_gpu=True)


class Event:
    """A point in time."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.time = 0.0

    def record(self) -> None:
        """Take the time."""
        self.time = now

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds until another event."""
        return 1000 * (end.time - self.time)


class cuda:  # noqa: N801 - torch.cuda is a module
    """The functions for GPUs."""

    Event = Event
    device_count: Callable[[], int] = staticmethod(lambda: 1)
    mem_get_info: Callable[[int], tuple[int, int]] = staticmethod(lambda _index: (80 << 30, 80 << 30))
    set_device: Callable[[int], Any] = staticmethod(lambda _index: None)
    empty_cache: Callable[[], Any] = staticmethod(lambda: None)
    synchronize: Callable[[], Any] = staticmethod(lambda: None)
