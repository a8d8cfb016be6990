# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook new on stand-ins for hosts: its table, its cluster file, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, load
from jsonschema import Draft7Validator
from standing_hosts import Hosts, honest

SCHEMA = json.loads((Path(__file__).parents[2] / "roles/slurm/files/cluster.schema.json").read_text())


def bare(name: str, gpus: bool = True, stdout: str = "", **facts: Any) -> dict[str, Any]:
    """The answers of a host; stdout: of both commands, pgrep and hostname."""
    answers: dict[str, Any] = honest(name)
    answers["ping"] = {"ping": "pong"}
    answers["command"] = {"rc": 0, "stdout": stdout, "stderr": ""}
    found = answers["slurm_host_facts"]["ansible_facts"]
    found["slurm_host"] |= {"slurm_version": "", "free_mib": {"/var/lib": 50000, "/var/log": 60000}, **facts}
    if not gpus:
        found["slurm_hardware"] = {**found["slurm_hardware"], "gpus": []}
    return answers


class Bare(Hosts):
    """Hosts without a cluster file, in a plain inventory."""

    def __init__(self, directory: Path, hosts: dict[str, Any], unreachable: tuple[str, ...] = ()) -> None:
        super().__init__(directory, {}, hosts)
        (directory / "x.cluster.yml").unlink()
        self.file: Path = directory / "hosts.yml"
        variables = directory / "group_vars/slurm_cluster.yml"
        variables.rename(directory / "group_vars/all.yml")
        away = {
            name: {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1} for name in unreachable
        }
        # A real sudo that is not there.
        (directory / "host_vars").mkdir()
        become = {"ansible_become": True, "ansible_become_user": "nobody", "ansible_become_exe": "/nonexistent/sudo"}
        (directory / "host_vars/nosudo.yml").write_text(yaml.safe_dump(become))
        self.file.write_text(yaml.safe_dump({"some": {"hosts": {**{name: {} for name in hosts}, **away}}}))

    @property
    def written(self) -> Path:
        """The cluster file."""
        path: Path = self.directory / "x.cluster.yml"
        return path


def run(there: Bare, *choices: str) -> str:
    """Run the playbook; its exit status as `rc=N` is the last line."""
    words = [
        word
        for choice in ("new_cluster_name=x", f"new_cluster_dir={there.directory}", *choices)
        for word in ("-e", choice)
    ]
    done = there.run("gpucluster.slurm.new", *words)
    return f"{done.stdout}{done.stderr}\nrc={done.returncode}"


@pytest.mark.once
def test_a_host_without_a_process_of_slurm_has_no_error(tmp_path: Path) -> None:
    answers = bare("n1")
    answers["command"] |= {"rc": 1, "failed": True, "msg": "non-zero return code"}  # of pgrep, which finds none
    told = run(Bare(tmp_path / "site", {"n1": answers}))
    task = told.partition("Find processes of another Slurm")[2].partition("TASK [")[0]
    assert [part for part in ("ok: [n1]", "FAILED", "ERROR") if part in task] == ["ok: [n1]"], told


