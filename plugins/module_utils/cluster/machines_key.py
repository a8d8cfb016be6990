# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `machines` of the cluster file: how the machine of a node is started, stopped and asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypedDict

from ..formats.bmc_address import HOST, parse_address
from ..language.formatting import short, shown
from ..language.hostlist import expand, fold
from .schema import Checker, choice, file_name, flag, kind_of, mapping, text, unknown

IPMI, REDFISH, PROGRAM = "ipmi", "redfish", "program"

_USER = re.compile(r"[A-Za-z0-9._@+][A-Za-z0-9._@+-]*")
_LONGEST_IPMI_USER = 16
"""Bytes of a user's name in IPMI 2.0 (Set User Name)."""


def address(value: Any) -> str:
    """The address of the BMC of any node."""
    allowed = f"allowed: the address of a BMC with {HOST}, perhaps with a port, such as {HOST}-bmc or {HOST}-bmc:623"
    try:
        parse_address(text(value).replace(HOST, "x"))
    except ValueError as error:
        raise ValueError(allowed) from error
    if HOST not in text(value):
        raise ValueError(allowed)
    return text(value)


def user(value: Any) -> str:
    """The name with which the controllers log in to a BMC, also as an argument of a command."""
    if not _USER.fullmatch(text(value)):
        raise ValueError("allowed: letters, digits, '.', '_', '@', '+' and '-', which is not the first")
    return text(value)


class MachinesKey(TypedDict, total=False):
    """The value of the key; empty without it."""

    by: Annotated[str, choice([IPMI, REDFISH, PROGRAM]), "required"]
    address: Annotated[str, address]
    addresses: Annotated[dict[str, str], mapping]
    user: Annotated[str, user]
    ca: Annotated[str, file_name]
    verify: Annotated[bool, flag]
    program: Annotated[str, file_name]


MACHINES = kind_of(MachinesKey)

_REQUIRED = {IPMI: ("address", "user"), REDFISH: ("address", "user"), PROGRAM: ("program",)}
_ALLOWED = {
    IPMI: ("by", "address", "addresses", "user"),
    REDFISH: ("by", "address", "addresses", "user", "ca", "verify"),
    PROGRAM: ("by", "program", "user"),
}
"""What goes with each value of `by`."""


def check(checker: Checker, found: Any) -> MachinesKey:
    """The checked value of the key `machines`."""
    if not found:
        return {}
    found = checker.without_password("machines", found, "machines_password")
    machines = checker.check(MACHINES, "machines", found)
    by = machines.get("by")
    if not by:
        return machines
    for name, value in found.items():
        if name in MACHINES.own and name not in _ALLOWED[by] and value is not None:
            others = " and ".join(f"by: {other}" for other, names in _ALLOWED.items() if name in names)
            checker.problem(f"machines.{name}", f"found {shown(value)} with by: {by}, allowed: only with {others}")
    for name in _REQUIRED[by]:
        if found.get(name) is None:
            checker.problem(f"machines.{name}", f"missing, needed with by: {by}")
    if by == IPMI and len(machines.get("user", "")) > _LONGEST_IPMI_USER:
        what = f"found {shown(machines['user'])}, allowed: up to {_LONGEST_IPMI_USER} characters, as IPMI has them"
        checker.problem("machines.user", what)
    if "ca" in machines and machines.get("verify") is False:
        checker.problem("machines.verify", "found false, allowed: true, or no ca, which nobody would read")
    return machines


def check_addresses(checker: Checker, machines: MachinesKey, nodes: Iterable[str]) -> None:
    """The addresses of single nodes, which are nodes of the cluster."""
    known = dict.fromkeys(nodes)
    seen: set[str] = set()
    for names, value in machines.get("addresses", {}).items():
        key = f"machines.addresses.{names}"
        try:
            hosts = expand(text(names))
            pairs = addresses_of(names, text(value))
            for _host, of_host in pairs:
                parse_address(of_host)
        except ValueError:
            what = "the address of a BMC for each of these nodes, perhaps with a port, such as 10.1.0.7"
            checker.problem(key, f"found {shown(value)}, allowed: {what}")
            continue
        strange = [host for host in hosts if host not in known]
        if strange:
            what = unknown("node", strange[0], known, f"nodes of the cluster, {short(fold([*known]))}")
            checker.problem(key, f"found {shown(strange[0])}, {what}")
        if twice := sorted(seen.intersection(hosts)):
            checker.problem(key, f"found {shown(twice[0])}, which has an address already, allowed: one address")
        seen.update(hosts)


def addresses_of(names: str, value: str) -> list[tuple[str, str]]:
    """The address of each node of an entry: one of one node as it is, or a hostlist of as many. Raises ValueError."""
    hosts = expand(names)
    found = [value] if len(hosts) == 1 else expand(value)
    if len(found) != len(hosts):
        raise ValueError(f"{len(found)} addresses of {len(hosts)} nodes")
    return list(zip(hosts, found))


def single_addresses(machines: Mapping[str, Any]) -> dict[str, str]:
    """The addresses of single nodes, of a value that is right."""
    entries = machines.get("addresses", {}).items()
    return {host: address for names, value in entries for host, address in addresses_of(names, value)}
