# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of role base for programs that change a host by themselves."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import unattended_changes
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preparation
from plain_host import PlainHost, cluster

HEAD = "Managed by gpucluster.slurm: changes here are overwritten.\n"
CLOUD, RESTARTS, UPGRADES = (
    "/etc/cloud/cloud.cfg.d/99-gpucluster-slurm.cfg",
    "/etc/needrestart/conf.d/gpucluster-slurm.conf",
    "/etc/apt/apt.conf.d/99gpucluster-slurm",
)


def host(name: str = "n1", manage: bool = True, **facts: Any) -> PlainHost:
    """A host with these facts: n1 is a compute node."""
    return cluster(base_manage_hosts_file=manage)[name].say(**{"nvidia_gpus": 0, **facts})


def files(*packages: str, **options: Any) -> dict[str, str]:
    """The files of a host with these packages."""
    return unattended_changes.files(host(packages=dict.fromkeys(packages, "1"), **options))


@pytest.mark.parametrize(
    ("variables", "lines"),
    [
        ({}, "manage_etc_hosts: false\n"),
        ({"cloud_init": {"own_name": True}}, "manage_etc_hosts: false\npreserve_hostname: true\n"),
        ({"cloud_init": {"own_name": True}, "manage": False}, "preserve_hostname: true\n"),
        ({"manage": False}, ""),
    ],
)
def test_cloud_init_changes_neither_hosts_nor_a_name_of_the_site(variables: dict[str, Any], lines: str) -> None:
    assert files("cloud-init", **variables) == ({CLOUD: f"# {HEAD}{lines}"} if lines else {})


@pytest.mark.parametrize(
    ("variables", "lines"),
    [
        ({}, ['Unattended-Upgrade::Automatic-Reboot "false";']),
        (
            {"nvidia_gpus": 8},
            [
                'Unattended-Upgrade::Automatic-Reboot "false";',
                'Unattended-Upgrade::Package-Blacklist { "linux-"; "(lib)?nvidia-"; "libcuda"; };',
            ],
        ),
        ({"nvidia_gpus": 8, "name": "login"}, []),
    ],
)
def test_unattended_upgrades_end_no_job(variables: dict[str, Any], lines: list[str]) -> None:
    text = f"// {HEAD}" + "".join(f"{line}\n" for line in lines)
    assert files("unattended-upgrades", **variables) == ({UPGRADES: text} if lines else {})


def test_only_programs_that_are_there_get_a_file() -> None:
    assert files("slurmd") == {}
    assert files("needrestart", "munge").keys() == {RESTARTS}
    assert files("needrestart", "unattended-upgrades", "cloud-init").keys() == {CLOUD, RESTARTS, UPGRADES}


def test_a_host_with_the_files_needs_nothing() -> None:
    there = {path: sha256(text.encode()).hexdigest() for path, text in files("needrestart", "cloud-init").items()}
    packages = {"needrestart": "3.6", "cloud-init": "24.4"}
    assert preparation.wants_upkeep(host(packages=packages, files=there)) is False
    assert preparation.wants_upkeep(host(packages=packages, files={**there, RESTARTS: "0" * 64})) is True
    assert preparation.wants_upkeep(host(packages=packages)) is True
    assert preparation.wants_upkeep(host()) is False
