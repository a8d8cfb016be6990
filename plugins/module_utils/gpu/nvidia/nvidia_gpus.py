# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA GPUs of a machine, from PCI, from their driver and from the output of nvidia-smi."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...hardware.sysfs import Tree
from .. import vendor
from ..pci import PCI, is_display, near_cores, numa_node, pci_model
from ..vendor import Ask, GpuVendor, Warn, detected_name

if TYPE_CHECKING:
    from ....plugin_utils.results.fact_records import GpuFact, MigInstance

DRIVER = "/proc/driver/nvidia/gpus"
VENDOR = "0x10de"
QUERY = ("--query-gpu=index,pci.bus_id,memory.total", "--format=csv,noheader,nounits")
LIST = ("-L",)
CHANGED = "/run/gpucluster-slurm/gpus-changed"
"""Its time says when the host's GPUs have last changed, whatever became of the run that did it. slurmd finds GPUs when
it starts; role slurmd starts it anew if it is older."""

_ROW = re.compile(r"(\d+), *([0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\.[0-9A-Fa-f]+), *([^,]*)")
"""A line of the answer to QUERY."""
_GPU = re.compile(r"GPU (\d+):.*")
_INSTANCE = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: ([^)]+)\)\s*")
"""Lines of the answer to LIST."""

_PLAIN = {"nvidia", "tesla", "quadro", "geforce", "grid", "graphics", "device", "corporation"}
_VARIANTS = {"ti", "super", "ada", "d", "sff"}


@dataclass(frozen=True)
class Usage:
    """Data of nvidia-smi about a GPU: its memory in MiB, and its MIG instances."""

    memory: int | None = None
    mig: list[MigInstance] = field(default_factory=list)


def gres_type(model: str) -> str:
    """The name for Gres that a model gives."""
    return vendor.gres_type(model, _PLAIN, _VARIANTS)


def mig_name(model: str) -> str:
    """The name that the instances of a GPU with MIG begin with: that of the GPU, up to its first hyphen.

    Place: `_get_system_gpu_list_nvml` in `src/plugins/gpu/nvml/gpu_nvml.c`.
    """
    return detected_name(model).partition("-")[0]


def detected_names(gpu: Mapping[str, Any]) -> list[str]:
    """The names that AutoDetect=nvml gives what it finds of a GPU of a known model: its MIG instances, or itself."""
    if gpu["mig"]:
        return [f"{mig_name(gpu['model'])}_{instance['profile']}" for instance in gpu["mig"]]
    return [detected_name(gpu["model"])]


def pci_address(text: str) -> str:
    """An address as Linux writes it: nvidia-smi's domain has eight digits, Linux's four unless it needs more."""
    domain, rest = text.strip().lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def misunderstood(output: str) -> str:
    """The first line of an answer of nvidia-smi to QUERY or LIST that has no known form; empty if there is none."""
    lines = [line for line in output.split("\n") if line.strip()]
    return next(
        (line.strip() for line in lines if not any(form.fullmatch(line) for form in (_ROW, _GPU, _INSTANCE))), ""
    )


def parse_usage(query: str, listing: str) -> dict[str, Usage]:
    """The output of nvidia-smi for QUERY and for LIST, by PCI address. A value that it does not know is None.

    Lines that are not understood are left out (`misunderstood` names the first).
    """
    mig: dict[str, list[MigInstance]] = {}
    instances: list[MigInstance] = []
    for line in listing.split("\n"):
        if gpu := _GPU.fullmatch(line):
            instances = mig.setdefault(gpu[1], [])
        if found := _INSTANCE.fullmatch(line):
            instances.append({"profile": found[1], "uuid": found[2]})
    result = {}
    for line in query.split("\n"):
        if row := _ROW.fullmatch(line):
            memory = int(row[3]) if row[3].strip().isdigit() else None
            result[pci_address(row[2])] = Usage(memory, mig.get(row[1], []))
    return result


