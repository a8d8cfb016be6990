# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fast CPUs of a machine that has several kinds of them, by hwloc's rules (cpukinds.c) and Slurm's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .cpu_files import CPU
from .sysfs import Tree, bits, of


@dataclass
class CpuKind:
    """CPUs about which the same is known."""

    cpus: int
    facts: dict[str, Any]
    rank: int | None = None


def register_fact(kinds: list[CpuKind], cpus: int, name: str, value: Any, rank: int | None = None) -> None:
    """A new fact about some CPUs splits the kinds that it is only partly true of.

    hwloc_internal_cpukinds_register.
    """
    for kind in list(kinds):
        common = kind.cpus & cpus
        if not common:
            continue
        cpus &= ~common
        if common == kind.cpus:
            kind.facts.setdefault(name, value)
            kind.rank = rank if kind.rank is None else kind.rank
        else:
            kind.cpus &= ~common
            kinds.append(CpuKind(common, {**kind.facts, name: value}, rank))
    if cpus:
        kinds.append(CpuKind(cpus, {name: value}, rank))


def rank_kinds(kinds: list[CpuKind]) -> list[CpuKind]:
    """The kinds from the slowest to the fastest, or as they came if that cannot be told.

    hwloc_internal_cpukinds_rank.
    """
    forced = [kind.rank for kind in kinds]
    core_types = [{"IntelAtom": 1, "IntelCore": 2}.get(kind.facts.get("type", ""), 0) for kind in kinds]
    base = [kind.facts.get("base", 0) for kind in kinds]
    top = [kind.facts.get("max", 0) for kind in kinds]
    by_facts = [(kind << 20) + speed for kind, speed in zip(core_types, base if all(base) else top)]
    for ranks, usable in ((forced, None not in forced), (by_facts, all(core_types) or all(base) or all(top))):
        if usable and len(set(ranks)) == len(kinds):
            return [kinds[i] for i in sorted(range(len(kinds)), key=lambda i: ranks[i] or 0)]
    return kinds


def level_frequencies(base: dict[int, int], top: dict[int, int]) -> dict[int, int]:
    """The highest frequencies, in kHz: of one base frequency, and less than a tenth apart, they count as the lowest."""
    result = dict(top)
    for value in set(base.values()):
        same = [cpu for cpu in base if base[cpu] == value]
        low, high = min(top[cpu] for cpu in same), max(top[cpu] for cpu in same)
        if low and (high - low) * 10 < low:
            result.update(dict.fromkeys(same, low))
    return result


def frequencies(tree: Tree, cpus: int) -> tuple[dict[int, int], dict[int, int]]:
    """The base and the highest frequency of each CPU, in kHz, 0 where the kernel does not tell.

    look_sysfscpukinds.
    """
    base, top = {}, {}
    nominal: bool | None = None  # whether to ask ACPI for what the driver does not tell: decided by the first CPU
    blind = False
    for cpu in bits(cpus):
        directory = f"{CPU}/cpu{cpu}"
        top[cpu] = tree.number(f"{directory}/cpufreq/cpuinfo_max_freq") or 0
        found = tree.number(f"{directory}/cpufreq/base_frequency")
        base[cpu] = found or 0
        if found is not None:
            nominal = False
        if nominal is not False:
            found = tree.number(f"{directory}/acpi_cppc/nominal_freq")
            nominal = bool(found)
            base[cpu] = (found or 0) * 1000
        blind |= bool(top[cpu] and not found)
    return base, top if blind else level_frequencies(base, top)


def read_kinds(tree: Tree, cpus: int) -> list[CpuKind]:
    """The kinds of these CPUs by their frequencies, capacities and types."""
    kinds: list[CpuKind] = []
    base, top = frequencies(tree, cpus)
    # hwloc numbers the files of the capacities by the place of a CPU in the set.
    capacity = {cpu: tree.number(f"{CPU}/cpu{place}/cpu_capacity") or 0 for place, cpu in enumerate(bits(cpus))}
    for name, values, unit in (("max", top, 1000), ("base", base, 1000), ("capacity", capacity, 1)):
        known = {cpu: value // unit for cpu, value in values.items() if value}
        for rank, value in enumerate(sorted(set(known.values()))):
            same = of(cpu for cpu in known if known[cpu] == value)
            register_fact(kinds, same, name, value, rank if name == "capacity" else None)
    for device, core_type in (("atom", "IntelAtom"), ("core", "IntelCore"), ("lowpower", "IntelLowPower")):
        same = (tree.cpu_list(f"/sys/devices/cpu_{device}/cpus") or 0) & cpus
        register_fact(kinds, same, "type", core_type)
    return kinds


def fast_cpus(tree: Tree, cpus: int) -> int:
    """The CPUs that slurmd keeps: not the efficient cores of an Intel hybrid (_remove_ecores in Slurm's xcpuinfo.c).

    Those are dropped that are not of the first kind of type IntelCore, unless they are as fast as that kind.
    """
    core = (tree.cpu_list("/sys/devices/cpu_core/cpus") or 0) & cpus
    if not core:
        return cpus
    kinds = rank_kinds(read_kinds(tree, cpus))
    chosen = next((kind for kind in kinds if kind.facts.get("type") == "IntelCore"), None)
    if chosen is None:
        return cpus
    speed = chosen.facts.get("max")
    return chosen.cpus | of(c for kind in kinds if speed and kind.facts.get("max") == speed for c in bits(kind.cpus))
