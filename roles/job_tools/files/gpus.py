# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show GPUs: how many are free, who uses the others, and why a job waits.

usage: gpus                GPUs by type and partition, the jobs that use them, and your waiting jobs
       gpus --user [NAME]  the same with the jobs of one user alone; without a name, yours
       gpus --free [TYPE]  GPUs that are free now, by node; of types whose name contains TYPE
       gpus --why JOB      why a job waits, when it is expected to start, and what may start sooner

With --json, each of them prints JSON for programs (README.md of role job_tools has its structure).

UNAVAIL are GPUs that no job uses, on nodes that are down, drained, in maintenance or reserved. "others" are jobs that
Slurm does not show to you.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

SECONDS = 15
"""How long the commands of Slurm may take. They try again for about 10 s by themselves."""

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
NOTHING = "No "
"""How scontrol begins where there is none, such as `No jobs in the system`."""
MOST = 10**6
"""More than any list of hosts or GPUs has."""
HIDDEN = "Access/permission denied"
"""Where Slurm shows nothing to the user: PrivateData has `nodes`, say."""


class SlurmError(Exception):
    """Slurm does not answer. The text says why."""


def run(command: list[str], seconds: float) -> str:
    """The output of one of Slurm's commands; empty if Slurm does not show it to the user. Raises SlurmError."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(CHANGING)}
    environment["SLURM_TIME_FORMAT"] = "%s"
    try:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise SlurmError(f"Slurm has not answered within {seconds:g} s ({command[0]})") from None
    except OSError as error:
        raise SlurmError(f"{command[0]}: {error.strerror}") from None
    message = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    if done.returncode and not message.endswith(HIDDEN):
        own = f" (SLURM_CONF={os.environ['SLURM_CONF']})" if "SLURM_CONF" in os.environ else ""
        raise SlurmError(f"{message or f'{command[0]} ended with {done.returncode}'}{own}")
    text = done.stdout.decode(errors="replace")
    if not done.returncode and not understood(command, text):
        raise SlurmError(f"{command[0]}: an answer that is not understood: {text.strip()[:60] or 'nothing'}")
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
            answers[number] = SlurmError(f"{command[0]}: an answer that is not understood")

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


class Gres(NamedTuple):
    """A number of GPUs, or of shares of GPUs.

    kind: gpu, shard or mps. type: empty if it has none, or Slurm does not say. indices: None if Slurm does not say.
    """

    kind: str
    type: str
    number: int
    indices: tuple[int, ...] | None = None


class Node(NamedTuple):
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


class Job(NamedTuple):
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


class Use(NamedTuple):
    """What a job has on some nodes: the number is that of all of them, the indices are the same on each."""

    hosts: str
    gres: Gres


class Cluster(NamedTuple):
    """What Slurm shows to the user at a time. uses: by the ids of jobs."""

    now: int
    nodes: list[Node]
    jobs: list[Job]
    uses: dict[str, list[Use]]


UNAVAILABLE = {
    *("DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "INVALID_REG", "MAINT"),
    *("MAINTENANCE", "NOT_RESPONDING", "POWERING_DOWN", "POWER_DOWN", "REBOOT_ISSUED", "RESERVED", "UNKNOWN"),
}
"""Parts of a node's state with which it takes no job of everybody."""
GRES = re.compile(
    r"(?:^|,)(?:gres[:/])?(gpu|shard|mps)(?::(?!\d+[KMG]?(?:[,=(]|$))(\(null\)|[^:=,()]+))?(?::no_consume)?"
    r"(?:[:=](\d+)([KMG]?)|\(CNT:(\d+))?(?:\)|\(([^)]*)\))?(?=,|$)"
)
FACTORS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
USE = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S+)")


