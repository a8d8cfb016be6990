# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of slurm_removal with a stand-in for Slurm: drains, waits, the deadline, the records of hosts that left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import CommandError
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import removed_hosts
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from ansible_collections.gpucluster.slurm.plugins.module_utils.rolling.next_nodes import RollingError
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_removal

OURS = "gpucluster.slurm remove_nodes: leaves the cluster"


class Slurm:
    """Nodes, jobs and reservations, changed by the commands of the module."""

    def __init__(self) -> None:
        self.nodes = {f"n{number}": {"State": "IDLE", "Reason": ""} for number in range(1, 5)}
        self.jobs = ""
        self.reservations: list[dict[str, str]] = []

    def show(self, what: str, *_name: str) -> list[dict[str, str]]:
        if what == "node":
            return [{"NodeName": name, "Partitions": "all", **node} for name, node in self.nodes.items()]
        return self.reservations

    def output(self, command: Sequence[str]) -> str:
        if command[0] == "squeue":
            return self.jobs
        settings = dict(word.split("=", 1) for word in command[2:])
        for name in expand(settings["NodeName"]):
            resumed = settings["State"] == "RESUME"
            self.nodes[name] = {"State": "IDLE" if resumed else "IDLE+DRAIN", "Reason": settings["Reason"]}
        return ""


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Slurm:
    found = Slurm()
    for name in ("show", "output"):
        monkeypatch.setattr(slurm_removal, name, getattr(found, name))
    monkeypatch.setattr(slurm_removal, "POLL", 0)
    monkeypatch.setattr(removed_hosts, "HOSTS", f"{tmp_path}/hosts")
    monkeypatch.setattr(removed_hosts, "ADDRESSES", f"{tmp_path}/left")

    def write(files: list[Any]) -> None:
        """Write as the user of this test, who need not be root."""
        for file in files:
            Path(file.path).write_bytes(file.content)

    monkeypatch.setattr(removed_hosts, "write", write)
    return found


def step(name: str, check_mode: bool = False, **options: Any) -> Any:
    params = {"step": name, "nodes": "n[1-2]", "deadline": "", "end_jobs": False, "wait": 0}
    return slurm_removal.take_step(params | {"cleaned": "", "addresses": {}} | options, check_mode)


def test_nodes_are_drained_and_ready_at_the_next_poll(slurm: Slurm) -> None:
    assert not step("begin")["changed"]
    assert step("next", wait=5)["ready"] == ["n1", "n2"]
    assert {name: node["Reason"] for name, node in slurm.nodes.items()} == {"n1": OURS, "n2": OURS, "n3": "", "n4": ""}


@pytest.mark.parametrize("resumes", [True, False])
def test_slurm_resumes_a_node_that_has_not_answered_and_says_that_it_cannot(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch, resumes: bool
) -> None:
    """slurmctld has just started, and the host of n2 is away."""
    step("next")
    slurm.jobs = "7|alice|2026-11-25T10:00:00|n1|RUNNING|\n"

    def output(command: Sequence[str]) -> str:
        if "State=RESUME" not in command:
            return slurm.output(command)
        if resumes:
            slurm.output(command)
        raise CommandError("scontrol update NodeName=n[1-2]: slurm_update error: Invalid node state specified")

    monkeypatch.setattr(slurm_removal, "output", output)
    if not resumes:
        with pytest.raises(CommandError, match="Invalid node state"):
            step("next", deadline="2020-01-01T00:00:00")
        return
    assert not step("next", deadline="2020-01-01T00:00:00")["ok"]
    assert {node["State"] for node in slurm.nodes.values()} == {"IDLE"}


def test_a_check_drains_nothing(slurm: Slurm) -> None:
    found = step("next", check_mode=True)
    assert found["changed"]
    assert found["table"][1] == "next      n[1-2]: drained, so that no new job starts there"
    assert slurm.nodes["n1"]["State"] == "IDLE"