def addresses(tree: Tree) -> list[str]:
    """The PCI addresses of the GPUs: those on PCI and those that the driver names."""
    found = set(tree.names(DRIVER))
    for address in tree.names(PCI):
        if tree.text(f"{PCI}/{address}/vendor") == VENDOR and is_display(tree, address):
            found.add(address)
    return sorted(found)


def read_gpus(tree: Tree, cores: Sequence[int], usage: dict[str, Usage]) -> list[GpuFact]:
    """The machine's GPUs in the order of their minor numbers, those that no driver has taken last.

    Args:
        tree: the machine's files.
        cores: the CPUs of each core, in the order of Slurm's core indexes.
        usage: what nvidia-smi knows.
    """
    gpus: list[GpuFact] = []
    for address in addresses(tree):
        driver = dict(
            re.findall(r"^([^:\n]+):[ \t]*(.*)$", tree.text(f"{DRIVER}/{address}/information") or "", re.MULTILINE)
        )
        minor = driver.get("Device Minor", "").strip()
        model = driver.get("Model", "").strip() or pci_model(tree, VENDOR, address)
        known = usage.get(address, Usage())
        gpus.append(
            {
                "minor": int(minor) if minor.isdigit() else None,
                "pci_address": address,
                "model": model,
                "type": gres_type(model) if model else None,
                "memory_mb": known.memory,
                "numa_node": numa_node(tree, address),
                "cores": near_cores(tree, address, cores),
                "mig": known.mig,
            }
        )
    return sorted(gpus, key=lambda gpu: (gpu["minor"] is None, gpu["minor"] or 0))


def ask_usage(tree: Tree, ask: Ask, warn: Warn) -> dict[str, Usage]:
    """What nvidia-smi says of the GPUs, by PCI address. A part that is missing or not understood is a warning."""
    query, listing = (ask("nvidia-smi", *arguments) for arguments in (QUERY, LIST))
    usage = parse_usage(query or "", listing or "")
    for arguments, output in ((QUERY, query), (LIST, listing)):
        command = f"nvidia-smi {' '.join(arguments)}"
        if odd := misunderstood(output or ""):
            warn(f"{command}: found {odd[:200]!r}, which is not understood")
        if output is not None and arguments == QUERY:
            for address in tree.names(DRIVER):
                if address not in usage:
                    warn(f"{command}: the output has no line for the GPU {address}, which the driver has")
        elif output is not None and not output.strip():
            warn(f"{command}: the output has no GPU")
    return usage


class Nvidia(GpuVendor):
    """NVIDIA's GPUs. Their driver has one program, nvidia-smi, and Slurm finds them by two methods."""

    name = "NVIDIA"
    file_prefix = "/dev/nvidia"
    first_number = 0
    methods = ("nvml", "nvidia")
    types_are_known = True
    environment = "CUDA_VISIBLE_DEVICES"
    environment_flag = "nvidia_gpu_env"
    list_command = ("nvidia-smi", *LIST)
    screens = r"(?:NVIDIA )?(?:DGX Display|T400E?(?:[ /].*)?)|(?:NVIDIA |Quadro )?NVS .*"

    def find(self, tree: Tree) -> list[str]:
        return addresses(tree)

    def read(self, tree: Tree, cores: Sequence[int], ask: Ask | None, warn: Warn, /) -> list[GpuFact]:
        usage = ask_usage(tree, ask, warn) if ask and tree.exists(DRIVER) else {}
        return read_gpus(tree, cores, usage)

    def detected_names(self, gpu: Mapping[str, Any]) -> list[str]:
        return detected_names(gpu)

    def read_list(self, status: int, output: str) -> tuple[str, int]:
        lines = [line.strip() for line in output.split("\n") if line.strip()]
        count = sum(bool(re.match(r"GPU \d+:", line)) for line in lines)
        return ("" if not status else (lines or [f"exit status {status}"])[0]), count
