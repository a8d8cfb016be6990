# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name and the controllers of a cluster that is translated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..cluster import schema
from ..configuration import parameters
from ..configuration.sources import SourceError, SourceLine
from ..language.formatting import shown
from ..language.hostlist import expand
from .cluster_files import ClusterFiles
from .comments import CHANGED, LEFT_OUT

_OLD_KEYS = {"controlmachine": "controladdr", "backupcontroller": "backupaddr"}
"""The parameters for a controller, and for its address, before there was SlurmctldHost."""

CONTROLLER_KEYS = ("backupaddr", "backupcontroller", "clustername", "controladdr", "controlmachine", "slurmctldhost")
"""The parameters of slurm.conf that name the cluster and its controllers."""

_OF_ANOTHER_PROGRAM = (
    "hosts of which another program chooses the one that serves, while site.yml would start slurmctld on each, "
    "allowed: one host, and for each further one its own SlurmctldHost, of which Slurm chooses. Change the controllers "
    "(slurm.conf(5), RELOCATING CONTROLLERS), and run again"
)

_Settings = Mapping[str, list[tuple[SourceLine, str]]]
"""The lines that have a parameter of CONTROLLER_KEYS, with its values."""


@dataclass(frozen=True)
class Controllers:
    """The name of a cluster, its controllers, and the addresses that the files have for these."""

    cluster: str
    hosts: list[str]
    addresses: dict[str, str]


def find_controllers(source: ClusterFiles) -> Controllers:
    """The controllers of a cluster.

    Raises:
        SourceError: the cluster has no name or no controller.
    """
    settings = _read_settings(source)
    hosts = [_split_address(value) for _line, value in settings.get("slurmctldhost", ())]
    if hosts:
        _comment_on_old_keys(source, settings)
    else:
        hosts = _read_old_controllers(settings)
    names = [host for host, _address in hosts]
    cluster = _check_name(settings, names)
    addresses = {host: address for host, address in hosts if address is not None}
    return Controllers(cluster, names, {host: address for host, address in addresses.items() if address != host})


def _read_settings(source: ClusterFiles) -> _Settings:
    """The parameters that name the cluster and its controllers, by key in small letters."""
    settings: dict[str, list[tuple[SourceLine, str]]] = {}
    for line in source.lines["slurm.conf"]:
        for key, value in line.pairs:
            if key.lower() in CONTROLLER_KEYS:
                settings.setdefault(key.lower(), []).append((line, value))
    return settings


def _split_address(value: str) -> tuple[str, str | None]:
    """The host of a SlurmctldHost, and its address; None without one."""
    host, _parenthesis, address = value.partition("(")
    return host.strip(), address.rstrip(") ") if address else None


def _read_old_controllers(settings: _Settings) -> list[tuple[str, str | None]]:
    """The controllers by the parameters of old releases, of which the last line counts."""
    last = {key: lines[-1][1] for key, lines in settings.items()}
    return [(last[key], last.get(of_address)) for key, of_address in _OLD_KEYS.items() if key in last]


def _comment_on_old_keys(source: ClusterFiles, settings: _Settings) -> None:
    """Comments on parameters in the place of which Slurm uses SlurmctldHost."""
    for key in (key for pair in _OLD_KEYS.items() for key in pair):
        if key in settings:
            name = parameters.FILES["slurm.conf"][key].name
            source.add_comment(LEFT_OUT, settings[key][-1][0], name, "Slurm uses SlurmctldHost", "slurm.conf")


def _check_name(settings: _Settings, hosts: Sequence[str]) -> str:
    """The name of the cluster. Raises SourceError if it is wrong, for no controller, and for one of several hosts."""
    line, text = settings["clustername"][-1] if "clustername" in settings else ("slurm.conf", "")
    name, problems = text.lower(), []
    try:
        schema.cluster_name(name)
    except ValueError as error:
        what = f"{line}: ClusterName: found {shown(name)}" if name else "slurm.conf: ClusterName: missing"
        problems.append(f"{what}, {error}")
    if not hosts:
        problems.append("slurm.conf: SlurmctldHost: missing")
    problems += [
        f"{line}: {parameters.FILES['slurm.conf'][key].name}: found {shown(value)}, {_OF_ANOTHER_PROGRAM}"
        for key in (*_OLD_KEYS, "slurmctldhost")
        for line, value in settings.get(key, ())
        if "," in value and (key == "slurmctldhost" or "slurmctldhost" not in settings)
    ]
    if problems:
        raise SourceError(problems)
    return name


def use_names_of_nodes(source: ClusterFiles, controllers: Sequence[str], nodes: Sequence[str]) -> list[str]:
    """Controllers by the names that their nodes have: `head` and `head.example.org` are one host to Slurm."""
    labels = {node.partition(".")[0]: node for node in nodes}
    names = [labels.get(host.partition(".")[0], host) for host in controllers]
    for host, name in zip(controllers, names):
        if host != name:
            why = f"{host} becomes {name}, the name of its node: a host has one name"
            source.add_comment(CHANGED, "slurm.conf", "SlurmctldHost", why, "slurm.conf")
    return names


def find_addresses(
    source: ClusterFiles, controllers: Sequence[str], addresses: Mapping[str, str], nodes: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """The addresses of controllers. A host has one address: that of its node, if it has one."""
    of_nodes = {
        host: address
        for node in nodes
        if "address" in node
        for host, address in zip(expand(node["hosts"]), expand(node["address"]))
    }
    for host in controllers:
        own = addresses.get(host)
        if host in of_nodes and own != of_nodes[host]:
            why = f"{host} gets the address of its node, {of_nodes[host]}, not {own or 'its name'}: a host has one"
            source.add_comment(CHANGED, source.of_nodes[host], "SlurmctldHost", why, "slurm.conf")
    return {host: addresses[host] for host in controllers if host in addresses and host not in of_nodes}
