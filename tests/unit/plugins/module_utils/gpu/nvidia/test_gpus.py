# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of generated machines, their types by model, and the output of nvidia-smi."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia import driver
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia import nvidia_gpus as gpus
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia.nvidia_gpus import (
    Usage,
    gres_type,
    parse_usage,
    read_gpus,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import (
    Tree,
    format_list,
    parse_list,
    parse_mask,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.topology import read_topology
from sysfs import Gpu, Machine

QUERY = """\
0, 00000000:07:00.0, 40960
1, 00000000:0F:00.0, 40960
2, 00010000:0F:00.0, [N/A]
"""
LISTING = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6)
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736)
  MIG 1g.5gb      Device  1: (UUID: MIG-a28ad590)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-68bb4a4b)
"""


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-PCIE-40GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090 D", "rtx4090d"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx3080ti"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070tisuper"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
        ("Quadro RTX 6000", "rtx6000"),
        ("Quadro RTX 4000", "rtx4000"),
        ("NVIDIA RTX 4000 Ada Generation", "rtx4000ada"),
        ("NVIDIA RTX 4000 SFF Ada Generation", "rtx4000sffada"),
        ("NVIDIA RTX PRO 4000 Blackwell", "rtxpro4000"),
        ("NVIDIA RTX PRO 4000 Blackwell SFF Edition", "rtxpro4000sff"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
        ("NVIDIA TITAN V", "titanv"),
        ("A100 SXM4 80GB", "a100"),
        ("NVIDIA Graphics Device", "gpu"),
    ],
)
def test_type_of_a_model(model: str, expected: str) -> None:
    assert gres_type(model) == expected


@pytest.mark.parametrize(
    ("model", "screens"),
    [
        ("NVIDIA DGX Display", True),
        ("NVIDIA T400", True),
        ("NVIDIA T400 4GB", True),
        ("T400 / T400E", True),
        ("Quadro NVS 295", True),
        ("NVIDIA NVS 510", True),
        ("NVIDIA T4", False),
        ("Tesla T40 24GB", False),
        ("NVIDIA T4000", False),
        ("NVIDIA A100-SXM4-80GB", False),
        ("", False),
    ],
)
def test_adapters_for_screens(model: str, screens: bool) -> None:
    assert gpus.Nvidia().is_for_screens(model) is screens


def test_gpus_of_a_server(tmp_path: Path) -> None:
    """Minor numbers do not follow PCI; cores are those of the GPU's NUMA node; other devices are left out."""
    machine = Machine(
        packages=2,
        cores=4,
        threads=2,
        nodes=1,
        gpus=(
            Gpu("0000:07:00.0", minor=1),
            Gpu("0000:0f:00.0", minor=0, node=1),
            Gpu("0000:47:00.0", node=1, pci_class="0x030000"),
            Gpu("0000:48:00.0", pci_class="0x068000"),
            Gpu("0000:49:00.0", vendor="0x15b3"),
        ),
    )
    tree = Tree(str(machine.write(tmp_path)))
    found = read_gpus(tree, read_topology(tree).cores, {"0000:07:00.0": Usage(81920)})
    assert [(gpu["minor"], gpu["pci_address"], gpu["numa_node"], gpu["cores"]) for gpu in found] == [
        (0, "0000:0f:00.0", 1, "4-7"),
        (1, "0000:07:00.0", 0, "0-3"),
        (None, "0000:47:00.0", 1, "4-7"),
    ]
    assert [(gpu["model"], gpu["type"], gpu["memory_mb"]) for gpu in found] == [
        ("NVIDIA H100 80GB HBM3", "h100", None),
        ("NVIDIA H100 80GB HBM3", "h100", 81920),
        (None, None, None),
    ]


def test_model_without_driver(tmp_path: Path) -> None:
    machine = Machine(gpus=(Gpu("0000:07:00.0", device="0x20b2"),))
    names = tmp_path / "usr/share/misc/pci.ids"
    names.parent.mkdir(parents=True)
    names.write_text(
        "# List of PCI IDs\n10dd  Other\n\t20b2  Wrong\n"
        "10de  NVIDIA Corporation\n\t0020  NV4\n\t\t1043 0200  Board\n\t20b2  GA100 [A100 SXM4 80GB]\n10df  Third\n"
    )
    tree = Tree(str(machine.write(tmp_path)))
    (found,) = read_gpus(tree, read_topology(tree).cores, {})
    assert (found["model"], found["type"]) == ("A100 SXM4 80GB", "a100")


def test_no_numa_and_no_gpu(tmp_path: Path) -> None:
    machine = Machine(gpus=(Gpu("0000:07:00.0", minor=0),))
    tree = Tree(str(machine.write(tmp_path)))
    (tmp_path / "sys/bus/pci/devices/0000:07:00.0/numa_node").write_text("-1\n")
    (found,) = read_gpus(tree, read_topology(tree).cores, {})
    assert found["numa_node"] is None
    assert read_gpus(Tree(str(tmp_path / "empty")), (1,), {}) == []


def test_the_only_numa_node_is_the_nearest(tmp_path: Path) -> None:
    """The kernel says -1 for most GPUs of virtual machines, also where the machine has one NUMA node or several."""
    for nodes, wanted in ((1, 0), (2, None)):
        machine = Machine(packages=nodes, nodes=1, gpus=(Gpu("0000:07:00.0", minor=0),))
        root = machine.write(tmp_path / str(nodes))
        (root / "sys/bus/pci/devices/0000:07:00.0/numa_node").write_text("-1\n")
        tree = Tree(str(root))
        (found,) = read_gpus(tree, read_topology(tree).cores, {})
        assert found["numa_node"] == wanted


def test_what_nvidia_smi_prints() -> None:
    found = parse_usage(QUERY, LISTING)
    assert set(found) == {"0000:07:00.0", "0000:0f:00.0", "10000:0f:00.0"}
    assert found["0000:07:00.0"] == Usage(
        40960, [{"profile": "3g.20gb", "uuid": "MIG-c7384736"}, {"profile": "1g.5gb", "uuid": "MIG-a28ad590"}]
    )
    assert found["0000:0f:00.0"] == Usage(40960, [])
    assert found["10000:0f:00.0"].memory is None
    assert parse_usage("", "") == parse_usage("No devices were found\n", "") == {}
    assert parse_usage("what, is: this\n0, x:y, 1\n", "") == {}


def test_address_of_nvidia_smi() -> None:
    assert gpus.pci_address("00000000:0F:00.0") == "0000:0f:00.0"


def test_sets_of_cpus() -> None:
    assert parse_mask("00000001,80000000\n") == (1 << 32) | (1 << 31)
    assert parse_list("0-3,8\n") == 0b1_0000_1111
    assert parse_list("\n") == parse_mask("\n") == 0
    assert format_list(0b1_0000_1111) == "0-3,8"
    assert format_list(0) == ""


def test_role_slurmd_reads_the_file_that_is_written_when_gpus_change() -> None:
    role = Path(__file__).parents[6] / "roles/slurmd/tasks/configure.yml"
    assert f"reads: [{gpus.CHANGED}]" in role.read_text()
    assert f" {gpus.CHANGED}\n" in driver.UNIT
