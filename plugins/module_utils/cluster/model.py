# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster file: checked as a whole, and resolved into groups and variables.

All problems of a file are reported at once, so that all can be corrected together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from posixpath import normpath
from typing import Any

from ..formats.directory_purposes import OF_SLURMDBD, directory_error
from ..language.formatting import AS_BOOLEAN, KEY, OR_TEXT, READ_AS, limited, short, shown
from ..language.hostlist import expand, fold
from . import access_key, database_server_key, firewall_plans, keys, people_key, privileges, schema, storage_checks
from .account_groups import check_groups
from .address_checks import KnownHosts, check_addresses, check_further
from .keys import KEYS, SERVERS
from .machine_types import DETECTED, is_there
from .node_checks import MeasuredHardware, check_hardware, check_measured, check_specialized, split_by_type
from .parts import Parts, check_homes, check_parts, check_ports, check_uses
from .people_key import PeopleVariable
from .policy_checks import with_people
from .role_values import value_problems
from .schema import Checker, MachineType, NodeEntry, Raw, plain, unknown
from .setting_checks import check_paths
from .storage_key import StorageEntry

SHARED_NUMBERS = ("slurm_job_user_id", "slurm_secret_max_age", "slurm_user_id")
"""Shared variables that are numbers."""


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
    texts: Mapping[str, str] = field(default_factory=dict)
    """What is written where YAML reads a boolean, or another value than is written, by key."""


@dataclass(frozen=True)
class DeclaredCluster:
    """The content of a valid cluster file."""

    groups: dict[str, list[str]]
    """The hosts of each group of Ansible."""
    addresses: dict[str, str]
    """The address of each host that has one."""
    variables: dict[str, Any]
    """The shared variables (role slurm)."""


SLURM_GROUPS = (*(key.group for key in SERVERS), "slurm_compute")
"""The groups that every cluster has, children of `slurm_cluster`."""


def hardware_file(cluster_file: str) -> str:
    """The file with the measured hardware of a cluster file: `my.cluster.yml` -> `my.hardware.yml`, next to it."""
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
    people_files: Mapping[str, Document | people_key.Table] | None = None,
    scripts: Mapping[str, str | ValueError | None] | None = None,
    policy_file: Document | None = None,
    warnings: list[tuple[str, str]] | None = None,
) -> DeclaredCluster:
    """Check and resolve a cluster file, the file of its measured hardware if there is one, and those of its people.

    people_files: those that `people_key.files` names. scripts: those that `job_scripts.files` names, or why one cannot
    be read. policy_file: the one that `policy_checks.file_of` names. warnings: takes those of `Checker.warnings`.
    Raises ModelError with all problems of all files.
    """
    problems: list[str] = []
    checker = _checker(document, problems)
    if long := _too_long(document, measured, policy_file, *(people_files or {}).values()):
        raise ModelError(long)  # the rules would repeat it
    data = document.data
    if policy_file:
        _checker(policy_file, problems)
        checker.files["accounting"] = policy_file.file
        data = {**data, "accounting": policy_file.data}
    file = checker.check(schema.CLUSTER, "", data)
    checker.take_over(file.get("taken_over", []))
    machines = check_measured(_checker(measured, problems), measured.data) if measured else MeasuredHardware()
    contents = {name: _add_checker(content, problems) for name, content in (people_files or {}).items()}
    policy = file.get("accounting", {})
    listed = people_key.check(checker, _keys_of_people(file), contents, policy)
    policy = check_groups(checker, policy, [group.get("name", "") for group in listed.variable.get("groups", [])])
    file["accounting"] = with_people(checker, policy, listed.policy, has_accounting(file))
    parts = check_parts(checker, file, machines, scripts or {}, has_accounting(file))
    for name in sorted(set(parts.hardware) & set(machines.hardware)):
        checker.problem(f"hardware.{name}", f"is in {measured.file if measured else ''} too: give it another name")
    login = expand(parts.servers["login"])
    hosts = dict.fromkeys([*parts.server_hosts, *parts.node_hosts])
    uses = check_uses(checker, parts)
    members = {"all": hosts, "login": login, "compute": parts.node_hosts, "controllers": parts.controllers}
    mounts = storage_checks.check(checker, file.get("storage", []), members, parts.slurm_conf, uses)
    known_hosts = KnownHosts(hosts, f"the hosts of {', '.join(parts.servers)} and nodes")
    addressed = check_addresses(
        checker,
        parts.nodes,
        [(f"addresses.{names}", {"hosts": names, "address": of}) for names, of in file.get("addresses", {}).items()],
        known_hosts,
        parts.slurm_conf,
    )
    further = check_further(checker, file.get("further_addresses", []), addressed, known_hosts)
    check_homes(checker, "users", listed.variable, uses)
    check_ports(checker, parts, mounts)
    access_key.check_hosts(checker, parts.access, addressed, [*login, *parts.node_hosts], login)
    firewall_plans.check_hosts(checker, parts.firewall, hosts)
    untouched = _untouched(checker, file.get("unmanaged", ""), parts)
    if warnings is not None:
        warnings += checker.warnings
    if problems:
        others = (measured, people_files, scripts, policy_file)
        raise ModelError(_with_good_remedies(document, problems, lambda texts: load(texts, *others)))
    return _resolve_file(_ValidFile(file, parts, machines, listed.variable, untouched, mounts, addressed, further))


