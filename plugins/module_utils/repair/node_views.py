# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurmctld says of nodes, and what their health checks have reported, as cases see it.

Times in the records are seconds since 1970: scontrol runs with SLURM_TIME_FORMAT=%s.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..client import drains, slurm_records
from ..client.scontrol import Record, reason_of
from ..health.finding_table import KILL_FAILED, OTHERS, named, of_reason
from ..language.errors import CollectionError
from ..language.formatting import visible
from .brakes import Fleet
from .case_evidence import CaseEvidence, evidence_from
from .case_states import OUT, NodeView
from .cases import Fault

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Names of findings and of checks."""
_LONGEST = 1000
"""Characters of what is kept of a finding's words."""


class NodeReportError(CollectionError):
    """A report of a node that cannot be understood, in one line."""


class NodeTreated(NamedTuple):
    """A treatment that a node has carried out by itself."""

    key: str
    """Tells treatments apart (`cases.treatment_key`)."""
    error: str
    """Why it could not be carried out; empty if it was."""


class NodeReport(NamedTuple):
    """What the health check of a node has found at a time, in seconds since 1970."""

    node: str
    checked: float
    wrong: Mapping[str, str]
    """What drains the node: what was said, by the name of the finding or check. The first finding first."""
    evidence: CaseEvidence | None = None
    """With something that drains it."""
    treated: NodeTreated | None = None
    """The last treatment that it has carried out by itself."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        return tuple(Fault(of_reason(name, text), text) for name, text in self.wrong.items())


def parse_report(text: str, node: str) -> NodeReport:
    """The report of a node, which is not trusted. Raises NodeReportError."""
    try:
        content: Any = json.loads(text)
        wrong, checked, name = dict(content["wrong"]), float(content["checked"]), content["node"]
        evidence = evidence_from(content["evidence"]) if content["evidence"] else None
        treated = _treated(content.get("treated"))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NodeReportError(f"report of {node}: {error or 'no object'}") from error
    if name != node:
        raise NodeReportError(f"report of {node}: found node {str(name)[:64]!r}")
    for key, said in wrong.items():
        if not (isinstance(key, str) and _NAME.fullmatch(key) and isinstance(said, str)):
            raise NodeReportError(f"report of {node}: found {str(key)[:64]!r}, allowed: a name with a text")
    return NodeReport(node, checked, {key: said[:_LONGEST] for key, said in wrong.items()}, evidence, treated)


def _treated(content: Mapping[str, Any] | None) -> NodeTreated | None:
    """What a report says of a treatment; reports of older programs have none."""
    return NodeTreated(str(content["key"]), visible(str(content["error"]))[:_LONGEST]) if content else None


def faults_of_reason(reason: str) -> tuple[Fault, ...]:
    """What a drain of the health check says: findings or checks with their words, `; ` between them.

    The words may have `; ` themselves, so that only what begins with a known name is another finding.
    """
    if not reason.startswith(drains.HEALTH):
        return ()
    found: list[tuple[str, str]] = []
    for part in reason.removeprefix(drains.HEALTH).partition(drains.APPENDED)[0].split("; "):
        name, colon, text = part.partition(": ")
        known = name in OTHERS or f"check-{name}" in OTHERS or name == "gpu" or re.fullmatch(r"xid-\d+", name)
        if colon and (known or not found):
            found.append((name, text))
        elif found:
            found[-1] = (found[-1][0], f"{found[-1][1]}; {part}")
    return tuple(Fault(of_reason(name, text), text) for name, text in found)


def faults_of_slurm(reason: str) -> tuple[Fault, ...]:
    """What a drain of Slurm says."""
    return (Fault(named(KILL_FAILED), reason),) if reason.startswith(drains.KILL_FAILED) else ()


def node_view(record: Record, report: NodeReport | None, jobs: Iterable[int] = ()) -> NodeView:
    """What is seen of a node, without what is of a single case.

    Args:
        record: that of `scontrol show node`.
        report: the last one of its health check; None without any.
        jobs: those that have not ended there.
    """
    states = frozenset(slurm_records.states(record.get("State", "")))
    reason = reason_of(record)
    is_out = bool(states & OUT)
    said = faults_of_reason(reason.text) if is_out else ()
    # A node that has died since its health check has drained it has sent no report of that.
    is_newer = bool(said) and report is not None and slurm_records.integer(reason.since) > report.checked
    of_health = report.faults if report and not is_newer else said
    return NodeView(
        states=states,
        owner=drains.owner(reason.text, reason.user) if is_out else "",
        jobs=frozenset(jobs),
        booted=float(slurm_records.integer(record.get("BootTime", ""))),
        reserved=_reservation(record, states),
        checked=report.checked if report else 0.0,
        faults=(*of_health, *(faults_of_slurm(reason.text) if is_out else ())),
    )


def _reservation(record: Record, states: frozenset[str]) -> str:
    """The reservation that a node is in now; its name is known since Slurm 23.02."""
    if not states & {"MAINTENANCE", "RESERVED"}:
        return ""
    # Behind the reason of a drained node.
    behind = re.search(r"\sReservationName=(\S+)", record.get("Reason", "").rpartition("]")[2])
    return record.get("ReservationName") or (behind[1] if behind else "of others")


def fleet_of(records: Sequence[Record], hour: int) -> Fleet:
    """The cluster. hour: that of the day."""
    partitions = {
        record["NodeName"]: slurm_records.listed(record.get("Partitions", ""))
        for record in records
        if not {*slurm_records.states(record.get("State", ""))} & (OUT | drains.ASLEEP)
    }
    in_service = Counter(partition for names in partitions.values() for partition in names)
    return Fleet(len(records), hour, in_service, partitions)
