# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Half an hour of faults in mode observe, with a takeover: the cases equal the list below, none missing, none more.

slurmd runs the health check each minute in this scenario, and the timers of both controllers the rounds: the test
starts neither. A fault begins later than the list says while its node is not in service again, and is mended later
while its case has no evidence yet.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.finding_table import named
from faulty_node import (
    ADAPTER_IS_BACK,
    ADAPTER_IS_GONE,
    DATA,
    NOT_RESERVED,
    PERSON_DRAINS,
    PERSON_RESUMES,
    RESERVED,
    Controllers,
    FaultyNode,
    Work,
    boots,
    check_says,
    command,
    dies_after_its_drain,
    driver_says,
    gpu_is_replaced,
    in_order,
    is_alive_again,
    kernel_says,
    nothing,
    person_closes_case,
    person_closes_finding,
    port_has,
    with_adapter,
    with_file_system,
)
from lab import Lab

# Forty minutes.
pytestmark = pytest.mark.rare

FIRST, SECOND = "case-ctl1", "case-ctl2"
CASES = "/home/cases-state/repair/cases"
REPORTS = 6830
"""The port of the controllers to which reports go."""

MINUTES = 30
"""How long the list takes at least."""
TAKEOVER, RETURN = 13, 22
"""The minutes at which slurmctld of the first controller stops, and starts again."""
MOST_WAIT = 20
"""Minutes after which a case that does not come, or does not end, is given up."""
MOST_MINUTES = 70

N1, N2, N3, N4, N5, N6, N7 = (f"case-node{number}" for number in range(1, 8))
GPU1, GPU2 = "NVRM: Xid (PCI:0000:3b:00): ", "NVRM: Xid (PCI:0000:86:00): "
ROWS = "<remapped_rows><remapped_row_{0}>Yes</remapped_row_{0}></remapped_rows>"
RECOVERY = "<gpu_recovery_action>{}</gpu_recovery_action>"
NARROW = (
    "<pci><pci_gpu_link_info><link_widths><current_link_width>8x</current_link_width>"
    "<max_link_width>16x</max_link_width></link_widths></pci_gpu_link_info></pci>"
)
HOT = "<temperature><gpu_temp>95 C</gpu_temp><gpu_temp_slow_threshold>90 C</gpu_temp_slow_threshold></temperature>"


class Expected(NamedTuple):
    """What the case of a fault has: its finding with its class, how urgent it is, the proposal, and its end."""

    finding: str
    kind: str
    severity: str
    following: str
    ended: str = "returned"


class Fault(NamedTuple):
    """What happens to a node between two minutes. Without `case`, it must have none."""

    node: str
    minutes: tuple[int, int]
    happens: Work
    mends: Work
    case: Expected | None = None


