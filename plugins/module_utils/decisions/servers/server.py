# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the servers of a cluster with a role of their own have in common (docs/design/servers.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..known.daemon_records import CleanupOptions, ServiceOptions
from ..known.platform_tables import DISTRIBUTION_PACKAGES
from ..known.run_host import RunHost

NOTHING = CleanupOptions(secrets=[], files=[], directories=[])
"""What a host loses that has nothing of a server, or needs it."""

Services = Mapping[str, Callable[[], ServiceOptions]]
"""How each service runs, by its name, in the order of their start."""


def nothing(_host: RunHost) -> list[Any]:
    """For what a server does not have."""
    return []


@dataclass(frozen=True)
class ServerRole:
    """A server: what differs from others."""

    role: str
    is_served: Callable[[RunHost], bool]
    """Whether it runs on the host."""
    services: Callable[[RunHost], Services]
    """The services on a host where it runs."""
    needed: Callable[[RunHost], list[str]] | None = None
    """The packages that the host needs for it, if they are not those of its role in `DISTRIBUTION_PACKAGES`."""
    errors: Callable[[RunHost], Iterable[str]] = nothing
    """What is wrong with the host, and with the files of the control host that the role's options name."""
    compared: Callable[[RunHost], Sequence[str]] | None = None
    """Those without which check mode has nothing to compare, if they are not all."""
    directories: Callable[[RunHost], list[dict[str, Any]]] = nothing
    """Directories that are there before the services start."""
    certificate: Callable[[RunHost], list[str]] = nothing
    """The command that makes the server's own certificate, where the site gives none."""
    ready_urls: Callable[[RunHost], list[str]] = nothing
    """Pages that answer when the services work."""
    brought: Callable[[RunHost], list[str]] = nothing
    """Those that go with the server if this collection has installed them."""
    asked_files: Sequence[str] = ()
    """Files by which a run sees what a host has of the server, also without its key."""
    useless: Callable[[RunHost], Sequence[str]] = nothing
    """Those of them that the host does not need."""
    removal: Callable[[RunHost], CleanupOptions] = lambda _host: NOTHING
    """What a host loses that has such files."""

    def objections(self, host: RunHost) -> list[str]:
        """Why the host cannot have the server."""
        return list(self.errors(host))

    def lost(self, host: RunHost) -> list[str]:
        """The files by which the host has something of the server that it does not need."""
        return [path for path in self.useless(host) if path in host.facts["files"]]

    def packages(self, host: RunHost) -> list[str]:
        """The packages that the host needs for the server."""
        return self.needed(host) if self.needed else [*DISTRIBUTION_PACKAGES[self.role]]
