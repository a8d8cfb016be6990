# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predict whether slurmctld accepts nodes that register, from their declared and measured hardware.

The rules are those of `validate_node_specs` in `src/slurmctld/node_mgr.c` and of slurmd's start; each names its place.
Less than configured is refused, more is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..cluster.machine_types import gres_kinds, machine_of
from ..gpu.devices import vendor_by_method, vendor_of
from ..gpu.vendor import GpuVendor, detected_name
from ..language.hostlist import expand, fold

Facts = Mapping[str, Any]
"""The facts that the module slurm_hardware_facts returns."""

Machine = Mapping[str, Any]
"""A machine type."""

INVAL = "would become INVAL"
NO_START = "slurmd would not start"
ODD = "would be accepted, but"

_MEMORY_PERCENT, _MEMORY_PERCENT_CLOUD = 100.0, 90.0  # DEFAULT_NODE_REG_MEM_PERCENT, DEFAULT_CLOUD_REG_MEM_PERCENT


class MachineDifference(NamedTuple):
    """A difference between the declared and the measured hardware of nodes."""

    text: str
    hosts: list[str]
    accepted: bool
    """Whether Slurm accepts the nodes all the same."""


def find_differences(
    measured: Mapping[str, Facts],
    nodes: Iterable[Mapping[str, Any]],
    hardware: Mapping[str, Machine],
    slurm_conf: Mapping[str, Any],
) -> list[MachineDifference]:
    """Check the nodes that were measured.

    Args:
        measured: the facts by host; hosts that are no nodes do not matter.
        nodes: the shared variable slurm_nodes.
        hardware: the shared variable slurm_hardware_types.
        slurm_conf: the shared variable slurm_conf.

    Returns:
        The differences, equal ones of several hosts as one.

    Raises:
        ValueError: the hardware of a node is not known.
    """
    verdicts: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        hosts = [host for host in expand(node["hosts"]) if host in measured]
        if not hosts:
            continue
        machine, percent = machine_of(node, hardware), memory_percent(node, slurm_conf)
        for host in hosts:
            for verdict in _check_node(machine, measured[host], percent):
                verdicts.setdefault(verdict, []).append(host)
    overridden = "config_override" in _read_setting(slurm_conf, "SlurmdParameters")
    found = []
    for (effect, what), hosts in verdicts.items():
        hidden = effect == INVAL and overridden
        accepted = hidden or effect == ODD
        effect = "would be accepted, since SlurmdParameters has config_overrides, but" if hidden else effect
        text = f"{fold(hosts)} {effect}: {what}" if effect != NO_START else f"{fold(hosts)}: {effect}: {what}"
        found.append(MachineDifference(text, hosts, accepted))
    return found


def _read_setting(slurm_conf: Mapping[str, Any], key: str) -> str:
    """The value of a parameter whose elements are joined by commas, in small letters; keys have no case in Slurm."""
    value = next((value for name, value in slurm_conf.items() if name.lower() == key.lower()), None)
    return ",".join(map(str, value if isinstance(value, list) else [value or ""])).lower()


def _check_node(machine: Machine, facts: Facts, memory_percent: float) -> Iterator[tuple[str, str]]:
    """The findings of one node, as (effect, difference)."""
    yield from _check_cpus(machine, facts)
    yield from _check_memory(machine, facts, memory_percent)
    if facts.get("tmp_disk") is not None and facts["tmp_disk"] < machine.get("tmp_disk", 0):
        yield INVAL, _too_high("TmpDisk", machine["tmp_disk"], facts["tmp_disk"], facts["tmp_disk"])
    gres = machine.get("gres") or []
    yield from _check_files(gres, facts)
    yield from _check_gpus([entry for entry in gres if entry["name"] == "gpu"], facts["gpus"])


def _too_high(name: str, configured: int, present: int, allowed: int) -> str:
    """The message for a number that is configured too high."""
    return f"{name} {configured} configured, {present} present; lower it to {allowed} or run discover"


def shape(facts: Facts) -> tuple[int, int, int, int]:
    """Boards, sockets of all boards, cores of a socket and threads of a core that slurmctld sees.

    It makes one board of more boards than sockets (`validate_node_specs`), of which slurmd has told zero for each.
    """
    cores, threads = facts["cores_per_socket"], facts["threads_per_core"]
    if not facts["sockets_per_board"]:
        return 1, facts["cpus"] // (cores * threads or 1), cores, threads
    return facts["boards"], facts["boards"] * facts["sockets_per_board"], cores, threads


def _check_cpus(machine: Machine, facts: Facts) -> Iterator[tuple[str, str]]:
    """Slurmd registers what is configured unless it has fewer CPUs, then what it has (`_read_config` in slurmd.c)."""
    sockets, cores, threads = (int(machine[key]) for key in ("sockets", "cores_per_socket", "threads_per_core"))
    present = shape(facts)[1:]
    shapes = [" x ".join(map(str, shape)) for shape in ((sockets, cores, threads), present)]
    if facts["cpus"] < sockets * cores * threads:
        yield (
            INVAL,
            f"CPUs {sockets * cores * threads} ({shapes[0]} sockets x cores x threads) configured, "
            f"{facts['cpus']} ({shapes[1]}) present; "
            "correct sockets, cores_per_socket and threads_per_core or run discover",
        )
    elif present != (sockets, cores, threads):
        yield (
            ODD,
            f"{shapes[0]} sockets x cores x threads are configured, {shapes[1]} present: tasks are bound to other CPUs "
            "than Slurm believes",
        )


