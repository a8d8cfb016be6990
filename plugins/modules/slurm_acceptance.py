#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of an acceptance run, on the controller and on nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_acceptance
short_description: Measure nodes with jobs in a reservation, and collect what they print
description:
  - The steps of the playbook C(gpucluster.slurm.accept), and of the acceptance tests of C(gpucluster.slurm.rolling).
    All but V(read) and V(keep) run on the serving controller.
  - What has been measured is kept in C(/var/lib/gpucluster-slurm/accept/run.json), so that the next run with the same
    O(change) continues one that was killed.
  - Running jobs are not disturbed. The reservation C(accept) keeps new jobs away from the nodes, or that of the
    rolling change.
attributes:
  diff_mode: {support: none}
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_acceptance]
"""

EXAMPLES = r"""
- name: Choose the nodes
  gpucluster.slurm.slurm_acceptance: {step: begin, nodes: "gpu[001-200]", change: quick}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

from ..module_utils.acceptance import progress, runs
from ..module_utils.acceptance.progress import ENDED, FAILED, READ, SUBMITTED, TaskJob
from ..module_utils.client.commands import CommandError, output, run
from ..module_utils.client.scontrol import records, show
from ..module_utils.host import run_lock
from ..module_utils.host.files import File, write
from ..module_utils.host.json_files import read_record
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option, several, switch
from ..module_utils.jobs import batch
from ..module_utils.language.errors import CollectionError
from ..module_utils.language.hostlist import expand, fold
from ..module_utils.rolling import next_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..plugin_utils.results.module_results import AcceptanceOutput, AcceptanceResult

RECORD = "/var/lib/gpucluster-slurm/accept/run.json"
RUNS = "/var/lib/gpucluster-slurm/report/acceptance.json"
"""The last runs, on the host of the page about the cluster."""
RESERVATION = "accept"
RESERVED_MINUTES = 60
"""The reservation lasts so much longer than the longest job may take, since Slurm starts no job that could run past its
end. Each step prolongs it, and that of a run that was killed ends by itself."""
POLL = 3
"""Seconds between two polls of the jobs."""
LARGEST_OUTPUT = 4 << 20
"""Bytes of an output that are read."""
DAY = 86400


class AcceptanceError(CollectionError):
    """Why a run does not go on."""


class TaskEntry(TypedDict):
    """A task in the record."""

    nodes: str
    """A hostlist."""
    job: int
    state: str
    why: str
    text: str
    since: float


