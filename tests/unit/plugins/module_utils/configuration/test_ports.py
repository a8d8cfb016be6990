# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports that two programs of one host would have."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.ports import (
    Listener,
    collisions,
    declared_listeners,
    different_database_ports,
    port_range,
)


def declared(
    slurm_conf: dict[str, Any] | None = None,
    slurmdbd_conf: dict[str, Any] | None = None,
    nodes: list[tuple[str, list[str], Any]] | None = None,
    **others: Any,
) -> list[str]:
    """The collisions of a cluster with a node, on a host that also has all other roles."""
    known: dict[str, Any] = {
        "controllers": ["head"],
        "database": "head",
        "servers": [("registry_port", ["head"], 5000)],
    } | others
    entries = [("nodes[0].Port", ["head", "n1"], None)] if nodes is None else nodes
    found = declared_listeners(nodes=entries, slurm_conf=slurm_conf or {}, slurmdbd_conf=slurmdbd_conf or {}, **known)
    return [f"{key}: {what}" for key, what in collisions(found)]


def test_slurms_own_ports_do_not_collide() -> None:
    assert declared() == []
    assert declared({"SrunPortRange": "60001-63000", "SlurmctldPort": "6820-6829"}) == []


@pytest.mark.parametrize(
    ("slurm_conf", "slurmdbd_conf", "what"),
    [
        ({}, {"DbdPort": 6817}, "slurmdbd_conf.DbdPort: found '6817' on head, where SlurmctldPort is 6817"),
        ({"slurmctldport": "6810-6820"}, {"DbdPort": 6000}, "slurm_conf.SlurmdPort: found '6818' on head, where "),
        ({}, {"dbdport": 3306}, "slurmdbd_conf.DbdPort: found '3306' on head, where MariaDB is 3306"),
        ({"SlurmctldPort": 22}, {}, "slurm_conf.SlurmctldPort: found '22' on head, where ssh is 22"),
        ({"SlurmdPort": 22}, {}, "slurm_conf.SlurmdPort: found '22' on head, where ssh is 22"),
        ({"SlurmdPort": 5000}, {}, "slurm_conf.SlurmdPort: found '5000' on head, where registry_port is 5000"),
        (
            {"SrunPortRange": "4000-5500"},
            {},
            "slurm_conf.SrunPortRange: found '4000-5500' on head, where registry_port",
        ),
        ({"SrunPortRange": "20-30"}, {}, "slurm_conf.SrunPortRange: found '20-30' on every host, where ssh is 22"),
    ],
)
def test_programs_of_a_host_with_one_port(slurm_conf: dict[str, Any], slurmdbd_conf: dict[str, Any], what: str) -> None:
    (found,) = declared(slurm_conf, slurmdbd_conf)
    assert found.startswith(what)
    assert found.endswith(", allowed: another port")


def test_the_ports_of_node_lines() -> None:
    nodes = [("nodes[0].Port", ["n1", "n2"], "[7001-7002]"), ("nodes[1].Port", ["head"], 6819)]
    assert declared(nodes=nodes) == [
        "nodes[1].Port: found '6819' on head, where DbdPort is 6819, allowed: another port"
    ]
    assert declared(nodes=[("nodes[0].Port", ["n1", "n2"], 22)]) == [
        "nodes[0].Port: found '22' on n1, where ssh is 22, allowed: another port"
    ]
    # An entry for one host has two slurmd on one machine.
    assert declared({"SlurmctldPort": 7000}, nodes=[("nodes[0].Port", ["n1", "n2"], "7000")]) == []


def test_different_hosts_may_have_one_port() -> None:
    assert declared({}, {"DbdPort": 6817}, controllers=["head1"], nodes=[]) == []
    assert declared({"AccountingStoragePort": 22}, {"DbdPort": 22}, database="") == []


def test_a_number_that_is_no_port_costs_nothing() -> None:
    listeners = [Listener("a", port_range("1-99999999999999"), None), Listener("b", port_range("soon"), None)]
    assert [*collisions(listeners)] == []


@pytest.mark.parametrize(
    ("slurm_conf", "slurmdbd_conf", "different"),
    [
        ({}, {}, False),
        ({}, {"DbdPort": "6819"}, False),
        ({"AccountingStoragePort": 7000}, {"DbdPort": "7000"}, False),
        ({"AccountingStorageHost": "elsewhere"}, {"DbdPort": 7000}, False),
        ({}, {"DbdPort": 7000}, True),
        ({"AccountingStoragePort": 7000}, {}, True),
    ],
)
def test_slurmctld_asks_the_port_of_slurmdbd(
    slurm_conf: dict[str, Any], slurmdbd_conf: dict[str, Any], different: bool
) -> None:
    assert bool([*different_database_ports("head", slurm_conf, slurmdbd_conf)]) is different
    assert [*different_database_ports("", slurm_conf, slurmdbd_conf)] == []
    assert [*different_database_ports("head", slurm_conf, None)] == []  # a cluster file does not have slurmdbd.conf
