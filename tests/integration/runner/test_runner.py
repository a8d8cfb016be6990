# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks through ansible-runner's Python API, as a service or a web interface would run them.

The tests are one story and run in this order. They begin on bare hosts (`make runner` makes them): site.yml is killed
at three points on its way, and the next run finishes what was left.
"""

from __future__ import annotations

import base64
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner
import pytest

ROOT = Path(__file__).parents[3]
RUNNER = ROOT / "runner"
CLUSTER = ROOT / "inventory/demo/demo.cluster.yml"
SITE, VALIDATE = "gpucluster.slurm.site", "gpucluster.slurm.validate"


@dataclass
class Progress:
    """What a caller sees of a run while it goes on, from the events; optionally the one who ends it.

    plays: how many plays the playbook has. cancel_in: the play that ends the run when its first task begins.
    """

    plays: int
    cancel_in: str = ""
    percent: list[int] = field(default_factory=list)
    play: str = ""
    cancelled: bool = False

    def event(self, event: dict[str, Any]) -> bool:
        """Take in one event. True: keep it among the artifacts."""
        if event["event"] == "playbook_on_play_start":
            self.play = event["event_data"]["name"]
            self.percent.append(100 * (len(self.percent) + 1) // self.plays)
        elif event["event"] == "playbook_on_task_start":
            self.cancelled |= self.play == self.cancel_in
        return True

    def cancel(self) -> bool:
        """Tell whether the run is to end: from that task on, for ansible-runner asks now and then only."""
        return self.cancelled


def play_names(playbook: str) -> list[str]:
    """Return the names of a playbook's plays, in order."""
    listing = subprocess.run(
        ["ansible-playbook", playbook, "--inventory", CLUSTER, "--list-tasks"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = (line.strip() for line in listing.splitlines())
    return [line.partition("): ")[2].partition("\t")[0] for line in lines if line.startswith("play #")]


def run(playbook: str, progress: Progress) -> ansible_runner.Runner:
    """Run a playbook on the hosts of the private data directory, followed by `progress`."""
    return ansible_runner.run(
        private_data_dir=str(RUNNER),
        playbook=playbook,
        event_handler=progress.event,
        cancel_callback=progress.cancel,
        rotate_artifacts=20,
    )


def output(runner: ansible_runner.Runner) -> str:
    """Return the end of what Ansible printed, for the message of a failed test."""
    with runner.stdout as stdout:
        return str(stdout.read()[-4000:])


@pytest.fixture(scope="module")
def plays() -> list[str]:
    return play_names(SITE)


@pytest.mark.parametrize("stage", ["What every host needs", "MariaDB and slurmdbd", "Controllers"])
def test_a_run_can_be_cancelled(plays: list[str], stage: str) -> None:
    assert stage in plays
    progress = Progress(len(plays), cancel_in=stage)
    cancelled = run(SITE, progress)
    assert cancelled.status == "canceled", output(cancelled)
    assert plays.index(progress.play) < len(plays) - 1, "the run was cancelled on its way"


def test_the_next_run_finishes_what_was_left(plays: list[str]) -> None:
    progress = Progress(len(plays))
    finished = run(SITE, progress)
    assert (finished.status, finished.rc) == ("successful", 0), output(finished)
    assert finished.stats["changed"], "a run that was cancelled leaves something to do"
    assert progress.percent == sorted(progress.percent)
    assert progress.percent[-1] == 100


def test_then_nothing_is_left_to_change(plays: list[str]) -> None:
    again = run(SITE, Progress(len(plays)))
    assert (again.status, again.rc) == ("successful", 0), output(again)
    assert again.stats["changed"] == {}, output(again)


def test_the_validation_reaches_the_caller() -> None:
    validated = run(VALIDATE, Progress(len(play_names(VALIDATE))))
    assert (validated.status, validated.rc) == ("successful", 0), output(validated)
    (stats,) = [event for event in validated.events if event["event"] == "playbook_on_stats"]
    validation = stats["event_data"]["artifact_data"]["slurm_validation"]
    assert validation["ok"] is True
    assert validation["failed"] == 0
    assert validation["passed"] > 0
    assert validation["jobs"]


def test_no_secret_is_in_the_artifacts() -> None:
    secrets = [path.read_bytes().strip() for path in (CLUSTER.parent / "secrets").rglob("*") if path.is_file()]
    assert secrets, "site.yml makes the secrets beside the cluster file"
    secrets += [base64.b64encode(secret) for secret in secrets]
    for path in (RUNNER / "artifacts").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(secret in content for secret in secrets), f"{path} holds a secret"