class Acceptance:
    """An acceptance run, with its record."""

    def __init__(self, params: Params, check_mode: bool) -> None:
        """Read the record."""
        self.params, self.check_mode, self.changed = params, check_mode, False
        self.rolling = bool(params["reservation"])
        self.reservation = params["reservation"] or RESERVATION
        self.path = progress.ROLLING_RECORD if self.rolling else RECORD
        self.lock = run_lock.ROLLING if self.rolling else run_lock.ACCEPT
        self.record = read_record(self.path)
        if self.record.get("change") != params["change"]:
            self.record = {"change": params["change"], "old": self.record.get("tasks", {})}
        for key in ("tasks", "left"):
            self.record.setdefault(key, {})
        self.others: list[run_lock.RunLock] = []
        self.lines: list[str] = []
        self.prolonged = False

    @property
    def tasks(self) -> dict[str, TaskEntry]:
        """The tasks so far, by name."""
        return cast("dict[str, TaskEntry]", self.record["tasks"])

    def save(self) -> None:
        """Write the record, which only root can read. Raises AcceptanceError if another run has taken this one over."""
        if self.params["run"] and run_lock.other(self.lock, self.params["run"]):
            raise AcceptanceError("another run of the playbook goes on with this one")
        if not self.check_mode:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            write([File(self.path, f"{json.dumps(self.record)}\n".encode(), mode=0o600)])

    # -- the steps ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Choose the nodes; a run of accept.yml that continues keeps its nodes."""
        if (this_run := self.params["run"]) and not self.rolling:
            former, take_over = self.params["former"], self.params["take_over"]
            self.others = run_lock.acquire(run_lock.ACCEPT, this_run, former, take_over, self.check_mode)
            if self.others:
                return
        self.cancel(entry["job"] for entry in self.record.pop("old", {}).values() if entry["state"] == SUBMITTED)
        nodes, jobs = nodes_now(), self.jobs_of_others()
        self.allowed(nodes)
        self.forget({*expand(self.params["fresh"])})
        # Within the reservation of a rolling change, a node has jobs of this change alone, which are about to end.
        waits = self.rolling or bool(self.params["budget"])
        choice = progress.choose(expand(self.params["nodes"]), nodes, jobs, waits)
        known = [] if self.rolling else self.record.get("nodes")
        self.record["nodes"] = [name for name in choice.taken if not known or name in known]
        self.record["left"] = choice.left
        # What has failed is tried again.
        self.record["tasks"] = {name: entry for name, entry in self.tasks.items() if entry["state"] != FAILED}
        self.lines = progress.table({}, [], {}, choice.left)[1:]
        self.save()

    def forget(self, names: set[str]) -> None:
        """Forget what was measured on nodes, and cancel their jobs."""
        old = {name: entry for name, entry in self.tasks.items() if names & {*expand(entry["nodes"])}}
        self.cancel(entry["job"] for entry in old.values() if entry["state"] == SUBMITTED)
        for name in old:
            del self.tasks[name]

    def next(self) -> None:
        """Submit the jobs that are missing, and wait a while for the end of all."""
        until = time.monotonic() + self.params["wait"]
        while True:
            self.poll()
            self.save()
            if not self.unfinished() or time.monotonic() >= until:
                return
            time.sleep(POLL)

    def store(self) -> None:
        """Put what jobs have printed into the record."""
        names = {entry["job"]: name for name, entry in self.tasks.items()}
        for given in self.params["outputs"]:
            if entry := self.tasks.get(names.get(given["job"], "")):
                entry["text"], entry["state"] = given["text"], READ
                entry["why"] = "; ".join(filter(None, (entry["why"], given["why"])))
        self.save()

    def end(self) -> None:
        """End the run, and forget it."""
        if self.params["run"] and run_lock.other(run_lock.ACCEPT, self.params["run"]):
            return
        self.cancel(entry["job"] for entry in self.tasks.values() if entry["state"] == SUBMITTED)
        if reserved_nodes(RESERVATION) is not None and not self.check_mode:
            self.changed = True
            # Cancelled jobs hold it for a moment.
            for _ in range(10):
                if not run(["scontrol", "delete", f"ReservationName={RESERVATION}"]).status:
                    break
                time.sleep(POLL)
        if not self.check_mode and os.path.exists(RECORD):
            os.unlink(RECORD)
        if self.params["run"]:
            run_lock.release(run_lock.ACCEPT, self.params["run"])

    # -- Slurm -------------------------------------------------------------------------------------------------------

    def budget(self) -> dict[str, str]:
        """The budget as texts; without one, no node with jobs is reserved."""
        return {key: str(value) for key, value in self.params["budget"].items()} or {next_nodes.ALL: "1"}

    def allowed(self, nodes: dict[str, next_nodes.Node]) -> dict[str, int]:
        """How many nodes of each partition may be reserved while they have jobs. Raises RollingError."""
        return next_nodes.allowed(self.budget(), sizes_of(nodes), "accept_budget")

    def unfinished(self) -> list[str]:
        """The tasks of this round without an end."""
        known = {name: entry["state"] for name, entry in self.tasks.items()}
        return [task["name"] for task in self.params["tasks"] if known.get(task["name"], SUBMITTED) == SUBMITTED]

    def jobs_of_others(self) -> list[next_nodes.Job]:
        """The jobs that have nodes, except those of this run."""
        own = {str(entry["job"]) for entry in self.tasks.values()}
        return [job for job in next_nodes.jobs_of(output(next_nodes.SQUEUE)) if job.job_id not in own]

    def poll(self) -> None:
        """Compare the tasks with Slurm's jobs, and submit those whose nodes are reserved. Raises CommandError."""
        nodes, others = nodes_now(), self.jobs_of_others()
        tasks = {task["name"]: task for task in self.params["tasks"]}
        unfinished = self.unfinished()
        wanted = list(dict.fromkeys(name for task in unfinished for name in expand(tasks[task]["nodes"])))
        reserved = self.reserve(wanted, nodes, others)
        busy = next_nodes.jobs_by_node(others)
        answer = run([f"--user={self.params['user']}" if word == "--me" else word for word in batch.SQUEUE])
        if answer.status:
            return  # while a controller restarts, nothing is known about the jobs
        ids = [entry["job"] for entry in self.tasks.values() if entry["state"] == SUBMITTED and entry["job"]]
        known = batch.updated({}, batch.parse_squeue(answer.output), ids).values()
        ours = {record.job_id: record for record in known}
        running = {host for record in known if has_begun(record) for host in expand(record.nodes)}
        for name in unfinished:
            own = expand(tasks[name]["nodes"])
            if name not in self.tasks:
                self.start(tasks[name], own, reserved, nodes, busy)
                continue
            entry = self.tasks[name]
            # The time counts while its nodes have no job, of others or of this run.
            if {*own} & {*running, *busy}:
                entry["since"] = time.time()
            job = TaskJob(name, tuple(own), ours.get(entry["job"]))
            entry["state"], entry["why"] = progress.judge_job(job, nodes, time.time() - entry["since"])
            if entry["state"] == FAILED:
                self.cancel([entry["job"]])
        waiting = {name: next_nodes.describe_last(busy[name]) for name in wanted if name in busy}
        states = {name: self.tasks[name]["state"] if name in self.tasks else "" for name in tasks}
        self.lines = progress.table(states, running, waiting, self.record["left"])

    def start(
        self,
        task: Params,
        own: list[str],
        reserved: list[str],
        nodes: dict[str, next_nodes.Node],
        busy: dict[str, list[next_nodes.Job]],
    ) -> None:
        """Submit the job of a task, if its nodes are reserved. It fails if one is lost, or busy and not waited for."""
        if {*own} <= {*reserved}:
            self.submit(task)
            return
        reasons = [f"{name} is {why}" for name in own if (why := progress.why_out(nodes.get(name)))]
        if not self.params["budget"]:
            reasons += [f"{name} has got {next_nodes.describe_last(busy[name])}" for name in own if name in busy]
        if self.rolling:
            reasons += [f"{name} is not in the reservation {self.reservation}" for name in own if name not in reserved]
        if reasons:
            self.tasks[task["name"]] = new_entry(task["nodes"], 0, FAILED, reasons[0])

    def reserve(self, wanted: list[str], nodes: dict[str, next_nodes.Node], others: list[next_nodes.Job]) -> list[str]:
        """Bring the reservation up to date, and return its nodes. Raises CommandError."""
        before = reserved_nodes(self.reservation)
        if self.rolling:
            return before or []
        budget = self.allowed(nodes) if self.params["budget"] else {}
        names = progress.to_reserve(wanted, before or [], nodes, others, budget)
        if self.check_mode or not names:
            return names
        named, minutes = f"ReservationName={RESERVATION}", RESERVED_MINUTES
        minutes += max((int(task["job"].get("time") or 0) for task in self.params["tasks"]), default=0)
        if before is None:
            self.changed = True
            settings = ["StartTime=now", f"Duration={minutes}", f"Nodes={fold(names)}"]
            output(["scontrol", "create", "reservation", named, *settings, f"Users={self.params['user']}", FLAGS])
        else:
            more = [f"Nodes={fold(names)}"] if {*names} != {*before} else []
            if more or not self.prolonged:
                output(["scontrol", "update", named, f"EndTime=now+{minutes}minutes", *more])
        self.prolonged = True
        return names

    def submit(self, task: Params) -> None:
        """Submit the job of a task; a refusal is its failure."""
        if self.check_mode:
            return
        self.save()
        self.changed = True
        options = {**task["job"].get("options", {}), "reservation": self.reservation}
        job = {**task["job"], "options": options}
        answer = run([*as_user(self.params["user"]), *batch.sbatch_arguments(job)], batch.batch_script(job))
        if answer.status:
            self.tasks[task["name"]] = new_entry(task["nodes"], 0, FAILED, batch.refusal(answer.message))
        else:
            number = int(answer.output.split(";")[0])
            self.tasks[task["name"]] = new_entry(task["nodes"], number, SUBMITTED)
            self.save()

    def cancel(self, job_ids: Iterable[int]) -> None:
        """Cancel jobs of this run. It is no error if one has ended."""
        numbers = sorted({number for number in job_ids if number})
        if numbers and not self.check_mode:
            self.changed = True
            run(["scancel", *map(str, numbers)])


