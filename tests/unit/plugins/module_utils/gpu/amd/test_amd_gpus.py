# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's GPUs on generated machines (kfd.py), and what Slurm makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import gres_lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.devices import VENDORS, environment_of, read_gpus
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.records import check_of
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.discovery import discover
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.health import health_environment
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.results.fact_records import GpuFact
from kfd import gpu_node, pci_files, tree
from registration_texts import check_registration
from sysfs import Gpu, Machine, Memory

CORES = [1 << cpu for cpu in range(16)]
PCI_IDS = "1002  AMD/ATI\n\t740f  Aldebaran/MI200 [Instinct MI210]\n\t740c  Aldebaran/MI200 [Instinct MI250X/MI250]\n"


def read(machine: Memory) -> list[Any]:
    def no_warning(text: str) -> None:
        raise AssertionError(text)

    return read_gpus(machine, CORES, None, no_warning)


def test_gpus_of_a_server() -> None:
    """Render minors do not follow PCI; cores are those of the GPU's NUMA node."""
    pci = pci_files(0x63, 1, model="AMD Instinct MI210") | pci_files(0x43, 0, domain=1, model="AMD Instinct MI210")
    found = read(tree(gpu_node(0x43, 129, domain=1), gpu_node(0x63, 128), more=pci))
    assert found[0] == {
        "vendor": "amd",
        "minor": 128,
        "pci_address": "0000:63:00.0",
        "model": "AMD Instinct MI210",
        "type": "mi210",
        "memory_mb": 65536,
        "numa_node": 1,
        "cores": "8-15",
        "mig": [],
    }
    assert (found[1]["pci_address"], found[1]["cores"]) == ("0001:43:00.0", "0-7")
    assert [check_of(GpuFact)(gpu) for gpu in found] == ["", ""]
    assert check_of(GpuFact)({**found[0], "vendor": "nvidia"}).startswith("vendor: found 'nvidia', allowed:")


def test_partitions_have_a_file_each_and_the_place_of_their_gpu() -> None:
    parts = [gpu_node(5, 128 + number, function=number, memory_mib=None) for number in range(3)]
    found = read(tree(*parts, more=pci_files(5, 1)))
    assert [(gpu["minor"], gpu["pci_address"], gpu["cores"]) for gpu in found] == [
        (128, "0000:05:00.0", "8-15"),
        (129, "0000:05:00.1", "8-15"),
        (130, "0000:05:00.2", "8-15"),
    ]
    assert {gpu["memory_mb"] for gpu in found} == {None}


@pytest.mark.parametrize(
    "node",
    [gpu_node(11, 128, memory_mib=512), gpu_node(11, 128, cpu_cores=8), gpu_node(11, 0)],
    ids=["small", "APU", "no file"],
)
def test_what_is_not_for_jobs_is_left_out(node: Any) -> None:
    assert read(tree(node)) == []


def test_a_graphics_part_of_a_cpu_stays_out_of_a_machine_with_nvidia() -> None:
    machine = Machine(packages=2, cores=8, gpus=(Gpu("0000:07:00.0", minor=0),))
    found = read(Memory(files=dict(machine.files()) | dict(tree(gpu_node(11, 128)).files)))
    assert [gpu["model"] for gpu in found] == ["NVIDIA H100 80GB HBM3"]
    assert "vendor" not in found[0]


@pytest.mark.parametrize(
    ("device", "model", "kind"),
    [
        ("0x740f", "Instinct MI210", "mi210"),
        ("0x740c", "Instinct MI250X/MI250", None),
        ("0xffff", None, None),
    ],
)
def test_names_of_pci(device: str, model: str | None, kind: str | None) -> None:
    """A name that stands for several products gives no type."""
    pci = pci_files(5, 0) | {"sys/bus/pci/devices/0000:05:00.0/device": device, "usr/share/misc/pci.ids": PCI_IDS}
    (found,) = read(tree(gpu_node(5, 128), more=pci))
    assert (found["model"], found["type"]) == (model, kind)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("AMD Radeon PRO W7900", "w7900"),
        ("Radeon RX 7900 XTX", "rx7900xtx"),
        ("Radeon RX 7900 GRE", "rx7900gre"),
    ],
)
def test_type_of_a_model(model: str, kind: str) -> None:
    assert read(tree(gpu_node(5, 128), more=pci_files(5, 0, model=model)))[0]["type"] == kind


# -- what Slurm makes of them ------------------------------------------------------------------------------------------

MACHINE = {"sockets": 2, "cores_per_socket": 8, "threads_per_core": 1, "real_memory": 100000}


