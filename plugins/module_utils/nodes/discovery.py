# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derive machine types from measured hardware, for NAME.hardware.yml, which the playbook discover writes.

Equal machines are one type. A type that is already in the file is not changed, including its name and keys added by
hand, as long as it fits. Generic resources that a person wrote stay with their hosts, unless they are measured or their
removal is confirmed; resources that disappear are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..cluster.machine_types import fabric_ports, gres_count, gres_kinds
from ..cluster.model import machine_problems
from ..gpu.devices import NVIDIA, vendor_of
from ..gpu.nvidia.nvidia_gpus import mig_name
from ..gpu.vendor import GpuVendor
from ..hardware.sysfs import bits, format_list, of, parse_list
from ..language.hostlist import expand, fold
from .registration import Facts, shape

Machine = dict[str, Any]
"""A machine type, as the cluster file has it."""

MARGIN = 256
"""RealMemory is smaller by this part, since MemTotal varies a little with the kernel and its reserved memory."""

ALIKE = 100
"""Machines whose memory differs by less than this part are of one type, with the least of it."""

_SHAPE = ("boards", "sockets", "cores_per_socket", "threads_per_core")
_MEASURED = (*_SHAPE, "real_memory")


def discover(
    measured: Mapping[str, Facts],
    known: Mapping[str, Any],
    hosts: Iterable[str],
    reserved: Iterable[str],
    nodes: Iterable[Mapping[str, Any]] = (),
    remove_gres: bool = False,
) -> dict[str, Any]:
    """Update the hardware file.

    Args:
        measured: the facts of the hosts that were measured; the others keep the type that they have.
        known: the file as it is, with `hardware` and `nodes`; empty if there is none.
        hosts: all compute nodes of the cluster in its order; others are dropped.
        reserved: names that new types must not have.
        nodes: the shared variable slurm_nodes. What the cluster file would refuse, with what an entry sets aside for
            the system, becomes no machine type: it would be refused for all hosts.
        remove_gres: whether a host loses the generic resources of its type that were not measured.

    Returns:
        `hardware`: the machine types by name, in the order of their first host. `nodes`: an entry for each, with
        `hosts`, `hardware` and `notes`, what is odd about it. `notes`: all that is odd, with its
        hosts.
    """
    order = list(hosts)
    finder = _TypeFinder(known, nodes, remove_gres)
    # Most memory first, so that the same hosts make the same types in whatever order they come.
    for host in sorted(filter(measured.__contains__, order), key=lambda host: -(measured[host]["real_memory"] or 0)):
        finder.add_measured(host, measured[host])
    finder.keep_types(host for host in order if host not in measured)
    return _make_result(finder.types, order, reserved, finder.notes.lines(order) + finder.unused_types())


