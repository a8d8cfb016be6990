# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows from the variables of a cluster for all its hosts, for several roles."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...client.environment import ENVIRONMENT, KEPT
from ...cluster.keys import SERVERS, ClusterKey, hosts_in
from ...cluster.render import every_address
from ...cluster.schema import VARIABLES, ip_version
from ...cluster.storage_key import storage_plans
from . import registered
from .host_paths import LIB_DIR
from .platform_tables import SOURCES, PackageSource
from .run_host import RunHost

SRUN_PORTS = "60001-63000"
"""The ports on which srun listens. Without a range, a firewall between the hosts could not have a rule for them.

Firewalls open these ports in all generations, so that steps that run keep theirs when slurm.conf gets a smaller range.
"""

SLURMCTLD_PORT = "6817"

_ROLES: Mapping[str, tuple[str, ...]] = {
    "slurm_cluster": ("munge",),
    **{key.group: key.roles for key in SERVERS},
    "slurm_compute": ("slurmd",),
}
_FIRST = ("slurm_cluster", "slurm_database", "slurm_controller", "slurm_compute")
"""The groups with the first stages of site.yml."""

GROUP_ROLES = {group: _ROLES[group] for group in dict.fromkeys((*_FIRST, *_ROLES))}
"""The roles of site.yml for the hosts of each group, so that one call installs all packages of a host."""


ASKING = ["env", "-i", *(f"{name}={value}" for name, value in ENVIRONMENT.items())]
"""The words before a command that a task runs: a builtin module would give it each variable of the host."""

_KEPT = " ".join(f'${{{name}:+"{name}=${name}"}}' for name in KEPT)
ASKING_ARCHIVE = ["sh", "-c", f'exec {shlex.join(ASKING)} DEBIAN_FRONTEND=noninteractive {_KEPT} "$@"', "sh"]
"""The same words for apt-get: its command also has the variables that a site may need, such as those of a proxy."""


@dataclass(frozen=True)
class Profile:
    """What a profile changes (docs/admin/strict.md); its parameters of Slurm are in defaults.py."""

    job_user: str = "root"
    """Who submits the jobs by which the collection checks the cluster."""
    logs: str = "0755"
    """The mode of the directory of the logs. The file in which slurmctld lists all jobs is there, and slurmctld gives
    it the mode 0644 at each start (src/plugins/jobcomp/filetxt)."""


PROFILES: Mapping[str, Profile] = {
    "standard": Profile(),
    "strict": Profile(job_user="slurm-check", logs="0750"),
}


def hosts_of_key(host: RunHost, key: ClusterKey) -> list[str]:
    """The hosts that a key names: those of its variable, or else of its group."""
    if key.variable is None:
        return host.members(key.group)
    hosts = hosts_in(host[key.variable.name])
    return list(hosts) if isinstance(hosts, list) else [str(hosts)] * bool(hosts)


def port_variables(host: RunHost) -> dict[str, Any]:
    """The hosts of the keys that have a port, and the ports of the first of these hosts, by the names of variables."""
    found = {}
    for key in SERVERS:
        if key.port:
            (role, *_others), hosts = key.roles, hosts_of_key(host, key)
            found[VARIABLES[key.name]] = host[key.variable.name] if key.variable else hosts
            there = [name for name in hosts if name in host["groups"]["all"]]
            option = host.argument_options(role)[key.port.variable]
            found[key.port.variable] = (
                host.of(there[0]).option(role, key.port.variable) if there else option.get("default")
            )
    return found


def profile(host: RunHost) -> Profile:
    """The profile of the cluster."""
    return PROFILES[host["slurm_profile"]]


def slurm_user(host: RunHost) -> str:
    """The user of slurmctld, who owns its files.

    slurm_conf can name another one, as a cluster that was taken over has it; without the parameter, Slurm uses root.
    """
    conf = host["slurm_conf"]
    return str(conf["SlurmUser"] or "root") if "SlurmUser" in conf else "slurm"


def id_variables(host: RunHost) -> dict[str, str]:
    """The users that have the same id on every host, with the variables of these ids."""
    user = profile(host).job_user
    return {"slurm": "slurm_user_id", **({user: "slurm_job_user_id"} if user != "root" else {})}


