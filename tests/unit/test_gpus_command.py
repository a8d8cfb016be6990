# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `gpus` of role job_tools makes of the answers of three releases of Slurm (recorded/README.md)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import slurm_records
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.program_files import sent
from programs import ROLES, StandIn, load

pytestmark = pytest.mark.once

RECORDED = Path(__file__).parent / "recorded/gpus"
RELEASES = ("22.05", "24.11", "26.05")
MIG = "nvidia_h100_80gb_hbm3_1g.10gb"
FORGED = "2"
"""The job whose name is that of a job, and has the line of another one after it."""
RUNNING = {
    "1": ("alice", [("gpu01", "gpu", "a100", 1, [0]), ("gpu01", "gpu", "t4", 1, [2])]),
    FORGED: ("alice", [("gpu02", "gpu", "h100", 2, None)]),
    "3": ("bob", [("gpu02", "gpu", "h100", 1, [2])]),
    "4": ("bob", [("gpu02", "shard", "h100", 1, [3])]),
    "5": ("alice", [("gpu03", "gpu", "", 2, [0, 1])]),
    "6": ("alice", [("gpu04", "gpu", MIG, 3, [0, 1, 2])]),
    "7": ("bob", [("gpu01", "gpu", "a100", 1, [1])]),
    "8": ("alice", [("gpu01", "gpu", "t4", 1, [3]), ("gpu04", "gpu", MIG, 1, [3])]),
    "20_1": ("alice", [("gpu04", "gpu", MIG, 1, [4])]),
}
"""The jobs that ran in each release: their user, and what they have on each node."""
WANTED = {
    "9": [(4, "h100")],
    "10_[1-20%2]": [(1, "h100")],
    "12": [(1, "h100")],
    "13": [(1, "")],
    "14": [(1, "")],
    "16+0": [(1, "a100")],
    "16+1": [(4, "h100")],
    "18": [(1, "")],
    "21": [(5, MIG)],
}
"""The jobs of alice that waited in each release, and the GPUs that they want."""
UNEXPLAINED = {
    *("BlockFreeAction", "BlockMaxError", "FedJobLock", "FrontEndDown", "MpiPortsBusy", "PowerNotAvail"),
    *("PowerReserved", "InactiveLimit", "NonZeroExitCode", "OutOfMemory", "RaisedSignal", "SystemFailure", "TimeLimit"),
}
"""Reasons of Blue Gene and of front ends, of federations, of steps, and of jobs that have ended."""


@pytest.fixture(scope="module", name="gpus")
def program() -> SimpleNamespace:
    """The names of the program and of its parts."""
    parts = ("gpus_command.gpu_answers", "gpus_command.gpu_reports", "gpus_command.job_limits")
    modules = [load(name) for name in (*parts, "gpus_command.gpu_tables", "gpus")]
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


def recorded(release: str, name: str) -> str:
    """An answer of Slurm."""
    return (RECORDED / release / name).read_text()


def read(gpus: SimpleNamespace, nodes: str, jobs: str, details: str, now: int) -> Any:
    """The cluster in the answers of Slurm's commands."""
    return gpus.join_cluster(gpus.read_nodes(nodes), gpus.read_jobs(jobs), gpus.read_uses(details), now)


def cluster(gpus: SimpleNamespace, release: str, private: str = "") -> Any:
    """The cluster as a release has shown it to alice, or, with PrivateData, to bob."""
    nodes, jobs, details = (recorded(release, name) for name in ("nodes", f"{private}jobs", f"{private}details"))
    return read(gpus, nodes, jobs, details, int(recorded(release, f"{private}time")))


def rows(report: dict[str, Any]) -> dict[str, tuple[str, list[tuple[str, str, str, int, Any]]]]:
    """Jobs of a report as in RUNNING."""
    return {
        job["job"]: (
            job["user"],
            [(",".join(gpu["nodes"]), gpu["kind"], gpu["type"], gpu["count"], gpu["indices"]) for gpu in job["gpus"]],
        )
        for job in report["jobs"]
    }


# -- The answers of three releases -----------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_who_has_which_gpus(gpus: SimpleNamespace, release: str) -> None:
    report = gpus.report_overview(cluster(gpus, release), "alice", False)
    found = rows(report)
    assert {job: found[job] for job in RUNNING} == RUNNING
    assert {job.partition("_")[0] for job in found} == {job.partition("_")[0] for job in RUNNING}
    assert report["others"] == []
    assert all(0 <= report["time"] - job["since"] < 60 for job in report["jobs"])
    assert {job["job"]: job["left"] for job in report["jobs"]}["1"] in range(7100, 7201)