FLAGS = "Flags=MAINT,IGNORE_JOBS"


def has_begun(record: batch.JobRecord | None) -> bool:
    """Whether a job has nodes now."""
    return record is not None and record.state != "PENDING" and not record.ended


def new_entry(nodes: str, job: int, state: str, why: str = "") -> TaskEntry:
    """A task in the record."""
    return {"nodes": nodes, "job": job, "state": state, "why": why, "text": "", "since": time.time()}


def as_user(user: str) -> list[str]:
    """The words before a command that another user runs."""
    return [] if user == "root" else ["runuser", "--user", user, "--"]


def nodes_now() -> dict[str, next_nodes.Node]:
    """All nodes of Slurm. Raises CommandError."""
    return next_nodes.nodes_of(show("node"), show("reservation"))


def switches_now() -> dict[str, str]:
    """The switch of each node, where the site has topology.conf (topology/tree)."""
    leaves = [record for record in records(run(["scontrol", "show", "topology"]).output) if record.get("Level") == "0"]
    return {name: leaf["SwitchName"] for leaf in leaves for name in expand(leaf.get("Nodes", ""))}


def sizes_of(nodes: dict[str, next_nodes.Node]) -> Counter[str]:
    """The number of nodes of each partition."""
    return Counter(place for node in nodes.values() for place in node.partitions)


