# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of a host, by its roles and by the keys of the cluster file."""

from __future__ import annotations

from collections.abc import Sequence

from ...cluster import storage_key
from ..host import access, firewall
from ..known import image, packages
from ..known.platform import has_package, plugins, units_package
from ..known.platform_tables import DISTRIBUTION_PACKAGES
from ..known.run_host import RunHost
from ..known.whole_cluster import backup_hosts, is_controller, source
from ..servers import exporters, node_measuring, rest
from ..servers.all_servers import SERVERS
from ..values import machines
from .slurm_client import wants_sackd


def installation(host: RunHost, role: str) -> packages.Installation:
    """What is to be done so that a host has the packages that a role installs."""
    return packages.installation(host, installed_packages(host, role))


def installed_packages(host: RunHost, role: str) -> list[str]:
    """The packages that a role installs on a host. slurmd finds its GPUs by plugins."""
    if role in SERVERS:
        return SERVERS[role].packages(host)
    if role == "slurmd":
        return [*packages_of_role(host, role), *plugins(host)]
    by_key = {"access": access.packages, "base": wanted_packages, "firewall": firewall.packages}
    return by_key[role](host) if role in by_key else packages_of_role(host, role)


def packages_of_role(host: RunHost, role: str) -> list[str]:
    """The packages of one role; none of a role that has none in the tables."""
    if role == "mariadb" and host["slurm_database_server"]:
        return list(DISTRIBUTION_PACKAGES["mariadb_client"])
    if role in DISTRIBUTION_PACKAGES:
        return list(DISTRIBUTION_PACKAGES[role])
    names = list(source(host).packages.get(role, ()))
    if not names:
        return []
    if role == "slurm_client":
        return names + (list(source(host).packages["sackd"]) if wants_sackd(host) else [])
    return names + list(DISTRIBUTION_PACKAGES["logs"])


def lacks_package(host: RunHost, role: str) -> bool:
    """Whether check mode has nothing to compare of a role, since the host lacks its packages.

    The plans of slurmctld and slurmdbd need Slurm's commands as well.
    """
    return not has_package(host, *_compared_packages(host, role))


def _compared_packages(host: RunHost, role: str) -> Sequence[str]:
    if role == "slurm_client":
        return [units_package(host, "sackd")] if wants_sackd(host) else source(host).packages[role]
    if role == "slurmd":
        return [units_package(host, role)]
    if role in SERVERS:
        return (SERVERS[role].compared or SERVERS[role].packages)(host)
    own = {"nfs_server": [storage_key.SERVER]}
    return own.get(role) or DISTRIBUTION_PACKAGES.get(role) or source(host).packages[role]


def own_packages(host: RunHost) -> list[str]:
    """The packages that variables of role base name."""
    return [*host.option("base", "base_packages"), *host.option("base", "base_extra_packages")]


def wanted_packages(host: RunHost) -> list[str]:
    """All packages that the preparation installs."""
    backup = DISTRIBUTION_PACKAGES["backup"] if host.name in backup_hosts(host) else ()
    mail = DISTRIBUTION_PACKAGES["mail"] if host["slurm_mail"] and is_controller(host) else ()
    return [
        *own_packages(host),
        *time_packages(host),
        *plugins(host),
        *access.packages(host),
        *backup,
        *mail,
        *machines.packages(host),
        *firewall.packages(host),
        *exporters.packages(host),
        *rest.packages(host),
        *node_measuring.own_packages(host),
    ]


def wants_time(host: RunHost) -> bool:
    """Whether the clock of the host is to be synchronized.

    A container has the clock of its host. If another service synchronizes the clock, it stays as it is. In an image,
    which may be built in a container, none runs.
    """
    service, clocks = host.option("base", "base_time_service"), host.facts["clocks"]
    if image.builds(host):
        return service != "" and not clocks
    needed = service != "" and host.facts["container"] == "none"
    return needed and (not clocks or clocks.get(service, True) is False)


def time_packages(host: RunHost) -> list[str]:
    """The package of the time service, if the host lacks it."""
    missing = wants_time(host) and host.option("base", "base_time_service") not in host.facts["clocks"]
    return [host.option("base", "base_time_service")] if missing else []
