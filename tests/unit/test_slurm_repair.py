# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm-repair in mode observe. Slurm's commands, munge and the connection are stand-ins."""

from __future__ import annotations

import json
import os
import pwd
import socket
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.quick_level import MeasuringPlan, plan_to_json
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.tasks import NodePlace, Site
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import locks
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.case_evidence import SavedEvidence, collect
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.case_files import CaseFiles
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.cases import treatment_key
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.measured_node import SentResult
from programs import StandIn, load

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

SCHEMA = Path(__file__).parents[2] / "roles/slurm_repair/files/case.schema.json"
LOST = "health check xid-79: GPU has fallen off the bus [root@1796000000]"
NODES = {"n1": "IDLE", "n2": "IDLE", "n3": "IDLE"}
MEASURED_IN = (
    "create reservation ReservationName=repair-n2 Nodes=n2 Users=root StartTime=now Duration=UNLIMITED "
    "Flags=MAINT,IGNORE_JOBS",
    "update NodeName=n2 State=RESUME",
)
DELETED = "delete ReservationName=repair-n2"
PING = "Slurmctld(primary) at head is UP\nSlurmctld(backup) at head2 is UP\n"


class Controller:
    """A controller with slurm-repair, and what slurmctld says there."""

    def __init__(self, directory: Path, stand_in: StandIn, program: ModuleType) -> None:
        self.directory, self.program = directory, program
        self.files = CaseFiles(str(directory / "repair"))
        self.boots: dict[str, int] = {}
        self.passed = 0.0
        stand_in(
            "scontrol",
            f'case "$*" in *ping*) cat {directory}/ping ;; *reservation*) ;; *) cat {directory}/nodes ;; esac',
        )
        stand_in("squeue", f"cat {directory}/jobs")
        places = {name: NodePlace(name, "m", 0, "gpu") for name in ("n1", "n2")}
        plan = plan_to_json(MeasuringPlan(places, Site(), [], {}))
        (directory / "measuring.json").write_text(json.dumps(plan))
        stand_in("unmunge", f"cat >/dev/null; cat {directory}/unsealed")
        self.say(**NODES)
        (directory / "ping").write_text(PING)
        (directory / "reservations").write_text("")
        (directory / "jobs").write_text("7\x1fanna\x1fRUNNING\x1fvision\x1e\n")
        self.settings: dict[str, Any] = {
            "cluster": "lab",
            "controller": "head",
            "controllers": ["head", "head2"],
            "job_user": "daemon",
            "directory": str(directory / "repair"),
            "least_nodes": {},
            "machines": False,
            "mail": "",
            "mail_domain": "",
            "mode": "observe",
            "port": 6830,
            "quiet_hours": [],
            "user": pwd.getpwuid(os.geteuid()).pw_name,
        }
        self.set()

    def set(self, **values: Any) -> None:
        """Change settings."""
        self.settings = {**self.settings, **values}
        (self.directory / "settings.json").write_text(json.dumps(self.settings))

    def say(self, **states: str) -> None:
        """What scontrol says of the nodes: a state, or a state with a reason behind a blank."""
        lines = []
        for name, words in {**NODES, **states}.items():
            state, _blank, reason = words.partition(" ")
            line = f"NodeName={name} NodeAddr=127.0.0.1 NodeHostName={name} State={state} Partitions=gpu"
            line += f" BootTime={self.boots.get(name, 17958)}"
            lines.append(f"{line} Reason={reason}" if reason else line)
        (self.directory / "nodes").write_text("\n".join(lines) + "\n")

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.passed += seconds

    def evidence(self, number: int) -> SavedEvidence:
        """The evidence of a case, which is there."""
        found = self.files.evidence(number)
        assert found
        return found

    def report(self, node: str, found: dict[str, str], uid: int = 0, **changes: Any) -> str:
        """Send the report of a node. Returns the answer."""
        now = self.program.time.time()
        evidence = asdict(collect(node, Tree(str(self.directory)), "b1", [], "", now)) if found else None
        content = {"node": node, "checked": 2e9, "wrong": found, "evidence": evidence, **changes}
        return self.send(f"{node}\n{json.dumps(content)}", uid)

    def send(self, text: str, uid: int) -> str:
        """Send what a node has sealed. Returns the answer."""
        sealed = f"STATUS:          Success (0)\nUID:             root ({uid})\n\n{text}"
        (self.directory / "unsealed").write_text(sealed)
        ours, theirs = socket.socketpair()
        kept = os.dup(0)
        os.dup2(theirs.fileno(), 0)
        theirs.close()
        try:
            with ours:
                ours.sendall(b"MUNGE:x:\n")
                status = self.program.main(["receive"])
                said = ours.recv(1000).decode()
        finally:
            os.dup2(kept, 0)
            os.close(kept)
        assert (status == 0) == (said.split()[0] == "accepted")
        return said


