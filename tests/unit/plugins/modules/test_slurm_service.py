# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The decisions and files of slurm_service; tests/integration shows its effects on real services."""

from __future__ import annotations

import base64
import getpass
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import applied_state, load_times, program_library
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import File, FileError, write
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_service
from programs import StandIn

UNIT = {"NeedDaemonReload": "no", "UnitFileState": "enabled", "ActiveState": "active"}


def wanted(path: Path, **options: Any) -> dict[str, Any]:
    """A file as the module's parameters describe it."""
    defaults = {"content": None, "secret": None, "owner": getpass.getuser(), "mode": "0644", "validate": None}
    return {"path": str(path), "restart": False, **defaults, **options}


@pytest.mark.parametrize(
    ("unit", "stale", "reload", "actions"),
    [
        ({}, "", False, []),
        ({"ActiveState": "reloading"}, "", False, []),
        ({"ActiveState": "inactive"}, "", False, ["start"]),
        ({"ActiveState": "failed", "UnitFileState": "disabled"}, "", False, ["enable", "start"]),
        ({"UnitFileState": "static"}, "", False, []),
        ({}, "/etc/key", False, ["restart"]),
        ({}, "/etc/key", True, ["reload"]),
        ({"ActiveState": "inactive"}, "/etc/key", True, ["start"]),
    ],
)
def test_actions(unit: dict[str, str], stale: str, reload: bool, actions: list[str]) -> None:
    assert slurm_service.plan("munge", UNIT | unit, stale, reload)[0] == actions


def test_a_file_that_is_newer_than_the_service_is_named(tmp_path: Path) -> None:
    key = tmp_path / "munge.key"
    key.write_text("")
    paths = [str(tmp_path / "absent"), str(key)]
    written = key.stat().st_mtime
    assert slurm_service.newer_file(paths, written + 1) == ""
    assert slurm_service.newer_file(paths, written - 1) == str(key)
    assert slurm_service.plan("munge", UNIT, str(key), False)[1] == f"{key} is newer than what munge has loaded"


def test_a_reload_counts_as_loading_and_an_older_one_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_times, "DIRECTORY", str(tmp_path))
    started = {"InactiveExitTimestampMonotonic": str(int((time.clock_gettime(time.CLOCK_MONOTONIC) - 60) * 1e6))}
    assert slurm_service.loaded_at("slurmctld", started) == pytest.approx(time.time() - 60, abs=5)
    now = time.time()
    load_times.write_load_time("slurmctld", now)
    assert slurm_service.loaded_at("slurmctld", started) == pytest.approx(now, abs=0.001)
    load_times.write_load_time("slurmctld", 0)
    assert slurm_service.loaded_at("slurmctld", started) == pytest.approx(time.time() - 60, abs=5)


def test_a_file_that_is_read_at_the_start_needs_a_restart_also_after_a_reload(tmp_path: Path) -> None:
    started = {"InactiveExitTimestampMonotonic": str(int((time.clock_gettime(time.CLOCK_MONOTONIC) - 60) * 1e6))}
    (tmp_path / "start").write_text("a")
    file = slurm_service.wanted_file(wanted(tmp_path / "start", content="a"))
    other = slurm_service.wanted_file(wanted(tmp_path / "start", content="b"))

    def plan(*start_files: File) -> slurm_service.Plan:
        return slurm_service.Plan([*start_files], [], [], [*start_files], [], [], False, "")

    assert slurm_service.start_file(plan(), {}) == ""
    assert slurm_service.start_file(plan(file), started) == str(tmp_path / "start")  # written after the start
    os.utime(tmp_path / "start", (0, 0))
    assert slurm_service.start_file(plan(file), started) == ""
    assert slurm_service.start_file(plan(other), started) == str(tmp_path / "start")


