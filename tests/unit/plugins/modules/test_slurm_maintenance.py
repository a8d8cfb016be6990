# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of slurm_maintenance with stand-ins for Slurm and for the mailer: what is sent when, and kills between."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.maintenance.window import NAME, MaintenanceError
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_maintenance

HOUR = 3600


class Killed(BaseException):
    """The end of a run that is killed."""


class Cluster:
    """Slurm, and a mailer that takes mails."""

    def __init__(self) -> None:
        self.reservations: list[dict[str, str]] = []
        self.jobs = ["1|RUNNING|alice|all|2-00:00:00|1-12:00:00|(null)||n1", "2|PENDING|bob|all|1:00|1:00|(null)||"]
        self.mails: list[tuple[Sequence[str], str]] = []
        self.refused: set[str] = set()
        self.killed_after: int | None = None
        self.tried = 0

    def show(self, what: str) -> list[dict[str, str]]:
        return (
            self.reservations if what == "reservation" else [{"PartitionName": "all", "Nodes": "n[1-2]", "MaxTime": ""}]
        )

    def output(self, _command: Sequence[str]) -> str:
        return "\n".join(self.jobs)

    def run_mailer(self, command: Sequence[str], mail: bytes) -> str:
        self.tried += 1
        if len(self.mails) == self.killed_after:
            raise Killed
        (to,) = (line.split()[1] for line in mail.decode().split("\n") if line.startswith("To: "))
        if to.partition("@")[0] in self.refused:
            return "the relay is away"
        self.mails.append((command, to))
        return ""

    @property
    def told(self) -> list[str]:
        """The users who have got mails since the last call."""
        found = [to.partition("@")[0] for _command, to in self.mails]
        self.mails.clear()
        return found


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    found = Cluster()
    for name in ("show", "output", "run_mailer"):
        monkeypatch.setattr(slurm_maintenance, name, getattr(found, name))
    monkeypatch.setattr(slurm_maintenance, "RECORD", f"{tmp_path}/maintenance.json")

    def write(files: list[Any]) -> None:
        """Write as the user of this test, who need not be root."""
        for file in files:
            Path(file.path).write_bytes(file.content)

    monkeypatch.setattr(slurm_maintenance, "write", write)
    return found


