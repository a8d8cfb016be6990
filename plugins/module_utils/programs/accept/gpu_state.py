# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks GPUs by nvidia-smi, the kernel and dcgmi."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence

from .accept_results import MeasureError, Results, run, run_any, there

DIAGNOSES = {"dcgm_1": 180, "dcgm_2": 1200, "dcgm_3": 7200}
"""Seconds for `dcgmi diag` by test, whose name ends in the level."""

SLOWED = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
"""Reasons for low clocks that are faults (nvidia-smi, `clocks_event_reasons`). Others follow from the load."""

OF_GPUS = ("gpu_ecc", "gpu_remapped_rows", "gpu_pcie", "gpu_clocks")
"""Checks of each GPU in `nvidia-smi -q -x`."""


def check_gpus(results: Results, number: int, xids: Sequence[str]) -> None:
    """The checks by nvidia-smi and by the kernel's log. number: GPUs that the node must have."""
    with results.named("gpu_count", "gpu_driver", "fabric_manager", *OF_GPUS):
        log = ElementTree.fromstring(run(["nvidia-smi", "-q", "-x"], 60))
        results.driver = log.findtext("driver_version", "")
        gpus = log.findall("gpu")
        results.check("gpu_count", "" if len(gpus) == number else f"{len(gpus)} of {number} GPUs")
        results.check("gpu_driver", "" if results.driver else "nvidia-smi shows no driver")
        for index, gpu in enumerate(gpus):
            for test, fault in gpu_faults(gpu).items():
                results.check(test, fault, index)
        states = [fabric_fault(gpu) for gpu in gpus]
        if any(fault is not None for fault in states):
            faults = [f"GPU {index}: {fault}" for index, fault in enumerate(states) if fault]
            results.check("fabric_manager", ", ".join(faults))
    if results.wanted("gpu_nvlink"):
        with results.named("gpu_nvlink"):
            for gpu_index, fault in nvlink_faults(run(["nvidia-smi", "nvlink", "-s"], 60)).items():
                results.check("gpu_nvlink", fault, gpu_index)
    if results.wanted("gpu_xid"):
        with results.named("gpu_xid"):
            results.check("gpu_xid", find_xid(run(["dmesg"], 30), xids))


def value_of(gpu: ElementTree.Element, path: str) -> str:
    """A value of a GPU; empty if the GPU does not have it."""
    found = (gpu.findtext(path) or "").strip()
    return "" if found in ("N/A", "[N/A]") else found


def fabric_fault(gpu: ElementTree.Element) -> str | None:
    """What is wrong with the fabric of a GPU, which the fabric manager sets up; None for a GPU without a fabric."""
    state, status = value_of(gpu, "fabric/state"), value_of(gpu, "fabric/status")
    if not state:
        return None
    return "" if state == "Completed" and status in ("Success", "") else f"fabric {state} {status}".rstrip()


def gpu_faults(gpu: ElementTree.Element) -> dict[str, str]:
    """The fault of a GPU by check, from its element of `nvidia-smi -q -x`; what a GPU does not have is no fault."""
    errors = [
        f"{element.tag} {(element.text or '').strip()}"
        for element in gpu.iterfind("ecc_errors/volatile//*")
        if "uncorr" in element.tag and (element.text or "").strip().isdigit() and int(element.text or 0)
    ]
    errors += ["ECC is disabled"] if value_of(gpu, "ecc_mode/current_ecc") == "Disabled" else []
    rows = [
        name
        for name in ("pending", "failure")
        if value_of(gpu, f"remapped_rows/remapped_row_{name}") not in ("", "No", "0")
    ]
    return {
        "gpu_ecc": ", ".join(errors),
        "gpu_remapped_rows": f"remapped rows: {', '.join(rows)}" if rows else "",
        "gpu_pcie": pcie_fault(gpu),
        "gpu_clocks": ", ".join(name for name in SLOWED if is_active(gpu, name)),
    }


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


def nvlink_faults(text: str) -> dict[int, str]:
    """The links of each GPU that are down, by its index; no GPU without links. text: `nvidia-smi nvlink -s`."""
    faults: dict[int, str] = {}
    gpu, down = None, list[str]()
    for line in text.split("\n"):
        head = re.match(r"GPU (\d+):", line)
        link = re.match(r"\s+Link (\d+): (.*)", line)
        if head:
            gpu, down = int(head[1]), []
        elif link and gpu is not None:
            down += [link[1]] if "inactive" in link[2].lower() else []
            faults[gpu] = f"links down: {','.join(down)}" if down else ""
    return faults


def find_xid(messages: str, xids: Sequence[str]) -> str:
    """The last error of the driver, among these numbers, that is no fault of a program."""
    numbers = "|".join(map(re.escape, xids))
    found = re.findall(rf"NVRM: Xid (\([^)]*\): (?:{numbers}),.*)", messages) if xids else []
    return f"Xid {found[-1]}" if found else ""


def diagnose(results: Results) -> None:
    """`dcgmi diag` at the highest of the wanted levels, which has the tests of the lower ones."""
    for test in results.wanted(*DIAGNOSES)[-1:]:
        with results.named(test):
            command = ["dcgmi", "diag", "-r", test[-1], "-j"]
            if not there("dcgmi"):
                raise MeasureError("dcgmi is not installed")
            results.check(test, diagnosis_faults(run_any(command, DIAGNOSES[test])))


def diagnosis_faults(text: str) -> str:
    """What `dcgmi diag -j` calls failed, with its first warning. Raises ValueError if it is no JSON."""
    faults = []
    answer = json.loads(text[text.index("{") :])
    found = answer.get("DCGM Diagnostic") or answer.get("DCGM GPU Diagnostic") or {}
    for category in found.get("test_categories", []):
        for test in category.get("tests", []):
            for result in test.get("results", []):
                if str(result.get("status", "")).lower() == "fail":
                    warnings = result.get("warnings") or result.get("warning") or ""
                    first = warnings[0] if isinstance(warnings, list) and warnings else warnings
                    said = first.get("warning", "") if isinstance(first, Mapping) else str(first)
                    gpu = result.get("gpu_id", result.get("gpu_ids", result.get("entity_id", "")))
                    faults.append(f"{test.get('name', 'a test')} of GPU {gpu}: {said}")
    return "; ".join(faults)
