# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `rest` of the cluster file."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import rest_key
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.firewall_plans import firewall_plans
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, ModelError, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.removal import edits
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import Checker

FULL: dict[str, Any] = {"host": "login1", "clients": ["10.0.0.0/8", "10.1.2.3"], "max_token_lifespan": 3600}
FILE: dict[str, Any] = {
    "plugin": "gpucluster.slurm.cluster",
    "name": "x",
    "controllers": "head",
    "login": "login1",
    "hardware": {"m": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000}},
    "nodes": [{"hosts": "n[1-2]", "hardware": "m"}],
    "partitions": [{"name": "all", "nodes": "ALL"}],
}


def checked(found: Any, **slurm_conf: Any) -> tuple[rest_key.RestKey, list[str]]:
    """The checked value, and the problems."""
    problems: list[str] = []
    return rest_key.check(Checker("my.cluster.yml", problems), found, slurm_conf), problems


def test_a_host_is_a_mapping_with_all_defaults() -> None:
    value, problems = checked("login1")
    assert problems == []
    assert value == {"host": "login1", "clients": [], "max_token_lifespan": 86400}
    assert checked({"host": "login1"}) == (value, [])
    for found in (value, FULL):
        assert checked(found) == (found, []), "a checked value is checked as a variable without a change"


@pytest.mark.parametrize("found", [None, {}, ""])
def test_a_site_without_the_key_has_no_slurmrestd(found: Any) -> None:
    assert checked(found) == ({}, [])


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (["login1"], "rest: found ['login1'], allowed: a host, or a mapping with"),
        ({"clients": ["10.0.0.0/8"]}, "rest.host: missing"),
        ({**FULL, "client": ["10.0.0.1"]}, "'clients'"),
        ({**FULL, "clients": ["portal"]}, "rest.clients: found ['portal']"),
        ({**FULL, "max_token_lifespan": "1h"}, "rest.max_token_lifespan: found '1h', allowed: a whole number from 1"),
        ({**FULL, "max_token_lifespan": 2**31}, "allowed: a whole number from 1 to 2147483647"),
    ],
)
def test_errors_name_the_key_and_what_is_allowed(found: Any, message: str) -> None:
    value, problems = checked(found)
    assert value == {}
    assert message in "\n".join(problems)


@pytest.mark.parametrize("parameter", ["AuthAltTypes", "authaltparameters"])
def test_what_follows_from_the_key_is_not_set_twice(parameter: str) -> None:
    _value, (problem,) = checked("login1", **{parameter: "auth/jwt"})
    assert "is derived from" in problem
    assert checked("login1", **{parameter: None})[1] == []


def test_the_cluster_file_has_the_key() -> None:
    cluster = load(Document("my.cluster.yml", {**FILE, "rest": FULL}))
    assert cluster.groups["slurm_rest"] == ["login1"]
    assert cluster.variables["slurm_rest"] == FULL
    assert load(Document("my.cluster.yml", FILE)).variables["slurm_rest"] == {}
    with pytest.raises(ModelError, match=r"rest\.host: missing"):
        load(Document("my.cluster.yml", {**FILE, "rest": {"clients": ["10.0.0.1"]}}))


def test_its_host_is_not_removed() -> None:
    with pytest.raises(ValueError, match="give another host the key rest first"):
        edits("", {**FILE, "rest": {"host": "n1"}}, ["n1"])


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("login1", {"rest": (["controllers", "login", "compute"], "6820")}),
        (
            FULL,
            {
                "rest": (["controllers", "login", "compute"], "6820"),
                "clients of rest": (["rest_clients"], "6820"),
            },
        ),
    ],
)
def test_the_firewall_lets_hosts_of_the_cluster_and_clients_in(rest: Any, expected: dict[str, Any]) -> None:
    members = {"all": ["head", "login1", "n1"], "controllers": ["head"], "login": ["login1"], "compute": ["n1"]}
    variables = {
        "slurm_controllers": ["head"],
        "slurm_database": "",
        "slurm_addresses": [{"hosts": "head,login1,n1", "address": "10.0.0.[1-3]"}],
        "slurm_nodes": [{"hosts": "n1", "hardware": "m"}],
        "slurm_storage": [],
        "slurm_monitoring": {},
        "slurm_report": {},
        "slurm_rest": checked(rest)[0],
        "slurmrestd_port": 6820,
        "slurm_conf": {"SrunPortRange": "60001-63000"},
        "slurmdbd_conf": {},
    }
    plans = firewall_plans({"ssh": ["any"]}, members, variables)

    def rules(host: str) -> dict[str, Any]:
        plan = plans["plans"][plans["hosts"][host]]
        return {rule["what"]: (rule["sources"], rule["ports"]) for rule in plan["rules"] if "rest" in rule["what"]}

    assert rules("login1") == expected
    assert rules("head") == {}
