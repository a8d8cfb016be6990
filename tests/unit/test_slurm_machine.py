# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm-machine. slurmctld, ipmitool and the program of the site are stand-ins; `make bmc` has real protocols."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.machines import (
    ipmi_machine,
    machine_settings,
    program_machine,
)
from programs import StandIn, load

# No part of ansible-core takes part.
pytestmark = pytest.mark.once

IPMITOOL = """
echo "$*" >>{0}/asked
case "$*" in
  *status) echo "Chassis Power is $(cat {0}/power)" ;;
  *"power on") echo on >{0}/power ;;
  *) echo off >{0}/power ;;
esac
"""
SITE = """#!/bin/sh
echo "$* $MACHINE_USER $MACHINE_PASSWORD_FILE" >>{0}/asked
case $1 in
  state) cat {0}/power ;;
  start) echo on >{0}/power ;;
  stop) echo off >{0}/power ;;
esac
"""


class MachineController:
    """A controller with slurm-machine."""

    def __init__(self, directory: Path, stand_in: StandIn, program: ModuleType) -> None:
        self.directory, self.program, self.stand_in = directory, program, stand_in
        self.slurm("IDLE+DRAIN")
        self.set(by="ipmi", address="{host}-bmc", user="operator")
        self.power("off")
        stand_in("ipmitool", IPMITOOL.format(directory))
        (directory / "password").write_text("geheim\n")
        (directory / "program").write_text(SITE.format(directory))
        (directory / "program").chmod(0o755)

    def set(self, **values: Any) -> None:
        """The settings."""
        content = {"slurm_user": pwd.getpwuid(os.geteuid()).pw_name, **values}
        (self.directory / "machines.json").write_text(json.dumps(content))

    def power(self, state: str) -> None:
        """The state of the machine."""
        (self.directory / "power").write_text(f"{state}\n")

    def slurm(self, state: str, *jobs: int) -> None:
        """What slurmctld says of the node."""
        self.stand_in("scontrol", f"echo 'NodeName=n1 State={state} Reason=broken [root@2026-01-01T00:00:00]'")
        listed = "".join(f"{job}\x1fRUNNING\x1fn1\x1f1\x1f1\x1fanna\x1e\n" for job in jobs)
        (self.directory / "jobs").write_text(listed)
        self.stand_in("squeue", f"cat {self.directory}/jobs")

    def asked(self) -> list[str]:
        """What the machine was told since the last call."""
        file = self.directory / "asked"
        said = file.read_text().split("\n")[:-1] if file.exists() else []
        file.unlink(missing_ok=True)
        return said


