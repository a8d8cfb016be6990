# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show GPUs: how many are free, who uses the others, and why a job waits.

usage: gpus                GPUs by type and partition, the jobs that use them, and your waiting jobs
       gpus --user [NAME]  the same with the jobs of one user alone; without a name, yours
       gpus --free [TYPE]  GPUs that are free now, by node; of types whose name contains TYPE
       gpus --why JOB      why a job waits, when it is expected to start, and what may start sooner
       gpus --quota [N]    your limits on GPUs, what is used of them, and which of them a job of N GPUs would wait
                           for; TYPE:N counts a job that names a type

With --json, each of them prints JSON for programs (README.md of role job_tools has its structure).

UNAVAIL are GPUs that no job uses, on nodes that are down, drained, in maintenance or reserved. "others" are jobs that
Slurm does not show to you.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ..client.slurm_records import WAITING
from ..client.user_commands import SlurmError
from .gpus_command.gpu_answers import (
    DETAILS,
    JOBS,
    NODES,
    PARTITIONS,
    RESERVATIONS,
    SECONDS,
    GpuCluster,
    ShownJob,
    ask,
    expand,
    join_cluster,
    read_field,
    read_jobs,
    read_nodes,
    read_uses,
    run,
)
from .gpus_command.gpu_quotas import (
    QOS,
    associations_command,
    limits_command,
    read_associations,
    read_partitions,
    read_qos,
    read_request,
    read_user_limits,
    report_quota,
)
from .gpus_command.gpu_reports import (
    find_jobs,
    find_maintenance,
    report_free,
    report_overview,
    report_why,
    waits_for_nodes,
)
from .gpus_command.gpu_tables import (
    Report,
    show_free,
    show_jobs,
    show_quota,
    show_types,
    show_waiting,
    show_why,
    visible,
)
from .gpus_command.job_limits import JobLimit, find_partitions, limit_command, read_limits, read_partition_limits
from .standard_output import write


class GpusOptions(NamedTuple):
    """The command line. question: user, free, why or quota, with the value, or empty."""

    question: str = ""
    value: str = ""
    json: bool = False


def read_options(arguments: Sequence[str], me: str) -> GpusOptions:
    """The command line. Raises ValueError."""
    options, rest = GpusOptions(), list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name == "--json" and not equals:
            options = options._replace(json=True)
            continue
        if name not in {"--user", "--free", "--why", "--quota"}:
            raise ValueError(f"there is no option {name}: see gpus --help")
        if options.question:
            raise ValueError("one of --user, --free, --why and --quota at a time")
        if not equals and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        if name == "--why" and not value:
            raise ValueError("--why needs the number of a job")
        options = options._replace(question=name[2:], value=value or (me if name == "--user" else ""))
    return options


def answer_why(cluster: GpuCluster, wanted: str, partitions: str) -> Report:
    """Why a job waits. Raises SlurmError, and ValueError if there is no such job."""
    jobs = find_jobs(cluster.jobs, wanted)
    if not jobs:
        raise ValueError(f"Slurm shows no job {wanted} that waits or runs")
    limits: dict[str, list[JobLimit]] = {}
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


def ask_maintenance(partitions: str, jobs: list[ShownJob], now: int) -> dict[str, list[Report]]:
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


def answer_quota(me: str, uid: str, request: str, now: int) -> Report:
    """The limits of a user. Raises SlurmError, ValueError."""
    wanted = read_request(request) if request else {}
    try:
        associations, qos = ask((associations_command(me), read_associations), (QOS, read_qos))
    except SlurmError as error:
        raise SlurmError(f"limits are those of slurmdbd, which does not answer: {error}") from None
    if not associations:
        raise ValueError(f"{me} has no account in Slurm, so no limits")
    partitions, jobs = ask((PARTITIONS, read_partitions), (JOBS, partial(read_jobs, owner=me)))
    names = {name for each in associations for name in (*each.qos, each.usual_qos)} | {*partitions[0].values()}
    text = run(limits_command(me, names & {*qos}), SECONDS)
    limits = read_user_limits((me, uid), associations, qos, partitions, text)
    if not limits.associations:
        raise ValueError(f"slurmctld shows no account of {me}, so no limits")
    return report_quota(limits, wanted, jobs, now)


def find_report(options: GpusOptions, me: str) -> tuple[Report, list[str]]:
    """The answer for programs and for people. Raises SlurmError, ValueError."""
    width = max(shutil.get_terminal_size().columns, 40)
    now = int(time.time())
    if options.question == "free":
        (nodes,) = ask((NODES, read_nodes))
        report = report_free(GpuCluster(now, nodes, [], {}), options.value)
        return report, show_free(report, width)
    if options.question == "why":
        nodes, jobs, uses, partitions = ask(
            (NODES, read_nodes), (JOBS, read_jobs), (DETAILS, read_uses), (PARTITIONS, str)
        )
        report = answer_why(join_cluster(nodes, jobs, uses, now), options.value, partitions)
        return report, show_why(report, width)
    if options.question == "quota":
        report = answer_quota(me, str(os.getuid()), options.value, now)
        return report, show_quota(report, width)
    alone = options.question == "user"
    user = options.value if alone else me
    nodes, jobs, uses = ask((NODES, read_nodes), (JOBS, partial(read_jobs, owner=user)), (DETAILS, read_uses))
    report = report_overview(join_cluster(nodes, jobs, uses, now), user, alone)
    of_jobs = [*show_jobs(report, width), *show_waiting(report, width)]
    if alone and not of_jobs:
        of_jobs = ["", f"{visible(user)} has no GPUs, and waits for none."]
    return report, [*show_types(report["types"], width), *of_jobs]


def answer() -> str:
    """Answer the command line. Returns the error message, or an empty text."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        return write(f"{(__doc__ or '').strip()}\n")
    try:
        me = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        me = str(os.getuid())
    try:
        options = read_options(sys.argv[1:], me)
        report, lines = find_report(options, me)
    except (SlurmError, ValueError) as error:
        return visible(str(error))
    return write(f"{json.dumps(report)}\n" if options.json else "".join(f"{line}\n" for line in lines))


def main() -> int | str:
    """Returns the exit status, or a message for sys.exit."""
    for end in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(end, signal.SIG_DFL)
    problem = answer()
    return f"gpus: {problem}" if problem else 0
