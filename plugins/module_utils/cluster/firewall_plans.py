# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firewall of the hosts: the key `firewall` of the cluster file, and the rules of each host that follow from it.

A rule lets some hosts connect to some ports of a host. With the key, what no rule lets in is refused. Servers of this
collection that ask for no password are closed to others without the key as well. `docs/admin/firewall.md` has the table
of who speaks to whom.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Annotated, Any, NamedTuple, TypedDict

from ..configuration.ports import (
    ALERTMANAGER,
    LARGEST,
    NODE_EXPORTER,
    PROMETHEUS,
    REPAIR,
    SLURMD,
    declared_listeners,
    port_range,
)
from ..language.formatting import short, shown
from ..language.hostlist import expand, fold
from .keys import SERVERS, SLURM_HOSTS, hosts_in
from .render import every_address, host_addresses
from .schema import Checker, choice, kind_of, sequence, text, unknown, up_to
from .server_ports import Ports, ports_in_variables
from .storage_key import HOST_GROUPS, Plan, file_servers, hosts

ANY = "any"
"""The name of all addresses."""

SSH = 22
PROTOCOLS = ("tcp", "udp")
PROMETHEUS_PORTS = f"{PROMETHEUS},{ALERTMANAGER}"
_NAME = re.compile(r"(?=.{1,253}$)(?:[a-z0-9_](?:[a-z0-9_-]{,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{,61}[a-z0-9])?", re.I)
"""A name in DNS. One without a dot would be a mistyped word, such as `any`."""

_PORTS = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*")


# -- the key ---------------------------------------------------------------------------------------------------------


def _network(value: Any) -> str:
    """An address or a network, as nft writes it. Raises ValueError."""
    try:
        found = ip_network(text(value))
    except ValueError as error:
        allowed = "allowed: addresses and networks such as 10.0.0.0/8"
        raise ValueError(f"{shown(value)} is no address or network ({error}), {allowed}") from None
    if "%" in str(found):
        raise ValueError(f"{shown(value)} has an interface, which no rule can have, allowed: addresses without one")
    return str(found.network_address) if found.num_addresses == 1 else str(found)


def _place(value: Any) -> str:
    """An address, a network, or a name in DNS. Raises ValueError."""
    if _NAME.fullmatch(text(value)):
        return text(value).lower()
    try:
        return _network(value)
    except ValueError as error:
        raise ValueError(f"{error}, and names in DNS such as admin.example.org") from None


def node_networks(value: Any) -> list[str]:
    """Networks in which only compute nodes have addresses. All of their ports are open to these."""
    found = _places([], _network)(value)
    if every := [place for place in found if place.endswith("/0")]:
        raise ValueError(f"{shown(every[0])} is every address, allowed: networks of compute nodes such as 10.9.0.0/16")
    return found


def _places(names: Sequence[str], place: Callable[[Any], str] = _place) -> Callable[[Any], list[str]]:
    """The type of a list of names of groups, addresses, networks and names in DNS."""

    def typed(value: Any) -> list[str]:
        """The values of the list, each once."""
        places = list(dict.fromkeys(one if one in names else place(one) for one in sequence(value)))
        if not places:
            raise ValueError(f"allowed: at least one of {', '.join([*names, 'an address', 'a network'])}")
        return places

    return typed


def networks(value: Any) -> list[str]:
    """Addresses, networks and names in DNS, each once."""
    return _places([])(value)


def port_list(value: Any) -> str:
    """Ports and ranges of ports with commas, as nft has them."""
    ports = ",".join(map(text, value)) if isinstance(value, list) else text(value).replace(" ", "")
    numbers = [[*map(int, span.split("-"))] for span in ports.split(",")] if _PORTS.fullmatch(ports) else [[0]]
    if any(not 1 <= number <= LARGEST for span in numbers for number in span) or any(
        span[0] > span[-1] for span in numbers
    ):
        raise ValueError(f"allowed: ports from 1 to {LARGEST} such as 443 or 8000-8100")
    return ports


Opening = TypedDict(
    "Opening",
    {
        "hosts": Annotated[str, hosts, "required"],
        "ports": Annotated[str, port_list, "required"],
        "protocol": Annotated[str, choice(PROTOCOLS, "protocol")],
        "from": Annotated[list[str], _places([*HOST_GROUPS, ANY]), "required"],
    },
    total=False,
)
"""A further service of hosts."""


