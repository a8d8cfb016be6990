# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random sequences of faults, crashes, takeovers, old answers and people, judged by a model with its own ledger.

The actions are the model's. 27 mistakes that are put into the program are each found.
"""

from __future__ import annotations

import json
import random
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.drains import HEALTH, OWNERS, REPAIR
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.finding_table import named
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair import brakes, case_states, cases, rounds
from repair_model import DONE, FAULTS, Cluster, ModelNode, NodeAnswer, ViolatedError, random_trouble

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

RULES = brakes.Rules(
    mode=brakes.FULL,
    has_machines=True,
    most_percent=34.0,
    shared_percent=100.0,
    shared_least=4,
    job_seconds=8000.0,
    boot_seconds=1800.0,
)
"""At most one of the model's five nodes is in treatment."""
NODES = 5


class KilledError(Exception):
    """The program was killed, or its controller."""


@dataclass
class Disk:
    """The cases, as they are on the disk. A write may be the last thing that the program has done."""

    kept: dict[int, str] = field(default_factory=dict)
    killed_at: str = ""

    def read(self) -> list[Any]:
        return [PARTS.cases.from_json(json.loads(text)) for text in self.kept.values()]

    def write(self, case: Any) -> None:
        if self.killed_at == "before writing":
            raise KilledError
        self.kept[case.number] = json.dumps(PARTS.cases.to_json(case))
        if self.killed_at == "after writing":
            raise KilledError


PARTS = SimpleNamespace(cases=cases, brakes=brakes, case_states=case_states, rounds=rounds)
"""The program, or one with a mistake."""


def fault_of(name: str) -> Any:
    """What the health check says of a fault."""
    return PARTS.cases.Fault(named(name), f"{name} was seen")


def view_of(answer: NodeAnswer, case: Any, cluster: Cluster) -> Any:
    """What the program sees of a node. The owners are those of the node's reason."""
    owner = {"the health check": OWNERS[HEALTH], "repair": OWNERS[REPAIR]}.get(answer.drained_by, answer.drained_by)
    return PARTS.case_states.NodeView(
        states=answer.states,
        owner=owner,
        jobs=answer.jobs,
        movable=answer.movable,
        booted=answer.booted,
        is_mended=answer.answers.get((case.number, len(case.treatments))) == DONE,
        refused=answer.answers.get((case.number, len(case.treatments)), DONE).removeprefix(DONE),
        power=answer.power,
        reserved=answer.reserved,
        checked=answer.checked,
        faults=(fault_of(answer.reported),) if answer.reported else (),
        is_saved=case.number in cluster.nodes[case.node].saved,
        measured=cluster.measured(case.node, (case.number, len(case.treatments), case.passed)),
    )


