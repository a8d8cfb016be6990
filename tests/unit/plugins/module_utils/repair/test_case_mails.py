# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Administrators get a mail when a case opens, needs a person or ends, and no second one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.finding_table import named
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair import cases
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.case_mails import (
    mail_about,
    mails_about_jobs,
    news,
    untold,
)

# No part of ansible-core takes part.
pytestmark = pytest.mark.once


def case_of(number: int) -> cases.NodeCase:
    return cases.opened(number, f"n{number}", [cases.Fault(named("xid-79"), "GPU has fallen off the bus")], 1e9)


def test_each_news_is_sent_once() -> None:
    case = case_of(1)
    said = []
    for state in (cases.FOUND, cases.SAVED, cases.DRAINED, cases.PERSON, cases.SAVED, cases.RETURNED, cases.RETURNED):
        case = cases.moved(case, state, case.since + 60)
        said += [news(one) for one in untold([case])]
        case = replace(case, told=news(case))
    assert said == ["opened", "needs a person", "opened", "ended"]


def test_a_mail_names_the_cases() -> None:
    person = cases.moved(case_of(2), cases.PERSON, 1e9 + 60, "treated 2 times in 7 days\nX: 1")
    subject, text = mail_about([case_of(1), person], "lab")
    assert subject == "lab: cases: n1 opened, n2 needs a person"
    first, second, *_more, last, _end = text.split("\n")
    assert first.startswith("Case 1, node n1, xid-79: opened 2001-09-09 ")
    assert second.endswith("(treated 2 times in 7 days X: 1)")
    assert last == "On a controller: slurm-repair show CASE"


def test_users_hear_of_requeued_jobs() -> None:
    mails = mails_about_jobs(case_of(1), {9: "anna", 7: "anna", 8: "ben"}, "lab")
    assert [*mails] == ["anna", "ben"]
    assert mails["anna"].subject == "lab: jobs 7, 9 were requeued"
    assert mails["anna"].text.split("\n")[-3:] == ["7", "9", ""]
    assert mails["ben"].subject == "lab: job 8 was requeued"
    assert mails["ben"].text.startswith("Node n1 has failed (xid-79), and jobs there could not go on.\n")


def test_a_fault_of_all_nodes_makes_one_short_mail() -> None:
    subject, text = mail_about([case_of(number) for number in range(1, 201)], "lab")
    assert subject == "lab: cases: n1 opened, n2 opened, n3 opened and 197 more"
    assert text.count("\n") == 53
    assert "\nand 150 more\n" in text
