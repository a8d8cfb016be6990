# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change that the host takes back unless it is confirmed. systemd and sshd are stand-ins here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import access_change
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.access_change import (
    AccessChange,
    UnconfirmedError,
    reloads,
    undo_script,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import File, FileError
from programs import StandIn


class Host:
    """A host with two files of access, of which the second one is new, and one that goes."""

    def __init__(self, directory: Path) -> None:
        self.present, self.new, self.gone = (directory / name for name in ("present", "new file", "gone"))
        self.present.write_text("previous\n")
        self.present.chmod(0o640)
        self.gone.write_text("gone\n")
        self.log = directory / "log"
        self.log.touch()
        self.kept = directory / "lib/access"
        self.change = AccessChange(str(self.kept))

    def apply(self) -> None:
        files = [File(str(path), b"wanted\n") for path in (self.new, self.present)]
        self.change.apply(files, [str(self.gone)])

    @property
    def is_previous(self) -> bool:
        """Whether the files are as before, and nothing is kept."""
        files = self.present.read_text() == "previous\n" and self.gone.exists() and not self.new.exists()
        return files and self.present.stat().st_mode & 0o777 == 0o640 and [*self.kept.parent.glob("*")] == []

    def undo(self) -> None:
        """What the timer does."""
        subprocess.run(["/bin/sh", self.kept / "undo"], check=True)


@pytest.fixture
def host(tmp_path: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path)
    for name in ("systemctl", "systemd-run", "sshd"):
        stand_in(name, f'echo {name} "$(cat {host.present})" >>{host.log}')
    monkeypatch.setattr(access_change, "SSHD", "sshd")
    return host


def test_the_timer_starts_before_the_change_and_ends_with_the_confirmation(host: Host) -> None:
    host.apply()
    assert host.present.read_text() == host.new.read_text() == "wanted\n"
    assert not host.gone.exists()
    assert host.change.unconfirmed
    assert "systemd-run previous\n" in host.log.read_text()
    assert "sshd wanted\n" in host.log.read_text()
    host.change.confirm()
    assert not host.change.unconfirmed
    assert host.present.read_text() == "wanted\n"
    assert [*host.kept.parent.glob("*")] == []


def test_the_timer_restores_the_previous_files(host: Host) -> None:
    host.apply()
    host.undo()
    assert host.is_previous
    with pytest.raises(
        UnconfirmedError,
        match="the host has restored the previous files, since no new connection confirmed the change within 120 s",
    ):
        host.change.confirm()


def test_a_confirmation_that_comes_first_wins(host: Host) -> None:
    host.apply()
    script = (host.kept / "undo").read_text()
    host.change.confirm()
    subprocess.run(["/bin/sh", "-c", script], check=True)
    assert host.present.read_text() == host.new.read_text() == "wanted\n"


def test_the_run_restores_the_previous_files(host: Host) -> None:
    host.apply()
    host.change.restore()
    assert host.is_previous
    host.change.restore()
    assert host.is_previous, "a second time, there is nothing to take back"


@pytest.mark.parametrize("broken", ["sshd", "systemd-run"])
def test_nothing_stays_of_what_sshd_refuses_or_no_timer_watches(host: Host, stand_in: StandIn, broken: str) -> None:
    stand_in(broken, "echo no good >&2; exit 255")
    with pytest.raises(FileError, match="no good"):
        host.apply()
    assert host.is_previous


def test_a_command_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(command: list[str], **_options: object) -> None:
        if command[0] == "systemd-run":
            raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr(subprocess, "run", late)
    with pytest.raises(FileError, match="did not end within 60 s"):
        access_change.start_timer("x", ["true"])


def test_only_what_has_changed_is_read_again() -> None:
    assert reloads(["/etc/pam.d/sshd", "/etc/security/x.conf"]) == []
    assert reloads(["/etc/ssh/sshd_config.d/x.conf"]) == ["systemctl try-reload-or-restart ssh.service"]
    assert reloads(["/etc/systemd/system/user-.slice.d/x.conf"]) == ["systemctl daemon-reload"]


def test_paths_are_words_of_the_script(tmp_path: Path) -> None:
    path = tmp_path / "a b;c"
    path.write_text("x")
    script = undo_script(str(tmp_path / "kept"), [], [str(path)])
    os.mkdir(tmp_path / "kept")
    subprocess.run(["/bin/sh", "-c", script], check=True)
    assert not path.exists()
