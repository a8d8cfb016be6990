# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits on GPUs that hold for a user, what is used of them, and which of them a further job would wait for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ...client import slurm_records
from ...client.slurm_records import WAITING
from .gpu_answers import ShownJob, read_field
from .gpu_tables import Report
from .job_limits import PART, find_parents, read_parents, read_part

_LIST = ["sacctmgr", "--noheader", "--parsable2", "show"]
_QOS_COLUMNS = {
    "GrpTRES": "GrpTRES",
    "GrpTRESMins": "GrpTRESMins",
    "GrpTRESRunMins": "GrpTRESRunMins",
    "MaxTRESPJ": "MaxTRES",
    "MaxTRESPN": "MaxTRESPerNode",
    "MaxTRESMinsPJ": "MaxTRESMins",
    "MaxTRESPA": "MaxTRESPA",
    "MaxTRESRunMinsPA": "MaxTRESRunMinsPA",
    "MaxTRESPU": "MaxTRESPU",
    "MaxTRESRunMinsPU": "MaxTRESRunMinsPU",
}
"""The limits by their names in `scontrol show assoc_mgr`, and what `sacctmgr show qos` calls them."""
OF_EACH = {"PU": ("MaxTRESPU", "MaxTRESRunMinsPU"), "PA": ("MaxTRESPA", "MaxTRESRunMinsPA")}
"""Limits of a QOS for each user and for each account."""
GROUP = ("GrpTRES", "GrpTRESMins", "GrpTRESRunMins")
"""Limits of all jobs together, which the accounts above have as well."""
OF_ALL = tuple(name for name in _QOS_COLUMNS if name[-2:] not in OF_EACH)
QOS = [*_LIST, "qos", "format=name,flags,limitfactor," + ",".join(column.lower() for column in _QOS_COLUMNS.values())]


def associations_command(user: str) -> list[str]:
    """The command for the accounts of a user, and the QOS that jobs there may have."""
    return [*_LIST, "associations", "where", f"user={user}", "format=cluster,account,partition,qos,defaultqos"]


def limits_command(user: str, names: Iterable[str]) -> list[str]:
    """The command for the limits and the use of a user's accounts and of these QOS. All QOS can be much text."""
    show = ["scontrol", "--oneliner", "show", "assoc_mgr", f"users={user}"]
    listed = ",".join(sorted(names))
    return [*show, *([f"qos={listed}"] if listed else []), "flags=assoc,qos"]


# -- what Slurm says -------------------------------------------------------------------------------------------------


class Association(NamedTuple):
    """A user in an account, which may be for jobs of one partition alone."""

    cluster: str
    account: str
    partition: str
    qos: tuple[str, ...]
    default_qos: str

    @property
    def usual_qos(self) -> str:
        """The QOS of a job that names none (`assoc_mgr_get_default_qos_info` in `src/common/assoc_mgr.c`)."""
        return self.default_qos or (self.qos[0] if len(self.qos) == 1 else "normal")


class JobScope(NamedTuple):
    """The jobs that a limit counts. None, or an empty name: any."""

    accounts: frozenset[str] | None = None
    user: str = ""
    qos: str = ""
    partitions: frozenset[str] = frozenset()
    """Those that have the QOS as their own, whatever that of a job is."""

    def has(self, job: ShownJob) -> bool:
        """Whether it counts a job."""
        return (
            (self.accounts is None or job.account in self.accounts)
            and self.user in ("", job.user)
            and (not self.qos or job.qos == self.qos or job.partition in self.partitions)
        )


class Quota(NamedTuple):
    """A limit on GPUs. used: None for one that holds for each job."""

    of: str
    name: str
    resource: str
    limit: int
    used: int | None
    scope: JobScope

    @property
    def report(self) -> Report:
        """The limit for JSON."""
        left = None if self.used is None else max(self.limit - self.used, 0)
        found = {"of": self.of, "name": self.name, "resource": self.resource, "limit": self.limit}
        return {**found, "used": self.used, "left": left}


class UserLimits(NamedTuple):
    """What Slurm says of the limits of a user."""

    user: str
    uid: str
    associations: list[Association]
    records: dict[tuple[str, str, str], str]
    """Those of associations, by account, user and partition."""
    parents: dict[str, str]
    """The account above each account that Slurm shows."""
    qos: dict[str, dict[str, str]]
    """What sacctmgr says of each QOS, by column."""
    qos_records: dict[str, str]
    qos_of: dict[str, str]
    """The QOS that each partition has of its own; empty for none."""
    partition: str
    """That of a job that names none."""


def read_associations(text: str) -> list[Association]:
    """The accounts of a user, from the output of associations_command."""
    rows = (line.split("|") for line in text.split("\n"))
    return [
        Association(row[0], row[1], row[2], tuple(slurm_records.listed(row[3])), row[4])
        for row in rows
        if len(row) == 5
    ]


