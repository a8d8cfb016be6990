# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each pair of owners: another one has the node and repair wants it, or the reverse (docs/design/repair.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance import progress
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import drains
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.scontrol import Record, records, to_change
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import reset
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.causes import Case, causes
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.controller_facts import read_node
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.diagnosis import permit_repair
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.evidence import (
    ClusterEvidence,
    DaemonState,
    HostEvidence,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.finding_table import REBOOT, named
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs import health_check
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.brakes import FULL, Rules
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.case_states import Around, NodeView, next_case
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.cases import (
    BOOTED,
    CLOSED,
    DRAIN,
    DRAINED,
    MEASURE,
    MEASURED,
    PERSON,
    RETURN,
    SAVED,
    TREATED,
    Fault,
    NodeCase,
    Treatment,
    moved,
    opened,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.measured_node import NodeMeasuring
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.node_views import NodeReport, node_view
from ansible_collections.gpucluster.slurm.plugins.module_utils.rolling.next_nodes import decide, node_of, nodes_of
from ansible_collections.gpucluster.slurm.plugins.module_utils.rolling.node_removal import Claims, decide_removal
from plain_host import cluster

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

NOW = 1.8e9
WRONG = {"xid-79": "GPU lost"}
OURS = f"{drains.REPAIR}xid-79"
IN_TREATMENT = ("IDLE+DRAIN", "DOWN*+DRAIN", "MIXED+DRAIN", "IDLE+DRAIN+REBOOT_ISSUED")
"""States of a node that repair has."""
REASONS = (OURS, f"{OURS}{drains.APPENDED}{drains.REBOOTED}", f"{OURS}{drains.APPENDED}Kill task failed")
"""Its reasons: Slurm may append one."""


def line(state: str, reason: str = "", user: str = "root", more: str = "") -> str:
    """A line of `scontrol --oneliner show node`."""
    said = f" Reason={reason} [{user}@1795817005]" if reason else ""
    return f"NodeName=n1 State={state} Partitions=gpu  BootTime=1795816158{said}{more}"


def record(state: str, reason: str = "", user: str = "root", more: str = "") -> Record:
    (found,) = records(line(state, reason, user, more))
    return found


def case_of(state: str) -> NodeCase:
    """A case whose evidence is saved, or that is further."""
    case = opened(1, "n1", [Fault(named("xid-79"), "GPU lost")], NOW)
    return moved(case, state, NOW)


def after(case: NodeCase, found: Record, wrong: dict[str, str] | None = None) -> NodeCase:
    """The case after a round in which repair may do everything."""
    view = node_view(found, NodeReport("n1", NOW + 1, WRONG if wrong is None else wrong))
    return next_case(case, view, Around(Rules(mode=FULL), 2), NOW + 2)


# -- another one has the node ------------------------------------------------------------------------------------------

OTHERS = {
    "a person": "new DIMMs",
    "rolling": f"{drains.ROLLING}to be changed",
    "accept": f"{drains.ACCEPT}stream 59 GB/s",
    "remove_nodes": f"{drains.LEAVING}leaves the cluster",
    "reset": reset.DRAIN,
    "MIG": drains.MIG,
    "the NVIDIA driver": drains.DRIVER,
    "Slurm": "Kill task failed",
}


@pytest.mark.parametrize("owner", sorted({*OTHERS} - {drains.SLURM}))
@pytest.mark.parametrize("appended", ["", f"{drains.APPENDED}{drains.REBOOTED}", f"{drains.APPENDED}{OURS}"])
def test_repair_waits_for_an_owner(owner: str, appended: str) -> None:
    case = after(case_of(SAVED), record("IDLE+DRAIN", OTHERS[owner] + appended))
    assert (case.state, case.step, case.why) == (SAVED, "", f"{owner} has the node")


def test_all_owners_are_tested() -> None:
    assert {*drains.OWNERS.values()} - {*OTHERS} == {"the health check", "repair"}


@pytest.mark.parametrize("state", ["IDLE+MAINTENANCE", "MIXED+RESERVED", "IDLE+DRAIN+MAINTENANCE"])
def test_repair_waits_for_a_reservation(state: str) -> None:
    """Those of maintenance, of accept and of the jobs that check a rolling change as well."""
    reason = f"{drains.HEALTH}xid-79: GPU lost" if "DRAIN" in state else ""
    case = after(case_of(SAVED), record(state, reason, more=" ReservationName=week"))
    assert (case.state, case.step) == (SAVED, "")
    assert case.why.startswith("it is in the reservation ")


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("IDLE", ""),
        ("MIXED", ""),
        ("IDLE+DRAIN", f"{drains.HEALTH}xid-79: GPU lost"),
        # Slurm is often faster than the health check.
        ("IDLE+DRAIN", OTHERS[drains.SLURM]),
        # A resumed node may keep its old reason.
        ("IDLE", "new DIMMs"),
    ],
)
def test_repair_takes_a_node_of_nobody_of_the_health_check_or_of_slurm(state: str, reason: str) -> None:
    case = after(case_of(SAVED), record(state, reason))
    assert (case.state, case.step) == (SAVED, DRAIN)


