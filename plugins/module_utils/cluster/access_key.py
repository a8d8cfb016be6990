# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may log in where: the key `access` of the cluster file, and what follows from it for each host."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, TypedDict

from ..language.formatting import short, shown
from ..language.hostlist import expand, fold
from .render import every_address
from .schema import Checker, Kind, choice, ip_version, kind_of, mapping, sequence, text

COMPUTE = ("job", "all", "administrators")
"""Who may log in to hosts that are compute nodes only; the first is the default."""

BETWEEN_NODES = ("none", "host_based")
"""How users come from node to node without a key of their own; the first is the default."""

_GROUP = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{,254}")
_SIZE = re.compile(r"([0-9]+)([KMGT]?)")
_PERCENT = re.compile(r"([0-9]+)%")
_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_LEAST_BYTES = 2**28  # a login with Ansible's module, or an editor, in each of a few windows
_MOST_BYTES = 2**60  # systemd ignores what does not fit into 64 bits
_LEAST_TASKS = 64

CONTAINS = ("contain", "x11", "runinjob")
"""Values of PrologFlags with which each job has an external step (slurm.conf(5))."""

_SERVICES = {"slurm_login", "slurm_controller", "slurm_database"}
"""Groups of hosts that stay open if they are compute nodes as well."""


def group_names(value: Any) -> list[str]:
    """Names of groups, none twice."""
    names = [text(name) for name in sequence(value)]
    for name in names:
        if not _GROUP.fullmatch(name):
            raise ValueError(f"{shown(name)} is no group, allowed: letters, digits, '.', '_', '@' and '-'")
        if names.count(name) > 1:
            raise ValueError(f"{short(name)} is listed twice")
    return names


def _percent(least: int, most: int | None) -> Callable[[str], bool]:
    def right(value: str) -> bool:
        match = _PERCENT.fullmatch(value)
        return match is not None and least <= int(match[1]) and (most is None or int(match[1]) <= most)

    return right


def _number(least: int, most: int) -> Callable[[str], bool]:
    return lambda value: re.fullmatch("[0-9]{1,9}", value) is not None and least <= int(value) <= most


def _memory(value: str) -> bool:
    match = _SIZE.fullmatch(value)
    size = int(match[1]) * _BYTES[match[2]] if match else 0
    return _percent(1, 100)(value) or _LEAST_BYTES <= size <= _MOST_BYTES


LIMITS: dict[str, tuple[Callable[[str], bool], str]] = {
    "MemoryMax": (_memory, "a percentage from 1% to 100%, or a size of 256M or more"),
    "MemoryHigh": (_memory, "a percentage from 1% to 100%, or a size of 256M or more"),
    "TasksMax": (_number(_LEAST_TASKS, 2**22), "a number of 64 or more"),
    "CPUQuota": (_percent(10, None), "a percentage of one CPU of 10% or more, such as 400% for four CPUs"),
    "CPUWeight": (_number(1, 10000), "a number from 1 to 10000"),
    "IOWeight": (_number(1, 10000), "a number from 1 to 10000"),
}
"""Limits of a user's processes (systemd.resource-control(5)), with what leaves room for a login."""


def _limit(name: str) -> Callable[[Any], str]:
    right, allowed = LIMITS[name]

    def typed(value: Any) -> str:
        """The limit."""
        if not right(text(value)):
            raise ValueError(f"allowed: {allowed}")
        return text(value)

    return typed


class AccessKey(TypedDict, total=False):
    """The value of the key."""

    administrators: Annotated[list[str], group_names]
    compute: Annotated[str, choice(COMPUTE)]
    between_nodes: Annotated[str, choice(BETWEEN_NODES)]
    login_limits: Annotated[dict[str, str], mapping]


ACCESS = kind_of(AccessKey)

LOGIN_LIMITS: Kind[dict[str, str]] = Kind(own={name: {"type": _limit(name)} for name in LIMITS})


def check(checker: Checker, found: Any, slurm_conf: Mapping[str, Any]) -> AccessKey:
    """The checked value of the key `access`."""
    if not found:
        return {}
    access = checker.check(ACCESS, "access", found)
    if "login_limits" in access:
        access["login_limits"] = checker.check(LOGIN_LIMITS, "access.login_limits", access["login_limits"])
    # A default that was refused is not meant.
    if access.get("compute", COMPUTE[0] if "compute" not in found else "") == "job":
        for name, what in _unfit(slurm_conf):
            checker.problem(f"slurm_conf.{name}", f"{what}, or another {checker.key('access')}.compute than job")
    return access


