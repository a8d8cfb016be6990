# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A policy: its errors, its differences from the state, and the commands for Slurm."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.differences import (
    compare,
    contents,
    in_use,
    not_removed,
    surplus,
    table,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.entities import Entity, JobAssociation, State
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.policy import (
    PolicyError,
    policy_of,
    problems,
    read,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.refusals import additions
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.sacctmgr_commands import batches

EMPTY = State({Entity("qos", "normal"): {}, Entity("cluster", "lab"): {}}, ["lab"], ["cpu", "mem", "gres/gpu"])
POLICY: dict[str, Any] = {
    "limits": {"MaxWall": "7-0"},
    "qos": [{"name": "Urgent", "Priority": 10, "Preempt": ["normal"]}, {"name": "normal", "MaxWall": "1-0"}],
    "accounts": [
        {
            "name": "science",
            "QOS": "normal",
            "accounts": [{"name": "physics", "Description": "Dept. of: Physics", "GrpTRES": {"gres/gpu": 8}}],
        },
        {"name": "optics", "parent": "physics"},
    ],
    "users": [
        {"name": "alice", "DefaultAccount": "physics", "Fairshare": 5, "AdminLevel": "Operator"},
        {"name": "bob", "accounts": ["optics", {"name": "science", "partition": "gpu", "MaxJobs": 2}]},
    ],
}


def after(policy: dict[str, Any], state: State, purge: bool = False) -> State:
    """The state that a policy makes of another one."""
    wanted = read(policy, "lab", state, purge)
    gone = surplus(state, wanted) if purge else []
    entities = {entity: {**state.entities.get(entity, {}), **settings} for entity, settings in wanted.items()}
    stays = {entity: settings for entity, settings in state.entities.items() if entity not in gone}
    for entity, settings in entities.items():
        if entity.kind == "account":
            settings.setdefault("Parent", "root")
    return State({**stays, **entities}, state.clusters, state.tres)


FULL = after(POLICY, EMPTY)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"qos": [{"name": "a", "Priorty": 1}]}, "qos a: Priorty: unknown to Slurm, did you mean 'Priority'?"),
        ({"qos": [{"name": "a", "MaxWall": "x"}]}, "qos a: MaxWall: found 'x', allowed: a time"),
        ({"qos": [{"name": "a"}, {"name": "A"}]}, "qos a: is listed twice"),
        ({"qos": [{"name": "a b"}]}, "qos: name: found 'a b', allowed: a name"),
        ({"qos": [{"Priority": 1}]}, "qos: name: missing"),
        ({"qos": [None]}, "qos: name: missing"),
        ({"accounts": [False]}, "account: name: found False, allowed: a name"),
        ({"qos": [{"name": "a", "Description": False}]}, "found False, allowed: text; YAML reads it as a boolean"),
        ({"accounts": [[[1]]]}, "account: name: found [[1]], allowed: a name"),
        ({"accounts": ["a#b"]}, "account: name: found 'a#b', allowed: a name"),
        ({"accounts": ["a\\b"]}, "account: name: found 'a\\\\b', allowed: a name"),
        ({"users": [{"name": "u[1]", "accounts": ["root"]}]}, "user: name: found 'u[1]', allowed: a name"),
        ({"users": [{"name": "u", "accounts": [None]}]}, "user u: name: missing"),
        ({"users": [{"name": "u", "accounts": [{"name": "root", "partition": True}]}]}, "partition: found True"),
        ({"qos": [{"name": "a", 1: 2}]}, "qos a: 1: unknown to Slurm"),
        ({"limits": {1: 2}}, "cluster lab: 1: unknown to Slurm"),
        ({"qos": [{"name": "a", "Preempt": "nromal"}]}, "qos a: Preempt: 'nromal' is unknown, did you mean 'normal'?"),
        ({"accounts": [{"name": "a", "QOS": "x"}]}, "account a: QOS: 'x' is unknown"),
        ({"accounts": [{"name": "a", "GrpTRES": "gpu=1"}]}, "account a: GrpTRES: 'gpu' is unknown"),
        ({"accounts": [{"name": "a", "Parent": "b"}]}, "account a: Parent: 'b' is unknown"),
        ({"accounts": [{"name": "a", "Parent": "a"}]}, "account a: is its own ancestor: a in a"),
        (
            {"accounts": [{"name": "a", "Parent": "b"}, {"name": "b", "Parent": "c"}, {"name": "c", "Parent": "a"}]},
            "account b: is its own ancestor: b in c in a in b",
        ),
        (
            {"accounts": [{"name": "a", "accounts": [{"name": "b", "Parent": "root"}]}]},
            "account b: Parent: found 'root', but it is in a",
        ),
        ({"users": [{"name": "u"}]}, "user u: has no account; name its DefaultAccount, or accounts"),
        ({"users": [{"name": "u", "DefaultAccount": " "}]}, "user u: has no account"),
        ({"users": [{"name": "u", "accounts": ["x"]}]}, "user u in x: account: 'x' is unknown"),
        ({"users": [{"name": "u", "accounts": ["root", "root"]}]}, "user u in root: is listed twice"),
        (
            {"users": [{"name": "u", "accounts": [{"name": "root", "partition": "a\ndelete qos b"}]}]},
            "user u: partition: found 'a\\ndelete qos b', allowed: a name",
        ),
        ({"qos": [{"name": "a", "MaxWall": 1, "maxwall": 2}]}, "qos a: MaxWall: is given twice"),
        ({"accounts": [{"name": "a", "gpu_hours": 1.5}]}, "account a: gpu_hours: found 1.5, allowed: a whole number"),
        (
            {"accounts": [{"name": "a", "gpu_hours": 1, "grptresmins": "cpu=1,gres/gpu=60"}]},
            "account a: gpu_hours: found with gres/gpu in GrpTRESMins, allowed: one of both",
        ),
        ({"users": {"name": "u"}}, "users: found {'name': 'u'}, allowed: a list"),
        (
            {"users": [{"name": "u", "accounts": [{"name": "root", "MaxJob": 1}]}]},
            "user u in root: MaxJob: unknown to Slurm, did you mean 'MaxJobs'?",
        ),
    ],
)
def test_a_wrong_policy_is_refused(policy: dict[str, Any], text: str) -> None:
    with pytest.raises(PolicyError) as error:
        read(policy, "lab", EMPTY)
    assert text in str(error.value)


