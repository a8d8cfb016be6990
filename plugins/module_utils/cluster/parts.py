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
from . import gres, keys, machines_key, schema, storage_key
from .access_key import AccessKey
from .backup_key import BackupKey
from .firewall_plans import FirewallKey
from .key_rules import RULES, OtherKeys
from .keys import ClusterKey
from .monitoring_key import MonitoringKey
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
from .repair_key import RepairKey, check_mail
from .schema import Checker, MachineType, NodeEntry, Partition, Raw, Settings
from .server_ports import ports_of_servers
from .setting_checks import check_log_of_jobs, check_paths, check_settings, check_state_location


@dataclass(frozen=True)
class Parts:
    """The valid part of the data that a cluster file and the shared variables have in common."""

    values: dict[str, Any]
    """The values of keys by name, without those of `model.py`. Fields have what other rules need of them."""
    servers: dict[str, str]
    """The hostlists of the keys that name servers, by key; empty for a key that is not there."""
    hardware: dict[str, MachineType]
    """Machine types by name, without those that were measured."""
    nodes: list[NodeEntry]
    node_hosts: list[str]
    partitions: list[Partition]
    members: list[list[str]]
    """The hosts of each partition."""
    slurm_conf: Settings
    access: AccessKey
    backup: BackupKey
    firewall: FirewallKey
    monitoring: MonitoringKey
    private_tmp: str
    repair: RepairKey

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
    file: Raw,
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
    partitions = check_partitions(checker, file.get("partitions", []))
    others = OtherKeys(
        slurm_conf,
        file.get("slurm_files", {}),
        partitions,
        all_hardware,
        scripts,
        has_accounting,
        file.get("database", ""),
    )
    values: dict[str, Any] = {
        key.name: _value(checker, key, file, others)
        for key in keys.KEYS
        if key.name in RULES or key.value not in keys.WITH_RULES
    }
    servers = {
        key.name: keys.hosts_in(values[key.name]) if key.name in RULES else file.get(key.name, "")
        for key in keys.SERVERS
    }
    check_labels(checker, nodes, servers)
    gres.check_types(checker, slurm_conf, all_hardware)
    entries = [part for node in nodes for part in split_by_type({"hosts": "", "hardware": "", **node}, measured.types)]
    members = check_members(checker, partitions, entries, all_hardware, slurm_conf)
    check_gpu_defaults(checker, partitions, members, entries, all_hardware)
    check_state_location(checker, slurm_conf, len(expand(servers["controllers"])))
    check_paths(checker, "cgroup_conf", values["cgroup_conf"], {"CgroupMountpoint": "cgroups"})
    check_log_of_jobs(checker, slurm_conf)
    check_mail(checker, values["repair"], values["mail"])
    machines_key.check_addresses(checker, values["machines"], node_hosts)
    return Parts(
        values=values,
        servers=servers,
        hardware=hardware,
        nodes=nodes,
        node_hosts=node_hosts,
        partitions=partitions,
        members=members,
        slurm_conf=slurm_conf,
        access=values["access"],
        backup=values["backup"],
        firewall=values["firewall"],
        monitoring=values["monitoring"],
        private_tmp=values["private_tmp"],
        repair=values["repair"],
    )


def _value(checker: Checker, key: ClusterKey, file: Mapping[str, Any], others: OtherKeys) -> object:
    """The checked value of a key, which is that of its variable."""
    if key.value in ("host", "hostlist"):
        hosts = file.get(key.name, "")
        return expand(hosts) if key.value == "hostlist" else hosts
    found = file.get(key.name, key.variable_default)
    return RULES[key.name](checker, found, others) if key.name in RULES else found


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
        [*ports.monitoring_listeners(parts.monitoring), *ports.repair_listeners(parts.repair, parts.controllers)],
    )
    problems = [
        *ports.impossible(listeners),
        *ports.collisions(listeners),
        *ports.different_database_ports(parts.servers["database"], parts.slurm_conf, slurmdbd_conf),
    ]
    for key, what in problems:
        checker.problem_of_new(key, what)
