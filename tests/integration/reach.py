# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reaches the servers of this collection: users of each host ask each port of each host.

And who takes them from others: a user opens many connections.
"""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
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


@contextmanager
def unit(lab: Lab, host: str, command: str, name: str = "attempt", user: str = "root") -> Iterator[None]:
    """A program in the background."""
    lab.command(host, f"systemctl stop {name}* 2>/dev/null; systemctl reset-failed {name}* 2>/dev/null; true")
    lab.command(host, f"systemd-run --quiet --unit={name} --uid={user} -p LimitNOFILE=20000 {command}")
    try:
        yield
    finally:
        lab.command(host, f"systemctl stop {name} 2>/dev/null; systemctl reset-failed {name} 2>/dev/null; true")


MANY = """
import resource, socket, ssl, sys, time

how, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
whole = b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"
sent = {
    "silent": b"",
    "half a line": b"GET ",
    "half a header": whole[:-2] + b"X-Forwarded-For: 192.0.2.1\\r\\nX-",
    "half a body": b"POST /v2/ HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 1000000\\r\\n\\r\\nx",
    "idle": whole,
    "nothing read": whole * 2000,
    "half a handshake": bytes.fromhex("1603010200010001fc0303"),
}.get(how, whole)
kept = []
until = time.monotonic() + 60
for _number in range(20000 if how == "each anew" else 1100):
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262 if how == "Multipath TCP" else 0)
    one.settimeout(2)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    if one.connect_ex((host, port)) == 0:
        one.settimeout(0.01)
        try:
            if how == "after the handshake":
                one.settimeout(5)
                one = ssl._create_unverified_context().wrap_socket(one)
                sent = b""
            one.sendall(sent)
        except OSError:
            pass
        if how == "each anew":
            one.close()
        else:
            kept.append(one)
    if time.monotonic() > until:
        break
open(sys.argv[4], "w").write(str(len(kept)))
time.sleep(30)
"""
"""Opens many connections, and leaves each of them as it is; writes how many it has."""


@contextmanager
def many(
    lab: Lab, hosts: Sequence[str], how: str, address: str, port: int, users: Sequence[str] = ("alice",)
) -> Iterator[None]:
    """Connections of these users of these hosts, while the block runs."""
    names = {(host, user): f"many-{i}" for i, (host, user) in enumerate((h, u) for h in hosts for u in users)}
    with ExitStack() as stack:
        for (host, user), name in names.items():
            command = f"python3 -c {shlex.quote(MANY)} {shlex.quote(how)} {address} {port} /tmp/{name}"
            lab.command(host, f"rm -f /tmp/{name}")
            stack.enter_context(unit(lab, host, f"setpriv --clear-groups --reuid={user} {command}", name))
        for (host, _user), name in names.items():
            if how == "each anew":
                time.sleep(2)
            else:
                opened = lab.wait_for(host, f"sed s/^/opened=/ /tmp/{name}", "opened=", 60)
                assert int(opened.partition("=")[2]) <= 100
        yield


def is_served(lab: Lab, host: str, user: str, address: str, port: int) -> bool:
    """Whether a user of a host has an answer from a server, within seconds."""
    command = f"timeout 5 python3 -c {shlex.quote(ASK)} {address}:{port}"
    return bool(lab.host(host).run(f"runuser -u {user} -- {command}").stdout)