def read_qos(text: str) -> dict[str, dict[str, str]]:
    """The columns of each QOS, from the output of QOS."""
    names = ("Name", "Flags", "LimitFactor", *_QOS_COLUMNS)
    rows = (line.split("|") for line in text.split("\n"))
    return {row[0]: dict(zip(names, row)) for row in rows if len(row) == len(names)}


def read_partitions(text: str) -> tuple[dict[str, str], str]:
    """The QOS that each partition has of its own, empty for none; and the partition of a job that names none."""
    lines = {line[14:].partition(" ")[0]: line for line in text.split("\n") if line.startswith("PartitionName=")}
    default = next((name for name, line in lines.items() if read_field(line, "Default") == "YES"), "")
    return {name: read_field(line, "QoS").replace("N/A", "") for name, line in lines.items()}, default


def read_user_limits(
    me: tuple[str, str],
    associations: list[Association],
    qos: dict[str, dict[str, str]],
    partitions: tuple[dict[str, str], str],
    text: str,
) -> UserLimits:
    """The limits of a user.

    Args:
        me: the name and the number of the user.
        associations: those of all clusters of the database.
        qos: what read_qos has found.
        partitions: what read_partitions has found.
        text: the output of limits_command, which has the associations of this cluster.
    """
    records, clusters = {}, set()
    for line in text.split("\n"):
        if line.startswith("ClusterName="):
            clusters.add(line[12:].partition(" ")[0])
            user = read_field(line, "UserName").partition("(")[0]
            records[read_field(line, "Account"), user, read_field(line, "Partition")] = line
    qos_records = {line[4:].partition("(")[0]: line for line in text.split("\n") if line.startswith("QOS=")}
    own = [association for association in associations if association.cluster in clusters]
    return UserLimits(*me, own, records, read_parents(text), qos, qos_records, *partitions)


# -- the limits ------------------------------------------------------------------------------------------------------


def find_quotas(of: str, record: str, names: Iterable[str], scope: JobScope) -> Iterator[Quota]:
    """The limits on GPUs in a record of `scontrol show assoc_mgr`: `gres/gpu=8(6)`, in brackets what is used."""
    for name in names:
        for resource, limit, used in re.findall(r"(?:^|,)([^,=]+)=(\d+)(?:\((\d+)\))?", read_field(record, name)):
            if resource.partition(":")[0] == "gres/gpu":
                yield Quota(of, name, resource, int(limit), int(used) if used else None, scope)


def quotas_of_association(limits: UserLimits, association: Association) -> list[Quota]:
    """The limits of a user in an account, of the account, and of those above it."""
    account = association.account
    own = limits.records.get((account, limits.user, association.partition), "")
    # Limits for each job are in the user's record: slurmctld has given it what it inherits.
    found = [
        *find_quotas(f"{limits.user} in account {account}", own, OF_ALL, JobScope(frozenset((account,)), limits.user))
    ]
    for above in find_parents(limits.parents, account):
        below = frozenset(name for name in limits.parents if above in find_parents(limits.parents, name))
        record = limits.records.get((above, "", ""), "")
        found += find_quotas("all accounts" if above == "root" else f"account {above}", record, GROUP, JobScope(below))
    return found


def quotas_of_qos(limits: UserLimits, name: str, account: str) -> list[Quota]:
    """The limits of a QOS: of all of its jobs, of those of an account, and of those of the user."""
    record = limits.qos_records.get(name, "")
    scope = JobScope(None, "", name, frozenset(part for part, qos in limits.qos_of.items() if qos == name))
    found = [*find_quotas(f"QOS {name}", re.sub(PART, "", record), OF_ALL, scope)]
    for mark, names, of, own in (
        ("PA", {account}, f"account {account}", scope._replace(accounts=frozenset((account,)))),
        ("PU", {limits.user, limits.uid}, limits.user, scope._replace(user=limits.user)),
    ):
        part = read_part(record, names, f"{mark}=")
        if not part and "Relative" not in limits.qos[name]["Flags"]:  # whose limits are percentages here
            # Who has had no job in it has no part.
            part = "".join(f" {each}={limits.qos[name][each]}" for each in OF_EACH[mark])
        quotas = find_quotas(f"QOS {name}, {of}", part, OF_EACH[mark], own)
        found += [quota._replace(used=quota.used or 0) for quota in quotas]
    return found


def find_chain(limits: UserLimits, association: Association, own: str, of_partition: str = "") -> list[Quota]:
    """The limits that hold for a job in an account, the first ones first.

    The QOS of the partition comes before that of the job, and both before associations. What one of them limits, a
    later one does not ("Hierarchy" in resource_limits.html).

    Args:
        limits: those of the user.
        association: the account.
        own: the QOS of the job.
        of_partition: that of its partition; empty if it has none.
    """
    settings = limits.qos.get(own, {})
    names = [own, of_partition] if "OverPartQOS" in settings.get("Flags", "") else [of_partition, own]
    factor = float(settings.get("LimitFactor") or 1)
    groups = [quotas_of_qos(limits, name, association.account) for name in dict.fromkeys(names) if name in limits.qos]
    groups.append([_multiply(quota, factor) for quota in quotas_of_association(limits, association)])
    chain: list[Quota] = []
    for group in groups:
        seen = {(quota.name, quota.resource) for quota in chain}
        chain += [quota for quota in group if (quota.name, quota.resource) not in seen]
    return chain


