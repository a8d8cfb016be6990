# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of slurm_rolling with a stand-in for Slurm: the record, kills between steps, and what is drained when."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance import progress as acceptance
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer, CommandError
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import run_lock
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from ansible_collections.gpucluster.slurm.plugins.module_utils.rolling.next_nodes import RollingError
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_rolling

DRAINED = "gpucluster.slurm rolling: to be changed"


class Slurm:
    """Nodes, jobs and the reservation, changed by the commands of the module."""

    def __init__(self) -> None:
        self.nodes = {f"n{number}": {"State": "IDLE", "Reason": ""} for number in range(1, 5)}
        self.jobs = ""
        self.measured = ""
        """A node that repair measures."""
        self.reserved = ""
        self.checks = 0
        """Jobs in the reservation."""
        self.requeued: list[str] = []
        self.may_requeue: list[str] = []

    def show(self, what: str, *_name: str) -> list[dict[str, str]]:
        if what == "node":
            return [{"NodeName": name, "Partitions": "all", **node} for name, node in self.nodes.items()]
        if what == "job":
            return [{"JobId": job, "Requeue": "1", "BatchFlag": "1"} for job in self.may_requeue]
        names = {f"repair-{self.measured}": self.measured, "gpucluster_rolling": self.reserved}
        return [{"ReservationName": name, "Nodes": nodes} for name, nodes in names.items() if nodes]

    def output(self, command: Sequence[str]) -> str:
        if command[0] == "squeue":
            return self.jobs
        settings = dict(word.split("=", 1) for word in command[2:] if "=" in word)
        if "ReservationName" in settings:
            self.reserved = settings.get("Nodes", "")
            assert command[1] != "delete" or not self.checks, "Slurm removes no reservation with jobs"
            assert command[1] != "create" or "Duration=UNLIMITED" in command
        elif command[1] == "update":
            for name in expand(settings["NodeName"]):
                resumed = settings["State"] == "RESUME"
                self.nodes[name] = {"State": "IDLE" if resumed else "IDLE+DRAIN", "Reason": settings["Reason"]}
        return ""

    def run(self, command: Sequence[str]) -> Answer:
        if command[0] == "scancel":
            self.checks = 0
            return Answer(0, "", "")
        if command[1] == "delete":
            self.reserved = self.reserved if self.checks else ""
            return Answer(int(bool(self.checks)), "", "Requested reservation is in use")
        self.requeued.append(command[2])
        self.jobs = ""
        return Answer(0, "", "")


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Slurm:
    found = Slurm()
    for name in ("show", "output", "run"):
        monkeypatch.setattr(slurm_rolling, name, getattr(found, name))
    monkeypatch.setattr(slurm_rolling, "RECORD", f"{tmp_path}/rolling.json")
    monkeypatch.setattr(acceptance, "ROLLING_RECORD", f"{tmp_path}/accept.json")
    monkeypatch.setattr(slurm_rolling, "POLL", 0)

    def write(files: list[Any]) -> None:
        """Write as the user of this test, who need not be root."""
        for file in files:
            Path(file.path).write_bytes(file.content)

    monkeypatch.setattr(slurm_rolling, "write", write)
    monkeypatch.setattr(run_lock, "write", write)
    monkeypatch.setattr(run_lock, "FOLDER", f"{tmp_path}/locks")
    return found


def step(name: str, check_mode: bool = False, **options: Any) -> Any:
    params: dict[str, Any] = {
        "step": name,
        "nodes": "n[1-4]",
        "change": "kernel",
        "budget": {"*": "2"},
        "deadline": "",
        "unchanged": None,
        "results": {},
        "users": ["root"],
        "wait": 0,
        "run": {},
        "former": [],
    }
    return slurm_rolling.take_step(params | options, check_mode)


def ready(**options: Any) -> list[str]:
    """The next nodes: a poll after the drain is needed."""
    first: list[str] = step("next", **options)["ready"] or step("next", **options)["ready"]
    return first


