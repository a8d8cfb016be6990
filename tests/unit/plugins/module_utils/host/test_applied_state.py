# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of what modules have applied hold until anything of it changes."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import applied_state, files

DIGEST = "0c" * 32
SHOWN = """Id=munge.service
ActiveState=active
UnitFileState=enabled
NeedDaemonReload=no
InvocationID=5a11

Id=slurmd.service
ActiveState=inactive
UnitFileState=
NeedDaemonReload=no
InvocationID=
"""
UNITS = applied_state.units(SHOWN)


@pytest.fixture(name="key", autouse=True)
def kept_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a record of it and of munge, with a directory and a file that must not exist."""

    def own(path: str, content: bytes, mode: int) -> files.File:
        return files.File(path, content, getpass.getuser(), mode)

    monkeypatch.setattr(applied_state, "RECORDS", str(tmp_path / "records"))
    monkeypatch.setattr(applied_state, "File", own)
    (tmp_path / "checks").mkdir()
    (key := tmp_path / "munge.key").write_text("a")
    paths = [str(key), str(tmp_path / "checks"), str(tmp_path / "absent")]
    applied_state.keep("munge", DIGEST, paths, applied_state.invocation(UNITS["munge"]))
    return key


def holds(units: dict[str, applied_state.Unit] = UNITS) -> bool:
    """Whether the record holds."""
    return applied_state.holding(["munge", "slurmd"], units) == {"munge": DIGEST}


def test_a_record_holds_while_nothing_changes(tmp_path: Path) -> None:
    assert holds()
    assert (tmp_path / "records/munge").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [
        lambda key: key.write_text("b"),
        lambda key: key.chmod(0o604),
        lambda key: key.unlink(),
        lambda key: key.rename(key.with_name("away")),
        lambda key: (key.with_name("new").write_text("a"), key.with_name("new").replace(key)),
        lambda key: os.utime(key, ns=(0, key.stat().st_mtime_ns)),
        lambda key: key.with_name("absent").touch(),
        lambda key: (key.parent / "checks/left").touch(),
        lambda key: (key.parent / "records/munge").write_text("{"),
        lambda key: (key.parent / "records/munge").write_text("[]"),
    ],
)
def test_any_change_of_a_file_ends_it(key: Path, change: Callable[[Path], object]) -> None:
    change(key)
    assert not holds()


@pytest.mark.parametrize(
    ("name", "value"),
    [("ActiveState", "failed"), ("UnitFileState", "masked"), ("NeedDaemonReload", "yes"), ("InvocationID", "7")],
)
def test_any_change_of_the_service_ends_it(name: str, value: str) -> None:
    assert not holds({"munge": {**UNITS["munge"], name: value}})
    assert not holds({})


def test_a_run_without_a_checksum_removes_the_record(tmp_path: Path) -> None:
    applied_state.keep("munge", "", [])
    assert not (tmp_path / "records/munge").exists()
    assert not holds()


def test_files_without_a_service_have_records_as_well(key: Path) -> None:
    applied_state.keep("slurm_health", DIGEST, [str(key)])
    assert applied_state.holding(["slurm_health"], UNITS) == {"slurm_health": DIGEST}
