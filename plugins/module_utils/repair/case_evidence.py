# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of a node that fails: what a vendor asks for. It has no process, since their names and users are private."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

from ..hardware.network_ports import DEVICES, read_ports
from ..hardware.sysfs import Tree
from ..health.finding_table import named
from ..health.gpu_findings import identity, value_of
from ..health.seen_findings import Seen
from ..language.formatting import visible

FORMAT = 1
"""Grows when a field changes its meaning."""

_DMI = {
    "vendor": "sys_vendor",
    "product": "product_name",
    "serial": "product_serial",
    "board_serial": "board_serial",
    "firmware": "bios_version",
    "firmware_date": "bios_date",
}
"""Files below /sys/class/dmi/id."""

_PRIVATE = ("processes", "accounted_processes")
"""Elements of `nvidia-smi -q -x` that name processes."""

_VPD_READ_ONLY = 0x90
"""The tag of the part of vital product data that has the numbers."""


@dataclass(frozen=True)
class GpuPart:
    """A GPU, as far as the driver tells."""

    address: str
    name: str
    uuid: str
    serial: str
    part: str
    firmware: str


@dataclass(frozen=True)
class AdapterPart:
    """A network adapter."""

    name: str
    board: str
    firmware: str
    guid: str
    part: str
    serial: str


@dataclass(frozen=True)
class CaseEvidence:
    """What is known of a node when it fails. Times are seconds since 1970."""

    node: str
    taken: float
    boot: str
    kernel: str
    driver: str
    machine: Mapping[str, str]
    gpus: Sequence[GpuPart]
    adapters: Sequence[AdapterPart]
    counters: Mapping[str, Mapping[str, int]]
    """Counters of network ports, by port."""
    findings: Sequence[Mapping[str, Any]]
    """The record of the health check (`health/seen_findings.Seen`), with messages of the kernel."""
    driver_says: str
    """`nvidia-smi -q -x` without processes; empty without an answer."""
    format: int = FORMAT


@dataclass(frozen=True)
class SavedEvidence:
    """The evidence of a case: what the node has sent, and what slurmctld says of it."""

    node: CaseEvidence | None
    """None if the node has sent nothing in time."""
    jobs: Sequence[Mapping[str, str]]
    """The jobs that ran there."""
    record: Mapping[str, str]
    """That of `scontrol show node`."""


def collect(node: str, tree: Tree, boot: str, seen: Iterable[Seen], xml: str, now: float) -> CaseEvidence:
    """The evidence of a node.

    Args:
        node: its name.
        tree: its files.
        boot: the id of its boot.
        seen: the findings of the health check, also those that are over.
        xml: the output of `nvidia-smi -q -x`; empty without an answer.
        now: the time.
    """
    driver, gpus, says = _of_driver(xml)
    return CaseEvidence(
        node=node,
        taken=now,
        boot=boot,
        kernel=tree.text("/proc/sys/kernel/osrelease") or "",
        driver=driver,
        machine={name: visible(tree.text(f"/sys/class/dmi/id/{file}") or "") for name, file in _DMI.items()},
        gpus=gpus,
        adapters=[_adapter(tree, name) for name in tree.names(DEVICES)],
        counters={port.name: dict(port.counters) for port in read_ports(tree) if port.counters},
        findings=[asdict(one) for one in seen],
        driver_says=says,
    )


def _of_driver(xml: str) -> tuple[str, list[GpuPart], str]:
    """The driver's version, the GPUs, and what it says without processes."""
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError:
        return "", [], ""
    gpus = root.findall("gpu")
    for gpu in gpus:
        for name in _PRIVATE:
            for element in gpu.findall(name):
                gpu.remove(element)
    parts = [
        GpuPart(
            identity(gpu).address,
            value_of(gpu, "product_name"),
            identity(gpu).uuid,
            identity(gpu).serial,
            value_of(gpu, "board_part_number"),
            value_of(gpu, "vbios_version"),
        )
        for gpu in gpus
    ]
    return (root.findtext("driver_version") or "").strip(), parts, ElementTree.tostring(root, encoding="unicode")