def test_a_run_that_was_killed_goes_on(slurm: Slurm) -> None:
    slurm.jobs = "7|alice|2026-11-25T10:00:00|n2|RUNNING|\n"
    assert not step("next")["over"]
    slurm.jobs = ""
    assert step("next")["ready"] == ["n1", "n2"]
    del slurm.nodes["n1"], slurm.nodes["n2"]
    assert step("begin")["ready"] == ["n1", "n2"]
    assert not step("next")["changed"]


def test_the_deadline_is_a_time_from_the_first_step_on(slurm: Slurm) -> None:
    slurm.jobs = "7|alice|2026-11-25T10:00:00|n2|RUNNING|\n"
    begun = step("begin", deadline="5")
    assert len(begun["deadline"]) == len("2026-12-01T18:00:00")
    step("next", deadline=begun["deadline"])
    assert slurm.nodes["n1"]["Reason"] == OURS
    found = step("next", deadline="2026-01-01T00:00")
    assert (found["over"], found["ok"], found["ready"]) == (True, False, [])
    assert slurm.nodes["n1"]["State"] == slurm.nodes["n2"]["State"] == "IDLE"
    with pytest.raises(RollingError, match="remove_nodes_deadline: found 'soon', allowed: a date and time"):
        step("begin", deadline="soon")


def test_a_reservation_is_refused(slurm: Slurm) -> None:
    slurm.reservations = [{"ReservationName": "maint", "Nodes": "n[2-3]"}]
    with pytest.raises(RollingError, match="reservation maint has n2: take them out first"):
        step("begin")


def test_nothing_is_cleaned_while_slurm_has_the_nodes(slurm: Slurm) -> None:
    with pytest.raises(RollingError, match=r"Slurm still has the nodes n\[1-2\], so these hosts are not cleaned"):
        step("gone")
    del slurm.nodes["n1"], slurm.nodes["n2"]
    assert step("gone")["ok"]


@pytest.mark.parametrize(
    ("reason", "state", "check_mode", "after"),
    [
        (OURS, "IDLE+DRAIN", False, "IDLE"),
        (OURS, "DOWN+DRAIN", False, "IDLE"),
        ("broken fan", "IDLE+DRAIN", False, "IDLE+DRAIN"),
        (f"broken fan + {OURS}", "IDLE+DRAIN", False, "IDLE+DRAIN"),
        (OURS, "IDLE+DRAIN", True, "IDLE+DRAIN"),
        ("", "IDLE", False, "IDLE"),
    ],
)
def test_nodes_that_stay_because_the_change_was_refused_are_as_they_were(
    slurm: Slurm, reason: str, state: str, check_mode: bool, after: str
) -> None:
    slurm.nodes["n1"] = {"State": state, "Reason": reason}
    with pytest.raises(RollingError, match="Slurm still has the nodes"):
        step("gone", check_mode=check_mode)
    assert slurm.nodes["n1"]["State"] == after


@pytest.mark.usefixtures("slurm")
def test_hosts_that_are_not_cleaned_are_recorded_with_their_address() -> None:
    removed_hosts.record(removed_hosts.HOSTS, ["head", "n1", "n2"])
    step("end", check_mode=True, cleaned="n1", addresses={"n2": "10.0.0.2"})
    assert (removed_hosts.recorded(removed_hosts.HOSTS), removed_hosts.addresses()) == (["head", "n1", "n2"], {})
    step("end", cleaned="n1", addresses={"n2": "10.0.0.2"})
    assert (removed_hosts.recorded(removed_hosts.HOSTS), removed_hosts.addresses()) == (
        ["head", "n2"],
        {"n2": "10.0.0.2"},
    )
    step("end", nodes="n3", cleaned="n3")
    assert removed_hosts.addresses() == {"n2": "10.0.0.2"}
    step("end", cleaned="n2")
    assert (removed_hosts.recorded(removed_hosts.HOSTS), removed_hosts.addresses()) == (["head"], {})
