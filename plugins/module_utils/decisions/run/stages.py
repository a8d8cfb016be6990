# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stages of site.yml that have work on a host, as far as its own answer tells.

The work of other stages follows from the answers of all hosts (comparison.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..daemons import host_packages, slurmctld
from ..host import storage
from ..known import image, site_database
from ..known.host_paths import CONF_DIR, NVIDIA_FILES, SLURMD_SETTINGS
from ..known.packages import installation
from ..known.run_host import RunHost
from ..known.whole_cluster import backup_hosts, is_controller, serves
from ..servers import all_servers, repair
from ..values import slurm_accounting
from . import preparation

POLICY = ("limits", "qos", "accounts", "users", "reservations")
"""Variables of the policy, behind slurm_accounting_."""


def needs_people(host: RunHost) -> bool:
    """The accounts of the host are not those of the plan."""
    return host.shared("people_digest") not in ("", host.facts["people"])


def needs_copied_packages(host: RunHost) -> bool:
    """Missing packages are files on the control host."""
    files = isinstance(host["slurm_packages"], dict) and "files" in host["slurm_packages"]
    return files and bool(installation(host, host_packages.wanted_packages(host)).copied)


def needs_node_files(host: RunHost) -> bool:
    """slurmd of the node was started by other hands, or was to be, and may read files of its own."""
    files, clusters = host.facts["files"], host.facts["clusters"]
    started = f"{CONF_DIR}/slurm.conf" in files or "slurmd" in clusters["daemons"] or bool(clusters["found"])
    return runs_jobs(host) and SLURMD_SETTINGS not in files and started


def needs_mig(host: RunHost) -> bool:
    """The node has MIG instances in the cluster file."""
    return host.name in host.shared("mig_hosts")


def needs_driver(host: RunHost) -> bool:
    """The node has NVIDIA GPUs, or settings of their driver."""
    measured = host.facts["nvidia_gpus"] > 0 and host.facts["container"] == "none" and not image.builds(host)
    has_gpus = bool(host.get("nvidia_driver_gpus")) or measured
    settings = ("nvidia_driver_kernel_modules", "nvidia_driver_module_options", "nvidia_driver_imex_nodes")
    return runs_jobs(host) and (
        (host.flag("nvidia_driver", "nvidia_driver_manage") and has_gpus)
        or any(path in host.facts["files"] for path in NVIDIA_FILES)
        or any(host.get(name) for name in settings)
    )


def needs_container_plugins(host: RunHost) -> bool:
    """Users of the host start jobs in containers, or run there."""
    return has_users(host) and bool(container_plugins(host))


def needs_container_plugins_everywhere(host: RunHost) -> bool:
    """The configuration of the controller names the plugins for all hosts."""
    return serves(host) and bool(container_plugins(host))


def needs_containers(host: RunHost) -> bool:
    """Users of the host have containers."""
    return has_users(host) and bool(host["slurm_containers"])


def needs_registry(host: RunHost) -> bool:
    """Users of the host pull images from a registry of the cluster."""
    return needs_containers(host) and bool(host["slurm_registry"])


def needs_storage(host: RunHost) -> bool:
    """The mounts of the host differ. A host that the storage has left still has its record."""
    plan = storage.own_plan(host)
    return host.facts["storage"] != plan.get("digest", "") and not plan.get("exports")


def needs_file_server(host: RunHost) -> bool:
    """The exports of the host differ."""
    return bool(storage.unfinished_plan(host).get("exports"))


def needs_firewall_rules(host: RunHost) -> bool:
    """The rules of the host differ. A host that had a firewall before still has its record."""
    plans = host.shared("firewall_digests")
    return bool(host.facts["firewall"] != plans.get(host.name, ""))


def needs_shared_state(host: RunHost) -> bool:
    """The host is one of several controllers, which have one state directory."""
    return is_controller(host) and len(host["slurm_controllers"]) > 1


def needs_policy(host: RunHost) -> bool:
    """The serving controller, of a cluster with a policy for accounting or a user for the collection's jobs.

    Without them, a check says whom a change of slurm.conf shuts out, such as by AccountingStorageEnforce.
    """
    given = any(host.get(f"slurm_accounting_{name}") for name in POLICY) or slurm_accounting.needs_own_user(host)
    asked = host.check_mode and bool(host["slurm_database"]) and slurmctld.configuration_changes(host)
    return serves(host) and (given or asked)


def runs_jobs(host: RunHost) -> bool:
    """Whether the host is a compute node."""
    return host.within("slurm_compute")


def has_users(host: RunHost) -> bool:
    """Whether users work on the host, in jobs or after a login."""
    return host.within("slurm_compute", "slurm_login")


def container_plugins(host: RunHost) -> list[str]:
    """The parts of containers that the configuration of Slurm names."""
    return [name for name in host["slurm_containers"] if name in ("enroot", "pyxis")]


STAGES: Mapping[str, Callable[[RunHost], bool]] = {
    "preparation": preparation.is_needed,
    "people": needs_people,
    "packages": preparation.wants_packages,
    "copied_packages": needs_copied_packages,
    "database_server": site_database.has_server,
    "node_files": needs_node_files,
    "mig": needs_mig,
    "driver": needs_driver,
    "container_plugins": needs_container_plugins,
    "containers": needs_containers,
    "registry": needs_registry,
    "storage": needs_storage,
    "file_server": needs_file_server,
    "backup": lambda host: host.name in backup_hosts(host),
    "repair": repair.is_used,
    "firewall": lambda host: host.facts["ufw"] is not None,
    "firewall_rules": needs_firewall_rules,
    "report": lambda host: all_servers.has_work(host, "slurm_report"),
    "rest": lambda host: all_servers.has_work(host, "slurmrestd"),
    "shared_state": needs_shared_state,
    "stopped_controller": slurmctld.was_controller,
}
"""By the name of the group: slurm_needs_NAME."""

STAGES_OF_CONTROLLER: Mapping[str, Callable[[RunHost], bool]] = {
    "container_plugins_everywhere": needs_container_plugins_everywhere,
    "policy": needs_policy,
}
"""Stages of the serving controller, which is known when all hosts have answered."""


def stages(host: RunHost) -> list[str]:
    """The stages with work on this host."""
    allowed = image.STAGES if image.builds(host) else STAGES
    return [name for name, needs in STAGES.items() if name in allowed and needs(host)]
