# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each run of ansible-playbook in README.md, docs/admin and docs/recipes, as it stands, from bare hosts to the end.

Those of docs/admin/adopt.md are in scenario adopt, those of images.md in scenario image, those with which a cluster
begins (docs/admin/getting-started.md) in scenario first, and measurements (accept) need equal links and disks. The
tests depend on each other and run in this order. A reboot is as in reboots.py, and the kernel's package is empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml
from documents import DOCUMENTS, commands, run_as_typed
from lab import Lab
from reboots import power, write_stand_ins

NODES = ("gpu01", "gpu02", "gpu03", "gpu04")

ORDER = (
    *("new", "site", "discover", "doctor", "validate", "report", "warm_up", "backup", "restore", "upgrade"),
    *("maintenance", "rolling", "rotate_keys", "remove_nodes", "reset"),
)
"""The playbooks, as an administrator comes to them."""

KERNEL = """
cd "$(mktemp -d)"
mkdir -p kernel/DEBIAN
printf '%s\\n' 'Package: linux-image-amd64' 'Version: 99' 'Architecture: amd64' 'Maintainer: lab' 'Description: none' \\
  >kernel/DEBIAN/control
dpkg-deb --build kernel kernel.deb
dpkg --install kernel.deb
"""
"""Installs a stand-in for the kernel's package, newer than any."""


def playbook(command: str) -> str:
    """The short name of the playbook that a command runs."""
    return command.split()[1].removeprefix("gpucluster.slurm.")


BEGIN = [
    command
    for command in commands("docs/admin/getting-started.md")
    if playbook(command) == "new" or "one.cluster.yml" in command
]
ELSEWHERE = (*commands("docs/admin/adopt.md", "docs/admin/images.md"), *BEGIN)
STORY = sorted(
    (
        command
        for command in commands(*DOCUMENTS)
        if command not in ELSEWHERE and playbook(command) not in ("accept", "image")
    ),
    key=lambda command: ORDER.index(playbook(command)),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the administrator."""
    return tmp_path_factory.mktemp("administrator")


def with_time_to_come(command: str) -> str:
    """A command, with a start of the maintenance that is not past when the tests run."""
    start = f"{datetime.now() + timedelta(days=30):%Y-%m-%dT08:00}"
    return re.sub(r"(?<=maintenance_start=)\S+", start, command)


def grow(_lab: Lab, directory: Path) -> None:
    """Add two nodes to the cluster, and what the other commands are about."""
    file = directory / "my.cluster.yml"
    cluster = yaml.safe_load(file.read_text())
    (first, *_others) = cluster["nodes"]
    cluster["nodes"].append({**first, "hosts": "gpu[03-04]", "address": "10.213.7.[203-204]"})
    cluster["storage"] = [{"path": "/srv/scratch", "type": "tmpfs", "hosts": "compute"}]
    cluster["prologs"] = [{"name": "images", "script": "#!/bin/sh\nexit 0\n"}]
    cluster["backup"] = {"target": "/srv/backup"}
    file.write_text(yaml.safe_dump(cluster))


def make_ready_for_reboots(lab: Lab, directory: Path) -> None:
    """Give the nodes a kernel, and the stand-ins of reboots.py."""
    for node in NODES:
        lab.script(node, "sh -es", KERNEL.encode())
        write_stand_ins(Lab(lab.scenario, directory / "my.cluster.yml"), node)


def lose_the_state(lab: Lab, _directory: Path) -> None:
    """Lose the jobs of slurmctld, which the backup has."""
    lab.command("head", "systemctl stop slurmctld; rm -r /var/lib/slurm/slurmctld/*")


BEFORE: dict[str, Callable[[Lab, Path], None]] = {
    "site": grow,
    "restore": lose_the_state,
    "rolling": make_ready_for_reboots,
}
"""What happens before the first command of a playbook."""


def test_the_documents_have_commands() -> None:
    assert {*map(playbook, STORY)} == {*ORDER}


@pytest.mark.parametrize("command", STORY)
def test_a_command_of_the_documents_runs_as_it_stands(lab: Lab, directory: Path, command: str) -> None:
    name = playbook(command)
    first = next(other for other in STORY if playbook(other) == name)
    if command == first and name in BEFORE:
        BEFORE[name](lab, directory)
    with power(*NODES) as booted:
        output = run_as_typed(lab, with_time_to_come(command), directory)
    assert "[ERROR]" not in output
    assert sorted(booted) == (sorted(NODES) if "rolling_reboot" in command else [])
