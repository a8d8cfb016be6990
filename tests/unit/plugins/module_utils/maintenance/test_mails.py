# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mails about a maintenance."""

from __future__ import annotations

from email import message_from_bytes, policy
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.maintenance import mails
from ansible_collections.gpucluster.slurm.plugins.module_utils.maintenance.jobs_in_the_way import (
    Concerned,
    ConcernedJob,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.maintenance.mails import Announcement, Mail, MailRecord
from ansible_collections.gpucluster.slurm.plugins.module_utils.maintenance.window import MaintenanceWindow

NOW = 1_796_000_000
WINDOW = MaintenanceWindow(NOW + 3600, NOW + 7200)
ANNOUNCED = Announcement("hpc", WINDOW, "ALL", "New switches")


def of(job: str, user: str) -> ConcernedJob:
    return ConcernedJob(job, user, "gpu", "1:00:00", None)


def test_each_user_gets_one_mail_for_each_change() -> None:
    concerned = Concerned(users={"bob", "alice"})
    record = MailRecord()
    assert [mail.user for mail in mails.announcements(ANNOUNCED, concerned, record)] == ["alice", "bob"]
    record.users = {"alice": ANNOUNCED.digest, "gone": ANNOUNCED.digest}
    assert [mail.user for mail in mails.announcements(ANNOUNCED, concerned, record)] == ["bob"]
    other = Announcement("hpc", WINDOW, "ALL", "New disks")
    changed = mails.announcements(other, concerned, record)
    assert [(mail.user, mail.subject.startswith("Changed: ")) for mail in changed] == [
        ("alice", True),
        ("bob", False),
        ("gone", True),
    ]


@pytest.mark.parametrize(
    "other",
    [
        Announcement("hpc", MaintenanceWindow(WINDOW.start + 60, WINDOW.end), "ALL", "New switches"),
        Announcement("hpc", MaintenanceWindow(WINDOW.start, WINDOW.end + 60), "ALL", "New switches"),
        Announcement("hpc", WINDOW, "n1", "New switches"),
        Announcement("hpc", WINDOW, "ALL", ""),
    ],
)
def test_what_counts_as_a_change(other: Announcement) -> None:
    assert other.digest != ANNOUNCED.digest


def test_a_mail_names_the_own_jobs_alone() -> None:
    concerned = Concerned([of("1", "alice"), of("2", "bob")], [of("3_[1-9]", "alice"), of("4", "bob")], {"alice"})
    (mail,) = mails.announcements(ANNOUNCED, concerned, MailRecord())
    assert "save their state before: 1.\n" in mail.text
    assert "they can start before: 3_[1-9].\n" in mail.text
    assert "Nodes: all\n\nNew switches\n" in mail.text
    assert "\n\n\n" not in mail.text


def test_of_many_jobs_a_mail_names_the_first() -> None:
    jobs = [of(str(number), "alice") for number in range(50)]
    (mail,) = mails.announcements(ANNOUNCED, Concerned(jobs, [], {"alice"}), MailRecord())
    assert "19 and 30 more." in mail.text


def test_the_end_is_told_to_all_who_know_of_the_maintenance() -> None:
    record = MailRecord(WINDOW, "ALL", {"bob": "x", "alice": "y"})
    cancelled = mails.endings("hpc", record, NOW)
    assert [(mail.user, mail.subject) for mail in cancelled] == [
        ("alice", "Cancelled: maintenance of the cluster hpc"),
        ("bob", "Cancelled: maintenance of the cluster hpc"),
    ]
    (ended, _other) = mails.endings("hpc", record, WINDOW.start + 60)
    assert ended.subject.startswith("Ended: ")
    assert "has ended" in ended.text


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {"window": [1], "nodes": "ALL", "users": {}},
        {"window": ["1", "2"], "nodes": "ALL", "users": {}},
        {"window": [*WINDOW], "nodes": "ALL", "users": {"alice": 1}},
        {"window": [*WINDOW], "nodes": None, "users": {"alice": "x"}},
        {"window": [NOW - 20, NOW - 10], "nodes": "ALL", "users": {"alice": "x"}},
    ],
)
def test_a_record_that_is_damaged_or_over_is_an_empty_one(kept: dict[str, Any]) -> None:
    assert MailRecord.of(kept, NOW) == MailRecord()


def test_a_record_is_read_as_it_is_kept() -> None:
    record = MailRecord(WINDOW, "n[1-2]", {"alice": "x"})
    assert MailRecord.of(record.kept(), NOW) == record


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("alice", "alice@a.example"),
        ("a.b-c_d", "a.b-c_d@a.example"),
        *((name, "") for name in ("1005", "-oQ/tmp", "a b", "a\nBcc: c", "a@b", "é", "a" * 65, "")),
    ],
)
def test_only_names_become_addresses(user: str, expected: str) -> None:
    assert mails.address(user, "a.example") == expected


def test_a_message_has_one_recipient_and_the_text_as_it_is() -> None:
    mail = Mail("alice", "Maintenance", "学習\n.\n$(reboot)\n")
    message = message_from_bytes(mails.message_of(mail, "alice@a.example", "slurm@b.example"), policy=policy.default)
    assert (message["To"], message["From"], message["Bcc"]) == ("alice@a.example", "slurm@b.example", None)
    assert message.get_content() == mail.text
