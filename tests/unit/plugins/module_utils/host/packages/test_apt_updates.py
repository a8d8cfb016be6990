# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pending updates of packages, by what apt of Debian 12 (2.6.1) and of Debian 13 (3.0.4) has said of repositories with
the Release files of four distributions (apt_root.py)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages import apt_updates, dpkg
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages.apt_updates import (
    Archive,
    Archives,
    Update,
    find_kernel,
    find_kind,
    gather_updates,
    list_updates,
    newest_kernel,
    order_of_kernel,
    read_age,
)
from apt_root import HOSTS, AptRoot

RECORDED = Path(__file__).parents[4] / "recorded/apt"


@pytest.fixture(autouse=True)
def kernel_of_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The host runs an old kernel and is no container."""
    monkeypatch.setattr(apt_updates, "CONTAINER", str(tmp_path / "none"))
    monkeypatch.setattr(os, "uname", lambda: type("Uname", (), {"release": "6.1.0-25-amd64"}))


def recorded(name: str, command: Sequence[str]) -> str:
    """What apt or dpkg has said of one of the hosts."""
    query = "dpkg" if command[0] == "dpkg-query" else "lists" if len(command) == 2 else "packages"
    return (RECORDED / name / f"{query}.txt").read_text()


def shown(answer: Any) -> dict[str, tuple[str, ...]]:
    """Each kind's state, whether it is for security, and the versions."""
    return {
        f"{each['kind']} {each['state']}": (each["security"], each["installed"], each["available"])
        for each in answer["updates"]
    }


EXPECTED: dict[str, dict[str, tuple[str, ...]]] = {
    "debian-12": {
        "kernel pending": ("yes", "6.1.106-3", "6.1.115-1"),
        "nvidia pinned": ("yes", "535.183.01-1~deb12u1", "535.216.01-1~deb12u1"),
        "slurm held": ("yes", "22.05.8-4+deb12u2", "22.05.8-4+deb12u3"),
        "mariadb pending": ("no", "1:10.11.6-0+deb12u1", "1:10.11.9-0+deb12u1"),
        "enroot none": ("unknown", "3.5.0-1", ""),
        "apptainer pending": ("unknown", "1.3.4", "1.3.6"),
        "openssh pending": ("yes", "1:9.2p1-2+deb12u2", "1:9.2p1-2+deb12u3"),
    },
    "debian-13": {
        "nvidia pinned": ("unknown", "580.65.06-1", "580.95.05-1"),  # of NVIDIA's repository
        "slurm held": ("yes", "24.11.5-4", "24.11.5-4+deb13u1"),
        "openssh none": ("unknown", "1:10.2p1-1~bpo13+1", ""),  # from backports
        "kernel not booted": ("yes", "6.1.0-25-amd64", "6.12.48+deb13-amd64"),
    },
    "ubuntu-22.04": {
        # A later version is in jammy-updates.
        "kernel pending": ("yes", "5.15.0.94.91", "5.15.0.100.99"),
        "slurm held": ("yes", "21.08.5-2ubuntu1", "21.08.5-2ubuntu1+esm1"),
        "munge pending": ("no", "0.5.14-6", "0.5.14-6ubuntu1"),  # (phased 10%)
        "openssh pending": ("yes", "1:8.9p1-3", "1:8.9p1-3ubuntu0.10"),
    },
    "ubuntu-24.04": {
        "nvidia pending": ("yes", "550.120-0ubuntu1", "550.163.01-0ubuntu1"),
        "slurm none": ("unknown", "25.11.2-1", ""),  # SchedMD's repository has no such data
        "munge none": ("unknown", "0.5.15-4build1", ""),  # the host has no list of noble-security for universe
        "enroot none": ("unknown", "3.5.0-1", ""),  # a file; an older one is in universe
    },
}


@pytest.mark.parametrize("name", EXPECTED)
def test_updates_of_each_distribution(name: str) -> None:
    assert shown(gather_updates(lambda command: recorded(name, command), False)) == EXPECTED[name]


