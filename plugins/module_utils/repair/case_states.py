# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a case stands, and its next step: a pure function of the case and of what is seen of its node.

A step is written into the case before it is done, so that a program that was killed finds it there. If what is seen
shows that it was not done, it begins again. A treatment that nothing shows may have been carried out: it is waited for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..client.drains import HEALTH, OWNERS, REPAIR, SLURM
from ..health.finding_table import CLEAN, KILL_FAILED, MOUNT, NONE, POWER_CYCLE, REBOOT, REPLACE, RESET
from ..health.finding_table import PERSON as A_PERSON
from .brakes import FULL, OBSERVE, Rules
from .cases import (
    BOOTED,
    BY_NODE,
    CLOSED,
    DRAIN,
    DRAINED,
    FOUND,
    MEASURE,
    MEASURED,
    PERSON,
    REQUEUE,
    RETURN,
    RETURNED,
    SAVE,
    SAVED,
    START,
    STRENGTH,
    TREAT,
    TREATED,
    Fault,
    NodeCase,
    Treatment,
    begun,
    moved,
    waiting,
    with_faults,
)

OURS = OWNERS[REPAIR]
"""The owner of what this program drains."""
CHECK = OWNERS[HEALTH]
FREE = frozenset(("", CHECK, SLURM))
"""Owners from which a node may be taken: nobody, the check that has found the fault, and Slurm, which may be faster."""

SHOWN_AFTER = 60.0
"""Seconds until what slurmctld or a machine was asked for is seen there."""
SOFT_SECONDS, OFF_SECONDS = 180.0, 600.0
"""How long the operating system of a machine may take to end, and how long the machine is asked to switch off."""
BOOT_APART = 30.0
"""Seconds by which the times of two boots differ at least. slurmd computes the time anew, from the clock."""

OUT = frozenset(("DRAIN", "DOWN", "FAIL"))
"""States with which a node takes no job."""
BUSY = frozenset(("ALLOCATED", "MIXED", "COMPLETING"))
BOOTING = frozenset(("REBOOT_REQUESTED", "REBOOT_ISSUED"))

PASSED, FAILED, RUNS = "passed", "failed", "runs"
"""How a measurement stands."""

OVER = "the finding has ended by itself"

STRONGER = {CLEAN: A_PERSON, MOUNT: REBOOT, RESET: REBOOT, REBOOT: POWER_CYCLE, POWER_CYCLE: POWER_CYCLE}
"""What follows a treatment that did not help."""

OFF, ON = "off", "on"
"""Whether a machine has power."""


class NodeView(NamedTuple):
    """What is seen of a node."""

    is_known: bool = True
    """Whether slurmctld has it."""
    states: frozenset[str] = frozenset()
    """Slurm's words, such as IDLE and DRAIN."""
    owner: str = ""
    """Who has drained it (`client/drains`); empty for a node in service."""
    jobs: frozenset[int] = frozenset()
    """Jobs that have not ended there."""
    movable: frozenset[int] = frozenset()
    """Those of them that allow a requeue, and run."""
    booted: float = 0.0
    """When it has booted, in seconds since 1970."""
    is_mended: bool = False
    """Whether it has carried out, by itself, the last treatment of the case. What it reports is of after that."""
    refused: str = ""
    """Why it could not; empty if it could, or has not begun."""
    power: str = ""
    """OFF or ON, of a node that is switched off and on; empty if its machine was not asked, or has not answered."""
    reserved: str = ""
    """The reservation of others that it is in."""
    checked: float = 0.0
    """When its health check has reported."""
    faults: tuple[Fault, ...] = ()
    """What drains it, as the health check has reported."""
    is_saved: bool = False
    """Whether the evidence of the case is saved."""
    measured: str = ""
    """The measurement that the case needs now: PASSED, FAILED or RUNS; empty if it has not begun."""

    @property
    def names(self) -> list[str]:
        """The names of the findings."""
        return sorted(fault.finding.name for fault in self.faults)

    @property
    def in_service(self) -> bool:
        return not self.states & OUT

    @property
    def is_quiet(self) -> bool:
        """Whether it is drained and has no jobs, both in one answer."""
        return not self.in_service and not self.jobs and not self.states & BUSY


