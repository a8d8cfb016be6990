# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Inventories that are no cluster file, each with the one reason, and not with what each plugin of Ansible says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.inventory_sources import (
    UNSET,
    explain,
    is_misnamed,
    is_of_collection,
)

ROOT = Path(__file__).parents[4]
CLUSTER = (ROOT / "inventory/guide/guide.cluster.yml").read_text()
CONFIGURATION = ROOT / "roles/new_cluster/files/ansible.cfg"


@pytest.fixture(name="here")
def a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "source", "reason"),
    [
        ({}, "my.cluster.yml", "my.cluster.yml: does not exist"),
        (
            {"lab.cluster.yml": CLUSTER},
            "lab.clutser.yml",
            "lab.clutser.yml: does not exist; did you mean lab.cluster.yml?",
        ),
        (
            {"lab.yml": CLUSTER},
            "lab.yml",
            "lab.yml: the name of a cluster file ends in cluster.yml: mv lab.yml lab.cluster.yml",
        ),
        (
            {"my.cluster.yml": ""},
            "my.cluster.yml",
            "my.cluster.yml: is empty; a cluster file begins with",
        ),
        (
            {"my.cluster.yml": "a: 1\n"},
            "my.cluster.yml",
            "my.cluster.yml: lacks the line plugin: gpucluster.slurm.cluster",
        ),
        (
            {"my.cluster.yml": "plugin: gpucluster.slurm\n"},
            "my.cluster.yml",
            "my.cluster.yml: plugin: found 'gpucluster.slurm', allowed: gpucluster.slurm.cluster",
        ),
        ({"x.cluster.yml": "a:\n\tb: 1\n"}, "x.cluster.yml", "x.cluster.yml: line 2: cannot be read as YAML: found"),
        ({"hosts.yml": "all: {hosts: {a: }}\n"}, "hosts.yml", "hosts.yml: has no host in the group slurm_cluster"),
        ({"d/people.csv": "x"}, "d", "d: a directory without a cluster file, whose name ends in cluster.yml"),
        (
            {},
            "gpu1,gpu2,",
            "-i gpu1,gpu2,: are names of hosts: only playbook new takes such",
        ),
    ],
)
def test_the_reason(here: Path, files: dict[str, str], source: str, reason: str) -> None:
    for name, text in files.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text)
    assert explain([source]).startswith(reason)


@pytest.mark.parametrize("sources", [[], [UNSET], [""]])
def test_without_an_inventory_the_file_that_is_there_is_named(here: Path, sources: list[str]) -> None:
    assert explain(sources) == "no inventory is given: name a cluster file, -i my.cluster.yml"
    (here / "lab.cluster.yml").touch()
    assert explain(sources) == "no inventory is given: name a cluster file, -i lab.cluster.yml"


def test_files_of_other_plugins_are_left_to_them(here: Path) -> None:
    assert not is_of_collection("plugin: kubernetes.core.k8s\n")
    assert not is_of_collection("all: {hosts: {a: }}\n")
    assert all(map(is_of_collection, ("", "- plugin: gpucluster.slurm.cluster\n", "controllers: head\n")))
    (here / "fifo.yml").symlink_to("/dev/zero")
    assert not is_misnamed(str(here / "fifo.yml"))


def inventory(directory: Path, *sources: str) -> subprocess.CompletedProcess[str]:
    """`ansible-inventory` with the configuration that playbook new writes."""
    command = [str(Path(sys.executable).with_name("ansible-inventory")), "--list"]
    return subprocess.run(
        [*command, *(f"--inventory={source}" for source in sources)],
        cwd=directory,
        env={**os.environ, "ANSIBLE_CONFIG": str(CONFIGURATION)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.once
def test_two_cluster_files_are_refused_and_one_that_is_named_twice_is_not(here: Path) -> None:
    for name in ("my.cluster.yml", "old.cluster.yml"):
        (here / name).write_text(CLUSTER)
    for sources in (["my.cluster.yml", "old.cluster.yml"], ["."]):
        found = inventory(here, *sources)
        assert (found.returncode, found.stderr.count("Two cluster files in one run")) == (4, 1), found.stderr
        assert f"{here}/my.cluster.yml and {here}/old.cluster.yml: name one" in found.stderr
    assert inventory(here, "my.cluster.yml", "my.cluster.yml").returncode == 0


def test_a_directory_has_the_cluster_file_and_files_of_ansible_whatever_else_is_there(here: Path) -> None:
    (here / "my.cluster.yml").write_text(CLUSTER)
    for name in ("hosts", "site.ini"):
        (here / name).write_text("[bastions]\nbastion1\n")
    (here / "my_inventory.yml").write_text("all: {hosts: {proxy1: }}\n")
    for name in (
        "people.csv",
        "people.yml",
        "report.users",
        "schedmd.asc",
        "files/a.pem",
        "monitoring/a.yml",
        "run.sh",
    ):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text("people: [{name: alice}]\n")
    (here / "my.baseline.yml").write_text("nodes: []\n")
    found = inventory(here, ".")
    assert (found.returncode, found.stderr) == (0, "")
    assert '"bastions"' in found.stdout
    assert '"proxy1"' in found.stdout
    assert '"people"' not in found.stdout.replace('"slurm_people"', "")
