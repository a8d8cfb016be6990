# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `report` of the cluster file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import report_key
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.firewall_plans import firewall_plans
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, ModelError, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.named_files import named_file_errors
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.removal import edits
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import Checker

PROXY = {"address": "10.0.0.5", "header": "X-Remote-User"}
FULL: dict[str, Any] = {
    "host": "login1",
    "readers": ["10.0.0.0/8", "10.1.2.3"],
    "password_file": "",
    "proxy": PROXY,
    "administrators": ["alice", "bob@example.org"],
    "dashboards": "https://grafana.example.org/dashboards/f/slurm",
}
FILE: dict[str, Any] = {
    "plugin": "gpucluster.slurm.cluster",
    "name": "x",
    "controllers": "head",
    "login": "login1",
    "hardware": {"m": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000}},
    "nodes": [{"hosts": "n[1-2]", "hardware": "m"}],
    "partitions": [{"name": "all", "nodes": "ALL"}],
}


def checked(found: Any) -> tuple[report_key.ReportKey, list[str]]:
    """The checked value, and the problems."""
    problems: list[str] = []
    return report_key.check(Checker("my.cluster.yml", problems), found), problems


def test_a_host_is_a_mapping_with_all_defaults() -> None:
    value, problems = checked("login1")
    assert problems == []
    empty = {"readers": [], "password_file": "", "proxy": {}, "administrators": [], "dashboards": ""}
    assert value == {"host": "login1", **empty}
    assert checked({"host": "login1"}) == (value, [])


def test_a_checked_value_is_checked_as_a_variable_without_a_change() -> None:
    for found in (FULL, "login1", {"host": "login1", "password_file": "report.users", "administrators": ["root"]}):
        value, problems = checked(found)
        assert problems == []
        assert checked(value) == (value, [])
    assert checked(FULL)[0] == FULL


@pytest.mark.parametrize("found", [None, {}, ""])
def test_a_site_without_the_key_serves_no_page(found: Any) -> None:
    assert checked(found) == ({}, [])


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ("login[1-2]", "report.host: found 'login[1-2]', allowed: the name of one host"),
        (
            ["login1"],
            "report: found ['login1'], allowed: a host, or a mapping with host, readers, password_file, proxy",
        ),
        ({"readers": ["10.0.0.1"]}, "report.host: missing"),
        ({"host": "a", "readers": ["lan"]}, "report.readers: found ['lan'], 'lan' is no address or network"),
        ({"host": "a", "password_file": "../users"}, "report.password_file: found '../users', allowed: a file next to"),
        ({"host": "a", "proxy": "10.0.0.5"}, "report.proxy: found '10.0.0.5', allowed: a mapping"),
        ({"host": "a", "proxy": {"address": "10.0.0.5"}}, "report.proxy.header: missing"),
        (
            {"host": "a", "proxy": PROXY | {"address": "10.0.0.0/8"}},
            "report.proxy.address: found '10.0.0.0/8', allowed",
        ),
        ({"host": "a", "proxy": PROXY | {"address": "web1"}}, "report.proxy.address: found 'web1', allowed: one IP"),
        (
            {"host": "a", "proxy": PROXY | {"header": "X User"}},
            "report.proxy.header: found 'X User', allowed: the name",
        ),
        (
            {"host": "a", "proxy": PROXY | {"header": "x_user"}},
            "report.proxy.header: found 'x_user', allowed: the name",
        ),
        ({"host": "a", "proxy": PROXY | {"hedaer": "x"}}, "report.proxy.hedaer: unknown key, did you mean 'header'?"),
        ({"host": "a", "proxy": PROXY, "password_file": "u"}, "report.proxy: the proxy knows the users, and so does"),
        (
            {"host": "a", "administrators": ["root"]},
            "report.administrators: found ['root'], but nobody is known by name",
        ),
        ({"host": "a", "proxy": PROXY, "administrators": ["a b"]}, "report.administrators: found ['a b'], 'a b' is no"),
        (
            {"host": "a", "proxy": PROXY, "administrators": ["x\n"]},
            "report.administrators: found ['x\\n'], 'x\\n' is no",
        ),
        (
            {"host": "a", "proxy": PROXY, "administrators": "root"},
            "report.administrators: found 'root', allowed: a list",
        ),
        ({"hots": "a"}, "report.hots: unknown key, did you mean 'host'?"),
    ],
)
def test_each_error_is_one_with_the_key_and_what_is_allowed(found: Any, problem: str) -> None:
    value, problems = checked(found)
    assert value == {}
    assert [text for text in problems if text.startswith(f"my.cluster.yml: {problem}")], problems


def test_the_host_is_one_of_the_cluster_with_a_group() -> None:
    cluster = load(Document("my.cluster.yml", {**FILE, "report": FULL}))
    assert cluster.groups["slurm_report"] == ["login1"]
    assert cluster.variables["slurm_report"] == FULL
    assert load(Document("my.cluster.yml", FILE)).variables["slurm_report"] == {}
    assert load(Document("my.cluster.yml", FILE)).groups["slurm_report"] == []


def test_an_error_stops_the_inventory() -> None:
    with pytest.raises(ModelError, match="administrators"):
        load(Document("my.cluster.yml", {**FILE, "report": {"host": "login1", "administrators": ["root"]}}))


def test_the_host_is_not_removed_with_the_page() -> None:
    data = {**FILE, "report": {"host": "n1"}}
    with pytest.raises(ValueError, match="give another host the page first"):
        edits("", data, ["n1"])


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("login1", {"report": (["controllers", "login"], "443")}),
        (FULL, {"report": (["controllers", "login"], "443"), "readers of the report": (["report_readers"], "443")}),
    ],
)
def test_the_firewall(report: Any, expected: dict[str, Any]) -> None:
    members = {"all": ["head", "login1", "n1"], "controllers": ["head"], "login": ["login1"], "compute": ["n1"]}
    variables = {
        "slurm_controllers": ["head"],
        "slurm_database": "",
        "slurm_nodes": [{"hosts": "n1"}],
        "slurm_conf": {},
        "slurm_report": checked(report)[0],
        "slurm_report_port": 443,
        "slurm_addresses": [{"hosts": "head,login1,n1", "address": "10.0.0.[1-3]"}],
    }
    found = firewall_plans({"ssh": ["any"]}, members, variables)

    def rules(host: str) -> dict[str, Any]:
        plan = found["plans"][found["hosts"][host]]
        return {rule["what"]: (rule["sources"], rule["ports"]) for rule in plan["rules"] if "report" in rule["what"]}

    assert rules("login1") == expected
    assert rules("head") == rules("n1") == {}
    if report is FULL:
        sets = found["plans"][found["hosts"]["login1"]]["sets"]
        assert sets["report_readers"] == {"ip": ["10.0.0.0/8", "10.1.2.3", "10.0.0.5"]}


def test_the_password_file_must_exist(tmp_path: Path) -> None:
    variables = {"slurm_report": {"password_file": "report.users"}}
    (error,) = named_file_errors(variables, str(tmp_path))
    assert error.startswith("slurm_report.password_file: found 'report.users', which does not exist")
    (tmp_path / "report.users").touch()
    assert named_file_errors(variables, str(tmp_path)) == []
