# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures a node that is out of service, by jobs in a reservation of its own, and takes it out of service again.

A drained node takes no job. So the reservation comes first; then the node is resumed, and jobs of the measuring user
alone can start there. At the end the node is drained as before, and then the reservation is removed. Each step looks
at what Slurm has, so that a program that was killed, or its successor on another controller, goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from ..acceptance.quick_level import MeasuringPlan, next_task, result
from ..acceptance.tasks import PROGRAM, Task, command, job_of
from ..client import drains, slurm_records
from ..client.commands import CommandError, output, run
from ..client.scontrol import Record, node_record, reason_of, show
from ..jobs import batch
from .case_states import FAILED, OUT, PASSED

START_SECONDS = 900.0
"""How long a job may wait, although its node has no other."""
NOTHING = "nothing can be measured on the node"
SENT_SECONDS = 120.0
"""How long after the end of its job a result is waited for."""

_SQUEUE = ["squeue", "--all", "--noheader", "--states=all", "--format=%i %T"]


@dataclass(frozen=True)
class NodeMeasuring:
    """The record of a measurement. Times are seconds since 1970."""

    node: str
    key: str
    """Tells measurements of a node apart."""
    begun: float
    reason: str
    """With which the node was drained; empty if it was in service."""
    job: int = 0
    """The job that was submitted last; 0 if its result is there."""
    since: float = 0.0
    """When that was."""
    outputs: tuple[Mapping[str, Any], ...] = ()
    """What the jobs have sent, as `acceptance/tasks.read_outputs` takes it."""
    verdict: str = ""
    """PASSED or FAILED; empty while it is measured."""
    why: tuple[str, ...] = field(default=())
    """What is slow or broken, or why it was not measured."""

    @property
    def reservation(self) -> str:
        return f"{drains.MEASURES}{self.node}"

    @property
    def job_name(self) -> str:
        """That of the next job."""
        return f"repair-{self.key}-{len(self.outputs) + 1}"


class SentResult(NamedTuple):
    """What a job has sent."""

    node: str
    key: str
    job: int
    text: str


def measuring_from_json(content: Mapping[str, Any]) -> NodeMeasuring:
    """A record from its file. Raises TypeError."""
    tuples = {name: tuple(content[name]) for name in ("outputs", "why") if name in content}
    return NodeMeasuring(**{**content, **tuples})


def measuring_to_json(measuring: NodeMeasuring) -> dict[str, Any]:
    """The content of its file."""
    return asdict(measuring)


@dataclass(frozen=True)
class Sender:
    """How a node sends a result to the controllers."""

    controllers: Sequence[str]
    port: int
    reader: str
    """The user who reads it there."""


