#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a rolling change of nodes, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_rolling
short_description: Take nodes out of service for a change, within a budget, and back into it
description:
  - The steps of the playbook C(gpucluster.slurm.rolling), on the serving controller. The playbook changes the nodes
    between the steps.
  - What has been done is kept in C(/var/lib/gpucluster-slurm/rolling.json), so that the next run continues one that was
    killed, also from another control host.
  - Only nodes that this module has drained are resumed.
attributes:
  diff_mode: {support: none}
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_rolling]
"""

EXAMPLES = r"""
- name: Wait for nodes that can be changed
  gpucluster.slurm.slurm_rolling: {step: next, nodes: "gpu[001-200]", change: new kernel}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from ..module_utils.acceptance import progress as acceptance
from ..module_utils.client import drains
from ..module_utils.client.commands import CommandError, output, run
from ..module_utils.client.scontrol import CLEARED, show
from ..module_utils.host import run_lock
from ..module_utils.host.files import File, FileError, write
from ..module_utils.host.json_files import read_record
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option
from ..module_utils.language.hostlist import expand, fold
from ..module_utils.rolling import next_nodes as rolling
from ..module_utils.rolling.next_nodes import CHANGED, DONE, FAILED, SILENT, WORKING, Decision, Job, Node, RollingError

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import RollingResult

RECORD = "/var/lib/gpucluster-slurm/rolling.json"
RESERVATION = "gpucluster_rolling"
"""In it, changed nodes run the jobs that check them, and no others."""
POLL = 3
"""Seconds between two polls of the jobs."""
TRIES = 10
"""How often the reservation's removal is tried."""
REASON = 200
"""Characters of a reason."""
UNCHECKED = {WORKING: "changed", CHANGED: "checked"}
"""States of nodes that are taken for the change and have not returned, with what is done to them."""