def test_all_nodes_are_changed_in_batches_and_the_record_is_removed(slurm: Slurm) -> None:
    step("begin")
    changed = []
    while not step("next", wait=5)["over"]:
        batch = [name for name, node in slurm.nodes.items() if node["Reason"] == DRAINED]
        assert len(batch) == 2
        assert step("prove", results=dict.fromkeys(batch, ""))["ready"] == batch
        assert expand(slurm.reserved) == batch
        assert all(slurm.nodes[name]["State"] == "IDLE" for name in batch)
        step("judge", results=dict.fromkeys(batch, ""))
        assert not slurm.reserved
        changed += batch
    assert changed == ["n1", "n2", "n3", "n4"]
    ended = step("end")
    assert ended["ok"]
    assert ended["done"] == changed
    assert not Path(slurm_rolling.RECORD).exists()


def test_a_plan_changes_nothing(slurm: Slurm) -> None:
    before = json.dumps(slurm.nodes)
    assert step("begin", check_mode=True)["table"][1] == "next      n[1-2]"
    assert json.dumps(slurm.nodes) == before
    assert not Path(slurm_rolling.RECORD).exists()


def test_a_node_that_repair_measures_is_left_alone_and_the_run_does_not_fail(slurm: Slurm) -> None:
    slurm.measured = "n1"
    step("begin", nodes="n[1-2]")
    assert ready(nodes="n[1-2]") == ["n2"]
    step("prove", nodes="n[1-2]", results={"n2": ""})
    step("judge", nodes="n[1-2]", results={"n2": ""})
    ended = step("end", nodes="n[1-2]")
    assert (ended["ok"], ended["left"]) == (True, {"n1": "measured by repair"})
    assert slurm.nodes["n1"] == {"State": "IDLE", "Reason": ""}


def test_a_node_whose_change_or_job_fails_is_drained_and_the_run_stops(slurm: Slurm) -> None:
    step("begin")
    assert ready() == ["n1", "n2"]
    assert step("prove", results={"n1": "no kernel", "n2": ""})["ready"] == ["n2"]
    step("judge", results={"n2": "has not ended"})
    assert slurm.nodes["n1"] == {"State": "IDLE+DRAIN", "Reason": "gpucluster.slurm rolling: failed: no kernel"}
    assert slurm.nodes["n2"] == {"State": "IDLE+DRAIN", "Reason": "gpucluster.slurm rolling: failed: has not ended"}
    assert step("next")["over"]
    ended = step("end")
    assert not ended["ok"]
    assert ended["broken"] == {"n1": "no kernel", "n2": "has not ended"}
    # The next run tries them again, first.
    step("begin")
    assert ready() == ["n1", "n2"]


def test_a_run_that_was_killed_goes_on(slurm: Slurm) -> None:
    step("begin")
    assert ready(budget={"*": "1"}) == ["n1"]
    step("prove", results={"n1": ""})
    step("judge", results={"n1": ""})
    assert ready(budget={"*": "1"}) == ["n2"]
    step("prove", results={"n2": ""})
    # Killed here: n2 is in service inside the reservation, unchecked.
    step("begin")
    assert slurm.reserved == "n2"
    assert slurm.nodes["n2"]["Reason"] == DRAINED
    again = step("next", budget={"*": "1"})
    assert (again["ready"], again["changed_earlier"]) == (["n2"], ["n2"])
    ended = step("end")
    assert (ended["done"], ended["broken"]) == (["n1"], {"n2": "the run ended while it was checked"})
    assert not slurm.reserved
    # A node that has failed is changed again.
    step("begin")
    assert step("next", budget={"*": "1"})["changed_earlier"] == []


def test_a_node_that_an_earlier_run_has_changed_is_checked_when_the_jobs_on_it_have_ended(slurm: Slurm) -> None:
    step("begin")
    assert ready() == ["n1", "n2"]
    step("prove", results={"n1": "", "n2": ""})
    # Killed here, while a job of the run measures n2.
    slurm.jobs, slurm.checks = "7|root|2026-11-25T10:00:00|n2\n", 1
    step("begin")
    assert slurm.reserved == "n[1-2]"
    assert step("next")["ready"] == ["n1"]
    assert step("prove", results={"n1": ""})["ready"] == ["n1"]
    step("judge", results={"n1": ""})
    assert slurm.reserved == "n2"
    slurm.jobs, slurm.checks = "", 0
    assert sorted(ready()) == ["n2", "n3"]
    assert step("prove", results={"n2": "", "n3": ""})["table"][1] == "now       n[2-3]"
    assert slurm.reserved == "n[2-3]"
    step("judge", results={"n2": "", "n3": ""})
    assert not slurm.reserved