class FirewallKey(TypedDict, total=False):
    """The value of the key."""

    ssh: Annotated[list[str], _places([ANY]), "required"]
    ssh_port: Annotated[int, up_to(LARGEST)]
    compute_networks: Annotated[list[str], node_networks]
    open: Annotated[list[Opening], sequence]


FIREWALL = kind_of(FirewallKey)

OPEN = kind_of(Opening)


def check(checker: Checker, found: Any, slurm_conf: Mapping[str, Any]) -> FirewallKey:
    """The checked value of the key `firewall`."""
    if not found:
        return {}
    firewall = checker.check(FIREWALL, "firewall", found)
    if "open" in firewall:
        entries = enumerate(firewall["open"])
        firewall["open"] = [checker.check(OPEN, f"firewall.open[{i}]", entry) for i, entry in entries]
    given = {str(key).lower(): value for key, value in slurm_conf.items()}
    span = given.get("srunportrange", "default")
    if span != "default" and not port_range(str(span)):
        what = f"found {shown(span)}, allowed: a range of ports for srun such as 60001-63000, with {{}}"
        checker.problem("slurm_conf.SrunPortRange", what.format(checker.key("firewall")))
    return firewall


def check_hosts(checker: Checker, firewall: Mapping[str, Any], known: Collection[str]) -> None:
    """Check the hosts that entries name. known: all hosts that an entry may have."""
    for i, entry in enumerate(firewall.get("open", [])):
        names = expand(entry.get("hosts", ""))
        strange = [name for name in names if name not in known and name not in HOST_GROUPS]
        if strange:
            allowed = ", ".join([*HOST_GROUPS, "hosts of this cluster"])
            what = unknown("host", strange[0], [*known, *HOST_GROUPS], allowed)
            checker.problem(f"firewall.open[{i}].hosts", f"found {shown(fold(strange))}, {what}")


# -- the rules -------------------------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """Who may connect to which ports of a host."""

    what: str
    """What listens there, for a person who reads the table."""
    sources: tuple[str, ...]
    """Names of sets of addresses; ANY alone: everybody."""
    ports: str = ""
    """Ports as nft has them; empty: all traffic."""
    protocol: str = "tcp"


USERS = ("controllers", "login", "compute")
"""The hosts on which srun and other commands of users run, which ask slurmd as well."""

_OF_LISTENER: dict[str, tuple[str, tuple[str, ...]]] = {
    "SlurmctldPort": ("slurmctld", SLURM_HOSTS),
    "AccountingStoragePort": ("slurmdbd", SLURM_HOSTS),
    "DbdPort": ("slurmdbd", SLURM_HOSTS),
    "SlurmdPort": ("slurmd", USERS),
    "Port": ("slurmd", USERS),
    **{key.port.variable: (key.name, key.port.clients) for key in SERVERS if key.port},
    "NFS": ("NFS", ("nfs_clients",)),
}
"""By the end of the key of a listener: its name in the table, and who may connect. MariaDB listens for its own host."""


class HostRules(NamedTuple):
    """The rules of a host."""

    rules: tuple[Rule, ...] = ()
    """Who may connect to which ports."""
    closed: str = ""
    """Ports to which nobody else may connect."""
    all_ports: tuple[Rule, ...] = ()
    """Who may connect to all other ports."""
    limited: str = ""
    """Ports to which an address, or a user of this host, has a limited number of connections."""
    private: str = ""
    """Ports of this host to which its users may not connect."""
    private_everywhere: str = ""
    """Ports of all hosts to which users of this host may not connect, since servers trust its address."""
    others_refused: bool = False
    """Whether everything else is refused."""


def firewall_plans(
    firewall: Mapping[str, Any],
    members: Mapping[str, Collection[str]],
    variables: Mapping[str, Any],
    layout: str = "",
    resolved: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Any]:
    """The different `plans` of rules, and the index of its plan for each of the `hosts` that has rules.

    Args:
        firewall: the variable slurm_firewall. Without it, only servers of this collection have rules.
        members: the hosts of each of HOST_GROUPS.
        variables: the shared variables by name, the ports of servers, and slurmdbd_conf.
        layout: the template of the rules, since another one makes another table.
        resolved: the IP addresses of each of `names_to_resolve`.

    Raises ValueError if a name has no address.
    """
    resolved = resolved or {}
    _refuse_unresolved(names_to_resolve(firewall, members, variables), resolved)
    cluster = _Cluster.of(firewall, members, variables, resolved)
    sets = _sets(firewall, cluster, variables, resolved)
    numbers: dict[HostRules, int] = {}
    plans: list[Plan] = []
    of = {}
    for host in members["all"]:
        rules = _host_rules(host, firewall, cluster, variables)
        if rules == HostRules():
            continue
        if rules not in numbers:
            numbers[rules] = len(plans)
            plans.append(_plan(rules, sets, layout))
        of[host] = numbers[rules]
    return {"plans": plans, "hosts": of}


