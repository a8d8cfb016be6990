# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the answers of Slurm mean: which GPUs are free, who has the others, and what may start sooner."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from ...client import slurm_records
from ...client.slurm_records import WAITING, GresCount
from ...language.job_reasons import NOT_PLANNED, explain
from .gpu_answers import GpuCluster, JobUse, NodeGpus, ShownJob, expand, find_wanted, read_field
from .gpu_tables import Report, name_type
from .job_limits import JobLimit

FOR_RESOURCES = {"None", "Priority", "Resources", "ReqNodeNotAvail", "Nodes"}
"""First words of the reasons of a job that waits for nodes."""


def measure_node(node: NodeGpus) -> Iterator[tuple[tuple[str, str], tuple[int, int, int, int]]]:
    """For each kind and type: how many there are, are used, are free, and are neither.

    A GPU is used if a job has a share of it. A share is neither if a job has all of its GPU.
    """
    gpus = {name: number for (kind, name), number in node.total.items() if kind == "gpu"}
    for (kind, name), total in node.total.items():
        used = node.used[kind, name]
        rest = total - used
        if kind == "gpu":
            shared = node.shared[name] + (node.shared[""] if name and len(gpus) == 1 else 0)
            used, rest = used + shared, rest - shared
            free = rest
        elif (kind, name) in node.left:
            free = node.left[kind, name]
        else:
            whole = [other for other in gpus if name in {other, ""}]
            of_these = sum(gpus[other] for other in whole)
            taken = sum(node.used["gpu", other] for other in whole)
            free = rest - (total * taken // of_these if of_these else 0)
        free = max(free, 0) if node.available else 0
        yield (kind, name), (total, used, free, max(rest - free, 0))


def name_counts(counts: Sequence[int]) -> dict[str, int]:
    """Counts of measure_node for JSON."""
    return dict(zip(("total", "used", "free", "unavailable"), counts))


def report_types(nodes: list[NodeGpus]) -> list[Report]:
    """GPUs by type and partition."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 4)
    parts: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0] * 4))
    for node in nodes:
        for key, counts in measure_node(node):
            for target in [sums[key], *(parts[key][name] for name in node.partitions)]:
                for place, number in enumerate(counts):
                    target[place] += number
    return [
        {"kind": kind, "type": name}
        | name_counts(sums[kind, name])
        | {"partitions": [{"name": part} | name_counts(parts[kind, name][part]) for part in sorted(parts[kind, name])]}
        for kind, name in sorted(sums)
    ]


def report_gres(gres: GresCount) -> Report:
    """Kind, type and count for JSON."""
    return {"kind": gres.kind, "type": gres.type, "count": gres.number}


def report_job(job: ShownJob, uses: list[JobUse]) -> Report:
    """A job that has GPUs."""
    gpus = [
        report_gres(use.gres)
        | {"nodes": list(expand(use.hosts)), "indices": None if use.gres.indices is None else list(use.gres.indices)}
        for use in uses
    ]
    fields = ("user", "account", "partition", "state")
    return (
        {"id": int(job.id), "job": job.name}
        | {field: getattr(job, field) for field in fields}
        | {"since": job.start, "left": job.left, "gpus": gpus}
    )


def report_others(cluster: GpuCluster) -> list[Report]:
    """GPUs that no job has which Slurm shows."""
    others: Counter[tuple[str, str]] = Counter()
    for node in cluster.nodes:
        others.update(node.used)
    for uses in cluster.uses.values():
        for use in uses:
            others[use.gres.kind, use.gres.type] -= use.gres.number
    # Slurm has not said the type of some: of which it is the first that is left.
    for kind in {kind for kind, _name in others}:
        missing = -min(others[kind, ""], 0)
        for key in [key for key in others if key[0] == kind and others[key] > 0]:
            taken = min(missing, others[key])
            others[key] -= taken
            missing -= taken
    return [report_gres(GresCount(kind, name, number)) for (kind, name), number in sorted(others.items()) if number > 0]


def report_waiting(job: ShownJob, now: int) -> Report:
    """A job that waits."""
    planned = not job.start or job.start < now + NOT_PLANNED or job.reason == "BeginTime"
    return (
        {"id": int(job.id), "job": job.name}
        | {field: getattr(job, field) for field in ("user", "account", "partition", "qos", "state", "nodes")}
        | {"time_limit": job.limit, "submitted": job.submitted, "start": job.start if planned else None}
        | {"reason": job.reason, "explanation": explain(job.reason)}
        | {"gpus": [report_gres(gres) for gres in find_wanted(job)]}
    )


def report_overview(cluster: GpuCluster, user: str, alone: bool) -> Report:
    """What there is, who uses it, and the waiting jobs of a user; `alone` shows no jobs of others."""
    running = [job for job in cluster.jobs if job.id in cluster.uses and (not alone or job.user == user)]
    waiting = [job for job in cluster.jobs if job.state in WAITING and job.user == user and find_wanted(job)]
    return {
        "time": cluster.now,
        "types": report_types(cluster.nodes),
        "jobs": [report_job(job, cluster.uses[job.id]) for job in running],
        "others": [] if alone else report_others(cluster),
        "waiting": [report_waiting(job, cluster.now) for job in waiting],
    }


def report_free(cluster: GpuCluster, wanted: str) -> Report:
    """GPUs that are free, by node, of the types whose name contains a text."""
    nodes = []
    for node in cluster.nodes:
        for (kind, name), counts in measure_node(node):
            if wanted.lower() in name_type(kind, name).lower() and counts[2]:
                row = {"kind": kind, "type": name, "free": counts[2], "total": counts[0]}
                nodes.append({"node": node.name, "partitions": list(node.partitions)} | row)
    return {"time": cluster.now, "nodes": nodes}


def find_jobs(jobs: list[ShownJob], wanted: str) -> list[ShownJob]:
    """The jobs of a number as users write it: also all of an array, or all components of a heterogeneous job."""
    array, _mark, task = wanted.partition("_")
    found = [job for job in jobs if wanted in {job.id, job.name} or job.name.startswith((f"{wanted}_", f"{wanted}+"))]
    if not found and task.isdigit():
        for job in jobs:
            tasks = re.fullmatch(rf"{re.escape(array)}_\[([\d,-]+).*\]", job.name)
            if tasks and int(task) in slurm_records.ranges(tasks[1]):
                found.append(job)
    return found


def find_free(cluster: GpuCluster, partition: str) -> dict[str, list[int]]:
    """The numbers of free GPUs on the nodes of a job's partitions, by type; the empty type has all of them."""
    free: dict[str, list[int]] = defaultdict(list)
    for node in cluster.nodes:
        if node.available and set(node.partitions) & set(partition.split(",")):
            of_node = [(name, counts[2]) for (kind, name), counts in measure_node(node) if kind == "gpu"]
            for name, number in of_node:
                if name:
                    free[name].append(number)
            free[""].append(sum(number for _name, number in of_node))
    return free


def find_most(free: list[int], job: ShownJob) -> int:
    """How many GPUs a job could have now, if it wanted fewer: as many on each node if it wants them by node."""
    if slurm_records.gres(job.per_node):
        most = sorted(free, reverse=True)[: job.nodes]
        return most[-1] * job.nodes if len(most) == job.nodes else 0
    return sum(free)


def waits_for_nodes(job: ShownJob) -> bool:
    """Whether a job waits for nodes, and not for something else."""
    return job.state in WAITING and re.split(r"[ ,]", job.reason, maxsplit=1)[0] in FOR_RESOURCES


def find_maintenance(reservations: str, hosts: set[str], job: ShownJob, now: int) -> list[Report]:
    """The maintenance that keeps a job from its nodes, by the output of RESERVATIONS, with the --time that ends before.

    hosts: those of its partitions. If Slurm does not say that it waits for this, all of them must be concerned.
    """
    found = []
    for line in reservations.split("\n"):
        start, end = (slurm_records.seconds(read_field(line, name)) or 0 for name in ("StartTime", "EndTime"))
        concerned = hosts.intersection(expand(read_field(line, "Nodes")))
        lasts = end > now and (job.limit is None or now + job.limit > start)
        if "MAINT" not in read_field(line, "Flags").split(",") or not lasts or not concerned:
            continue
        if concerned == hosts or job.reason.endswith("Reserved for maintenance"):
            minutes = (start - now) // 60 - 1  # it takes a moment until Slurm has the new value
            name = line[16:].partition(" ")[0]
            found.append(
                {"name": name, "start": start, "end": end, "time_limit": 60 * minutes if minutes > 0 else None}
            )
    return sorted(found, key=lambda each: each["start"])


def find_sooner(cluster: GpuCluster, job: ShownJob) -> list[Report]:
    """What may start sooner than a job that waits for GPUs of one type: other values of its options."""
    wanted = find_wanted(job)
    if not waits_for_nodes(job) or len(wanted) != 1 or wanted[0].kind != "gpu":
        return []
    gpus = wanted[0]
    free = find_free(cluster, job.partition)
    most = find_most(free[gpus.type], job)
    if most >= gpus.number:
        starts = [
            other.start
            for other in cluster.jobs
            if other.state in WAITING and other.start and other.start > cluster.now + 120 and other.id != job.id
            if set(other.partition.split(",")) & set(job.partition.split(","))
        ]
        minutes = (min(starts) - cluster.now) // 60 if starts else 0
        return [{"time_limit": minutes * 60}] if minutes and (job.limit is None or job.limit > minutes * 60) else []
    sooner: list[Report] = [{"type": gpus.type, "count": most}] if most else []
    sooner += [
        {"type": name, "count": gpus.number}
        for name in sorted(free)
        if name and gpus.type and name != gpus.type and find_most(free[name], job) >= gpus.number
    ]
    return sooner


def report_why(
    cluster: GpuCluster,
    jobs: list[ShownJob],
    limits: dict[str, list[JobLimit]],
    maintenance: dict[str, list[Report]] | None = None,
) -> Report:
    """Why jobs wait. limits, maintenance: by the ids of jobs."""
    reports = []
    for job in jobs:
        if job.state in WAITING:
            more = {
                "limits": [limit._asdict() for limit in limits.get(job.id, [])],
                "maintenance": (maintenance or {}).get(job.id, []),
                "sooner": find_sooner(cluster, job),
            }
            reports.append(report_waiting(job, cluster.now) | more)
        else:
            reports.append(report_job(job, cluster.uses.get(job.id, [])))
    return {"time": cluster.now, "jobs": reports}
