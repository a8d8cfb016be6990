# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Twelve kinds of faults in mode reboot, in random order, under a stream of jobs with a ledger of its own.

Which kinds come back by themselves, and which need a person, is written in the list below. Meanwhile slurmctld is
killed while a node boots, the other controller takes over, and site.yml and then rolling.yml run while nodes are in
treatment.

The faults are spread over all seven nodes, since a node that was treated twice in seven days is a person's. Rounds
follow each other after five seconds, and not after a minute: one node at a time is in treatment, and each step of a
case is a round. slurmd runs the health check each minute.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.finding_table import NOW, named
from booted_node import (
    CHECK_FAILS,
    CHECK_HANGS,
    CHECK_SUCCEEDS,
    IS_CHECKED,
    LASTS,
    LOSES_DEVICE,
    BootedNode,
    person_lets_it_go_on,
    resets_itself,
    task_does_not_end,
)
from faulty_node import Controllers, Work, driver_says, gpu_is_replaced, in_order, kernel_says, nothing
from job_stream import JobStream, Ledger, Outage
from lab import Lab, Run, with_cluster
from reboots import power

# Forty-five minutes.
pytestmark = pytest.mark.rare

FIRST, SECOND = "case-ctl1", "case-ctl2"
CASES = "/home/cases-state/repair/cases"
BETWEEN, BETWEEN_IN_LIST = "\n}\n{\n", "\n},\n{\n"
"""Between the texts of two files of cases."""
TAGS = "--tags=base,compute,repair"
"""The stage base installs what nodes are measured with."""

SEED = 20261130
EVERY = 2.5
"""Minutes between two faults, or more while the node of the next one is not in service."""
TAKEOVER, SITE = 10, 18
"""The minutes after which slurmctld of the first controller is killed, and site.yml runs; rolling.yml follows."""
WRITTEN = 7
"""Seconds after which slurmctld has written that it has asked for a boot. If it is killed just after a boot, its
successor does not know of the boot's end before ResumeTimeout."""
AWAY = 3
"""Minutes for which the first controller is away at least."""
PATIENCE = 25
"""Minutes after which a fault whose case does not go on is given up."""
MOST_MINUTES = 75

IN_SERVICE = ("idle", "mixed", "allocated", "completing", "planned")
BY_ITSELF, BY_A_PERSON = "comes back by itself", "needs a person"

LAST_STEP = "End the rolling change, and record what is left"
"""The task of rolling.yml that tells what it has done."""
MARK = """\
---
- name: Leave a mark
  ansible.builtin.shell: date >>/run/rolled
  changed_when: true
"""

TIMER = "/etc/systemd/system/slurm-repair.timer.d"
QUICK = f"""
mkdir -p {TIMER}
printf '[Timer]\\nOnUnitInactiveSec=\\nOnUnitInactiveSec=5s\\nAccuracySec=1s\\n' >{TIMER}/test.conf
systemctl daemon-reload
systemctl restart slurm-repair.timer
systemctl start slurm-repair.service
"""
SLOW = f"rm -r {TIMER}; systemctl daemon-reload; systemctl restart slurm-repair.timer"

GPU1, GPU2 = "NVRM: Xid (PCI:0000:3b:00): ", "NVRM: Xid (PCI:0000:86:00): "
XID_79 = kernel_says(f"{GPU1}79, pid=2, GPU has fallen off the bus.")
ROWS = "<remapped_rows><remapped_row_{0}>Yes</remapped_row_{0}></remapped_rows>"
NARROW = (
    "<pci><pci_gpu_link_info><link_widths><current_link_width>8x</current_link_width>"
    "<max_link_width>16x</max_link_width></link_widths></pci_gpu_link_info></pci>"
)


class Kind(NamedTuple):
    """A kind of fault, and how it ends."""

    finding: str
    ends: str
    happens: Work
    mends: Work = nothing
    """What a person does about it."""
    later: Work | None = None
    """What happens to the node when its case is open."""
    boots: int = 1
    """How often repair boots the node at most."""

    @property
    def is_urgent(self) -> bool:
        """Whether jobs of the node cannot go on."""
        return named(self.finding).severity == NOW