@dataclass
class RandomSequence:
    """A random history of a cluster with the program."""

    seed: int
    cluster: Cluster = field(init=False)
    disk: Disk = field(default_factory=Disk)
    rules: brakes.Rules = RULES
    calm: bool = False
    happened: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.choice = random.Random(self.seed)
        self.cluster = Cluster(self.choice, NODES)
        self.cluster.keeps, self.cluster.asks = self.keeps, self.asks

    def keeps(self, name: str) -> bool:
        """Whether the program returns a node, and not the health check."""
        return any(case.is_open and case.node == name and case.state != "person" for case in self.disk.read())

    def asks(self, name: str) -> tuple[int, int, str] | None:
        """What a node is asked to do when it is checked."""
        for case in self.disk.read():
            if not case.is_open or case.node != name or self.rules.stopped:
                continue
            view = view_of(self.cluster.said(self.cluster.nodes[name]), case, self.cluster)
            if what := PARTS.case_states.asked_of_node(case, view):
                return case.number, len(case.treatments), what
        return None

    def carry_out(self, case: Any) -> None:
        """The hands: they may be cut off before or after, or fail."""
        what = self.disk.killed_at
        if what == "failing":
            return
        if what == "before acting":
            raise KilledError
        what_done = case.treatments[-1].what if case.treatments else ""
        self.cluster.act(case.node, case.step, case.number, len(case.treatments), case.passed, what_done)
        if what == "after acting":
            raise KilledError

    def one_round(self) -> None:
        """A round of the program. slurmctld may not answer, and then there is none."""
        cluster = self.cluster
        if not self.calm and self.choice.random() < 0.05:
            return
        cluster.stale = not self.calm and self.choice.random() < 0.1
        places = ("before writing", "after writing", "before acting", "after acting", "failing")
        self.disk.killed_at = self.choice.choice(places) if not self.calm and self.choice.random() < 0.2 else ""
        faulty = {
            name: [fault_of(node.reported)]
            for name, node in cluster.nodes.items()
            if node.reported and node.drained_by == "the health check"
        }
        fleet = brakes.Fleet(nodes=NODES, hour=int(cluster.now // 3600) % 24)

        def look(case: Any) -> Any:
            return view_of(cluster.answer(case.node), case, cluster)

        with suppress(KilledError):
            PARTS.rounds.one_round(self.disk, faulty, look, self.carry_out, self.rules, fleet, cluster.now)
        if sum(case.state in cases.TAKEN for case in self.disk.read()) > 1:
            raise ViolatedError("more nodes in treatment than may be")

    def disturb(self) -> None:
        """Something happens."""
        node = self.cluster.nodes[self.choice.choice([*self.cluster.nodes])]
        what = self.choice.choice(
            ("fault", "fault", "pass", "drain", "return", "reserve", "free", "hold", "go on", "retry", "stop", "start")
        )
        self.happened.append(f"{what} {node.name}")
        if what == "fault":
            self.cluster.fail(node, random_trouble(self.choice))
        elif what == "pass":
            self.cluster.pass_by(node)
        elif what == "retry":
            self.retry(node)
        elif what == "drain" and self.choice.random() < 0.4:
            self.cluster.drain_by_person(node)
        elif what == "return" and self.choice.random() < 0.4:
            self.cluster.return_by_person(node)
        elif what == "reserve":
            node.reserved = "maintenance"
        elif what == "free":
            node.reserved = ""
        elif what in ("hold", "go on"):
            self.hold(node, "root" if what == "hold" else "")
        elif what == "stop":
            self.rules = replace(self.rules, stopped="root")
            self.cluster.forbidden = "root"
        elif what == "start":
            self.rules = replace(self.rules, stopped="")
            self.cluster.forbidden = ""

    def hold(self, node: ModelNode, who: str) -> None:
        """A person stops the case of a node, or lets it go on."""
        self.disk.killed_at = ""
        for case in self.disk.read():
            if case.is_open and case.node == node.name:
                node.held = case.number if who else 0
                self.disk.write(replace(case, held=who))

    def retry(self, node: ModelNode) -> None:
        """A person lets the case of a node go on."""
        self.disk.killed_at = ""
        for case in self.disk.read():
            if case.node == node.name and case.state == "person":
                self.cluster.let_go_on(node, case.number)
                node.held = 0
                self.disk.write(PARTS.cases.tried_again(case, self.cluster.now))

    def run(self) -> None:
        """Chaos, then calm until nothing changes. Raises ViolatedError."""
        for _step in range(self.choice.randrange(20, 60)):
            self.cluster.pass_time(self.choice.choice((20.0, 40.0, 60.0)))
            if self.choice.random() < 0.25:
                self.disturb()
            self.one_round()
            if self.choice.random() < 0.3:
                self.cluster.pass_time(self.choice.choice((300.0, 900.0, 2500.0)))
        self.calm = True
        self.rules = replace(self.rules, stopped="")
        self.cluster.forbidden = ""
        for node in self.cluster.nodes.values():
            node.reserved = ""
            self.hold(node, "")
        quiet = 0
        for _step in range(400):
            before = {**self.disk.kept}
            self.cluster.pass_time(400.0)
            self.one_round()
            quiet = quiet + 1 if before == self.disk.kept else 0
            if quiet > 30:
                break
        self.judge()

    def judge(self) -> None:
        """What must be true in the end."""
        open_cases = {case.node: case for case in self.disk.read() if case.is_open}
        for name, node in self.cluster.nodes.items():
            case = open_cases.get(name)
            if case and case.state != "person" and node.drained_by != "a person":
                raise ViolatedError(f"the case of {name} does not end: {case}")
            if node.is_off and not node.excused and not (case and case.state == "person"):
                raise ViolatedError(f"{name} stays off: {case}")
            if not case and node.drained_by in ("repair", "the health check"):
                raise ViolatedError(f"{name} is drained by {node.drained_by}, and has no case")
            if node.excused or not case:
                continue
            if not node.trouble and "power cycle: " not in case.why:  # a machine that is not switched on in time
                raise ViolatedError(f"{name} is well, and a person is asked: {case}")
            treated = sum(self.cluster.now - when < 7 * 86400 for when in node.treated) + node.refusals
            treated += self.without_effect(node)
            if treated < self.least_treatments(node, case):
                raise ViolatedError(f"{name} was given up before its second treatment: {case}")

    def least_treatments(self, node: ModelNode, case: Any) -> int:
        """How often a node with trouble must have been treated before a person is asked."""
        action = FAULTS[node.trouble.finding][0] if node.trouble else ""
        if not action or action in self.cluster.for_people or "does not switch off" in case.why:
            return 0
        return 1 if "clean" in (action, *node.helpless) else 2

    def without_effect(self, node: ModelNode) -> int:
        """Treatments that were asked for and have not come about: somebody was faster, or the node did not ask."""
        return sum(
            (case.number, number, what) not in self.cluster.acts and (case.number, number) not in node.answers
            for case in self.disk.read()
            if case.node == node.name
            for number, (_when, what) in enumerate(case.treatments, start=1)
        )


def test_the_model_knows_what_the_table_says() -> None:
    for name, (action, urgent) in FAULTS.items():
        finding = named(name)
        assert (finding.action, finding.severity == "now") == (action, urgent), name


def run_sequences(seeds: range) -> None:
    for seed in seeds:
        sequence = RandomSequence(seed)
        try:
            sequence.run()
        except ViolatedError as error:
            raise AssertionError(f"seed {seed}: {error}; {sequence.happened}") from error


def test_no_rule_is_broken_whatever_happens() -> None:
    run_sequences(range(150))


@pytest.mark.rare
@pytest.mark.parametrize("part", range(20))
def test_no_rule_is_broken_in_a_hundred_thousand_sequences(part: int) -> None:
    run_sequences(range(1000 + 5000 * part, 1000 + 5000 * (part + 1)))


MISTAKES = {
    "no evidence": ("case_states", "return begun(case, SAVE, now)", "return moved(case, SAVED, now)"),
    "a person's node is taken": ("case_states", "if view.owner not in FREE:", "if view.owner == OURS:"),
    "a reserved node is taken": ("case_states", 'if view.reserved else ""', 'if not view.reserved else ""'),
    "a node with jobs is treated": ("case_states", "if not view.is_quiet:", "if view.in_service:"),
    "jobs that can go on are requeued": ("case_states", "if view.movable and case.urgent:", "if view.movable:"),
    "a refusal is believed": ("case_states", "BOOT_APART or view.is_mended", "BOOT_APART or view.refused"),
    "a machine is not seen to be off": (
        "case_states",
        "_is_renewed(case, view) or (what == POWER_CYCLE and view.power == OFF):",
        "_is_renewed(case, view):",
    ),
    "a held case asks its node": ("case_states", "not (case.held or is_answered", "not (is_answered"),
    "a boot that has not begun is believed": (
        "case_states",
        "view.booted > case.boot + BOOT_APART",
        "view.booted >= case.boot",
    ),
    "no measurement": ("case_states", "return _unless_held(case, MEASURE, now)", "return moved(case, MEASURED, now)"),
    "a failed measurement is good": ("case_states", "if view.measured == FAILED:", "if view.measured == 'none':"),
    "a measurement that runs is good": ("case_states", "if view.measured == PASSED:", "if view.measured:"),
    "one measurement after two treatments": (
        "case_states",
        "min(2, len(case.treatments))",
        "min(1, len(case.treatments))",
    ),
    "tries without end": ("brakes", "max(0, rules.tries - done)", "max(1, rules.tries - done)"),
    "the same treatment again": ("case_states", "wanted = STRONGER[last]", "wanted = last"),
    "a new fault is not seen": (
        "case_states",
        "    case = with_faults(case, view.faults)\n    if case.state == DRAINED",
        "    if case.state == DRAINED",
    ),
    "a return is not believed": ("case_states", "if view.in_service or view.owner == CHECK:", "if view.in_service:"),
    "holds are not kept": (
        "case_states",
        'return waiting(case, f"held by {case.held}") if case.held else begun(with_step or case, step, now)',
        "return begun(with_step or case, step, now)",
    ),
    "stops are not kept": ("brakes", "if rules.stopped:", "if not rules.tries:"),
    "one node too many": ("brakes", "treated >= most", "treated > most"),
    "two nodes at once": ("cases", "return self.state in TAKEN or self.step == DRAIN", "return self.state in TAKEN"),
    "earlier cases do not count": (
        "brakes",
        "if case.node == node for each",
        "if case.node == node and case.is_open for each",
    ),
    "a node has one case for ever": (
        "rounds",
        "for case in cases.values() if case.is_open}",
        "for case in cases.values()}",
    ),
    "acts before it writes": (
        "rounds",
        "        store.write(after)\n        cases[number] = after\n",
        "        cases[number] = after\n",
    ),
    "a fault that is over is treated": (
        "case_states",
        "    if _is_over(case, view):\n",
        "    if case.held == '-':\n",
    ),
    "a node whose fault is over is not measured": (
        "case_states",
        "return moved(case, BOOTED, now, OVER)\n    what",
        "return moved(case, MEASURED, now, OVER)\n    what",
    ),
    "a person's node is returned": ("case_states", "if view.owner != OURS:", "if view.owner == '-':"),
}
"""A part of the program, its text, and the mistake in its place."""

BASE = cases.__name__.rpartition(".")[0]


def mistaken(part: str, text: str, mistake: str) -> SimpleNamespace:
    """The program with a mistake."""
    package = f"{BASE}_mistaken"
    sys.modules[package] = ModuleType(package)
    sys.modules[package].__path__ = []
    found = {}
    for module in (cases, brakes, case_states, rounds):
        name = module.__name__.rpartition(".")[2]
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        if name == part:
            assert source.count(text) == 1, text
            source = source.replace(text, mistake)
            if part == "rounds" and "write" in text:
                source = source.replace(
                    "            carry_out(after)\n", "            carry_out(after)\n        store.write(after)\n"
                )
        found[name] = sys.modules[f"{package}.{name}"] = ModuleType(f"{package}.{name}")
        found[name].__package__ = package
        exec(compile(source, f"{name}, mistaken", "exec"), found[name].__dict__)
    return SimpleNamespace(**found)


def breaks_a_rule(seed: int) -> bool:
    try:
        RandomSequence(seed).run()
    except ViolatedError:
        return True
    return False


@pytest.mark.rare
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = mistaken(*MISTAKES[mistake])
    for name, module in vars(parts).items():
        monkeypatch.setattr(PARTS, name, module)
    assert any(breaks_a_rule(seed) for seed in range(2000))