@dataclass(frozen=True)
class _Cluster:
    """What all hosts share, computed once."""

    groups: Mapping[str, frozenset[str]]
    """The hosts of each group that rules name."""
    addresses: Mapping[str, Sequence[IPv4Address | IPv6Address]]
    servers: Ports
    listening: Mapping[str | None, list[tuple[str, str]]]
    """The end of the key and the ports of each listener, by host, for the key `firewall`; None: of every host."""
    readers: Sequence[str]
    """Addresses and networks from which what the key `monitoring` measures is read."""

    @classmethod
    def of(
        cls,
        firewall: Mapping[str, Any],
        members: Mapping[str, Collection[str]],
        variables: Mapping[str, Any],
        resolved: Mapping[str, Collection[str]],
    ) -> _Cluster:
        """From the shared variables, the ports of servers, and slurmdbd_conf."""
        return cls(
            groups=_groups(members, variables),
            addresses=_addresses_of([*members["all"], *_nodes(variables)], variables, resolved),
            servers=ports_in_variables(variables),
            listening=_listening(variables) if firewall else {},
            readers=_without_names(monitoring_readers(variables), resolved),
        )

    def ports_of_servers(self, host: str, without: str = "") -> str:
        """The ports of what a host serves for keys; only of what is not for the group `without`, if given."""
        others = {key.port.variable for key in SERVERS if key.port and without in key.port.clients}
        found = (str(port) for name, hosts, port in self.servers if host in hosts and port and name not in others)
        return _port_set(*found)

    def has_addresses(self, rule: Rule, host: str) -> bool:
        """Whether the addresses of all that may connect to a host are known: the site's own Prometheus has no name."""
        clients = [self.groups.get(name, frozenset()) for name in rule.sources]
        return bool(clients or self.groups["monitoring"]) and all(
            self.addresses.get(client) for each in clients for client in each if client != host
        )

    def is_trusted(self, host: str) -> bool:
        """Whether servers let in the address of a host that asks what the key `monitoring` measures."""
        own = self.addresses.get(host, ())
        return any(host in self.groups[name] for name in ("monitoring", "controllers", "report")) or any(
            address in ip_network(network) for address in own for network in self.readers
        )


def _host_rules(host: str, firewall: Mapping[str, Any], cluster: _Cluster, variables: Mapping[str, Any]) -> HostRules:
    """The rules of one host."""
    groups = cluster.groups
    of_prometheus = PROMETHEUS_PORTS if host in groups["monitoring"] else ""
    monitored = bool(variables.get("slurm_monitoring"))
    of_monitoring = [*_rules_of_monitoring(host, groups, cluster.readers)] if monitored else []
    has_users = monitored and host in groups["login"] | groups["compute"]
    found = HostRules(
        limited=_port_set(cluster.ports_of_servers(host), of_prometheus),
        private=_port_set(str(NODE_EXPORTER), of_prometheus) if has_users else "",
        private_everywhere=_port_set(str(NODE_EXPORTER), PROMETHEUS_PORTS)
        if has_users and cluster.is_trusted(host)
        else "",
    )
    if not firewall:
        # Without the address of a client, the port stays open to all.
        known = [rule for rule in of_monitoring if cluster.has_addresses(rule, host)]
        return found._replace(rules=tuple(known), closed=_port_set(*(rule.ports for rule in known)))
    rules = [
        *_rules(host, firewall, groups, cluster.listening),
        *of_monitoring,
        *_rules_of_outside(host, variables),
    ]
    if groups["monitoring"] and host in groups["controllers"]:
        rules.append(Rule("metrics of slurmctld", ("monitoring",), dict(cluster.listening[host])["SlurmctldPort"]))
    if variables.get("slurm_repair") and host in groups["controllers"]:
        rules.append(Rule("slurm-repair", ("compute",), str(REPAIR)))
    return found._replace(
        rules=tuple(rule for rule in rules if rule.ports),
        closed=_port_set(*(rule.ports for rule in of_monitoring), cluster.ports_of_servers(host, without="compute")),
        all_ports=tuple(rule for rule in rules if not rule.ports),
        others_refused=True,
    )