@cache
def read_ranges(text: str) -> tuple[int, ...]:
    """The numbers of `0-1,3`."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _dash, last = part.partition("-")
        if first.isdigit():
            numbers.extend(count(first, last if last.isdigit() else first))
    return tuple(numbers)


def count(first: str, last: str) -> range:
    """The numbers from one to another. Raises ValueError if they are too many."""
    numbers = range(int(first), int(last) + 1)
    if len(numbers) > MOST:
        raise ValueError(f"{first}-{last}")
    return numbers


def read_indices(detail: str) -> tuple[int, ...] | None:
    """The GPUs that `IDX:0-1` names, or `0/2,1/2`, which is shares of each GPU that are used and exist."""
    if detail.startswith("IDX:"):
        return read_ranges(detail[4:])
    if "/" in detail:
        used = (share.partition("/")[0] for share in detail.split(","))
        return tuple(index for index, number in enumerate(used) if number not in {"0", "-"})
    return None


def read_left(detail: str) -> tuple[int, ...]:
    """The shares of each GPU that are left in `1/2,-/2`; `-` is a GPU that a job has as a whole."""
    shares = (share.partition("/") for share in detail.split(","))
    return tuple(int(total) - int(used) if used.isdigit() and total.isdigit() else 0 for used, _slash, total in shares)


@cache
def read_gres(text: str) -> tuple[Gres, ...]:
    """The GPUs in what Slurm writes for GRES or TRES, such as `gpu:a100:2(IDX:0-1)` or `cpu=1,gres/gpu:a100=2`."""
    found = []
    for kind, name, count, factor, other_count, detail in GRES.findall(text):
        number = int(count or other_count or 1) * FACTORS[factor]
        found.append(Gres(kind, "" if name == "(null)" else name, number, read_indices(detail)))
    return tuple(found)


@cache
def expand(hosts: str) -> tuple[str, ...]:
    """The hosts of `gpu[01-03,7],login`, also where the end of the text was cut."""
    names: list[str] = []
    for entry in re.findall(r"(?:[^,\[]|\[[^\]]*\]?)+", hosts):
        parts = []
        for text, ranges in re.findall(r"([^\[\]]+)|\[([^\]]*)\]?", entry):
            parts.append([text] if text else list(expand_ranges(ranges)))
        names.extend("".join(each) for each in product(*parts))
    return tuple(names)


def expand_ranges(ranges: str) -> Iterator[str]:
    """The numbers of `01-03,7`, with their leading zeros."""
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdigit() and last.isdigit():
            yield from (str(number).zfill(len(first)) for number in count(first, last))
        else:
            yield part


def read_field(line: str, name: str) -> str:
    """The value of ` NAME=` in a line of scontrol, up to the next blank; empty without it."""
    _before, found, after = line.partition(f" {name}=")
    return after.partition(" ")[0] if found else ""


def read_seconds(text: str) -> int | None:
    """Seconds of `1-02:03:04`, `02:03` or since the epoch; None for another text, such as UNLIMITED."""
    if text.isdigit():
        return int(text)
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def read_node(line: str) -> Node | None:
    """A node of `scontrol show node`; None for one without GPUs."""
    total: Counter[tuple[str, str]] = Counter()
    for gres in read_gres(read_field(line, "Gres")):
        total[gres.kind, gres.type] += gres.number
    total = +total  # Slurm names types of GPUs without shares as well
    if not total:
        return None
    used: Counter[tuple[str, str]] = Counter()
    shared: Counter[str] = Counter()
    shares = {gres.kind: gres.number for gres in read_gres(read_field(line, "AllocTRES")) if gres.kind != "gpu"}
    for gres in read_gres(read_field(line, "GresUsed")):
        if gres.kind == "gpu":
            used[gres.kind, gres.type] += gres.number
        elif gres.number:
            # Slurm 22.05 counts here the GPUs, and not their shares.
            used[gres.kind, gres.type] += shares.get(gres.kind, gres.number)
            shared[gres.type] += len(gres.indices or ())
    state = {part.rstrip("*$~#!%@^-") for part in read_field(line, "State").split("+")}
    partitions = tuple(name for name in read_field(line, "Partitions").split(",") if name)
    name = line[9:].partition(" ")[0]
    return Node(
        name, partitions, not state & UNAVAILABLE, total, used, shared, count_left(read_field(line, "GresUsed"))
    )


def count_left(used: str) -> dict[tuple[str, str], int]:
    """The shares that no job has, of GPUs that no job has as a whole, by kind and type.

    Indices count the GPUs of all types; the list of a type has its own GPUs alone, and the lists have the same order.
    """
    whole = {index for gres in read_gres(used) if gres.kind == "gpu" for index in gres.indices or ()}
    found: dict[tuple[str, str], int] = {}
    first: Counter[str] = Counter()
    for kind, name, *_counts, detail in GRES.findall(used):
        if "/" in detail:
            left = read_left(detail)
            found[kind, "" if name == "(null)" else name] = sum(
                number for place, number in enumerate(left, first[kind]) if place not in whole
            )
            first[kind] += len(left)
    return found


def read_nodes(text: str) -> list[Node]:
    """The nodes with GPUs of `scontrol show node`."""
    lines = (line for line in text.split("\n") if line.startswith("NodeName="))
    return [node for node in map(read_node, lines) if node]


def read_jobs(text: str, owner: str = "") -> list[Job]:
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
            found[name] = value.strip().replace("(null)", "")
        job = Job(*found.values())  # type: ignore[arg-type]  # the numbers come next
        jobs.append(
            job._replace(
                nodes=read_count(found["NumNodes"]),
                tasks=read_count(found["NumTasks"]),
                submitted=read_seconds(found["SubmitTime"]),
                start=read_seconds(found["StartTime"]),
                left=read_seconds(found["TimeLeft"]),
                limit=read_seconds(found["TimeLimit"]),
            )
        )
    return jobs


def read_count(text: str) -> int:
    """The number of `2` or, at the least, of `2-4`; 1 without one."""
    number = text.partition("-")[0]
    return int(number) if number.isdigit() else 1


def read_uses(text: str) -> dict[str, list[Use]]:
    """What each job has, by the ids of jobs in `scontrol --details show job`.

    A user can give a job a name or a comment that looks like fields, or like the lines of another job. A job that is
    there twice, or has the first field twice, is left out, so no job gets what it does not have.
    """
    uses: dict[str, list[Use]] = {}
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
            uses[job] = [use for hosts, gres in found for use in read_use(hosts, gres)]
    return uses


def read_use(hosts: str, text: str) -> Iterator[Use]:
    """What a job has on some nodes, from the GRES that it has on each of them."""
    for gres in read_gres(text):
        if gres.number:
            yield Use(hosts, gres._replace(number=gres.number * len(expand(hosts))))


def count_kinds(gres: Iterable[Gres]) -> Counter[str]:
    """How many there are of each kind. Slurm's TRES have a total besides the number of each type."""
    totals: Counter[str] = Counter()
    typed: Counter[str] = Counter()
    for each in gres:
        (typed if each.type else totals)[each.kind] += each.number
    return totals | typed


