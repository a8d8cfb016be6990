#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Submit jobs to Slurm and wait for them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_job
short_description: Submit jobs to Slurm and wait for them
version_added: 0.1.0
author: gpucluster.slurm contributors (@gpucluster)
description:
  - Submits batch jobs, waits until all have ended, and reports for each whether it ended as expected.
  - It waits for all jobs together. Each poll is one C(squeue) for all of them.
  - If the cluster has accounting, the final states are from C(sacct), and a job that does not appear there within a
    minute has failed.
  - Jobs are submitted as the user that runs the module. Use C(become_user) to submit as another user.
  - After O(timeout) the jobs of this module that have not ended are cancelled.
attributes:
  check_mode:
    description: Nothing is submitted. RV(ignore:changed) is true, as it would be; RV(jobs) is empty.
    support: full
  diff_mode:
    description: A job has no state to compare before and after.
    support: none
notes:
  - A submitted job is a change. If the jobs only read, set C(changed_when=false) on the task.
requirements:
  - Slurm's commands (22.05 or later), with a controller that answers
extends_documentation_fragment: [gpucluster.slurm.arguments.slurm_job]
"""

EXAMPLES = r"""
- name: Run one job
  gpucluster.slurm.slurm_job:
    command: nvidia-smi --list-gpus
    partition: gpu
    gres: gpu:1

- name: Run a job on each of two nodes, and wait for both together
  gpucluster.slurm.slurm_job:
    partition: gpu
    command: /usr/local/sbin/gpu-burn-in
    time: "30"
    timeout: 2400
    jobs:
      - {name: burn-in-1, nodelist: gpu001}
      - {name: burn-in-2, nodelist: gpu002}
  become: true
  become_user: alice

- name: Run jobs that are expected not to complete
  gpucluster.slurm.slurm_job:
    jobs:
      - {name: too-large, command: "true", nodes: "9999", expect: REFUSED, expect_reason: Node count}
      - {name: too-long, command: sleep 300, time: "1", expect: TIMEOUT}
      - {name: cancelled, command: sleep 300, cancel_when: running, expect: CANCELLED}
"""

RETURN = r"""
jobs:
  description: The jobs, in the order in which they were given.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the job.
      type: str
      sample: burn-in-1
    job_id:
      description: Slurm's job id; 0 for a job that was refused.
      type: int
      sample: 42
    partition:
      description: Requested partition; empty for the default.
      type: str
      sample: gpu
    status:
      description:
        - V(passed) means that the job ended as expected.
        - V(waiting) means that Slurm had not started the job by O(timeout) or O(busy_timeout).
        - V(failed) is any other case.
      type: str
      sample: passed
    ok:
      description: Whether the status is V(passed).
      type: bool
      sample: true
    state:
      description:
        - Slurm's state, V(REFUSED), or V(UNKNOWN) for a job that Slurm removed from its memory before its end was seen.
      type: str
      sample: COMPLETED
    expected:
      description: The state that was expected.
      type: str
      sample: COMPLETED
    exit_code:
      description: Exit code and signal.
      type: str
      sample: "0:0"
    nodes:
      description: Nodes that the job ran on.
      type: str
      sample: gpu001
    elapsed:
      description: Run time in seconds; for an array, that of its longest task.
      type: int
      sample: 3
    reason:
      description: Slurm's reason for the state, or its message for a refused job.
      type: str
      sample: "ReqNodeNotAvail, UnavailableNodes:gpu002"
    node_states:
      description:
        - For a job with status V(waiting), Slurm's state of each node in its O(nodelist), with the administrator's
          reason.
        - It is more exact than RV(jobs[].reason), which can describe a busy node as down.
      type: dict
      sample: {gpu002: drained by a person (bad DIMM)}
    message:
      description: The difference from the expected end; empty for a job that passed.
      type: str
      sample: "has not started in 300 s: ReqNodeNotAvail; gpu002 is drained by a person (bad DIMM)"
accounting:
  description: Whether the cluster has accounting, so that the states are from C(sacct).
  returned: when jobs were submitted
  type: bool
  sample: true
