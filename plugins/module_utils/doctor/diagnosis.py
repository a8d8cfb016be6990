# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The diagnosis of a cluster: from the answers of its hosts to findings, their table and the safe repairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..client import drains
from ..language.formatting import message
from ..language.hostlist import fold
from .causes import RESUME, START_MUNGE, START_SLURMD, Case, Cause, causes
from .evidence import NO_FACTS, NOT_IN_INVENTORY, ClusterEvidence, HostEvidence, ServerEvidence, SlurmNode, typed
from .server_causes import SERVER_CAUSES, ServerCase, server_causes

ORDER = {cause.name: number for number, cause in enumerate(SERVER_CAUSES)}
"""Findings of servers come first: they explain others."""


@dataclass(frozen=True)
class DoctorFinding:
    """A cause, with the hosts that have it."""

    hosts: tuple[str, ...]
    state: str
    """The state of the nodes in Slurm; `server` for a controller or the database host."""
    since: str
    """The earliest time of their reasons; empty if Slurm has none."""
    owner: str
    """Who has drained them or has set them down; empty if nobody has."""
    cause: str
    """The name of the cause (docs/admin/doctor.md)."""
    words: str
    """The cause with its evidence."""
    remedy: str
    repair: str = ""
    """The safe repair, if the owner permits it."""
    reason: str = ""
    """The reason of the nodes in Slurm."""


def diagnose(
    cluster: ClusterEvidence,
    nodes: Iterable[SlurmNode],
    hosts: Mapping[str, HostEvidence],
    servers: Mapping[str, ServerEvidence],
    duties: Mapping[str, Iterable[str]],
) -> list[DoctorFinding]:
    """All that is wrong, equal causes folded.

    Args:
        cluster: the answers of the serving controller.
        nodes: the nodes that it has found sick, or that its log names.
        hosts: the facts about their hosts; a node without them is not in the inventory.
        servers: the facts about the controllers and the database host.
        duties: the daemons that each of them should run.
    """
    found = []
    for name, server in servers.items():
        case = ServerCase(name, server, cluster, tuple(duties.get(name, ())))
        found += [
            DoctorFinding((name,), "server", "", "", cause.name, message(text), cause.remedy)
            for cause, text in server_causes(case)
        ]
    for node in nodes:
        patient = Case(node, hosts.get(node.name, HostEvidence(unreached=NOT_IN_INVENTORY)), cluster)
        wrong = causes(patient)
        found += [
            DoctorFinding(
                hosts=(node.name,),
                state="+".join(node.states),
                since=node.since if node.owner else "",
                owner=node.owner,
                cause=cause.name,
                words=message(text),
                remedy=cause.remedy,
                repair=permit_repair(cause, patient, [each for each, _text in wrong]),
                reason=node.reason,
            )
            for cause, text in wrong
        ]
    return fold_findings(found)


def permit_repair(cause: Cause, case: Case, others: list[Cause]) -> str:
    """The repair of a cause, if it loses nothing here and the owner of the drain permits it.

    A drain of Slurm itself may be taken back if that is all that is wrong, and nobody has added a reason. A daemon may
    be started if nobody has stopped it on purpose, and nobody else than Slurm has taken the node out of service.
    """
    repair, node = cause.repair, case.node
    if node.owner not in ("", "Slurm"):
        return ""
    if repair == RESUME and ("DOWN" in node.states or others != [cause] or drains.APPENDED in node.reason):
        return ""
    daemon = {START_SLURMD: case.host.slurmd, START_MUNGE: case.host.munge}.get(repair)
    return repair if daemon is None or daemon.startable else ""