def know_types(uses: list[Use], types: dict[str, set[tuple[str, str]]]) -> Iterator[Use]:
    """What a job has, with the type where the nodes have a single one and Slurm does not say it."""
    for use in uses:
        if not use.gres.type:
            first = expand(use.hosts)[0]
            names = {name for kind, name in types.get(first, ()) if kind == use.gres.kind}
            if len(names) == 1:
                use = use._replace(gres=use.gres._replace(type=names.pop()))
        yield use


def choose_uses(job: Job, known: list[Use]) -> list[Use]:
    """What a job has: by scontrol, which has indices, unless squeue says otherwise, which no user can deceive."""
    has = count_kinds(use.gres for use in known)
    if known and all(has[kind] == number for kind, number in count_kinds(read_gres(job.tres)).items()):
        return known
    return [Use(job.hosts, gres) for gres in find_wanted(job)]


def join_cluster(nodes: list[Node], jobs: list[Job], known: dict[str, list[Use]], now: int) -> Cluster:
    """The cluster from what read_nodes, read_jobs and read_uses have found."""
    types = {node.name: set(node.total) for node in nodes}
    uses = {}
    for job in jobs:
        if job.hosts and job.state not in WAITING:
            own = list(know_types(choose_uses(job, known.get(job.id, [])), types))
            if own:
                uses[job.id] = own
    return Cluster(now, nodes, jobs, uses)


# -- What it means ---------------------------------------------------------------------------------------------------