def test_gpu_hours_are_minutes_and_change_nothing_when_slurm_has_them() -> None:
    policy = {
        "limits": {"gpu_hours": 10},
        "qos": [{"name": "normal", "gpu_hours": 1}],
        "accounts": [{"name": "a", "gpu_hours": 100000}],
        "users": [{"name": "u", "DefaultAccount": "a", "gpu_hours": 2}],
    }
    present = after(policy, EMPTY)
    minutes = {entity.text: own["GrpTRESMins"] for entity, own in present.entities.items() if "GrpTRESMins" in own}
    assert minutes == {
        "cluster lab": "gres/gpu=600",
        "qos normal": "gres/gpu=60",
        "account a": "gres/gpu=6000000",
        "user u in a": "gres/gpu=120",
    }
    assert compare(present, read(policy, "lab", present)) == []


def test_all_that_is_wrong_is_reported_at_once() -> None:
    wrong = {"qos": [{"name": "a", "x": 1}], "accounts": [{"name": "b", "Parent": "c"}], "users": [{"name": "d"}]}
    with pytest.raises(PolicyError) as error:
        read(wrong, "lab", EMPTY)
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize(
    "policy",
    [
        {"accounts": [{"nam": "physics"}], "users": [{"name": "u", "DefaultAccount": "physics"}]},
        {"accounts": [{"name": "a b"}, {"name": "c", "Parent": "physics"}]},
        {"qos": [{"name": False}], "accounts": [{"name": "physics", "QOS": ["off"]}]},
        {"users": [{"name": "u", "DefaultAccount": "a b"}]},
    ],
)
def test_a_wrong_name_is_no_error_of_those_that_refer_to_it(policy: dict[str, Any]) -> None:
    with pytest.raises(PolicyError) as error:
        read(policy, "lab", EMPTY, partitions={"p": [("QOS", "off")]} if "qos" in policy else {})
    assert [line for line in str(error.value).splitlines() if "nam: unknown" not in line][1:] == []


def test_what_slurm_has_is_known_unless_it_would_be_removed() -> None:
    policy = {"users": [{"name": "carol", "DefaultAccount": "physics", "QOS": ["urgent"]}]}
    assert Entity("association", "carol", "physics") in read(policy, "lab", FULL)
    with pytest.raises(PolicyError, match=r"'physics' is unknown(.*\n)*.*'urgent' is unknown"):
        read(policy, "lab", FULL, purge=True)


