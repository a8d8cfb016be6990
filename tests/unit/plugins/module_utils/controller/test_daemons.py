# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.commands import Answer
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import Configuration, read
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import daemons
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import journal, load_times

NOTHING = Configuration()


@pytest.mark.parametrize(("status", "recorded"), [(0, True), (1, False)])
def test_a_reconfigure_counts_as_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, recorded: bool
) -> None:
    """Otherwise the next run would restart slurmctld of a standby that has served: its files are newer than it."""
    monkeypatch.setattr(load_times, "DIRECTORY", str(tmp_path))
    monkeypatch.setattr(daemons, "run", lambda _command, **_limits: Answer(status, "", ""))
    module: Any = SimpleNamespace(params={"patience": 0, "directory": str(tmp_path)})
    begin = time.time()
    try:
        daemons.Slurmctld(module).act("reconfigure", NOTHING)
    except daemons.ConfigError:
        assert not recorded
    assert (load_times.read_load_time("slurmctld") >= begin - 1) == recorded


LOG = """\
[2026-11-28T21:30:00.123] error: an old line
"""
FATAL = """\
[2026-11-28T21:30:07.123] error: cannot find auth plugin for auth/jwt
[2026-11-28T21:30:07.124] fatal: failed to initialize auth plugin
[2026-11-28T21:30:07.125] Reconfigure failed
"""


@pytest.mark.parametrize(
    ("daemon", "key", "action"),
    [
        ("slurmctld", "SlurmctldLogFile", "reconfigure"),
        ("slurmctld", "SlurmctldLogFile", "restart"),
        ("slurmctld", "SlurmctldLogFile", "start"),
        ("slurmdbd", "LogFile", "restart"),
        ("slurmdbd", "LogFile", "start"),
    ],
)
@pytest.mark.parametrize("written", [FATAL, FATAL.replace("2026-11-28T21:30:07.", "Nov 28 21:30:07 "), "rotated"])
def test_an_action_that_fails_says_what_the_daemon_has_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: str, key: str, action: str, written: str
) -> None:
    """scontrol says `Unspecified error`, and the journal has nothing where the daemon has a file of its own."""
    log = tmp_path / "daemon.log"
    log.write_text(LOG * 99)

    def run(command: list[str], **_limits: Any) -> Answer:
        if command[0] == "journalctl" or "reset-failed" in command:
            return Answer(0, "", "")
        if written == "rotated":
            log.write_text(FATAL)
        else:
            log.write_text(log.read_text() + written)
        return Answer(1, "", "slurm_reconfigure error: Unspecified error")

    monkeypatch.setattr(daemons, "run", run)
    monkeypatch.setattr(journal, "run", run)
    configuration = read({daemons.DAEMONS[daemon].conf: f"{key}={log}\n"})
    module: Any = SimpleNamespace(params={"patience": 0, "directory": str(tmp_path)})
    with pytest.raises(daemons.ConfigError) as error:
        daemons.DAEMONS[daemon](module).act(action, configuration)
    assert "fatal: failed to initialize auth plugin" in str(error.value)
    assert "cannot find auth plugin for auth/jwt" in str(error.value)
    assert "old line" not in str(error.value)


@pytest.mark.parametrize("bytes_written", [b"", b"\xff\xfe no text\n", b"[x] an info\n"])
def test_an_action_that_fails_without_an_error_in_the_log_has_its_own_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_written: bytes
) -> None:
    log = tmp_path / "daemon.log"

    def run(_command: list[str], **_limits: Any) -> Answer:
        if bytes_written:
            log.write_bytes(bytes_written)
        return Answer(1, "", "slurm_reconfigure error: Unspecified error")

    monkeypatch.setattr(daemons, "run", run)
    configuration = read({"slurm.conf": f"SlurmctldLogFile={log}\n"})
    module: Any = SimpleNamespace(params={"patience": 0, "directory": str(tmp_path)})
    with pytest.raises(daemons.ConfigError, match="scontrol reconfigure failed: slurm_reconfigure error"):
        daemons.Slurmctld(module).act("reconfigure", configuration)
