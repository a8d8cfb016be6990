# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The series of slurm-metrics about jobs, from squeue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...client import slurm_records
from ...client.slurm_records import amount, integer, tasks, tres
from ...language.series import Series

RECORD = "\x1e"
"""Behind each job; no name has it."""

JOB_FIELDS = (
    "State",
    "Reason",
    "Partition",
    "UserName",
    "Account",
    "ArrayTaskID",
    "StartTime",
    "NumCPUs",
    "tres-alloc",
)

JOBS = slurm_records.squeue(JOB_FIELDS, RECORD, "--states=all")
"""Shows the jobs that slurmctld has in memory; those that have ended stay there for MinJobAge."""

JOB_STATES: dict[str, tuple[str, ...]] = {
    "PENDING": ("pending",),
    "RUNNING": ("running", "started"),
    "SUSPENDED": ("suspended", "started"),
    "COMPLETED": ("completed", "started", "finished"),
    "CANCELLED": ("cancelled", "started", "finished"),
    "FAILED": ("failed", "started", "finished"),
    "TIMEOUT": ("timeout", "started", "finished"),
    "NODE_FAIL": ("node_failed", "started", "finished"),
    "PREEMPTED": ("preempted", "started", "finished"),
    "BOOT_FAIL": ("bootfail", "started", "finished"),
    "DEADLINE": ("deadline", "started", "finished"),
    "OUT_OF_MEMORY": ("outofmemory", "started", "finished"),
    # squeue shows one flag in place of the state (`job_state_string` in `src/common/slurm_protocol_defs.c`).
    "COMPLETING": ("completing", "started", "finished"),
    "STAGE_OUT": ("stageout", "started", "finished"),
    "CONFIGURING": ("configuring", "running", "started"),
    "EXPEDITING": ("expediting", "pending"),
    "RESIZING": ("resizing", "running", "started"),
    "REQUEUED": ("requeued", "pending"),
    "REQUEUE_FED": ("fed_requeued", "pending"),
    "REQUEUE_HOLD": ("pending",),
    "SPECIAL_EXIT": ("pending",),
    "STOPPED": ("running", "started"),
    "REVOKED": ("revoked",),
    "RESV_DEL_HOLD": ("pending",),
    "SIGNALING": ("signaling", "running", "started"),
}
"""The ends of the names of Slurm's series by the state of a job."""

JOB_SERIES = (*dict.fromkeys(name for names in JOB_STATES.values() for name in names), "hold", "powerup_node")
"""All of them. squeue does not show which jobs wait for nodes that power up."""

NEVER_STARTED = ("CANCELLED", "DEADLINE", "REVOKED")
"""States of jobs that may never have run: their start is the time of their end then."""


@dataclass(frozen=True)
class MetricJob:
    """A job, or the tasks of an array that have not started. Memory is in MiB."""

    state: str
    reason: str
    partition: str
    user: str
    account: str
    tasks: int
    start: int
    """Unix time at which it has started; 0 if it has not, or if that is not known."""
    cpus: int
    memory: float
    gpus: int

    @property
    def states(self) -> tuple[str, ...]:
        """The ends of the names of Slurm's series that count it."""
        return JOB_STATES.get(self.state, ())

    @property
    def pending(self) -> bool:
        return "pending" in self.states

    @property
    def allocated(self) -> bool:
        return "running" in self.states or "suspended" in self.states

    @property
    def could_start(self) -> bool:
        """Whether it waits for nothing but resources, other jobs and the scheduler, which has not seen it yet."""
        return self.pending and self.reason in ("Resources", "Priority", "None")


def read_jobs(text: str) -> list[MetricJob]:
    """The jobs, from the output of JOBS."""
    return [_read_job(*job.values()) for job in slurm_records.jobs(text, JOB_FIELDS, RECORD)]


def _read_job(
    state: str, reason: str, partition: str, user: str, account: str, array: str, start: str, cpus: str, allocated: str
) -> MetricJob:
    started = "started" in JOB_STATES.get(state, ()) and state not in NEVER_STARTED
    resources = tres(allocated)
    return MetricJob(
        state=state,
        reason=reason,
        # Slurm counts a job that waits for one of several partitions in the first of them.
        partition=partition.partition(",")[0],
        user=user,
        account=account,
        tasks=tasks(array),
        start=integer(start) if started else 0,
        cpus=integer(cpus),
        memory=amount(resources.get("mem", ""), "M") / 1024**2,
        gpus=integer(resources.get("gres/gpu", "")),
    )


def count_job_states(jobs: Iterable[MetricJob]) -> dict[str, int]:
    """The number of jobs by the end of the name of Slurm's series.

    Each task of an array counts as long as it waits. Those that were cancelled together count as one.
    """
    counted: Counter[str] = Counter()
    for job in jobs:
        for state in job.states:
            counted[state] += job.tasks if state == "pending" else 1
        if job.pending and job.reason in ("JobHeldUser", "JobHeldAdmin"):
            counted["hold"] += job.tasks
    return {state: counted[state] for state in JOB_SERIES}


def add_up(jobs: Iterable[MetricJob]) -> dict[str, float]:
    """What running and suspended jobs have."""
    own = [job for job in jobs if job.allocated]
    return {"cpus_alloc": sum(job.cpus for job in own), "memory_alloc": sum(job.memory for job in own)}


def add_jobs(series: Series, jobs: Sequence[MetricJob]) -> None:
    """Slurm's series of jobs, except those of GPUs."""
    series.add("slurm_jobs", sum(job.tasks for job in jobs))
    series.add_all("slurm_jobs_", {**count_job_states(jobs), **add_up(jobs)})


def add_queue(series: Series, jobs: Sequence[MetricJob]) -> None:
    """Our series of the queue."""
    series.add("slurm_last_job_start_seconds", max((job.start for job in jobs), default=0))
    waiting: Counter[str] = Counter()
    for job in jobs:
        waiting[job.partition] += job.tasks if job.could_start else 0
    series.add("slurm_jobs_could_start", sum(waiting.values()))
    for name, count in waiting.items():
        series.add("slurm_partition_jobs_could_start", count, partition=name)


def add_users_and_accounts(series: Series, jobs: Sequence[MetricJob]) -> None:
    """Series of each user and account that has a job, with Slurm's names."""
    for prefix, label in (("user", "username"), ("account", "account")):
        groups: dict[str, list[MetricJob]] = {}
        for job in jobs:
            groups.setdefault(job.user if prefix == "user" else job.account, []).append(job)
        for name, own in groups.items():
            states = count_job_states(own)
            values = {
                "jobs": len(own),
                **{f"jobs_{state}": states[state] for state in ("pending", "running", "suspended")},
                **{f"jobs_{what}": value for what, value in add_up(own).items()},
                "jobs_gpus_alloc": sum(job.gpus for job in own if job.allocated),
            }
            series.add_all(f"slurm_{prefix}_", values, **{label: name})
