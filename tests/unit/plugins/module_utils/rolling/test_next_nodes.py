# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decision of a rolling change: which nodes next, for each state, budget, failure and deadline."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import drains
from ansible_collections.gpucluster.slurm.plugins.module_utils.rolling.next_nodes import (
    DONE,
    FAILED,
    Decision,
    Job,
    Node,
    RollingError,
    allowed,
    deadline_of,
    decide,
    jobs_of,
    node_of,
    table,
)

OURS = f"{drains.ROLLING}to be changed"


def node(name: str, state: str = "IDLE", reason: str = "", partitions: tuple[str, ...] = ("gpu",)) -> Node:
    return Node(name, frozenset(state.split("+")), partitions, reason, "root" if reason else "")


def job(number: str, *nodes: str, end: str = "2026-11-25T10:00:00", requeue: bool = False) -> Job:
    return Job(number, "alice", frozenset(nodes), end, requeue)


def decided(nodes: list[Node], *jobs: Job, budget: int = 1, progress: Any = None, late: bool = False) -> Decision:
    by_name = {each.name: each for each in nodes}
    return decide([*by_name], by_name, jobs, progress or {}, {"gpu": budget, "debug": 1}, late)


def test_free_nodes_come_first_within_the_budget() -> None:
    found = decided([node("n1", "MIXED"), node("n2"), node("n3"), node("n4")], job("7", "n1"), budget=2)
    assert (found.drain, found.later) == (["n2", "n3"], ["n4", "n1"])
    assert not found.over


def test_busy_nodes_follow_by_the_end_of_their_last_job() -> None:
    jobs = job("1", "n1", end="2026-11-30T00:00:00"), job("2", "n2", end="2026-11-24T12:00:00"), job("3", "n3", end="")
    found = decided([node(name, "ALLOCATED") for name in ("n3", "n1", "n2")], *jobs, budget=2)
    assert (found.drain, found.later) == (["n2", "n1"], ["n3"])


def test_a_node_counts_in_each_of_its_partitions() -> None:
    nodes = [node("n1", partitions=("gpu", "debug")), node("n2", partitions=("gpu", "debug")), node("n3")]
    assert decided(nodes, budget=3).drain == ["n1", "n3"]


def test_a_drained_node_is_ready_when_nothing_runs_on_it() -> None:
    nodes = [node("n1", "IDLE+DRAIN", OURS), node("n2", "MIXED+DRAIN", OURS)]
    found = decided(nodes, job("7", "n2"), budget=2)
    assert found.ready == ["n1"]
    assert found.waiting == {"n2": "job 7 of alice until 2026-11-25T10:00:00"}


@pytest.mark.parametrize("state", ["COMPLETING", "IDLE+DRAIN+NOT_RESPONDING", "MIXED+DRAIN", "UNKNOWN+DRAIN"])
def test_a_node_whose_state_is_not_certain_counts_as_busy(state: str) -> None:
    found = decided([node("n1", f"{state}+DRAIN", OURS)])
    assert not found.ready
    assert found.waiting.keys() == {"n1"}


def test_nodes_of_others_are_left_out_and_named() -> None:
    nodes = [
        node("n1", "IDLE+DRAIN", "bad DIMM"),
        node("n2", "IDLE+DRAIN", "health check gpu: lost"),
        node("n3", "DOWN+NOT_RESPONDING", "Not responding"),
        node("n4", "IDLE+DRAIN", drains.MIG),
    ]
    found = decided(nodes, budget=4)
    assert found.over
    assert not found.resume
    assert found.out["n1"] == "drained by a person (bad DIMM)"
    assert found.out["n2"] == "drained by the health check (health check gpu: lost)"
    assert found.out["n4"] == f"drained by MIG ({drains.MIG})"
    assert found.out.keys() == {"n1", "n2", "n3", "n4"}


def test_a_node_that_does_not_answer_is_waited_for() -> None:
    found = decided([node("n1", "IDLE+NOT_RESPONDING"), node("n2")], progress={"n2": DONE})
    assert found.waiting == {"n1": "slurmd does not answer"}
    assert not found.over


def test_a_node_that_got_a_second_reason_has_failed() -> None:
    found = decided([node("n1", "IDLE+DRAIN", f"{OURS} : Kill task failed"), node("n2")], budget=2)
    assert found.failed.keys() == {"n1"}
    assert found.drain == ["n2"]
    assert not found.resume


def test_a_reboot_is_no_second_reason() -> None:
    assert decided([node("n1", "DOWN+DRAIN", f"{OURS} : {drains.REBOOTED}")]).ready == ["n1"]


def test_failures_use_up_the_budget_and_stop_the_run() -> None:
    nodes = [node("n1", "IDLE+DRAIN", OURS), node("n2", "MIXED+DRAIN", OURS), node("n3")]
    found = decided(nodes, job("7", "n2"), budget=2, progress={"n1": FAILED})
    assert not found.stopped
    assert found.waiting.keys() == {"n2"}
    assert found.later == ["n3"]
    found = decided(nodes, job("7", "n2"), budget=1, progress={"n1": FAILED})
    assert found.stopped.startswith("n1 failed")
    assert found.over
    assert found.resume == ["n2"]
    assert not found.drain
    assert found.later == ["n3"]