"""

import os
import pwd
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.client.commands import CommandError, run
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option
from ..module_utils.jobs import batch as slurm
from ..module_utils.language.hostlist import expand

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import EndedJob, JobResult

ACCOUNTING_LAG = 60
"""Seconds until slurmdbd must have the records of slurmctld."""

SUBMITTERS = 8
"""Jobs that are submitted at the same time. sbatch waits most of its time."""

JOB_OPTIONS = {
    "command": option("Command line that the job runs with C(/bin/sh).\nA job has either O(command) or O(script)."),
    "script": option("Text of the batch script, with C(#!) and any C(#SBATCH) lines."),
    "name": option("Name of the job. Without it, V(ansible)."),
    "user": option(
        "Another user, as whom C(sbatch --test-only) asks whether the job has a valid account and QOS.\n"
        "It is not submitted, and other reasons why it could not start now do not count.\n"
        "Only root can ask. Otherwise, and for a user whom this host does not have, the job is left out.",
        version_added="0.2.0",
    ),
    "expect_reason": option("Regular expression that must match a part of Slurm's reason for the end or the refusal."),
    "partition": option("Partition. Without it, the cluster's default."),
    "nodelist": option("Nodes that the job must have, a hostlist."),
    "nodes": option("Number of nodes, or a range such as V(2-4)."),
    "ntasks": option("Number of tasks.", "int"),
    "cpus_per_task": option("CPUs for each task.", "int"),
    "memory": option("Memory for each node, in MiB or with a unit as in V(2G)."),
    "gres": option("Generic resources for each node, such as V(gpu:2)."),
    "array": option(
        "Indexes of a job array, such as V(0-3). The state of the array is that of its first task that is not "
        "V(COMPLETED)."
    ),
    "time": option(
        "Time limit in minutes or as C(days-hours:minutes:seconds). Quote it, since YAML reads V(1:30) as a number."
    ),
    "account": option("Account to charge."),
    "qos": option("Quality of service."),
    "begin": option("Earliest start, such as V(now+1hour)."),
    "output": option("File for the job's output, on the node that runs it. Without it, C(/dev/null)."),
    "options": option(
        "Further long options of C(sbatch), by name without dashes. Use V(true) for an option without a value.\n"
        "Options of a job are added to the options for all jobs.",
        "dict",
    ),
    "expect": option(
        "Expected end of the job. Without it, V(COMPLETED).\n"
        "V(REFUSED) means that C(sbatch) does not accept the job, and V(ACCEPTED) that it would accept that of "
        "O(user).",
        choices=["COMPLETED", "ACCEPTED", "CANCELLED", "FAILED", "OUT_OF_MEMORY", "REFUSED", "TIMEOUT"],
    ),
    "cancel_when": option(
        "State in which the job is cancelled, as soon as a poll sees it.", choices=["pending", "running"]
    ),
}


def wanted_jobs(params: Params) -> list[slurm.Job]:
    """The jobs that the task describes, each with the options for all jobs. Raises ValueError."""
    common = {name: params[name] for name in JOB_OPTIONS if params[name] is not None}
    wanted = []
    for given in [{}] if params["jobs"] is None else params["jobs"]:
        own = {name: value for name, value in given.items() if value is not None}
        # A job's own script replaces the command for all jobs, and the reverse.
        inherited = {
            k: v for k, v in common.items() if k not in ("command", "script") or not {"command", "script"} & set(own)
        }
        options = {**common.get("options", {}), **own.get("options", {})}
        job = {"name": "ansible", "expect": "COMPLETED", **inherited, **own, "options": options}
        if ("command" in job) == ("script" in job):
            raise ValueError(f"job '{job['name']}' needs either command or script")
        if can_ask(job):
            wanted.append(job)
    return wanted


def can_ask(job: slurm.Job) -> bool:
    """Whether the job is one of this user, or of another one of this host, as whom root can ask."""
    try:
        return "user" not in job or (os.geteuid() == 0 and bool(pwd.getpwnam(job["user"])))
    except KeyError:
        return False


def has_accounting() -> bool:
    """Whether the cluster has slurmdbd. Raises CommandError if Slurm's commands are missing or get no answer."""
    answer = run(["scontrol", "show", "config"])
    if answer.status:
        raise CommandError(f"Slurm does not answer: {answer.message}")
    return any(line.startswith("AccountingStorageType ") and "slurmdbd" in line for line in answer.output.split("\n"))


