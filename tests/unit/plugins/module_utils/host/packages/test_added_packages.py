# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages a host has because of this collection."""

from __future__ import annotations

import getpass
from functools import partial
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import File
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.packages import added_packages


@pytest.fixture(autouse=True)
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record is a file of the test's user."""
    monkeypatch.setattr(added_packages, "RECORD", str(tmp_path / "packages.json"))
    monkeypatch.setattr(added_packages, "File", partial(File, owner=getpass.getuser()))
    return tmp_path / "packages.json"


def test_what_came_along_is_recorded_and_what_was_there_is_not() -> None:
    added_packages.begin(["bash", "python3"])
    added_packages.end(["bash", "python3", "slurmd", "libslurm42"], ["slurmd"])
    added_packages.begin(["bash", "python3", "slurmd", "libslurm42", "htop"])
    added_packages.end(["bash", "python3", "slurmd", "libslurm42", "htop", "nftables"], [])
    assert added_packages.read_record() == {"added": ["libslurm42", "nftables", "slurmd"], "held": ["slurmd"]}


def test_a_killed_installation_counts_from_its_beginning() -> None:
    added_packages.begin(["bash"])
    added_packages.begin(["bash", "munge"])
    added_packages.end(["bash", "munge", "slurmd"], [])
    assert added_packages.read_record()["added"] == ["munge", "slurmd"]


def test_packages_can_be_held_without_an_installation() -> None:
    added_packages.end(["bash", "slurmd"], ["slurmd"])
    assert added_packages.read_record() == {"added": [], "held": ["slurmd"]}


def test_what_a_person_has_damaged_counts_as_no_record(record: Path) -> None:
    record.write_text("{")
    assert added_packages.read_record() == {}


def test_some_packages_are_kept() -> None:
    found: added_packages.PackageRecord = {"added": ["galera-4", "mariadb-server", "munge", "slurmd"]}
    assert added_packages.removable(found, ["galera-4", "mariadb-server", "slurmd"], ["mariadb-*"]) == [
        "galera-4",
        "slurmd",
    ]
