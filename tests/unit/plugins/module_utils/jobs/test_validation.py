# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validation: the jobs that validate a cluster, and the conclusions from their ends."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.jobs import validation
from ansible_collections.gpucluster.slurm.plugins.module_utils.jobs.batch import NOT_BOOKED
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand

HARDWARE = {"t4": {"gres": [{"name": "gpu", "type": "t4", "file": "/dev/nvidia[0-1]"}]}, "cpu": {}}
NODES = [{"hosts": "head", "hardware": "cpu"}, {"hosts": "compute[01-02]", "hardware": "t4"}]
PARTITIONS = [{"name": "all", "nodes": "ALL"}, {"name": "gpu", "nodes": "compute[01-02]"}]


def test_a_job_on_every_node_of_every_partition() -> None:
    jobs = validation.validation_jobs(PARTITIONS, NODES, HARDWARE, {}, {})
    on_nodes = [(job["partition"], job["nodelist"], job.get("gres")) for job in jobs if "nodelist" in job]
    assert on_nodes == [
        ("all", "head", None),
        ("all", "compute01", "gpu:2"),
        ("all", "compute02", "gpu:2"),
        ("gpu", "compute01", "gpu:2"),
        ("gpu", "compute02", "gpu:2"),
    ]
    special = {job["name"]: (job["partition"], job.get("expect")) for job in jobs if "nodelist" not in job}
    assert special == {
        "array": ("all", None),
        "cancelled": ("all", "CANCELLED"),
        "out-of-memory": ("all", "OUT_OF_MEMORY"),
        "refused": ("all", "REFUSED"),
    }


def test_an_mpi_program_runs_in_the_first_partition_with_two_nodes() -> None:
    partitions = [{"name": "one", "nodes": "head"}, {"name": "gpu", "nodes": "compute[01-02]", "AllowQos": "high"}]
    jobs = {job["name"]: job for job in validation.validation_jobs(partitions, NODES, HARDWARE, {}, {}, "#!/bin/sh\n")}
    mpi = {"partition": "gpu", "nodes": "2", "ntasks": 4, "memory": "1024", "script": "#!/bin/sh\n", "qos": "high"}
    assert jobs["mpi"] == {"name": "mpi", **mpi}
    for fewer, script in ((partitions[:1], "#!/bin/sh\n"), (partitions, "")):
        assert "mpi" not in {job["name"] for job in validation.validation_jobs(fewer, NODES, HARDWARE, {}, {}, script)}


def test_a_job_that_the_database_lacks_is_explained() -> None:
    message = f"COMPLETED, but {NOT_BOOKED} within 60 s"
    job = {"name": "one", "status": "failed", "node_states": {}, "reason": "", "message": message}
    (said,) = validation.validation_summary([job, job | {"name": "two"}], [])["remedies"]
    assert said.startswith("Messages with accounting records wait in slurmctld")


def test_a_failed_mpi_program_is_explained() -> None:
    job = {"name": "mpi", "status": "failed", "node_states": {}, "reason": "", "exit_code": "4:0"}
    (said,) = validation.validation_summary([job], [])["remedies"]
    assert "mpi: each task was a program of its own" in said
    assert "MpiDefault: pmix" in said
    assert validation.validation_summary([job | {"exit_code": "0:9"}], [])["remedies"] == []
    assert validation.validation_summary([job | {"status": "passed"}], [])["remedies"] == []


def test_jobs_have_what_their_partition_allows() -> None:
    partitions = [
        {"name": "all", "nodes": "ALL", "AllowAccounts": "ALL", "AllowQos": ["normal", "high"]},
        {"name": "gpu", "nodes": "compute01", "AllowAccounts": ["vision", "speech"], "allowqos": "high, urgent"},
    ]
    jobs = validation.validation_jobs(partitions, NODES, HARDWARE, {}, {})
    found = {(job["partition"], job.get("account"), job.get("qos")) for job in jobs}
    assert found == {("all", None, None), ("gpu", "vision", "high")}


