# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports on which the hosts of a cluster listen: no two programs of a host may have the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..language.hostlist import expand

SLURMCTLD, SLURMD, SLURMDBD = "6817", "6818", "6819"
"""Slurm's own values (`configure.ac`: `SLURMCTLD_PORT`, `SLURMD_PORT`, `SLURMDBD_PORT`)."""

MARIADB = 3306
NFS = 2049
PROMETHEUS, ALERTMANAGER, NODE_EXPORTER = 9090, 9093, 9100
REPAIR = 6830
"""Where the controllers take the reports of nodes that fail (key `repair`)."""

LARGEST = 65535
"""The last port."""


class Listener(NamedTuple):
    """A program that listens."""

    key: str
    """The parameter that sets the port; of another program its name."""
    ports: range
    hosts: frozenset[str] | None
    """Names and addresses of the hosts on which it runs; None: every host."""


SSH = Listener("ssh", range(22, 23), None)
"""Every host has it, since Ansible needs it."""


def port_range(text: str) -> range:
    """Ports, one or `FIRST-LAST`; none if the text is neither."""
    match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", text)
    return range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)


def _shown(ports: range) -> str:
    """Ports as they are in the file."""
    return f"{ports[0]}-{ports[-1]}" if len(ports) > 1 else str(ports[0])


def impossible(listeners: Iterable[Listener]) -> Iterator[tuple[str, str]]:
    """The ports of slurm.conf that cannot be, as key and problem. Slurm cuts off what does not fit into 16 bits.

    The other keys have types.
    """
    for key, ports, _hosts in listeners:
        if key.startswith("slurm_conf.") and ports and (ports[0] < 1 or ports[-1] > LARGEST):
            yield key, f"found '{_shown(ports)}', allowed: ports from 1 to {LARGEST}"


def collisions(listeners: Iterable[Listener]) -> Iterator[tuple[str, str]]:
    """The listeners that have a port of an earlier one on the same host, as key and problem.

    The second program that binds a port does not start (`slurm_init_msg_engine_port` in
    `src/common/slurm_protocol_api.c`). srun takes any free port of its range, and so can take that of a daemon
    (slurm.conf(5), SlurmctldPort and SlurmdPort).
    """
    taken: dict[int, list[Listener]] = {}
    reported = set()
    for listener in listeners:
        numbers = listener.ports[: LARGEST + 1]
        others = {id(other): other for port in numbers for other in taken.get(port, ())}
        for other in others.values():
            if (listener.key, other.key) not in reported and (place := _common(listener.hosts, other.hosts)):
                reported.add((listener.key, other.key))
                where = f"found '{_shown(listener.ports)}' on {place}, where {other.key.rpartition('.')[2]} is"
                yield listener.key, f"{where} {_shown(other.ports)}, allowed: another port"
        for port in numbers:
            taken.setdefault(port, []).append(listener)


def _common(hosts: frozenset[str] | None, others: frozenset[str] | None) -> str:
    """The first host that two listeners have in common; empty if they have none."""
    if hosts is None or others is None:
        hosts = others if hosts is None else hosts
        return "every host" if hosts is None else min(hosts, default="")
    return min(hosts & others, default="")


def monitoring_listeners(monitoring: Mapping[str, Any]) -> list[Listener]:
    """The listeners of the key `monitoring`: the exporter of every host, Prometheus and alertmanager on its host."""
    if not monitoring:
        return []
    server = {"Prometheus": PROMETHEUS, "alertmanager": ALERTMANAGER} if monitoring["host"] else {}
    return [
        Listener("node-exporter", range(NODE_EXPORTER, NODE_EXPORTER + 1), None),
        *(Listener(key, range(port, port + 1), frozenset({monitoring["host"]})) for key, port in server.items()),
    ]


def repair_listeners(repair: object, controllers: Iterable[str]) -> list[Listener]:
    """The listener of the key `repair`, if it is there, on the controllers."""
    return [Listener("slurm-repair", range(REPAIR, REPAIR + 1), frozenset(controllers))] if repair else []


