# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA GPUs of a machine, from PCI, from their driver and from the output of nvidia-smi."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.answer_records import GpuFact, MigInstance
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree, bits, format_list, of

PCI = "/sys/bus/pci/devices"
DRIVER = "/proc/driver/nvidia/gpus"
NODES = "/sys/devices/system/node/online"
PCI_NAMES = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
VENDOR = "0x10de"
CLASSES = ("0x0300", "0x0302")  # VGA compatible and 3D controllers
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

# Words of a model that name the maker, a line of products or nothing.
_PLAIN = {"nvidia", "tesla", "quadro", "geforce", "grid", "graphics", "device", "corporation"}
# Words after the number that tell two models apart.
_VARIANTS = {"ti", "super", "ada", "d"}


@dataclass(frozen=True)
class Usage:
    """Data of nvidia-smi about a GPU: its memory in MiB, and its MIG instances."""

    memory: int | None = None
    mig: list[MigInstance] = field(default_factory=list)


def gres_type(model: str) -> str:
    """The name for Gres that a model gives: "NVIDIA A100-SXM4-80GB" is a100, "NVIDIA GeForce RTX 4090" is rtx4090.

    It is the first word with a digit. A number alone takes the words before it that do not name the maker or a line of
    products (rtx4090, rtxpro6000), and then the words after it that make another model (rtx3080ti, rtx6000ada). A
    model without a digit is all its words (titanv); one that says nothing is a gpu.
    """
    words = [word for word in re.split(r"[\s_-]+", model.lower()) if word and word not in _PLAIN]
    words = [re.sub(r"[^a-z0-9]", "", word) for word in words]
    place = next((i for i, word in enumerate(words) if re.search(r"\d", word)), None)
    if place is None:
        return "".join(words) or "gpu"
    if not words[place].isdigit():
        return words[place]
    end = place + 1
    while end < len(words) and words[end] in _VARIANTS:
        end += 1
    return "".join(words[:end])


def detected_name(model: str) -> str:
    """The name that AutoDetect gives a model (`gpu_common_underscorify_tolower`): nvidia_h100_80gb_hbm3."""
    return model.lower().replace(" ", "_")


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


def pci_model(tree: Tree, address: str) -> str | None:
    """The model of a device without a driver, from the machine's PCI names; what is in brackets is the product."""
    device = (tree.text(f"{PCI}/{address}/device") or "").replace("0x", "")
    names = next(filter(None, map(tree.text, PCI_NAMES)), "")
    vendor = re.search(rf"^{VENDOR[2:]}\s.*\n((?:[\t#].*\n?|\n)*)", names, re.MULTILINE)
    found = re.search(rf"^\t{device}\s+(.*)$", vendor[1], re.MULTILINE) if vendor and device else None
    if found is None:
        return None
    product = re.search(r"\[(.*)\]", found[1])
    return product[1] if product else found[1]


def is_display(tree: Tree, address: str) -> bool:
    """Whether a PCI device draws or computes, of any programming interface."""
    return (tree.text(f"{PCI}/{address}/class") or "")[:6] in CLASSES


def addresses(tree: Tree) -> list[str]:
    """The PCI addresses of the GPUs: those on PCI and those that the driver names."""
    found = set(tree.names(DRIVER))
    for address in tree.names(PCI):
        if tree.text(f"{PCI}/{address}/vendor") == VENDOR and is_display(tree, address):
            found.add(address)
    return sorted(found)


def numa_node(tree: Tree, address: str) -> int | None:
    """The NUMA node that is nearest to a PCI device; None if it is not known.

    Where the kernel says -1, as in most virtual machines, it is the machine's only node (`nvidia-smi topo -m`).
    """
    node = tree.number(f"{PCI}/{address}/numa_node")
    if node is not None and node >= 0:
        return node
    nodes = list(bits(tree.cpu_list(NODES) or 0))
    return nodes[0] if len(nodes) == 1 else None


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
        model = driver.get("Model", "").strip() or pci_model(tree, address)
        near = tree.cpu_list(f"{PCI}/{address}/local_cpulist") or 0
        known = usage.get(address, Usage())
        gpus.append(
            {
                "minor": int(minor) if minor.isdigit() else None,
                "pci_address": address,
                "model": model,
                "type": gres_type(model) if model else None,
                "memory_mb": known.memory,
                "numa_node": numa_node(tree, address),
                "cores": format_list(of(i for i, core in enumerate(cores) if core & near)),
                "mig": known.mig,
            }
        )
    return sorted(gpus, key=lambda gpu: (gpu["minor"] is None, gpu["minor"] or 0))
