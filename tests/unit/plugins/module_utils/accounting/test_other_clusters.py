# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stays for the other clusters of a database."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.apply import apply_policy
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.differences import compare
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.entities import Entity, State
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.other_clusters import (
    OtherClusters,
    in_other_clusters,
    kept_for_other_clusters,
    kept_settings,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.policy import PolicyError, read
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.sacctmgr import Sacctmgr, other_clusters
from programs import StandIn

# Cluster, account, user, QOS, default QOS, as sacctmgr shows them with `wopl`.
PLACES = """far|root||normal|
far|root|root||
far|lab2||normal,theirs|
far|shared|dave|+delta|preset
far|lab2|u-v||
third|shared||normal,theirs|
"""
COORDINATORS = "lab2|\nshared|frank,dave\nonly|eve\n"
WCKEYS = "far|hank\nfar|hank\n"
OTHERS = other_clusters(
    ["far", "third"], {"places": PLACES, "coordinators": COORDINATORS, "wckeys": WCKEYS}, "far|17|busy\n"
)

QOS = ("normal", "theirs", "delta", "preset", "busy", "unused")
USERS = {
    "dave": "shared",
    "eve": "only",
    "frank": "only",
    "gina": "only",
    "hank": "lab1",
    "u_v": "lab3",
}
ACCOUNTS = ("shared", "only", "lab1", "lab3")
STATE = State(
    {
        **{Entity("qos", name): {} for name in QOS},
        **{Entity("account", name): {"Parent": "root"} for name in ACCOUNTS},
        **{Entity("user", name): {"AdminLevel": "Operator" if name in ("gina", "dave") else "None"} for name in USERS},
        **{Entity("association", name, account): {} for name, account in USERS.items()},
    },
    ["far", "lab", "third"],
)


def kept(purge: bool, *unwanted: Entity) -> dict[str, str]:
    """The reasons by the text of the entity."""
    found = kept_for_other_clusters(STATE, unwanted, OTHERS, purge)
    return {entity.text: reason for entity, reason in found.items()}


def test_the_qos_that_associations_and_jobs_have_elsewhere_stay() -> None:
    assert kept(False, *(Entity("qos", name) for name in QOS)) == {
        "qos normal": "account root of cluster far has it, account shared of cluster third has it",
        "qos theirs": "account lab2 of cluster far has it, account shared of cluster third has it",
        "qos delta": "user dave in shared of cluster far has it",
        "qos preset": "user dave in shared of cluster far has it",
        "qos busy": "job 17 of cluster far has it",
    }


def test_purge_keeps_each_qos_since_nobody_knows_the_partitions_elsewhere() -> None:
    text = "a partition of clusters far, third may name it, which the database does not know"
    assert kept(True, Entity("qos", "unused")) == {"qos unused": text}


def test_users_who_have_something_elsewhere_stay() -> None:
    users = [Entity("user", name) for name in USERS]
    evident = {
        "user frank": "is coordinator of account shared, which is in clusters far, third",
        "user hank": "has WCKeys in cluster far",
    }
    assert kept(False, *users) == evident
    assert kept(True, *users) == {**evident, "user gina": "is Operator in all clusters of the database"}


def test_the_last_association_of_a_user_is_the_user() -> None:
    assert kept(False, Entity("association", "frank", "only")) == {
        "user frank in only": "is coordinator of account shared, which is in clusters far, third"
    }
    more = State({**STATE.entities, Entity("association", "frank", "shared"): {}}, STATE.clusters)
    assert kept_for_other_clusters(more, [Entity("association", "frank", "only")], OTHERS, False) == {}


def test_what_is_removed_from_this_cluster_only_is_named() -> None:
    removed = [Entity("user", "dave"), Entity("user", "eve"), Entity("account", "shared"), Entity("account", "only")]
    assert {entity.text: text for entity, text in in_other_clusters(removed, OTHERS).items()} == {
        "user dave": "in cluster far",
        "account shared": "in clusters far, third",
    }


# -- settings --------------------------------------------------------------------------------------------------------

NAMED: dict[str, Any] = {
    "qos": [{"name": "theirs", "Priority": 5}],
    "accounts": ["lab1"],
    "users": [{"name": "carol", "DefaultAccount": "lab1"}, {"name": "hank", "DefaultAccount": "lab1"}],
}


def with_settings(clusters: list[str]) -> State:
    """A state with limits and privileges that NAMED does not name."""
    return State(
        {
            Entity("qos", "theirs"): {"MaxWall": "01:00:00", "GrpJobs": "4", "Priority": "1", "Description": "x"},
            Entity("account", "lab1"): {"Parent": "root", "Description": "lab1", "MaxJobs": "3"},
            Entity("user", "hank"): {"DefaultAccount": "lab1", "AdminLevel": "None"},
            Entity("association", "hank", "lab1"): {"MaxJobs": "9"},
        },
        clusters,
        elsewhere={Entity("user", "carol"): {"AdminLevel": "Operator"}},
    )


def planned(state: State, policy: dict[str, Any]) -> set[tuple[str, str | None, str | None]]:
    """The changes of limits with purge."""
    return {
        (change.what, change.before, change.after)
        for change in compare(state, read(policy, "lab", state, purge=True))
        if change.key not in ("", "DefaultAccount")
    }


def test_purge_keeps_the_settings_that_all_clusters_have() -> None:
    own = {("account lab1 MaxJobs", "3", ""), ("user hank in lab1 MaxJobs", "9", "")}
    own |= {("qos theirs Priority", "1", "5")}
    state = with_settings(["far", "lab"])
    assert planned(state, NAMED) == own
    text = "which holds in all clusters of the database"
    assert {
        entity.text: reason for entity, reason in kept_settings(state, read(NAMED, "lab", state, purge=True)).items()
    } == {
        "qos theirs": f"keeps GrpJobs 4, MaxWall 01:00:00, {text}",
        "user carol": f"keeps AdminLevel Operator, {text}",
    }
    assert planned(with_settings(["lab"]), NAMED) == own | {
        ("qos theirs MaxWall", "01:00:00", ""),
        ("qos theirs GrpJobs", "4", ""),
        ("user carol AdminLevel", "Operator", "None"),
    }


def test_a_setting_that_the_policy_names_is_changed() -> None:
    state = with_settings(["far", "lab"])
    named = {**NAMED, "qos": [{"name": "theirs", "MaxWall": None}]}
    named["users"] = [{"name": "carol", "DefaultAccount": "lab1", "AdminLevel": "None"}]
    assert planned(state, named) >= {
        ("qos theirs MaxWall", "01:00:00", ""),
        ("user carol AdminLevel", "Operator", "None"),
    }


# -- modules ---------------------------------------------------------------------------------------------------------


def database(state: State, others: OtherClusters) -> Any:
    """A stand-in for sacctmgr that only answers."""
    return SimpleNamespace(
        cluster="lab", state=lambda: state, jobs=list, others=lambda *_about: others, coordinators=list
    )


def test_a_purge_names_all_that_stays() -> None:
    module: Any = SimpleNamespace(check_mode=True)
    policy = {"accounts": ["lab1"]}
    result = apply_policy(module, database(STATE, OTHERS), policy, purge=True)
    assert result["table"] == ["account shared  gone", "user dave,eve  gone"]
    unknown = "a partition of clusters far, third may name it, which the database does not know"
    assert {*result["kept"]} == {
        "qos theirs: account lab2 of cluster far has it, account shared of cluster third has it",
        "qos delta,preset: user dave in shared of cluster far has it",
        "qos busy: job 17 of cluster far has it",
        f"qos unused: {unknown}",
        "user frank: is coordinator of account shared, which is in clusters far, third",
        "user gina: is Operator in all clusters of the database",
        "user hank: has WCKeys in cluster far",
        # slurmdbd would remove u-v from cluster far, where it is another user.
        "user u_v: Slurm would remove u-v with it",
        "account only: user frank stays in it",
        "account lab3: user u_v stays in it",
        "user dave: in cluster far",
        "account shared: in clusters far, third",
    }


@pytest.mark.parametrize(
    ("absent", "text"),
    [
        (Entity("qos", "delta"), "qos delta: user dave in shared of cluster far has it"),
        (Entity("user", "hank"), "user hank: has WCKeys in cluster far"),
        (Entity("association", "u_v", "lab3"), "user u_v in lab3: Slurm would remove u-v with it"),
    ],
)
def test_a_module_refuses_to_remove_what_another_cluster_needs(absent: Entity, text: str) -> None:
    module: Any = SimpleNamespace(check_mode=True)
    with pytest.raises(PolicyError) as error:
        apply_policy(module, database(STATE, OTHERS), {}, absent=[absent])
    assert str(error.value) == text


@pytest.mark.parametrize("absent", [Entity("qos", "unused"), Entity("user", "gina")])
def test_a_module_removes_what_only_perhaps_concerns_others(absent: Entity) -> None:
    module: Any = SimpleNamespace(check_mode=True)
    assert apply_policy(module, database(STATE, OTHERS), {}, absent=[absent])["changed"]


# -- questions -------------------------------------------------------------------------------------------------------

ANSWERS = """
echo "$0 $*" >> {log}
case "$*" in
  *"show cluster "*) printf '{clusters}';;
  *"show associations"*) echo 'far|lab2||normal,theirs|';;
esac
"""


@pytest.mark.parametrize(
    ("kinds", "purge", "asked"),
    [
        (["qos"], True, ["sacctmgr associations"]),
        (["account"], True, ["sacctmgr associations"]),
        (["qos", "user"], True, ["sacctmgr associations", "sacctmgr accounts", "sacctmgr wckeys"]),
        (["qos"], False, ["sacctmgr associations", "sacct"]),
        (["cluster"], False, []),
        ([], True, []),
    ],
)
def test_the_questions_about_other_clusters(
    stand_in: StandIn, tmp_path: Path, kinds: list[str], purge: bool, asked: list[str]
) -> None:
    log = tmp_path / "log"
    for program in ("sacctmgr", "sacct"):
        stand_in(program, ANSWERS.format(log=log, clusters="far\\nlab\\nthird\\n"))
    sacctmgr = Sacctmgr("lab")
    log.write_text("")
    others = sacctmgr.others([Entity(kind, "theirs") for kind in kinds], purge)
    assert others.clusters == ["far", "third"]
    lines = [line.split() for line in log.read_text().splitlines()]
    assert [" ".join([Path(line[0]).name, *line[3:4]]) if "-nP" in line else "sacct" for line in lines] == asked
    assert all(
        "cluster=far,third" in line or "--clusters=far,third" in line for line in lines if "accounts" not in line
    )
    assert ("theirs" in others.qos) == bool(asked)


def test_a_database_of_one_cluster_is_not_asked(stand_in: StandIn, tmp_path: Path) -> None:
    log = tmp_path / "log"
    stand_in("sacctmgr", ANSWERS.format(log=log, clusters="lab\\n"))
    sacctmgr = Sacctmgr("lab")
    log.write_text("")
    assert sacctmgr.others([Entity("user", "a"), Entity("qos", "b")], purge=True) == OtherClusters([])
    assert log.read_text() == ""
