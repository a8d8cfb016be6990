# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records that a host answers with, and the bounds of their fields.

The code that makes an answer has these types, and the control host checks answers by them
(`plugin_utils/answers.py`). They are the dictionaries that become JSON. Hosts do without these types: what runs there
imports them for mypy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypedDict

from ...module_utils.language.records import CORES, LINE, TEXT, Form, Range
from ...module_utils.language.records import Most as Most
from ...module_utils.language.records import Pattern as Pattern

LARGEST = 2**43
"""MiB: more memory or disk than that is nobody's."""

MOST_HOSTS = 1 << 16
"""More hosts than a cluster has."""

MANY = 1_000_000
"""Entries of a list that has some for each node, user or job."""

PATH = r"/[A-Za-z0-9+._/@%:-]*"
_KEY = r"[a-z0-9-]+ [A-Za-z0-9+/]+=*"
_PORTS = r"[0-9]{1,5}(:[0-9]{1,5})?"
_OWNER = r"[A-Za-z0-9._-]+:[A-Za-z0-9._-]+ [0-7]{4}"

Line = Annotated[str, LINE]
Text = Annotated[str, TEXT]
Seconds = Annotated[float, Range(1 << 40, -(1 << 40), "seconds")]
Word = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9+._~:-]*")]
ShortWord = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9+._~:-]*", 64)]
Path = Annotated[str, Pattern(PATH)]
Version = Annotated[str, Pattern(r"(?:[A-Za-z0-9+._~:-]+)?")]
Model = Annotated[str, Pattern(r"[ -~]*")]
Sentence = Annotated[str, Pattern(r"[ -~]*", 1000)]
Checksum = Annotated[str, Pattern("[0-9a-f]{64}")]
ChecksumOrEmpty = Annotated[str, Pattern(r"([0-9a-f]{64})?")]
StateDigest = Annotated[str, Pattern("[0-9a-f]{64}|incomplete|")]
HostName = Annotated[str, Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*", 255)]
FewLines = Annotated[Sequence[Line], Most(64)]
JobNumbers = Annotated[Sequence[Annotated[str, Pattern("[0-9]+")]], Most(MANY)]
Cpus = Annotated[int, Range(1 << 20)]
Gpus = Annotated[int, Range(1024)]
Port = Annotated[int, Range(65535)]
Mib = Annotated[int, Range(LARGEST)]
Count10 = Annotated[int, Range(1 << 10)]
Number32 = Annotated[int, Range(1 << 32)]
Setting = Annotated[int, Range(1 << 31)]


class Empty(TypedDict):
    """A mapping without keys, where a record does not apply."""


class MigInstance(TypedDict):
    """An instance of a GPU."""

    profile: ShortWord
    uuid: Word


class GpuVendorFact(TypedDict, total=False):
    """The vendor of a GPU that is not NVIDIA's."""

    vendor: Annotated[str, Pattern("amd")]


class GpuFact(GpuVendorFact):
    """A GPU of the fact `slurm_hardware`."""

    minor: Annotated[int, Range(1 << 20)] | None
    pci_address: Annotated[str, Pattern(r"[0-9a-fA-F:.]+")]
    model: Model | None
    type: Annotated[str, Pattern(r"[a-z0-9][a-z0-9._-]*", 64)] | None
    memory_mb: Mib | None
    numa_node: Annotated[int, Range(1 << 16)] | None
    cores: Annotated[str, Form.CORES]
    mig: Annotated[list[MigInstance], Most(64)]


class CpuNumbers(TypedDict):
    """The numbers of a machine's CPUs, as slurm.conf counts them."""

    cpus: Annotated[int, Range(1 << 20, 1)]
    boards: Count10
    sockets_per_board: Count10
    cores_per_socket: Annotated[int, Range(CORES)]
    threads_per_core: Count10


class PortFact(TypedDict):
    """A port of a network adapter for RDMA of the fact `slurm_hardware`."""

    device: Annotated[str, Pattern(r"[A-Za-z0-9_.-]+", 64)]
    port: Annotated[int, Range(255)]
    link: Annotated[str, Pattern("InfiniBand|Ethernet|")]
    rate: Annotated[int, Range(10**5)]
    up: bool


class HardwareFact(CpuNumbers):
    """The fact `slurm_hardware` (module slurm_hardware_facts)."""

    real_memory: Mib | None
    cpuless_memory: Mib
    tmp_disk: Mib | None
    device_files: list[Path]
    gpus: Annotated[list[GpuFact], Most(256)]
    ports: Annotated[list[PortFact], Most(256)]


class NamedCluster(TypedDict):
    """The name of a cluster, and the file and the daemon by which the host has it."""

    name: Annotated[str, Pattern(r"[a-z0-9._+?-]+", 255)]
    file: Annotated[str, Pattern(r"/[A-Za-z0-9+._/@%:?-]*", 1000)]
    by: Annotated[str, Pattern("[a-z]+", 16)]


class Clusters(TypedDict):
    """The part `clusters` of the fact `slurm_host`."""

    found: Annotated[list[NamedCluster], Most(64)]
    daemons: Annotated[list[Word], Most(16)]


class SlurmPackage(TypedDict):
    """The part `slurm`: which release a host has, would get, and has written its state with."""

    installed: Version
    candidate: Version
    state_protocol: Annotated[int, Range((1 << 16) - 1)]


class DirectoryFaults(TypedDict):
    """The part `directories`."""

    differ: dict[Path, Annotated[str, Pattern(rf"missing|{_OWNER}")]]
    refused: Annotated[list[Sentence], Most(64)]


class DirectoryUsers(TypedDict):
    """The part `directory`, of users of a directory service."""

    checksum: ChecksumOrEmpty
    unknown: Number32 | None


class CloudInit(TypedDict):
    """The part `cloud_init`."""

    writes_hosts: Annotated[str, Pattern(rf"({PATH})?")]
    own_name: bool


class HiddenFiles(TypedDict):
    """What a mount would hide, in the part `hidden`."""

    names: Annotated[list[Sentence], Most(16)]
    """The first entries of the directory."""
    more: Number32
    """How many further entries there are."""
    homes: dict[Word, Path]
    """Homes in it, by their users."""


class Namespaces(TypedDict):
    """The part `namespaces`."""

    max_user_namespaces: Annotated[int, Range(1 << 63)] | None
    unprivileged_userns_clone: Setting | None
    apparmor_restrict_unprivileged_userns: Setting | None


class HostFact(TypedDict):
    """The fact `slurm_host` (module slurm_host_facts)."""

    distribution: Annotated[str, Pattern(r"[a-z0-9._-]+( [A-Za-z0-9._-]+)?", 64)]
    """Name and release, such as `debian 13`."""
    codename: Annotated[str, Pattern(r"[a-z0-9._-]*", 64)]
    hostname: Annotated[str, Pattern(r"[A-Za-z0-9._-]*", 255)]
    container: Annotated[str, Pattern(r"[a-z0-9-]+", 64)]
    """The kind of a container, as systemd-detect-virt says it; `none` for a machine."""
    memory_mib: Mib
    nvidia_gpus: Gpus
    imex_channels: bool | None
    """Whether NVIDIA's driver has IMEX channels; null if the driver is not loaded."""
    slurm_version: Version
    """The release of Slurm that the host has, or else would get."""
    slurm: SlurmPackage
    packages: dict[Word, Word]
    """The versions of those asked that are installed."""
    unheld: list[Word]
    """The packages of the source packages asked that apt may change."""
    candidates: dict[Word, Word]
    """The versions that apt would install."""
    mirror: Annotated[str, Pattern(r"(?:[a-z+]+:[A-Za-z0-9+._~:/@%-]+)?")]
    """The method and address of the distribution's archive; asked with candidates."""
    interrupted: bool
    """Whether an installation of packages was interrupted."""
    clocks: dict[Word, bool]
    """Whether a service that keeps the clock runs, of those that start with the host."""
    applied: dict[Word, Checksum]
    """The checksums of the records that hold, so that their modules need not run."""
    users: dict[Word, Number32]
    taken_ids: dict[Word, Annotated[list[Line], Most(64)]]
    """Who else has the ids asked."""
    paths: dict[Path, Annotated[str, Pattern(_OWNER)]]
    """Owner and mode of those that exist."""
    directories: DirectoryFaults
    people: ChecksumOrEmpty
    """The checksum of the plan of users that was applied last."""
    directory: DirectoryUsers
    free_mib: dict[Path, Mib]
    """What an ordinary user can still write."""
    read_only: list[Path]
    """Directories that each run may write into, and cannot."""
    files: dict[Path, Checksum]
    """The checksums of those that exist."""
    programs: dict[Annotated[str, Pattern(r"/?[A-Za-z0-9+._/@%:~,*?!\[\]-]+")], Sentence]
    """Why those that cannot run cannot."""
    scripts: dict[Annotated[str, Pattern(r"[a-z_]+(: |\.)[A-Za-z0-9._-]+")], Sentence]
    """Why no interpreter of this host would run them."""
    part: ChecksumOrEmpty
    """The checksum of a part of a file."""
    other_addresses: dict[Annotated[str, Pattern(r"[A-Za-z0-9._-]+", 255)], Annotated[str, Pattern(r"[0-9.]+", 15)]]
    """The addresses in the other lines of /etc/hosts."""
    clusters: Clusters
    state_version: Number32
    """The version of this collection's files on the host; 0 without any."""
    cloud_init: CloudInit
    ufw: list[Annotated[str, Pattern(rf"any|{_PORTS}(,{_PORTS})*")]] | None
    """The ports that ufw has open; null if it is off."""
    profiles: dict[Word, Annotated[str, Pattern("loaded|missing|no userns|not loaded")]]
    """What AppArmor says of programs that make user namespaces."""
    kernel: dict[Annotated[str, Pattern(r"[A-Za-z0-9._/-]+")], Annotated[int, Range(1 << 63, -(1 << 63))]]
    hidden: dict[Path, HiddenFiles]
    """What the mounts asked would hide, by directory."""
    lacks_filesystems: list[Word]
    """The types asked that the kernel does not have."""
    storage: StateDigest
    """The checksum of the mounts, homes and exports that were applied last."""
    firewall: StateDigest
    """The checksum of the rules that were applied last."""
    backup: Sentence
    """The fault of the last backup."""
    serving_controller: Annotated[str, Pattern(r"[A-Za-z0-9._-]*", 255)]
    jobs: dict[Annotated[str, Pattern("[0-9]+", 10)], Annotated[str, Pattern("runs|reports|open")]]
    """What of jobs runs on the host."""
    out_of_service: Annotated[str, Pattern(r"[A-Za-z0-9._,\[\]-]*", 1 << 20)] | None
    """The nodes on which no job starts; null if slurmctld was not asked, or did not answer."""
    host_key: Annotated[str, Pattern(rf"({_KEY})?", 2000)]
    sshd: Annotated[str, Pattern("(all|administrators|job)?")]
    """Who passes it."""
    known_hosts: Annotated[list[Annotated[str, Pattern(rf"[A-Za-z0-9:._,-]+ {_KEY}", 3000)]], Most(MOST_HOSTS)]
    namespaces: Namespaces


class NodeOptions(TypedDict):
    """Options of the module slurm_doctor_node_info that the serving controller knows."""

    controllers: FewLines
    controller_port: Port
    slurm_user: Line
    spool_dir: Line
    log_file: Line
    tmp_fs: Line
    credential: Annotated[str, Pattern(r"[A-Za-z0-9+/=:]*", 4000)]
