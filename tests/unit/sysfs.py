# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the /sys and /proc files of machines that do not exist, as small as the tests need them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


@dataclass(frozen=True)
class Memory(Tree):
    """A machine in memory: a server has thousands of files, and to write and remove them takes longer than a test."""

    root: str = "/nowhere"
    files: Mapping[str, str] = field(default_factory=dict)  # what they hold, by path without the first slash

    @cached_property
    def directories(self) -> dict[str, set[str]]:
        """The names in each directory."""
        directories: dict[str, set[str]] = {}
        for path in self.files:
            while path:
                path, _slash, name = path.rpartition("/")
                directories.setdefault(path, set()).add(name)
        return directories

    def exists(self, name: str) -> bool:
        return name.strip("/") in self.files or name.strip("/") in self.directories

    def names(self, name: str) -> list[str]:
        return sorted(self.directories.get(name.strip("/"), ()))

    def text(self, name: str) -> str | None:
        content = self.files.get(name.strip("/"))
        return None if content is None else content.strip()


def mask(cpus: Iterable[int]) -> str:
    """CPUs as the kernel writes a mask: words of 32 bits, the highest first."""
    value = sum(1 << cpu for cpu in cpus)
    words: list[str] = []
    while value or not words:
        words.append(f"{value & 0xFFFFFFFF:08x}")
        value >>= 32
    return ",".join(reversed(words))


