# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be found on a node, whose fault it is, how urgent it is, and what mends it.

Sources: NVIDIA, "XID errors: analyzing XIDs with the catalog" (r590) for Xids, "Memory error management" for ECC and
rows of memory, "Fabric manager for NVIDIA NVSwitch systems" for SXids. An Xid whose columns in the catalog lead to a
workflow has what this workflow ends with. docs/admin/findings.md is written from this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..client.drains import HEALTH

NODE, JOB, SHARED = "node", "job", "shared"
"""Whose fault a finding is: of the node, of the job that ran on it, or of something that many nodes share."""

NOW, AFTER, WARN = "now", "after", "warn"
"""The node is drained, and its jobs cannot go on; it is drained, and its jobs go on; it takes jobs as before."""

NONE, CLEAN, MOUNT, RESET, REBOOT = "none", "clean", "mount", "reset", "reboot"
POWER_CYCLE, REPLACE, PERSON = "power cycle", "replace", "person"
"""What mends it: nothing to do; what ended jobs have left is removed; file systems are mounted again; a reset of the
GPU; a boot; a boot without power in between; new hardware; a person."""


def drains(kind: str, severity: str) -> bool:
    """Whether a node with such a finding takes no more jobs. A job's own fault is none of the node."""
    return severity != WARN and kind != JOB


class NodeFinding(NamedTuple):
    """A kind of fault."""

    name: str
    kind: str
    severity: str
    action: str
    means: str
    source: str

    @property
    def drains(self) -> bool:
        """Whether a node with it takes no more jobs."""
        return drains(self.kind, self.severity)


KILL_FAILED = "kill-task-failed"
"""The finding that Slurm makes, and no check."""

CATALOG = "NVIDIA, Xid catalog r590"

HANGS = re.compile(r"no answer in|still hangs")
"""How the error of a check begins that does not end."""

_XIDS: tuple[tuple[str, str, str, Mapping[int, str]], ...] = (
    # "Restart the application": a program has done something wrong, or has met an error that harmed nobody else.
    (
        JOB,
        WARN,
        NONE,
        {
            8: "GPU stopped processing",
            11: "Invalid or corrupted push buffer stream",
            13: "Graphics engine exception",
            25: "Invalid or illegal push buffer stream",
            31: "GPU memory page fault",
            32: "Invalid or corrupted push buffer stream",
            39: "Copy engine exception",
            40: "Copy engine exception",
            41: "Copy engine exception",
            43: "GPU stopped processing",
            44: "Graphics engine fault during context switch",
            45: "Cleanup after earlier errors of the program, or after its end",
            60: "Video processor exception",
            68: "NVDEC exception",
            69: "Graphics engine class error",
            **dict.fromkeys((70, 71, 72, 75, 76, 77, 85), "Copy engine error"),
            80: "Corrupted data sent to the GPU",
            **dict.fromkeys((83, 84, 88, 89, 96, 97, 98), "NVDEC error"),
            **dict.fromkeys((82, *range(99, 106)), "NVJPG error"),
            86: "OFA exception",
            94: "Contained memory error",
            **dict.fromkeys(range(126, 136), "Copy engine error"),
            139: "OFA error",
        },
    ),
    # Nothing is to be done, or not now.
    (
        NODE,
        WARN,
        NONE,
        {
            14: "Test of error reports",
            37: "Driver firmware error",
            63: "A row of memory was remapped",
            66: "Illegal access by the driver",
            106: "Test message of SMBPBI",
            107: "Silent test message of SMBPBI",
            162: "Power smoothing is used again",
            163: "Power smoothing is not used",
            171: "Details of Xid 48",
            172: "Details of Xid 48",
        },
    ),
    # The GPU goes on. NVIDIA wants to know if it happens again.
    (
        NODE,
        WARN,
        PERSON,
        {
            38: "Driver firmware error",
            67: "Illegal access by the driver",
            78: "vGPU start error",
            92: "High rate of corrected memory errors",
            93: "InfoROM has reached its limit of writes",
            121: "C2C error",
            137: "NVLink privilege error",
            141: "CUDA fast path error",
            142: "NVENC error",
            152: "DLA SMMU error",
            153: "DLA timeout",
            157: "Retirement of a resource has failed",
            159: "CHI error without data",
            160: "Channel was retired",
            161: "Retirement of a channel has failed",
            164: "Power smoothing will soon have reached its lifetime",
            165: "Power smoothing has reached its lifetime",
            166: "Traffic before the link was encrypted",
            # The catalog does not say what mends these two; a driver that reports them says which recovery it asks for.
            167: "PCIe fatal timeout",
            169: "Internal micro-controller halt",
            170: "Interrupt in confidential computing mode",
        },
    ),
    (
        NODE,
        AFTER,
        RESET,
        {
            46: "GPU stopped processing",
            48: "Double bit ECC error",
            62: "Internal micro-controller halt",
            74: "NVLink error",
            109: "Context switch timeout",
            110: "Security fault",
            136: "Link training failed",
            155: "NVLink error defined by software",
            156: "A resource is to be retired",
        },
    ),
    # All programs on the GPU are harmed.
    (
        NODE,
        NOW,
        RESET,
        {
            95: "Uncontained memory error",
            119: "GSP RPC timeout",
            120: "GSP error",
            140: "Unrecovered ECC error",
            143: "GPU initialization error",
            158: "GPU fatal timeout",
        },
    ),
    (
        NODE,
        NOW,
        REBOOT,
        {
            79: "GPU has fallen off the bus",
            151: "Key rotation error",
            168: "Errors in the write protected region",
        },
    ),
    (NODE, AFTER, REPLACE, {64: "Remapping of a row of memory has failed"}),
    (NODE, NOW, PERSON, {54: "Auxiliary power is not connected to the GPU board"}),
)