def reserved_nodes(name: str) -> list[str] | None:
    """The nodes of a reservation; None without it. Raises CommandError."""
    found = next((record for record in show("reservation") if record.get("ReservationName") == name), None)
    return None if found is None else expand(found.get("Nodes", ""))


def read(jobs: Iterable[int], directory: str) -> list[AcceptanceOutput]:
    """What jobs have printed on this node. Files of earlier runs are removed."""
    found: list[AcceptanceOutput] = []
    for number in jobs:
        text, why = "", ""
        try:
            with open(f"{directory}/{number}.out", "rb", opener=_without_links) as file:
                text = file.read(LARGEST_OUTPUT).decode(errors="replace")
        except OSError as error:
            why = f"its output cannot be read: {error.strerror}"
        found.append(
            {
                "task": "",
                "job": number,
                "nodes": "",
                "text": text,
                "why": f"{why} {_last_error(number, directory)}".strip() if not text else "",
            }
        )
    for path in Path(directory).glob("[0-9]*.*"):
        if path.lstat().st_mtime < time.time() - DAY:
            path.unlink()
    return found


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _last_error(number: int, directory: str) -> str:
    """The last line that a job has printed to standard error."""
    try:
        with open(f"{directory}/{number}.err", "rb", opener=_without_links) as file:
            lines = file.read(LARGEST_OUTPUT).decode(errors="replace").strip().split("\n")
    except OSError:
        return ""
    return lines[-1][:300]


def keep(run: Params, check_mode: bool) -> None:
    """Put a run among those that the page shows. Raises AcceptanceError if the host has no page."""
    if not os.path.isdir(os.path.dirname(RUNS)):
        raise AcceptanceError(f"{os.path.dirname(RUNS)} is missing: site.yml makes it for the key report")
    if not check_mode:
        write([File(RUNS, f"{json.dumps(runs.kept(read_record(RUNS), run))}\n".encode(), mode=0o600)])


def outputs_of(tasks: dict[str, TaskEntry]) -> list[AcceptanceOutput]:
    """All outputs in the record, and the tasks that have failed."""
    return [
        {"task": name, "job": entry["job"], "nodes": entry["nodes"], "text": entry["text"], "why": entry["why"]}
        for name, entry in tasks.items()
        if entry["state"] in (READ, FAILED)
    ]


