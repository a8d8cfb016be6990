# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mails: to administrators one for all news of cases since the last one, and to users whose jobs were requeued."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def mails_about_jobs(case: NodeCase, users: Mapping[int, str], cluster: str) -> dict[str, CaseMail]:
    """The mails about jobs that were requeued, by user.

    Args:
        case: that of their node.
        users: the user of each job.
        cluster: its name.
    """
    return {user: _mail_about_jobs(case, _jobs_of(user, users), cluster) for user in sorted({*users.values()})}


def _jobs_of(user: str, users: Mapping[int, str]) -> list[str]:
    return [str(number) for number in sorted(users) if users[number] == user]


def _mail_about_jobs(case: NodeCase, jobs: Sequence[str], cluster: str) -> CaseMail:
    job, were = ("job", "was") if len(jobs) == 1 else ("jobs", "were")
    subject = f"{cluster}: {job} {', '.join(jobs[:SUBJECTS])} {were} requeued"
    lines = [
        f"Node {case.node} has failed ({case.finding}), and jobs there could not go on.",
        f"Slurm starts your {job} again from the beginning, on other nodes or when the node is mended:",
        "",
        *jobs,
    ]
    return CaseMail(subject, "\n".join([*lines, ""]))


def _line(case: NodeCase) -> str:
    why = f" ({visible(' '.join(case.why.split()))})" if case.why else ""
    return f"Case {case.number}, node {case.node}, {case.finding}: {news(case)} {moment(case.since)}{why}"
