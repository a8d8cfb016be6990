# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validation of a cluster with jobs: the jobs to run, and the evaluation of their results."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..cluster.machine_types import gres_count, is_there
from ..cluster.partitions import resolver
from ..configuration.meaning import is_yes
from ..doctor.causes import by_reason
from ..doctor.server_causes import MESSAGES_WAITING
from ..gpu.devices import environment_of
from ..language.formatting import align_columns
from ..language.hostlist import expand, fold
from .batch import NOT_BOOKED, Job, are_left_out, why_waiting

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
"""Slurm's messages for it (`src/common/slurm_errno.c`); which it shows depends on the size of the partition."""

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


@dataclass(frozen=True)
class _Machine:
    """What the jobs of a node depend on."""

    kind: str
    """Its machine type."""
    gpus: int
    visible: str
    """The variable by which a job knows its GPUs."""


def _describe_machines(
    nodes: Iterable[Mapping[str, Any]], hardware: Mapping[str, Mapping[str, Any]]
) -> dict[str, _Machine]:
    """The machine of each node."""
    machines: dict[str, _Machine] = {}
    for node in nodes:
        kind = node.get("hardware", "")
        gres = hardware.get(kind, {}).get("gres", [])
        gpus = sum(gres_count(entry) for entry in gres if entry["name"] == "gpu")
        machines.update(dict.fromkeys(expand(node["hosts"]), _Machine(kind, gpus, environment_of(gres))))
    return machines


