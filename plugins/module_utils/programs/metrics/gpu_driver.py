# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of a node, by what their driver says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ...health.kernel_findings import xid_of
from ...host.kernel_messages import read_ring
from .gpu_calls import DriverCalls, GpuState, number, read

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

ROOT = Path("/")
"""Of what the kernel shows of GPUs and sockets."""

QUERY_SECONDS = 10.0
"""On a busy node nvidia-smi can take seconds."""
DETAIL_SECONDS = 10.0
"""For processes and MIG instances."""

USE = ("nvidia-smi", "--query-gpu=index,utilization.gpu", "--format=csv,noheader,nounits")

FIELDS = {
    "index": "",
    "pci.bus_id": "",
    "uuid": "",
    "name": "",
    "mig.mode.current": "",
    "memory.total": "",
    "clocks_event_reasons.active": "clocks_throttle_reasons.active",
    "temperature.gpu": "",
    "power.draw": "",
    "clocks.current.sm": "",
    "utilization.gpu": "",
    "memory.used": "",
    "ecc.errors.corrected.volatile.total": "",
    "ecc.errors.uncorrected.volatile.total": "",
}
"""Fields of nvidia-smi, and their names before driver 535 where they differ."""

XIDS_KEPT = 200
"""Xids whose time is kept, for the jobs that had the GPUs."""

LEAST_MEMORY = 4096 * 1024**2
"""Bytes of a GPU of AMD. The graphics part of a CPU has less, and is not for jobs (`gpu/amd`)."""

REASONS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""Why clocks are lower (`nvmlClocksEventReasons`), without an idle GPU and clocks that somebody has set."""


@dataclass
class DriverGpu:
    """A GPU, or a part of one that has a device file of its own."""

    name: str
    """nvidia-smi's index; for AMD the place among the device files."""
    device: str
    """The device file below /dev."""
    uuid: str = ""
    model: str = ""
    address: str = ""
    """On PCI, as Linux writes it."""
    values: dict[str, float | None] = field(default_factory=dict)
    """By the name of the series after `DCGM_FI_DEV_`."""
    slowed: list[str] = field(default_factory=list)
    mig: bool = False
    instances: list[DriverInstance] = field(default_factory=list)
    processes: int | None = None
    memory: float | None = None
    """All of it, in MiB."""

    @property
    def labels(self) -> dict[str, str]:
        """As dcgm-exporter has them."""
        return {"gpu": self.name, "UUID": self.uuid, "device": self.device, "modelName": self.model}


@dataclass
class DriverInstance:
    """A GPU instance (MIG)."""

    gpu: DriverGpu
    number: str
    used: float | None
    """Memory in use, in MiB."""
    memory: float | None
    """All of it."""
    processes: int = 0

    @property
    def name(self) -> str:
        """As in the map."""
        return f"{self.gpu.name}.{self.number}"


def address_of(text: str) -> str:
    """A PCI address as Linux writes it, for one whose domain has eight digits; empty for another text."""
    found = re.fullmatch(r"([0-9a-f]+):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", text.strip().lower())
    return f"{int(found[1], 16):04x}:{found[2]}" if found else ""


def minors() -> dict[str, str]:
    """The minor number of each NVIDIA GPU, by PCI address."""
    found = {}
    for path in (ROOT / "proc/driver/nvidia/gpus").glob("*/information"):
        if minor := re.search(r"^Device Minor:\s*(\d+)", read(path), re.MULTILINE):
            found[path.parent.name] = minor[1]
    return found


def query_nvidia(calls: DriverCalls, state: GpuState) -> list[DriverGpu]:
    """The GPUs with what `nvidia-smi --query-gpu` says of them; none if it has failed."""
    while True:
        fields = [name for name in (_known(name, state.unknown) for name in FIELDS) if name]
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        answer = calls.run("gpu", command, QUERY_SECONDS)
        unknown = re.search(r'Field "([^"]+)" is not a valid field', answer[1]) if answer and answer[0] else None
        if not unknown or unknown[1] not in fields or fields.index(unknown[1]) < 4:
            break
        state.unknown.append(unknown[1])
    gpus = parse_gpus(fields, answer[1], minors()) if answer and not answer[0] else []
    if not gpus:
        calls.count_failure("gpu")
    return gpus