def test_on_an_empty_database_all_is_new_and_comes_in_order() -> None:
    changes = compare(EMPTY, read(POLICY, "lab", EMPTY))
    assert batches(EMPTY, changes, "lab") == [
        (
            False,
            [
                "add qos name=urgent",
                "modify qos where name=urgent set Priority=10 Preempt=normal",
                "modify qos where name=normal set MaxWall=1-00:00:00",
            ],
        ),
        (
            True,
            [
                "Cluster - 'lab'",
                "Parent - 'root'",
                "Account - 'science':QOS='normal'",
                "Parent - 'science'",
                "Account - 'physics':Description='dept. of: physics':GrpTRES='gres/gpu=8'",
                "Parent - 'physics'",
                "Account - 'optics'",
            ],
        ),
        (False, ["modify account where name=root cluster=lab set MaxWall=7-00:00:00"]),
        (
            True,
            [
                "Cluster - 'lab'",
                "Parent - 'physics'",
                "User - 'alice':DefaultAccount='physics':AdminLevel='Operator':Fairshare='5'",
                "Parent - 'optics'",
                "User - 'bob':DefaultAccount='optics'",
                "Parent - 'science'",
                "User - 'bob':DefaultAccount='optics':Partition='gpu':MaxJobs='2'",
            ],
        ),
    ]


@pytest.mark.parametrize("purge", [False, True])
def test_what_is_as_wanted_does_not_change(purge: bool) -> None:
    state = after(POLICY, EMPTY, purge)
    wanted = read(POLICY, "lab", state, purge)
    assert compare(state, wanted, surplus(state, wanted) if purge else []) == []


def test_limits_that_are_not_named_are_left_alone_or_with_purge_unset() -> None:
    policy = {**POLICY, "qos": [{"name": "urgent"}, {"name": "normal"}]}
    assert compare(FULL, read(policy, "lab", FULL)) == []
    found = compare(FULL, read(policy, "lab", FULL, purge=True))
    assert [(change.what, change.before, change.after) for change in found] == [
        ("qos urgent Preempt", "normal", ""),
        ("qos urgent Priority", "10", "0"),
        ("qos normal MaxWall", "1-00:00:00", ""),
    ]


def test_the_same_change_of_many_is_one_command() -> None:
    users = [{"name": f"u{i}", "accounts": ["physics", "optics"]} for i in range(1000)]
    state = after({"users": users}, FULL)
    changes = compare(state, read({"users": [{**user, "Fairshare": 7} for user in users]}, "lab", state))
    ((load, lines),) = batches(state, changes, "lab")
    assert (load, len(lines), max(map(len, lines)) < 4096) == (False, 2, True)
    assert lines[0].startswith("modify user where name=u0,u1,")
    assert lines[0].endswith(" cluster=lab set Fairshare=7")
    assert len(table(changes)) == 2


def test_a_limit_in_one_account_names_the_account() -> None:
    changed = [{"name": "bob", "accounts": ["optics", {"name": "science", "partition": "gpu", "MaxJobs": 3}]}]
    found = batches(FULL, compare(FULL, read({"users": changed}, "lab", FULL)), "lab")
    assert found == [(False, ["modify user where name=bob cluster=lab account=science partition=gpu set MaxJobs=3"])]


def test_an_account_moves_after_the_one_that_it_moves_to() -> None:
    policy = {"accounts": [{"name": "physics", "Parent": "optics"}, {"name": "optics", "Parent": "root"}]}
    ((load, lines),) = batches(FULL, compare(FULL, read(policy, "lab", FULL)), "lab")
    assert (load, lines) == (
        False,
        [
            "modify account where name=optics cluster=lab set Parent=root",
            "modify account where name=physics cluster=lab set Parent=optics",
        ],
    )


def test_purge_removes_from_the_leaves_on() -> None:
    policy = {"accounts": [{"name": "science"}], "users": [{"name": "bob", "DefaultAccount": "science"}]}
    wanted = read(policy, "lab", FULL, purge=True)
    changes = compare(FULL, wanted, surplus(FULL, wanted))
    _limits, load, commands = batches(FULL, changes, "lab")
    assert load.load
    assert load.lines[1:] == ["Parent - 'science'", "User - 'bob':DefaultAccount='science'"]
    assert commands.lines[-6:] == [
        "modify user where name=bob cluster=lab set DefaultAccount=science",
        "delete user where name=bob account=optics partition= cluster=lab",
        "delete user where name=bob account=science partition=gpu cluster=lab",
        "delete user where name=alice",
        "delete account where name=optics,physics",
        "delete qos where name=urgent",
    ]


