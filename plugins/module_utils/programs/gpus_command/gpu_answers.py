# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm's commands say of GPUs and of the jobs that use them or wait for them."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from ...client import slurm_records, user_commands
from ...client.slurm_records import WAITING, GresCount
from ...client.user_commands import HiddenError, SlurmError, not_understood
from ...language import hostlist

# -- Slurm's commands ------------------------------------------------------------------------------------------------

JOB_FIELDS = {
    "JobID": 11,
    "JobArrayID": 80,
    "UserName": 33,
    "UserID": 11,
    "Account": 40,
    "Partition": 80,
    "QOS": 40,
    "State": 14,
    "NumNodes": 8,
    "NumTasks": 8,
    "SubmitTime": 11,
    "StartTime": 11,
    "TimeLeft": 14,
    "TimeLimit": 14,
    "NodeList": 100,
    "tres-alloc": 200,
    "tres-per-job": 80,
    "tres-per-node": 80,
    "tres-per-socket": 60,
    "tres-per-task": 80,
    "Reason": 100,
}
LISTS = {"NodeList", "tres-alloc", "tres-per-job", "tres-per-node", "tres-per-socket", "tres-per-task"}
"""Fields of squeue and their widths, where a longer value is cut; and those that are lists with commas.

None of them is a text that a user chose, such as a job's name: such texts can contain lines that look like other jobs.
"""
NODES = ["scontrol", "--details", "--oneliner", "show", "node"]
JOBS = ["squeue", "--noheader", "--Format=" + ",".join(f"{name}:{width}|" for name, width in JOB_FIELDS.items())]
DETAILS = ["scontrol", "--details", "--oneliner", "show", "job"]
"""The only command that has the indices of all jobs' GPUs."""
PARTITIONS = ["scontrol", "--oneliner", "show", "partition"]
RESERVATIONS = ["scontrol", "--oneliner", "show", "reservation"]
CHANGING = ("SQUEUE_", "SCONTROL_", "SLURM_BITSTR_LEN")
"""Variables of the user that would change an answer. Others choose the cluster, and stay."""
SECONDS = 15
"""How long the commands of Slurm may take. They try again for about 10 s by themselves."""
NOTHING = "No "
"""How scontrol begins where there is none, such as `No jobs in the system`."""


def run(command: list[str], seconds: float) -> str:
    """The output of one of Slurm's commands; empty if Slurm does not show it to the user. Raises SlurmError."""
    try:
        text = user_commands.ask(command, seconds, CHANGING)
    except HiddenError:
        return ""
    if not understood(command, text):
        raise not_understood(command, text or " ")
    return text


def understood(command: list[str], text: str) -> bool:
    """Whether an answer is one of the command, as far as that can be seen."""
    if command == JOBS:
        fields = [line.split("|") for line in text.split("\n")]
        return not text.strip() or any(len(each) > len(JOB_FIELDS) and each[0].strip().isdigit() for each in fields)
    first = {tuple(NODES): "NodeName=", tuple(DETAILS): "JobId=", tuple(PARTITIONS): "PartitionName="}
    first[tuple(RESERVATIONS)] = "ReservationName="
    return text.startswith((first.get(tuple(command), ""), NOTHING))