FAULTS = (
    # A GPU, and what the kernel says of a disk while nobody serves.
    Fault(
        N1,
        (0, 4),
        kernel_says(f"{GPU1}79, pid=2, GPU has fallen off the bus."),
        person_closes_finding("xid-79"),
        Expected("xid-79", "node", "now", "drain (reboot)"),
    ),
    Fault(
        N1,
        (6, 10),
        driver_says(ROWS.format("pending")),
        driver_says(""),
        Expected("gpu-rows-pending", "node", "after", "drain (reset)"),
    ),
    Fault(
        N1,
        (TAKEOVER, 20),
        kernel_says("EXT4-fs (sda1): Remounting filesystem read-only"),
        boots,
        Expected("filesystem-read-only", "node", "now", "drain (reboot)"),
    ),
    Fault(N1, (22, 23), command("systemctl restart slurmd"), nothing),
    Fault(
        N1,
        (24, 28),
        kernel_says(f"{GPU1}62, pid=2, 0000 0000"),
        person_closes_case,
        Expected("xid-62", "node", "after", "drain (reset)", "closed"),
    ),
    # What the driver asks for, and checks of the site.
    Fault(
        N2,
        (1, 5),
        in_order(
            driver_says(RECOVERY.format("Reset")), kernel_says(f"{GPU2}48, pid=2, An uncorrectable double bit error")
        ),
        driver_says(RECOVERY.format("None")),
        Expected("xid-48", "node", "after", "drain (reset)"),
    ),
    Fault(
        N2,
        (8, 17),
        check_says("echo no scratch; exit 1"),
        check_says("true"),
        Expected("check-of-site", "node", "after", "check-of-site: person"),
    ),
    Fault(
        N2,
        (19, 22),
        kernel_says(f"{GPU1}31, pid=2, MMU Fault", f"{GPU1}63, pid=2, Row Remapper: New row marked for remapping"),
        nothing,
    ),
    Fault(
        N2,
        (23, 28),
        check_says("sleep 1000"),
        check_says("true"),
        Expected("check-hangs", "node", "after", "drain (reboot)"),
    ),
    # A network adapter, and a hot GPU.
    Fault(
        N3,
        (1, 6),
        port_has(state="1: DOWN", phys_state="2: Polling"),
        port_has(state="4: ACTIVE", phys_state="5: LinkUp"),
        Expected("port-down", "shared", "after", "port-down: person"),
    ),
    Fault(
        N3,
        (9, 15),
        port_has(counter_symbol_error="500"),
        person_closes_finding("port-errors"),
        Expected("port-errors", "node", "after", "port-errors: person"),
    ),
    Fault(N3, (17, 19), driver_says(HOT), driver_says("")),
    Fault(
        N3,
        (20, 26),
        ADAPTER_IS_GONE,
        ADAPTER_IS_BACK,
        Expected("port-missing", "node", "after", "drain (reboot)"),
    ),
    # File systems, a file server, and a device file.
    Fault(
        N4,
        (2, 7),
        command(f"umount {DATA}"),
        command(f"mount -t tmpfs data {DATA}"),
        Expected("check-filesystems", "shared", "after", "check-filesystems: person"),
    ),
    Fault(
        N4,
        (9, 14),
        command("rm /dev/nvidia1"),
        command("mknod -m 666 /dev/nvidia1 c 195 1"),
        Expected("gpu-missing", "node", "now", "drain (reboot)"),
    ),
    Fault(
        N4,
        (16, 21),
        command("mount -t tmpfs -o size=64m,mode=1777 full /tmp"),
        command("umount -l /tmp"),
        Expected("check-disk", "node", "after", "check-disk: person"),
    ),
    Fault(N4, (24, 27), kernel_says("nfs: server files not responding, still trying"), nothing),
    # What is replaced: the strongest action of two findings, and a link for which the power would have to be cut.
    Fault(
        N5,
        (3, 8),
        kernel_says(
            f"{GPU2}119, pid=2, Timeout after 6s of waiting for RPC response from GPU1 GSP!",
            f"{GPU2}64, pid=2, Failed to remap the row",
        ),
        gpu_is_replaced,
        Expected("xid-119", "node", "now", "xid-119: replace"),
    ),
    Fault(
        N5,
        (11, 18),
        driver_says(ROWS.format("failure")),
        gpu_is_replaced,
        Expected("gpu-rows-failed", "node", "after", "gpu-rows-failed: replace"),
    ),
    Fault(
        N5,
        (21, 27),
        driver_says(NARROW),
        driver_says(""),
        Expected("gpu-pcie", "node", "after", "gpu-pcie: power cycle"),
    ),
    # People have the node.
    Fault(N6, (0, 3), PERSON_DRAINS, PERSON_RESUMES),
    Fault(
        N6,
        (5, 9),
        in_order(PERSON_DRAINS, kernel_says(f"{GPU1}95, pid=2, Uncontained ECC error.")),
        in_order(person_closes_finding("xid-95"), PERSON_RESUMES),
        Expected("xid-95", "node", "now", "a person has the node"),
    ),
    Fault(N6, (11, 17), RESERVED, NOT_RESERVED),
    Fault(
        N6,
        (19, 25),
        in_order(RESERVED, kernel_says("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0")),
        in_order(boots, NOT_RESERVED),
        Expected("memory-uncorrected", "node", "after", "it is in the reservation mending"),
    ),
    # A node that dies: with a finding that only slurmctld knows, and without any.
    Fault(
        N7,
        (1, 16),
        dies_after_its_drain(f"{GPU1}140, pid=2, Unrecovered ECC error"),
        is_alive_again(REPORTS),
        Expected("xid-140", "node", "now", "drain (reset)"),
    ),
    Fault(N7, (20, 27), command("systemctl stop slurmd"), command("systemctl start slurmd")),
)


