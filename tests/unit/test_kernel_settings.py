# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role base raises settings of the kernel by the number of hosts, and lowers none."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import kernel as rules
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preparation
from plain_host import PlainHost, cluster

FILE = "/etc/sysctl.d/60-gpucluster-slurm.conf"
HEAD = "# Managed by gpucluster.slurm: changes here are overwritten.\n"
WANTED = {"net.core.somaxconn": 4096, "net.ipv4.tcp_max_syn_backlog": "4096"}
TEXT = f"{HEAD}net.core.somaxconn = 4096\n"
LINES = f"{TEXT}net.ipv4.tcp_max_syn_backlog = 4096\n"


def host(hosts: int = 1, settings: dict[str, Any] | None = None, **facts: Any) -> PlainHost:
    """A host of a cluster with so many hosts, with the settings of the site."""
    groups = {"slurm_cluster": [f"n{number}" for number in range(hosts)], "all": ["n1"]}
    return cluster(groups=groups, base_kernel_settings=settings or {})["n1"].say(**facts)


def written(there: PlainHost) -> list[dict[str, str]]:
    """The file that the host gets, as an entry of the module."""
    text = rules.kernel(there).text
    return [{"path": FILE, "content": text}] if text else []


@pytest.mark.parametrize(
    ("hosts", "somaxconn", "neighbours"), [(1, None, None), (255, None, None), (256, 4096, 16384), (1024, 8192, 65536)]
)
def test_large_clusters_have_larger_values(hosts: int, somaxconn: int | None, neighbours: int | None) -> None:
    found = rules.wanted_settings(host(hosts))
    assert found.get("net.core.somaxconn") == somaxconn
    assert found.get("net.ipv4.neigh.default.gc_thresh3") == neighbours
    assert bool(found) == ("fs.file-max" in found)


def test_a_site_replaces_values_adds_some_and_takes_some_away() -> None:
    own = {"net.core.somaxconn": 30000, "fs.file-max": 0, "vm.max_map_count": 262144}
    found = rules.wanted_settings(host(300, own))
    assert own.items() <= found.items()
    text = rules.kernel(host(300, own, kernel=dict.fromkeys(found, 1))).text
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
    there = host(settings=WANTED, kernel=dict(zip(WANTED, kernel)), files=files, container=container)
    assert written(there) == ([{"path": FILE, "content": content}] if content is not None else [])
    assert preparation.wants_kernel(there) is wants


@pytest.mark.parametrize(("container", "unknown"), [("none", ["net.missing"]), ("podman", [])])
def test_a_setting_that_the_kernel_does_not_have_is_named(container: str, unknown: list[str]) -> None:
    settings = {"net.missing": 1, "net.core.somaxconn": 1}
    there = host(settings=settings, kernel={"net.core.somaxconn": 4096}, container=container)
    assert rules.kernel(there).unknown == unknown


def test_without_settings_there_is_no_file() -> None:
    assert written(host()) == []
    assert preparation.wants_kernel(host()) is False