def submit(job: slurm.Job) -> tuple[int, str]:
    """Submit one job: its number, or 0 and Slurm's reason; empty for a job of another user that it would accept."""
    if "user" in job:
        options = ["--chdir=/", "--test-only"]
        answer = run(
            ["runuser", "-u", job["user"], "--", *slurm.sbatch_arguments(job), *options], slurm.batch_script(job)
        )
        return 0, slurm.refusal(answer.message) if slurm.NO_ASSOCIATION.search(answer.message) else ""
    answer = run(slurm.sbatch_arguments(job), slurm.batch_script(job))
    # "12;cluster" in a federation
    return (0, slurm.refusal(answer.message)) if answer.status else (int(answer.output.split(";")[0]), "")


def wait(jobs: dict[int, slurm.Job], until: float, poll: float, busy_timeout: float) -> slurm.Known:
    """Poll the jobs until all have ended, or until a time of the monotonic clock; cancel those with cancel_when.

    If all that are left wait for others, it stops after busy_timeout.
    """
    known: slurm.Known = {}
    others_since: float | None = None
    to_cancel = {job_id: job["cancel_when"].upper() for job_id, job in jobs.items() if job.get("cancel_when")}
    try:
        while True:
            answer = run(slurm.SQUEUE)
            # While a controller restarts, nothing is known about the jobs.
            if answer.status == 0:
                known = slurm.updated(known, slurm.parse_squeue(answer.output), jobs)
            due = {record.job_id for record in known.values() if to_cancel.get(record.job_id) == record.state}
            cancel(due)
            for job_id in due:
                del to_cancel[job_id]
            left = [record for record in known.values() if not record.ended]
            now = time.monotonic()
            if (known and not left) or now >= until:
                return known
            pending = left and all(record.state == "PENDING" for record in left)
            others_since = (others_since or now) if pending else None
            if others_since and now - others_since >= busy_timeout and wait_for_others(left, jobs):
                return known
            time.sleep(poll)
    finally:
        running = {record.job_id for record in known.values() if not record.ended}
        cancel(running if known else set(jobs))


def wait_for_others(left: list[slurm.JobRecord], jobs: dict[int, slurm.Job]) -> bool:
    """Whether all of these jobs wait for nodes that others use."""
    states = node_states([jobs[record.job_id] for record in left])
    own = {record: expand(jobs[record.job_id].get("nodelist") or "") for record in left}
    return all(
        slurm.waits_for_others(record, {name: states[name] for name in names if name in states})
        for record, names in own.items()
    )


def cancel(job_ids: set[int]) -> None:
    """Cancel these jobs. It is no error if one ends in the meantime; squeue shows its state."""
    if job_ids:
        run(["scancel", *map(str, sorted(job_ids))])


def from_accounting(ended: dict[int, list[slurm.JobRecord]], poll: float) -> dict[int, list[slurm.JobRecord]]:
    """The accounting records of these jobs. A job whose end is not recorded in time is left out."""
    until = time.monotonic() + ACCOUNTING_LAG
    booked: dict[int, list[slurm.JobRecord]] = {}
    while missing := ended.keys() - booked.keys():
        answer = run(slurm.sacct_arguments(sorted(missing)))
        for job_id, records in slurm.by_job(slurm.parse_sacct(answer.output)).items():
            complete = slurm.booked(ended[job_id], records)
            if complete:
                booked[job_id] = complete
        if len(booked) < len(ended):
            if time.monotonic() >= until:
                break
            time.sleep(poll)
    return booked


def node_states(jobs: list[slurm.Job]) -> dict[str, str]:
    """State of the nodes that these jobs wait for."""
    hostlists = {job["nodelist"] for job in jobs if job.get("nodelist")}
    if not hostlists:
        return {}
    nodes = f"--nodes={','.join(sorted(hostlists))}"
    answer = run(["sinfo", "--all", "--Node", "--noheader", nodes, "--format=%N|%T|%u|%E"])
    states: dict[str, str] = slurm.parse_sinfo(answer.output)
    return states


@dataclass(frozen=True)
class Submission:
    """A job, and the answer of sbatch."""

    job: slurm.Job
    job_id: int
    """0 for a job that sbatch has refused."""
    refusal: str


def result_of(submission: Submission, record: slurm.JobRecord, status: str, message: str) -> EndedJob:
    """The module's result for a job."""
    return {
        "name": submission.job["name"],
        "job_id": submission.job_id,
        "partition": submission.job.get("partition", ""),
        "status": status,
        "ok": status == "passed",
        "state": record.state,
        "expected": submission.job["expect"],
        "exit_code": record.exit_code,
        "nodes": record.nodes,
        "elapsed": record.elapsed,
        "reason": record.reason,
        "node_states": {},
        "message": message,
    }


