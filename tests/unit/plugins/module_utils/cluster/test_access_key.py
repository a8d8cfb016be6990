# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `access` of the cluster file: what it may be, and what each host has of it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.access_key import (
    access_parts,
    exempt_networks,
    known_hosts,
    login_limits,
    trusted_hosts,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import (
    Document,
    ModelError,
    load,
    model_errors,
)

ED = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA"
RSA = "ssh-rsa AAAAB3NzaC1yc2E="


def cluster(access: Any, **more: Any) -> dict[str, Any]:
    """A cluster file with this key."""
    return {
        "plugin": "gpucluster.slurm.cluster",
        "name": "x",
        "controllers": "head",
        "login": "login1",
        "hardware": {"a": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1900}},
        "nodes": [{"hosts": "n[1-2]", "hardware": "a", "address": "10.0.0.[1-2]"}],
        "addresses": {"login1": "10.0.0.9"},
        "partitions": [{"name": "p", "nodes": "ALL"}],
        "access": access,
        **more,
    }


def problems(access: Any, **more: Any) -> list[str]:
    """What is wrong with it."""
    try:
        load(Document("x.cluster.yml", cluster(access, **more)))
    except ModelError as error:
        return [problem.removeprefix("x.cluster.yml: ") for problem in error.problems]
    return []


@pytest.mark.parametrize(
    "access",
    [
        {},
        {"administrators": ["ops", "hpc-admins@example.org"]},
        {"compute": "all"},
        {"compute": "administrators", "between_nodes": "none"},
        {"between_nodes": "host_based"},
        {"login_limits": {"MemoryMax": "25%", "MemoryHigh": "8G", "TasksMax": 4096, "CPUQuota": "400%"}},
        {"login_limits": {"CPUWeight": 50, "IOWeight": "100", "MemoryMax": "256M"}},
    ],
)
def test_an_access_plan_becomes_the_variable(access: dict[str, Any]) -> None:
    assert problems(access) == []
    found = load(Document("x.cluster.yml", cluster(access))).variables["slurm_access"]
    assert found.keys() == access.keys()


@pytest.mark.parametrize(
    ("access", "problem"),
    [
        ([], "access: found [], allowed: a mapping, key: value"),
        (
            {"admins": ["ops"]},
            "access.admins: unknown key, did you mean 'administrators'? "
            "allowed: administrators, compute, between_nodes, login_limits",
        ),
        ({"administrators": "ops"}, "access.administrators: found 'ops', allowed: a list"),
        (
            {"administrators": ["ops", "a b"]},
            "access.administrators: found ['ops', 'a b'], 'a b' is no group, "
            "allowed: letters, digits, '.', '_', '@' and '-'",
        ),
        (
            {"administrators": ["ops", "ops"]},
            "access.administrators: found ['ops', 'ops'], ops is listed twice",
        ),
        (
            {"compute": "jobs"},
            "access.compute: found 'jobs', unknown value, did you mean 'job'? allowed: job, all, administrators",
        ),
        (
            {"between_nodes": "key"},
            "access.between_nodes: found 'key', unknown value, allowed: none, host_based",
        ),
        (
            {"login_limits": {"MemoryMaximum": "1G"}},
            "access.login_limits.MemoryMaximum: unknown key, did you mean 'MemoryMax'? "
            "allowed: MemoryMax, MemoryHigh, TasksMax, CPUQuota, CPUWeight, IOWeight",
        ),
        (
            {"login_limits": {"MemoryMax": f"{10**9}T"}},  # systemd would ignore it
            "access.login_limits.MemoryMax: found '1000000000T', allowed: a percentage from 1% to 100%, "
            "or a size of 256M or more",
        ),
        (
            {"login_limits": {"MemoryMax": 25}},
            "access.login_limits.MemoryMax: found 25, allowed: a percentage from 1% to 100%, or a size of 256M or more",
        ),
        ({"login_limits": {"TasksMax": 10}}, "access.login_limits.TasksMax: found 10, allowed: a number of 64 or more"),
        (
            {"login_limits": {"CPUQuota": "4"}},
            "access.login_limits.CPUQuota: found '4', allowed: a percentage of one CPU of 10% or more, "
            "such as 400% for four CPUs",
        ),
        (
            {"login_limits": {"IOWeight": 0}},
            "access.login_limits.IOWeight: found 0, allowed: a number from 1 to 10000",
        ),
    ],
)
def test_one_error_names_what_is_wrong(access: Any, problem: str) -> None:
    assert problems(access) == [problem]


@pytest.mark.parametrize(
    ("conf", "problem"),
    [
        ({"PrologFlags": "Alloc"}, "slurm_conf.PrologFlags: found 'Alloc', allowed: contain"),
        ({"PrologFlags": None}, "slurm_conf.PrologFlags: found None, allowed: contain"),
        ({"ProctrackType": "proctrack/linuxproc"}, "allowed: proctrack/cgroup"),
        ({"TaskPlugin": ["task/affinity"]}, "allowed: a list with task/cgroup"),
    ],
)
def test_a_login_with_a_job_needs_a_step_that_takes_it(conf: dict[str, Any], problem: str) -> None:
    (found,) = problems({"compute": "job"}, slurm_conf=conf)
    assert problem in found
    assert found.endswith("or another access.compute than job")
    assert problems({}, slurm_conf=conf) == []
    assert problems({"compute": "administrators"}, slurm_conf=conf) == []


@pytest.mark.parametrize("flags", ["contain", "Alloc,Contain", ["X11"], ["Alloc", "RunInJob"]])
def test_words_of_prologflags_that_make_an_external_step(flags: Any) -> None:
    assert problems({"compute": "job"}, slurm_conf={"PrologFlags": flags}) == []