@pytest.mark.parametrize("release", RELEASES)
def test_how_many_are_free(gpus: SimpleNamespace, release: str) -> None:
    """gpu05 is drained, gpu06 has never answered, and a share of a GPU on gpu02 is in use."""
    types = {(kind["kind"], kind["type"]): kind for kind in gpus.report_types(cluster(gpus, release).nodes)}
    counts = {
        key: tuple(kind[name] for name in ("total", "used", "free", "unavailable")) for key, kind in types.items()
    }
    mig = 7 if release == "26.05" else 5
    assert counts == {
        ("gpu", ""): (2, 2, 0, 0),
        ("gpu", "a100"): (2, 2, 0, 0),
        ("gpu", "h100"): (12, 4, 0, 8),
        ("gpu", MIG): (7, mig, 7 - mig, 0),
        ("gpu", "t4"): (2, 2, 0, 0),
        ("shard", "h100"): (8, 1, 1, 6),
    }
    assert types["gpu", "h100"]["partitions"] == [
        {"name": "main", "total": 12, "used": 4, "free": 0, "unavailable": 8},
        {"name": "short-jobs-of-all-groups", "total": 4, "used": 4, "free": 0, "unavailable": 0},
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_jobs_that_slurm_hides_are_counted_and_not_named(gpus: SimpleNamespace, release: str) -> None:
    report = gpus.report_overview(cluster(gpus, release, "private-"), "bob", False)
    assert rows(report) == {job: RUNNING[job] for job in ("3", "4", "7")}
    mig = 7 if release == "26.05" else 5
    assert {(gpu["kind"], gpu["type"]): gpu["count"] for gpu in report["others"]} == {
        ("gpu", ""): 2,
        ("gpu", "a100"): 1,
        ("gpu", "h100"): 2,
        ("gpu", MIG): mig,
        ("gpu", "t4"): 2,
    }
    assert "alice" not in json.dumps(report)
    assert report["types"] == gpus.report_types(cluster(gpus, release).nodes)


@pytest.mark.parametrize("release", RELEASES)
def test_what_waits(gpus: SimpleNamespace, release: str) -> None:
    waiting = {job["job"]: job for job in gpus.report_overview(cluster(gpus, release), "alice", False)["waiting"]}
    wanted = {name: [(gpu["count"], gpu["type"]) for gpu in job["gpus"]] for name, job in waiting.items()}
    assert {name: wanted[name] for name in WANTED} == WANTED
    assert {job["user"] for job in waiting.values()} == {"alice"}
    assert waiting["14"]["explanation"] == "its owner holds it: scontrol release JOB"
    assert waiting["9"]["time_limit"] == 1800
    assert waiting["9"]["start"] > waiting["9"]["submitted"]
    assert waiting["12"]["start"] is None


@pytest.mark.parametrize("release", RELEASES)
def test_gpus_of_tasks_and_of_nodes_are_counted(gpus: SimpleNamespace, release: str) -> None:
    """--gpus-per-task with eight tasks, and --gpus-per-node with two nodes."""
    jobs = {job.name: job for job in cluster(gpus, release).jobs}
    assert [gpus.find_wanted(jobs[name])[0][:3] for name in ("11", "19")] == [("gpu", "", 8), ("gpu", "h100", 8)]
    # As on a cluster without accounting.
    alone = [jobs[name]._replace(tres="N/A") for name in ("11", "19", "12")]
    assert [gpus.find_wanted(job)[0][:3] for job in alone] == [("gpu", "", 8), ("gpu", "h100", 8), ("gpu", "h100", 1)]


@pytest.mark.parametrize("release", RELEASES)
def test_limits_have_values(gpus: SimpleNamespace, release: str) -> None:
    found = cluster(gpus, release)
    jobs = {job.name: job for job in found.jobs}
    partitions = recorded(release, "partitions")
    of_user = jobs["9"]._replace(reason="QOSMaxGRESPerUser")
    assert gpus.limit_command(of_user, partitions)[-2:] == ["qos=normal", "flags=qos"]
    (limit,) = gpus.read_limits(recorded(release, "qos"), of_user)
    assert limit[:3] == ("QOS normal", "MaxTRESPU gres/gpu", "12")
    # 26.05 had not counted yet what it had just started.
    assert limit.used == {"26.05": "10"}.get(release, "12")
    (limit,) = gpus.read_limits(recorded(release, "qos"), jobs["9"]._replace(reason="QOSGrpGRES"))
    assert limit[:3] == ("QOS normal", "GrpTRES gres/gpu", "40")
    (limit,) = gpus.read_limits(recorded(release, "qos"), jobs["9"]._replace(reason="QOSMaxJobsPerUserLimit"))
    assert limit[:3] == ("QOS normal", "MaxJobsPU", "50")
    assert gpus.read_limits(recorded(release, "qos"), jobs["9"]._replace(reason="MaxGRESPerAccount")) == []
    of_account = jobs["11"]._replace(reason="AssocGrpGRES")
    assert gpus.limit_command(of_account, partitions)[-2:] == ["users=bob", "flags=assoc"]
    assert gpus.read_limits(recorded(release, "associations"), of_account) == [
        ("account chemistry", "GrpTRES gres/gpu", "4", "2")
    ]
    assert gpus.read_partition_limits(partitions, jobs["18"]) == [
        ("partition short-jobs-of-all-groups", "MaxTime", "00:30:00", None)
    ]


def test_a_partition_has_a_qos_of_its_own(gpus: SimpleNamespace) -> None:
    partitions = recorded("24.11", "partitions").replace("QoS=N/A", "QoS=of-gpus")
    job = cluster(gpus, "24.11").jobs[0]._replace(reason="QOSGrpGRES")
    assert gpus.limit_command(job, partitions)[-2] == "qos=normal,of-gpus"
    assert gpus.limit_command(job._replace(reason="Resources"), partitions) is None


@pytest.mark.parametrize("release", RELEASES)
def test_a_users_text_gives_nobody_the_gpus_of_a_job(gpus: SimpleNamespace, release: str) -> None:
    """The name of a job has the line of another job, fields of a job, or both; the others stay as they are."""
    details = recorded(release, "details")
    (line,) = re.findall(r"^JobId=3 .*$", details, re.MULTILINE)
    before = cluster(gpus, release).uses
    for name in (
        "x\n" + line.replace("IDX:2", "IDX:0"),
        "x JOB_GRES=gpu:h100:9 Nodes=gpu02 CPU_IDs=0 Mem=0 GRES=gpu:h100:9(IDX:0-8) MinCPUsNode=1",
        "x\nJobId=99 JOB_GRES=gpu:h100:1 Nodes=gpu02 CPU_IDs=0 Mem=0 GRES=gpu:h100:1(IDX:0) MinCPUsNode=1",
        "x JOB_GRES=gpu:2 Nodes=gpu02 CPU_IDs=0 Mem=0 GRES=gpu:h100:2(IDX:0-1) MinCPUsNode=1",
        "x Nodes=gpu02 CPU_IDs=0 Mem=0 GRES=gpu:h100:2(IDX:0-1) MinCPUsNode=1",
        "x\nJobId=99 JOB_GRES=gpu:1 Nodes=n[0-9999999] CPU_IDs=0 Mem=0 GRES=gpu:1 MinCPUsNode=1",
        "x\nJobId=99 JOB_GRES=gpu:1 Nodes=n[0 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0-9999999) MinCPUsNode=1",
    ):
        forged = details.replace("JobId=5 JobName=wrap", f"JobId=5 JobName={name}")
        assert forged != details
        jobs = recorded(release, "jobs")
        found = read(gpus, recorded(release, "nodes"), jobs, forged, 0).uses
        assert found.keys() == before.keys()
        for job in found:
            totals = [Counter({use.gres[:2]: use.gres.number for use in uses[job]}) for uses in (before, found)]
            assert totals[0] == totals[1], job
            assert all(use in before[job] or use.gres.indices is None for use in found[job]), job


@pytest.mark.parametrize("release", RELEASES)
def test_texts_after_the_gpus_change_nothing(gpus: SimpleNamespace, release: str) -> None:
    details = recorded(release, "details")
    forged = details.replace("WorkDir=/tmp", "WorkDir=/x Nodes=gpu02 CPU_IDs=0 Mem=0 GRES=gpu:h100:1(IDX:0)")
    assert forged != details
    assert gpus.read_uses(forged) == gpus.read_uses(details)


def test_without_accounting_of_gpus_a_jobs_request_says_what_it_has(gpus: SimpleNamespace) -> None:
    """Where scontrol does not say it, as for a job that is ending."""
    job = wait(gpus, state="COMPLETING", hosts="n[1-2]", per_node="gres/gpu:h100:2", nodes=2)
    assert gpus.choose_uses(job, []) == [("n[1-2]", ("gpu", "h100", 4, ""))]
    known = [gpus.JobUse("n1", gpus.GresCount("gpu", "h100", 4, "IDX:0-3"))]
    assert gpus.choose_uses(job, known) == known
    assert gpus.choose_uses(job._replace(tres="cpu=4,gres/gpu=3"), known)[0].gres[1:] == ("h100", 3, "")


def test_shares_of_gpus_in_slurm_22_05(gpus: SimpleNamespace) -> None:
    """Three shares of two GPUs: it names the GPUs, and counts these."""
    used = "GresUsed=gpu:h100:1(IDX:0),shard:h100:2(IDX:2-3) State=MIXED AllocTRES=cpu=3,gres/gpu=1,gres/shard=3"
    (node,) = gpus.read_nodes(f"NodeName=n1 Gres=gpu:h100:4,shard:h100:8 {used} ")
    assert dict(gpus.measure_node(node)) == {("gpu", "h100"): (4, 3, 1, 0), ("shard", "h100"): (8, 3, 3, 2)}


@pytest.mark.parametrize(
    ("gres", "used", "counts"),
    [
        pytest.param(
            "gpu:h100:4,shard:h100:4",
            "gpu:h100:2(IDX:2-3),shard:h100:0(0/2,0/2,0/0,0/0)",
            {("gpu", "h100"): (4, 2, 2, 0), ("shard", "h100"): (4, 0, 4, 0)},
            id="a-part-of-the-gpus",
        ),
        pytest.param(
            "gpu:h100:4,shard:h100:4",
            "gpu:h100:1(IDX:0),shard:h100:1(-/2,1/2,0/0,0/0)",
            {("gpu", "h100"): (4, 2, 2, 0), ("shard", "h100"): (4, 1, 1, 2)},
            id="one-as-a-whole",
        ),
        pytest.param(
            "gpu:a100:2,gpu:h100:2,shard:a100:0,shard:h100:8",
            "gpu:a100:1(IDX:0),gpu:h100:1(IDX:3),shard:a100:0(0/0,0/0),shard:h100:3(3/4,0/4)",
            {("gpu", "a100"): (2, 1, 1, 0), ("gpu", "h100"): (2, 2, 0, 0), ("shard", "h100"): (8, 3, 1, 4)},
            id="of-one-type",
        ),
    ],
)
def test_shares_are_free_where_a_job_can_have_them(gpus: SimpleNamespace, gres: str, used: str, counts: Any) -> None:
    """Slurm writes `shares in use/shares` of each GPU (`_node_gres_used` in src/interfaces/gres.c)."""
    (node,) = gpus.read_nodes(f"NodeName=n1 Gres={gres} GresUsed={used} State=MIXED Partitions=main ")
    assert dict(gpus.measure_node(node)) == counts
    (free,) = (row for row in gpus.report_free(gpus.GpuCluster(0, [node], [], {}), "shard")["nodes"])
    assert free["free"] == counts["shard", "h100"][2]


def test_there_are_no_rows_of_nothing(gpus: SimpleNamespace) -> None:
    lines = "NodeName=n1 Gres=gpu:a100:2,shard:a100:0 State=IDLE Partitions=main \nNodeName=n2 Gres=gpu:0 State=IDLE "
    types = gpus.report_types(gpus.read_nodes(lines))
    assert [line.split() for line in gpus.show_types(types, 80)[1:]] == [["a100", "main", "2", "0", "2", "0"]]


def test_one_is_and_two_are(gpus: SimpleNamespace) -> None:
    said = [gpus.show_sooner({"type": kind, "count": count}) for kind in ("a100", "") for count in (1, 2)]
    assert said == ["1 a100 is free now", "2 a100 are free now", "1 GPU is free now", "2 GPUs are free now"]


def test_gpus_without_a_type_are_not_counted_twice(gpus: SimpleNamespace) -> None:
    """Slurm has not said of which type the GPUs of a job are."""
    found = make_cluster(gpus, [("n1", "h100", 8, 3), ("n2", "a100", 8, 2)], [])
    found.uses["1"] = [gpus.JobUse("n[1-2]", gpus.GresCount("gpu", "", 4))]
    assert [gpu["count"] for gpu in gpus.report_others(found)] == [1]


def test_waiting_jobs_of_others_are_left_out(gpus: SimpleNamespace) -> None:
    jobs = gpus.read_jobs(recorded("24.11", "jobs"), "bob")
    assert {job.user for job in jobs if job.state == "PENDING"} == {"bob"}
    assert {job.user for job in jobs if job.state == "RUNNING"} == {"alice", "bob"}


# -- Decisions -------------------------------------------------------------------------------------------------------


def test_lists_that_squeue_cuts_lose_what_may_be_wrong(gpus: SimpleNamespace) -> None:
    values = dict.fromkeys(gpus.JOB_FIELDS, "")
    values["Account"] = "(null)"  # without accounting
    values["NodeList"] = "gpux[" + ",".join(map(str, range(100, 140)))
    values["tres-alloc"] = "cpu=1," + ",".join(f"gres/gpu:type-{number}={number}" for number in range(10, 40))
    fields = (values[name][:width].ljust(width) for name, width in gpus.JOB_FIELDS.items())
    (job,) = gpus.read_jobs("|".join(fields) + "|\n")
    assert job.account == ""
    assert gpus.expand(job.hosts) == [f"gpux{number}" for number in range(100, 123)]
    assert [gres[1:3] for gres in slurm_records.gres(job.tres)] == [(f"type-{n}", n) for n in range(10, 19)]


def reasons() -> list[str]:
    """The reasons that the three releases know."""
    return (RECORDED / "reasons").read_text().split()


@pytest.mark.parametrize("reason", reasons())
def test_every_reason_is_explained(gpus: SimpleNamespace, reason: str) -> None:
    assert (gpus.explain(reason) == reason) == (reason in UNEXPLAINED)


def test_reasons_in_plain_words(gpus: SimpleNamespace) -> None:
    assert gpus.explain("AssocGrpGRES") == "a limit of its account is reached: GPUs and other GRES"
    assert gpus.explain("QOSMaxCpuMinutesPerJobLimit") == "a limit of its QOS is reached: minutes of CPUs"
    assert gpus.explain("ReqNodeNotAvail, UnavailableNodes:gpu06").startswith("nodes that it could use are down")
    assert gpus.explain("ReqNodeNotAvail, May be reserved for other job").startswith("its nodes are kept for a job")
    assert gpus.explain("launch failed requeued held") == "launch failed requeued held"


def test_jobs_by_their_numbers(gpus: SimpleNamespace) -> None:
    jobs = cluster(gpus, "24.11").jobs
    named = {
        wanted: [job.name for job in gpus.find_jobs(jobs, wanted)] for wanted in ("10", "10_7", "10_21", "16", "2")
    }
    assert {wanted: sorted(found) for wanted, found in named.items()} == {
        "10": ["10_[1-20%2]"],
        "10_7": ["10_[1-20%2]"],
        "10_21": [],
        "16": ["16+0", "16+1"],
        "2": ["2"],
    }


def make_cluster(gpus: SimpleNamespace, nodes: list[tuple[str, str, int, int]], jobs: list[Any]) -> Any:
    """A made-up cluster at time 0. nodes: name, type, GPUs, and how many of them are used."""
    lines = (
        f"NodeName={name} Gres=gpu:{kind}:{total} GresUsed=gpu:{kind}:{used} State=MIXED Partitions=main "
        for name, kind, total, used in nodes
    )
    return gpus.GpuCluster(0, gpus.read_nodes("\n".join(lines)), jobs, {})


def wait(gpus: SimpleNamespace, **values: Any) -> Any:
    """A job that waits."""
    given = {"id": "1", "name": "1", "user": "alice", "partition": "main", "state": "PENDING", "reason": "Resources"}
    numbers = {"nodes": 1, "tasks": 1, "submitted": 0, "start": None, "left": None, "limit": 36000}
    return gpus.ShownJob(**(dict.fromkeys(gpus.ShownJob._fields, "") | given | numbers | values))


@pytest.mark.parametrize(
    ("per_node", "nodes", "sooner"),
    [
        pytest.param("gres/gpu:h100:4", 1, [{"type": "h100", "count": 3}, {"type": "a100", "count": 4}], id="either"),
        pytest.param("gres/gpu:h100:8", 1, [{"type": "h100", "count": 3}], id="fewer"),
        pytest.param("gres/gpu:h100:4", 2, [{"type": "h100", "count": 4}], id="fewer-on-each-of-two-nodes"),
        pytest.param("gres/gpu:h100:4", 3, [], id="no-three-nodes-have-any"),
        pytest.param("gres/gpu:t4:1", 1, [{"type": "a100", "count": 1}, {"type": "h100", "count": 1}], id="none-left"),
        pytest.param("gres/gpu:h100:2", 1, [{"time_limit": 3600}], id="fits-in-time"),
        pytest.param("gres/shard:2", 1, [], id="shares"),
    ],
)
def test_what_may_start_sooner(gpus: SimpleNamespace, per_node: str, nodes: int, sooner: list[Any]) -> None:
    """The next job is planned in an hour."""
    job = wait(gpus, per_node=per_node, nodes=nodes)
    next_job = wait(gpus, id="2", start=3600)
    hosts = [("n1", "h100", 8, 5), ("n2", "h100", 8, 6), ("n3", "a100", 4, 0), ("n4", "t4", 1, 1)]
    found = make_cluster(gpus, hosts, [job, next_job])
    assert gpus.find_sooner(found, job) == sooner
    assert gpus.find_sooner(found, job._replace(reason="JobHeldUser")) == []
    assert gpus.find_sooner(found, job._replace(partition="other")) == []
    at_once = make_cluster(gpus, hosts, [job, next_job._replace(start=60)])
    assert "time_limit" not in str(gpus.find_sooner(at_once, job))
    short = job._replace(limit=1800)
    assert gpus.find_sooner(found, short) == [change for change in sooner if "time_limit" not in change]


MAINTENANCE = (
    "ReservationName={} StartTime={} EndTime={} Duration=08:00:00 Nodes={} NodeCnt=2 Features=(null) "
    "PartitionName=(null) Flags={} TRES=cpu=4 Users=root State=INACTIVE Comment=x Flags=MAINT Nodes=n[1-9]\n"
)
NAMED = "ReqNodeNotAvail, Reserved for maintenance"


@pytest.mark.parametrize(
    ("job", "reservation", "found"),
    [
        pytest.param(
            {"reason": NAMED}, (7230, 9000, "n2", "MAINT,IGNORE_JOBS"), (7230, 7140), id="a-part-of-the-nodes"
        ),
        pytest.param({"reason": NAMED}, (-60, 9000, "n2", "MAINT"), (-60, None), id="it-has-begun"),
        pytest.param({"reason": NAMED}, (100, 9000, "n2", "MAINT"), (100, None), id="no-time-would-fit"),
        pytest.param({"reason": "Resources"}, (7230, 9000, "n[1-3]", "MAINT"), (7230, 7140), id="all-nodes"),
        pytest.param({"reason": NAMED, "limit": None}, (7230, 9000, "n2", "MAINT"), (7230, 7140), id="no-limit"),
        pytest.param({"reason": "Resources"}, (7230, 9000, "n2", "MAINT"), None, id="other-nodes-are-left"),
        pytest.param({"reason": NAMED, "limit": 3600}, (7230, 9000, "n2", "MAINT"), None, id="it-ends-before"),
        pytest.param({"reason": NAMED}, (7230, 9000, "n9", "MAINT"), None, id="of-other-nodes"),
        pytest.param({"reason": NAMED}, (7230, 9000, "n2", "SPEC_NODES"), None, id="no-maintenance"),
        pytest.param({"reason": NAMED}, (-60, -10, "n2", "MAINT"), None, id="it-is-over"),
    ],
)
def test_a_maintenance_is_named(gpus: SimpleNamespace, job: Any, reservation: Any, found: Any) -> None:
    now = 1_000_000
    start, end, hosts, flags = reservation
    text = MAINTENANCE.format("maint", now + start, now + end, hosts, flags)
    named = gpus.find_maintenance(text, {"n1", "n2"}, wait(gpus, **job), now)
    assert named == (
        [{"name": "maint", "start": now + found[0], "end": now + end, "time_limit": found[1]}] if found else []
    )


def test_what_people_read_of_a_maintenance(gpus: SimpleNamespace) -> None:
    job = wait(gpus, reason=NAMED, per_node="gres/gpu:h100:2", submitted=100)
    near = {"name": "maint", "start": 7230, "end": 9000, "time_limit": 7140}
    found = gpus.report_why(
        make_cluster(gpus, [], []), [job], {}, {"1": [near, near | {"start": 0, "time_limit": None}]}
    )
    lines = gpus.show_why(found, 80)
    start, end = (gpus.name_clock(seconds, 0) for seconds in (7230, 9000))
    assert lines[2:4] == ["  Reason:  its nodes are reserved for a maintenance", f"           ({NAMED})"]
    assert lines[4:7] == [
        f"  Maint.:  maint from {start} to {end}",
        "  Sooner:  with --time=1:59:00 or less it ends before the maintenance",
        f"  Maint.:  maint until {end}",
    ]


@pytest.mark.parametrize(
    ("state", "free"),
    [
        ("IDLE", 2),
        ("MIXED+PLANNED", 2),
        ("IDLE+CLOUD+POWERED_DOWN", 2),
        ("IDLE+DRAIN", 0),
        ("DOWN*", 0),
        ("IDLE+RESERVED", 0),
        ("IDLE+NOT_RESPONDING", 0),
        ("MIXED+MAINTENANCE", 0),
    ],
)
def test_gpus_of_nodes_that_take_no_job_are_not_free(gpus: SimpleNamespace, state: str, free: int) -> None:
    line = f"NodeName=n1 Gres=gpu:h100:3 GresUsed=gpu:h100:1 State={state} Partitions=main "
    (node,) = gpus.read_nodes(line)
    assert dict(gpus.measure_node(node)) == {("gpu", "h100"): (3, 1, free, 2 - free)}


# -- The command -----------------------------------------------------------------------------------------------------


@pytest.fixture(name="run")
def runner(stand_in: StandIn, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the program as a user, over stand-ins for Slurm's commands that say what a release has said."""

    def run(*arguments: str, release: str = "24.11", **environment: str) -> subprocess.CompletedProcess[str]:
        answers = RECORDED / release
        others = f"*assoc_mgr*qos*) cat {answers}/qos;; *assoc_mgr*) cat {answers}/associations;;"
        own = f"*node) cat {answers}/nodes;; *job) cat {answers}/details;; *partition) cat {answers}/partitions;;"
        own += " *reservation) echo No reservations in the system;;"
        stand_in("scontrol", f'echo scontrol >>{tmp_path}/calls; case "$*" in {own} {others} *) exit 9;; esac')
        stand_in("squeue", f"echo squeue >>{tmp_path}/calls; test -z $SQUEUE_USERS && cat {answers}/jobs")
        return subprocess.run(
            [sys.executable, "-I", "-", *arguments],
            input=sent("programs.gpus"),
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"COLUMNS": "80"} | environment,
        )

    return run


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("arguments", [(), ("--user", "bob"), ("--free",), ("--why", "9"), ("--why=20",), ("--json",)])
def test_answers_fit_a_terminal_and_control_none(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, release: str, arguments: tuple[str, ...]
) -> None:
    done = run(*arguments, release=release, SQUEUE_USERS="alice", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, "")
    assert len((tmp_path / "calls").read_text().split()) <= 5
    if arguments == ("--json",):
        assert json.loads(done.stdout)["jobs"]
        return
    lines = done.stdout.splitlines()
    assert len(lines) > 1
    assert [line for line in lines if len(line) > 80 or not line.isprintable()] == []


@pytest.mark.parametrize("width", [60, 80, 200])
def test_long_names_are_cut(gpus: SimpleNamespace, width: int) -> None:
    long = "name-of-" * 20
    gpu = {"kind": "gpu", "type": long, "count": 123456, "nodes": [long] * 5, "indices": [*range(0, 99, 2)]}
    job = {"job": "12345678_1234", "user": long, "account": long, "since": 0, "left": 10**7, "gpus": [gpu]}
    lines = gpus.show_jobs({"time": 10**9, "jobs": [job], "others": []}, width)
    assert [line for line in lines if len(line) > width] == []
    assert lines[2].count("..") >= 5
    free = {"kind": "gpu", "type": long, "free": 1, "total": 2, "partitions": [long] * 3}
    lines = gpus.show_free({"nodes": [free | {"node": f"node{number}"} for number in range(2000)]}, width)
    assert max(map(len, lines)) <= width


def test_what_people_read(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    said = run("--user", "bob").stdout
    assert re.search(r"^TYPE +PARTITION +TOTAL +USED +FREE +UNAVAIL$", said, re.MULTILINE)
    assert re.search(r"^h100 +\* +12 +4 +0 +8$", said, re.MULTILINE)
    assert re.search(r"^bob +chemistry +3 +gpu02 +h100 +1 +2 +\S.*\d$", said, re.MULTILINE)
    assert "alice" not in said
    said = run("--why", "18").stdout
    assert "Reason:  its --time is longer than its partition allows\n" in said
    assert "Limit:   partition short-jobs-of-all-groups: MaxTime=00:30:00\n" in said
    assert "Start:   Slurm has not planned it yet\n" in said
    assert re.fullmatch(r"TYPE.*\nnvidia_\S+ +2 +1 +gpu04 +main\n", run("--free", "10GB").stdout)
    assert run("--free", "v100").stdout == "No such GPU is free.\n"
    assert run("--user", "carol").stdout.endswith("\n\ncarol has no GPUs, and waits for none.\n")
    assert run("--why", "3").stdout == "Job 3 of bob does not wait: RUNNING.\n"


def test_json_is_what_the_documents_say(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Each key is in the README of the role."""
    text = (ROLES / "job_tools/README.md").read_text()

    def keys(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(keys, value))
        return {*value}.union(*map(keys, value.values())) if isinstance(value, dict) else set()

    for arguments in ((), ("--free",), ("--why", "9"), ("--why", "3")):
        report = json.loads(run("--json", *arguments).stdout)
        assert {key for key in keys(report) if f"`{key}`" not in text} == set()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--why", "99"), "Slurm shows no job 99 that waits or runs"),
        (("--why", "\x1b[31m"), "Slurm shows no job \\x1b[31m that waits or runs"),
        (("--why",), "--why needs the number of a job"),
        (("--free", "--why", "9"), "one of --user, --free, --why and --quota at a time"),
        (("--all",), "there is no option --all: see gpus --help"),
    ],
)
def test_what_cannot_be_answered(
    run: Callable[..., subprocess.CompletedProcess[str]], arguments: tuple[str, ...], problem: str
) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"gpus: {problem}\n")


def test_slurm_does_not_answer(gpus: SimpleNamespace, stand_in: StandIn) -> None:
    def ask(command: list[str], seconds: float = 20) -> Any:
        return gpus.ask((command, str.split), (["true"], str), seconds=seconds)

    stand_in("scontrol", "exec sleep 60")
    with pytest.raises(gpus.SlurmError, match=r"Slurm has not answered within 0[.]2 s"):
        ask(gpus.NODES, 0.2)
    stand_in("scontrol", "echo one >&2; echo 'slurm_load_node error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(gpus.SlurmError, match=r"^slurm_load_node error: Unable to contact slurm controller$"):
        ask(gpus.NODES)
    with pytest.raises(gpus.SlurmError, match=r"^there-is-none: command not found$"):
        ask(["there-is-none"])
    stand_in("scontrol", "echo 'slurm_load_node error: Access/permission denied' >&2; exit 1")
    assert ask(gpus.NODES) == [[], ""]
    stand_in("scontrol", "echo NodeName= $SLURM_TIME_FORMAT $*")
    assert ask(gpus.NODES) == [["NodeName=", "%s", "--details", "--oneliner", "show", "node"], ""]


def test_help_needs_no_slurm(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run("--help", PATH="")
    assert (done.returncode, done.stdout.splitlines()[2][:12]) == (0, "usage: gpus ")


# -- Size ------------------------------------------------------------------------------------------------------------


def make_large(size: int) -> tuple[str, str, str]:
    """The answers of a cluster with so many nodes and five times as many jobs: recorded lines with other names."""
    nodes, details = recorded("24.11", "nodes").split("\n"), recorded("24.11", "details").split("\n")
    (node,) = (line for line in nodes if line.startswith("NodeName=gpu02 "))
    (detail,) = (line for line in details if line.startswith("JobId=3 "))
    (job,) = (line for line in recorded("24.11", "jobs").split("\n") if line.startswith("3 "))
    numbers = range(1, 5 * size + 1)
    hosts = {number: f"node{number // 5:04}" for number in numbers}
    found = [f"{number:<11}|{number:<80}|{job[93:].replace('gpu02', hosts[number])}" for number in numbers]
    more = [detail.replace("JobId=3 ", f"JobId={n} ").replace("gpu02", hosts[n]) for n in numbers]
    return "\n".join(node.replace("gpu02", f"node{n:04}") for n in range(size)), "\n".join(found), "\n".join(more)


def test_work_grows_with_the_cluster_and_no_faster(gpus: SimpleNamespace) -> None:
    """Calls of functions, which a busy machine does not change. 2,000 nodes and 10,000 jobs are 20 times the first."""

    def count_calls(size: int) -> int:
        nodes, jobs, details = make_large(size)
        calls = 0

        def count(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal calls
            calls += event in {"call", "c_call"}

        sys.setprofile(count)
        try:
            found = read(gpus, nodes, jobs, details, 0)
            report = gpus.report_overview(found, "bob", False)
            lines = gpus.show_jobs(report, 80)
            gpus.report_why(found, found.jobs[:1], {})
        finally:
            sys.setprofile(None)
        assert len(lines) == 5 * size + 3  # a blank line, the header, and the shares that no job has
        return calls

    small, large = count_calls(100), count_calls(400)
    assert large < 4.2 * small
