# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm-treatment: what a node does to mend itself. Slurm, systemd, the driver and mounts are stand-ins."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import ModuleType

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from ansible_collections.gpucluster.slurm.plugins.module_utils.health import seen_findings
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.seen_findings import FindingRecord, Seen
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import locks
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.device_holders import DeviceHolder
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair import node_treatments
from programs import StandIn, load

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

KEY = "12-1796000000"
OURS = "State=IDLE+DRAIN Reason=gpucluster.slurm repair: case 12: xid-48 [root@1796000000]"
HOLDERS = [DeviceHolder(70, "nvidia-persiste", "nvidia-persistenced.service"), DeviceHolder(71, "dcgm", "dcgm.service")]
UNITS = ("slurmd.service", "dcgm.service", "nvidia-persistenced.service")
STOPPED = [f"systemctl stop {name}" for name in UNITS]
ENDED = [f"systemctl start {name}" for name in reversed(UNITS)]


class Node:
    """A node with the program. What it has done is in a file."""

    def __init__(self, directory: Path, stand_in: StandIn, program: ModuleType) -> None:
        self.directory, self.program, self.stand_in = directory, program, stand_in
        self.is_in(OURS)
        for name in ("systemctl", "systemd-run", "systemd-tmpfiles", "umount", "slurm-health"):
            self.answers(name)
        self.answers("nvidia-smi")
        stand_in("scontrol", f'case "$*" in *aliases*) echo n1 ;; *) cat {directory}/node ;; esac')
        stand_in("systemd-escape", "echo home.mount")

    def answers(self, name: str, then: str = "") -> None:
        """A stand-in that notes that it was called."""
        self.stand_in(name, f'echo "{name} $*" >>{self.directory}/done; {then}')

    def is_in(self, state: str) -> None:
        (self.directory / "node").write_text(f"NodeName=n1 {state}\n")

    def done(self) -> list[str]:
        """What was done since the last question."""
        path = self.directory / "done"
        lines = path.read_text().splitlines() if path.exists() else []
        path.write_text("")
        return lines

    def ends(self) -> list[str]:
        """The end of the unit. Returns what was done then."""
        self.done()
        assert self.program.main(["end"]) == 0
        return self.done()


@pytest.fixture(name="node")
def node_with_stand_ins(tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(node_treatments, "STATE", str(tmp_path / "treatment.json"))
    monkeypatch.setattr(node_treatments, "PAUSE", 0.0)
    monkeypatch.setattr(node_treatments, "served_jobs", lambda _running: {})
    monkeypatch.setattr(node_treatments, "device_holders", lambda _prefix: HOLDERS)
    monkeypatch.setattr(seen_findings, "VOLATILE_FILE", str(tmp_path / "findings.json"))
    monkeypatch.setattr(seen_findings, "LASTING_FILE", str(tmp_path / "lasting.json"))
    monkeypatch.setattr(locks, "LOCKS", str(tmp_path / "locks"))
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", f"{tmp_path}/stand-ins:/usr/bin:/bin")
    program = load("node_treatment")
    monkeypatch.setattr(program, "HEALTH", "slurm-health")
    monkeypatch.setattr(program, "SETTINGS", str(tmp_path / "health.json"))
    return Node(tmp_path, stand_in, program)


def test_it_begins_once(node: Node) -> None:
    assert node.program.main(["begin", "reset", KEY]) == 0
    (begun,) = node.done()
    assert begun.endswith(f"/usr/local/sbin/slurm-treatment run reset {KEY}")
    assert "--property=ExecStopPost=/usr/local/sbin/slurm-treatment end" in begun
    node_treatments.keep_state(node_treatments.TreatmentState(KEY, is_over=True))
    assert node.program.main(["begin", "reset", KEY]) == 0
    assert node.done() == []
    assert node.program.main(["begin", "reset", "13-1796000000"]) == 0
    assert len(node.done()) == 1


def test_all_gpus_are_reset(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """Services that have one open are stopped, and start again; of findings, those end that a reset mends."""

    def seen(name: str, action: str, subject: str = "0000:3b:00") -> Seen:
        when = time.time() - 60
        return Seen(name, subject, "node", "now", action, "kernel", False, "b1", when, when)

    record = FindingRecord("b1", seen=(seen("xid-48", "reset"), seen("xid-79", "reboot"), seen("disk-lost", "reset")))
    seen_findings.remember(record)
    assert node.program.main(["run", "reset", KEY]) == 0
    done = node.done()
    assert [line for line in done if "mig.mode.current" not in line] == [*STOPPED, "nvidia-smi --gpu-reset"]
    assert [bool(one.closed) for one in seen_findings.load().seen] == [True, False, False]
    # The controllers hear of it when what was stopped runs again.
    assert node_treatments.reported() is None
    assert node.ends() == [*ENDED, "slurm-health "]
    assert node_treatments.reported() == (KEY, "")
    assert node.ends() == []
    assert node.program.main(["run", "reset", KEY]) == 0
    assert node.done() == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("State=IDLE Reason=none", "the node is not drained for case 12, found: none"),
        (
            OURS.replace("case 12", "case 13"),
            "the node is not drained for case 12, found: gpucluster.slurm",
        ),
        (OURS.replace("IDLE+DRAIN", "IDLE"), "its state is IDLE"),
        (OURS.replace("IDLE+DRAIN", "MIXED+DRAIN"), "its state is MIXED+DRAIN"),
        (OURS.replace("IDLE+DRAIN", "IDLE+COMPLETING+DRAIN"), "its state is IDLE+COMPLETING+DRAIN"),
        (OURS.replace("gpucluster.slurm repair: case 12: xid-48", "new DIMMs"), "the node is not drained for case 12"),
    ],
)
def test_a_node_of_others_is_left_alone(node: Node, state: str, said: str) -> None:
    node.is_in(state)
    assert node.program.main(["run", "reset", KEY]) == 1
    assert node.done() == []
    assert node.ends() == ["slurm-health "]
    treated = node_treatments.reported()
    assert treated
    assert treated.error.startswith(said)


