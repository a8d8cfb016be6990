# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The topology of generated machines, and of dumps of real ones where a folder of them is next to the checkout.

The values of Slurm 24.11 for the generated machines are from slurmd itself, by tests/tools/check_topology.
"""

from __future__ import annotations

import random
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.gpu.nvidia.nvidia_gpus import read_gpus
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware import topology
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.cpu_files import TopologyError
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.numa_nodes import read_cpuless_memory
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree, bits, parse_list
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.topology import (
    Topology,
    read_topology,
)
from sysfs import Machine, Memory, random_machine

DUMPS = Path(__file__).resolve().parents[6] / "shared" / "topologies"
ANSWERS = DUMPS / "slurmd-C.tsv"
REAL = [line.split("\t") for line in ANSWERS.read_text("utf-8").splitlines()] if ANSWERS.exists() else []

E_CORES = Machine(cores=4, threads=2, efficient=8)
BULLDOZER = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\nmodel\t\t: 2\n\n"


def numbers(found: Topology) -> tuple[int, ...]:
    """CPUs, boards, sockets of a board, cores of a socket, threads of a core."""
    return found.cpus, found.boards, found.sockets_per_board, found.cores_per_socket, found.threads_per_core


def line(found: Topology) -> str:
    names = ("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")
    return " ".join(f"{name}={number}" for name, number in zip(names, numbers(found)))


def pairs(count: int, near: int = 2) -> tuple[tuple[int, ...], ...]:
    """Distances of nodes of which each few are near to each other."""
    return tuple(
        tuple(10 if i == j else 12 if i // near == j // near else 32 for j in range(count)) for i in range(count)
    )


@pytest.mark.parametrize(("name", "answer"), REAL, ids=[name for name, _answer in REAL])
def test_agrees_with_slurmd_on_real_machines(name: str, answer: str) -> None:
    with tarfile.open(DUMPS / f"{name}.tar.gz") as archive:
        contents = ((member.name, archive.extractfile(member)) for member in archive if member.isfile())
        files = {path.removeprefix(f"{name}/"): file.read().decode(errors="replace") for path, file in contents if file}
    assert line(read_topology(Memory(files=files))) == answer


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        pytest.param(Machine(), (4, 1, 1, 4, 1), id="one package"),
        pytest.param(Machine(packages=2, cores=32, threads=2, nodes=1), (128, 1, 2, 32, 2), id="server"),
        pytest.param(Machine(packages=2, cores=4, threads=2, interleaved=False), (16, 1, 2, 4, 2), id="neighbours"),
        pytest.param(Machine(packages=2, cores=4, threads=2, old_names=True), (16, 1, 2, 4, 2), id="old kernel"),
        pytest.param(Machine(packages=2, cores=8, nodes=4, caches=4), (16, 1, 2, 8, 1), id="nodes inside packages"),
        pytest.param(Machine(cores=8, dies=2, clusters=4), (8, 1, 1, 8, 1), id="dies and clusters"),
        pytest.param(Machine(packages=4, nodes=1, distances=pairs(4)), (16, 2, 2, 4, 1), id="near packages are boards"),
        pytest.param(Machine(packages=8, nodes=1, distances=pairs(8, 4)), (32, 2, 4, 4, 1), id="boards of four"),
        pytest.param(Machine(packages=4, wide_nodes=2), (16, 2, 2, 4, 1), id="nodes of several packages are boards"),
        pytest.param(Machine(packages=2, wide_nodes=1, memory_nodes=1), (8, 2, 1, 4, 1), id="memory without CPUs"),
        pytest.param(Machine(packages=2, nodes=1, memory_nodes=1), (8, 1, 2, 4, 1), id="memory apart from packages"),
        pytest.param(Machine(packages=4, books=2, architecture="s390x"), (16, 2, 2, 4, 1), id="books are boards"),
        pytest.param(Machine(packages=4, books=2), (16, 1, 4, 4, 1), id="books of an unknown architecture"),
        pytest.param(
            Machine(threads=2, offline=frozenset({4, 5, 6, 7})), (4, 1, 1, 4, 1), id="second threads are offline"
        ),
        pytest.param(Machine(threads=2, offline=frozenset({0})), (7, 1, 1, 4, 1), id="first CPU is offline"),
        pytest.param(
            Machine(packages=2, cores=2, offline=frozenset({2, 3})), (2, 1, 1, 2, 1), id="a package is offline"
        ),
        pytest.param(E_CORES, (8, 1, 1, 4, 2), id="efficient cores are dropped"),
        pytest.param(Machine(cores=4, threads=2, efficient=8, speeds=(3_000_000,)), (16, 1, 1, 12, 1), id="as fast"),
        pytest.param(
            Machine(
                cores=2,
                efficient=2,
                interleaved=False,
                speeds=(5_200_000, 5_100_000, 3_000_000, 3_000_000),
                base_speeds=(3_000_000, 3_000_000, 2_000_000, 2_000_000),
            ),
            (2, 1, 1, 2, 1),
            id="nearly as fast is as fast",
        ),
        pytest.param(
            Machine(cores=2, efficient=2, interleaved=False, speeds=(5_200_000, 5_100_000, 3_000_000, 3_000_000)),
            (1, 1, 1, 1, 1),
            id="without base frequencies slurmd keeps the slower of the fast cores",
        ),
        pytest.param(
            Machine(
                cores=2,
                efficient=2,
                interleaved=False,
                speeds=(5_200_000, 5_100_000, 3_000_000, 3_000_000),
                nominal_speeds=(3_000, 3_000, 2_000, 2_000),
            ),
            (2, 1, 1, 2, 1),
            id="base frequencies from ACPI",
        ),
        pytest.param(Machine(without=frozenset({"core_cpus"})), (4, 1, 1, 1, 4), id="kernel without cores"),
        pytest.param(Machine(without=frozenset({"package_cpus"})), (4, 1, 1, 4, 1), id="kernel without packages"),
        pytest.param(
            Machine(cores=2, threads=2, architecture="x86_64", cpuinfo=BULLDOZER), (4, 1, 1, 2, 2), id="compute units"
        ),
    ],
)
def test_generated_machines(machine: Machine, expected: tuple[int, ...], tmp_path: Path) -> None:
    assert numbers(read_topology(Tree(str(machine.write(tmp_path))))) == expected


@pytest.mark.parametrize(
    ("machine", "parameters", "expected"),
    [
        pytest.param(
            Machine(packages=2, cores=8, caches=4), ["l3cache_as_socket"], (16, 1, 8, 2, 1), id="caches are sockets"
        ),
        pytest.param(Machine(packages=2), ["l3cache_as_socket"], (8, 1, 1, 8, 1), id="no caches"),
        pytest.param(
            Machine(packages=2, cores=8, nodes=4, caches=2),
            ["numa_node_as_socket"],
            (16, 1, 8, 2, 1),
            id="inside caches",
        ),
        pytest.param(
            Machine(packages=2, cores=8, nodes=2, caches=2), ["numa_node_as_socket"], (16, 1, 4, 4, 1), id="at caches"
        ),
        pytest.param(
            Machine(packages=2, nodes=1, memory_nodes=1), ["numa_node_as_socket"], (8, 1, 2, 4, 1), id="at packages"
        ),
        pytest.param(Machine(packages=2), ["numa_node_as_socket"], (8, 1, 1, 8, 1), id="memory of all packages"),
        pytest.param(
            Machine(packages=4, wide_nodes=2), ["numa_node_as_socket"], (16, 2, 1, 8, 1), id="memory of two packages"
        ),
        pytest.param(
            Machine(packages=2, cores=8, nodes=2, caches=4),
            ["config_overrides", "Numa_Node_as_socket,L3Cache_as_socket"],
            (16, 1, 8, 2, 1),
            id="both, in letters of any size",
        ),
        pytest.param(E_CORES, ["allow_ecores"], (16, 1, 1, 12, 1), id="efficient cores"),
        pytest.param(E_CORES, ["shutdown_on_reboot"], (8, 1, 1, 4, 2), id="nothing that matters here"),
    ],
)
def test_slurmd_parameters(machine: Machine, parameters: list[str], expected: tuple[int, ...], tmp_path: Path) -> None:
    assert numbers(read_topology(Tree(str(machine.write(tmp_path))), parameters)) == expected


@pytest.mark.parametrize(
    ("machine", "parameter"),
    [
        pytest.param(Machine(packages=4, clusters=2, wide_nodes=2), "numa_node_as_socket", id="groups in groups"),
        pytest.param(
            Machine(packages=2, threads=2, dies=4, caches=2, offline=frozenset({1, 9})),
            "l3cache_as_socket",
            id="caches in and on dies",
        ),
    ],
)
def test_sockets_that_slurmd_cannot_count(machine: Machine, parameter: str, tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="it cannot count"):
        read_topology(Tree(str(machine.write(tmp_path))), [parameter])


@pytest.mark.parametrize(
    ("machine", "files", "boards"),
    [
        pytest.param(Machine(packages=2, wide_nodes=1, memory_nodes=1), {}, 2, id="memory is nowhere"),
        pytest.param(
            Machine(packages=2, wide_nodes=1, memory_nodes=1),
            {"sys/devices/system/node/node1/access0/initiators/node0/read_latency": "1"},
            1,
            id="memory is near the CPUs that reach it fastest",
        ),
        pytest.param(
            Machine(packages=2, wide_nodes=1, memory_nodes=1, architecture="aarch64"),
            {
                "proc/driver/nvidia/gpus/0008:01:00.0/numa_status": "Node: 1\nStatus: online",
                "sys/bus/pci/devices/0008:01:00.0/local_cpus": "ff",
            },
            1,
            id="memory of a GPU is near the CPUs of the GPU",
        ),
        pytest.param(
            Machine(packages=2, wide_nodes=1, memory_nodes=1, architecture="ppc64le"),
            {"proc/driver/nvidia/gpus/0008:01:00.0/numa_status": "Node: 1\nStatus: online"},
            1,
            id="memory of a GPU does not count on POWER",
        ),
        pytest.param(
            Machine(packages=2, wide_nodes=1, memory_nodes=1),
            {
                "proc/cmdline": "quiet numa=fake=2",
                "sys/devices/system/node/node1/access0/initiators/node0/read_latency": "1",
            },
            2,
            id="what the kernel says of invented nodes is not believed",
        ),
    ],
)
def test_memory_without_cpus(machine: Machine, files: dict[str, str], boards: int, tmp_path: Path) -> None:
    machine.write(tmp_path)
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    assert numbers(read_topology(Tree(str(tmp_path)))) == (8, boards, 2 // boards, 4, 1)


def test_how_much_memory_has_no_cpus() -> None:
    """As a GH200 with seven nodes for MIG, which have no memory as long as MIG is off."""
    directory = "sys/devices/system/node"
    files = {f"{directory}/online": "0-8", f"{directory}/node0/cpulist": "0-71"}
    files |= {f"{directory}/node{number}/cpulist": "\n" for number in range(1, 9)}
    for number in range(9):
        total = {0: 491520000, 1: 99614720}.get(number, 0)
        files[f"{directory}/node{number}/meminfo"] = (
            f"Node {number} MemTotal:       {total} kB\nNode {number} MemFree: 1 kB"
        )
    assert read_cpuless_memory(Memory(files=files)) == 97280
    assert read_cpuless_memory(Memory(files={**files, f"{directory}/online": "0"})) == 0
    assert read_cpuless_memory(Memory()) == 0


@pytest.mark.parametrize("seed", range(25))
def test_cores_are_those_of_the_machine(seed: int) -> None:
    """Whatever the machine, Slurm's cores hold each of its CPUs once, and a GPU is near the cores of its NUMA node."""
    machine = random_machine(random.Random(seed))
    tree = Memory(files=dict(machine.files()))
    found = read_topology(tree)
    cpus = [cpu for core in found.cores for cpu in bits(core)]
    assert len(cpus) == len(set(cpus)) == found.cpus
    assert not set(cpus) & machine.offline
    nodes = machine.numa(machine.threads_by_core()) or [set(cpus)]
    for gpu, facts in zip(machine.gpus, read_gpus(tree, found.cores, {})):
        near = {i for i, core in enumerate(found.cores) if nodes[gpu.node] & set(bits(core))}
        assert set(bits(parse_list(facts["cores"]))) == near
    size = found.boards * found.sockets_per_board * found.cores_per_socket * found.threads_per_core
    assert size <= found.cpus


