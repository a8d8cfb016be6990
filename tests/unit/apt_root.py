# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for apt: a directory with repositories, installed packages and lists, of which the real apt is asked.

`recorded/apt` has what it said.    usage: python tests/unit/apt_root.py DIRECTORY [CHROOT]

It writes the answers for each host into DIRECTORY; in CHROOT is the apt of another release, for the host of its name.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Suite:
    """The packages of one component of a suite. `release`: origin, label, suite, codename and version."""

    release: tuple[str, str, str, str, str]
    component: str
    packages: Mapping[str, str]
    phased: str = ""
    """A package that a part of the hosts gets first."""


@dataclass(frozen=True)
class AptHost:
    """A host: its suites, its installed packages with version and source, and those that are held."""

    suites: Sequence[Suite]
    installed: Mapping[str, tuple[str, str]]
    held: Sequence[str] = ()
    preferences: str = ""


def debian(number: str, point: str, name: str, label: str = "Debian") -> tuple[str, str, str, str, str]:
    """The release of a suite of Debian."""
    security = label == "Debian-Security"
    return ("Debian", label, f"stable{'-security' * security}", f"{name}{'-security' * security}", point or number)


def ubuntu(version: str, name: str, pocket: str = "", origin: str = "Ubuntu") -> tuple[str, str, str, str, str]:
    """The release of a pocket of Ubuntu."""
    return (origin, origin, f"{name}{pocket}", name, version)


OWN = ("SchedMD", "", "", "stable", "")
APPTAINER = ("Apptainer", "Apptainer", "stable", "stable", "1")
PINNED = "Package: *nvidia* libcuda1\nPin: version {}-*\nPin-Priority: 1001\n"

