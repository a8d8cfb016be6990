# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster file: checked as a whole, and resolved into groups and variables.

All problems of a file are reported at once, so that all can be corrected together.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from posixpath import normpath
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.policy import problems as policy_problems
from ansible_collections.gpucluster.slurm.plugins.module_utils.accounting.reservations import (
    ReservationError,
    check_name,
    differences,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import (
    access,
    backup,
    core_specialization,
    firewall_plans,
    gpu_defaults,
    gres,
    job_scripts,
    mail,
    package_source,
    people,
    privileges,
    schema,
    storage,
    storage_checks,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.machine_types import DETECTED, is_there
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.partitions import node_sets, resolver
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.programs import sent_scripts
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.role_values import value_problems
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import Checker, plain, unknown
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import ports
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import unreadable
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_values import LIMITS
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameters import SITE_FILES
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.spank import plugstack_lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.characters import one_line
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.directories import (
    OF_SLURM,
    OF_SLURMDBD,
    Use,
    directory_error,
    shared_uses,
    taken_directories,
    uses_of_slurm,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.formats.other import logrotate_path
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import MAX_HOSTS, count, expand, fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.texts import limited, short, shown


class ModelError(ValueError):
    """All problems of a cluster file, a line each: `FILE: KEY: found VALUE, allowed: VALUES`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(limited(problems)))
        self.problems = problems


@dataclass(frozen=True)
class Document:
    """The content of a YAML file."""

    file: str
    """Its name, for messages."""
    data: Any
    problems: list[tuple[str, str]] = field(default_factory=list)
    """Its problems as YAML, as (key, problem)."""


@dataclass(frozen=True)
class DeclaredCluster:
    """The content of a valid cluster file."""

    groups: dict[str, list[str]]
    """The hosts of each group of Ansible."""
    addresses: dict[str, str]
    """The address of each host that has one."""
    variables: dict[str, Any]
    """The shared variables (`docs/design/map.md`)."""


SLURM_GROUPS = ("slurm_controller", "slurm_database", "slurm_login", "slurm_registry", "slurm_compute")
"""The groups that every cluster has, children of `slurm_cluster`."""


def hardware_file(cluster_file: str) -> str:
    """The file with the measured hardware of a cluster file: `my.cluster.yml` -> `my.hardware.yml`, beside it."""
    return re.sub(r"cluster(\.ya?ml)$", r"hardware\1", cluster_file)


def group_names(prefix: str, names: Iterable[str]) -> dict[str, str]:
    """The groups of machine types or partitions by name; what Ansible does not allow in a name is an underscore.

    Where this makes two names equal, as `gpu_a` and `gpu-a`, the second gets one more underscore. A name in which
    nothing changes is always the first.
    """
    spelled = {name: re.sub(r"[^A-Za-z0-9_]", "_", f"{prefix}_{name}") for name in names}
    groups: dict[str, str] = {}
    for name in sorted(spelled, key=lambda name: spelled[name] != f"{prefix}_{name}"):
        group = spelled[name]
        while group in groups.values():
            group += "_"
        groups[name] = group
    return groups


def load(
    document: Document,
    measured: Document | None = None,
    beside: Mapping[str, Document | people.Table] | None = None,
    scripts: Mapping[str, str | ValueError | None] | None = None,
) -> DeclaredCluster:
    """Check and resolve a cluster file, the file of its measured hardware if there is one, and those of its people.

    beside: the files that `people.files` names. scripts: those that `job_scripts.files` names, or why one cannot be
    read. Raises ModelError with all problems of all files.
    """
    problems: list[str] = []
    checker = _checker(document, problems)
    if long := _too_long(document, measured, *(beside or {}).values()):
        raise ModelError(long)  # the rules would repeat it
    file = checker.check(schema.CLUSTER, "", document.data)
    if measured:
        measured_hardware, types = _measured(_checker(measured, problems), measured.data)
    else:
        measured_hardware, types = {}, {}

    contents: dict[str, tuple[Checker, Any]] = {
        name: (people.TableChecker(found, problems), found)
        if isinstance(found, people.Table)
        else (_checker(found, problems), found.data)
        for name, found in (beside or {}).items()
    }
    policy = file.get("accounting", {})
    listed = people.check(checker, _of_people(file), contents, policy)
    file["accounting"] = _with_people(checker, policy, listed.policy, has_accounting(file))
    parts = _parts(checker, file, measured_hardware, types, scripts or {})
    for name in sorted(set(parts.hardware) & set(measured_hardware)):
        checker.problem(f"hardware.{name}", f"is in {measured.file if measured else ''} too: give it another name")
    login = expand(file.get("login", ""))
    database, registry = file.get("database", ""), file.get("registry", "")
    hosts = dict.fromkeys([*parts.controllers, *expand(database), *login, *expand(registry), *parts.node_hosts])
    uses = _uses(checker, parts)
    mounts = _storage(checker, file, parts, hosts, login, uses)
    addresses = file.get("addresses", {}).items()
    addressed = _addressed(
        checker,
        parts.nodes,
        [(f"addresses.{hosts}", {"hosts": hosts, "address": address}) for hosts, address in addresses],
        hosts,
        "the hosts of controllers, database, login, registry and nodes",
        parts.slurm_conf,
    )
    _check_homes(checker, "users", listed.variable, uses)
    _check_ports(checker, parts, database, registry, None, None, mounts)  # those are no keys of the file
    access.check_hosts(checker, parts.access, addressed, [*login, *parts.node_hosts], login)
    firewall_plans.check_hosts(checker, parts.firewall, addressed, hosts, hosts)
    groups = _groups(parts, types)
    untouched = _untouched(checker, file.get("unmanaged", ""), parts)
    if problems:
        raise ModelError(problems)

    values = {
        "name": file["name"],
        "controllers": parts.controllers,
        "database": database,
        "registry": registry,
        "addresses": addressed,
        "hardware": {**parts.hardware, **measured_hardware},
        "nodes": [entry for node in parts.nodes for entry in _resolved(node, types)],
        "partitions": parts.partitions,
        "slurm_conf": parts.slurm_conf,
        "cgroup_conf": parts.cgroup_conf,
        "slurm_files": parts.slurm_files,
        "people": listed.variable,
        "packages": parts.packages,
        "storage": mounts,
        "access": parts.access,
        "backup": parts.backup,
        "mail": parts.mail,
        "prologs": parts.prologs,
        "epilogs": parts.epilogs,
        "private_tmp": parts.private_tmp,
        # Without the key, the variable is the site's own, which is in group_vars.
        **({"plugstack": parts.plugstack} if "plugstack" in file else {}),
        "profile": parts.profile,
        "firewall": parts.firewall,
        **{f"accounting.{key}": value for key, value in parts.accounting.items()},
    }
    return DeclaredCluster(
        groups={
            "slurm_controller": parts.controllers,
            "slurm_database": expand(database),
            "slurm_login": login,
            "slurm_registry": expand(registry),
            "slurm_compute": [host for host in parts.node_hosts if host not in untouched],
            **groups,
        },
        addresses={
            host: address
            for entry in addressed
            for host, address in zip(expand(entry["hosts"]), expand(entry["address"]))
        },
        variables={schema.VARIABLES[key]: value for key, value in values.items()},
    )


def model_errors(variables: Mapping[str, Any], hosts: Iterable[str]) -> list[str]:
    """The problems that the rules of the cluster file find in the shared variables, as `VARIABLE: found, allowed`.

    variables: those in `schema.VARIABLES`, by name; one that is missing or empty is a key that the file does not have.
    Also slurmdbd_conf and registry_port, whose ports are checked with those of the cluster file, registry_dir,
    slurm_user_id, and those of `privileges.NEEDING`.
    hosts: all hosts of the inventory, which may have addresses.
    """
    problems: list[str] = []
    checker, hosts = Checker("", problems), [*hosts]
    given = {key: plain(variables.get(name)) or None for key, name in schema.VARIABLES.items()}
    for key, what in schema.too_long(given):
        checker.problem(key, what)
    if problems:
        return limited(problems)
    policy = {key: given.pop(f"accounting.{key}") for key in schema.ACCOUNTING.own}
    addresses = given.pop("addresses") or []
    if not isinstance(addresses, list):
        checker.problem("addresses", f"found {shown(addresses)}, allowed: a list")
        addresses = []
    controllers = given["controllers"]
    if isinstance(controllers, list):
        given["controllers"] = ",".join(map(str, controllers))
    required = {"plugin": schema.PLUGIN, "nodes": given["nodes"] or [], "partitions": given["partitions"] or []}
    file = checker.check(
        schema.CLUSTER, "", {**given, **required, "accounting": {key: value for key, value in policy.items() if value}}
    )
    parts = _parts(checker, file, {}, {}, {})
    people.check_variable(checker, given["people"], policy["users"], variables.get("slurm_user_id"))
    addressed = _addressed(
        checker,
        parts.nodes,
        [(f"addresses[{i}]", entry) for i, entry in enumerate(addresses)],
        dict.fromkeys([*hosts, *parts.node_hosts]),
        "the hosts of the inventory and of slurm_nodes",
        parts.slurm_conf,
    )
    uses = _uses(checker, parts, variables.get("registry_dir"))
    mounts = _storage(checker, file, parts, dict.fromkeys([*hosts, *parts.node_hosts]), (), uses)
    _check_homes(checker, "people.users", given["people"], uses)
    secrets = variables.get("slurm_secrets_dir")
    if secrets and (error := directory_error(normpath(str(secrets)), "secrets")):
        checker.problem("slurm_secrets_dir", f"found {shown(secrets)}, {error}")
    slurmdbd_conf = variables.get("slurmdbd_conf")
    slurmdbd_conf = plain(slurmdbd_conf) if isinstance(slurmdbd_conf, Mapping) else {}
    _check_paths(checker, "slurmdbd_conf", slurmdbd_conf, OF_SLURMDBD)
    database, registry = file.get("database", ""), file.get("registry", "")
    _check_ports(checker, parts, database, registry, slurmdbd_conf, variables.get("registry_port"), mounts)
    access.check_hosts(checker, parts.access, addressed, parts.node_hosts, None)
    problems.extend(privileges.errors(variables))
    problems.extend(value_problems({name: variables.get(name) for name in ("slurm_job_user_id", "slurm_user_id")}))
    # The inventory may have hosts of others; the plans need the addresses of login hosts as well.
    known = [*parts.controllers, *expand(database), *expand(registry), *parts.node_hosts]
    firewall_plans.check_hosts(
        checker, parts.firewall, addressed, dict.fromkeys(known), dict.fromkeys([*hosts, *known])
    )
    return limited(problems)


@dataclass(frozen=True)
class _Parts:
    """The valid part of the data that a cluster file and the shared variables have in common."""

    controllers: list[str]
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
    prologs: list[dict[str, Any]]
    epilogs: list[dict[str, Any]]
    private_tmp: str
    profile: str
    plugstack: list[dict[str, Any]]


def _parts(
    checker: Checker,
    file: dict[str, Any],
    measured_hardware: dict[str, dict[str, Any]],
    types: dict[str, str],
    scripts: Mapping[str, str | ValueError | None],
) -> _Parts:
    """Check all that follows from the keys of a cluster file.

    types: the measured machine type of each host. scripts: the texts of files that are scripts.
    """
    hardware = _hardware(checker, file.get("hardware", {}))
    found = file.get("nodes", [])
    few_enough = _few_enough(checker, found)
    nodes = [checker.check(schema.NODE, f"nodes[{i}]", node) for i, node in enumerate(found if few_enough else [])]
    for i, node in enumerate(nodes):
        if node.get("hardware", DETECTED) not in {*hardware, DETECTED}:
            what = unknown("machine type", node["hardware"], hardware, ", ".join({**hardware, DETECTED: None}))
            checker.problem(f"nodes[{i}].hardware", f"found {shown(node['hardware'])}, {what}")
    gres.check_cluster(checker, nodes, hardware)
    _specialized(checker, nodes, types, {**hardware, **measured_hardware})
    node_hosts = _unique_hosts(checker, nodes)
    _own_labels(checker, nodes, file)
    slurm_conf = _settings(checker, schema.SLURM_CONF, "slurm_conf", file.get("slurm_conf", {}))
    gres.check_types(checker, slurm_conf, {**hardware, **measured_hardware})
    partitions = [
        checker.check(schema.PARTITION, f"partitions[{i}]", value) for i, value in enumerate(file.get("partitions", []))
    ]
    _names_and_default(checker, partitions)
    entries = [entry for node in nodes for entry in _resolved({"hosts": "", "hardware": "", **node}, types)]
    members = _members(checker, partitions, entries, {**hardware, **measured_hardware}, slurm_conf)
    _gpu_defaults(checker, partitions, members, entries, {**hardware, **measured_hardware})
    cgroup_conf = _settings(checker, schema.CGROUP_CONF, "cgroup_conf", file.get("cgroup_conf", {}))
    packages = package_source.check(checker, file.get("packages", schema.PACKAGE_SOURCES[0]))
    slurm_files = _files(checker, file.get("slurm_files", {}), slurm_conf)
    accounting = _accounting(checker, file.get("accounting", {}), partitions, has_accounting(file))

    controllers = expand(file.get("controllers", ""))
    check_state_location(checker, slurm_conf, len(controllers))
    _check_paths(checker, "cgroup_conf", cgroup_conf, {"CgroupMountpoint": "cgroups"})
    check_log_of_jobs(checker, slurm_conf)
    known = {
        "partitions": [partition["name"] for partition in partitions if "name" in partition],
        "hardware": [*hardware, *measured_hardware],
    }
    prologs, epilogs = (
        job_scripts.check(checker, key, file.get(key, []), known, slurm_conf, scripts) for key in job_scripts.STAGES
    )
    return _Parts(
        controllers,
        hardware,
        nodes,
        node_hosts,
        partitions,
        members,
        slurm_conf,
        cgroup_conf,
        slurm_files,
        packages,
        access.check(checker, file.get("access", {}), slurm_conf),
        backup.check(checker, file.get("backup", {})),
        firewall_plans.check(checker, file.get("firewall", {}), slurm_conf),
        accounting,
        mail.check(checker, file.get("mail", {}), slurm_conf),
        prologs,
        epilogs,
        job_scripts.check_private_tmp(checker, file.get("private_tmp"), slurm_conf, slurm_files),
        file.get("profile", schema.PROFILES[0]),
        _plugstack(checker, file.get("plugstack", [])),
    )


def _untouched(checker: Checker, unmanaged: str, parts: _Parts) -> set[str]:
    """The nodes that no play changes: those of the key `unmanaged`, and those that are not there."""
    named = expand(unmanaged)
    nodes = dict.fromkeys(parts.node_hosts)
    if strange := [host for host in named if host not in nodes]:
        what = unknown("node", strange[0], nodes, f"nodes of this file, {short(fold([*nodes]))}")
        checker.problem("unmanaged", f"found {shown(fold(strange))}, {what}")
    absent = [node for node in parts.nodes if not is_there(node)]
    return {*named, *(host for node in absent for host in expand(node.get("hosts", "")))}


def _storage(  # pylint: disable=too-many-positional-arguments
    checker: Checker,
    file: dict[str, Any],
    parts: _Parts,
    hosts: Collection[str],
    login: Collection[str],
    uses: Sequence[Use],
) -> list[dict[str, Any]]:
    """The checked storage.

    hosts: all hosts of the cluster. login: its login hosts, as far as they are known. uses: directories of others.
    """
    members = {"all": hosts, "login": login, "compute": parts.node_hosts, "controllers": parts.controllers}
    return storage_checks.check(checker, file.get("storage", []), members, parts.slurm_conf, uses)


def _check_ports(
    checker: Checker,
    parts: _Parts,
    database: str,
    registry: str,
    slurmdbd_conf: Mapping[str, Any] | None,
    registry_port: Any,
    mounts: Iterable[Mapping[str, Any]],
) -> None:
    """Check that no two programs of a host have one port, and that slurmctld asks the port of slurmdbd."""
    nodes = [
        (f"nodes[{i}].Port", expand(node.get("hosts", "")), node.get("Port")) for i, node in enumerate(parts.nodes)
    ]
    conf = parts.slurm_conf
    listeners = ports.declared_listeners(
        parts.controllers,
        database,
        registry,
        nodes,
        conf,
        slurmdbd_conf,
        registry_port,
        storage.file_servers(mounts),
        parts.firewall.get("ssh_port"),
    )
    found = [
        *ports.impossible(listeners),
        *ports.collisions(listeners),
        *ports.different_database_ports(database, conf, slurmdbd_conf),
    ]
    for key, what in found:
        checker.problem(key, what)


def _uses(checker: Checker, parts: _Parts, registry_dir: Any = None) -> list[Use]:
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
    for use, error in shared_uses(uses):
        checker.problem(use.key, f"found {shown(use.path)}, {error}")
    return uses


def _check_homes(checker: Checker, key: str, found: Any, uses: Sequence[Use]) -> None:
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


def _few_enough(checker: Checker, nodes: list[Any]) -> bool:
    """Whether a cluster has at most the nodes that Slurm allows. They are counted before all their names are made."""
    number = 0
    for node in nodes:
        if isinstance(node, Mapping) and isinstance(node.get("hosts"), str):
            with suppress(ValueError):  # the check of the entry names it
                number += count(node["hosts"])
    if number > MAX_HOSTS:
        checker.problem("nodes", f"found {number} hosts, allowed: up to {MAX_HOSTS}")
    return number <= MAX_HOSTS


def check_state_location(checker: Checker, slurm_conf: Mapping[str, Any], controllers: int) -> None:
    """Check StateSaveLocation, and the form of all paths that daemons write.

    Slurm's own StateSaveLocation is on the disk of each controller; controllers: how many there are.
    """
    path = slurm_conf.get("StateSaveLocation")
    if path is None and controllers > 1:
        what = "share their state, so name a directory that all of them mount"
        checker.problem("slurm_conf.StateSaveLocation", f"missing: {controllers} controllers {what}")
    _check_paths(checker, "slurm_conf", slurm_conf, OF_SLURM)


def _check_paths(checker: Checker, key: str, settings: Mapping[str, Any], purposes: Mapping[str, str]) -> None:
    """Check paths that daemons write. Slurm takes a relative one from wherever the daemon was started."""
    for name, purpose in purposes.items():
        path = settings.get(name)
        if _readable(path) and (error := directory_error(str(path), purpose)):
            checker.problem(f"{key}.{name}", f"found {shown(path)}, {error}")


def _readable(value: Any) -> bool:
    """Whether a file of Slurm can have a value, so that its meaning is to be checked. The rest has been named."""
    return value is not None and not isinstance(value, bool) and not unreadable(str(value))


def check_log_of_jobs(checker: Checker, slurm_conf: Mapping[str, Any]) -> None:
    """Check JobCompLoc, which logrotate reads as well where it is a file. Other plugins take a name or an address."""
    if not _readable(slurm_conf.get("JobCompLoc", "")):
        return
    path = str(slurm_conf.get("JobCompLoc", ""))
    is_file = str(slurm_conf.get("JobCompType", "")).endswith("filetxt")
    if is_file and (error := directory_error(path, "log")):
        checker.problem("slurm_conf.JobCompLoc", f"found {shown(path)}, {error}")
    elif path.startswith("/"):
        try:
            logrotate_path(path)
        except ValueError as error:
            checker.problem("slurm_conf.JobCompLoc", str(error))


def _checker(document: Document, problems: list[str]) -> Checker:
    """A checker of a document, which already has its problems as YAML."""
    checker = Checker(document.file, problems)
    for key, what in document.problems:
        checker.problem(key, what)
    return checker


def _too_long(*documents: Document | people.Table | None) -> list[str]:
    """The keys and texts that are too long, as messages. A table has types for all of its values."""
    problems: list[str] = []
    for document in documents:
        if isinstance(document, Document):
            for key, what in schema.too_long(document.data):
                Checker(document.file, problems).problem(key, what)
    return problems


def _hardware(checker: Checker, found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The machine types by name."""
    hardware = {}
    for name, value in found.items():
        key = f"hardware.{name}"
        machine = checker.check(schema.HARDWARE, key, value)
        if name == DETECTED:
            checker.problem(key, f"'{DETECTED}' stands for hardware that is measured, choose another name")
        try:
            schema.name(name)
        except ValueError as error:
            checker.problem(key, f"found {shown(name)}, {error}")
        sockets, boards = machine.get("sockets", 0), machine.get("boards", 1)
        if sockets % boards:
            checker.problem(f"{key}.sockets", f"found {sockets}, allowed: a multiple of boards, {boards}")
        cores = sockets * machine.get("cores_per_socket", 1)
        cpus = cores * machine.get("threads_per_core", 1)
        if machine.get("cpus", cpus) not in (sockets, cores, cpus):  # else Slurm corrects it (`_parse_nodename`)
            allowed = ", ".join(map(str, sorted({sockets, cores, cpus})))
            checker.problem(f"{key}.cpus", f"found {machine['cpus']}, allowed: {allowed}")
        if cpus > LIMITS["u16"]:  # slurm_conf_node_t in read_config.h
            checker.problem(key, f"found {cpus} CPUs, allowed: up to {LIMITS['u16']}")
        if "gres" in machine:
            machine["gres"] = gres.check_machine(checker, f"{key}.gres", machine)
        gres.check_own(checker, key, machine)
        hardware[str(name)] = machine
    return hardware


def machine_problems(machine: dict[str, Any], node: dict[str, Any]) -> list[str]:
    """What the cluster file would say of a measured machine type with a node entry; empty if all is right."""
    problems: list[str] = []
    checker = Checker("it", problems)
    name = "measured"
    _hardware(checker, {name: machine})
    _specialized(checker, [{**node, "hardware": name}], {}, {name: machine})
    return problems


def _measured(checker: Checker, found: Any) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The machine types that were measured, and the type of each host."""
    file = checker.check(schema.DETECTED_FILE, "", found)
    hardware = _hardware(checker, file.get("hardware", {}))
    nodes = [checker.check(schema.DETECTED_NODE, f"nodes[{i}]", node) for i, node in enumerate(file.get("nodes", []))]
    _unique_hosts(checker, nodes)
    types: dict[str, str] = {}
    for i, node in enumerate(nodes):
        name = node.get("hardware")
        if name is not None and name not in hardware:
            what = unknown("machine type", name, hardware, ", ".join(hardware))
            checker.problem(f"nodes[{i}].hardware", f"found {shown(name)}, {what}")
        types.update(dict.fromkeys(expand(node.get("hosts", "")), str(name)))
    return hardware, types


def _specialized(
    checker: Checker,
    nodes: list[dict[str, Any]],
    types: dict[str, str],
    hardware: dict[str, dict[str, Any]],
) -> None:
    """Check the cores and memory that nodes set aside for the system, on each of their machine types."""
    for i, node in enumerate(nodes):
        hosts = expand(node.get("hosts", ""))
        names = {types.get(host) for host in hosts} if node.get("hardware") == DETECTED else {node.get("hardware")}
        machines = [hardware[str(name)] for name in sorted(map(str, names)) if name in hardware]
        found = [
            problem
            for machine in machines
            if schema.HARDWARE.required <= machine.keys()  # else it has a problem of its own
            for problem in core_specialization.problems(node, machine)
        ]
        for key, what in dict.fromkeys(found):
            checker.problem(f"nodes[{i}].{key}", what)


def _unique_hosts(checker: Checker, nodes: list[dict[str, Any]]) -> list[str]:
    """The hosts of all nodes, in order. A host must not be in two entries."""
    entry: dict[str, int] = {}
    for i, node in enumerate(nodes):
        hosts = expand(node.get("hosts", ""))
        again = [host for host in hosts if host in entry]
        for j in dict.fromkeys(entry[host] for host in again):
            twice = short(fold([host for host in again if entry[host] == j]))
            checker.problem(f"nodes[{i}].hosts", f"{twice} is defined twice, first in {checker.key(f'nodes[{j}]')}")
        entry.update((host, i) for host in hosts if host not in entry)
    return list(entry)


def _own_labels(checker: Checker, nodes: list[dict[str, Any]], file: dict[str, Any]) -> None:
    """Check that no two hosts have the same first label, the part of a name before its first dot.

    srun, salloc and scontrol name their host by this label (`xshort_hostname`), and slurmctld sends its messages for an
    srun to the address of the label. srun ends its step at the message that a step is complete, whichever step that is
    (`_job_complete_handler` in `src/api/step_launch.c`). slurmd tries the label before the whole name.
    """
    places = [(f"nodes[{i}].hosts", node.get("hosts", "")) for i, node in enumerate(nodes)]
    places += [(key, file.get(key, "")) for key in ("controllers", "database", "login", "registry")]
    first: dict[str, str] = {}
    for key, hosts in places:
        for host in expand(hosts):
            label, _dot, rest = host.partition(".")
            other = first.setdefault(label, host)
            if other != host:
                names = " and ".join(map(shown, (other, host)))
                why = f"Slurm calls both hosts {shown(label)}, the part before the first dot"
                example = f", such as {rest}" if label not in (host, other) else ""
                checker.problem(key, f"found {names}, {why}, allowed: host names that differ before it{example}")
                break


def _names_and_default(checker: Checker, partitions: list[dict[str, Any]]) -> None:
    """Check that each partition has a name of its own, and that one is the default."""
    names: dict[str, int] = {}
    default: int | None = None
    for i, partition in enumerate(partitions):
        key = f"partitions[{i}]"
        first = names.setdefault(partition.get("name", ""), i)
        if first != i and "name" in partition:
            first_one = checker.key(f"partitions[{first}]")
            checker.problem(f"{key}.name", f"'{partition['name']}' is defined twice, first in {first_one}")
        if partition.get("default"):
            if default is not None:
                first_one = checker.key(f"partitions[{default}]")
                checker.problem(f"{key}.default", f"{first_one} is the default already, allowed: one")
            default = i if default is None else default


def _members(
    checker: Checker,
    partitions: list[dict[str, Any]],
    nodes: list[dict[str, Any]],
    hardware: dict[str, dict[str, Any]],
    slurm_conf: dict[str, Any],
) -> list[list[str]]:
    """The hosts of each partition. Unknown names are a problem, unless an entry of the nodes has lost its hosts."""
    node_hosts = dict.fromkeys(host for node in nodes for host in expand(node["hosts"]))
    resolve, sets = resolver(nodes, hardware, slurm_conf), [node_set.name for node_set in node_sets(slurm_conf)]
    result = []
    for i, partition in enumerate(partitions):
        try:
            names = resolve(partition.get("nodes", ""))
        except ValueError as error:  # of a node set
            checker.problem("slurm_conf.NodeSet", str(error))
            names = []
        strange = [name for name in names if name not in node_hosts]
        if strange and all(node["hosts"] for node in nodes):
            allowed = ", ".join(filter(None, ["ALL", *sets, short(fold([*node_hosts]))]))
            what = unknown("node", strange[0], [*node_hosts, *sets], allowed)
            checker.problem(f"partitions[{i}].nodes", f"found {shown(fold(strange))}, {what}")
        result.append([name for name in names if name in node_hosts])
    return result


def _gpu_defaults(
    checker: Checker,
    partitions: list[dict[str, Any]],
    members: list[list[str]],
    nodes: list[dict[str, Any]],
    hardware: dict[str, dict[str, Any]],
) -> None:
    """Check that a partition with `auto` has GPUs. Hardware that is not measured yet, or wrong, may have them."""
    without = {
        host
        for node in nodes
        if node["hardware"] in hardware and not gpu_defaults.gpus_of(hardware[node["hardware"]])
        for host in expand(node["hosts"])
    }
    for i, (partition, hosts) in enumerate(zip(partitions, members)):
        if without.issuperset(hosts):
            for key in gpu_defaults.automatic(partition):
                checker.problem(f"partitions[{i}].{key}", f"found {schema.AUTO}, {gpu_defaults.WITHOUT_GPUS}")


def _settings(checker: Checker, kind: schema.Kind, key: str, found: dict[str, Any]) -> dict[str, Any]:
    """Slurm's parameters as they were given. None is kept, since it removes a parameter that the collection sets."""
    checker.check(kind, key, found)
    for name in found:
        # The validator does not see a key without a value.
        if found[name] is None and name not in kind.spec:
            checker.check(kind, key, {name: ""})
    return found


def _files(checker: Checker, found: dict[str, Any], slurm_conf: Mapping[str, Any]) -> dict[str, str]:
    """Files beside slurm.conf: those that Slurm finds by their names, and a Prolog or Epilog without a path."""
    scripts = sent_scripts(slurm_conf)
    known = [*SITE_FILES, *scripts]
    for name, text in found.items():
        key = f"slurm_files.{name}"
        if name in schema.OWN_FILES:
            checker.problem(key, f"is derived from {checker.key(schema.OWN_FILES[name])}: set that")
        elif name not in known:
            others = "scripts that Prolog and Epilog of slurm_conf name without a path"
            checker.problem(key, unknown("file", str(name), known, f"{', '.join(SITE_FILES)}, {others}"))
        elif not isinstance(text, str):
            checker.problem(key, f"found {shown(text)}, allowed: the text of the file")
        elif name in scripts:
            try:
                job_scripts.script(text)
            except ValueError as error:
                checker.problem(key, str(error))
        elif "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            checker.problem(key, f"line {line}: found a NUL, where Slurm ends the text, allowed: a text without it")
    return found


def _plugstack(checker: Checker, found: list[Any]) -> list[dict[str, Any]]:
    """The SPANK plugins."""
    entries = [checker.check(schema.PLUGSTACK, f"plugstack[{i}]", entry) for i, entry in enumerate(found)]
    try:
        for entry in entries:
            for word in (entry.get("plugin", ""), *entry.get("arguments", ())):
                one_line(word)
        plugstack_lines(entry for entry in entries if "plugin" in entry)
    except ValueError as error:
        checker.problem("plugstack", str(error))
    return entries


def _accounting(
    checker: Checker, found: dict[str, Any], partitions: list[dict[str, Any]], database: bool
) -> dict[str, Any]:
    """The policy for accounting."""
    policy = checker.check(schema.ACCOUNTING, "accounting", found)
    parameters = {str(partition.get("name")): partition.items() for partition in partitions}
    for what in policy_problems(policy, policy.get("purge", False), parameters):
        checker.problem("accounting", what)
    for i, reservation in enumerate(policy.get("reservations", [])):
        _reservation(checker, f"accounting.reservations[{i}]", reservation)
    if policy and not database:
        checker.problem("accounting", "needs a database")
    return policy


def has_accounting(file: Mapping[str, Any]) -> bool:
    """Whether the cluster has a slurmdbd: one of this file, or another one that slurm.conf names."""
    given = file.get("slurm_conf")
    storage_type = given.get("AccountingStorageType") if isinstance(given, Mapping) else None
    return "database" in file or str(storage_type).lower().endswith("slurmdbd")


def _of_people(file: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a cluster file for its people. A mapping of groups is Ansible's own key for groups of hosts."""
    keys = {key: file[key] for key in ("people", "users", "groups") if key in file}
    return {key: value for key, value in keys.items() if key != "groups" or isinstance(value, list)}


def _with_people(
    checker: Checker, policy: dict[str, Any], users: list[dict[str, Any]], database: bool
) -> dict[str, Any]:
    """The policy for accounting with the users that follow from the people."""
    if users and not database:
        checker.problem("users", "found users with an account, which needs a database")
        return policy
    own = [] if policy.get("users") is None else policy["users"]
    return {**policy, "users": [*own, *users]} if users and isinstance(own, list) else policy


def _reservation(checker: Checker, key: str, found: Any) -> None:
    """A reservation: its name, and parameters that Slurm knows."""
    if not isinstance(found, Mapping) or found.get("name") in (None, ""):
        checker.problem(key, "allowed: a mapping with name and parameters of a reservation")
        return
    try:
        check_name(found["name"])
        differences({name: value for name, value in found.items() if name not in ("name", "state")}, None)
    except ReservationError as error:
        for line in str(error).split("\n"):
            checker.problem(key, line)


def _addressed(
    checker: Checker,
    nodes: list[dict[str, Any]],
    others: list[tuple[str, Any]],
    known: Collection[str],
    allowed: str,
    slurm_conf: Mapping[str, Any],
) -> list[dict[str, str]]:
    """All hosts with an address, as `{hosts: HOSTLIST, address: HOSTLIST}`.

    others: such entries besides those of the nodes, each with its key; they may repeat an address. known: all hosts
    that may have an address, which are `allowed` in words.
    """
    entries = [(f"nodes[{i}].address", node) for i, node in enumerate(nodes) if "hosts" in node and "address" in node]
    entries += [(key, checker.check(_ADDRESSES, key, entry)) for key, entry in others]
    host_of: dict[str, str] = {}
    address_of: dict[str, str] = {}
    with_ports = {host for node in nodes if "Port" in node for host in expand(node.get("hosts", ""))}
    addressed = []
    versions, wrong_version = _unused_versions(checker, slurm_conf), False
    for key, entry in entries:
        hosts, addresses = expand(entry.get("hosts", "")), expand(entry.get("address", ""))
        if len(hosts) != len(addresses):
            checker.problem(key, f"found {len(addresses)} for {len(hosts)} hosts, allowed: one address for each host")
        new = {*hosts} - {*address_of}
        # One message for all hosts with the same mistake: a wrong letter may be that of thousands.
        pairs = list(zip(hosts, addresses))
        strange = [host for host, _address in pairs if host not in known]
        again = [host for host, address in pairs if address_of.setdefault(host, address) != address]
        # Several slurmd of a host have one address, and ports of their own.
        taken = [
            address
            for host, address in pairs
            if host_of.setdefault(address, host) != host and not {host, host_of[address]} <= with_ports
        ]
        if strange:
            checker.problem(key, f"found {shown(fold(strange))}, {unknown('host', strange[0], known, allowed)}")
        if again:
            theirs = short(fold([address_of[host] for host in again]))
            what = "has an address" if len(again) == 1 else "have addresses"
            checker.problem(key, f"{short(fold(again))} {what} already, {theirs}")
        if taken:
            theirs = short(fold([host_of[address] for address in taken]))
            what = "is the address" if len(taken) == 1 else "are the addresses"
            checker.problem(key, f"{short(fold(taken))} {what} of {theirs} already")
        for address in addresses:
            wrong = versions.get(schema.ip_version(address))
            if wrong and not wrong_version:
                wrong_version = True
                checker.problem(key, f"found '{address}', {wrong}")
        if new:
            addressed.append({"hosts": entry.get("hosts", ""), "address": entry.get("address", "")})
    return addressed


def _unused_versions(checker: Checker, slurm_conf: Mapping[str, Any]) -> dict[int | None, str]:
    """The versions of IP that Slurm does not use, with the problem of an address of that version.

    It uses IPv4 unless CommunicationParameters has DisableIPv4, and IPv6 only with EnableIPv6 (`xgetaddrinfo` in
    `src/common/util-net.c`), anywhere in the value. Role slurmdbd gives both words to slurmdbd, too.
    """
    key = checker.key("slurm_conf") + ".CommunicationParameters"
    words = str(slurm_conf.get("CommunicationParameters") or "").lower()
    unused: dict[int | None, str] = {}
    if "disableipv4" in words:
        unused[4] = f"an IPv4 address, allowed: IPv6 addresses, since {key} has DisableIPv4"
    if "enableipv6" not in words:
        unused[6] = f"an IPv6 address, allowed: IPv4 addresses, or EnableIPv6 in {key}"
    return unused


_ADDRESSES = schema.Kind(own={key: {**schema.NODE.own[key], "required": True} for key in ("hosts", "address")})


def _groups(parts: _Parts, types: dict[str, str]) -> dict[str, list[str]]:
    """The groups of machine types and partitions.

    A host whose hardware is measured is in `hardware_detected`, and in that of its type once this is known.
    """
    machines: dict[str, list[str]] = {}
    for node in parts.nodes:
        hosts = expand(node.get("hosts", ""))
        machines.setdefault(node.get("hardware", ""), []).extend(hosts)
        if node.get("hardware") == DETECTED:
            for host in hosts:
                if host in types:
                    machines.setdefault(types[host], []).append(host)
    partitions = {partition.get("name", ""): hosts for partition, hosts in zip(parts.partitions, parts.members)}
    return {
        groups[name]: hosts
        for kind, of_kind in (("hardware", machines), ("partition", partitions))
        for groups in [group_names(kind, of_kind)]
        for name, hosts in of_kind.items()
    }


def _resolved(node: dict[str, Any], types: dict[str, str]) -> list[dict[str, Any]]:
    """A node entry, split by the machine types that were measured; hosts without one stay `detected`."""
    if node["hardware"] != DETECTED:
        return [node]
    hosts = expand(node["hosts"])
    addresses = expand(node.get("address", "")) or [""] * len(hosts)
    split: dict[str, tuple[list[str], list[str]]] = {}
    for host, address in zip(hosts, addresses):
        names, theirs = split.setdefault(types.get(host, DETECTED), ([], []))
        names.append(host)
        theirs.append(address)
    return [
        {**node, "hosts": fold(names), "hardware": hardware, **({"address": fold(theirs)} if "address" in node else {})}
        for hardware, (names, theirs) in split.items()
    ]