class Rolling:
    """A rolling change, with its record."""

    def __init__(self, params: Params, check_mode: bool) -> None:
        """Read the record."""
        self.params, self.check_mode, self.changed = params, check_mode, False
        self.names = expand(params["nodes"])
        self.record = read_record(RECORD)
        if self.record.get("change") != params["change"]:
            self.record = {"change": params["change"]}
        self.record.setdefault("nodes", {})
        self.others: list[run_lock.RunLock] = []
        self.batch: list[str] = []

    # -- the record --------------------------------------------------------------------------------------------------

    @property
    def progress(self) -> dict[str, str]:
        """The states of the nodes."""
        return {name: entry["state"] for name, entry in self.record["nodes"].items()}

    @property
    def errors(self) -> dict[str, str]:
        """The errors of the nodes that have failed."""
        return {name: entry["why"] for name, entry in self.record["nodes"].items() if entry["state"] == FAILED}

    def record_states(self, states: dict[str, tuple[str, str]]) -> None:
        """Record the state of nodes, with the error. An empty state is that of a node to be changed."""
        for name, (state, why) in states.items():
            self.record["nodes"][name] = {"state": state, "why": why, "at": time.strftime("%Y-%m-%dT%H:%M:%S")}
        if not self.check_mode:
            write([File(RECORD, f"{json.dumps(self.record, indent=1)}\n".encode())])

    # -- Slurm -------------------------------------------------------------------------------------------------------

    def update(self, names: Iterable[str], *settings: str) -> None:
        """Change nodes of Slurm."""
        names = [*names]
        if names:
            self.changed = True
        if names and not self.check_mode:
            output(["scontrol", "update", f"NodeName={fold(names)}", *settings])

    def drain(self, names: Iterable[str], why: str) -> None:
        """Drain nodes, with a reason that begins as those of rolling changes do."""
        reason = re.sub(r"[^ -!#-&(-~]", "", f"{drains.ROLLING}{why.replace(drains.APPENDED, ': ')}")
        self.update(names, "State=DRAIN", f"Reason={reason[:REASON].rstrip()}")

    def resume(self, names: Iterable[str]) -> None:
        """Resume nodes that rolling has drained, and no others."""
        nodes = nodes_now()
        self.update([name for name in names if name in nodes and nodes[name].ours], "State=RESUME", f"Reason={CLEARED}")

    def decide(self) -> Decision:
        """What happens next, by the present state of Slurm. Raises CommandError and RollingError."""
        nodes = nodes_now()
        sizes = Counter(place for node in nodes.values() for place in node.partitions)
        budget = rolling.allowed({key: str(value) for key, value in self.params["budget"].items()}, sizes)
        deadline = rolling.deadline_of(
            self.params["deadline"], datetime.fromisoformat(self.record.get("began", datetime.now().isoformat()))
        )
        late = deadline is not None and datetime.now() >= deadline
        return rolling.decide(self.names, nodes, jobs_now(late), self.progress, budget, late)

    # -- the steps ---------------------------------------------------------------------------------------------------

    def begin(self) -> Decision:
        """Check the options, and keep of an earlier run what is done; its other nodes are changed again."""
        self.record["began"] = datetime.now().isoformat(timespec="seconds")
        self.decide()
        unchecked = [name for name, state in self.progress.items() if state in UNCHECKED]
        kept = (name for name, state in self.progress.items() if state in (DONE, CHANGED))
        self.record["nodes"] = {name: self.record["nodes"][name] for name in kept}
        if self.params["unchanged"] is not None:
            nodes, unchanged = nodes_now(), expand(self.params["unchanged"])
            changed = (name for name, state in self.progress.items() if state == CHANGED and name in unchanged)
            self.record["nodes"] = {name: self.record["nodes"][name] for name in changed}
            done = [name for name in unchanged if name in nodes and not nodes[name].first_ours]
            self.record_states({name: (DONE, "") for name in done if name not in unchecked})
        if reserved := reserved_nodes():
            # A run that was killed has left nodes in service that nobody has checked. Jobs that check them go on.
            nodes, left = nodes_now(), [name for name in reserved if self.progress.get(name) != DONE]
            in_service = [name for name in {*unchecked, *left} if name in nodes and not nodes[name].drained]
            self.drain(sorted(in_service), "to be changed")
            self.reserve(left)
        self.record_states({})
        return self.decide()

    def next(self) -> Decision:
        """Drain nodes, and wait a while for ones that can be changed: the batch. Other runs may go on meanwhile."""
        if self.check_mode:
            return self.decide()
        self.release_run_lock()
        until, alone = time.monotonic() + self.params["wait"], False
        while True:
            try:
                decided = self.advance()
            except (CommandError, FileError, OSError) as error:
                # While the state of nodes cannot be read, all of them count as busy.
                decided = Decision(waiting={"all nodes": str(error)})
            # A drained node could have got a job just before, and another run can have changed a node until it ended.
            if decided.ready and not decided.drain and not alone:
                alone = self.acquire_run_lock()
                if alone:
                    continue
            elif not decided.drain and (decided.ready or decided.over):
                self.batch = decided.ready
                new = [name for name in self.batch if self.progress.get(name) != CHANGED]
                self.record_states(dict.fromkeys(new, (WORKING, "")))
                return decided
            if time.monotonic() >= until:
                return decided
            time.sleep(0 if decided.drain else POLL)

    def advance(self) -> Decision:
        """Drain and resume nodes as Slurm's present state demands. Raises CommandError, FileError, OSError."""
        decided = self.decide()
        self.record_states({name: (FAILED, why) for name, why in decided.failed.items()})
        self.resume(decided.resume)
        self.drain(decided.drain, "to be changed")
        for job_id in decided.requeue:
            # A job that has ended meanwhile cannot be requeued.
            self.changed = True
            run(["scontrol", "requeue", job_id])
        return decided

    # -- other runs --------------------------------------------------------------------------------------------------

    def release_run_lock(self) -> None:
        """Let other runs change the cluster. Raises RollingError if one has taken this rolling change over."""
        if this_run := self.params["run"]:
            run_lock.release(run_lock.RUN, this_run)
            if others := run_lock.acquire(run_lock.ROLLING, this_run, self.params["former"]):
                raise RollingError(f"{others[0]['user']} on {others[0]['host']} has taken this rolling change over")

    def acquire_run_lock(self) -> bool:
        """Acquire the run lock. Whether no other run changes the cluster; none can begin until `release_run_lock`."""
        if this_run := self.params["run"]:
            self.others = run_lock.acquire(run_lock.RUN, this_run, self.params["former"])
        return not self.others

    def taken_over(self) -> bool:
        """Whether another run goes on with this rolling change."""
        this_run = self.params["run"]
        return bool(this_run and run_lock.other(run_lock.ROLLING, this_run))

    # -- changed nodes -----------------------------------------------------------------------------------------------

    def resume_reserved(self) -> list[str]:
        """Resume the changed nodes inside of a reservation. Returns those that are ready for a job."""
        errors = {name: str(why) for name, why in self.params["results"].items() if why}
        changed = [name for name in self.params["results"] if name not in errors]
        if self.check_mode:
            return changed
        nodes, absent = self.wait_for_slurmd(changed) if changed else ({}, [])
        errors |= dict.fromkeys(absent, f"slurmd has not registered in {self.params['wait']} s")
        errors |= {
            name: f"somebody else set another reason: {nodes[name].reason}"
            for name in changed
            if name not in errors and not nodes[name].ours
        }
        self.fail(errors)
        ready = [name for name in changed if name not in errors]
        if ready:
            self.record_states(dict.fromkeys(ready, (CHANGED, "")))
            self.reserve(dict.fromkeys([*reserved_nodes(), *ready]))
            self.resume(ready)
        return ready

    def wait_for_slurmd(self, names: list[str]) -> tuple[dict[str, Node], list[str]]:
        """Wait until slurmd has registered on nodes. Returns Slurm's nodes, and the names of those without slurmd."""
        until = time.monotonic() + self.params["wait"]
        while True:
            nodes = nodes_now()
            absent = [name for name in names if name not in nodes or nodes[name].flags & (SILENT | {"INVALID_REG"})]
            if not absent or time.monotonic() >= until:
                return nodes, absent
            time.sleep(POLL)

    def judge(self) -> None:
        """Take checked nodes out of the reservation, and drain those with an error again."""
        results = {name: str(why) for name, why in self.params["results"].items()}
        self.fail({name: why for name, why in results.items() if why})
        self.record_states({name: (DONE, "") for name, why in results.items() if not why})
        self.reserve(name for name in reserved_nodes() if name not in results)

    def fail(self, wrong: dict[str, str]) -> None:
        """Drain nodes with their error, unless somebody else has drained them, and record them as failed."""
        nodes = nodes_now() if wrong else {}
        for name, why in wrong.items():
            if name in nodes and (nodes[name].ours or not nodes[name].drained):
                self.drain([name], f"failed: {why}")
        self.record_states({name: (FAILED, why) for name, why in wrong.items()})

    def reserve(self, names: Iterable[str]) -> None:
        """Bring the reservation for the jobs that check nodes up to date. Without nodes it is removed.

        Drained nodes stay in it while jobs of a run that was killed check them: Slurm removes no reservation with jobs.
        """
        names, exists = [*names], bool(reserved_nodes())
        named, settings = f"ReservationName={RESERVATION}", [f"Nodes={fold(names)}"]
        settings += [f"Users={','.join(self.params['users'])}"]
        if self.check_mode or not (names or exists):
            return
        if not names:
            output(["scontrol", "delete", named])
        elif exists:
            output(["scontrol", "update", named, *settings])
        else:
            flags = ["StartTime=now", "Duration=UNLIMITED", "Flags=MAINT,IGNORE_JOBS"]
            output(["scontrol", "create", "reservation", named, *settings, *flags])

    def remove_reservation(self) -> None:
        """Remove the reservation, with the jobs in it. Cancelled jobs hold it for a moment. Raises CommandError."""
        if self.check_mode or not reserved_nodes():
            return
        run(["scancel", f"--reservation={RESERVATION}"])
        for _ in range(TRIES):
            if not run(["scontrol", "delete", f"ReservationName={RESERVATION}"]).status:
                return
            time.sleep(POLL)
        self.reserve([])

    def end(self) -> Decision:
        """End the run: nodes that were taken for a change and did not return have failed. Without any, forget it."""
        if self.taken_over():
            return self.decide()
        lost = {name: state for name, state in self.progress.items() if state in UNCHECKED and name in self.names}
        self.fail({name: f"the run ended while it was {UNCHECKED[state]}" for name, state in lost.items()})
        self.remove_reservation()
        decided = self.decide()
        complete = all(self.progress.get(name) == DONE for name in self.names)
        for path in (RECORD, acceptance.ROLLING_RECORD):
            if complete and not self.check_mode and os.path.exists(path):
                os.unlink(path)
        return decided