@pytest.mark.parametrize("looks", [1, 2])
def test_jobs_are_left_alone(node: Node, monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    """Also one that has started before slurmd was stopped."""
    answers: list[dict[str, str]] = [{}, {}, {}]
    answers[looks - 1] = {"7": "runs"}
    monkeypatch.setattr(node_treatments, "served_jobs", lambda _running: answers.pop(0))
    assert node.program.main(["run", "reset", KEY]) == 1
    assert node.done() == STOPPED[: looks - 1]
    assert node.ends() == [*ENDED[2:][: looks - 1], "slurm-health "]
    assert node_treatments.reported() == (KEY, "it has jobs: 7")


def test_processes_of_people_are_not_ended(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    holders = [*HOLDERS, DeviceHolder(4711, "python3", "")]
    monkeypatch.setattr(node_treatments, "device_holders", lambda _prefix: holders)
    assert node.program.main(["run", "reset", KEY]) == 1
    assert [line for line in node.done() if "gpu-reset" in line or "dcgm" in line] == []
    node.ends()
    assert node_treatments.reported() == (KEY, "processes have a GPU open: 4711 (python3)")


def test_gpus_with_mig_are_not_reset(node: Node) -> None:
    node.answers("nvidia-smi", "echo Disabled; echo Enabled")
    assert node.program.main(["run", "reset", KEY]) == 1
    node.ends()
    assert node_treatments.reported() == (KEY, "a GPU has MIG instances")


def test_a_reset_is_tried_again(node: Node) -> None:
    """An exporter may ask the driver at any moment."""
    node.answers("nvidia-smi", f'[ "$1" != --gpu-reset ] || [ $(grep -c gpu-reset {node.directory}/done) -ge 3 ]')
    assert node.program.main(["run", "reset", KEY]) == 0
    node.answers("nvidia-smi", '[ "$1" != --gpu-reset ] || { echo In use by another client; exit 3; }')
    node.ends()
    assert node.program.main(["run", "reset", "13-1796000000"]) == 1
    node_treatments.keep_state(node_treatments.TreatmentState("", is_over=True))
    node.is_in(OURS.replace("case 12", "case 13"))
    assert node.program.main(["run", "reset", "13-1796000001"]) == 1
    node.ends()
    assert node_treatments.reported() == ("13-1796000001", "nvidia-smi --gpu-reset: In use by another client")


def test_what_was_stopped_runs_again_after_a_kill(node: Node) -> None:
    """systemd runs the end of the unit, whatever has ended its beginning."""
    state = node_treatments.TreatmentState(KEY, stopped=("slurmd.service", "dcgm.service"))
    node_treatments.keep_state(state)
    assert node.ends() == ["systemctl start dcgm.service", "systemctl start slurmd.service", "slurm-health "]
    assert node_treatments.reported() == (KEY, "it was ended before its time")


def test_what_does_not_start_again_is_said(node: Node) -> None:
    assert node.program.main(["run", "clean", KEY]) == 0
    assert node.done() == ["systemctl stop slurmd.service", "systemd-tmpfiles --clean"]
    node.answers("systemctl", "echo slurmd.service failed; exit 1")
    assert node.ends() == [ENDED[2], "slurm-health "]
    assert node_treatments.reported() == (KEY, "slurmd.service failed")


def test_file_systems_are_mounted_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    units = node.directory / "units/remote-fs.target.wants"
    units.mkdir(parents=True)
    (units / "data.mount").write_text("[Unit]\nDescription=/data (key storage)\n[Mount]\nWhere=/data\n")
    (units / "other.mount").write_text("[Mount]\nWhere=/other\n")
    settings = {"environment": {"HEALTH_MOUNTS": "/home /well", "HEALTH_UNITS": str(node.directory / "units")}}
    (node.directory / "health.json").write_text(json.dumps(settings))
    node.stand_in("stat", '[ "$2" != /home ]')
    monkeypatch.setattr(os.path, "ismount", lambda path: path == "/well")
    monkeypatch.setattr(node_treatments.mount_again, "__defaults__", (os.path.ismount,))
    assert node.program.main(["run", "mount", KEY]) == 0
    again = [[f"umount --force --lazy {path}", "systemctl restart home.mount"] for path in ("/home", "/data")]
    assert node.done() == [STOPPED[0], *again[0], *again[1]]
    node.answers("systemctl", '[ "$1" != restart ] || { echo no route; exit 32; }')
    assert node.program.main(["run", "mount", "12-1796000001"]) == 1
    node.ends()
    assert node_treatments.reported() == ("12-1796000001", "/home cannot be mounted: no route")


@pytest.mark.parametrize(
    ("words", "status"), [([], 2), (["run", "reset"], 2), (["--help"], 0), (["run", "burn", KEY], 1), (["end"], 0)]
)
def test_usage(node: Node, words: list[str], status: int) -> None:
    assert node.program.main(words) == status
    assert node.done() == []