def test_a_cluster_file_from_hosts(tmp_path: Path) -> None:
    """Each kind of host in one run: those that can be used make a file that loads, the others are rows of the table."""
    away = {
        "slow": bare("slow"),
        "other": bare("other-name"),
        "rocky": bare("rocky", distribution="rocky 9.5"),
        "full": bare("full", free_mib={"/var/lib": 100, "/var/log": 60000}),
        "busy": bare(
            "busy",
            stdout="7 /usr/sbin/slurmd -D\n9 slurmstepd: [41.batch]\n10 slurmstepd: [41.0]\n11 slurmstepd: [42.0]",
            slurm_version="23.11.4",
        ),
        "nosudo": bare("nosudo"),
    }
    away["slow"]["slurm_host_facts"]["time"] += 400
    good = {
        "n1": bare("n1", stdout="10.0.0.1"),
        "head": bare("head", gpus=False, stdout="10.0.0.9", packages={"munge": "0.5.16-1"}),
        "n2": bare("n2.example.org", stdout="10.0.0.2"),
    }
    there = Bare(tmp_path / "site", {**good, **away}, unreachable=("gone",))
    told = run(there)
    assert told.endswith("rc=0"), told
    assert "[ERROR]" not in told, "a host that cannot answer is a row of the table, also without an ansible.cfg"
    row = {match[1]: " ".join(match[0].split()) for match in re.finditer(r'^\s*"?(\w+)  +(?:yes|no) .*$', told, re.M)}
    for name, words in {
        "n1": "compute node",
        "n2": "compute node",
        "head": "munge 0.5.16-1, stopped controller, database, login",
        "slow": "left out: its clock differs by ",
        "other": "left out: its host name is other-name: make both equal (hostnamectl set-hostname other)",
        "rocky": "left out: unknown platform rocky 9.5, allowed: debian 12, ",
        "full": "left out: 100 MiB are free in /var/lib, allowed: 1024 or more",
        "busy": "Slurm 23.11.4, runs slurmd, 2 jobs left out: belongs to another cluster (2 jobs run), which stays",
        "nosudo": "nosudo yes no - - - - - - - - - left out: no sudo: Premature end of stream",
        "gone": "left out: unreachable: ",
    }.items():
        assert words in row.get(name, ""), (name, told)
    text = there.written.read_text()
    cluster = yaml.safe_load(text)
    assert cluster["controllers"] == cluster["database"] == cluster["login"] == "head"
    (node,) = cluster["nodes"]
    assert (node["hosts"], node["address"]) == ("n[1-2]", "10.0.0.[1-2]")
    assert cluster["partitions"] == [
        {"name": "gpu", "nodes": "n[1-2]", "default": True, "DefaultTime": "01:00:00", "MaxTime": "7-00:00:00"}
    ]
    assert cluster["addresses"] == {"head": "10.0.0.9"}
    assert load(Document("x.cluster.yml", cluster)).groups["slurm_compute"] == ["n1", "n2"]
    assert [error.message for error in Draft7Validator(SCHEMA).iter_errors(cluster)] == []
    schema = text.partition("\n")[0].partition("$schema=")[2]
    assert json.loads(Path(schema).read_text()) == SCHEMA
    assert "# busy is left out: belongs to another cluster" in text
    assert not there.asked("n1", "slurm_packages")
    assert "secrets/" in (there.directory / ".gitignore").read_text()
    assert (there.directory / "ansible.cfg").read_text() == "", "it was there"
    # The file is never written again.
    there.written.write_text("mine")
    assert "exists already and is not overwritten" in run(there)
    assert there.written.read_text() == "mine"


@pytest.mark.once  # the tests above run the playbook with both
def test_wrong_choices_are_refused_before_any_host_is_reached(tmp_path: Path) -> None:
    there = Bare(tmp_path / "site", {"head": bare("head"), "n1": bare("n1")})
    told = " ".join(run(there, "new_cluster_controllers=heda", "new_cluster_logins=n1", "new_cluster_name=HPC").split())
    assert told.endswith("rc=2")
    for words in (
        "new_cluster_controllers: found 'heda', unknown host, did you mean 'head'? allowed: hosts of the inventory",
        "new_cluster_logins: unknown variable, did you mean 'new_cluster_login'? allowed: ",
        "new_cluster_name: found 'HPC', allowed: lower case letters",
    ):
        assert words in told, told
    assert not there.asked("head", "ping")


@pytest.mark.once  # the tests above run the playbook with both
def test_a_chosen_host_that_cannot_be_used_stops_the_run(tmp_path: Path) -> None:
    there = Bare(tmp_path / "site", {"head": bare("head", distribution="rocky 9.5"), "n1": bare("n1")})
    told = " ".join(run(there, "new_cluster_controllers=head").split())
    assert "new_cluster_controllers: head cannot be used: unknown platform rocky 9.5" in told
    assert told.endswith("rc=2")
    assert not there.written.exists()


@pytest.mark.once
def test_a_cluster_file_with_a_standby(tmp_path: Path) -> None:
    hosts = {
        name: bare(name, gpus=name == "n1", stdout=f"10.0.0.{place}") for place, name in enumerate(("a", "b", "n1"))
    }
    there = Bare(tmp_path / "site", hosts)
    assert "new_cluster_state_directory: missing" in run(there, "new_cluster_controllers=b,a")
    told = run(there, "new_cluster_controllers=b,a", "new_cluster_state_directory=/shared/slurm")
    assert told.endswith("rc=0"), told
    cluster = yaml.safe_load(there.written.read_text())
    assert cluster["slurm_conf"] == {"StateSaveLocation": "/shared/slurm"}
    assert load(Document("x.cluster.yml", cluster)).groups["slurm_controller"] == ["b", "a"]
