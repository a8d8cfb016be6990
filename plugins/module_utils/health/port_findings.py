# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of the ports that a machine type has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..hardware.network_ports import LINK_DOWNED, LINK_INTEGRITY, OVERRUN, SYMBOL_ERROR, ConnectedPort, Port
from .error_samples import Counters, Sample, Samples, added, after, value
from .finding_table import OTHERS, NodeFinding

FLAPS = 3
"""Losses of a link in the window that are a fault. A switch that starts again causes one."""
ERRORS: Mapping[str, int] = {SYMBOL_ERROR: 120, LINK_INTEGRITY: 0, OVERRUN: 0}
"""Errors in the window that are none (NVIDIA, NVSentinel, health-monitors/nic)."""

OF_STATE = frozenset(("port-missing", "port-down", "port-slow"))
"""Findings that are over when the port is as it should be. The others stay, since a quiet hour proves nothing."""


class PortFinding(NamedTuple):
    """A finding of a port."""

    finding: NodeFinding
    port: str
    said: str


def counters_of(ports: Iterable[Port]) -> dict[str, Counters]:
    """The counters of the ports that are up, by name. A port of Ethernet has none."""
    return {port.name: port.counters for port in ports if port.is_up and port.counters}


def port_findings(
    wanted: Iterable[ConnectedPort], ports: Iterable[Port], samples: Samples, mended: Mapping[tuple[str, str], float]
) -> Iterator[PortFinding]:
    """The findings of the ports that the machine type has. Others were never connected.

    Args:
        wanted: the ports of the machine type.
        ports: those of the node.
        samples: with those of now.
        mended: when a finding of a port was closed, by its name and the port. Errors before are over.
    """
    found = {port.name: port for port in ports}
    for name, link, rate in wanted:
        port = found.get(name)
        if port is None:
            yield PortFinding(OTHERS["port-missing"], name, f"{name} is not there")
        elif not port.is_up:
            yield PortFinding(OTHERS["port-down"], name, f"{name} is {port.state} ({port.physical})")
        elif port.link != link:
            yield PortFinding(OTHERS["port-slow"], name, f"{name} is {port.link}, not {link}")
        elif port.rate < rate:
            yield PortFinding(OTHERS["port-slow"], name, f"{name} has {port.rate} of {rate} Gb/s")
        own = samples.get(name, ())
        flaps = added(after(own, mended.get(("port-flaps", name), 0)), LINK_DOWNED)
        if flaps >= FLAPS:
            yield PortFinding(OTHERS["port-flaps"], name, f"{name} has lost its link {flaps} times in an hour")
        if said := _errors(after(own, mended.get(("port-errors", name), 0))):
            yield PortFinding(OTHERS["port-errors"], name, f"{name} has in an hour {said}")


def _errors(samples: Sequence[Sample]) -> str:
    """The errors that are a fault. Those of a link that is set up again are none."""
    steady = [
        (before, now)
        for before, now in zip(samples, samples[1:])
        if value(before, LINK_DOWNED) == value(now, LINK_DOWNED)
    ]
    counts = {counter: sum(added(pair, counter) for pair in steady) for counter in ERRORS}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count > ERRORS[name])
