# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data that a cluster file and the shared variables have in common: checked together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..configuration import ports
from ..formats.directory_purposes import Use, directory_error, shared_uses, taken_directories, uses_of_slurm
from ..language.formatting import shown
from ..language.hostlist import expand
from . import (
    access_key,
    backup_key,
    firewall_plans,
    gres,
    job_scripts,
    keys,
    mail_key,
    monitoring_key,
    package_source,
    report_key,
    rest_key,
    schema,
    storage_key,
)
from .node_checks import (
    MeasuredHardware,
    check_hardware,
    check_hosts_of_nodes,
    check_labels,
    check_nodes,
    check_specialized,
    split_by_type,
)
from .partition_checks import check_gpu_defaults, check_members, check_partitions
from .policy_checks import check_accounting
from .schema import Checker
from .server_ports import ports_of_servers
from .setting_checks import (
    check_files,
    check_log_of_jobs,
    check_paths,
    check_plugstack,
    check_settings,
    check_state_location,
)


@dataclass(frozen=True)
class Parts:
    """The valid part of the data that a cluster file and the shared variables have in common."""

    servers: dict[str, str]
    """The hostlists of the keys that name servers, by key; empty for a key that is not there."""
    hardware: dict[str, dict[str, Any]]
    """Machine types by name, without those that were measured."""
    nodes: list[dict[str, Any]]
    node_hosts: list[str]
    partitions: list[dict[str, Any]]
    members: list[list[str]]
    """The hosts of each partition."""
    slurm_conf: dict[str, Any]
    cgroup_conf: dict[str, Any]
    slurm_files: dict[str, str]
    packages: Any
    access: dict[str, Any]
    backup: dict[str, Any]
    firewall: dict[str, Any]
    accounting: dict[str, Any]
    mail: dict[str, Any]
    monitoring: dict[str, Any]
    report: dict[str, Any]
    rest: dict[str, Any]
    prologs: list[dict[str, Any]]
    epilogs: list[dict[str, Any]]
    private_tmp: str
    profile: str
    defaults: int
    plugstack: list[dict[str, Any]]

    @property
    def server_hosts(self) -> list[str]:
        """The hosts of all keys that name servers; some may be there several times."""
        return [host for hosts in self.servers.values() for host in expand(hosts)]

    @property
    def controllers(self) -> list[str]:
        """The controllers, the primary one first."""
        return expand(self.servers["controllers"])


def check_parts(
    checker: Checker,
    file: dict[str, Any],
    measured: MeasuredHardware,
    scripts: Mapping[str, str | ValueError | None],
    has_accounting: bool,
) -> Parts:
    """Check all that follows from the keys of a cluster file.

    scripts: the texts of files that are scripts. has_accounting: whether the cluster has a slurmdbd.
    """
    hardware = check_hardware(checker, file.get("hardware", {}))
    all_hardware = {**hardware, **measured.hardware}
    nodes = check_nodes(checker, file.get("nodes", []), hardware)
    gres.check_cluster(checker, nodes, hardware)
    check_specialized(checker, nodes, measured.types, all_hardware)
    node_hosts = check_hosts_of_nodes(checker, nodes)
    slurm_conf = check_settings(checker, schema.SLURM_CONF, "slurm_conf", file.get("slurm_conf", {}))
    monitoring = monitoring_key.check(checker, file.get("monitoring"), slurm_conf)
    report = report_key.check(checker, file.get("report"))
    rest = rest_key.check(checker, file.get("rest"), slurm_conf)
    servers = {key.name: file.get(key.name, "") for key in keys.SERVERS}
    servers |= {"monitoring": keys.hosts_in(monitoring), "report": keys.hosts_in(report), "rest": keys.hosts_in(rest)}
    check_labels(checker, nodes, servers)
    gres.check_types(checker, slurm_conf, all_hardware)
    partitions = check_partitions(checker, file.get("partitions", []))
    entries = [part for node in nodes for part in split_by_type({"hosts": "", "hardware": "", **node}, measured.types)]
    members = check_members(checker, partitions, entries, all_hardware, slurm_conf)
    check_gpu_defaults(checker, partitions, members, entries, all_hardware)
    cgroup_conf = check_settings(checker, schema.CGROUP_CONF, "cgroup_conf", file.get("cgroup_conf", {}))
    packages = package_source.check(checker, file.get("packages", schema.PACKAGE_SOURCES[0]))
    slurm_files = check_files(checker, file.get("slurm_files", {}), slurm_conf)
    accounting = check_accounting(checker, file.get("accounting", {}), partitions, has_accounting)

    check_state_location(checker, slurm_conf, len(expand(servers["controllers"])))
    check_paths(checker, "cgroup_conf", cgroup_conf, {"CgroupMountpoint": "cgroups"})
    check_log_of_jobs(checker, slurm_conf)
    known = {
        "partitions": [partition["name"] for partition in partitions if "name" in partition],
        "hardware": [*all_hardware],
    }
    prologs, epilogs = (
        job_scripts.check(checker, key, file.get(key, []), known, slurm_conf, scripts) for key in job_scripts.STAGES
    )
    return Parts(
        servers=servers,
        hardware=hardware,
        nodes=nodes,
        node_hosts=node_hosts,
        partitions=partitions,
        members=members,
        slurm_conf=slurm_conf,
        cgroup_conf=cgroup_conf,
        slurm_files=slurm_files,
        packages=packages,
        access=access_key.check(checker, file.get("access", {}), slurm_conf),
        backup=backup_key.check(checker, file.get("backup", {})),
        firewall=firewall_plans.check(checker, file.get("firewall", {}), slurm_conf),
        accounting=accounting,
        mail=mail_key.check(checker, file.get("mail", {}), slurm_conf),
        monitoring=monitoring,
        report=report,
        rest=rest,
        prologs=prologs,
        epilogs=epilogs,
        private_tmp=job_scripts.check_private_tmp(checker, file.get("private_tmp"), slurm_conf, slurm_files),
        profile=file.get("profile", keys.PROFILES[0]),
        defaults=file.get("defaults", 1),
        plugstack=check_plugstack(checker, file.get("plugstack", [])),
    )