@pytest.fixture(name="controller")
def a_controller(tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> MachineController:
    program = load("slurm_machine")
    monkeypatch.setattr(program, "SETTINGS", str(tmp_path / "machines.json"))
    for module in (machine_settings, ipmi_machine, program_machine):
        monkeypatch.setattr(module, "PASSWORD", str(tmp_path / "password"))
    monkeypatch.setattr(program_machine, "PROGRAM", str(tmp_path / "program"))
    return MachineController(tmp_path, stand_in, program)


def test_ipmi(controller: MachineController, capsys: pytest.CaptureFixture[str]) -> None:
    begin = f"-I lanplus -L OPERATOR -H n1-bmc -p 623 -U operator -f {controller.directory}/password chassis power"
    for order, told in (("state", []), ("start", ["on"]), ("start", []), ("stop", ["soft"]), ("off", [])):
        assert controller.program.main([order, "n1"]) == 0
        assert controller.asked() == [f"{begin} {word}" for word in ("status", *told)]
    controller.power("on")
    assert controller.program.main(["off", "n1"]) == 0
    assert controller.asked()[1:] == [f"{begin} off"]
    controller.set(by="ipmi", address="{host}-bmc", addresses={"n1": "[::1]:6230"}, user="operator")
    assert controller.program.main(["state", "n1"]) == 0
    assert controller.asked()[0].startswith("-I lanplus -L OPERATOR -H ::1 -p 6230 ")
    assert capsys.readouterr() == ("off\noff\n", "")


def test_a_program_of_the_site(controller: MachineController, capsys: pytest.CaptureFixture[str]) -> None:
    controller.set(by="program", user="operator")
    login = f"operator {controller.directory}/password"
    for order, told in (("state", []), ("start", ["start"]), ("stop", ["stop"]), ("off", [])):
        assert controller.program.main([order, "n1"]) == 0
        assert controller.asked() == [f"{word} n1 {login}" for word in ("state", *told)]
    controller.set(by="program")
    controller.power("on")
    assert controller.program.main(["off", "n1"]) == 0
    assert controller.asked() == ["state n1  ", "stop n1  "]
    controller.power("asleep")
    assert controller.program.main(["state", "n1"]) == 1
    assert capsys.readouterr().err.endswith("/program state: found 'asleep', allowed: on or off\n")


@pytest.mark.parametrize("order", ["stop", "off"])
def test_no_job_is_lost(controller: MachineController, order: str, capsys: pytest.CaptureFixture[str]) -> None:
    controller.power("on")
    for state, jobs, why in (
        ("IDLE", (), "it is in service: drain it first"),
        ("MIXED+DRAIN", (7, 8), "it has 2 jobs: 7, 8"),
        ("DOWN", (7,), "it has 1 jobs: 7"),
        ("IDLE+COMPLETING+DRAIN", (), "its state is COMPLETING"),
    ):
        controller.slurm(state, *jobs)
        assert controller.program.main([order, "n1"]) == 1
        assert capsys.readouterr() == ("", f"slurm-machine: n1: {why}\n")
    controller.stand_in("scontrol", "echo 'Node n1 not found' >&2; exit 1")
    assert controller.program.main([order, "n1"]) == 1
    assert capsys.readouterr().err.endswith("found no such node, allowed: a node of Slurm\n")
    controller.slurm("DOWN")
    controller.stand_in("squeue", "echo 'slurm_load_jobs error: Unable to contact' >&2; exit 1")
    assert controller.program.main([order, "n1"]) == 1
    assert controller.asked() == []


def test_a_machine_starts_without_slurmctld(controller: MachineController) -> None:
    controller.stand_in("scontrol", "exit 1")
    assert controller.program.main(["start", "n1"]) == 0


def test_what_fails_is_one_line(controller: MachineController, capsys: pytest.CaptureFixture[str]) -> None:
    controller.stand_in("ipmitool", "echo more; echo 'Error: Unable to establish IPMI v2 / RMCP+ session' >&2; exit 1")
    assert controller.program.main(["state", "n1"]) == 1
    assert len(capsys.readouterr().err.split("\n")) == 2
    controller.stand_in("ipmitool", "echo 'Chassis is gone'")
    assert controller.program.main(["state", "n1"]) == 1
    assert capsys.readouterr().err == (
        "slurm-machine: n1: ipmitool: found 'Chassis is gone', allowed: Chassis Power is on, or off\n"
    )
    assert controller.program.main(["state", "-x"]) == 1
    assert capsys.readouterr().err == "slurm-machine: -x: found '-x', allowed: the name of a node\n"
    controller.set(by="ipmi", more=1)
    assert controller.program.main(["state", "n1"]) == 1
    assert capsys.readouterr().err.endswith("run site.yml\n")


def test_a_bmc_has_a_minute(controller: MachineController, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_settings.SECONDS == 60
    monkeypatch.setattr(controller.program, "SECONDS", 0.2)
    controller.stand_in("ipmitool", "sleep 30")
    assert controller.program.main(["state", "n1"]) == 1


def test_redfish_has_a_process_of_its_own(
    controller: MachineController, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment is changed there alone."""
    controller.set(by="redfish", address="{host}-bmc", user="operator")
    monkeypatch.setattr(controller.program, "redfish_machine", lambda _settings, node: [][len(node)])
    assert controller.program.main(["state", "n1"]) == 1
    assert "IndexError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status"), [([], 2), (["state"], 2), (["reset", "n1"], 2), (["off", "n1", "n2"], 2), (["--help"], 0)]
)
def test_usage(
    controller: MachineController, words: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert controller.program.main(words) == status
    assert capsys.readouterr().out.startswith("usage: slurm-machine state NODE")
