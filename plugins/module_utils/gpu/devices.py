# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of a machine, whoever has made them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.answer_records import GpuFact
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia.devices import Nvidia
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.vendor import Ask, GpuVendor
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree

NVIDIA = Nvidia()

VENDORS: Mapping[str, GpuVendor] = {"nvidia": NVIDIA}
"""By the fact `vendor` of a GPU."""


def read_gpus(tree: Tree, cores: Sequence[int], ask: Ask | None, warn: Callable[[str], None]) -> list[GpuFact]:
    """The machine's GPUs, of the first vendor that has some there.

    They are of one vendor, since slurmd finds GPUs by one method, and a graphics chip that a CPU or a mainboard has
    is not for jobs. Without any, NVIDIA's driver may still say why.
    """
    maker = next((vendor for vendor in VENDORS.values() if vendor.find(tree)), NVIDIA)
    return maker.read(tree, cores, ask, warn)


def vendor_of(gpus: Iterable[Mapping[str, Any]]) -> GpuVendor:
    """The vendor of measured GPUs, which are of one; NVIDIA where the facts name none."""
    return VENDORS[next((gpu["vendor"] for gpu in gpus if "vendor" in gpu), "nvidia")]


def vendor_by_method(method: str | None) -> GpuVendor | None:
    """The vendor whose GPUs a value of AutoDetect finds; None if nothing here measures what it finds."""
    return next((vendor for vendor in VENDORS.values() if method in vendor.methods), None)