_OTHERS = (
    NodeFinding(
        "gpu-recovery-action",
        NODE,
        AFTER,
        RESET,
        "The driver asks for a reset or a boot.",
        "NVML, nvmlGpuRecoveryAction_t",
    ),
    NodeFinding(
        "gpu-missing",
        NODE,
        NOW,
        REBOOT,
        "The driver has fewer GPUs than the cluster file, or a device file is missing.",
        "docs/admin/hardware.md",
    ),
    NodeFinding("gpu-driver", NODE, NOW, REBOOT, "nvidia-smi fails or does not answer.", "nvidia-smi(1)"),
    NodeFinding(
        "gpu-driver-library",
        SHARED,
        AFTER,
        REBOOT,
        "The driver in the kernel and its library have different versions, as after an update.",
        "nvidia-smi(1)",
    ),
    NodeFinding(
        "gpu-ecc",
        NODE,
        AFTER,
        RESET,
        "Uncorrected errors of the GPU's memory since the driver was loaded, and no row was remapped for them.",
        "NVIDIA, Memory error management",
    ),
    NodeFinding(
        "gpu-ecc-contained",
        JOB,
        WARN,
        NONE,
        "Uncorrected errors of the GPU's memory that ended a program, on a GPU that remaps rows.",
        "NVIDIA, Memory error management",
    ),
    NodeFinding(
        "gpu-memory-failed",
        NODE,
        AFTER,
        REPLACE,
        "The GPU's memory cannot be repaired, or its SRAM has had more uncorrected errors than NVIDIA allows.",
        "NVIDIA, Memory error management",
    ),
    NodeFinding(
        "gpu-rows-pending",
        NODE,
        AFTER,
        RESET,
        "Rows of memory are remapped at the next reset.",
        "NVIDIA, Memory error management",
    ),
    NodeFinding(
        "gpu-repair-pending",
        NODE,
        AFTER,
        RESET,
        "A part of the GPU is repaired at the next reset.",
        "nvidia-smi(1), ECC Errors",
    ),
    NodeFinding(
        "gpu-rows-failed",
        NODE,
        AFTER,
        REPLACE,
        "A row of memory could not be remapped.",
        "NVIDIA, Memory error management",
    ),
    NodeFinding(
        "gpu-pcie",
        NODE,
        AFTER,
        POWER_CYCLE,
        "The PCIe link of the GPU is narrower, or slower under load, than the GPU and its slot allow.",
        "nvidia-smi(1), PCI, GPU Link Info",
    ),
    NodeFinding(
        "gpu-fabric",
        NODE,
        NOW,
        REBOOT,
        "The GPU has not joined the NVLink fabric, so that CUDA fails with error 802.",
        "NVIDIA, Fabric manager",
    ),
    NodeFinding(
        "gpu-fabric-unhealthy",
        NODE,
        AFTER,
        RESET,
        "The driver says that the NVLink fabric of the GPU is unhealthy.",
        "NVML, nvmlGpuFabricInfo_v3_t",
    ),
    NodeFinding(
        "gpu-fabric-degraded",
        NODE,
        WARN,
        PERSON,
        "The NVLink fabric of the GPU has less bandwidth than it should.",
        "NVML, nvmlGpuFabricInfo_v3_t",
    ),
    NodeFinding(
        "gpu-fabric-split",
        NODE,
        AFTER,
        PERSON,
        "The GPU is in another NVLink fabric (cluster, clique) than most GPUs of the node.",
        "NVML, nvmlGpuFabricInfo_v3_t",
    ),
    NodeFinding(
        "gpu-slowed",
        NODE,
        WARN,
        PERSON,
        "Heat or the power supply keeps the clocks of the GPU low.",
        "nvidia-smi(1), Clocks Event Reasons",
    ),
    NodeFinding(
        "gpu-hot",
        NODE,
        WARN,
        PERSON,
        "The GPU is hotter than the temperature at which it slows down.",
        "nvidia-smi(1), Temperature",
    ),
    NodeFinding(
        "gpu-process-left",
        NODE,
        WARN,
        PERSON,
        "A user's process that belongs to no job of Slurm uses the GPU.",
        "nvidia-smi(1), Processes",
    ),
    NodeFinding(
        "gpu-memory-left",
        NODE,
        AFTER,
        RESET,
        "Memory of the GPU is in use, and no process has it.",
        "nvidia-smi(1), FB Memory Usage",
    ),
    NodeFinding(
        "nvlink-fatal",
        NODE,
        NOW,
        RESET,
        "NVLink has had a fatal error (Xid 144 to 150).",
        CATALOG,
    ),
    NodeFinding(
        "nvlink-nonfatal",
        NODE,
        WARN,
        NONE,
        "NVLink has had an error from which it has recovered (Xid 144 to 150).",
        CATALOG,
    ),
    NodeFinding(
        "nvlink-errors",
        NODE,
        AFTER,
        PERSON,
        "An NVLink has had three replays or recoveries in an hour, a failed recovery, or 100 CRC errors a second.",
        "NVIDIA, DCGM, DcgmHealthWatch.cpp",
    ),
    NodeFinding(
        "nvswitch-fatal",
        NODE,
        NOW,
        RESET,
        "An NVSwitch has had a fatal error (SXid), after which all GPUs of the board are to be reset.",
        "NVIDIA, Fabric manager, NVSwitch SXid errors",
    ),
    NodeFinding(
        "nvswitch-nonfatal",
        NODE,
        WARN,
        NONE,
        "An NVSwitch has had an error from which it has recovered (SXid).",
        "NVIDIA, Fabric manager, NVSwitch SXid errors",
    ),
    NodeFinding(
        "amd-gpu-reset",
        JOB,
        WARN,
        NONE,
        "AMD's driver has reset a GPU after a program of a job had stopped it.",
        "Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_device.c",
    ),
    NodeFinding(
        "amd-gpu-reset-failed",
        NODE,
        NOW,
        REBOOT,
        "AMD's driver could not reset a GPU.",
        "Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_device.c",
    ),
    NodeFinding(
        "amd-gpu-memory",
        NODE,
        AFTER,
        REBOOT,
        "An AMD GPU has had uncorrected errors of its memory.",
        "Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c",
    ),
    NodeFinding(
        "amd-gpu-pages",
        NODE,
        AFTER,
        REPLACE,
        "An AMD GPU has more bad pages of memory than it may have.",
        "Linux, drivers/gpu/drm/amd/amdgpu/amdgpu_ras_eeprom.c",
    ),
    NodeFinding(
        "memory-uncorrected",
        NODE,
        AFTER,
        REBOOT,
        "The host's memory has had an uncorrected error.",
        "Linux, Documentation/admin-guide/RAS",
    ),
    NodeFinding(
        "cpu-error",
        NODE,
        NOW,
        PERSON,
        "A processor has reported an uncorrected error.",
        "Linux, arch/x86/kernel/cpu/mce",
    ),
    NodeFinding(
        "pcie-fatal",
        NODE,
        NOW,
        REBOOT,
        "A device has had an uncorrected fatal error of PCIe.",
        "Linux, Documentation/PCI/pcieaer-howto.rst",
    ),
    NodeFinding(
        "disk-error",
        NODE,
        AFTER,
        REPLACE,
        "A disk could not read or write a block, or SMART says that it fails.",
        "smartctl(8); Linux, block/blk-core.c",
    ),
    NodeFinding(
        "disk-lost",
        NODE,
        NOW,
        POWER_CYCLE,
        "A disk does not answer, and the kernel has given it up.",
        "Linux, drivers/nvme/host",
    ),
    NodeFinding(
        "filesystem-read-only",
        NODE,
        NOW,
        REBOOT,
        "The kernel has made a file system read-only, or has shut it down, after an error.",
        "Linux, fs/ext4/super.c, fs/xfs/xfs_fsops.c",
    ),
    NodeFinding(
        "file-server",
        SHARED,
        WARN,
        PERSON,
        "A file server does not answer. The check of file systems drains the node if a mount hangs.",
        "Linux, net/sunrpc/clnt.c",
    ),
    NodeFinding(
        "nic-failed",
        NODE,
        NOW,
        REBOOT,
        "The firmware of a network adapter has failed.",
        "Linux, drivers/net/ethernet/mellanox/mlx5/core/health.c",
    ),
    NodeFinding(
        "port-missing",
        NODE,
        AFTER,
        REBOOT,
        "A network adapter of the machine type is not there, or has lost a port.",
        "Linux, Documentation/ABI/stable/sysfs-class-infiniband",
    ),
    NodeFinding(
        "port-down",
        SHARED,
        AFTER,
        PERSON,
        "A port of the machine type has no link: look at the cable, and at the switch if several nodes have it.",
        "Linux, Documentation/ABI/stable/sysfs-class-infiniband",
    ),
    NodeFinding(
        "port-slow",
        NODE,
        AFTER,
        PERSON,
        "A port has a lower rate than the machine type, or another kind of link: look at the cable.",
        "Linux, Documentation/ABI/stable/sysfs-class-infiniband",
    ),
    NodeFinding(
        "port-flaps",
        NODE,
        AFTER,
        PERSON,
        "A port has lost its link three times in an hour: look at the cable.",
        "NVIDIA, NVSentinel, health-monitors",
    ),
    NodeFinding(
        "port-errors",
        NODE,
        AFTER,
        PERSON,
        "A port has had more than 120 symbol errors in an hour, or lost data: look at the cable.",
        "NVIDIA, NVSentinel, health-monitors",
    ),
    NodeFinding(
        "kernel-lockup",
        NODE,
        NOW,
        REBOOT,
        "A processor hangs in the kernel, or the kernel has found an error of its own.",
        "Linux, Documentation/admin-guide/lockup-watchdogs.rst",
    ),
    NodeFinding(
        KILL_FAILED,
        NODE,
        AFTER,
        REBOOT,
        "A task has not ended when Slurm killed it, and Slurm has drained the node.",
        "Slurm, src/slurmd/slurmstepd/step_terminate_monitor.c",
    ),
    NodeFinding("check-memory", NODE, AFTER, PERSON, "The node has less memory than the cluster file says.", "ours"),
    NodeFinding("check-disk", NODE, AFTER, CLEAN, "A directory of jobs or daemons has too little space.", "ours"),
    NodeFinding(
        "check-filesystems",
        SHARED,
        AFTER,
        MOUNT,
        "A file system is not mounted, does not answer or is read-only.",
        "ours",
    ),
    NodeFinding("check-clock", NODE, AFTER, PERSON, "The clock is a second off its time servers'.", "chronyc(1)"),
    NodeFinding("check-imex", NODE, AFTER, PERSON, "The IMEX daemon of an NVLink domain is not ready.", "NVIDIA, IMEX"),
    NodeFinding("check-munge", NODE, AFTER, PERSON, "A credential of the host does not decode.", "munge(1)"),
    NodeFinding("check-hangs", NODE, AFTER, REBOOT, "A check has not ended in its time.", "ours"),
    NodeFinding("check-of-site", NODE, AFTER, PERSON, "A check of the site has failed.", "slurm_health_own_checks"),
)