HOSTS: Mapping[str, AptHost] = {
    "debian-12": AptHost(
        suites=(
            Suite(
                debian("12", "12.8", "bookworm"),
                "main",
                {
                    "slurmd": "22.05.8-4+deb12u2",
                    "munge": "0.5.15-2",
                    "openssh-server": "1:9.2p1-2+deb12u3",
                    "linux-image-amd64": "6.1.112-1",
                    "mariadb-server": "1:10.11.9-0+deb12u1",
                },
            ),
            Suite(debian("12", "12.8", "bookworm"), "non-free", {"libcuda1": "535.183.01-1~deb12u1"}),
            Suite(
                debian("12", "", "bookworm", "Debian-Security"),
                "main",
                {
                    "slurmd": "22.05.8-4+deb12u3",
                    "openssh-server": "1:9.2p1-2+deb12u3",
                    "linux-image-amd64": "6.1.115-1",
                },
            ),
            Suite(debian("12", "", "bookworm", "Debian-Security"), "non-free", {"libcuda1": "535.216.01-1~deb12u1"}),
            Suite(APPTAINER, "main", {"apptainer": "1.3.6"}),
        ),
        installed={
            "slurmd": ("22.05.8-4+deb12u2", "slurm-wlm"),
            "munge": ("0.5.15-2", "munge"),
            "openssh-server": ("1:9.2p1-2+deb12u2", "openssh"),
            "linux-image-amd64": ("6.1.106-3", "linux-signed-amd64"),
            "linux-image-6.1.0-25-amd64": ("6.1.106-3", "linux-signed-amd64"),
            "mariadb-server": ("1:10.11.6-0+deb12u1", "mariadb"),
            "libcuda1": ("535.183.01-1~deb12u1", "nvidia-graphics-drivers"),
            "enroot": ("3.5.0-1", "enroot"),
            "apptainer": ("1.3.4", "apptainer"),
        },
        held=("slurmd",),
        preferences=PINNED.format("535.183.01"),
    ),
    "debian-13": AptHost(
        suites=(
            Suite(
                debian("13", "13.1", "trixie"),
                "main",
                {"slurmd": "24.11.5-4", "munge": "0.5.16-1", "linux-image-amd64": "6.12.41-1"},
            ),
            Suite(
                debian("13", "", "trixie", "Debian-Security"),
                "main",
                {
                    "slurmd": "24.11.5-4+deb13u1",
                    "linux-image-amd64": "6.12.48-1",
                    "linux-image-6.12.48+deb13-amd64": "6.12.48-1",
                },
            ),
            Suite(
                ("Debian Backports", "Debian Backports", "stable-backports", "trixie-backports", "13-backports"),
                "main",
                {"openssh-server": "1:10.2p1-1~bpo13+1"},
            ),
            Suite(("NVIDIA", "NVIDIA CUDA", "", "debian13", ""), "main", {"libcuda1": "580.95.05-1"}),
        ),
        installed={
            "slurmd": ("24.11.5-4", "slurm-wlm"),
            "munge": ("0.5.16-1", "munge"),
            "openssh-server": ("1:10.2p1-1~bpo13+1", "openssh"),
            "linux-image-amd64": ("6.12.48-1", "linux-signed-amd64"),
            "linux-image-6.12.41+deb13-amd64": ("6.12.41-1", "linux-signed-amd64"),
            "linux-image-6.12.48+deb13-amd64": ("6.12.48-1", "linux-signed-amd64"),
            "libcuda1": ("580.65.06-1", "nvidia-graphics-drivers"),
        },
        held=("slurmd",),
        preferences=PINNED.format("580.65.06"),
    ),
    "ubuntu-22.04": AptHost(
        suites=(
            Suite(ubuntu("22.04", "jammy"), "universe", {"slurmd": "21.08.5-2ubuntu1", "munge": "0.5.14-6"}),
            Suite(ubuntu("22.04", "jammy"), "main", {"openssh-server": "1:8.9p1-3"}),
            Suite(ubuntu("22.04", "jammy", "-updates"), "universe", {"munge": "0.5.14-6ubuntu1"}, phased="munge"),
            Suite(
                ubuntu("22.04", "jammy", "-updates"),
                "main",
                {"openssh-server": "1:8.9p1-3ubuntu0.10", "linux-image-generic": "5.15.0.105.102"},
            ),
            Suite(
                ubuntu("22.04", "jammy", "-security"),
                "main",
                {"openssh-server": "1:8.9p1-3ubuntu0.10", "linux-image-generic": "5.15.0.100.99"},
            ),
            Suite(ubuntu("22.04", "jammy", "-security"), "universe", {"hello": "2.10-2ubuntu4"}),
            Suite(
                ubuntu("22.04", "jammy", "-apps-security", "UbuntuESMApps"),
                "main",
                {"slurmd": "21.08.5-2ubuntu1+esm1"},
            ),
        ),
        installed={
            "slurmd": ("21.08.5-2ubuntu1", "slurm-wlm"),
            "munge": ("0.5.14-6", "munge"),
            "openssh-server": ("1:8.9p1-3", "openssh"),
            "linux-image-generic": ("5.15.0.94.91", "linux-meta"),
        },
        held=("slurmd",),
    ),
    "ubuntu-24.04": AptHost(
        suites=(
            Suite(OWN, "main", {"slurm-smd": "25.11.2-1"}),
            Suite(ubuntu("24.04", "noble"), "universe", {"munge": "0.5.15-4build1", "enroot": "3.4.1-1"}),
            Suite(
                ubuntu("24.04", "noble", "-security"), "restricted", {"libnvidia-compute-550": "550.163.01-0ubuntu1"}
            ),
        ),
        installed={
            "slurm-smd": ("25.11.2-1", "slurm-smd"),
            "munge": ("0.5.15-4build1", "munge"),
            "libnvidia-compute-550": ("550.120-0ubuntu1", "nvidia-graphics-drivers-550"),
            "enroot": ("3.5.0-1", "enroot"),
        },
        held=("slurm-smd",),
    ),
}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _package(name: str, version: str, *more: str) -> str:
    fields = [f"Package: {name}", f"Version: {version}", "Architecture: amd64", "Maintainer: lab <lab@localhost>"]
    return "\n".join([*fields, *more, "Description: none", "", ""])


