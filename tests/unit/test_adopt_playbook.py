# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last step of the playbook adopt: the cluster file that it writes is the one that was found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.survey import adopted
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values.defaults import CGROUP, SLURM, fixed

ROOT = Path(__file__).parents[2]

CONF = """ClusterName=Lab
SlurmctldHost=ctl(10.0.0.1)
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=db
AccountingStoragePass=very-secret
MailDomain={{lookup('pipe','touch${IFS}owned')}}
NodeName=n[1-4] CPUs=2 RealMemory=1000 Feature="a,b" Reason="it's odd: \\#1" Gres=gpu:a:1
NodeSet=s Feature=a
PartitionName=p Nodes=s Default=YES
"""
FILES = {
    "slurm.conf": CONF,
    "gres.conf": "Name=gpu Type=a File=/dev/nvidia0\n",
    "cgroup.conf": "ConstrainCores=yes\n",
    "plugstack.conf": "optional /opt/a.so x=1\n",
    "topology.conf": "# {{ no }} template: {% if %}\n  SwitchName=s Nodes=n[1-4]\t\n\nSwitchName=t Switches=s\n",
    "job_submit.lua": "\n-- begins empty, and ends without a newline",
}
POLICY = {"limits": {"MaxWall": "1-0"}, "accounts": [{"name": "a", "Description": "it's: {{ x }}"}], "qos": []}


def found() -> dict[str, Any]:
    """What the controller has answered, evaluated."""
    files = {"files": FILES, "version": "24.11.5", "user_id": 64030, "package": "slurmctld", "drift": []}
    hosts: dict[str, Any] = {"ctl": {"__adopt_files": files, "__adopt_accounting": {"policy": POLICY}}}
    values = {file: fixed(file) for file in (SLURM, CGROUP)}
    return adopted(hosts, ["ctl"], "ctl", values)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, Any]]:
    """The file, the output of the run, and what was to be written."""
    directory = tmp_path_factory.mktemp("adopt")
    result = found()
    # As a registered result, its texts are no templates.
    (directory / "found.json").write_text(json.dumps(result))
    read = f"{{{{ lookup('ansible.builtin.file', '{directory}/found.json') | from_json }}}}"
    play = {
        "hosts": "ctl",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.set_fact": {"__adopt_result": read}},
            {"ansible.builtin.import_role": {"name": "gpucluster.slurm.adopt", "tasks_from": "write"}},
        ],
    }
    (directory / "play.yml").write_text(yaml.safe_dump([play]))
    variables = {"adopt_dir": str(directory), "ansible_python_interpreter": sys.executable}
    inventory = {"slurm_adopt_controller": {"hosts": {"ctl": variables}}}
    (directory / "hosts.yml").write_text(yaml.safe_dump(inventory))
    done = subprocess.run(
        ["ansible-playbook", "play.yml", "-i", "hosts.yml", "--diff"],
        cwd=directory,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return directory / "lab.cluster.yml", f"{done.stdout}{done.stderr}rc={done.returncode}", result


def test_the_file_means_what_was_found(written: tuple[Path, str, dict[str, Any]]) -> None:
    file, output, result = written
    assert output.endswith("rc=0"), output
    assert result["errors"] == []
    data = yaml.safe_load(file.read_text())
    assert data == result["cluster"]
    load(Document("lab.cluster.yml", data))
    assert data["slurm_files"] == {name: FILES[name] for name in ("topology.conf", "job_submit.lua")}
    assert not (file.parent / "owned").exists()


def test_a_secret_is_in_the_file_alone(written: tuple[Path, str, dict[str, Any]]) -> None:
    file, output, _result = written
    assert "very-secret" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert "very-secret" not in output


def test_a_person_sees_what_there_is_to_decide(written: tuple[Path, str, dict[str, Any]]) -> None:
    text = written[0].read_text()
    assert "  EnforcePartLimits: null # recommended: ALL\n" in text
    assert "  ConstrainDevices: null # recommended: True\n" in text
    assert 'unmanaged: "n[1-4]"\n' in text
    assert "# slurm.conf:3: AccountingStorageType: kept: slurmdbd and its database stay as they are" in text
