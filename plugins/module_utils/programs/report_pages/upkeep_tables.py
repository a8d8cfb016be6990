# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What administrators do: drained nodes, drift, versions, updates, validation, backups, maintenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .queue_tables import rest_of
from .report_texts import (
    NO_TIME,
    SENTENCE,
    Time,
    age,
    count_of,
    expand,
    fold,
    hostlist_of,
    number_of,
    plural,
    records_of,
    short,
    text_of,
    time_of,
    visible,
)

LISTED = 300
"""Rows of a table."""

OF_HOST = 20
"""Differences of one host that are shown."""

NAMES = 120
"""Characters of a hostlist."""


def names_of(record: Mapping[str, Any], key: str) -> str:
    """A hostlist as it is shown."""
    return short(hostlist_of(record, key), NAMES)


def size_of(record: Mapping[str, Any], key: str) -> int:
    """How many names a hostlist has."""
    return len(expand(hostlist_of(record, key)))


class Drain(NamedTuple):
    """Nodes that start no jobs for one reason. since: of the newest; first: of the oldest, where it is another.

    cause, meaning and remedy are doctor's; empty without it.
    """

    nodes: str
    total: int
    state: str
    since: Time
    age: str
    first: Time
    first_age: str
    by: str
    reason: str
    cause: str
    meaning: str
    remedy: str


def _drain(records: Sequence[Mapping[str, Any]], now: Time) -> Drain:
    """Records with one reason."""
    names = [name for record in records for name in expand(hostlist_of(record, "nodes"))]
    times = sorted((time_of(record, "since") for record in records), key=lambda time: time.seconds)
    first = times[0] if times[0].iso and times[0] != times[-1] else Time()
    states = sorted({text_of(record, "state") for record in records})
    one = records[0]
    return Drain(
        short(visible(fold(names)), SENTENCE),
        len(names),
        short(", ".join(states), SENTENCE),
        times[-1],
        age(times[-1], now),
        first,
        age(first, now),
        text_of(one, "by"),
        text_of(one, "reason", SENTENCE),
        text_of(one, "cause", SENTENCE),
        text_of(one, "meaning", SENTENCE),
        text_of(one, "remedy", SENTENCE),
    )


def drains_of(data: Mapping[str, Any], now: Time) -> list[Drain]:
    """Drained nodes by reason, the newest first."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records_of(data, "drains"):
        same = [str(record.get(key)) for key in ("by", "reason", "cause", "meaning", "remedy")]
        groups.setdefault("\0".join(same), []).append(record)
    found = [_drain(records, now) for records in groups.values()]
    return sorted(found, key=lambda drain: (-drain.since.seconds, drain.nodes))


class HostDifference(NamedTuple):
    """What differs on a host."""

    what: str
    text: str


class DriftHost(NamedTuple):
    """A host that differs, or was not reached."""

    name: str
    reached: bool
    differences: Sequence[HostDifference]
    note: str


class Drift(NamedTuple):
    """All hosts. kinds: how many hosts have a difference of each kind."""

    checked: Time
    age: str
    total: int
    differ: int
    unreached: int
    kinds: Sequence[tuple[str, int]]
    hosts: Sequence[DriftHost]
    note: str


def drift_of(data: Mapping[str, Any], now: Time) -> Drift | None:
    """Drift of the hosts; None if nobody has looked."""
    record = data.get("hosts")
    if not isinstance(record, Mapping):
        return None
    checked, hosts, kinds = time_of(record, "checked"), [], Counter[str]()
    for host in records_of(record, "hosts"):
        found = [
            HostDifference(text_of(some, "what"), text_of(some, "text", SENTENCE))
            for some in records_of(host, "differences")
        ]
        kinds.update({some.what for some in found})
        note = rest_of(len(found), OF_HOST, "difference")
        hosts.append(DriftHost(text_of(host, "name"), bool(host.get("reached")), found[:OF_HOST], note))
    bad = sorted((host for host in hosts if host.differences or not host.reached), key=lambda host: host.reached)
    return Drift(
        checked,
        age(checked, now),
        len(hosts),
        sum(1 for host in hosts if host.reached and host.differences),
        sum(1 for host in hosts if not host.reached),
        sorted(kinds.items()),
        bad[:LISTED],
        rest_of(len(bad), LISTED, "host"),
    )


class Version(NamedTuple):
    """What has which version where."""

    what: str
    version: str
    hosts: str
    total: int


class PendingUpdate(NamedTuple):
    """A pending update. security: yes, no or unknown."""

    what: str
    security: str
    held: bool
    old: str
    new: str
    hosts: str
    total: int


def versions_of(data: Mapping[str, Any]) -> list[Version]:
    """Versions on the hosts."""
    return [
        Version(
            text_of(record, "what"), text_of(record, "version", 80), names_of(record, "hosts"), size_of(record, "hosts")
        )
        for record in records_of(data, "versions")
    ]


def _security(value: Any) -> str:
    """Whether an update is for security: doctor's words, or a boolean."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if value in ("yes", "no") else "unknown"