def nodes_now() -> dict[str, Node]:
    """All nodes of Slurm. Raises CommandError."""
    return rolling.nodes_of(show("node"), show("reservation"))


def jobs_now(late: bool) -> list[Job]:
    """The jobs that have nodes, after the deadline with the ones that may start again. Raises CommandError."""
    jobs = rolling.jobs_of(output(rolling.SQUEUE))
    if not late:
        return jobs
    may = {record["JobId"] for record in show("job") if (record.get("Requeue"), record.get("BatchFlag")) == ("1", "1")}
    return [Job(job.job_id, job.user, job.nodes, job.end, job.job_id in may) for job in jobs]


def reserved_nodes() -> list[str]:
    """The nodes of the reservation for the jobs that check nodes; none without it. Raises CommandError."""
    found = next((record for record in show("reservation") if record.get("ReservationName") == RESERVATION), {})
    return expand(found.get("Nodes", ""))


def answer(change: Rolling, decided: Decision, ready: list[str]) -> RollingResult:
    """The result of a step."""
    failed = {**change.errors, **decided.failed}
    failed = {name: why for name, why in failed.items() if name in change.names}
    return {
        "changed": change.changed,
        "ready": ready,
        "changed_earlier": [name for name in change.batch if change.progress.get(name) == CHANGED],
        "over": decided.over,
        "ok": decided.over and not (failed or decided.late or decided.stopped or decided.later),
        "table": rolling.table(decided, change.progress, failed, len(change.names)),
        "done": sorted(name for name, state in change.progress.items() if state == DONE),
        "broken": failed,
        "left": {**decided.out, **decided.late},
        "others": run_lock.shown(change.others),
    }


