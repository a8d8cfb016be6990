# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mails to administrators: one for all cases that have opened, need a person or have ended since the last one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..language.formatting import visible
from .case_texts import moment
from .cases import PERSON, NodeCase

OPENED, NEEDS_PERSON, ENDED = "opened", "needs a person", "ended"

SUBJECTS = 3
"""News that a subject has."""
LONGEST_LIST = 50
"""Cases that a mail names. A fault of the network can open one for each node."""


class CaseMail(NamedTuple):
    """A mail to the administrators."""

    subject: str
    text: str


def news(case: NodeCase) -> str:
    """What there is to say of a case."""
    return ENDED if not case.is_open else NEEDS_PERSON if case.state == PERSON else OPENED


def untold(cases: Iterable[NodeCase]) -> list[NodeCase]:
    """The cases with something new."""
    return [case for case in cases if case.told != news(case)]


def mail_about(cases: Sequence[NodeCase], cluster: str) -> CaseMail:
    """The mail about cases, of which there is one at least."""
    what = [f"{case.node} {news(case)}" for case in cases]
    more = f" and {len(what) - SUBJECTS} more" if len(what) > SUBJECTS else ""
    left = [f"and {len(cases) - LONGEST_LIST} more"] if len(cases) > LONGEST_LIST else []
    lines = [*map(_line, cases[:LONGEST_LIST]), *left, "", "On a controller: slurm-repair show CASE", ""]
    return CaseMail(f"{cluster}: cases: {', '.join(what[:SUBJECTS])}{more}", "\n".join(lines))


def _line(case: NodeCase) -> str:
    why = f" ({visible(' '.join(case.why.split()))})" if case.why else ""
    return f"Case {case.number}, node {case.node}, {case.finding}: {news(case)} {moment(case.since)}{why}"
