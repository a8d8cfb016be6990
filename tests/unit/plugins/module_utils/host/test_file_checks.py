# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that their programs refuse, with the systemd of this machine; tests/integration has the other programs."""

from __future__ import annotations

import getpass
import shutil
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import file_checks
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.file_checks import Check, refusals
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import File, FileError, write

with_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd on this machine")

UNITS = "/etc/systemd/system"
TIMER = f"{UNITS}/some-backup.timer"
MARK = "# Managed by gpucluster.slurm: changes here are overwritten (cluster file, backup: times).\n"


def refused(files: dict[str, str]) -> list[str]:
    """What the programs say of new files."""
    return refusals({path: text.encode() for path, text in files.items()}, files)


@with_systemd
@pytest.mark.parametrize("times", ["nonsense", "02:00 Mars/Base", "*-02-30"])
def test_times_of_a_timer(times: str) -> None:
    (message,) = refused({TIMER: f"{MARK}[Timer]\nOnCalendar={times}\n"})
    assert message.startswith(
        f"{TIMER} was not written, since systemd refuses it (cluster file, backup: times): OnCalendar={times}, which "
    )


@with_systemd
@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("some.service", "[Service]\nExecStart=/bin/true\nTimeoutStartSec=soon\n", "line 3, TimeoutStartSec=soon:"),
        ("some.service", "[Service]\n", "Service has no ExecStart="),
        ("srv-x.mount", "[Mount]\nWhat=a\nWhere=/srv/y\n", "Where= setting doesn't match unit name"),
        ("srv-x.mount", "[Mount]\nWhat=a\nWhere=srv/x\n", "srv/x"),
        ("slurmd.service.d/some.conf", "[Service]\nLimitNOFILE=many\n", "line 2, LimitNOFILE=many:"),
        ("user-.slice.d/some.conf", "[Slice]\nTasksMax=much\n", "line 2, TasksMax=much:"),
        ("some.timer", "[Timer]\nOnBootSec=1 fortnight\n", "OnBootSec=1 fortnight"),
    ],
)
def test_units_that_systemd_refuses(path: str, text: str, message: str) -> None:
    messages = refused({f"{UNITS}/{path}": text})
    assert len(messages) == 1
    assert message in messages[0]
    assert "gpucluster-check" not in messages[0]


@with_systemd
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("some.service", "[Service]\nExecStart=/opt/installed/later run\n"),
        (
            "some.service",
            "[Unit]\nAfter=not-there.service\nRequires=nor-this.service\n[Service]\nExecStart=/bin/true\n",
        ),
        ("some.service", "[Unit]\nOfAnotherRelease=1\n[Service]\nExecStart=/bin/true\nCPUShares=100\n"),
        ("not-there.service.d/some.conf", "[Service]\nEnvironment=a=b\n"),
        ("user-.slice.d/some.conf", "[Slice]\nTasksMax=100\n"),
        ("some-backup.timer", "[Timer]\nOnCalendar=Mon..Fri 02:30\nPersistent=true\n"),
        ("srv-x.mount", "[Mount]\nWhat=server:/srv\nWhere=/srv/x\nType=nfs\nOptions=a,b%%c\n"),
    ],
)
def test_units_that_it_accepts(path: str, text: str) -> None:
    assert refused({f"{UNITS}/{path}": text}) == []


@with_systemd
def test_a_timer_is_checked_together_with_its_service() -> None:
    service = "[Service]\nType=oneshot\nExecStart=/bin/true\nNice=99\n"
    files = {TIMER: "[Timer]\nOnCalendar=daily\n", f"{UNITS}/some-backup.service": service}
    (message,) = refused(files)
    assert message.startswith(f"{UNITS}/some-backup.service was not written")


@pytest.fixture
def row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose files `*.conf` are checked by a program that refuses the word `bad` in all they name."""
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nfiles="$1 $(grep -o "/[^ ]*" "$1")"\n! grep -Hn bad $files || exit 1\n')
    program.chmod(0o755)
    check = Check("program", rf"{tmp_path}/etc/.*\.conf", (str(program), "%s"), "bad")
    monkeypatch.setattr(file_checks, "CHECKS", (check,))
    (tmp_path / "etc").mkdir()
    return tmp_path / "etc"


def wanted(path: Path, text: str) -> File:
    return File(str(path), text.encode(), getpass.getuser())


@pytest.mark.parametrize("check_mode", [True, False])
def test_the_old_files_stay_if_one_new_file_is_refused(row: Path, check_mode: bool) -> None:
    (row / "a.conf").write_text("old\n")
    files = [wanted(row / "a.conf", "new\n"), wanted(row / "b.conf", "bad\n")]
    with pytest.raises(FileError, match=rf"{row}/b.conf was not written, since program refuses it: {row}/b.conf:1:bad"):
        write(files, check_mode)
    assert [(path.name, path.read_text()) for path in row.iterdir()] == [("a.conf", "old\n")]


def test_check_mode_writes_nothing(row: Path) -> None:
    write([wanted(row / "a.conf", "new\n")], check_mode=True)
    assert [*row.iterdir()] == []


def test_a_file_is_checked_with_a_new_one_that_it_names(row: Path) -> None:
    """A certificate that changes is checked by the configuration that names it, which does not change."""
    (row / "a.conf").write_text(f"key {row}/key\n")
    (row / "key").write_text("good\n")
    files = [wanted(row / "a.conf", f"key {row}/key\n"), wanted(row / "key", "bad\n")]
    with pytest.raises(FileError, match=rf"{row}/a.conf was not written, since program refuses it: {row}/key:1:bad"):
        write(files)
    assert (row / "key").read_text() == "good\n"


def test_nothing_runs_for_files_that_are_as_wanted(row: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (row / "a.conf").write_text("bad\n")
    monkeypatch.setattr(file_checks, "run_check", None)
    write([wanted(row / "a.conf", "bad\n")])


def test_a_program_that_is_not_there_refuses_nothing(row: Path) -> None:
    (row.parent / "program").unlink()
    write([wanted(row / "a.conf", "bad\n")])
    assert (row / "a.conf").read_text() == "bad\n"


def test_a_secret_that_no_file_names_is_not_copied(row: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[str] = []
    monkeypatch.setattr(file_checks, "_put", lambda path, _content: put.append(Path(path).name))
    write([wanted(row / "a.conf", "new\n"), wanted(row / "password", "secret\n")])
    assert put == ["a.conf"]