def take_step(params: Params, check_mode: bool) -> RollingResult:
    """Take a step. Raises CommandError, FileError, OSError and RollingError."""
    change, step = Rolling(params, check_mode), params["step"]
    if step in ("begin", "next", "end"):
        decided: Decision = getattr(change, step)()
        return answer(change, decided, change.batch)
    ready = change.resume_reserved() if step == "prove" else []
    if step == "judge":
        change.judge()
    return answer(change, change.decide(), ready)


ARGUMENTS = {
    "step": option(
        "V(begin) begins a run, or continues an earlier one with the same O(change).\n"
        "V(next) drains nodes and waits until some of them can be changed. The control host repeats it until then, "
        "and shows the table whenever it differs.\n"
        "V(prove) resumes changed nodes inside of a reservation, where only jobs of O(users) run. It has no end, so "
        "that nodes of a run that was killed get no other jobs.\n"
        "V(judge) takes these nodes out of the reservation. It drains those with an error again.\n"
        "V(end) ends the run.",
        choices=["begin", "next", "prove", "judge", "end"],
        required=True,
    ),
    "nodes": option("All nodes of the run, a hostlist.", required=True),
    "change": option("What is changed, as a digest. A run with another one begins anew.", required=True),
    "budget": option(
        "How many nodes of a partition may be out of service for the change at the same time, as a number or a share, "
        "by partition. The key V(*) is for the others.",
        "dict",
        default={"*": "10%"},
    ),
    "deadline": option(
        "A date and time by the clock of the controller, or a number of minutes after the beginning of this run. "
        "After it, jobs that allow it are requeued. Nodes with other jobs are left as they are, and named.",
        default="",
    ),
    "unchanged": option(
        "For V(begin), the nodes that need no change, a hostlist. They count as done, and no other node does, "
        "whatever an earlier run has recorded. A node that a rolling change has drained is checked all the same. "
        "Without it, the record of an earlier run with the same O(change) tells which nodes are done."
    ),
    "results": option(
        "For V(prove) and V(judge), the error of each changed node; an empty text without one.", "dict", default={}
    ),
    "users": option("Users of the jobs that check nodes.", "list", elements="str", default=["root"]),
    "wait": option(
        "Seconds that V(next) waits for a node, and V(prove) for the registration of nodes.", "int", default=60
    ),
    "run": run_lock.OPTION,
    "former": run_lock.FORMER,
}


def main() -> None:
    run_module(lambda module: take_step(module.params, module.check_mode), ARGUMENTS)


if __name__ == "__main__":
    main()
