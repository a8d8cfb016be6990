# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reaches the servers of this collection, asked of the kernel: users of each host ask each port of each host."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from lab import Lab

NODE_EXPORTER, PROMETHEUS, ALERTMANAGER = 9100, 9090, 9093
REGISTRY, REST, REPORT = 5000, 6820, 443
PORTS = (NODE_EXPORTER, PROMETHEUS, ALERTMANAGER, REGISTRY, REST, REPORT)
USERS = ("root", "prometheus", "alice")
"""A host without one of them asks as the others. alice stands for people; the others are programs of the system."""

ASK = """
import socket, sys
for place in sys.argv[1:]:
    host, _colon, port = place.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 3) as one:
            one.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            if one.recv(1):
                print(place)
    except OSError:
        pass
"""
"""Prints the servers that answer. A server with TLS says that it wants TLS."""


class Way(NamedTuple):
    """Who gets an answer: these users of each of these hosts, from these ports of each of those hosts."""

    sources: Sequence[str]
    users: Sequence[str]
    targets: Sequence[str]
    ports: Sequence[int]


def open_ways(table: Iterable[Way]) -> set[tuple[str, str, str, int]]:
    """Source, user, target and port of all ways of a table."""
    return {way for row in table for way in itertools.product(*row)}


def found_ways(
    lab: Lab, sources: Sequence[str], targets: Mapping[str, str], ports: Sequence[int] = PORTS
) -> set[tuple[str, str, str, int]]:
    """Source, user, target and port of all that get an answer.

    targets: the addresses of hosts by name.
    """
    places = {f"{address}:{port}": (host, port) for host, address in targets.items() for port in ports}

    def asked(source: str, user: str) -> set[tuple[str, str, str, int]]:
        command = f"python3 -c {shlex.quote(ASK)} {' '.join(places)}"
        found = lab.command(source, f"id -u {user} >/dev/null 2>&1 || exit 0; runuser -u {user} -- {command}")
        return {(source, user, *places[place]) for place in found.split()}

    with ThreadPoolExecutor(4) as pool:
        return set().union(*pool.map(asked, *zip(*itertools.product(sources, USERS), strict=True)))


def ways_of_monitoring(server: str, hosts: Sequence[str]) -> list[Way]:
    """The table of a cluster whose host of Prometheus has no users, without readers."""
    others = [host for host in hosts if host != server]
    return [
        Way([server], USERS, hosts, [NODE_EXPORTER]),
        Way([server], USERS, [server], [PROMETHEUS, ALERTMANAGER]),
        *(Way([host], ["root", "prometheus"], [host], [NODE_EXPORTER]) for host in others),
    ]
