# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The time of a maintenance: from the options to Unix time, and the reservation that Slurm has of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone, tzinfo
from typing import NamedTuple

from ..language.errors import CollectionError
from ..language.formatting import shown

NAME = "gpucluster_maintenance"
"""The reservation. A person would hardly choose this name, and the cluster file may not have it."""

MOST_HOURS = 24 * 365
"""Slurm keeps no reservation for more than a year (YEAR_SECONDS in `update_resv`, src/slurmctld/reservation.c)."""

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::(\d\d))?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_ALLOWED = "a date and time such as 2026-12-01T08:00 by the clock of the controller, or with an offset: {}"
_EXAMPLES = "2026-12-01T08:00+01:00"


class MaintenanceError(CollectionError):
    """Options of a maintenance that cannot be met."""


class MaintenanceWindow(NamedTuple):
    """When a maintenance begins and ends, in Unix seconds."""

    start: int
    end: int


def minutes(hours: float) -> int:
    """The whole minutes of a number of hours: Slurm counts reservations in minutes.

    Raises:
        MaintenanceError: there are none, or more than Slurm has.
    """
    found = round(hours * 60) if 0 < hours <= MOST_HOURS else 0
    if not found:
        raise MaintenanceError(
            f"maintenance_hours: found {hours:g}, allowed: a number of hours up to {MOST_HOURS}, such as 8 or 0.5"
        )
    return found


def moment(text: str, zone: tzinfo | None = None) -> int:
    """The Unix time of a date and time.

    Args:
        text: with an offset, or else in the zone.
        zone: None for that of this host.

    Raises:
        MaintenanceError: it is something else, or the clock shows this time twice or never.
    """
    match = _MOMENT.fullmatch(text)
    try:
        if not match:
            raise ValueError
        found = datetime.fromisoformat(f"{match[1]}T{match[2]}:{match[3] or '00'}{_offset(match[4])}")
    except ValueError:
        allowed = _ALLOWED.format(_EXAMPLES)
        raise MaintenanceError(f"maintenance_start: found {shown(text)}, allowed: {allowed}") from None
    if found.tzinfo:
        return int(found.timestamp())
    seconds = _local(found, zone)
    if back(seconds, zone).replace(tzinfo=None) != found:
        raise MaintenanceError(
            f"maintenance_start: found {shown(text)}, which the clock of the controller skips (daylight saving time)"
        )
    return seconds


def _offset(text: str | None) -> str:
    """An offset as Python 3.9 reads it."""
    if not text or text == "Z":
        return "+00:00" if text else ""
    return text if ":" in text else f"{text[:3]}:{text[3:]}"


def _local(found: datetime, zone: tzinfo | None) -> int:
    """The Unix time that a clock shows so; the first of two."""
    return int((found.replace(tzinfo=zone) if zone else found).timestamp())


def back(seconds: int, zone: tzinfo | None = None) -> datetime:
    """A Unix time with the zone of this host, or another one."""
    return datetime.fromtimestamp(seconds, zone) if zone else datetime.fromtimestamp(seconds).astimezone()


def time_of_slurm(seconds: int, zone: tzinfo | None = None) -> str:
    """A Unix time as scontrol takes and shows it: without a zone."""
    return back(seconds, zone).replace(tzinfo=None).isoformat()


def check_unique(seconds: int, option: str, zone: tzinfo | None = None) -> None:
    """Refuse a time that the clock shows twice, of which neither scontrol nor a user could tell which is meant.

    Raises:
        MaintenanceError: it is one.
    """
    found = back(seconds, zone).replace(tzinfo=None)
    if {_local(found.replace(fold=fold), zone) for fold in (0, 1)} != {seconds}:
        raise MaintenanceError(
            f"{option}: {found:%Y-%m-%dT%H:%M} comes twice that night by the clock of the controller (daylight saving "
            "time), and Slurm does not tell the two apart: choose a time before or after this hour"
        )


def wanted_window(
    start: str, hours: float, now: int, there: MaintenanceWindow | None, zone: tzinfo | None = None
) -> MaintenanceWindow:
    """The window of the options.

    Args:
        start: option maintenance_start.
        hours: option maintenance_hours.
        now: Unix time.
        there: that of the present reservation; None without one.
        zone: None for that of this host.

    Raises:
        MaintenanceError: it has begun or is over, or Slurm could not change the present one into it.
    """
    begin = moment(start, zone)
    found = MaintenanceWindow(begin, begin + 60 * minutes(hours))
    if there and there.start <= now and found.start != there.start:
        raise MaintenanceError(
            f"maintenance_start: found {shown(start)}, but the maintenance has begun at {clock(there.start, zone)}, "
            f"and Slurm does not change a start that is past. Give maintenance_start={text(there.start, zone)} to "
            "change the rest, or end it first (maintenance_end=true)"
        )
    if found.start <= now and not (there and there.start == found.start):
        raise MaintenanceError(
            f"maintenance_start: found {shown(start)}, allowed: a time to come (now: {clock(now, zone)})"
        )
    if found.end <= now:
        raise MaintenanceError(
            f"maintenance_hours: found {hours:g}, but {clock(found.end, zone)} is past (now: {clock(now, zone)}). "
            "maintenance_end=true ends a maintenance"
        )
    for option, seconds in (("maintenance_start", found.start), ("maintenance_hours", found.end)):
        check_unique(seconds, option, zone)
    return found


def present(records: Iterable[Mapping[str, str]]) -> MaintenanceWindow | None:
    """The window of the collection's reservation, by the records of scontrol on this host; None without one.

    Raises:
        MaintenanceError: a person has made another reservation of this name.
    """
    for record in records:
        if record.get("ReservationName") != NAME:
            continue
        if "MAINT" not in record.get("Flags", "").split(","):
            raise MaintenanceError(
                f"A person has made a reservation with the name {NAME} and without the flag MAINT. Give it another "
                f"name, or remove it: scontrol delete ReservationName={NAME}"
            )
        start, end = (datetime.fromisoformat(record[key]) for key in ("StartTime", "EndTime"))
        return MaintenanceWindow(_local(start, None), _local(end, None))
    return None


def text(seconds: int, zone: tzinfo | None = None) -> str:
    """A Unix time as the option maintenance_start takes it."""
    return f"{back(seconds, zone):%Y-%m-%dT%H:%M:%S}".removesuffix(":00")


def clock(seconds: int, zone: tzinfo | None = None) -> str:
    """A Unix time for people, in a zone and in UTC."""
    own, universal = back(seconds, zone), datetime.fromtimestamp(seconds, timezone.utc)
    shown_utc = f"{universal:%H:%M} UTC" if own.date() == universal.date() else f"{universal:%Y-%m-%d %H:%M} UTC"
    if own.utcoffset() == timedelta(0):
        return f"{universal:%a %Y-%m-%d %H:%M} UTC"
    return f"{own:%a %Y-%m-%d %H:%M %Z} ({shown_utc})"
