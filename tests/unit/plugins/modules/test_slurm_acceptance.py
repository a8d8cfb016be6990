# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of slurm_acceptance with a stand-in for Slurm: the record, kills between steps, jobs of others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance import progress
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import run_lock
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand, fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.rolling.next_nodes import RollingError
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_acceptance

ALICE = {"host": "adm1", "user": "alice", "process": "1 1"}
BOB = {"host": "adm2", "user": "bob", "process": "2 2"}


class Slurm:
    """Nodes, jobs and the reservation, changed by the commands of the module."""

    def __init__(self) -> None:
        self.nodes = {f"n{number}": {"State": "IDLE", "Reason": ""} for number in range(1, 5)}
        self.others = ""
        self.reservation = "accept"
        self.reserved: str | None = None
        self.measured = ""
        """A node that repair measures."""
        self.jobs: dict[int, list[str]] = {}
        """By number: nodes, state and reason."""
        self.starts = True
        self.commands: list[Sequence[str]] = []
        self.refuses = ""
        self.topology = ""

    def show(self, what: str, *_name: str) -> list[dict[str, str]]:
        if what == "node":
            return [{"NodeName": name, "Partitions": "all", **node} for name, node in self.nodes.items()]
        names = {f"repair-{self.measured}": self.measured or None, self.reservation: self.reserved}
        return [{"ReservationName": name, "Nodes": nodes} for name, nodes in names.items() if nodes is not None]

    def output(self, command: Sequence[str]) -> str:
        if command[0] == "squeue":
            return self.others
        settings = dict(word.split("=", 1) for word in command[2:] if "=" in word)
        assert self.reservation == settings["ReservationName"] == "accept"
        # Slurm starts no job that could run past the end of its reservation.
        assert "Duration=84" in command or "EndTime=now+84minutes" in command
        self.reserved = settings.get("Nodes", self.reserved)
        return ""

    def run(self, command: Sequence[str], stdin: str = "") -> Answer:
        self.commands.append(command)
        if "sbatch" in command:
            if self.refuses:
                return Answer(1, "", f"sbatch: error: Batch job submission failed: {self.refuses}\n")
            options = dict(word[2:].split("=", 1) for word in command if "=" in word)
            assert options["reservation"] == self.reservation
            assert {*expand(options["nodelist"])} <= {*expand(self.reserved or "")}
            assert stdin.startswith("#!")
            number = 100 + len(self.jobs)
            self.jobs[number] = [options["nodelist"], "RUNNING" if self.starts else "PENDING", "None"]
            return Answer(0, f"{number}\n", "")
        if command[0] == "squeue":
            assert "--user=root" in command
            rows = [f"{n}|N/A|{state}|0|0:05|T{n}|{nodes}|{why}" for n, (nodes, state, why) in self.jobs.items()]
            return Answer(0, "\n".join(rows), "")
        if command == ["scontrol", "show", "topology"]:
            return Answer(0, self.topology, "")
        if command[0] == "scancel":
            for number in map(int, command[1:]):
                self.jobs[number][1] = "CANCELLED"
        if command[:2] == ["scontrol", "delete"]:
            self.reserved = None
        return Answer(0, "", "")

    def end(self, state: str = "COMPLETED") -> None:
        """End all jobs."""
        for job in self.jobs.values():
            job[1] = state


@pytest.fixture(name="slurm")
def _slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Slurm:
    found = Slurm()
    for name in ("show", "output", "run"):
        monkeypatch.setattr(slurm_acceptance, name, getattr(found, name))
    monkeypatch.setattr(slurm_acceptance, "RECORD", f"{tmp_path}/run.json")
    monkeypatch.setattr(slurm_acceptance, "RUNS", f"{tmp_path}/report/acceptance.json")
    monkeypatch.setattr(progress, "ROLLING_RECORD", f"{tmp_path}/rolling.json")
    monkeypatch.setattr(slurm_acceptance, "POLL", 0)
    (tmp_path / "locks").mkdir()

    def write(files: list[Any]) -> None:
        """Write as the user of this test, who need not be root."""
        for file in files:
            Path(file.path).write_bytes(file.content)

    monkeypatch.setattr(slurm_acceptance, "write", write)
    monkeypatch.setattr(run_lock, "write", write)
    monkeypatch.setattr(run_lock, "FOLDER", f"{tmp_path}/locks")
    return found


