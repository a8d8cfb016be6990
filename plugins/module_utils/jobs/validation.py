# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validation of a cluster with jobs: the jobs to run, and the evaluation of their results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.machine_types import gres_count, is_there
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.partitions import resolver
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.meaning import is_yes
from ansible_collections.gpucluster.slurm.plugins.module_utils.doctor.causes import by_reason
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import expand, fold

JOB_MEMORY = 64
"""MiB for a job. Slurm's confinement does not go below 30 (`MinRAMSpace`, cgroup.conf)."""

TOO_MUCH_MEMORY = "ulimit -v 1048576; exec tail /dev/zero"
"""Uses memory until it is killed, or, if nothing limits it, until it has 1 GiB and fails."""

TOO_MANY_NODES = 65_536
"""The maximum number of nodes in Slurm (`MAX_SLURM_NODES`, slurm.h), which no cluster has."""

TOO_MANY_REFUSED = (
    "More processors requested than permitted|Node count specification invalid"
    "|Requested node configuration is not available"
)
"""Slurm's words for it (`src/common/slurm_errno.c`); which it says depends on the size of the partition."""

WORKING = re.compile(r"(idle|allocated|mixed|completing|planned)[~^#%$@+-]?( \(.*)?")
"""sinfo's states of a node that takes jobs, sooner or later. Not so `idle*`, which does not respond."""

BUSY = ("Resources", "Priority", "Nodes required for job are DOWN, DRAINED or reserved")
"""How the reasons of a job start that waits for others. Slurm gives the third for a busy node too."""

MPI_MEMORY = 1024
"""MiB for each node of the job with an MPI program: the compiler and two tasks."""

MPI_FAILURES = {
    "2:0": "the program was not compiled; see whether the command of validate_mpi works on the compute nodes.",
    "3:0": "the program did not start, or did not end well. `srun --mpi=list` shows what Slurm has, and an MPI library"
    " built for another PMI than MpiDefault of slurm_conf fails so.",
    "4:0": "each task was a program of its own, with MPI_Comm_size 1. Tasks find each other by PMI: Open MPI 5 needs"
    " MpiDefault: pmix in slurm_conf, MPICH also works with pmi2; `srun --mpi=list` shows what Slurm has.",
}
"""What the statuses of the script mean (`roles/validate/templates/mpi.sh.j2`), by exit code and signal."""

STATUSES = ("passed", "failed", "waiting")

COLUMNS = {
    "job": "name",
    "partition": "partition",
    "nodes": "nodes",
    "state": "state",
    "expected": "expected",
    "status": "status",
    "reason": "message",
}
"""The table: heading, and the key of a job's result."""


def _gpus(node: Mapping[str, Any], hardware: Mapping[str, Mapping[str, Any]]) -> int:
    """The number of GPUs of a node, from its machine type."""
    gres = hardware.get(node.get("hardware", ""), {}).get("gres", [])
    return sum(gres_count(entry) for entry in gres if entry["name"] == "gpu")


def _node_job(partition: str, node: str, gpus: int) -> dict[str, Any]:
    """The job that proves one node in one partition: it runs there, with all GPUs visible if there are any."""
    job = {
        "name": f"{partition}/{node}",
        "partition": partition,
        "nodelist": node,
        "command": f'test "$SLURMD_NODENAME" = {node}',
    }
    if gpus:
        visible = f'IFS=,; set -- $CUDA_VISIBLE_DEVICES; test "$#" -eq {gpus}'
        job |= {"gres": f"gpu:{gpus}", "command": f"{job['command']} || exit 1; {visible}"}
    return job


def _restrictions(partition: Mapping[str, Any]) -> dict[str, str]:
    """The account and the QOS of a job in a partition that does not allow what root has (`account`, `qos`)."""
    values = {key.lower(): value for key, value in partition.items()}
    restrictions = {}
    for key, parameter, usual in (("account", "allowaccounts", "root"), ("qos", "allowqos", "normal")):
        value = values.get(parameter) or "ALL"
        names = [str(name).strip() for name in (value if isinstance(value, list) else str(value).split(","))]
        if not {"all", usual} & {name.lower() for name in names}:
            restrictions[key] = names[0]
    return restrictions