class _TypeFinder:
    """The machine types while hosts are put into them."""

    def __init__(self, known: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]], remove_gres: bool) -> None:
        self._types_before = {
            host: str(node["hardware"]) for node in known.get("nodes") or () for host in expand(node["hosts"])
        }
        self._named = {str(node["hardware"]) for node in known.get("nodes") or ()}
        self._written: Mapping[str, Machine] = known.get("hardware") or {}
        self._entries = {host: dict(node) for node in nodes for host in expand(node["hosts"])}
        self._remove_gres = remove_gres
        self.types = [_Type(name, machine) for name, machine in self._written.items()]
        self._by_name = {kind.name: kind for kind in self.types}
        self.notes = _Notes()

    def add_measured(self, host: str, facts: Facts) -> None:
        """Put a host into the type that fits its facts, which may be a new one."""
        name = self._types_before.get(host)
        before = self._written.get(name or "", {})
        machine, oddities = self._make_machine(host, facts, before)
        self.notes.add(host, *oddities)
        if machine is None:
            return
        if problems := machine_problems(machine, self._entries.get(host, {})):
            self.notes.add(host, f"no node line can be made, since the cluster file would refuse {'; '.join(problems)}")
            return
        kind = self._find_type(machine, name, vendor_of(facts["gpus"]))
        kind.take(host, machine)
        self.notes.add(host, *_name_losses(before, kind.machine, name or ""))

    def _make_machine(self, host: str, facts: Facts, before: Machine) -> tuple[Machine | None, list[str]]:
        """The machine of a host, none if Slurm cannot use the host; and what is odd about it."""
        machine, oddities = machine_type(facts)
        if machine is None or self._remove_gres:
            return machine, oddities
        with_gres, oddities_with_gres = _add_known_gres(machine, oddities, before, facts)
        # Written by a person, they may contradict what was measured.
        if machine_problems(with_gres, self._entries.get(host, {})):
            return machine, oddities
        return with_gres, oddities_with_gres

    def _find_type(self, machine: Machine, name: str | None, vendor: GpuVendor) -> _Type:
        """The type that a machine fits, that of this name if there are several; a new one if there is none."""
        fitting = [kind for kind in self.types if kind.fits(machine, vendor)]
        if not fitting:
            fitting = [_Type("", machine)]
            self.types += fitting
        return next((kind for kind in fitting if kind.name == name), fitting[0])

    def keep_types(self, hosts: Iterable[str]) -> None:
        """Leave hosts that were not measured in the types that they have."""
        for host in hosts:
            name = self._types_before.get(host)
            if name in self._by_name:
                self._by_name[name].hosts.append(host)

    def unused_types(self) -> list[str]:
        """Lines about types for which the file names no host."""
        unused = self._by_name.keys() - self._named
        return sorted(f"hardware {name}: the file names no host for it, so it is left out" for name in unused)


class _Notes:
    """Notes about hosts. Equal notes are one line with all of their hosts."""

    def __init__(self) -> None:
        self._hosts: dict[str, list[str]] = {}

    def add(self, host: str, *notes: str) -> None:
        """Add notes about a host."""
        for what in notes:
            self._hosts.setdefault(what, []).append(host)

    def lines(self, order: list[str]) -> list[str]:
        """Lines with the hosts in the order of the cluster."""
        place = {host: i for i, host in enumerate(order)}
        return [f"{fold(sorted(hosts, key=place.__getitem__))}: {what}" for what, hosts in self._hosts.items()]


