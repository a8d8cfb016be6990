# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Warnings about hosts whose firewall closes ports of Slurm."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.firewall_key import firewall_warning, networks

CLUSTER: dict[str, Any] = {
    "slurm_controllers": ["head"],
    "slurm_database": "head",
    "slurm_registry": "head",
    "registry_port": 5000,
    "slurm_nodes": [{"hosts": "compute[01-02]"}, {"hosts": "compute03", "Port": 7000}],
    "slurm_conf": {"SrunPortRange": "60001-63000"},
    "slurm_addresses": [{"hosts": "head,compute[01-03]", "address": "10.182.0.[4,2-3,5]"}],
}
ALL = ["22", "6817:6819", "5000,60001:62000", "62001:63000"]


def test_commands_for_the_ports_that_no_rule_opens() -> None:
    opened = {"head": ["22", "6817:6818", "60000:65535"], "compute01": ["22"], "compute02": [], "compute03": None}
    assert firewall_warning(opened, CLUSTER).split("\n")[1:] == [
        "head: ufw allow proto tcp from 10.182.0.0/29 to any port 6819,5000",
        "compute[01-02]: ufw allow proto tcp from 10.182.0.0/29 to any port 6818,60001:63000",
        "Jobs of several nodes (MPI, NCCL) need all ports between compute nodes:",
        "ufw allow from 10.182.0.0/29",
    ]


@pytest.mark.parametrize(
    "opened",
    [
        {},
        {"head": None, "compute01": None},
        {"head": ["any"], "compute03": ["7000", "60001:63000"]},
        {"head": ALL, "compute01": ALL},
    ],
)
def test_nothing_is_said_of_hosts_whose_ports_are_open(opened: dict[str, Any]) -> None:
    assert firewall_warning(opened, CLUSTER) == ""


def test_a_port_of_one_node_and_a_range_with_a_hole() -> None:
    holed = firewall_warning({"compute03": ["7000", "60001:61000", "61002:63000"]}, CLUSTER)
    assert "compute03: ufw allow proto tcp from 10.182.0.0/29 to any port 60001:63000" in holed
    assert "to any port 7000" in firewall_warning({"compute03": ["60001:63000"]}, CLUSTER)


def test_many_and_wide_spans_take_no_time() -> None:
    opened = ["0:99999,99999:1"] * 4096
    assert firewall_warning({"compute01": opened}, CLUSTER) == ""


def test_networks() -> None:
    found = networks(["10.0.0.1", "10.0.255.254", "192.168.1.7", "fe80::1", "head.example.org", "10.1.0.1"])
    assert [str(network) for network in found] == ["10.0.0.0/16", "10.1.0.1/32", "192.168.1.7/32"]
    assert "from NETWORK to any" in firewall_warning({"head": []}, {**CLUSTER, "slurm_addresses": []})