def _port_set(*ports: str) -> str:
    """Ports as nft has them, each once."""
    return ",".join(dict.fromkeys(port for one in ports for port in one.split(",") if port))


def _nodes(variables: Mapping[str, Any]) -> list[str]:
    """The compute nodes, also those that no play changes, which are in no group."""
    return [host for node in variables["slurm_nodes"] for host in expand(node["hosts"])]


_OF_ONE_HOST = ("slurm_monitoring", "slurm_report")


def _groups(members: Mapping[str, Collection[str]], variables: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """The hosts of each group that rules name."""
    mounting = [
        host
        for entry in variables.get("slurm_storage") or []
        if entry.get("server")
        for name in expand(str(entry.get("hosts") or "all"))
        for host in (members[name] if name in HOST_GROUPS else [name])
    ]
    database = [variables["slurm_database"]] if variables["slurm_database"] else []
    monitoring, report = ([host] if (host := hosts_in(variables.get(name) or {})) else [] for name in _OF_ONE_HOST)
    compute = [*members["compute"], *_nodes(variables)]
    found = {
        **members,
        "compute": compute,
        "database": database,
        "nfs_clients": mounting,
        "monitoring": monitoring,
        "report": report,
    }
    return {name: frozenset(names) for name, names in found.items()}


def _listening(variables: Mapping[str, Any]) -> dict[str | None, list[tuple[str, str]]]:
    """The end of the key and the ports of each listener, by host; None: of every host."""
    listeners = declared_listeners(
        variables["slurm_controllers"],
        variables["slurm_database"],
        [("nodes.Port", expand(node["hosts"]), node.get("Port")) for node in variables["slurm_nodes"]],
        variables["slurm_conf"],
        variables.get("slurmdbd_conf"),
        ports_in_variables(variables),
        file_servers(variables.get("slurm_storage") or []),
    )
    found: dict[str | None, list[tuple[str, str]]] = {}
    for listener in listeners:
        for host in [None] if listener.hosts is None else listener.hosts:
            found.setdefault(host, []).append((listener.key.rpartition(".")[2], _shown(listener.ports)))
    # sackd listens on the port that slurmd would have (`_listen_for_reconf` in `src/sackd/sackd.c`).
    conf = {str(key).lower(): str(value) for key, value in variables["slurm_conf"].items() if value is not None}
    found.setdefault(None, []).append(("sackd", conf.get("slurmdport", SLURMD)))
    return found


def _rules(
    host: str,
    firewall: Mapping[str, Any],
    groups: Mapping[str, frozenset[str]],
    listening: Mapping[str | None, list[tuple[str, str]]],
) -> Iterator[Rule]:
    """The rules of one host."""
    roles = {name for name, hosts in groups.items() if host in hosts}
    yield Rule("ssh", (ANY,) if ANY in firewall["ssh"] else ("ssh",), str(firewall.get("ssh_port", SSH)))
    if roles & {"login", "compute"}:
        yield Rule("ssh between hosts", USERS, str(firewall.get("ssh_port", SSH)))
    yield from _rules_of_listeners(listening.get(host, ()))
    yield from _rules_of_roles(roles, dict(listening[None]), bool(firewall.get("compute_networks")))
    for i, entry in enumerate(firewall.get("open") or []):
        if {host, *roles.intersection(HOST_GROUPS)} & {*expand(entry["hosts"])}:
            named = [name for name in entry["from"] if name in HOST_GROUPS]
            sources = (ANY,) if ANY in entry["from"] else (*named, f"open_{i}")
            yield Rule(f"open[{i}]", sources, entry["ports"], entry.get("protocol", PROTOCOLS[0]))


def _rules_of_listeners(listening: Iterable[tuple[str, str]]) -> Iterator[Rule]:
    """The rules for what listens on a host, given by the ends of the keys and the ports."""
    ports: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for key, span in listening:
        if key in _OF_LISTENER and span:
            ports.setdefault(_OF_LISTENER[key], []).append(span)
    for (what, sources), spans in ports.items():
        yield Rule(what, sources, ",".join(dict.fromkeys(spans)))


def _rules_of_roles(roles: Collection[str], everywhere: Mapping[str, str], has_networks: bool) -> Iterator[Rule]:
    """The rules that follow from the roles of a host.

    everywhere: ports on every host by the ends of their keys. has_networks: whether compute nodes have networks.
    """
    if "login" in roles and "controllers" not in roles and "compute" not in roles:
        yield Rule("sackd", ("controllers",), everywhere["sackd"])
    if everywhere["SrunPortRange"] and any(name in roles for name in USERS):
        # slurmctld and slurmstepd connect to srun and salloc, also for srun --pty and X11.
        yield Rule("srun", ("controllers", "compute"), everywhere["SrunPortRange"])
    if "compute" in roles:
        # MPI and NCCL choose their ports themselves.
        yield Rule("compute nodes", ("compute", "compute_networks") if has_networks else ("compute",))


def monitoring_readers(variables: Mapping[str, Any]) -> list[str]:
    """Addresses and networks from which what the key `monitoring` measures is read."""
    return list((variables.get("slurm_monitoring") or {}).get("readers") or [])


def _rules_of_monitoring(host: str, groups: Mapping[str, frozenset[str]], readers: Collection[str]) -> Iterator[Rule]:
    """The rules for the host of the key `monitoring`, which asks every host, and for those who read."""
    of_readers = ("readers",) if readers else ()
    yield Rule("node-exporter", (*(("monitoring",) if groups["monitoring"] else ()), *of_readers), str(NODE_EXPORTER))
    if host in groups["monitoring"]:
        report = () if groups["report"] <= groups["controllers"] else ("report",)  # its page shows alerts
        yield Rule("Prometheus", ("controllers", *report, *of_readers), str(PROMETHEUS))
        yield Rule("alertmanager", of_readers, str(ALERTMANAGER))


def report_readers(report: Mapping[str, Any]) -> list[str]:
    """Addresses and networks outside of the cluster from which the page is opened."""
    proxy = report.get("proxy") or {}
    return [*(report.get("readers") or []), *([proxy["address"]] if proxy else [])]


_OUTSIDE: Mapping[str, tuple[str, str, str, Callable[[Mapping[str, Any]], list[str]]]] = {
    "slurm_report": ("slurm_report_port", "readers of the report", "report_readers", report_readers),
    "slurm_rest": ("slurmrestd_port", "clients of rest", "rest_clients", lambda rest: rest.get("clients") or []),
}
"""By the variable of a server whose clients may be outside of the cluster: its port, and the rule, set and places."""


def _rules_of_outside(host: str, variables: Mapping[str, Any]) -> Iterator[Rule]:
    """The rules for those outside of the cluster."""
    for name, (port, what, source, places) in _OUTSIDE.items():
        server = variables.get(name) or {}
        if server.get("host") == host and places(server):
            yield Rule(what, (source,), str(variables.get(port)))


def _shown(ports: range) -> str:
    """Ports as nft has them; empty if there are none."""
    return "-".join(str(port) for port in dict.fromkeys([*ports[:1], *ports[-1:]]))


# -- the addresses ---------------------------------------------------------------------------------------------------


Addresses = dict[str, list[str]]
"""Addresses, ranges and networks of a set, by the name that nft has for their version: ip or ip6."""


def names_to_resolve(
    firewall: Mapping[str, Any], members: Mapping[str, Collection[str]], variables: Mapping[str, Any]
) -> list[str]:
    """The names whose IP addresses the rules need. With the key, these are also hosts without an IP address."""
    known = {entry["name"]: entry["address"] for entry in host_addresses(variables["slurm_addresses"])}
    cluster = [*members["all"], *_nodes(variables)] if firewall else []
    hosts = [known.get(host, host) for host in cluster]
    named = [place for places in _listed(firewall, variables).values() for place in places if _NAME.fullmatch(place)]
    return list(dict.fromkeys([*(name for name in hosts if _address(name) is None), *named]))


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address; None for a name."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def _usable(addresses: Iterable[str]) -> list[IPv4Address | IPv6Address]:
    """Those of a name's addresses by which other hosts know it: Debian gives a host its own name on 127.0.1.1."""
    found = {ip_address(address) for address in addresses if "%" not in address}
    return [address for address in found if not (address.is_loopback or address.is_link_local)]


def _addresses(text: str, resolved: Mapping[str, Collection[str]]) -> list[IPv4Address | IPv6Address]:
    """An address itself, and those of a name; none of a name that needs none."""
    own = _address(text)
    return _usable(resolved.get(text, ())) if own is None else [own]


def _refuse_unresolved(names: Iterable[str], resolved: Mapping[str, Collection[str]]) -> None:
    """Raise ValueError for names without an address."""
    missing = [name for name in names if not _usable(resolved.get(name, ()))]
    if missing:
        own = sorted({address for name in missing for address in resolved.get(name, ())})
        only = f" ({', '.join(own)} is none for other hosts)" if own else ""
        raise ValueError(
            f"firewall: the control host finds no IP address of {short(fold(missing))}{only}, allowed: names that it "
            "can resolve, and addresses in the cluster file (addresses, address of a node)"
        )


def _addresses_of(
    hosts: Iterable[str], variables: Mapping[str, Any], resolved: Mapping[str, Collection[str]]
) -> dict[str, list[IPv4Address | IPv6Address]]:
    """The IP addresses of hosts by their names; others may be in the list."""
    further = variables.get("slurm_further_addresses") or []
    texts = {host: [host] for host in hosts}
    for entry in every_address(variables["slurm_addresses"], further):
        texts.setdefault(entry["host"], []).append(entry["address"])
    return {host: [found for text in given for found in _addresses(text, resolved)] for host, given in texts.items()}


def _listed(firewall: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, list[str]]:
    """The addresses, networks and names that the cluster file lists, by the set that has them."""
    return {
        "ssh": firewall.get("ssh") or [],
        "readers": monitoring_readers(variables),
        **{source: places(variables.get(name) or {}) for name, (_, _, source, places) in _OUTSIDE.items()},
        "compute_networks": firewall.get("compute_networks") or [],
        **{f"open_{i}": entry["from"] for i, entry in enumerate(firewall.get("open") or [])},
    }


def _without_names(places: Iterable[str], resolved: Mapping[str, Collection[str]]) -> list[str]:
    """Places, those that are names in DNS replaced by their addresses."""
    found = [sorted(map(str, _usable(resolved[place]))) if _NAME.fullmatch(place) else [place] for place in places]
    return [place for each in found for place in each]


def _sets(
    firewall: Mapping[str, Any],
    cluster: _Cluster,
    variables: Mapping[str, Any],
    resolved: Mapping[str, Collection[str]],
) -> dict[str, Addresses]:
    """The addresses of each set that rules name."""
    sets: dict[str, Addresses] = {}
    for name, members in cluster.groups.items():
        of_group = [address for host in members for address in cluster.addresses.get(host, ())]
        sets[name] = {"ip": _ranges(of_group, 4), "ip6": _ranges(of_group, 6)}
    listed = _listed(firewall, variables).items()
    return {**sets, **{name: _split_by_version(_without_names(places, resolved)) for name, places in listed}}


def _split_by_version(places: Iterable[str]) -> Addresses:
    """The addresses and networks among places, which can be groups of hosts as well."""
    networks = [place for place in places if place not in (*HOST_GROUPS, ANY)]
    return {
        "ip": [network for network in networks if ":" not in network],
        "ip6": [network for network in networks if ":" in network],
    }


def _ranges(addresses: Iterable[IPv4Address | IPv6Address], version: int) -> list[str]:
    """The fewest ranges with exactly the addresses of a version."""
    numbers = sorted({int(address) for address in addresses if address.version == version})
    make = IPv4Address if version == 4 else IPv6Address
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ["-".join(str(make(number)) for number in dict.fromkeys(span)) for span in spans]


def _plan(rules: HostRules, sets: Mapping[str, Addresses], layout: str) -> Plan:
    """The rules of a host, the sets that they name, and who may come by ssh. A set without addresses is left out."""
    used = {name for rule in (*rules.rules, *rules.all_ports) for name in rule.sources if name != ANY}
    if rules.private_everywhere:
        used.add("all")
    filled = {name: {kind: places for kind, places in sets[name].items() if places} for name in sorted(used)}
    ssh = [rule for rule in rules.rules if rule.what.startswith("ssh")]
    plan: Plan = {
        **rules._asdict(),
        "rules": [{**rule._asdict(), "sources": [*rule.sources]} for rule in rules.rules],
        "all_ports": [{**rule._asdict(), "sources": [*rule.sources]} for rule in rules.all_ports],
        "sets": {name: addresses for name, addresses in filled.items() if addresses},
        "ssh": _collect_ssh_places(ssh, filled) if ssh else [ANY],
        "ssh_port": int(ssh[0].ports) if ssh else 0,
    }
    return {**plan, "digest": hashlib.sha256(json.dumps([plan, layout], sort_keys=True).encode()).hexdigest()}


def _collect_ssh_places(rules: Iterable[Rule], sets: Mapping[str, Addresses]) -> list[str]:
    """The addresses from which somebody may come by ssh, or ANY alone."""
    names = dict.fromkeys(name for rule in rules for name in rule.sources)
    if ANY in names:
        return [ANY]
    return [place for name in names for places in sets[name].values() for place in places]