class _Type:
    """A machine type that hosts are put into. Without a name it is new."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self.machine = dict(machine)
        self.hosts: list[str] = []
        self.most = int(machine["real_memory"])  # what it was made with: the window does not move with the least

    def fits(self, machine: Machine, vendor: GpuVendor) -> bool:
        """Whether a machine is of this type: equal except for a little memory and keys that a person added.

        vendor: that of its GPUs.
        """
        return (
            [self.machine.get(key, 1) for key in _SHAPE] == [machine.get(key, 1) for key in _SHAPE]
            and _measurable(self.machine, vendor) == _measurable(machine, vendor)
            and all(entry in self.machine["gres"] for entry in _written_by_hand(machine, vendor))
            # A file that is older than this key gets it.
            and self.machine.get("fabric", machine.get("fabric")) == machine.get("fabric")
            and _is_near(self.most, machine["real_memory"])
        )

    def take(self, host: str, machine: Machine) -> None:
        """Add a host to the type, which gets the smallest memory of its hosts."""
        self.hosts.append(host)
        self.machine["real_memory"] = min(self.machine["real_memory"], machine["real_memory"])
        if "fabric" in machine:
            self.machine["fabric"] = machine["fabric"]


def _is_near(one: int, other: int) -> bool:
    """Whether machines with these sizes of memory are of one type."""
    return abs(one - other) * ALIKE <= max(one, other)


def _gpu_entries(machine: Machine) -> list[Machine]:
    """The GPUs of a machine type."""
    return [entry for entry in machine.get("gres") or () if entry["name"] == "gpu"]


# -- generic resources that a person wrote ---------------------------------------------------------------------------


def _is_measurable(entry: Machine, vendor: GpuVendor) -> bool:
    """Whether the measurement finds a generic resource: GPUs of NVIDIA, GPUs of the vendor that the host has GPUs of,
    and GPUs without a sign of their vendor.
    """
    return entry["name"] == "gpu" and (
        NVIDIA.has_entry(entry) or vendor.has_entry(entry) or not {"autodetect", "file"} & {*entry}
    )


def _measurable(machine: Machine, vendor: GpuVendor) -> list[Machine]:
    """The generic resources that a measurement can find."""
    return [entry for entry in machine.get("gres") or () if _is_measurable(entry, vendor)]


def _written_by_hand(machine: Machine, vendor: GpuVendor) -> list[Machine]:
    """The generic resources that no measurement finds: shards, network cards, GPUs of other makers."""
    return [entry for entry in machine.get("gres") or () if not _is_measurable(entry, vendor)]


def _add_known_gres(machine: Machine, odd: list[str], before: Machine, facts: Facts) -> tuple[Machine, list[str]]:
    """A measured machine with the generic resources of its previous type that the measurement does not contradict.

    Without a GPU that has a driver, the GPUs of the previous type stay: its driver may be broken.
    """
    vendor = vendor_of(facts["gpus"])
    detected, known = _measurable(machine, vendor), _measurable(before, vendor)
    if known not in ([], detected) and all(gpu["minor"] is None for gpu in facts["gpus"]):
        detected = known
        odd = [
            f"no GPU with a driver was found, so {_describe_gres(known)} stays in its machine type; if the GPUs are "
            "gone, run discover with -e hardware_remove_gres=true"
        ]
    entries = [*detected, *_written_by_hand(before, vendor)]
    return {**machine, **({"gres": entries} if entries else {})}, odd


def _resources(machine: Machine) -> Counter[str]:
    """The number of generic resources by name and type: `gpu:h100`."""
    count: Counter[str] = Counter()
    for entry in machine.get("gres") or ():
        for kind, number in gres_kinds(entry):
            count[":".join(filter(None, (entry["name"], kind)))] += number
    return count


def _describe_gres(entries: Iterable[Machine]) -> str:
    """Generic resources as Slurm writes them: `gpu:h100:8`."""
    return ", ".join(f"{what}:{count}" for what, count in _resources({"gres": [*entries]}).items())


def _name_losses(before: Machine, machine: Machine, name: str) -> list[str]:
    """The resources and keys of a host's previous machine type that its new one lacks."""
    now = _resources(machine)
    fewer = [f"{what}:{count} (now {now[what]})" for what, count in _resources(before).items() if count > now[what]]
    keys = [key for key in before if key not in (*_MEASURED, "gres") and before[key] != machine.get(key)]
    return [f"the machine is no longer {name}, which had {', '.join(fewer + keys)}"] if fewer + keys else []


def _make_result(types: list[_Type], order: list[str], reserved: Iterable[str], notes: list[str]) -> dict[str, Any]:
    """Types and entries in the order of the cluster's hosts, new types with names, odd ones with notes."""
    place = {host: i for i, host in enumerate(order)}
    used = sorted((kind for kind in types if kind.hosts), key=lambda kind: min(place[host] for host in kind.hosts))
    names = {*reserved, *(kind.name for kind in used)}
    for kind in used:
        base, number = kind.name or type_name(kind.machine), 1
        while not kind.name:
            name = base if number == 1 else f"{base}-{number}"
            if name not in names:
                kind.name = name
                names.add(name)
            number += 1
    nodes = [
        {
            "hosts": fold(sorted(kind.hosts, key=place.__getitem__)),
            "hardware": kind.name,
            "notes": _find_oddities(kind, used),
        }
        for kind in used
    ]
    return {
        "hardware": {kind.name: kind.machine for kind in used},
        "nodes": nodes,
        "notes": notes + [f"{node['hosts']}: {note}" for node in nodes for note in node["notes"]],
    }


# -- one machine -----------------------------------------------------------------------------------------------------


