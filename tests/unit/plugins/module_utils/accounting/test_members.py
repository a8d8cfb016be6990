# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Coordinators of accounts and WCKeys of users, whose names are added and removed."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.differences import compare
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.entities import Entity, State
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.policy import (
    PolicyError,
    policy_of,
    problems,
    read,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.sacctmgr import Sacctmgr, questions, state
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.sacctmgr_commands import batches
from programs import StandIn

COLUMNS = questions("lab")["associations"][-1].count(",") - 3


def association(account: str, user: str = "", parent: str = "") -> str:
    """A row without limits."""
    return "|".join([account, user, "", parent, *[""] * COLUMNS])


PLACES = [("science", "alice"), ("vision", "bob"), ("open", "carol")]
ROWS = {
    "accounts": "science||\nvision||\nopen||\n",
    "users": "alice|None\nbob|None\ncarol|None\n",
    "defaults": "".join(f"{user}|{account}\n" for account, user in PLACES),
    "associations": "\n".join(
        [
            association("root"),
            association("science", parent="root"),
            association("vision", parent="science"),
            association("open", parent="root"),
            *(association(*place) for place in PLACES),
        ]
    ),
    # alice is named for science, and bob for vision; carol is one as a user of open, which has the flag.
    "coordinators": "science|alice\nvision|alice,bob\nopen|carol\n",
    "flagged": "open\n",
    "wckeys": "alice|\nalice|*\nalice|*old\nalice|grant1\nalice|grant2\n",
}
STATE = state("lab", ROWS, ["lab"])


def commands(policy: dict[str, Any], found: State = STATE) -> list[str]:
    """The commands for a policy."""
    return [
        line
        for batch in batches(found, compare(found, read(policy, "lab", found)), "lab")
        if not batch.load
        for line in batch.lines
    ]


def test_a_policy_has_those_who_were_named() -> None:
    policy = policy_of(STATE)
    assert policy["accounts"] == [
        {"name": "science", "Coordinators": "alice"},
        {"name": "vision", "Parent": "science", "Coordinators": "bob"},
        {"name": "open"},
    ]
    assert policy["users"][0] == {
        "name": "alice",
        "DefaultAccount": "science",
        "WCKeys": "grant1,grant2",
        "accounts": [{"name": "science"}],
    }
    assert compare(STATE, read(policy, "lab", STATE, purge=True)) == []


@pytest.mark.parametrize(
    ("coordinators", "expected"),
    [
        (["bob", "carol"], ["add coordinator account=vision names=carol"]),
        ([], ["delete coordinator account=vision names=bob"]),
        (["Carol"], ["add coordinator account=vision names=carol", "delete coordinator account=vision names=bob"]),
        (["alice", "bob"], []),  # alice is one by the account above
    ],
)
def test_coordinators_are_added_and_removed(coordinators: list[str], expected: list[str]) -> None:
    assert commands({"accounts": [{"name": "vision", "Coordinators": coordinators}]}) == expected


def test_coordinators_by_a_flag_of_the_account_are_not_removed() -> None:
    assert commands({"accounts": [{"name": "open", "Coordinators": []}]}) == []


@pytest.mark.parametrize("purge", [False, True])
def test_who_is_not_named_stays(purge: bool) -> None:
    policy = {
        "accounts": ["science", {"name": "vision", "Parent": "science"}, "open"],
        "users": [{"name": user, "DefaultAccount": account} for account, user in PLACES],
    }
    assert compare(STATE, read(policy, "lab", STATE, purge)) == []


def test_a_new_coordinator_comes_after_the_account_and_the_user() -> None:
    policy = {
        "accounts": [{"name": "new", "Coordinators": ["dave"]}],
        "users": [{"name": "dave", "accounts": ["new"], "WCKeys": ["grant3"]}],
    }
    last = batches(STATE, compare(STATE, read(policy, "lab", STATE)), "lab")[-1]
    assert last.lines == ["add coordinator account=new names=dave", "add user name=dave wckeys=grant3 cluster=lab"]


def test_a_coordinator_is_a_user() -> None:
    with pytest.raises(PolicyError, match="account vision: Coordinators: 'alic' is unknown, did you mean 'alice'"):
        read({"accounts": [{"name": "vision", "Coordinators": ["alic"]}]}, "lab", STATE)


def test_a_cluster_file_can_have_them_before_there_is_a_database() -> None:
    policy = {"accounts": [{"name": "vision", "Coordinators": ["alice"]}], "qos": ["high"]}
    assert problems(policy, False, {}) == problems(policy, True, {}) == []


def test_a_suspended_user_is_no_coordinator() -> None:
    closed = {"MaxJobs": 0, "MaxSubmitJobs": 0, "GrpSubmitJobs": 0}
    policy = {
        "accounts": [{"name": "vision", "Coordinators": ["bob", "carol"]}],
        "users": [{"name": "bob", "accounts": ["vision"], **closed}],
    }
    wanted = read(policy, "lab", STATE)
    assert wanted[Entity("account", "vision")] == {"Coordinators": "carol"}


def test_wckeys_are_added_and_removed_for_the_cluster() -> None:
    assert commands({"users": [{"name": "alice", "accounts": ["science"], "WCKeys": ["grant2", "grant3"]}]}) == [
        "add user name=alice wckeys=grant3 cluster=lab",
        "delete user name=alice wckeys=grant1 cluster=lab",
    ]


def test_what_only_sacctmgr_sets_is_not_called_unknown() -> None:
    with pytest.raises(PolicyError, match=r"user alice: DefaultWCKey: a policy cannot have it, sacctmgr\(1\) sets it"):
        read({"users": [{"name": "alice", "accounts": ["science"], "DefaultWCKey": "x"}]}, "lab", STATE)


def test_a_release_without_flags_of_accounts(stand_in: StandIn) -> None:
    """22.05 ends with an error."""
    stand_in("sacctmgr", 'case "$*" in *cluster*format=Cluster) echo lab;; *flags=*) exit 1;; esac')
    assert Sacctmgr("lab").state().entities == {}
