# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Use by account and user, and for each day."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from .plots import Plot, Value, plot
from .queue_tables import rest_of
from .report_texts import Time, hours, number_of, records_of, text_of, time_of

LISTED = 300
"""Rows of a table."""

DAYS = 100
"""Most bars of a plot."""


class UsageRow(NamedTuple):
    """What an account or a user has used. A value that is not known is None."""

    account: str
    user: str
    cpu: float
    gpu: float
    idle: float | None
    fairshare: float | None

    @property
    def idle_part(self) -> int | None:
        """The percentage of GPU hours that were idle."""
        return round(100 * self.idle / self.gpu) if self.idle is not None and self.gpu else None


class Day(NamedTuple):
    """The use of a day."""

    day: str
    cpu: float
    gpu: float
    idle: float | None


class UsageTables(NamedTuple):
    """The use as the page shows it. The totals are those of the days."""

    since: Time
    until: Time
    days: Sequence[Day]
    plots: Sequence[Plot]
    users: Sequence[UsageRow]
    users_note: str
    accounts: Sequence[UsageRow]
    accounts_note: str
    cpu: float
    gpu: float
    idle: float | None
    has_gpus: bool
    has_idle: bool
    has_idle_of_users: bool
    has_fairshare: bool


def _row(record: Mapping[str, Any]) -> UsageRow:
    """A row of the data."""
    return UsageRow(
        text_of(record, "account"),
        text_of(record, "user"),
        number_of(record, "cpu_hours") or 0,
        number_of(record, "gpu_hours") or 0,
        number_of(record, "idle_gpu_hours"),
        number_of(record, "fairshare"),
    )


def total(values: Iterable[float | None]) -> float | None:
    """The sum of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _summed(rows: Iterable[UsageRow], key: Callable[[UsageRow], UsageRow]) -> list[UsageRow]:
    """Rows with the same key as one, from the largest use."""
    groups: dict[UsageRow, list[UsageRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    found = [
        name._replace(
            cpu=sum(row.cpu for row in some), gpu=sum(row.gpu for row in some), idle=total(row.idle for row in some)
        )
        for name, some in groups.items()
    ]
    return sorted(found, key=lambda row: (-row.gpu, -row.cpu, row.account, row.user))


def _day(record: Mapping[str, Any]) -> Day:
    """A day of the data."""
    return Day(
        text_of(record, "day", 16),
        number_of(record, "cpu_hours") or 0,
        number_of(record, "gpu_hours") or 0,
        number_of(record, "idle_gpu_hours"),
    )


def _label(day: Day, what: str) -> str:
    """What a reader sees for a bar."""
    if what == "CPU":
        return f"{day.day}: {hours(day.cpu)} CPU hours"
    idle = f", {hours(day.idle)} of them idle" if day.idle is not None else ""
    return f"{day.day}: {hours(day.gpu)} GPU hours{idle}"


def usage_of(record: Mapping[str, Any]) -> UsageTables:
    """The use of the data."""
    rows = [_row(row) for row in records_of(record, "users")]
    days = sorted((_day(day) for day in records_of(record, "days")[-DAYS:]), key=attrgetter("day"))
    users = _summed((row for row in rows if row.user), lambda row: row._replace(cpu=0, gpu=0, idle=None))
    accounts = _summed((row for row in rows if row.account), lambda row: UsageRow(row.account, "", 0, 0, None, None))
    plots = [
        plot("GPU hours each day", [Value(day.day, day.gpu, day.idle, _label(day, "GPU")) for day in days]),
        plot("CPU hours each day", [Value(day.day, day.cpu, None, _label(day, "CPU")) for day in days]),
    ]
    return UsageTables(
        since=time_of(record, "since"),
        until=time_of(record, "until"),
        days=days,
        plots=[found for found in plots if found],
        users=users[:LISTED],
        users_note=rest_of(len(users), LISTED, "user"),
        accounts=accounts[:LISTED],
        accounts_note=rest_of(len(accounts), LISTED, "account"),
        cpu=sum(day.cpu for day in days),
        gpu=sum(day.gpu for day in days),
        idle=total(day.idle for day in days),
        has_gpus=any(day.gpu for day in days) or any(row.gpu for row in rows),
        has_idle=any(day.idle is not None for day in days),
        has_idle_of_users=any(row.idle is not None for row in rows),
        has_fairshare=any(row.fairshare is not None for row in rows),
    )