class Around(NamedTuple):
    """What the case depends on apart from its node."""

    rules: Rules
    left: int
    """How often the node may be treated yet (`brakes.treatments_left`)."""
    brake: str = ""
    """Why nothing may begin (`brakes.brake`)."""


def next_treatment(case: NodeCase, rules: Rules) -> str:
    """What mends the node, stronger than the last treatment; empty if a person is needed."""
    wanted = case.action
    last = case.treatments[-1].what if case.treatments else NONE
    if last != NONE and STRENGTH.index(last) >= STRENGTH.index(wanted):
        wanted = STRONGER[last]
    if wanted in (NONE, A_PERSON, REPLACE):
        return ""
    if wanted == POWER_CYCLE and not (rules.mode == FULL and rules.has_machines):
        return REBOOT if case.action != POWER_CYCLE else ""
    if rules.mode == FULL:
        return wanted
    # A boot empties no disk.
    return "" if wanted == CLEAN else REBOOT


def _is_begun(case: NodeCase) -> bool:
    """Whether a treatment was asked for, and is not known to be carried out."""
    return bool(case.treatments) and (case.step == TREAT or case.state == TREATED)


def asked_of_node(case: NodeCase, view: NodeView) -> str:
    """What the case's node is to do by itself, when its health check asks; empty without anything."""
    what = case.treatments[-1].what if _is_begun(case) else ""
    is_answered = view.is_mended or view.refused
    return what if what in BY_NODE and not (case.held or is_answered or _is_needless(case, view)) else ""


def is_switched(case: NodeCase) -> bool:
    """Whether the machine of a case's node is switched off and on."""
    return _is_begun(case) and case.treatments[-1].what == POWER_CYCLE


def proposal(case: NodeCase, view: NodeView, around: Around, now: float) -> str:
    """What would be done next if the mode were FULL, in words."""
    rules = replace(around.rules, mode=FULL)
    would = next_case(replace(case, step=""), view, around._replace(rules=rules), now)
    return f"{would.step} ({next_treatment(would, rules)})" if would.step == DRAIN else would.step or would.why


def next_case(case: NodeCase, view: NodeView, around: Around, now: float) -> NodeCase:
    """The case as far as it has come by what is seen, or with the step that begins now."""
    if not case.is_open:
        return case
    if not view.is_known:
        return moved(case, CLOSED, now, "the node is no longer in the cluster")
    if case.state == PERSON:
        return moved(case, CLOSED, now, "the node is in service again") if view.in_service else case
    if case.state in (FOUND, SAVED):
        return _before_treatment(case, view, around, now)
    return _in_treatment(case, view, around, now)


# -- before the treatment --------------------------------------------------------------------------------------------


def _before_treatment(case: NodeCase, view: NodeView, around: Around, now: float) -> NodeCase:
    case = with_faults(case, view.faults)
    if case.step == SAVE and view.is_saved:
        return moved(case, SAVED, now)
    if case.step == DRAIN and view.owner == OURS:
        return moved(case, DRAINED, now)
    if view.in_service and view.checked > case.opened and case.finding not in view.names:
        return moved(case, RETURNED, now, "the finding has ended, and the node is in service")
    if case.step and now - case.begun < SHOWN_AFTER:
        return case
    if case.held:
        return waiting(case, f"held by {case.held}")
    if case.state == FOUND:
        return begun(case, SAVE, now)
    if around.rules.mode == OBSERVE:
        return waiting(case, "")
    if view.owner == OURS:  # a person lets it go on
        return waiting(case, around.brake) if around.brake else moved(case, DRAINED, now)
    if not next_treatment(case, around.rules):
        return moved(case, PERSON, now, f"{case.finding}: {case.action}")
    if not around.left:
        return _given_up(case, around, now)
    why = _others(view) or around.brake
    return waiting(case, why) if why else begun(case, DRAIN, now)


