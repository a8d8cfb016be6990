# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports of the servers that keys of the cluster file name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..language.hostlist import expand
from .keys import SERVERS, hosts_in
from .schema import VARIABLES

Ports = list[tuple[str, list[str], Any]]
"""The variable that sets a port, the hosts that listen on it, and the port; None: it is not known."""


def ports_of_servers(hosts: Mapping[str, str], variables: Mapping[str, Any]) -> Ports:
    """The ports of the keys that have one. hosts: hostlists, by key. variables: those of the roles, by name."""
    return [
        (key.port.variable, expand(hosts.get(key.name, "")), variables.get(key.port.variable))
        for key in SERVERS
        if key.port
    ]


def ports_in_variables(variables: Mapping[str, Any]) -> Ports:
    """The same by the shared variables, or the groups of keys without one."""
    found = {key.name: hosts_in(variables.get(VARIABLES[key.name]) or "") for key in SERVERS}
    return ports_of_servers(
        {key: hosts if isinstance(hosts, str) else ",".join(hosts) for key, hosts in found.items()}, variables
    )