def _with_good_remedies(document: Document, problems: list[str], check: Callable[[Document], object]) -> list[str]:
    """The problems, with those remedies alone that the check accepts.

    Where YAML has read a boolean, or another value than is written, a message offers the value, a text in quotes, or
    both. Whether the text is right, the check of a document with it tells.
    """
    twice = tuple(what for _key, what in document.problems if READ_AS not in what)
    judged = _by_key(document.file, [problem for problem in problems if not problem.endswith(twice)])
    places = {short(key, KEY): key for key in document.texts}
    wrong = {
        place: lines
        for place, lines in judged.items()
        if place in places and any(READ_AS in line or line.endswith(AS_BOOLEAN) for line in lines)
    }
    if not wrong:
        return problems
    texts = {places[place]: document.texts[places[place]] for place in wrong}
    refused: list[str] = []
    try:
        check(Document(document.file, _with_texts(document.data, "", texts)))
    except ModelError as error:
        refused = error.problems
    of_texts = _by_key(document.file, refused)
    instead: dict[str, list[str]] = {}
    for place, lines in wrong.items():
        instead |= {line: [] for line in lines} | {lines[0]: _good_remedies(lines, of_texts.get(place, []))}
    return [line for problem in problems for line in instead.get(problem, [problem])]


def _good_remedies(lines: list[str], of_text: list[str]) -> list[str]:
    """The problems of one value, and those that its text has, without a remedy that is none."""
    of_yaml = [line for line in lines if READ_AS in line]
    of_value = [line for line in lines if line not in of_yaml]
    if of_text and of_yaml and (of_value or not of_yaml[0].endswith(OR_TEXT)):
        return of_text
    if of_text:
        return [line.removesuffix(OR_TEXT).removesuffix(f"; {AS_BOOLEAN}") for line in lines]
    if of_yaml and of_value:
        return [f"{line.rpartition(': write ')[0]}: write it in quotes" for line in of_yaml]
    return lines


def _by_key(file: str, problems: Iterable[str]) -> dict[str, list[str]]:
    """The problems of a file by key, as messages name it."""
    found: dict[str, list[str]] = {}
    for problem in problems:
        found.setdefault(problem.removeprefix(f"{file}: ").partition(": ")[0], []).append(problem)
    return found


def _with_texts(data: Any, key: str, texts: Mapping[str, str]) -> Any:
    """The content of a file with these texts, by key."""
    if key in texts:
        return texts[key]
    if isinstance(data, Mapping):
        return {name: _with_texts(value, f"{key}.{name}" if key else str(name), texts) for name, value in data.items()}
    if isinstance(data, list):
        return [_with_texts(value, f"{key}[{index}]", texts) for index, value in enumerate(data)]
    return data


@dataclass(frozen=True)
class _ValidFile:
    """A cluster file without problems, with all that the checks have found in it."""

    file: Raw
    parts: Parts
    machines: MeasuredHardware
    people: PeopleVariable
    """The variable slurm_people."""
    untouched: set[str]
    """The nodes that no play changes."""
    mounts: list[StorageEntry]
    addressed: list[dict[str, str]]
    further: list[dict[str, str]]