KINDS = (
    Kind("xid-79", BY_ITSELF, XID_79),
    Kind("xid-62", BY_ITSELF, kernel_says(f"{GPU2}62, pid=2, 0000 0000")),
    Kind("filesystem-read-only", BY_ITSELF, kernel_says("EXT4-fs (sda1): Remounting filesystem read-only")),
    Kind("gpu-rows-pending", BY_ITSELF, driver_says(ROWS.format("pending"))),
    Kind("gpu-missing", BY_ITSELF, LOSES_DEVICE),
    Kind("check-hangs", BY_ITSELF, CHECK_HANGS),
    Kind("kill-task-failed", BY_ITSELF, task_does_not_end),
    # The machine resets itself before repair has treated it, or while it does.
    Kind(
        "kernel-lockup",
        BY_ITSELF,
        kernel_says("watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [python3:4711]"),
        later=resets_itself,
    ),
    # Two boots do not mend it.
    Kind(
        "gpu-recovery-action",
        BY_A_PERSON,
        in_order(driver_says("<gpu_recovery_action>Reset</gpu_recovery_action>"), LASTS),
        in_order(driver_says(""), LASTS, IS_CHECKED, person_lets_it_go_on),
        boots=2,
    ),
    # A new part, a link that only a boot without power would mend, and what only the site knows.
    Kind(
        "gpu-rows-failed",
        BY_A_PERSON,
        in_order(driver_says(ROWS.format("failure")), LASTS),
        in_order(gpu_is_replaced, LASTS),
        boots=0,
    ),
    Kind("gpu-pcie", BY_A_PERSON, in_order(driver_says(NARROW), LASTS), in_order(driver_says(""), LASTS), boots=0),
    Kind("check-of-site", BY_A_PERSON, CHECK_FAILS, CHECK_SUCCEEDS, boots=0),
)

MOST_BOOTS = 2
"""How often a node may be treated in seven days (docs/admin/repair.md)."""


def in_random_order(nodes: Sequence[str], seed: int) -> list[tuple[Kind, str]]:
    """All kinds with their nodes, of which none is treated too often."""
    dice = random.Random(seed)
    while True:
        order = [*dice.sample(KINDS, len(KINDS))]
        places = [*dice.sample(nodes, len(nodes)), *dice.sample(nodes, len(nodes))][: len(KINDS)]
        boots = [sum(kind.boots for kind, place in zip(order, places) if place == node) for node in nodes]
        if max(boots) <= MOST_BOOTS:
            return [*zip(order, places)]


