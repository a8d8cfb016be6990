# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A policy shuts nobody out: what comes before slurm.conf enforces it, and whom a policy or a change would refuse."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting import refusals
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.differences import compare
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.entities import Entity, QueuedJob, State
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.policy import read

QOS = [{"name": "gpuq"}, {"name": "datamover", "MaxTRESPerJob": {"gres/gpu": 0}}]
NORMAL = {Entity("qos", "normal"): {}, Entity("cluster", "lab"): {"QOS": "normal"}}
THERE: dict[Entity, Any] = {
    **NORMAL,
    Entity("qos", "gpuq"): {},
    Entity("account", "vision"): {"Parent": "root", "QOS": "normal", "MaxJobs": "9"},
    Entity("user", "alice"): {"DefaultAccount": "vision", "WCKeys": "old"},
    Entity("association", "alice", "vision"): {"QOS": "normal"},
}


def lines(policy: dict[str, Any], present: dict[Entity, Any] | None = None, purge: bool = False) -> list[str]:
    """What is added before the configuration, as `WHAT VALUE`."""
    state = State({**(THERE if present is None else present)}, ["lab"], ["cpu", "mem"], grows=True)
    found = refusals.additions(state, compare(state, read(policy, "lab", state, purge)), "lab")
    return [f"{change.what} {change.after}" for change in found]


# -- what comes before the configuration -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "added"),
    [
        ({"qos": ["fast"]}, ["qos fast fast"]),
        ({"accounts": ["lang"]}, ["account lang lang"]),
        ({"accounts": [{"name": "lang", "QOS": ["gpuq"]}]}, ["account lang lang", "account lang QOS gpuq"]),
        (
            {"users": [{"name": "bob", "DefaultAccount": "vision"}]},
            ["user bob bob", "user bob DefaultAccount vision", "user bob in vision bob"],
        ),
        ({"users": [{"name": "alice", "accounts": ["root"]}]}, ["user alice in root alice"]),
        # A partition that will allow gpuq alone, and one that allows normal alone still.
        ({"accounts": [{"name": "vision", "QOS": ["gpuq"]}]}, ["account vision QOS gpuq,normal"]),
        (
            {"users": [{"name": "alice", "accounts": ["vision"], "QOS": ["gpuq"]}]},
            ["user alice in vision QOS gpuq,normal"],
        ),
        ({"limits": {"QOS": ["gpuq"]}}, ["cluster lab QOS gpuq,normal"]),
        (
            {"users": [{"name": "alice", "accounts": ["vision"], "WCKeys": ["new"]}]},
            ["user alice WCKeys new,old"],
        ),
    ],
)
def test_what_opens_comes_before_the_configuration(policy: dict[str, Any], added: list[str]) -> None:
    assert sorted(lines(policy)) == sorted(added)


@pytest.mark.parametrize(
    "policy",
    [
        {"accounts": [{"name": "vision", "MaxJobs": 0}]},
        {"accounts": [{"name": "vision", "QOS": ["normal"], "DefaultQOS": "normal"}]},
        {"users": [{"name": "alice", "accounts": ["vision"], "MaxSubmitJobs": 0}]},
        {"users": [{"name": "alice", "DefaultAccount": "vision", "AdminLevel": "Operator"}]},
        {"qos": [{"name": "normal", "MaxWall": 1}]},
        {"limits": {"MaxJobs": 0}},
        {"users": [{"name": "alice", "accounts": ["vision"], "WCKeys": []}]},
    ],
)
def test_what_closes_comes_after_it(policy: dict[str, Any]) -> None:
    assert lines(policy) == []


def test_a_purge_comes_after_it() -> None:
    assert lines({"qos": ["gpuq"], "accounts": ["vision"]}, purge=True) == []


def test_a_limit_on_what_slurmctld_does_not_track_yet_comes_after_it() -> None:
    found = lines({"qos": [{"name": "fast", "MaxTRESPerJob": {"gres/gpu": 1}, "MaxWall": 1}]})
    assert found == ["qos fast fast", "qos fast MaxWall 00:01:00"]


def test_a_suspended_user_who_is_new_is_closed_from_the_start() -> None:
    closed = {"MaxJobs": 0, "MaxSubmitJobs": 0, "GrpSubmitJobs": 0}
    found = lines({"users": [{"name": "bob", "accounts": ["vision"], **closed}]})
    assert {f"user bob in vision {limit} 0" for limit in closed} <= {*found}