def fold_findings(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """Findings with the hosts of equal ones together."""
    together: dict[tuple[str, ...], DoctorFinding] = {}
    for finding in findings:
        key = (finding.state, finding.owner, finding.cause, finding.words, finding.repair, finding.reason)
        earlier = together.get(key)
        since = min(filter(None, (finding.since, earlier.since if earlier else "")), default="")
        together[key] = replace(finding, hosts=(*earlier.hosts, *finding.hosts), since=since) if earlier else finding
    return sorted(together.values(), key=lambda finding: ORDER.get(finding.cause, len(ORDER)))


def table(findings: Iterable[DoctorFinding], repairs: str) -> list[str]:
    """Findings as lines: the columns of each, and below them the cause, the remedy and the repair.

    repairs: what becomes of the repairs, as text.
    """
    lines = []
    for finding in findings:
        since = f"  since {finding.since}" if finding.since else ""
        owner = f"  by {finding.owner}" if finding.owner else ""
        lines.append(f"{fold([*finding.hosts])}  {finding.state}{since}{owner}")
        lines.append(f"    cause   {finding.words}")
        lines.append(f"    remedy  {finding.remedy}")
        if finding.repair:
            lines.append(f"    repair  {finding.repair} ({repairs})")
    return lines


def diagnosis(
    servers: Mapping[str, Mapping[str, Any]],
    hosts: Mapping[str, Mapping[str, Any]],
    inventory: Iterable[str],
    controllers: Iterable[str],
    database: Iterable[str],
    repairs: str = "",
) -> dict[str, Any]:
    """The diagnosis from the results of the modules, for the playbook.

    Args:
        servers: results of the module slurm_doctor_info, by host.
        hosts: results of the module slurm_doctor_node_info, by host.
        inventory: names of all hosts. A node of the inventory without a result is not in this run, and is left out.
        controllers: names of the controllers.
        database: name of the database host, or nothing.
        repairs: what becomes of the repairs, as text.
    """
    facts = {name: _read_server(result) for name, result in servers.items()}
    answer = _select_answer(servers.values())
    known = {*inventory}
    nodes = [typed(SlurmNode, node) for node in answer["nodes"] if node["name"] in hosts or node["name"] not in known]
    duties = _list_duties(controllers, database)
    cluster = typed(ClusterEvidence, {**answer["cluster"], "clock_offset": answer.get("clock_offset", 0)})
    findings = diagnose(cluster, nodes, {name: _read_host(result) for name, result in hosts.items()}, facts, duties)
    return {
        "ok": not findings,
        "answers": bool(answer["cluster"].get("answers")),
        "findings": [{**asdict(finding), "hosts": fold([*finding.hosts])} for finding in findings],
        "table": table(findings, repairs),
        "resume": [
            {"nodes": fold([*finding.hosts]), "reason": finding.reason}
            for finding in findings
            if finding.repair == RESUME
        ],
        "start": _list_starts(findings),
    }


def _select_answer(results: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The answer of the first controller that serves, or else what the first one has asked the others."""
    asked = [result for result in results if "cluster" in result]
    for result in asked:
        if result["cluster"].get("answers"):
            return result
    return {"cluster": asked[0]["cluster"] if asked else {"answers": False}, "nodes": []}


def _list_duties(controllers: Iterable[str], database: Iterable[str]) -> dict[str, list[str]]:
    """The daemons that each server should run."""
    duties = {name: ["slurmctld"] for name in controllers}
    for name in database:
        duties[name] = [*duties.get(name, ()), "slurmdbd", "database"]
    return duties


def _list_starts(findings: Iterable[DoctorFinding]) -> dict[str, list[str]]:
    """The units to be started on each host; munge comes first."""
    starts: dict[str, list[str]] = {}
    for repair, unit in ((START_MUNGE, "munge"), (START_SLURMD, "slurmd")):
        for finding in findings:
            for name in finding.hosts if finding.repair == repair else ():
                starts.setdefault(name, []).append(unit)
    return starts


def _describe_failure(result: Mapping[str, Any]) -> str:
    """Why a host was not examined: the message of ssh, or of a module that has failed."""
    error = str(result.get("msg") or "Ansible has no message").replace("Task failed: ", "")
    error = error.replace("Failed to connect to the host via ssh: ", "")
    # A host on which nothing ends within the time limit of the play does not answer any more.
    return error if result.get("unreachable") or "timedout" in result else f"{NO_FACTS}{error}"


def _read_host(result: Mapping[str, Any]) -> HostEvidence:
    return typed(HostEvidence, result) if "slurmd" in result else HostEvidence(unreached=_describe_failure(result))


def _read_server(result: Mapping[str, Any]) -> ServerEvidence:
    return typed(ServerEvidence, result) if "daemons" in result else ServerEvidence(unreached=_describe_failure(result))
