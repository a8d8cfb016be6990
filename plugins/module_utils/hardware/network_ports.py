# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports of network adapters for RDMA, InfiniBand or Ethernet, as the kernel shows them.

Source: Linux, Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from .sysfs import Tree

DEVICES = "/sys/class/infiniband"

LINK_DOWNED = "link_downed"
"""How often a link that was up has gone down."""
SYMBOL_ERROR = "symbol_error"
LINK_INTEGRITY = "local_link_integrity_errors"
OVERRUN = "excessive_buffer_overrun_errors"
COUNTERS = (LINK_DOWNED, SYMBOL_ERROR, LINK_INTEGRITY, OVERRUN)

FILES = ("link_layer", "state", "phys_state", "rate", *(f"counters/{name}" for name in COUNTERS))
"""What is read of a port, below its directory. A port of Ethernet has no counters of the link."""

_PLACE = re.compile(rf"{DEVICES}/([^/]+)/ports/(\d+)/([a-z_/]+)")


class Port(NamedTuple):
    """A port of an adapter."""

    device: str
    """The adapter, such as `mlx5_0`."""
    number: int
    """The port of the adapter, from 1 on."""
    link: str
    """InfiniBand or Ethernet."""
    state: str
    """ACTIVE if it carries data; else DOWN, INIT or ARMED."""
    physical: str
    """LinkUp if something is connected that answers; else Polling, Disabled or others."""
    rate: int
    """Gb/s, rounded down."""
    counters: Mapping[str, int]
    """Since the adapter was reset, by name. They can be reset, and some stop at their maximum."""

    @property
    def name(self) -> str:
        return port_name(self.device, self.number)

    @property
    def is_up(self) -> bool:
        return self.state == "ACTIVE" and self.physical == "LinkUp"


class ConnectedPort(NamedTuple):
    """A port that a machine type has."""

    name: str
    """Adapter and port: `mlx5_0/1`."""
    link: str
    """InfiniBand or Ethernet."""
    rate: int
    """Gb/s."""


def format_connected(ports: Iterable[ConnectedPort]) -> str:
    """The ports in one text: `mlx5_0/1=InfiniBand:400 mlx5_3/1=Ethernet:25`."""
    return " ".join(f"{port.name}={port.link}:{port.rate}" for port in ports)


def parse_connected(text: str) -> list[ConnectedPort]:
    """The ports of such a text."""
    words = (re.split("[=:]", word) for word in text.split())
    return [ConnectedPort(name, link, int(rate)) for name, link, rate in words]


def port_name(device: str, number: int) -> str:
    """How a port is called: `mlx5_0/1`."""
    return f"{device}/{number}"


def read_ports(tree: Tree) -> list[Port]:
    """The ports of a machine. Virtual functions of an adapter are left out: a virtual machine has them."""
    found = {}
    for device in tree.names(DEVICES):
        if tree.exists(f"{DEVICES}/{device}/device/physfn"):
            continue
        for number in tree.names(f"{DEVICES}/{device}/ports"):
            directory = f"{DEVICES}/{device}/ports/{number}"
            found.update({f"{directory}/{name}": tree.text(f"{directory}/{name}") for name in FILES})
    return [*_ports({path: text for path, text in found.items() if text})]


def ports_command() -> list[str]:
    """The command whose output parse_ports reads. An adapter with broken firmware may not answer."""
    patterns = " ".join(f"{DEVICES}/*/ports/*/{name}" for name in FILES)
    return ["sh", "-c", f"grep -Hs . {patterns}; true"]


def parse_ports(text: str) -> list[Port]:
    """The ports in the output of the command."""
    lines = (line.partition(":") for line in text.split("\n"))
    return [*_ports({path: value.strip() for path, _colon, value in lines})]


def _ports(values: Mapping[str, str]) -> Iterator[Port]:
    """The ports of files with their content, by path."""
    files: dict[tuple[str, int], dict[str, str]] = {}
    for path, value in values.items():
        if place := _PLACE.fullmatch(path):
            files.setdefault((place[1], int(place[2])), {})[place[3]] = value
    for (device, number), of_port in files.items():
        yield Port(
            device,
            number,
            of_port.get("link_layer", ""),
            _word(of_port.get("state", "")),
            _word(of_port.get("phys_state", "")),
            _number(of_port.get("rate", "")),
            {name: _number(of_port[f"counters/{name}"]) for name in COUNTERS if f"counters/{name}" in of_port},
        )


def _word(state: str) -> str:
    """The word of a state such as `4: ACTIVE`."""
    return state.partition(":")[2].strip()


def _number(text: str) -> int:
    """The whole number that a value begins with, such as `400 Gb/sec (4X NDR)`; 0 without one."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0