def _known(name: str, unknown: Sequence[str]) -> str:
    """A field's name that nvidia-smi knows, as far as earlier answers tell; empty if there is none."""
    return next((form for form in (name, FIELDS[name]) if form and form not in unknown), "")


def parse_gpus(fields: Sequence[str], output: str, by_address: Mapping[str, str]) -> list[DriverGpu]:
    """The GPUs in an answer of `--query-gpu`. A line of another form is left out."""
    gpus = []
    for line in output.split("\n"):
        # A model has no comma, and no field before it can be one that was given by a person.
        row = dict(zip(fields, (part.strip() for part in line.split(","))))
        address = address_of(row.get("pci.bus_id", ""))
        if len(row) < len(fields) or not row["index"].isdecimal() or not address:
            continue
        reasons = row.get("clocks_event_reasons.active") or row.get("clocks_throttle_reasons.active") or ""
        mask = int(reasons, 16) if re.fullmatch(r"0x[0-9a-fA-F]+", reasons) else 0
        gpus.append(
            DriverGpu(
                row["index"],
                f"nvidia{by_address.get(address, row['index'])}",
                row["uuid"],
                row["name"],
                address,
                {
                    "GPU_TEMP": number(row.get("temperature.gpu")),
                    "POWER_USAGE": number(row.get("power.draw")),
                    "SM_CLOCK": number(row.get("clocks.current.sm")),
                    "GPU_UTIL": number(row.get("utilization.gpu")),
                    "FB_USED": number(row.get("memory.used")),
                    "ECC_SBE_VOL_TOTAL": number(row.get("ecc.errors.corrected.volatile.total")),
                    "ECC_DBE_VOL_TOTAL": number(row.get("ecc.errors.uncorrected.volatile.total")),
                },
                [reason for bit, reason in REASONS.items() if mask & bit],
                row.get("mig.mode.current") == "Enabled",
                memory=number(row.get("memory.total")),
            )
        )
    return gpus


def add_processes(gpus: Sequence[DriverGpu], calls: DriverCalls) -> None:
    """Add processes and MIG instances, as far as nvidia-smi answers in time."""
    if any(gpu.mig for gpu in gpus):
        answer = calls.run("processes", ["nvidia-smi", "-q", "-x"], DETAIL_SECONDS)
        understood = bool(answer) and answer is not None and not answer[0] and add_details(gpus, answer[1])
    else:
        answer = calls.run("processes", ["nvidia-smi", "pmon", "-c", "1"], DETAIL_SECONDS)
        understood = answer is not None and not answer[0] and count_processes(gpus, answer[1])
    if not understood:
        calls.count_failure("processes")


def count_processes(gpus: Sequence[DriverGpu], output: str) -> bool:
    """Add the number of processes that `nvidia-smi pmon` shows, with `-` for a GPU without any.

    Releases differ in their columns, which the first line names. Returns whether there is such a line.
    """
    by_name = {gpu.name: gpu for gpu in gpus}
    columns: list[str] = []
    for line in output.split("\n"):
        words = line.split()
        if words[:2] == ["#", "gpu"]:
            columns = words[1:]
        if not columns or not words or words[0] not in by_name:
            continue
        row = dict(zip(columns, words))
        gpu = by_name[row["gpu"]]
        # A process that draws alone has the type G.
        gpu.processes = (gpu.processes or 0) + (row.get("pid", "").isdigit() and "C" in row.get("type", "C"))
    return {"gpu", "pid"} <= {*columns}