def container_jobs(
    partitions: Iterable[Mapping[str, Any]],
    nodes: Iterable[Mapping[str, Any]],
    hardware: Mapping[str, Mapping[str, Any]],
    slurm_conf: Mapping[str, Any],
    hosts: Iterable[str],
) -> list[dict[str, Any]]:
    """The jobs that prove containers on these hosts, for the module `slurm_job`: one for each machine type.

    Each runs on any of the hosts that have its machine type, with a GPU if they have some, because enroot's hooks
    differ there. It is in the default partition, if that has such nodes, or else in the first partition that has. A
    host in no partition has no job.
    """
    nodes, reached = [*nodes], {*hosts}
    kinds = {name: node.get("hardware", "") for node in nodes for name in expand(node["hosts"])}
    gpus = {name: _gpus(node, hardware) for node in nodes for name in expand(node["hosts"])}
    resolve = resolver(nodes, hardware, slurm_conf)
    jobs: dict[str, dict[str, Any]] = {}
    for partition in sorted(partitions, key=lambda partition: not partition.get("default")):
        inside = [name for name in resolve(partition["nodes"]) if name in kinds]
        first = {kinds[name]: name for name in reversed(inside) if name in reached}
        for kind, name in reversed(first.items()):
            if kind in jobs:
                continue
            others = [other for other in inside if kinds[other] != kind or other not in reached]
            job: dict[str, Any] = {"name": f"pyxis/{kind}", "partition": partition["name"], **_restrictions(partition)}
            job |= {"gres": "gpu:1"} if gpus[name] else {}
            jobs[kind] = job | ({"options": {"exclude": fold(others)}} if others else {})
    return [*jobs.values()]


