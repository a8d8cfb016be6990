# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model of nodes and slurmctld, with a ledger of its own: what must be true of repair, whatever happens.

It shares no code with the program that it judges. `Cluster` has the truth; the program sees what `answer` says, which
may be up to a minute old, and acts by `act`, which may fail or be cut off before or after its effect.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

HEALTH, REPAIR, PERSON = "the health check", "repair", "a person"
DONE = "done"

BY_NODE = ("clean", "mount", "reset")
"""What a node does by itself, when it is checked."""
CURES = (*BY_NODE, "reboot", "power cycle", "never")
"""What mends a fault, the weakest first. A stronger treatment mends it as well."""

FAULTS = {
    "xid-48": ("reset", False),
    "xid-119": ("reset", True),
    "gpu-rows-pending": ("reset", False),
    "xid-79": ("reboot", True),
    "nic-failed": ("reboot", True),
    "port-missing": ("reboot", False),
    "disk-lost": ("power cycle", True),
    "check-disk": ("clean", False),
    "check-filesystems": ("mount", False),
    "port-errors": ("person", False),
    "gpu-rows-failed": ("replace", False),
}
"""What the table of findings says of these: what mends it, and whether jobs cannot go on. Written by hand."""

PERIOD = 300.0
"""Seconds between two runs of the health check."""
WEEK = 7 * 86400.0


class ViolatedError(AssertionError):
    """A rule that the program has broken."""


@dataclass(frozen=True)
class Trouble:
    """What is wrong with a node."""

    finding: str
    cure: str
    """What mends it in truth, which may be more than the table says."""
    is_seen: bool = True
    """Whether the health check sees it; else only a measurement does."""


@dataclass
class ModelNode:
    """The truth about a node."""

    name: str
    trouble: Trouble | None = None
    drained_by: str = ""
    drained_for: int = 0
    """The case for which repair has drained it last."""
    jobs: dict[int, tuple[float, bool]] = field(default_factory=dict)
    """When each job ends, and whether it allows a requeue."""
    booted: float = 0.0
    boots_until: float = 0.0
    """Until when it boots; 0 if it does not."""
    is_off: bool = False
    """Whether its machine has no power."""
    answers: dict[tuple[int, int], str] = field(default_factory=dict)
    """What has come of treatments that it carries out by itself: DONE or why not, by case and number."""
    checked: float = 0.0
    reported: str = ""
    """The finding that its health check has reported."""
    reserved: str = ""
    saved: set[int] = field(default_factory=set)
    measured: dict[tuple[int, int, int], tuple[float, bool]] = field(default_factory=dict)
    """When each measurement ends, and whether it is good."""
    treated: list[float] = field(default_factory=list)
    troubled: float = 0.0
    """Since when it has had trouble of late; 0 if it has had none since it was in service."""
    helpless: list[str] = field(default_factory=list)
    """Treatments of this trouble."""
    was_urgent: bool = False
    """Whether jobs cannot go on since it was in service."""
    held: int = 0
    """The case that a person has stopped."""
    refusals: int = 0
    """Treatments that it could not carry out."""
    excused: bool = False
    """Whether something has happened to it after which its case may end in any way."""

    @property
    def states(self) -> frozenset[str]:
        found = {"ALLOCATED" if self.jobs else "IDLE"}
        if self.drained_by:
            found.add("DRAIN")
        if self.is_off:
            found.add("DOWN")
        if self.boots_until:
            found |= {"DOWN"} if self.helpless[-1:] == ["power cycle"] else {"DOWN", "REBOOT_ISSUED"}
        return frozenset(found)


@dataclass(frozen=True)
class NodeAnswer:
    """What is said of a node, as slurmctld and the health check have it."""

    states: frozenset[str]
    drained_by: str
    jobs: frozenset[int]
    movable: frozenset[int]
    booted: float
    checked: float
    reported: str
    reserved: str
    answers: Mapping[tuple[int, int], str]
    power: str