def _others(view: NodeView) -> str:
    """Who else has the node now."""
    if view.owner not in FREE:
        return f"{view.owner} has the node"
    return f"it is in the reservation {view.reserved}" if view.reserved else ""


def _given_up(case: NodeCase, around: Around, now: float, before: str = "") -> NodeCase:
    """The case for a person. before: what has been seen last."""
    rules = around.rules
    return moved(case, PERSON, now, f"{before}treated {rules.tries} times in {rules.days:g} days")


# -- in treatment ----------------------------------------------------------------------------------------------------


def _in_treatment(case: NodeCase, view: NodeView, around: Around, now: float) -> NodeCase:
    if case.step == MEASURE and view.owner in (CHECK, SLURM):
        # A node that is measured is in service for that.
        return moved(case, SAVED, now, f"while it was measured, {view.owner} has taken it out of service")
    # The check drains nodes in service alone: this one was there.
    if view.in_service or view.owner == CHECK:
        if case.step == RETURN:
            return moved(case, RETURNED, now)
        return moved(case, CLOSED, now, "somebody has returned the node before it was proven")
    if view.owner != OURS:
        return moved(case, PERSON, now, f"{view.owner or 'somebody'} has taken the node out of service meanwhile")
    if around.rules.mode == OBSERVE:
        return moved(case, PERSON, now, "the mode is observe now: repair leaves the node drained")
    case = with_faults(case, view.faults)
    if case.state == DRAINED:
        return _treat(case, view, around, now)
    if case.state == TREATED:
        return _boot(case, view, around, now)
    if case.state == BOOTED:
        return _measure(case, view, around, now)
    return _return(case, view, around, now)


def _treat(case: NodeCase, view: NodeView, around: Around, now: float) -> NodeCase:
    """End its jobs, or wait for them; then treat it."""
    if case.step == TREAT:
        return _treatment_begun(case, view, around, now)
    if view.movable and case.urgent:
        waits = case.step == REQUEUE and now - case.begun < SHOWN_AFTER
        return case if waits else _unless_held(case, REQUEUE, now)
    if view.jobs and now - case.since > around.rules.job_seconds:
        return moved(case, PERSON, now, f"{len(view.jobs)} jobs have not ended in time")
    if not view.is_quiet:
        return waiting(case, f"waits for {len(view.jobs)} jobs")
    if _is_over(case, view):
        return moved(case, BOOTED, now, OVER)
    what = next_treatment(case, around.rules)
    if not what:
        return moved(case, PERSON, now, f"{case.action}: {', '.join(view.names)}")
    if not around.left:
        return _given_up(case, around, now)
    if around.brake:
        return waiting(case, around.brake)
    treated = replace(case, treatments=(*case.treatments, Treatment(now, what)), boot=view.booted, passed=0)
    return _unless_held(case, TREAT, now, treated)


def _treatment_begun(case: NodeCase, view: NodeView, around: Around, now: float) -> NodeCase:
    """Wait until a treatment is seen, or begin again with one that is not."""
    when, what = case.treatments[-1]
    if view.states & BOOTING or _is_renewed(case, view) or (what == POWER_CYCLE and view.power == OFF):
        return moved(case, TREATED, now)
    if view.refused:
        return _again(case, around, now, f"{what}: {view.refused}")
    if what in BY_NODE and _is_needless(case, view):
        return moved(_undone(case), BOOTED, now, OVER)
    if now - case.begun < (SOFT_SECONDS if what == POWER_CYCLE else SHOWN_AFTER):
        return case
    if what in BY_NODE:
        return moved(case, TREATED, now)
    if what == POWER_CYCLE and now - when > OFF_SECONDS:
        return moved(case, PERSON, now, "its machine does not switch off")
    # slurmctld would show a boot that it was asked for.
    if what == REBOOT and _is_needless(case, view):
        return moved(_undone(case), BOOTED, now, OVER)
    if why := f"held by {case.held}" if case.held else around.brake:
        return replace(case, why=why)
    is_late = now - when > around.rules.boot_seconds
    return _again(case, around, now, f"{what}: it has not begun in time") if is_late else begun(case, TREAT, now)


