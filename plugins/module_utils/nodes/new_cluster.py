# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first cluster file of hosts that have no cluster: what was found on each host, and which part it gets.

A host that site.yml would refuse, and one that has a Slurm already, is left out: nothing of another cluster is touched.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import schema
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, ModelError, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import plain
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import expand, fold
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.discovery import discover
from ansible_collections.gpucluster.slurm.plugins.module_utils.texts import short, shown, visible

PARTS = ("controllers", "database", "login", "compute")
"""The parts of a cluster that hosts can be chosen for."""

MOST_SECONDS = 30
"""The difference of clocks from which site.yml refuses a host (role base)."""

LEAST_MIB = 1024
"""Room for the packages of a controller with its database."""

DAEMONS = ("slurmctld", "slurmdbd", "slurmd", "sackd")

COLUMNS = ("host", "reached", "sudo", "platform", "clock", "name", "address", "free", "Slurm and munge", "what happens")

_PROCESS = re.compile(r"^\d+ (?:\S*/)?(slurmctld|slurmdbd|slurmd|sackd|munged)\b", re.MULTILINE)
_STEP = re.compile(r"^\d+ slurmstepd: \[(\d+)", re.MULTILINE)
_SUDO = re.compile(r"sudo|password|become|privilege", re.IGNORECASE)
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")


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
    remarks: list[str] = field(default_factory=list)
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
        choices: `name`, and a hostlist for each of PARTS, which may be empty.
        hosts: all hosts of the inventory.
        given: names of the variables that begin with `new_cluster_`. known: those of them that there are.
    """
    known = sorted(known)
    errors = [
        f"{variable}: {schema.unknown('variable', variable, known, ', '.join(known))}"
        for variable in sorted({*given} - {*known})
    ]
    try:
        schema.cluster_name(choices.get("name"))
    except ValueError as error:
        errors.append(f"new_cluster_name: found {shown(choices.get('name'))}, {error}")
    if not hosts:
        errors.append("the inventory has no hosts, allowed: -i host1,host2, or -i FILE")
    for part in PARTS:
        key = f"new_cluster_{part}"
        try:
            names = expand(str(choices.get(part) or ""))
        except ValueError as error:
            errors.append(f"{key}: found {shown(choices.get(part))}, {error}")
            continue
        errors += [f"{key}: {name} is listed twice" for name in dict.fromkeys(names) if names.count(name) > 1]
        strange = [name for name in names if name not in hosts]
        if strange:
            allowed = f"hosts of the inventory, {fold([*hosts])}"
            errors.append(f"{key}: found {shown(fold(strange))}, {schema.unknown('host', strange[0], hosts, allowed)}")
        if part == "database" and len(names) > 1:
            errors.append(f"{key}: found {len(names)} hosts, allowed: one")
        if part == "controllers" and len(names) > 1:
            what = "one; add standbys later, with a StateSaveLocation that all controllers mount"
            errors.append(f"{key}: found {len(names)} hosts, allowed: {what}")
    return errors


# -- what was found --------------------------------------------------------------------------------------------------


def _found(name: str, variables: Mapping[str, Any], platforms: Sequence[str]) -> _Candidate:
    """A host, from the registered results of its tasks."""
    host = _Candidate(name, cells={"host": name})
    ping, look, processes, addresses = (
        plain(variables.get(f"__new_cluster_{task}") or {}) for task in ("ping", "look", "processes", "addresses")
    )
    if ping.get("unreachable"):
        host.cells["reached"] = "no"
        host.reasons.append(f"unreachable: {_told(ping)}")
        return host
    host.cells["reached"] = "yes"
    facts = (look.get("ansible_facts") or {}).get("slurm_host")
    if ping.get("ping") != "pong" or not facts:
        words = _told(look if ping.get("ping") == "pong" else ping)
        no_sudo = bool(_SUDO.search(words))
        host.cells["sudo"] = "no" if no_sudo else "?"
        host.reasons.append(f"{'no sudo' if no_sudo else 'no module runs'}: {words}")
        return host
    host.cells["sudo"] = "yes"
    host.hardware = look["ansible_facts"].get("slurm_hardware") or {}
    host.offset = float(look.get("clock_offset", 0))
    _platform(host, facts, platforms)
    _own_name(host, facts)
    _own_address(host, str(variables.get("ansible_host") or ""), str(addresses.get("stdout", "")).split())
    _room(host, facts)
    _slurm(host, facts, processes)
    return host


def _told(answer: Mapping[str, Any]) -> str:
    """What Ansible and the host say of a failure, on one line."""
    words = " ".join(str(answer.get(key) or "") for key in ("msg", "module_stderr")).replace(">>> Standard Error", "")
    return short(visible(" ".join(words.removeprefix("Task failed: ").split())), 200) or "Ansible gives no reason"


def _platform(host: _Candidate, facts: Mapping[str, Any], platforms: Sequence[str]) -> None:
    """Its distribution."""
    host.cells["platform"] = facts["distribution"]
    if facts["distribution"] not in platforms:
        host.reasons.append(f"unknown platform {facts['distribution']}, allowed: {', '.join(platforms)}")


def _own_name(host: _Candidate, facts: Mapping[str, Any]) -> None:
    """Its name: that of the inventory, which must be its host name, or its host name where the inventory has an IP."""
    own = facts["hostname"]
    if _ip(host.known_as):
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


def _own_address(host: _Candidate, ansible_host: str, told: Iterable[str]) -> None:
    """Its address: that by which Ansible reaches it if the host has it, or the only one that the host has.

    Slurm uses IPv4 unless slurm.conf says otherwise.
    """
    declared = next((text for text in (ansible_host, host.known_as) if _ip(text)), "")
    own = [text for text in told if _ip(text) == 4]
    if declared in own:
        host.address = host.cells["address"] = declared
    elif len(own) == 1:
        host.address = host.cells["address"] = own[0]
        if declared:
            host.remarks.append(f"has the address {own[0]}, and not {declared}, by which Ansible reaches it")
    else:
        host.cells["address"] = "?"
        host.remarks.append(
            f"has {len(own)} addresses ({', '.join(own[:6])}): the file names none, so all hosts need its name in DNS"
            if own
            else "its address is not known: the file names none, so all hosts need its name in DNS"
        )


def _ip(text: str) -> int | None:
    """The version of an IP address; None for any other text."""
    try:
        return ipaddress.ip_address(text).version
    except ValueError:
        return None


def _room(host: _Candidate, facts: Mapping[str, Any]) -> None:
    """The room in the directories in which a cluster writes."""
    free = facts["free_mib"]
    if not free:
        host.cells["free"] = "?"
        return
    least = min(free, key=lambda path: free[path])
    host.cells["free"] = f"{free[least] / 1024:.1f} GiB"
    if free[least] < LEAST_MIB:
        host.reasons.append(f"{free[least]} MiB are free in {least}, allowed: {LEAST_MIB} or more")


def _slurm(host: _Candidate, facts: Mapping[str, Any], processes: Mapping[str, Any]) -> None:
    """Another Slurm, and munge. `paths` has files of a cluster; pgrep ends with 1 where it finds no process."""
    running = {*_PROCESS.findall(str(processes.get("stdout", "")))}
    jobs = {*_STEP.findall(str(processes.get("stdout", "")))}
    daemons = [daemon for daemon in DAEMONS if daemon in running]
    there = [*facts["paths"]]
    words = []
    if facts["slurm_version"]:
        words.append(f"Slurm {facts['slurm_version']}")
    if daemons:
        words.append(f"runs {', '.join(daemons)}")
    if jobs:
        words.append(f"{len(jobs)} jobs")
    if "munge" in facts["packages"] or "munged" in running:
        version = facts["packages"].get("munge", "")
        words.append(f"munge {version}{'' if 'munged' in running else ', stopped'}".replace("  ", " "))
    host.cells["Slurm and munge"] = ", ".join(words) or "none"
    if daemons or jobs or there:
        what = f"{len(jobs)} jobs run" if jobs else f"{daemons[0]} runs" if daemons else f"there is {there[0]}"
        host.reasons.append(f"belongs to another cluster ({what}), which stays as it is")
    elif facts["slurm_version"] and processes.get("rc") not in (0, 1):
        host.reasons.append(f"has Slurm {facts['slurm_version']}, and pgrep cannot tell whether it runs")
    elif "munge" in facts["packages"] or "munged" in running:
        host.remarks.append("munge is there already: site.yml gives it the key of this cluster")


# -- the cluster -----------------------------------------------------------------------------------------------------


def new_cluster(
    hostvars: Mapping[str, Mapping[str, Any]],
    hosts: Iterable[str],
    choices: Mapping[str, Any],
    platforms: Sequence[str],
) -> dict[str, Any]:
    """The table of what was found, and the cluster file.

    Args:
        hostvars: of each host `ansible_host`, and the results that role new_cluster has registered.
        hosts: the hosts in the order of the inventory.
        choices: as of `choice_errors`, which has found no error.
        platforms: the distributions that the collection knows.

    Returns:
        `table`: lines. `errors`: why there can be no file; empty if there can. `cluster`: the content of the file.
        `remarks`: comments for the file. `notes`: remarks about each machine type.
    """
    found = [_found(str(name), hostvars[name], platforms) for name in hosts]
    by_name = {host.known_as: host for host in found}
    chosen = {part: expand(str(choices.get(part) or "")) for part in PARTS}
    _clocks(found, chosen["controllers"])
    _unique(found)
    errors = [
        f"new_cluster_{part}: {name} cannot be used: {'; '.join(by_name[name].reasons)}"
        for part in PARTS
        for name in chosen[part]
        if by_name[name].reasons
    ]
    usable = [host.known_as for host in found if not host.reasons]
    if not usable:
        errors.append("no host can be used, see the table")
    if errors:
        return {"table": _table(found, {}), "errors": errors, "cluster": {}, "remarks": [], "notes": {}}
    parts = _assigned(chosen, usable, by_name)
    described = discover(
        {by_name[name].name: by_name[name].hardware for name in parts["compute"]},
        {},
        [by_name[name].name for name in parts["compute"]],
        [],
    )
    cluster = _cluster(choices, parts, by_name, described)
    measured = {name for node in described["nodes"] for name in expand(node["hosts"])}
    for name in parts["compute"]:
        if by_name[name].name not in measured:
            by_name[name].remarks.append("no compute node, since its hardware makes no node line")
            parts["compute"] = [other for other in parts["compute"] if other != name]
    if not described["nodes"]:
        errors.append("no host has hardware that makes a compute node, see the remarks")
    else:
        try:
            load(Document("the new cluster file", cluster))
        except ModelError as error:
            errors += error.problems
    remarks = [f"{host.name}: {what}" for host in found if not host.reasons for what in host.remarks]
    left = [f"{host.known_as} is left out: {'; '.join(host.reasons)}" for host in found if host.reasons]
    return {
        "table": _table(found, parts),
        "errors": errors,
        "cluster": cluster,
        "remarks": [*left, *remarks, *described["notes"]],
        "notes": {node["hardware"]: node["notes"] for node in described["nodes"]},
    }


def _clocks(hosts: Iterable[_Candidate], controllers: Sequence[str]) -> None:
    """The clocks, beside that of the controller, or of the middle host where none is chosen."""
    hosts = [host for host in hosts if host.offset is not None]
    offsets = sorted(host.offset or 0.0 for host in hosts)
    reference = next((host.offset for host in hosts if host.known_as in controllers), None)
    middle = offsets[len(offsets) // 2] if offsets else 0.0
    for host in hosts:
        difference = (host.offset or 0.0) - (middle if reference is None else reference)
        host.cells["clock"] = "right" if abs(difference) < 1 else f"{difference:+.0f} s"
        if abs(difference) >= MOST_SECONDS:
            host.reasons.append(f"its clock differs by {abs(difference):.0f} s, allowed: less than {MOST_SECONDS}")


def _unique(hosts: Iterable[_Candidate]) -> None:
    """Two hosts of the inventory may be one machine, or have one name."""
    first: dict[str, str] = {}
    for host in hosts:
        if host.name and not host.reasons:
            other = first.setdefault(host.name, host.known_as)
            if other != host.known_as:
                host.reasons.append(f"has the host name {host.name}, as {other} has")


def _assigned(
    chosen: Mapping[str, list[str]], usable: Sequence[str], by_name: Mapping[str, _Candidate]
) -> dict[str, list[str]]:
    """The hosts of each part, by their names in the inventory.

    Without a choice: the controller is the first host without GPUs that is not chosen for compute, or else the first
    host. It has the database and is the login host. All other hosts are compute nodes; where there is no other one, the
    controller is.
    """
    free = [name for name in usable if name not in chosen["compute"]] or [*usable]
    without = [name for name in free if not by_name[name].has_gpus]
    controllers = chosen["controllers"] or (without or free)[:1]
    database, login = (chosen[part] or controllers for part in ("database", "login"))
    servers = {*controllers, *database, *login}
    compute = chosen["compute"] or [name for name in usable if name not in servers] or [*controllers]
    return {"controllers": controllers, "database": database, "login": login, "compute": compute}


def _cluster(
    choices: Mapping[str, Any],
    parts: Mapping[str, list[str]],
    by_name: Mapping[str, _Candidate],
    described: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of the cluster file."""
    address = {host.name: host.address for host in by_name.values()}
    own = {part: [by_name[name].name for name in names] for part, names in parts.items()}
    nodes, kinds = [], dict[str, list[str]]()
    for node in described["nodes"]:
        hosts = expand(node["hosts"])
        gpus = any(gres["name"] == "gpu" for gres in described["hardware"][node["hardware"]].get("gres", []))
        kinds.setdefault("gpu" if gpus else "cpu", []).extend(hosts)
        for known in (True, False):
            names = [host for host in hosts if bool(address[host]) == known]
            if names:
                addresses = {"address": fold([address[host] for host in names])} if known else {}
                nodes.append({"hosts": fold(names), "hardware": node["hardware"], **addresses})
    ordered = sorted(kinds, reverse=True)  # jobs go to GPUs, unless they ask for cpu
    others = dict.fromkeys(host for part in PARTS[:3] for host in own[part])
    compute = {host for node in nodes for host in expand(node["hosts"])}
    return {
        "plugin": schema.PLUGIN,
        "name": choices["name"],
        "controllers": fold(own["controllers"]),
        "database": fold(own["database"]),
        "login": fold(own["login"]),
        "hardware": described["hardware"],
        "nodes": nodes,
        "partitions": [
            {"name": kind, "nodes": fold(kinds[kind]), **({"default": True} if kind == ordered[0] else {})}
            for kind in ordered
        ],
        "addresses": {host: address[host] for host in others if host not in compute and address[host]},
    }


def _table(hosts: Iterable[_Candidate], parts: Mapping[str, list[str]]) -> list[str]:
    """The table of what was found, with what happens to each host."""
    words = {"controllers": "controller", "database": "database", "login": "login", "compute": "compute node"}
    rows = [list(COLUMNS)]
    for host in hosts:
        mine = [words[part] for part in PARTS if host.known_as in parts.get(part, [])]
        what = f"left out: {'; '.join(host.reasons)}" if host.reasons else ", ".join(mine) or "nothing"
        rows.append([host.cells.get(column) or "-" for column in COLUMNS[:-1]] + [what])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
