# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From bare hosts to a cluster, through ansible-runner's Python API, as a service or a web interface would do it.

The tests depend on each other and run in this order, before all others of the scenario: check mode, then site.yml is
killed at three points, the next run completes the work, and the run after that changes nothing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner
import pytest
from lab import ROOT, Lab, with_cluster
from new_keys import CASES, VARIABLES
from secret_search import Processes, forms

RUNNER = ROOT / "runner"
SITE = "gpucluster.slurm.site"


TASKS = 46
"""Number of tasks in a run of site.yml on this cluster, counted on all hosts, skipped tasks included."""

ON_THE_HEAD = [
    "Gather facts",
    "Acquire the run lock",
    "Read accounts, databases and settings",
    "Make the database and its user",
    "Apply the policy",
    "Release the run lock",
]
"""Remote tasks of the head, with the controller and the database, in a run that has nothing to do."""

ON_THE_CONTROL_HOST = {
    f"ansible.builtin.{name}"
    for name in (
        *("add_host", "assert", "debug", "group_by", "include_role", "include_tasks", "set_fact"),
        "validate_argument_spec",
    )
}
"""Actions that run on the control host, without a connection to the host of the task."""


@dataclass
class Progress:
    """The progress of a run as a caller sees it from the events; it can also cancel the run.

    plays: number of plays in the playbook. cancel_in: the play whose first task cancels the run. before: a function
    that is called before the run is cancelled.
    """

    plays: int
    cancel_in: str = ""
    before: Callable[[], None] = lambda: None
    percent: list[int] = field(default_factory=list)
    play: str = ""
    cancelled: bool = False

    def event(self, event: dict[str, Any]) -> bool:
        """Handle one event. Returns true, so that ansible-runner keeps it among the artifacts."""
        if event["event"] == "playbook_on_play_start":
            self.play = event["event_data"]["name"]
            self.percent.append(100 * (len(self.percent) + 1) // self.plays)
        elif event["event"] == "playbook_on_task_start" and self.play == self.cancel_in and not self.cancelled:
            self.before()
            self.cancelled = True
        return True

    def cancel(self) -> bool:
        """Whether the run has to end. It stays true after that task, since ansible-runner asks only now and then."""
        return self.cancelled


def play_names(lab: Lab) -> list[str]:
    """Return the names of the plays of site.yml, in order."""
    listing = subprocess.run(
        ["ansible-playbook", SITE, "--inventory", lab.inventory, "--list-tasks"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = (line.strip() for line in listing.splitlines())
    return [line.partition("): ")[2].partition("\t")[0] for line in lines if line.startswith("play #")]


def run(progress: Progress) -> ansible_runner.Runner:
    """Run site.yml on the hosts of the private data directory, and pass its events to `progress`."""
    return ansible_runner.run(
        private_data_dir=str(RUNNER),
        playbook=SITE,
        event_handler=progress.event,
        cancel_callback=progress.cancel,
        rotate_artifacts=20,
    )


def output(runner: ansible_runner.Runner) -> str:
    """Return the output of Ansible."""
    with runner.stdout as stdout:
        return str(stdout.read())


def failures(runner: ansible_runner.Runner) -> str:
    """What failed, each on one line, before the end of the output: pytest's summary shows the first line only."""
    lines = []
    for event in runner.events:
        if event["event"] in ("runner_on_failed", "runner_on_unreachable"):
            data = event["event_data"]
            lines.append(f"{data['host']}: {data['task']}: {data['res'].get('msg', data['res'])}".replace("\n", " | "))
    return "\n".join([" || ".join(lines), output(runner)[-4000:]])


def interrupt_dpkg(lab: Lab) -> None:
    """Kill the installation of packages on one host while it runs."""
    lab.wait_for("compute02", "pkill -KILL -x dpkg && echo killed", "killed")
    lab.host("compute02").run("pkill -KILL -x apt-get")


def secrets_of(lab: Lab) -> list[bytes]:
    """The secrets that site.yml has made next to the cluster file."""
    secrets = [path.read_bytes() for path in (lab.inventory.parent / "secrets").rglob("*") if path.is_file()]
    assert secrets
    return secrets


@pytest.fixture(scope="module")
def plays(lab: Lab) -> list[str]:
    assert lab.host("head").run("dpkg-query --show slurmctld").rc != 0, (
        "The story begins on bare hosts: molecule destroy -s default; molecule create -s default"
    )
    return play_names(lab)


@pytest.mark.parametrize("keys", CASES)
@pytest.mark.usefixtures("plays")
def test_a_check_of_bare_hosts(lab: Lab, tmp_path: Path, keys: dict[str, Any]) -> None:
    checked = with_cluster(lab, tmp_path, {**lab.cluster, **keys}, **VARIABLES)
    run = checked.playbook("site", "--check", "--diff")
    assert (run.rc, run.failed) == (0, {})
    assert lab.host("head").run("dpkg-query --show slurmctld").rc != 0


@pytest.mark.parametrize("stage", ["Host preparation", "MariaDB and slurmdbd", "Controllers"])
def test_a_run_can_be_cancelled(lab: Lab, plays: list[str], stage: str) -> None:
    assert stage in plays
    progress = Progress(len(plays), stage)
    if stage == "Host preparation":
        progress.before = lambda: interrupt_dpkg(lab)
    cancelled = run(progress)
    assert cancelled.status == "canceled", failures(cancelled)
    assert plays.index(progress.play) < len(plays) - 1, "the run was cancelled on its way"


def test_the_next_run_finishes_what_was_left(lab: Lab, plays: list[str]) -> None:
    progress = Progress(len(plays))
    with Processes() as processes:
        finished = run(progress)
    assert (finished.status, finished.rc) == ("successful", 0), failures(finished)
    assert finished.stats["changed"], "a run that was cancelled leaves something to do"
    assert progress.percent == sorted(progress.percent)
    assert progress.percent[-1] == 100

    (stats,) = [event for event in finished.events if event["event"] == "playbook_on_stats"]
    validation = stats["event_data"]["artifact_data"]["slurm_validation"]
    assert validation["ok"] is True
    assert validation["failed"] == 0
    assert validation["passed"] > 0
    assert validation["jobs"]
    assert processes.with_any(forms(*secrets_of(lab))) == []


@pytest.fixture(name="again", scope="module")
def run_of_a_converged_cluster(plays: list[str]) -> ansible_runner.Runner:
    return run(Progress(len(plays)))


def test_then_nothing_is_left_to_change_or_to_warn_of(again: ansible_runner.Runner) -> None:
    said = output(again)
    assert (again.status, again.rc) == ("successful", 0), failures(again)
    assert again.stats["changed"] == {}, said[-4000:]
    assert [line for line in said.splitlines() if "WARNING]" in line] == []


def test_a_converged_run_has_few_tasks(again: ansible_runner.Runner) -> None:
    """The counts do not depend on the speed of the machine, so they show when a stage adds work to each run."""
    events = [event for event in again.events if "task_action" in event.get("event_data", {})]
    actions = [event["event_data"]["task_action"] for event in events if event["event"] == "playbook_on_task_start"]
    assert len([action for action in actions if action != "ansible.builtin.meta"]) <= TASKS
    ran: dict[str, list[str]] = {"compute02": [], "head": []}
    for event in events:
        data = event["event_data"]
        if event["event"] == "runner_on_ok" and data["host"] in ran and data["task_action"] not in ON_THE_CONTROL_HOST:
            ran[data["host"]].append(data["task"])
    assert ran["compute02"] == ["Gather facts"]
    assert ran["head"] == ON_THE_HEAD


def test_no_secret_is_in_the_artifacts(lab: Lab) -> None:
    searched = forms(*secrets_of(lab))
    for path in (RUNNER / "artifacts").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(form in content for form in searched), f"{path} holds a secret"
