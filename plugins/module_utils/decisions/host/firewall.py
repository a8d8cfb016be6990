# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role firewall: the plan of each host, and what its module gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...cluster.firewall_plans import firewall_plans, names_to_resolve
from ..known.platform_tables import DISTRIBUTION_PACKAGES
from ..known.run_host import RunHost
from ..known.shipped_files import stripped_file
from ..known.whole_cluster import SRUN_PORTS, cluster_members, port_variables

RULES, UNIT = "rules.nft.j2", "firewall.service.j2"

CONNECTIONS = 100
"""Connections of one address, or of one user of the host, to a server. A worker of nginx has 768."""

FIRST_USER = 1000
"""The first id of people's accounts (UID_MIN in login.defs(5)); programs of the system have smaller ones."""


@dataclass(frozen=True)
class FirewallOptions:
    """Options of the module slurm_firewall. A host without a plan loses its rules."""

    rules: str
    unit: str
    digest: str
    ssh: list[str]
    ssh_port: int


def packages(host: RunHost) -> list[str]:
    """The packages that the host needs."""
    return list(DISTRIBUTION_PACKAGES["firewall"]) if has_rules(host) else []


def has_rules(host: RunHost) -> bool:
    """Whether the host has rules: with the key all hosts, otherwise those with servers of this collection."""
    return bool(host["slurm_firewall"]) or host.name in host.shared("firewall_plans")["hosts"]


def plans(host: RunHost) -> dict[str, Any]:
    """The different `plans` of rules, and the index of its plan for each of the `hosts` with rules.

    Raises:
        ValueError: a name has no IP address.
    """
    key, members, variables = host["slurm_firewall"], cluster_members(host), _variables(host)
    resolved = host.resolve(names_to_resolve(key, members, variables))
    return firewall_plans(key, members, variables, _layout(), resolved)


def plan(host: RunHost, plans: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of this host; empty if it has no rules."""
    if host.name not in plans["hosts"]:
        return {}
    found: dict[str, Any] = plans["plans"][plans["hosts"][host.name]]
    return found


def options(host: RunHost) -> FirewallOptions:
    """What the module slurm_firewall does on the host."""
    found = plan(host, host.shared("firewall_plans"))
    if not found:
        return FirewallOptions("", "", "", [], 0)
    return FirewallOptions(
        rules=host.text("firewall", RULES, plan=found, connections=CONNECTIONS, first_user=FIRST_USER),
        unit=host.text("firewall", UNIT),
        digest=found["digest"],
        ssh=found["ssh"],
        ssh_port=found["ssh_port"],
    )


def _variables(host: RunHost) -> dict[str, Any]:
    """The variables from which the ports of listeners follow. Those of a role are the variables of its host."""
    database = host["slurm_database"]
    shared = (
        "slurm_controllers",
        "slurm_database",
        "slurm_addresses",
        "slurm_further_addresses",
        "slurm_nodes",
        "slurm_storage",
        "slurm_monitoring",
        "slurm_report",
        "slurm_rest",
    )
    return {
        **{name: host[name] for name in shared},
        **port_variables(host),
        "slurm_conf": {"SrunPortRange": SRUN_PORTS, **host["slurm_conf"]},
        "slurmdbd_conf": host.of(database).get("slurmdbd_conf", {}) if database else {},
    }


def _layout() -> str:
    """The templates of the rules and of their unit: another template makes another table."""
    templates = (stripped_file("firewall", f"templates/{name}") for name in (RULES, UNIT))
    return " ".join([*templates, str(CONNECTIONS), str(FIRST_USER)])