@pytest.fixture(name="controller")
def controller_of_a_cluster(tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> Controller:
    program = load("slurm_repair")
    monkeypatch.setattr(program, "SETTINGS", str(tmp_path / "settings.json"))
    monkeypatch.setattr(program, "PLAN", str(tmp_path / "measuring.json"))
    monkeypatch.setattr(locks, "LOCKS", str(tmp_path / "locks"))
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", f"{tmp_path}/stand-ins:/usr/bin:/bin")
    monkeypatch.setenv("REMOTE_ADDR", "127.0.0.1")
    found = Controller(tmp_path, stand_in, program)
    clock = program.time.time
    monkeypatch.setattr(program.time, "time", lambda: clock() + found.passed)
    return found


def test_a_case_from_its_beginning_to_its_end(controller: Controller, capsys: pytest.CaptureFixture[str]) -> None:
    main, files = controller.program.main, controller.files
    assert main(["round"]) == 0
    assert main(["list"]) == 0
    assert capsys.readouterr().out.split() == ["case", "node", "opened", "state", "finding", "next"]
    controller.say(n2=f"MIXED+DRAIN {LOST}")
    assert controller.report("n2", {"xid-79": "GPU has fallen off the bus"}) == "accepted\n"
    for _round in range(3):
        assert main(["round"]) == 0
    (case,) = files.read()
    assert (case.node, case.state, case.finding, case.action) == ("n2", "saved", "xid-79", "reboot")
    assert controller.evidence(1).jobs == [{"JobID": "7", "UserName": "anna", "State": "RUNNING", "Account": "vision"}]
    assert main(["list"]) == 0
    assert capsys.readouterr().out.split("\n")[1].endswith("saved  xid-79   drain (reboot)")
    assert main(["show", "n2"]) == 0
    shown = capsys.readouterr().out
    assert "Next: drain (reboot)" in shown
    assert "  7 anna RUNNING vision" in shown
    assert "Node n2: " in shown
    # The node is mended, and in service.
    controller.say()
    assert controller.report("n2", {}) == "accepted\n"
    assert main(["round"]) == 0
    assert [case.state for case in files.read()] == ["returned"]
    assert main(["list", "--all"]) == 0
    assert "returned" in capsys.readouterr().out


def test_a_node_that_sends_nothing_has_a_case(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    controller.say(n1=f"DOWN*+DRAIN {LOST}")
    controller.program.main(["round"])
    controller.program.main(["round"])
    assert [case.state for case in controller.files.read()] == ["found"]
    monkeypatch.setattr(controller.program, "REPORT_SECONDS", -1.0)
    later = controller.program.time.time() + 120
    monkeypatch.setattr(controller.program.time, "time", lambda: later)
    controller.program.main(["round"])
    controller.program.main(["round"])
    assert [case.state for case in controller.files.read()] == ["saved"]
    assert controller.evidence(1).node is None
    assert controller.evidence(1).record["NodeName"] == "n1"


@pytest.mark.parametrize(
    ("reason", "reports", "has_evidence"),
    [
        # Slurm has drained it, and its checks find nothing.
        ("Kill task failed [slurm@1796000000]", [], False),
        # The machine has reset itself before the round.
        (LOST, [{"xid-79": "GPU has fallen off the bus"}, {}], True),
        # It has reset itself before its check could see anything.
        (LOST, [{}], False),
    ],
)
def test_what_a_node_will_not_send_is_not_waited_for(
    controller: Controller, reason: str, reports: list[dict[str, str]], has_evidence: bool
) -> None:
    controller.say(n1=f"IDLE+DRAIN {reason}")
    for found in reports[:-1]:
        controller.report("n1", found)
    controller.program.main(["round"])
    for found in reports[-1:]:
        controller.report("n1", found)
    for _round in range(3):
        controller.later(60)
        controller.program.main(["round"])
    assert [case.state for case in controller.files.read()] == ["saved"]
    assert bool(controller.evidence(1).node) == has_evidence


def test_the_evidence_of_a_former_case_is_none_of_the_next_one(controller: Controller) -> None:
    controller.report("n1", {"xid-79": "GPU has fallen off the bus"})
    controller.report("n1", {})
    controller.later(3600)
    controller.say(n1="IDLE+DRAIN Kill task failed [slurm@1796000000]")
    for _round in range(3):
        controller.later(60)
        controller.program.main(["round"])
    assert controller.evidence(1).node is None


def test_another_controller_that_serves_goes_on(controller: Controller) -> None:
    controller.say(n1=f"IDLE+DRAIN {LOST}")
    (controller.directory / "ping").write_text(PING.replace("head is UP", "head is DOWN"))
    assert controller.program.main(["round"]) == 0
    assert not controller.files.directory.exists()
    (controller.directory / "ping").write_text(PING.replace("head is UP", "head is DOWN").replace("head2", "head2.lab"))
    controller.set(controller="head2")
    assert controller.program.main(["round"]) == 0
    assert [case.node for case in controller.files.read()] == ["n1"]


@pytest.mark.parametrize(
    ("node", "changes", "address", "said"),
    [
        ("n1", {"uid": 1000}, "127.0.0.1", "found user 1000, allowed: root"),
        ("n1", {}, "192.0.2.7", "n1: found the address 192.0.2.7 of another host"),
        ("n1", {}, "", "n1: found the address unknown of another host"),
        ("n9", {}, "127.0.0.1", "n9 is no node of this cluster"),
        ("../n1", {}, "127.0.0.1", "found no name of a node in the first line"),
        ("n1", {"wrong": 5}, "127.0.0.1", "report of n1: "),
        ("n1", {"evidence": {"a": 1}}, "127.0.0.1", "report of n1: "),
    ],
)
def test_reports_of_others_are_refused(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, node: str, changes: dict[str, Any], address: str, said: str
) -> None:
    monkeypatch.setenv("REMOTE_ADDR", address)
    assert controller.report(node, {"xid-79": "lost"}, **changes).startswith(said)
    assert not [*(controller.directory / "repair").rglob("*.json")]


class TreatedNode:
    """Node n2 of a controller in a mode that treats. What Slurm and machines were asked for is in a file."""

    def __init__(self, controller: Controller, stand_in: StandIn, mode: str, finding: str) -> None:
        self.controller, self.directory = controller, controller.directory
        self.done, self.reservations = self.directory / "done", self.directory / "reservations"
        self.begun = controller.program.time.time()
        self.reason = f"gpucluster.slurm repair: case 1: {finding}"
        controller.set(mode=mode, job_user="root", machines=True)
        answers = (
            f"*ping*) cat {self.directory}/ping ;; *show*reservation*) cat {self.reservations} ;;",
            f'*show*) cat {self.directory}/nodes ;; *) echo "$*" >>{self.done} ;;',
        )
        kept = f"create*) echo ReservationName=repair-n2 >{self.reservations} ;; delete*) : >{self.reservations} ;;"
        stand_in("scontrol", f'case "$*" in {kept} esac; case "$*" in {" ".join(answers)} esac')
        jobs = self.directory / "jobs"
        stand_in("squeue", f'case "$*" in *--jobs=77*) echo 77 RUNNING ;; *--nodelist*) cat {jobs} ;; esac')
        stand_in("sbatch", "cat >/dev/null; echo 77")
        stand_in("slurm-machine", f'[ $1 = state ] && cat {self.directory}/power || echo "$*" >>{self.done}')
        self.has_power(True)
        self.job("")

    def rounds(self, expected: str, *asked: str, count: int = 3) -> None:
        """Rounds, a minute apart: where the case is then, and what was asked for."""
        self.done.write_text("")
        for _round in range(count):
            self.controller.later(60)
            assert self.controller.program.main(["round"]) == 0
        assert self.controller.files.read()[0].state == expected
        assert [*dict.fromkeys(self.done.read_text().splitlines())] == [*asked]

    def job(self, state: str) -> None:
        """The job of the node: its state, or none."""
        words = "\x1f".join(("7", state, "n[1-2]", "1", "1", "anna"))
        (self.directory / "jobs").write_text(f"{words}\x1e\n" if state else "")

    def has_power(self, is_on: bool) -> None:
        (self.directory / "power").write_text("on\n" if is_on else "off\n")

    def is_drained(self, state: str, behind: str = "") -> None:
        """slurmctld shows the node as drained by repair."""
        self.controller.say(n2=f"{state}+DRAIN {self.reason}{behind} [root@1796000000]")

    def boots(self) -> None:
        """The node has booted, and waits."""
        self.controller.boots["n2"] = int(self.controller.program.time.time())
        self.is_drained("DOWN", " : reboot complete")
        self.controller.later(1000)
        self.rounds("booted")

    def is_proven(self) -> None:
        """It is measured, and returns."""
        self.rounds("booted", *MEASURED_IN)
        # slurmctld shows the reservation at the node some seconds later.
        behind = (self.directory / "nodes").read_text().partition("case 1: ")[2].partition(" [")[0].partition(" : ")[2]
        reason = f"{self.reason} : {behind}" if behind else self.reason
        self.controller.say(n2="IDLE")
        self.rounds("booted")
        (measuring,) = self.controller.files.measurings()
        self.controller.send(f"n2 measured {measuring.key} 77\nnot measured: stream: hpcc: not found\n", 0)
        self.rounds("booted", f"update NodeName=n2 State=DRAIN Reason={reason}", DELETED, count=1)
        self.is_drained("IDLE", f" : {behind}" if behind else "")
        self.rounds("measured", "update NodeName=n2 State=RESUME Reason=Not responding (resumed)")
        self.controller.say()
        self.rounds("returned")
        assert self.controller.report("n2", {}) == "accepted\n"


def test_a_node_is_treated_to_the_end(
    controller: Controller, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mode reboot."""
    sent, conf = controller.directory / "sent", controller.directory / "msmtprc"
    conf.write_text("host relay\nfrom slurm@example.org\n")
    monkeypatch.setattr(controller.program, "MSMTPRC", str(conf))
    stand_in("msmtp", f'echo "to $3" >>{sent}; cat >>{sent}')
    controller.set(mail_domain="example.org")
    node = TreatedNode(controller, stand_in, "reboot", "xid-79")
    node.job("RUNNING")
    controller.say(n2=f"MIXED+DRAIN {LOST}")
    assert controller.report("n2", {"xid-79": "GPU has fallen off the bus"}).startswith("accepted")
    node.rounds("saved", f"update NodeName=n2 State=DRAIN Reason={node.reason}")
    assert controller.report("n2", {"xid-79": "GPU has fallen off the bus"}) == "accepted keeps\n"
    node.is_drained("MIXED")
    comment = "AdminComment=requeued by slurm-repair: n2 has xid-79"
    node.rounds("drained", f"update JobId=7 {comment}", "requeue 7")
    text = sent.read_text()
    assert (text.count("to anna@example.org\n"), text.count("Subject: lab: job 7 was requeued\n")) == (2, 2)
    node.job("")
    node.is_drained("IDLE")
    node.rounds("drained", f"reboot ASAP nextstate=DOWN reason={node.reason} n2")
    node.boots()
    assert controller.report("n2", {}) == "accepted keeps\n"
    node.is_proven()


def test_a_node_resets_its_gpus(controller: Controller, stand_in: StandIn) -> None:
    """Mode full. The node hears of it when its health check reports."""
    found = {"xid-48": "Double bit ECC error"}
    node = TreatedNode(controller, stand_in, "full", "xid-48")
    controller.say(n2="IDLE+DRAIN health check xid-48: Double bit ECC error [root@1796000000]")
    assert controller.report("n2", found) == "accepted\n"
    node.rounds("saved", f"update NodeName=n2 State=DRAIN Reason={node.reason}")
    node.is_drained("IDLE")
    assert controller.report("n2", found) == "accepted keeps\n"
    node.rounds("treated")
    key = treatment_key(controller.files.read()[0])
    order = f"accepted keeps treat reset {key}\n"
    assert controller.report("n2", found) == order
    controller.program.main(["stop"])
    assert controller.report("n2", found) == "accepted keeps\n"
    controller.program.main(["start"])
    controller.program.main(["hold", "n2"])
    assert controller.report("n2", found) == "accepted keeps\n"
    controller.set(mode="reboot")
    assert controller.report("n2", found) == "accepted keeps\n"
    controller.set(mode="full")
    case = controller.files.read()[0]
    controller.files.write(replace(case, held=""))
    # What it has answered to an earlier order says nothing.
    assert controller.report("n2", found, treated={"key": "1-7", "error": ""}) == order
    node.rounds("treated")
    assert controller.report("n2", {}, treated={"key": key, "error": ""}) == "accepted keeps\n"
    node.is_proven()


def test_a_node_that_cannot_reset_its_gpus_boots(controller: Controller, stand_in: StandIn) -> None:
    found = {"xid-48": "Double bit ECC error"}
    node = TreatedNode(controller, stand_in, "full", "xid-48")
    controller.say(n2="IDLE+DRAIN health check xid-48: Double bit ECC error [root@1796000000]")
    controller.report("n2", found)
    node.rounds("saved", f"update NodeName=n2 State=DRAIN Reason={node.reason}")
    node.is_drained("IDLE")
    node.rounds("treated")
    key = treatment_key(controller.files.read()[0])
    controller.report("n2", found, treated={"key": key, "error": "a GPU has MIG instances"})
    node.rounds("drained", count=1)
    assert controller.files.read()[0].why == "reset: a GPU has MIG instances"
    node.rounds("drained", f"reboot ASAP nextstate=DOWN reason={node.reason} n2", count=2)


def test_a_machine_is_switched_off_and_on(controller: Controller, stand_in: StandIn) -> None:
    """Mode full, with the key machines. Its operating system is asked first; a round that is lost is made up for."""
    node = TreatedNode(controller, stand_in, "full", "disk-lost")
    controller.say(n2="IDLE+DRAIN health check disk-lost: nvme0n1 [root@1796000000]")
    controller.report("n2", {"disk-lost": "nvme0n1"})
    node.rounds("saved", f"update NodeName=n2 State=DRAIN Reason={node.reason}")
    node.is_drained("IDLE")
    node.rounds("drained", "stop n2")
    node.rounds("drained", "off n2")
    node.has_power(False)
    node.is_drained("DOWN*")
    node.rounds("treated", "start n2")
    node.rounds("treated", "start n2")
    node.has_power(True)
    node.rounds("treated")
    node.boots()
    assert controller.report("n2", {}) == "accepted keeps\n"
    node.is_proven()


def test_a_machine_that_stays_on_is_for_a_person(controller: Controller, stand_in: StandIn) -> None:
    node = TreatedNode(controller, stand_in, "full", "disk-lost")
    controller.say(n2="IDLE+DRAIN health check disk-lost: nvme0n1 [root@1796000000]")
    controller.report("n2", {"disk-lost": "nvme0n1"})
    node.rounds("saved", f"update NodeName=n2 State=DRAIN Reason={node.reason}")
    node.is_drained("IDLE")
    node.rounds("person", "stop n2", "off n2", count=20)
    assert controller.files.read()[0].why == "its machine does not switch off"


def test_results_of_measurements_are_kept(controller: Controller) -> None:
    for uid in (0, pwd.getpwnam("daemon").pw_uid):
        assert controller.send(f"n1 measured 12-1-{uid} 77\n{{}}\nx", uid) == "accepted\n"
        assert controller.files.result("n1") == SentResult("n1", f"12-1-{uid}", 77, "{}\nx")
    assert controller.files.result("n2") is None
    for text, uid, said in (
        ("n1 measured k 77\n", 4711, "found user 4711, allowed: daemon or root"),
        ("n1\n{}", pwd.getpwnam("daemon").pw_uid, "allowed: root"),
        ("n1 measured k x\n", 0, "found no name of a node in the first line"),
        ("n1 mended k 77\n", 0, "found no name of a node in the first line"),
        ("../n1 measured k 77\n", 0, "found no name of a node in the first line"),
        ("n9 measured k 77\n", 0, "n9 is no node of this cluster"),
    ):
        assert said in controller.send(text, uid)


@pytest.mark.parametrize(
    ("node", "state", "said"),
    [
        ("n9", "IDLE", "found n9, allowed: a node of Slurm"),
        ("n3", "IDLE", "found n3, allowed: a node that is in a partition"),
        ("n2", "MIXED+DRAIN fans [root@1796000000]", "n2 cannot be measured: it has jobs"),
        ("n2", "DOWN fans [root@1796000000]", "n2 cannot be measured: its state is DOWN"),
        ("n2", "IDLE+MAINTENANCE", "n2 cannot be measured: it is in the reservation of others"),
        ("n2", f"IDLE+DRAIN {LOST}", "n2 cannot be measured: it has xid-79: slurm-repair close n2 ends that"),
    ],
)
def test_a_node_that_others_have_is_not_measured(
    controller: Controller, capsys: pytest.CaptureFixture[str], node: str, state: str, said: str
) -> None:
    if node != "n9":
        controller.say(**{node: state})
    assert controller.program.main(["measure", node]) == 1
    assert said in capsys.readouterr().err
    assert controller.files.measurings() == []


def test_a_node_is_measured(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job sends its result while the program waits; meanwhile the rounds see a node that is out of service."""
    controller.say(n2="IDLE+DRAIN fans are replaced [root@1796000000]")
    stand_in("runuser", 'shift 3; exec "$@"')
    stand_in("sbatch", f"cat >{controller.directory}/script; echo 77")
    stand_in("squeue", 'case "$*" in *--jobs=77*) echo 77 RUNNING ;; esac')
    waits: list[float] = []

    def wait(seconds: float) -> None:
        if seconds != controller.program.POLL_SECONDS:
            return
        waits.append(seconds)
        (measuring,) = controller.files.measurings()
        if len(waits) == 2:
            controller.send(f"n2 measured {measuring.key} 77\nnot measured: stream: hpcc: not found\n", 0)

    monkeypatch.setattr(controller.program.time, "sleep", wait)
    assert controller.program.main(["measure", "n2"]) == 0
    assert capsys.readouterr().out == "not measured: stream on n2: hpcc: not found\nn2: passed\n"
    assert "slurm-accept send" in (controller.directory / "script").read_text()
    (measuring,) = controller.files.measurings()
    assert (measuring.reason, measuring.verdict) == ("fans are replaced", "passed")


def test_people_hold_go_on_and_end(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main, files = controller.program.main, controller.files
    monkeypatch.setenv("SUDO_USER", "carla")
    controller.say(n1=f"IDLE+DRAIN {LOST}")
    main(["round"])
    assert main(["hold", "n1"]) == 0
    assert files.read()[0].held == "carla"
    assert main(["retry", "1"]) == 0
    assert (files.read()[0].held, files.read()[0].state) == ("", "saved")
    assert main(["close", "1"]) == 0
    assert files.read()[0].why == "closed by carla"
    capsys.readouterr()
    for words, said in (
        (["close", "1"], "case 1 of node n1 has ended: closed"),
        (["show", "9"], "found 9, allowed: the number of a case"),
        (["show"], "allowed: one case, by its number or its node"),
        (["hold", "n2"], "found n2, allowed: the number of a case"),
    ):
        assert main(words) == 1
        assert said in capsys.readouterr().err


def test_what_a_person_closes_is_closed_on_the_node(controller: Controller) -> None:
    """The node asks while something is wrong. What has come since is not closed, and the evidence stays."""
    main = controller.program.main
    controller.say(n1=f"IDLE+DRAIN {LOST}")
    assert controller.report("n1", {"xid-79": "lost"}) == "accepted\n"
    main(["round"])
    main(["round"])
    assert controller.report("n1", {"xid-79": "lost"}, evidence=None) == "accepted\n"
    assert [report.evidence.node for report in controller.files.reports() if report.evidence] == ["n1"]
    main(["close", "n1"])
    assert controller.report("n2", {"xid-79": "lost"}) == "accepted\n"
    main(["round"])
    said = controller.report("n1", {"xid-79": "lost"}, evidence=None)
    main(["round"])
    assert [case.state for case in controller.files.read() if case.node == "n1"] == ["closed"]
    said = controller.report("n1", {"xid-79": "lost", "port-errors": "new"}, evidence=None)
    assert said == f"accepted {controller.files.read()[0].since:.0f} xid-79\n"
    assert controller.report("n1", {"port-errors": "new"}) == "accepted\n"


def test_a_case_for_other_programs(controller: Controller, capsys: pytest.CaptureFixture[str]) -> None:
    """The documents are as the schema says, which has all fields and no more."""
    main = controller.program.main
    controller.say(n1=f"IDLE+DRAIN {LOST}", n2=f"IDLE+DRAIN {LOST}")
    controller.report("n1", {"xid-79": "GPU has fallen off the bus"})
    main(["round"])
    main(["round"])
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for node, has_evidence in {"n1": True, "n2": False}.items():
        capsys.readouterr()
        main(["show", node, "--json"])
        document = json.loads(capsys.readouterr().out)
        jsonschema.validate(document, schema)
        assert bool(document["evidence"]) == has_evidence
    main(["hold", "n1"])
    capsys.readouterr()
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)[0]
    assert {name: listed[name] for name in ("number", "node", "state", "finding", "next")} == {
        "number": 1,
        "node": "n1",
        "state": "saved",
        "finding": "xid-79",
        "next": "",
    }
    assert main(["list", "--josn"]) == 1
    assert "found --josn, allowed: --all, --json" in capsys.readouterr().err


def test_what_would_be_waited_for(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = controller.program.main
    monkeypatch.setenv("SUDO_USER", "carla")
    controller.say(n1=f"IDLE+DRAIN {LOST}")
    controller.report("n1", {"xid-79": "lost"})
    main(["round"])
    main(["round"])

    def following() -> str:
        capsys.readouterr()
        main(["list", "--json"])
        return str(json.loads(capsys.readouterr().out)[0]["next"])

    assert following() == "drain (reboot)"
    now = controller.program.time.localtime().tm_hour
    controller.set(quiet_hours=[now, (now + 2) % 24])
    assert following().endswith("o'clock nothing begins")
    controller.set(quiet_hours=[])
    assert main(["stop"]) == 0
    assert following() == "stopped by carla"
    main(["list"])
    assert capsys.readouterr().out.startswith("Stopped by carla: nothing begins")
    assert main(["start"]) == 0
    assert following() == "drain (reboot)"


def test_administrators_get_a_mail_of_each_news(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    main, sent = controller.program.main, controller.directory / "sent"
    conf = controller.directory / "msmtprc"
    conf.write_text("host relay\nfrom slurm@example.org\n")
    monkeypatch.setattr(controller.program, "MSMTPRC", str(conf))
    stand_in("msmtp", f'echo "to $3" >>{sent}; cat >>{sent}')
    controller.say(n1=f"IDLE+DRAIN {LOST}")
    main(["round"])
    assert not sent.exists()  # nobody wants mails, and later nobody gets an old one
    controller.set(mail="ops@example.org")
    controller.say(n1=f"IDLE+DRAIN {LOST}", n2=f"IDLE+DRAIN {LOST}")
    for _round in range(3):
        assert main(["round"]) == 0
    text = sent.read_text()
    assert (text.count("to ops@example.org\n"), text.count("Subject: lab: cases: n2 opened")) == (1, 1)
    main(["close", "n2"])
    stand_in("msmtp", "echo 'relay: refused' >&2; exit 69")
    assert main(["round"]) == 1
    assert "no mail to ops@example.org" in capsys.readouterr().err
    stand_in("msmtp", f"cat >>{sent}")
    assert main(["round"]) == 0
    assert "Subject: lab: cases: n2 ended" in sent.read_text()


def test_a_case_that_has_ended_opens_again_for_what_is_new(controller: Controller) -> None:
    """A node that sends nothing: the time of its drain tells."""
    main, now = controller.program.main, controller.program.time.time()
    controller.say(n1=f"IDLE+DRAIN {LOST.replace('1796000000', f'{now - 60:.0f}')}")
    main(["round"])
    main(["close", "n1"])
    controller.later(60)
    main(["round"])
    assert [case.state for case in controller.files.read()] == ["closed"]
    controller.say(n1=f"IDLE+DRAIN {LOST.replace('1796000000', f'{now + 30:.0f}')}")
    main(["round"])
    assert [case.state for case in controller.files.read()] == ["closed", "found"]


def test_counts_for_the_metrics(controller: Controller, capsys: pytest.CaptureFixture[str]) -> None:
    main = controller.program.main
    assert main(["count"]) == 0
    assert json.loads(capsys.readouterr().out)["by_state"]["found"] == 0
    controller.say(n1=f"IDLE+DRAIN {LOST}")
    main(["round"])
    main(["count"])
    counts = json.loads(capsys.readouterr().out)
    assert (counts["by_state"]["found"], counts["returned"], counts["seconds"]) == (1, 0, 0)


def test_without_slurmctld_nothing_ends(controller: Controller, stand_in: StandIn) -> None:
    controller.say(n1=f"IDLE+DRAIN {LOST}")
    controller.program.main(["round"])
    stand_in("scontrol", f'case "$*" in *ping*) cat {controller.directory}/ping ;; *) exit 1 ;; esac')
    assert controller.program.main(["round"]) == 1
    assert [case.is_open for case in controller.files.read()] == [True]


@pytest.mark.parametrize(("words", "status"), [([], 2), (["--help"], 0), (["mend"], 2)])
def test_usage(controller: Controller, capsys: pytest.CaptureFixture[str], words: list[str], status: int) -> None:
    assert controller.program.main(words) == status
    assert "usage: slurm-repair list" in capsys.readouterr().out