def updates_of(data: Mapping[str, Any]) -> list[PendingUpdate]:
    """Pending updates, those for security first."""
    found = [
        PendingUpdate(
            text_of(record, "what"),
            _security(record.get("security")),
            bool(record.get("held")),
            text_of(record, "from", 80),
            text_of(record, "to", 80),
            names_of(record, "hosts"),
            size_of(record, "hosts"),
        )
        for record in records_of(data, "updates")
    ]
    return sorted(found, key=lambda update: (("yes", "unknown", "no").index(update.security), update.what))


class Validation(NamedTuple):
    """The last run of validate."""

    finished: Time
    age: str
    ok: bool
    passed: int
    failed: int
    waiting: int


def _count(record: Mapping[str, Any], key: str) -> int:
    """A count, or the length of a list."""
    value = record.get(key)
    return len(value) if isinstance(value, list) else count_of(record, key)


def validation_of(data: Mapping[str, Any], now: Time) -> Validation | None:
    """The last run of validate; None if there is none."""
    record = data.get("validation")
    if not isinstance(record, Mapping):
        return None
    finished = time_of(record, "finished")
    counts = [_count(record, key) for key in ("passed", "failed", "waiting")]
    return Validation(finished, age(finished, now), bool(record.get("ok")), *counts)


class Backup(NamedTuple):
    """The last backup of a host."""

    host: str
    finished: Time
    age: str
    ok: bool
    text: str


def backups_of(data: Mapping[str, Any], now: Time) -> list[Backup]:
    """The last backup of each host."""
    return [
        Backup(
            text_of(record, "host"),
            time_of(record, "finished"),
            age(time_of(record, "finished"), now),
            bool(record.get("ok")),
            text_of(record, "text", SENTENCE),
        )
        for record in records_of(data, "backup")
    ]


class Maintenance(NamedTuple):
    """A reservation for maintenance. when: `now`, `soon` or `later`."""

    name: str
    start: Time
    end: Time
    nodes: str
    message: str
    now: bool


def _message(record: Mapping[str, Any]) -> str:
    """A message for users, which can have lines."""
    lines = str(record.get("message") or "")[: 10 * SENTENCE].split("\n")[:10]
    return "\n".join(text_of({"": line}, "", SENTENCE) for line in lines)


def maintenance_of(data: Mapping[str, Any], now: Time) -> list[Maintenance]:
    """Maintenance that has not ended, the next one first."""
    found = [
        Maintenance(
            text_of(record, "name"),
            time_of(record, "start"),
            time_of(record, "end"),
            names_of(record, "nodes"),
            _message(record),
            time_of(record, "start").seconds <= now.seconds,
        )
        for record in records_of(data, "maintenance")
    ]
    return sorted(
        (some for some in found if some.end.seconds > now.seconds or not some.end.iso), key=lambda some: some.start
    )


class Controller(NamedTuple):
    """A host with slurmctld."""

    name: str
    role: str
    answers: bool
    serves: bool


def controllers_of(data: Mapping[str, Any]) -> list[Controller]:
    """The controllers, the primary first."""
    found = sorted(records_of(data, "controllers"), key=lambda record: number_of(record, "place") or 0)
    return [
        Controller(
            text_of(record, "name"),
            "primary" if not number_of(record, "place") else f"standby {count_of(record, 'place')}",
            bool(record.get("answers")),
            bool(record.get("serves")),
        )
        for record in found
    ]


class Gap(NamedTuple):
    """What the page lacks."""

    part: str
    why: str


def gaps_of(data: Mapping[str, Any]) -> list[Gap]:
    """What the page lacks, and why."""
    return [Gap(text_of(record, "part"), text_of(record, "why", SENTENCE)) for record in records_of(data, "missing")]


# -- A word on each ---------------------------------------------------------------------------------------------------