# -- repair has the node -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", IN_TREATMENT)
@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("wrong", ["", f"{drains.HEALTH}xid-79: GPU lost"])
def test_the_health_check_leaves_it(state: str, reason: str, wrong: str) -> None:
    assert health_check.action(line(state, reason), wrong) == []


@pytest.mark.parametrize("state", IN_TREATMENT)
@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("late", [False, True])
def test_rolling_leaves_it_out(state: str, reason: str, late: bool) -> None:
    node = node_of(record(state, reason))
    found = decide(["n1"], {"n1": node}, [], {}, {"gpu": 1}, late)
    assert found.out == {"n1": f"drained by repair ({reason})"}
    assert [*found.ready, *found.drain, *found.resume, *found.requeue, *found.failed] == []
    # Of a run that was killed: what is in service is drained again, and what rolling has drained is resumed.
    assert node.drained
    assert not node.ours


@pytest.mark.parametrize("state", IN_TREATMENT)
@pytest.mark.parametrize("reason", REASONS)
def test_accept_leaves_it_out(state: str, reason: str) -> None:
    nodes = {"n1": node_of(record(state, reason))}
    why = f"drained by repair ({reason})"
    assert progress.why_out(nodes["n1"]) == why
    assert progress.choose(["n1"], nodes, [], waits=True).left == {"n1": why}
    assert progress.to_reserve(["n1"], [], nodes, [], {"gpu": 1}) == []
    # A node that repair has taken while it was measured keeps its reason.
    assert to_change([record(state, reason)], "drain", f"{drains.ACCEPT}stream 59 GB/s") == []


BY_REPAIR = "measured by repair"


@pytest.mark.parametrize("state", ["IDLE", "MIXED+MAINTENANCE", "IDLE+MAINTENANCE+NOT_RESPONDING"])
@pytest.mark.parametrize("late", [False, True])
def test_rolling_and_accept_leave_out_a_node_that_is_measured(state: str, late: bool) -> None:
    """It is in service for its measurement alone, and shows the reservation of that some seconds later."""
    of_repair = NodeMeasuring("n1", "1-2-0", NOW, OURS).reservation
    nodes = nodes_of([record(state)], [{"ReservationName": of_repair, "Nodes": "n1"}])
    found = decide(["n1"], nodes, [], {}, {"gpu": 1}, late)
    assert found.out == {"n1": BY_REPAIR}
    assert [*found.ready, *found.drain, *found.waiting, *found.failed, *found.late] == []
    assert found.over
    assert progress.choose(["n1"], nodes, [], waits=True).left == {"n1": BY_REPAIR}
    assert progress.to_reserve(["n1"], [], nodes, [], {"gpu": 1}) == []


