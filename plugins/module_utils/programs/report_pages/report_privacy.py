# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the page for everybody may have: what Slurm shows to a user without rights, by PrivateData in slurm.conf(5).

The data of the page are reduced before anything is drawn, so the file does not have what it does not show. Where a word
hides names, they are on no part of the page: this is stricter than Slurm, whose squeue shows users despite `users`.
`events` and `cloud` hide nothing that the page has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .report_texts import records_of, text_of

Record = Mapping[str, Any]

PARTS = ("controllers", "nodes", "jobs", "drains", "usage", "maintenance")
"""The parts of the data that everybody may see. Drift, versions, updates, validation, acceptance and backup help an
attacker."""


JOB = (
    "id array_tasks user account partition name state reason submit start expected_start time_limit nodes cpus gpus "
    "shares priority"
)


class Private(NamedTuple):
    """What users may not see."""

    accounts: bool = False
    jobs: bool = False
    nodes: bool = False
    partitions: bool = False
    reservations: bool = False
    usage: bool = False
    users: bool = False


def private(data: Record) -> Private:
    """What PrivateData hides: everything if it is not known.

    Slurm accepts `job` as well as `jobs` (src/common/read_config.c).
    """
    words = data.get("private")
    said = ",".join(str(word).lower() for word in words) if isinstance(words, list) else "all"
    return Private(*("all" in said or name[:-1] in said for name in Private._fields))


def _kept(record: Record, names: str) -> dict[str, object]:
    """Some keys of a record."""
    return {name: record.get(name) for name in names.split()}


def _number(value: Any) -> float:
    return value if isinstance(value, (int, float)) else 0


def _node(node: Record, hidden: Private) -> Record:
    kept = _kept(node, "name state partitions cpus cpus_allocated memory memory_allocated gpus")
    return {**kept, "partitions": []} if hidden.partitions else kept


def _job(job: Record, hidden: Private) -> Record:
    kept = _kept(job, JOB)
    for hides, key in ((hidden.users, "user"), (hidden.accounts, "account"), (hidden.partitions, "partition")):
        if hides:
            kept[key] = None
    if hidden.nodes:
        kept["nodes"] = None
        # After its first word a reason has names: ReqNodeNotAvail, UnavailableNodes:n[1-3]
        kept["reason"] = re.split(r"[ ,:]", str(job.get("reason") or ""), maxsplit=1)[0]
    return kept


def _drain(drain: Record, hidden: Private) -> Record:
    """What `sinfo -R` shows. What doctor has found out is for administrators."""
    kept = _kept(drain, "nodes state since by reason")
    return {**kept, "by": None} if hidden.users else kept


def _usage(usage: Record, hidden: Private) -> Record:
    """What sreport and sshare show. Idle hours are for everybody as a sum of the cluster alone."""
    sums: dict[tuple[Any, Any], dict[str, object]] = {}
    for row in records_of(usage, "users"):
        account = None if hidden.accounts else text_of(row, "account")
        user = None if hidden.users else text_of(row, "user")
        fairshare = None if hidden.accounts or hidden.users else row.get("fairshare")
        found = sums.setdefault((account, user), {"account": account, "user": user, "fairshare": fairshare})
        for key in ("cpu_hours", "gpu_hours"):
            found[key] = _number(found.get(key)) + _number(row.get(key))
    rows = [] if hidden.accounts and hidden.users else [*sums.values()]
    return {**_kept(usage, "since until days"), "users": rows}


def _maintenance(reservation: Record, hidden: Private) -> Record | None:
    """A message is meant for users even where reservations are hidden."""
    kept = _kept(reservation, "name start end nodes message")
    if hidden.nodes or hidden.reservations:
        kept["nodes"] = None
    if not hidden.reservations:
        return kept
    return {**kept, "name": None} if kept["message"] else None


def _part(data: Record, key: str, hidden: bool, reduce: Callable[[Record], Record]) -> list[Record] | None:
    """A list of the data without what is hidden; None if it is not known."""
    if hidden:
        return []
    return None if data.get(key) is None else [reduce(record) for record in records_of(data, key)]


def for_everybody(data: Record) -> Record:
    """The data without what a user may not see."""
    hidden = private(data)
    usage = data.get("usage")
    reservations = [_maintenance(found, hidden) for found in records_of(data, "maintenance")]
    return {
        **_kept(data, "version made interval cluster private"),
        "controllers": [_kept(found, "place answers serves") for found in records_of(data, "controllers")],
        "nodes": _part(data, "nodes", hidden.nodes, lambda node: _node(node, hidden)),
        "jobs": _part(data, "jobs", hidden.jobs, lambda job: _job(job, hidden)),
        "drains": _part(data, "drains", hidden.nodes, lambda drain: _drain(drain, hidden)),
        "usage": None if hidden.usage or not isinstance(usage, Mapping) else _usage(usage, hidden),
        "maintenance": [found for found in reservations if found],
        # Why a part is missing may name hosts and commands.
        "missing": [
            {"part": gap.get("part")}
            for gap in records_of(data, "missing")
            if str(gap.get("part")).partition(".")[0] in PARTS
        ],
    }
