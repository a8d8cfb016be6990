# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run asks each host: the options of the module slurm_host_facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...cluster.programs import programs
from ...controller.succession import SERIAL
from ..daemons import host_packages
from ..host import access, kernel, munge, nfs_server, storage, unattended_changes
from ..known import host_directories, image, registered
from ..known.host_paths import (
    APPTAINER_SOURCE,
    CONF_DIR,
    ENROOT_EPILOG,
    ENROOT_PROLOG,
    HEALTH_PROGRAM,
    KEPT_CONF,
    KEPT_LIST,
    KEPT_SLURMD,
    LOG_DIR,
    MAIL_PROGRAM,
    MARIADB_SOCKET,
    NVIDIA_FILES,
    PYXIS_PLUGIN,
    PYXIS_PREVIOUS_LINE,
    SLURMD_SETTINGS,
    UPGRADE_MARK,
)
from ..known.packages import downloaded_files, file_digests, source_files
from ..known.platform import has_files
from ..known.platform_tables import DISTRIBUTION_PACKAGES, PLUGINS_OF_PACKAGES, SOURCES
from ..known.run_host import RunHost
from ..known.whole_cluster import id_variables, is_controller, service_ids, source, state_directory, state_mark, tmp_fs
from ..servers import all_servers, prometheus
from . import preparation

RECORDS = [
    "munge",
    "mariadb",
    "slurmdbd",
    "slurmdbd_config",
    "slurmctld",
    "slurmctld_config",
    "slurmd",
    "slurm_health",
    "sackd",
]
"""What modules have recorded about their last work on a host (module_utils/host/applied_state.py)."""

OWN_PROGRAMS = [HEALTH_PROGRAM, ENROOT_PROLOG, ENROOT_EPILOG, MAIL_PROGRAM]
"""Programs of slurm.conf that the run installs itself."""


def questions(host: RunHost, update_lists: bool = False) -> dict[str, Any]:
    """All that the stages need to know about a host.

    Args:
        host: the host.
        update_lists: whether apt is to download its lists of packages first.
    """
    ids = service_ids(host)
    return role_questions(host) | {
        "packages": unique([*known_packages(host), *host_packages.own_packages(host), *unattended_changes.FILES]),
        "update_lists": update_lists,
        "users": preparation.service_users(host),
        "ids": {name: ids[name] for name in id_variables(host)},
        "policy_users": policy_users(host),
        "directory_users": directory_users(host),
        "directories": host_directories.directories(host),
        "free": written_directories(host),
        "files": [
            *files(host),
            preparation.USERS_FILE,
            preparation.DIRECTORIES_FILE,
            kernel.FILE,
            *(path for path, _text in unattended_changes.FILES.values()),
        ],
        "kernel": list(kernel.wanted_settings(host)),
        "mounts": storage.mount_units(host),
        "filesystems": nfs_server.filesystems(host),
        "applied": [*RECORDS, *prometheus.asked_records(host)],
        "programs": programs(host["slurm_conf"], host["group_names"], OWN_PROGRAMS, host.shared("site_scripts")),
        "scripts": host.shared("site_scripts") if is_controller(host) else {},
        "part": {"path": "/etc/hosts", "marker": preparation.hosts_marker(host)},
        "serving_controller": host.name in asked_controllers(host),
        "nodes": is_controller(host),
        "hardware": host.within("slurm_compute"),
        "slurmd_parameters": listed(host["slurm_conf"].get("SlurmdParameters")),
        "device_files": host.shared("device_files"),
        "tmp_fs": tmp_fs(host),
        **image.unasked(host),
    }


def role_questions(host: RunHost) -> dict[str, Any]:
    """What a role needs to know that is used without role base."""
    return {
        "packages": known_packages(host),
        "slurm_package": "" if has_files(host) else source(host).version,
        "state_directory": state_directory(host) if is_controller(host) else "",
        "hold": list(source(host).hold),
        "candidates": candidates(host),
        "files": files(host),
        "paths": [MARIADB_SOCKET] if host.name == host["slurm_database"] else [],
        "profiles": [name for name in host["slurm_containers"] if name in ("apptainer", "enroot")],
        "ssh": bool(host["slurm_access"]),
        "known_hosts": bool(host["slurm_access"]) and is_controller(host),
    }


