# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a policy cannot express is left alone and named: by a policy that is read from slurmdbd, and by a purge."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.apply import apply_policy
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.differences import compare
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.entities import Entity, Settings, State
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.other_clusters import OtherClusters
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.policy import policy_of, problems, read
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.sacctmgr_commands import batches
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.unmanaged import list_unmanaged
from hypothesis import given
from hypothesis import strategies as st

ENTITIES: dict[Entity, Settings] = {
    Entity("qos", "normal"): {},
    Entity("qos", "high"): {"Preempt": "long jobs,normal", "Priority": "5"},
    Entity("qos", "long jobs"): {},
    Entity("cluster", "lab"): {"QOS": "+high"},
    Entity("account", "phys lab"): {"Parent": "science"},
    Entity("account", "science"): {"Parent": "root", "Description": 'the "best"', "MaxJobs": "3"},
    Entity("account", "lasers"): {"Parent": "phys lab"},
    Entity("account", "müller"): {"Parent": "root"},
    Entity("user", "alice"): {"DefaultAccount": "phys lab"},
    Entity("association", "alice", "phys lab"): {"MaxJobs": "2"},
    Entity("association", "alice", "science"): {"QOS": "+high"},
    Entity("user", "first.last"): {"DefaultAccount": "science"},
    Entity("association", "first.last", "science"): {"MaxJobs": "7"},
    Entity("user", "EX\\bob"): {"DefaultAccount": "science"},
    Entity("association", "EX\\bob", "science"): {},
    Entity("user", "Carol"): {"DefaultAccount": "lasers"},
    Entity("association", "Carol", "lasers"): {},
    Entity("user", "dave"): {"DefaultAccount": "müller"},
    Entity("association", "dave", "müller"): {},
    Entity("user", "eve"): {"DefaultAccount": ""},
    Entity("association", "eve", "science"): {},
}
STATE = State(ENTITIES, ["lab"], ["cpu"])
LEFT_OUT = [
    "qos long jobs: has a name that a policy cannot have",
    "account phys lab,müller: has a name that a policy cannot have",
    "user EX\\bob,Carol: has a name that a policy cannot have",
    "user alice in phys lab: the account has a name that a policy cannot have",
    "user dave: has no account that a policy can name",
    "user eve: has no default account",
    "qos high: Preempt='long jobs,normal' cannot be in a policy",
    "cluster lab: QOS='+high' cannot be in a policy",
    "account science: Description='the \"best\"' cannot be in a policy",
    "account lasers: Parent='phys lab' cannot be in a policy",
    "user alice: DefaultAccount='phys lab' cannot be in a policy",
    "user alice in science: QOS='+high' cannot be in a policy",
]


def purge(policy: Mapping[str, Any], state: State = STATE) -> Any:
    """The result of a purge in check mode."""
    module: Any = SimpleNamespace(check_mode=True)
    database: Any = SimpleNamespace(
        cluster="lab",
        state=lambda: state,
        jobs=list,
        others=lambda *_about: OtherClusters([]),
        coordinators=lambda _users: [],
    )
    return apply_policy(module, database, policy, purge=True)


def test_a_policy_has_what_it_can_express_and_the_rest_is_named() -> None:
    assert policy_of(STATE) == {
        "limits": {},
        "qos": [{"name": "high", "Priority": "5"}],
        "accounts": [{"name": "science", "MaxJobs": "3"}, {"name": "lasers"}],
        "users": [
            {"name": "alice", "accounts": [{"name": "science"}]},
            {
                "name": "first.last",
                "DefaultAccount": "science",
                "accounts": [{"name": "science", "MaxJobs": "7"}],
            },
        ],
    }
    assert sorted(list_unmanaged(STATE)) == sorted(LEFT_OUT)


@pytest.mark.parametrize("with_purge", [False, True])
def test_the_policy_is_valid_and_changes_nothing(with_purge: bool) -> None:
    policy = policy_of(STATE)
    assert problems(policy, with_purge, {"main": [("AllowAccounts", "müller,science")]}) == []
    assert compare(STATE, read(policy, "lab", STATE, with_purge)) == []
    if with_purge:
        result = purge(policy)
        not_removed_anyway = {line for line in LEFT_OUT if line.startswith("cluster") or "Description" in line}
        assert (result["table"], {*result["kept"]}) == ([], {*LEFT_OUT} - not_removed_anyway)