XIDS: Mapping[int, NodeFinding] = {
    number: NodeFinding(f"xid-{number}", kind, severity, action, f"{means}.", CATALOG)
    for kind, severity, action, numbers in _XIDS
    for number, means in numbers.items()
}
OTHERS: Mapping[str, NodeFinding] = {finding.name: finding for finding in _OTHERS}

NVLINK_XIDS = range(144, 151)
"""Errors of NVLink 5, whose message says whether they are fatal."""

RECOVERY_XID = 154
"""The driver's new recovery action, which its text names."""


def findings() -> Iterator[NodeFinding]:
    """All of the table, Xids first."""
    yield from (XIDS[number] for number in sorted(XIDS))
    yield from OTHERS.values()


def draining_xids() -> list[int]:
    """The numbers of the Xids that drain a node."""
    return sorted(number for number, finding in XIDS.items() if finding.drains)


def named(name: str) -> NodeFinding:
    """A finding by its name. One of a newer collection, or an Xid that is not in the table, is for a person."""
    number = re.fullmatch(r"xid-(\d+)", name)
    found = XIDS.get(int(number[1])) if number else OTHERS.get(name)
    return found or NodeFinding(name, NODE, WARN, PERSON, "It is not in the table.", CATALOG if number else "")


def of_check(name: str, error: str) -> NodeFinding:
    """The finding of a check that is a file, by its name and its error."""
    if name == "gpu":
        if "version mismatch" in error:
            return OTHERS["gpu-driver-library"]
        return OTHERS["gpu-missing" if re.match(r"missing:|\d+ of \d+ ", error) else "gpu-driver"]
    own = OTHERS["disk-error"] if name == "smart" else OTHERS.get(f"check-{name}")
    if own and own.kind == SHARED:
        return own
    return OTHERS["check-hangs"] if HANGS.match(error) else own or OTHERS["check-of-site"]


