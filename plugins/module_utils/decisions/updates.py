# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pending updates of packages on all hosts: one finding for each kind of packages, and what applies it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run_host import RunHost
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import fold

RESULT = "__slurm_updates"
"""The registered result of the module slurm_updates_info."""

OLD = 2
"""Days. Debian and Ubuntu have security updates on most days."""

SHOWN = 3
"""Pairs of versions that a finding shows. Hosts of one cluster have few."""

ROLLING = "ansible-playbook gpucluster.slurm.rolling"

NOTHING = "No update is pending of Slurm, munge, MariaDB, enroot, apptainer, NVIDIA's packages, the kernel and OpenSSH."

WORDS = {"yes": "security update", "no": "update, not for security", "unknown": "update, unknown whether for security"}


@dataclass(frozen=True)
class UpdateFinding:
    """An update of a kind of packages, with the hosts that lack it."""

    kind: str
    state: str
    """`pending`, `held`, `pinned`, `not booted` or `none` (module slurm_updates_info)."""
    security: str
    """`yes`, `no` or `unknown`."""
    hosts: str
    """A hostlist."""
    versions: list[str]
    """The different pairs, such as `0.5.16-1 -> 0.5.16-1+deb13u1`, at most SHOWN of them."""
    more_versions: int
    apply: list[str]
    """Commands, or what a person has to do."""


def _answers(host: RunHost) -> dict[str, Mapping[str, Any]]:
    """The results of the hosts that were asked."""
    results = {name: host.of(name).get(RESULT) for name in host.members("slurm_cluster")}
    return {name: found for name, found in results.items() if found and not found.get("skipped")}


def findings(host: RunHost) -> list[UpdateFinding]:
    """The updates, those for security first."""
    together: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for name, answer in _answers(host).items():
        for update in answer.get("updates", ()):
            key = (update["security"], update["state"], update["kind"])
            together.setdefault(key, {})[name] = update
    order = ("yes", "unknown", "no")
    ordered = sorted(together.items(), key=lambda entry: (entry[0][1] == "none", order.index(entry[0][0]), entry[0]))
    return [_find(host, key, updates) for key, updates in ordered]


def _find(host: RunHost, key: tuple[str, str, str], updates: Mapping[str, Mapping[str, Any]]) -> UpdateFinding:
    """One finding from the updates of hosts with the same key."""
    pairs = dict.fromkeys(
        " -> ".join(filter(None, (each["installed"], each["available"]))) for each in updates.values()
    )
    security, state, kind = key
    return UpdateFinding(
        kind=kind,
        state=state,
        security=security,
        hosts=fold([*updates]),
        versions=[*pairs][:SHOWN],
        more_versions=max(0, len(pairs) - SHOWN),
        apply=[*_ways(host, key, updates)],
    )


def _ways(host: RunHost, key: tuple[str, str, str], updates: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """What applies an update."""
    _security, state, kind = key
    packages = sorted({each["package"] for each in updates.values()})[:SHOWN]
    if state == "none":
        yield "apt has nothing newer, and its source names no security updates: follow the announcements of its maker"
    elif kind == "slurm":
        yield "ansible-playbook gpucluster.slurm.upgrade"
    elif state == "held":
        yield f"dpkg holds it (apt-mark showhold): apt-mark unhold {' '.join(packages)}, then run this again"
    elif state == "pinned" and kind == "nvidia":
        yield "ansible-playbook gpucluster.slurm.site --tags compute, with a newer nvidia_driver_version"
    elif state == "pinned":
        yield f"apt's preferences keep its version (apt-cache policy {' '.join(packages)}): change them"
    else:
        yield from _ways_by_host(host, key, packages, [*updates])


def _ways_by_host(host: RunHost, key: tuple[str, str, str], packages: list[str], names: list[str]) -> Iterable[str]:
    """The command for nodes, and that for other hosts."""
    security, state, kind = key
    nodes = {*host.members("slurm_compute")}
    others = [name for name in names if name not in nodes]
    options = {
        "not booted": "",
        "pending": "-e rolling_packages=security"
        if security == "yes"
        else f"-e '{{rolling_packages: [{', '.join(packages)}]}}'",
    }[state]
    reboot = "-e rolling_reboot=true" if kind in ("kernel", "nvidia") else ""
    then = ", and a reboot" if reboot else ""
    if len(others) < len(names):
        yield " ".join(filter(None, (ROLLING, options, reboot)))
    if others and options:
        yield f"apt-get install --only-upgrade {' '.join(packages)} on {fold(others)}{then}"
    elif others:
        yield f"a reboot of {fold(others)}"


@dataclass(frozen=True)
class OldLists:
    """Hosts whose knowledge of updates is old."""

    hosts: str
    """A hostlist."""
    days: int | None
    """The age of the oldest lists; None for hosts without any."""


def old_lists(host: RunHost) -> list[OldLists]:
    """The hosts with old lists of packages, and those without any."""
    ages = {name: answer["lists_days"] for name, answer in _answers(host).items() if "lists_days" in answer}
    old = {name: days for name, days in ages.items() if days is not None and days > OLD}
    without = [name for name, days in ages.items() if days is None]
    found = [OldLists(fold([*old]), max(old.values()))] if old else []
    return found + ([OldLists(fold(without), None)] if without else [])


def unanswered(host: RunHost) -> str:
    """The hosts of which nothing is known, as a hostlist: without an answer, or not asked since they have faults."""
    silent = [name for name, answer in _answers(host).items() if "updates" not in answer]
    ill = {*host.members("slurm_needs_doctor")} & {*host.members("slurm_cluster")}
    return fold([*silent, *(name for name in host.members("slurm_cluster") if name in ill and name not in silent)])


def report(host: RunHost) -> list[str]:
    """The findings in lines; none if nobody was asked."""
    if not _answers(host):
        return []
    lines = [line for finding in findings(host) for line in _describe(finding)]
    for lists in old_lists(host):
        age = "there are none" if lists.days is None else f"up to {lists.days} days old"
        lines.append(f"apt's lists on {lists.hosts}: {age}, so newer updates are unknown there (apt-get update)")
    if names := unanswered(host):
        lines.append(f"updates of {names}: unknown, since these hosts have faults or gave no answer")
    return lines or [NOTHING]


def _describe(finding: UpdateFinding) -> list[str]:
    """The line of a finding, and what applies it."""
    more = f" and {finding.more_versions} more" if finding.more_versions else ""
    what = "updates unknown" if finding.state == "none" else WORDS[finding.security]
    kept = {"pending": "", "none": ""}.get(finding.state, f", {finding.state}")
    line = f"{finding.kind:<9} {what}{kept}: {', '.join(finding.versions)}{more} on {finding.hosts}"
    return [line, *(f"    apply   {way}" for way in finding.apply)]


def result(host: RunHost) -> dict[str, Any] | None:
    """The same as data; None if nobody was asked."""
    if not _answers(host):
        return None
    return {
        "findings": [asdict(finding) for finding in findings(host)],
        "old_lists": [asdict(lists) for lists in old_lists(host)],
        "unanswered": unanswered(host),
    }
