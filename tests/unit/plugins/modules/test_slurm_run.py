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
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.run_processes import identify_process
from programs import StandIn

ALICE = {"host": "adm1", "user": "alice", "process": "100 5"}
BOB = {"host": "adm2", "user": "bob", "process": "100 5"}

Change = Callable[..., list[dict[str, str]]]


@pytest.fixture(name="lock")
def path_of_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_lock, "FOLDER", f"{tmp_path}/gpucluster-slurm")
    monkeypatch.setattr(locks, "LOCKS", f"{tmp_path}/gpucluster-slurm/locks")
    return tmp_path / "gpucluster-slurm/run"


@pytest.fixture(name="change")
def change_by_this_user(lock: Path, monkeypatch: pytest.MonkeyPatch) -> Change:
    def write(files: list[Any]) -> None:
        for file in files:
            assert Path(file.path).parent == lock.parent
            Path(file.path).write_bytes(file.content)

    monkeypatch.setattr(run_lock, "write", write)

    def change(
        run: dict[str, str], state: str = "begun", check_mode: bool = False, **more: Any
    ) -> list[dict[str, str]]:
        params = {"state": state, "run": run, "take_over": False, "former": [], "rolling": False, "nodes": []} | more
        return slurm_run.change_locks(params, check_mode)

    return change


def test_a_run_begins_and_ends(change: Change, lock: Path) -> None:
    assert change(ALICE) == []
    assert {key: json.loads(lock.read_text())[key] for key in ALICE} == ALICE
    assert change(ALICE) == [], "it may begin again, for example in a playbook that imports two others"
    assert change(ALICE, "ended") == []
    assert not lock.exists()
    assert change(ALICE, "ended") == []


def test_another_run_is_named_and_keeps_its_lock(change: Change, lock: Path) -> None:
    change(ALICE)
    (other,) = change(BOB)
    assert other.pop("since")
    assert other == {**ALICE, "nodes": "", "common": ""}
    assert change(BOB, "ended") == []
    assert json.loads(lock.read_text())["user"] == "alice"


@pytest.mark.parametrize("more", [{"take_over": True}, {"former": ["1 1", "100 5"]}])
def test_the_lock_of_a_run_that_has_ended_is_replaced(change: Change, lock: Path, more: dict[str, Any]) -> None:
    change(ALICE)
    assert change({**ALICE, "process": "200 9"}, **more) == []
    assert json.loads(lock.read_text())["process"] == "200 9"


def test_the_end_of_a_process_counts_on_its_own_host_alone(change: Change) -> None:
    change(ALICE)
    assert change(BOB, former=["100 5"])[0]["user"] == "alice"


def test_check_mode_locks_nothing(change: Change, lock: Path) -> None:
    assert change(ALICE, check_mode=True) == []
    assert not lock.exists()
    change(ALICE)
    assert change(BOB, check_mode=True)[0]["user"] == "alice"
    assert change(ALICE, "ended", check_mode=True) == []
    assert lock.exists()


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"', "{}", '{"host": "adm1"}', '{"process": "0"}', "7"])
def test_a_damaged_lock_counts_as_none(change: Change, lock: Path, text: str) -> None:
    lock.parent.mkdir()
    lock.write_text(text)
    (lock.parent / "run.shared").write_text("5")
    assert change(BOB) == []
    assert json.loads(lock.read_text())["user"] == "bob"


def test_a_rolling_change_has_both_locks_or_none(change: Change, lock: Path) -> None:
    rolling = lock.parent / "rolling"
    change(ALICE)
    assert change(BOB, rolling=True)[0]["user"] == "alice"
    assert not rolling.exists()
    change(ALICE, "ended")
    assert change(BOB, rolling=True) == []
    # While it waits, another run changes the cluster, but no other rolling change begins.
    run_lock.release("run", BOB)
    assert change(ALICE, rolling=True)[0]["user"] == "bob"
    assert change(ALICE) == []
    assert change(BOB, "ended", rolling=True) == []
    assert (lock.exists(), rolling.exists()) == (True, False)


# -- runs of compute nodes alone ---------------------------------------------------------------------------------------

CAROL = {"host": "adm1", "user": "carol", "process": "300 7"}


def held(lock: Path) -> dict[str, str]:
    """The nodes of each run that has the lock."""
    return {each["user"]: each["nodes"] for each in run_lock.read_lock(lock.name)}


def test_runs_of_other_nodes_share_the_lock(change: Change, lock: Path) -> None:
    assert change(ALICE, nodes=["n1", "n2"]) == []
    assert change(BOB, nodes=["n3", "n4"]) == []
    assert held(lock) == {"alice": "n[1-2]", "bob": "n[3-4]"}
    assert change(ALICE, nodes=["n1", "n2"]) == [], "it may begin again"
    assert change(ALICE, "ended") == []
    assert held(lock) == {"bob": "n[3-4]"}
    assert change(CAROL, nodes=["n2"]) == []
    for run in (BOB, CAROL):
        change(run, "ended")
    assert [path.name for path in lock.parent.iterdir() if path.is_file()] == []


