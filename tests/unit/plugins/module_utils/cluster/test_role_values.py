# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of roles that files on hosts cannot express."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import role_values
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import model_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.role_values import value_problems

ROOT = Path(__file__).parents[5]


def specs() -> dict[str, Any]:
    """The options of all roles by name."""
    found: dict[str, Any] = {}
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        found |= yaml.safe_load(path.read_text())["argument_specs"].popitem()[1].get("options", {})
    return found


def test_the_variables_exist() -> None:
    assert role_values.VALUES.keys() <= specs().keys()
    secret = {name for name, spec in specs().items() if spec.get("no_log") and name in role_values.VALUES}
    assert secret == role_values.SECRET


def test_the_defaults_can_be_written() -> None:
    defaults = {name: spec.get("default") for name, spec in specs().items() if "{{" not in str(spec.get("default"))}
    assert list(value_problems(defaults)) == []


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        (
            {"enroot_temp_dir": "/scratch/$(id)/%U"},
            "enroot_temp_dir: found '/scratch/$(id)/%U', allowed: below %h, or an absolute path that ends in a part",
        ),
        ({"apptainer_cache_dir": "%h/a b"}, "apptainer_cache_dir: found '%h/a b', allowed: an absolute path, or one"),
        *(
            ({"job_tools_login": value}, f"job_tools_login: found {value!r}, allowed: a name or address, or one with a")
            for value in ("alice@login1", "login1 -oProxyCommand=x", "-x", "login1:", "login1:ssh")
        ),
        ({"registry_dir": "/srv/my images"}, "registry_dir: found '/srv/my images', allowed: an absolute path of"),
        *(
            ({name: value}, f"{name}: found {value}, allowed: an id from 1 to 65533, or from 65536 to 4294967293")
            for name in ("base_munge_user_id", "slurm_job_user_id", "slurm_user_id")
            for value in (0, -1, 65534, 65535, 4294967294, 10**20, True)
        ),
        *(
            ({"registry_port": value}, f"registry_port: found {value}, allowed: a port, from 1 to 65535")
            for value in (0, -1, 65536, True)
        ),
        *(
            ({"slurm_health_limit": value}, f"slurm_health_limit: found {value}, allowed: seconds from 1 to 50, since")
            for value in (0, -1, 51, 60, 10**9)
        ),
        *(
            ({name: -1}, f"{name}: found -1, allowed: a whole number")
            for name in ("enroot_cache_days", "slurm_health_disk_free")
        ),
        (
            {"base_kernel_settings": {"net.core.somaxconn": 2**63}},
            "base_kernel_settings.net.core.somaxconn: found 922",
        ),
        *(
            ({"enroot_environment": {name: "x"}}, "enroot_environment: the name ")
            for name in ("A B", "", "1A", "A=B", "A\nB", "é")
        ),
        *(
            ({"slurm_health_mounts": [path]}, "slurm_health_mounts[0]: found ")
            for path in ("rel", "~", "/..", "/a/../b", "/a b", "/a\nb", "")
        ),
        ({"registry_clean": "daily\nX=1"}, "registry_clean: found a newline (character 6), allowed: one line"),
        (
            {"registry_clean": "dayly"},
            "registry_clean: found 'dayly', where 'daily' was probably meant, allowed: a time",
        ),
        (
            {"registry_upstream_password": "secret\n"},
            "registry_upstream_password: found a newline (character 7), allowed: one line",
        ),
        (
            {"slurmdbd_conf": {"StorageLoc": "my-db"}},
            "slurmdbd_conf.StorageLoc: found 'my-db', allowed: up to 64 letters",
        ),
        (
            {"slurmdbd_conf": {"StorageUser": "x'y"}},
            'slurmdbd_conf.StorageUser: found "x\'y", allowed: up to 80 letters',
        ),
        (
            {"slurmdbd_conf": {"LogFile": 'a "b"'}},
            "slurmdbd_conf.LogFile: found 'a \"b\"', 'a \"b\"' is not a valid value",
        ),
        ({"mariadb_settings": {"x": None}}, "mariadb_settings.x: found None, allowed: a text, a number or a boolean"),
        (
            {"enroot_environment": {"A": "a\nb"}},
            "enroot_environment.A: found a newline (character 2), allowed: one line",
        ),
        ({"enroot_mounts": ["/a /b", "/c\n/d"]}, "enroot_mounts[1]: found a newline"),
        ({"apptainer_conf": {"bind path": ["/a", "/b\n"]}}, "apptainer_conf.bind path: found a newline"),
        ({"apptainer_suite": "sid main"}, "apptainer_suite: found 'sid main', allowed: the codename of a suite"),
        (
            {"base_kernel_settings": {"net.x": "1 2"}},
            "base_kernel_settings.net.x: found '1 2', allowed: a whole number",
        ),
        (
            {"nvidia_driver_module_options": {"nvidia\nx": "a"}},
            r"nvidia_driver_module_options: the name 'nvidia\nx': found 'nvidia\nx', allowed: names of kernel modules",
        ),
        (
            {"nvidia_driver_repository": "mirror\nX: y"},
            r"nvidia_driver_repository: found 'mirror\nX: y', allowed: a URL",
        ),
        ({"pyxis_arguments": ["a=b c"]}, "pyxis_arguments[0]: found 'a=b c', allowed: a word without blanks and '#'"),
        (
            {"slurm_health_mounts": ["/my home"]},
            "slurm_health_mounts[0]: found '/my home', allowed: a word without blanks and '#'",
        ),
    ],
)
def test_a_value_that_its_file_cannot_express(variables: dict[str, Any], problem: str) -> None:
    (found,) = value_problems(variables)
    assert re.match(re.escape(problem), found), found


@pytest.mark.parametrize("name", ["slurm_user_id", "slurm_job_user_id"])
def test_the_model_of_a_cluster_has_no_user_with_the_id_of_root(name: str) -> None:
    variables = {"slurm_cluster_name": "x", "slurm_controllers": ["head"]}
    (found,) = model_errors({**variables, name: 0}, ["head"])
    assert found == f"{name}: found 0, allowed: an id from 1 to 65533, or from 65536 to 4294967293"
    assert model_errors({**variables, name: 64030}, ["head"]) == []


def test_the_content_of_a_secret_is_not_shown() -> None:
    (found,) = value_problems({"registry_upstream_password": "geheim\n"})
    assert "geheim" not in found


def test_values_that_are_written_in_quotes_are_taken() -> None:
    variables = {
        "slurmdbd_conf": {"LogFile": "/var/log/a #1", "PurgeJobAfter": None, "StorageLoc": "acct_2"},
        "mariadb_settings": {"init_connect": "SET NAMES 'x' # y", "skip_name_resolve": True, "max_connections": 200},
        "nvidia_driver_module_options": {"nvidia": 'NVreg_RegistryDwords="a=1;b=2"'},
        "registry_upstream_password": "it's #1 $x",
    }
    assert list(value_problems(variables)) == []
