# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about addresses and ports of Slurm's files (`cross_checks`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..configuration.parameter_tables import releases
from ..configuration.parameters import IGNORED, REFUSED
from ..configuration.ports import LARGEST, SLURMCTLD, SLURMD, SLURMDBD, SSH, Listener, collisions, port_range
from ..language.hostlist import fold
from .configured_cluster import ConfiguredCluster, Finding

_NUMERIC = re.compile(r"[0-9.]+|[0-9a-f.]*:[0-9a-f:.]*", re.IGNORECASE)


def _address(name: str, values: Mapping[str, str]) -> str:
    """The host name or address by which slurmctld reaches a node (`_check_callback` in `src/common/read_config.c`)."""
    return values.get("nodeaddr") or values.get("nodehostname") or name


def _find_present_nodes(cluster: ConfiguredCluster) -> dict[str, dict[str, str]]:
    """The nodes that have an address now: those of a cloud get theirs later, future ones when they register."""
    return {
        name: values
        for name, values in cluster.nodes.items()
        if not values.get("state", "").upper().startswith(("CLOUD", "FUTURE"))
    }


def check_resolved_addresses(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Nodes without an address, of which each costs slurmctld seconds and each client likewise (`_xgetaddrinfo`).

    slurmctld answers an srun on a node at the part of the name of its host before the first dot (`xshort_hostname`),
    with all its jobs locked.
    """
    present = _find_present_nodes(cluster)
    nodes_by_address = {_address(name, values): name for name, values in present.items()}
    nodes_by_label = {name.partition(".")[0]: name for name in present if "." in name}
    asked = [name for name in {**nodes_by_address, **nodes_by_label} if not _NUMERIC.fullmatch(name)]
    unresolved = {*cluster.host.unresolved(asked)}
    if addresses := [address for address in nodes_by_address if address in unresolved]:
        allowed = "names that have an address on this host; give these nodes a NodeAddr"
        yield Finding("slurm.conf", "NodeName", f"found {fold(addresses)!r}, allowed: {allowed}", REFUSED)
    elif nodes := [name for label, name in nodes_by_label.items() if label in unresolved]:
        what = f"found {fold(nodes)!r}, allowed: names whose part before the first dot has an address on this host, too"
        why = f"slurmctld answers an srun there, and stands still while it resolves {nodes[0].partition('.')[0]!r}"
        yield Finding("slurm.conf", "NodeName", f"{what}; {why}", IGNORED)


def check_distinct_addresses(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """The first node with the address and port of another one."""
    default = cluster.get("SlurmdPort", SLURMD)
    nodes: dict[tuple[str, str], str] = {}
    for name, values in _find_present_nodes(cluster).items():
        address, port = place = _address(name, values).lower(), values.get("port", default)
        if nodes.setdefault(place, name) != name:
            what = f"found {address!r} port {port}, which {nodes[place]} has, allowed: one of its own; one is down"
            yield Finding(f"slurm.conf: NodeName={name}", "NodeAddr", what, IGNORED)
            return


def check_controllers(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Controllers at an IPv6 address, from which hosts of older releases get no files (`src/common/fetch_config.c`)."""
    addresses = [word for word in re.findall(r"\(([^()]*)\)", cluster.get("SlurmctldHost")) if ":" in word]
    configless = "enable_configless" in cluster.get("SlurmctldParameters").lower()
    if addresses and configless and cluster.release < releases.CONFIGLESS_IPV6:
        allowed = f"an IPv4 address; configless hosts of Slurm {cluster.release} use no other"
        yield Finding("slurm.conf", "SlurmctldHost", f"found {addresses[0]!r}, allowed: {allowed}", REFUSED)


def check_ports(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Programs of one host with one port."""
    controllers = frozenset(re.findall(r"[^\s()]+", cluster.get("SlurmctldHost")))
    listeners = [SSH, Listener("SlurmctldPort", port_range(cluster.get("SlurmctldPort", SLURMCTLD)), controllers)]
    if cluster.get("AccountingStorageType").lower().endswith("/slurmdbd"):
        hosts = {cluster.get("AccountingStorageHost", "localhost"), cluster.get("AccountingStorageBackupHost")} - {""}
        hosts |= controllers if "localhost" in hosts else set()
        ports = port_range(cluster.get("AccountingStoragePort", SLURMDBD))
        listeners.append(Listener("AccountingStoragePort", ports, frozenset(hosts)))
    default = cluster.get("SlurmdPort", SLURMD)
    names_by_port: dict[str, set[str]] = {}
    for name, values in cluster.nodes.items():
        names = {name, values.get("nodehostname", name), _address(name, values)}
        names_by_port.setdefault(values.get("port", default), set()).update(names)
    for port, names in names_by_port.items():
        listeners.append(Listener("SlurmdPort" if port == default else "Port", port_range(port), frozenset(names)))
    listeners.append(Listener("SrunPortRange", port_range(cluster.get("SrunPortRange")), None))
    for key, what in collisions(listeners):
        # Daemons start with such a range, as long as no srun has taken the port of one.
        yield Finding("slurm.conf", key, what, IGNORED if key == "SrunPortRange" else REFUSED)


def check_srun_ports(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """A range that is none (`_parse_srun_ports`), or is too small (slurm.conf(5))."""
    value = cluster.get("SrunPortRange")
    ports = port_range(value)
    if not value:
        return
    if len(ports) < 2 or ports[-1] > LARGEST:
        yield Finding("slurm.conf", "SrunPortRange", f"found {value!r}, allowed: FIRST-LAST, as 60001-63000", IGNORED)
        return
    needed = 4 + 2 * max(0, -(-(len(cluster.nodes) - 48) // 48))
    if len(ports) < needed:
        what = f"found {value!r}, {len(ports)} ports, allowed: {needed} or more, which one srun on all nodes needs"
        yield Finding("slurm.conf", "SrunPortRange", what, IGNORED)


RULES = (check_resolved_addresses, check_distinct_addresses, check_controllers, check_ports, check_srun_ports)
