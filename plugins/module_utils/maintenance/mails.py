# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mails about a maintenance: who gets one, what it says, and the record of those that were sent."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any

from .jobs_in_the_way import Concerned
from .window import MaintenanceWindow, clock

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,63}", re.ASCII)
"""A user's name that is the first part of an address; squeue shows a number for a user without a name."""

JOBS = 20
"""Jobs that a mail names."""


@dataclass(frozen=True)
class Announcement:
    """What the mails of a maintenance say."""

    cluster: str
    window: MaintenanceWindow
    nodes: str
    """A hostlist; `ALL` for all."""
    message: str = ""

    @property
    def digest(self) -> str:
        """A checksum: users get another mail if it changes."""
        parts = [*self.window, self.nodes, self.message]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass
class MailRecord:
    """Who has got which mail about the maintenance, as the controller keeps it."""

    window: MaintenanceWindow = field(default_factory=lambda: MaintenanceWindow(0, 0))
    nodes: str = "ALL"
    users: dict[str, str] = field(default_factory=dict)
    """The digest of the announcement by user."""

    @classmethod
    def of(cls, kept: Mapping[str, Any], now: int) -> MailRecord:
        """The kept record; an empty one if that is of a maintenance that is over, or if a person has damaged it."""
        window, nodes, users = kept.get("window"), kept.get("nodes"), kept.get("users")
        if not (isinstance(window, list) and isinstance(nodes, str) and isinstance(users, dict)):
            return cls()
        sound = len(window) == 2 and all(isinstance(seconds, int) for seconds in window)
        if not sound or not all(isinstance(digest, str) for digest in users.values()) or window[1] <= now:
            return cls()
        return cls(MaintenanceWindow(*window), nodes, dict(users))

    def kept(self) -> dict[str, object]:
        """What is kept."""
        return {"window": [*self.window], "nodes": self.nodes, "users": self.users}


@dataclass(frozen=True)
class Mail:
    """A mail to one user."""

    user: str
    subject: str
    text: str


def announcements(announcement: Announcement, found: Concerned, record: MailRecord) -> list[Mail]:
    """The mails that are due: to users with jobs on the nodes, and to those who have got one about another time."""
    due = sorted(user for user in found.users | {*record.users} if record.users.get(user, "") != announcement.digest)
    return [_announce(announcement, user, found, user in record.users) for user in due]


def _announce(announcement: Announcement, user: str, found: Concerned, again: bool) -> Mail:
    """The mail that tells a user of the maintenance, or that it has changed."""
    what = f"maintenance of the cluster {announcement.cluster}"
    start, end = map(clock, announcement.window)
    paragraphs = [
        f"The {what} has changed." if again else f"There will be {what}.",
        "\n".join([f"From:  {start}", f"Until: {end}", f"Nodes: {nodes_for_people(announcement.nodes)}"]),
        announcement.message,
        _about(
            (job.job for job in found.running if job.user == user),
            "These running jobs of yours may still run when it begins. Slurm does not end them, but the maintenance "
            "may: save their state before",
        ),
        _about(
            (job.job for job in found.waiting if job.user == user),
            "These queued jobs of yours start after it. With a shorter time limit (scontrol update JobId=ID "
            "TimeLimit=...) they can start before",
        ),
        "scontrol show reservation shows it as well.",
    ]
    subject = f"{'Changed: ' if again else ''}{what}, {start}"
    return Mail(user, subject, _text(paragraphs))


def endings(cluster: str, record: MailRecord, now: int) -> list[Mail]:
    """The mails to all who have got one: the maintenance has ended, or will not be."""
    what = f"maintenance of the cluster {cluster}"
    begun = record.window.start <= now
    told = f"The {what} has ended." if begun else f"The {what} is cancelled. It was to begin at"
    paragraphs = [told if begun else f"{told} {clock(record.window.start)}.", "Queued jobs start again."]
    subject = f"{'Ended' if begun else 'Cancelled'}: {what}"
    return [Mail(user, subject, _text(paragraphs if begun else paragraphs[:1])) for user in sorted(record.users)]


def nodes_for_people(nodes: str) -> str:
    """The nodes of a maintenance."""
    return "all" if nodes.upper() == "ALL" else nodes


def _about(jobs: Iterable[str], what: str) -> str:
    """A sentence about jobs; empty without any."""
    numbers = list(jobs)
    more = f" and {len(numbers) - JOBS} more" if len(numbers) > JOBS else ""
    return f"{what}: {', '.join(numbers[:JOBS])}{more}." if numbers else ""


def _text(paragraphs: Collection[str]) -> str:
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


def address(user: str, domain: str) -> str:
    """The address of a user, as slurmctld makes it with MailDomain; empty if the name cannot be one."""
    if not _USER.fullmatch(user):
        return ""
    return f"{user}@{domain}" if domain else user


def message_of(mail: Mail, to: str, sender: str) -> bytes:
    """The mail as msmtp takes it."""
    message = EmailMessage()
    message["From"] = sender
    message["To"] = to
    message["Subject"] = mail.subject
    message["Date"] = formatdate()
    message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2])
    # No answers of out-of-office programs (RFC 3834).
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text, cte="quoted-printable")  # not every relay takes 8 bits
    return bytes(message)
