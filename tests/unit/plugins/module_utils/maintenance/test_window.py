# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The time of a maintenance."""

from __future__ import annotations

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.maintenance import window
from ansible_collections.gpucluster.slurm.plugins.module_utils.maintenance.window import (
    MaintenanceError,
    MaintenanceWindow,
    wanted_window,
)

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3600


def at(text: str) -> int:
    """A time of UTC in Unix seconds."""
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp())


NOW = at("2026-11-28T12:00")


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-12-01T08:00", "2026-12-01T07:00"),
        ("2026-12-01 08:00:30", "2026-12-01T07:00:30"),
        ("2026-07-01T08:00", "2026-07-01T06:00"),
        ("2026-12-01T08:00Z", "2026-12-01T08:00"),
        ("2026-12-01T08:00+0530", "2026-12-01T02:30"),
        ("2026-12-01T08:00-05:00", "2026-12-01T13:00"),
    ],
)
def test_a_time_is_that_of_the_controller_or_has_an_offset(text: str, utc: str) -> None:
    assert window.moment(text, BERLIN) == at(utc)


@pytest.mark.parametrize(
    "text", ["", "tomorrow", "now+2hours", "08:00", "2026-12-01", "2026-13-01T08:00", "2026-12-01T25:00", "1796108400"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(
        MaintenanceError, match=r"maintenance_start: found .*, allowed: a date and time such as 2026-12"
    ):
        window.moment(text, BERLIN)


def test_a_time_that_the_clock_skips_is_refused() -> None:
    with pytest.raises(MaintenanceError, match="which the clock of the controller skips"):
        window.moment("2027-03-28T02:30", BERLIN)


@pytest.mark.parametrize(
    ("start", "hours", "option"),
    [
        ("2027-10-31T02:30", 8, "maintenance_start"),
        ("2027-10-31T02:30+02:00", 8, "maintenance_start"),
        ("2027-10-31T02:30+01:00", 8, "maintenance_start"),
        ("2027-10-30T22:30", 4, "maintenance_hours"),
        ("2027-10-30T22:30", 5, "maintenance_hours"),
    ],
)
def test_a_time_that_the_clock_shows_twice_is_refused(start: str, hours: float, option: str) -> None:
    """Also with an offset: scontrol and users see it without one."""
    with pytest.raises(MaintenanceError, match=f"{option}: 2027-10-31T02:30 comes twice"):
        wanted_window(start, hours, NOW, None, BERLIN)


def test_hours_are_those_of_a_stopwatch_over_a_change_of_the_clock() -> None:
    found = wanted_window("2027-10-30T22:00", 8, NOW, None, BERLIN)
    assert found.end - found.start == 8 * HOUR
    assert window.time_of_slurm(found.end, BERLIN) == "2027-10-31T05:00:00"


@pytest.mark.parametrize(("hours", "minutes"), [(8, 480), (0.5, 30), (0.33, 20), (8760, 525600)])
def test_hours_become_minutes(hours: float, minutes: int) -> None:
    assert window.minutes(hours) == minutes


@pytest.mark.parametrize("hours", [0, -1, 0.001, 8761, float("nan"), float("inf")])
def test_other_numbers_of_hours_are_refused(hours: float) -> None:
    with pytest.raises(MaintenanceError, match=r"maintenance_hours: found .*, allowed: a number of hours"):
        window.minutes(hours)


def test_a_start_that_is_past_is_refused_unless_the_maintenance_has_begun_then() -> None:
    begun = MaintenanceWindow(NOW - HOUR, NOW + HOUR)
    start = "2026-11-28T11:00Z"
    planned = MaintenanceWindow(NOW + HOUR, NOW + 2 * HOUR)
    for there, hours in ((None, 2), (planned, 2), (planned, 0.5)):
        with pytest.raises(
            MaintenanceError, match=r"allowed: a time to come \(now: Sat 2026-11-28 13:00 CET \(12:00 UTC\)"
        ):
            wanted_window(start, hours, NOW, there, BERLIN)
    assert wanted_window(start, 2, NOW, begun, BERLIN) == begun
    assert wanted_window(start, 4, NOW, begun, BERLIN).end == NOW + 3 * HOUR
    with pytest.raises(MaintenanceError, match=r"maintenance_hours: found 1, but .* is past.*maintenance_end=true"):
        wanted_window(start, 1, NOW, begun, BERLIN)


def test_the_start_of_a_maintenance_that_has_begun_cannot_change() -> None:
    begun = MaintenanceWindow(NOW - HOUR, NOW + HOUR)
    with pytest.raises(MaintenanceError, match=r"has begun at .* Give maintenance_start=2026-11-28T12:00 to change"):
        wanted_window("2026-12-01T08:00", 2, NOW, begun, BERLIN)
    planned = MaintenanceWindow(NOW + HOUR, NOW + 2 * HOUR)
    assert wanted_window("2026-12-01T08:00", 2, NOW, planned, BERLIN).start == at("2026-12-01T07:00")


def test_the_present_reservation_is_found_by_its_name() -> None:
    record = {"StartTime": "2026-12-01T08:00:00", "EndTime": "2026-12-01T16:00:00", "Flags": "MAINT,IGNORE_JOBS"}
    own = {"ReservationName": window.NAME, **record}
    assert window.present([{"ReservationName": "course", **record}]) is None
    found = window.present([{"ReservationName": "course", **record}, own])
    assert found is not None
    assert found.end - found.start == 8 * HOUR
    assert window.time_of_slurm(found.start) == record["StartTime"]
    with pytest.raises(MaintenanceError, match="scontrol delete ReservationName=gpucluster_maintenance"):
        window.present([{**own, "Flags": "SPEC_NODES"}])


def test_times_are_shown_in_the_own_zone_and_in_utc() -> None:
    late = at("2026-12-01T23:30")
    assert window.clock(NOW, BERLIN) == "Sat 2026-11-28 13:00 CET (12:00 UTC)"
    assert window.clock(late, BERLIN) == "Wed 2026-12-02 00:30 CET (2026-12-01 23:30 UTC)"
    assert window.clock(NOW, timezone.utc) == "Sat 2026-11-28 12:00 UTC"
