# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines by Redfish. sushy and the BMC are stand-ins; `make bmc` has the real library."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.machines import machine_settings, redfish_machine
from ansible_collections.gpucluster.slurm.plugins.module_utils.machines.machine_orders import carry_out
from ansible_collections.gpucluster.slurm.plugins.module_utils.machines.machine_settings import (
    MachineError,
    MachineSettings,
)

SETTINGS = MachineSettings("redfish", "slurm", "{host}-bmc", {"n2": "[::1]:8443"}, "operator")


class SushyError(Exception):
    """The base of the library's errors."""


class Bmc:
    """A BMC, and what the library was told."""

    def __init__(self) -> None:
        self.systems = [SimpleNamespace(power_state="Off", reset_system=lambda order: self.told.append(order))]
        self.told: list[str] = []
        self.closed = 0
        self.fails: Exception | None = None
        self.opened: dict[str, Any] = {}

    def close(self) -> None:
        self.closed += 1
        raise SushyError("the session has ended before")

    def open(self, url: str, auth: Any, verify: Any) -> Any:
        assert auth is self
        self.opened = {"url": url, "verify": verify, "proxy": os.environ.get("https_proxy")}
        if self.fails:
            raise self.fails
        return SimpleNamespace(get_system_collection=lambda: SimpleNamespace(get_members=lambda: self.systems))

    def log_in(self, user: str, password: str) -> Bmc:
        assert (user, password) == ("operator", "word")
        return self


@pytest.fixture(name="bmc")
def a_bmc(monkeypatch: pytest.MonkeyPatch) -> Bmc:
    bmc = Bmc()
    library = SimpleNamespace(
        Sushy=bmc.open,
        auth=SimpleNamespace(SessionOrBasicAuth=bmc.log_in),
        exceptions=SimpleNamespace(SushyError=SushyError),
        SYSTEM_POWER_STATE_OFF="Off",
        RESET_ON="On",
        RESET_GRACEFUL_SHUTDOWN="GracefulShutdown",
        RESET_FORCE_OFF="ForceOff",
    )
    monkeypatch.setattr(redfish_machine, "sushy", library)
    monkeypatch.setattr(redfish_machine, "password", lambda: "word")
    monkeypatch.setenv("https_proxy", "http://proxy.example.org")
    return bmc


def told(settings: MachineSettings, order: str, node: str = "n1") -> str:
    """Carry out an order."""
    with redfish_machine.redfish_machine(settings, node) as machine:
        return carry_out(order, machine)


def test_orders_become_resets_in_a_session_that_is_closed(bmc: Bmc) -> None:
    assert told(SETTINGS, "state") == "off"
    assert told(SETTINGS, "start") == "off"
    for state in ("On", "PoweringOff"):
        bmc.systems[0].power_state = state
        assert told(SETTINGS, "stop") == "on"
        assert told(SETTINGS, "off") == "on"
    assert bmc.told == ["On", *["GracefulShutdown", "ForceOff"] * 2]
    assert bmc.closed == 6


@pytest.mark.parametrize(
    ("changes", "verify"),
    [({}, True), ({"verify": False}, False), ({"has_ca": True}, machine_settings.CA)],
)
def test_certificates_are_those_of_the_settings(bmc: Bmc, changes: dict[str, Any], verify: Any) -> None:
    told(MachineSettings("redfish", "slurm", "{host}-bmc", user="operator", **changes), "state")
    assert bmc.opened == {"url": "https://n1-bmc", "verify": verify, "proxy": None}
    told(SETTINGS, "state", "n2")
    assert bmc.opened["url"] == "https://[::1]:8443"


def test_errors_are_one_line(bmc: Bmc) -> None:
    bmc.fails = SushyError("no\n answer " + "x" * 1000)
    with pytest.raises(MachineError, match=r"^no answer x{290}$"):
        told(SETTINGS, "state")
    assert bmc.closed == 1


def test_what_a_bmc_cannot_have(bmc: Bmc) -> None:
    bmc.systems[0].power_state = None
    with pytest.raises(MachineError, match="does not say whether"):
        told(SETTINGS, "state")
    bmc.systems = []
    with pytest.raises(MachineError, match="the BMC has 0 systems, allowed: one; with several use by: program"):
        told(SETTINGS, "state")


def test_a_controller_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish_machine, "sushy", None)
    with pytest.raises(MachineError, match=r"python3-sushy is missing; run site.yml"):
        told(SETTINGS, "state")
