# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a vendor asks for is in the evidence of five kinds of faults, and nothing that is private.

The driver's answer is that of a real H200 with another serial number and UUID; machine and adapter are made by hand.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.finding_table import NodeFinding, named
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.seen_findings import KERNEL, Seen
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.case_evidence import (
    collect,
    evidence_from,
    vendor_text,
    vpd_numbers,
)

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

RECORDED = Path(__file__).parents[3] / "recorded/h200/nvidia-smi/q-x"
XML = "".join(RECORDED.read_text(encoding="utf-8").rpartition("</nvidia_smi_log>")[:2])
SECRET = "hf_0123456789abcdef"
PROCESS = f"<processes><process_info><process_name>python --token={SECRET}</process_name></process_info></processes>"
GPU = "0000:00:06"
FILES = {
    "/proc/sys/kernel/osrelease": "6.12.48+deb13-amd64",
    "/sys/class/dmi/id/sys_vendor": "Supermicro",
    "/sys/class/dmi/id/product_name": "SYS-821GE-TNHR",
    "/sys/class/dmi/id/product_serial": "S545843X4100001",
    "/sys/class/dmi/id/board_serial": "UM23AS000001",
    "/sys/class/dmi/id/bios_version": "2.1",
    "/sys/class/dmi/id/bios_date": "03/14/2024",
    "/sys/class/infiniband/mlx5_0/board_id": "MT_0000000838",
    "/sys/class/infiniband/mlx5_0/fw_ver": "28.39.1002",
    "/sys/class/infiniband/mlx5_0/node_guid": "a088:c203:00ab:cdef",
    "/sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand",
    "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE",
    "/sys/class/infiniband/mlx5_0/ports/1/phys_state": "5: LinkUp",
    "/sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
    "/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed": "9",
}
NAMES = b"PN\x10MCX75310AAS-NEATSN\x0cMT2334X00001RV\x01\x00"
VPD = b"\x82\x04\x00NDR1\x90" + len(NAMES).to_bytes(2, "little") + NAMES + b"\x78"


@pytest.fixture(name="tree")
def tree_of_a_server(tmp_path: Path) -> Tree:
    for name, text in FILES.items():
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    vpd = tmp_path / "sys/class/infiniband/mlx5_0/device/vpd"
    vpd.parent.mkdir()
    vpd.write_bytes(VPD)
    return Tree(str(tmp_path))


def seen(name: str, subject: str, *lines: str, closed: str = "") -> Seen:
    finding: NodeFinding = named(name)
    weight = (finding.kind, finding.severity, finding.action)
    return Seen(
        name, subject, *weight, KERNEL, False, "b1", 1e9, 1e9 + 60, count=len(lines), lines=lines, closed=closed
    )


GPU_WORDS = ("GPU 0000:00:06: NVIDIA H200, serial number 1234567890123, part 692-2G520-0282-000, VBIOS 96.00.A5.00.1A",)
ADAPTER_WORDS = ("part MCX75310AAS-NEAT, serial number MT2334X00001, firmware 28.39.1002, GUID a088:c203:00ab:cdef",)
FAULTS = {
    "fallen off the bus": (seen("xid-79", GPU, "Xid (PCI:0000:00:06): 79, GPU has fallen off the bus."), GPU_WORDS),
    "double bit error": (seen("xid-48", GPU, "Xid (PCI:0000:00:06): 48, DBE (double bit error)"), GPU_WORDS),
    "row of memory": (seen("gpu-rows-failed", GPU, "a row of memory could not be remapped"), GPU_WORDS),
    "cable": (seen("port-flaps", "mlx5_0/1", "mlx5_0/1 has lost its link 9 times in an hour"), ADAPTER_WORDS),
    "disk": (seen("disk-lost", "nvme0n1", "nvme nvme0: Disabling device after reset failure: -19"), ()),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_vendor_has_what_he_asks_for(tree: Tree, fault: str) -> None:
    one, words = FAULTS[fault]
    over = seen("xid-13", GPU, "Xid 13 of last week", closed="a boot")
    xml = XML.replace("<processes>\n\t\t</processes>", PROCESS)
    assert SECRET in xml
    evidence = collect("gpu01", tree, "b1", [one, over], xml, 1e9 + 100)
    text = vendor_text(evidence, ["booted on 2026-11-30 at 17:02, found again"], "2026-11-30 16:58")
    for word in (
        *("Node gpu01: Supermicro SYS-821GE-TNHR, serial number S545843X4100001", "Firmware 2.1", "2026-11-30 16:58"),
        *("kernel 6.12.48+deb13-amd64", "driver 580.159.04", "found again", one.lines[0], named(one.name).means),
        *words,
    ):
        assert word in text, text
    assert "last week" not in text
    assert ("GPU 0000" in text, "Adapter" in text) == (words == GPU_WORDS, words == ADAPTER_WORDS)
    kept = json.dumps(asdict(evidence))
    assert SECRET not in text + kept
    assert json.dumps(asdict(evidence_from(json.loads(kept)))) == kept
    assert "last week" in kept


def test_a_node_whose_driver_does_not_answer_has_evidence(tmp_path: Path) -> None:
    evidence = collect("gpu01", Tree(str(tmp_path)), "b1", [FAULTS["disk"][0]], "", 1e9)
    assert (evidence.driver, evidence.gpus, evidence.adapters) == ("", [], [])
    assert "serial number unknown" in vendor_text(evidence, [], "now")
    assert "Done:" not in vendor_text(evidence, [], "now")


@pytest.mark.parametrize("vpd", [b"", b"\x78", b"\x82\xff\xff", b"\x90\xff\x00PN\xffX", VPD[:9], b"\xff" * 40])
def test_broken_data_of_a_device_have_no_end_and_no_number(vpd: bytes) -> None:
    part, serial = vpd_numbers(vpd)
    assert (part in ("", "X"), serial) == (True, "")