class Cluster:
    """The truth about all nodes, and the ledger."""

    def __init__(self, choice: random.Random, nodes: int) -> None:
        self.choice = choice
        self.now = 1e9
        self.nodes = {f"n{number}": ModelNode(f"n{number}", booted=self.now - 1e6) for number in range(nodes)}
        self.old = {name: self.said(node) for name, node in self.nodes.items()}
        self.next_job = 1
        self.acts: list[tuple[int, int, str]] = []
        """Treatments that were carried out: case, its treatments so far, and which."""
        self.forbidden = ""
        """Why nothing may begin now, as the model knows it."""
        self.keeps: Callable[[str], bool] = lambda _name: False
        """Whether the program says that it returns a node."""
        self.refuses: Callable[[ModelNode, int], bool] = lambda node, _case: (
            node.drained_by != REPAIR or bool(node.jobs)
        )
        """Whether a node sees that it must not do what it is asked for."""
        self.asks: Callable[[str], tuple[int, int, str] | None] = lambda _name: None
        """What the program asks a node to do when it is checked: case, number of the treatment, and which."""

    # -- what happens by itself ----------------------------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Let time pass: jobs start and end, nodes boot, health checks run."""
        self.old = {name: self.said(node) for name, node in self.nodes.items()}
        self.now += seconds
        for node in self.nodes.values():
            self._boot(node)
            for job, (end, _movable) in [*node.jobs.items()]:
                if end <= self.now:
                    del node.jobs[job]
            if not (node.boots_until or node.is_off) and self.now - node.checked >= PERIOD:
                self._check(node)
            if not node.drained_by and not node.boots_until and not node.reserved and self.choice.random() < 0.5:
                self.start_job(node)

    def _boot(self, node: ModelNode) -> None:
        if node.boots_until and node.boots_until <= self.now:
            node.boots_until, node.booted = 0.0, self.now
            node.checked = 0.0
            self._check(node)

    def _check(self, node: ModelNode) -> None:
        """The health check drains for what it sees, and undoes its own drain, unless the program has the node."""
        self._see(node)
        self._mend_itself(node)
        self._see(node)
        if node.reported and not node.drained_by:
            node.drained_by = HEALTH
        elif not node.reported and node.drained_by == HEALTH and not self.keeps(node.name):
            node.drained_by = ""
            node.troubled = self.now if node.trouble else 0.0

    def _see(self, node: ModelNode) -> None:
        node.checked = self.now
        node.reported = node.trouble.finding if node.trouble and node.trouble.is_seen else ""

    def _mend_itself(self, node: ModelNode) -> None:
        """The node does what it is asked for, once, if nobody has returned it meanwhile. That can fail."""
        if not (asked := self.asks(node.name)) or asked[:2] in node.answers:
            return
        case, number, what = asked
        self._may_act(node, "treat", case)
        if self.refuses(node, case) or self.choice.random() < 0.15:
            node.answers[case, number] = "it could not"
            node.refusals += 1
            node.helpless.append(what)
        else:
            if node.drained_by != REPAIR or node.jobs:
                raise ViolatedError(f"{what} by a node of {node.drained_by or 'nobody'} with jobs {[*node.jobs]}")
            self._treat(node, case, number, what)
            node.answers[case, number] = DONE

    def start_job(self, node: ModelNode) -> None:
        """Start a job on a node."""
        seconds = self.choice.choice((120.0, 900.0, 4000.0))
        node.jobs[self.next_job] = (self.now + seconds, self.choice.random() < 0.7)
        self.next_job += 1

    def fail(self, node: ModelNode, trouble: Trouble) -> None:
        """A fault. Jobs cannot go on with some, and do not end by themselves."""
        if node.trouble:
            return
        node.trouble, node.helpless = trouble, []
        node.troubled = node.troubled or self.now
        node.was_urgent = node.was_urgent or FAULTS[trouble.finding][1]
        if FAULTS[trouble.finding][1]:
            node.jobs = {job: (self.now + 3000.0, movable) for job, (_end, movable) in node.jobs.items()}

    def pass_by(self, node: ModelNode) -> None:
        """A fault ends by itself."""
        if not node.helpless:
            node.trouble = None
            node.excused = node.excused or bool(node.drained_by)

    # -- what people do ------------------------------------------------------------------------------------------------

    def drain_by_person(self, node: ModelNode) -> None:
        """A person drains a node, whoever has drained it before."""
        node.drained_by, node.excused = PERSON, True

    def return_by_person(self, node: ModelNode) -> None:
        """A person has mended a node, and returns it."""
        if node.boots_until:
            return
        node.is_off = False
        node.trouble, node.drained_by, node.reported, node.troubled, node.was_urgent = None, "", "", 0.0, False
        node.checked, node.excused = self.now, True

    def let_go_on(self, node: ModelNode, case: int) -> None:
        """A person lets a case go on: what was done counts no more."""
        node.treated, node.helpless, node.refusals, node.excused = [], [], 0, True
        self.acts = [act for act in self.acts if act[0] != case]
        node.measured = {which: found for which, found in node.measured.items() if which[0] != case}
        node.answers = {which: said for which, said in node.answers.items() if which[0] != case}

    # -- what the program sees and does --------------------------------------------------------------------------------

    def answer(self, name: str) -> NodeAnswer:
        """What is said of a node: now, or before the last time that has passed if that is not long ago."""
        fresh = self.said(self.nodes[name])
        return self.old[name] if self.stale else fresh

    stale = False
    """Whether answers are old."""
    only_boots = False
    """Whether the program can do nothing stronger than a boot."""

    @property
    def for_people(self) -> tuple[str, ...]:
        """What the program cannot do."""
        return ("person", "replace", *(["clean", "power cycle"] if self.only_boots else []))

    def said(self, node: ModelNode) -> NodeAnswer:
        """What is said of a node now."""
        return NodeAnswer(
            node.states,
            node.drained_by,
            frozenset(node.jobs),
            frozenset(job for job, (_end, movable) in node.jobs.items() if movable),
            node.booted,
            node.checked,
            node.reported,
            node.reserved,
            {**node.answers},
            "off" if node.is_off else "on",
        )

    def measured(self, name: str, which: tuple[int, int, int]) -> str:
        """How a measurement stands."""
        found = self.nodes[name].measured.get(which)
        if not found:
            return ""
        return "runs" if found[0] > self.now else "passed" if found[1] else "failed"

    def act(self, name: str, step: str, case: int, treatment: int, passed: int, what: str) -> None:
        """A step of the program. treatment, passed: how many the case has had. what: the treatment."""
        node = self.nodes[name]
        self._may_act(node, step, case)
        if step == "save":
            node.saved.add(case)
        elif step == "drain":
            self._drain(node, case)
        elif step == "requeue":
            if node.drained_by != REPAIR:
                return  # the hand looks again
            if not node.was_urgent:
                raise ViolatedError("jobs that can go on were requeued")
            node.jobs = {job: values for job, values in node.jobs.items() if not values[1]}
        elif step == "treat" and what not in BY_NODE:
            self._treat(node, case, treatment, what)
        elif step == "start" and node.drained_by == REPAIR:
            self._start(node)
        elif step == "measure":
            self._measure(node, (case, treatment, passed))
        elif step == "return":
            self._return(node, case, treatment)

    def _may_act(self, node: ModelNode, step: str, case: int) -> None:
        """What must be true of each step."""
        if step != "save" and case not in node.saved:
            raise ViolatedError(f"{step} before the evidence was saved")
        if step in ("drain", "treat") and self.forbidden:
            raise ViolatedError(f"{step} although {self.forbidden}")
        if step != "save" and node.held == case:
            raise ViolatedError(f"{step} although a person holds the case")

    def _drain(self, node: ModelNode, case: int) -> None:
        if (node.drained_by == PERSON or node.reserved) and not self.stale:
            raise ViolatedError(f"a node of {node.drained_by or node.reserved} was to be drained")
        if node.drained_by != HEALTH or node.reserved:
            return  # the hand looks again
        if not node.troubled:
            raise ViolatedError("a healthy node was drained")
        node.drained_by, node.drained_for = REPAIR, case

    def _treat(self, node: ModelNode, case: int, treatment: int, what: str) -> None:
        if node.jobs and not self.stale:
            raise ViolatedError(f"{what} although the node has jobs")
        if (case, treatment, what) in self.acts:
            if what == "power cycle" and node.is_off:
                return  # it is switched off until it is seen to be
            raise ViolatedError(f"{what} twice")
        if node.drained_by != REPAIR or node.jobs or node.boots_until:
            return  # the hand looks again
        if not node.troubled:
            raise ViolatedError("a healthy node was treated")
        was_seen = node.checked > node.troubled and not self.stale
        is_first = treatment == 1 and not (
            node.treated or node.refusals or any(number == case for number, _tried, _nth in node.measured)
        )
        if was_seen and is_first and not (node.trouble or node.reported):
            raise ViolatedError(f"{what} although the fault was over")
        # A boot for another fault of the same case does no harm to a full disk.
        action = FAULTS[node.reported][0] if node.reported else ""
        if action in self.for_people and action != "clean" and not self.stale:
            raise ViolatedError(f"{what} for {node.reported}")
        node.treated.append(self.now)
        if sum(self.now - when < WEEK for when in node.treated) > 2:
            raise ViolatedError("more than two treatments in seven days")
        if (
            not self.only_boots
            and node.helpless
            and CURES.index(what) <= CURES.index(node.helpless[-1])
            and node.helpless[-1] != "power cycle"
        ):
            raise ViolatedError(f"{what} after {node.helpless[-1]}, which did not help")
        node.helpless.append(what)
        self.acts.append((case, treatment, what))
        if node.trouble and CURES.index(what) >= CURES.index(node.trouble.cure):
            node.trouble = None
        elif node.trouble and self.choice.random() < 0.3:
            node.trouble = replace(node.trouble, is_seen=False)
        if what == "power cycle":
            node.is_off = True
        elif what == "reboot":
            node.boots_until = self.now + self.choice.choice((200.0, 500.0))

    def _start(self, node: ModelNode) -> None:
        """Switch the machine of a node on."""
        if node.is_off:
            node.is_off, node.boots_until = False, self.now + self.choice.choice((200.0, 500.0))

    def _measure(self, node: ModelNode, which: tuple[int, int, int]) -> None:
        if node.drained_by != REPAIR or node.boots_until:
            return
        if which in node.measured:
            raise ViolatedError("a measurement twice")
        node.measured[which] = (self.now + 200.0, not (node.trouble or node.is_off))

    def _return(self, node: ModelNode, case: int, treatment: int) -> None:
        if node.drained_by != REPAIR:
            return
        good = [
            end
            for (number, tried, _nth), (end, fine) in node.measured.items()
            if fine and end <= self.now and (number, tried) == (case, treatment)
        ]
        if len(good) < max(1, min(2, treatment)):
            raise ViolatedError(f"returned after {len(good)} good measurements of treatment {treatment}")
        node.drained_by, node.troubled = "", self.now if node.trouble else 0.0
        node.was_urgent = bool(node.trouble and FAULTS[node.trouble.finding][1])


def random_trouble(choice: random.Random) -> Trouble:
    """A fault that needs what the table says, or more."""
    name = choice.choice([*FAULTS])
    action = FAULTS[name][0]
    least = CURES.index(action if action in CURES else "never")
    cure = CURES[least] if choice.random() < 0.6 else choice.choice(CURES[least:])
    return Trouble(name, cure)
