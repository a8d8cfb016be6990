# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings in what NVIDIA's driver says of its GPUs now (`nvidia-smi -q -x`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from .finding_table import NONE, OTHERS, NodeFinding, recovery
from .kernel_findings import pci

SLOWED = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
"""Reasons for low clocks that are faults (nvidia-smi, `clocks_event_reasons`). Others follow from the load."""

LEFT = frozenset(("gpu-process-left", "gpu-memory-left"))
"""Findings of what a job may leave behind."""
LASTING = LEFT | {
    "gpu-pcie",
    "gpu-fabric",
    "gpu-fabric-unhealthy",
    "gpu-fabric-degraded",
    "gpu-fabric-split",
    "gpu-slowed",
    "gpu-hot",
}
"""Findings that count only if two runs in a row have them: a link trains, the fabric begins after a boot, a process
that ends frees its memory.
"""

NO_FABRIC = "NV_WARN_NOTHING_TO_DO"
"""Status of a GPU with NVLink that has no NVSwitch, such as a single GH200."""

FABRIC_FAULTS = ("route_unhealthy", "access_timeout_recovery")
"""Faults in the health of a fabric. A recovery of routes that goes on is none yet."""

MEMORY_LEFT = 1024
"""MiB of a GPU's memory that may be in use without a process. The driver needs some."""

Strays = Callable[[Collection[int]], Collection[int]]
"""Which of these processes are of users and belong to no job."""


class GpuIdentity(NamedTuple):
    """Which GPU it is. A replaced one has another serial and UUID at the same address."""

    address: str
    uuid: str
    serial: str


class GpuFinding(NamedTuple):
    """A finding of a GPU."""

    finding: NodeFinding
    gpu: GpuIdentity
    said: str


class DriverReport(NamedTuple):
    """What the driver says of all GPUs."""

    gpus: Sequence[GpuIdentity]
    findings: Sequence[GpuFinding]
    well: frozenset[str]
    """The addresses of the GPUs of which the driver says that no recovery is needed."""


def read_report(xml: str, strays: Strays = lambda _found: ()) -> DriverReport:
    """The report of `nvidia-smi -q -x`. Raises ElementTree.ParseError if it is none."""
    elements = ElementTree.fromstring(xml).findall("gpu")
    well = {identity(gpu).address for gpu in elements if is_well(gpu)}
    findings = [
        GpuFinding(finding, identity(gpu), said)
        for gpu in elements
        for finding, said in (*gpu_findings(gpu), *left_findings(gpu, strays))
    ]
    findings += split_findings(elements)
    return DriverReport([identity(gpu) for gpu in elements], findings, frozenset(well))


def identity(gpu: ElementTree.Element) -> GpuIdentity:
    """Which GPU an element describes."""
    address = value_of(gpu, "pci/pci_bus_id") or gpu.get("id", "")
    return GpuIdentity(pci(address), value_of(gpu, "uuid"), value_of(gpu, "serial"))


def value_of(gpu: ElementTree.Element, path: str) -> str:
    """A value of a GPU; empty if the GPU does not have it."""
    found = (gpu.findtext(path) or "").strip()
    return "" if found in ("N/A", "[N/A]") else found


def number_of(gpu: ElementTree.Element, path: str) -> int | None:
    """The number at the beginning of a value, such as `36 C`; None without one."""
    found = re.match(r"-?\d+", value_of(gpu, path))
    return int(found[0]) if found else None


def is_well(gpu: ElementTree.Element) -> bool:
    """Whether the driver says that the GPU needs no recovery. Drivers before 565 do not say."""
    return value_of(gpu, "gpu_recovery_action") == "None"


def gpu_findings(gpu: ElementTree.Element) -> Iterator[tuple[NodeFinding, str]]:
    """The findings of a GPU. What a GPU does not have is none."""
    answer = value_of(gpu, "gpu_recovery_action")
    if answer and recovery(answer).action != NONE:
        yield recovery(answer), f"GPU Recovery Action: {answer}"
    yield from memory_findings(gpu)
    for name, said in (
        ("gpu-pcie", pcie_fault(gpu)),
        ("gpu-fabric", fabric_fault(gpu) or ""),
        *fabric_health(gpu),
        ("gpu-slowed", ", ".join(name for name in SLOWED if is_active(gpu, name))),
        ("gpu-hot", heat(gpu)),
    ):
        if said:
            yield OTHERS[name], said


def memory_findings(gpu: ElementTree.Element) -> Iterator[tuple[NodeFinding, str]]:
    """The findings of a GPU's memory. One that remaps rows goes on after a contained error, until it says otherwise."""
    pending, failed = (value_of(gpu, f"remapped_rows/remapped_row_{name}") for name in ("pending", "failure"))
    repairs = [name for name in ("channel", "tpc") if value_of(gpu, f"ecc_errors/{name}_repair_pending") == "Yes"]
    sram, dram = ecc_errors(gpu, "sram"), ecc_errors(gpu, "dram") or ecc_errors(gpu, "")
    for name in ("aggregate/sram_threshold_exceeded", "unrepairable_memory"):
        if value_of(gpu, f"ecc_errors/{name}") == "Yes":
            yield OTHERS["gpu-memory-failed"], name.rpartition("/")[2].replace("_", " ")
    if sram:
        yield OTHERS["gpu-ecc"], f"uncorrected errors: {sram}"
    elif dram:
        yield OTHERS["gpu-ecc-contained" if pending else "gpu-ecc"], f"uncorrected errors: {dram}"
    if pending not in ("", "No", "0"):
        yield OTHERS["gpu-rows-pending"], "rows of memory wait for a reset"
    if failed not in ("", "No", "0"):
        yield OTHERS["gpu-rows-failed"], "a row of memory could not be remapped"
    if repairs:
        yield OTHERS["gpu-repair-pending"], f"repairs wait for a reset: {', '.join(repairs)}"


