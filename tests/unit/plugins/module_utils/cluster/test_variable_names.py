# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables, and files of variables, whose names are nearly right: Ansible ignores them and says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.variable_names import file_errors, name_errors
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.templated_host import known_variables

HOSTS = {"head", "gpu1", "gpu2"}
GROUPS = {"all", "slurm_cluster", "slurm_compute", "rack_1"}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("slurm_contianers", "slurm_containers"),
        ("rolling_reboots", "rolling_reboot"),
        ("nvida_driver_branch", "nvidia_driver_branch"),
        ("Slurm_containers", "slurm_containers"),
        ("remove_node", "remove_nodes"),
        ("new_clustername", "new_cluster_name"),
    ],
)
def test_a_misspelt_variable_is_an_error_with_the_name_that_was_meant(name: str, meant: str) -> None:
    given = {host: [name, "ansible_host"] for host in HOSTS}
    assert name_errors(given, known_variables()) == [f"{name}: unknown variable, did you mean {meant!r}?"]


def test_variables_of_a_site_and_of_ansible_are_none_of_them() -> None:
    names = ["slurm_room", "backup_window", "__slurm_contianers", "ansible_hosts", "gpus", "groups", "SLURM"]
    assert name_errors({"head": names}, known_variables()) == []


def test_some_hosts_are_named() -> None:
    given = {"head": ["x"], "gpu1": ["x", "munge_kye"], "gpu2": ["munge_kye"]}
    assert name_errors(given, {"munge_key"}) == ["gpu[1-2]: munge_kye: unknown variable, did you mean 'munge_key'?"]


def test_a_parameter_of_slurm_is_no_variable() -> None:
    assert name_errors({"head": ["SlurmdTimeout"]}, set()) == [
        "SlurmdTimeout: is a parameter of slurm.conf, no variable: set it in slurm_conf of the cluster file"
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("doctor_node", "unknown variable, allowed: doctor_repair, doctor_report, doctor_updates"),
        ("cluster_name", "unknown variable, did you mean new_cluster_name or slurm_cluster_name?"),
    ],
)
def test_an_option_on_the_command_line_that_no_playbook_has(name: str, message: str) -> None:
    """In group_vars it can be a variable of the site."""
    assert name_errors({"head": [name]}, known_variables(), {name}) == [f"{name}: {message}"]
    assert name_errors({"head": [name]}, known_variables()) == []


def test_files_of_variables_that_ansible_does_not_read(tmp_path: Path) -> None:
    for file in ("compute.yml", "slurm_clutser.yml", "all.yml", "rack_1/x.yml", "storage.yml", ".hidden.yml"):
        (tmp_path / "group_vars" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "group_vars" / file).write_text("{}")
    (tmp_path / "host_vars").mkdir()
    for file in ("gpu01.yml", "Head.example.org.yaml", "gpu2", "gpu3.yml"):
        (tmp_path / "host_vars" / file).write_text("{}")
    assert file_errors(str(tmp_path), GROUPS, HOSTS) == [
        "group_vars/compute.yml: no group has this name, did you mean slurm_compute.yml?",
        "group_vars/slurm_clutser.yml: no group has this name, did you mean slurm_cluster.yml?",
        "host_vars/Head.example.org.yaml: no host has this name, did you mean head.yaml?",
        "host_vars/gpu01.yml: no host has this name, did you mean gpu1.yml?",
    ]


def test_a_directory_without_files_of_variables(tmp_path: Path) -> None:
    assert file_errors(str(tmp_path), GROUPS, HOSTS) == []