class CaseRow(NamedTuple):
    """A line of `slurm-repair list --all`."""

    number: int
    node: str
    opened: str
    state: str
    finding: str
    following: str

    @property
    def identity(self) -> tuple[str, str, str]:
        """What never changes."""
        return self.node, self.opened, self.finding

    @property
    def has_ended(self) -> bool:
        return self.state in ("returned", "closed")


@dataclass
class Observation:
    """What the controllers have shown of the cases until now, apart from those of before."""

    controllers: Controllers
    before: set[int]
    rows: dict[int, CaseRow] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    """The state of each node, as Slurm shows it."""
    proposals: dict[int, str] = field(default_factory=dict)
    """What was proposed last while the node was broken, by the number of the case."""
    served: dict[int, str] = field(default_factory=dict)
    """The controller that showed a case first."""
    changed: list[tuple[CaseRow, CaseRow | None]] = field(default_factory=list)
    """Cases that have become others, or are gone."""
    mended: set[str] = field(default_factory=set)
    """Nodes that are mended, whose cases have not ended."""

    def look(self) -> None:
        """Ask the controller that serves. While none does, all stays as it was seen last."""
        show = "timeout 60 slurm-repair list --all && timeout 60 sinfo --noheader --Node --format='=%N %T'"
        answer = self.controllers.lab.host(self.controllers.serving).run(show)
        if answer.rc:
            return
        lines = answer.stdout.strip().split("\n")
        found = {row.number: row for row in parse_table(lines) if row.number not in self.before}
        self.states = dict(line[1:].split() for line in lines if line.startswith("="))
        for number, row in self.rows.items():
            if number not in found or found[number].identity != row.identity:
                self.changed.append((row, found.get(number)))
        for number, row in found.items():
            self.served.setdefault(number, self.controllers.serving)
            if row.state == "saved" and row.node not in self.mended:
                self.proposals[number] = row.following
        self.rows = found

    def case_of(self, fault: Fault) -> CaseRow | None:
        """The case of a fault; None without one."""
        wanted = (fault.node, fault.case.finding if fault.case else "")
        return next((row for row in self.rows.values() if (row.node, row.finding) == wanted), None)

    def is_seen(self, fault: Fault) -> bool:
        """Whether all is seen of a broken node that is to be seen."""
        case = self.case_of(fault)
        return not fault.case or (case is not None and case.number in self.proposals)

    def is_over(self, fault: Fault) -> bool:
        """Whether the node is in service, and its cases have ended."""
        open_ones = [row for row in self.rows.values() if row.node == fault.node and not row.has_ended]
        return self.states.get(fault.node) == "idle" and not open_ones


def parse_table(lines: list[str]) -> Iterator[CaseRow]:
    """The lines of a table of cases."""
    for line in lines:
        if line[:1].isdigit():
            number, *words = re.split(r"\s{2,}", line, maxsplit=5)
            yield CaseRow(int(number), *words)


@dataclass
class FaultInTime:
    """A fault, and how far it has come."""

    fault: Fault
    node: FaultyNode
    stage: str = "waits"
    since: float = 0.0
    """The minute of the stage."""

    def advance(self, minute: float, seen: Observation, is_free: bool) -> None:
        """Bring it further, if it is time. is_free: the faults before it are over."""
        fault, waited = self.fault, minute - self.since
        (begins, mended), late = fault.minutes, waited > MOST_WAIT
        if self.stage == "waits" and is_free and minute >= begins:
            fault.happens(self.node)
            self._reach("broken", minute)
        elif self.stage == "broken" and waited >= mended - begins and (seen.is_seen(fault) or late):
            seen.mended.add(fault.node)
            fault.mends(self.node)
            self._reach("mended", minute)
        # Its case ends in a later round than the one that was seen last.
        elif self.stage == "mended" and (late or (seen.is_over(fault) and waited > 1)):
            seen.mended.discard(fault.node)
            self._reach("over", minute)

    def _reach(self, stage: str, minute: float) -> None:
        self.stage, self.since = stage, minute
        what = self.fault.case.finding if self.fault.case else "no case"
        print(f"minute {minute:4.1f}: {self.fault.node} {stage} ({what})", flush=True)


