# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The random sequences with the code that asks slurmctld and machines: what it asks for is right at that moment.

slurmctld is the model, which answers as it stands: the round may have seen a node as it was a minute ago.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.scontrol import Record
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair import brakes, cases, node_hands, node_treatments
from repair_model import HEALTH, PERSON, REPAIR, Cluster, ModelNode, ViolatedError
from test_random_sequences import RULES, KilledError, RandomSequence

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

REASONS = {
    HEALTH: "health check xid-79: lost",
    REPAIR: "gpucluster.slurm repair: case {}: xid-79",
    PERSON: "new DIMMs",
}


def record_of(node: ModelNode) -> Record:
    """What slurmctld shows of a node."""
    states = [*sorted(node.states, key=("IDLE", "ALLOCATED").__contains__, reverse=True)]
    states += ["RESERVED"] if node.reserved else []
    reason = REASONS.get(node.drained_by, "").format(node.drained_for)
    return {"NodeName": node.name, "State": "+".join(states), **({"Reason": f"{reason} [root@1]"} if reason else {})}


@contextmanager
def as_root() -> Iterator[None]:
    yield


@dataclass
class SlurmOfModel:
    """slurmctld for one step of a case. A command that would be wrong now is a violation."""

    cluster: Cluster
    case: cases.NodeCase
    killed: bool = False
    """Whether the program is killed after its first command."""

    @property
    def node(self) -> ModelNode:
        return self.cluster.nodes[self.case.node]

    def node_record(self, _name: str) -> Record:
        return record_of(self.node)

    def output(self, command: Sequence[str]) -> str:
        if command[0] == "squeue":
            jobs = self.node.jobs.items()
            return "".join(
                f"{job}\x1fRUNNING\x1f{self.node.name}\x1f{int(movable)}\x1f1\x1fanna\x1e\n"
                for job, (_end, movable) in jobs
            )
        if not command[2].startswith("JobId="):  # the comment of a job
            self.do([*command[1:]])
            if self.killed:
                raise KilledError
        return ""

    def do(self, words: Sequence[str]) -> None:
        """Carry a command out, if it is right."""
        if words[0] in ("stop", "off", "start"):
            self.switch(words[0])
            return
        wanted = "drain" if "State=DRAIN" in words else "return" if "State=RESUME" in words else words[0]
        node = self.node
        allowed = ("", HEALTH) if wanted == "drain" else (REPAIR,)
        if node.drained_by not in allowed or (wanted == "drain" and node.reserved):
            raise ViolatedError(f"{wanted} of a node of {node.drained_by or node.reserved}")
        if wanted == "reboot" and (node.jobs or node.boots_until):
            raise ViolatedError("a boot of a node with jobs, or that boots")
        if wanted == "requeue":
            job = int(words[1])
            if job not in node.jobs or not node.jobs[job][1]:
                raise ViolatedError("a requeue of a job that cannot be moved")
            # A person may have returned the node between two rounds, and then it has failed anew.
            if not (node.was_urgent or node.excused):
                raise ViolatedError("a requeue of a job that can go on")
            del node.jobs[job]
            return
        step = {"reboot": "treat"}.get(wanted, wanted)
        case = self.case
        self.cluster.act(case.node, step, case.number, len(case.treatments), case.passed, "reboot")

    def switch(self, word: str) -> None:
        """Switch the machine."""
        case, node = self.case, self.node
        if node.drained_by != REPAIR or (word != "start" and node.jobs):
            raise ViolatedError(f"{word} of the machine of a node of {node.drained_by} with jobs {[*node.jobs]}")
        step = "start" if word == "start" else "treat"
        self.cluster.act(case.node, step, case.number, len(case.treatments), case.passed, "power cycle")