def _unfit(slurm_conf: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Parameters with which no process can be added to a job, and what is allowed (pam_slurm_adopt)."""
    needs = {
        "PrologFlags": (CONTAINS, "contain"),
        "ProctrackType": (("proctrack/cgroup",), "proctrack/cgroup"),
        "TaskPlugin": (("task/cgroup", "cgroup"), "a list with task/cgroup"),
    }
    for name, (accepted, allowed) in needs.items():
        if name in slurm_conf:
            value = slurm_conf[name]
            given = ",".join(map(str, value)) if isinstance(value, list) else str(value or "")
            if not {*given.lower().replace(" ", "").split(",")} & {*accepted}:
                yield name, f"found {shown(value)}, allowed: {allowed}, so that users log in to their jobs"


def _by_host(addresses: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The address of each host that has one."""
    return {
        host: address for entry in addresses for host, address in zip(expand(entry["hosts"]), expand(entry["address"]))
    }


def _names_of(
    addresses: Iterable[Mapping[str, str]], further: Iterable[Mapping[str, str]], hosts: Collection[str]
) -> dict[str, list[str]]:
    """By host, its name, its address, and its further names, each with its address."""
    found = {host: [host] for host in hosts}
    for entry in every_address(addresses, further, hosts):
        found[entry["host"]] += [entry["name"], entry["address"]]
    return {host: list(dict.fromkeys(names)) for host, names in found.items()}


def check_hosts(
    checker: Checker,
    access: Mapping[str, Any],
    addressed: Iterable[Mapping[str, str]],
    hosts: Iterable[str],
    login: Collection[str] | None,
) -> None:
    """Check what depends on the hosts. sshd knows other hosts by their IP address; login: None if it is not known."""
    if access.get("between_nodes") == "host_based":
        known = _by_host(addressed)
        missing = [host for host in dict.fromkeys(hosts) if ip_version(known.get(host, "?")) is None]
        if missing:
            what = (
                f"found host_based, and no IP address of {short(fold(missing))}, allowed: none, or an address of each"
            )
            checker.problem("access.between_nodes", what)
    if access.get("login_limits") and login is not None and not login:
        checker.problem("access.login_limits", "found limits, and no host in login, allowed: limits with login hosts")


def access_parts(access: Mapping[str, Any], groups: Collection[str]) -> dict[str, Any]:
    """What a host in these groups of the inventory has of the access plan: names of files, and who passes its sshd.

    Args:
        access: the variable slurm_access.
        groups: the groups of the host.
    """
    services, compute = _SERVICES & {*groups}, "slurm_compute" in groups
    login = "slurm_login" in groups
    who = access.get("compute", COMPUTE[0]) if compute and not services else "all"
    host_based = access.get("between_nodes") == "host_based"
    shared = compute or len(services) > 1
    names = {
        "known_hosts": True,
        "client": host_based and (compute or login),
        "shosts": host_based and compute,
        "administrators": who != "all",
        "sshd": host_based and compute and who != "job",
        "sshd_of_jobs": who == "job",
        "penalties": who != "all",
        "limits": login and not shared and bool(access.get("login_limits")),
        "shared_limits": login and shared and bool(access.get("login_limits")),
        "message": login,
        "message_program": login,
    }
    return {"files": [name for name, wanted in names.items() if wanted], "who": who}


def login_limits(access: Mapping[str, Any], shared: bool = False) -> dict[str, str]:
    """The limits of each user on login hosts; half of each where the host has daemons or jobs as well (shared)."""
    limits = {name: str(value) for name, value in access.get("login_limits", {}).items()}
    return {name: _half(name, value) for name, value in limits.items()} if shared else limits


def _half(name: str, value: str) -> str:
    """Half of a limit; not less than what is allowed as a limit."""
    number, unit = re.fullmatch(r"([0-9]+)(\D?)", value).groups()  # type: ignore[union-attr]  # checked
    if unit in ("K", "M", "G", "T") and int(number) % 2:
        number, unit = str(int(number) * 1024), {"K": "", "M": "K", "G": "M", "T": "G"}[unit]
    half = f"{max(int(number) // 2, 1)}{unit}"
    return half if LIMITS[name][0](half) else value


def known_hosts(
    before: Iterable[str],
    keys: Mapping[str, str],
    addresses: Iterable[Mapping[str, str]],
    hosts: Collection[str],
    further: Iterable[Mapping[str, str]] = (),
) -> list[str]:
    """The lines of a file of known hosts (sshd(8)): each host by its names, the first part of its name, and addresses.

    Args:
        before: the lines that the file had. They keep the keys of hosts that are not in this run.
        keys: the public key of each host of this run.
        addresses: the variable slurm_addresses.
        hosts: all hosts of the cluster; others leave the file.
        further: the variable slurm_further_addresses.
    """
    names_of = _names_of(addresses, further, hosts)
    known = {}
    for line in before:
        names, _space, key = line.partition(" ")
        known[names.partition(",")[0]] = key
    known |= {host: key for host, key in keys.items() if key}
    return [
        f"{','.join(dict.fromkeys([host, host.partition('.')[0], *names_of[host]]))} {known[host]}"
        for host in hosts
        if known.get(host)
    ]


def exempt_networks(
    addresses: Iterable[Mapping[str, str]], hosts: Collection[str], further: Iterable[Mapping[str, str]] = ()
) -> list[str]:
    """The IP addresses of hosts in as few networks as they fill (PerSourcePenaltyExemptList in sshd_config(5)).

    Args:
        addresses: the variable slurm_addresses.
        hosts: hosts of the cluster. Those without an IP address are left out.
        further: the variable slurm_further_addresses.
    """
    found = [entry["address"] for entry in every_address(addresses, further, hosts)]
    four = ipaddress.collapse_addresses(ipaddress.IPv4Network(address) for address in found if ip_version(address) == 4)
    six = ipaddress.collapse_addresses(ipaddress.IPv6Network(address) for address in found if ip_version(address) == 6)
    return [str(network) for network in (*four, *six)]


def trusted_hosts(
    addresses: Iterable[Mapping[str, str]], hosts: Collection[str], further: Iterable[Mapping[str, str]] = ()
) -> list[str]:
    """Names and addresses of hosts from which users come without a key of their own (shosts.equiv)."""
    return [name for names in _names_of(addresses, further, hosts).values() for name in names]
