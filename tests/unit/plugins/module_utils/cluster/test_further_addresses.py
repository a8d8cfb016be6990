# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `further_addresses` of the cluster file, and what knows the names and addresses."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.access_key import (
    exempt_networks,
    known_hosts,
    trusted_hosts,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.firewall_plans import firewall_plans
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import (
    Document,
    ModelError,
    load,
    model_errors,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.removal import apply_edits, edits
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.whole_cluster import ip_addresses
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.servers import nginx
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.cluster_file import edited
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.templated_host import TemplatedHost
from plain_host import cluster

TEXT = """\
plugin: gpucluster.slurm.cluster
name: x
controllers: head
login: login1.example.org
hardware:
  a: {sockets: 1, cores_per_socket: 2, threads_per_core: 1, real_memory: 1900}
nodes:
  - {hosts: "n[1-3]", hardware: a, address: "10.0.0.[1-3]"}
addresses: {head: head.example.org, login1.example.org: 10.0.0.9}
partitions:
  - {name: p, nodes: ALL}
further_addresses:
  - {hosts: "n[1-3]", names: "n[1-3]-ib", address: "10.1.0.[1-3]"}
  - hosts: login1.example.org     # from outside
    names: login.example.org
    address: 192.0.2.7
"""
FURTHER: list[dict[str, str]] = yaml.safe_load(TEXT)["further_addresses"]
ADDRESSES = [
    {"hosts": "n[1-3]", "address": "10.0.0.[1-3]"},
    {"hosts": "head,login1.example.org", "address": "head.example.org,10.0.0.9"},
]


def problems(*entries: Any) -> list[str]:
    """What is wrong with a cluster file with these entries."""
    try:
        load(Document("x.cluster.yml", {**yaml.safe_load(TEXT), "further_addresses": [*entries]}))
    except ModelError as error:
        return [problem.removeprefix("x.cluster.yml: further_addresses") for problem in error.problems]
    return []


def test_hosts_keep_the_addresses_that_they_have() -> None:
    file = yaml.safe_load(TEXT)
    found = load(Document("x.cluster.yml", file))
    del file["further_addresses"]
    before = load(Document("x.cluster.yml", file))
    assert found.addresses == before.addresses
    assert found.variables == {**before.variables, "slurm_further_addresses": FURTHER}
    assert model_errors(found.variables, [*found.addresses]) == []


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("n1-ib", "[0]: found 'n1-ib', allowed: a mapping with hosts, names, address"),
        ({"hosts": "n1", "address": "10.1.0.1"}, "[0].names: missing"),
        ({"hosts": "n9", "names": "n9-ib", "address": "10.1.0.9"}, "[0].hosts: found 'n9', unknown host"),
        (
            {"hosts": "n[1-2]", "names": "n1-ib", "address": "10.1.0.[1-2]"},
            "[0]: found 1 names and 2 addresses for 2 hosts, allowed: one of each for each host",
        ),
        (
            {"hosts": "n1", "names": "n1-ib", "address": "n1-ib.example.org"},
            "[0].address: found 'n1-ib.example.org', allowed: IP addresses",
        ),
        (
            {"hosts": "n1", "names": "n1-ib", "address": "10.1.0.256"},
            "[0].address: found '10.1.0.256', '10.1.0.256' does not appear to be an IPv4",
        ),
        ({"hosts": "n1", "names": "n1-ib", "address": "10.0.0.2"}, "[0].address: 10.0.0.2 is the address of n2 alread"),
        ({"hosts": "n1", "names": "n2", "address": "10.1.0.1"}, "[0].names: found 'n2', which another host has"),
        ({"hosts": "n1", "names": "login1", "address": "10.1.0.1"}, "[0].names: found 'login1', which another"),
        ({"hosts": "n1", "names": "localhost", "address": "10.1.0.1"}, "[0].names: found 'localhost', which"),
    ],
)
def test_what_is_refused(entry: Any, problem: str) -> None:
    (found,) = problems(entry)
    assert found.startswith(problem)