def test_a_purge_removes_nothing_that_a_policy_cannot_express_and_nothing_above_it() -> None:
    """sacctmgr removes an account with all that is in it."""
    result = purge({"accounts": ["lasers"], "users": [{"name": "zoe", "accounts": ["lasers"]}]})
    assert "qos high  gone" in result["table"]
    assert not [line for line in result["table"] if "account" in line and "gone" in line]
    assert [line for line in result["table"] if line.startswith("user") and line.endswith("gone")] == [
        "user first.last  gone"
    ]
    assert "account science: account phys lab stays in it" in result["kept"]
    assert "user alice: is in phys lab: the account has a name that a policy cannot have" in result["kept"]


def test_a_policy_can_name_what_a_purge_would_keep() -> None:
    policy = policy_of(STATE)
    policy["users"][0]["accounts"][0]["QOS"] = ["high"]
    assert purge(policy)["table"] == ["user alice in science QOS  +high -> high"]


def test_a_suspended_user_is_suspended_in_an_account_that_no_command_can_name() -> None:
    """`account=phys lab` would be two words."""
    closed = {"MaxJobs": "0", "MaxSubmitJobs": "0", "GrpSubmitJobs": "0"}
    state = State(
        {
            **ENTITIES,
            Entity("association", "alice", "phys lab"): {"MaxJobs": "2"},
            Entity("association", "alice", "science"): {**closed, "MaxJobs": "5"},
        },
        ["lab"],
    )
    policy = {"users": [{"name": "alice", "accounts": ["science"], **closed}]}
    lines = batches(state, compare(state, read(policy, "lab", state)), "lab")[0].lines
    assert lines == [
        "modify user where name=alice cluster=lab account=science partition= set MaxJobs=0",
        "modify user where name=alice cluster=lab set MaxJobs=0 MaxSubmitJobs=0 GrpSubmitJobs=0",
    ]


NAMES = st.sampled_from(["a", "b", "a b", "B", "c.d", "ü", "+x", "e\\f", "1.10", "on"])
VALUES = st.sampled_from(["", "1", "+a", "-b", "a,b", "a b", "x|y", "00:10:00", "cpu=1", "cluster"])


@st.composite
def states(draw: st.DrawFn) -> State:
    """A database with any names and values."""
    entities: dict[Entity, Settings] = {Entity("cluster", "lab"): {"QOS": draw(VALUES)}, Entity("qos", "normal"): {}}
    for name in draw(st.sets(NAMES)):
        entities[Entity("qos", name)] = {"Preempt": draw(VALUES), "MaxWall": draw(VALUES), "GrpTRES": draw(VALUES)}
    accounts = [*draw(st.sets(NAMES, min_size=1))]
    for i, name in enumerate(accounts):
        above = draw(st.sampled_from(["root", *accounts[:i]]))
        own = {key: draw(VALUES) for key in ("QOS", "Description", "Coordinators")}
        entities[Entity("account", name)] = {"Parent": above, **own}
    for name in draw(st.sets(NAMES)):
        places = [*draw(st.sets(st.sampled_from(accounts), min_size=1))]
        entities[Entity("user", name)] = {
            "DefaultAccount": draw(st.sampled_from(["", *places])),
            "WCKeys": draw(VALUES),
        }
        for place in places:
            entities[Entity("association", name, place)] = {"QOS": draw(VALUES), "DefaultQOS": draw(VALUES)}
    return State(entities, ["lab"], ["cpu"])


@given(states())
def test_any_database_gives_a_valid_policy_that_changes_nothing(state: State) -> None:
    policy = policy_of(state)
    assert problems(policy, False, {}) == []
    for with_purge in (False, True):
        assert compare(state, read(policy, "lab", state, with_purge)) == []
    assert purge(policy, state)["table"] == []
