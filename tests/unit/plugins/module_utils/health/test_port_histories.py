# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Histories of network ports: faulty ones from public reports, and random healthy ones. Each has disturbances.

The adapters are files below a directory, as the kernel has them below /sys. What reads, keeps and judges them is real.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.machine_types import fabric_ports
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.network_ports import (
    COUNTERS,
    DEVICES,
    LINK_DOWNED,
    Port,
    parse_connected,
    parse_ports,
    ports_command,
    read_ports,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.hardware.sysfs import Tree
from ansible_collections.gpucluster.slurm.plugins.module_utils.health import seen_findings
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.error_samples import SAMPLES
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.finding_table import OTHERS
from ansible_collections.gpucluster.slurm.plugins.module_utils.health.seen_findings import (
    FindingRecord,
    HealthEvidence,
    Seen,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.health import health_environment

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

FAULTY: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parents[3] / "recorded/findings/ports.yml").read_text())
MACHINE = {
    "real_memory": 2000,
    "fabric": {
        "ports": [
            {"device": "mlx5_[0-3]", "link": "InfiniBand", "rate": 400},
            {"device": "mlx5_5", "link": "Ethernet", "rate": 100},
        ]
    },
}
"""mlx5_4 was never connected."""
SETTINGS = health_environment([{"hosts": "n1", "hardware": "hgx"}], {"hgx": MACHINE}, {})["n1"]
WANTED = parse_connected(SETTINGS["HEALTH_PORTS"])
CONNECTED = [port.name for port in fabric_ports(MACHINE)]
UP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp"}
DOWN = {"state": "1: DOWN", "phys_state": "2: Polling"}
INFINIBAND = {"link_layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)"}
PERIOD = 300
"""Seconds between two runs of the checks."""


def new_ports() -> dict[str, dict[str, str]]:
    """The files of the ports of a healthy machine that has run for a while."""
    counted = {f"counters/{name}": "7" for name in COUNTERS}
    infiniband = {f"mlx5_{number}/1": {**INFINIBAND, **UP, **counted} for number in range(4)}
    return {
        **infiniband,
        "mlx5_4/1": {"link_layer": "InfiniBand", **DOWN, "rate": "10 Gb/sec (4X SDR)", **counted},
        "mlx5_5/1": {"link_layer": "Ethernet", **UP, "rate": "100 Gb/sec (4X EDR)"},
    }


@dataclass
class Adapters:
    """The adapters of a server, as the health check sees them."""

    ports: dict[str, dict[str, str]] = field(default_factory=new_ports)
    record: FindingRecord = field(default_factory=FindingRecord)
    now: float = 1e9
    boot: int = 1
    hangs: bool = False

    def set(self, port: str, values: Mapping[str, str]) -> None:
        """Change files of a port."""
        self.ports[port].update(values)

    def add(self, port: str, counts: Mapping[str, int]) -> None:
        """Increase counters of a port."""
        for name, count in counts.items():
            self.ports[port][f"counters/{name}"] = str(int(self.ports[port][f"counters/{name}"]) + count)

    def step(self, step: Mapping[str, Any]) -> None:
        """A step of a history."""
        for device in step.get("gone", ()):
            self.ports.pop(f"{device}/1", None)
        if step.get("port") in self.ports:
            self.set(step["port"], step.get("set", {}))
            self.add(step["port"], step.get("add", {}))

    def reset(self, port: str) -> None:
        """Counters of a port are reset, as by perfquery -R."""
        self.set(port, {name: "0" for name in self.ports[port] if name.startswith("counters/")})

    def restart(self) -> None:
        """Boot: links are set up with errors, and counters begin again."""
        self.boot += 1
        for port in self.ports:
            self.reset(port)

    def read(self) -> list[Port] | None:
        """What the command of the check has printed."""
        if self.hangs:
            return None
        lines = [
            f"{DEVICES}/{device}/ports/{number}/{name}:{value}"
            for port, files in self.ports.items()
            for name, value in files.items()
            for device, _slash, number in [port.partition("/")]
        ]
        return parse_ports("\n".join(lines))

    def check(self, after: float = PERIOD) -> list[Seen]:
        """A run of the checks. after: seconds since the one before."""
        self.now += after
        evidence = HealthEvidence(f"{self.boot}", self.now, ports=self.read(), wanted=WANTED)
        record = seen_findings.updated(self.record, evidence)
        self.record = seen_findings.from_json(json.loads(json.dumps(asdict(record))))
        return self.record.counting


def disturb(adapters: Adapters, choice: random.Random) -> str:
    """Something that is no fault. Returns what it is."""
    port = choice.choice(CONNECTED[:4])
    what = choice.choice(("reset", "flap", "training", "never connected", "few", "hang", "often", "clock"))
    if what == "reset":
        adapters.reset(port)
    elif what == "flap":  # a switch starts again: down for a run, and errors while the link is set up
        adapters.set(port, DOWN)
        adapters.add(port, {LINK_DOWNED: 1, "symbol_error": 65535})
        adapters.check()
        adapters.set(port, UP)
    elif what == "training":
        adapters.add(port, {LINK_DOWNED: 1, "symbol_error": 4000, "local_link_integrity_errors": 3})
    elif what == "never connected":
        adapters.add("mlx5_4/1", {LINK_DOWNED: 9, "symbol_error": 65535})
    elif what == "few":
        adapters.add(port, {"symbol_error": choice.randrange(3)})
    elif what == "hang":
        adapters.hangs = True
        adapters.check()
        adapters.hangs = False
    elif what == "often":
        for _run in range(5):
            adapters.check(1)
    elif what == "clock":
        adapters.now -= 40
    return what


