# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes as slurmctld shows them (recorded lines of Slurm 22.05, 24.11 and 26.05, changed by hand), and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.scontrol import records
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.node_views import (
    NodeReport,
    NodeReportError,
    faults_of_reason,
    fleet_of,
    node_view,
    parse_report,
)

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

RECORDED = Path(__file__).parents[3] / "recorded/metrics"
RELEASES = ("22.05", "24.11", "26.05")


def line(state: str, reason: str = "", **fields: str) -> str:
    """A line of `scontrol --oneliner show node`."""
    given = {**fields, "Reason": reason} if reason else fields
    more = "".join(f" {name}={value}" for name, value in given.items())
    return f"NodeName=n1 State={state} Partitions=gpu,all  BootTime=1795816158{more}"


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_nodes(release: str) -> None:
    found = records((RECORDED / release / "nodes.txt").read_text())
    views = {record["NodeName"]: node_view(record, None) for record in found}
    assert len(views) >= 2
    for view in views.values():
        assert view.booted > 1.7e9 or "DOWN" in view.states or not view.in_service
    assert {view.in_service for view in views.values()} == {True, False}
    fleet = fleet_of(found, 3)
    assert fleet.nodes == len(found)
    assert sum(view.in_service for view in views.values()) >= len(fleet.partitions) > 0


@pytest.mark.parametrize(
    ("state", "reason", "owner", "names"),
    [
        ("IDLE", "", "", []),
        ("IDLE+DRAIN", "health check xid-79: GPU lost [root@1]", "the health check", ["xid-79"]),
        ("MIXED+DRAIN", "health check xid-79: a; b; disk: full [root@1]", "the health check", ["check-disk", "xid-79"]),
        ("IDLE+DRAIN", "health check gpu: missing: /dev/nvidia3 [root@1]", "the health check", ["gpu-missing"]),
        ("IDLE+DRAIN", "new DIMMs [anna@1]", "a person", []),
        ("DOWN*", "Not responding [slurm@1]", "Slurm", []),
        ("IDLE+DRAIN", "gpucluster.slurm repair: xid-79 [root@1]", "repair", []),
        ("IDLE+DRAIN", "gpucluster.slurm rolling: x [root@1]", "rolling", []),
        # A resumed node may keep its old reason.
        ("IDLE", "health check xid-79: GPU lost [root@1]", "", []),
    ],
)
def test_who_has_a_node_and_why(state: str, reason: str, owner: str, names: list[str]) -> None:
    (record,) = records(line(state, reason))
    view = node_view(record, None)
    assert (view.owner, view.names) == (owner, names)


def test_a_report_says_more_than_the_reason() -> None:
    (record,) = records(line("IDLE+DRAIN", "health check xid-79: GPU lost [root@1]"))
    wrong = {"xid-79": "GPU lost", "port-errors": "mlx5_0/1 has in an hour 200 symbol_error"}
    view = node_view(record, NodeReport("n1", 5.0, wrong))
    assert (view.names, view.checked) == (["port-errors", "xid-79"], 5.0)
    assert node_view(record, NodeReport("n1", 6.0, {})).names == []


def test_words_with_a_semicolon_are_of_the_finding_before() -> None:
    found = faults_of_reason("health check xid-48: DBE; see the log; nic-failed: fw; syndrome 8 : added by root")
    assert [(fault.finding.name, fault.text) for fault in found] == [
        ("xid-48", "DBE; see the log"),
        ("nic-failed", "fw; syndrome 8"),
    ]
    assert faults_of_reason("health check ") == ()


@pytest.mark.parametrize(
    ("state", "fields", "reserved"),
    [
        ("IDLE+MAINTENANCE", {"ReservationName": "week48"}, "week48"),
        ("MIXED+RESERVED", {"ReservationName": "class"}, "class"),
        ("IDLE+DRAIN+MAINTENANCE", {}, "of others"),
        ("IDLE", {"ReservationName": "next-week"}, ""),
    ],
)
def test_a_reservation_counts_while_it_lasts(state: str, fields: dict[str, str], reserved: str) -> None:
    (record,) = records(line(state, **fields))
    assert node_view(record, None).reserved == reserved


def test_nodes_in_service_by_partition() -> None:
    lines = [
        line("IDLE"),
        line("MIXED").replace("n1", "n2"),
        line("IDLE+DRAIN", "x").replace("n1", "n3"),
        line("IDLE+POWERED_DOWN").replace("n1", "n4"),
    ]
    fleet = fleet_of(records("\n".join(lines)), 12)
    assert (fleet.nodes, {**fleet.in_service}) == (4, {"gpu": 2, "all": 2})
    assert sorted(fleet.partitions) == ["n1", "n2"]


GOOD: dict[str, Any] = {"node": "n1", "checked": 1e9, "wrong": {"xid-79": "GPU lost"}, "evidence": None}


def test_a_report() -> None:
    report = parse_report(json.dumps(GOOD), "n1")
    assert (report.checked, [fault.finding.name for fault in report.faults]) == (1e9, ["xid-79"])
    long = parse_report(json.dumps({**GOOD, "wrong": {"disk": "x" * 10**6}}), "n1")
    assert len(long.wrong["disk"]) == 1000


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "1",
        "{}",
        json.dumps({**GOOD, "node": "n2"}),
        json.dumps({**GOOD, "wrong": ["xid-79"]}),
        json.dumps({**GOOD, "wrong": {"xid 79\n": "x"}}),
        json.dumps({**GOOD, "wrong": {"xid-79": 5}}),
        json.dumps({**GOOD, "checked": "soon"}),
        json.dumps({**GOOD, "evidence": {"node": "n1"}}),
        json.dumps({**GOOD, "evidence": ["n1"]}),
    ],
)
def test_a_report_that_is_none_is_refused(content: str) -> None:
    with pytest.raises(NodeReportError, match=r"^report of n1: "):
        parse_report(content, "n1")


@pytest.mark.parametrize(("checked", "names"), [(1000.0, ["xid-79"]), (2000.0, [])])
def test_a_node_that_has_died_since_its_drain_has_sent_no_report_of_it(checked: float, names: list[str]) -> None:
    (record,) = records(line("DOWN*+DRAIN", "health check xid-79: GPU lost : Not responding [slurm@1500]"))
    assert node_view(record, NodeReport("n1", checked, {})).names == names


def test_a_task_that_does_not_end_is_a_fault() -> None:
    (record,) = records(line("IDLE+DRAIN", "Kill task failed [root@1500]"))
    assert node_view(record, NodeReport("n1", 2000.0, {})).names == ["kill-task-failed"]
    (record,) = records(line("IDLE", "Kill task failed [root@1500]"))
    assert node_view(record, None).names == []


@pytest.mark.parametrize(
    "more", ["", " ReservationName=week", "        second line ReservationName=no [x@1]    ReservationName=week"]
)
def test_the_reservation_of_a_drained_node_is_behind_its_reason(more: str) -> None:
    (record,) = records(line("IDLE+DRAIN+MAINTENANCE", f"new DIMMs [anna@1]{more}"))
    assert node_view(record, None).reserved == ("week" if more else "of others")


def test_a_drain_of_repair_is_no_news_of_the_health_check() -> None:
    """The node has reported before repair has drained it, and has its finding."""
    (record,) = records(line("IDLE+DRAIN", "gpucluster.slurm repair: case 1: xid-79 [root@1500]"))
    assert node_view(record, NodeReport("n1", 1000.0, {"xid-79": "lost"})).names == ["xid-79"]