def test_done_nodes_stay_as_they_are() -> None:
    assert decided([node("n1"), node("n2")], progress={"n1": DONE}).drain == ["n2"]
    assert decided([node("n1")], progress={"n1": DONE}).over


def test_after_the_deadline_jobs_are_requeued_or_left() -> None:
    nodes = [node("n1", "MIXED+DRAIN", OURS), node("n2", "MIXED+DRAIN", OURS), node("n3", "MIXED")]
    jobs = job("1", "n1", requeue=True), job("2", "n2"), job("3", "n3")
    found = decided(nodes, *jobs, budget=2, late=True)
    assert found.requeue == ["1"]
    assert found.waiting.keys() == {"n1"}
    assert found.resume == ["n2"]
    assert found.late.keys() == {"n2", "n3"}
    assert "job 2 of alice" in found.late["n2"]


def test_a_budget_that_nodes_outside_of_the_run_use_up_ends_the_run() -> None:
    nodes = {each.name: each for each in (node("n1", "IDLE+DRAIN", OURS), node("n2"))}
    found = decide(["n2"], nodes, [], {}, {"gpu": 1})
    assert found.over
    assert found.late.keys() == {"n2"}


def test_a_node_that_slurm_does_not_know_is_named() -> None:
    assert decide(["n9"], {}, [], {}, {}).out == {"n9": "Slurm does not know this node"}


def test_budgets_are_numbers_and_shares() -> None:
    sizes = {"gpu": 200, "cpu": 5, "debug": 3}
    assert allowed({"*": "10%", "debug": "2"}, sizes) == {"gpu": 20, "cpu": 1, "debug": 2}


def test_a_budget_of_each_partition() -> None:
    """As `{gpu: 2, "*": 10%}`: the nodes of cpu are 20, and n3 is in both partitions."""
    nodes = {f"n{number}": node(f"n{number}", partitions=("gpu",)) for number in range(1, 3)}
    nodes["n3"] = node("n3", partitions=("gpu", "cpu"))
    nodes |= {f"n{number}": node(f"n{number}", partitions=("cpu",)) for number in range(4, 23)}
    budget = allowed({"gpu": "2", "*": "10%"}, {"gpu": 3, "cpu": 20})
    assert budget == {"gpu": 2, "cpu": 2}
    assert decide([*nodes], nodes, [], {}, budget).drain == ["n1", "n2", "n4", "n5"]
    # A failure in both leaves one place in each.
    failed = nodes | {"n3": node("n3", "IDLE+DRAIN", OURS, ("gpu", "cpu"))}
    assert decide([*nodes], failed, [], {"n3": FAILED}, budget).drain == ["n1", "n4"]


@pytest.mark.parametrize("given", ["0", "0%", "101%", "half", "-1", "1.5"])
def test_a_wrong_budget_is_refused(given: str) -> None:
    with pytest.raises(RollingError, match="allowed: a number such as 2 or a share such as 10%"):
        allowed({"gpu": given}, {"gpu": 4})


def test_a_budget_of_an_unknown_partition_is_refused() -> None:
    with pytest.raises(RollingError, match="found the partition 'gpus', allowed: gpu"):
        allowed({"gpus": "1"}, {"gpu": 4})


def test_deadlines() -> None:
    began = datetime(2026, 11, 24, 10)
    assert deadline_of("", began) is None
    assert deadline_of("90", began) == datetime(2026, 11, 24, 11, 30)
    assert deadline_of("2026-12-01T18:00", began) == datetime(2026, 12, 1, 18)
    for wrong in ("tomorrow", "18:00 Uhr", "2026-12-01T18:00+01:00"):
        with pytest.raises(RollingError, match="rolling_deadline"):
            deadline_of(wrong, began)


def test_records_of_scontrol_and_squeue() -> None:
    record = {
        "NodeName": "n1",
        "State": "MIXED*+DRAIN+PLANNED",
        "Partitions": "gpu,debug",
        "Reason": "bad DIMM [3] [alice@2026-11-24T10:00:00]",
    }
    found = node_of(record)
    assert found == Node(
        "n1", frozenset({"MIXED", "DRAIN", "PLANNED", "NOT_RESPONDING"}), ("gpu", "debug"), "bad DIMM [3]", "alice"
    )
    assert jobs_of("7|alice|2026-11-25T10:00:00|n[1-2]\n8|bob|N/A|n3\n") == [
        job("7", "n1", "n2"),
        Job("8", "bob", frozenset({"n3"})),
    ]


def test_the_table_names_what_is_waited_for() -> None:
    nodes = [node("n1"), node("n2", "MIXED+DRAIN", OURS), node("n3"), node("n4", "IDLE+DRAIN", "bad DIMM")]
    found = decided(nodes, job("7", "n2"), budget=1, progress={"n1": DONE})
    assert table(found, {"n1": DONE}, {}, 4) == [
        "done      1 of 4: n1",
        "waiting   n2: job 7 of alice until 2026-11-25T10:00:00",
        "later     1: n3",
        "left out  n4: drained by a person (bad DIMM)",
    ]
