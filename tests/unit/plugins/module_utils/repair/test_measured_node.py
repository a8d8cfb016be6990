# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node is measured in a reservation of its own, and no job of others starts there, whenever the program is killed.

Slurm is a stand-in in this process: it starts a job of a user as soon as the node takes one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.catalog import TESTS
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.quick_level import MeasuringPlan
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.tasks import NodePlace, Site
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer, CommandError
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.scontrol import Record
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair import measured_node
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.measured_node import (
    Measurer,
    NodeMeasuring,
    Sender,
    SentResult,
    measuring_from_json,
    measuring_to_json,
)

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

PLAN = MeasuringPlan({"n1": NodePlace("n1", "m", 0, "all")}, Site(), [], {})
REASON = "gpucluster.slurm repair: xid-79"


class KilledError(BaseException):
    """The program is killed."""


class SlurmOfOneNode:
    """slurmctld, with one node."""

    def __init__(self) -> None:
        self.reason, self.reserved = REASON, False
        self.jobs: dict[int, list[str]] = {}
        """Name and state."""
        self.of_users = 0
        """Jobs of users that have started on the node."""
        self.script = ""
        self.refusals = 0
        """How often the reservation cannot be removed."""
        self.kill_after = -1
        """Commands until the program is killed."""

    def step(self) -> None:
        """After each command, a job of a user starts if it can."""
        if not self.reason and not self.reserved:
            self.of_users += 1
        if self.kill_after == 0:
            self.kill_after = -1
            raise KilledError
        self.kill_after -= 1

    def show(self, _what: str) -> list[Record]:
        return [{"ReservationName": "repair-n1"}] if self.reserved else []

    def node_record(self, _name: str) -> Record:
        return {"NodeName": "n1", "State": "IDLE+DRAIN" if self.reason else "IDLE", "Reason": self.reason}

    def output(self, command: Sequence[str]) -> str:
        answer = self.run(command)
        if answer.status:
            raise CommandError(answer.message)
        return answer.output

    def run(self, command: Sequence[str], script: str = "") -> Answer:
        text, status = self.answer([*command], script)
        self.step()
        return Answer(status, text, "")

    def answer(self, command: list[str], script: str) -> tuple[str, int]:
        if command[0] == "sbatch":
            number, self.script = len(self.jobs) + 1, script
            (name,) = (word.partition("=")[2] for word in command if word.startswith("--job-name="))
            self.jobs[number] = [name, "RUNNING" if not self.reason else "PENDING"]
            return f"{number}\n", 0
        if command[0] == "squeue":
            (wanted,) = (word.partition("=") for word in command if word.startswith(("--name=", "--jobs=")))
            found = [
                f"{number} {state}"
                for number, (name, state) in self.jobs.items()
                if wanted[2] in (name if wanted[0] == "--name" else str(number),)
            ]
            return "\n".join(found), 0
        if command[1] == "create":
            self.reserved = True
        elif command[1] == "delete":
            self.refusals -= 1
            if self.refusals >= 0:
                return "Reservation in use", 1
            self.reserved = False
        elif "State=RESUME" in command:
            self.reason = ""
        elif "State=DRAIN" in command:
            self.reason = command[-1].partition("=")[2]
        return "", 0


@pytest.fixture(name="slurm")
def slurm_of_one_node(monkeypatch: pytest.MonkeyPatch) -> SlurmOfOneNode:
    slurm = SlurmOfOneNode()
    for name in ("show", "node_record", "output", "run"):
        monkeypatch.setattr(measured_node, name, getattr(slurm, name))
    return slurm


@contextmanager
def as_root() -> Iterator[None]:
    yield


class Kept:
    """The record on the disk."""

    def __init__(self, reason: str = REASON) -> None:
        self.text = json.dumps(measuring_to_json(NodeMeasuring("n1", "12-1-0", 1e9, reason)))

    @property
    def record(self) -> NodeMeasuring:
        return measuring_from_json(json.loads(self.text))

    def write(self, measuring: NodeMeasuring) -> None:
        self.text = json.dumps(measuring_to_json(measuring))


def sent(job: int, value: float = 1.0) -> SentResult:
    """What the job sends: its check, and no value."""
    one = {"test": "gpu_count", "value": value, "unit": TESTS["gpu_count"].unit, "nodes": ["n1"], "gpu": None}
    more = {"size": None, "text": "", "hardware": "m", "driver": "", "image": "", "job": job, "time": 1}
    return SentResult("n1", "12-1-0", job, json.dumps(one | more))


def measure(slurm: SlurmOfOneNode, kept: Kept, meanwhile: Callable[[], None] = lambda: None, value: float = 1.0) -> int:
    """Rounds of a minute until the end; the job sends its result in the fourth one. Returns how many there were."""
    measurer = Measurer(PLAN, Sender(["head"], 6830, "slurm"), "root", kept.write, as_root)
    for minute in range(40):
        result = sent(1, value) if minute > 2 and slurm.jobs else None
        if result and slurm.jobs[1][1] == "RUNNING":
            slurm.jobs[1][1] = "COMPLETED"
        try:
            if measurer.advance(kept.record, result, 1e9 + 60 * minute).verdict:
                return minute
        except KilledError:
            continue
        meanwhile()
    raise AssertionError("the measurement has no end")