def machine_type(facts: Facts) -> tuple[Machine | None, list[str]]:
    """The machine type that facts make, none if Slurm cannot use the host; and what is odd about the host."""
    if not facts["cores_per_socket"] or not facts["threads_per_core"]:
        return None, ["no node line can be made, since slurmd counts fewer cores than sockets, or CPUs than cores"]
    cpuless = facts.get("cpuless_memory", 0)  # facts that were recorded earlier do not have it
    memory = (facts["real_memory"] or 0) - cpuless
    if memory < 1:
        return None, ["no node line can be made, since its memory is not known"]
    boards, sockets, cores, threads = shape(facts)
    machine: Machine = {
        **({"boards": boards} if boards > 1 else {}),
        "sockets": sockets,
        "cores_per_socket": cores,
        "threads_per_core": threads,
        "real_memory": memory - memory // MARGIN,
    }
    entries, notes = _make_gres(facts["gpus"], machine)
    if cpuless:
        notes.append(
            f"{cpuless} MiB of its memory are in NUMA nodes without CPUs (that of GPUs, or CXL) and are left out of "
            "real_memory"
        )
    ports = _make_ports(facts.get("ports", ()))  # as above
    return {
        **machine,
        **({"gres": entries} if entries else {}),
        **({"fabric": {"ports": ports}} if ports else {}),
    }, notes


def _make_ports(measured: Iterable[Mapping[str, Any]]) -> list[Machine]:
    """The entries for the ports that are connected. One that is not may never have been."""
    devices: dict[tuple[int, str, int], list[str]] = {}
    for port in measured:
        if port["up"]:
            devices.setdefault((port["port"], port["link"], port["rate"]), []).append(port["device"])
    return [
        {"device": fold(names), **({"port": number} if number > 1 else {}), "link": link, "rate": rate}
        for (number, link, rate), names in devices.items()
    ]


def _make_gres(measured: list[Mapping[str, Any]], machine: Machine) -> tuple[list[Machine], list[str]]:
    """The entries for GPUs, and unusual findings about them. A GPU for a screen counts where there are no others."""
    vendor = vendor_of(measured)
    found = [gpu for gpu in measured if not vendor.is_for_screens(gpu["model"] or "")] or measured
    notes = [
        f"the {gpu['model']} at {gpu['pci_address']} is for a screen and is left out of gres"
        for gpu in measured
        if gpu not in found
    ]
    driven = [gpu for gpu in found if gpu["minor"] is not None]
    if found and not driven:
        notes.append(
            f"{len(found)} GPUs have no driver, so their device files are a guess: install the driver, then run "
            "discover again"
        )
    if driven:
        away = [gpu["pci_address"] for gpu in found if gpu["minor"] is None]
        notes += [f"the GPU at {address} has no driver and is left out" for address in away]
    if any(gpu["mig"] for gpu in driven):
        return _make_mig_entries(driven), notes
    first = vendor_of(found).first_number
    numbered = driven or [{**gpu, "minor": number} for number, gpu in enumerate(found, first)]
    return _make_file_entries(numbered, machine), notes


def _make_file_entries(found: list[Mapping[str, Any]], machine: Machine) -> list[Machine]:
    """An entry for the GPUs of a type that are next to the same sockets; types and cores only where all have them."""
    vendor, typed = vendor_of(found), all(gpu["type"] for gpu in found)
    near = [_widen_to_sockets(gpu["cores"], machine) for gpu in found]
    placed = all(near) and len(set(near)) > 1
    files: dict[tuple[str, str], list[str]] = {}
    for gpu, cores in zip(found, near):
        key = (gpu["type"] if typed else "", cores if placed else "")
        files.setdefault(key, []).append(vendor.file_of(gpu["minor"]))
    return [
        {
            "name": "gpu",
            **({"type": kind} if kind else {}),
            "file": fold(names),
            **({"cores": cores} if cores else {}),
            **({"flags": [*vendor.file_flags]} if vendor.file_flags else {}),
        }
        for (kind, cores), names in files.items()
    ]