def cluster_questions(host: RunHost) -> dict[str, Any]:
    """What a playbook needs to know that changes hosts without role base: whether they are those of the cluster."""
    return {"slurm_package": "", "state_directory": state_directory(host) if is_controller(host) else ""}


def new_host_questions(_host: RunHost) -> dict[str, Any]:
    """What a new cluster would need and meet on a host that has none.

    The paths are files of a cluster that is there. apt is not asked for Slurm: it may have no lists of packages, and
    nothing is changed.
    """
    return {
        "packages": ["munge"],
        "slurm_package": "",
        "free": ["/var/lib", "/var/log"],
        "paths": [
            "/etc/slurm/slurm.conf",
            "/etc/slurm-llnl/slurm.conf",
            "/var/lib/gpucluster-slurm/good/slurm.conf",
        ],
        "hardware": True,
    }


def unique(names: Iterable[str]) -> list[str]:
    """Each of them once, in their order."""
    return list(dict.fromkeys(names))


def listed(value: Any) -> list[str]:
    """A parameter of Slurm that may be a list."""
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def known_packages(host: RunHost) -> list[str]:
    """The packages of the tables. If role apptainer has added its repository, apt's candidate for it is from there."""
    own = source(host)
    purposes = [*own.packages.values(), *own.plugins.values(), *DISTRIBUTION_PACKAGES.values()]
    names = [name for purpose in purposes for name in purpose]
    return unique([*names, *PLUGINS_OF_PACKAGES, *(other.version for other in SOURCES.values())])


def candidates(host: RunHost) -> list[str]:
    """Packages of which the run has to know the version that apt offers."""
    names = ["apptainer"] if "apptainer" in host["slurm_containers"] else []
    return names + ([source(host).version] if registered.SLURM_UPGRADES.get(host) else [])


def files(host: RunHost) -> list[str]:
    """Files whose checksums several roles need."""
    paths = [APPTAINER_SOURCE, *file_digests(source_files(host), downloaded_files(host))]
    paths += NVIDIA_FILES if host.within("slurm_compute") else []
    paths += [PYXIS_PLUGIN, PYXIS_PREVIOUS_LINE] if "pyxis" in host["slurm_containers"] else []
    paths += [KEPT_CONF, KEPT_LIST, KEPT_SLURMD, SERIAL, state_mark(host)] if is_controller(host) else []
    paths += [munge.KEY] if is_controller(host) or registered.SLURM_ROTATES.get(host) else []
    rotates = registered.SLURM_ROTATES.get(host) and host.name == host["slurm_database"]
    paths += [f"{CONF_DIR}/slurmdbd.conf"] if rotates else []
    paths += [UPGRADE_MARK] if is_controller(host) or host.name == host["slurm_database"] else []
    paths += [SLURMD_SETTINGS, f"{CONF_DIR}/slurm.conf"] if host.within("slurm_compute") else []
    return [*paths, *access.compared_files(host), *all_servers.asked_files()]


def written_directories(host: RunHost) -> list[str]:
    """Directories in which a controller or the database must be able to write."""
    paths = [state_directory(host), LOG_DIR] if is_controller(host) else []
    if host.name == host["slurm_database"]:
        paths += [LOG_DIR] if host["slurm_database_server"] else ["/var/lib/mysql", LOG_DIR]
    return unique(paths)


def policy_users(host: RunHost) -> list[str]:
    """Users of the policy whom this host has to know.

    They have to exist where Slurm asks for them: on the controllers, on the hosts that they log in to, and on compute
    nodes. One compute node is asked, since the list of names costs time for each host.
    """
    asked = is_controller(host) or host.within("slurm_login") or host.name in host.members("slurm_compute")[:1]
    return host.shared("policy_users") if asked and not host.shared("uses_directory") else []


def directory_users(host: RunHost) -> list[str]:
    """Users of a directory, whom all hosts have to know by the same ids. Their answers are compared."""
    return host.shared("policy_users") if host.shared("uses_directory") else []


def asked_controllers(host: RunHost) -> list[str]:
    """The hosts that are asked which of several controllers serves.

    That is each controller, or another host if the run leaves them out.
    """
    if len(host["slurm_controllers"]) < 2:
        return []
    played = host.all_play_hosts
    return [name for name in host["slurm_controllers"] if name in played] or played[:1]