@pytest.mark.parametrize("fault", FAULTY, ids=lambda fault: fault["name"])
def test_a_fault_is_found(fault: dict[str, Any]) -> None:
    """Every fault drains the node under its name, after disturbances as well."""
    choice = random.Random(fault["name"])
    adapters = Adapters()
    adapters.check()
    for _disturbance in range(3):
        disturb(adapters, choice)
        for _quiet in range(13):
            assert not adapters.check(), "a disturbance"
    for step in fault["steps"]:
        adapters.step(step)
        adapters.check()
    counting = adapters.check()
    found = {one.name: one for one in counting}
    assert fault["finds"] in found
    assert {*found} <= {fault["finds"], *fault.get("also", ())}
    assert found[fault["finds"]].kind == fault["class"]


def healthy(seed: int) -> None:
    """A server without a fault, which no run may drain."""
    choice = random.Random(seed)
    adapters = Adapters()
    adapters.check()
    told = []
    for _disturbance in range(choice.randrange(3, 7)):
        if choice.random() < 0.15:
            adapters.restart()
            told.append("boot")
        told.append(disturb(adapters, choice))
        for _quiet in range(choice.randrange(5, 9)):
            assert not adapters.check(), (seed, told)
    assert all(len(samples) <= SAMPLES for samples in adapters.record.samples.values())


def test_a_healthy_node_is_not_drained() -> None:
    for seed in range(100):
        healthy(seed)


@pytest.mark.rare
@pytest.mark.parametrize("part", range(10))
def test_no_healthy_node_of_ten_thousand_is_drained(part: int) -> None:
    for seed in range(1000 * (part + 1), 1000 * (part + 2)):
        healthy(seed)


def test_one_run_with_a_port_that_is_down_is_no_fault() -> None:
    adapters = Adapters()
    adapters.set("mlx5_0/1", DOWN)
    assert not adapters.check()
    adapters.set("mlx5_0/1", UP)
    assert not adapters.check()
    adapters.set("mlx5_0/1", DOWN)
    assert not adapters.check()
    assert [one.text for one in adapters.check()] == ["mlx5_0/1 is DOWN (Polling)"]


def test_a_port_that_is_up_again_ends_its_finding() -> None:
    adapters = Adapters()
    adapters.set("mlx5_0/1", DOWN)
    adapters.check()
    assert adapters.check()
    adapters.set("mlx5_0/1", UP)
    assert not adapters.check()
    assert [one.closed for one in adapters.record.seen] == ["the port is as it should be"]


def test_flaps_stay_until_a_person_has_closed_them() -> None:
    """A quiet hour proves nothing, and a boot mends no cable. After that the hour before does not count."""
    adapters = Adapters()
    adapters.check()
    adapters.add("mlx5_0/1", {LINK_DOWNED: 3})
    for after in (PERIOD, 7200):
        assert [one.name for one in adapters.check(after)] == ["port-flaps"]
    adapters.restart()
    assert [one.name for one in adapters.check()] == ["port-flaps"]
    adapters.record, closed = seen_findings.close(adapters.record, ["port-flaps"], "root", adapters.now)
    assert len(closed) == 1
    assert not adapters.check()
    adapters.add("mlx5_0/1", {LINK_DOWNED: 2})
    assert not adapters.check()
    adapters.add("mlx5_0/1", {LINK_DOWNED: 1})
    assert adapters.check()


def test_errors_before_a_person_has_closed_them_are_over() -> None:
    adapters = Adapters()
    adapters.check()
    adapters.add("mlx5_0/1", {LINK_DOWNED: 3, "local_link_integrity_errors": 1})
    adapters.add("mlx5_1/1", {"symbol_error": 121})
    assert {one.name for one in adapters.check()} == {"port-flaps", "port-errors"}
    adapters.record, _closed = seen_findings.close(adapters.record, ["all"], "root", adapters.now)
    assert not adapters.check()
    adapters.add("mlx5_1/1", {"symbol_error": 121})
    assert [one.key for one in adapters.check()] == [("port-errors", "mlx5_1/1")]


def test_a_machine_type_that_loses_a_port_ends_its_finding() -> None:
    adapters = Adapters()
    adapters.set("mlx5_0/1", DOWN)
    adapters.check()
    assert adapters.check()
    evidence = HealthEvidence("1", adapters.now + PERIOD, ports=[], wanted=[])
    assert not seen_findings.updated(adapters.record, evidence).counting


def test_every_finding_of_ports_has_a_history() -> None:
    assert {fault["finds"] for fault in FAULTY} == {name for name in OTHERS if name.startswith(seen_findings.OF_PORTS)}


def test_command_and_files_say_the_same(tmp_path: Path) -> None:
    """The command of the check prints what the measurement of the hardware reads."""
    for port, files in new_ports().items():
        device, _slash, number = port.partition("/")
        for name, value in files.items():
            path = tmp_path / DEVICES.lstrip("/") / device / "ports" / number / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
    virtual = tmp_path / DEVICES.lstrip("/") / "mlx5_9/ports/1"
    shutil.copytree(tmp_path / DEVICES.lstrip("/") / "mlx5_0/ports/1", virtual)
    (virtual.parents[1] / "device/physfn").mkdir(parents=True)
    ports = read_ports(Tree(str(tmp_path)))
    assert ports == Adapters().read()
    assert [port.name for port in ports if port.is_up] == CONNECTED
    command = [word.replace(DEVICES, f"{tmp_path}{DEVICES}") for word in ports_command()]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [port for port in parse_ports(printed.replace(str(tmp_path), "")) if port.device != "mlx5_9"] == ports