def of_reason(name: str, text: str) -> NodeFinding:
    """The finding of a node's reason, which has the name of a finding of this table or of a check."""
    return named(name) if name in OTHERS or re.fullmatch(r"xid-\d+", name) else of_check(name, text)


def of_drain(reason: str) -> NodeFinding | None:
    """The first finding in the reason of a drained node; None if it is not one of the health check."""
    name, _colon, text = reason.removeprefix(HEALTH).partition(": ")
    return of_reason(name, text) if reason.startswith(HEALTH) else None


def of_xid(number: int, text: str) -> NodeFinding:
    """The finding of an Xid, by its number and the rest of its message."""
    if number in NVLINK_XIDS:
        return OTHERS["nvlink-nonfatal" if re.search(r"\bnon-?fatal\b", text, re.IGNORECASE) else "nvlink-fatal"]
    if number == RECOVERY_XID:
        return recovery(text)
    return named(f"xid-{number}")


def recovery(answer: str) -> NodeFinding:
    """The finding for an answer such as `Node Reboot Required`, `GPU Reset Required`, `Drain P2P` or `None`."""
    words = answer.casefold().rpartition(" to ")[2]  # changed from 0x0 (None) to 0x2 (Node Reboot Required)
    finding = OTHERS["gpu-recovery-action"]
    if "reboot" in words or "power cycle" in words:
        return finding._replace(severity=NOW, action=REBOOT)
    if "reset" in words or "drain" in words:
        return finding
    quiet = re.search(r"\bnone\b", words)
    return finding._replace(severity=WARN, action=NONE if quiet else PERSON)