def test_where_the_database_has_other_clusters_they_keep_their_users() -> None:
    state = State(FULL.entities, ["lab", "other"], FULL.tres)
    (batch,) = batches(state, compare(state, {}, [Entity("user", "alice")]), "lab")
    assert batch.lines == ["delete user where name=alice cluster=lab"]


def test_what_has_jobs_stays() -> None:
    wanted = read({}, "lab", FULL, purge=True)
    kept = in_use(
        FULL,
        surplus(FULL, wanted),
        [JobAssociation("7", "bob", "optics", "urgent"), JobAssociation("8", "bob", "optics", "normal")],
    )
    assert {entity.text: numbers for entity, numbers in kept.items()} == {
        "qos urgent": ["7"],
        "account science": ["7", "8"],
        "account physics": ["7", "8"],
        "account optics": ["7", "8"],
        "user bob": ["7", "8"],
    }


def test_a_number_sign_in_a_text_is_no_comment_in_a_file() -> None:
    """sacctmgr would take the rest of the line for a comment, and make nothing of the file."""
    policy = {"accounts": [{"name": "a", "Description": "GPU #1"}]}
    changes = compare(EMPTY, read(policy, "lab", EMPTY))
    assert [batch.lines[-1] for batch in batches(EMPTY, changes, "lab")] == ["Account - 'a':Description='gpu \\#1'"]


def test_what_no_command_can_name_and_what_would_take_others_along_stays() -> None:
    names = ("a[1]", "a1", "a_b", "a-b", "c_d", "a_bb")
    state = State({**{Entity("account", name): {"Parent": "root"} for name in names}, Entity("user", "a-b"): {}})
    unwanted = [Entity("account", name) for name in ("a[1]", "a_b", "c_d", "a_bb")]
    assert not_removed(state, unwanted) == {
        Entity("account", "a[1]"): "has a name that sacctmgr cannot take in a command",
        Entity("account", "a_b"): "Slurm would remove a-b with it",
    }
    assert not_removed(state, [*unwanted[1:], Entity("account", "a-b")]) == {}


def test_the_table_has_names_that_no_hostlist_can_have() -> None:
    state = State({Entity("account", name): {"Parent": "root"} for name in ("a[1]", "b,c")})
    assert table(compare(state, {}, [*state.entities])) == ["account a[1],b,c  gone"]


def test_slurms_own_is_no_surplus() -> None:
    root = (Entity("user", "root"), Entity("association", "root", "root"), Entity("account", "root"))
    own: dict[Entity, dict[str, str]] = {entity: {} for entity in root}
    state = State({**EMPTY.entities, **own}, ["lab"], [])
    assert surplus(state, {}) == []


def test_what_is_in_an_account_is_known() -> None:
    assert [entity.text for entity in contents(FULL, "science")] == [
        "account physics",
        "user bob in science, partition gpu",
    ]


@pytest.mark.parametrize("purge", [False, True])
def test_what_there_is_as_a_policy_changes_nothing(purge: bool) -> None:
    policy = policy_of(FULL)
    wanted = read(policy, "lab", FULL, purge)
    assert compare(FULL, wanted, surplus(FULL, wanted) if purge else []) == []


HINT = " (if Slurm has it already, list it as {{name: {}}})"


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (
            {"accounts": ["physics"], "users": [{"name": "u", "DefaultAccount": "physic"}]},
            "user u in physic: account: 'physic' is unknown, did you mean 'physics'?",
        ),
        (
            {"accounts": ["physics"], "users": [{"name": "u", "accounts": ["physics", "geology"]}]},
            "user u in geology: account: 'geology' is unknown",
        ),
        ({"accounts": ["a", {"name": "b", "Parent": "c"}]}, "account b: Parent: 'c' is unknown"),
        ({"qos": ["high"], "accounts": [{"name": "a", "QOS": "x"}]}, "account a: QOS: 'x' is unknown"),
        ({"qos": ["high", {"name": "low", "Preempt": "x"}]}, "qos low: Preempt: 'x' is unknown"),
    ],
)
def test_without_slurm_a_name_is_in_the_list_of_the_policy(policy: dict[str, Any], text: str) -> None:
    """Otherwise these names would be found after the cluster has been built, in stage policy."""
    unknown = text.partition(" is unknown")[0].rpartition(" ")[2].strip("'")
    assert problems(policy, False, {}) == [text + HINT.format(unknown)]
    assert problems(policy, True, {}) == [text]


