# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How role base prepares a host: users, directories, /etc/hosts, packages, the clock and settings of the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...facts import state_version
from ..daemons import host_packages
from ..host import kernel, unattended_changes
from ..known import host_directories, registered
from ..known.packages import Installation, installation
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.unchanged_hosts import digest
from ..known.whole_cluster import GROUP_ROLES, service_ids
from ..servers import all_servers

USERS_FILE = "/etc/sysusers.d/gpucluster-slurm.conf"
DIRECTORIES_FILE = "/etc/tmpfiles.d/gpucluster-slurm.conf"
SYSCTL = ["/usr/lib/systemd/systemd-sysctl", kernel.FILE]


def service_users(host: RunHost) -> list[str]:
    """The users of services, and that of the collection's own jobs."""
    return list(service_ids(host))


def hosts_marker(host: RunHost) -> str:
    """The marker of the cluster's part of /etc/hosts."""
    return f"# {{mark}} gpucluster.slurm {host['slurm_cluster_name']}"


def role_packages(host: RunHost) -> list[str]:
    """The packages of the roles of this host's groups. SchedMD's packages do not depend on logrotate."""
    names: list[str] = []
    for group, roles in GROUP_ROLES.items():
        for role in roles if host.within(group) else ():
            names += host_packages.packages_of_role(host, role)
    return list(dict.fromkeys(names))


def lacks_users(host: RunHost) -> bool:
    """Whether a user of a service is missing."""
    return len(host.facts["users"]) < len(service_users(host))


def wants_directories(host: RunHost) -> bool:
    """Whether users or directories are missing or different."""
    files, wanted = host.facts["files"], host.shared("digests")
    return (
        lacks_users(host)
        or bool(host.facts["directories"]["differ"])
        or files.get(USERS_FILE) != wanted["users"]
        or files.get(DIRECTORIES_FILE) != wanted["directories"]
    )


def wants_packages(host: RunHost) -> bool:
    """Whether packages are missing, or an installation was interrupted."""
    packages = host.facts["packages"]
    return host.facts["interrupted"] or any(name not in packages for name in host_packages.wanted_packages(host))


def wants_hold(host: RunHost, wanted: Installation) -> bool:
    """Whether a package of Slurm is not held, or the source of the packages is to be changed."""
    return bool(host.facts["unheld"]) or wanted.changed


def wants_hosts(host: RunHost) -> bool:
    """Whether the cluster's part of /etc/hosts is different."""
    return host.flag("base", "base_manage_hosts_file") and host.facts["part"] != host.shared("digests")["hosts"]


def wants_upkeep(host: RunHost) -> bool:
    """Whether a file of another program is missing or different."""
    return any(host.facts["files"].get(path) != digest(text) for path, text in unattended_changes.files(host).items())


def wants_version(host: RunHost) -> bool:
    """Whether the version of what the collection keeps on the host is to be written. A newer one stops the run."""
    return host.facts["state_version"] != state_version.VERSION


def wants_kernel(host: RunHost) -> bool:
    """Whether settings of the kernel are too small, or their file is different."""
    wanted = kernel.kernel(host)
    return bool(wanted.low) or (wanted.text != "" and host.facts["files"].get(kernel.FILE) != digest(wanted.text))


def is_needed(host: RunHost) -> bool:
    """Whether the host is to be prepared."""
    return (
        wants_directories(host)
        or wants_packages(host)
        or wants_hold(host, installation(host, host_packages.wanted_packages(host)))
        or wants_hosts(host)
        or host_packages.wants_time(host)
        or wants_upkeep(host)
        or wants_version(host)
        or wants_kernel(host)
    )


@dataclass(frozen=True)
class Preparation:
    """Options of the module slurm_packages."""

    files: list[HostFile]
    before: list[list[str]]
    """Makes the users before the packages, because the packages would make them with other ids."""
    directories: list[dict[str, Any]]
    stale: bool
    installation: Installation
    time_service: bool
    """Whether the time service is to be started."""


def preparation(host: RunHost) -> Preparation:
    """How this host is prepared."""
    # In check mode a package that is missing would have been installed before.
    would_be_installed = host.check_mode and bool(host_packages.time_packages(host))
    settings, wanted = kernel.kernel(host), installation(host, host_packages.wanted_packages(host))
    files: list[HostFile] = [
        {"path": USERS_FILE, "content": host.shared("users_text")},
        {"path": DIRECTORIES_FILE, "content": host.shared("directories_text")},
        {"path": state_version.FILE, "content": state_version.TEXT},
    ]
    if host.flag("base", "base_manage_hosts_file"):
        files.append({"path": "/etc/hosts", "marker": hosts_marker(host), "content": host.shared("hosts_text")})
    files += [*wanted.files, *all_servers.package_records(host)]
    files += [{"path": path, "content": text} for path, text in unattended_changes.files(host).items()]
    files += [{"path": kernel.FILE, "content": settings.text}] if settings.text else []
    return Preparation(
        files=files,
        before=[["systemd-sysusers", USERS_FILE], *([SYSCTL] if settings.text else [])],
        directories=host_directories.directories(host),
        stale=lacks_users(host) or wants_kernel(host),
        installation=wanted,
        time_service=host_packages.wants_time(host) and not would_be_installed,
    )


def held_versions(host: RunHost) -> list[str]:
    """The versions of the packages that this run has set on hold."""
    installed = registered.SLURM_INSTALLED.by_host(host, host.play_hosts).values()
    return list(dict.fromkeys(version for entry in installed for version in (entry.get("held") or {}).values()))
