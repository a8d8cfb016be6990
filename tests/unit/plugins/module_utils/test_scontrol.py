# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reservations and nodes: what scontrol shows, and in what that differs from what is wanted."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.scontrol import (
    ScontrolError,
    controllers,
    differences,
    over,
    reason_of,
    records,
    serving,
    to_change,
    updates,
)

RESERVATION = (
    "ReservationName=maint StartTime=2027-01-01T08:00:00 EndTime=2027-01-01T10:00:00 Duration=02:00:00 Nodes=n[1-2] "
    "NodeCnt=2 CoreCnt=4 Features=(null) PartitionName=main Flags=MAINT,IGNORE_JOBS,SPEC_NODES TRES=cpu=4 "
    "Users=alice,root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) "
    "MaxStartDelay=(null)"
)
NODES = """
NodeName=n1 Arch=x86_64 OS=Linux 6.12 #1 SMP State=IDLE ThreadsPerCore=1 Partitions=main  BootTime=2026-11-21T12:41:08
NodeName=n2 State=IDLE+DRAIN Partitions=main Reason=new DIMMs [root@2026-11-21T19:00:00]
NodeName=n3 State=DOWN* Reason=Not responding [slurm@2026-11-21T19:00:00]
NodeName=n4 State=MIXED+DRAIN+MAINTENANCE Reason=bad fan [root@2026-11-21T19:00:00]
"""


PING = """\
Slurmctld(primary) at head is {}
Slurmctld(backup1) at login1 is {}
Slurmctld(backup2) at login2 is {}
*****************************************
** RESTORE SLURMCTLD DAEMON TO SERVICE **
"""


@pytest.mark.parametrize(
    ("states", "licenses", "serves"),
    [
        (("UP", "UP", "UP"), "", "head"),
        (("DOWN", "UP", "UP"), "No licenses configured in Slurm.\n", "login1"),
        (("DOWN", "DOWN", "UP"), "LicenseName=a\n", "login2"),
        (("DOWN", "UP", "DOWN"), "", ""),  # it has not taken over yet
        (("DOWN", "DOWN", "DOWN"), "No licenses configured in Slurm.\n", ""),
    ],
)
def test_which_controller_serves(states: tuple[str, ...], licenses: str, serves: str) -> None:
    said = {"ping": PING.format(*states), "licenses": licenses}
    assert serving(lambda command: said[command[-1]]) == serves
    assert [*controllers(said["ping"])] == ["head", "login1", "login2"]
    assert serving(lambda _command: "") == ""  # no Slurm on the host


def changed(wanted: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The differences from the reservation above, by parameter."""
    found = differences(wanted, records(RESERVATION)[0])
    return {change.key: (change.before, change.after) for change in found}


@pytest.mark.parametrize(
    "same",
    [
        {"StartTime": "2027-01-01T08:00", "Duration": 120},
        {"Duration": "2:00:00", "endtime": "2027-01-01T10:00:00"},
        {"Nodes": "n2,n1", "Users": ["root", "alice"]},
        {"Flags": ["ignore_jobs", "Maint"], "Accounts": "", "NodeCnt": "2"},
        {"StartTime": "now+1hour"},
    ],
)
def test_values_with_one_meaning_do_not_change(same: dict[str, Any]) -> None:
    assert changed(same) == {}


def test_what_differs_is_told() -> None:
    assert changed({"Nodes": "n1", "Duration": "infinite", "Users": "alice", "Flags": "MAINT,WEEKLY"}) == {
        "Nodes": ("n1,n2", "n1"),
        "Duration": ("02:00:00", "INFINITE"),
        "Users": ("alice,root", "alice"),
        "Flags": ("IGNORE_JOBS,MAINT", "MAINT,WEEKLY"),
    }


def test_flags_are_added_and_taken_away() -> None:
    changes = differences({"Flags": "MAINT,WEEKLY", "Nodes": "n1"}, records(RESERVATION)[0])
    assert updates(changes) == [["Nodes=n1"], ["Flags+=WEEKLY"], ["Flags-=IGNORE_JOBS"]]


def test_all_nodes_are_all_nodes() -> None:
    there = records(RESERVATION.replace("SPEC_NODES", "SPEC_NODES,ALL_NODES"))[0]
    assert differences({"Nodes": "ALL"}, there) == []
    assert [change.given for change in differences({"Nodes": "ALL"}, records(RESERVATION)[0])] == ["ALL"]


def test_of_a_new_one_all_is_new() -> None:
    found = differences({"StartTime": "now", "Users": ["a", "b"]}, None)
    assert [(change.key, change.before, change.given) for change in found] == [
        ("StartTime", "", "now"),
        ("Users", "", "a,b"),
    ]


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ScontrolError) as error:
        differences({"User": "a", "Duration": "long", "Nodes": "n[1-", "Accounts": "a b"}, None)
    assert [line.partition(":")[0] for line in str(error.value).splitlines()] == [
        "User",
        "Duration",
        "Nodes",
        "Accounts",
    ]
    assert "did you mean 'Users'?" in str(error.value)


@pytest.mark.parametrize(
    ("state", "reason", "nodes"),
    [
        ("drain", "x", ["n1", "n3"]),
        ("down", "x", ["n1", "n2", "n4"]),
        ("resume", "", ["n2", "n3", "n4"]),
        ("resume", "new DIMMs", ["n2"]),
        ("resume", "something else", []),
    ],
)
def test_nodes_that_are_not_as_wanted(state: str, reason: str, nodes: list[str]) -> None:
    assert [node["NodeName"] for node in to_change(records(NODES), state, reason)] == nodes


def test_reasons_are_without_who_and_when() -> None:
    assert [reason_of(node) for node in records(NODES)] == ["", "new DIMMs", "Not responding", "bad fan"]


@pytest.mark.parametrize(
    ("wanted", "is_over"),
    [
        ({"StartTime": "2027-01-01T08:00", "Duration": "04:00:00"}, True),
        ({"StartTime": "2027-01-01T08:00", "Duration": "05:00:00"}, False),
        ({"StartTime": "2027-01-01T08:00", "EndTime": "2027-01-01T12:00:00"}, True),
        ({"StartTime": datetime(2027, 1, 1, 8), "Duration": 60}, True),
        ({"StartTime": "2027-01-01T08:00", "Duration": 60, "Flags": ["WEEKLY"]}, False),
        ({"StartTime": "2027-01-01T08:00", "Duration": "INFINITE"}, False),
        ({"StartTime": "now", "Duration": 60}, False),
        ({"StartTime": "2027-01-01T08:00"}, False),
    ],
)
def test_a_reservation_that_is_over(wanted: dict[str, Any], is_over: bool) -> None:
    assert over(wanted, datetime(2027, 1, 1, 12, 30)) == is_over


def test_times_of_yaml_are_times() -> None:
    (change,) = differences({"StartTime": datetime(2027, 1, 1, 8)}, None)
    assert change.given == "2027-01-01T08:00:00"
