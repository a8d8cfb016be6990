# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run lock on the controller. The tests run as root or not, so the lock belongs to their user."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import locks, run_lock
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.errors import CollectionError
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_run
from programs import StandIn

ALICE = {"host": "adm1", "user": "alice", "process": "100 5"}
BOB = {"host": "adm2", "user": "bob", "process": "100 5"}

Change = Callable[..., dict[str, str]]


@pytest.fixture(name="lock")
def path_of_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_lock, "FOLDER", f"{tmp_path}/gpucluster-slurm")
    monkeypatch.setattr(locks, "LOCKS", f"{tmp_path}/gpucluster-slurm/locks")
    return tmp_path / "gpucluster-slurm/run"


@pytest.fixture(name="change")
def change_by_this_user(monkeypatch: pytest.MonkeyPatch) -> Change:
    def write(files: list[Any]) -> None:
        for file in files:
            Path(file.path).write_bytes(file.content)

    monkeypatch.setattr(run_lock, "write", write)

    def change(run: dict[str, str], state: str = "begun", check_mode: bool = False, **more: Any) -> dict[str, str]:
        params = {"state": state, "run": run, "take_over": False, "former": [], "rolling": False} | more
        return slurm_run.change_locks(params, check_mode)

    return change


def test_a_run_begins_and_ends(change: Change, lock: Path) -> None:
    assert change(ALICE) == {}
    assert {key: json.loads(lock.read_text())[key] for key in ALICE} == ALICE
    assert change(ALICE) == {}, "it may begin again, for example in a playbook that imports two others"
    assert change(ALICE, "ended") == {}
    assert not lock.exists()
    assert change(ALICE, "ended") == {}


def test_another_run_is_named_and_keeps_its_lock(change: Change, lock: Path) -> None:
    change(ALICE)
    other = change(BOB)
    assert other.pop("since")
    assert other == ALICE
    assert change(BOB, "ended") == {}
    assert json.loads(lock.read_text())["user"] == "alice"


@pytest.mark.parametrize("more", [{"take_over": True}, {"former": ["1 1", "100 5"]}])
def test_the_lock_of_a_run_that_has_ended_is_replaced(change: Change, lock: Path, more: dict[str, Any]) -> None:
    change(ALICE)
    assert change({**ALICE, "process": "200 9"}, **more) == {}
    assert json.loads(lock.read_text())["process"] == "200 9"


def test_the_end_of_a_process_counts_on_its_own_host_alone(change: Change) -> None:
    change(ALICE)
    assert change(BOB, former=["100 5"])["user"] == "alice"


def test_check_mode_locks_nothing(change: Change, lock: Path) -> None:
    assert change(ALICE, check_mode=True) == {}
    assert not lock.exists()
    change(ALICE)
    assert change(BOB, check_mode=True)["user"] == "alice"
    assert change(ALICE, "ended", check_mode=True) == {}
    assert lock.exists()


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_a_damaged_lock_counts_as_none(change: Change, lock: Path, text: str) -> None:
    lock.parent.mkdir()
    lock.write_text(text)
    assert change(BOB) == {}
    assert json.loads(lock.read_text())["user"] == "bob"


def test_a_rolling_change_has_both_locks_or_none(change: Change, lock: Path) -> None:
    rolling = lock.parent / "rolling"
    change(ALICE)
    assert change(BOB, rolling=True)["user"] == "alice"
    assert not rolling.exists()
    change(ALICE, "ended")
    assert change(BOB, rolling=True) == {}
    # While it waits, another run changes the cluster, but no other rolling change begins.
    run_lock.release("run", BOB)
    assert change(ALICE, rolling=True)["user"] == "bob"
    assert change(ALICE) == {}
    assert change(BOB, "ended", rolling=True) == {}
    assert (lock.exists(), rolling.exists()) == (True, False)


def ping(**states: str) -> str:
    return "".join(f"Slurmctld(backup) at {name} is {state}\n" for name, state in states.items())


@pytest.mark.parametrize(
    ("said", "answering"),
    [
        (ping(c1="UP", c2="UP"), {"c1": True, "c2": True}),
        (ping(c1="UP", c2="DOWN"), {"c1": True, "c2": False}),
        ("", {"c1": False, "c2": False}),
    ],
    ids=["all", "one", "no answer"],
)
def test_controllers_that_are_down_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: StandIn, said: str, answering: dict[str, bool]
) -> None:
    (tmp_path / "slurm.conf").touch()
    monkeypatch.setattr(slurm_run, "SLURM_CONF", str(tmp_path / "slurm.conf"))
    monkeypatch.setattr(slurm_run, "STARTING", 0)
    stand_in("scontrol", f"printf '{said}'")
    assert slurm_run.ask_controllers(["c1", "c2"]) == answering
    monkeypatch.setattr(slurm_run, "SLURM_CONF", str(tmp_path / "missing"))
    assert slurm_run.ask_controllers(["c1", "c2"]) == {}, "a cluster that has no configuration yet"


def test_the_end_of_a_run_names_what_each_of_several_controllers_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: StandIn, change: Change
) -> None:
    change(ALICE)
    (tmp_path / "slurm.conf").touch()
    monkeypatch.setattr(slurm_run, "SLURM_CONF", str(tmp_path / "slurm.conf"))
    monkeypatch.setattr(slurm_run, "STARTING", 0)
    stand_in("scontrol", f"case $1 in ping) cat {tmp_path}/ping ;; *) echo No licenses ;; esac")
    params = {"state": "ended", "run": ALICE, "take_over": False, "former": [], "rolling": False}

    def end(said: str, reached: list[str], check_mode: bool = False) -> Any:
        (tmp_path / "ping").write_text(said)
        module: Any = SimpleNamespace(params={**params, "controllers": reached}, check_mode=check_mode)
        return slurm_run.begin_or_end(module)["controllers"]

    assert end(ping(c1="UP"), ["c1"]) == {}
    assert end(ping(c1="UP", c2="UP"), ["c1", "c2"]) == {"c1": "serves", "c2": "stands by"}
    away = ping(c1="DOWN", c2="UP")
    assert end(away, ["c2"]) == end(away, ["c1", "c2"], check_mode=True) == {"c1": "does not answer", "c2": "serves"}
    with pytest.raises(CollectionError, match=r"does not answer on c1, and this run has ended\. c2 serves\."):
        end(away, ["c1", "c2"])
