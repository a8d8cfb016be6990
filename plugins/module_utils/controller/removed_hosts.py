# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that have left the cluster, and that nobody has cleaned yet.

A host that is no longer in the cluster file cannot be reached by a run. So the controller keeps the names of all hosts
that it has ever had, until a person confirms that those that left are cleaned.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from ..host.files import File, write
from ..host.json_files import read_record
from ..language.hostlist import fold
from .controller_host import text
from .sockets import connection_error

HOSTS = "/var/lib/gpucluster-slurm/hosts"
"""The names of all hosts that the cluster has had."""
ADDRESSES = "/var/lib/gpucluster-slurm/left"
"""The addresses of hosts that could not be cleaned when they left, by name, in JSON."""

PORTS = (22, 6818)
"""sshd's port, and slurmd's usual one."""


def recorded(path: str) -> list[str]:
    """The names in the file; none if it does not exist."""
    return (text(path) or "").split()


def record(path: str, names: Iterable[str]) -> None:
    """Write the names to the file, a line each. Raises FileError."""
    write([File(path, "".join(f"{name}\n" for name in names).encode())])


def known_hosts(before: Iterable[str], present: Iterable[str], cleaned: Iterable[str]) -> tuple[list[str], list[str]]:
    """The names to keep, and those of them that have left the cluster.

    Args:
        before: hosts that the cluster has had.
        present: hosts that it has.
        cleaned: hosts that a person has cleaned. Those that the cluster has are kept all the same.
    """
    here = dict.fromkeys(present)
    forgotten = {*cleaned}
    gone = [name for name in dict.fromkeys(before) if name not in here and name not in forgotten]
    return [*here, *gone], gone


def forget(names: Collection[str]) -> None:
    """Forget hosts that are cleaned. Raises FileError."""
    kept = recorded(HOSTS)
    if {*kept} & {*names}:
        record(HOSTS, [name for name in kept if name not in names])


def addresses() -> dict[str, str]:
    """The addresses of hosts that could not be cleaned, by name."""
    return {name: str(address) for name, address in read_record(ADDRESSES).items()}


def record_addresses(found: Mapping[str, str]) -> None:
    """Record the addresses of hosts that could not be cleaned. Raises FileError."""
    if found != addresses():
        write([File(ADDRESSES, f"{json.dumps(found)}\n".encode())])


def find_answering(gone: Iterable[str], taken: Collection[str]) -> dict[str, str]:
    """The hosts that have left and answer again, with their address; `taken`: addresses that other hosts have now."""
    known = addresses()
    asked = {name: known[name] for name in gone if known.get(name, "") not in ("", *taken)}
    with ThreadPoolExecutor(64) as pool:
        return {name: asked[name] for name, found in zip(asked, pool.map(_answers, asked.values())) if found}


def _answers(address: str) -> bool:
    return not all(connection_error(address, port, 1) for port in PORTS)


def describe_removed(gone: Iterable[str], again: Mapping[str, str] | None = None) -> list[str]:
    """What to do about hosts that have left, as messages; `again`: those that answer, with their address."""
    names = fold([*gone])
    if not names:
        return []
    answering = "; ".join(f"{name} answers at {address}" for name, address in (again or {}).items())
    return [
        f"Hosts that have left the cluster but are not cleaned: {names}{f' ({answering})' if answering else ''}. They "
        "still have the munge key, and slurmd may run there. Clean them by hand (docs/admin/nodes.md, Clean a host by "
        f"hand), and confirm it with -e slurmctld_cleaned_hosts='{names}'"
    ]
