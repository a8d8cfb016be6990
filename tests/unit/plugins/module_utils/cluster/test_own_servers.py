# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reaches the servers of this collection, with and without the key `firewall`.

The plans are judged here by the order of the template; scenario firewall asks the kernel.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import jinja2
import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.firewall_plans import firewall_plans
from plain_host import ROLES

HOSTS = {
    "head": "10.0.0.1",
    "mon": "10.0.0.2",
    "login": "10.0.0.3",
    "page": "10.0.0.4",
    "n1": "10.0.1.1",
    "n2": "10.0.1.2",
}
OUTSIDE = {"office": "192.0.2.9", "stranger": "198.51.100.1"}
MEMBERS = {"all": [*HOSTS], "controllers": ["head"], "login": ["login"], "compute": ["n1", "n2"]}
VARIABLES: dict[str, Any] = {
    "slurm_controllers": ["head"],
    "slurm_database": "head",
    "slurm_registry": "head",
    "registry_port": 5000,
    "slurm_nodes": [{"hosts": "n[1-2]"}],
    "slurm_conf": {"SrunPortRange": "60001-63000"},
    "slurmdbd_conf": {},
    "slurm_storage": [],
    "slurm_addresses": [{"hosts": name, "address": address} for name, address in HOSTS.items()],
    "slurm_monitoring": {"host": "mon", "readers": ["192.0.2.0/24"]},
    "slurm_report": {"host": "page"},
    "slurm_report_port": 443,
    "slurm_rest": {"host": "head", "clients": []},
    "slurmrestd_port": 6820,
}
USER, ROOT, PROMETHEUS_USER = 1001, 0, 105


def _matches(address: str, places: list[str]) -> bool:
    one = int(ip_address(address))
    for place in places:
        first, _dash, last = place.partition("-")
        if last and int(ip_address(first)) <= one <= int(ip_address(last)):
            return True
        if not last and ip_address(address) in ip_network(place):
            return True
    return False


def _has(ports: str, port: int) -> bool:
    spans = [[*map(int, span.split("-"))] for span in ports.split(",") if span]
    return any(span[0] <= port <= span[-1] for span in spans)


def reaches(source: str, uid: int, target: str, port: int, firewall: bool, **variables: Any) -> bool:
    """Whether a process of a host opens a connection to a port of a host, or to its own."""
    key = {"ssh": ["192.0.2.0/24"]} if firewall else {}
    found = firewall_plans(key, MEMBERS, {**VARIABLES, **variables})
    plans = {host: found["plans"][index] for host, index in found["hosts"].items()}
    address = {**HOSTS, **OUTSIDE}[source]
    if uid >= 1000 and source in plans:
        sender = plans[source]
        if source == target and _has(sender["private"], port):
            return False
        if _matches(HOSTS[target], sender["sets"].get("all", {}).get("ip", [])) and _has(
            sender["private_everywhere"], port
        ):
            return False
    if source == target:
        return True
    plan = plans.get(target)
    if plan is None:
        return True

    def accepts(rules: list[dict[str, Any]]) -> bool:
        return any(
            (not rule["ports"] or _has(rule["ports"], port))
            and any(
                name == "any" or _matches(address, plan["sets"].get(name, {}).get("ip", [])) for name in rule["sources"]
            )
            for rule in rules
        )

    if accepts(plan["rules"]):
        return True
    if _has(plan["closed"], port):
        return False
    return accepts(plan["all_ports"]) or not plan["others_refused"]


@pytest.mark.parametrize("firewall", [True, False])
@pytest.mark.parametrize("target", ["n1", "n2", "login", "head", "mon", "page"])
@pytest.mark.parametrize("source", ["n1", "n2", "login"])
def test_a_job_or_a_user_reads_node_exporter_of_no_host(source: str, target: str, firewall: bool) -> None:
    assert not reaches(source, USER, target, 9100, firewall)


@pytest.mark.parametrize("firewall", [True, False])
@pytest.mark.parametrize("port", [9090, 9093])
@pytest.mark.parametrize("source", ["n1", "n2", "login", "stranger"])
def test_a_user_reads_no_alerts_and_silences_none(source: str, port: int, firewall: bool) -> None:
    assert not reaches(source, USER, "mon", port, firewall)
    assert not reaches(source, ROOT, "mon", port, firewall), "root of a node is no reader"
    alone = {"host": "mon", "readers": []}
    assert not reaches(source, USER, "mon", port, firewall, slurm_monitoring=alone), "nobody reads from outside"


