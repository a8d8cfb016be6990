# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role firewall."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import firewall
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preflight
from plain_host import PlainHost, cluster

ADDRESSES = [
    {"hosts": "head", "address": "10.0.1.1"},
    {"hosts": "login", "address": "10.0.1.2"},
    {"hosts": "n[1-2]", "address": "10.0.0.[1-2]"},
]
SSH = {"ssh": ["192.168.0.0/24"]}


def hosts_with(**variables: Any) -> dict[str, PlainHost]:
    hosts: dict[str, PlainHost] = cluster(**{"slurm_firewall": SSH, "slurm_addresses": ADDRESSES, **variables})
    return hosts


def ports(host: PlainHost, what: str) -> list[str]:
    """The ports of the rules for a service on a host."""
    found = firewall.plan(host, firewall.plans(host))
    return [rule["ports"] for rule in found["rules"] if rule["what"] == what]


def test_without_a_firewall_a_host_loses_its_rules() -> None:
    host = hosts_with(slurm_firewall={})["n1"]
    assert firewall.plans(host) == {"plans": [], "hosts": {}}
    assert firewall.packages(host) == []
    assert firewall.options(host) == firewall.FirewallOptions("", "", "", [], 0)


def test_a_host_has_the_rules_of_its_plan() -> None:
    hosts = hosts_with()
    plans = firewall.plans(hosts["head"])
    assert plans["hosts"]["n1"] == plans["hosts"]["n2"] != plans["hosts"]["login"]
    found = firewall.options(hosts["n1"])
    assert found.digest == firewall.plan(hosts["n1"], plans)["digest"]
    assert (found.ssh[0], found.ssh_port) == ("192.168.0.0/24", 22)
    assert "10.0.1.2" in found.rules
    assert firewall.packages(hosts["n1"]) == ["nftables"]


def test_a_host_gets_its_plan() -> None:
    hosts = hosts_with()
    plans = firewall.plans(hosts["head"])
    assert firewall.options(hosts["n1"]).digest == firewall.plan(hosts["n1"], plans)["digest"]


def test_a_host_without_an_address_is_resolved_by_its_name() -> None:
    host = hosts_with(slurm_addresses=[ADDRESSES[0], ADDRESSES[2]])["n1"]
    with pytest.raises(ValueError, match="firewall: the control host finds no IP address of login, allowed: names"):
        firewall.plans(host)
    (error,) = preflight.firewall_errors(host)
    assert error.startswith("firewall: the control host finds no IP address of login")
    host.resolved = {"login": ["10.0.1.7"]}
    assert preflight.firewall_errors(host) == []
    assert firewall.plan(host, firewall.plans(host))["sets"]["login"] == {"ip": ["10.0.1.7"]}


def test_ports_of_other_roles_are_those_of_their_hosts() -> None:
    hosts = hosts_with(slurm_registry="login")
    assert ports(hosts["login"], "registry") == ["5000"]
    hosts["login"].set(registry_port=5001)
    hosts["head"].set(slurmdbd_conf={"DbdPort": 7000})
    assert ports(hosts["login"], "registry") == ["5001"]
    assert "7000" in ports(hosts["head"], "slurmdbd")


def test_srun_has_a_range_unless_the_site_has_one() -> None:
    assert ports(hosts_with()["login"], "srun") == ["60001-63000"]
    assert ports(hosts_with(slurm_conf={"SrunPortRange": "50000-50100"})["login"], "srun") == ["50000-50100"]


def test_another_template_makes_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    host = hosts_with()["n1"]
    before = firewall.options(host).digest
    monkeypatch.setattr(firewall, "_layout", lambda: "another")
    assert firewall.options(host).digest != before