@pytest.mark.skipif(not shutil.which("apt-cache"), reason="needs apt")
def test_the_recordings_are_what_apt_says(tmp_path: Path) -> None:
    """The apt of this machine, with the same repositories."""
    for name in ("debian-12", "ubuntu-24.04"):
        root = AptRoot(HOSTS[name], tmp_path / name)
        assert shown(gather_updates(root.run, False)) == EXPECTED[name]


@pytest.mark.skipif(not shutil.which("apt-cache"), reason="needs apt")
def test_an_upgrade_of_a_person_leaves_slurm_and_the_pinned_driver(tmp_path: Path) -> None:
    upgrade = AptRoot(HOSTS["debian-12"], tmp_path / "root").run(["apt-get", "--simulate", "upgrade"])
    changed = {line.split()[1] for line in upgrade.splitlines() if line.startswith("Inst ")}
    assert changed == {"apptainer", "linux-image-amd64", "mariadb-server", "openssh-server"}


def test_security_updates_to_install_leave_out_what_is_kept_back_and_slurm() -> None:
    def security(name: str) -> list[str]:
        return gather_updates(lambda command: recorded(name, command), True)["security"]

    assert security("debian-12") == ["linux-image-amd64=6.1.115-1", "openssh-server=1:9.2p1-2+deb12u3"]
    assert security("debian-13") == []
    assert security("ubuntu-22.04") == ["linux-image-generic=5.15.0.100.99", "openssh-server=1:8.9p1-3ubuntu0.10"]

    def unheld(command: Sequence[str]) -> str:
        return recorded("debian-13", command).replace(" hold ", " install ")

    assert gather_updates(unheld, True)["security"] == []


def test_without_the_list_of_security_updates_nothing_is_known_to_be_none() -> None:
    """Also on a host whose lists have never been read."""

    def told(command: Sequence[str]) -> str:
        lists = "Package files:\n 100 /var/lib/dpkg/status\n     release a=now\nPinned packages:\n"
        return lists if len(command) == 2 else recorded("debian-13", command)

    assert shown(gather_updates(told, False))["slurm held"] == ("unknown", "24.11.5-4", "24.11.5-4+deb13u1")

    def never(command: Sequence[str]) -> str:
        policy = "munge:\n  Installed: 0.5.16-1\n  Candidate: 0.5.16-1\n  Version table:\n *** 0.5.16-1 100\n"
        known = "munge installed install munge 0.5.16-1\n"
        told = {"dpkg-query": known, "apt-cache": f"{policy}        100 /var/lib/dpkg/status\n"}[command[0]]
        return told if len(command) != 2 else "Package files:\n"

    assert shown(gather_updates(never, False)) == {"munge none": ("unknown", "0.5.16-1", "")}


def test_a_library_of_an_earlier_release_hides_nothing_and_is_no_question() -> None:
    """After an upgrade of Slurm, it stays installed and is in no list. Its source is known by other packages."""
    packages = {
        "slurmd": dpkg.Package("24.11.5-4", "slurm-wlm", True),
        "libslurm38": dpkg.Package("22.05.8-4", "slurm-wlm", True),
        "nvidia-container-toolkit": dpkg.Package("1.18", "nvidia-container-toolkit", False),
        "libcuda1": dpkg.Package("550.1", "nvidia-graphics-drivers", False),
    }
    none, unknown = Update("", "no"), Update("", "unknown")
    known = {"slurmd": none, "libslurm38": unknown, "nvidia-container-toolkit": unknown, "libcuda1": none}
    assert [(each["kind"], each["package"]) for each in list_updates(packages, known)] == [
        ("nvidia", "nvidia-container-toolkit")
    ]


def test_archives_of_security_updates() -> None:
    bookworm = Archive("Debian", "Debian", "oldstable", "12.8", "main")
    security = Archive("Debian", "Debian-Security", "oldstable-security", "12", "main")
    assert security.is_security
    assert bookworm.supported == security.supported == ("Debian", "12", "main")
    none = ("", "", "")
    assert Archive("Debian", "Debian", "unstable", "", "main").supported == none
    assert Archive("Debian Backports", "Debian Backports", "stable-backports", "13", "main").supported == none
    assert replace(bookworm, suite="oldstable-proposed").supported == none
    assert Archive("NVIDIA", "NVIDIA CUDA", "", "12", "").supported == none
    assert not Archive("Mirror", "Debian-Security", "stable-security", "13", "main").is_security
    assert not Archive("Ubuntu", "Ubuntu", "noble-updates", "24.04", "main").is_security
    assert Archive("UbuntuESM", "UbuntuESM", "jammy-infra-security", "22.04", "main").is_security