class PageCheck(NamedTuple):
    """What an administrator has to do about a subject. state: `good`, `warn`, `bad` or `unknown`.

    since: the time whose age is in the text, which the script of the page keeps true.
    """

    title: str
    state: str
    text: str
    link: str
    since: Time = NO_TIME
    age: str = ""


def _judged(title: str, wrong: str, good: str, link: str, state: str = "bad") -> PageCheck:
    """A check with its fault, or else its good result."""
    return PageCheck(title, state if wrong else "good", wrong or good, link)


def drift_check(drift: Drift | None) -> PageCheck:
    """About the hosts."""
    if not drift:
        return PageCheck("Drift", "unknown", "not checked", "hosts")
    parts = [
        f"{plural(drift.differ, 'host')} of {drift.total} differ" if drift.differ else "",
        f"{plural(drift.unreached, 'host')} not reached" if drift.unreached else "",
    ]
    return _judged(
        "Drift", ", ".join(filter(None, parts)), f"{plural(drift.total, 'host')} as configured", "hosts", "warn"
    )


def updates_check(updates: Sequence[PendingUpdate], missing: bool) -> PageCheck:
    """About updates for security. missing: whether nobody could ask for updates."""
    security = sum(1 for update in updates if update.security == "yes")
    if missing and not security:
        return PageCheck("Security updates", "unknown", "not known", "versions")
    return _judged("Security updates", f"{security} pending" if security else "", "none pending", "versions", "warn")


def validation_check(validation: Validation | None) -> PageCheck:
    """About the last validation."""
    if not validation:
        return PageCheck("Validation", "unknown", "no run is known", "validation")
    ago = f"{validation.age} ago"
    failed = f"{plural(validation.failed, 'job')} failed" if validation.failed else "failed"
    found = _judged("Validation", "" if validation.ok else f"{failed} {ago}", f"passed {ago}", "validation")
    return found._replace(since=validation.finished, age=validation.age)


def backup_check(backups: Sequence[Backup]) -> PageCheck:
    """About backups: the oldest good one decides how old they are."""
    if not backups:
        return PageCheck("Backup", "unknown", "none is known", "backup")
    bad = [backup.host for backup in backups if not backup.ok]
    times = sorted((backup for backup in backups if backup.finished.iso), key=lambda backup: backup.finished.seconds)
    found = _judged(
        "Backup",
        short(f"not good: {', '.join(bad)}", NAMES) if bad else "",
        f"done {times[0].age} ago" if times else "done",
        "backup",
    )
    return found if bad or not times else found._replace(since=times[0].finished, age=times[0].age)


# -- Alerts -----------------------------------------------------------------------------------------------------------

ALERTS = 100
"""Alerts that are listed by name."""

OF_ALERT = 5
"""Texts of one alert that are shown."""


class Alert(NamedTuple):
    """Alerts of one name that fire. since: of the first one. note: how many more texts there are."""

    name: str
    severity: str
    total: int
    since: Time
    age: str
    texts: Sequence[str]
    note: str


def alerts_of(data: Mapping[str, Any], now: Time) -> list[Alert]:
    """The alerts that fire, those that call a person first."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in records_of(data, "alerts"):
        groups.setdefault((text_of(record, "name"), text_of(record, "severity", 24)), []).append(record)
    found = []
    for (name, severity), records in groups.items():
        since = min((time_of(record, "since") for record in records), key=lambda time: time.seconds)
        texts = list(dict.fromkeys(filter(None, (text_of(record, "text", SENTENCE) for record in records))))
        note = rest_of(len(texts), OF_ALERT, "line")
        found.append(Alert(name, severity, len(records), since, age(since, now), texts[:OF_ALERT], note))
    return sorted(found, key=lambda alert: (alert.severity != "page", alert.severity, alert.name))


def alerts_check(alerts: Sequence[Alert], missing: bool) -> PageCheck:
    """About alerts that fire."""
    if missing:
        return PageCheck("Alerts", "unknown", "not known", "alerts")
    total = sum(alert.total for alert in alerts)
    state = "bad" if any(alert.severity == "page" for alert in alerts) else "warn"
    return _judged("Alerts", f"{total} firing" if total else "", "none firing", "alerts", state)


class Link(NamedTuple):
    """A link for administrators."""

    title: str
    url: str


def links_of(data: Mapping[str, Any]) -> list[Link]:
    """The links to other pages, such as Prometheus. Addresses of other kinds are left out."""
    found = [Link(text_of(record, "title"), text_of(record, "url", SENTENCE)) for record in records_of(data, "links")]
    return [link for link in found if link.url.startswith(("http://", "https://"))]