def _adapter(tree: Tree, name: str) -> AdapterPart:
    directory = f"{DEVICES}/{name}"
    part, serial = vpd_numbers(tree.content(f"{directory}/device/vpd"))
    of = {file: visible(tree.text(f"{directory}/{file}") or "") for file in ("board_id", "fw_ver", "node_guid")}
    return AdapterPart(name, of["board_id"], of["fw_ver"], of["node_guid"], part, serial)


def vpd_numbers(vpd: bytes) -> tuple[str, str]:
    """Part and serial number in the vital product data of a PCI device (PCI 3.0, appendix I); empty without them."""
    place = 0
    while place + 3 <= len(vpd) and vpd[place] & 0x80:
        begin, length = place + 3, int.from_bytes(vpd[place + 1 : place + 3], "little")
        if vpd[place] == _VPD_READ_ONLY:
            found = _vpd_fields(vpd[begin : begin + length])
            return found.get("PN", ""), found.get("SN", "")
        place = begin + length
    return "", ""


def _vpd_fields(data: bytes) -> dict[str, str]:
    """The fields of a part: a name of two letters, a length, and a text."""
    found, place = {}, 0
    while place + 3 <= len(data):
        begin, end = place + 3, place + 3 + data[place + 2]
        name = data[place : place + 2].decode("ascii", "replace")
        found[name] = visible(data[begin:end].decode("ascii", "replace").strip())
        place = end
    return found


def saved_from(content: Mapping[str, Any]) -> SavedEvidence:
    """The evidence of a case from its file. Raises TypeError or KeyError if it is none."""
    node = content["node"]
    return SavedEvidence(evidence_from(node) if node else None, content["jobs"], content["record"])


def evidence_from(content: Mapping[str, Any]) -> CaseEvidence:
    """Evidence from its file. Raises TypeError or KeyError if it is none."""
    return CaseEvidence(
        **{
            **content,
            "gpus": [GpuPart(**gpu) for gpu in content["gpus"]],
            "adapters": [AdapterPart(**adapter) for adapter in content["adapters"]],
        }
    )


# -- the text for a vendor -------------------------------------------------------------------------------------------


def vendor_text(evidence: CaseEvidence, done: Sequence[str], when: str) -> str:
    """A text that can be sent to a vendor, for a repair or a replacement.

    Args:
        evidence: that of the case.
        done: what was done about it, a line each.
        when: the time of the evidence, in words.
    """
    machine = evidence.machine
    found = [one for one in evidence.findings if not one["closed"]]
    concerned = {str(one["subject"]) for one in found}
    lines = [
        f"Node {evidence.node}: {machine['vendor']} {machine['product']}, serial number {_known(machine['serial'])}",
        f"Firmware {_known(machine['firmware'])}, kernel {evidence.kernel}, driver {_known(evidence.driver)}",
        f"Evidence of {when}",
        "",
        *_parts(evidence, concerned),
        "Findings:" if found else "No finding is open.",
        *(line for one in found for line in _finding(one)),
        *(["", "Done:", *(f"  {line}" for line in done)] if done else []),
    ]
    return "\n".join(lines) + "\n"


def _known(text: str) -> str:
    return text or "unknown"


def _parts(evidence: CaseEvidence, concerned: set[str]) -> list[str]:
    """The parts with a finding."""
    gpus = [
        f"GPU {gpu.address}: {gpu.name}, serial number {_known(gpu.serial)}, part {_known(gpu.part)}, "
        f"VBIOS {_known(gpu.firmware)}, {gpu.uuid}"
        for gpu in evidence.gpus
        if gpu.address in concerned
    ]
    names = {name.partition("/")[0] for name in concerned}
    adapters = [
        f"Adapter {each.name}: board {_known(each.board)}, part {_known(each.part)}, serial number "
        f"{_known(each.serial)}, firmware {_known(each.firmware)}, GUID {each.guid}"
        for each in evidence.adapters
        if each.name in names
    ]
    return [*gpus, *adapters, ""] if gpus or adapters else []


def _finding(one: Mapping[str, Any]) -> list[str]:
    """A finding with its source and what was said."""
    finding = named(str(one["name"]))
    return [
        f"  {one['name']} {one['subject']}: {finding.means} ({finding.source}; {one['count']} times)",
        *(f"    {line}" for line in one["lines"]),
    ]