def test_nodes_that_a_killed_run_has_left_unchecked_do_not_return_with_another_change(slurm: Slurm) -> None:
    step("begin")
    assert ready() == ["n1", "n2"]
    step("prove", results={"n1": "", "n2": ""})
    # Killed here. The next run has another change, and other nodes.
    step("begin", nodes="n[3-4]", change="other")
    assert {slurm.nodes[name]["Reason"] for name in ("n1", "n2")} == {DRAINED}
    step("end", nodes="n[3-4]", change="other")
    assert not slurm.reserved


def test_nodes_that_were_checked_before_a_kill_get_jobs_again(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    step("begin")
    assert ready() == ["n1", "n2"]
    step("prove", results={"n1": "", "n2": ""})
    with monkeypatch.context() as killed:
        killed.setattr(slurm_rolling.Rolling, "reserve", lambda *_arguments: None)
        step("judge", results={"n1": ""})
    begun = step("begin")
    assert (begun["done"], slurm.reserved) == (["n1"], "n2")
    assert slurm.nodes["n1"]["State"] == "IDLE"
    assert slurm.nodes["n2"]["Reason"] == DRAINED


def test_the_end_cancels_the_jobs_that_check_nodes_and_forgets_what_was_measured(slurm: Slurm) -> None:
    Path(acceptance.ROLLING_RECORD).touch()
    step("begin", nodes="n1")
    assert ready(nodes="n1") == ["n1"]
    step("prove", nodes="n1", results={"n1": ""})
    slurm.checks = 1
    step("end", nodes="n1")
    assert (slurm.checks, slurm.reserved) == (0, "")
    assert slurm.nodes["n1"]["State"] == "IDLE+DRAIN"
    assert Path(acceptance.ROLLING_RECORD).exists()
    step("begin", nodes="n1")
    assert ready(nodes="n1") == ["n1"]
    step("judge", nodes="n1", results={"n1": ""})
    step("end", nodes="n1")
    assert not Path(acceptance.ROLLING_RECORD).exists()


@pytest.mark.usefixtures("slurm")
def test_another_change_begins_anew() -> None:
    step("begin")
    assert ready(budget={"*": "1"}) == ["n1"]
    step("judge", results={"n1": ""})
    assert step("begin", change="other")["done"] == []


def test_nodes_without_an_update_are_done_whatever_an_earlier_run_has_recorded(slurm: Slurm) -> None:
    assert step("begin", unchanged="n[1-2]")["table"][0] == "done      2 of 4: n[1-2]"
    assert ready() == ["n3", "n4"]
    step("prove", results={"n3": "apt has failed", "n4": ""})
    step("judge", results={"n4": ""})
    # Days later: n1 has an update by now, and n3 is repaired and has all of them. It is checked before it returns.
    assert step("begin", unchanged="n[2-4]")["done"] == ["n2", "n4"]
    assert sorted(ready()) == ["n1", "n3"]
    step("prove", results={"n1": ""})
    # Killed here: n1 is in service inside the reservation, has its update, and nobody has checked it.
    assert step("begin", unchanged="n[1-4]")["done"] == ["n2", "n4"]
    assert sorted(ready()) == ["n1", "n3"]
    step("prove", results={"n1": "", "n3": ""})
    step("judge", results={"n1": "", "n3": ""})
    assert step("end")["ok"]
    assert not Path(slurm_rolling.RECORD).exists()
    assert {node["State"] for node in slurm.nodes.values()} == {"IDLE"}


@pytest.mark.usefixtures("slurm")
def test_where_all_nodes_have_an_update_none_is_done_by_its_record() -> None:
    step("begin", unchanged="")
    assert ready(budget={"*": "1"}) == ["n1"]
    step("judge", results={"n1": ""})
    assert step("begin")["done"] == ["n1"]
    assert step("begin", unchanged="")["done"] == []


def test_what_others_drain_meanwhile_is_not_resumed(slurm: Slurm) -> None:
    step("begin")
    assert ready() == ["n1", "n2"]
    slurm.nodes["n1"] = {"State": "IDLE+DRAIN", "Reason": "bad DIMM"}
    assert step("prove", results={"n1": "", "n2": ""})["ready"] == ["n2"]
    assert slurm.nodes["n1"]["Reason"] == "bad DIMM"


def test_after_the_deadline_jobs_are_requeued(slurm: Slurm) -> None:
    slurm.nodes["n1"] = {"State": "MIXED+DRAIN", "Reason": DRAINED}
    slurm.jobs, slurm.may_requeue = "7|alice|2026-11-25T10:00:00|n1\n", ["7"]
    step("begin", nodes="n1")
    step("next", nodes="n1", deadline="2020-01-01T00:00")
    assert slurm.requeued == ["7"]


def test_a_node_that_was_being_changed_at_the_end_has_failed(slurm: Slurm) -> None:
    step("begin")
    assert ready() == ["n1", "n2"]
    ended = step("end")
    assert ended["broken"].keys() == {"n1", "n2"}
    assert slurm.nodes["n1"]["Reason"] == "gpucluster.slurm rolling: failed: the run ended while it was changed"


def test_wrong_options_change_nothing(slurm: Slurm) -> None:
    with pytest.raises(RollingError):
        step("begin", budget={"*": "many"})
    with pytest.raises(RollingError):
        step("begin", deadline="tomorrow")
    assert not Path(slurm_rolling.RECORD).exists()
    assert all(node["State"] == "IDLE" for node in slurm.nodes.values())


ALICE = {"host": "adm1", "user": "alice", "process": "100 5"}
BOB = {"host": "adm2", "user": "bob", "process": "100 5"}


def test_another_run_may_change_the_cluster_while_this_one_waits_and_this_one_waits_for_its_end(slurm: Slurm) -> None:
    slurm.jobs = "7|alice|2026-11-25T10:00:00|n1\n"
    run_lock.acquire("run", ALICE)
    step("begin", nodes="n1")
    assert step("next", nodes="n1", run=ALICE)["ready"] == []
    assert run_lock.acquire("run", BOB) == []
    slurm.jobs = ""
    waits = step("next", nodes="n1", run=ALICE)
    assert (waits["ready"], waits["over"], [other["user"] for other in waits["others"]]) == ([], False, ["bob"])
    run_lock.release("run", BOB)
    assert step("next", nodes="n1", run=ALICE)["ready"] == ["n1"]
    # From now on no other run begins, until this one waits again.
    assert run_lock.acquire("run", BOB)[0]["user"] == "alice"
    step("judge", nodes="n1", results={"n1": ""}, run=ALICE)
    assert step("next", nodes="n1", run=ALICE)["over"]
    assert run_lock.acquire("run", BOB) == []


def test_what_the_other_run_has_changed_counts(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    step("begin", nodes="n1")
    step("next", nodes="n1", run=ALICE)
    acquire = run_lock.acquire

    def acquire_late(name: str, *arguments: Any) -> list[dict[str, str]]:
        """Another run resumes the node just before this one has the run lock."""
        slurm.nodes["n1"] = {"State": "IDLE+DRAIN", "Reason": "bad DIMM"} if name == "run" else slurm.nodes["n1"]
        return acquire(name, *arguments)

    monkeypatch.setattr(run_lock, "acquire", acquire_late)
    found = step("next", nodes="n1", run=ALICE, wait=5)
    assert (found["ready"], found["over"]) == ([], True)


def test_a_run_that_was_taken_over_ends_and_leaves_the_nodes_of_the_other(slurm: Slurm) -> None:
    step("begin")
    assert ready(run=ALICE) == ["n1", "n2"]
    run_lock.acquire("rolling", BOB, take_over=True)
    with pytest.raises(RollingError, match="bob on adm2 has taken this rolling change over"):
        step("next", run=ALICE)
    assert step("end", run=ALICE)["broken"] == {}
    assert slurm.nodes["n1"]["Reason"] == DRAINED


@pytest.mark.usefixtures("slurm")
def test_nodes_whose_state_cannot_be_read_count_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    step("begin")
    assert ready() == ["n1", "n2"]

    def no_answer(*_arguments: Any) -> Any:
        raise CommandError("Unable to contact slurm controller")

    monkeypatch.setattr(slurm_rolling, "show", no_answer)
    found = step("next")
    assert (found["ready"], found["over"]) == ([], False)
    assert found["table"][-1] == "waiting   all nodes: Unable to contact slurm controller"