def warm_up_jobs(
    partitions: Iterable[Mapping[str, Any]],
    nodes: Iterable[Mapping[str, Any]],
    hardware: Mapping[str, Mapping[str, Any]],
    slurm_conf: Mapping[str, Any],
    prologs: Iterable[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The jobs that run each prolog once on each node that it concerns, for the module `slurm_job`.

    A job has as many nodes of one machine type as the prologs there want, so that a busy node delays few others. Where
    their number is no multiple of that, some nodes are in two jobs. Nodes of which a partition has too few have no job.
    """
    nodes, partitions = [*nodes], sorted(partitions, key=lambda partition: not partition.get("default"))
    kinds = {name: node.get("hardware", "") for node in nodes for name in expand(node["hosts"])}
    gpus = {name: _gpus(node, hardware) for node in nodes for name in expand(node["hosts"])}
    resolve = resolver(nodes, hardware, slurm_conf)
    jobs: dict[tuple[str, str], dict[str, Any]] = {}
    warm: dict[tuple[str, str], int] = {}
    for prolog in sorted(prologs, key=lambda prolog: -int(prolog.get("min_nodes", 1))):
        size, done = int(prolog.get("min_nodes", 1)), set()
        for partition in partitions:
            name = partition["name"]
            if name not in prolog.get("partitions", [name]):
                continue
            inside: dict[str, list[str]] = {}
            for host in resolve(partition["nodes"]):
                if host in kinds and kinds[host] in prolog.get("hardware", [kinds[host]]):
                    inside.setdefault(kinds[host], []).append(host)
            for of_kind in inside.values():
                done |= {host for host in of_kind if warm.get((name, host), 0) >= size}
                cold = [host for host in of_kind if host not in done]
                for start in range(0, len(cold), size) if len(of_kind) >= size else ():
                    part = cold[start : start + size]
                    part += [host for host in of_kind if host not in part][: size - len(part)]
                    jobs[name, fold(part)] = {
                        "name": f"warm-up/{fold(part)}",
                        "partition": name,
                        "nodelist": fold(part),
                        "nodes": str(size),
                        "memory": str(JOB_MEMORY),
                        "command": "true",
                        **({"gres": "gpu:1"} if gpus[part[0]] and prolog.get("gpus", True) else {}),
                        **_restrictions(partition),
                    }
                    done |= {*part}
                    warm |= dict.fromkeys(((name, host) for host in part), size)
    return [*jobs.values()]


def _limits_memory(slurm_conf: Mapping[str, Any], cgroup_conf: Mapping[str, Any]) -> bool:
    """Whether a job ends that takes more memory than it has asked for. Parameters that are left out have our values."""
    resources = str(slurm_conf.get("SelectTypeParameters", "CR_Core_Memory")).lower()
    plugins = str(slurm_conf.get("TaskPlugin", "task/cgroup")).lower()
    limited = is_yes(str(cgroup_conf.get("ConstrainRAMSpace", "yes")))
    return "memory" in resources and "cgroup" in plugins and limited


def validation_jobs(
    partitions: Iterable[Mapping[str, Any]],
    nodes: Iterable[Mapping[str, Any]],
    hardware: Mapping[str, Mapping[str, Any]],
    slurm_conf: Mapping[str, Any],
    cgroup_conf: Mapping[str, Any],
    mpi_script: str = "",
) -> list[dict[str, Any]]:
    """The jobs that prove a cluster, for the module `slurm_job`.

    One runs on every node of every partition that is there, and not on nodes that Slurm starts when it needs them. In
    the first partition that has nodes, one is an array, one is cancelled, one is killed for the memory that it takes,
    if the configuration limits memory, and one asks for more nodes than there are and is refused. Where a partition
    allows some accounts or QOS only, its jobs have the first of them. With a script, the job `mpi` runs it in the first
    partition that has two nodes.
    """
    nodes, partitions = [*nodes], [*partitions]
    there = [node for node in nodes if is_there(node)]
    gpus = {name: _gpus(node, hardware) for node in there for name in expand(node["hosts"])}
    resolve = resolver(nodes, hardware, slurm_conf)
    restrictions = {partition["name"]: _restrictions(partition) for partition in partitions}
    whole = {partition["name"]: resolve(partition["nodes"]) for partition in partitions}
    members = {partition: [name for name in of_it if name in gpus] for partition, of_it in whole.items()}
    jobs = [_node_job(partition, node, gpus[node]) for partition, of_it in members.items() for node in of_it]
    memory_ends = _limits_memory(slurm_conf, cgroup_conf)
    special: list[dict[str, Any]] = [
        {"name": "array", "array": "0-1", "command": "true"},
        {"name": "cancelled", "command": "sleep 300", "cancel_when": "running", "expect": "CANCELLED"},
        *([{"name": "out-of-memory", "command": TOO_MUCH_MEMORY, "expect": "OUT_OF_MEMORY"}] if memory_ends else []),
        {
            "name": "refused",
            "command": "true",
            "nodes": str(TOO_MANY_NODES),
            "expect": "REFUSED",
            "expect_reason": TOO_MANY_REFUSED,
        },
    ]
    first = next((name for name, of_it in members.items() if of_it), None)
    pair = next((name for name, of_it in members.items() if len(of_it) > 1), None)
    mpi = {"name": "mpi", "nodes": "2", "ntasks": 4, "memory": str(MPI_MEMORY), "script": mpi_script}

    def placed(job: dict[str, Any], partition: str, number: int) -> dict[str, Any]:
        """A job in a partition. Where Slurm would start a machine for it, it names nodes that are there."""
        names = members[partition][:number]
        starts = number and set(whole[partition]) - set(members[partition])
        return {"partition": partition, **({"nodelist": fold(names)} if starts else {}), **job}

    every = [
        *jobs,
        *(placed(job, first, 0 if "expect_reason" in job else 1) for job in special if first),
        *([placed(mpi, pair, 2)] if mpi_script and pair else []),
    ]
    return [{"memory": str(JOB_MEMORY), **restrictions.get(job["partition"], {}), **job} for job in every]


def _why_waiting(job: Mapping[str, Any]) -> str:
    """Why a job has not started: its nodes are `unavailable` (drained, down) or `busy`, or it has an `other` reason."""
    if not all(WORKING.fullmatch(state) for state in job["node_states"].values()):
        return "unavailable"
    return "busy" if job["reason"].startswith(BUSY) else "other"


def validation_summary(jobs: Iterable[Mapping[str, Any]], may_wait: Iterable[str]) -> dict[str, Any]:
    """The evaluation of the results of `slurm_job`: `ok`, the number of jobs of each status, and the `jobs`.

    A job is `ok` if it passed, or if it waits for one of the causes in `may_wait` (`busy`, `unavailable`).
    """
    accepted = set(may_wait)
    checked = [
        {**job, "ok": job["status"] == "passed" or (job["status"] == "waiting" and _why_waiting(job) in accepted)}
        for job in jobs
    ]
    counts = {status: sum(job["status"] == status for job in checked) for status in STATUSES}
    return {"ok": all(job["ok"] for job in checked), **counts, "jobs": checked, "remedies": remedies(checked)}


OUT = re.compile(r"(?:drain|down)\S* by (.+?) \((.*)\)", re.DOTALL)
"""The state of a node that somebody has taken out of service (`parse_sinfo` in batch.py)."""


def remedies(jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The known causes, with their remedies: nodes for which jobs have waited in vain, in doctor's words, and MPI.

    Equal nodes are folded.
    """
    jobs = [*jobs]
    nodes: dict[str, dict[str, None]] = {}
    for job in jobs:
        for name, state in job["node_states"].items() if not job["ok"] else ():
            if found := OUT.fullmatch(state):
                cause = by_reason(found[2], found[1])
                nodes.setdefault(f"{cause.means} {cause.remedy}", {})[name] = None
    mpi = [job["exit_code"] for job in jobs if job["name"] == "mpi" and not job["ok"]]
    return [
        *(f"{fold([*names])}: {words}" for words, names in nodes.items()),
        *(f"mpi: {MPI_FAILURES[code]}" for code in mpi if code in MPI_FAILURES),
    ]


def validation_table(jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The results of `slurm_job` as the lines of a table. A job without a message shows Slurm's reason."""
    rows = [list(COLUMNS)]
    for job in jobs:
        shown = {**job, "message": job["message"] or job["reason"]}
        rows.append([str(shown[key]) or "-" for key in COLUMNS.values()])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows]
