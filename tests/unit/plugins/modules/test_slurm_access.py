# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurm_access refuses, and what it takes; tests/integration/people shows the logins."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpucluster.slurm.plugins.module_utils.host import sshd_pam
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.access_change import AccessChange
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.files import File, FileError
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.job_processes import Process
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_access

SSHD = "@include common-account\n@include common-session\n"
COMMON = "session required pam_unix.so\nsession optional pam_systemd.so\n"
Module = Callable[..., dict[str, Any]]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files of PAM."""
    for name, content in {"SSHD": SSHD, "COMMON": COMMON, "SESSION": ""}.items():
        path = tmp_path / name
        monkeypatch.setattr(sshd_pam, name, str(path))
        if content:
            path.write_text(content)
    monkeypatch.setattr(slurm_access, "DIRECTORY", str(tmp_path / "access"))
    monkeypatch.setattr(slurm_access, "GUARDED", (str(tmp_path),))
    monkeypatch.setattr(slurm_access, "login_user", lambda: "root")
    monkeypatch.setattr(slurm_access, "jobs_without_external_step", list)
    return tmp_path


@pytest.fixture
def module(files: Path, capsys: pytest.CaptureFixture[str]) -> Module:
    """Run the module in check mode, and give its result."""
    assert files.exists()

    def run(**options: Any) -> dict[str, Any]:
        arguments = {**options, "_ansible_diff": True, "_ansible_check_mode": True}
        with patch_module_args(arguments), pytest.raises(SystemExit):
            slurm_access.main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run


def test_check_mode_shows_the_change_and_makes_none(files: Path, module: Module) -> None:
    found = module(who="job", files=[{"path": str(files / "own"), "content": "x\n"}])
    assert found["files"] == [str(files / name) for name in ("own", "SESSION", "SSHD")]
    assert (found["changed"], found["unproven"]) == (True, False)
    assert "+account required pam_slurm_adopt.so" not in SSHD
    assert "pam_slurm_adopt" in found["diff"][-1]["after"]
    assert (files / "SSHD").read_text() == SSHD
    assert module(who="all")["changed"] is False


def test_only_files_of_the_collection_are_removed(files: Path, module: Module) -> None:
    (files / "own").write_text("# Managed by gpucluster.slurm\n")
    (files / "site").write_text("node1\n")
    found = module(absent=[str(files / name) for name in ("own", "site", "missing")])
    assert found["files"] == [str(files / "own")]


def test_a_user_of_the_connection_who_would_be_locked_out_is_refused(
    monkeypatch: pytest.MonkeyPatch, module: Module
) -> None:
    monkeypatch.setattr(slurm_access, "login_user", lambda: "alice")
    monkeypatch.setattr(slurm_access, "groups_of", lambda _user: {"alice", "ops"})
    found = module(who="administrators", administrators=["staff"])
    assert found["failed"]
    assert found["msg"].startswith("access.administrators: found staff, allowed: one of alice, ops, since the user of")
    assert module(who="administrators", administrators=["ops", "staff"])["changed"] is True
    assert module(who="administrators", administrators=["staff"], members=["alice"])["changed"] is True, (
        "after this run"
    )
    assert module(who="all")["changed"] is False


def test_jobs_without_an_external_step_delay_the_change(monkeypatch: pytest.MonkeyPatch, module: Module) -> None:
    monkeypatch.setattr(slurm_access, "jobs_without_external_step", lambda: ["7", "12"])
    said: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda _module, text: said.append(text))
    assert module(who="job")["changed"] is False
    (warning,) = said
    assert "everybody may log in until these jobs have ended" in warning
    assert warning.endswith("7, 12")


def test_jobs_without_an_external_step(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = ["7.batch", "8.extern stepmgr", "8.0", "12.0", "9.0"]
    running = {
        pid: Process("slurmstepd", 1, (0,) * 4, "", step != "9.0", f"slurmstepd: [{step}]")  # that of job 9 is a user's
        for pid, step in enumerate(steps, 10)
    }
    monkeypatch.setattr(slurm_access, "processes", lambda: running)
    assert slurm_access.jobs_without_external_step() == ["7", "12"]


def test_another_way_to_pam_systemd_is_refused(files: Path) -> None:
    (files / "SSHD").write_text(SSHD + "session optional pam_systemd.so\n")
    with pytest.raises(
        FileError, match="loads pam_systemd itself, which would take users' processes out of their jobs"
    ):
        slurm_access.refuse("job", [], [], check_mode=True)


def test_a_missing_package_is_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_access, "MODULES", (str(files),))
    with pytest.raises(FileError, match=r"pam_slurm_adopt\.so is missing"):
        slurm_access.refuse("job", [], [], check_mode=False)
    (files / "pam_slurm_adopt.so").touch()
    slurm_access.refuse("job", [], [], check_mode=False)


def test_a_host_without_pam_for_sshd_is_refused(files: Path, module: Module) -> None:
    (files / "SSHD").unlink()
    assert "this host has no sshd that asks PAM" in module(who="job")["msg"]


def test_the_user_of_the_connection_is_known_through_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "admin")
    assert slurm_access.login_user() == "admin"
    monkeypatch.delenv("SUDO_USER")
    monkeypatch.setattr(slurm_access, "text", lambda _path: "0")
    assert slurm_access.login_user() == "root"
    monkeypatch.setattr(slurm_access, "text", lambda _path: "4294967295")
    assert slurm_access.login_user() == ""


def test_in_an_image_files_are_written_and_nothing_waits_for_a_new_connection(files: Path) -> None:
    (files / "old").write_text("# Managed by gpucluster.slurm\n")
    own = File(str(files / "SSHD"), b"new\n", getpass.getuser())
    change = AccessChange(str(files / "access"))
    slurm_access.apply(change, slurm_access.AccessFiles([own], [str(files / "old")]), start=False)
    assert (files / "SSHD").read_text() == "new\n"
    assert not (files / "old").exists()
    assert not change.unconfirmed