def test_host_based_needs_the_address_of_each_host() -> None:
    what = "access.between_nodes: found host_based, and no IP address of"
    (found,) = problems({"between_nodes": "host_based"}, addresses={})
    assert found.startswith(f"{what} login1")
    nodes = [{"hosts": "n[1-3]", "hardware": "a", "address": "n[1-3].example.org"}]
    (found,) = problems({"between_nodes": "host_based"}, nodes=nodes)
    assert found.startswith(f"{what} n[1-3]")
    assert problems({"between_nodes": "none"}, addresses={}) == []


def test_limits_need_a_login_host() -> None:
    (found,) = problems({"login_limits": {"TasksMax": 100}}, login=None, addresses={})
    assert found.startswith("access.login_limits: found limits, and no host in login")


def test_variables_of_a_plain_inventory_are_checked_by_the_same_rules() -> None:
    variables = load(Document("x.cluster.yml", cluster({"compute": "job"}))).variables
    assert model_errors(variables, ["head", "login1", "n1", "n2"]) == []
    (found,) = model_errors({**variables, "slurm_access": {"compute": "jobs"}}, ["head", "login1", "n1", "n2"])
    assert found.startswith("slurm_access.compute: found 'jobs'")


ALL = {"compute": "job", "between_nodes": "host_based", "login_limits": {"TasksMax": 100}}


@pytest.mark.parametrize(
    ("groups", "who", "files"),
    [
        ({"slurm_compute"}, "job", ["known_hosts", "client", "shosts", "administrators", "sshd_of_jobs", "penalties"]),
        ({"slurm_login"}, "all", ["known_hosts", "client", "limits", "message", "message_program"]),
        ({"slurm_controller", "slurm_database"}, "all", ["known_hosts"]),
        (
            {"slurm_login", "slurm_controller"},
            "all",
            ["known_hosts", "client", "shared_limits", "message", "message_program"],
        ),
        (
            {"slurm_login", "slurm_controller", "slurm_compute"},
            "all",
            ["known_hosts", "client", "shosts", "sshd", "shared_limits", "message", "message_program"],
        ),
        ({"slurm_compute", "slurm_database"}, "all", ["known_hosts", "client", "shosts", "sshd"]),
    ],
)
def test_a_host_has_what_its_groups_need(groups: set[str], who: str, files: list[str]) -> None:
    assert access_parts(ALL, groups | {"slurm_cluster", "partition_p"}) == {"who": who, "files": files}


def test_only_administrators_or_everybody_on_compute_nodes() -> None:
    assert access_parts({"compute": "administrators"}, ["slurm_compute"]) == {
        "who": "administrators",
        "files": ["known_hosts", "administrators", "penalties"],
    }
    assert access_parts({"compute": "all"}, ["slurm_compute"]) == {"who": "all", "files": ["known_hosts"]}
    assert access_parts({"administrators": []}, ["slurm_compute"])["who"] == "job", "the default"


def test_limits_are_halved_on_hosts_with_jobs_or_daemons() -> None:
    limits = {"MemoryMax": "25%", "MemoryHigh": "3G", "TasksMax": 4096, "CPUQuota": "50%", "CPUWeight": 1}
    assert login_limits({"login_limits": limits}) == {name: str(value) for name, value in limits.items()}
    assert login_limits({"login_limits": limits}, True) == {
        "MemoryMax": "12%",
        "MemoryHigh": "1536M",
        "TasksMax": "2048",
        "CPUQuota": "25%",
        "CPUWeight": "1",
    }
    least = {"MemoryMax": "256M", "TasksMax": 64, "CPUQuota": "10%"}
    assert login_limits({"login_limits": least}, True) == {"MemoryMax": "256M", "TasksMax": "64", "CPUQuota": "10%"}


def test_known_hosts_keep_hosts_that_are_not_in_the_run() -> None:
    addresses = [{"hosts": "n[1-2]", "address": "10.0.0.[1-2]"}]
    hosts = ["n1", "n2", "head.example.org"]
    first = known_hosts([], {"n1": ED, "n2": RSA, "head.example.org": ED}, addresses, hosts)
    assert first == [f"n1,10.0.0.1 {ED}", f"n2,10.0.0.2 {RSA}", f"head.example.org,head {ED}"]
    limited = known_hosts(["# a comment", *first], {"n2": ED}, addresses, hosts)
    assert limited == [first[0], f"n2,10.0.0.2 {ED}", first[2]]
    assert known_hosts(first, {"n2": ""}, addresses, ["n2"]) == [first[1]], (
        "a host that left, and one without an answer"
    )


def test_hosts_from_which_users_come_have_names_and_addresses() -> None:
    assert trusted_hosts([{"hosts": "n[1-2]", "address": "10.0.0.[1-2]"}], ["n2", "n3"]) == ["n2", "10.0.0.2", "n3"]


def test_addresses_that_sshd_does_not_penalise_are_networks() -> None:
    addresses = [
        {"hosts": "n[1-4]", "address": "10.0.0.[0-3]"},
        {"hosts": "head,v6", "address": "10.0.1.7,fd00::1"},
        {"hosts": "named", "address": "named.example.org"},
    ]
    hosts = ["head", "n1", "n2", "n3", "n4", "v6", "named", "unknown"]
    assert exempt_networks(addresses, hosts) == ["10.0.0.0/30", "10.0.1.7/32", "fd00::1/128"]
    assert exempt_networks([], hosts) == []
