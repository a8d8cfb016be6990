# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of a machine, of any vendor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..hardware.sysfs import Tree
from .amd.amd_gpus import Amd
from .nvidia.nvidia_gpus import Nvidia
from .vendor import Ask, GpuVendor, Warn

if TYPE_CHECKING:
    from ...plugin_utils.results.fact_records import GpuFact

NVIDIA = Nvidia()

VENDORS: Mapping[str, GpuVendor] = {"nvidia": NVIDIA, "amd": Amd()}
"""By the fact `vendor` of a GPU."""

REFUSED_METHODS = {
    "oneapi": "the collection has not been tried on a machine with GPUs of Intel and cannot check what Slurm finds "
    "there; give the GPUs the key file (/dev/dri/renderD[128-131]), or write Slurm's own lines with the keys Gres and "
    "gres_conf"
}
"""Values of AutoDetect that the collection refuses, and why."""


def read_gpus(tree: Tree, cores: Sequence[int], ask: Ask | None, warn: Warn) -> list[GpuFact]:
    """The machine's GPUs, of the first vendor that has some there.

    They are of one vendor, since slurmd finds GPUs by one method, and a graphics chip that a CPU or a mainboard has
    is not for jobs. Without any, NVIDIA's driver may still say why.
    """
    first = next((vendor for vendor in VENDORS.values() if vendor.find(tree)), NVIDIA)
    return first.read(tree, cores, ask, warn)


def vendor_of(gpus: Iterable[Mapping[str, Any]]) -> GpuVendor:
    """The vendor of measured GPUs, which are of one; NVIDIA where the facts name none."""
    return VENDORS[next((gpu["vendor"] for gpu in gpus if "vendor" in gpu), "nvidia")]


def vendor_by_method(method: str | None) -> GpuVendor | None:
    """The vendor whose GPUs a value of AutoDetect finds; None if nothing here measures what it finds."""
    return next((vendor for vendor in VENDORS.values() if method in vendor.methods), None)


def environment_of(entries: Iterable[Mapping[str, Any]]) -> str:
    """The variable by which a job knows the GPUs of these entries of gres.

    Flags choose it, or else AutoDetect; without both, Slurm sets the variables of all vendors (gres.conf(5), Flags).
    """
    gpus = [entry for entry in entries if entry["name"] == "gpu"]
    flags = {flag for entry in gpus for flag in entry.get("flags") or ()}
    methods = {entry.get("autodetect") for entry in gpus}
    by_flag = (vendor for vendor in VENDORS.values() if vendor.environment_flag in flags)
    by_method = (vendor for vendor in VENDORS.values() if methods & {*vendor.methods})
    return next(by_flag, next(by_method, NVIDIA)).environment
