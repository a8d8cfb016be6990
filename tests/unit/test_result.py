# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a run for programs, in real runs through ansible-playbook and ansible-runner (docs/admin/runner.md)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import ansible_runner
import jsonschema
import pytest
import yaml
from test_progress import BIN, CALLBACK, LINES, ROOT, STORY, Runs, same

SCHEMA = json.loads((ROOT / "runner/result.schema.json").read_text())
WAIT = [{"name": "Wait", "hosts": "all", "tasks": [{"name": "Wait", "ansible.builtin.command": "sleep 120"}]}]
TURN = {"name": "Turn", "hosts": "all", "tasks": [{"name": "Change", "ansible.builtin.command": "true"}]}
STOP = next(play for play in STORY if play["name"] == "Fatal")
GIVE = {"ansible.builtin.set_stats": {"data": {"slurm_removal": {"not_cleaned": ["h2"]}}}, "run_once": True}


def checked(content: dict[str, Any]) -> dict[str, Any]:
    """The result of a run in a valid structure."""
    jsonschema.validate(content, SCHEMA)
    return dict(content["slurm_result"])


def directory(path: Path, plays: list[dict[str, Any]]) -> Path:
    """A private data directory with a playbook and hosts that are this machine."""
    path.mkdir(exist_ok=True)
    runs = Runs(path / "project")
    runs.write(plays)
    (path / "inventory").mkdir()
    (runs.directory / "hosts.yml").rename(path / "inventory/hosts.yml")
    (path / "env").mkdir()
    variables = {name: value for name, value in runs.environment().items() if name.startswith("ANSIBLE_")}
    variables |= {"ANSIBLE_STDOUT_CALLBACK": CALLBACK, "ANSIBLE_NOCOLOR": "1"}
    (path / "env/envvars").write_text(yaml.safe_dump(variables))
    (path / "env/settings").write_text(yaml.safe_dump({"pexpect_timeout": 1}))
    return path


def file_of(run: ansible_runner.Runner) -> dict[str, Any]:
    """The file among the artifacts."""
    return dict(json.loads(Path(run.config.artifact_dir, "slurm_result.json").read_text()))


@pytest.fixture(name="story", scope="module")
def run_of_the_story(tmp_path_factory: pytest.TempPathFactory) -> ansible_runner.Runner:
    """All that can happen, through ansible-runner. It takes as long as ten short runs."""
    data = directory(tmp_path_factory.mktemp("story"), STORY)
    return ansible_runner.run(private_data_dir=str(data), playbook="play.yml", quiet=True)