def test_slurms_own_names_are_known_without_slurm() -> None:
    users = [{"name": "root", "DefaultAccount": "root", "QOS": "normal"}]
    assert problems({"accounts": ["a"], "qos": ["high"], "users": users}, False, {}) == []


def test_an_account_that_is_listed_by_its_name_stays_as_it_is() -> None:
    assert compare(FULL, read({"accounts": ["physics"], "qos": ["urgent"]}, "lab", FULL)) == []


@pytest.mark.parametrize("key", ["AllowAccounts", "denyaccounts"])
def test_an_account_of_a_partition_is_in_the_list_of_the_policy(key: str) -> None:
    partitions = {"gpu": [(key, ["physics", "physic"])]}
    text = f"partition gpu: {key}: 'physic' is unknown, did you mean 'physics'?"
    assert problems({"accounts": ["physics"]}, False, partitions) == [text + HINT.format("physic")]
    assert problems({"qos": ["high"]}, False, partitions) == []


def test_without_slurm_what_is_not_named_may_be_there() -> None:
    users = {"users": [{"name": "u", "DefaultAccount": "there", "QOS": "there", "GrpTRES": "gres/there=1"}]}
    assert problems(users, False, {}) == []
    assert problems(users, True, {}) == [
        "user u in there: account: 'there' is unknown",
        "user u in there: QOS: 'there' is unknown",
    ]
    assert problems({"accounts": [{"name": "a", "Parent": "a"}]}, False, {}) == [
        "account a: is its own ancestor: a in a"
    ]


def test_the_table_has_a_line_for_what_is_the_same() -> None:
    users = [{"name": f"u{i}", "DefaultAccount": "physics", "MaxJobs": 3} for i in range(1, 4)]
    gone = [Entity("user", "alice")]
    assert table(compare(FULL, read({"users": users}, "lab", FULL), gone)) == [
        "user u[1-3]  new",
        "user u[1-3] DefaultAccount  - -> physics",
        "user u[1-3] in physics  new",
        "user u[1-3] in physics MaxJobs  - -> 3",
        "user alice  gone",
    ]


PARTITIONS = {
    "gpu": (("QOS", "Urgent"), ("AllowQos", "normal,urgent")),
    "cpu": [("allowqos", ["ALL"]), ("MaxTime", "1")],
}


def test_the_qos_that_partitions_name_are_created_before_slurmctld_reads_them() -> None:
    wanted = read({"qos": [{"name": "URGENT"}]}, "lab", EMPTY, partitions=PARTITIONS)
    assert [change.what for change in additions(EMPTY, compare(EMPTY, wanted), "lab")] == ["qos urgent"]


@pytest.mark.parametrize("key", ["QOS", "AllowQos", "denyqos"])
def test_a_qos_of_a_partition_is_known(key: str) -> None:
    text = f"partition gpu: {key}: 'urgnt' is unknown, did you mean 'urgent'?"
    policy, partitions = {"qos": [{"name": "urgent"}]}, {"gpu": [(key, "urgnt")]}
    with pytest.raises(PolicyError) as caught:
        read(policy, "lab", EMPTY, partitions=partitions)
    assert str(caught.value) == text
    assert problems(policy, True, partitions) == [text]
    assert problems(policy, False, partitions) == [text + HINT.format("urgnt")]
    assert problems({}, False, partitions) == []


def test_a_check_does_not_know_what_resources_slurmctld_will_bring() -> None:
    policy = {"qos": [{"name": "a", "GrpTRES": {"gres/fpga": 1}}, {"name": "b", "GrpTRES": {"cup": 1}}]}
    for grows, text in ((False, ["'gres/fpga'", "'cup'"]), (True, ["'cup'"])):
        with pytest.raises(PolicyError) as caught:
            read(policy, "lab", State(EMPTY.entities, ["lab"], EMPTY.tres, grows))
        assert re.findall(r": ('.*?') is unknown", str(caught.value)) == text