def _resolve_file(valid: _ValidFile) -> DeclaredCluster:
    """The groups, addresses and variables of a cluster file."""
    parts, machines = valid.parts, valid.machines
    values = {
        **parts.values,
        "addresses": valid.addressed,
        "further_addresses": valid.further,
        "hardware": {**parts.hardware, **machines.hardware},
        "nodes": [entry for node in parts.nodes for entry in split_by_type(node, machines.types)],
        "partitions": parts.partitions,
        "slurm_conf": parts.slurm_conf,
        "taken_over": valid.file.get("taken_over", []),
        "people": valid.people,
        "storage": valid.mounts,
    }
    return DeclaredCluster(
        groups={
            **{key.group: expand(parts.servers[key.name]) for key in SERVERS},
            "slurm_compute": [host for host in parts.node_hosts if host not in valid.untouched],
            **_groups(parts, machines.types),
        },
        addresses={
            host: address
            for entry in valid.addressed
            for host, address in zip(expand(entry["hosts"]), expand(entry["address"]))
        },
        variables={
            **{
                key.variable.name: values[key.name]
                for key in KEYS
                if key.variable and (key.name in valid.file or not key.variable.of_site)
            },
            **{schema.VARIABLES[f"accounting.{part}"]: value for part, value in values["accounting"].items()},
        },
    )


def model_errors(
    variables: Mapping[str, Any], hosts: Iterable[str], warnings: list[tuple[str, str]] | None = None
) -> list[str]:
    """The problems that the rules of the cluster file find in the shared variables, as `VARIABLE: found, allowed`.

    variables: those in `schema.VARIABLES`, by name; one that is missing or empty is a key that the file does not have.
    Also slurmdbd_conf, mariadb_settings and the ports of servers, which are checked with those of the cluster file,
    registry_dir, slurm_user_id, and those of `privileges.NEEDING`.
    hosts: all hosts of the inventory, which may have addresses. warnings: takes those of `Checker.warnings`.
    """
    problems: list[str] = []
    checker, hosts = Checker("", problems), [*hosts]
    given = {key: plain(variables.get(name)) or None for key, name in schema.VARIABLES.items()}
    for key, what in schema.too_long(given):
        checker.problem(key, what)
    if problems:
        return limited(problems)
    addresses = given.pop("addresses") or []
    if not isinstance(addresses, list):
        checker.problem("addresses", f"found {shown(addresses)}, allowed: a list")
        addresses = []
    file = checker.check(schema.CLUSTER, "", _make_cluster_file(given))
    checker.take_over(file.get("taken_over", []))
    parts = check_parts(checker, file, MeasuredHardware(), {}, has_accounting(file))
    people_key.check_variable(checker, given["people"], given["accounting.users"], variables.get("slurm_user_id"))
    known = dict.fromkeys([*hosts, *parts.node_hosts])
    known_hosts = KnownHosts(known, "the hosts of the inventory and of slurm_nodes")
    addressed = check_addresses(
        checker,
        parts.nodes,
        [(f"addresses[{i}]", entry) for i, entry in enumerate(addresses)],
        known_hosts,
        parts.slurm_conf,
    )
    check_further(checker, file.get("further_addresses", []), addressed, known_hosts)
    uses = check_uses(checker, parts, variables.get("registry_dir"))
    members = {"all": known, "login": (), "compute": parts.node_hosts, "controllers": parts.controllers}
    mounts = storage_checks.check(checker, file.get("storage", []), members, parts.slurm_conf, uses)
    check_homes(checker, "people.users", given["people"], uses)
    slurmdbd_conf = variables.get("slurmdbd_conf")
    slurmdbd_conf = plain(slurmdbd_conf) if isinstance(slurmdbd_conf, Mapping) else {}
    _check_directories(checker, variables.get("slurm_secrets_dir"), slurmdbd_conf)
    _check_secrets_command(checker, variables.get("slurm_secrets_command"))
    database_server_key.check_others(
        checker, parts.values["database_server"], slurmdbd_conf, variables.get("mariadb_settings")
    )
    check_ports(checker, parts, mounts, slurmdbd_conf, variables)
    access_key.check_hosts(checker, parts.access, addressed, parts.node_hosts, None)
    problems.extend(privileges.errors(variables))
    problems.extend(value_problems({name: variables.get(name) for name in SHARED_NUMBERS}))
    firewall_plans.check_hosts(checker, parts.firewall, dict.fromkeys([*known, *parts.server_hosts]))
    if warnings is not None:
        warnings += checker.warnings
    return limited(problems)