def take_step(params: Params, check_mode: bool) -> AcceptanceResult:
    """Take a step. Raises CommandError, FileError, OSError and RollingError."""
    step = params["step"]
    result: AcceptanceResult = {
        "changed": False,
        "ready": [],
        "over": False,
        "ok": True,
        "table": [],
        "taken": "",
        "left": {},
        "switches": {},
        "reads": {},
        "outputs": [],
        "others": [],
    }
    if step == "read":
        return {**result, "outputs": read(params["jobs"], params["directory"])}
    if step == "keep":
        keep(params["result"], check_mode)
        return {**result, "changed": True}
    current = Acceptance(params, check_mode)
    try:
        getattr(current, step)()
    except CommandError as error:
        # While slurmctld does not answer, the run waits.
        if step != "next":
            raise
        return {**result, "table": [f"waiting   {error}"]}
    names = {task["name"] for task in params["tasks"]}
    ended = {name: entry for name, entry in current.tasks.items() if entry["state"] == ENDED and name in names}
    reads: dict[str, list[int]] = {}
    if not current.unfinished():
        for entry in ended.values():
            # Slurm runs the script on the node that it knows first.
            for name in expand(entry["nodes"]):
                reads.setdefault(name, []).append(entry["job"])
    return {
        **result,
        "changed": current.changed,
        "ready": [*reads],
        "switches": switches_now() if step == "begin" else {},
        "reads": reads,
        "over": step == "next" and not current.unfinished() and not ended,
        "ok": not any(entry["state"] == FAILED for entry in current.tasks.values()),
        "table": current.lines,
        "taken": fold(current.record.get("nodes", [])),
        "left": current.record["left"],
        "outputs": outputs_of(current.tasks) if step in ("begin", "store") else [],
        "others": run_lock.shown(current.others),
    }


ARGUMENTS = {
    "step": option(
        "V(begin) chooses the nodes, or continues an earlier run with the same O(change).\n"
        "V(next) submits the missing jobs of O(tasks), and waits for their end. The control host repeats it until "
        "then, and shows the table whenever it differs.\n"
        "V(read) returns, on a node, what the O(jobs) have printed there.\n"
        "V(store) puts O(outputs) into the record, and returns all of them.\n"
        "V(end) cancels jobs that are left, removes the reservation and the record.\n"
        "V(keep) puts a O(result) among those that the page about the cluster shows, on the host of the page.",
        choices=["begin", "next", "read", "store", "end", "keep"],
        required=True,
    ),
    "nodes": option("All nodes that the run may measure, a hostlist.", default=""),
    "change": option("What is measured, as a digest. A run with another one begins anew.", default=""),
    "tasks": several(
        "For V(next), the tasks of a round.",
        "dict",
        options={
            "name": option("Its name, the same in each run.", required=True),
            "nodes": option("Its nodes, a hostlist.", required=True),
            "job": option(
                "The batch job, with options as of the module M(gpucluster.slurm.slurm_job).", "dict", required=True
            ),
        },
    ),
    "outputs": several(
        "For V(store), what jobs have printed.",
        "dict",
        options={
            "job": option("Number of the job.", "int", required=True),
            "text": option("What it has printed.", required=True),
            "why": option("Why there is nothing, or not all.", default=""),
        },
    ),
    "jobs": several("For V(read), the numbers of the jobs.", "int"),
    "directory": option("For V(read), where the jobs write.", "path", default="/var/lib/gpucluster-slurm/accept"),
    "result": option("For V(keep), the run as the page shows it (C(docs/design/report.md)).", "dict", default={}),
    "budget": option(
        "How many nodes with jobs of others may be reserved at the same time, as a number or a share, by partition. "
        "The key V(*) is for the others. Without it, such nodes are left out.",
        "dict",
        default={},
    ),
    "reservation": option(
        "The reservation of a rolling change, which has the nodes already and stays as it is. The record is then "
        "C(/var/lib/gpucluster-slurm/accept/rolling.json). Without it, the module makes the reservation C(accept).",
        default="",
    ),
    "fresh": option(
        "For V(begin), the nodes that were changed since they were measured, a hostlist. They are measured anew.",
        default="",
    ),
    "user": option("User of the jobs.", default="root"),
    "take_over": switch("For V(begin), whether this run begins although one from another control host has not ended."),
    "wait": option("Seconds that V(next) waits for the end of jobs.", "int", default=60),
    "run": run_lock.OPTION,
    "former": run_lock.FORMER,
}


def main() -> None:
    run_module(lambda module: take_step(module.params, module.check_mode), ARGUMENTS)


if __name__ == "__main__":
    main()
