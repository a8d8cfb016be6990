# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pending updates as doctor and validate report them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import updates
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import doctor, validate
from plain_host import GROUPS, PlainHost, cluster

MUNGE = {"installed": "0.5.16-1", "available": "0.5.16-1+deb13u1", "package": "munge"}


def update(kind: str, security: str = "yes", state: str = "pending", **more: Any) -> dict[str, Any]:
    """An entry of the answer of a host."""
    return {"kind": kind, "state": state, "security": security, "packages": 1, **MUNGE, **more}


def asked(
    updates_of: dict[str, list[dict[str, Any]]], days: dict[str, int | None] | None = None, **variables: Any
) -> PlainHost:
    """The controller after all hosts have answered, those without an entry with no update."""
    hosts: dict[str, PlainHost] = cluster(**variables)
    for name, host in hosts.items():
        answer = {"updates": updates_of.get(name, []), "security": [], "lists_days": (days or {}).get(name, 0)}
        host.set(__slurm_updates=answer)
    return hosts["head"]


def test_hosts_with_the_same_update_are_one_finding_and_security_comes_first() -> None:
    every = ("n1", "n2", "head")
    no = update("openssh", "no", package="openssh-server", installed="1:10.0p1-7", available="1:10.0p1-8")
    host = asked({name: [no, update("munge")] for name in every})
    assert updates.report(host) == [
        "munge     security update: 0.5.16-1 -> 0.5.16-1+deb13u1 on head,n[1-2]",
        "    apply   ansible-playbook gpucluster.slurm.rolling -e rolling_packages=security",
        "    apply   apt-get install --only-upgrade munge on head",
        "openssh   update, not for security: 1:10.0p1-7 -> 1:10.0p1-8 on head,n[1-2]",
        "    apply   ansible-playbook gpucluster.slurm.rolling -e '{rolling_packages: [openssh-server]}'",
        "    apply   apt-get install --only-upgrade openssh-server on head",
    ]


@pytest.mark.parametrize(
    ("found", "line", "ways"),
    [
        (
            update("slurm", state="held", package="slurmd", installed="24.11.5-4", available="24.11.5-4+deb13u1"),
            "slurm     security update, held: 24.11.5-4 -> 24.11.5-4+deb13u1 on n1",
            ["ansible-playbook gpucluster.slurm.upgrade"],
        ),
        (
            update("slurm", "unknown", "none", available="", installed="25.11.2-1", package="slurm-smd"),
            "slurm     updates unknown: 25.11.2-1 on n1",
            ["apt has nothing newer, and its source names no security updates: follow the announcements of its maker"],
        ),
        (
            update("apptainer", "unknown", package="apptainer"),
            "apptainer update, unknown whether for security: 0.5.16-1 -> 0.5.16-1+deb13u1 on n1",
            ["ansible-playbook gpucluster.slurm.rolling -e '{rolling_packages: [apptainer]}'"],
        ),
        (
            update("kernel", "yes", "not booted", installed="6.12.41+deb13-amd64", available="6.12.48+deb13-amd64"),
            "kernel    security update, not booted: 6.12.41+deb13-amd64 -> 6.12.48+deb13-amd64 on n1",
            ["ansible-playbook gpucluster.slurm.rolling -e rolling_reboot=true"],
        ),
        (
            update("nvidia"),
            "nvidia    security update: 0.5.16-1 -> 0.5.16-1+deb13u1 on n1",
            ["ansible-playbook gpucluster.slurm.rolling -e rolling_packages=security -e rolling_reboot=true"],
        ),
        (
            update("nvidia", state="pinned"),
            "nvidia    security update, pinned: 0.5.16-1 -> 0.5.16-1+deb13u1 on n1",
            ["ansible-playbook gpucluster.slurm.site --tags compute, with a newer nvidia_driver_version"],
        ),
        (
            update("munge", state="pinned"),
            "munge     security update, pinned: 0.5.16-1 -> 0.5.16-1+deb13u1 on n1",
            ["apt's preferences keep its version (apt-cache policy munge): change them"],
        ),
        (
            update("munge", state="held"),
            "munge     security update, held: 0.5.16-1 -> 0.5.16-1+deb13u1 on n1",
            ["dpkg holds it (apt-mark showhold): apt-mark unhold munge, then run this again"],
        ),
    ],
)
def test_each_state_says_what_applies_the_update(found: dict[str, Any], line: str, ways: list[str]) -> None:
    assert updates.report(asked({"n1": [found]})) == [line, *(f"    apply   {way}" for way in ways)]