def add_node_states(results: list[EndedJob], wanted: list[slurm.Job]) -> None:
    """Put the states of nodes into the results of jobs that wait for them."""
    waiting = [(result, job) for result, job in zip(results, wanted) if result["status"] == "waiting"]
    states = node_states([job for _result, job in waiting])
    for result, job in waiting:
        result["node_states"] = {name: states[name] for name in expand(job.get("nodelist", "")) if name in states}
        result["message"] += "".join(f"; {name} is {state}" for name, state in result["node_states"].items())


def outcome(
    wanted: list[slurm.Job], timeout: int, poll: float, busy_timeout: float, accounting: bool
) -> list[EndedJob]:
    """Submit the jobs, wait for them, and return the result of each."""
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        submissions = [Submission(job, *answer) for job, answer in zip(wanted, pool.map(submit, wanted))]
    jobs = {submission.job_id: submission.job for submission in submissions if submission.job_id}
    begin = time.monotonic()
    seen = slurm.by_job(wait(jobs, begin + timeout, poll, busy_timeout).values()) if jobs else {}
    waited = round(time.monotonic() - begin)
    ended = {job_id: records for job_id, records in seen.items() if slurm.whole(records).ended}
    final = from_accounting(ended, poll) if accounting else ended

    results = []
    for submission in submissions:
        job_id = submission.job_id
        if job_id:
            unseen = [slurm.JobRecord(job_id, state="PENDING", reason="squeue gave no answer")]
            record = slurm.whole(final.get(job_id) or seen.get(job_id) or unseen)
        else:
            state = slurm.ACCEPTED if "user" in submission.job and not submission.refusal else slurm.REFUSED
            record = slurm.JobRecord(0, state=state, reason=submission.refusal)
        status, message = slurm.status_of(submission.job, record, waited)
        if job_id in ended and job_id not in final:
            status, message = "failed", f"{record.state}, but {slurm.NOT_BOOKED} within {ACCOUNTING_LAG} s"
        results.append(result_of(submission, record, status, message))
    add_node_states(results, wanted)
    return results


def failure(results: list[EndedJob]) -> str:
    """One line that names the first ten jobs that did not end as expected; empty if all did."""
    bad = [f"{result['name']}: {result['message']}" for result in results if not result["ok"]]
    if not bad:
        return ""
    more = f"; and {len(bad) - 10} more" if len(bad) > 10 else ""
    return f"{len(bad)} of {len(results)} jobs did not end as expected. {'; '.join(bad[:10])}{more}"


def run_jobs(module: AnsibleModule) -> JobResult:
    """Run the jobs, and return the module's result. Raises ValueError and CommandError."""
    wanted = wanted_jobs(module.params)
    if module.check_mode:
        return {"changed": bool(wanted), "jobs": [], "msg": f"{len(wanted)} jobs would be submitted"}
    accounting = has_accounting()
    params = module.params
    limit = params["timeout"] if params["busy_timeout"] is None else params["busy_timeout"]
    results = outcome(wanted, params["timeout"], params["poll"], limit, accounting)
    message = failure(results)
    return {
        "failed": bool(message),
        "changed": any(result["job_id"] for result in results),
        "jobs": results,
        "accounting": accounting,
        "msg": message or "all jobs ended as expected",
    }


ARGUMENTS = {
    **JOB_OPTIONS,
    "jobs": option(
        "The jobs. The other options are the defaults of each job.\n"
        "Without this option, the other options describe one job.",
        "list",
        elements="dict",
        options=JOB_OPTIONS,
    ),
    "timeout": option("Seconds in which all jobs must end.", "int", default=300),
    "busy_timeout": option(
        "Seconds after which the module no longer waits, if all jobs that are left wait for nodes that others use "
        "(the nodes of their O(nodelist) are in service, and Slurm's reason is V(Resources), for example) or that a "
        "person has drained.\n"
        "Without it, the module waits for these jobs as well until O(timeout).",
        "int",
        version_added="0.2.0",
    ),
    "poll": option("Seconds between two polls of the jobs.", "float", default=1),
}


def main() -> None:
    """Run the module."""
    run_module(run_jobs, ARGUMENTS, failed={"jobs": []})


if __name__ == "__main__":
    main()
