# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A case: a node that fails, what was done about it, and where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from ..health.finding_table import CLEAN, MOUNT, NONE, NOW, POWER_CYCLE, REBOOT, REPLACE, RESET, NodeFinding
from ..health.finding_table import PERSON as NEEDS_PERSON

FOUND, SAVED, DRAINED, TREATED, BOOTED, MEASURED = "found", "saved", "drained", "treated", "booted", "measured"
"""What has been reached: a finding has drained the node, or would; its evidence is saved; the node is drained for this
case; a treatment was asked for; it has been carried out; the node was measured, and is as fast as it should be."""
PERSON = "person"
"""A person is needed. The case is open until a person closes it, tries again or returns the node."""
RETURNED, CLOSED = "returned", "closed"
"""The ends: the node is in service after proof, or for another reason."""

ENDS = frozenset((RETURNED, CLOSED))
TAKEN = frozenset((DRAINED, TREATED, BOOTED, MEASURED))
"""The node is in treatment: nobody else may return it."""

SAVE, DRAIN, REQUEUE, TREAT, START = "save", "drain", "requeue", "treat", "start"
MEASURE, RETURN = "measure", "return"
"""The steps. Each is written into the case before it is done. START follows a power cycle's end of power."""


STRENGTH = (NONE, CLEAN, MOUNT, RESET, REBOOT, POWER_CYCLE, REPLACE, NEEDS_PERSON)
"""What mends findings, the weakest first. Each mends what those before it do, apart from CLEAN."""

BY_NODE = frozenset((CLEAN, MOUNT, RESET))
"""The treatments that a node carries out by itself, when its health check asks the controllers."""


class Treatment(NamedTuple):
    """A treatment that has begun."""

    when: float
    what: str
    """One of BY_NODE, REBOOT or POWER_CYCLE."""


class Fault(NamedTuple):
    """A finding that drains a node."""

    finding: NodeFinding
    text: str
    """What was said of it."""


@dataclass(frozen=True)
class NodeCase:
    """A case. Times are seconds since 1970."""

    number: int
    node: str
    finding: str
    """The name of the finding that has opened it."""
    text: str
    """What was said of it."""
    urgent: bool
    """Whether jobs of the node cannot go on."""
    action: str
    """What mends all that was found (`health/finding_table`)."""
    opened: float
    state: str = FOUND
    since: float = 0.0
    """When the state was reached."""
    step: str = ""
    """The step that has begun and is not known to be done."""
    begun: float = 0.0
    treatments: tuple[Treatment, ...] = ()
    boot: float = 0.0
    """When the node had booted before the last treatment."""
    passed: int = 0
    """Measurements in a row, since the last treatment, that found nothing."""
    held: str = ""
    """Who has stopped it for now."""
    closed_by: str = ""
    """The person who has ended it."""
    why: str = ""
    """Why it waits, why a person is needed, or how it has ended."""
    reached: tuple[tuple[str, float], ...] = ()
    """The states before, with their times."""
    told: str = ""
    """What the last mail has said of it (`case_mails.news`)."""

    @property
    def is_open(self) -> bool:
        return self.state not in ENDS

    @property
    def is_treated(self) -> bool:
        """Whether the node is in treatment, or is being taken into it."""
        return self.state in TAKEN or self.step == DRAIN


def treatment_key(case: NodeCase) -> str:
    """Tells treatments apart that nodes carry out; empty without one."""
    return f"{case.number}-{case.treatments[-1].when:.0f}" if case.treatments else ""


def opened(number: int, node: str, faults: Sequence[Fault], now: float) -> NodeCase:
    """A new case of a node with these faults, the first one first."""
    first = faults[0]
    case = NodeCase(number, node, first.finding.name, first.text, False, first.finding.action, now, since=now)
    return with_faults(case, faults)


def with_faults(case: NodeCase, faults: Iterable[Fault]) -> NodeCase:
    """The case with what is found meanwhile: the strongest action counts."""
    found = [fault.finding for fault in faults]
    action = max((case.action, *(each.action for each in found)), key=STRENGTH.index)
    return replace(case, action=action, urgent=case.urgent or any(each.severity == NOW for each in found))


def begun(case: NodeCase, step: str, now: float) -> NodeCase:
    """The case with a step that begins, or begins again."""
    return replace(case, step=step, begun=now, why="")


def moved(case: NodeCase, state: str, now: float, why: str = "") -> NodeCase:
    """The case in another state. A step that had begun is done, or is no longer wanted."""
    return replace(
        case, state=state, since=now, step="", begun=0.0, why=why, reached=(*case.reached, (case.state, case.since))
    )


def tried_again(case: NodeCase, now: float) -> NodeCase:
    """The case that a person lets go on, as if the node had not been treated."""
    return replace(moved(case, SAVED, now), held="", treatments=(), passed=0)


def waiting(case: NodeCase, why: str) -> NodeCase:
    """The case with the reason why it waits, and without a step that was not done."""
    return replace(case, step="", begun=0.0, why=why)


def to_json(case: NodeCase) -> dict[str, Any]:
    """The content of its file."""
    return asdict(case)


def from_json(content: Mapping[str, Any]) -> NodeCase:
    """A case from its file. What a newer collection has added is left out. Raises TypeError if something is missing."""
    names = {each.name for each in fields(NodeCase)}
    known = {name: value for name, value in content.items() if name in names}
    return NodeCase(
        **{
            **known,
            "treatments": tuple(Treatment(*each) for each in known.get("treatments", ())),
            "reached": tuple((state, when) for state, when in known.get("reached", ())),
        }
    )


class CaseCounts(NamedTuple):
    """Cases for the metrics."""

    by_state: Mapping[str, int]
    """Open cases, by each state that one can have."""
    returned: int
    """Cases that have ended with the node in service."""
    seconds: float
    """How long these were open, all together."""


def count_cases(cases: Iterable[NodeCase]) -> CaseCounts:
    """The counts of all cases that are kept."""
    found = [*cases]
    states = (FOUND, SAVED, DRAINED, TREATED, BOOTED, MEASURED, PERSON)
    returned = [case.since - case.opened for case in found if case.state == RETURNED]
    by_state = {state: sum(case.state == state for case in found) for state in states}
    return CaseCounts(by_state, len(returned), sum(returned))


def open_cases(cases: Iterable[NodeCase]) -> list[NodeCase]:
    """Those that have not ended."""
    return [case for case in cases if case.is_open]