def declared_listeners(
    controllers: Iterable[str],
    database: str,
    nodes: Iterable[tuple[str, list[str], Any]],
    slurm_conf: Mapping[str, Any],
    slurmdbd_conf: Mapping[str, Any] | None,
    servers: Iterable[tuple[str, Iterable[str], Any]] = (),
    file_servers: Iterable[str] = (),
    ssh_port: int | None = None,
    monitoring: Iterable[Listener] = (),
) -> list[Listener]:
    """The listeners of a cluster, by the variables that set their ports.

    Args:
        controllers: their hosts.
        database: the host of MariaDB and slurmdbd; empty without one.
        nodes: of each entry of nodes: the key of its Port, its hosts and its Port; None: SlurmdPort.
        slurm_conf: parameters of slurm.conf that are set, in any case of letters.
        slurmdbd_conf: likewise, of slurmdbd.conf; None if it is not known: slurmdbd has the port that slurmctld asks.
        servers: of each key of the cluster file that has a port: the variable that sets the port, the hosts, and the
            port; None: it is not known.
        file_servers: the hosts that export file systems by NFS.
        ssh_port: a further port of sshd.
        monitoring: what the key `monitoring` adds.
    """
    conf = _by_small_key(slurm_conf)
    result = [
        SSH,
        Listener("slurm_conf.SlurmctldPort", port_range(conf.get("slurmctldport", SLURMCTLD)), frozenset(controllers)),
    ]
    if database:
        here = frozenset({database})
        result.append(Listener("MariaDB", range(MARIADB, MARIADB + 1), here))
        if slurmdbd_conf is None:
            key, port = "slurm_conf.AccountingStoragePort", conf.get("accountingstorageport", SLURMDBD)
        else:
            key, port = "slurmdbd_conf.DbdPort", _by_small_key(slurmdbd_conf).get("dbdport", SLURMDBD)
        result.append(Listener(key, port_range(port), here))
    result += [
        Listener(variable, port_range(str(port)), here)
        for variable, hosts, port in servers
        if (here := frozenset(hosts)) and port is not None
    ]
    if exporting := frozenset(file_servers):
        result.append(Listener("NFS", range(NFS, NFS + 1), exporting))
    default = frozenset(host for _key, hosts, port in nodes if port is None for host in hosts)
    result.append(Listener("slurm_conf.SlurmdPort", port_range(conf.get("slurmdport", SLURMD)), default))
    for key, hosts, port in nodes:
        if port is not None:
            # A list of ports has one for each host: Port=[7001-7002].
            ports = expand(str(port)) * (1 if "[" in str(port) else len(hosts))
            result += [Listener(key, port_range(one), frozenset({host})) for host, one in zip(hosts, ports)]
    result += monitoring
    if ssh_port is not None and ssh_port not in SSH.ports:
        result.append(Listener("firewall.ssh_port", port_range(str(ssh_port)), None))
    result.append(Listener("slurm_conf.SrunPortRange", port_range(conf.get("srunportrange", "")), None))
    return result


def _by_small_key(settings: Mapping[str, Any]) -> dict[str, str]:
    """Parameters by their name in small letters; a parameter that is removed has its default."""
    return {str(key).lower(): str(value) for key, value in settings.items() if value is not None}


def closed_ports(listeners: Iterable[Listener], host: str, opened: Iterable[str]) -> list[str]:
    """The ports on which a host listens for the others of the cluster and that no rule of its firewall opens.

    MariaDB listens for its own host, and the host has been reached with ssh.

    Args:
        listeners: those of the cluster.
        host: the name of the host.
        opened: ports of the rules: "6817", "80,443", "60001:63000" or "any".
    """
    parts = [part for text in opened for part in text.replace("any", f"0:{LARGEST}").split(",")]
    spans = sorted(tuple(map(int, (part if ":" in part else f"{part}:{part}").split(":"))) for part in parts)
    wanted = [
        listener.ports
        for listener in listeners
        if listener.key not in ("ssh", "MariaDB") and (listener.hosts is None or host in listener.hosts)
    ]
    return list(dict.fromkeys(_shown(ports).replace("-", ":") for ports in wanted if not _covered(ports, spans)))


def _covered(ports: range, spans: Iterable[tuple[int, ...]]) -> bool:
    """Whether ports are within spans of first and last port, which are sorted."""
    following = ports.start
    for first, last in spans:
        if first <= following:
            following = max(following, last + 1)
    return following >= ports.stop


def different_database_ports(
    database: str, slurm_conf: Mapping[str, Any], slurmdbd_conf: Mapping[str, Any] | None
) -> Iterator[tuple[str, str]]:
    """The problem of a slurmdbd that listens elsewhere than slurmctld asks it, as key and problem.

    Args:
        database: its host; empty without one.
        slurm_conf: as of `declared_listeners`.
        slurmdbd_conf: likewise.
    """
    if slurmdbd_conf is None:
        return
    conf, dbd = _by_small_key(slurm_conf), _by_small_key(slurmdbd_conf)
    asked, own = conf.get("accountingstorageport", SLURMDBD), dbd.get("dbdport", SLURMDBD)
    if database and conf.get("accountingstoragehost", database) == database and asked != own:
        what = f"found {own!r}, where slurm_conf.AccountingStoragePort is {asked}, allowed: the same port"
        yield "slurmdbd_conf.DbdPort", what