def test_a_file_is_written_with_its_directory_and_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "slurmd.service.d/options.conf"
    write([slurm_service.wanted_file(wanted(path, content="a\n", mode="0600"))])
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("a\n", 0o600)
    assert [file.name for file in path.parent.iterdir()] == ["options.conf"]
    again = slurm_service.wanted_file(wanted(path, content="a\n", mode="0600"))
    assert (again.differs, again.changes) == (False, False)


def test_a_mode_is_mended_without_a_new_content(tmp_path: Path) -> None:
    path = tmp_path / "slurmdbd.conf"
    path.write_text("a\n")
    path.chmod(0o644)
    os.utime(path, (0, 0))
    file = slurm_service.wanted_file(wanted(path, content="a\n", mode="0600"))
    assert (file.differs, file.changes) == (False, True)
    assert file.diff["before"].endswith("0644\n")
    write([file])
    assert (path.stat().st_mode & 0o777, path.stat().st_mtime) == (0o600, 0)


def test_a_secret_is_any_bytes_and_never_in_a_diff(tmp_path: Path) -> None:
    path = tmp_path / "munge.key"
    key = bytes(range(256))
    file = slurm_service.wanted_file(wanted(path, secret=base64.b64encode(key).decode(), mode="0400"))
    assert (file.diff["before"], file.diff["after"]) == ("(a secret)\n", "(another secret)\n")
    write([file])
    assert path.read_bytes() == key


def test_an_owner_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there is no user or group nobody-here"):
        slurm_service.wanted_file(wanted(tmp_path / "file", content="", owner="nobody-here"))


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("old\n")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write([slurm_service.wanted_file(wanted(path, content="new\n"))])
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("slurm.conf", "old\n")]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_text("old\n")
    write([slurm_service.wanted_file(wanted(tmp_path / "link", content="new\n"))])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new\n"


def test_a_proof_is_what_the_command_prints_and_a_failure_has_its_words() -> None:
    module = Mock(check_mode=False)
    module.run_command.return_value = (0, "MUNGE:AwQ:\n", "")
    assert slurm_service.check_service(module, {"command": ["munge"], "stdin": "x"}) == "MUNGE:AwQ:"
    assert module.run_command.call_args.kwargs == {"data": "x"}
    module.run_command.return_value = (15, "STATUS:          Expired credential (15)\n", "")
    with pytest.raises(slurm_service.ServiceError, match=r"unmunge --keys=STATUS: STATUS: +Expired credential"):
        slurm_service.check_service(module, {"command": ["unmunge", "--keys=STATUS"], "stdin": ""})


@pytest.mark.parametrize(("check", "proof"), [(True, {"command": ["munge"], "stdin": ""}), (False, None)])
def test_nothing_is_checked_in_check_mode_or_without_a_command(check: bool, proof: dict[str, Any] | None) -> None:
    module = Mock(check_mode=check)
    assert slurm_service.check_service(module, proof) == ""
    module.run_command.assert_not_called()


def running(check: bool, load_state: str = "loaded", **params: Any) -> Mock:
    """The module with these parameters, where systemd says that the service runs."""
    defaults: dict[str, Any] = {
        "name": "slurmctld",
        "files": [],
        "absent": [],
        "reload": None,
        "reads": [],
        "stale": False,
        "servers": [],
        "running_with": [],
        "keep_in": None,
        "proof": None,
        "start": True,
        "digest": "",
    }
    module = Mock(params=defaults | params, check_mode=check)
    unit = {**UNIT, "LoadState": load_state, "InactiveExitTimestampMonotonic": "1"}
    module.run_command.return_value = (0, "".join(f"{key}={value}\n" for key, value in unit.items()), "")
    return module


@pytest.mark.parametrize("check", [True, False])
def test_a_file_that_is_not_wanted_any_more_goes(tmp_path: Path, check: bool) -> None:
    path = tmp_path / "old.conf"
    path.write_text("old\n")
    module = running(check, absent=[str(path), str(tmp_path / "missing")])
    result = slurm_service.run_service(module)
    assert (result["changed"], result["files"], result["actions"]) == (True, [str(path)], [])
    assert result["diff"] == [
        {"before_header": str(path), "after_header": str(path), "before": "old\n", "after": ""},
    ]
    assert path.exists() == check
    assert slurm_service.run_service(running(check, absent=[str(tmp_path / "missing")]))["changed"] is False


