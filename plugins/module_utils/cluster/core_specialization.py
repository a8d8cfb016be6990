# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes set aside for the system (core_spec.html): values that Slurm would log an error for, and ignore.

The rules are those of `_parse_nodename` in `src/common/read_config.c`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..language.formatting import shown
from ..language.hostlist import expand
from . import schema


def problems(node: Mapping[str, Any], machine: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The errors of a node entry with a machine type, as (key, problem); its own values replace those of the type."""
    cores = int(machine["sockets"]) * int(machine["cores_per_socket"])
    core_count, cpu_list, memory = (
        node.get(key, machine.get(key)) for key in ("CoreSpecCount", "CPUSpecList", "MemSpecLimit")
    )
    if memory is not None:
        yield from _below("MemSpecLimit", memory, int(machine["real_memory"]), "the real_memory of the hardware")
    if core_count is not None:
        yield from _below("CoreSpecCount", core_count, cores, "the cores of the hardware")
    if cpu_list is not None:
        yield from _cpu_list(cpu_list, int(machine.get("cpus") or cores * int(machine["threads_per_core"])))
    if core_count and cpu_list:
        yield "CoreSpecCount", "Slurm ignores it where CPUSpecList is set: leave one of the two out"


def _below(key: str, found: Any, limit: int, what: str) -> Iterator[tuple[str, str]]:
    """Check a number that must be below another."""
    if not str(found).isdecimal() or int(found) >= limit:
        yield key, f"found {shown(found)}, allowed: a number below {limit}, {what}"


def _cpu_list(found: Any, cpus: int) -> Iterator[tuple[str, str]]:
    """Check that the machine has the CPUs with these indexes."""
    try:
        last = max(int(cpu) for cpu in expand(f"[{schema.cores(found)}]"))
    except ValueError:
        last = cpus
    if last >= cpus:
        yield "CPUSpecList", f"found {shown(found)}, allowed: indexes of CPUs from 0 to {cpus - 1}, such as 0-1"
