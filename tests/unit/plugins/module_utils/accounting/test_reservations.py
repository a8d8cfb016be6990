# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reservations: differences between those in scontrol and the wanted ones, and errors in the wanted ones."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.reservations import (
    ReservationError,
    check_name,
    differences,
    over,
    updates,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.scontrol import records

RESERVATION = (
    "ReservationName=maint StartTime=2027-01-01T08:00:00 EndTime=2027-01-01T10:00:00 Duration=02:00:00 Nodes=n[1-2] "
    "NodeCnt=2 CoreCnt=4 Features=(null) PartitionName=main Flags=MAINT,IGNORE_JOBS,SPEC_NODES TRES=cpu=4 "
    "Users=alice,root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) "
    "MaxStartDelay=(null)"
)


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


def test_what_differs_is_reported() -> None:
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


def test_all_that_is_wrong_is_reported_at_once() -> None:
    with pytest.raises(ReservationError) as error:
        differences({"User": "a", "Duration": "long", "Nodes": "n[1-", "Accounts": "a b"}, None)
    assert [line.partition(":")[0] for line in str(error.value).splitlines()] == [
        "User",
        "Duration",
        "Nodes",
        "Accounts",
    ]
    assert "did you mean 'Users'?" in str(error.value)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"StartTime": "bogus"}, "StartTime: found 'bogus', allowed: a time such as"),
        ({"StartTime": "2027-13-45"}, "StartTime: found '2027-13-45', allowed: month"),
        ({"StartTime": "25:00"}, "StartTime: found '25:00', allowed: a time such as"),
        ({"StartTime": "now+"}, "StartTime: found 'now+', allowed: a time such as"),
        ({"Users": None}, "Users: found None, allowed: texts"),
        ({"Users": [True]}, "Users: found [True], allowed: texts"),
        ({"Accounts": [["a"]]}, "Accounts: found [['a']], allowed: texts"),
        ({"Accounts": "a#b"}, "Accounts: found 'a#b', allowed: a name"),
        ({"Users": "alice,-b[1]"}, "Users: found 'alice,-b[1]', allowed: a name"),
        ({1: "a"}, "1: unknown to Slurm"),
    ],
)
def test_what_slurm_would_not_take_is_refused(wanted: dict[Any, Any], text: str) -> None:
    with pytest.raises(ReservationError) as error:
        differences(wanted, None)
    assert str(error.value).startswith(text)


@pytest.mark.parametrize(
    "moment",
    [
        *("now", "NOW+5minutes", "now-1day", "now+90", "today", "tomorrowT9:30", "midnight-tomorrow", "noon", "16:00"),
        *("4:00pm", "uts1700000000", "1224", "12/24", "12.24.27", "12/24/27-08:00", "2027-3-1T9:00", "2027-03-01"),
    ],
)
def test_times_that_slurm_takes(moment: str) -> None:
    assert differences({"StartTime": moment}, None)[0].key == "StartTime"


@pytest.mark.parametrize("name", ["a,b", "a b", "a[1]", "", True, None])
def test_the_name_of_a_reservation(name: Any) -> None:
    with pytest.raises(ReservationError, match=r"name: found .*, allowed: a name"):
        check_name(name)


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