def task(*nodes: str) -> dict[str, Any]:
    job = {"name": "accept-node", "nodelist": fold([*nodes]), "script": "#!/bin/sh\n", "time": "24"}
    return {"name": f"1/node/{'+'.join(nodes)}", "nodes": fold([*nodes]), "job": job}


def step(name: str, check_mode: bool = False, **options: Any) -> Any:
    params: dict[str, Any] = {
        "step": name,
        "nodes": "n[1-3]",
        "change": "quick",
        "tasks": [],
        "outputs": [],
        "jobs": [],
        "directory": "/nowhere",
        "result": {},
        "budget": {},
        "reservation": "",
        "fresh": "",
        "user": "root",
        "take_over": False,
        "wait": 0,
        "run": {},
        "former": [],
    }
    return slurm_acceptance.take_step(params | options, check_mode)


TASKS = [task("n1"), task("n2"), task("n3"), task("n1", "n2")]


def test_a_run_from_begin_to_end(slurm: Slurm) -> None:
    assert step("begin")["taken"] == "n[1-3]"
    waits = step("next", tasks=TASKS)
    assert (waits["ready"], waits["over"]) == ([], False)
    assert slurm.reserved == "n[1-3]"
    assert len(slurm.jobs) == 4
    assert step("next", tasks=TASKS)["table"] == ["measured  0 of 4 jobs", "now       n[1-3]"]
    assert len(slurm.jobs) == 4
    slurm.end()
    ended = step("next", tasks=TASKS)
    assert ended["reads"] == {"n1": [100, 103], "n2": [101, 103], "n3": [102]}
    stored = step("store", outputs=[{"job": 100, "text": "x", "why": ""}, {"job": 101, "text": "", "why": "lost"}])
    assert stored["outputs"] == [
        {"task": "1/node/n1", "job": 100, "nodes": "n1", "text": "x", "why": ""},
        {"task": "1/node/n2", "job": 101, "nodes": "n2", "text": "", "why": "lost"},
    ]
    step("store", outputs=[{"job": number, "text": "y", "why": ""} for number in (102, 103)])
    assert step("next", tasks=TASKS)["over"]
    step("end")
    assert slurm.reserved is None
    assert not Path(slurm_acceptance.RECORD).exists()


def test_a_run_that_was_killed_makes_only_what_is_missing(slurm: Slurm) -> None:
    step("begin")
    step("next", tasks=TASKS[:2])
    slurm.end()
    step("next", tasks=TASKS[:2])
    step("store", outputs=[{"job": 100, "text": "x", "why": ""}])
    # Killed here: the output of n2 is on n2, and n3 has had no job.
    again = step("begin")
    assert [output["task"] for output in again["outputs"]] == ["1/node/n1"]
    assert again["taken"] == "n[1-3]"
    step("next", tasks=TASKS)
    assert [job[0] for job in slurm.jobs.values()] == ["n1", "n2", "n3", "n[1-2]"]
    slurm.end()
    assert step("next", tasks=TASKS)["reads"] == {"n2": [101, 103], "n3": [102], "n1": [103]}


def test_another_level_cancels_the_jobs_of_the_earlier_run(slurm: Slurm) -> None:
    step("begin")
    step("next", tasks=TASKS[:1])
    begun = step("begin", change="long")
    assert begun["outputs"] == []
    assert slurm.jobs[100][1] == "CANCELLED"
    step("next", tasks=TASKS[:1], change="long")
    assert 101 in slurm.jobs


def test_a_node_that_repair_measures_is_left_out_and_named(slurm: Slurm) -> None:
    slurm.measured = "n1"
    begun = step("begin")
    assert (begun["taken"], begun["left"]) == ("n[2-3]", {"n1": "measured by repair"})


