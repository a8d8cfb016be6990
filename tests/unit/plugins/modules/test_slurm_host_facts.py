# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of slurm_host_facts for the machine that runs the test."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.measurement import OPTIONS
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.probe import Questions
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_host_facts
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.answers import result_errors

ASKED: dict[str, Any] = {
    "packages": [],
    "slurm_package": "",
    "hold": [],
    "candidates": [],
    "users": ["root"],
    "ids": {"root": 0},
    "policy_users": [],
    "directory_users": [],
    "paths": ["/etc"],
    "directories": [],
    "free": ["/etc"],
    "files": [],
    "programs": [],
    "scripts": {},
    "profiles": [],
    "kernel": [],
    "mounts": {},
    "filesystems": [],
    "applied": [],
    "part": None,
    "state_directory": "",
    "update_lists": False,
    "serving_controller": False,
    "nodes": False,
    "ssh": False,
    "known_hosts": False,
    "jobs": False,
    "backup_hours": 0,
    "hardware": False,
    "slurmd_parameters": [],
    "device_files": [],
    "tmp_fs": "/tmp",
}


def found(**options: Any) -> Any:
    """The module's result where no command is installed."""
    module = Mock(params=ASKED | options)
    module.get_bin_path.return_value = None
    return slurm_host_facts.read_facts(module)


def test_this_machine() -> None:
    result = found()
    assert result_errors("slurm_host_facts", result, ASKED) == []
    host = result["ansible_facts"]["slurm_host"]
    assert host["hostname"] == os.uname().nodename
    assert host["users"] == {"root": 0}
    assert host["paths"] == {"/etc": "root:root 0755"}
    assert [*result["ansible_facts"]] == ["slurm_host"]


def test_each_option_is_asked() -> None:
    asked = {each.name for each in fields(Questions)}
    assert {*slurm_host_facts.ARGUMENTS} == {*asked, *OPTIONS, "purpose", "policy_users", "hardware"}


@pytest.mark.parametrize("option", ["packages", "candidates"])
def test_a_host_without_apt_has_no_packages(option: str) -> None:
    assert found(**{option: ["munge"]})["ansible_facts"]["slurm_host"][option] == {}


def test_hardware_is_measured_with_it() -> None:
    result = found(hardware=True)
    assert result["ansible_facts"]["slurm_hardware"]["cpus"] >= 1
    assert result["differences"] == []


@pytest.mark.parametrize(
    ("users", "texts"),
    [
        ([], []),
        (["root", "Daemon"], []),
        (["root", "nobody-of-this-name", "x"], ["users of the policy who do not exist: nobody-of-this-name, x"]),
    ],
)
def test_users_who_do_not_exist_are_warned_of(users: list[str], texts: list[str]) -> None:
    module = Mock(params=ASKED | {"policy_users": users})
    module.get_bin_path.return_value = None
    slurm_host_facts.read_facts(module)
    assert [call.args[0] for call in module.warn.call_args_list] == [f"{os.uname().nodename}: {text}" for text in texts]
