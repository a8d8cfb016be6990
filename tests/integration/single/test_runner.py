# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs from programs on a cluster (docs/admin/runner.md): each playbook's result, the program there, a pipe."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import ansible_runner
import jsonschema
import pytest
import yaml
from lab import RESULT_SCHEMA, ROOT, Lab, with_cluster

BIN = Path(sys.executable).parent
PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))
SITE = "gpucluster.slurm.site"


def data_directory(lab: Lab, path: Path) -> Path:
    """A private data directory whose cluster is that of the lab."""
    names = ("ANSIBLE_CONFIG", "ANSIBLE_SSH_COMMON_ARGS")
    variables = {name: lab.environment[name] for name in names}
    variables |= {
        "ANSIBLE_INVENTORY": str(lab.inventory),
        "ANSIBLE_STDOUT_CALLBACK": "gpucluster.slurm.progress",
        "ANSIBLE_NOCOLOR": "1",
    }
    (path / "env").mkdir(parents=True)
    (path / "project").mkdir()
    (path / "env/envvars").write_text(yaml.safe_dump(variables))
    (path / "env/settings").write_text(yaml.safe_dump({"pexpect_timeout": 1}))
    return path


def result_of(artifacts: Path) -> dict[str, Any]:
    """The result among the artifacts of a run."""
    content = json.loads((artifacts / "slurm_result.json").read_text())
    jsonschema.validate(content, RESULT_SCHEMA)
    return dict(content["slurm_result"])


def start(data: Path, *options: str) -> subprocess.Popen[str]:
    """The program of the documentation, as somebody starts it."""
    command = [sys.executable, str(ROOT / "runner/run.py"), str(data), SITE, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.rare  # minutes; each run of each scenario is compared with the schema
@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_each_playbook_has_a_result(lab: Lab, playbook: str) -> None:
    """Without the options that some of them require, and in check mode. Lab.playbook compares it with the schema."""
    run = lab.playbook(playbook, "--check")
    result = run.result
    print(playbook, run.rc, result["state"], [failure["message"] for failure in result["failed"]])
    assert (result["playbook"], result["check"], result["ended"]) == (playbook, True, True)
    assert result["state"] in (("failed before a change",) if run.rc else ("ok", "changed"))
    assert bool(result["failed"]) == bool(run.rc)
    assert result["progress"]["percent"] == 100 or run.rc


def test_the_program_of_the_documentation(lab: Lab, tmp_path: Path) -> None:
    process = start(data_directory(lab, tmp_path / "data"))
    output, _none = process.communicate(timeout=600)
    assert process.returncode == 0, output
    percents = [int(number) for number in re.findall(r"^ *(\d+) %", output, re.MULTILINE)]
    assert percents == sorted(percents)
    assert len(percents) > 3
    assert output.splitlines()[-2:] == ["site: ok", "ansible-runner: successful"]


@pytest.mark.rare  # scenario default cancels runs
def test_the_program_ends_a_run(lab: Lab, tmp_path: Path) -> None:
    """The next run gets the run lock of the one that has ended."""
    data = data_directory(lab, tmp_path / "data")
    process = start(data)
    assert process.stdout is not None
    for line in process.stdout:
        if "Gather facts" in line or "Plan" in line:
            break
    process.send_signal(signal.SIGINT)
    rest, _none = process.communicate(timeout=120)
    assert process.returncode == 1
    assert rest.splitlines()[-1] == "ansible-runner: canceled"
    (artifacts,) = (data / "artifacts").iterdir()
    result = result_of(artifacts)
    assert (result["ended"], result["changes"]) == (False, [])
    assert 0 < result["progress"]["percent"] < 100
    again = lab.playbook("site", "--skip-tags=validate")
    assert (again.rc, again.result["state"]) == (0, "ok")


@pytest.mark.rare  # test_config.py has the same way back
def test_a_change_that_slurmctld_does_not_survive_is_put_back(lab: Lab, tmp_path: Path) -> None:
    """Only the real slurmctld finds that the directory is missing (test_config.py)."""
    cluster = {**lab.cluster, "slurm_conf": {"JobCompType": "jobcomp/filetxt", "JobCompLoc": "/nowhere/log"}}
    run = with_cluster(lab, tmp_path, cluster).playbook("site", "--skip-tags=validate")
    assert run.rc != 0
    print(json.dumps(run.result, indent=1))
    assert (run.result["state"], run.result["changes"]) == ("failed and put back", [])
    assert run.result["failed"][0]["host"] == "single"
    again = lab.playbook("site", "--skip-tags=validate")
    assert (again.rc, again.result["state"]) == (0, "ok")


@pytest.mark.rare  # two runs; unit tests have the same with small playbooks
def test_two_clusters_in_one_process(lab: Lab, tmp_path: Path) -> None:
    """The same host stands in for the second cluster, in check mode and with another policy of jobs."""
    other = with_cluster(lab, tmp_path, {**lab.cluster, "slurm_conf": {"KillWait": 77}})
    started = [
        ansible_runner.run_async(
            private_data_dir=str(data_directory(each, tmp_path / name)), playbook=SITE, cmdline="--check", quiet=True
        )
        for each, name in ((lab, "first"), (other, "second"))
    ]
    for thread, _run in started:
        thread.join(600)
    first, second = (result_of(Path(run.config.artifact_dir)) for _thread, run in started)
    assert (first["state"], second["state"]) == ("ok", "changed"), (first, second)
    assert [change["hosts"] for change in second["changes"]] == [["single"]] * len(second["changes"])


@pytest.mark.rare  # as above
def test_through_a_pipe(lab: Lab, tmp_path: Path) -> None:
    data, runner = data_directory(lab, tmp_path / "data"), BIN / "ansible-runner"
    command = (
        f"{runner} transmit {data} --playbook {SITE} --ident 1 --cmdline=--check | "
        f"{runner} worker --private-data-dir {tmp_path}/worker | {runner} process {tmp_path}/here --ident 1"
    )
    shell = ["bash", "-o", "pipefail", "-c", command]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    result = result_of(tmp_path / "here/artifacts/1")
    assert (result["state"], result["check"], result["progress"]["percent"]) == ("ok", True, 100)