def add_details(gpus: Sequence[DriverGpu], output: str) -> bool:
    """Add what `nvidia-smi -q -x` says of processes and MIG instances. Returns whether it was understood."""
    try:
        log = ElementTree.fromstring(output)
    except ElementTree.ParseError:
        return False
    by_address = {gpu.address: gpu for gpu in gpus}
    for element in log.iter("gpu"):
        gpu = by_address.get(address_of(element.get("id", "")))
        if gpu is None:
            continue
        devices = element.iterfind("mig_devices/mig_device")
        found = {device.findtext("gpu_instance_id", ""): device for device in devices}
        gpu.instances = [
            DriverInstance(gpu, key, _memory(device, "used"), _memory(device, "total")) for key, device in found.items()
        ]
        gpu.processes = 0
        for process in element.iterfind("processes/process_info"):
            if "C" in process.findtext("type", "C"):
                gpu.processes += 1
                for instance in gpu.instances:
                    instance.processes += instance.number == process.findtext("gpu_instance_id")
    return True


def _memory(device: Element, name: str) -> float | None:
    return number(device.findtext(f"fb_memory_usage/{name}"))


def query_amd() -> list[DriverGpu]:
    """AMD's GPUs, from what the kernel's driver amdgpu shows in sysfs (Documentation/gpu/amdgpu)."""
    found = []
    for path in (ROOT / "sys/class/drm").glob("renderD*"):
        device = path / "device"
        memory = number(read(device / "mem_info_vram_total"))
        if read(device / "vendor").strip() == "0x1002" and memory is not None and memory >= LEAST_MEMORY:
            found.append((int(path.name[len("renderD") :]), device))
    return [_read_amd(str(place), minor, device) for place, (minor, device) in enumerate(sorted(found))]


def _read_amd(name: str, minor: int, device: Path) -> DriverGpu:
    def sensor(*files: str, unit: float) -> float | None:
        paths = (path for file in files for path in device.glob(f"hwmon/hwmon*/{file}"))
        values = (number(read(path)) for path in paths)
        return next((value / unit for value in values if value is not None), None)

    used = number(read(device / "mem_info_vram_used"))
    values = {
        "GPU_TEMP": sensor("temp1_input", unit=1000),
        "POWER_USAGE": sensor("power1_average", "power1_input", unit=1e6),
        "SM_CLOCK": sensor("freq1_input", unit=1e6),
        "GPU_UTIL": number(read(device / "gpu_busy_percent")),
        "FB_USED": used and used / 1024**2,
    }
    uuid = read(device / "unique_id").strip()
    memory = (number(read(device / "mem_info_vram_total")) or 0) / 1024**2
    model = read(device / "product_name").strip()
    return DriverGpu(name, f"dri/renderD{minor}", uuid, model, values=values, memory=memory)


def read_xids(state: GpuState) -> None:
    """Record the Xids in the kernel's messages. Those that the kernel has dropped stay recorded."""
    with suppress(OSError):
        for when, text in read_ring(ROOT):
            xid = xid_of(text)
            if xid and when > state.xids_until:
                state.xids[xid.address] = xid.number
                state.xid_log = [*state.xid_log, [when, xid.address, xid.number]][-XIDS_KEPT:]
                state.xids_until = when


def read_use(calls: DriverCalls) -> dict[str, float]:
    """The utilization of each GPU that has one, in percent."""
    if not (ROOT / "proc/driver/nvidia").exists() and (gpus := query_amd()):
        return {gpu.name: value for gpu in gpus if (value := gpu.values["GPU_UTIL"]) is not None}
    answer = calls.run("use", USE, QUERY_SECONDS)
    rows = re.findall(r"^\s*(\d+), *(\S.*)$", answer[1], re.MULTILINE) if answer and not answer[0] else []
    if not rows:
        calls.count_failure("use")
    return {name: min(100.0, max(0.0, value)) for name, text in rows if (value := number(text)) is not None}