class Takeover:
    """The first controller is away for a while."""

    def __init__(self, controllers: Controllers) -> None:
        self.controllers, self.stage = controllers, "waits"

    def advance(self, minute: float, seen: Observation) -> None:
        """Stop slurmctld of the first controller, or start it, if it is time. It returns after the other has worked."""
        lab, first, second = self.controllers.lab, self.controllers.first, self.controllers.second
        if self.stage == "waits" and minute >= TAKEOVER:
            self._reach("away", minute, second)
            lab.command(first, "systemctl stop slurmctld")
        elif self.stage == "away" and minute >= RETURN and second in seen.served.values():
            self._reach("back", minute, first)
            lab.command(first, "systemctl start slurmctld")

    def _reach(self, stage: str, minute: float, serving: str) -> None:
        self.stage, self.controllers.serving = stage, serving
        print(f"minute {minute:4.1f}: {self.controllers.first} {stage}", flush=True)


@pytest.fixture(name="controllers")
def two_controllers(lab: Lab) -> Iterator[Controllers]:
    """The first controller serves before the test and after it."""
    controllers = Controllers(lab, FIRST, SECOND, FIRST)
    lab.wait_for(FIRST, "timeout 60 scontrol ping", f"at {FIRST} is UP")
    yield controllers
    lab.command(FIRST, "systemctl start slurmctld")


@pytest.fixture(name="nodes")
def nodes_with_stand_ins(lab: Lab, controllers: Controllers) -> Iterator[dict[str, FaultyNode]]:
    """The nodes, which are well before the test and after it."""
    nodes = {name: FaultyNode(lab, controllers, name) for name in lab.nodes}
    with ExitStack() as stack:
        for node in nodes.values():
            stack.enter_context(node.prepared())
        stack.enter_context(with_adapter(nodes[N3]))
        stack.enter_context(with_file_system(nodes[N4]))
        for name in nodes:
            lab.wait_until_idle(FIRST, name)
        yield nodes


def happen(nodes: dict[str, FaultyNode], controllers: Controllers, seen: Observation) -> None:
    """Let all faults happen, and mend them."""
    runs = [FaultInTime(fault, nodes[fault.node]) for fault in FAULTS]
    takeover = Takeover(controllers)
    begin = time.monotonic()

    def minute() -> float:
        return (time.monotonic() - begin) / 60

    while minute() < MINUTES or takeover.stage != "back" or any(run.stage != "over" for run in runs):
        assert minute() < MOST_MINUTES, [(run.fault.node, run.stage, run.fault.case) for run in runs]
        takeover.advance(minute(), seen)
        for place, run in enumerate(runs):
            others = [before for before in runs[:place] if before.fault.node == run.fault.node]
            run.advance(minute(), seen, all(before.stage == "over" for before in others))
        seen.look()
        time.sleep(5)
    print(f"measured: {len(seen.rows)} cases in {minute():.0f} minutes")


def observed(lab: Lab, seen: Observation, row: CaseRow) -> tuple[str, Expected]:
    """The node of a case, and what it has. The class of its finding follows from the name: no table of cases has it."""
    content = json.loads(lab.command(seen.controllers.serving, f"cat {CASES}/{row.number}.json"))
    severity = "now" if content["urgent"] else "after"
    following = seen.proposals.get(row.number, "nothing was proposed")
    return row.node, Expected(row.finding, named(row.finding).kind, severity, following, row.state)


def test_the_cases_are_the_faults(lab: Lab, controllers: Controllers, nodes: dict[str, FaultyNode]) -> None:
    known = lab.command(FIRST, "slurm-repair list --all")
    print(known)
    seen = Observation(controllers, {row.number for row in parse_table(known.split("\n"))})
    assert lab.command(FIRST, "slurm-repair list").count("\n") == 0, "no case is open"
    happen(nodes, controllers, seen)
    print(lab.command(FIRST, "slurm-repair list --all"))
    found = sorted(observed(lab, seen, row) for row in seen.rows.values())
    assert found == sorted((fault.node, fault.case) for fault in FAULTS if fault.case)
    assert seen.changed == [], "the controllers go on with the same cases"
    assert {*seen.served.values()} == {FIRST, SECOND}
    assert {name: seen.states[name] for name in nodes} == dict.fromkeys(nodes, "idle")
