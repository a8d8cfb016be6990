# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that gives munged another key, with stand-ins for munge, Slurm and systemd.

Scenario rotation has the real ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from programs import StandIn, load

pytestmark = pytest.mark.once

OLD, NEW = b"o" * 64, b"n" * 64


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """The program."""
    module: ModuleType = load("munge_switch")
    return module


@pytest.fixture(name="calls")
def programs_of_a_host(stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins that succeed; systemctl writes down what it starts and stops."""
    monkeypatch.setitem(environment.ENVIRONMENT, "PATH", os.environ["PATH"])
    calls = tmp_path / "calls"
    calls.touch()
    stand_in("systemctl", f'[ "$1" = reset-failed ] || echo "$@" >>{calls}')
    stand_in("munge", "echo MUNGE:x:")
    stand_in("unmunge", "cat >/dev/null")
    stand_in("sinfo", "exit 0")
    return calls


@pytest.fixture(name="closed")
def closed_port() -> tuple[str, int]:
    """An address at which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return ("127.0.0.1", found.getsockname()[1])


@pytest.fixture(name="listening")
def open_port() -> Iterator[tuple[str, int]]:
    """An address at which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield ("127.0.0.1", server.getsockname()[1])


@pytest.fixture(name="host")
def host_with_staged_key(program: ModuleType, tmp_path: Path, closed: tuple[str, int]) -> Any:
    """A host that has both keys, whose controllers have stopped."""
    keys = tmp_path / "munge"
    keys.mkdir()
    (keys / "munge.key").write_bytes(OLD)
    (keys / "munge.key.next").write_bytes(NEW)
    times = {"quiet": 0.0, "gap": 0.0, "stop": 0.3, "wait": 0.3, "pause": 0.02, "ask": 0.2, "dead": 0.1}
    return program.SwitchedHost(keys, tmp_path / "record", [closed], proves=True, **times)


def test_a_host_switches_when_the_controllers_have_stopped(program: ModuleType, host: Any, calls: Path) -> None:
    program.switch(host, 0)
    assert (host.present.read_bytes(), host.previous.read_bytes()) == (NEW, OLD)
    assert calls.read_text() == "restart munge\n"


def test_a_controller_stops_slurmctld_first_and_starts_it_last(program: ModuleType, host: Any, calls: Path) -> None:
    host.is_controller = True
    program.switch(host, 0)
    assert calls.read_text().split("\n") == ["stop slurmctld", "restart munge", "start slurmctld", ""]


def test_a_limit_of_starts_does_not_stop_slurmctld(
    program: ModuleType, host: Any, calls: Path, stand_in: StandIn
) -> None:
    """systemd counts the starts of all runs, and refuses one that is too many until the counter is reset."""
    host.is_controller = True
    stand_in("systemctl", f'echo "$@" >>{calls}; [ "$1" != start ] || grep -q "reset-failed $2" {calls}')
    program.switch(host, 0)
    stand_in("systemctl", '[ "$1" != start ] || { echo Start request repeated too quickly; exit 1; }')
    host.next.write_bytes(b"m" * 64)
    with pytest.raises(program.SwitchError, match="start slurmctld: Start request repeated too quickly"):
        program.switch(host, 0)
    assert host.present.read_bytes() == b"m" * 64


def ports(program: ModuleType, patch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Let the controllers answer so, one question after the other, and the last answer for ever; what was asked."""
    asked: list[str] = []

    def port(address: tuple[str, int]) -> str:
        asked.append(address[0])
        return answers[min(len(asked), len(answers)) - 1]

    patch.setattr(program, "port", port)
    return asked


def test_a_standby_starts_after_the_first_controller(
    program: ModuleType, host: Any, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one listens at the fifth question; without it, the standby starts in the end all the same."""
    host.is_controller, host.is_standby, host.lead = True, True, 0.2
    running, stopped = program.OPEN, program.CLOSED
    asked = ports(program, monkeypatch, running, stopped, stopped, stopped, running)
    program.switch(host, 0)
    assert len(asked) == 5
    ports(program, monkeypatch, running, stopped)
    program.switch(host, 0)
    assert calls.read_text().count("start slurmctld\n") == 2


@pytest.mark.parametrize("answer", ["silent", "closed"])
def test_a_standby_stands_by_if_the_first_controller_is_lost_before_the_switch(
    program: ModuleType, host: Any, calls: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """It takes over SlurmctldTimeout after the loss, since its slurmctld has run all the time."""
    host.is_controller = host.is_standby = True
    ports(program, monkeypatch, answer)
    with pytest.raises(program.SwitchError, match="the first controller does not answer"):
        program.switch(host, 0)
    assert (host.present.read_bytes(), calls.read_text()) == (OLD, "")


def test_a_standby_starts_at_once_if_the_first_controller_is_lost_while_it_stops(
    program: ModuleType, host: Any, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.is_controller, host.is_standby, host.stop = True, True, 60.0
    ports(program, monkeypatch, program.OPEN, program.SILENT)
    begin = time.monotonic()
    with pytest.raises(program.SwitchError, match="not all controllers have stopped"):
        program.switch(host, 0)
    assert time.monotonic() - begin < 10
    assert (host.present.read_bytes(), calls.read_text()) == (OLD, "stop slurmctld\nstart slurmctld\n")


def test_a_standby_does_not_wait_for_a_first_controller_that_is_lost_after_its_stop(
    program: ModuleType, host: Any, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All others have the next key as well."""
    host.is_controller, host.is_standby, host.lead = True, True, 60.0
    ports(program, monkeypatch, program.OPEN, program.CLOSED, program.SILENT)
    begin = time.monotonic()
    program.switch(host, 0)
    assert time.monotonic() - begin < 10
    assert (host.present.read_bytes(), calls.read_text()[-16:]) == (NEW, "start slurmctld\n")


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("refused", [True, False])
def test_a_late_host_asks_the_standby_of_a_first_controller_that_is_lost(
    program: ModuleType, host: Any, monkeypatch: pytest.MonkeyPatch, stand_in: StandIn, tmp_path: Path, refused: bool
) -> None:
    """The standby has seen the stop of the first controller, or not. This host has not seen it."""
    host.controllers, host.stop = [("first", 1), ("second", 1)], 2.0
    monkeypatch.setattr(program, "port", lambda address: program.SILENT if address[0] == "first" else program.OPEN)
    said = f"grep -q n {tmp_path}/munge/munge.key || {{ echo Protocol authentication error; exit 1; }}"
    stand_in("sinfo", said if refused else "echo Unable to contact slurm controller; exit 1")
    if refused:
        program.switch(host, 0)
    else:
        with pytest.raises(program.SwitchError, match="keeps its key"):
            program.switch(host, 0)
    assert host.present.read_bytes() == (NEW if refused else OLD)


def test_without_stopped_controllers_nothing_changes(
    program: ModuleType, host: Any, calls: Path, listening: tuple[str, int]
) -> None:
    host.controllers.append(listening)
    with pytest.raises(program.SwitchError, match="not all controllers have stopped"):
        program.switch(host, 0)
    assert host.present.read_bytes() == OLD
    assert calls.read_text() == ""


def test_a_controller_without_the_others_starts_again(
    program: ModuleType, host: Any, calls: Path, listening: tuple[str, int]
) -> None:
    host.controllers.insert(0, listening)
    host.is_controller = host.is_standby = True
    with pytest.raises(program.SwitchError):
        program.switch(host, 0)
    assert host.present.read_bytes() == OLD
    assert calls.read_text().split("\n") == ["stop slurmctld", "start slurmctld", ""]


def test_the_first_controller_goes_on_if_another_one_does_not_stop(
    program: ModuleType, host: Any, calls: Path, listening: tuple[str, int]
) -> None:
    host.controllers.append(listening)
    host.is_controller = True
    with pytest.raises(program.SwitchError, match="goes on with its key"):
        program.switch(host, 0)
    assert host.present.read_bytes() == OLD
    assert calls.read_text() == ""


def test_a_late_host_follows_controllers_that_refuse_its_key(
    program: ModuleType, host: Any, calls: Path, listening: tuple[str, int], stand_in: StandIn, tmp_path: Path
) -> None:
    """They serve with the next key already. The stand-in refuses the present one."""
    host.controllers = [listening]
    host.stop = 1.0
    key = tmp_path / "munge/munge.key"
    stand_in("sinfo", f"grep -q n {key} || {{ echo Protocol authentication error; exit 1; }}")
    program.switch(host, 0)
    assert host.present.read_bytes() == NEW
    assert calls.read_text() == "restart munge\n"


def test_slurmctld_is_not_asked_while_one_has_stopped(
    program: ModuleType, host: Any, calls: Path, listening: tuple[str, int], stand_in: StandIn
) -> None:
    """sinfo would wait for it, and the host would not see the other one stop."""
    host.controllers.append(listening)
    host.stop = 1.0
    stand_in("sinfo", f"echo asked >>{calls}")
    with pytest.raises(program.SwitchError):
        program.switch(host, 0)
    assert calls.read_text() == ""


def test_a_host_that_is_refused_goes_back(program: ModuleType, host: Any, calls: Path, stand_in: StandIn) -> None:
    stand_in("sinfo", "echo Protocol authentication error; exit 1")
    host.wait = 60.0  # for ten answers
    with pytest.raises(program.SwitchError, match="refused the new key"):
        program.switch(host, 0)
    assert host.present.read_bytes() == OLD
    assert calls.read_text() == "restart munge\nrestart munge\n"


@pytest.mark.usefixtures("calls")
def test_without_an_answer_the_new_key_stays(program: ModuleType, host: Any, stand_in: StandIn) -> None:
    stand_in("sinfo", "echo Unable to contact slurm controller; exit 1")
    with pytest.raises(program.SwitchError, match="did not answer"):
        program.switch(host, 0)
    assert host.present.read_bytes() == NEW


def test_a_key_that_munged_does_not_take_goes_back(
    program: ModuleType, host: Any, calls: Path, stand_in: StandIn, tmp_path: Path
) -> None:
    refuse = f'echo "$@" >>{calls}; [ "$1" != restart ] || grep -q o {tmp_path}/munge/munge.key'
    stand_in("systemctl", refuse)
    host.is_controller = True
    with pytest.raises(program.SwitchError, match="systemctl restart munge"):
        program.switch(host, 0)
    assert host.present.read_bytes() == OLD
    assert calls.read_text().split("\n")[-2] == "start slurmctld"


@pytest.mark.usefixtures("calls")
def test_a_host_without_the_staged_key_keeps_its_own(program: ModuleType, host: Any) -> None:
    host.next.unlink()
    with pytest.raises(program.SwitchError, match="is missing"):
        program.switch(host, 0)
    assert host.present.read_bytes() == OLD


def test_the_state_has_checksums_and_no_key(program: ModuleType, host: Any, stand_in: StandIn) -> None:
    stand_in("systemctl", "echo inactive; exit 3")
    host.record.write_text('{"error": "why"}')
    found = program.state(host)
    assert found == {
        "present": hashlib.sha256(OLD).hexdigest(),
        "next": hashlib.sha256(NEW).hexdigest(),
        "previous": "",
        "armed": False,
        "error": "why",
    }
    assert "nnnn" not in json.dumps(found)


def test_the_next_key_is_staged_with_the_owner_and_mode_of_the_present_one(program: ModuleType, host: Any) -> None:
    host.present.chmod(0o400)
    program.stage(host, b"s" * 64)
    assert (host.next.read_bytes(), host.next.stat().st_mode & 0o777) == (b"s" * 64, 0o400)


def test_links_in_the_directory_of_munge_are_not_followed(program: ModuleType, host: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of root")
    host.next.unlink()
    host.next.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        program.copy(host.next, host.present)
    (host.keys / ".munge.key.new").symlink_to(secret)
    program.stage(host, NEW)
    program.copy(host.next, host.present)
    assert (secret.read_text(), host.present.read_bytes()) == ("of root", NEW)


@pytest.mark.usefixtures("calls")
def test_the_unit_runs_this_file(
    program: ModuleType, host: Any, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is sent to the host, and is there until the next boot."""
    stand_in("systemd-run", f'echo "$@" >{tmp_path}/ran')
    monkeypatch.setattr("sys.argv", ["/run/switch.py", "arm"])
    program.arm(host, 5.0, ["--proves"])
    assert (tmp_path / "ran").read_text().endswith(" /run/switch.py switch --at=5.0 --proves\n")


def test_an_address_may_be_of_either_kind(program: ModuleType) -> None:
    assert program.address("ctl:6817") == ("ctl", 6817)
    assert program.address("[fd00::1]:6817") == ("fd00::1", 6817)
