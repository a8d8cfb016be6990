# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The open cases of nodes that fail (key `repair`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .report_texts import SENTENCE, Time, age, count_of, plural, records_of, text_of, time_of
from .upkeep_tables import PageCheck

CASES = 100
"""Cases that are listed."""


class OpenCase(NamedTuple):
    """A node that fails. following: what would be done next, or why nothing is. held: who has stopped it for now."""

    number: int
    node: str
    opened: Time
    age: str
    state: str
    is_for_person: bool
    finding: str
    text: str
    following: str
    held: str


def cases_of(data: Mapping[str, Any], now: Time) -> list[OpenCase]:
    """The open cases: those that need a person first, then the oldest one."""
    found = [
        OpenCase(
            count_of(record, "number"),
            text_of(record, "node"),
            time_of(record, "opened"),
            age(time_of(record, "opened"), now),
            text_of(record, "state", 24),
            record.get("state") == "person",
            text_of(record, "finding"),
            text_of(record, "text", SENTENCE),
            text_of(record, "next", SENTENCE) or text_of(record, "why", SENTENCE),
            text_of(record, "held"),
        )
        for record in records_of(data, "cases")
    ]
    return sorted(found, key=lambda case: (not case.is_for_person, case.opened.seconds, case.number))


def cases_check(cases: Sequence[OpenCase], missing: bool) -> PageCheck:
    """About nodes that fail. missing: whether the cases could not be had."""
    if missing:
        return PageCheck("Nodes that fail", "unknown", "not known", "cases")
    if not cases:
        return PageCheck("Nodes that fail", "good", "no case is open", "cases")
    waiting = sum(case.is_for_person for case in cases)
    text = f"{plural(len(cases), 'open case')}{f', {waiting} for a person' if waiting else ''}"
    return PageCheck("Nodes that fail", "bad" if waiting else "warn", text, "cases")
