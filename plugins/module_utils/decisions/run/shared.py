# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is the same for all hosts of a cluster. A run computes each of these functions once (`RunHost.shared`)."""

from __future__ import annotations

import json
from typing import Any

from ...cluster.render import autodetect_hosts, mig_gres
from ..host import access, firewall, slurm_health, updates
from ..known import own_scripts
from ..known.host_directories import created_at_boot
from ..known.host_paths import JOB_DIR
from ..known.platform_tables import SOURCES
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.unchanged_hosts import digest
from ..known.whole_cluster import all_storage_plans, ip_addresses, profile, service_ids


def hosts_text(host: RunHost) -> str:
    """The cluster's part of /etc/hosts."""
    return host.text("base", "hosts.j2", addresses=ip_addresses(host))


def users_text(host: RunHost) -> str:
    """The users of services, and that of the collection's own jobs (sysusers.d(5))."""
    return host.text(
        "base",
        "sysusers.conf.j2",
        ids=service_ids(host),
        job_user=profile(host).job_user,
        job_dir=JOB_DIR,
    )


def directories_text(host: RunHost) -> str:
    """The directories that are created at each boot (tmpfiles.d(5))."""
    return host.text("base", "tmpfiles.conf.j2", directories=created_at_boot(host))


def digests(host: RunHost) -> dict[str, str]:
    """The checksums of these texts."""
    return {
        "hosts": digest(host.shared("hosts_text")),
        "users": digest(host.shared("users_text")),
        "directories": digest(host.shared("directories_text")),
    }


def people_plan(host: RunHost) -> str:
    """The plan of people, as JSON; empty if the collection does not create their accounts."""
    people = host["slurm_people"]
    return json.dumps(people) if people.get("source") == "list" else ""


def people_digest(host: RunHost) -> str:
    """The checksum of the plan of people; empty without one."""
    plan = host.shared("people_plan")
    return digest(plan) if plan else ""


def uses_directory(host: RunHost) -> bool:
    """Whether the hosts know the people from a directory."""
    return bool(host["slurm_people"].get("source") == "directory")


def policy_users(host: RunHost) -> list[str]:
    """Users of the policy who are not among the people, and so have to exist on hosts that Slurm asks for them."""
    controllers = host["slurm_controllers"]
    listed = host.of(controllers[0]).get("slurm_accounting_users") if controllers else None
    people = {user["name"] for user in host["slurm_people"].get("users", [])}
    names = [str(user.get("name") or "") for user in listed or []]
    return sorted(dict.fromkeys(name for name in names if name and name not in people), key=str.lower)


def storage_plans(host: RunHost) -> dict[str, Any]:
    """What each host does for the storage: the different `plans`, and the index of its plan for each of the `hosts`."""
    return all_storage_plans(host)


def plugin_hosts(host: RunHost) -> dict[str, list[str]]:
    """The hosts whose slurmd finds its GPUs with a plugin that has a package, by the method of AutoDetect."""
    methods = {method for source in SOURCES.values() for method in source.plugins}
    nodes, hardware = host["slurm_nodes"], host["slurm_hardware_types"]
    return {method: autodetect_hosts(nodes, hardware, method) for method in sorted(methods)}


def mig_hosts(host: RunHost) -> list[str]:
    """The nodes with MIG instances."""
    return list(mig_gres(host["slurm_nodes"], host["slurm_hardware_types"]))


def gres(host: RunHost) -> list[dict[str, Any]]:
    """The generic resources of all machine types."""
    return [entry for machine in host["slurm_hardware_types"].values() for entry in machine.get("gres") or []]


def autodetect(host: RunHost) -> list[str]:
    """The methods of AutoDetect that machine types have."""
    return list(dict.fromkeys(str(entry["autodetect"]) for entry in host.shared("gres") if "autodetect" in entry))


def device_files(host: RunHost) -> list[str]:
    """The device files of all machine types, which are few; a selection for each host would cost time for each host."""
    return list(dict.fromkeys(entry["file"] for entry in host.shared("gres") if "file" in entry))


def site_scripts(host: RunHost) -> dict[str, str]:
    """The scripts of the site that hosts run, by the names that messages have for them."""
    return own_scripts.site_scripts(host)


def firewall_plans(host: RunHost) -> dict[str, Any]:
    """The different plans of the firewall, and the index of its plan for each host."""
    return firewall.plans(host)


def firewall_digests(host: RunHost) -> dict[str, str]:
    """The checksum of the plan of each host that has a firewall."""
    plans = host.shared("firewall_plans")
    return {name: plans["plans"][index]["digest"] for name, index in plans["hosts"].items()}


def health_files(host: RunHost) -> list[HostFile]:
    """The health check and its files."""
    return slurm_health.files(host.of(next(iter(host.members("slurm_compute")), host.name)))


def health_environments(host: RunHost) -> dict[str, dict[str, str]]:
    """What the health checks know about each node of the cluster file."""
    return slurm_health.environments(host)


def health_digests(host: RunHost) -> dict[str, str]:
    """The checksums of the options of the health check, by host."""
    return slurm_health.digests(host)


def access_texts(host: RunHost) -> dict[str, str]:
    """The texts of the files that decide who logs in where. They have the keys of all hosts that have answered."""
    return access.texts(host)


def pending_updates(host: RunHost) -> dict[str, Any] | None:
    """The pending updates, after all hosts were asked."""
    return updates.pending(host)
