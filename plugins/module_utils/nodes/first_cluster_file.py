# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first cluster file of hosts that have no cluster: what was found on each host, and which part it gets.

A host that site.yml would refuse, and one that has a Slurm already, is left out: nothing of another cluster is touched.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..cluster import keys, schema
from ..cluster.model import Document, ModelError, load
from ..cluster.schema import plain
from ..language.formatting import align_columns, short, shown, visible
from ..language.hostlist import expand, fold
from .discovery import discover

PARTS = ("controllers", "database", "login", "compute")
"""The parts of a cluster that hosts can be chosen for."""

STATE_DIRECTORY = "state_directory"
"""The choice of StateSaveLocation, which several controllers share."""

MOST_SECONDS = 30
"""The difference of clocks from which site.yml refuses a host (role base)."""

LEAST_MIB = 1024
"""Room for the packages of a controller with its database."""

DAEMONS = ("slurmctld", "slurmdbd", "slurmd", "sackd")

COLUMNS = (
    *("host", "reached", "sudo", "platform", "CPUs", "memory", "GPUs", "clock", "name", "address", "free"),
    *("Slurm and munge", "what happens"),
)

DRIVER_FIRST = "install the driver (role nvidia_driver), then run new again, and site.yml after it"
"""The order in which GPUs become gres: a driver tells their types and device files."""

TIME_LIMITS = {"DefaultTime": "01:00:00", "MaxTime": "7-00:00:00"}
"""The limits of a first partition: without any, a job that hangs keeps its GPUs until a person sees it."""

_PROCESS = re.compile(r"^\d+ (?:\S*/)?(slurmctld|slurmdbd|slurmd|sackd|munged)\b", re.MULTILINE)
_STEP = re.compile(r"^\d+ slurmstepd: \[(\d+)", re.MULTILINE)
_SUDO = re.compile(r"sudo|password|become|privilege", re.IGNORECASE)
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")


Entry = dict[str, Any]
"""A mapping of the cluster file, or of an answer."""


@dataclass
class _Candidate:
    """A host as it was found."""

    known_as: str
    """Its name in the inventory."""
    name: str = ""
    """Its name in the cluster file."""
    address: str = ""
    cells: dict[str, str] = field(default_factory=dict)
    """Its row of the table, by column."""
    reasons: list[str] = field(default_factory=list)
    """Why it is left out."""
    comments: list[str] = field(default_factory=list)
    offset: float | None = None
    """Seconds that its clock is ahead of the control host's."""
    hardware: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_gpus(self) -> bool:
        """Whether GPUs were found."""
        return bool(self.hardware.get("gpus"))


# -- what was chosen -------------------------------------------------------------------------------------------------


def choice_errors(
    choices: Mapping[str, Any], hosts: Sequence[str], given: Iterable[str], known: Iterable[str]
) -> list[str]:
    """The errors in the options of the playbook, before any host is reached.

    Args:
        choices: `name`, a hostlist for each of PARTS, and STATE_DIRECTORY; all but `name` may be empty.
        hosts: all hosts of the inventory.
        given: names of the variables that begin with `new_cluster_`. known: those of them that there are.
    """
    errors = unknown_variables(given, known)
    try:
        schema.cluster_name(choices.get("name"))
    except ValueError as error:
        errors.append(f"new_cluster_name: found {shown(choices.get('name'))}, {error}")
    if not hosts:
        errors.append("the inventory has no hosts, allowed: -i host1,host2, or -i FILE")
    for part in PARTS:
        errors += _find_part_errors(part, choices.get(part), hosts)
    if not errors and len(expand(str(choices["controllers"] or ""))) > 1 and not choices[STATE_DIRECTORY]:
        errors.append(
            f"new_cluster_{STATE_DIRECTORY}: missing: several controllers need a directory that all of them mount, "
            "such as /shared/slurm"
        )
    return errors


def unknown_variables(given: Iterable[str], known: Iterable[str]) -> list[str]:
    """The errors in the names of variables that were given to a playbook."""
    names = sorted(known)
    return [
        f"{variable}: {schema.unknown('variable', variable, names, ', '.join(names))}"
        for variable in sorted({*given} - {*names})
    ]