def test_a_drained_node_is_measured_and_drained_again(slurm: SlurmOfOneNode) -> None:
    kept = Kept()
    measure(slurm, kept)
    assert (kept.record.verdict, slurm.reason, slurm.reserved, slurm.of_users) == ("passed", REASON, False, 0)
    assert [name for name, _state in slurm.jobs.values()] == ["repair-12-1-0-1"]
    assert "slurm-accept node " in slurm.script
    assert "| /usr/local/lib/gpucluster-slurm/slurm-accept send --key=12-1-0 --controllers=head" in slurm.script


def test_a_job_that_ends_holds_the_reservation_for_a_moment(slurm: SlurmOfOneNode) -> None:
    kept, slurm.refusals = Kept(), 2
    measure(slurm, kept)
    assert (kept.record.verdict, slurm.reason, slurm.reserved, slurm.of_users) == ("passed", REASON, False, 0)


def test_a_node_in_no_partition_has_nothing_to_measure(slurm: SlurmOfOneNode) -> None:
    kept = Kept()
    nothing = Measurer(MeasuringPlan({}, Site(), [], {}), Sender(["head"], 6830, "slurm"), "root", kept.write, as_root)
    assert nothing.advance(kept.record, None, 1e9).verdict == "passed"
    assert (kept.record.why, slurm.reason, slurm.jobs) == (("nothing can be measured on the node",), REASON, {})


def test_a_node_in_service_stays_there(slurm: SlurmOfOneNode) -> None:
    slurm.reason = ""
    kept = Kept("")
    measure(slurm, kept)
    assert (kept.record.verdict, slurm.reason, slurm.reserved) == ("passed", "", False)


@pytest.mark.parametrize("commands", range(12))
def test_a_killed_program_goes_on(slurm: SlurmOfOneNode, commands: int) -> None:
    slurm.kill_after = commands
    kept = Kept()
    measure(slurm, kept)
    assert (kept.record.verdict, slurm.reason, slurm.reserved, slurm.of_users) == ("passed", REASON, False, 0)
    assert len(slurm.jobs) == 1


def test_a_failed_check_fails_the_node(slurm: SlurmOfOneNode) -> None:
    kept = Kept()
    measure(slurm, kept, value=0.0)
    assert (kept.record.verdict, slurm.reason) == ("failed", REASON)
    assert kept.record.why[0].startswith("gpu_count: ")


def test_who_takes_the_node_meanwhile_keeps_it(slurm: SlurmOfOneNode) -> None:
    def drain() -> None:
        slurm.reason = "fans are replaced"

    kept = Kept()
    measure(slurm, kept, drain)
    assert (kept.record.verdict, slurm.reason, slurm.reserved) == ("failed", "fans are replaced", False)
    assert kept.record.why == ("the node was taken out of service: fans are replaced",)


def test_a_node_that_a_person_returns_stays_in_service(slurm: SlurmOfOneNode) -> None:
    """He removes the reservation."""
    kept = Kept()

    def remove() -> None:
        slurm.reserved = False

    measure(slurm, kept, remove)
    assert (kept.record.verdict, kept.record.why) == ("failed", ("its reservation was removed",))
    assert (slurm.reason, slurm.reserved) == ("", False)


def test_a_job_that_sends_nothing_fails(slurm: SlurmOfOneNode) -> None:
    measurer = Measurer(PLAN, Sender(["head"], 6830, "slurm"), "root", (kept := Kept()).write, as_root)
    for minute in range(9):
        measurer.advance(kept.record, sent(99), 1e9 + 60 * minute)
        if slurm.jobs:
            slurm.jobs[1][1] = "FAILED"
    assert (kept.record.verdict, slurm.reason, slurm.reserved) == ("failed", REASON, False)
    assert kept.record.why == ("n1: job 1 has ended as FAILED, and has sent nothing",)


def test_a_job_that_does_not_start_fails(slurm: SlurmOfOneNode) -> None:
    measurer = Measurer(PLAN, Sender(["head"], 6830, "slurm"), "root", (kept := Kept()).write, as_root)
    for minute in range(30):
        measurer.advance(kept.record, None, 1e9 + 60 * minute)
        if slurm.jobs:
            slurm.jobs[1][1] = "PENDING"
    assert (kept.record.verdict, slurm.reason, slurm.reserved) == ("failed", REASON, False)
    assert kept.record.why[0].startswith("n1: job 1 has not started in ")


def test_a_result_of_another_measurement_does_not_count(slurm: SlurmOfOneNode) -> None:
    measurer = Measurer(PLAN, Sender(["head"], 6830, "slurm"), "root", (kept := Kept()).write, as_root)
    for minute in range(3):
        measurer.advance(kept.record, sent(1)._replace(key="11-1-0"), 1e9 + 60 * minute)
    assert [*slurm.jobs] == [1]
    assert (kept.record.verdict, kept.record.outputs) == ("", ())


def test_the_record_comes_back_from_its_file() -> None:
    record = replace(Kept().record, job=7, outputs=({"job": 7, "text": "x"},), why=("slow",))
    assert measuring_from_json(json.loads(json.dumps(measuring_to_json(record)))) == record
