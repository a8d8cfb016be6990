# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of sacctmgr of three releases of Slurm, and the errors for its failures.

tests/unit/sacctmgr has the answers of each to the same policy.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.differences import compare, surplus
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.entities import Entity, State
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.policy import read
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.sacctmgr import (
    AccountingError,
    Sacctmgr,
    UnreachedError,
    conf_for_sacctmgr,
    questions,
    shortened,
    state,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import conf_file
from programs import StandIn

ANSWERS = Path(__file__).parents[3] / "sacctmgr"
POLICY: dict[str, Any] = {
    "limits": {"MaxWall": "7-00:00:00", "GrpTRES": {"cpu": 1000}},
    "qos": [
        {
            "name": "urgent",
            "Priority": 100,
            "Preempt": ["normal", "low"],
            "MaxTRESPerUser": {"cpu": 8, "mem": "64G"},
            "Flags": ["NoReserve", "DenyOnLimit"],
            "GraceTime": 90,
            "PreemptMode": "requeue",
            "PreemptExemptTime": "00:01:30",
            "UsageFactor": 1.5,
            "LimitFactor": 2,
            "UsageThreshold": 0.5,
            "MaxTRESRunMinsPerUser": "cpu=600",
            "MinTRES": "cpu=1",
            "MaxJobs": 3,
            "MaxSubmitJobsPerAccount": 9,
            "GrpWall": "48:00:00",
            "MaxWall": 1440,
        },
        {"name": "low", "Description": "What is idle"},
    ],
    "accounts": [
        {
            "name": "science",
            "Organization": "Faculty of Science",
            "QOS": "normal,low",
            "DefaultQOS": "normal",
            "accounts": [
                {
                    "name": "physics",
                    "Description": "Dept: of Physics",
                    "Fairshare": 30,
                    "GrpJobs": 8,
                    "GrpJobsAccrue": 4,
                    "GrpSubmitJobs": 80,
                    "GrpTRES": {"node": 2, "cpu": 64, "mem": "1024G"},
                    "GrpTRESMins": "cpu=100000",
                    "GrpTRESRunMins": "cpu=5000",
                    "GrpWall": "10-0",
                    "MaxJobs": 5,
                    "MaxJobsAccrue": 2,
                    "MaxSubmitJobs": 20,
                    "MaxTRES": "cpu=4",
                    "MaxTRESMins": "cpu=60",
                    "MaxTRESPerNode": "cpu=2",
                    "MaxWall": "720",
                    "MinPrioThreshold": 5,
                    "Priority": 7,
                },
                {"name": "biology", "Fairshare": "parent"},
            ],
        }
    ],
    "users": [
        {"name": "alice", "DefaultAccount": "physics", "AdminLevel": "Operator"},
        {
            "name": "bob",
            "DefaultAccount": "biology",
            "Fairshare": 3,
            "accounts": [
                {"name": "physics", "MaxJobs": 2},
                {"name": "physics", "partition": "main", "MaxWall": "00:30:00"},
            ],
        },
    ],
}


def answered(release: str) -> State:
    """The state of cluster lab in Slurm after the policy was applied."""
    answers = json.loads((ANSWERS / f"{release}.json").read_text())
    return state("lab", {name: "".join(f"{line}\n" for line in lines) for name, lines in answers.items()}, ["lab"])


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_what_was_given_is_what_is_read(release: str) -> None:
    found = answered(release)
    wanted = read(POLICY, "lab", found, purge=True)
    assert compare(found, wanted, surplus(found, wanted)) == []
    assert (found.tres[0], found.tres[5]) == ("cpu", "fs/disk")


def test_a_name_that_the_database_spells_in_two_ways() -> None:
    """It takes `cafe` and `caf\u00e9` for one, and keeps the first in one table and the last in another."""
    answers = dict.fromkeys(questions("lab"), "")
    columns = questions("lab")["associations"][-1].count(",") + 1
    answers["accounts"] = "cafe|org|text\n"
    answers["associations"] = "|".join(["caf\u00e9", *[""] * (columns - 1)]) + "\n"
    assert Entity("account", "caf\u00e9") in state("lab", answers, ["lab"]).entities


def test_a_text_with_a_character_that_python_takes_for_the_end_of_a_line() -> None:
    answers = dict.fromkeys(questions("lab"), "") | {"qos": "normal|" + "|" * 99 + "a\u2028b\u0085c\fd\n"}
    assert [entity.name for entity in state("lab", answers, ["lab"]).entities] == ["normal"]


def test_releases_agree() -> None:
    assert answered("22.05") == answered("24.11") == answered("26.05")


def test_what_only_slurm_can_say_is_kept_as_it_is() -> None:
    answers = dict.fromkeys(questions("lab"), "")
    answers["associations"] = "a|||root|1|||||||||||||||||+urgent|\n"
    answers["accounts"] = "a|org|with | bars\n"
    account = state("lab", answers, ["lab"]).entities[Entity("account", "a")]
    assert (account["QOS"], account["Description"]) == ("+urgent", "with | bars")


@pytest.fixture(name="program")
def a_program_instead_of_sacctmgr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for sacctmgr: the first program of its name that is found."""
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", f"{tmp_path}:{os.environ['PATH']}")
    program = tmp_path / "sacctmgr"
    program.touch(mode=0o755)
    return program


KNOWN = """#!/bin/sh
case "$*" in "-nP show cluster format=Cluster") echo lab; exit;; esac
"""


def test_failures_are_reported_with_the_message_of_the_command(program: Path) -> None:
    script = "echo 'sacctmgr: modify qos where name=a'\necho ' Unknown option: x=1' >&2\nexit 1\n"
    program.write_text(KNOWN + script)
    failed = (True, "sacctmgr modify qos where name=a: Unknown option: x=1")
    assert Sacctmgr("lab").run(["modify qos where name=a"]) == failed
    with pytest.raises(AccountingError, match=r"sacctmgr -nP show tres failed: .*Unknown option"):
        Sacctmgr("lab").state()


def test_more_commands_than_a_pipe_holds(program: Path) -> None:
    program.write_text(KNOWN + "cat\n")
    assert Sacctmgr("lab").run([f"add qos name={i:0100}" for i in range(5000)])[0] is False


@pytest.mark.parametrize("clusters", ["", "a\nb"])
def test_a_cluster_must_be_named_where_there_is_not_one(program: Path, clusters: str) -> None:
    program.write_text(f"#!/bin/sh\nprintf '{clusters}'\n")
    with pytest.raises(AccountingError, match=r"cluster: name one, the database has (none|a, b)"):
        Sacctmgr(None)


def test_a_misspelt_cluster_is_not_created(program: Path) -> None:
    program.write_text(KNOWN)
    assert (Sacctmgr(None).cluster, Sacctmgr("Lab").cluster, Sacctmgr("other", new=True).cluster) == (
        "lab",
        "lab",
        "other",
    )
    with pytest.raises(AccountingError, match="cluster: found 'lbb', the database has lab"):
        Sacctmgr("lbb")
    with pytest.raises(AccountingError, match="cluster: found '', the database has lab"):
        Sacctmgr("", new=True)
    program.write_text("#!/bin/sh\n")
    with pytest.raises(AccountingError, match=r"found 'lab', the database has none\. It is new, .*touch /etc/slurm"):
        Sacctmgr("lab")


def test_a_long_list_of_names_is_shown_short() -> None:
    names = ",".join(f"u{i}" for i in range(99))
    assert shortened(f"add user name={names} account=a") == "add user name=u0,u1,u2,... account=a"


def test_sacctmgr_needs_little_of_a_slurm_conf() -> None:
    text = (
        "ClusterName=lab\nSlurmctldHost=a(10.0.0.1)\nSlurmctldHost=b\nNoSuchKey=1\nNodeName=n1\nAuthType=auth/munge\n"
    )
    kept = "ClusterName=lab\nSlurmctldHost=a(10.0.0.1)\nSlurmctldHost=b\nAuthType=auth/munge\n"
    assert conf_for_sacctmgr(conf_file.read({"slurm.conf": text})) == kept


def test_values_for_sacctmgr_are_escaped() -> None:
    conf = conf_file.read({"slurm.conf": "AuthInfo=socket=/run/a\\#b\n"})
    assert conf_for_sacctmgr(conf) == "AuthInfo=socket=/run/a\\#b\n"


def test_a_database_that_does_not_answer_is_named_by_its_place(stand_in: StandIn) -> None:
    """This is the message of 24.11 for AccountingStoragePort=1."""
    message = """
sacctmgr: error: _open_persist_conn: failed to open persistent connection to host:head:1: Connection refused
sacctmgr: error: Sending PersistInit msg: Connection refused"""
    stand_in("sacctmgr", f"echo '{message}' >&2; exit 1")
    with pytest.raises(UnreachedError) as error:
        Sacctmgr("lab")
    place = "head:1 (AccountingStorageHost and AccountingStoragePort of slurm.conf)"
    assert str(error.value) == f"slurmdbd does not answer at {place}: Connection refused"