@pytest.mark.once
def test_a_file_with_any_output(tmp_path: Path) -> None:
    runs, file = Runs(tmp_path / "runs"), tmp_path / "result.json"
    environment = {"GPUCLUSTER_SLURM_RESULT": str(file)}
    plays = [TURN, STOP]
    plain = runs.run(plays, ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default")
    run = runs.run(plays, ANSIBLE_STDOUT_CALLBACK="ansible.builtin.default", **environment)
    assert sorted(run.stdout.splitlines()) == sorted(plain.stdout.splitlines())  # hosts are in any order
    assert run.stderr == plain.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    result = checked(json.loads(file.read_text()))
    assert (result["playbook"], result["state"], result["ended"]) == ("play", "to be repaired by the next run", True)
    assert result["hosts"] == {"h1": "failed", "h2": "changed", "h3": "changed"}


def test_what_a_file_says_of_all_that_can_happen(story: ansible_runner.Runner) -> None:
    content = file_of(story)
    result = checked(content)
    assert (result["playbook"], result["state"], result["ended"]) == ("play", "to be repaired by the next run", True)
    assert result["hosts"] == {"h1": "failed", "h2": "failed", "h3": "unreachable"}
    assert [(each["stage"], each["host"], each["task"]) for each in result["failed"]] == [
        ("Free", "h2", "Try again"),
        ("Away", "h3", "Reach"),
        ("Fatal", "h1", "Stop"),
    ]
    assert [each["stage"] for each in result["changes"]] == ["First", "Handlers"]
    assert result["progress"]["stages"] == [play["name"] for play in STORY]
    assert "geheim" not in json.dumps(content)


@pytest.mark.once
@pytest.mark.parametrize(("argument", "state"), [("--check", "ok"), ("--diff", "changed")])
def test_a_run_without_failures(tmp_path: Path, argument: str, state: str) -> None:
    """A command is skipped in check mode."""
    file = tmp_path / "result.json"
    run = Runs(tmp_path / "runs").run(
        [{**TURN, "tasks": [*TURN["tasks"], GIVE]}], argument, GPUCLUSTER_SLURM_RESULT=str(file)
    )
    assert run.returncode == 0, run.stdout
    content = json.loads(file.read_text())
    result = checked(content)
    assert (result["state"], result["check"], result["progress"]["percent"]) == (state, argument == "--check", 100)
    assert content["slurm_removal"] == {"not_cleaned": ["h2"]}
    assert result["waiting"] == [{"what": "h2", "why": "Removed, and not cleaned"}]


def test_a_playbook_that_does_not_begin_writes_no_file(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    run = Runs(tmp_path / "runs").run([{"name": "No", "hosts": "all", "task": []}], GPUCLUSTER_SLURM_RESULT=str(file))
    assert run.returncode == 4, run.stderr
    assert not file.exists()


@pytest.mark.once
def test_a_file_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    run = Runs(tmp_path / "runs").run([TURN], GPUCLUSTER_SLURM_RESULT=str(tmp_path / "none/result.json"))
    assert run.returncode == 0, run.stderr
    assert "gpucluster.slurm.result" in run.stderr
    assert "Changed 3 of 3 hosts" in run.stdout


def test_artifacts_are_the_file(story: ansible_runner.Runner) -> None:
    """AWX stores artifact_data of this event. A second callback is too late for it."""
    (event,) = [event for event in story.events if event["event"] == "playbook_on_stats"]
    artifacts, file = event["event_data"]["artifact_data"], file_of(story)
    for content in (artifacts, file):
        assert checked(content).pop("seconds") >= 0
        del content["slurm_result"]["seconds"]
    assert artifacts == file


def test_ansible_runner_has_its_events_and_the_same_lines(story: ansible_runner.Runner) -> None:
    """Those of test_progress.py."""
    events = Counter(event["event"] for event in story.events)
    assert events["playbook_on_play_start"] == 9
    assert events["runner_on_failed"] == 14
    assert events["runner_on_unreachable"] == events["playbook_on_stats"] == 1
    assert story.status == "failed"
    with story.stdout as file:
        output = file.read()
    assert same(output).split("\n")[-6:-1] == LINES.split("\n")[-6:-1]
    assert {line for line in same(output).split("\n") if line.startswith("changed")} == {
        "changed TIME 3 of 3 First: h[1-3]",
        "changed TIME 2 of 2 Handlers: h1",
    }


@pytest.mark.once
def test_two_runs_of_one_process_and_the_end_of_one(tmp_path: Path) -> None:
    paths = [directory(tmp_path / name, plays) for name, plays in (("a", [TURN, *WAIT]), ("b", [TURN]))]
    cancel: list[str] = []
    threads = [
        ansible_runner.run_async(
            private_data_dir=str(path), playbook="play.yml", cancel_callback=lambda: bool(cancel), quiet=True
        )
        for path in paths
    ]
    (slow, waits), (quick, changes) = threads
    quick.join(120)
    assert (changes.status, checked(file_of(changes))["state"]) == ("successful", "changed")
    until = time.monotonic() + 60
    while file_of(waits)["slurm_result"]["progress"]["stage"] != "Wait" and time.monotonic() < until:
        time.sleep(0.2)
    cancel.append("a")
    slow.join(60)
    result = checked(file_of(waits))
    assert (waits.status, result["state"], result["ended"]) == ("canceled", "to be repaired by the next run", False)
    assert result["progress"] == {"percent": 50, "stage": "Wait", "stages": ["Turn", "Wait"]}


@pytest.mark.once
def test_through_a_pipe(tmp_path: Path) -> None:
    here, there = directory(tmp_path / "here", [TURN]), tmp_path / "there"
    runner = BIN / "ansible-runner"
    command = (
        f"{runner} transmit {here} --playbook play.yml --ident 1 | "
        f"{runner} worker --private-data-dir {tmp_path}/worker | "
        f"{runner} process {there} --ident 1"
    )
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert checked(json.loads((there / "artifacts/1/slurm_result.json").read_text()))["state"] == "changed"
    events = [json.loads(path.read_text()) for path in (there / "artifacts/1/job_events").glob("*.json")]
    (stats,) = [event for event in events if event["event"] == "playbook_on_stats"]
    assert checked(stats["event_data"]["artifact_data"])["state"] == "changed"


@pytest.mark.once
def test_the_program_of_the_documentation(tmp_path: Path) -> None:
    """Scenario single runs it on a cluster, and cancels it."""
    program = str(ROOT / "runner/run.py")
    command = [sys.executable, program, str(directory(tmp_path / "data", [TURN])), "play.yml", "--diff"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[-3:] == [
        "play: changed",
        "  changed h1, h2, h3: Turn",
        "ansible-runner: successful",
    ], done.stdout + done.stderr


def test_a_program_can_rely_on_every_key() -> None:
    result = SCHEMA["properties"]["slurm_result"]
    assert sorted(result["required"]) == sorted(result["properties"])
    page = (ROOT / "docs/admin/runner.md").read_text()
    assert [key for key in result["properties"] if f"`{key}`" not in page] == []
    assert [state for state in result["properties"]["state"]["enum"] if f"| `{state}` |" not in page] == []