def _make_cluster_file(values: Mapping[str, Any]) -> Raw:
    """The values of the shared variables as a cluster file has them."""
    policy = {key: values[f"accounting.{key}"] for key in schema.ACCOUNTING.own}
    hosts = {key.name: values[key.name] for key in SERVERS}
    return {
        **{key: value for key, value in values.items() if not key.startswith("accounting.")},
        **{key: ",".join(map(str, names)) if isinstance(names, list) else names for key, names in hosts.items()},
        "plugin": keys.PLUGIN,
        "nodes": values["nodes"] or [],
        "partitions": values["partitions"] or [],
        "accounting": {key: value for key, value in policy.items() if value},
    }


def _check_directories(checker: Checker, secrets: Any, slurmdbd_conf: Mapping[str, Any]) -> None:
    """Check the directories that are no keys of the cluster file: that of the secrets, and those of slurmdbd.conf."""
    if secrets and (error := directory_error(normpath(str(secrets)), "secrets")):
        checker.problem("slurm_secrets_dir", f"found {shown(secrets)}, {error}")
    check_paths(checker, "slurmdbd_conf", slurmdbd_conf, OF_SLURMDBD)


def _check_secrets_command(checker: Checker, command: Any) -> None:
    """Check the command that prints secrets: without the name of a secret, all would be the same."""
    if not command:
        return
    name, allowed = "slurm_secrets_command", "a list of arguments, one of which has {secret}"
    if not isinstance(command, list) or not all(isinstance(argument, str) for argument in command):
        checker.problem(name, f"found {shown(command)}, allowed: {allowed}")
        return
    if not command[0] or any("\0" in argument or "\n" in argument for argument in command):
        checker.problem(
            name, f"found {shown(command)}, allowed: arguments of one line, the first of which is a program"
        )
    elif not any("{secret}" in argument for argument in command):
        checker.problem(name, f"found {shown(command)}, allowed: {allowed}, which becomes the name of the secret")


def _untouched(checker: Checker, unmanaged: str, parts: Parts) -> set[str]:
    """The nodes that no play changes: those of the key `unmanaged`, and those that are not there."""
    named = expand(unmanaged)
    nodes = dict.fromkeys(parts.node_hosts)
    if strange := [host for host in named if host not in nodes]:
        what = unknown("node", strange[0], nodes, f"nodes of this file, {short(fold([*nodes]))}")
        checker.problem("unmanaged", f"found {shown(fold(strange))}, {what}")
    absent = [node for node in parts.nodes if not is_there(node)]
    return {*named, *(host for node in absent for host in expand(node.get("hosts", "")))}


def _checker(document: Document, problems: list[str]) -> Checker:
    """A checker of a document, which already has its problems as YAML."""
    checker = Checker(document.file, problems)
    for key, what in document.problems:
        checker.problem(key, what)
    return checker


def _add_checker(content: Document | people_key.Table, problems: list[str]) -> tuple[Checker, Any]:
    """The content of a file of people, with its checker."""
    if isinstance(content, people_key.Table):
        return people_key.TableChecker(content, problems), content
    return _checker(content, problems), content.data


def _too_long(*documents: Document | people_key.Table | None) -> list[str]:
    """The keys and texts that are too long, as messages. A table has types for all of its values."""
    problems: list[str] = []
    for document in documents:
        if isinstance(document, Document):
            for key, what in schema.too_long(document.data):
                Checker(document.file, problems).problem(key, what)
    return problems


def machine_problems(machine: MachineType, node: NodeEntry) -> list[str]:
    """What the cluster file would say of a measured machine type with a node entry; empty if all is right."""
    problems: list[str] = []
    checker = Checker("it", problems)
    name = "measured"
    check_hardware(checker, {name: machine})
    check_specialized(checker, [{**node, "hardware": name}], {}, {name: machine})
    return problems


def has_accounting(file: Mapping[str, Any]) -> bool:
    """Whether the cluster has a slurmdbd: one of this file, or another one that slurm.conf names."""
    given = file.get("slurm_conf")
    storage_type = given.get("AccountingStorageType") if isinstance(given, Mapping) else None
    return "database" in file or str(storage_type).lower().endswith("slurmdbd")


def _keys_of_people(file: Raw) -> Raw:
    """The keys of a cluster file for its people. A mapping of groups is Ansible's own key for groups of hosts."""
    given = {key: file[key] for key in ("people", "users", "groups") if key in file}
    return {key: value for key, value in given.items() if key != "groups" or isinstance(value, list)}


def _groups(parts: Parts, types: Mapping[str, str]) -> dict[str, list[str]]:
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