def test_a_run_with_a_node_of_another_one_is_refused(change: Change, lock: Path) -> None:
    change(ALICE, nodes=["n1", "n2", "n5"])
    change(BOB, nodes=["n3"])
    (other,) = change(CAROL, nodes=["n2", "n4", "n5"])
    assert (other["user"], other["nodes"], other["common"]) == ("alice", "n[1-2,5]", "n[2,5]")
    assert held(lock) == {"alice": "n[1-2,5]", "bob": "n3"}


def test_a_run_that_is_to_be_alone_is_refused_by_all_that_share_and_refuses_them(change: Change) -> None:
    change(ALICE, nodes=["n1"])
    change(BOB, nodes=["n2"])
    assert [(other["user"], other["common"]) for other in change(CAROL)] == [("alice", ""), ("bob", "")]
    change(ALICE, "ended")
    change(BOB, "ended")
    assert change(CAROL) == []
    assert [(other["user"], other["nodes"]) for other in change(ALICE, nodes=["n1"])] == [("carol", "")]


def test_a_killed_run_is_replaced_and_one_that_goes_on_is_not(change: Change, lock: Path) -> None:
    change(ALICE, nodes=["n1"])
    change(CAROL, nodes=["n2"])
    change(BOB, nodes=["n3"])
    # The next run of the same control host, after the end of alice's process.
    again = {**ALICE, "process": "400 1"}
    assert change(again, nodes=["n1"], former=["100 5"]) == []
    assert held(lock) == {"alice": "n1", "carol": "n2", "bob": "n3"}
    assert [other["user"] for other in change(again, former=["300 7"])] == ["bob"], "it goes on on its host"
    assert held(lock) == {"alice": "n1", "carol": "n2", "bob": "n3"}
    change(BOB, "ended")
    change(again, "ended")
    assert change({**ALICE, "process": "500 1"}, former=["300 7"]) == []
    assert held(lock) == {"alice": ""}


def test_taking_over_replaces_those_that_prevent_the_run_and_no_other(change: Change, lock: Path) -> None:
    change(ALICE, nodes=["n1"])
    change(BOB, nodes=["n2"])
    assert change(CAROL, nodes=["n1", "n3"], take_over=True) == []
    assert held(lock) == {"bob": "n2", "carol": "n[1,3]"}
    assert change(ALICE, take_over=True) == []
    assert held(lock) == {"alice": ""}


def test_a_run_gets_the_lock_alone_when_no_other_shares_it_and_keeps_it_so(change: Change, lock: Path) -> None:
    change(ALICE, nodes=["n1"])
    change(BOB, nodes=["n2"])
    assert [other["user"] for other in change(ALICE)] == ["bob"]
    assert held(lock) == {"alice": "n1", "bob": "n2"}
    change(BOB, "ended")
    assert change(ALICE) == []
    assert held(lock) == {"alice": ""}
    assert change(ALICE, nodes=["n1"]) == [], "as in upgrade.yml, which imports site.yml"
    assert held(lock) == {"alice": ""}


def test_an_earlier_version_refuses_while_runs_share_the_lock(change: Change, lock: Path) -> None:
    """It reads one run in the file, with these keys, and compares its process with those of the control host."""
    change(ALICE, nodes=["n1"])
    change(CAROL, nodes=["n2"])
    change(BOB, nodes=["n3"])
    found = json.loads(lock.read_text())
    assert found.pop("since")
    assert found == {"host": "adm1, adm2", "user": "alice, carol, bob", "process": "0"}
    change(BOB, "ended")
    assert json.loads(lock.read_text())["host"] == "adm1"
    assert identify_process(0) == "0", "it has not ended"


def test_the_lock_of_an_earlier_version_is_a_run_alone(change: Change, lock: Path) -> None:
    """Also after it has taken over from runs that share the lock, whose file it does not know."""
    change(ALICE, nodes=["n1"])
    lock.write_text(json.dumps({**CAROL, "since": "2026-11-24 10:02"}))
    assert [(other["user"], other["nodes"]) for other in change(BOB, nodes=["n2"])] == [("carol", "")]
    change(ALICE, "ended")
    assert held(lock) == {"carol": ""}
    lock.unlink()
    assert change(BOB, nodes=["n1"]) == []
    assert held(lock) == {"bob": "n1"}


def test_a_result_has_the_beginning_of_a_long_list(change: Change) -> None:
    odd = [f"n{number}" for number in range(1, 2001, 2)]
    change(ALICE, nodes=odd)
    (other,) = run_lock.shown(change(BOB, nodes=odd))
    assert (len(other["nodes"]), len(other["common"])) == (200, 200)
    assert change(BOB, nodes=[f"n{number}" for number in range(2, 2001, 2)]) == []


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
    params = {"state": "ended", "run": ALICE, "take_over": False, "former": [], "rolling": False, "nodes": []}

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
