# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of the hosts of a cluster that is taken over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.survey import (
    adopted,
    adoption_controller,
    adoption_errors,
)

CONF = """ClusterName=Lab
SlurmctldHost=ctl
NodeName=n[1-4] CPUs=2 RealMemory=1000
NodeName=c[1-2] CPUs=8 RealMemory=1000 State=CLOUD
PartitionName=p Nodes=ALL Default=YES
"""
DEFAULTS: dict[str, dict[str, Any]] = {
    "slurm.conf": {"KillWait": 30, "TmpFS": None},
    "cgroup.conf": {"ConstrainCores": True},
}
CHOICES = {"adopt_dir": "/", "adopt_controller": "", "adopt_conf": ""}


def host(processes: str, cores: int = 2, **facts: Any) -> dict[str, Any]:
    """The results of a host."""
    hardware = {"boards": 1, "sockets_per_board": 2, "cores_per_socket": cores // 2, "threads_per_core": 1}
    found = {"slurm_host": {"slurm_version": "24.11.5", "paths": {}, **facts}}
    return {
        "__new_cluster_facts": {"ansible_facts": {**found, "slurm_hardware": {**hardware, "real_memory": 1100}}},
        "__new_cluster_processes": {"stdout": processes, "rc": 0},
    }


def cluster(
    conf: str = CONF,
    user_id: int = 64030,
    package: str = "slurmctld",
    files: Any = None,
    drift: Sequence[str] = (),
    **results: Any,
) -> dict[str, Any]:
    """The results of all hosts."""
    controller = {
        **host("7 /usr/sbin/slurmctld --systemd"),
        "__adopt_files": {"files": files or {"slurm.conf": conf}, "version": "24.11.5", "user_id": user_id}
        | {"package": package, "drift": drift},
        **results,
    }
    return {
        "n1": host("8 /usr/sbin/slurmd --systemd --conf-server ctl:6817"),
        "n2": host("8 /usr/sbin/slurmd --systemd", cores=4),
        "n3": host(""),
        "ctl": controller,
        "login": host("9 /usr/sbin/sackd"),
    }


def found_of(hosts: dict[str, Any]) -> dict[str, Any]:
    """What is found."""
    return adopted(hosts, [*hosts], "ctl", DEFAULTS)


def test_nodes_that_would_have_to_restart_are_unmanaged() -> None:
    found = found_of(cluster())
    assert (found["errors"], found["unexplained"]) == ([], [])
    assert found["cluster"]["unmanaged"] == "n[2-4]"
    assert "accounting" not in found["cluster"]
    assert [line.split("  ")[0] for line in found["table"]] == [
        "host",
        "n1",
        "n2",
        "n3",
        "ctl",
        "login",
        "c1",
        "c2",
        "n4",
    ]
    fates = {line.split("  ")[0]: line.rpartition("  ")[2] for line in found["table"]}
    assert fates == {
        "host": "site.yml",
        "n1": "manages the node: slurmd fetches its files already, and is not restarted",
        "n2": "unmanaged: slurmd reads files of its own",
        "n3": "unmanaged: slurmd does not run",
        "n4": "unmanaged: not in the inventory of this run",
        "ctl": "manages the controller",
        "login": "does not touch it: the cluster file does not name it",
        "c1": "leaves it to Slurm (State=CLOUD or FUTURE)",
        "c2": "leaves it to Slurm (State=CLOUD or FUTURE)",
    }
    assert found["remarks"] == ["n2: slurm.conf has 1 cores of a socket, the machine has 2"]
    assert found["unset"]["KillWait"] == "30"
    assert found["unset"]["TmpFS"] == "a value that follows from this file"


def test_the_policy_of_the_database_is_in_the_file() -> None:
    conf = CONF + "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=db\n"
    policy = {"limits": {}, "qos": [], "accounts": [{"name": "physics"}], "users": []}
    found = found_of(cluster(conf, __adopt_accounting={"policy": policy}))
    assert found["errors"] == []
    assert found["cluster"]["accounting"] == {"accounts": [{"name": "physics"}]}
    line = "account phys lab: has a name that a policy cannot have"
    partly = found_of(cluster(conf, __adopt_accounting={"policy": policy, "left_out": [line]}))
    assert f"accounting: left out, and no run changes it: {line}" in partly["remarks"]
    lost = found_of(cluster(conf, __adopt_accounting={"msg": "slurmdbd is\x1b away"}))
    assert "accounting" not in lost["cluster"]
    assert lost["remarks"][0].endswith("add them later (key accounting): slurmdbd is\\x1b away")


def test_the_source_of_packages_and_another_user_are_for_a_person() -> None:
    found = found_of(cluster(user_id=450, package="slurm-smd-slurmctld"))
    assert found["cluster"]["packages"] == "unknown"
    assert [message.partition(":")[0] for message in found["remarks"][:2]] == [
        "slurmctld comes from the package slurm-smd-slurmctld",
        "slurmctld runs with the user id 450",
    ]
    built_here = found_of(cluster(package=""))
    assert built_here["remarks"][0].startswith("slurmctld was not installed from a package: replace 'unknown'")


def test_a_comment_has_one_line() -> None:
    """Some characters end a line of YAML, and not one of slurm.conf."""
    found = found_of(cluster(CONF + "KillWait=1\u2028plugin:\nMpiDefault=\x85a\nNonsense=\x0bx\n"))
    texts = [*found["comments"], *found["differences"], *found["remarks"]]
    assert texts
    assert [text for text in texts if len(text.splitlines()) != 1] == []


def test_texts_that_yaml_cannot_have_as_they_are_are_quoted() -> None:
    files = {"slurm.conf": CONF, "topology.conf": "SwitchName=s Nodes=n1\n", "job_submit.lua": "-- no end"}
    files["cli_filter.lua"] = "a\x1b\n"
    found = found_of(cluster(files=files))
    assert {*found["cluster"]["slurm_files"]} == {*files} - {"slurm.conf"}
    assert found["blocks"] == ["topology.conf"]


def test_the_controller_is_where_slurmctld_runs() -> None:
    hosts = cluster()
    assert adoption_controller(hosts, [*hosts], "") == "ctl"
    with pytest.raises(ValueError, match="adopt_controller: slurmctld does not run on n1; it runs on ctl"):
        adoption_controller(hosts, [*hosts], "n1")
    with pytest.raises(ValueError, match="slurmctld runs on none of these hosts"):
        adoption_controller(hosts, ["n1"], "")
    ours = "/var/lib/gpucluster-slurm/good/slurm.conf"
    with pytest.raises(ValueError, match="belongs to a cluster of this collection"):
        adoption_controller({"ctl": host("7 slurmctld", paths={ours: {}})}, ["ctl"], "")


@pytest.mark.parametrize(
    ("choices", "hosts", "given", "error"),
    [
        ({}, ["a"], ["adopt_dir"], None),
        ({}, ["a"], ["adopt_controler"], "adopt_controler: unknown variable, did you mean 'adopt_controller'?"),
        ({}, [], [], "the inventory has no hosts"),
        ({"adopt_controller": "ab"}, ["abc"], [], "adopt_controller: found 'ab', unknown host, did you mean 'abc'?"),
    ],
)
def test_wrong_options_are_named(
    choices: dict[str, str], hosts: list[str], given: list[str], error: str | None
) -> None:
    errors = adoption_errors({**CHOICES, **choices}, hosts, given)
    assert len(errors) == (error is not None)
    assert all(text.startswith(str(error)) for text in errors)


def test_a_foreign_cluster_with_a_backup_controller() -> None:
    """Both run slurmctld. The files of one were read, and what was not compared is said."""
    conf = CONF.replace("SlurmctldHost=ctl", "ControlMachine=ctl\nBackupController=spare\nStateSaveLocation=/shared/x")
    hosts = cluster(conf)
    away = found_of(hosts)
    assert away["cluster"]["controllers"] == "ctl,spare"
    assert "spare is a controller, and is not in the inventory of this run: site.yml needs it" in away["remarks"]
    hosts["spare"] = host("7 /usr/sbin/slurmctld --systemd")
    there = found_of(hosts)
    assert (
        "slurmctld runs on ctl,spare, and the files of ctl were read. site.yml gives them to all controllers, so the "
        "others must have the same (-e adopt_controller=HOST reads those of another one)"
    ) in there["remarks"]
    assert any(row.split()[0] == "spare" and row.endswith("manages the controller") for row in there["table"])


AWAY = {"__new_cluster_facts": {"no_answer": {"unreachable": True, "msg": "Failed to connect: No route to host"}}}
NO_SUDO = {"__new_cluster_facts": {"no_answer": {"msg": "sudo: a password is required"}}}


@pytest.mark.parametrize(
    ("controller", "choice", "error"),
    [
        (
            AWAY,
            "",
            "ctl was not read: unreachable: Failed to connect: No route to host\nslurmctld runs on none of the ",
        ),
        (AWAY, "ctl", "adopt_controller: ctl was not read: unreachable: Failed to connect: No route to host"),
        (NO_SUDO, "", "ctl was not read: no sudo: sudo: a password is required\nslurmctld runs on none of the other "),
    ],
)
def test_a_controller_that_was_not_read_is_named(controller: dict[str, Any], choice: str, error: str) -> None:
    hosts = {**cluster(), "ctl": controller}
    with pytest.raises(ValueError, match="was not read") as raised:
        adoption_controller(hosts, [*hosts], choice)
    assert str(raised.value).startswith(error)


def test_another_controller_that_was_not_read_is_named() -> None:
    conf = CONF.replace("SlurmctldHost=ctl", "SlurmctldHost=ctl\nSlurmctldHost=spare\nStateSaveLocation=/shared/x")
    remarks = found_of({**cluster(conf), "spare": AWAY})["remarks"]
    assert "spare is a controller, and was not read: unreachable: Failed to connect: No route to host" in remarks


def test_what_slurmctld_reads_otherwise_is_named() -> None:
    line = "NodeName=n1 CPUs: the file has 48, slurmctld 96"
    found, agrees = (found_of(cluster(drift=drift))["remarks"] for drift in ([line], []))
    assert [remark for remark in found if remark not in agrees] == [
        f"slurmctld has something else in force than its files say, until it reads them again: {line}"
    ]