WAITING = {"PENDING", "REQUEUE_HOLD", "REQUEUED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
NOT_PLANNED = 180 * 86400
"""Seconds after which a start is not expected: Slurm takes a job without a time limit to end in a year."""
FOR_RESOURCES = {"None", "Priority", "Resources", "ReqNodeNotAvail", "Nodes"}
"""First words of the reasons of a job that waits for nodes."""
REASONS = {
    "None": "Slurm has not tried to start it yet",
    "Priority": "jobs with a higher priority come first",
    "Resources": "it is next, and waits for free resources",
    "Nodes": "its nodes are down, drained or kept for a higher partition",
    "ReqNodeNotAvail": "nodes that it could use are down, drained or reserved",
    "Dependency": "it waits for another job",
    "DependencyNeverSatisfied": "it waits for a job that did not end as it demands: it never starts",
    "BeginTime": "its --begin has not come yet",
    "JobHeldUser": "its owner holds it: scontrol release JOB",
    "JobHeldAdmin": "an administrator holds it",
    "JobHoldMaxRequeue": "it was requeued too often, and is held",
    "JobArrayTaskLimit": "as many tasks of its array run as its % allows",
    "Licenses": "all licenses that it wants are in use",
    "BurstBufferOperation": "an operation of its burst buffer failed",
    "BurstBufferResources": "the burst buffer has no room for it",
    "BurstBufferStageIn": "its burst buffer is being filled",
    "Reservation": "its reservation has not begun, or is full",
    **dict.fromkeys(("ReservationDeleted", "ReservationInvalid"), "its reservation is gone"),
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition starts no jobs",
    "PartitionNodeLimit": "it wants more, or fewer, nodes than its partition allows",
    "PartitionTimeLimit": "its --time is longer than its partition allows",
    "PartitionConfig": "its partition does not allow what it wants",
    "BadConstraints": "no nodes are as it demands",
    "Constraints": "no nodes that are up are as it demands",
    "InvalidAccount": "its account does not exist",
    "InvalidQOS": "its QOS does not exist, or is not for its account",
    "AccountNotAllowed": "its partition does not take its account",
    "QOSNotAllowed": "its partition does not take its QOS",
    **dict.fromkeys(("AssociationJobLimit", "AssociationResourceLimit"), "a limit of its account is reached"),
    "AssociationTimeLimit": "a limit of its account for time is reached",
    **dict.fromkeys(("QOSJobLimit", "QOSResourceLimit"), "a limit of its QOS is reached"),
    "QOSTimeLimit": "a limit of its QOS for time is reached",
    "AccountingPolicy": "a limit of accounting is reached",
    "QOSUsageThreshold": "its account has used too much of its share",
    "MaxPoweredUpNodes": "as many nodes are powered up as may be",
    "JobLaunchFailure": "its start failed",
    "NodeDown": "a node that it needs is down",
    "Cleaning": "an earlier run of it is still being cleaned up",
    "Prolog": "the prolog runs on its nodes",
    "SchedDefer": "Slurm starts no job at once that needs so many nodes",
    "NvidiaImexChannels": "all IMEX channels are in use",
    "DeadLine": "it cannot end before its --deadline",
    "MaxMemPerLimit": "it wants more memory than allowed",
}
LIMIT = re.compile(
    r"(Assoc|QOS)?(Grp|Max|Min)(Cpu|CPU|Memory|Mem|Node|GRES|SubmitJobs?|Jobs?|WallDuration|Wall|Billing|License|Energy"
    r"|BB|Unknown)(RunMinutes|RunMins|Minutes)?(Per(?:Job|Node|User|Account))?(?:Limit|NotSatisfied)?"
)
RESOURCES = {
    **dict.fromkeys(("Cpu", "CPU"), ("CPUs", "cpu")),
    **dict.fromkeys(("Mem", "Memory"), ("memory", "mem")),
    **dict.fromkeys(("Job", "Jobs"), ("jobs that run", "Jobs")),
    **dict.fromkeys(("SubmitJob", "SubmitJobs"), ("jobs", "SubmitJobs")),
    **dict.fromkeys(("Wall", "WallDuration"), ("time", "Wall")),
    "Node": ("nodes", "node"),
    "GRES": ("GPUs and other GRES", "gres/"),
    "Billing": ("billing units", "billing"),
    "License": ("licenses", "license/"),
    "Energy": ("energy", "energy"),
    "BB": ("burst buffers", "bb/"),
    "Unknown": ("a resource", ""),
}
"""What a reason's name has for a resource, in words, and how the names of limits and TRES begin."""


def explain(reason: str) -> str:
    """The reason of a job that waits, in plain words; as Slurm says it where there are none."""
    if reason.endswith("May be reserved for other job"):
        return "its nodes are kept for a job with a higher priority"
    if reason.endswith("Reserved for maintenance"):
        return "its nodes are reserved for a maintenance"
    word = re.split(r"[ ,]", reason, maxsplit=1)[0]
    if word in REASONS:
        return REASONS[word]
    found = LIMIT.fullmatch(word)
    if not found:
        return reason
    where, kind, resource, minutes, each = found.groups()
    whose = "its account" if where == "Assoc" else "its QOS"
    what = ("minutes of " if minutes else "") + RESOURCES[resource][0]
    if kind == "Min":
        return f"it wants less than {whose} demands: {what}"
    scope = {"PerUser": " for each user", "PerAccount": " for each account", "PerNode": " on a node"}.get(
        each or "", ""
    )
    return f"a limit of {whose} is reached: {what}{scope}"


def measure_node(node: Node) -> Iterator[tuple[tuple[str, str], tuple[int, int, int, int]]]:
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


def report_types(nodes: list[Node]) -> list[dict[str, Any]]:
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


def report_gres(gres: Gres) -> dict[str, Any]:
    """Kind, type and count for JSON."""
    return {"kind": gres.kind, "type": gres.type, "count": gres.number}


def report_job(job: Job, uses: list[Use]) -> dict[str, Any]:
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


def report_others(cluster: Cluster) -> list[dict[str, Any]]:
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
    return [report_gres(Gres(kind, name, number)) for (kind, name), number in sorted(others.items()) if number > 0]


def find_wanted(job: Job) -> list[Gres]:
    """What a job that waits wants on all of its nodes together."""
    wanted: Counter[tuple[str, str]] = Counter()
    for text, times in (
        (job.per_job, 1),
        (job.per_node, job.nodes),
        (job.per_socket, job.nodes),
        (job.per_task, job.tasks),
    ):
        for gres in read_gres(text):
            wanted[gres.kind, gres.type] += gres.number * times
    booked = read_gres(job.tres)
    for kind, number in count_kinds(booked).items():
        names = [key for key in wanted if key[0] == kind]
        if not names:
            wanted.update({(gres.kind, gres.type): gres.number for gres in booked if gres.kind == kind and gres.type})
            names = [key for key in wanted if key[0] == kind] or [(kind, "")]
        if len(names) == 1:
            wanted[names[0]] = number
    return [Gres(kind, name, number) for (kind, name), number in sorted(wanted.items()) if number]


def report_waiting(job: Job, now: int) -> dict[str, Any]:
    """A job that waits."""
    planned = not job.start or job.start < now + NOT_PLANNED or job.reason == "BeginTime"
    return (
        {"id": int(job.id), "job": job.name}
        | {field: getattr(job, field) for field in ("user", "account", "partition", "qos", "state", "nodes")}
        | {"time_limit": job.limit, "submitted": job.submitted, "start": job.start if planned else None}
        | {"reason": job.reason, "explanation": explain(job.reason)}
        | {"gpus": [report_gres(gres) for gres in find_wanted(job)]}
    )


def report_overview(cluster: Cluster, user: str, alone: bool) -> dict[str, Any]:
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


def report_free(cluster: Cluster, wanted: str) -> dict[str, Any]:
    """GPUs that are free, by node, of the types whose name contains a text."""
    nodes = []
    for node in cluster.nodes:
        for (kind, name), counts in measure_node(node):
            if wanted.lower() in name_type(kind, name).lower() and counts[2]:
                row = {"kind": kind, "type": name, "free": counts[2], "total": counts[0]}
                nodes.append({"node": node.name, "partitions": list(node.partitions)} | row)
    return {"time": cluster.now, "nodes": nodes}


def find_jobs(jobs: list[Job], wanted: str) -> list[Job]:
    """The jobs of a number as users write it: also all of an array, or all components of a heterogeneous job."""
    array, _mark, task = wanted.partition("_")
    found = [job for job in jobs if wanted in {job.id, job.name} or job.name.startswith((f"{wanted}_", f"{wanted}+"))]
    if not found and task.isdigit():
        for job in jobs:
            tasks = re.fullmatch(rf"{re.escape(array)}_\[([\d,-]+).*\]", job.name)
            if tasks and int(task) in read_ranges(tasks[1]):
                found.append(job)
    return found


def find_free(cluster: Cluster, partition: str) -> dict[str, list[int]]:
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


def find_most(free: list[int], job: Job) -> int:
    """How many GPUs a job could have now, if it wanted fewer: as many on each node if it wants them by node."""
    if read_gres(job.per_node):
        most = sorted(free, reverse=True)[: job.nodes]
        return most[-1] * job.nodes if len(most) == job.nodes else 0
    return sum(free)


def waits_for_nodes(job: Job) -> bool:
    """Whether a job waits for nodes, and not for something else."""
    return job.state in WAITING and re.split(r"[ ,]", job.reason, maxsplit=1)[0] in FOR_RESOURCES


def find_maintenance(reservations: str, hosts: set[str], job: Job, now: int) -> list[dict[str, Any]]:
    """The maintenance that keeps a job from its nodes, by the output of RESERVATIONS, with the --time that ends before.

    hosts: those of its partitions. If Slurm does not say that it waits for this, all of them must be concerned.
    """
    found = []
    for line in reservations.split("\n"):
        start, end = (read_seconds(read_field(line, name)) or 0 for name in ("StartTime", "EndTime"))
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


def find_sooner(cluster: Cluster, job: Job) -> list[dict[str, Any]]:
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
    sooner: list[dict[str, Any]] = [{"type": gpus.type, "count": most}] if most else []
    sooner += [
        {"type": name, "count": gpus.number}
        for name in sorted(free)
        if name and gpus.type and name != gpus.type and find_most(free[name], job) >= gpus.number
    ]
    return sooner


class Limit(NamedTuple):
    """A limit that a job may hit. used: None where Slurm does not say it."""

    of: str
    name: str
    value: str
    used: str | None


def find_partitions(text: str, job: Job) -> dict[str, str]:
    """The lines of `scontrol show partition` for a job's partitions, by their names."""
    lines = {line[14:].partition(" ")[0]: line for line in text.split("\n") if line.startswith("PartitionName=")}
    return {name: lines[name] for name in job.partition.split(",") if name in lines}


def limit_command(job: Job, partitions: str) -> list[str] | None:
    """The command that shows the limits of accounts or of QOS which a job's reason is about; None if it is not."""
    found = LIMIT.fullmatch(job.reason)
    if not found:
        return None
    show = ["scontrol", "--oneliner", "show", "assoc_mgr"]
    if found[1] == "Assoc":
        return [*show, f"users={job.user}", "flags=assoc"]
    # A partition can have a QOS of its own.
    names = {job.qos, *(read_field(line, "QoS") for line in find_partitions(partitions, job).values())}
    return [*show, f"qos={','.join(sorted(names - {'N/A', ''}))}", "flags=qos"]


def read_partition_limits(partitions: str, job: Job) -> list[Limit]:
    """The limits of partitions that a job's reason is about."""
    field = {"PartitionTimeLimit": "MaxTime", "PartitionNodeLimit": "MaxNodes"}.get(job.reason)
    if not field:
        return []
    lines = find_partitions(partitions, job).items()
    return [Limit(f"partition {name}", field, read_field(line, field), None) for name, line in lines]


def read_limits(text: str, job: Job) -> list[Limit]:
    """The limits that a job's reason is about, from the output of limit_command."""
    found = LIMIT.fullmatch(job.reason)
    if not found:
        return []
    _where, kind, resource, minutes, each = found.groups()
    begins = RESOURCES[resource][1]
    parents = find_parents(text, job.account)
    limits: list[Limit] = []
    for line in text.split("\n"):
        if line.startswith("QOS="):
            of = f"QOS {line[4:].partition('(')[0]}"
            line = choose_part(line, job, each or "")
        else:
            account, user = read_field(line, "Account"), read_field(line, "UserName").partition("(")[0]
            if account not in parents or user not in {"", job.user}:
                continue
            of = f"user {user} in account {account}" if user else f"account {account}"
        limits += find_limits(of, line, kind, begins, minutes or "")
    return limits


def choose_part(qos: str, job: Job, each: str) -> str:
    """The part of a QOS with the limits of each user, of each account, or the others."""
    part = r" (\w\S*?)(?:\(\d+\))?=\{([^}]*)\}"
    # Slurm 22.05 has the numbers of users here.
    wanted = {"PerUser": ({job.user, job.uid}, "PU="), "PerAccount": ({job.account}, "PA=")}
    if each not in wanted:
        return re.sub(part, "", qos)
    names, mark = wanted[each]
    return " ".join(f"{text} " for name, text in re.findall(part, qos) if name in names and mark in text)


def find_parents(text: str, account: str) -> set[str]:
    """An account and those above it."""
    parents = {}
    for line in text.split("\n"):
        if line.startswith("ClusterName=") and not read_field(line, "UserName"):
            parents[read_field(line, "Account")] = read_field(line, "ParentAccount").partition("(")[0]
    found = {account}
    while (account := parents.get(account, "")) and account not in found:
        found.add(account)
    return found


def find_limits(of: str, text: str, kind: str, begins: str, minutes: str) -> Iterator[Limit]:
    """The limits of a record of `scontrol show assoc_mgr` for a resource. N is none; in brackets is what is used."""
    wanted = {"": r"TRES(?:P[JNUA])?", "Min": r"TRESMins(?:PJ)?", "Run": r"TRESRunMins(?:P[UA])?"}[minutes[:3]]
    if begins[:1].isupper():
        for name, value, used in re.findall(rf"\b({kind}{begins}(?:P[JUA])?)=([\d:-]+)(?:\(([\d.]+)\))?(?=\s)", text):
            yield Limit(of, name, value, used or None)
        return
    for name, values in re.findall(rf"\b({kind}{wanted})=(\S+)", text):
        for tres, value, used in re.findall(r"(?:^|,)([^,=]+)=(\d+)(?:\((\d+)\))?", values):
            if tres.startswith(begins):
                yield Limit(of, f"{name} {tres}", value, used or None)


def report_why(
    cluster: Cluster,
    jobs: list[Job],
    limits: dict[str, list[Limit]],
    maintenance: dict[str, list[dict[str, Any]]] | None = None,
) -> dict[str, Any]:
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


# -- Text for people -------------------------------------------------------------------------------------------------


def visible(text: str) -> str:
    """A text without characters that control a terminal: they are written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut(text: str, width: int) -> str:
    """A text of at most so many characters: the middle is left out, since names differ at both ends."""
    if len(text) <= width:
        return text
    tail = (width - 2) // 2
    return text[: width - 2 - tail] + ".." + text[len(text) - tail :]


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, right: Sequence[str] = ()) -> list[str]:
    """Lines of a table that fits a width: the widest columns are cut. right: headers of columns with numbers."""
    cells = [list(header), *([visible(cell) for cell in row] for row in rows)]
    widths = [min(width, max(map(len, column))) for column in zip(*cells)]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > 4:
        widest = widths.index(max(widths))
        widths[widest] -= 1
    lines = []
    for row in cells:
        parts = [
            cut(cell, size).rjust(size) if name in right else cut(cell, size).ljust(size)
            for name, cell, size in zip(header, row, widths)
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def name_type(kind: str, name: str) -> str:
    """The name of a type of GPUs, or of shares of them."""
    return (name or "gpu") if kind == "gpu" else f"{name} {kind}".strip()


@cache
def name_clock(seconds: int | None, now: int) -> str:
    """The time of day, with the day if it is not today."""
    if seconds is None:
        return "unknown"
    there, here = time.localtime(seconds), time.localtime(now)
    return time.strftime("%H:%M" if there[:3] == here[:3] else "%-d %b %H:%M", there)


def name_duration(seconds: int | None) -> str:
    """A duration as Slurm's options take it: 2:00:00, 1-0:00:00."""
    if seconds is None:
        return "no limit"
    days, rest = divmod(seconds, 86400)
    return (f"{days}-" if days else "") + f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"


def name_wanted(gpus: Sequence[dict[str, Any]]) -> str:
    """The GPUs that a job wants."""
    return ", ".join(f"{gpu['count']} {name_type(gpu['kind'], gpu['type'])}" for gpu in gpus) or "no GPU"


def name_indices(gpu: dict[str, Any]) -> str:
    """Which GPUs a job has on each node."""
    indices = gpu["indices"]
    if indices is None:
        return "?"
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def show_types(types: list[dict[str, Any]], width: int) -> list[str]:
    """The table of types and partitions."""
    columns = ("total", "used", "free", "unavailable")
    rows = []
    for kind in types:
        name, parts = name_type(kind["kind"], kind["type"]), kind["partitions"]
        if [part["total"] for part in parts] != [kind["total"]]:
            rows.append([name, "*", *(str(kind[column]) for column in columns)])
        rows += [[name, part["name"], *(str(part[column]) for column in columns)] for part in parts]
    if not rows:
        return ["Slurm shows no nodes with GPUs."]
    header = ("TYPE", "PARTITION", "TOTAL", "USED", "FREE", "UNAVAIL")
    return table(header, rows, width, header[2:])


def show_jobs(report: dict[str, Any], width: int) -> list[str]:
    """The table of jobs that have GPUs."""
    now, rows = report["time"], []
    for job in report["jobs"]:
        for gpu in job["gpus"]:
            nodes = ",".join(gpu["nodes"][:3]) + (f",+{len(gpu['nodes']) - 3}" if len(gpu["nodes"]) > 3 else "")
            left = "-" if job["left"] is None else name_duration(job["left"])
            kind, number = name_type(gpu["kind"], gpu["type"]), str(gpu["count"])
            since = name_clock(job["since"], now)
            row = [job["user"], job["account"], job["job"], nodes, kind, number, name_indices(gpu), since, left]
            rows.append(row)
    rows += [
        ["others", "", "", "", name_type(gpu["kind"], gpu["type"]), str(gpu["count"]), "", "", ""]
        for gpu in report["others"]
    ]
    if not rows:
        return []
    header = ("USER", "ACCOUNT", "JOB", "NODES", "TYPE", "N", "GPU", "SINCE", "LEFT")
    return ["", *table(header, rows, width, ("N", "LEFT"))]


def show_waiting(report: dict[str, Any], width: int) -> list[str]:
    """The table of waiting jobs, with the reason below each."""
    rows = []
    for job in report["waiting"]:
        limit, start = name_duration(job["time_limit"]), name_clock(job["start"], report["time"])
        rows.append([job["job"], name_wanted(job["gpus"]), job["partition"], limit, start])
    if not rows:
        return []
    header, *lines = table(("WAITING", "WANTS", "PARTITION", "TIME", "START"), rows, width, ("TIME",))
    reasons = (cut(f"  {visible(job['explanation'])}", width) for job in report["waiting"])
    return ["", header, *(line for pair in zip(lines, reasons) for line in pair)]


def show_free(report: dict[str, Any], width: int) -> list[str]:
    """The table of free GPUs: nodes with the same number are together."""
    groups: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    for row in report["nodes"]:
        groups[name_type(row["kind"], row["type"]), row["free"], ",".join(row["partitions"])].append(row["node"])
    rows = [
        [kind, str(free), str(len(nodes)), ",".join(nodes), partitions]
        for (kind, free, partitions), nodes in sorted(groups.items(), key=lambda item: (item[0][0], -item[0][1]))
    ]
    header = ("TYPE", "FREE EACH", "NODES", "NAMES", "PARTITIONS")
    return table(header, rows, width, header[1:3]) if rows else ["No such GPU is free."]


def show_sooner(sooner: dict[str, Any]) -> str:
    """A change of a job's options."""
    if "time_limit" in sooner:
        return f"with --time={name_duration(sooner['time_limit'])} or less it fits before the next planned job"
    one = sooner["count"] == 1
    return f"{sooner['count']} {sooner['type'] or ('GPU' if one else 'GPUs')} {'is' if one else 'are'} free now"


def show_why(report: dict[str, Any], width: int) -> list[str]:
    """Sentences about jobs."""
    lines = []
    for job in report["jobs"]:
        if "reason" not in job:
            lines.append(f"Job {job['job']} of {job['user']} does not wait: {job['state']}.")
            continue
        wants = f"{name_wanted(job['gpus'])}, {job['nodes']} node{'s' * (job['nodes'] > 1)}"
        lines.append(
            f"Job {job['job']} of {job['user']} waits in {job['partition']} since "
            f"{name_clock(job['submitted'], report['time'])}."
        )
        lines.append(f"  Wants:   {wants}, --time {name_duration(job['time_limit'])}")
        lines.append(f"  Reason:  {job['explanation']}")
        if job["explanation"] != job["reason"]:
            lines.append(f"           ({job['reason']})")
        for limit in job["limits"]:
            used = (
                ""
                if limit["used"] is None
                else f", of which {limit['used']} {'is' if limit['used'] == '1' else 'are'} used"
            )
            lines.append(f"  Limit:   {limit['of']}: {limit['name']}={limit['value']}{used}")
        for each in job["maintenance"]:
            start, end = (name_clock(each[key], report["time"]) for key in ("start", "end"))
            begun = each["start"] <= report["time"]
            lines.append(f"  Maint.:  {each['name']} {f'until {end}' if begun else f'from {start} to {end}'}")
            if each["time_limit"]:
                limit = name_duration(each["time_limit"])
                lines.append(f"  Sooner:  with --time={limit} or less it ends before the maintenance")
        if job["start"] is None:
            lines.append("  Start:   Slurm has not planned it yet")
        else:
            lines.append(f"  Start:   {name_clock(job['start'], report['time'])}, as Slurm expects now")
        lines += [f"  Sooner:  {show_sooner(sooner)}" for sooner in job["sooner"]]
    indent = " " * 11
    return [part for line in lines for part in textwrap.wrap(visible(line), width, subsequent_indent=indent)]


# -- The command -----------------------------------------------------------------------------------------------------


class Options(NamedTuple):
    """The command line. question: user, free or why, with the value, or empty."""

    question: str = ""
    value: str = ""
    json: bool = False


def read_options(arguments: Sequence[str], me: str) -> Options:
    """The command line. Raises ValueError."""
    options, rest = Options(), list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name == "--json" and not equals:
            options = options._replace(json=True)
            continue
        if name not in {"--user", "--free", "--why"}:
            raise ValueError(f"there is no option {name}: see gpus --help")
        if options.question:
            raise ValueError("one of --user, --free and --why at a time")
        if not equals and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        if name == "--why" and not value:
            raise ValueError("--why needs the number of a job")
        options = options._replace(question=name[2:], value=value or (me if name == "--user" else ""))
    return options


def answer_why(cluster: Cluster, wanted: str, partitions: str) -> dict[str, Any]:
    """Why a job waits. Raises SlurmError, and ValueError if there is no such job."""
    jobs = find_jobs(cluster.jobs, wanted)
    if not jobs:
        raise ValueError(f"Slurm shows no job {wanted} that waits or runs")
    limits: dict[str, list[Limit]] = {}
    answers: dict[tuple[str, ...], str] = {}
    for job in jobs:
        limits[job.id] = read_partition_limits(partitions, job)
        command = limit_command(job, partitions) if job.state in WAITING else None
        if command:
            # The tasks of an array, say, have the same limits.
            if tuple(command) not in answers:
                answers[tuple(command)] = run(command, SECONDS)
            limits[job.id] += read_limits(answers[tuple(command)], job)
    return report_why(cluster, jobs, limits, ask_maintenance(partitions, jobs, cluster.now))


def ask_maintenance(partitions: str, jobs: list[Job], now: int) -> dict[str, list[dict[str, Any]]]:
    """The maintenance that keeps jobs from their nodes, by the ids of the jobs."""
    waiting, reservations = [job for job in jobs if waits_for_nodes(job)], ""
    with suppress(SlurmError):  # the rest of the answer is true without it
        reservations = run(RESERVATIONS, SECONDS) if waiting else ""
    found = {}
    for job in waiting:
        lines = find_partitions(partitions, job).values()
        hosts = {host for line in lines for host in expand(read_field(line, "Nodes"))}
        found[job.id] = find_maintenance(reservations, hosts, job, now)
    return found


def find_report(options: Options, me: str) -> tuple[dict[str, Any], list[str]]:
    """The answer for programs and for people. Raises SlurmError, ValueError."""
    width = max(shutil.get_terminal_size().columns, 40)
    now = int(time.time())
    if options.question == "free":
        (nodes,) = ask((NODES, read_nodes))
        report = report_free(Cluster(now, nodes, [], {}), options.value)
        return report, show_free(report, width)
    if options.question == "why":
        nodes, jobs, uses, partitions = ask(
            (NODES, read_nodes), (JOBS, read_jobs), (DETAILS, read_uses), (PARTITIONS, str)
        )
        report = answer_why(join_cluster(nodes, jobs, uses, now), options.value, partitions)
        return report, show_why(report, width)
    alone = options.question == "user"
    user = options.value if alone else me
    nodes, jobs, uses = ask((NODES, read_nodes), (JOBS, partial(read_jobs, owner=user)), (DETAILS, read_uses))
    report = report_overview(join_cluster(nodes, jobs, uses, now), user, alone)
    of_jobs = [*show_jobs(report, width), *show_waiting(report, width)]
    if alone and not of_jobs:
        of_jobs = ["", f"{visible(user)} has no GPUs, and waits for none."]
    return report, [*show_types(report["types"], width), *of_jobs]


def main() -> str:
    """Run the command. Returns the error message, or an empty text."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        return write((__doc__ or "").strip())
    try:
        me = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        me = str(os.getuid())
    try:
        options = read_options(sys.argv[1:], me)
        report, lines = find_report(options, me)
    except (SlurmError, ValueError) as error:
        return visible(str(error))
    return write(json.dumps(report) if options.json else "\n".join(lines))


def write(text: str) -> str:
    """Print a text. Returns the error message, or an empty text."""
    if sys.stdout is None:
        return "cannot write: the output is closed"
    try:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        print(text, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python writes when it ends
        return f"cannot write: {error.strerror}"
    return ""


if __name__ == "__main__":
    for end in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(end, signal.SIG_DFL)
    problem = main()
    sys.exit(f"gpus: {problem}" if problem else 0)
