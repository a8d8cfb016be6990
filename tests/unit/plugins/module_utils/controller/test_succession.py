# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of several controllers may take control, and when."""

from __future__ import annotations

import getpass
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import read
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import daemons, succession
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.daemons import ConfigError, Slurmctld
from programs import StandIn

CONF = "SlurmctldHost=head(10.0.0.1)\nSlurmctldHost=login1\nSlurmctldHost=n1\nSlurmctldPort=6820-6823\n"


@pytest.mark.parametrize(
    ("content", "index"),
    [(struct.pack(">QQ", 1795790000, 1), 1), (struct.pack(">QQ", 1, 0), 0), (b"", None), (b"\0" * 12, None)],
)
def test_the_heartbeat_names_the_controller_that_served_last(content: bytes, index: int | None) -> None:
    assert succession.find_last_index(content) == index


@pytest.mark.parametrize(
    ("own", "last", "connecting", "may"),
    [
        (1, 1, [], True),
        (1, 1, [2], True),  # a later standby gives way
        (1, 1, [0], False),  # `scontrol takeover` would end the slurmctld of the primary
        (1, 0, [], False),  # the primary may be alive where this host does not reach it
        (1, None, [], False),  # the directory cannot be read
        (2, 2, [1], False),
        (0, 0, [], False),  # the primary takes control by itself
    ],
)
def test_a_standby_takes_over_at_once_only_if_it_served_last_and_none_precedes_it(
    own: int, last: int | None, connecting: list[int], may: bool
) -> None:
    assert succession.may_take_over(own, last, connecting) is may


@pytest.fixture(name="state")
def state_with_a_heartbeat_of_the_second(tmp_path: Path) -> Path:
    (tmp_path / "heartbeat").write_bytes(struct.pack(">QQ", 1795790000, 1))
    return tmp_path


def slurmctld() -> Slurmctld:
    module: Any = SimpleNamespace(params={"directory": "/etc/slurm", "patience": 1}, check_mode=False)
    return Slurmctld(module)


@pytest.mark.parametrize(
    ("host", "port_open", "asked"), [("login1", False, 1), ("login1", True, 0), ("head", False, 0)]
)
def test_a_restarted_standby_asks_for_control_until_it_serves(
    state: Path, monkeypatch: pytest.MonkeyPatch, stand_in: StandIn, host: str, port_open: bool, asked: int
) -> None:
    """It does not wait for SlurmctldTimeout. Before it listens, the command fails, and is given again."""
    monkeypatch.setattr("socket.gethostname", lambda: host)
    monkeypatch.setattr(daemons, "connection_error", lambda *_place: "" if port_open else "Connection refused")
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    calls = state / "calls"
    stand_in("systemctl", "exit 0")
    stand_in("scontrol", f"case $1 in ping) cat {state}/ping ;; takeover) echo $* >>{calls} ;; show) echo none ;; esac")
    (state / "ping").write_text("Slurmctld(primary) at head is DOWN\nSlurmctld(backup) at login1 is DOWN\n")
    configuration = read({"slurm.conf": f"{CONF}StateSaveLocation={state}\nSlurmUser={getpass.getuser()}\n"})
    slurmctld().seek_control(configuration)
    assert (calls.read_text() if calls.exists() else "") == "takeover 1\n" * asked


def test_a_wait_for_control_asks_for_it(state: Path, monkeypatch: pytest.MonkeyPatch, stand_in: StandIn) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "login1")
    monkeypatch.setattr(daemons, "connection_error", lambda *_place: "Connection refused")
    stand_in("systemctl", "exit 0")
    stand_in(
        "scontrol",
        f"case $1 in ping) cat {state}/ping ;; takeover) mv {state}/up {state}/ping ;; show) echo none ;; esac",
    )
    (state / "ping").write_text("Slurmctld(primary) at head is DOWN\nSlurmctld(backup) at login1 is DOWN\n")
    (state / "up").write_text("Slurmctld(primary) at head is DOWN\nSlurmctld(backup) at login1 is UP\n")
    slurmctld().wait(read({"slurm.conf": f"{CONF}StateSaveLocation={state}\nSlurmUser={getpass.getuser()}\n"}))
    assert not (state / "up").exists()
