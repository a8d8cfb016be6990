# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits of partitions, accounts and QOS that keep a job waiting."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from ...language.job_reasons import LIMIT, RESOURCES
from .gpu_answers import ShownJob, read_field


class JobLimit(NamedTuple):
    """A limit that a job may hit. used: None where Slurm does not say it."""

    of: str
    name: str
    value: str
    used: str | None


def find_partitions(text: str, job: ShownJob) -> dict[str, str]:
    """The lines of `scontrol show partition` for a job's partitions, by their names."""
    lines = {line[14:].partition(" ")[0]: line for line in text.split("\n") if line.startswith("PartitionName=")}
    return {name: lines[name] for name in job.partition.split(",") if name in lines}


def limit_command(job: ShownJob, partitions: str) -> list[str] | None:
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


def read_partition_limits(partitions: str, job: ShownJob) -> list[JobLimit]:
    """The limits of partitions that a job's reason is about."""
    field = {"PartitionTimeLimit": "MaxTime", "PartitionNodeLimit": "MaxNodes"}.get(job.reason)
    if not field:
        return []
    lines = find_partitions(partitions, job).items()
    return [JobLimit(f"partition {name}", field, read_field(line, field), None) for name, line in lines]


def read_limits(text: str, job: ShownJob) -> list[JobLimit]:
    """The limits that a job's reason is about, from the output of limit_command."""
    found = LIMIT.fullmatch(job.reason)
    if not found:
        return []
    _where, kind, resource, minutes, each = found.groups()
    begins = RESOURCES[resource][1]
    parents = find_parents(read_parents(text), job.account)
    limits: list[JobLimit] = []
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


PART = r" (\w\S*?)(?:\(\d+\))?=\{([^}]*)\}"
"""The part of a QOS with the limits of one user or account."""


def choose_part(qos: str, job: ShownJob, each: str) -> str:
    """The part of a QOS with the limits of each user, of each account, or the others."""
    wanted = {"PerUser": ({job.user, job.uid}, "PU="), "PerAccount": ({job.account}, "PA=")}
    return read_part(qos, *wanted[each]) if each in wanted else re.sub(PART, "", qos)


def read_part(qos: str, names: Collection[str], mark: str) -> str:
    """The limits of one user or account in a QOS. Slurm 22.05 has the numbers of users in place of their names.

    mark: what limits of users have in their names, or those of accounts.
    """
    return "".join(f" {text} " for name, text in re.findall(PART, qos) if name in names and mark in text)


def read_parents(text: str) -> dict[str, str]:
    """The account above each account that Slurm shows; empty for the highest one."""
    return {
        read_field(line, "Account"): read_field(line, "ParentAccount").partition("(")[0]
        for line in text.split("\n")
        if line.startswith("ClusterName=") and not read_field(line, "UserName")
    }


def find_parents(parents: Mapping[str, str], account: str) -> list[str]:
    """An account and those above it."""
    found = [account]
    while (account := parents.get(account, "")) and account not in found:
        found.append(account)
    return found


def find_limits(of: str, text: str, kind: str, begins: str, minutes: str) -> Iterator[JobLimit]:
    """The limits of a record of `scontrol show assoc_mgr` for a resource. N is none; in brackets is what is used."""
    wanted = {"": r"TRES(?:P[JNUA])?", "Min": r"TRESMins(?:PJ)?", "Run": r"TRESRunMins(?:P[UA])?"}[minutes[:3]]
    if begins[:1].isupper():
        for name, value, used in re.findall(rf"\b({kind}{begins}(?:P[JUA])?)=([\d:-]+)(?:\(([\d.]+)\))?(?=\s)", text):
            yield JobLimit(of, name, value, used or None)
        return
    for name, values in re.findall(rf"\b({kind}{wanted})=(\S+)", text):
        for tres, value, used in re.findall(r"(?:^|,)([^,=]+)=(\d+)(?:\((\d+)\))?", values):
            if tres.startswith(begins):
                yield JobLimit(of, f"{name} {tres}", value, used or None)
