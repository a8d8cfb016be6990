# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of hosts in the cluster file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..language.formatting import short, shown
from ..language.hostlist import expand, fold
from . import schema
from .schema import Checker, NodeEntry, unknown

_ADDRESSES: schema.Kind[NodeEntry] = schema.Kind(
    own={key: {**schema.NODE.own[key], "required": True} for key in ("hosts", "address")}
)


FURTHER: schema.Kind[NodeEntry] = schema.Kind(
    own={"hosts": _ADDRESSES.own["hosts"], "names": _ADDRESSES.own["hosts"], "address": _ADDRESSES.own["address"]}
)


@dataclass(frozen=True)
class KnownHosts:
    """The hosts that may have an address."""

    hosts: Collection[str]
    description: str
    """What messages call them."""


def check_addresses(
    checker: Checker,
    nodes: list[NodeEntry],
    others: Iterable[tuple[str, Any]],
    known: KnownHosts,
    slurm_conf: Mapping[str, Any],
) -> list[dict[str, str]]:
    """All hosts with an address, as `{hosts: HOSTLIST, address: HOSTLIST}`.

    others: such entries besides those of the nodes, each with its key; they may repeat an address.
    """
    entries = [(f"nodes[{i}].address", node) for i, node in enumerate(nodes) if "hosts" in node and "address" in node]
    entries += [(key, checker.check(_ADDRESSES, key, entry)) for key, entry in others]
    with_ports = {host for node in nodes if "Port" in node for host in expand(node.get("hosts", ""))}
    addresses = _Addresses(checker, known, with_ports, _unused_versions(checker, slurm_conf))
    return [
        {"hosts": entry.get("hosts", ""), "address": entry.get("address", "")}
        for key, entry in entries
        if addresses.add(key, expand(entry.get("hosts", "")), expand(entry.get("address", "")))
    ]


def check_further(
    checker: Checker, entries: Iterable[Any], addressed: Iterable[Mapping[str, str]], known: KnownHosts
) -> list[dict[str, str]]:
    """The further names of hosts with their addresses, as the key `further_addresses` has them.

    addressed: the addresses of hosts, as `check_addresses` returns them.
    """
    own = _Addresses(checker, known, (), {})
    own.host_of = {
        address: host for entry in addressed for host, address in zip(expand(entry["hosts"]), expand(entry["address"]))
    }
    found = [checker.check(FURTHER, f"further_addresses[{i}]", entry) for i, entry in enumerate(entries)]
    own_names = {"localhost", *(name for host in known.hosts for name in (host, host.partition(".")[0]))}
    named: dict[str, str] = {}
    for i, entry in enumerate(found):
        if not FURTHER.required <= entry.keys():
            continue  # its other mistakes have been named
        hosts, names, addresses = (expand(entry[key]) for key in ("hosts", "names", "address"))
        own.add_further(f"further_addresses[{i}]", hosts, names, addresses)
        pairs = zip(hosts, names)
        if again := [name for host, name in pairs if name in own_names or named.setdefault(name, host) != host]:
            what = "which another host has, or this one already, allowed: further names"
            checker.problem(f"further_addresses[{i}].names", f"found {shown(fold(again))}, {what}")
    return [{key: str(value) for key, value in entry.items()} for entry in found]