def left_findings(gpu: ElementTree.Element, strays: Strays) -> Iterator[tuple[NodeFinding, str]]:
    """What is left on a GPU that no job has started."""
    listed = gpu.find("processes")
    if listed is None or (listed.text or "").strip() == "N/A":
        return
    users = {number_of(process, "pid") or 0: process for process in listed.iterfind("process_info")}
    computing = [pid for pid, process in users.items() if "C" in value_of(process, "type")]
    for pid in sorted(strays(computing))[:1]:
        yield OTHERS["gpu-process-left"], f"process {pid}, {value_of(users[pid], 'process_name')}"
    used = number_of(gpu, "fb_memory_usage/used") or 0
    # With address translation (Grace), the kernel has pages of files there.
    if not users and used > MEMORY_LEFT and value_of(gpu, "addressing_mode") != "ATS":
        yield OTHERS["gpu-memory-left"], f"{used} MiB without a process"


def ecc_errors(gpu: ElementTree.Element, memory: str) -> str:
    """The uncorrected errors since the driver was loaded, by counter."""
    counters = (
        (element.tag, (element.text or "").strip())
        for element in gpu.iterfind("ecc_errors/volatile//*")
        if "uncorr" in element.tag and memory in element.tag
    )
    return ", ".join(f"{name} {count}" for name, count in counters if count.isdigit() and int(count))


def fabric_fault(gpu: ElementTree.Element) -> str | None:
    """What is wrong with the fabric of a GPU, which the fabric manager sets up; None for a GPU without a fabric."""
    state, status = value_of(gpu, "fabric/state"), value_of(gpu, "fabric/status")
    if not state or state == "Not Supported" or status == NO_FABRIC:
        return None
    return "" if state == "Completed" and status in ("Success", "") else f"fabric {state} {status}".rstrip()


def fabric_health(gpu: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """What the driver says of the health of a GPU's fabric, by the name of the finding.

    Drivers before 560 do not say it, and most after that only where several hosts share the fabric.
    """
    faults = [name for name in FABRIC_FAULTS if value_of(gpu, f"fabric/health/{name}") == "True"]
    summary, bandwidth = value_of(gpu, "fabric/health/summary"), value_of(gpu, "fabric/health/bandwidth")
    wrong = value_of(gpu, "fabric/health/incorrect_configuration")
    if wrong not in ("", "None", "False", "Not Supported"):
        faults.append(f"incorrect_configuration {wrong}")
    if summary == "Unhealthy" or faults:
        yield "gpu-fabric-unhealthy", ", ".join(["fabric Unhealthy", *faults])
    elif bandwidth == "Degraded" or summary == "Limited Capacity":
        yield "gpu-fabric-degraded", f"fabric bandwidth {bandwidth or summary}"


def split_findings(gpus: Sequence[ElementTree.Element]) -> Iterator[GpuFinding]:
    """The GPUs of a node that are in another fabric than most of them, by cluster and clique."""
    fabrics = {
        identity(gpu): f"{value_of(gpu, 'fabric/clusterUuid')} clique {value_of(gpu, 'fabric/cliqueId')}"
        for gpu in gpus
        if fabric_fault(gpu) == ""
    }
    for most, _count in Counter(fabrics.values()).most_common(1):
        for gpu, own in fabrics.items():
            if own != most:
                yield GpuFinding(OTHERS["gpu-fabric-split"], gpu, f"in fabric {own}, others in {most}")


def pcie_fault(gpu: ElementTree.Element) -> str:
    """The fault of a PCIe link. Its generation counts in the state of full performance only: it sinks to save power."""
    link = "pci/pci_gpu_link_info"
    generation, most = (value_of(gpu, f"{link}/pcie_gen/{name}_link_gen") for name in ("current", "max"))
    width, widest = (value_of(gpu, f"{link}/link_widths/{name}_link_width") for name in ("current", "max"))
    faults = [f"width {width} of {widest}"] if width != widest else []
    if generation != most and value_of(gpu, "performance_state") == "P0":
        faults.append(f"generation {generation} of {most}")
    return ", ".join(faults)


def is_active(gpu: ElementTree.Element, reason: str) -> bool:
    """Whether a reason for low clocks holds. Drivers before 535 call it a throttle reason."""
    names = (f"clocks_{word}_reasons/clocks_{word}_reason_{reason}" for word in ("event", "throttle"))
    return any(value_of(gpu, name) == "Active" for name in names)


def heat(gpu: ElementTree.Element) -> str:
    """How hot a GPU is beyond the temperature at which it slows down; empty if it is not."""
    names = ("gpu_temp_tlimit", "gpu_temp_slow_tlimit_threshold", "gpu_temp", "gpu_temp_slow_threshold")
    left, limit, now, slow = (number_of(gpu, f"temperature/{name}") for name in names)
    if left is not None and limit is not None:  # Hopper and later: degrees that are left
        return f"{limit - left} degrees above the limit" if left < limit else ""
    return f"{now} of {slow} degrees" if now is not None and slow is not None and now >= slow else ""
