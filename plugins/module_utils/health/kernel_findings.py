# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings in the messages of the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..host.kernel_messages import KernelMessage
from .finding_table import OTHERS, XIDS, NodeFinding, of_xid

ADDRESS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"

_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?({ADDRESS})[^)]*\): (\d+)")
"""`NVRM: Xid (PCI:0000:3b:00): 79, pid=2, GPU has fallen off the bus.`, with ` GPU-I:02` for a MIG instance."""

_LOST = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?({ADDRESS})\b|NVRM: (?=.*fallen off the bus)")
"""What the driver says without a number. Some releases write the address in another message before."""

_SXID = re.compile(rf"SXid \((?:PCI:)?({ADDRESS})[^)]*\): \d+, (Non-fatal|Fatal)", re.IGNORECASE)
"""`nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error`. Further messages
have the same number and registers."""


class KernelFinding(NamedTuple):
    """A finding in a message."""

    finding: NodeFinding
    subject: str
    """The device: a PCI address in small letters without the function for a GPU, or a name such as `nvme0n1`."""
    microseconds: int
    """Since boot."""
    line: str


def _pattern(name: str, begin: str, *words: str) -> tuple[NodeFinding, re.Pattern[str]]:
    """A finding, and its messages: a beginning, which names the device, and one of several texts after it."""
    return OTHERS[name], re.compile(begin + (f"(?:{'|'.join(words)})" if words else ""))


_DISK = r"((?:nvme|sd|vd|md|dm-)[a-z0-9]+)"

_PATTERNS = (
    _pattern("amd-gpu-reset-failed", rf"amdgpu ({ADDRESS}): .*", "GPU reset.* failed", "GPU Recovery Failed"),
    _pattern("amd-gpu-reset", rf"amdgpu ({ADDRESS}): .*", r"GPU reset(?:\(\d+\))? succeeded"),
    _pattern("amd-gpu-pages", rf"amdgpu ({ADDRESS}): .*", "RAS records:.* exceed threshold", "bad pages? .*exceed"),
    _pattern(
        "amd-gpu-memory",
        rf"amdgpu ({ADDRESS}): .*",
        r"\b[1-9]\d* (?:new )?uncorrectable (?:hardware )?errors? detected",
        r"uncorrectable hardware error\(",
    ),
    _pattern("memory-uncorrected", r"EDAC (MC\d+): [1-9]\d* UE\b"),
    _pattern("memory-uncorrected", r"Memory failure: (0x[0-9a-f]+): .*recovery action for .*: (?!Recovered)"),
    _pattern(
        "cpu-error", r"mce: \[Hardware Error\]: (CPU \d+): Machine Check.*: \d+ Bank \d+: ", r"[2367abef][0-9a-f]{15}"
    ),
    _pattern("pcie-fatal", rf"({ADDRESS}): .*", r"Uncorrect(?:ed|able) \(Fatal\)"),
    _pattern(
        "disk-lost",
        r"(nvme\d+)(?:n\d+)?: ",
        "Disabling device after reset failure",
        "Removing after probe failure",
        "Device not ready; aborting",
        "no available path - failing I/O",
    ),
    _pattern("disk-lost", r"(sd [0-9:]+): .*", "rejecting I/O to offline device", "Device offlined"),
    _pattern("disk-error", rf"(?:critical medium|critical target|I/O) error,? (?:on )?dev(?:ice)? {_DISK}"),
    _pattern("disk-error", rf"md/raid.*: Disk failure on {_DISK}"),
    _pattern(
        "filesystem-read-only",
        r"EXT4-fs(?: error)? \((?:device )?([^)]+)\): .*",
        "Remounting filesystem read-only",
        "shut ?down",
    ),
    _pattern(
        "filesystem-read-only",
        r"XFS \(([^)]+)\): .*",
        "Shutting down filesystem",
        "shutdown.* has been detected",
        "Filesystem has been shut down",
    ),
    _pattern("filesystem-read-only", r"BTRFS.* \(device (\S+)[^)]*\).*: ", "forced readonly"),
    _pattern("file-server", r"(?:nfs|lockd): server (\S+) not responding"),
    _pattern("file-server", r"Lustre(?:Error)?: .*Connection to (\S+) .*was lost"),
    _pattern(
        "nic-failed",
        rf"mlx5_core ({ADDRESS}): .*",
        "device's health compromised",
        "[Ww]ill cause a leak of a command resource",
        "health recovery failed",
    ),
    _pattern("kernel-lockup", "BUG: ", "(soft lockup|unable to handle|kernel NULL pointer|workqueue lockup)"),
    _pattern("kernel-lockup", "(hard LOCKUP|self-detected stall|detected stalls)"),
)

CANDIDATE = re.compile(
    "NVRM: |SXid|amdgpu|EDAC|Memory failure|mce: |Fatal|nvme|sd [0-9]|I/O error|error, dev|medium error|md/raid|"
    "EXT4-fs|XFS|BTRFS|not responding|Lustre|mlx5_core|BUG: |LOCKUP|stall"
)
"""Most messages have none of these, and are not compared with the patterns. awk reads it as well (slurm-prolog)."""


def pci(address: str) -> str:
    """A PCI address as this collection writes it: domain of four digits, small letters, without the function."""
    parts = address.lower().partition(".")[0].split(":")
    domain = parts[0][-4:] if len(parts) == 3 else "0000"
    return ":".join((domain, *parts[-2:]))


class Xid(NamedTuple):
    """An error of NVIDIA's driver."""

    address: str
    """The PCI address of the GPU, as pci() writes it."""
    number: int
    said: str
    """The message, from `Xid` on."""


def xid_of(text: str) -> Xid | None:
    """The Xid of a message; None without one."""
    found = _XID.search(text)
    return Xid(pci(found[1]), int(found[2]), text[found.start() + len("NVRM: ") :]) if found else None


def find_in(messages: Iterable[KernelMessage]) -> Iterator[KernelFinding]:
    """The findings in messages, in their order."""
    named = ""
    for when, text in messages:
        if not CANDIDATE.search(text):
            continue
        found, lost = _found(text), _LOST.search(text)
        if found:
            yield KernelFinding(found[0], found[1], when, found[2])
        elif lost:
            named = pci(lost[1]) if lost[1] else named
            if "fallen off the bus" in text:
                yield KernelFinding(XIDS[79], named, when, text[lost.start() + len("NVRM: ") :])


def _found(text: str) -> tuple[NodeFinding, str, str] | None:
    """The finding of one message, its device and what is shown of it."""
    if xid := xid_of(text):
        return of_xid(xid.number, xid.said), xid.address, xid.said
    if switch := _SXID.search(text):
        fatal = switch[2].casefold() == "fatal"
        return OTHERS["nvswitch-fatal" if fatal else "nvswitch-nonfatal"], pci(switch[1]), text
    for finding, pattern in _PATTERNS:
        if found := pattern.search(text):
            return finding, found[1], text
    return None
