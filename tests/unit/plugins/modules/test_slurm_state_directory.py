# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of slurm_state_directory, and that it leaves no files behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.modules.slurm_state_directory import answer

ME = os.getuid()
ASKED: dict[str, Any] = {"user_id": ME, "write": False, "see": [], "remove": []}


def ask(path: Path, check: bool = False, **options: Any) -> Any:
    """The module's answer."""
    return answer({"path": str(path), **ASKED, **options}, check)


def test_two_directories_are_told_from_one(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "same").symlink_to("one")
    written = ask(tmp_path / "one", write=True)
    assert {*written} == {"changed", "mount", "inode", "file", "missing", "error"}
    assert written["inode"] == (tmp_path / "one").stat().st_ino
    assert (written["error"], written["missing"], written["mount"]["root"]) == (
        "",
        [],
        written["mount"]["point"] == "/",
    )
    name = written["file"]
    assert ask(tmp_path / "same", see=[name])["missing"] == []
    assert ask(tmp_path / "same", remove=[name])["error"] == ""
    assert [*tmp_path.rglob(".*")] == []


def test_check_mode_reads_and_leaves_all_as_it_is(tmp_path: Path) -> None:
    before = tmp_path.stat().st_mtime_ns
    found = ask(tmp_path, check=True, write=True)
    assert (found["file"], found["inode"], found["error"]) == ("", tmp_path.stat().st_ino, "")
    assert tmp_path.stat().st_mtime_ns == before


def test_nothing_is_written_before_the_user_owns_the_directory(tmp_path: Path) -> None:
    """The role that makes the directory gives it to slurm."""
    for path, user in ((tmp_path / "state", ME), (Path("/"), 64030)):
        found = ask(path, write=True, user_id=user)
        assert (found["file"], found["error"]) == ("", "")
    assert not (tmp_path / "state").exists()


def test_an_error_is_an_answer(tmp_path: Path) -> None:
    """The other hosts go on, so that what they have written is removed."""
    (tmp_path / "state").touch()
    for options in ({"write": True}, {"see": ["x"]}, {"remove": ["x"]}):
        found = ask(tmp_path / "state", **options)
        assert found["error"]
        assert found.items() >= {"mount": {}, "inode": None, "file": "", "missing": []}.items()