# -- a policy that shuts users out -----------------------------------------------------------------------------------

VISION = {"name": "vision", "QOS": ["datamover", "gpuq"]}
ALICE = {"name": "alice", "DefaultAccount": "vision"}


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        ({"accounts": [VISION], "users": [ALICE]}, "account vision"),
        ({"accounts": [VISION]}, "account vision"),
        ({"limits": {"QOS": ["datamover", "gpuq"]}, "accounts": ["vision"], "users": [ALICE]}, "account vision"),
        ({"accounts": [{**VISION, "accounts": ["deep"]}], "users": [{**ALICE, "DefaultAccount": "deep"}]}, "deep"),
        ({"accounts": ["vision"], "users": [{**ALICE, "QOS": ["gpuq", "datamover"]}]}, "user alice in vision"),
        # slurmctld takes a DefaultQOS that is not in the list, and refuses the job.
        ({"accounts": [{"name": "vision", "QOS": ["gpuq"], "DefaultQOS": "datamover"}], "users": [ALICE]}, "vision"),
    ],
)
def test_jobs_without_a_qos_that_would_be_refused_are_named(policy: dict[str, Any], names: str) -> None:
    (line,) = refusals.without_default_qos({"qos": QOS, **policy}, ["associations", "qos"])
    assert names in line
    assert "DefaultQOS" in line


@pytest.mark.parametrize(
    ("policy", "enforce"),
    [
        ({"accounts": [VISION], "users": [ALICE]}, ["associations", "limits"]),
        ({"accounts": [{**VISION, "QOS": ["gpuq"]}], "users": [ALICE]}, ["qos"]),
        ({"accounts": [{**VISION, "QOS": ["gpuq", "normal"]}], "users": [ALICE]}, ["qos"]),
        ({"accounts": [{**VISION, "DefaultQOS": "gpuq"}], "users": [ALICE]}, ["qos"]),
        ({"accounts": [VISION], "users": [{**ALICE, "DefaultQOS": "gpuq"}]}, ["qos"]),
        ({"accounts": [{**VISION, "DefaultQOS": "gpuq", "accounts": ["deep"]}]}, ["qos"]),
        ({"limits": {"DefaultQOS": "gpuq"}, "accounts": [VISION], "users": [ALICE]}, ["all"]),
        ({"accounts": ["vision"], "users": [ALICE]}, ["all"]),
    ],
)
def test_jobs_that_have_a_qos_are_not(policy: dict[str, Any], enforce: list[str]) -> None:
    assert refusals.without_default_qos({"qos": QOS, **policy}, enforce) == []


# -- whom a change refuses -------------------------------------------------------------------------------------------


def refused(enforce: str, partition: dict[str, str], *jobs: tuple[str, ...], release: str = "22.05") -> list[str]:
    """Whom slurm.conf would refuse, by these jobs: number, user, account, partition and QOS."""
    present = {**THERE, Entity("account", "deep"): {"Parent": "vision"}, Entity("association", "bob", "deep"): {}}
    given = [QueuedJob(*job) for job in jobs]
    return refusals.find_refused(present, present, enforce.split(","), {"gpu": partition.items()}, given, release)


@pytest.mark.parametrize(
    ("enforce", "partition", "job", "text"),
    [
        ("associations", {}, ("7", "carol", "vision", "gpu", "normal"), "user carol"),
        ("safe", {}, ("7", "carol", "(null)", "gpu", "normal"), "user carol"),
        ("qos", {}, ("7", "alice", "lang", "gpu", "normal"), "account lang"),
        ("", {"AllowAccounts": "lang"}, ("7", "alice", "vision", "gpu", "normal"), "AllowAccounts"),
        ("", {"AllowAccounts": "lang"}, ("7", "dora", "(null)", "gpu", "normal"), "AllowAccounts lacks (none), with"),
        ("", {"DenyAccounts": "vision"}, ("7", "alice", "vision", "gpu", "normal"), "DenyAccounts"),
        ("", {"AllowQos": "gpuq"}, ("7", "alice", "vision", "gpu", "normal"), "AllowQos"),
        ("", {"DenyQos": "normal"}, ("7", "alice", "vision", "gpu", "normal"), "DenyQos"),
        ("associations,qos", {}, ("7", "alice", "vision", "gpu", "gpuq"), "QOS gpuq"),
    ],
)
def test_who_submits_now_and_would_be_refused_is_named(
    enforce: str, partition: dict[str, str], job: tuple[str, ...], text: str
) -> None:
    (line,) = refused(enforce, partition, job)
    assert text in line
    assert "7" in line