def facts(cards: int = 4) -> dict[str, Any]:
    pci: dict[str, str] = {}
    for number in range(cards):
        pci |= pci_files(number + 1, number // 2, model="AMD Instinct MI210")
    gpus = read(tree(*(gpu_node(number + 1, 128 + number) for number in range(cards)), more=pci))
    shape = {"cpus": 16, "boards": 1, "sockets_per_board": 2, "cores_per_socket": 8, "threads_per_core": 1}
    return {**shape, "real_memory": 100000, "cpuless_memory": 0, "tmp_disk": 0, "device_files": [], "gpus": gpus}


def test_discovered_gpus_have_files_and_the_environment_of_amd() -> None:
    result = discover({"n1": facts()}, {}, ["n1"], [])
    (machine,) = result["hardware"].values()
    gpu = {"name": "gpu", "type": "mi210", "flags": ["amd_gpu_env"]}
    assert machine["gres"] == [
        {**gpu, "file": "/dev/dri/renderD[128-129]", "cores": "0-7"},
        {**gpu, "file": "/dev/dri/renderD[130-131]", "cores": "8-15"},
    ]
    assert result["notes"] == []
    (nodes,) = result["nodes"]
    lines = gres_lines([{"hosts": nodes["hosts"], "hardware": nodes["hardware"]}], result["hardware"])
    assert lines.splitlines() == [
        "NodeName=n1 Name=gpu Type=mi210 File=/dev/dri/renderD[128-129] Cores=0-7 Flags=amd_gpu_env",
        "NodeName=n1 Name=gpu Type=mi210 File=/dev/dri/renderD[130-131] Cores=8-15 Flags=amd_gpu_env",
    ]
    assert environment_of(machine["gres"]) == "ROCR_VISIBLE_DEVICES"
    fewer = discover({"n1": facts(3)}, result, ["n1"], [])
    assert fewer["notes"] == ["n1: the machine is no longer 4xmi210-16c-97g, which had gpu:mi210:4 (now 3)"]


@pytest.mark.parametrize(
    ("gres", "effect"),
    [
        ({"file": "/dev/dri/renderD[128-131]", "type": "mi210"}, ""),
        ({"file": "/dev/dri/renderD[128-132]"}, "slurmd would not start: /dev/dri/renderD132 configured"),
        ({"file": "/dev/dri/renderD[128-131]", "type": "mi300x"}, "is configured as gpu:mi300x, mi210 present"),
        ({"autodetect": "rsmi", "count": 4, "type": "any"}, ""),
        ({"autodetect": "rsmi", "count": 5}, "gres/gpu count 5 configured, 4 present"),
        ({"autodetect": "nvml", "count": 2}, ""),
    ],
)
def test_registration(gres: dict[str, Any], effect: str) -> None:
    """The types that RSMI gives are not known, so that only the number of GPUs is compared."""
    hardware = {"amd": {**MACHINE, "gres": [{"name": "gpu", **gres}]}}
    found = check_registration({"n1": facts()}, [{"hosts": "n1", "hardware": "amd"}], hardware, {})
    messages = [*found["refused"], *found["odd"]]
    assert len(messages) == bool(effect)
    assert effect in "".join(messages)


def test_a_host_that_shows_no_gpu_may_lack_the_driver() -> None:
    hardware = {"amd": {**MACHINE, "gres": [{"name": "gpu", "autodetect": "rsmi", "count": 2}]}}
    found = check_registration({"n1": facts(0)}, [{"hosts": "n1", "hardware": "amd"}], hardware, {})
    assert found == {"refused": [], "odd": []}


def test_health_knows_the_device_files_alone() -> None:
    hardware = {"amd": {**MACHINE, "gres": [{"name": "gpu", "autodetect": "rsmi", "count": 4}]}}
    found = health_environment([{"hosts": "n1", "hardware": "amd"}], hardware, {})
    assert found["n1"]["HEALTH_GPUS"] == "0"


@pytest.mark.parametrize(
    ("entry", "variable"),
    [
        ({}, "CUDA_VISIBLE_DEVICES"),
        ({"autodetect": "nvml"}, "CUDA_VISIBLE_DEVICES"),
        ({"autodetect": "rsmi"}, "ROCR_VISIBLE_DEVICES"),
        ({"autodetect": "rsmi", "flags": ["nvidia_gpu_env"]}, "CUDA_VISIBLE_DEVICES"),
        ({"file": "/dev/dri/renderD128", "flags": ["amd_gpu_env"]}, "ROCR_VISIBLE_DEVICES"),
        ({"flags": ["no_gpu_env"]}, "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_the_variable_of_a_job(entry: dict[str, Any], variable: str) -> None:
    assert environment_of([{"name": "nic"}, {"name": "gpu", **entry}]) == variable


def test_methods_of_vendors_are_told_apart() -> None:
    methods = [method for vendor in VENDORS.values() for method in vendor.methods]
    assert len(methods) == len({*methods})
