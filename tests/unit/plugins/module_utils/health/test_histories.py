# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Histories of servers: faulty ones from public reports, and random healthy ones. Each has disturbances.

The machine is a simulation: the kernel's ring and the journal are lists, the driver's report is the recorded one of an
H200 with other values. What reads, keeps and judges them is real.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.health import seen_findings
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.finding_table import (
    JOB,
    KILL_FAILED,
    NODE,
    OTHERS,
    draining_xids,
    named,
    of_check,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.gpu_findings import DriverReport, read_report
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.kernel_findings import find_in, xid_of
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.seen_findings import (
    FindingRecord,
    HealthEvidence,
    Seen,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.kernel_messages import (
    KernelMessage,
    merged,
    one_line,
    parse_journal,
)

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

RECORDED = Path(__file__).parents[3] / "recorded"
FAULTY: list[dict[str, Any]] = yaml.safe_load((RECORDED / "findings/faulty.yml").read_text())
SMI = (RECORDED / "h200/nvidia-smi/q-x").read_text().rpartition("\n</nvidia_smi_log>")[0] + "\n</nvidia_smi_log>"
GPU = next(ElementTree.fromstring(SMI).iterfind("gpu"))
GPU.remove(next(GPU.iterfind("supported_clocks")))  # most of it, and nobody reads them
RING_BYTES = 512 * 1024
NOISE = "systemd-udevd[411]: veth1a2b: Could not generate persistent MAC address" + 5 * ", and so on for ever"
JOB_XIDS = (13, 31, 43, 45, 94)
GPUS = ("0000:3b:00", "0000:86:00")


@lru_cache(maxsize=4096)
def report_of(gpus: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]) -> DriverReport:
    """What the driver says of GPUs: addresses, serials and values that differ from the recorded one."""
    log = ElementTree.Element("nvidia_smi_log")
    for address, serial, values in gpus:
        gpu = deepcopy(GPU)
        for path, value in (
            ("pci/pci_bus_id", f"0000{address}.0"),
            ("serial", serial),
            ("uuid", f"GPU-{serial}"),
            *values,
        ):
            element = gpu.find(path)
            if element is None:
                *above, name = path.split("/")
                element = ElementTree.SubElement(gpu.find("/".join(above)) if above else gpu, name)  # type: ignore[arg-type]
            element.text = value
        log.append(gpu)
    return read_report(ElementTree.tostring(log, encoding="unicode"))


@dataclass
class Machine:
    """A server, as the health check sees it."""

    lasting: Path
    volatile: Path
    boot: int = 1
    time: int = 0
    ring: list[KernelMessage] = field(default_factory=list)
    journal: list[KernelMessage] = field(default_factory=list)
    gpus: dict[str, str] = field(default_factory=lambda: dict(zip(GPUS, ("1650001", "1650002"))))
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    answers: bool = True
    read: int = 0
    """Messages of the journal before the cursor."""

    def says(self, line: str) -> None:
        """The kernel writes a message."""
        self.time += 1_000_000
        message = KernelMessage(self.time, one_line(line))
        self.journal.append(message)
        self.ring.append(message)
        while sum(len(one.text) for one in self.ring[-9000:]) > RING_BYTES:
            del self.ring[: len(self.ring) // 4]

    def noise(self) -> None:
        """2 MiB of other messages: the ring has the last ones."""
        self.time += 2 * 1024**2
        self.ring = [KernelMessage(self.time - number, NOISE) for number in range(RING_BYTES // len(NOISE))]
        self.journal += self.ring[:50]

    def rotate(self) -> None:
        """The journal loses what it has."""
        self.journal, self.read = [], 0

    def restart(self) -> None:
        """Boot: messages, counters and the volatile record are gone."""
        self.boot += 1
        self.time, self.ring, self.journal, self.read, self.answers = 0, [], [], 0, True
        self.values = {}
        self.volatile.unlink(missing_ok=True)

    def disk(self, full: bool) -> None:
        """Whether nothing can be written to the disk."""
        seen_findings.LASTING_FILE = "/proc/nonexistent/findings.json" if full else str(self.lasting)

    def check(self, kept: bool = True) -> list[Seen]:
        """A run of the health check. kept: whether there is a record, as there is."""
        former = seen_findings.load() if kept else FindingRecord()
        new = self.journal[self.read :] if former.cursor == f"{self.boot}" else self.journal
        output = "".join(
            json.dumps({"MESSAGE": text, "_SOURCE_MONOTONIC_TIMESTAMP": str(when), "__CURSOR": f"{self.boot}"}) + "\n"
            for when, text in new
        )
        self.read = len(self.journal)
        messages, cursor = parse_journal(output)
        states = tuple((a, s, tuple(sorted(self.values.get(a, {}).items()))) for a, s in self.gpus.items())
        record = seen_findings.updated(
            former,
            HealthEvidence(
                boot=f"boot-{self.boot}",
                now=1e9 * self.boot + self.time / 1e6,
                kernel=[*find_in(merged(self.ring, messages))],
                report=report_of(states) if self.answers else None,
                cursor=cursor or former.cursor,
            ),
        )
        if kept:
            seen_findings.remember(record)
            if seen_findings.differ(record, former):
                seen_findings.keep(record)
        return record.counting


@pytest.fixture(name="machine")
def a_healthy_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return fresh(tmp_path, monkeypatch)


def fresh(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A server that was never checked."""
    machine = Machine(directory / "lib/findings.json", directory / "run/findings.json")
    for path in (machine.lasting, machine.volatile):
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
    monkeypatch.setattr(seen_findings, "LASTING_FILE", str(machine.lasting))
    monkeypatch.setattr(seen_findings, "VOLATILE_FILE", str(machine.volatile))
    # Without a process for each access to the disk, which test_health.py has.
    monkeypatch.setattr(seen_findings, "call_with_timeout", lambda call, _seconds: call())
    return machine


# -- disturbances ------------------------------------------------------------------------------------------------------


def job_fault(machine: Machine, chance: random.Random) -> None:
    address, number = chance.choice(GPUS), chance.choice(JOB_XIDS)
    machine.says(f"NVRM: Xid (PCI:{address}): {number}, pid={chance.randrange(1, 99999)}, name=python, Ch 00000008")


def power_cap(machine: Machine, chance: random.Random) -> None:
    machine.values.setdefault(chance.choice(GPUS), {})["clocks_event_reasons/clocks_event_reason_sw_power_cap"] = (
        "Active"
    )


def a_link_that_sleeps(machine: Machine, chance: random.Random) -> None:
    own = machine.values.setdefault(chance.choice(GPUS), {})
    own["pci/pci_gpu_link_info/pcie_gen/current_link_gen"] = "1"
    own["performance_state"] = "P8"


def a_counter_that_was_reset(machine: Machine, chance: random.Random) -> None:
    own = machine.values.setdefault(chance.choice(GPUS), {})
    own["ecc_errors/volatile/dram_correctable"] = chance.choice(["0", "4294967295", "17"])
    own["pci/replay_counter"] = chance.choice(["0", "65535"])


def a_boot_with_training_links(machine: Machine, chance: random.Random) -> None:
    machine.restart()
    address = chance.choice(GPUS)
    machine.values[address] = {
        "pci/pci_gpu_link_info/link_widths/current_link_width": "8x",
        "fabric/state": "In Progress",
        "fabric/status": "N/A",
    }
    machine.check()
    machine.values.pop(address)


def an_answer_that_fails_once(machine: Machine, _chance: random.Random) -> None:
    machine.answers = False
    machine.check()
    machine.answers = True


def a_full_disk(machine: Machine, _chance: random.Random) -> None:
    machine.disk(full=True)
    machine.check()
    machine.disk(full=False)


DISTURBANCES: tuple[Callable[[Machine, random.Random], None], ...] = (
    lambda machine, _chance: machine.noise(),
    lambda machine, _chance: machine.rotate(),
    job_fault,
    power_cap,
    a_link_that_sleeps,
    a_counter_that_was_reset,
    an_answer_that_fails_once,
    a_full_disk,
)
"""Those that a fault outlives. A boot mends some faults, and is for healthy servers alone."""


def disturb(machine: Machine, chance: random.Random, boots: bool = False) -> None:
    """At least three disturbances, with a run of the checks after each."""
    possible = (*DISTURBANCES, a_boot_with_training_links) if boots else DISTURBANCES
    for disturbance in chance.sample(possible, chance.randrange(3, 6)):
        disturbance(machine, chance)
        machine.check()


# -- faulty histories --------------------------------------------------------------------------------------------------


def happens(machine: Machine, history: Mapping[str, Any]) -> None:
    """The fault of a history."""
    for line in history.get("kernel", ()):
        machine.says(line)
        xid = xid_of(line)
        if xid and xid.address not in machine.gpus:
            machine.gpus[xid.address] = f"165{len(machine.gpus):04}"
    if history.get("driver"):
        address = next((xid.address for line in history.get("kernel", ()) if (xid := xid_of(line))), GPUS[0])
        machine.values.setdefault(address, {}).update({key: str(value) for key, value in history["driver"].items()})
    elif any(xid_of(line) for line in history.get("kernel", ())):
        # This driver does not say whether a GPU needs a reset, as before 565.
        for address in machine.gpus:
            machine.values.setdefault(address, {})["gpu_recovery_action"] = "N/A"
    machine.answers = history.get("answers", True)


def test_there_are_enough_histories() -> None:
    assert len(FAULTY) >= 60
    assert len({history["name"] for history in FAULTY}) == len(FAULTY)


def test_each_finding_of_the_table_has_a_history_or_a_check() -> None:
    of_histories = {name for history in FAULTY for name in (history["finds"], *history.get("also", ()))}
    errors = (
        ("gpu", "missing: /dev/nvidia1"),
        ("gpu", "1 of 2 GPUs"),
        ("gpu", "nvidia-smi, exit status 9: no devices"),
        ("gpu", "nvidia-smi, exit status 18: Driver/library version mismatch"),
        ("memory", "1 of 2 MiB"),
        ("disk", "/tmp has 3 MiB free, less than 512"),
        ("filesystems", "no answer in 20 s: /home"),
        ("munge", "exit status 1"),
        ("imex", "nvidia-imex is not ready: WAITING_FOR_PEERS"),
        ("clock", "3.1 s off the time servers"),
        ("smart", "/dev/sda says that it fails (smartctl --all)"),
        ("own", "no scratch"),
        ("own", "still hangs"),
    )
    of_checks = {of_check(*error).name for error in errors}
    # test_recorded.py has the first two, and test_health.py the third, which needs processes.
    elsewhere = {
        "gpu-repair-pending",
        "gpu-fabric-split",
        "gpu-process-left",
        KILL_FAILED,
        "nvlink-errors",
        *(name for name in OTHERS if name.startswith("port-")),
    }
    assert {*OTHERS} == (of_histories | of_checks | elsewhere) & {*OTHERS}
    assert {f"xid-{number}" for number in draining_xids()} - of_histories == set()


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.rare)])
@pytest.mark.parametrize("history", FAULTY, ids=lambda history: history["name"])
def test_a_fault_is_found_and_stays(machine: Machine, history: Mapping[str, Any], seed: int) -> None:
    """Whatever happens before and after it, as long as nobody boots, repairs or closes it."""
    chance = random.Random(f"{history['name']} {seed}")
    disturb(machine, chance)
    assert machine.check() == []
    happens(machine, history)
    machine.check()
    machine.check()
    disturb(machine, chance)
    machine.rotate()
    machine.noise()
    machine.answers = history.get("answers", True)
    counting = machine.check()
    found = [one for one in seen_findings.load().seen if one.name == history["finds"] and not one.closed]
    assert found, [one.key for one in seen_findings.load().seen]
    assert {(one.kind, one.action, one.name in {each.name for each in counting}) for one in found} == {
        (history["class"], history["action"], history["drains"])
    }
    if not history["drains"] and "also" not in history:
        assert counting == []


def test_without_the_record_faults_are_forgotten(machine: Machine) -> None:
    """What the record is for: the same histories fail without it."""
    forgotten = 0
    for history in FAULTY:
        if history["drains"] and not history.get("driver"):
            happens(machine, history)
            machine.check(kept=False)
            machine.rotate()
            machine.noise()
            forgotten += machine.check(kept=False) == []
            machine.restart()
    assert forgotten > 20


def healthy(machine: Machine, chance: random.Random) -> None:
    """A history without a fault."""
    disturb(machine, chance, boots=True)
    assert machine.check() == []


def test_no_healthy_server_is_drained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(300):
        healthy(fresh(tmp_path, monkeypatch), random.Random(seed))


@pytest.mark.rare  # minutes; make test has 300 of them
def test_no_healthy_server_of_ten_thousand_is_drained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(300, 10_300):
        healthy(fresh(tmp_path, monkeypatch), random.Random(seed))


# -- the end of a finding ----------------------------------------------------------------------------------------------


def xid(number: int, address: str = GPUS[0]) -> str:
    return f"NVRM: Xid (PCI:{address}): {number}, pid=17, name=python, and so on"


def test_a_boot_mends_what_asks_for_a_boot_once_the_driver_answers(machine: Machine) -> None:
    machine.says(xid(79))
    machine.answers = False
    assert [one.name for one in machine.check()] == ["xid-79"]
    machine.restart()
    machine.answers = False
    assert [one.name for one in machine.check()] == ["xid-79"], "nothing is proven"
    machine.answers = True
    assert machine.check() == []
    assert [one.closed for one in seen_findings.load().seen] == ["a boot"]


def test_a_boot_does_not_mend_what_asks_for_another_gpu(machine: Machine) -> None:
    machine.says(xid(64))
    assert [one.serial for one in machine.check()] == ["1650001"]
    machine.restart()
    assert [one.name for one in machine.check()] == ["xid-64"]
    machine.gpus[GPUS[0]] = "1650099"
    assert machine.check() == []
    assert [one.closed for one in seen_findings.load().seen] == ["the GPU was replaced"]


def test_the_answer_of_the_driver_wins(machine: Machine) -> None:
    """Xid 48 asks for a reset. The driver says of a GPU whether it needs one."""
    machine.says(xid(48))
    machine.values[GPUS[0]] = {"gpu_recovery_action": "Reset"}
    assert [one.name for one in machine.check()] == ["xid-48", "gpu-recovery-action"]
    machine.values = {}
    assert machine.check() == []
    machine.says(xid(48))
    machine.values[GPUS[0]] = {"gpu_recovery_action": "Node Reboot Required"}
    assert {one.action for one in machine.check()} == {"reset", "reboot"}


def test_a_person_closes_a_finding_and_old_messages_do_not_open_it_again(machine: Machine) -> None:
    machine.values[GPUS[0]] = {"gpu_recovery_action": "N/A"}
    machine.says(xid(48))
    (found,) = machine.check()
    record, closed = seen_findings.close(seen_findings.load(), ["xid-48"], "alice", 2e9)
    seen_findings.remember(record)
    assert [one.key for one in closed] == [found.key]
    machine.read = 0
    assert machine.check() == []
    machine.says(xid(48))
    assert [one.name for one in machine.check()] == ["xid-48"]


@pytest.mark.parametrize(("uptime", "drains"), [(7200.0, ["xid-79"]), (600.0, ["disk-error", "xid-79"])])
def test_the_first_run_on_a_host_in_use_drains_it_for_nothing_old_but_gpus(uptime: float, drains: list[str]) -> None:
    lines = ("critical medium error, dev sda, sector 7 op 0x0:(READ)", xid(79))
    messages = [*find_in(KernelMessage(when, line) for when, line in enumerate(lines, 1))]
    record = seen_findings.updated(FindingRecord(), HealthEvidence("b", 1.0, messages, uptime=uptime))
    assert sorted(one.name for one in record.counting) == drains
    new = [*messages, *find_in([KernelMessage(7_199_000_000, lines[0])])]
    record = seen_findings.updated(record, HealthEvidence("b", 2.0, new, uptime=7200))
    assert sorted(one.name for one in record.counting) == ["disk-error", "xid-79"]


def test_a_site_adds_xids() -> None:
    message = [*find_in([KernelMessage(5, xid(13))])]
    record = seen_findings.updated(FindingRecord(), HealthEvidence("b", 1.0, message, xids=frozenset(("xid-13",))))
    assert [(one.name, one.kind, one.action) for one in record.counting] == [("xid-13", NODE, "reset")]
    record = seen_findings.updated(FindingRecord(), HealthEvidence("b", 1.0, message))
    assert [(one.kind, one.counts) for one in record.seen] == [(JOB, False)]


def test_a_record_that_cannot_be_understood_is_left_out(machine: Machine) -> None:
    machine.says(xid(79))
    machine.answers = False
    machine.check()
    content = json.loads(machine.lasting.read_text())
    content["seen"] += [17, {"name": "x"}, {**content["seen"][0], "name": "xid-999", "of_the_future": 1}]
    machine.lasting.write_text(json.dumps(content))
    machine.volatile.write_text("{")
    assert [one.name for one in seen_findings.load().seen] == ["xid-79", "xid-999"]


def test_an_unknown_xid_is_for_a_person_and_does_not_drain() -> None:
    finding = named("xid-999")
    assert (finding.kind, finding.action, finding.drains) == (NODE, "person", False)
    assert re.search("not in the table", finding.means)
