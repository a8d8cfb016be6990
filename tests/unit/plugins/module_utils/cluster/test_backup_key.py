# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `backup` of the cluster file, and the files of the control host that a backup has."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import backup_key
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.control_files import archive
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import Checker


def checked(found: Any) -> tuple[backup_key.BackupKey, list[str]]:
    """The valid part, and the problems."""
    problems: list[str] = []
    return backup_key.check(Checker("my.cluster.yml", problems), found), problems


@pytest.mark.parametrize("target", ["/srv/backup", "sftp:user@host:/srv", "rest:https://host:8000/", "s3:s3.x.org/b"])
def test_targets_of_restic(target: str) -> None:
    found = {"target": target, "times": "Mon..Fri 02:30", "keep": {"daily": 3}, "max_age": 30}
    assert checked(found) == (found, [])


def test_a_site_without_the_key_has_no_backup() -> None:
    assert checked({}) == ({}, [])
    assert checked(None) == ({}, [])


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({"times": "daily"}, "my.cluster.yml: backup.target: missing"),
        ({"target": "srv/backup"}, "backup.target: found 'srv/backup', allowed: a directory such as /srv/backup"),
        ({"target": "sfpt:h:/x"}, "unknown scheme, did you mean 'sftp'?"),
        ({"target": "rest:https://u:p@h/"}, "its variables belong in backup.env"),
        ({"target": "/b", "tims": "daily"}, "backup.tims: unknown key, did you mean 'times'?"),
        ({"target": "/b", "times": "daily; rm"}, "backup.times: found 'daily; rm', where 'daily;' is neither"),
        ({"target": "/b", "keep": {"dayly": 3}}, "backup.keep.dayly: unknown key, did you mean 'daily'?"),
        ({"target": "/b", "keep": {"daily": 0}}, "backup.keep.daily: found 0, allowed: a whole number from 1"),
        ({"target": "/b", "keep": {}}, "backup.keep: found {}, allowed: how many backups stay, by interval"),
        ({"target": "/b", "max_age": "2 days"}, "backup.max_age: found '2 days', allowed: a whole number from 1"),
        ("/srv/backup", "backup: found '/srv/backup', allowed: a mapping"),
    ],
)
def test_errors_have_the_key_and_what_is_allowed(found: Any, problem: str) -> None:
    _valid, problems = checked(found)
    assert [text for text in problems if problem in text] == problems


def members(packed: bytes) -> dict[str, bytes]:
    """The content of an archive."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers()}  # type: ignore[union-attr]


def test_the_archive_has_what_belongs_to_the_cluster_file(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "group_vars").mkdir(parents=True)
    (site / "secrets/my").mkdir(parents=True)
    contents = {
        "my.cluster.yml": "name: my\npeople: people.csv\npackages: {key: ../outside}\n",
        "other.cluster.yml": "name: other\npeople: other.csv\n",
        "my.hardware.yml": "hardware: {}\n",
        "people.csv": "name,uid\n",
        "other.csv": "",
        "unrelated.txt": "",
        "group_vars/all.yml": "x: 1\n",
        "secrets/my/munge.key": "key",
        "secrets/my/munge.key.next": "not in force yet",
        "../outside": "",
    }
    for name, content in contents.items():
        (site / name).write_text(content)
    packed = archive(str(site), "my", str(site / "secrets/my"))
    assert [*members(packed)] == [
        "cluster/group_vars/all.yml",
        "cluster/my.cluster.yml",
        "cluster/my.hardware.yml",
        "cluster/people.csv",
        "secrets/munge.key",
    ]
    assert members(packed)["secrets/munge.key"] == b"key"
    (site / "people.csv").touch()
    assert archive(str(site), "my", str(site / "secrets/my")) == packed
