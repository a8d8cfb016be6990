# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from release to release; the expected ways are those of the release notes of Slurm."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables.releases import RELEASES
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.upgrade import (
    database_release,
    hops,
    tables_release,
    takes,
    upgrade_plan,
)

# Of the tables of jobs and of associations, since the releases in which they came.
COLUMNS = ["id_job", "failed_node", "lineage", "std_err", "qos_req", "segment_size", "sluid"]

PACKAGE = "slurm-wlm-basic-plugins"


def host(installed: str, offered: str, interrupted: bool = False) -> dict[str, Any]:
    """The facts of a host."""
    return {
        "packages": {PACKAGE: installed} if installed else {},
        "candidates": {PACKAGE: offered} if offered else {},
        "interrupted": interrupted,
    }


@pytest.mark.parametrize(
    ("release", "before"),
    [
        ("23.11", ["22.05", "23.02"]),
        ("24.05", ["23.02", "23.11"]),
        ("24.11", ["23.02", "23.11", "24.05"]),
        ("26.05", ["24.11", "25.05", "25.11"]),
    ],
)
def test_releases_that_a_release_takes(release: str, before: list[str]) -> None:
    assert [*takes(release)] == before


@pytest.mark.parametrize(
    ("present", "target", "path"),
    [
        ("24.11", "24.11", []),
        ("24.11", "26.05", ["26.05"]),
        ("23.02", "24.11", ["24.11"]),
        ("22.05", "24.11", ["23.11", "24.11"]),
        ("22.05", "26.05", ["23.11", "25.05", "26.05"]),
    ],
)
def test_hops(present: str, target: str, path: list[str]) -> None:
    assert hops(present, target) == path


@pytest.mark.parametrize("present", RELEASES)
@pytest.mark.parametrize("target", RELEASES)
def test_each_hop_takes_the_one_before(present: str, target: str) -> None:
    if present <= target:
        path = [present, *hops(present, target)]
        assert path[-1] == target
        assert all(before in takes(after) for before, after in zip(path, path[1:]))


def test_a_plan_has_the_hosts_that_change() -> None:
    hosts = {
        "db": host("26.05.1-1", "26.05.1-1"),
        "ctl": host("24.11.5-4", "26.05.1-1"),
        "registry": host("", ""),
    }
    expected = {"from": "24.11.5-4", "to": "26.05.1-1", "release": "26.05", "hosts": ["ctl"], "errors": []}
    assert upgrade_plan(hosts, PACKAGE) == expected
    assert upgrade_plan(hosts, PACKAGE, "26.05.3-1")["hosts"] == ["db", "ctl"]


def test_there_is_nothing_to_do_on_hosts_of_the_offered_version() -> None:
    plan = upgrade_plan({"ctl": host("24.11.5-4", "24.11.5-4")}, PACKAGE)
    assert (plan["hosts"], plan["errors"], plan["to"]) == ([], [], "24.11.5-4")
    assert upgrade_plan({}, PACKAGE)["errors"] == []


def test_a_host_whose_packages_are_half_installed_changes() -> None:
    hosts = {"n1": host("", "26.05.1-1", interrupted=True), "n2": host("26.05.1-1", "26.05.1-1", interrupted=True)}
    plan = upgrade_plan(hosts, PACKAGE)
    assert (plan["from"], plan["to"], plan["hosts"], plan["errors"]) == ("26.05.1-1", "26.05.1-1", ["n1"], [])


@pytest.mark.parametrize("offered", ["24.11.5-5", "24.11.6-1"])
def test_a_patch_release_is_one_hop(offered: str) -> None:
    plan = upgrade_plan({"ctl": host("24.11.5-4", offered)}, PACKAGE)
    assert (plan["hosts"], plan["errors"]) == (["ctl"], [])


@pytest.mark.parametrize(
    ("installed", "offered", "error"),
    [
        ("22.05.8-4", "24.11.5-4", "each a run of its own: 22.05 -> 23.11 -> 24.11. Offer the hosts packages of 23.11"),
        ("26.05.1-1", "24.11.5-4", "n[1-2]: from Slurm 26.05.1-1 to 24.11.5-4 would be a downgrade"),
        ("24.11.5-4", "24.11.4-1", "would be a downgrade"),
        ("24.11.5-4", "27.05.0-1", "unknown release 27.05, allowed: 22.05, 23.02"),
        ("24.11.5-4", "2.0", "unknown release , allowed: 22.05"),
    ],
)
def test_ways_that_do_not_exist(installed: str, offered: str, error: str) -> None:
    plan = upgrade_plan({name: host(installed, offered) for name in ("n1", "n2")}, PACKAGE)
    (found,) = plan["errors"]
    assert error in found


def test_hosts_that_are_offered_different_versions_are_named() -> None:
    hosts = {name: host("24.11.5-4", "26.05.1-1") for name in ("n1", "n2")} | {"n3": host("24.11.5-4", "")}
    assert upgrade_plan(hosts, PACKAGE)["errors"] == [
        "the hosts do not agree on one version of Slurm that apt offers: 26.05.1-1 on n[1-2]; none on n3"
    ]


@pytest.mark.parametrize(
    ("columns", "release"),
    [(0, ""), (1, "22.05"), (2, "23.02"), (3, "23.11"), (4, "24.05"), (5, "24.11"), (6, "25.05"), (7, "26.05")],
)
def test_a_database_tells_the_release_that_made_its_tables(columns: int, release: str) -> None:
    assert database_release(COLUMNS[:columns]) == release


def test_a_release_has_its_own_tables_or_those_of_an_earlier_one() -> None:
    found = {release: tables_release(release) for release in RELEASES}
    assert {release: tables for release, tables in found.items() if release != tables} == {"25.11": "25.05"}