class SequenceWithHands(RandomSequence):
    """A random history in which the program asks slurmctld by itself."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch, program: ModuleType = node_hands) -> None:
        is_full = bool(seed % 2)
        rules = replace(RULES, mode=brakes.FULL if is_full else brakes.REBOOT, has_machines=is_full)
        super().__init__(seed, rules=rules)
        self.cluster.only_boots, self.cluster.refuses = not is_full, self.refuses
        self.monkeypatch, self.program = monkeypatch, program

    def refuses(self, node: ModelNode, case: int) -> bool:
        """Whether the program on the node does not begin."""
        self.monkeypatch.setattr(node_treatments, "node_record", lambda _name: record_of(node))
        try:
            node_treatments.check_drained(node.name, case)
        except node_treatments.NodeTreatmentError:
            return True
        return bool(node.jobs)  # their processes

    def happen_meanwhile(self, node: ModelNode) -> None:
        """What people do after the node was seen and before the step."""
        what = self.choice.choice(("drain", "reserve", "return", *[""] * 7))
        self.happened.append(f"meanwhile {what} {node.name}")
        if what == "drain":
            self.cluster.drain_by_person(node)
        elif what == "reserve":
            node.reserved = "maintenance"
        elif what == "return":
            self.cluster.return_by_person(node)
            self.cluster.start_job(node)

    def carry_out(self, case: Any) -> None:
        """The step is killed before its first command or after it, or fails."""
        what = self.disk.killed_at
        if not self.calm:
            self.happen_meanwhile(self.cluster.nodes[case.node])
        if what == "failing":
            return
        if what == "before acting":
            raise KilledError
        if case.step == "save":
            self.cluster.act(case.node, "save", case.number, len(case.treatments), case.passed, "")
            return
        slurm = SlurmOfModel(self.cluster, case, killed=what == "after acting")
        for name in ("node_record", "output"):
            self.monkeypatch.setattr(self.program, name, getattr(slurm, name))

        def write_measuring(_record: object) -> None:
            self.cluster.act(case.node, "measure", case.number, len(case.treatments), case.passed, "")

        def tell_users(_case: object, _users: object) -> None:
            pass

        self.program.NodeHands(as_root, write_measuring, tell_users).carry_out(case, self.cluster.now)


def run_sequences(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in seeds:
        sequence = SequenceWithHands(seed, monkeypatch)
        try:
            sequence.run()
        except ViolatedError as error:
            raise AssertionError(f"seed {seed}: {error}; {sequence.happened}") from error


def test_what_slurmctld_is_asked_for_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    run_sequences(range(100), monkeypatch)


@pytest.mark.rare
@pytest.mark.parametrize("part", range(10))
def test_what_slurmctld_is_asked_for_is_right_in_ten_thousand_sequences(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sequences(range(1000 + 1000 * part, 2000 + 1000 * part), monkeypatch)


MISTAKES = {
    "a person's node is drained": ("if view.owner in FREE and", "if view.owner != OURS and"),
    "a reserved node is drained": (" and not view.reserved:", ":"),
    "a person's node is treated": ("elif view.owner == OURS:", "else:"),
    "all jobs are requeued": ("sorted(jobs.movable)", "sorted(jobs.all)"),
}
"""A text of the program, and the mistake in its place."""


@pytest.mark.rare
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(str(node_hands.__file__)).read_text(encoding="utf-8")
    text, wrong = MISTAKES[mistake]
    assert source.count(text) == 1, text
    program = ModuleType(f"{node_hands.__name__}_mistaken")
    program.__package__ = node_hands.__package__
    monkeypatch.setitem(sys.modules, program.__name__, program)
    exec(compile(source.replace(text, wrong), "node_hands, mistaken", "exec"), program.__dict__)
    assert any(breaks_a_rule(seed, monkeypatch, program) for seed in range(1500))


def breaks_a_rule(seed: int, monkeypatch: pytest.MonkeyPatch, program: ModuleType) -> bool:
    try:
        SequenceWithHands(seed, monkeypatch, program).run()
    except ViolatedError:
        return True
    return False
