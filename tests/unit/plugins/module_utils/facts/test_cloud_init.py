# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What cloud-init would change, from the files that it has on a host."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts import cloud_init
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.results.fact_records import CloudInit

USER, VENDOR = (f"{cloud_init.INSTANCE}/{name}" for name in ("cloud-config.txt", "vendor-cloud-config.txt"))


def found(directory: Path, **files: str) -> CloudInit:
    paths = {
        "user": USER,
        "vendor": VENDOR,
        "off": cloud_init.OFF,
        "command_line": "/proc/cmdline",
        "given": cloud_init.GIVEN,
    }
    for name, text in files.items():
        path = directory / paths[name].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return cloud_init.read_cloud_init(Tree(str(directory)), "compute01")


@pytest.mark.parametrize(
    ("files", "writer"),
    [
        ({}, ""),
        ({"user": "#cloud-config\npackages:\n- vim\n"}, ""),
        ({"user": "#cloud-config\nmanage_etc_hosts: true\n"}, USER),
        ({"user": "manage_etc_hosts: 'True'\n"}, USER),
        ({"user": "manage_etc_hosts: template\n"}, USER),
        ({"vendor": "hostname: a\nmanage_etc_hosts: true\n"}, VENDOR),
        # localhost changes the line of 127.0.1.1 only, and the user wins over the cloud.
        ({"user": "manage_etc_hosts: localhost\n"}, ""),
        ({"user": "manage_etc_hosts: false\n", "vendor": "manage_etc_hosts: true\n"}, ""),
        ({"user": "write_files:\n- content: |\n    manage_etc_hosts: true\n"}, ""),
        ({"user": "manage_etc_hosts: true\n", "off": ""}, ""),
        ({"user": "manage_etc_hosts: true\n", "command_line": "quiet cloud-init=disabled"}, ""),
        ({"user": "manage_etc_hosts: true\n", "command_line": "quiet"}, USER),
    ],
)
def test_the_configuration_by_which_etc_hosts_is_written(tmp_path: Path, files: dict[str, str], writer: str) -> None:
    assert found(tmp_path, **files)["writes_hosts"] == writer


@pytest.mark.parametrize(
    ("given", "own"), [(None, False), ("compute01", False), ("compute01.example.org", False), ("vm-17", True)]
)
def test_a_name_that_cloud_init_has_not_given(tmp_path: Path, given: str | None, own: bool) -> None:
    files = {} if given is None else {"given": f'{{\n "fqdn": "a.example.org",\n "hostname": "{given}"\n}}'}
    assert found(tmp_path, **files)["own_name"] is own
