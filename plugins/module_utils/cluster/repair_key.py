# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `repair` of the cluster file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, TypedDict

from .mail_key import sender
from .schema import Checker, Kind, choice, count, kind_of, mapping, text

OBSERVE, REBOOT, FULL = "observe", "reboot", "full"

_HOURS = re.compile(r"([0-9]{1,2})-([0-9]{1,2})")


def quiet_hours(value: Any) -> str:
    """Two different hours of the day."""
    match = _HOURS.fullmatch(text(value))
    if not match or max(map(int, match.groups())) > 23 or int(match[1]) == int(match[2]):
        raise ValueError("allowed: two different hours from 0 to 23, such as 22-6")
    return text(value)


class RepairKey(TypedDict, total=False):
    """The value of the key; empty without it."""

    mode: Annotated[str, choice([OBSERVE, REBOOT, FULL]), "required"]
    mail: Annotated[str, sender]
    quiet_hours: Annotated[str, quiet_hours]
    least_nodes: Annotated[dict[str, int], mapping]


REPAIR = kind_of(RepairKey)


def treats(repair: RepairKey) -> bool:
    """Whether nodes are treated."""
    return repair.get("mode", OBSERVE) != OBSERVE


def check(checker: Checker, found: Any, partitions: Iterable[str]) -> RepairKey:
    """The checked value of the key `repair`."""
    if not found:
        return {}
    repair = checker.check(REPAIR, "repair", found)
    if least := repair.get("least_nodes"):
        known: Kind[dict[str, int]] = Kind(own={name: {"type": count} for name in partitions})
        repair["least_nodes"] = checker.check(known, "repair.least_nodes", least)
    return repair


def check_mail(checker: Checker, repair: RepairKey, mail: object) -> None:
    """Mails need the relay of the key `mail`."""
    if repair.get("mail") and not mail:
        checker.problem("repair.mail", f"found {repair['mail']}, allowed: only with the key mail, whose relay sends it")
