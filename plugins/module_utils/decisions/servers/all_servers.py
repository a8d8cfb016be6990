# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The servers of a cluster, for the tasks that their roles have in common and for the parts of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...cluster import keys
from ...formats.package_names import INSTALLED
from ..known.daemon_records import CleanupOptions, ServiceOptions
from ..known.packages import MANAGED
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from . import nginx, prometheus, registry, report_server, rest
from .server import NOTHING, ServerRole

SERVERS: Mapping[str, ServerRole] = {
    server.role: server
    for server in (prometheus.SERVER_ROLE, registry.SERVER_ROLE, report_server.SERVER_ROLE, rest.SERVER_ROLE)
}
"""By role. A package that several of them need is noted for the first one."""

KEYS = {role: key for key in keys.SERVERS for role in key.roles}
"""The key of each role."""


def objections(host: RunHost, role: str) -> list[str]:
    """Why the host cannot have a server."""
    return SERVERS[role].objections(host)


def is_served(host: RunHost, role: str) -> bool:
    """Whether a server runs on this host."""
    return SERVERS[role].is_served(host)


def directories(host: RunHost, role: str) -> list[dict[str, Any]]:
    """The directories that a server needs on this host."""
    return SERVERS[role].directories(host)


def certificate(host: RunHost, role: str) -> list[str]:
    """The command that makes the certificate of a server; empty where it needs none, or the site gives it."""
    return SERVERS[role].certificate(host)


def services(host: RunHost, role: str) -> list[str]:
    """The services of a server on this host, in the order of their start."""
    return list(SERVERS[role].services(host))


def service(host: RunHost, role: str, service: str) -> ServiceOptions:
    """How one of the services of a server runs on this host."""
    return SERVERS[role].services(host)[service]()


def ready_urls(host: RunHost, role: str) -> list[str]:
    """The pages of this host that answer when the services of a server work."""
    return SERVERS[role].ready_urls(host)


def removal(host: RunHost, role: str) -> CleanupOptions:
    """What the host loses of a server; nothing if it has nothing that it does not need."""
    return SERVERS[role].removal(host) if loses_something(host, role) else NOTHING


def loses_something(host: RunHost, role: str) -> bool:
    """Whether the host has something of a server that it does not need."""
    return bool(SERVERS[role].lost(host))


def has_work(host: RunHost, role: str) -> bool:
    """Whether a server runs on the host, or the host has something of it that it does not need."""
    return SERVERS[role].is_served(host) or loses_something(host, role)


def asked_files() -> list[str]:
    """Files by which a run sees what a host has of the servers."""
    return [*(path for server in SERVERS.values() for path in server.asked_files), nginx.RECORD]


def package_records(host: RunHost) -> list[HostFile]:
    """A file for each package that this run installs for a server alone, so that its removal removes the package."""
    known = [*host.facts["packages"]]
    found: list[HostFile] = []
    for role, server in SERVERS.items():
        wanted = server.packages(host)
        new = [name for name in server.brought(host) if name in wanted and name not in known]
        text = f"{MANAGED} Removed with the key {KEYS[role].name}.\n"
        found += [{"path": f"{INSTALLED}/{name}", "content": text} for name in new]
        known += wanted
    return [*found, *nginx.package_records(host)]
