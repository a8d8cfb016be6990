# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role base raises settings of the kernel by the number of hosts, and lowers none."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

VARS = Path(__file__).parents[2] / "roles/base/vars/main/kernel.yml"
FILE = "/etc/sysctl.d/60-gpucluster-slurm.conf"
HEAD = "# Managed by gpucluster.slurm: changes here are overwritten.\n"
WANTED = {"net.core.somaxconn": 4096, "net.ipv4.tcp_max_syn_backlog": "4096"}
TEXT = f"{HEAD}net.core.somaxconn = 4096\n"
LINES = f"{TEXT}net.ipv4.tcp_max_syn_backlog = 4096\n"


def templated(name: str, **variables: Any) -> Any:
    """A variable of the role."""
    loader = DataLoader()
    own = loader.load_from_file(str(VARS), trusted_as_template=True)
    others = {"base_kernel_settings": {}, "groups": {}, **variables}
    return Templar(loader, variables={**own, **others}).template(trust_as_template("{{ " + name + " }}"))


@pytest.mark.parametrize(
    ("hosts", "somaxconn", "neighbours"), [(1, None, None), (255, None, None), (256, 4096, 16384), (1024, 8192, 65536)]
)
def test_large_clusters_have_larger_values(hosts: int, somaxconn: int | None, neighbours: int | None) -> None:
    found = templated("__base_kernel_settings", groups={"slurm_cluster": [f"n{number}" for number in range(hosts)]})
    assert found.get("net.core.somaxconn") == somaxconn
    assert found.get("net.ipv4.neigh.default.gc_thresh3") == neighbours
    assert bool(found) == ("fs.file-max" in found)


def test_a_site_replaces_values_adds_some_and_takes_some_away() -> None:
    own = {"net.core.somaxconn": 30000, "fs.file-max": 0, "vm.max_map_count": 262144}
    hosts = {"slurm_cluster": ["n"] * 300}
    found = templated("__base_kernel_settings", groups=hosts, base_kernel_settings=own)
    assert own.items() <= found.items()
    host = {"kernel": dict.fromkeys(found, 1), "files": {}, "container": "none"}
    text = templated("__base_kernel_text", groups=hosts, base_kernel_settings=own, __slurm_host=host)
    assert "net.core.somaxconn = 30000\n" in text
    assert "fs.file-max" not in text


@pytest.mark.parametrize(
    ("kernel", "noted", "container", "content", "wants"),
    [
        # A new host, and the same one after the run.
        ((128, 512), None, "none", LINES, True),
        ((4096, 4096), LINES, "none", LINES, False),
        # The host has a larger value of its own. Both larger: no file.
        ((4096, 9999), None, "none", TEXT, True),
        ((9999, 9999), None, "none", None, False),
        # After a smaller cluster, or where the site has set larger values later, the file is emptied.
        ((9999, 9999), LINES, "none", HEAD, True),
        ((9999, 9999), HEAD, "none", HEAD, False),
        # The file is right, and somebody has set a smaller value.
        ((128, 4096), LINES, "none", LINES, True),
        ((128, 512), None, "podman", None, False),
    ],
)
def test_values_are_raised_and_none_is_lowered(
    kernel: tuple[int, int], noted: str | None, container: str, content: str | None, wants: bool
) -> None:
    files = {} if noted is None else {FILE: sha256(noted.encode()).hexdigest()}
    host = {"kernel": dict(zip(WANTED, kernel)), "files": files, "container": container}
    variables = {"base_kernel_settings": WANTED, "__slurm_host": host}
    written = [{"path": FILE, "content": content}] if content is not None else []
    assert templated("__base_kernel_files", **variables) == written
    assert templated("__base_wants_kernel", **variables) is wants


@pytest.mark.parametrize(("container", "unknown"), [("none", ["net.missing"]), ("podman", [])])
def test_a_setting_that_the_kernel_does_not_have_is_named(container: str, unknown: list[str]) -> None:
    host = {"kernel": {"net.core.somaxconn": 4096}, "container": container}
    settings = {"net.missing": 1, "net.core.somaxconn": 1}
    assert templated("__base_kernel_unknown", base_kernel_settings=settings, __slurm_host=host) == unknown


def test_without_settings_there_is_no_file() -> None:
    variables = {"__slurm_host": {"kernel": {}, "files": {}, "container": "none"}}
    assert templated("__base_kernel_files", **variables) == []
    assert templated("__base_wants_kernel", **variables) is False