def test_a_reservation_of_others_with_such_a_name_is_none_of_repair() -> None:
    nodes = nodes_of([record("IDLE")], [{"ReservationName": "repair-n10", "Nodes": "n1"}, {"Nodes": "n1"}])
    assert decide(["n1"], nodes, [], {}, {"gpu": 1}).drain == ["n1"]


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("own", [drains.MIG, drains.DRIVER])
def test_site_neither_takes_nor_resumes_it(reason: str, own: str) -> None:
    """It may change what is installed, as on each node that somebody has drained."""
    found = [record(state, reason) for state in IN_TREATMENT]
    assert to_change(found, "drain", own) == []
    assert to_change(found, "resume", own) == []


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN+DRAIN+NOT_RESPONDING"])
@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("user", ["root", "slurm"])
@pytest.mark.parametrize("is_dead", [False, True])
def test_doctor_names_repair_and_makes_no_repair(state: str, reason: str, user: str, is_dead: bool) -> None:
    dead = DaemonState("failed", True, "signal")
    host = HostEvidence(munge=dead, slurmd=dead, listens=False) if is_dead else HostEvidence()
    case = Case(read_node(record(state, reason, user), {}), host, ClusterEvidence(proctrack="proctrack/cgroup"))
    found = [cause for cause, _text in causes(case)]
    assert found[0].name == "repair"
    assert "slurm-repair show" in found[0].remedy
    assert {permit_repair(cause, case, found) for cause in found} == {""}


@pytest.mark.parametrize("late", [False, True])
def test_remove_nodes_removes_it_and_the_case_ends(late: bool) -> None:
    """A person has named the node. It keeps its reason until it leaves, and is not resumed if others have to stay."""
    busy = node_of(record("ALLOCATED"))
    nodes = {"n1": node_of(record("IDLE+DRAIN", OURS)), "n2": busy}
    found = decide_removal(["n1", "n2"], nodes, Claims(), late)
    assert "n1" not in [*found.drain, *found.resume]
    assert decide_removal(["n1"], nodes, Claims(), late).ready == ["n1"]
    for state in (SAVED, DRAINED, TREATED, BOOTED, MEASURED):
        gone = next_case(case_of(state), NodeView(is_known=False), Around(Rules(mode=FULL), 2), NOW + 2)
        assert (gone.state, gone.why) == (CLOSED, "the node is no longer in the cluster")


@pytest.mark.parametrize("state", [DRAINED, TREATED, BOOTED, MEASURED])
def test_reset_takes_it_and_a_person_decides(state: str) -> None:
    """A person has named the host, which is no node any more."""
    host = cluster(reset_hosts="n1", reset_also="", reset_backup=True)["head"]
    *_command, wanted, reason = reset.drain_command(host)
    assert wanted == "State=DRAIN"
    case = after(case_of(state), record("IDLE+DRAIN", reason.removeprefix("Reason=")))
    assert (case.state, case.why) == (PERSON, "reset has taken the node out of service meanwhile")


@pytest.mark.parametrize("state", [DRAINED, TREATED, BOOTED, MEASURED])
def test_a_person_takes_or_returns_it(state: str) -> None:
    taken = after(case_of(state), record("IDLE+DRAIN", "new DIMMs", "anna"))
    assert (taken.state, taken.why) == (PERSON, "a person has taken the node out of service meanwhile")
    returned = after(case_of(state), record("IDLE"))
    assert (returned.state, returned.why) == (CLOSED, "somebody has returned the node before it was proven")


@pytest.mark.parametrize(("state", "step"), [(BOOTED, MEASURE), (MEASURED, RETURN)])
def test_a_reservation_for_maintenance_leaves_it_and_repair_goes_on(state: str, step: str) -> None:
    found = record("IDLE+DRAIN+MAINTENANCE", OURS, more=" ReservationName=week")
    case = after(case_of(state), found, wrong={})
    assert (case.state, case.step) == (state, step)


@pytest.mark.parametrize("reason", [f"{drains.HEALTH}xid-79: GPU lost", "Epilog error"])
def test_repair_takes_a_node_again_that_fails_while_it_is_measured(reason: str) -> None:
    """It is in service for that. The treatments so far count."""
    treated = replace(case_of(BOOTED), step=MEASURE, begun=NOW, treatments=(Treatment(NOW - 600, REBOOT),))
    case = after(treated, record("IDLE+DRAIN", reason))
    assert (case.state, case.treatments) == (SAVED, treated.treatments)
    assert after(case, record("IDLE+DRAIN", reason)).step == DRAIN