def test_nodes_with_jobs_of_others_are_left_out_and_named(slurm: Slurm) -> None:
    slurm.others = "7|alice|2026-11-28T10:00:00|n1"
    slurm.nodes["n2"] = {"State": "IDLE+DRAIN", "Reason": "bad DIMM [root@2026-11-28T09:00:00]"}
    begun = step("begin")
    assert begun["taken"] == "n3"
    assert begun["left"] == {
        "n1": "has job 7 of alice until 2026-11-28T10:00:00",
        "n2": "drained by a person (bad DIMM)",
    }
    step("next", tasks=[task("n3")])
    assert slurm.reserved == "n3"
    assert not any(command[0] == "scancel" for command in slurm.commands)


def test_with_a_budget_nodes_with_jobs_are_reserved_and_waited_for(slurm: Slurm) -> None:
    slurm.others = "7|alice|2026-11-28T10:00:00|n[1-2]"
    slurm.nodes["n1"]["State"] = slurm.nodes["n2"]["State"] = "ALLOCATED"
    budget: dict[str, Any] = {"budget": {"*": "1"}}
    assert step("begin", **budget)["taken"] == "n[1-3]"
    shown = step("next", tasks=TASKS[:3], **budget)["table"]
    # One of the two busy nodes; the other waits for the budget.
    assert slurm.reserved == "n[1,3]"
    assert [job[0] for job in slurm.jobs.values()] == ["n1", "n3"]
    assert "waiting   n2: job 7 of alice until 2026-11-28T10:00:00" in shown
    slurm.others = ""
    slurm.nodes["n1"]["State"] = slurm.nodes["n2"]["State"] = "IDLE"
    step("next", tasks=TASKS[:3], **budget)
    assert slurm.reserved is not None
    assert {*expand(slurm.reserved)} == {"n1", "n2", "n3"}


@pytest.mark.usefixtures("slurm")
def test_a_budget_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(RollingError, match=r"^accept_budget: found 'few' for partition 'all', allowed: a number"):
        step("begin", budget={"*": "few"})
    with pytest.raises(RollingError, match=r"^accept_budget: found the partition 'gpu', allowed: all or"):
        step("begin", budget={"gpu": 1})


def test_a_node_that_gets_a_job_meanwhile_is_not_waited_for(slurm: Slurm) -> None:
    step("begin")
    slurm.others = "7|alice|2026-11-28T10:00:00|n2"
    slurm.nodes["n2"]["State"] = "ALLOCATED"
    step("next", tasks=TASKS[:2])
    slurm.end()
    step("next", tasks=TASKS[:2])
    (output,) = step("store")["outputs"]
    assert output["why"] == "n2 has got job 7 of alice until 2026-11-28T10:00:00"


@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED"])
def test_a_job_that_fails_is_read_and_named(slurm: Slurm, state: str) -> None:
    step("begin")
    step("next", tasks=TASKS[:1])
    slurm.end(state)
    assert step("next", tasks=TASKS[:1])["reads"] == {"n1": [100]}
    (output,) = step("store", outputs=[{"job": 100, "text": "part", "why": ""}])["outputs"]
    assert (output["text"], output["why"]) == ("part", f"job 100 ended as {state} (0:0)")


def test_a_node_that_is_drained_before_its_job_starts_is_named(slurm: Slurm) -> None:
    slurm.starts = False
    step("begin")
    step("next", tasks=TASKS[:1])
    slurm.nodes["n1"] = {"State": "DOWN", "Reason": "Not responding [slurm@2026-11-28T09:00:00]"}
    assert step("next", tasks=TASKS[:1])["over"]
    (output,) = step("store")["outputs"]
    assert output["why"] == "job 100 cannot start: n1 is DOWN (Not responding)"
    assert slurm.jobs[100][1] == "CANCELLED"


def test_a_job_that_slurm_refuses_is_named(slurm: Slurm) -> None:
    slurm.refuses = "Invalid account or account/partition combination specified"
    step("begin")
    done = step("next", tasks=TASKS[:1])
    assert done["over"]
    assert not done["ok"]
    assert step("store")["outputs"][0]["why"] == slurm.refuses
    # The next run tries it again.
    assert step("begin")["outputs"] == []