def _find_part_errors(part: str, choice: Any, hosts: Sequence[str]) -> list[str]:
    """The errors in the hosts that were chosen for a part."""
    key = f"new_cluster_{part}"
    try:
        names = expand(str(choice or ""))
    except ValueError as error:
        return [f"{key}: found {shown(choice)}, {error}"]
    errors = [f"{key}: {name} is listed twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    strange = [name for name in names if name not in hosts]
    if strange:
        allowed = f"hosts of the inventory, {fold([*hosts])}"
        errors.append(f"{key}: found {shown(fold(strange))}, {schema.unknown('host', strange[0], hosts, allowed)}")
    if part == "database" and len(names) > 1:
        errors.append(f"{key}: found {len(names)} hosts, allowed: one")
    return errors


# -- what was found --------------------------------------------------------------------------------------------------


def _read_candidate(name: str, variables: Mapping[str, Any], platforms: Sequence[str]) -> _Candidate:
    """A host, from the registered results of its tasks."""
    host = _Candidate(name, cells={"host": name})
    facts_task, processes, addresses = (_read_result(variables, task) for task in ("facts", "processes", "addresses"))
    failure = host_failure(variables)
    host.cells["reached"] = "no" if failure.startswith("unreachable: ") else "yes"
    if failure:
        if host.cells["reached"] == "yes":
            host.cells["sudo"] = "no" if failure.startswith("no sudo: ") else "?"
        host.reasons.append(failure)
        return host
    host.cells["sudo"] = "yes"
    facts = facts_task["ansible_facts"]["slurm_host"]
    host.hardware = facts_task["ansible_facts"].get("slurm_hardware") or {}
    host.offset = float(facts_task.get("clock_offset", 0))
    _check_platform(host, facts, platforms)
    _show_hardware(host)
    _find_name(host, facts)
    _find_address(host, str(variables.get("ansible_host") or ""), str(addresses.get("stdout", "")).split())
    _check_room(host, facts)
    _check_slurm(host, facts, processes)
    return host


def _read_result(variables: Mapping[str, Any], task: str) -> Entry:
    """A registered result of gather.yml."""
    return dict(plain(variables.get(f"__new_cluster_{task}") or {}))


def host_failure(variables: Mapping[str, Any]) -> str:
    """Why there are no facts of a host, by the registered results of its tasks; empty if there are."""
    answer = _read_result(variables, "facts")
    if (answer.get("ansible_facts") or {}).get("slurm_host"):
        return ""
    reason = answer.get("no_answer") or answer
    failure = _describe_failure(reason)
    if reason.get("unreachable"):
        return f"unreachable: {failure}"
    return f"no sudo: {failure}" if _SUDO.search(failure) else f"Ansible cannot run a module: {failure}"


def _describe_failure(answer: Mapping[str, Any]) -> str:
    """What Ansible and the host say of a failure, on one line."""
    text = " ".join(str(answer.get(key) or "") for key in ("msg", "module_stderr")).replace(">>> Standard Error", "")
    return short(visible(" ".join(text.removeprefix("Task failed: ").split())), 200) or "Ansible gives no reason"


def _check_platform(host: _Candidate, facts: Mapping[str, Any], platforms: Sequence[str]) -> None:
    """Its distribution."""
    host.cells["platform"] = facts["distribution"]
    if facts["distribution"] not in platforms:
        host.reasons.append(f"unknown platform {facts['distribution']}, allowed: {', '.join(platforms)}")


def _show_hardware(host: _Candidate) -> None:
    """Its CPUs, memory and GPUs."""
    hardware = host.hardware
    if not hardware:
        return
    host.cells["CPUs"] = str(hardware["cpus"])
    host.cells["memory"] = f"{hardware['real_memory'] / 1024:.0f} GiB" if hardware["real_memory"] else "?"
    models = Counter(str(gpu["type"] or "GPU") for gpu in hardware["gpus"])
    without = all(gpu["minor"] is None for gpu in hardware["gpus"])
    names = ", ".join(f"{number} {model}" for model, number in models.items())
    host.cells["GPUs"] = f"{names}{', no driver' if without else ''}" if names else "none"
    if names and without:
        host.comments.append(f"its GPUs have no driver: {DRIVER_FIRST}")


def _find_name(host: _Candidate, facts: Mapping[str, Any]) -> None:
    """Its name: that of the inventory, which must be its host name, or its host name where the inventory has an IP."""
    own = facts["hostname"]
    if ip_version(host.known_as):
        host.name = own.partition(".")[0]
        host.cells["name"] = own
        if not _LABEL.fullmatch(host.name) or host.name.lower() == "localhost":
            host.reasons.append(f"its host name is {own}: give it one of its own (hostnamectl set-hostname NAME)")
        return
    host.name = host.known_as
    right = host.name in (own, own.partition(".")[0])
    host.cells["name"] = "as declared" if right else own
    if not right:
        host.reasons.append(f"its host name is {own}: make both equal (hostnamectl set-hostname {host.name})")


def _find_address(host: _Candidate, ansible_host: str, told: Iterable[str]) -> None:
    """Its address: that by which Ansible reaches it if the host has it, or the only one that the host has.

    Slurm uses IPv4 unless slurm.conf says otherwise.
    """
    declared = next((text for text in (ansible_host, host.known_as) if ip_version(text)), "")
    own = [text for text in told if ip_version(text) == 4]
    if declared in own:
        host.address = host.cells["address"] = declared
    elif len(own) == 1:
        host.address = host.cells["address"] = own[0]
        if declared:
            host.comments.append(f"has the address {own[0]}, and not {declared}, by which Ansible reaches it")
    else:
        host.cells["address"] = "?"
        host.comments.append(
            f"has {len(own)} addresses ({', '.join(own[:6])}): the file names none, so all hosts need its name in DNS"
            if own
            else "its address is not known: the file names none, so all hosts need its name in DNS"
        )


def ip_version(text: str) -> int | None:
    """The version of an IP address; None for any other text."""
    try:
        return ipaddress.ip_address(text).version
    except ValueError:
        return None


def _check_room(host: _Candidate, facts: Mapping[str, Any]) -> None:
    """The room in the directories in which a cluster writes."""
    if facts["read_only"]:
        host.reasons.append(f"{', '.join(facts['read_only'])}: the file system is read-only")
    free = facts["free_mib"]
    if not free:
        host.cells["free"] = "?"
        return
    least = min(free, key=lambda path: free[path])
    host.cells["free"] = f"{free[least] / 1024:.1f} GiB"
    if free[least] < LEAST_MIB:
        host.reasons.append(f"{free[least]} MiB are free in {least}, allowed: {LEAST_MIB} or more")


@dataclass(frozen=True)
class _Processes:
    """What pgrep has found."""

    daemons: list[str]
    jobs: set[str]
    has_munge: bool

    @classmethod
    def of(cls, output: str) -> _Processes:
        """From its output."""
        names = {*_PROCESS.findall(output)}
        return cls([daemon for daemon in DAEMONS if daemon in names], {*_STEP.findall(output)}, "munged" in names)


def _check_slurm(host: _Candidate, facts: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """Another Slurm, and munge. `paths` has files of a cluster; pgrep ends with 1 where it finds no process."""
    processes = _Processes.of(str(answer.get("stdout", "")))
    host.cells["Slurm and munge"] = _describe_slurm(facts, processes)
    signs = [
        *([f"{len(processes.jobs)} jobs run"] if processes.jobs else []),
        *(f"{daemon} runs" for daemon in processes.daemons),
        *(f"there is {path}" for path in facts["paths"]),
    ]
    if signs:
        host.reasons.append(f"belongs to another cluster ({signs[0]}), which stays as it is")
    elif facts["slurm_version"] and answer.get("rc") not in (0, 1):
        host.reasons.append(f"has Slurm {facts['slurm_version']}, and pgrep cannot tell whether it runs")
    elif "munge" in facts["packages"] or processes.has_munge:
        host.comments.append("munge is installed already: site.yml replaces its key by that of this cluster")


def _describe_slurm(facts: Mapping[str, Any], processes: _Processes) -> str:
    """What the table says of Slurm and munge."""
    parts = []
    if facts["slurm_version"]:
        parts.append(f"Slurm {facts['slurm_version']}")
    if processes.daemons:
        parts.append(f"runs {', '.join(processes.daemons)}")
    if processes.jobs:
        parts.append(f"{len(processes.jobs)} jobs")
    if "munge" in facts["packages"] or processes.has_munge:
        version = facts["packages"].get("munge", "")
        parts.append(f"munge {version}{'' if processes.has_munge else ', stopped'}".replace("  ", " "))
    return ", ".join(parts) or "none"


# -- the cluster -----------------------------------------------------------------------------------------------------


def new_cluster(
    hostvars: Mapping[str, Mapping[str, Any]],
    hosts: Iterable[str],
    choices: Mapping[str, Any],
    platforms: Sequence[str],
) -> Entry:
    """The table of what was found, and the cluster file.

    Args:
        hostvars: of each host `ansible_host`, and the results that role new_cluster has registered.
        hosts: the hosts in the order of the inventory.
        choices: as of `choice_errors`, which has found no error.
        platforms: the distributions that the collection knows.

    Returns:
        `table`: lines. `errors`: why there can be no file; empty if there can. `cluster`: the content of the file.
        `remarks`: comments for the file. `notes`: comments on each machine type.
    """
    candidates = [_read_candidate(str(name), hostvars[name], platforms) for name in hosts]
    by_name = {host.known_as: host for host in candidates}
    chosen = {part: expand(str(choices.get(part) or "")) for part in PARTS}
    _compare_clocks(candidates, chosen["controllers"])
    _refuse_duplicates(candidates)
    errors = _find_unusable_choices(chosen, by_name)
    usable = [host.known_as for host in candidates if not host.reasons]
    if not usable:
        errors.append("no host can be used: the table has the reason for each of them")
    if errors:
        return {"table": _make_table(candidates, {}), "errors": errors, "cluster": {}, "remarks": [], "notes": {}}
    assigned = _assign_parts(chosen, usable, by_name)
    compute = [by_name[name] for name in assigned["compute"]]
    names = [host.name for host in compute]
    described = discover({host.name: host.hardware for host in compute}, {}, names, [])
    cluster = _make_cluster(choices, assigned, by_name, described)
    parts = {**assigned, "compute": _select_measured(compute, described["nodes"])}
    return {
        "table": _make_table(candidates, parts),
        "errors": _find_errors(cluster),
        "cluster": cluster,
        "remarks": [*_describe_candidates(candidates), *described["notes"], *_lack_of_gpus(candidates)],
        "notes": {node["hardware"]: node["notes"] for node in described["nodes"]},
    }


def _find_unusable_choices(chosen: Mapping[str, Sequence[str]], by_name: Mapping[str, _Candidate]) -> list[str]:
    """The errors for hosts that were chosen and cannot be used."""
    return [
        f"new_cluster_{part}: {name} cannot be used: {'; '.join(by_name[name].reasons)}"
        for part in PARTS
        for name in chosen[part]
        if by_name[name].reasons
    ]


def _select_measured(compute: Iterable[_Candidate], nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The hosts that are nodes, by their names in the inventory; of the others it is said why they are none."""
    measured = {name for node in nodes for name in expand(node["hosts"])}
    for host in compute:
        if host.name not in measured:
            host.comments.append("is no compute node, since no NodeName line can have its hardware")
    return [host.known_as for host in compute if host.name in measured]


def _find_errors(cluster: Entry) -> list[str]:
    """Why the cluster file is not valid."""
    if not cluster["nodes"]:
        return ["no host can be a compute node: the lines below the table say what is wrong with their hardware"]
    try:
        load(Document("the new cluster file", cluster))
    except ModelError as error:
        return error.problems
    return []


def _describe_candidates(candidates: Iterable[_Candidate]) -> list[str]:
    """Comments on the hosts, those that are left out first."""
    left_out = [f"{host.known_as} is left out: {'; '.join(host.reasons)}" for host in candidates if host.reasons]
    return [*left_out, *(f"{host.name}: {what}" for host in candidates if not host.reasons for what in host.comments)]


def _lack_of_gpus(candidates: Iterable[_Candidate]) -> list[str]:
    """What to do if the cluster is to have GPUs, and no host shows one."""
    none = not any(host.has_gpus for host in candidates)
    return [f"no host shows a GPU. If some have GPUs: {DRIVER_FIRST}"] if none else []


def _compare_clocks(hosts: Iterable[_Candidate], controllers: Sequence[str]) -> None:
    """The clocks, compared with that of the controller, or of the middle host where none is chosen."""
    hosts = [host for host in hosts if host.offset is not None]
    offsets = sorted(host.offset or 0.0 for host in hosts)
    reference = next((host.offset for host in hosts if host.known_as in controllers), None)
    middle = offsets[len(offsets) // 2] if offsets else 0.0
    for host in hosts:
        difference = (host.offset or 0.0) - (middle if reference is None else reference)
        host.cells["clock"] = "right" if abs(difference) < 1 else f"{difference:+.0f} s"
        if abs(difference) >= MOST_SECONDS:
            host.reasons.append(f"its clock differs by {abs(difference):.0f} s, allowed: less than {MOST_SECONDS}")


def _refuse_duplicates(hosts: Iterable[_Candidate]) -> None:
    """Two hosts of the inventory may be one machine, or have one name."""
    first: dict[str, str] = {}
    for host in hosts:
        if host.name and not host.reasons:
            other = first.setdefault(host.name, host.known_as)
            if other != host.known_as:
                host.reasons.append(f"has the host name {host.name}, as {other} has")


def _assign_parts(
    chosen: Mapping[str, list[str]], usable: Sequence[str], by_name: Mapping[str, _Candidate]
) -> dict[str, list[str]]:
    """The hosts of each part, by their names in the inventory.

    Without a choice: the controller is the first host without GPUs that is not chosen for compute, or else the first
    host. The first controller has the database, and all of them are login hosts. All other hosts are compute nodes;
    where there is no other one, the controllers are.
    """
    free = [name for name in usable if name not in chosen["compute"]] or [*usable]
    without = [name for name in free if not by_name[name].has_gpus]
    controllers = chosen["controllers"] or (without or free)[:1]
    database = chosen["database"] or controllers[:1]
    login = chosen["login"] or controllers
    servers = {*controllers, *database, *login}
    compute = chosen["compute"] or [name for name in usable if name not in servers] or [*controllers]
    return {"controllers": controllers, "database": database, "login": login, "compute": compute}


def _make_cluster(
    choices: Mapping[str, Any],
    parts: Mapping[str, list[str]],
    by_name: Mapping[str, _Candidate],
    described: Mapping[str, Any],
) -> Entry:
    """The content of the cluster file."""
    state_directory = choices[STATE_DIRECTORY]
    addresses = {host.name: host.address for host in by_name.values()}
    hosts = {part: [by_name[known_as].name for known_as in parts[part]] for part in PARTS}
    nodes = [entry for node in described["nodes"] for entry in _split_by_address(node, addresses)]
    compute = {host for node in nodes for host in expand(node["hosts"])}
    servers = dict.fromkeys(host for part in PARTS[:3] for host in hosts[part] if host not in compute)
    return {
        "plugin": keys.PLUGIN,
        "name": choices["name"],
        "defaults": keys.NEWEST_GENERATION,
        "controllers": fold(hosts["controllers"]),
        "database": fold(hosts["database"]),
        "login": fold(hosts["login"]),
        "hardware": described["hardware"],
        "nodes": nodes,
        "partitions": _make_partitions(described),
        "addresses": {host: addresses[host] for host in servers if addresses[host]},
        "slurm_conf": {"StateSaveLocation": state_directory} if state_directory else {},
    }


def _split_by_address(node: Mapping[str, Any], addresses: Mapping[str, str]) -> Iterator[Entry]:
    """The entries for the hosts of a machine type: those with an address, and those without."""
    hosts = expand(node["hosts"])
    with_address = [host for host in hosts if addresses[host]]
    without = [host for host in hosts if not addresses[host]]
    if with_address:
        own = fold([addresses[host] for host in with_address])
        yield {"hosts": fold(with_address), "hardware": node["hardware"], "address": own}
    if without:
        yield {"hosts": fold(without), "hardware": node["hardware"]}


def _make_partitions(described: Mapping[str, Any]) -> list[Entry]:
    """A partition for the nodes with GPUs, the default, and one for the others."""
    hosts: dict[str, list[str]] = {"gpu": [], "cpu": []}
    for node in described["nodes"]:
        machine = described["hardware"][node["hardware"]]
        has_gpus = any(gres["name"] == "gpu" for gres in machine.get("gres", []))
        hosts["gpu" if has_gpus else "cpu"] += expand(node["hosts"])
    # Jobs go to GPUs, unless they ask for cpu.
    partitions: list[Entry] = [{"name": name, "nodes": fold(names)} for name, names in hosts.items() if names]
    first = [{"default": True}, *({} for _other in partitions[1:])]
    return [{**partition, **default, **TIME_LIMITS} for partition, default in zip(partitions, first)]


def _make_table(hosts: Iterable[_Candidate], parts: Mapping[str, list[str]]) -> list[str]:
    """The table of what was found, with what happens to each host."""
    names = {"controllers": "controller", "database": "database", "login": "login", "compute": "compute node"}
    rows = [list(COLUMNS)]
    for host in hosts:
        mine = [names[part] for part in PARTS if host.known_as in parts.get(part, [])]
        what = f"left out: {'; '.join(host.reasons)}" if host.reasons else ", ".join(mine) or "nothing"
        rows.append([host.cells.get(column) or "-" for column in COLUMNS[:-1]] + [what])
    return align_columns(rows)