def local(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(timespec="seconds")


START = local(time.time() + 24 * HOUR)


def step(name: str, check_mode: bool = False, **options: Any) -> Any:
    params: dict[str, Any] = {
        "step": name,
        "state": "present",
        "start": START,
        "hours": 8,
        "nodes": "ALL",
        "cluster": "hpc",
        "text": "",
        "sender": "slurm@a.example",
        "domain": "a.example",
        "settings": "/etc/msmtprc",
        "mail_user": "slurm",
    }
    return slurm_maintenance.take_step(params | options, check_mode)


def end(**options: Any) -> Any:
    return step("mail", state="absent", start="", hours=0, **options)


def test_a_look_changes_nothing(cluster: Cluster) -> None:
    found = step("look")
    assert (found["changed"], found["begun"], found["sent"]) == (False, False, [])
    assert found["window"]["start_time"] == START
    assert found["window"]["end"] - found["window"]["start"] == 8 * HOUR
    assert [job["job"] for job in found["running"]["jobs"]] == ["1"]
    assert found["waiting"] == {"count": 0, "jobs": []}
    assert found["table"][0].startswith("1 running job reaches into it.")
    assert not Path(slurm_maintenance.RECORD).exists()
    assert cluster.tried == 0


def test_what_cannot_be_is_refused_by_the_look(cluster: Cluster) -> None:
    with pytest.raises(MaintenanceError, match="maintenance_start"):
        step("look", start="2020-01-01T08:00")
    cluster.reservations = [{"ReservationName": NAME, "StartTime": START, "EndTime": START, "Flags": "SPEC_NODES"}]
    for state in ("present", "absent"):
        with pytest.raises(MaintenanceError, match="A person has made a reservation"):
            step("look", state=state)


def test_there_is_nothing_to_end(cluster: Cluster) -> None:
    found = step("look", state="absent", start="", hours=0)
    assert (found["window"], found["table"], found["begun"]) == ({}, [], False)
    assert end()["changed"] is False
    assert cluster.told == []


def test_the_end_of_a_maintenance_that_has_begun_is_seen(cluster: Cluster) -> None:
    times = {"StartTime": local(time.time() - HOUR), "EndTime": local(time.time() + HOUR)}
    cluster.reservations = [{"ReservationName": NAME, "Flags": "MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES", **times}]
    found = step("look", state="absent", start="", hours=0)
    assert found["begun"] is True
    assert found["window"]["start_time"] == times["StartTime"]


def test_each_user_is_told_once_for_each_change(cluster: Cluster) -> None:
    assert step("mail", check_mode=True)["sent"] == ["alice", "bob"]
    assert cluster.told == []
    first = step("mail")
    assert (first["changed"], first["sent"], cluster.told) == (True, ["alice", "bob"], ["alice", "bob"])
    again = step("mail")
    assert (again["changed"], again["sent"], cluster.told) == (False, [], [])
    cluster.jobs.append("3|PENDING|carol|all|1:00|1:00|(null)||")
    step("mail")
    assert cluster.told == ["carol"]
    cluster.jobs.clear()
    step("mail", hours=9)
    assert cluster.told == ["alice", "bob", "carol"]
    ended = end()
    assert (ended["changed"], cluster.told) == (True, ["alice", "bob", "carol"])
    assert not Path(slurm_maintenance.RECORD).exists()
    assert end()["changed"] is False


def test_no_text_of_a_user_is_in_the_command(cluster: Cluster) -> None:
    cluster.jobs = ["1|RUNNING|alice|all|1:00|1:00|(null)||n1", "2|PENDING|-oQ/tmp|all|1:00|1:00|(null)||"]
    found = step("mail", text="-t; reboot")
    assert found["unsent"] == {"-oQ/tmp": "this name is no address"}
    ((command, to),) = cluster.mails
    assert to == "alice@a.example"
    assert command == ["runuser", "-u", "slurm", "--", "msmtp", "--file=/etc/msmtprc", "--read-recipients"]


def test_a_run_that_is_killed_tells_nobody_twice_but_the_last(cluster: Cluster) -> None:
    cluster.killed_after = 1
    with pytest.raises(Killed):
        step("mail")
    cluster.killed_after = None
    assert cluster.told == ["alice"]
    step("mail")
    assert cluster.told == ["bob"]
    cluster.killed_after = 1
    with pytest.raises(Killed):
        end()
    cluster.killed_after = None
    assert cluster.told == ["alice"]
    end()
    assert cluster.told == ["bob"]


def test_a_mailer_that_fails_is_named_and_tried_again(cluster: Cluster) -> None:
    cluster.refused = {"alice"}
    found = step("mail")
    assert (found["sent"], found["unsent"]) == (["bob"], {"alice": "the relay is away"})
    cluster.refused = set()
    cluster.told.clear()
    assert step("mail")["sent"] == ["alice"]
    cluster.refused = {"bob"}
    assert end()["unsent"] == {"bob": "the relay is away"}
    cluster.refused = set()
    assert end()["sent"] == ["bob"]


def test_a_relay_that_is_away_is_not_asked_for_each_of_thousands(cluster: Cluster) -> None:
    users = [f"u{number}" for number in range(1000)]
    cluster.jobs = [f"1|PENDING|{user}|all|1:00|1:00|(null)||" for user in users]
    cluster.refused = {*users}
    found = step("mail")
    assert len(found["unsent"]) == 1000
    assert cluster.tried == slurm_maintenance.FAILURES
    assert found["unsent"]["u999"] == "not tried after 3 failures"


def test_without_mails_the_end_forgets_who_was_told(cluster: Cluster) -> None:
    step("mail")
    cluster.told.clear()
    assert end(sender="")["changed"] is False
    assert cluster.told == []
    assert not Path(slurm_maintenance.RECORD).exists()


def test_a_maintenance_that_is_over_leaves_no_mail_behind(cluster: Cluster) -> None:
    past = {"window": [1, 2], "nodes": "ALL", "users": {"alice": "x"}}
    Path(slurm_maintenance.RECORD).write_text(json.dumps(past))
    cluster.jobs.clear()
    assert step("mail")["sent"] == []
    assert end()["sent"] == []
    assert not Path(slurm_maintenance.RECORD).exists()


def test_the_mailer_gets_the_mail_and_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mailer = tmp_path / "mailer"
    mailer.write_text(
        f'#!/bin/sh\ncat >{tmp_path}/mail\necho "$HOME" >{tmp_path}/home\necho "no route" >&2\nexit "$1"\n'
    )
    mailer.chmod(0o755)
    assert slurm_maintenance.run_mailer([str(mailer), "0"], b"To: a\n\ntext\n") == ""
    assert (tmp_path / "mail").read_bytes() == b"To: a\n\ntext\n"
    assert (tmp_path / "home").read_text() == "\n"
    assert slurm_maintenance.run_mailer([str(mailer), "75"], b"") == "no route"
    assert slurm_maintenance.run_mailer(["false"], b"") == "exit status 1"
    assert slurm_maintenance.run_mailer([f"{tmp_path}/none"], b"").endswith("/none: No such file or directory")
    monkeypatch.setattr(slurm_maintenance, "MAIL_SECONDS", 0.1)
    assert slurm_maintenance.run_mailer(["sleep", "60"], b"") == "no answer in 0.1 s"