def check_uses(checker: Checker, parts: Parts, registry_dir: Any = None) -> list[Use]:
    """The directories of Slurm, private_tmp, the backup and the registry, which must have no files in common.

    Those with other mistakes, which have been named, are left out.
    """
    named = (
        Use("private_tmp", parts.private_tmp, "private_tmp", f"{checker.key('private_tmp')} of jobs"),
        Use("backup.target", parts.backup.get("target", ""), "backup", f"{checker.key('backup')}.target"),
        Use("registry_dir", str(registry_dir or ""), "registry", "registry_dir"),
    )
    right = [use for use in named if use.path.startswith("/") and not directory_error(use.path, use.purpose)]
    uses = [*uses_of_slurm(parts.slurm_conf), *right]
    for use, error in shared_uses(uses, not {*parts.controllers}.isdisjoint(parts.node_hosts)):
        checker.problem_of_new(use.key, f"found {shown(use.path)}, {error}")
    return uses


def check_homes(checker: Checker, key: str, found: Any, uses: Sequence[Use]) -> None:
    """Check that no home is with the files of others. found: the variable slurm_people, perhaps wrong."""
    others = taken_directories(uses)
    users = found.get("users") if isinstance(found, Mapping) and others else None
    for i, user in enumerate(users if isinstance(users, list) else []):
        home = user.get("home") if isinstance(user, Mapping) else None
        # Other mistakes in a home have been named.
        if not isinstance(home, str) or directory_error(home, "home"):
            continue
        if error := directory_error(home, "home", others):
            checker.problem(f"{key}[{i}].home", f"found {shown(home)}, {error}")


def check_ports(
    checker: Checker,
    parts: Parts,
    mounts: Iterable[Mapping[str, Any]],
    slurmdbd_conf: Mapping[str, Any] | None = None,
    variables: Mapping[str, Any] | None = None,
) -> None:
    """Check that no two programs of a host have one port, and that slurmctld asks the port of slurmdbd.

    slurmdbd_conf and the ports of servers among `variables` are no keys of the cluster file, for which they are None.
    """
    nodes = [
        (f"nodes[{i}].Port", expand(node.get("hosts", "")), node.get("Port")) for i, node in enumerate(parts.nodes)
    ]
    listeners = ports.declared_listeners(
        parts.controllers,
        parts.servers["database"],
        nodes,
        parts.slurm_conf,
        slurmdbd_conf,
        ports_of_servers(parts.servers, variables or {}),
        storage_key.file_servers(mounts),
        parts.firewall.get("ssh_port"),
        ports.monitoring_listeners(parts.monitoring),
    )
    problems = [
        *ports.impossible(listeners),
        *ports.collisions(listeners),
        *ports.different_database_ports(parts.servers["database"], parts.slurm_conf, slurmdbd_conf),
    ]
    for key, what in problems:
        checker.problem_of_new(key, what)