def test_a_service_is_restarted_after_a_change_of_a_file_that_another_role_writes(tmp_path: Path) -> None:
    path = tmp_path / "gpus-have-changed"
    module = running(True, reads=[str(path), str(tmp_path / "missing")])
    path.touch()
    assert slurm_service.run_service(module)["actions"] == ["restart"]
    os.utime(path, (1, 1))
    assert slurm_service.run_service(module)["actions"] == []


def test_systemd_is_told_of_drop_ins_and_the_service_runs_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files for the next start of the service: one is added, and one is removed."""
    monkeypatch.setattr(slurm_service, "UNITS", str(tmp_path))
    new = wanted(tmp_path / "slurmctld.service.d/new.conf", content="[Unit]\n", loaded=False)
    (tmp_path / "old.conf").touch()
    for change in ({"files": [new]}, {"absent": [str(tmp_path / "old.conf")]}):
        module = running(False, **change)
        assert slurm_service.run_service(module)["actions"] == ["daemon-reload"]
        assert ["systemctl", "daemon-reload"] in [call.args[0] for call in module.run_command.call_args_list]


@pytest.mark.parametrize("check", [True, False])
def test_systemd_reads_a_mended_unit_before_it_is_asked_for_its_state(check: bool) -> None:
    """The file is right already, and systemd still has the bad one, after a run that was killed."""
    module = running(check)
    state = {"LoadState": "bad-setting", "NeedDaemonReload": "yes", "ActiveState": "inactive"}

    def answer(command: list[str], **_options: Any) -> tuple[int, str, str]:
        if command == ["systemctl", "daemon-reload"]:
            state.update(LoadState="loaded", NeedDaemonReload="no")
        unit = {**UNIT, "InactiveExitTimestampMonotonic": "0", **state}
        return 0, "".join(f"{key}={value}\n" for key, value in unit.items()), ""

    module.run_command.side_effect = answer
    assert slurm_service.run_service(module)["actions"] == ["daemon-reload", "start"]
    assert state["LoadState"] == ("bad-setting" if check else "loaded")


@pytest.fixture(name="slurmd")
def slurmd_of_another_cluster(tmp_path: Path) -> Callable[[bool], Mock]:
    """The module for slurmd, whose unit has a file of another cluster, which systemd prefers to a drop-in."""
    (tmp_path / "default").write_text('SLURMD_OPTIONS="--conf-server elsewhere"\n')
    drop_in = wanted(tmp_path / "own.conf", content='[Service]\nEnvironment="SLURMD_OPTIONS=--conf-server ctl:6817"\n')

    def module(check: bool) -> Mock:
        found = running(check, name="slurmd", files=[{**drop_in, "loaded": True}])
        rc, shown, stderr = found.run_command.return_value
        shown = f"{shown}EnvironmentFiles={tmp_path}/default (ignore_errors=yes)\n"
        found.run_command.return_value = (rc, shown, stderr)
        return found

    return module


@pytest.mark.parametrize("check", [True, False])
def test_a_service_is_not_taken_over_with_the_configuration_of_another_cluster(
    slurmd: Callable[[bool], Mock], tmp_path: Path, check: bool
) -> None:
    with pytest.raises(slurm_service.ServiceError, match="default: SLURMD_OPTIONS: found '--conf-server elsewhere'"):
        slurm_service.run_service(slurmd(check))
    assert not (tmp_path / "own.conf").exists()
    (tmp_path / "default").write_text('SLURMD_OPTIONS="-v --conf-server ctl:6817"\n')
    assert slurm_service.run_service(slurmd(check))["files"] == [str(tmp_path / "own.conf")]


@pytest.mark.parametrize("starts", [True, False])
def test_a_service_of_the_cluster_goes_on_with_a_line_of_its_host(
    slurmd: Callable[[bool], Mock], tmp_path: Path, starts: bool
) -> None:
    """It may name the controllers in another way, such as by their addresses."""
    (tmp_path / "own.conf").write_text("of an older version\n")
    module = slurmd(False)
    rc, shown, stderr = module.run_command.return_value
    failed = (1, "", "Job for slurmd.service failed")
    module.run_command.side_effect = lambda command, **_options: (
        failed if command[1] == "restart" and not starts else (rc, shown, stderr)
    )
    if starts:
        assert slurm_service.run_service(module)["actions"] == ["restart"]
    else:
        with pytest.raises(slurm_service.ServiceError, match=r"^/.*--conf-server elsewhere.*\n.*Job for slurmd"):
            slurm_service.run_service(module)
    assert "found '--conf-server elsewhere'" in module.warn.call_args.args[0]


@pytest.mark.parametrize(
    ("file", "unit"), [("backup.service", "backup.service"), ("backup@.service", "backup@any.service")]
)
def test_systemd_reads_a_unit_that_the_service_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, unit: str
) -> None:
    """The service of a timer or socket, whose file was changed by a run that was killed."""
    monkeypatch.setattr(slurm_service, "UNITS", f"{tmp_path}/")
    path = tmp_path / "system" / file
    path.parent.mkdir()
    path.write_text("a")
    path.chmod(0o644)
    module = running(False, files=[wanted(path, content="a", loaded=False)])
    own = module.run_command.return_value[1]
    module.run_command.return_value = (0, f"{own}\n{own.replace('NeedDaemonReload=no', 'NeedDaemonReload=yes')}", "")
    assert slurm_service.run_service(module)["actions"] == ["daemon-reload"]
    assert module.run_command.call_args_list[1].args[0][-2:] == ["slurmctld", unit]


@pytest.mark.parametrize(("options", "message"), [({"mode": "8"}, "mode: found '8'"), ({"secret": "!"}, "not base64")])
def test_a_file_that_cannot_be(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(FileError, match=message):
        slurm_service.wanted_file(wanted(tmp_path / "key", **options))


def test_a_proof_needs_a_command(tmp_path: Path) -> None:
    file = wanted(tmp_path / "key", content="a", loaded=True)
    module = Mock(params={"name": "munge", "files": [file], "proof": {"command": [], "stdin": ""}}, check_mode=False)
    with pytest.raises(slurm_service.ServiceError, match="proof: command: found"):
        slurm_service.run_service(module)
    assert not (tmp_path / "key").exists()


@pytest.mark.parametrize("action", ["start", "restart"])
def test_failures_before_do_not_count_as_starts(action: str) -> None:
    """With them, a unit would have reached its limit of starts (systemd.unit(5), StartLimitBurst)."""
    module = running(False)
    slurm_service.act(module, action)
    commands = [call.args[0] for call in module.run_command.call_args_list]
    assert commands == [["systemctl", "reset-failed", "slurmctld"], ["systemctl", action, "slurmctld"]]


def test_a_service_that_does_not_start_names_the_servers_that_it_does_not_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as closed:
        there, gone = (f"127.0.0.1:{one.getsockname()[1]}" for one in (server, closed))
        closed.close()
        module = running(False, servers=[there, gone, "no-such-host.invalid:6817"])
        module.run_command.return_value = (1, "", "Job for slurmctld.service failed.")
        with pytest.raises(slurm_service.ServiceError) as error:
            slurm_service.act(module, "start")
    lines = str(error.value).splitlines()
    assert lines[0] == f"{gone} cannot be reached from this host: Connection refused"
    assert lines[1].startswith("no-such-host.invalid:6817 cannot be reached from this host: ")
    assert lines[2] == "systemctl start slurmctld: Job for slurmctld.service failed."


def test_a_service_whose_dependency_failed_names_the_unit_behind_it(stand_in: StandIn) -> None:
    stand_in("journalctl", 'case "$*" in *INVOCATION_ID=5a11) echo "unknown filesystem type nfsd" ;; esac')
    stand_in(
        "systemctl",
        'case "$*" in *proc-fs-nfsd*) printf "Id=proc-fs-nfsd.mount\\nActiveState=failed\\nInvocationID=5a11\\n" ;;'
        ' *) printf "Id=slurmctld.service\\nActiveState=inactive\\nRequires=proc-fs-nfsd.mount\\n" ;; esac',
    )
    module = running(False)
    module.run_command.return_value = (1, "", "A dependency job for slurmctld.service failed.")
    with pytest.raises(slurm_service.ServiceError) as error:
        slurm_service.act(module, "start")
    assert str(error.value).splitlines() == [
        "systemctl start slurmctld: A dependency job for slurmctld.service failed.",
        "proc-fs-nfsd.mount has failed: unknown filesystem type nfsd",
    ]


@pytest.mark.parametrize(
    ("load_state", "message", "written"),
    [
        ("masked", "unit slurmctld is masked and cannot start; run: systemctl unmask slurmctld", False),
        # The files may have been those of the unit.
        ("not-found", "systemd reports not-found for unit slurmctld; is its package installed?", True),
    ],
)
def test_a_unit_that_cannot_start(tmp_path: Path, load_state: str, message: str, written: bool) -> None:
    path = tmp_path / "new.conf"
    with pytest.raises(slurm_service.ServiceError) as error:
        slurm_service.run_service(running(False, load_state, files=[{**wanted(path, content=""), "loaded": True}]))
    assert (str(error.value), path.exists()) == (message, written)


@pytest.mark.parametrize(("invocation", "recorded"), [("5a11", "0c" * 32), ("", "")])
def test_only_a_service_that_runs_is_recorded(
    invocation: str, recorded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[Any, ...]] = []
    monkeypatch.setattr(applied_state, "keep", lambda *record: kept.append(record))
    absent, reads = str(tmp_path / "absent"), str(tmp_path / "reads")
    module = running(False, name="munge", digest="0c" * 32, absent=[absent], reads=[reads])
    status, shown, errors = module.run_command.return_value
    module.run_command.return_value = (status, f"{shown}InvocationID={invocation}\n", errors)
    slurm_service.run_service(module)
    assert kept == [("munge", recorded, [absent, reads], invocation)]
    module.check_mode = True
    slurm_service.run_service(module)
    assert len(kept) == 1


def started(pid: str) -> None:
    """Return when a process runs its program."""
    while b"--conf-server" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        time.sleep(0.01)


def test_a_service_that_has_the_wanted_arguments_is_known_by_its_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()", "--conf-server", "ctl:6817"], stdin=subprocess.PIPE
    ) as process:
        pid = str(process.pid)
        started(pid)
        assert slurm_service.runs_with(pid, [["--other"], ["--conf-server", "ctl:6817"]])
        assert not slurm_service.runs_with(pid, [["--conf-server", "ctl"]])
        assert not slurm_service.runs_with(pid, [])
        process.communicate(b"\n")
    assert not slurm_service.runs_with("0", [["--conf-server"]])


def test_a_service_of_another_origin_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the files, and is restarted when one of them changes later."""
    monkeypatch.setattr(load_times, "DIRECTORY", str(tmp_path / "loaded"))
    path = tmp_path / "options.conf"

    def run(pid: int, content: str, check: bool = False) -> list[str]:
        file = {**wanted(path, content=content), "loaded": True}
        module = running(check, name="slurmd", files=[file], running_with=[["--conf-server", "ctl"]])
        status, shown, errors = module.run_command.return_value
        module.run_command.return_value = (status, f"{shown}MainPID={pid}\n", errors)
        return list(slurm_service.run_service(module)["actions"])

    command = [sys.executable, "-c", "input()", "--conf-server", "ctl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        started(str(process.pid))
        assert run(os.getpid(), "a\n", check=True) == ["restart"]
        assert run(process.pid, "a\n", check=True) == []
        assert not path.exists()
        assert run(process.pid, "a\n") == []
        assert path.read_text() == "a\n"
        assert run(process.pid, "a\n") == []
        assert run(process.pid, "b\n") == ["restart"]
        process.communicate(b"\n")


def test_a_file_that_goes_is_kept_once(tmp_path: Path) -> None:
    path, kept = tmp_path / "slurm.conf", tmp_path / "found"
    for text in ("of before", "of a later run"):
        path.write_text(text)
        slurm_service.put_away(str(path), str(kept))
        assert not path.exists()
    assert (kept / "slurm.conf").read_text() == "of before"
    assert kept.stat().st_mode & 0o777 == 0o700
    path.write_text("x")
    slurm_service.put_away(str(path), None)
    assert not path.exists()


def test_a_program_that_is_removed_leaves_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_library, "LIBRARY", str(tmp_path / "library"))
    directory, other = tmp_path / "library/slurm-mail/0123456789ab", tmp_path / "library/other/0123456789ab"
    for each in (directory, other):
        each.mkdir(parents=True)
    program = tmp_path / "mail"
    program.write_text(f'#!/usr/bin/python3 -IB\nimport sys\n\nsys.path.insert(0, "{directory}")\n')
    slurm_service.put_away(str(program), None)
    assert [path.name for path in (tmp_path / "library").iterdir()] == ["other"]
    assert not program.exists()