def test_hosts_that_are_no_nodes_get_a_command_of_their_own() -> None:
    host = asked({"head": [update("kernel", package="linux-image-amd64"), update("kernel", state="not booted")]})
    assert [way for finding in (updates.result(host) or {})["findings"] for way in finding["apply"]] == [
        "a reboot of head",
        "apt-get install --only-upgrade linux-image-amd64 on head, and a reboot",
    ]


def test_the_output_does_not_grow_with_the_hosts() -> None:
    names = [f"n{number}" for number in range(1, 2001)]
    hosts: dict[str, PlainHost] = cluster(groups=GROUPS | {"slurm_cluster": names, "slurm_compute": names})
    n1, n2 = hosts["n1"], hosts["n2"]
    n1.hosts |= {name: n1 if number < 1000 else n2 for number, name in enumerate(names)}
    for version, host in enumerate((n1, n2)):
        answer = [update(kind, available=f"1.{version}") for kind in ("munge", "kernel", "slurm")]
        host.set(__slurm_updates={"updates": answer, "security": [], "lists_days": 9 * version})
    lines = updates.report(n1)
    assert lines[2] == "munge     security update: 0.5.16-1 -> 1.0, 0.5.16-1 -> 1.1 on n[1-2000]"
    assert (len(lines), sum(map(len, lines)) < 1000) == (7, True)


def test_many_versions_are_counted() -> None:
    hosts: dict[str, PlainHost] = cluster()
    for number, host in enumerate(hosts.values()):
        answer = [update("munge", available=f"1.{number}")]
        host.set(__slurm_updates={"updates": answer, "security": [], "lists_days": 0})
    (finding,) = (updates.result(hosts["head"]) or {})["findings"]
    assert (len(finding["versions"]), finding["more_versions"]) == (3, 1)
    assert updates.report(hosts["head"])[0].endswith("0.5.16-1 -> 1.2 and 1 more on head,login,n[1-2]")


def test_old_lists_and_hosts_without_an_answer_are_named() -> None:
    host = asked({}, {"n1": 34, "n2": 7, "login": None})
    assert updates.report(host) == [
        "apt's lists on n[1-2]: up to 34 days old, so newer updates are unknown there (apt-get update)",
        "apt's lists on login: there are none, so newer updates are unknown there (apt-get update)",
    ]
    assert updates.report(asked({}, {"n1": 2})) == [updates.NOTHING]
    host = asked({}, groups=GROUPS | {"slurm_needs_doctor": ["n2"]})
    host.of("n1").set(__slurm_updates={"failed": True, "msg": "apt-cache policy: E: Malformed entry"})
    host.of("n2").set(__slurm_updates=None)
    assert updates.report(host) == ["updates of n[1-2]: unknown, since these hosts have faults or gave no answer"]


def test_a_run_that_has_asked_nobody_says_nothing() -> None:
    """site.yml validates too, and asks no host for updates."""
    hosts: dict[str, PlainHost] = cluster()
    assert (updates.report(hosts["head"]), updates.result(hosts["head"])) == ([], None)
    for host in hosts.values():
        host.set(__slurm_updates={"skipped": True, "changed": False})
    assert (updates.report(hosts["head"]), updates.result(hosts["head"])) == ([], None)


def test_doctor_and_validate_report_updates_and_are_content_all_the_same() -> None:
    host = asked({"n1": [update("munge")]}, {"n2": 5})
    wanted = {
        "findings": [
            {
                "kind": "munge",
                "state": "pending",
                "security": "yes",
                "hosts": "n1",
                "versions": ["0.5.16-1 -> 0.5.16-1+deb13u1"],
                "more_versions": 0,
                "apply": ["ansible-playbook gpucluster.slurm.rolling -e rolling_packages=security"],
            }
        ],
        "old_lists": [{"hosts": "n2", "days": 5}],
        "unanswered": "",
    }
    host.set(__doctor_found={"ok": True, "answers": True, "findings": [], "table": []})
    assert doctor.result(host)["updates"] == wanted
    assert doctor.result(host)["ok"]
    assert doctor.report(host)[:2] == [
        "All nodes and daemons are well.",
        "munge     security update: 0.5.16-1 -> 0.5.16-1+deb13u1 on n1",
    ]
    host.set(__validate_run={"jobs": []}, validate_may_wait=["busy"])
    assert validate.result(host)["updates"] == wanted
    assert validate.table(host)[-1].startswith("apt's lists on n2: up to 5 days old")
