# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role people."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import people
from plain_host import PlainHost, cluster

PLAN: dict[str, Any] = {
    "source": "list",
    "groups": [],
    "users": [
        {"name": "ann", "state": "present", "jobs": "end"},
        {"name": "bob", "state": "suspended", "jobs": "end"},
        {"name": "eve", "state": "suspended", "jobs": "keep"},
    ],
}


def hosts_with(**variables: Any) -> dict[str, PlainHost]:
    hosts: dict[str, PlainHost] = cluster(**{"slurm_people": PLAN, **variables})
    return hosts


def test_the_plan_is_one_text() -> None:
    hosts = hosts_with()
    assert json.loads(people.plan(hosts["n1"])) == PLAN


def test_conflicts_name_their_hosts_and_the_way_out() -> None:
    hosts = hosts_with()
    assert people.conflicts(hosts["head"]) == []
    for name in ("n1", "n2"):
        hosts[name].set(__people_compared={"conflicts": ["uid 5001 of user ann belongs to user bob here"]})
    hosts["login"].set(__people_compared={"unreachable": True})
    assert people.conflicts(hosts["head"]) == ["n[1-2]: uid 5001 of user ann belongs to user bob here", people.WAY_OUT]


def test_hosts_that_have_failed_are_not_asked_for_warnings() -> None:
    hosts = hosts_with(ansible_play_hosts=["n1"])
    hosts["n1"].set(__people_applied={"remarks": ["the home of bob stays"]})
    hosts["n2"].set(__people_applied={"remarks": ["another one"]})
    assert people.warnings(hosts["n1"]) == ["n1: the home of bob stays"]


ABSENT = {**PLAN, "users": [{"name": "ann", "state": "absent"}, {"name": "anna", "state": "absent"}]}
REMOVED = "user ann is removed, and the home /home/ann stays"
STAYS = (
    "What Slurm has of ann stays, associations and limits: sacctmgr delete user ann removes it, as purge: true of the "
    "key accounting does"
)


@pytest.mark.parametrize(
    ("remark", "variables", "lines"),
    [
        (REMOVED, {}, [f"n1: {REMOVED}", STAYS]),
        (REMOVED, {"slurm_accounting_purge": True}, [f"n1: {REMOVED}"]),
        (REMOVED, {"slurm_database": ""}, [f"n1: {REMOVED}"]),
        (
            "user bob is not in the plan and keeps the account",
            {},
            ["n1: user bob is not in the plan and keeps the account"],
        ),
    ],
)
def test_a_user_who_leaves_is_named_with_what_stays_in_slurm(
    remark: str, variables: dict[str, Any], lines: list[str]
) -> None:
    hosts = hosts_with(ansible_play_hosts=["n1"], slurm_people=ABSENT, **variables)
    hosts["n1"].set(__people_applied={"remarks": [remark]})
    assert people.warnings(hosts["n1"]) == lines


def test_jobs_of_a_suspended_user_end_if_the_plan_says_so() -> None:
    host = hosts_with()["n1"]
    assert "--user=bob,eve" in people.jobs_question(host)
    assert people.jobs_question(hosts_with(slurm_people={})["n1"]) == []
    assert people.jobs_that_end(host) == {}
    lines = ["7                    1  bob                  ", "8 0 bob", "slurm_load_jobs error: Unable to contact"]
    assert people.jobs_that_end(host.set(__people_jobs={"stdout_lines": lines})) == {"7": "bob", "8": "bob"}


def test_jobs_of_srun_and_salloc_end_in_any_case() -> None:
    users = [{"name": "bob", "state": "suspended", "jobs": "stay"}, {"name": "eve", "state": "suspended"}]
    host = hosts_with(slurm_people={"users": users})["n1"]
    assert "--user=bob,eve" in people.jobs_question(host)
    lines = ["7 1 bob", "8 0 bob", "9+1 0 eve", "10_3 1 eve"]
    assert people.jobs_that_end(host.set(__people_jobs={"stdout_lines": lines})) == {"8": "bob", "9+1": "eve"}


def directory(**unknown: int | None) -> dict[str, PlainHost]:
    """Hosts that have given an answer each."""
    answers = {name: {"checksum": name, "unknown": count} for name, count in unknown.items()}
    return hosts_with(
        __slurm_run={"directory_answers": answers, "directory_users": ["Ann", "bob"]}, ansible_play_hosts=[*answers]
    )


def test_a_directory_is_asked_in_small_letters_where_it_has_answered() -> None:
    hosts = directory(n1=0, n2=None)
    assert people.question(hosts["n1"])[-3:] == ["--", "ann", "bob"]
    assert people.question(hosts["n1"])
    assert not people.question(hosts["n2"])
    assert people.directory(hosts["n1"])["remarks"][-1] == "n2: the directory did not answer, so ids were not compared"


def test_ids_of_a_directory_that_differ_are_refused() -> None:
    hosts = directory(n1=0, n2=0)
    hosts["n1"].set(__people_ids={"stdout": "ann:x:5001:5001::/:/bin/sh\nbob:x:5002:5002::/:/bin/sh"})
    hosts["n2"].set(__people_ids={"stdout": "ann:x:5001:5001::/:/bin/sh\nbob:x:5003:5002::/:/bin/sh"})
    found = people.directory(hosts["n1"])["conflicts"]
    assert found[0].startswith("user bob has uid 500")
    assert found[1:] == [people.DIRECTORY_WAY_OUT]
    assert people.directory(hosts["n1"])["remarks"] == []


def test_equal_ids_of_a_directory_are_right() -> None:
    hosts = directory(n1=0, n2=0)
    for name in ("n1", "n2"):
        hosts[name].set(__people_ids={"stdout": "ann:x:5001:5001::/:/bin/sh"})
    assert people.directory(hosts["n1"])["conflicts"] == []
    assert people.directory(hosts["n1"])["remarks"] == ["n[1-2]: users of the policy who do not exist: bob"]