@pytest.mark.parametrize("firewall", [True, False])
def test_who_needs_the_servers_of_monitoring_reaches_them(firewall: bool) -> None:
    for host in HOSTS:
        assert reaches("mon", PROMETHEUS_USER, host, 9100, firewall)
        assert reaches("office", USER, host, 9100, firewall)
    for source, port in (("head", 9090), ("page", 9090), ("office", 9090), ("office", 9093), ("mon", 9093)):
        assert reaches(source, ROOT, "mon", port, firewall), (source, port)
    assert not reaches("head", ROOT, "mon", 9093, firewall)
    assert not reaches("stranger", USER, "n1", 9100, firewall)


@pytest.mark.parametrize("firewall", [True, False])
@pytest.mark.parametrize("host", ["login", "n1"])
def test_users_of_a_trusted_host_have_its_address_and_not_its_rights(host: str, firewall: bool) -> None:
    """The host of Prometheus is a login host or a node, or a network of readers has it."""
    for monitoring in ({"host": host, "readers": []}, {"host": "mon", "readers": ["10.0.0.0/8"]}):
        for target in HOSTS:
            assert not reaches(host, USER, target, 9100, firewall, slurm_monitoring=monitoring)
            assert reaches(host, ROOT, target, 9100, firewall, slurm_monitoring=monitoring)
        server = str(monitoring["host"])
        for port in (9090, 9093):
            assert not reaches(host, USER, server, port, firewall, slurm_monitoring=monitoring)


def test_the_page_on_a_node_is_for_those_who_may_open_it() -> None:
    for source, expected in (("n1", False), ("head", True), ("login", True), ("stranger", False)):
        assert reaches(source, USER, "n2", 443, True, slurm_report={"host": "n2"}) is expected, source
    assert reaches("stranger", USER, "page", 443, False), (
        "without the key, the password of the page is what protects it"
    )


@pytest.mark.parametrize("firewall", [True, False])
def test_what_users_need_stays_open(firewall: bool) -> None:
    for source in ("n1", "login"):
        assert reaches(source, USER, "head", 5000, firewall)
        assert reaches(source, USER, "head", 6820, firewall)
    assert reaches("n1", USER, "n2", 40000, firewall), "MPI"
    assert reaches("login", USER, "n1", 6818, firewall)


def test_a_metrics_collector_of_the_site() -> None:
    """Without a host of ours, readers are those who may ask; without readers, the port is as it was."""
    only = {"targets_only": True, "readers": ["192.0.2.9"]}
    assert reaches("office", USER, "n1", 9100, False, slurm_monitoring=only)
    assert not reaches("n2", USER, "n1", 9100, False, slurm_monitoring=only)
    assert reaches("stranger", USER, "n1", 9100, False, slurm_monitoring={"targets_only": True})
    assert not reaches("n1", USER, "n1", 9100, False, slurm_monitoring={"targets_only": True})


def test_a_host_without_an_address_cuts_nobody_off() -> None:
    unknown = [entry for entry in VARIABLES["slurm_addresses"] if entry["hosts"] != "mon"]
    assert reaches("mon", ROOT, "n1", 9100, False, slurm_addresses=unknown)
    assert not reaches("n1", USER, "n1", 9100, False, slurm_addresses=unknown), "its own users all the same"


def test_connections_are_limited_at_our_servers_alone() -> None:
    found = firewall_plans({}, MEMBERS, VARIABLES)
    limits = {host: found["plans"][index]["limited"] for host, index in found["hosts"].items()}
    assert {host: limit for host, limit in limits.items() if limit} == {
        "head": "5000,6820",
        "mon": "9090,9093",
        "page": "443",
    }


def test_connections_without_an_id_reach_no_server_of_the_host() -> None:
    """The inner socket of AF_SMC has no file (`smc_create`), and so matches no id (`nft_meta_get_eval_skugid`)."""
    found = firewall_plans({}, MEMBERS, {**VARIABLES, "slurm_monitoring": {"host": "login", "readers": []}})
    template = jinja2.Environment(trim_blocks=True).from_string((ROLES / "firewall/templates/rules.nft.j2").read_text())
    rules = template.render(plan=found["plans"][found["hosts"]["login"]], connections=100, first_user=1000)
    _before, _goto, rest = rules.partition("meta skuid != 4294967295 goto with_id\n")
    without_id, _chain, _with_id = rest.partition("chain with_id")
    assert "oif lo tcp dport { 9100, 9090, 9093 } reject" in without_id
    assert "ip daddr @all_ip tcp dport { 9100,9090,9093 } reject" in without_id