def test_a_job_that_cannot_start_does_not_block_the_run(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.starts = False
    step("begin")
    step("next", tasks=TASKS[:1])
    slurm.jobs[100][2] = "QOSMaxNodePerUserLimit"
    monkeypatch.setattr(progress, "PATIENCE", -1)
    assert step("next", tasks=TASKS[:1])["over"]
    assert step("store")["outputs"][0]["why"].endswith("s: QOSMaxNodePerUserLimit")


def test_a_plan_changes_nothing(slurm: Slurm) -> None:
    assert step("begin", check_mode=True)["taken"] == "n[1-3]"
    step("end", check_mode=True)
    assert slurm.reserved is None
    assert slurm.commands == [["scontrol", "show", "topology"]]
    assert not Path(slurm_acceptance.RECORD).exists()


def test_one_run_at_a_time(slurm: Slurm) -> None:
    assert step("begin", run=ALICE)["others"] == []
    assert step("begin", run=BOB)["others"][0]["user"] == "alice"
    assert step("begin", run=BOB, take_over=True)["others"] == []
    assert step("begin", run=ALICE, take_over=True)["others"] == []
    step("next", tasks=TASKS[:1], run=ALICE)
    # The run that was refused takes nothing away from the other one.
    step("end", run=BOB)
    assert slurm.reserved == "n1"
    step("end", run=ALICE)
    assert slurm.reserved is None
    assert step("begin", run=BOB)["others"] == []


def test_a_module_that_a_killed_run_has_left_does_nothing_more(slurm: Slurm) -> None:
    step("begin", run=ALICE)
    run_lock.acquire(run_lock.ACCEPT, BOB, take_over=True)
    with pytest.raises(slurm_acceptance.AcceptanceError, match="another run"):
        step("next", tasks=TASKS[:1], run=ALICE)
    assert not slurm.jobs


def test_the_switches_of_slurm_are_known(slurm: Slurm) -> None:
    assert step("begin")["switches"] == {}
    slurm.topology = (
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=s2 Level=0 LinkSpeed=1 Nodes=n3\n"
        "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=s[1-2]\n"
    )
    assert step("begin")["switches"] == {"n1": "s1", "n2": "s1", "n3": "s2"}


def test_the_record_is_readable(slurm: Slurm) -> None:
    step("begin")
    step("next", tasks=TASKS[:1])
    record = json.loads(Path(slurm_acceptance.RECORD).read_text())
    assert record["tasks"]["1/node/n1"]["job"] == 100
    assert slurm.reserved == "n1"


def test_reading_outputs_on_a_node(tmp_path: Path) -> None:
    (tmp_path / "5.out").write_text('{"test": "stream"}\n')
    (tmp_path / "6.out").write_text("")
    (tmp_path / "6.err").write_text("one\npython3: not found\n")
    (tmp_path / "7.out").symlink_to("/etc/passwd")
    read = {one["job"]: one for one in step("read", jobs=[5, 6, 7, 8], directory=str(tmp_path))["outputs"]}
    assert read[5]["text"] == '{"test": "stream"}\n'
    assert read[6]["why"] == "python3: not found"
    assert read[7]["text"] == ""
    assert "its output cannot be read" in read[7]["why"]
    assert read[8]["why"] == "its output cannot be read: No such file or directory"


def test_the_page_gets_the_run_and_keeps_earlier_ones(slurm: Slurm, tmp_path: Path) -> None:
    with pytest.raises(slurm_acceptance.AcceptanceError, match=r"report is missing: site.yml makes it"):
        step("keep", result={"finished": "1"})
    (tmp_path / "report").mkdir()
    path = tmp_path / "report/acceptance.json"
    step("keep", check_mode=True, result={"finished": "1"})
    assert not path.exists()
    assert step("keep", result={"finished": "1", "findings": ["n1: slow"]})["changed"]
    step("keep", result={"finished": "2", "findings": ["n2: slow"]})
    assert json.loads(path.read_text())["runs"] == [
        {"finished": "2", "findings": ["n2: slow"]},
        {"finished": "1", "findings": []},
    ]
    path.write_text("{")
    step("keep", result={"finished": "3"})
    assert json.loads(path.read_text())["runs"] == [{"finished": "3"}]
    assert slurm.commands == []


def test_the_page_is_for_root_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files: list[Any] = []
    monkeypatch.setattr(slurm_acceptance, "RUNS", f"{tmp_path}/acceptance.json")
    monkeypatch.setattr(slurm_acceptance, "write", files.extend)
    step("keep", result={"finished": "1"})
    assert [(file.owner, file.mode) for file in files] == [("root", 0o600)]


ROLLING: dict[str, Any] = {"reservation": "gpucluster_rolling", "run": ALICE}


@pytest.fixture(name="rolling")
def _rolling(slurm: Slurm) -> Slurm:
    """The first two nodes are changed and in the reservation of a rolling change."""
    slurm.reservation, slurm.reserved = "gpucluster_rolling", "n[1-2]"
    run_lock.acquire("rolling", ALICE)
    return slurm


def measure(slurm: Slurm, *names: str, **options: Any) -> Any:
    """Measure nodes of a rolling change; returns the answer of the last step."""
    step("begin", nodes=fold([*names]), **ROLLING, **options)
    tasks = [task(name) for name in names]
    step("next", tasks=tasks, **ROLLING)
    slurm.end()
    reads = step("next", tasks=tasks, **ROLLING)["reads"]
    outputs = [{"job": jobs[0], "text": f"of {name}", "why": ""} for name, jobs in reads.items()]
    return step("store", outputs=outputs, **ROLLING)


def test_a_rolling_change_measures_in_its_own_reservation_and_keeps_what_earlier_nodes_reached(rolling: Slurm) -> None:
    # The job before, which has used the GPUs, is about to end.
    rolling.others = "7|root|2026-11-28T10:00:00|n1"
    assert [output["text"] for output in measure(rolling, "n1", "n2")["outputs"]] == ["of n1", "of n2"]
    rolling.others, rolling.reserved = "", "n3"
    assert [output["text"] for output in measure(rolling, "n3")["outputs"]] == ["of n1", "of n2", "of n3"]
    assert rolling.reserved == "n3"
    assert not Path(slurm_acceptance.RECORD).exists()
    # accept.yml may run at the same time.
    assert run_lock.acquire("accept", BOB) == []


def test_a_rolling_change_that_was_killed_measures_only_nodes_that_were_changed_again(rolling: Slurm) -> None:
    measure(rolling, "n1", "n2")
    rolling.starts = False
    step("begin", nodes="n3", **ROLLING)
    rolling.reserved = "n[1-3]"
    step("next", tasks=[task("n3")], **ROLLING)
    # Killed here. n1 was only checked, n2 and n3 are changed again.
    begun = step("begin", fresh="n[2-3]", **ROLLING)
    assert [output["nodes"] for output in begun["outputs"]] == ["n1"]
    assert rolling.jobs[102][1] == "CANCELLED"
    step("next", tasks=[task(name) for name in ("n1", "n2", "n3")], **ROLLING)
    assert [job[0] for job in rolling.jobs.values()] == ["n1", "n2", "n3", "n2", "n3"]


def test_a_node_that_is_not_reserved_any_more_is_not_measured(rolling: Slurm) -> None:
    step("begin", nodes="n1", **ROLLING)
    rolling.reserved = None
    ended = step("next", tasks=[task("n1")], **ROLLING)
    assert (ended["over"], ended["ok"]) == (True, False)
    (output,) = step("store", **ROLLING)["outputs"]
    assert output["why"] == "n1 is not in the reservation gpucluster_rolling"


@pytest.mark.usefixtures("rolling")
def test_a_rolling_change_that_was_taken_over_measures_nothing() -> None:
    run_lock.acquire("rolling", BOB, take_over=True)
    with pytest.raises(slurm_acceptance.AcceptanceError):
        step("begin", nodes="n1", **ROLLING)
