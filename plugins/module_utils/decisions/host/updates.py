# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pending updates of packages on all hosts: one finding for each kind of packages, and what applies it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...language.hostlist import fold
from ..known import registered
from ..known.run_host import RunHost

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


Answers = Mapping[str, Mapping[str, Any]]
"""Results of the module by host."""


def pending(host: RunHost) -> dict[str, Any] | None:
    """The updates of all hosts that were asked, as data; None if nobody was."""
    hosts = host.members("slurm_cluster")
    results = registered.SLURM_UPDATES.by_host(host, hosts)
    answers = {name: found for name, found in results.items() if not found.get("skipped")}
    if not answers:
        return None
    silent = [name for name in hosts if "updates" not in answers.get(name, {"updates": []})]
    ill = [name for name in host.members("slurm_needs_doctor") if name in hosts]  # they were not asked
    return {
        "findings": [asdict(finding) for finding in findings(answers, {*host.members("slurm_compute")})],
        "old_lists": [asdict(lists) for lists in old_lists(answers)],
        "unanswered": fold([*dict.fromkeys([*silent, *ill])]),
    }


def findings(answers: Answers, nodes: Collection[str]) -> list[UpdateFinding]:
    """The updates, those for security first.

    Args:
        answers: the results of the hosts.
        nodes: the compute nodes, which rolling.yml can change.
    """
    together: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for name, answer in answers.items():
        for update in answer.get("updates", ()):
            key = (update["security"], update["state"], update["kind"])
            together.setdefault(key, {})[name] = update
    order = ("yes", "unknown", "no")
    ordered = sorted(together.items(), key=lambda entry: (entry[0][1] == "none", order.index(entry[0][0]), entry[0]))
    return [_find(key, updates, nodes) for key, updates in ordered]


def _find(key: tuple[str, str, str], updates: Answers, nodes: Collection[str]) -> UpdateFinding:
    """One finding from the updates of hosts with the same key."""
    security, state, kind = key
    pairs = dict.fromkeys(
        " -> ".join(filter(None, (each["installed"], each["available"]))) for each in updates.values()
    )
    packages = sorted({each["package"] for each in updates.values()})[:SHOWN]
    return UpdateFinding(
        kind=kind,
        state=state,
        security=security,
        hosts=fold([*updates]),
        versions=[*pairs][:SHOWN],
        more_versions=max(0, len(pairs) - SHOWN),
        apply=[*_ways(key, packages, [name for name in updates if name in nodes], [*updates])],
    )


def _ways(key: tuple[str, str, str], packages: list[str], nodes: list[str], hosts: list[str]) -> Iterable[str]:
    """What applies an update."""
    _security, state, kind = key
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
        yield from _ways_by_host(key, packages, nodes, [name for name in hosts if name not in nodes])


def _ways_by_host(key: tuple[str, str, str], packages: list[str], nodes: list[str], others: list[str]) -> Iterable[str]:
    """The command for nodes, and what is to be done on other hosts."""
    security, state, kind = key
    by_name = f" -e '{{rolling_packages: [{', '.join(packages)}]}}'"
    option = " -e rolling_packages=security" if security == "yes" else by_name
    command = f"apt-get install --only-upgrade {' '.join(packages)} on {fold(others)}"
    if kind in ("kernel", "nvidia"):
        option, command = f"{option} -e rolling_reboot=true", f"{command}, and a reboot"
    if state == "not booted":
        option, command = " -e rolling_reboot=true", f"a reboot of {fold(others)}"
    if nodes:
        yield f"{ROLLING}{option}"
    if others:
        yield command


@dataclass(frozen=True)
class OldLists:
    """Hosts whose knowledge of updates is old."""

    hosts: str
    """A hostlist."""
    days: int | None
    """The age of the oldest lists; None for hosts without any."""


def old_lists(answers: Answers) -> list[OldLists]:
    """The hosts with old lists of packages, and those without any."""
    ages = {name: answer["lists_days"] for name, answer in answers.items() if "lists_days" in answer}
    old = {name: days for name, days in ages.items() if days is not None and days > OLD}
    without = [name for name, days in ages.items() if days is None]
    found = [OldLists(fold([*old]), max(old.values()))] if old else []
    return found + ([OldLists(fold(without), None)] if without else [])


def result(host: RunHost) -> dict[str, Any] | None:
    """The same as `pending`, which one process of a run computes for all."""
    found: dict[str, Any] | None = host.shared("pending_updates")
    return found


def report(host: RunHost) -> list[str]:
    """The findings in lines; none if nobody was asked."""
    found = result(host)
    if found is None:
        return []
    lines = [line for finding in found["findings"] for line in _describe(finding)]
    for lists in found["old_lists"]:
        age = "there are none" if lists["days"] is None else f"up to {lists['days']} days old"
        lines.append(f"apt's lists on {lists['hosts']}: {age}, so newer updates are unknown there (apt-get update)")
    if names := found["unanswered"]:
        lines.append(f"updates of {names}: unknown, since these hosts have faults or gave no answer")
    return lines or [NOTHING]


def _describe(finding: Mapping[str, Any]) -> list[str]:
    """The line of a finding, and what applies it."""
    more = f" and {finding['more_versions']} more" if finding["more_versions"] else ""
    what = "updates unknown" if finding["state"] == "none" else WORDS[finding["security"]]
    kept = {"pending": "", "none": ""}.get(finding["state"], f", {finding['state']}")
    line = f"{finding['kind']:<9} {what}{kept}: {', '.join(finding['versions'])}{more} on {finding['hosts']}"
    return [line, *(f"    apply   {way}" for way in finding["apply"])]
