# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The series of slurm-metrics about this host: keys, backups, daemons, updates."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...client.commands import CommandsUntil
from ...host.json_files import read_record
from ...host.packages.apt_updates import POLICY, YES, Archives, find_update, read_archives, read_offers
from ...language.errors import CollectionError
from ...language.series import Series

BACKUP = "/var/lib/gpucluster-slurm/backup/status.json"
"""The record of the last backup, by role backup."""

PACKAGES = ("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n")


class UnitsError(CollectionError):
    """systemd does not answer as expected."""


def count_updates(commands: CommandsUntil) -> dict[str, int]:
    """The installed packages with a newer version in apt's lists, by kind. Nothing is downloaded."""
    rows = (line.split() for line in commands.output(*PACKAGES).split("\n"))
    names = sorted({row[0] for row in rows if len(row) == 2 and row[1] == "installed"})
    archives = Archives(read_archives(commands.output(*POLICY)))
    offers = read_offers(commands.output(*POLICY, *names)) if names else {}
    updates = (find_update(candidate, found, archives) for candidate, found in offers.values())
    counted = Counter(update.security == YES for update in updates if update.available)
    return {"security": counted[True], "other": counted[False]}


def read_backup(record: Mapping[str, Any]) -> int:
    """Unix time of the last good backup; 0 if there is none."""
    try:
        return int(record.get("succeeded", 0))
    except (TypeError, ValueError):
        return 0


def read_daemons(text: str, names: Sequence[str]) -> dict[str, bool]:
    """Whether each unit is active, from `systemctl show`, which answers in the order of the names."""
    states = re.findall(r"^ActiveState=(.*)$", text, re.MULTILINE)
    if len(states) != len(names):
        raise UnitsError(f"systemctl showed {len(states)} of {len(names)} units")
    return {name: state in ("active", "reloading") for name, state in zip(names, states)}


def measure_host(settings: Mapping[str, Any], commands: CommandsUntil) -> tuple[Series, list[str]]:
    """The series of this host, and what went wrong. What is not known has no series."""
    series, errors = Series(), []
    for name, path in settings["keys"].items():
        with suppress(FileNotFoundError):
            series.add("gpucluster_key_time_seconds", int(os.stat(path).st_mtime), key=name)
    if settings["key_max_age_days"]:
        series.add("gpucluster_key_max_age_seconds", settings["key_max_age_days"] * 86400)
    if settings["backup"]:
        series.add("gpucluster_backup_last_seconds", read_backup(read_record(BACKUP)))
        series.add("gpucluster_backup_max_age_seconds", settings["backup"]["max_age_hours"] * 3600)
    try:
        if units := settings["daemons"]:
            answer = commands.output("systemctl", "show", "--property=ActiveState", "--", *units)
            for name, up in read_daemons(answer, units).items():
                series.add("gpucluster_daemon_up", up, daemon=name)
    except CollectionError as error:
        errors.append(str(error))
    try:
        for kind, count in count_updates(commands).items():
            series.add("gpucluster_updates_pending", count, kind=kind)
    except CollectionError as error:
        errors.append(str(error))
    return series, errors