def _widen_to_sockets(cores: str, machine: Machine) -> str:
    """Cores, widened to a whole socket, since Slurm takes no part of one (`_check_core_range_matches_sock` in gres.c).

    None for cores that Slurm does not know: a socket of an irregular machine has more than the average, which counts.
    None for a part of the sockets, which no release from 25.11 on takes.
    """
    size, known = machine["cores_per_socket"], machine["sockets"] * machine["cores_per_socket"]
    sockets = {core // size for core in bits(parse_list(cores))}
    wide = of(core for socket in sockets for core in range(socket * size, (socket + 1) * size))
    return "" if wide >> known or len(sockets) not in (1, machine["sockets"]) else format_list(wide)


def _make_mig_entries(found: list[Mapping[str, Any]]) -> list[Machine]:
    """An entry for the GPUs of a type with the same MIG layout, which only NVML finds."""
    counts: Counter[tuple[str, tuple[tuple[str, int], ...]]] = Counter()
    for gpu in found:
        layout = Counter(instance["profile"] for instance in gpu["mig"])
        name = mig_name(gpu["model"] or "gpu")
        whole = gpu["type"] and gpu["type"] in name and not layout
        kind = gpu["type"] if whole else name.removeprefix("nvidia_")
        counts[kind, tuple(layout.items())] += 1
    return [
        {"name": "gpu", "type": kind, "count": count, "autodetect": "nvml", **({"mig": dict(layout)} if layout else {})}
        for (kind, layout), count in counts.items()
    ]


def type_name(machine: Machine) -> str:
    """A name for a machine type: `8xh100-112c-2007g`, with its GPUs, its CPUs and the GiB of its memory."""
    parts = [f"{count}x{kind}" for kind, count in _cards(machine).items()]
    if any("mig" in entry for entry in _gpu_entries(machine)):
        parts.append("mig")
    cpus = machine["sockets"] * machine["cores_per_socket"] * machine["threads_per_core"]
    return "-".join([*parts, f"{cpus}c", f"{round(machine['real_memory'] / 1024)}g"])


# -- what is odd about a type ----------------------------------------------------------------------------------------


def _card(entry: Machine) -> str:
    """The type of the GPUs of an entry; of MIG instances the part before `_`, which is the type of their GPU."""
    return str(entry.get("type", "gpu")).partition("_")[0]


def _cards(machine: Machine) -> Counter[str]:
    """The number of a machine's GPUs by type; MIG instances are not counted."""
    cards: Counter[str] = Counter()
    for entry in _gpu_entries(machine):
        cards[_card(entry)] += int(entry["count"]) if "mig" in entry else gres_count(entry)
    return cards


def _find_oddities(kind: _Type, types: list[_Type]) -> list[str]:
    """The hardware that a few machines lack and most similar ones have: memory, GPUs, cores, threads."""
    like = [
        (alike, len(other.hosts), other)
        for other in types
        if len(kind.hosts) * 2 <= len(other.hosts) and (alike := _likeness(kind.machine, other.machine)) >= 2
    ]
    if not like:
        return []
    other = max(like, key=lambda item: item[:2])[2]
    return [f"{what} than {other.name} ({len(other.hosts)} hosts)" for what in _name_lacks(kind.machine, other.machine)]


def _traits(machine: Machine) -> tuple[Any, ...]:
    """The traits by which machines are compared: cores, threads, memory (as far as it is the same), GPUs."""
    return (
        machine["sockets"] * machine["cores_per_socket"],
        machine["threads_per_core"],
        machine["real_memory"],
        _cards(machine),
    )


def _likeness(one: Machine, other: Machine) -> int:
    """How many traits two types share."""
    mine, theirs = _traits(one), _traits(other)
    return sum([mine[0] == theirs[0], mine[1] == theirs[1], _is_near(mine[2], theirs[2]), mine[3] == theirs[3]])


def _name_lacks(one: Machine, other: Machine) -> list[str]:
    """The traits of which one machine has less than another, as texts that "than NAME" follows."""
    (cores, threads, memory, cards), theirs = _traits(one), _traits(other)
    lacks = []
    for count, more, what in ((cores, theirs[0], "cores"), (threads, theirs[1], "threads per core")):
        if count < more:
            lacks.append(f"fewer {what} ({count}, not {more})")
    if memory < theirs[2] and not _is_near(memory, theirs[2]):
        lacks.append(f"less memory ({memory} MiB, not {theirs[2]})")
    for card, count in theirs[3].items():
        if cards[card] < count:
            lacks.append(f"fewer GPUs ({cards[card]} {card}, not {count})")
    ports, more = len(fabric_ports(one)), len(fabric_ports(other))
    if ports < more:
        lacks.append(f"fewer connected ports ({ports}, not {more})")
    return lacks