def find_chains(limits: UserLimits, association: Association) -> Iterator[list[Quota]]:
    """The limits that hold for jobs of an account, for each QOS that they and their partitions may have."""
    partitions = [association.partition] if association.partition else [*limits.qos_of]
    of_partitions = dict.fromkeys(limits.qos_of.get(partition, "") for partition in partitions)
    for own in dict.fromkeys((*association.qos, association.usual_qos)):
        for of_partition in of_partitions:
            yield find_chain(limits, association, own, of_partition)


def _multiply(quota: Quota, factor: float) -> Quota:
    """A limit of an association, which the LimitFactor of a job's QOS multiplies."""
    return quota._replace(limit=int(quota.limit * factor)) if quota.name in ("GrpTRES", "MaxTRESPJ") else quota


# -- a further job ---------------------------------------------------------------------------------------------------


def read_request(text: str) -> dict[str, int]:
    """The numbers of GPUs, by resource, that a job of `8` or `h100:8` counts for. Raises ValueError."""
    found = re.fullmatch(r"(?:([^:=,\s]+):)?([1-9]\d{0,8})", text)
    if not found:
        raise ValueError("--quota takes a number of GPUs, such as 8 or h100:8")
    number = int(found[2])
    # One without a type counts for none.
    return {"gres/gpu": number, **({f"gres/gpu:{found[1]}": number} if found[1] else {})}


def passes(quota: Quota, number: int) -> bool:
    """Whether a further job with so many GPUs would pass a limit, as far as this does not depend on nodes and time."""
    if not number or quota.name in ("MaxTRESPN", "MaxTRESMinsPJ"):
        return False
    used = quota.used or 0
    return used >= quota.limit if "Mins" in quota.name else used + number > quota.limit


def never_ends(quota: Quota, number: int) -> bool:
    """Whether no other job's end makes room for a job that passes the limit."""
    return quota.limit < (1 if "Mins" in quota.name else number)


def find_passed(chain: Iterable[Quota], wanted: Mapping[str, int]) -> Quota | None:
    """The limit that a further job would wait for: one that keeps it for ever, or else the first that it would pass."""
    passed = [quota for quota in chain if passes(quota, wanted.get(quota.resource, 0))]
    for_ever = [quota for quota in passed if never_ends(quota, wanted[quota.resource])]
    return next(iter([*for_ever, *passed]), None)


def report_next(
    limits: UserLimits, association: Association, wanted: Mapping[str, int], jobs: Iterable[ShownJob]
) -> Report:
    """What the next job in an account would wait for. `wait`: seconds until jobs have ended that have enough GPUs."""
    partition, qos = association.partition or limits.partition, association.usual_qos
    passed = find_passed(find_chain(limits, association, qos, limits.qos_of.get(partition, "")), wanted)
    report: Report = {"account": association.account, "partition": partition, "qos": qos}
    report |= {"gpus": wanted["gres/gpu"], "limit": passed and passed.report}
    report |= {"never": False, "used_by": None, "unseen": None, "wait": None}
    if passed is None:
        return report
    number = wanted[passed.resource]
    if never_ends(passed, number) or "Mins" in passed.name:
        return report | {"never": never_ends(passed, number)}
    running = (job for job in jobs if job.state not in WAITING and passed.scope.has(job))
    counts = [
        (job.left, slurm_records.integer(slurm_records.tres(job.tres).get(passed.resource, ""))) for job in running
    ]
    counts = [(left, count) for left, count in counts if count]
    used = passed.used or 0
    unseen = max(used - sum(count for _left, count in counts), 0)
    return report | {"used_by": len(counts), "unseen": unseen, "wait": find_wait(counts, used + number - passed.limit)}


def find_wait(jobs: Iterable[tuple[int | None, int]], missing: int) -> int | None:
    """The seconds until jobs with so many GPUs have reached their time limits; None if it cannot be said.

    jobs: what each has left of its time, None without a limit, and its GPUs.
    """
    for left, count in sorted((left, count) for left, count in jobs if left is not None):
        missing -= count
        if missing <= 0:
            return left
    return None


def report_quota(limits: UserLimits, wanted: Mapping[str, int], jobs: list[ShownJob], now: int) -> Report:
    """The limits of a user, and what the next job would wait for in each of the accounts."""
    quotas: dict[tuple[str, str, str], Report] = {}
    for association in limits.associations:
        for chain in find_chains(limits, association):
            quotas |= {(quota.of, quota.name, quota.resource): quota.report for quota in chain}
    return {
        "time": now,
        "user": limits.user,
        "quotas": [*quotas.values()],
        # PrivateData=usage shows a user no record of an account.
        "hidden": sorted({association.account for association in limits.associations} - {*limits.parents}),
        "next": [report_next(limits, each, wanted, jobs) for each in limits.associations] if wanted else [],
    }