def listing(cpus: Iterable[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


@dataclass(frozen=True)
class Gpu:
    """A GPU on PCI. A GPU without a minor number has no driver."""

    address: str
    model: str = "NVIDIA H100 80GB HBM3"
    node: int = 0
    minor: int | None = None
    pci_class: str = "0x030200"
    vendor: str = "0x10de"
    device: str = "0x2330"


@dataclass(frozen=True)
class Machine:
    """A machine: every package has the same cores, unless some of them are efficient ones or offline.

    Cores that share a die, a cluster, a cache or a NUMA node are neighbours; their numbers per package divide its
    cores.
    """

    packages: int = 1
    cores: int = 4
    threads: int = 1
    dies: int = 0
    clusters: int = 0
    caches: int = 0
    nodes: int = 0  # NUMA nodes of a package
    wide_nodes: int = 0  # NUMA nodes of the machine, each with several packages
    memory_nodes: int = 0  # NUMA nodes without CPUs
    efficient: int = 0  # cores of one thread after the others, in the first package
    interleaved: bool = True  # the second threads of all cores come after all first ones
    old_names: bool = False  # thread_siblings instead of core_cpus
    without: frozenset[str] = frozenset()  # topology files that the kernel lacks
    offline: frozenset[int] = frozenset()
    distances: tuple[tuple[int, ...], ...] = ()
    speeds: tuple[int, ...] = ()  # highest frequencies of the CPUs, in kHz, repeated
    base_speeds: tuple[int, ...] = ()  # base frequencies, likewise
    nominal_speeds: tuple[int, ...] = ()  # their frequencies by ACPI, in MHz
    books: int = 0  # books of an s390; the machine has as many packages times this
    architecture: str = ""
    cpuinfo: str = ""
    memory_kb: int = 0
    gpus: tuple[Gpu, ...] = field(default=())

    def threads_by_core(self) -> list[list[tuple[int, ...]]]:
        """The CPUs of each core of each package, offline ones included."""
        total = self.packages * self.cores
        counter = iter(range(total * self.threads + self.efficient))
        if self.interleaved:
            rounds = [list(islice(counter, total)) for _thread in range(self.threads)]
            flat = [tuple(cpus) for cpus in zip(*rounds)]
        else:
            flat = [tuple(islice(counter, self.threads)) for _core in range(total)]
        result = [flat[i * self.cores : (i + 1) * self.cores] for i in range(self.packages)]
        result[0].extend((cpu,) for cpu in counter)
        return result

    def parts(self, package: list[tuple[int, ...]], count: int) -> list[set[int]]:
        """The CPUs of the dies, clusters, caches or nodes of a package."""
        size = -(-len(package) // count)
        return [{cpu for core in package[i : i + size] for cpu in core} for i in range(0, len(package), size)]

    def files(self) -> Iterator[tuple[str, str]]:
        """Path and content of each file, without the leading slash."""
        packages = self.threads_by_core()
        everything = {cpu for package in packages for core in package for cpu in core}
        yield f"{CPU}/online", listing(everything - self.offline)
        for cpu in self.offline:
            yield f"{CPU}/cpu{cpu}/online", "0"
        if self.memory_kb:
            yield "proc/meminfo", f"MemTotal:       {self.memory_kb} kB\nMemFree:        1024 kB\n"
        if self.cpuinfo:
            yield "proc/cpuinfo", self.cpuinfo
        if self.architecture:
            yield "proc/hwloc-nofile-info", f"OSName: Linux\nArchitecture: {self.architecture}\n"
        for number, package in enumerate(packages):
            yield from self.package_files(number, package)
        yield from self.speed_files(sorted(everything - self.offline))
        if self.efficient:
            small = {core[0] for core in packages[0][self.cores :]}
            yield "sys/devices/cpu_atom/cpus", listing(small - self.offline)
            yield "sys/devices/cpu_core/cpus", listing(everything - small - self.offline)
        yield from self.node_files(packages)
        for gpu in self.gpus:
            yield from self.gpu_files(gpu, packages)

    def package_files(self, number: int, package: list[tuple[int, ...]]) -> Iterator[tuple[str, str]]:
        everything = {cpu for core in package for cpu in core}
        dies, clusters, caches = (
            self.parts(package, count) if count else [] for count in (self.dies, self.clusters, self.caches)
        )
        names = ("thread_siblings", "core_siblings") if self.old_names else ("core_cpus", "package_cpus")
        for core_number, core in enumerate(package):
            for cpu in set(core) - self.offline:
                known = {names[0]: core, names[1]: everything}
                known.update(("die_cpus", part) for part in dies if cpu in part)
                known.update(("cluster_cpus", part) for part in clusters if cpu in part)
                topology = {name: mask(set(cpus) - self.offline) for name, cpus in known.items()}
                topology.update(core_id=str(core_number), physical_package_id=str(number), die_id="0", cluster_id="0")
                topology.update(self.book_files(number))
                for name, content in topology.items():
                    if name not in self.without:
                        yield f"{CPU}/cpu{cpu}/topology/{name}", content
                for cache in caches:
                    if cpu in cache:
                        yield f"{CPU}/cpu{cpu}/cache/index3/level", "3"
                        yield f"{CPU}/cpu{cpu}/cache/index3/type", "Unified"
                        yield f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_map", mask(cache - self.offline)

    def book_files(self, package: int) -> dict[str, str]:
        if not self.books:
            return {}
        size = self.packages // self.books
        book = package // size
        packages = self.threads_by_core()[book * size : (book + 1) * size]
        cpus = {cpu for package in packages for core in package for cpu in core} - self.offline
        return {"book_siblings": mask(cpus), "book_id": str(book)}

    def speed_files(self, cpus: list[int]) -> Iterator[tuple[str, str]]:
        for i, cpu in enumerate(cpus):
            for name, speeds in (
                ("cpufreq/cpuinfo_max_freq", self.speeds),
                ("cpufreq/base_frequency", self.base_speeds),
                ("acpi_cppc/nominal_freq", self.nominal_speeds),
            ):
                if speeds:
                    yield f"{CPU}/cpu{cpu}/{name}", str(speeds[i % len(speeds)])

    def numa(self, packages: list[list[tuple[int, ...]]]) -> list[set[int]]:
        """The CPUs of each NUMA node."""
        if self.wide_nodes:
            size = -(-len(packages) // self.wide_nodes)
            found = [
                {cpu for package in packages[i : i + size] for core in package for cpu in core}
                for i in range(0, len(packages), size)
            ]
        else:
            found = [part for package in packages for part in (self.parts(package, self.nodes) if self.nodes else [])]
        return found + [set[int]() for _node in range(self.memory_nodes)]

    def node_files(self, packages: list[list[tuple[int, ...]]]) -> Iterator[tuple[str, str]]:
        nodes = self.numa(packages)
        if nodes:
            yield f"{NODE}/online", f"0-{len(nodes) - 1}"
        for number, cpus in enumerate(nodes):
            yield f"{NODE}/node{number}/cpumap", mask(cpus - self.offline)
            row = self.distances[number] if self.distances else [10 if i == number else 20 for i in range(len(nodes))]
            yield f"{NODE}/node{number}/distance", " ".join(map(str, row))

    def gpu_files(self, gpu: Gpu, packages: list[list[tuple[int, ...]]]) -> Iterator[tuple[str, str]]:
        nodes = self.numa(packages) or [{cpu for package in packages for core in package for cpu in core}]
        device = f"sys/bus/pci/devices/{gpu.address}"
        yield f"{device}/vendor", gpu.vendor
        yield f"{device}/device", gpu.device
        yield f"{device}/class", gpu.pci_class
        yield f"{device}/numa_node", str(gpu.node)
        yield f"{device}/local_cpulist", listing(nodes[gpu.node] - self.offline)
        if gpu.minor is not None:
            lines = f"Model: \t\t {gpu.model}\nIRQ:   \t\t 42\nDevice Minor: \t {gpu.minor}\n"
            yield f"proc/driver/nvidia/gpus/{gpu.address}/information", lines

    def write(self, directory: Path) -> Path:
        """Make the files below the directory, which is returned."""
        for name, content in self.files():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if content.endswith("\n") else content + "\n", encoding="utf-8")
        return directory


def random_distances(choice: random.Random, nodes: int) -> tuple[tuple[int, ...], ...]:
    """Distances of nodes: all alike, in pairs, in fours, in a ring, or without any order."""
    style = choice.choice(["flat", "pairs", "fours", "ring", "nested", "chaos", "one-way"])
    table = [[10 if i == j else 20 for j in range(nodes)] for i in range(nodes)]
    for i in range(nodes):
        for j in range(i):
            apart = min(i - j, nodes - i + j)
            far = {
                "flat": 20,
                "pairs": 12 if i // 2 == j // 2 else 32,
                "fours": 12 if i // 4 == j // 4 else 32,
                "ring": 10 + 5 * apart,
                "nested": 12 if i // 2 == j // 2 else 21 if i // 4 == j // 4 else 32,
                "chaos": choice.choice([11, 12, 20, 21, 32]),
                "one-way": 20,
            }[style]
            table[i][j] = table[j][i] = far
    if style == "one-way" and nodes > 1:
        table[0][1] = 25
    return tuple(tuple(row) for row in table)


def random_machine(choice: random.Random) -> Machine:
    """A random machine, like a server or, rarely, an odd one; together they use every part of the generator."""

    def sometimes(*values: int) -> int:
        return choice.choice(values) if choice.random() < 0.4 else 0

    packages, threads = choice.choice([1, 1, 2, 2, 2, 4, 8]), choice.choice([1, 1, 2, 2, 4, 8])
    machine = Machine(
        packages=packages,
        cores=min(choice.choice([1, 2, 4, 6, 8, 12, 16]), 128 // (packages * threads)),
        threads=threads,
        dies=sometimes(1, 2, 4),
        clusters=sometimes(1, 2, 4),
        caches=sometimes(1, 2, 4),
        nodes=choice.choice([0, 1, 1, 2, 4]),
        wide_nodes=sometimes(1, 2, 4),
        memory_nodes=sometimes(1, 2),
        efficient=sometimes(2, 4, 8),
        interleaved=choice.random() < 0.6,
        old_names=choice.random() < 0.3,
        architecture=choice.choice(["", "", "x86_64", "aarch64", "ppc64le"]),
    )
    if machine.packages % 2 == 0 and choice.random() < 0.15:
        machine = replace(machine, books=machine.packages // 2, architecture="s390x", efficient=0)
    if choice.random() < 0.1:
        gone = choice.choice(["core_cpus", "package_cpus", "core_id"])
        machine = replace(machine, without=frozenset({gone}), old_names=False)
    if choice.random() < 0.1:
        model = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\nmodel\t\t: 2\n\n"
        machine = replace(machine, architecture="x86_64", cpuinfo=model, efficient=0)
    if choice.random() < 0.5:
        speeds = choice.choice([(3000000,), (5100000, 5200000), (5000000, 3500000), (4000000, 4000000, 2500000)])
        base = choice.choice([(), (2000000,), (3200000, 2400000)])
        nominal = choice.choice([(), (2000,), (0, 3200), (3200, 2400)])
        machine = replace(machine, speeds=speeds, base_speeds=base, nominal_speeds=nominal)
    total = machine.packages * machine.cores * machine.threads + machine.efficient
    if choice.random() < 0.3:
        away = choice.sample(range(total), choice.randrange(total))
        machine = replace(machine, offline=frozenset(away[: max(1, total // 2)]) if total > 1 else frozenset())
    count = len(machine.numa(machine.threads_by_core()))
    if count and choice.random() < 0.6:
        machine = replace(machine, distances=random_distances(choice, count))
    gpus = range(choice.choice([0, 0, 1, 4, 8]))
    near = [choice.randrange(max(count, 1)) for _gpu in gpus]
    return replace(machine, gpus=tuple(Gpu(f"0000:{i + 1:02x}:00.0", node=near[i], minor=i) for i in gpus))
