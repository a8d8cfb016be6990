# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role doctor: which hosts are examined, and what a run says and returns."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import doctor
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.evidence import (
    ClusterEvidence,
    DaemonState,
    HostEvidence,
    ServerEvidence,
    SlurmNode,
)
from plain_host import GROUPS, PlainHost, cluster

RUNS = DaemonState()
SERVER = asdict(ServerEvidence(daemons={"slurmctld": RUNS, "slurmdbd": RUNS, "mariadb": RUNS, "munge": RUNS}))
CLUSTER = ClusterEvidence(serving="head", controllers={"head": True}, proctrack="proctrack/cgroup")
SERVES = {**SERVER, "cluster": asdict(CLUSTER)}
STANDBY = {**SERVER, "cluster": asdict(replace(CLUSTER, answers=False, serving="", controllers={"head": False}))}
UNREACHABLE = {"unreachable": True, "msg": "Failed to connect to the host via ssh: No route to host"}


def sick(name: str, reason: str = "Kill task failed") -> dict[str, Any]:
    return asdict(SlurmNode(name, ("IDLE", "DRAIN"), reason, "slurm", "2026-11-24T10:00:00", name, ("10.0.0.1",)))


def host_facts(**more: Any) -> dict[str, Any]:
    """What slurm_doctor_node_info says of a host."""
    facts = asdict(HostEvidence(addresses=("10.0.0.1",))) | more
    del facts["unreached"]
    return facts


def hosts_with(*nodes: dict[str, Any], **variables: Any) -> dict[str, PlainHost]:
    """A cluster whose controller names these nodes, with doctor's facts about it."""
    hosts: dict[str, PlainHost] = cluster(**variables)
    hosts["head"].set(__doctor_server_facts={**SERVES, "nodes": [*nodes], "node_options": {"tmp_fs": "/tmp"}})
    return hosts


def examined(hosts: dict[str, PlainHost], **results: dict[str, Any]) -> PlainHost:
    """The controller, after the facts of the hosts of nodes were gathered, with its conclusions."""
    for host in hosts.values():
        host.set(groups={**host["groups"], "slurm_needs_doctor": [*results]})
    for name, result in results.items():
        hosts[name].set(__doctor_node_facts=result)
    return hosts["head"].set(__doctor_found=doctor.conclusions(hosts["head"]))


def test_a_healthy_cluster_is_said_to_be_well() -> None:
    hosts = hosts_with()
    assert doctor.sick_nodes(hosts["head"]) == []
    head = examined(hosts)
    assert doctor.report(head) == ["All nodes and daemons are well."]
    assert doctor.result(head) == {
        "ok": True,
        "answers": True,
        "findings": [],
        "repaired": False,
        "failures": [],
        "updates": None,
    }


def test_nodes_of_the_inventory_are_examined() -> None:
    hosts = hosts_with(sick("n1"), sick("stranger"))
    assert [node["name"] for node in doctor.sick_nodes(hosts["n2"])] == ["n1"]
    assert doctor.node_options(hosts["n1"]) == {"tmp_fs": "/tmp"}
    found = doctor.result(examined(hosts, n1=host_facts()))["findings"]
    assert [(one["hosts"], one["repair"]) for one in found] == [("n1", "resume"), ("stranger", "")]


def test_a_node_that_this_run_leaves_out_is_no_finding() -> None:
    assert doctor.result(examined(hosts_with(sick("n1"))))["ok"]


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({}, "(-e doctor_repair=true does this)"),
        ({"doctor_repair": "no"}, "(-e doctor_repair=true does this)"),
        ({"doctor_repair": "true", "ansible_check_mode": True}, "(a run without --check does this)"),
        ({"doctor_repair": True}, "(this run has done it)"),
    ],
)
def test_the_table_says_what_becomes_of_a_repair(variables: dict[str, Any], text: str) -> None:
    head = examined(hosts_with(sick("n1"), **variables), n1=host_facts())
    assert f"    repair  resume {text}" in doctor.report(head)
    assert doctor.result(head)["repaired"] == ("has done" in text)


def test_the_first_controller_that_answers_serves() -> None:
    groups = {**GROUPS, "slurm_controller": ["login", "head"]}
    hosts = hosts_with(sick("n1"), groups=groups)
    hosts["login"].set(__doctor_server_facts={**STANDBY, "nodes": [], "node_options": {}})
    assert doctor.serving(hosts["n1"]) == "head"
    assert doctor.node_options(hosts["n1"]) == {"tmp_fs": "/tmp"}


@pytest.mark.parametrize("facts", [None, UNREACHABLE, {**STANDBY, "nodes": [], "node_options": {}}])
def test_without_an_answer_no_node_is_examined(facts: dict[str, Any] | None) -> None:
    """A controller outside of --limit has no facts, one that was not reached is a finding."""
    hosts = cluster()
    if facts:
        hosts["head"].set(__doctor_server_facts=facts)
    assert doctor.serving(hosts["head"]) == ""
    assert doctor.sick_nodes(hosts["head"]) == []
    result = doctor.result(examined(hosts))
    assert not result["answers"]
    texts = [one["words"] for one in result["findings"]]
    assert len(texts) == (1 if facts else 0)
    assert any("No route to host" in text for text in texts) == (facts is UNREACHABLE)


def test_repairs_that_failed_are_named() -> None:
    hosts = hosts_with(sick("n1"), doctor_repair=True)
    for host in hosts.values():
        host.set(groups={**host["groups"], "slurm_needs_daemons": ["n1", "n2"], "slurm_needs_resume": ["head"]})
    failed, well = {"failed": True, "msg": "no such unit"}, {"changed": True}
    hosts["n1"].set(__doctor_repaired={"results": [well, failed]})
    hosts["head"].set(__doctor_repaired={"results": [{**failed, "msg": "not permitted"}]})
    head = examined(hosts, n1=host_facts())
    messages = ["a repair has failed: no such unit", "a repair has failed: not permitted"]
    assert doctor.failures(head) == messages
    assert doctor.report(head)[-2:] == messages
    assert doctor.result(head)["failures"] == messages
