# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of role base for programs that change a host by themselves."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

VARS = Path(__file__).parents[2] / "roles/base/vars/main/upkeep.yml"
HEAD = "Managed by gpucluster.slurm: changes here are overwritten.\n"
CLOUD, RESTARTS, UPGRADES = (
    "/etc/cloud/cloud.cfg.d/99-gpucluster-slurm.cfg",
    "/etc/needrestart/conf.d/gpucluster-slurm.conf",
    "/etc/apt/apt.conf.d/99gpucluster-slurm",
)


def templated(name: str, host: dict[str, Any], **variables: Any) -> Any:
    """A variable of the role on a host with these facts."""
    loader = DataLoader()
    facts = {"nvidia_gpus": 0, "files": {}, "cloud_init": {"own_name": False}, **host}
    others = {"base_manage_hosts_file": True, "__base_runs_jobs": True, **variables}
    own = loader.load_from_file(str(VARS), trusted_as_template=True)
    templar = Templar(loader, variables={**own, **others, "__slurm_host": facts})
    return templar.template(trust_as_template("{{ " + name + " }}"))


def files(*packages: str, **variables: Any) -> dict[str, str]:
    host: dict[str, Any] = {name: variables.pop(name) for name in ("nvidia_gpus", "cloud_init") if name in variables}
    found = templated("__base_upkeep_files", {"packages": dict.fromkeys(packages, "1"), **host}, **variables)
    return dict(found)


@pytest.mark.parametrize(
    ("variables", "lines"),
    [
        ({}, "manage_etc_hosts: false\n"),
        ({"cloud_init": {"own_name": True}}, "manage_etc_hosts: false\npreserve_hostname: true\n"),
        ({"cloud_init": {"own_name": True}, "base_manage_hosts_file": False}, "preserve_hostname: true\n"),
        ({"base_manage_hosts_file": False}, ""),
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
        ({"nvidia_gpus": 8, "__base_runs_jobs": False}, []),
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
    host = {"packages": {"needrestart": "3.6", "cloud-init": "24.4"}}
    assert templated("__base_wants_upkeep", {**host, "files": there}) is False
    assert templated("__base_wants_upkeep", {**host, "files": {**there, RESTARTS: "0" * 64}}) is True
    assert templated("__base_wants_upkeep", host) is True
    assert templated("__base_wants_upkeep", {"packages": {}}) is False