def _is_over(case: NodeCase, view: NodeView) -> bool:
    """Whether the finding has ended by itself, or a person has mended it, and no measurement has found more."""
    before = [state for state, _when in case.reached]
    is_measured = BOOTED in before and before[::-1].index(BOOTED) < before[::-1].index(SAVED)
    is_seen_by_check = case.finding != KILL_FAILED
    return is_seen_by_check and not (case.treatments or view.faults or is_measured) and view.checked > case.opened


def _undone(case: NodeCase) -> NodeCase:
    """The case without the treatment that was asked for, and has not been carried out."""
    return replace(case, treatments=case.treatments[:-1])


def _is_needless(case: NodeCase, view: NodeView) -> bool:
    """Whether the finding has ended by itself since the first treatment was asked for."""
    return view.checked > case.treatments[-1].when and _is_over(_undone(case), view)


def _unless_held(case: NodeCase, step: str, now: float, with_step: NodeCase | None = None) -> NodeCase:
    """Begin a step, if nobody has stopped the case."""
    return waiting(case, f"held by {case.held}") if case.held else begun(with_step or case, step, now)


def _is_renewed(case: NodeCase, view: NodeView) -> bool:
    """Whether the last treatment was carried out."""
    return view.booted > case.boot + BOOT_APART or view.is_mended


def _boot(case: NodeCase, view: NodeView, around: Around, now: float) -> NodeCase:
    what = case.treatments[-1].what
    if _is_renewed(case, view) and not view.states & BOOTING:
        return moved(case, BOOTED, now)
    if view.refused:
        return _again(case, around, now, f"{what}: {view.refused}")
    if what in BY_NODE and _is_needless(case, view):
        return moved(_undone(case), BOOTED, now, OVER)
    is_late = now - case.since > around.rules.boot_seconds
    if what == POWER_CYCLE and view.power == OFF and case.step != START:
        return _unless_held(case, START, now)
    if now - max(case.since, case.begun) > around.rules.boot_seconds:
        return _again(case, around, now, f"{what}: the node has not done it in time")
    begins_again = what == POWER_CYCLE and view.power == OFF and now - case.begun >= SHOWN_AFTER and not is_late
    return _unless_held(case, START, now) if begins_again else case


def _measure(case: NodeCase, view: NodeView, around: Around, now: float) -> NodeCase:
    """Let its checks and the measurement prove the node; twice, if a treatment before has not helped."""
    if view.checked <= view.booted:
        late = now - case.since > around.rules.boot_seconds
        return _again(case, around, now, "its health check does not report") if late else case
    if view.faults:
        return _again(case, around, now, f"after the treatment it has {', '.join(view.names)}")
    if case.step == MEASURE:
        if view.measured == FAILED:
            return _again(case, around, now, "it is slower than it should be")
        if view.measured == PASSED:
            passed = case.passed + 1
            counted = replace(case, passed=passed, step="", begun=0.0)
            return moved(counted, MEASURED, now) if passed >= min(2, len(case.treatments)) else counted
        if view.measured == RUNS or now - case.begun < SHOWN_AFTER:
            return case
    return _unless_held(case, MEASURE, now)


def _return(case: NodeCase, view: NodeView, around: Around, now: float) -> NodeCase:
    if view.faults:
        return _again(case, around, now, f"after the measurement it has {', '.join(view.names)}")
    return case if case.step and now - case.begun < SHOWN_AFTER else _unless_held(case, RETURN, now)


def _again(case: NodeCase, around: Around, now: float, why: str) -> NodeCase:
    """Treat the node once more, if that is possible."""
    return moved(case, DRAINED, now, why) if around.left else _given_up(case, around, now, f"{why}; ")
