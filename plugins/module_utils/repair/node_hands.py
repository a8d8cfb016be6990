# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does the steps of cases in Slurm. Each asks slurmctld first, since a person may have taken the node meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from ..client import drains, slurm_records
from ..client.commands import output
from ..client.scontrol import CLEARED, Record, node_record, reason_of
from ..health.finding_table import POWER_CYCLE, REBOOT
from ..language.hostlist import expand
from .case_states import BOOTING, FREE, OURS, NodeView
from .cases import DRAIN, MEASURE, REQUEUE, RETURN, START, TREAT, NodeCase, Treatment
from .measured_node import NodeMeasuring
from .node_views import node_view

MACHINE = "slurm-machine"
"""The program that starts and stops machines (key `machines`)."""
JOB_FIELDS = ("JobID", "State", "NodeList", "Requeue", "BatchFlag", "UserName")


@dataclass(frozen=True)
class JobsOfNode:
    """The jobs on a node that have not ended."""

    all: frozenset[int]
    movable: frozenset[int]
    """Batch jobs that run, and allow a requeue."""
    users: Mapping[int, str]
    """The user of each job."""


def jobs_on_nodes(names: Iterable[str]) -> Mapping[str, JobsOfNode]:
    """The jobs on these nodes, by node. Raises CommandError."""
    wanted = {*names}
    if not wanted:
        return {}
    end = "\x1e"
    answer = output(slurm_records.squeue(JOB_FIELDS, end, f"--nodelist={','.join(sorted(wanted))}"))
    found: dict[str, list[Mapping[str, str]]] = {name: [] for name in wanted}
    for job in slurm_records.jobs(answer, JOB_FIELDS, end):
        for name in wanted.intersection(expand(job["NodeList"])):
            found[name].append(job)
    return {name: _jobs(jobs) for name, jobs in found.items()}


def _jobs(jobs: Iterable[Mapping[str, str]]) -> JobsOfNode:
    """The jobs of a node."""
    numbers = {int(job["JobID"]): job for job in jobs}
    movable = [
        number
        for number, job in numbers.items()
        if (job["State"], job["Requeue"], job["BatchFlag"]) == ("RUNNING", "1", "1")
    ]
    users = {number: job["UserName"] for number, job in numbers.items()}
    return JobsOfNode(frozenset(numbers), frozenset(movable), users)


def reason_for(case: NodeCase) -> str:
    """The reason of a node in treatment."""
    return f"{drains.REPAIR}case {case.number}: {case.finding}"


@dataclass(frozen=True)
class NodeHands:
    """Does the steps of cases."""

    as_root: Callable[[], AbstractContextManager[None]]
    """In it, commands are root's."""
    write_measuring: Callable[[NodeMeasuring], None]
    """Keeps the record of a measurement."""
    tell_users: Callable[[NodeCase, Mapping[int, str]], None]
    """Tells the users of jobs that they were requeued for a case."""

    def carry_out(self, case: NodeCase, now: float) -> None:
        """Do the step of a case, unless somebody else has the node by now. Raises CommandError or OSError."""
        record = node_record(case.node)
        if not record:
            return
        jobs = jobs_on_nodes([case.node])[case.node]
        view = node_view(record, None, jobs.all)
        if case.step == DRAIN:
            if view.owner in FREE and not view.reserved:
                self._update(case, "State=DRAIN", f"Reason={reason_for(case)}")
        elif view.owner == OURS:
            self._treat(case, record, view, jobs, now)

    def _treat(self, case: NodeCase, record: Record, view: NodeView, jobs: JobsOfNode, now: float) -> None:
        """Do a step on a node that repair has."""
        if case.step == REQUEUE:
            for number in sorted(jobs.movable):
                why = f"AdminComment=requeued by slurm-repair: {case.node} has {case.finding}"
                self._do("scontrol", "update", f"JobId={number}", why)
                self._do("scontrol", "requeue", str(number))
            self.tell_users(case, {number: jobs.users[number] for number in sorted(jobs.movable)})
        elif case.step == TREAT and view.is_quiet and not view.states & BOOTING:
            self._mend(case, case.treatments[-1])
        elif case.step == START:
            self._do(MACHINE, "start", case.node)
        elif case.step == MEASURE:
            self.write_measuring(NodeMeasuring(case.node, measuring_key(case), now, reason_of(record).text))
        elif case.step == RETURN:
            self._update(case, "State=RESUME", f"Reason={CLEARED}")

    def _mend(self, case: NodeCase, treatment: Treatment) -> None:
        """Begin a treatment. What the node does itself, its health check asks for."""
        if treatment.what == REBOOT:
            # The node stays out of service after its boot.
            self._do("scontrol", "reboot", "ASAP", "nextstate=DOWN", f"reason={reason_for(case)}", case.node)
        elif treatment.what == POWER_CYCLE:
            # At first its operating system is asked.
            is_first = case.begun == treatment.when
            self._do(MACHINE, "stop" if is_first else "off", case.node)

    def _update(self, case: NodeCase, *changes: str) -> None:
        self._do("scontrol", "update", f"NodeName={case.node}", *changes)

    def _do(self, *command: str) -> None:
        with self.as_root():
            output(command)


def measuring_key(case: NodeCase) -> str:
    """The measurement that a case needs now."""
    return f"{case.number}-{case.since:.0f}-{case.passed}"
