# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Histories of the errors of NVLinks, faulty and healthy ones.

The form of the driver's answers, and the names of the counters, are those of public outputs: V100 (1cat-vllm-sm70,
replays and a CRC counter at its end), H100 (stas00/ml-engineering) and B300 with driver 595. The values are ours where
no report has them. These servers have fewer links than real ones.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.health import seen_findings
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.gpu_findings import DriverReport, GpuIdentity
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.nvlink_findings import parse_links
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.seen_findings import (
    FindingRecord,
    HealthEvidence,
    Seen,
)

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

OLD = ("Replay Errors", "Recovery Errors", "CRC Errors")
"""The counters up to NVLink 4."""
NEW = (
    *("Malformed packet Errors", "Buffer overrun Errors", "Rx Errors", "Rx remote Errors", "Rx General Errors"),
    *("Local link integrity Errors", "Tx discards", "Link recovery successful events", "Link recovery failed events"),
    *("Total link recovery events", "Effective Errors", "Symbol Errors", "FEC Errors - 0", "FEC Errors - 1"),
)
"""The counters of NVLink 5. The first one of FEC counts data without an error."""
PERIOD = 300
"""Seconds between two runs of the checks."""
GPUS, LINKS = 3, 8


@dataclass
class Server:
    """A server with GPUs and NVLinks, as the health check sees it."""

    names: tuple[str, ...]
    counters: dict[tuple[int, int, str], int] = field(default_factory=dict)
    record: FindingRecord = field(default_factory=FindingRecord)
    now: float = 1e9
    boot: int = 1
    hangs: bool = False
    serials: list[str] = field(default_factory=lambda: [f"165{number}" for number in range(GPUS)])

    def add(self, gpu: int, link: int, counts: Mapping[str, int]) -> None:
        """Increase counters of a link."""
        for name, count in counts.items():
            self.counters[gpu, link, name] = self.counters.get((gpu, link, name), 0) + count

    def answer(self) -> str:
        """What `nvidia-smi nvlink -e` prints."""
        lines = []
        for gpu, serial in enumerate(self.serials):
            lines.append(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{serial})")
            for link in range(LINKS):
                lines += [f"\t Link {link}: {name}: {self.counters.get((gpu, link, name), 0)}" for name in self.names]
                lines.append("")
        return "\n".join(lines)

    def check(self, after: float = PERIOD) -> list[Seen]:
        """A run of the checks. after: seconds since the one before."""
        self.now += after
        gpus = [GpuIdentity(f"0000:{gpu:02x}:00", f"GPU-{each}", each) for gpu, each in enumerate(self.serials)]
        report = DriverReport(gpus, [], frozenset(gpu.address for gpu in gpus))
        evidence = HealthEvidence(f"{self.boot}", self.now, report=None if self.hangs else report)
        if not self.hangs:
            evidence = HealthEvidence(f"{self.boot}", self.now, report=report, links=parse_links(self.answer()))
        record = seen_findings.updated(self.record, evidence)
        self.record = seen_findings.from_json(json.loads(json.dumps(asdict(record))))
        return self.record.counting


FAULTS = {
    "replays of a V100 under load": (OLD, [{"Replay Errors": 148}, {"Replay Errors": 2205}], "2353 Replay Errors"),
    "a CRC counter that comes to its end": (OLD, [{"CRC Errors": 65535}], "65535 CRC Errors"),
    "recoveries now and then": (OLD, [{"Recovery Errors": 1}] * 3, "3 Recovery Errors"),
    "a link that NVLink 5 gave up": (NEW, [{"Link recovery failed events": 1}], "1 Link recovery failed events"),
    "recoveries of NVLink 5": (NEW, [{"Link recovery successful events": 3}], "3 Link recovery successful events"),
}


def disturb(server: Server, choice: random.Random) -> str:
    """Something that is no fault. Returns what it is."""
    gpu, link = choice.randrange(GPUS), choice.randrange(LINKS)
    what = choice.choice(("reset", "fabric", "few", "FEC", "hang", "often", "clock", "boot"))
    if what == "reset":
        server.counters = {key: value for key, value in server.counters.items() if key[0] != gpu}
    elif what == "fabric":  # it starts again, and sets up each link
        name = "Recovery Errors" if server.names == OLD else "Link recovery successful events"
        for each in range(LINKS):
            server.add(gpu, each, {name: 1})
    elif what == "few":
        server.add(gpu, link, {server.names[0]: 1, "CRC Errors": choice.randrange(20000)})
    elif what == "FEC":
        server.add(gpu, link, {"FEC Errors - 0": 36_140_749_276, "FEC Errors - 1": 12345, "Effective Errors": 1})
    elif what == "hang":
        server.hangs = True
        server.check()
        server.hangs = False
    elif what == "often":
        for _run in range(5):
            server.check(1)
    elif what == "clock":
        server.now -= 40
    elif what == "boot":
        server.boot += 1
        server.counters.clear()
    return what


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_with_its_link_and_stays(fault: str) -> None:
    names, steps, said = FAULTS[fault]
    server, choice = Server(names), random.Random(fault)
    server.check()
    for _disturbance in range(3):
        disturb(server, choice)
        for _quiet in range(13):
            assert not server.check(), "a disturbance"
    for step in steps:
        server.add(2, 7, step)
        server.check()
    for after in (PERIOD, 7200):
        (found,) = server.check(after)
        assert (found.key, found.serial) == (("nvlink-errors", "0000:02:00"), "1652")
        assert found.text == f"in an hour link 7: {said}"
    server.boot += 1
    server.counters.clear()
    assert server.check()


def test_a_person_or_another_gpu_ends_it() -> None:
    server = Server(OLD)
    server.check()
    server.add(1, 0, {"Replay Errors": 3})
    assert server.check()
    server.record, closed = seen_findings.close(server.record, ["nvlink-errors"], "root", server.now)
    assert len(closed) == 1
    assert not server.check()
    server.add(1, 0, {"Replay Errors": 2})
    assert not server.check()
    server.add(1, 0, {"Replay Errors": 1})
    assert server.check()
    server.serials[1] = "1770"
    assert not server.check()
    assert {one.closed for one in server.record.seen} == {"the GPU was replaced"}


def test_a_healthy_server_is_not_drained() -> None:
    for seed in range(100):
        choice = random.Random(seed)
        server = Server(choice.choice((OLD, NEW)))
        server.check()
        happened = []
        for _disturbance in range(choice.randrange(3, 7)):
            happened.append(disturb(server, choice))
            for _quiet in range(choice.randrange(6, 9)):
                assert not server.check(), (seed, happened)


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: NVIDIA L4 (UUID: GPU-1)\nNVML: Unable to retrieve NVLink information as all links are inActive\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "sh: 1: nvidia-smi: not found",
        "",
    ],
)
def test_a_gpu_without_links_has_no_errors(text: str) -> None:
    assert not any(parse_links(text).values())
