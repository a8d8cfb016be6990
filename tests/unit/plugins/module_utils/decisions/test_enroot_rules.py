# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of roles enroot and job_tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.software import enroot, job_tools
from plain_host import PlainHost, cluster

OPTIONS: dict[str, Any] = {
    "slurm_containers": ["enroot", "pyxis", "job_tools"],
    "enroot_runtime_dir": "/run/enroot/%U",
    "enroot_cache_dir": "%h/.cache/enroot",
    "enroot_data_dir": "%h/.local/share/enroot",
    "enroot_config_dir": "%h/.config/enroot",
    "enroot_temp_dir": "/var/lib/enroot/%U",
    "enroot_clean": ["runtime", "temp"],
    "enroot_cache_days": 30,
    "enroot_conf": {},
    "enroot_environment": {},
    "enroot_mounts": [],
    "enroot_infiniband": False,
}


def host(name: str = "n1", **variables: Any) -> PlainHost:
    """A host with these variables."""
    return cluster(**OPTIONS | variables)[name]


def test_settings_that_work_are_taken() -> None:
    assert enroot.objections(host()) == []


@pytest.mark.parametrize("path", ["/run/enroot", "/%U", "/run/%U/enroot", "/run/enroot%U"])
def test_a_directory_of_all_users_is_refused(path: str) -> None:
    assert enroot.objections(host(enroot_runtime_dir=path)) == [
        f"enroot's directories: found {path}, allowed: below %h, or a path that ends in a part with %U or %u, such as "
        "/run/enroot/%U"
    ]


def test_all_wrong_settings_are_named_at_once() -> None:
    first, second = enroot.objections(
        host(enroot_conf={"ENROOT_ALOW_HTTP": True, "aa": 1}, enroot_environment={"ENROOT_X": 1, "b c": 2, "A": 3})
    )
    assert first.startswith("enroot_conf: found aa, ENROOT_ALOW_HTTP, nearest: ENROOT_ALLOW_HTTP, allowed: ")
    assert second.startswith("enroot_environment: found b c, ENROOT_X, allowed: letters, digits and _;")


def test_settings_of_the_site_win_and_none_removes_one() -> None:
    settings = enroot.settings(
        host(enroot_conf={"ENROOT_MOUNT_HOME": True, "ENROOT_TEMP_PATH": None, "NVIDIA_A": "%u"})
    )
    assert settings["ENROOT_MOUNT_HOME"] == "y"
    assert settings["ENROOT_RESTRICT_DEV"] == "y"
    assert "ENROOT_TEMP_PATH" not in settings
    assert settings["NVIDIA_A"] == "$(id -un)"
    assert settings["ENROOT_CACHE_PATH"] == "${HOME}/.cache/enroot"
    assert settings["ENROOT_RUNTIME_PATH"] == "$(/usr/local/lib/gpucluster-slurm/enroot-dir /run/enroot/$(id -u))"


@pytest.mark.parametrize("variable", ["enroot_conf", "enroot_environment"])
def test_a_value_of_two_lines_is_refused(variable: str) -> None:
    with pytest.raises(ValueError, match="found a newline"):
        enroot.files(host().set(**{variable: {"NVIDIA_A": "a\nb"}}))


def test_no_directory_is_made_or_removed_in_a_home() -> None:
    assert enroot.created_directories(host()) == enroot.cleaned(host()) == ["/run/enroot/%U", "/var/lib/enroot/%U"]
    assert enroot.parents(host()) == ["/run/enroot", "/var/lib/enroot"]


def test_a_directory_that_is_also_one_to_keep_stays() -> None:
    assert enroot.cleaned(host(enroot_data_dir="/var/lib/enroot/%U")) == ["/run/enroot/%U"]


def test_users_make_their_directories_on_login_hosts() -> None:
    login = host("login")
    assert enroot.cleaned(login) == []
    found = {"ansible_facts": {"slurm_host": {"paths": {"/run/enroot": "root 1777", "/var/lib/enroot": "root 0755"}}}}
    new = {"path": "/var/lib/enroot", "owner": "root"}
    there = {"path": "/run/enroot", "owner": ""}
    assert enroot.parent_directories(login.set(__enroot_facts=found)) == [new | {"mode": "1777"}, there]
    # A node does not undo the mode of a login host on storage that both have.
    node = host().set(__enroot_facts=found)
    assert enroot.parent_directories(node) == [there, {"path": "/var/lib/enroot", "owner": ""}]
    found["ansible_facts"]["slurm_host"]["paths"] = {}
    assert {entry["mode"] for entry in enroot.parent_directories(node)} == {"0755"}


def test_scripts_have_the_directories_of_their_user() -> None:
    assert "'data', '${HOME}/.local/share/enroot'" in enroot.clean_text(host())
    assert "'directories', ['/run/enroot/$uid', '/var/lib/enroot/$uid']" in enroot.prolog_text(host())
    assert "'temp', '/var/lib/enroot/$uid'" in enroot.epilog_text(host())


def test_programs_can_be_run() -> None:
    files = {entry["path"]: entry for entry in [*enroot.files(host()), *job_tools.files(host())]}
    programs = {path for path, entry in files.items() if entry.get("mode") == "0755"}
    assert {"/usr/local/bin/enroot", "/usr/local/bin/nvcrlogin", "/usr/local/bin/srun.sh"} <= programs
    assert {path for path in programs if not files[path]["content"].startswith(("#!", "enroot/"))} == set()


def test_users_without_containers_have_the_tools_that_need_none() -> None:
    def commands(*containers: str) -> set[str]:
        files = job_tools.files(host(slurm_containers=[*containers, "job_tools"]))
        return {Path(entry["path"]).name for entry in files if entry.get("mode") == "0755"}

    assert commands() == {"gpus", "jobstats", "notebook"}
    assert commands("apptainer") == {"gpus", "jobstats", "notebook", "nvcrlogin"}
    assert commands("enroot", "pyxis") == {"gpus", "jobstats", "notebook", "nvcrlogin", "sbuild.sh", "srun.sh"}


def test_the_tools_know_where_enroot_has_its_credentials() -> None:
    files = {entry["path"]: entry for entry in job_tools.files(host(enroot_config_dir="/etc/enroot/users/%u"))}
    conf = files["/etc/gpucluster-slurm/job-tools.conf"]
    assert conf["content"] == "job_tools/job-tools.conf.j2 [('config_dir', '/etc/enroot/users/%u')]"