def _sort_default_first(partitions: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The partitions in their order, the default one first."""
    return sorted(partitions, key=lambda partition: not partition.get("default"))


def _node_job(partition: str, node: str, machine: _Machine) -> Job:
    """The job that checks one node in one partition: it runs there, with all GPUs visible if there are any."""
    job = {
        "name": f"{partition}/{node}",
        "partition": partition,
        "nodelist": node,
        "command": f'test "$SLURMD_NODENAME" = {node}',
    }
    if machine.gpus:
        visible = f'IFS=,; set -- ${machine.visible}; test "$#" -eq {machine.gpus}'
        job |= {"gres": f"gpu:{machine.gpus}", "command": f"{job['command']} || exit 1; {visible}"}
    return job


def find_restrictions(partition: Mapping[str, Any]) -> dict[str, str]:
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
) -> list[Job]:
    """The jobs that check containers on these hosts, for the module `slurm_job`: one for each machine type.

    Each runs on any of the hosts that have its machine type, with a GPU if they have some, because enroot's hooks
    differ there. It is in the default partition, if that has such nodes, or else in the first partition that has. A
    host in no partition has no job.
    """
    nodes, reached = [*nodes], {*hosts}
    machines = _describe_machines(nodes, hardware)
    resolve = resolver(nodes, hardware, slurm_conf)
    jobs: dict[str, Job] = {}
    for partition in _sort_default_first(partitions):
        inside = [name for name in resolve(partition["nodes"]) if name in machines]
        from_the_end = dict.fromkeys(machines[name] for name in reversed(inside) if name in reached)
        for machine in reversed(from_the_end):  # by the last host of each
            if machine.kind not in jobs:
                others = [name for name in inside if machines[name] != machine or name not in reached]
                jobs[machine.kind] = _make_container_job(partition, machine, others)
    return [*jobs.values()]


def _make_container_job(partition: Mapping[str, Any], machine: _Machine, others: list[str]) -> Job:
    """The job that checks containers on a machine type, on none of the other nodes of the partition."""
    return {
        "name": f"pyxis/{machine.kind}",
        "partition": partition["name"],
        **find_restrictions(partition),
        **({"gres": "gpu:1"} if machine.gpus else {}),
        **({"options": {"exclude": fold(others)}} if others else {}),
    }


def warm_up_jobs(
    partitions: Iterable[Mapping[str, Any]],
    nodes: Iterable[Mapping[str, Any]],
    hardware: Mapping[str, Mapping[str, Any]],
    slurm_conf: Mapping[str, Any],
    prologs: Iterable[Mapping[str, Any]],
) -> list[Job]:
    """The jobs that run each prolog once on each node that it concerns, for the module `slurm_job`.

    A job has as many nodes of one machine type as the prologs there want, so that a busy node delays few others. Where
    their number is no multiple of that, some nodes are in two jobs. Nodes of which a partition has too few have no job.
    """
    nodes, partitions = [*nodes], _sort_default_first(partitions)
    machines = _describe_machines(nodes, hardware)
    resolve = resolver(nodes, hardware, slurm_conf)
    jobs: dict[tuple[str, str], Job] = {}
    largest: dict[tuple[str, str], int] = {}  # by partition and node: how many nodes its largest job has
    for prolog in sorted(prologs, key=lambda prolog: -int(prolog.get("min_nodes", 1))):
        size, done = int(prolog.get("min_nodes", 1)), set[str]()
        for partition in partitions:
            name = partition["name"]
            if not _concerns(prolog, "partitions", name):
                continue
            inside = [host for host in resolve(partition["nodes"]) if host in machines]
            for kind, hosts in _group_by_kind(inside, machines).items():
                if not _concerns(prolog, "hardware", kind):
                    continue
                done |= {host for host in hosts if largest.get((name, host), 0) >= size}
                for group in _divide_into_groups(size, hosts, done):
                    with_gpu = machines[group[0]].gpus and prolog.get("gpus", True)
                    jobs[name, fold(group)] = _make_warm_up_job(partition, group, {"gres": "gpu:1"} if with_gpu else {})
                    done |= {*group}
                    largest |= dict.fromkeys(((name, host) for host in group), size)
    return [*jobs.values()]


def _concerns(prolog: Mapping[str, Any], key: str, name: str) -> bool:
    """Whether a prolog concerns a partition or a machine type: without the key it concerns all of them."""
    return key not in prolog or name in prolog[key]


def _group_by_kind(hosts: Iterable[str], machines: Mapping[str, _Machine]) -> dict[str, list[str]]:
    """The hosts of each machine type."""
    kinds: dict[str, list[str]] = {}
    for host in hosts:
        kinds.setdefault(machines[host].kind, []).append(host)
    return kinds


def _divide_into_groups(size: int, hosts: Sequence[str], done: Collection[str]) -> list[list[str]]:
    """The hosts that are not done in groups of a size, the last one filled up with others; none if there are too few.

    The other hosts of the last group may be done.
    """
    if len(hosts) < size:
        return []
    left = [host for host in hosts if host not in done]
    groups = [left[start : start + size] for start in range(0, len(left), size)]
    return [[*group, *[host for host in hosts if host not in group][: size - len(group)]] for group in groups]


def _make_warm_up_job(partition: Mapping[str, Any], hosts: list[str], gres: Mapping[str, str]) -> Job:
    """The job that runs the prologs of a partition on these hosts."""
    return {
        "name": f"warm-up/{fold(hosts)}",
        "partition": partition["name"],
        "nodelist": fold(hosts),
        "nodes": str(len(hosts)),
        "memory": str(JOB_MEMORY),
        "command": "true",
        **gres,
        **find_restrictions(partition),
    }


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
) -> list[Job]:
    """The jobs that validate a cluster, for the module `slurm_job`.

    One runs on every node of every partition that is there, and not on nodes that Slurm starts when it needs them. In
    the first partition that has nodes, one is an array, one is cancelled, one is killed for the memory that it takes,
    if the configuration limits memory, and one asks for more nodes than there are and is refused. Where a partition
    allows some accounts or QOS only, its jobs have the first of them. With a script, the job `mpi` runs it in the first
    partition that has two nodes.
    """
    nodes, partitions = [*nodes], [*partitions]
    machines = _describe_machines(filter(is_there, nodes), hardware)
    resolve = resolver(nodes, hardware, slurm_conf)
    restrictions = {partition["name"]: find_restrictions(partition) for partition in partitions}
    places = [_Place.of(partition["name"], resolve(partition["nodes"]), machines) for partition in partitions]
    jobs = [_node_job(place.partition, node, machines[node]) for place in places for node in place.nodes]
    first = next((place for place in places if place.nodes), None)
    if first:
        jobs += [first.with_job(job) for job in _make_special_jobs(_limits_memory(slurm_conf, cgroup_conf))]
    pair = next((place for place in places if len(place.nodes) > 1), None)
    if mpi_script and pair:
        mpi = {"name": "mpi", "nodes": "2", "ntasks": 4, "memory": str(MPI_MEMORY), "script": mpi_script}
        jobs.append(pair.with_job(mpi, 2))
    return [{"memory": str(JOB_MEMORY), **restrictions[job["partition"]], **job} for job in jobs]


@dataclass(frozen=True)
class _Place:
    """A partition in which jobs can run."""

    partition: str
    nodes: list[str]
    """Those of its nodes that are there."""
    complete: bool
    """Whether there are no others, which Slurm would start."""

    @classmethod
    def of(cls, partition: str, nodes: Collection[str], there: Collection[str]) -> _Place:
        """The partition with these nodes."""
        return cls(partition, [node for node in nodes if node in there], all(node in there for node in nodes))

    def with_job(self, job: Mapping[str, Any], number: int = 1) -> Job:
        """A job of so many nodes. Where Slurm would start a machine for it, it names nodes that are there.

        A job that Slurm refuses needs none.
        """
        starts = not self.complete and "expect_reason" not in job
        return {"partition": self.partition, **({"nodelist": fold(self.nodes[:number])} if starts else {}), **job}


def _make_special_jobs(memory_ends: bool) -> list[Job]:
    """The jobs that do not end as others do; memory_ends: whether a job ends that takes too much memory."""
    out_of_memory = {"name": "out-of-memory", "command": TOO_MUCH_MEMORY, "expect": "OUT_OF_MEMORY"}
    return [
        {"name": "array", "array": "0-1", "command": "true"},
        {"name": "cancelled", "command": "sleep 300", "cancel_when": "running", "expect": "CANCELLED"},
        *([out_of_memory] if memory_ends else []),
        {
            "name": "refused",
            "command": "true",
            "nodes": str(TOO_MANY_NODES),
            "expect": "REFUSED",
            "expect_reason": TOO_MANY_REFUSED,
        },
    ]


def _why(job: Mapping[str, Any]) -> str:
    return why_waiting(job["reason"], job["node_states"])


def _causes(job: Mapping[str, Any]) -> set[str]:
    return {_why(job), *(["drained"] if are_left_out(job["node_states"]) else [])}


def validation_summary(jobs: Iterable[Mapping[str, Any]], may_wait: Iterable[str]) -> dict[str, Any]:
    """The evaluation of the results of `slurm_job`: `ok`, the number of jobs of each status, and the `jobs`.

    A job is `ok` if it passed, or if it waits for one of the causes in `may_wait` (`busy`, `unavailable`, or `drained`,
    which is a node that a person has drained).
    """
    accepted = set(may_wait)
    checked = [
        {**job, "ok": job["status"] == "passed" or (job["status"] == "waiting" and bool(_causes(job) & accepted))}
        for job in jobs
    ]
    counts = {status: sum(job["status"] == status for job in checked) for status in STATUSES}
    return {"ok": all(job["ok"] for job in checked), **counts, "jobs": checked, "remedies": remedies(checked)}


OUT = re.compile(r"(?:drain|down)\S* by (.+?) \((.*)\)", re.DOTALL)
"""The state of a node that somebody has taken out of service (`parse_sinfo` in batch.py)."""


def remedies(jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The known causes, with their remedies: nodes for which jobs have waited in vain, MPI, and a missing database.

    The texts are doctor's. Equal nodes are folded.
    """
    jobs = [*jobs]
    nodes: dict[str, dict[str, None]] = {}
    for job in jobs:
        for name, state in job["node_states"].items() if not job["ok"] else ():
            if found := OUT.fullmatch(state):
                cause = by_reason(found[2], found[1])
                nodes.setdefault(f"{cause.means} {cause.remedy}", {})[name] = None
    mpi = [job["exit_code"] for job in jobs if job["name"] == "mpi" and not job["ok"]]
    booked = not any(NOT_BOOKED in job.get("message", "") for job in jobs)
    unsent = [] if booked else [f"{MESSAGES_WAITING.means} {MESSAGES_WAITING.remedy}"]
    return [
        *(f"{fold([*names])}: {text}" for text, names in nodes.items()),
        *(f"mpi: {MPI_FAILURES[code]}" for code in mpi if code in MPI_FAILURES),
        *unsent,
    ]


def validation_table(jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The results of `slurm_job` as the lines of a table.

    A job without a message shows Slurm's reason, and one that waits whether its nodes are busy or unavailable.
    """
    rows = [list(COLUMNS)]
    for job in jobs:
        why = _why(job) if job["status"] == "waiting" else "other"
        shown = {**job, "message": job["message"] or job["reason"], "status": job["status"] if why == "other" else why}
        rows.append([str(shown[key]) or "-" for key in COLUMNS.values()])
    return align_columns(rows)
