# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that a job cannot use where its processes gain no rights."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import privileges
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import model_errors

NEEDY: list[tuple[str, Any, str]] = [
    ("slurm_containers", ["apptainer", "enroot"], "enroot+caps"),
    ("apptainer_setuid", True, "setuid bit"),
    ("apptainer_fakeroot_uids", ["2000-2999"], "newuidmap"),
    ("slurm_access", {"between_nodes": "host_based"}, "ssh-keysign"),
]


@pytest.mark.parametrize(("name", "value", "program"), NEEDY)
def test_a_program_that_would_fail_in_jobs_is_refused(name: str, value: Any, program: str) -> None:
    (found,) = privileges.errors({"slurm_no_new_privileges": True, name: value})
    assert found.startswith("slurm_no_new_privileges: found true")
    assert program in found
    assert privileges.errors({"slurm_no_new_privileges": False, name: value}) == []


@pytest.mark.parametrize("value", ["", "maybe", None, 2, []])
def test_it_is_true_or_false(value: Any) -> None:
    (found,) = privileges.errors({"slurm_no_new_privileges": value})
    assert found == f"slurm_no_new_privileges: found {value!r}, allowed: true or false"


@pytest.mark.parametrize("value", ["true", "yes", "1", "True"])
def test_a_text_of_the_command_line_is_read(value: str) -> None:
    assert privileges.errors({"slurm_no_new_privileges": value, "apptainer_setuid": True})
    assert privileges.errors({"slurm_no_new_privileges": "false", "apptainer_setuid": True}) == []


def test_other_values_need_nothing() -> None:
    values = {
        "slurm_containers": ["apptainer"],
        "slurm_access": {"between_nodes": "none"},
        "apptainer_setuid": False,
        "apptainer_fakeroot_uids": [],
    }
    assert privileges.errors({"slurm_no_new_privileges": True, **values}) == []
    assert privileges.errors({"slurm_no_new_privileges": True}) == []


def test_preflight_reads_them() -> None:
    variables = {
        "slurm_cluster_name": "x",
        "slurm_controllers": ["head"],
        "slurm_no_new_privileges": True,
        "slurm_containers": ["enroot"],
    }
    assert [error for error in model_errors(variables, ["head"]) if "enroot+caps" in error]