@pytest.mark.parametrize(
    ("enforce", "partition", "job"),
    [
        ("all", {}, ("7", "alice", "vision", "gpu", "normal")),
        ("all", {}, ("7", "alice", "(null)", "gpu", "normal")),
        ("all", {}, ("7", "root", "root", "gpu", "normal")),
        ("nojobs,nosteps", {}, ("7", "carol", "vision", "gpu", "normal")),
        ("all", {"AllowAccounts": "Vision,lang"}, ("7", "alice", "vision", "gpu", "normal")),
        ("", {"AllowAccounts": "vision"}, ("7", "bob", "deep", "gpu", "normal")),
        ("", {"AllowAccounts": "ALL", "AllowQos": "all"}, ("7", "bob", "deep", "gpu", "normal")),
        ("", {"AllowAccounts": "lang"}, ("7", "alice", "vision", "other", "normal")),
        ("", {"AllowAccounts": "vision", "DenyAccounts": "vision"}, ("7", "alice", "vision", "gpu", "normal")),
    ],
)
def test_who_may_submit_afterwards_is_not(enforce: str, partition: dict[str, str], job: tuple[str, ...]) -> None:
    assert refused(enforce, partition, job) == []


@pytest.mark.parametrize(
    ("partition", "account", "text"),
    [
        ({"AllowAccounts": "deep"}, "vision", "To refuse nobody, let the partition allow both in this run, and deep"),
        ({"DenyAccounts": "vision"}, "vision", "To refuse nobody"),
        ({"AllowAccounts": "other"}, "vision", "AllowAccounts lacks vision"),
        ({"AllowAccounts": "deep"}, "lang", "AllowAccounts lacks lang"),
    ],
)
def test_an_account_that_is_not_allowed_any_more_before_the_default_changes(
    partition: dict[str, str], account: str, text: str
) -> None:
    places: dict[Entity, dict[str, str]] = {
        Entity("association", "alice", name): {} for name in ("vision", "deep", "lang")
    }
    before, after = (
        {**THERE, **places, Entity("user", "alice"): {"DefaultAccount": name}} for name in ("vision", "deep")
    )
    jobs = [QueuedJob("7", "alice", account, "gpu", "normal")]
    (line,) = refusals.find_refused(before, after, ["associations"], {"gpu": partition.items()}, jobs, "24.11")
    assert text in line


@pytest.mark.parametrize("key", ["AllowAccounts", "DenyAccounts"])
def test_without_associations_partitions_refuse_no_account_since_a_release(key: str) -> None:
    """Seen in a lab with 24.11: sbatch takes the job."""
    partition = {key: "lang" if key.startswith("Allow") else "vision"}
    job = ("7", "alice", "vision", "gpu", "normal")
    assert refused("nojobs", partition, job, release="23.02") == []
    assert len(refused("associations", partition, job, release="23.02")) == 1
    assert len(refused("", {"AllowQos": "gpuq"}, job, release="26.05")) == 1


def test_the_jobs_of_a_user_are_one_line() -> None:
    jobs = [(str(number), "carol", "vision", "gpu", "normal") for number in range(1, 200)]
    (line,) = refused("associations", {}, *jobs)
    assert "[1-199]" in line


def test_an_account_keeps_the_qos_of_the_one_above_it_until_slurm_conf_is_in_force() -> None:
    """Seen in a lab: AllowQos of a partition was in force, and the account had no QOS of its own yet."""
    inherits = {**THERE, Entity("account", "vision"): {"Parent": "root"}, Entity("association", "alice", "vision"): {}}
    assert lines({"accounts": [{"name": "vision", "QOS": ["gpuq"]}]}, inherits) == ["account vision QOS gpuq,normal"]
    policy = {"users": [{"name": "alice", "accounts": ["vision"], "QOS": ["gpuq"]}]}
    assert lines(policy, inherits) == ["user alice in vision QOS gpuq,normal"]


def test_before_slurmctld_has_registered_its_cluster_only_qos_are_added() -> None:
    state = State({Entity("qos", "normal"): {}}, ["other"], ["cpu"])
    wanted = read({"qos": ["fast"], "accounts": ["a"], "users": [{"name": "u", "accounts": ["a"]}]}, "lab", state)
    assert [change.what for change in refusals.additions(state, compare(state, wanted), "lab")] == ["qos fast"]
