# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts whose firewall ufw is active: the ports of Slurm that it does not open, and the commands that open them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network
from itertools import groupby
from typing import Any

from ..configuration.ports import closed_ports, declared_listeners, monitoring_listeners, repair_listeners
from ..language.hostlist import expand, fold
from .render import every_address
from .server_ports import ports_in_variables
from .storage_key import file_servers


def networks(addresses: Iterable[str]) -> list[IPv4Network]:
    """The smallest network with all of these addresses, of each network of 16 bits. Names and IPv6 are left out."""
    found = [address for text in addresses if (address := _ipv4(text))]
    return [
        _enclosing(min(group), max(group))
        for _prefix, members in groupby(sorted(found), lambda address: int(address) >> 16)
        if (group := list(members))
    ]


def _ipv4(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text)
    except ValueError:
        return None


def _enclosing(first: IPv4Address, last: IPv4Address) -> IPv4Network:
    """The smallest network that has two addresses."""
    return IPv4Network((first, 32 - (int(first) ^ int(last)).bit_length()), strict=False)


def firewall_warning(opened: Mapping[str, Iterable[str] | None], variables: Mapping[str, Any]) -> str:
    """The warning about hosts with closed ports; empty if there are none.

    It is no error: ufw can have rules in other files, which are not read.

    Args:
        opened: of each host the ports that ufw opens; None: it is not active.
        variables: the shared variables by name, and the ports of servers.
    """
    active = {host: ports for host, ports in opened.items() if ports is not None}
    if not active:
        return ""
    listeners = declared_listeners(
        variables["slurm_controllers"],
        variables["slurm_database"],
        [("nodes", expand(node["hosts"]), node.get("Port")) for node in variables["slurm_nodes"]],
        variables["slurm_conf"],
        None,
        ports_in_variables(variables),
        file_servers(variables.get("slurm_storage") or []),
        monitoring=[
            *monitoring_listeners(variables.get("slurm_monitoring") or {}),
            *repair_listeners(variables.get("slurm_repair"), variables["slurm_controllers"]),
        ],
    )
    closed: dict[str, list[str]] = {}
    for host, ports in active.items():
        if missing := ",".join(closed_ports(listeners, host, ports)):
            closed.setdefault(missing, []).append(host)
    if not closed:
        return ""
    further = variables.get("slurm_further_addresses") or []
    own = networks(entry["address"] for entry in every_address(variables["slurm_addresses"], further))
    sources = [*map(str, own)] or ["NETWORK"]
    return "\n".join(
        [
            "The firewall ufw is active, and has no rule for these ports, on which other hosts of the cluster connect:",
            *(
                f"{fold(hosts)}: ufw allow proto tcp from {source} to any port {ports}"
                for ports, hosts in closed.items()
                for source in sources
            ),
            "Jobs of several nodes (MPI, NCCL) need all ports between compute nodes:",
            *(f"ufw allow from {source}" for source in sources),
        ]
    )
