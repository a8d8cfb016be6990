# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases one by one: what is proposed, which treatment, the brakes, the file."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.finding_table import named
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.brakes import (
    DAY,
    FULL,
    OBSERVE,
    REBOOT,
    Fleet,
    Rules,
    brake,
    treatments_left,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.case_states import (
    CHECK,
    OURS,
    Around,
    NodeView,
    next_case,
    next_treatment,
    proposal,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.cases import (
    DRAIN,
    DRAINED,
    PERSON,
    RETURNED,
    SAVE,
    SAVED,
    TREAT,
    Fault,
    NodeCase,
    Treatment,
    from_json,
    moved,
    opened,
    to_json,
)

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

NOW = 1e9


def faults(*names: str) -> tuple[Fault, ...]:
    return tuple(Fault(named(name), f"{name} was seen") for name in names)


def case_of(*names: str, node: str = "n1", number: int = 1, when: float = NOW) -> NodeCase:
    return moved(opened(number, node, faults(*names), when), SAVED, when)


def drained(*names: str, **values: Any) -> NodeView:
    """A node that its health check has drained."""
    states = frozenset(("IDLE", "DRAIN"))
    return NodeView(**{"states": states, "owner": CHECK, "faults": faults(*names), "is_saved": True, **values})


def test_observe_saves_the_evidence_and_does_nothing_else() -> None:
    around = Around(Rules(mode=OBSERVE), 2)
    case, view = opened(1, "n1", faults("xid-79"), NOW), drained("xid-79", is_saved=False)
    begins = next_case(case, view, around, NOW)
    assert begins.step == SAVE
    saved = next_case(begins, view._replace(is_saved=True), around, NOW + 1)
    assert saved.state == SAVED
    for later in range(100):
        again = next_case(saved, drained("xid-79"), around, NOW + 3600 * later)
        assert (again.state, again.step) == (SAVED, "")
    back = NodeView(states=frozenset(("IDLE",)), checked=NOW + 10)
    assert next_case(saved, back, around, NOW + 11).state == RETURNED


@pytest.mark.parametrize(
    ("names", "view", "left", "brake_", "said"),
    [
        (["xid-79"], {}, 2, "", "drain (reboot)"),
        (["xid-48"], {}, 2, "", "drain (reset)"),
        (["disk-lost"], {}, 2, "", "disk-lost: power cycle"),  # without the key machines
        (["port-errors"], {}, 2, "", "port-errors: person"),
        (["xid-48", "port-errors"], {}, 2, "", "xid-48: person"),
        (["xid-79"], {"owner": "a person"}, 2, "", "a person has the node"),
        (["xid-79"], {"reserved": "maint"}, 2, "", "it is in the reservation maint"),
        (["xid-79"], {}, 0, "", "treated 2 times in 7 days"),
        (["xid-79"], {}, 2, "3 nodes have xid-79", "3 nodes have xid-79"),
    ],
)
def test_what_observe_would_do(names: list[str], view: dict[str, Any], left: int, brake_: str, said: str) -> None:
    around = Around(Rules(mode=OBSERVE), left, brake_)
    assert proposal(case_of(*names), drained(*names, **view), around, NOW) == said


@pytest.mark.parametrize(
    ("finding", "mode", "machines", "first", "second"),
    [
        ("xid-48", FULL, False, "reset", "reboot"),
        ("xid-48", REBOOT, False, "reboot", "reboot"),
        ("xid-79", FULL, False, "reboot", "reboot"),
        ("xid-79", FULL, True, "reboot", "power cycle"),
        ("xid-79", REBOOT, True, "reboot", "reboot"),
        ("disk-lost", FULL, True, "power cycle", "power cycle"),
        ("disk-lost", FULL, False, "", ""),
        ("disk-lost", REBOOT, True, "", ""),
        ("port-errors", FULL, True, "", ""),
        ("check-disk", FULL, True, "clean", ""),
        ("check-disk", REBOOT, True, "", ""),
        ("check-filesystems", FULL, True, "mount", "reboot"),
        ("check-filesystems", REBOOT, False, "reboot", "reboot"),
        ("gpu-rows-failed", FULL, True, "", ""),
    ],
)
def test_treatments(finding: str, mode: str, machines: bool, first: str, second: str) -> None:
    rules = Rules(mode=mode, has_machines=machines)
    case = case_of(finding)
    assert next_treatment(case, rules) == first
    if first:
        case = replace(case, treatments=(Treatment(NOW, first),))
    assert next_treatment(case, rules) == second


def test_a_person_is_asked_at_once_where_nothing_else_helps() -> None:
    asked = next_case(case_of("port-errors"), drained("port-errors"), Around(Rules(mode=FULL), 2), NOW)
    assert (asked.state, asked.why) == (PERSON, "port-errors: person")


def test_a_boot_that_slurmctld_never_begins_is_given_up() -> None:
    """So it may be with a node that is dead."""
    around, view = Around(Rules(mode=REBOOT), 2), drained("xid-79", owner=OURS)
    case = moved(case_of("xid-79"), DRAINED, NOW)
    steps = []
    for minute in range(200):
        left = around._replace(left=2 - len(case.treatments))
        case = next_case(case, view, left, NOW + 60 * minute)
        steps.append(case.step)
        if case.state == PERSON:
            break
    assert case.why == "reboot: it has not begun in time; treated 2 times in 7 days"
    assert len(case.treatments) == 2
    assert 100 < steps.count(TREAT) < 130


def test_a_node_that_is_gone_ends_its_case() -> None:
    ended = next_case(case_of("xid-79"), NodeView(is_known=False), Around(Rules(), 2), NOW)
    assert (ended.is_open, ended.why) == (False, "the node is no longer in the cluster")


FLEET = Fleet(nodes=100, hour=12)


def in_treatment(number: int) -> NodeCase:
    """A case of another node and another finding."""
    return replace(
        case_of("xid-48", node=f"t{number}", number=100 + number, when=NOW - 9 * DAY * number), state=DRAINED
    )


@pytest.mark.parametrize(
    ("nodes", "treated", "said"),
    [(100, 1, ""), (100, 2, "2 of at most 2 nodes are in treatment"), (20, 0, ""), (20, 1, "1 of at most 1 nodes")],
)
def test_few_nodes_are_in_treatment(nodes: int, treated: int, said: str) -> None:
    others = [in_treatment(number) for number in range(treated)]
    assert brake(case_of("xid-79"), others, Rules(), Fleet(nodes, 12)).startswith(said)
    assert bool(brake(case_of("xid-79"), others, Rules(), Fleet(nodes, 12))) == bool(said)


def test_a_node_that_is_being_drained_is_counted() -> None:
    other = replace(case_of("xid-48", node="n2", number=2), step=DRAIN)
    assert brake(case_of("xid-79"), [other], Rules(), Fleet(20, 12))


@pytest.mark.parametrize(
    ("hours", "waits"), [((22, 6), {22, 23, 0, 5}), ((8, 18), {8, 12, 17}), ((0, 24), {0, 8, 12, 17, 22, 23, 5})]
)
def test_nothing_begins_in_quiet_hours(hours: tuple[int, int], waits: set[int]) -> None:
    found = {
        hour
        for hour in (0, 5, 6, 8, 12, 17, 18, 22, 23)
        if brake(case_of("xid-79"), [], Rules(quiet=hours), Fleet(9, hour))
    }
    assert found & {0, 5, 8, 12, 17, 22, 23} == waits


def test_a_shared_cause_stops_everything() -> None:
    """Three nodes within the hour; a person's cases no longer count, nor those of other hours."""
    same = [case_of("xid-79", node=f"n{number}", number=number, when=NOW + number) for number in (2, 3, 4)]
    other = case_of("disk-lost")
    assert (
        brake(other, same, Rules(), Fleet(60, 12)) == "3 nodes have xid-79: the cause is shared, and a person is needed"
    )
    assert brake(other, same[:2], Rules(), Fleet(60, 12)) == ""
    assert brake(other, same, Rules(), Fleet(61, 12)) == ""  # 5 % of 61 nodes are more than 3
    assert brake(other, [*same[:2], replace(same[2], state=PERSON)], Rules(), Fleet(60, 12)) == ""
    assert brake(other, [*same[:2], replace(same[2], opened=NOW + 2 * 3600)], Rules(), Fleet(60, 12)) == ""


def test_a_partition_keeps_its_nodes() -> None:
    fleet = Fleet(9, 12, {"gpu": 4, "all": 9}, {"n1": ("gpu", "all")})
    assert brake(case_of("xid-79"), [], Rules(least={"gpu": 3}), fleet) == ""
    said = "partition gpu would have 3 nodes in service, and keeps 4"
    assert brake(case_of("xid-79"), [], Rules(least={"gpu": 4}), fleet) == said
    # A node that is drained already takes none away.
    assert brake(case_of("xid-79", node="n2"), [], Rules(least={"gpu": 9}), fleet) == ""


def test_stopped() -> None:
    assert brake(case_of("xid-79"), [], Rules(stopped="root"), FLEET) == "stopped by root"


def test_treatments_of_seven_days_count() -> None:
    earlier = replace(
        case_of("xid-48"),
        state=RETURNED,
        treatments=(Treatment(NOW - 8 * DAY, "reboot"), Treatment(NOW - DAY, "reset")),
    )
    assert treatments_left("n1", [earlier, case_of("xid-79", number=2)], Rules(), NOW) == 1
    assert treatments_left("n2", [earlier], Rules(), NOW) == 2


def test_a_case_is_the_same_in_its_file() -> None:
    case = replace(
        case_of("xid-79", "port-errors"),
        treatments=(Treatment(1.5, "reset"), Treatment(2.5, "reboot")),
        held="root",
        why="é",
    )
    content = json.loads(json.dumps(to_json(case)))
    assert from_json(content) == case
    assert from_json({**content, "of a newer collection": 1}) == case
    with pytest.raises(TypeError):
        from_json({"number": 1})