@pytest.mark.parametrize(
    ("name", "source", "kind"),
    [
        ("linux-image-amd64", "linux-signed-amd64", "kernel"),
        ("linux-image-generic-hwe-22.04", "linux-meta-hwe-6.8", "kernel"),
        ("linux-image-6.8.0-45-generic", "linux-signed", ""),
        ("linux-image-unsigned-6.8.0-45-generic", "linux", ""),
        ("linux-libc-dev", "linux", ""),
        ("linux-modules-nvidia-550-6.8.0-45-generic", "linux-restricted-modules", ""),
        ("linux-image-6.8.0-1010-nvidia", "linux-signed-nvidia", ""),
        ("linux-image-nvidia", "linux-meta-nvidia", "kernel"),
        ("libcuda1", "nvidia-graphics-drivers", "nvidia"),
        ("cuda-drivers", "cuda-drivers", "nvidia"),
        ("libmunge2", "munge", "munge"),
        ("slurm-smd-slurmd", "slurm-smd", "slurm"),
        ("libslurm40t64", "slurm-wlm", "slurm"),
        ("enroot+caps", "enroot+caps", "enroot"),
        ("openssh-client", "openssh", "openssh"),
        ("slurm-mail", "slurm-mail", ""),
    ],
)
def test_kinds_of_packages(name: str, source: str, kind: str) -> None:
    assert find_kind(name, source) == kind


def test_the_order_of_kernels() -> None:
    ordered = [
        "6.1.0-9-amd64",
        "6.1.0-25-cloud-amd64",
        "6.12.9+bpo-amd64",
        "6.12.41+deb13-amd64",
        "6.12.41+deb14-amd64",
    ]
    assert sorted(sorted(ordered), key=order_of_kernel) == ordered
    assert newest_kernel(["linux-image-amd64", *(f"linux-image-{each}" for each in ordered)]) == ordered[-1]
    assert newest_kernel(["linux-image-unsigned-6.8.0-9-generic"]) == "6.8.0-9-generic"


def test_a_kernel_that_is_installed_and_not_booted() -> None:
    packages = {"linux-image-6.1.0-25-amd64": dpkg.Package("6.1.106-3", "linux-signed-amd64", False)}
    (found,) = find_kernel(packages, "6.1.0-23-amd64", {}, Archives({}))
    assert (found["state"], found["installed"], found["available"]) == (
        "not booted",
        "6.1.0-23-amd64",
        "6.1.0-25-amd64",
    )
    assert find_kernel(packages, "6.1.0-25-amd64", {}, Archives({})) == []
    assert find_kernel(packages, "6.12.5-custom", {}, Archives({})) == []
    assert find_kernel(packages, "", {}, Archives({})) == []  # a container
    assert find_kernel({}, "6.1.0-23-amd64", {}, Archives({})) == []


def test_the_age_of_lists(tmp_path: Path) -> None:
    lists, stamp, day = tmp_path / "lists", tmp_path / "stamp", 86400
    assert read_age(str(lists), str(stamp), 100 * day) is None
    lists.mkdir()
    stamp.touch()
    (lists / "lock").touch()
    assert read_age(str(lists), str(stamp), 100 * day) is None
    for name, age in (("a_InRelease", 40), ("b_Release", 10)):
        (lists / name).touch()
        os.utime(lists / name, (0, (100 - age) * day - 60))
    os.utime(stamp, (0, 0))
    assert read_age(str(lists), str(stamp), 100 * day) == 10
    (lists / "a_bookworm-security_InRelease").touch()
    os.utime(lists / "a_bookworm-security_InRelease", (0, 80 * day))
    assert read_age(str(lists), str(stamp), 100 * day) == 20
    os.utime(stamp, (0, 99 * day))
    assert read_age(str(lists), str(stamp), 100 * day) == 1
    assert read_age(str(lists), str(stamp), 0) == 0