def test_cores_are_counted_package_by_package(tmp_path: Path) -> None:
    machine = Machine(packages=2, cores=2, threads=2)
    found = read_topology(Tree(str(machine.write(tmp_path))))
    assert [list(bits(core)) for core in found.cores] == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize(
    "cpuinfo", ["processor\t: 0\n\nprocessor\t: 1\n", "processor 0: version = FF\nprocessor 1: version = FF\n"]
)
def test_kernel_without_topology(cpuinfo: str, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(cpuinfo)
    assert numbers(read_topology(Tree(str(tmp_path)))) == (2, 1, 1, 1, 2)


def test_no_machine_at_all(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="no CPUs in"):
        read_topology(Tree(str(tmp_path)))


@pytest.mark.parametrize(
    ("memory_kb", "mib"), [(3_749_888, 3662), (3_748_863, 3660), (0, None), (1024, 1), (2_113_535_999, 2_063_999)]
)
def test_memory_is_rounded_down(memory_kb: int, mib: Any, tmp_path: Path) -> None:
    assert topology.read_memory(Tree(str(Machine(memory_kb=memory_kb).write(tmp_path)))) == mib


def test_slurmd_has_its_own_word() -> None:
    said = topology.parse_node_line(
        "NodeName=n1 CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=3661 "
        "Gres=gpu:t4:1\nUpTime=0-01:02:03\n"
    )
    facts = {**said, "real_memory": 3662, "gpus": []}
    assert len(said) == 6
    assert topology.differences(facts, said) == [{"name": "real_memory", "measured": 3662, "slurmd": 3661}]
    assert topology.differences(facts, {}) == []