def test_jobs_on_the_nodes_of_node_sets() -> None:
    """Nodes that only slurmctld knows get no job, and the other jobs run in a partition that has nodes."""
    partitions = [
        {"name": "cloud", "nodes": "cloud"},
        {"name": "empty", "nodes": ""},
        {"name": "rack", "nodes": "switch{s1}"},
        {"name": "gpu", "nodes": "fast,head"},
        {"name": "every", "nodes": "all"},
    ]
    sets = [{"NodeSet": "cloud", "Feature": "cloud"}, {"NodeSet": "fast", "Nodes": "compute01"}]
    jobs = validation.validation_jobs(partitions, NODES, HARDWARE, {"NodeSet": sets}, {})
    on_nodes = [f"{job['partition']}/{job['nodelist']}" for job in jobs if "nodelist" in job]
    assert on_nodes == ["gpu/head", "gpu/compute01", "every/head", "every/compute01", "every/compute02"]
    assert {job["partition"] for job in jobs if "nodelist" not in job} == {"gpu"}
    assert validation.validation_jobs(partitions[:3], NODES, HARDWARE, {"NodeSet": sets}, {}) == []


def test_nodes_whose_hardware_is_not_known_have_no_gpus() -> None:
    jobs = validation.validation_jobs(PARTITIONS[:1], [{"hosts": "n1", "hardware": "detected"}], {}, {}, {})
    assert "gres" not in jobs[0]


@pytest.mark.parametrize(
    ("node", "devices", "status"),
    [("n1", "0,1", 0), ("n1", "0", 1), ("n1", "", 1), ("n2", "0,1", 1)],
)
def test_the_command_of_a_gpu_node(node: str, devices: str, status: int) -> None:
    nodes = [{"hosts": "n1", "hardware": "t4"}]
    command = validation.validation_jobs(PARTITIONS[:1], nodes, HARDWARE, {}, {})[0]["command"]
    environment = {"SLURMD_NODENAME": node, "CUDA_VISIBLE_DEVICES": devices}
    assert subprocess.run(["/bin/sh", "-c", command], env=environment, check=False).returncode == status


def test_a_gpu_of_amd_is_counted_by_amds_variable() -> None:
    gres = [{"name": "gpu", "count": 2, "autodetect": "rsmi"}]
    hardware = {"amd": {"gres": gres}}
    job = validation.validation_jobs(PARTITIONS[:1], [{"hosts": "n1", "hardware": "amd"}], hardware, {}, {})[0]
    environment = {"SLURMD_NODENAME": "n1", "ROCR_VISIBLE_DEVICES": "0,1"}
    assert subprocess.run(["/bin/sh", "-c", job["command"]], env=environment, check=False).returncode == 0


def result(status: str, states: dict[str, str] | None = None, reason: str = "") -> dict[str, Any]:
    return {"name": "job", "status": status, "node_states": states or {}, "reason": reason}


RESERVED = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
NOT_AVAILABLE = "ReqNodeNotAvail, May be reserved for other job"


@pytest.mark.parametrize(
    ("job", "may_wait", "ok"),
    [
        (result("passed"), [], True),
        (result("failed"), ["busy", "unavailable"], False),
        (result("waiting", {"n1": "allocated"}, "Resources"), ["busy"], True),
        (result("waiting", {"n1": "allocated"}, "Resources"), [], False),
        # Slurm gives this reason for a node that is only busy.
        (result("waiting", {"n1": "allocated"}, RESERVED), ["busy"], True),
        (result("waiting", {"n1": "mixed-"}, "Priority"), ["busy"], True),
        (result("waiting", {"n1": "drained (broken)"}, NOT_AVAILABLE), ["busy"], False),
        (result("waiting", {"n1": "drained (broken)"}, NOT_AVAILABLE), ["unavailable"], True),
        (result("waiting", {"n1": "drained by a person (broken)"}, NOT_AVAILABLE), ["drained"], True),
        (result("waiting", {"n1": "drained by a person (x)", "n2": "down"}, NOT_AVAILABLE), ["drained"], False),
        (result("waiting", {"n1": "idle"}, "PartitionDown"), ["drained"], False),
        (result("waiting", {"n1": "idle*"}, RESERVED), ["busy"], False),
        (result("waiting", {"n1": "draining (Kill task failed)"}, "Resources"), ["busy"], False),
        (result("waiting", {"n1": "idle"}, "PartitionDown"), ["busy", "unavailable"], False),
        (result("waiting", {}, "Priority"), ["busy"], True),
        # A job of a partition with a higher PriorityTier waits for the node.
        (result("waiting", {"n1": "allocated"}, NOT_AVAILABLE), ["busy"], True),
        (result("waiting", {"n1": "mixed"}, "ReqNodeNotAvail, UnavailableNodes:n1"), ["busy"], True),
        (result("waiting", {"n1": "idle"}, "ReqNodeNotAvail, Reserved for maintenance"), ["busy"], False),
        # slurmctld has not come to the job, behind many others.
        (result("waiting", {"n1": "allocated"}, ""), ["busy"], True),
        (result("waiting", {"n1": "idle"}, ""), ["busy"], False),
        (result("waiting", {}, ""), ["busy"], False),
    ],
)
def test_which_jobs_are_ok(job: dict[str, Any], may_wait: list[str], ok: bool) -> None:
    summary = validation.validation_summary([job], may_wait)
    assert (summary["ok"], summary["jobs"][0]["ok"], summary[job["status"]]) == (ok, ok, 1)