def test_names_and_addresses_of_several_entries() -> None:
    first = {"hosts": "n1", "names": "n1-ib", "address": "10.1.0.1"}
    assert problems(first, {"hosts": "n1", "names": "n1-roce", "address": "10.1.0.1"}) == []
    assert problems(first, {"hosts": "n2", "names": "n1-ib", "address": "10.1.0.1"}) == [
        "[1].address: 10.1.0.1 is the address of n1 already",
        "[1].names: found 'n1-ib', which another host has, or this one already, allowed: further names",
    ]
    assert problems(first, {**first, "address": "2001:db8::1"}) == [], "a name with addresses of both versions"


def test_nodes_that_leave_take_their_names_along() -> None:
    changes = edits("x.cluster.yml", yaml.safe_load(TEXT), ["n2"])
    found = yaml.safe_load(edited("x.cluster.yml", TEXT, changes))["further_addresses"]
    assert found == [{"hosts": "n[1,3]", "names": "n1-ib,n3-ib", "address": "10.1.0.[1,3]"}, FURTHER[1]]
    alone = {**yaml.safe_load(TEXT), "further_addresses": [{"hosts": "n2", "names": "n2-ib", "address": "10.1.0.2"}]}
    assert "further_addresses" not in apply_edits(alone, edits("x.cluster.yml", alone, ["n2"]))


def test_the_hosts_file_has_each_name() -> None:
    host = cluster(slurm_addresses=ADDRESSES, slurm_further_addresses=FURTHER)["n1"]
    loader = DataLoader()
    templates = TemplatedHost({"inventory_hostname": "n1"}, Templar(loader), loader)
    assert templates.text("base", "hosts.j2", addresses=ip_addresses(host)).strip().split("\n")[-6:] == [
        "10.0.0.3 n3",
        "10.0.0.9 login1.example.org login1",  # head has a name for its address
        "10.1.0.1 n1-ib",
        "10.1.0.2 n2-ib",
        "10.1.0.3 n3-ib",
        "192.0.2.7 login.example.org",
    ]


def test_ssh_knows_a_host_by_each_name_and_address() -> None:
    lines = known_hosts([], {"n1": "ssh-rsa A", "head": "ssh-rsa B"}, ADDRESSES, ["head", "n1"], FURTHER)
    assert lines == ["head,head.example.org ssh-rsa B", "n1,10.0.0.1,n1-ib,10.1.0.1 ssh-rsa A"]
    assert trusted_hosts(ADDRESSES, ["n1"], FURTHER) == ["n1", "10.0.0.1", "n1-ib", "10.1.0.1"]
    assert exempt_networks(ADDRESSES, ["n1", "head"], FURTHER) == ["10.0.0.1/32", "10.1.0.1/32"]


def test_the_firewall_has_all_addresses_of_a_host() -> None:
    members = {"all": ["head", "n1"], "controllers": ["head"], "login": [], "compute": ["n1"]}
    variables: dict[str, Any] = {
        "slurm_controllers": ["head"],
        "slurm_database": "",
        "slurm_nodes": [{"hosts": "n1"}],
        "slurm_conf": {},
        "slurm_addresses": ADDRESSES,
        "slurm_further_addresses": FURTHER,
    }
    resolved = {"head.example.org": ["10.0.0.8"]}
    found = firewall_plans({"ssh": ["any"]}, members, variables, resolved=resolved)
    sets = found["plans"][found["hosts"]["n1"]]["sets"]
    assert sets["compute"] == {"ip": ["10.0.0.1", "10.1.0.1"]}
    assert sets["controllers"] == {"ip": ["10.0.0.8"]}


def test_a_certificate_has_each_name() -> None:
    host = cluster(slurm_addresses=ADDRESSES, slurm_further_addresses=FURTHER)["n1"]
    assert nginx.certificate_command(host, "/etc/x")[-1] == "DNS:n1,DNS:n1-ib,IP:10.0.0.1,IP:10.1.0.1"
