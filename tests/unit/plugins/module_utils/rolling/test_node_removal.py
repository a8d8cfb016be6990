# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether nodes can leave the cluster: the drains, the waits, and the deadline."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import drains
from ansible_collections.gpucluster.slurm.plugins.module_utils.rolling.next_nodes import Job, Node
from ansible_collections.gpucluster.slurm.plugins.module_utils.rolling.node_removal import (
    Claims,
    RemovalDecision,
    claims_of,
    decide_removal,
    describe_reservations,
    table,
)

OURS = f"{drains.LEAVING}leaves the cluster"


def node(name: str, state: str = "IDLE", reason: str = "") -> Node:
    return Node(name, frozenset(state.split("+")), ("gpu",), reason, "root" if reason else "")


def job(number: str, *nodes: str, end: str = "2026-11-25T10:00:00") -> Job:
    return Job(number, "alice", frozenset(nodes), end)


def decided(
    *nodes: Node, placed: tuple[Job, ...] = (), pending: tuple[Job, ...] = (), late: bool = False
) -> RemovalDecision:
    by_name = {each.name: each for each in nodes}
    return decide_removal([*by_name], by_name, Claims(placed, pending), late)


def test_jobs_as_squeue_shows_them() -> None:
    found = claims_of(
        "7|alice|2026-11-25T10:00:00|n[1-2]|RUNNING|\n8|bob|N/A|n3|COMPLETING|n3\n"
        "9|carol|N/A||PENDING|n[1,4]\n10|carol|N/A||PENDING|\n11|carol|N/A||PENDING|(null)\n"
    )
    assert found.placed == (job("7", "n1", "n2"), Job("8", "bob", frozenset({"n3"}), ""))
    assert found.pending == (Job("9", "carol", frozenset({"n1", "n4"})),)


def test_nodes_are_drained_first_and_ready_when_nothing_runs_on_them() -> None:
    first = decided(node("n1"), node("n2", "MIXED"), placed=(job("7", "n2"),))
    assert (first.drain, first.over) == (["n1", "n2"], False)
    then = decided(node("n1", "IDLE+DRAIN", OURS), node("n2", "MIXED+DRAIN", OURS), placed=(job("7", "n2"),))
    assert (then.drain, then.ready, then.over) == ([], ["n1"], False)
    assert then.waiting == {"n2": "job 7 of alice until 2026-11-25T10:00:00"}
    last = decided(node("n1", "IDLE+DRAIN", OURS), node("n2", "IDLE+DRAIN", OURS))
    assert (last.ready, last.over) == (["n1", "n2"], True)


def test_a_node_that_slurm_does_not_have_is_ready() -> None:
    found = decide_removal(["n1", "n2"], {"n1": node("n1", "IDLE+DRAIN", OURS)}, Claims())
    assert (found.ready, found.over) == (["n1", "n2"], True)


@pytest.mark.parametrize("state", ["DOWN+DRAIN+NOT_RESPONDING", "DOWN+DRAIN+COMPLETING", "POWERED_DOWN+DRAIN"])
def test_a_host_that_is_gone_is_ready(state: str) -> None:
    assert decided(node("n1", state, "Not responding")).ready == ["n1"]


def test_a_node_that_is_down_is_drained_because_it_could_come_back_and_get_jobs() -> None:
    found = decided(node("n1", "DOWN+NOT_RESPONDING", "Not responding"))
    assert (found.drain, found.ready, found.over) == (["n1"], [], False)


@pytest.mark.parametrize("state", ["COMPLETING+DRAIN", "ALLOCATED+DRAIN"])
def test_a_node_that_is_about_to_be_free_is_waited_for(state: str) -> None:
    assert decided(node("n1", state, OURS)).waiting == {"n1": "a job that is about to end"}


def test_the_drain_of_another_owner_stays() -> None:
    found = decided(node("n1", "IDLE+DRAIN", "bad DIMM"), node("n2", "IDLE+DRAIN", f"{drains.HEALTH}gpu: lost"))
    assert (found.drain, found.ready) == ([], ["n1", "n2"])


def test_a_pending_job_that_asks_for_a_node_by_name_is_waited_for() -> None:
    pending = job("9", "n1", "n4"), job("12", "n1")
    found = decided(node("n1", "IDLE+DRAIN", OURS), pending=pending)
    assert found.waiting["n1"] == (
        "job 9 of alice is pending and asks for it by name, and 1 more: cancel it, or change it with scontrol update "
        "JobId=9 ReqNodeList="
    )
    nodes = {"n1": node("n1", "IDLE+DRAIN", OURS)}
    assert decide_removal(["n1"], nodes, Claims(pending=pending), end_jobs=True).ready == ["n1"]


def test_after_the_deadline_all_nodes_return_if_one_has_jobs() -> None:
    nodes = node("n1", "IDLE+DRAIN", OURS), node("n2", "MIXED+DRAIN", OURS), node("n3", "IDLE+DRAIN", "bad DIMM")
    found = decided(*nodes, placed=(job("7", "n2"),), late=True)
    assert found.resume == ["n1", "n2"]
    assert found.late == {"n2": "job 7 of alice until 2026-11-25T10:00:00"}
    assert found.over
    assert not found.ready
    assert table(found, ["n1", "n2", "n3"]) == [
        "ready     0 of 3",
        "stays     n2: after the deadline, job 7 of alice until 2026-11-25T10:00:00",
    ]


def test_after_the_deadline_nodes_without_jobs_leave() -> None:
    assert decided(node("n1"), late=True).drain == ["n1"]
    assert decided(node("n1", "IDLE+DRAIN", OURS), late=True).ready == ["n1"]
    busy = decided(node("n1"), node("n2", "MIXED"), placed=(job("7", "n2"),), late=True)
    assert (busy.drain, busy.resume, [*busy.late]) == ([], [], ["n2"])


def test_reservations_keep_nodes() -> None:
    shown = [
        {"ReservationName": "maint", "Nodes": "n[1-3]", "EndTime": "2026-12-01T08:00:00"},
        {"ReservationName": "other", "Nodes": "n9"},
        {"ReservationName": "licenses", "Nodes": ""},
    ]
    assert describe_reservations(["n1", "n2", "n4"], shown) == [
        "reservation maint has n[1-2]: take them out first (scontrol update ReservationName=maint Nodes-=n[1-2]), or "
        "wait until 2026-12-01T08:00:00"
    ]


def test_the_table_names_what_comes_next() -> None:
    found = decided(node("n1"), node("n2", "IDLE+DRAIN", OURS))
    assert table(found, ["n1", "n2"]) == [
        "ready     1 of 2: n2",
        "next      n1: drained, so that no new job starts there",
    ]