def memory_percent(node: Mapping[str, Any], slurm_conf: Mapping[str, Any]) -> float:
    """The part of RealMemory that a node must have (SlurmctldParameters in slurm.conf(5), node_reg_mem_percent)."""
    for parameter in _read_setting(slurm_conf, "SlurmctldParameters").split(","):
        name, found, value = parameter.strip().partition("=")
        if name == "node_reg_mem_percent" and found:
            return float(value)
    return _MEMORY_PERCENT_CLOUD if str(node.get("State", "")).upper().startswith("CLOUD") else _MEMORY_PERCENT


def _check_memory(machine: Machine, facts: Facts, percent: float) -> Iterator[tuple[str, str]]:
    """Low RealMemory. A dump may not tell how much there is."""
    configured, present = int(machine["real_memory"]), facts["real_memory"]
    if present is not None and present * 100 < configured * percent:
        yield INVAL, _too_high("RealMemory", configured, present, int(present * 100 / percent))


def _check_files(gres: list[Mapping[str, Any]], facts: Facts) -> Iterator[tuple[str, str]]:
    """Device files must exist when slurmd starts (`_my_stat` in `src/interfaces/gres.c`).

    The driver makes those of GPUs: they may be missing if it knows their numbers, or has not been installed.
    """
    files = dict.fromkeys(file for entry in gres for file in expand(entry.get("file", "")))
    vendor, numbers = vendor_of(facts["gpus"]), [gpu["minor"] for gpu in facts["gpus"]]
    if all(number is None for number in numbers):
        numbers = [vendor.first_number + place for place in range(len(numbers))]
    coming = {vendor.file_of(number) for number in numbers}
    missing = [file for file in files if file not in facts["device_files"] and file not in coming]
    if missing:
        present = [file for file in files if file not in missing]
        yield (
            NO_START,
            f"{fold(missing)} configured, {fold(present) or 'none'} present; correct the gres or run discover",
        )


def _check_gpus(gres: list[Mapping[str, Any]], gpus: list[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """GPUs that AutoDetect will not find, and files of other GPUs.

    AMD's without a driver are not measured, nor those of a vendor that no class of `gpu` knows.
    """
    if not gres:
        return
    vendor, by_method = vendor_of(gpus), vendor_by_method(gres[0].get("autodetect"))
    ready = bool(gpus) and all(gpu["minor"] is not None and gpu["model"] for gpu in gpus)
    if by_method is vendor:
        yield from _check_counts(gres, gpus, vendor if ready and vendor.types_are_known else None)
    elif ready and not by_method:
        yield from _check_types(gres, gpus, vendor)


def _check_counts(
    gres: list[Mapping[str, Any]], gpus: list[Mapping[str, Any]], vendor: GpuVendor | None
) -> Iterator[tuple[str, str]]:
    """Counts by type: a type is part of the name that is found (`_normalize_sys_gres_types` in gres_gpu.c).

    Without a driver all that can be said is how many GPUs there are, and where the vendor's names do not follow from
    the model; vendor: None then.
    """
    if not vendor:
        configured = sum(int(entry.get("count") or 1) for entry in gres)
        if len(gpus) < configured:
            yield INVAL, _too_few("gres/gpu", configured, len(gpus))
        return
    free = Counter(name for gpu in gpus for name in vendor.detected_names(gpu))
    kinds = [pair for entry in gres for pair in gres_kinds(entry)]
    for kind, count in sorted(kinds, key=lambda pair: -len(pair[0] or "")):
        present = _take_gpus(free, kind or "", count)
        if present < count:
            yield INVAL, _too_few(f"gres/gpu:{kind}" if kind else "gres/gpu", count, present)


def _take_gpus(free: Counter[str], kind: str, count: int) -> int:
    """Take up to so many GPUs of a type from those that are free, by the names that are found; returns how many."""
    present = 0
    for name in list(free):
        if kind.lower() in name:
            taken = min(count - present, free[name])
            present, free[name] = present + taken, free[name] - taken
    return present


def _too_few(what: str, count: int, present: int) -> str:
    """The message for fewer GPUs than configured."""
    return f"{what} count {count} configured, {present} present; correct the gres or run discover"


def _check_types(
    gres: list[Mapping[str, Any]], gpus: list[Mapping[str, Any]], vendor: GpuVendor
) -> Iterator[tuple[str, str]]:
    """Files that are another GPU than their type says; Slurm does not check it."""
    types = {vendor.file_of(gpu["minor"]): gpu for gpu in gpus}
    wrong: dict[tuple[str, str], list[str]] = {}
    for entry in gres:
        for file in expand(entry.get("file", "")):
            gpu = types.get(file)
            kind = str(entry.get("type", "")).lower()
            if not gpu:
                continue
            names = [gpu["type"] or "", detected_name(gpu["model"])]  # a name without letters gives no type
            if not any(kind in name for name in names):
                wrong.setdefault((entry["type"], names[0] or names[1]), []).append(file)
    for (configured, present), files in wrong.items():
        yield ODD, f"{fold(files)} is configured as gpu:{configured}, {present} present"