@dataclass(frozen=True)
class Measurer:
    """Takes the steps of measurements."""

    plan: MeasuringPlan
    sender: Sender
    user: str
    """Who owns the jobs."""
    write: Callable[[NodeMeasuring], None]
    """Keeps a record."""
    as_root: Callable[[], AbstractContextManager[None]]
    """In it, commands are root's: jobs of root, and drains that are a person's, need that."""

    def advance(self, measuring: NodeMeasuring, sent: SentResult | None, now: float) -> NodeMeasuring:
        """Take a step. Returns the record as it is then. Raises CommandError if slurmctld does not answer.

        Args:
            measuring: the record.
            sent: the last result that the node has sent; None without any.
            now: the time.
        """
        if measuring.job and sent and (sent.key, sent.job) == (measuring.key, measuring.job):
            measuring = self._with_output(measuring, sent.text, "")
        task = None if measuring.job else next_task(self.plan, measuring.node, measuring.outputs)
        if not measuring.job and not task:
            why = result(self.plan, measuring.node, measuring.outputs).faults if measuring.outputs else [NOTHING]
            return self._end(measuring, FAILED if measuring.outputs and why else PASSED, why)
        record = node_record(measuring.node)
        if taken := _taken(measuring, record):
            return self._end(measuring, FAILED, [taken])
        if (measuring.job or measuring.outputs) and measuring.reservation not in reservations():
            # A person has returned the node.
            return self._kept(replace(measuring, verdict=FAILED, why=("its reservation was removed",)))
        self._open(measuring, record)
        return self._submit(measuring, task, now) if task else self._wait(measuring, now)

    def _do(self, *command: str) -> None:
        """Let slurmctld change something. Raises CommandError."""
        with self.as_root():
            output(command)

    def _kept(self, measuring: NodeMeasuring) -> NodeMeasuring:
        self.write(measuring)
        return measuring

    def _with_output(self, measuring: NodeMeasuring, text: str, why: str) -> NodeMeasuring:
        """The record with the result of its job."""
        one = {"task": measuring.job_name, "job": measuring.job, "nodes": measuring.node, "text": text, "why": why}
        return self._kept(replace(measuring, job=0, outputs=(*measuring.outputs, one)))

    # -- the node ----------------------------------------------------------------------------------------------------

    def _open(self, measuring: NodeMeasuring, record: Record) -> None:
        """Let jobs of the measurement, and no others, start on the node."""
        if measuring.reservation not in reservations():
            flags = "Flags=MAINT,IGNORE_JOBS"
            named = [f"ReservationName={measuring.reservation}", f"Nodes={measuring.node}", f"Users={self.user}"]
            self._do("scontrol", "create", "reservation", *named, "StartTime=now", "Duration=UNLIMITED", flags)
        if _is_out(record):
            self._do("scontrol", "update", f"NodeName={measuring.node}", "State=RESUME")

    def _end(self, measuring: NodeMeasuring, verdict: str, why: Sequence[str]) -> NodeMeasuring:
        """Take the node out of service as before, if nobody else has, and end the measurement."""
        if measuring.job:
            self._cancel(measuring)
        record = node_record(measuring.node)
        if record and measuring.reason and not _is_out(record):
            self._do("scontrol", "update", f"NodeName={measuring.node}", "State=DRAIN", f"Reason={measuring.reason}")
        if measuring.reservation in reservations() and not self._deleted(measuring):
            return measuring
        return self._kept(replace(measuring, job=0, verdict=verdict, why=tuple(why)))

    def _deleted(self, measuring: NodeMeasuring) -> bool:
        """Remove the reservation. A job that ends holds it for a moment: a later step tries again."""
        with self.as_root():
            return not run(["scontrol", "delete", f"ReservationName={measuring.reservation}"]).status

    def _cancel(self, measuring: NodeMeasuring) -> None:
        """Cancel its job. It is no error if that has ended."""
        with self.as_root():
            run(["scancel", str(measuring.job)])

    # -- its jobs ----------------------------------------------------------------------------------------------------

    def _submit(self, measuring: NodeMeasuring, task: Task, now: float) -> NodeMeasuring:
        """Submit the job of a task, if it was not submitted before this program was killed."""
        known = output([*_SQUEUE, f"--user={self.user}", f"--name={measuring.job_name}"]).split()
        if known:
            return self._kept(replace(measuring, job=int(known[0]), since=now))
        job = self._job(measuring, task)
        as_user = [] if self.user == "root" else ["runuser", "--user", self.user, "--"]
        with self.as_root():
            answer = run([*as_user, *batch.sbatch_arguments(job)], batch.batch_script(job))
        if answer.status:
            raise CommandError(f"no job on {measuring.node}: {batch.refusal(answer.message)}")
        return self._kept(replace(measuring, job=int(answer.output.split(";")[0]), since=now))

    def _job(self, measuring: NodeMeasuring, task: Task) -> batch.Job:
        """The job of a task: it sends its result, since the controller cannot read files of the node."""
        job = job_of(task, self.plan.places, self.plan.site)
        words = [PROGRAM, "send", f"--key={measuring.key}", f"--controllers={','.join(self.sender.controllers)}"]
        words += [f"--port={self.sender.port}", f"--reader={self.sender.reader}"]
        measured = command(task, self.plan.places[measuring.node], self.plan.site)
        return {
            **job,
            "name": measuring.job_name,
            "output": "/dev/null",
            "script": f"#!/bin/sh\n{measured} 2>&1 | {' '.join(words)}\n",
            "options": {**job["options"], "error": "/dev/null", "reservation": measuring.reservation},
        }

    def _wait(self, measuring: NodeMeasuring, now: float) -> NodeMeasuring:
        """Wait for the end of the job. It fails if it does not start, or sends nothing."""
        # A job that slurmctld has forgotten is an error of squeue.
        words = run([*_SQUEUE, f"--jobs={measuring.job}"]).output.split()
        state = words[1] if len(words) > 1 else batch.UNKNOWN
        waited = now - measuring.since
        if state == "PENDING" and waited > START_SECONDS:
            self._cancel(measuring)
            return self._with_output(measuring, "", f"job {measuring.job} has not started in {waited:.0f} s")
        if state not in batch.FINAL_STATES and state != batch.UNKNOWN:
            return measuring if state == "PENDING" else self._kept(replace(measuring, since=now))
        if waited > SENT_SECONDS:
            return self._with_output(measuring, "", f"job {measuring.job} has ended as {state}, and has sent nothing")
        return measuring


def _is_out(record: Record) -> bool:
    return bool({*slurm_records.states(record.get("State", ""))} & OUT)


def _taken(measuring: NodeMeasuring, record: Record) -> str:
    """Why the node cannot be measured any more; empty if it can."""
    if not record:
        return "Slurm does not know the node"
    reason = reason_of(record).text
    return f"the node was taken out of service: {reason}" if _is_out(record) and reason != measuring.reason else ""


def reservations() -> set[str]:
    """The names of all reservations. Raises CommandError."""
    return {each.get("ReservationName", "") for each in show("reservation")}