def test_nodes_that_are_out_of_service_have_a_remedy() -> None:
    states = {"n1": "drained by Slurm (Kill task failed)", "n2": "down* by Slurm (Kill task failed)", "n3": "idle"}
    states |= {"n4": "drained by a person (bad DIMM)", "n5": "drained by the health check (health check gpu: x)"}
    waiting = [result("waiting", {name: state}, NOT_AVAILABLE) for name, state in states.items()]
    assert validation.validation_summary(waiting, ["busy"])["remedies"] == [
        "n[1-2]: Processes of a job did not end in time, and it is not known whether any is left. "
        "Look for processes of ended jobs (ps), then resume the node.",
        "n4: A person has drained the node. Ask who has drained it.",
        "n5: The health check has drained the node. Repair what the check names; it resumes the node by itself. "
        "After a repair of hardware, measure it (accept.yml -e accept_level=quick --limit CONTROLLER,NODE).",
    ]
    assert validation.validation_summary(waiting[:1], ["unavailable"])["remedies"] == []


def test_one_bad_job_is_a_bad_cluster() -> None:
    summary = validation.validation_summary([result("passed"), result("failed"), result("passed")], [])
    assert {key: summary[key] for key in ("ok", "passed", "failed", "waiting")} == {
        "ok": False,
        "passed": 2,
        "failed": 1,
        "waiting": 0,
    }


def test_table() -> None:
    common = {"partition": "gpu", "expected": "COMPLETED"}
    rows: list[dict[str, Any]] = [
        {
            **common,
            "name": "gpu/n1",
            "nodes": "n1",
            "state": "COMPLETED",
            "status": "passed",
            "reason": "",
            "message": "",
        },
        {
            **common,
            "name": "gpu/n2",
            "nodes": "",
            "state": "PENDING",
            "status": "waiting",
            "reason": "Resources",
            "message": "has not started in 9 s: Resources",
            "node_states": {"n2": "allocated"},
        },
    ]
    assert validation.validation_table(rows) == [
        "job     partition  nodes  state      expected   status  reason",
        "gpu/n1  gpu        n1     COMPLETED  COMPLETED  passed  -",
        "gpu/n2  gpu        -      PENDING    COMPLETED  busy    has not started in 9 s: Resources",
    ]


CONTAINERS: list[dict[str, Any]] = [
    {"hosts": "head", "hardware": "cpu"},
    {"hosts": "compute[01-03]", "hardware": "t4"},
    {"hosts": "far", "hardware": "far"},
]


def test_containers_are_checked_on_each_machine_type() -> None:
    partitions: list[dict[str, Any]] = [
        {"name": "gpu", "nodes": "compute[01-03]", "AllowAccounts": "vision"},
        {"name": "all", "nodes": "head,compute[01-02]", "default": True},
    ]
    jobs = validation.container_jobs(partitions, CONTAINERS, HARDWARE, {}, ["head", "compute02", "compute03", "far"])
    assert jobs == [
        {"name": "pyxis/cpu", "partition": "all", "options": {"exclude": "compute[01-02]"}},
        {"name": "pyxis/t4", "partition": "all", "gres": "gpu:1", "options": {"exclude": "head,compute01"}},
    ]