def write_host(root: Path, inside: str, host: AptHost) -> None:
    """The files of a host below a directory, which apt sees as `inside`."""
    sources = []
    for number, suite in enumerate(host.suites):
        origin, label, name, codename, version = suite.release
        entries = [
            _package(package, latest, f"Filename: {package}.deb", "Size: 1", f"SHA256: {'0' * 64}",
                     *(["Phased-Update-Percentage: 10"] if package == suite.phased else []))
            for package, latest in suite.packages.items()
        ]  # fmt: skip
        text, base = "".join(entries), root / f"archives/{number}/dists/{name or codename}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        given = {"Origin": origin, "Label": label, "Suite": name, "Codename": codename, "Version": version}
        fields = [f"{key}: {value}" for key, value in given.items() if value]
        fields += [f"Components: {suite.component}", "Architectures: amd64", "Date: Fri, 27 Nov 2026 12:00:00 +0000"]
        lists = f"{suite.component}/binary-amd64/Packages"
        _write(base / lists, text)
        _write(base / "Release", "\n".join([*fields, "SHA256:", f" {digest} {len(text)} {lists}", ""]))
        sources.append(f"deb [trusted=yes] file:{inside}/archives/{number} {name or codename} {suite.component}")
    _write(root / "etc/apt/sources.list", "\n".join([*sources, ""]))
    _write(root / "etc/apt/preferences", host.preferences)
    states = {name: "hold" if name in host.held else "install" for name in host.installed}
    entries = [
        _package(
            name, version, f"Status: {states[name]} ok installed", *([f"Source: {source}"] if source != name else [])
        )
        for name, (version, source) in host.installed.items()
    ]
    _write(root / "var/lib/dpkg/status", "".join(entries))
    for empty in ("etc/apt/preferences.d", "etc/apt/apt.conf.d", "var/lib/apt/lists/partial", "var/cache/apt/archives"):
        (root / empty).mkdir(parents=True, exist_ok=True)


class AptRoot:
    """Runs apt and dpkg for such a host."""

    def __init__(self, host: AptHost, root: Path, chroot: str = "") -> None:
        inside = f"/{root.relative_to(chroot)}" if chroot else str(root)
        write_host(root, inside, host)
        self._admin = f"--admindir={inside}/var/lib/dpkg"
        self._before = ["chroot", chroot] if chroot else []
        settings = {
            "Dir": inside,
            "Dir::State::status": f"{inside}/var/lib/dpkg/status",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
        }
        self._options = [f"--option={name}={value}" for name, value in settings.items()]
        self.run(["apt-get", "update"])

    def run(self, command: Sequence[str]) -> str:
        """The output of a command of apt or dpkg."""
        more = self._options if command[0].startswith("apt") else [self._admin]
        full = [*self._before, command[0], *more, *command[1:]]
        environment = {**os.environ, "LC_ALL": "C", "APT_CONFIG": "/dev/null"}
        return subprocess.run(full, capture_output=True, text=True, check=True, env=environment).stdout


def record(directory: Path, chroot: str, names: Sequence[str], queries: Mapping[str, Sequence[str]]) -> None:
    """Write what apt says for these hosts; the path of their files is left out."""
    for name in names:
        with tempfile.TemporaryDirectory(dir=f"{chroot}/tmp" if chroot else None) as place:
            root = AptRoot(HOSTS[name], Path(place), chroot)
            for query, command in queries.items():
                told = root.run([*command, *(HOSTS[name].installed if query == "packages" else [])])
                _write(directory / name / f"{query}.txt", told.replace(str(Path(place)).removeprefix(chroot), ""))


if __name__ == "__main__":
    from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages import dpkg

    ASKED = {"dpkg": [*dpkg.QUERY], "lists": ["apt-cache", "policy"], "packages": ["apt-cache", "policy"]}
    own, *places = [*sys.argv[1:], ""]
    record(Path(own), places[0], ["debian-13"] if places[0] else [name for name in HOSTS if name != "debian-13"], ASKED)