def ask(*questions: tuple[list[str], Callable[[str], Any]], seconds: float = SECONDS) -> list[Any]:
    """What functions read from the outputs of Slurm's commands. Raises SlurmError.

    The commands run at the same time, and each output is read while the others are waited for.
    """
    answers: list[Any] = [None] * len(questions)

    def answer(number: int, command: list[str], read: Callable[[str], Any]) -> None:
        try:
            answers[number] = read(run(command, seconds))
        except SlurmError as error:
            answers[number] = error
        except ValueError:  # a number that is none, or too many hosts
            answers[number] = not_understood(command)

    threads = [
        threading.Thread(target=answer, args=(number, *question), daemon=True)
        for number, question in enumerate(questions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found in answers:
        if isinstance(found, SlurmError):
            raise found
    return answers


# -- Reading what they print -----------------------------------------------------------------------------------------


class NodeGpus(NamedTuple):
    """A node with GPUs. used: GPUs, and shares, that jobs have. shared: by type, GPUs of which jobs have shares.

    left: shares that no job has, of GPUs that no job has as a whole; without those of which Slurm does not say this.
    """

    name: str
    partitions: tuple[str, ...]
    available: bool
    total: Counter[tuple[str, str]]
    used: Counter[tuple[str, str]]
    shared: Counter[str]
    left: dict[tuple[str, str], int]


class ShownJob(NamedTuple):
    """A job as squeue shows it. Times are seconds, None if there is none."""

    id: str
    name: str
    user: str
    uid: str
    account: str
    partition: str
    qos: str
    state: str
    nodes: int
    tasks: int
    submitted: int | None
    start: int | None
    left: int | None
    limit: int | None
    hosts: str
    tres: str
    per_job: str
    per_node: str
    per_socket: str
    per_task: str
    reason: str


class JobUse(NamedTuple):
    """What a job has on some nodes: the number is that of all of them, the indices are the same on each."""

    hosts: str
    gres: GresCount


class GpuCluster(NamedTuple):
    """What Slurm shows to the user at a time. uses: by the ids of jobs."""

    now: int
    nodes: list[NodeGpus]
    jobs: list[ShownJob]
    uses: dict[str, list[JobUse]]


UNAVAILABLE = {
    *("DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "INVALID_REG", "MAINT"),
    *("MAINTENANCE", "NOT_RESPONDING", "POWERING_DOWN", "POWER_DOWN", "REBOOT_ISSUED", "RESERVED", "UNKNOWN"),
}
"""Parts of a node's state with which it takes no job of everybody."""
USE = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S+)")

expand = cache(hostlist.expand)
"""The hosts of a list; many jobs have the same ones."""


def read_left(detail: str) -> tuple[int, ...]:
    """The shares of each GPU that are left in `1/2,-/2`; `-` is a GPU that a job has as a whole."""
    shares = (share.partition("/") for share in detail.split(","))
    return tuple(int(total) - int(used) if used.isdigit() and total.isdigit() else 0 for used, _slash, total in shares)


def read_field(line: str, name: str) -> str:
    """The value of ` NAME=` in a line of scontrol, up to the next blank; empty without it."""
    _before, found, after = line.partition(f" {name}=")
    return after.partition(" ")[0] if found else ""


def read_node(line: str) -> NodeGpus | None:
    """A node of `scontrol show node`; None for one without GPUs."""
    total: Counter[tuple[str, str]] = Counter()
    for gres in slurm_records.gres(read_field(line, "Gres")):
        total[gres.kind, gres.type] += gres.number
    total = +total  # Slurm names types of GPUs without shares as well
    if not total:
        return None
    used: Counter[tuple[str, str]] = Counter()
    shares = {
        gres.kind: gres.number for gres in slurm_records.gres(read_field(line, "AllocTRES")) if gres.kind != "gpu"
    }
    for gres in slurm_records.gres(read_field(line, "GresUsed")):
        if gres.kind == "gpu":
            used[gres.kind, gres.type] += gres.number
        elif gres.number:
            # Slurm 22.05 counts here the GPUs, and not their shares.
            used[gres.kind, gres.type] += shares.get(gres.kind, gres.number)
    return NodeGpus(
        name=line[9:].partition(" ")[0],
        partitions=tuple(slurm_records.listed(read_field(line, "Partitions"))),
        available=UNAVAILABLE.isdisjoint(slurm_records.states(read_field(line, "State"))),
        total=total,
        used=used,
        shared=slurm_records.shared(read_field(line, "GresUsed")),
        left=count_left(read_field(line, "GresUsed")),
    )


def count_left(used: str) -> dict[tuple[str, str], int]:
    """The shares that no job has, of GPUs that no job has as a whole, by kind and type.

    Indices count the GPUs of all types; the list of a type has its own GPUs alone, and the lists have the same order.
    """
    entries = slurm_records.gres(used)
    whole = {index for gres in entries if gres.kind == "gpu" for index in gres.indices or ()}
    found: dict[tuple[str, str], int] = {}
    first: Counter[str] = Counter()
    for gres in entries:
        if gres.kind != "gpu" and "/" in gres.detail:
            left = read_left(gres.detail)
            numbers = (number for place, number in enumerate(left, first[gres.kind]) if place not in whole)
            found[gres.kind, gres.type] = sum(numbers)
            first[gres.kind] += len(left)
    return found


def read_nodes(text: str) -> list[NodeGpus]:
    """The nodes with GPUs of `scontrol show node`."""
    lines = (line for line in text.split("\n") if line.startswith("NodeName="))
    return [node for node in map(read_node, lines) if node]


def read_jobs(text: str, owner: str = "") -> list[ShownJob]:
    """The jobs of squeue. A list that was cut loses its last entry, which may be another one than it was.

    owner: of the jobs that wait, only those of this user; a cluster has thousands of others.
    """
    jobs = []
    user, state = (list(JOB_FIELDS).index(name) for name in ("UserName", "State"))
    for line in text.split("\n"):
        values = line.split("|")
        if len(values) < len(JOB_FIELDS):
            continue
        if owner and values[state].strip() in WAITING and values[user].strip() != owner:
            continue
        found = {}
        for (name, width), value in zip(JOB_FIELDS.items(), values):
            if name in LISTS and len(value.rstrip()) >= width:
                value = value.rpartition(",")[0]
                value += "]" * (value.count("[") - value.count("]"))
            found[name] = value.strip().replace("(null)", "")
        job = ShownJob(*found.values())  # type: ignore[arg-type]  # the numbers come next
        jobs.append(
            job._replace(
                nodes=read_count(found["NumNodes"]),
                tasks=read_count(found["NumTasks"]),
                submitted=slurm_records.seconds(found["SubmitTime"]),
                start=slurm_records.seconds(found["StartTime"]),
                left=slurm_records.seconds(found["TimeLeft"]),
                limit=slurm_records.seconds(found["TimeLimit"]),
            )
        )
    return jobs


def read_count(text: str) -> int:
    """The number of `2` or, at the least, of `2-4`; 1 without one."""
    number = text.partition("-")[0]
    return int(number) if number.isdigit() else 1


def read_uses(text: str) -> dict[str, list[JobUse]]:
    """What each job has, by the ids of jobs in `scontrol --details show job`.

    A user can give a job a name or a comment that looks like fields, or like the lines of another job. A job that is
    there twice, or has the first field twice, is left out, so no job gets what it does not have.
    """
    uses: dict[str, list[JobUse]] = {}
    seen: set[str] = set()
    for line in text.split("\n"):
        if not line.startswith("JobId="):
            continue
        job = line[6:].partition(" ")[0]
        if job in seen:
            uses.pop(job, None)
            continue
        seen.add(job)
        parts = line.split(" JOB_GRES=")
        if len(parts) == 2:
            found = USE.findall(parts[1].partition(" MinCPUsNode=")[0])
            with suppress(ValueError):  # a list of hosts that is none
                uses[job] = [use for hosts, gres in found for use in read_use(hosts, gres)]
    return uses


def read_use(hosts: str, text: str) -> Iterator[JobUse]:
    """What a job has on some nodes, from the GRES that it has on each of them."""
    for gres in slurm_records.gres(text):
        if gres.number:
            yield JobUse(hosts, gres._replace(number=gres.number * len(expand(hosts))))


def count_kinds(gres: Iterable[GresCount]) -> Counter[str]:
    """How many there are of each kind. Slurm's TRES have a total besides the number of each type."""
    totals: Counter[str] = Counter()
    typed: Counter[str] = Counter()
    for each in gres:
        (typed if each.type else totals)[each.kind] += each.number
    return totals | typed


def find_wanted(job: ShownJob) -> list[GresCount]:
    """What a job that waits wants on all of its nodes together."""
    wanted: Counter[tuple[str, str]] = Counter()
    for text, times in (
        (job.per_job, 1),
        (job.per_node, job.nodes),
        (job.per_socket, job.nodes),
        (job.per_task, job.tasks),
    ):
        for gres in slurm_records.gres(text):
            wanted[gres.kind, gres.type] += gres.number * times
    booked = slurm_records.gres(job.tres)
    for kind, number in count_kinds(booked).items():
        names = [key for key in wanted if key[0] == kind]
        if not names:
            wanted.update({(gres.kind, gres.type): gres.number for gres in booked if gres.kind == kind and gres.type})
            names = [key for key in wanted if key[0] == kind] or [(kind, "")]
        if len(names) == 1:
            wanted[names[0]] = number
    return [GresCount(kind, name, number) for (kind, name), number in sorted(wanted.items()) if number]


def know_types(uses: list[JobUse], types: dict[str, set[tuple[str, str]]]) -> Iterator[JobUse]:
    """What a job has, with the type where the nodes have a single one and Slurm does not say it."""
    for use in uses:
        if not use.gres.type:
            first = expand(use.hosts)[0]
            names = {name for kind, name in types.get(first, ()) if kind == use.gres.kind}
            if len(names) == 1:
                use = use._replace(gres=use.gres._replace(type=names.pop()))
        yield use


def choose_uses(job: ShownJob, known: list[JobUse]) -> list[JobUse]:
    """What a job has: by scontrol, which has indices, unless squeue says otherwise, which no user can deceive."""
    has = count_kinds(use.gres for use in known)
    if known and all(has[kind] == number for kind, number in count_kinds(slurm_records.gres(job.tres)).items()):
        return known
    return [JobUse(job.hosts, gres) for gres in find_wanted(job)]


def join_cluster(nodes: list[NodeGpus], jobs: list[ShownJob], known: dict[str, list[JobUse]], now: int) -> GpuCluster:
    """The cluster from what read_nodes, read_jobs and read_uses have found."""
    types = {node.name: set(node.total) for node in nodes}
    uses = {}
    for job in jobs:
        if job.hosts and job.state not in WAITING:
            own = list(know_types(choose_uses(job, known.get(job.id, [])), types))
            if own:
                uses[job.id] = own
    return GpuCluster(now, nodes, jobs, uses)