def service_ids(host: RunHost) -> dict[str, int]:
    """The ids of the users that the run makes where they do not exist."""
    same = {user: int(host[variable]) for user, variable in id_variables(host).items()}
    return {"munge": int(host.option("base", "base_munge_user_id")), **same}


def state_directory(host: RunHost) -> str:
    """StateSaveLocation."""
    return str(host["slurm_conf"].get("StateSaveLocation", f"{LIB_DIR}/slurmctld"))


def state_mark(host: RunHost) -> str:
    """The file that slurmctld makes when it serves a cluster for the first time."""
    return f"{state_directory(host)}/clustername"


def is_controller(host: RunHost) -> bool:
    """Whether this host is one of the controllers."""
    return host.name in host["slurm_controllers"]


def serving_controller(host: RunHost) -> str:
    """The controller for all questions and changes.

    It is the serving one, if this run has found it, or else the primary. A role that is used alone, without a
    controller, asks the host itself.
    """
    found = registered.SLURM_RUN.seen(host).get("serving_controller")
    return str(found or [*host["slurm_controllers"], host.name][0])


def serves(host: RunHost) -> bool:
    """Whether this host is the serving controller."""
    return host.name == serving_controller(host)


def conf_servers(host: RunHost) -> list[str]:
    """Servers from which a daemon or client without its own configuration fetches it, as HOST:PORT.

    That is "configless" (slurm.conf(5), enable_configless). SlurmctldPort may be a range: the first port serves.
    """
    port = str(host["slurm_conf"].get("SlurmctldPort", SLURMCTLD_PORT)).partition("-")[0]
    return [f"{controller}:{port}" for controller in host["slurm_controllers"]]


def cluster_members(host: RunHost) -> dict[str, list[str]]:
    """The hosts that the names in `hosts` of an entry of slurm_storage stand for."""
    groups = host["groups"]
    return {
        "all": list(groups.get("slurm_cluster", groups["all"])),
        "login": host.members("slurm_login"),
        "compute": host.members("slurm_compute"),
        "controllers": list(host["slurm_controllers"]),
    }


def ip_addresses(host: RunHost, hosts: Iterable[str] | None = None) -> list[dict[str, str]]:
    """Each name of a host (`host`) with its IP address, in order; those of `hosts` alone if these are given."""
    found = every_address(host["slurm_addresses"], host["slurm_further_addresses"], hosts)
    return [entry for entry in found if ip_version(entry["address"])]


def all_storage_plans(host: RunHost) -> dict[str, Any]:
    """What each host does for the storage (cluster/storage_key.py)."""
    return storage_plans(
        host["slurm_storage"], cluster_members(host), host.get("slurm_people") or {}, host["slurm_addresses"]
    )


def scratch(host: RunHost) -> str:
    """The file system of jobs' temporary files among the storage; empty without one."""
    return next((str(entry["path"]) for entry in host["slurm_storage"] if entry.get("scratch")), "")


def tmp_fs(host: RunHost) -> str:
    """Slurm's TmpFS."""
    return str(host["slurm_conf"].get("TmpFS") or scratch(host) or "/tmp")


def backup_hosts(host: RunHost) -> list[str]:
    """The hosts that make backups: each of them saves what it holds."""
    hosts = [host["slurm_database"], *host["slurm_controllers"]] if host["slurm_backup"] else []
    return list(dict.fromkeys(host for host in hosts if host))


def submit_host(host: RunHost) -> str:
    """The host on which jobs are submitted: the first login host or controller that the run has reached."""
    hosts = [*host.members("slurm_login"), *host["slurm_controllers"]]
    reached = host["groups"].get("slurm_needs_validation") or hosts
    return str(next((name for name in hosts if name in reached), reached[0]))


def with_leaving(host: RunHost) -> RunHost:
    """The host by the whole cluster file, with the nodes that remove_nodes removes."""
    first = host.of(host.members("slurm_leaving")[0])
    groups = {**host["groups"], **first["slurm_groups_before"]}
    return host.extended(__slurm_case="_with_leaving", groups=groups, **first["slurm_variables_before"])


def source(host: RunHost) -> PackageSource:
    """Where Slurm's packages come from."""
    return SOURCES["distribution" if host["slurm_packages"] == "distribution" else "schedmd"]
