# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `repair` of the cluster file."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import repair_key
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import Checker


def checked(found: Any, mail: object = "relay") -> tuple[repair_key.RepairKey, list[str]]:
    """The valid part, and the problems."""
    problems: list[str] = []
    checker = Checker("my.cluster.yml", problems)
    repair = repair_key.check(checker, found, ["gpu", "cpu"])
    repair_key.check_mail(checker, repair, mail)
    return repair, problems


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"mode": "observe"},
        {"mode": "observe", "mail": "ops@example.org", "quiet_hours": "22-6", "least_nodes": {"gpu": 4}},
    ],
)
def test_right_values_stay(found: Any) -> None:
    assert checked(found) == (found, [])


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({"mail": "ops@example.org"}, "my.cluster.yml: repair.mode: missing"),
        ({"mode": "obsreve"}, "repair.mode: found 'obsreve', unknown value, did you mean 'observe'?"),
        ({"mode": "observe", "mails": "ops@example.org"}, "repair.mails"),
        ({"mode": "observe", "mail": "ops"}, "repair.mail: found 'ops', allowed: a mail address"),
        ({"mode": "observe", "quiet_hours": "22-24"}, "repair.quiet_hours: found '22-24', allowed: two different"),
        ({"mode": "observe", "quiet_hours": "6-6"}, "repair.quiet_hours: found '6-6', allowed: two different"),
        ({"mode": "observe", "quiet_hours": 22}, "repair.quiet_hours: found 22"),
        ({"mode": "observe", "least_nodes": {"gpus": 4}}, "repair.least_nodes"),
        ({"mode": "observe", "least_nodes": {"gpu": "4"}}, "repair.least_nodes.gpu: found '4', allowed: a whole"),
        ({"mode": "observe", "least_nodes": 4}, "repair.least_nodes: found 4, allowed: a mapping"),
    ],
)
def test_wrong_values_are_named(found: Any, problem: str) -> None:
    (said,) = checked(found)[1]
    assert problem in said


def test_mails_need_a_relay() -> None:
    (said,) = checked({"mode": "observe", "mail": "ops@example.org"}, mail={})[1]
    assert said == (
        "my.cluster.yml: repair.mail: found ops@example.org, allowed: only with the key mail, whose relay sends it"
    )
