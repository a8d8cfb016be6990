# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of programs that are replaced at once, whatever another user has put in their place."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.replacing import read, remove, replace

PLACES: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda place, other: place.symlink_to(other),
    "link to nothing": lambda place, other: place.symlink_to(other.with_name("nothing")),
    "hard link": lambda place, other: place.hardlink_to(other),
    "FIFO": lambda place, _other: os.mkfifo(place),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["out.prom", ".out.prom.new"])
def test_what_is_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path, place: str, name: str) -> None:
    other = tmp_path / "other"
    other.write_text("of root\n")
    PLACES[place](tmp_path / name, other)
    replace(str(tmp_path / "out.prom"), b"new\n", 0o640)
    assert (tmp_path / "out.prom").read_text() == "new\n"
    assert stat.S_ISREG((tmp_path / "out.prom").lstat().st_mode)
    assert stat.S_IMODE((tmp_path / "out.prom").stat().st_mode) == 0o640
    assert other.read_text() == "of root\n"
    assert not (tmp_path / "nothing").exists()


def test_a_link_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "of root").mkdir()
    (tmp_path / "of root/out").write_text("of root\n")
    (tmp_path / "link").symlink_to(tmp_path / "of root")
    tmp_path.chmod(0o775)
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        replace(str(tmp_path / "link/out"), b"new\n")
    with pytest.raises(OSError, match=r"Not a directory|symbolic"):
        remove(str(tmp_path / "link/out"))
    assert (tmp_path / "of root/out").read_text() == "of root\n"


def test_a_link_that_only_root_can_replace_is_followed(tmp_path: Path) -> None:
    """A site has /var/lib/gpucluster-slurm/backup on another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    tmp_path.chmod(0o755)
    replace(str(tmp_path / "link/out"), b"new\n")
    assert (tmp_path / "disk/out").read_text() == "new\n"


def test_a_file_that_is_read_is_no_link_and_nobody_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text\n")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "fifo")
    assert read(str(tmp_path / "file")) == b"text\n"
    assert read(str(tmp_path / "fifo")) == b""
    with pytest.raises(OSError, match="symbolic"):
        read(str(tmp_path / "link"))


def test_what_is_not_there_is_removed_already(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    remove(str(tmp_path / "file"))
    remove(str(tmp_path / "file"))
    remove(str(tmp_path / "missing/file"))
    assert [*tmp_path.iterdir()] == []