@dataclass
class Observation:
    """What the controllers have shown last."""

    controllers: Controllers
    before: set[int]
    """The numbers of the cases of before."""
    cases: dict[int, dict[str, Any]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    """The state of each node, as Slurm shows it."""
    moved: list[tuple[str, int, str]] = field(default_factory=list)
    """The controller that has shown a case in a new state first, with its number and the state."""

    def look(self) -> None:
        """Ask the controller that serves. While none does, all stays as it was seen last."""
        serving = self.controllers.serving
        show = "timeout 60 slurm-repair list --all --json && timeout 60 sinfo --noheader --Node --format='=%N %T'"
        answer = self.controllers.lab.host(serving).run(show)
        if answer.rc:
            return
        first, *lines = answer.stdout.strip().split("\n")
        self.states = dict(line[1:].split() for line in lines)
        found = {case["number"]: case for case in json.loads(first) if case["number"] not in self.before}
        for number, case in found.items():
            if case["state"] != self.cases.get(number, {}).get("state"):
                self.moved.append((serving, number, case["state"]))
                print(f"    {case['node']} {case['finding']}: {case['state']} {case['why']}", flush=True)
        self.cases = found

    def case_of(self, node: str, finding: str) -> dict[str, Any] | None:
        """The case of a fault; None without one."""
        wanted = (node, finding)
        return next((case for case in self.cases.values() if (case["node"], case["finding"]) == wanted), None)

    def is_in_service(self, node: str) -> bool:
        """Whether jobs can start on a node that has no case."""
        is_open = any(
            case["node"] == node and case["state"] not in ("returned", "closed") for case in self.cases.values()
        )
        return self.states.get(node) in IN_SERVICE and not is_open

    def has_one(self, state: str, seconds: float = 0) -> bool:
        """Whether a case has been in this state for so long."""
        return any(case["state"] == state and time.time() - case["since"] >= seconds for case in self.cases.values())


@dataclass
class FaultInTime:
    """A fault, and how far it has come. Moments are seconds since 1970."""

    kind: Kind
    node: BootedNode
    begins: float
    """The minute."""
    stage: str = "waits"
    since: float = 0.0
    """The minute of the stage."""
    began: float = 0.0
    mended: float = 0.0
    """When a person was about to mend it; 0 if none was."""
    reset: float = 0.0
    """When the node was about to be reset by itself; 0 if it was not."""

    def case_in(self, seen: Observation) -> dict[str, Any] | None:
        """Its case; None without one."""
        return seen.case_of(self.node.name, self.kind.finding)

    def advance(self, minute: float, seen: Observation, is_free: bool) -> None:
        """Bring it further, if it is time. is_free: it may begin, as far as others are concerned."""
        kind, name, case = self.kind, self.node.name, self.case_in(seen)
        if self.stage == "waits" and is_free and minute >= self.begins and seen.is_in_service(name):
            self.began = time.time()
            kind.happens(self.node)
            self._reach("broken", minute)
        elif self.stage == "broken" and case and kind.later and not self.reset:
            self.reset = time.time()
            kind.later(self.node)
        elif self.stage == "broken" and case and case["state"] == "person":
            self._reach("person", minute)
        # A person comes later, and finds that nobody else has done anything.
        elif self.stage == "person" and minute - self.since > 1:
            self.mended = time.time()
            kind.mends(self.node)
            self._reach("mended", minute)
        elif self.stage in ("broken", "mended") and case and seen.is_in_service(name):
            self._reach("over", minute)
        assert self.stage in ("waits", "over") or minute - self.since < PATIENCE, (name, kind.finding, self.stage, case)

    def _reach(self, stage: str, minute: float) -> None:
        self.stage, self.since = stage, minute
        print(f"minute {minute:4.1f}: {self.node.name} {stage} ({self.kind.finding})", flush=True)


class Takeover:
    """slurmctld of the first controller is killed while a node boots, and starts again after the other has worked."""

    def __init__(self, controllers: Controllers) -> None:
        self.controllers, self.stage, self.since = controllers, "waits", 0.0
        self.killed = 0.0
        """When that was, in seconds since 1970."""

    def advance(self, minute: float, seen: Observation) -> None:
        """Kill slurmctld, or start it, if it is time."""
        lab, first, second = self.controllers.lab, self.controllers.first, self.controllers.second
        if self.stage == "waits" and minute >= TAKEOVER and seen.has_one("treated", WRITTEN):
            self.killed = time.time()
            lab.command(first, "systemctl kill --signal=KILL slurmctld; systemctl stop slurmctld")
            self._reach("away", minute, second)
        has_worked = any(where == second for where, _number, _state in seen.moved)
        if self.stage == "away" and minute - self.since >= AWAY and has_worked:
            lab.command(first, "systemctl start slurmctld")
            self._reach("back", minute, first)

    def _reach(self, stage: str, minute: float, serving: str) -> None:
        self.stage, self.since, self.controllers.serving = stage, minute, serving
        print(f"minute {minute:4.1f}: {self.controllers.first} {stage}", flush=True)


@dataclass
class PlaybookRun:
    """A run of a playbook while a node is in treatment."""

    lab: Lab
    pool: ThreadPoolExecutor
    booted: Sequence[str]
    """All boots of nodes."""
    words: Sequence[str]
    """The name of the playbook, and its arguments."""
    before: int = 0
    """How many boots there were when the run began."""
    run: Future[Run] | None = None

    def begin(self, minute: float) -> None:
        """Start it."""
        self.before = len(self.booted)
        self.run = self.pool.submit(self.lab.playbook, *self.words)
        print(f"minute {minute:4.1f}: {self.words[0]}.yml begins", flush=True)

    @property
    def is_over(self) -> bool:
        return self.run is not None and self.run.done()

    @property
    def runs(self) -> bool:
        return self.run is not None and not self.run.done()

    def judge(self) -> Run:
        """Return the run. It fails for no host, apart from nodes that boot meanwhile."""
        assert self.run is not None
        run, booted = self.run.result(), self.booted[self.before :]
        print(f"{self.words[0]}.yml: {run.rc}, failed: {run.failed}, changed: {run.changed}, boots: {booted}")
        assert {*run.failed} <= {*booted}
        assert run.stats
        return run


class RollingRun(PlaybookRun):
    """A run of rolling.yml: while nodes are in treatment, and without faults on nodes that it could take."""

    def judge(self) -> Run:
        """It has changed the other nodes, and has left those in treatment out."""
        run = super().judge()
        left = {row for *_where, result in run.results for row in result.get("table", ()) if row.startswith("left out")}
        (end,) = (result for _host, task, result in run.results if task.endswith(LAST_STEP) and "broken" in result)
        print(f"rolling.yml: done: {end['done']}, left out: {end['left']}", *sorted(left), sep="\n    ")
        assert any("by repair" in row for row in left), left
        assert (end["ok"], end["broken"]) == (True, {})
        assert end["done"]
        return run


@pytest.fixture(name="controllers")
def two_controllers(lab: Lab) -> Iterator[Controllers]:
    """The first controller serves before the test and after it. Rounds follow each other quickly."""
    controllers = Controllers(lab, FIRST, SECOND, FIRST)
    lab.wait_for(FIRST, "timeout 60 scontrol ping", f"at {FIRST} is UP")
    for name in (FIRST, SECOND):
        lab.command(name, QUICK)
    yield controllers
    lab.command(FIRST, "systemctl start slurmctld")
    for name in (FIRST, SECOND):
        lab.command(name, SLOW)


@pytest.fixture(name="treating")
def mode_of_the_cluster(lab: Lab, tmp_path: Path) -> Iterator[Lab]:
    """The cluster file has mode reboot for the test."""
    treating = with_cluster(lab, tmp_path, {**lab.cluster, "repair": {"mode": "reboot"}})
    run = treating.playbook("site", TAGS)
    assert run.rc == 0, run.failed
    yield treating
    assert lab.playbook("site", TAGS).rc == 0


@pytest.fixture(name="booted")
def machines_with_power(lab: Lab) -> Iterator[list[str]]:
    """Nodes start again after their systemd has rebooted. All that have booted."""
    with power(*lab.nodes) as booted:
        yield booted


@pytest.fixture(name="nodes")
def nodes_with_stand_ins(
    lab: Lab, controllers: Controllers, treating: Lab, booted: list[str]
) -> Iterator[dict[str, BootedNode]]:
    """The nodes in mode reboot, which are well before the test and after it."""
    assert treating.nodes == lab.nodes
    assert booted == []
    nodes = {name: BootedNode(lab, controllers, name) for name in lab.nodes}
    with ExitStack() as stack:
        for node in nodes.values():
            stack.enter_context(node.prepared())
        for name in nodes:
            lab.wait_until_idle(FIRST, name)
        yield nodes


def happen(
    faults: Sequence[FaultInTime], takeover: Takeover, site: PlaybookRun, rolling: PlaybookRun, seen: Observation
) -> None:
    """Let all faults happen, until all nodes are back."""
    begin = time.monotonic()
    seen.look()
    while takeover.stage != "back" or not rolling.is_over or any(fault.stage != "over" for fault in faults):
        minute = (time.monotonic() - begin) / 60
        assert minute < MOST_MINUTES, [(fault.node.name, fault.kind.finding, fault.stage) for fault in faults]
        takeover.advance(minute, seen)
        if takeover.stage == "back" and not site.run and minute >= SITE and seen.has_one("booted"):
            site.begin(minute)
        # A fault that nobody has found yet is one that rolling.yml would find.
        unfound = any(fault.stage == "broken" and not fault.case_in(seen) for fault in faults)
        if site.is_over and not rolling.run and not unfound and seen.has_one("booted"):
            rolling.begin(minute)
        for place, fault in enumerate(faults):
            others = [before for before in faults[:place] if before.node is fault.node]
            is_free = not rolling.runs and all(before.stage == "over" for before in others)
            fault.advance(minute, seen, is_free)
        time.sleep(3)
        seen.look()
    print(f"measured: {len(faults)} faults in {(time.monotonic() - begin) / 60:.0f} minutes")


class Ended(NamedTuple):
    """A case at its end, as its file has it."""

    node: str
    finding: str
    states: list[tuple[str, float]]
    """The states, with the times at which they were reached."""
    treatments: list[Any]

    @property
    def ends(self) -> str:
        """How it has ended, as the list says it."""
        names = [state for state, _when in self.states]
        if "person" in names:
            return BY_A_PERSON
        return BY_ITSELF if names[-2:] == ["measured", "returned"] else f"otherwise: {' '.join(names)}"

    def last(self, state: str) -> float:
        """When a state was reached last; 0 if it was not."""
        return max((when for name, when in self.states if name == state), default=0.0)


def case_files(controllers: Controllers) -> dict[int, Ended]:
    """All cases, by their numbers."""
    text = controllers.lab.host(controllers.serving).run(f"cat {CASES}/*.json").stdout.strip()
    contents = json.loads(f"[{text.replace(BETWEEN, BETWEEN_IN_LIST)}]")
    return {
        each["number"]: Ended(
            each["node"],
            each["finding"],
            [*((state, when) for state, when in each["reached"]), (each["state"], each["since"])],
            each["treatments"],
        )
        for each in contents
    }


def outage_of(fault: FaultInTime, case: Ended) -> Outage:
    """The time in which a node must get no job. A person's word is the proof of what only a person mends."""
    proven = case.last("measured") or fault.mended
    opened = case.states[0][1]
    kind = fault.kind
    return Outage(case.node, case.finding, fault.began, opened, proven, kind.is_urgent, fault.reset)


def print_minutes(faults: Sequence[FaultInTime], ended: Mapping[tuple[str, str], Ended]) -> None:
    """Print how long nodes were away that have come back by themselves."""
    away, treated = [], []
    for fault in faults:
        case = ended[fault.node.name, fault.kind.finding]
        if case.ends == BY_ITSELF:
            away.append((case.last("returned") - fault.began) / 60)
            treated.append((case.last("returned") - case.last("drained")) / 60)
            print(f"    {case.finding}: {away[-1]:.1f} minutes, of which {treated[-1]:.1f} in treatment")
    for what, minutes in (("from fault to return", away), ("in treatment", treated)):
        print(f"measured: {what}: median {statistics.median(minutes):.1f} minutes, longest {max(minutes):.1f}")


def judge_jobs(ledger: Ledger, outages: Sequence[Outage], killed: float) -> None:
    """No job has started on a broken node, and none was lost that Slurm lets survive."""
    unkept = ledger.changed_at(killed)
    wrong, lost = ledger.lost(outages)
    again = sum(len(starts) - 1 for starts in ledger.starts.values())
    print(f"measured: {len(ledger.jobs)} jobs, {again} starts after a requeue, {lost} lost with a node that was reset")
    print(f"measured: {len(unkept)} jobs changed in the seconds before slurmctld was killed, and are not judged")
    assert ledger.within(outages) == []
    assert {number: what for number, what in wrong.items() if number not in unkept} == {}


def test_nodes_come_back_by_themselves_or_need_a_person_as_the_list_says(
    lab: Lab, controllers: Controllers, treating: Lab, booted: list[str], nodes: dict[str, BootedNode], tmp_path: Path
) -> None:
    (tmp_path / "mark.yml").write_text(MARK)
    words = ("rolling", "-e", f"rolling_tasks={tmp_path}/mark.yml", "-e", "rolling_budget=2")
    known = case_files(controllers)
    assert not any(case.treatments for case in known.values()), "nodes were treated before: make the scenario anew"
    assert lab.command(FIRST, "slurm-repair list").count("\n") == 0, "no case is open"
    order = in_random_order([*nodes], SEED)
    print(f"seed {SEED}: {', '.join(f'{kind.finding} ({node})' for kind, node in order)}")
    faults = [FaultInTime(kind, nodes[node], place * EVERY) for place, (kind, node) in enumerate(order)]
    seen, takeover, stream = Observation(controllers, {*known}), Takeover(controllers), JobStream(lab, FIRST)
    stream.start([FIRST, SECOND, *lab.nodes])
    try:
        with ThreadPoolExecutor(1) as pool:
            site = PlaybookRun(treating, pool, booted, ("site", TAGS))
            rolling = RollingRun(treating, pool, booted, words)
            happen(faults, takeover, site, rolling, seen)
            ledger = stream.finish(600)
    finally:
        stream.stop()
    print(lab.command(FIRST, "slurm-repair list --all"))
    ended = [case for number, case in case_files(controllers).items() if number not in known]
    assert sorted((case.node, case.finding, case.ends) for case in ended) == sorted(
        (fault.node.name, fault.kind.finding, fault.kind.ends) for fault in faults
    )
    print(f"boots: {', '.join(booted)}")
    cases = {(case.node, case.finding): case for case in ended}
    print_minutes(faults, cases)
    judge_jobs(
        ledger, [outage_of(fault, cases[fault.node.name, fault.kind.finding]) for fault in faults], takeover.killed
    )
    site.judge()
    rolling.judge()
    assert {where for where, _number, _state in seen.moved} == {FIRST, SECOND}
    assert sum(case.ends == BY_ITSELF for case in ended) >= 8


def test_a_job_that_cannot_go_on_starts_again_when_its_node_is_proven(
    lab: Lab, controllers: Controllers, nodes: dict[str, BootedNode]
) -> None:
    """On the node that was treated least: one that was treated twice is for a person."""
    known = case_files(controllers)
    treated = {name: sum(len(case.treatments) for case in known.values() if case.node == name) for name in nodes}
    name = min(nodes, key=lambda node: treated[node])
    submit = f"timeout 60 sbatch --parsable --requeue --nodelist={name} --output=/dev/null --wrap='sleep 600'"
    job = lab.command(FIRST, submit)
    show = f"SLURM_TIME_FORMAT=%s timeout 60 scontrol --oneliner show job {job}"
    try:
        lab.wait_for(FIRST, show, "JobState=RUNNING")
        XID_79(nodes[name])
        requeued = lab.wait_for(FIRST, show, "Restarts=1", 240)
        assert f"AdminComment=requeued by slurm-repair: {name} has xid-79" in requeued
        again = lab.wait_for(FIRST, show, "JobState=RUNNING", 600)
    finally:
        lab.command(FIRST, f"timeout 60 scancel {job}")
    (case,) = (case for number, case in case_files(controllers).items() if number not in known)
    assert (case.node, case.finding, case.ends) == (name, "xid-79", BY_ITSELF)
    given = int(again.partition(" StartTime=")[2].split()[0])
    print(f"measured: job {job} was requeued, and given the node {given - case.last('measured'):.0f} s after its proof")
    assert given >= int(case.last("measured"))