@pytest.mark.parametrize("check", [True, False])
def test_in_an_image_files_are_written_and_the_unit_is_enabled_without_a_running_systemd(
    tmp_path: Path, check: bool
) -> None:
    """As in a tree whose systemd does not run: systemctl says nothing but the state of the unit's file."""
    file = wanted(tmp_path / "conf", content="a", loaded=True)
    proof = {"command": ["munge"], "stdin": ""}
    module = running(check, files=[file], start=False, proof=proof, digest="d", reads=[str(tmp_path)])
    state = {"is-enabled": "disabled"}

    def systemctl(command: list[str], environ_update: dict[str, str]) -> tuple[int, str, str]:
        assert environ_update["SYSTEMD_OFFLINE"] == "1"
        if command[1] == "enable":
            state["is-enabled"] = "enabled"
        return 0, f"{state[command[1]]}\n" if command[1] in state else "", ""

    module.run_command.side_effect = systemctl
    result = slurm_service.run_service(module)
    assert (result["actions"], result["changed"], result["proof"]) == (["enable"], True, "")
    assert (tmp_path / "conf").exists() is not check
    commands = [call.args[0][1] for call in module.run_command.call_args_list]
    assert {*commands} == {"is-enabled"} | (set() if check else {"enable"})
    if not check:
        assert not slurm_service.run_service(module)["changed"]


@pytest.mark.parametrize(
    ("state", "check", "error"),
    [
        ("masked", False, "is masked and cannot start"),
        ("", False, "systemd reports not-found"),
        ("", True, "systemd reports not-found"),
    ],
)
def test_a_unit_that_an_image_lacks(state: str, check: bool, error: str) -> None:
    module = running(check, start=False)
    module.run_command.return_value = (1, state, "")
    with pytest.raises(slurm_service.ServiceError, match=error):
        slurm_service.run_service(module)


def test_check_mode_predicts_a_unit_whose_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_service, "UNITS", f"{tmp_path}/")
    module = running(True, start=False, files=[wanted(tmp_path / "x.conf", content="a", loaded=True)])
    module.run_command.return_value = (1, "not-found", "")
    assert slurm_service.run_service(module)["actions"] == ["enable"]