def test_containers_are_checked_where_a_machine_type_has_a_partition() -> None:
    partitions = [{"name": "gpu", "nodes": "compute03", "AllowAccounts": "vision"}, {"name": "cpu", "nodes": "head"}]
    jobs = validation.container_jobs(partitions, CONTAINERS, HARDWARE, {}, ["head", "compute03", "compute01"])
    assert jobs == [
        {"name": "pyxis/t4", "partition": "gpu", "account": "vision", "gres": "gpu:1"},
        {"name": "pyxis/cpu", "partition": "cpu"},
    ]
    assert validation.container_jobs([{"name": "all", "nodes": "ALL"}], CONTAINERS[2:], {}, {}, ["far"]) == [
        {"name": "pyxis/far", "partition": "all"}
    ]


WARM: dict[str, Any] = {
    "partitions": [{"name": "some", "nodes": "n[1-5]"}, {"name": "all", "nodes": "ALL", "default": True}],
    "nodes": [{"hosts": "n[1-5]", "hardware": "fast"}, {"hosts": "slow1", "hardware": "slow"}],
    "hardware": {"fast": {"gres": [{"name": "gpu", "count": 8}]}, "slow": {}},
}


def warm_up(*prologs: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Partition, nodes and generic resources of the jobs that run these prologs."""
    jobs = validation.warm_up_jobs(WARM["partitions"], WARM["nodes"], WARM["hardware"], {}, prologs)
    assert all(job["nodes"] == str(len(expand(job["nodelist"]))) for job in jobs)
    return [(job["partition"], job["nodelist"], job.get("gres", "")) for job in jobs]


def test_each_node_of_a_prolog_is_warmed_up_in_a_job_of_enough_nodes() -> None:
    """The last job has a node that another one has as well."""
    assert warm_up({"name": "a", "min_nodes": 2, "hardware": ["fast"]}) == [
        ("all", "n[1-2]", "gpu:1"),
        ("all", "n[3-4]", "gpu:1"),
        ("all", "n[5,1]", "gpu:1"),
    ]


def test_a_prolog_of_all_jobs_needs_no_further_job_where_another_one_runs() -> None:
    found = warm_up({"name": "a"}, {"name": "b", "min_nodes": 5, "hardware": ["fast"], "gpus": False})
    assert found == [("all", "n[1-5]", ""), ("all", "slow1", "")]


def test_a_prolog_of_a_partition_is_warmed_up_there() -> None:
    assert warm_up({"name": "a", "partitions": ["some"], "min_nodes": 5}) == [("some", "n[1-5]", "gpu:1")]


def test_nodes_of_which_there_are_too_few_have_no_job() -> None:
    assert warm_up({"name": "a", "min_nodes": 2, "hardware": ["slow"]}) == []
    assert warm_up() == []


@pytest.mark.parametrize(
    ("slurm_conf", "cgroup_conf", "limited"),
    [
        ({}, {}, True),
        ({"SelectTypeParameters": ["CR_CPU_Memory", "CR_LLN"]}, {"ConstrainRAMSpace": True}, True),
        ({"SelectTypeParameters": "CR_Core"}, {}, False),
        ({"SelectTypeParameters": None}, {}, False),
        ({"TaskPlugin": "task/affinity"}, {}, False),
        ({}, {"ConstrainRAMSpace": None}, False),
        ({}, {"ConstrainRAMSpace": "no"}, False),
    ],
)
def test_memory_is_checked_where_it_is_limited(
    slurm_conf: dict[str, Any], cgroup_conf: dict[str, Any], limited: bool
) -> None:
    jobs = validation.validation_jobs(PARTITIONS, NODES, HARDWARE, slurm_conf, cgroup_conf)
    assert ("out-of-memory" in {job["name"] for job in jobs}) == limited


@pytest.mark.parametrize("state", ["CLOUD", "FUTURE"])
def test_nodes_that_are_not_there_have_no_job(state: str) -> None:
    nodes = [{"hosts": "n[1-2]", "hardware": "a", "State": state}, {"hosts": "n3", "hardware": "a"}]
    jobs = validation.validation_jobs([{"name": "p", "nodes": "ALL"}], nodes, {"a": {}}, {}, {})
    assert {job["name"]: job.get("nodelist") for job in jobs} == {
        "p/n3": "n3",
        "array": "n3",
        "cancelled": "n3",
        "out-of-memory": "n3",
        "refused": None,
    }