class _Addresses:
    """The addresses of hosts as entries give them, one entry after the other.

    A mistake of several hosts of an entry is one problem: a wrong letter may be that of thousands.
    """

    def __init__(
        self,
        checker: Checker,
        known: KnownHosts,
        with_ports: Collection[str],
        unused_versions: Mapping[int | None, str],
    ) -> None:
        self._checker = checker
        self._known = known
        self._with_ports = with_ports
        self._unused_versions = unused_versions
        self._version_was_wrong = False
        self._address_of: dict[str, str] = {}
        self.host_of: dict[str, str] = {}

    def add(self, key: str, hosts: list[str], addresses: list[str]) -> bool:
        """Check an entry; whether it has a host that had no address before."""
        if len(hosts) != len(addresses):
            what = f"found {len(addresses)} for {len(hosts)} hosts, allowed: one address for each host"
            self._checker.problem(key, what)
        is_new = any(host not in self._address_of for host in hosts)
        pairs = list(zip(hosts, addresses))
        self._check_known(key, [host for host, _address in pairs])
        self._check_one_address(key, pairs)
        self._check_one_host(key, pairs)
        self._check_versions(key, addresses)
        return is_new

    def add_further(self, key: str, hosts: list[str], names: list[str], addresses: list[str]) -> None:
        """Check an entry of further names, whose hosts may have any number of addresses."""
        if not len(hosts) == len(names) == len(addresses):
            what = f"found {len(names)} names and {len(addresses)} addresses for {len(hosts)} hosts"
            self._checker.problem(key, f"{what}, allowed: one of each for each host")
        self._check_known(f"{key}.hosts", hosts)
        self._check_one_host(f"{key}.address", list(zip(hosts, addresses)))
        if others := [address for address in addresses if schema.ip_version(address) is None]:
            self._checker.problem(f"{key}.address", f"found {shown(fold(others))}, allowed: IP addresses")

    def _check_known(self, key: str, hosts: list[str]) -> None:
        """Check that hosts may have an address."""
        strange = [host for host in hosts if host not in self._known.hosts]
        if strange:
            what = unknown("host", strange[0], self._known.hosts, self._known.description)
            self._checker.problem(key, f"found {shown(fold(strange))}, {what}")

    def _check_one_address(self, key: str, pairs: list[tuple[str, str]]) -> None:
        """Check that hosts have no other address already."""
        again = [host for host, address in pairs if self._address_of.setdefault(host, address) != address]
        if again:
            theirs = short(fold([self._address_of[host] for host in again]))
            what = "has an address" if len(again) == 1 else "have addresses"
            self._checker.problem(key, f"{short(fold(again))} {what} already, {theirs}")

    def _check_one_host(self, key: str, pairs: list[tuple[str, str]]) -> None:
        """Check that addresses are not those of other hosts. Several slurmd of a host have one, and their own ports."""
        taken = []
        for host, address in pairs:
            other = self.host_of.setdefault(address, host)
            if other != host and not (host in self._with_ports and other in self._with_ports):
                taken.append(address)
        if taken:
            theirs = short(fold([self.host_of[address] for address in taken]))
            what = "is the address" if len(taken) == 1 else "are the addresses"
            self._checker.problem(key, f"{short(fold(taken))} {what} of {theirs} already")

    def _check_versions(self, key: str, addresses: list[str]) -> None:
        """Check that Slurm uses the version of IP of addresses. Of all entries, one is named."""
        for address in addresses:
            problem = self._unused_versions.get(schema.ip_version(address))
            if problem and not self._version_was_wrong:
                self._version_was_wrong = True
                self._checker.problem_of_new(key, f"found '{address}', {problem}")


def _unused_versions(checker: Checker, slurm_conf: Mapping[str, Any]) -> dict[int | None, str]:
    """The versions of IP that Slurm does not use, with the problem of an address of that version.

    It uses IPv4 unless CommunicationParameters has DisableIPv4, and IPv6 only with EnableIPv6 (`xgetaddrinfo` in
    `src/common/util-net.c`), anywhere in the value. Role slurmdbd gives both options to slurmdbd, too.
    """
    key = checker.key("slurm_conf") + ".CommunicationParameters"
    options = str(slurm_conf.get("CommunicationParameters") or "").lower()
    unused: dict[int | None, str] = {}
    if "disableipv4" in options:
        unused[4] = f"an IPv4 address, allowed: IPv6 addresses, since {key} has DisableIPv4"
    if "enableipv6" not in options:
        unused[6] = f"an IPv6 address, allowed: IPv4 addresses, or EnableIPv6 in {key}"
    return unused
