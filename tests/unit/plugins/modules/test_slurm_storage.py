# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why slurm_storage mounts or unmounts nothing; tests/integration/people has the mounts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.job_processes import Process
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.mounts import hidden_files, mount_record
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.mounts.mountinfo import Mount
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_storage

ROOT = (0,) * 4


def test_a_job_and_processes_of_users_keep_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slurmstepd that keeps Slurm's scope of cgroup v2 serves no job, and neither does one of a service user."""
    running = {
        1: Process("systemd", 0, ROOT, ""),
        2: Process("slurmstepd", 1, ROOT, "", True, "/usr/sbin/slurmstepd infinity"),
        3: Process("slurmstepd", 1, (990,) * 4, "", False),
    }
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr(slurm_storage, "processes", lambda: running)
    assert slurm_storage.users() == []
    running[4] = Process("slurmstepd", 1, ROOT, "", True, "slurmstepd: [7.0]")
    running[5] = Process("bash", 1, (5001,) * 4, "")
    assert slurm_storage.users() == ["a job", "uid 5001"]


UNIT = f"# {hidden_files.MARK}\n[Mount]\nWhat=server:/data\n"


@pytest.mark.parametrize(
    ("unit", "source", "names", "obstacle", "remarks"),
    [
        (None, "", [], None, []),
        (None, "", ["a", "b"], "/data has files that the mount would hide: a, b.", []),
        (None, "", [*"abcdefg"], "/data has files that the mount would hide: a, b, c, d, e and 2 more.", []),
        (UNIT, "", ["a"], None, []),
        (UNIT, "server:/data", [], None, ["unmount it"]),
        (None, "server:/data", ["a"], None, ["unmount it"]),
        (UNIT.replace("data", "old"), "server:/data", [], None, ["/data stays mounted as it was"]),
        (None, "server:/old", ["a"], None, ["/data stays mounted as it was"]),
    ],
)
def test_a_mount_hides_no_files_and_one_that_differs_stays(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unit: str | None,
    source: str,
    names: list[str],
    obstacle: str | None,
    remarks: list[str],
) -> None:
    """`unit`: the present unit; `source`: what is mounted; `names`: the files in its directory."""
    path = tmp_path / "data.mount"
    if unit:
        path.write_text(unit)
    mount = {"path": "/data", "unit": "data.mount", "unit_file": str(path), "source": "server:/data", "type": "nfs"}
    present = {"/data": Mount(2, 1, "0:1", "/", "/data", "nfs4", source)} if source else {}
    monkeypatch.setattr(slurm_storage, "mounted", lambda: present)
    monkeypatch.setattr(mount_record, "read", lambda: {"pending": {"data.mount": ["boot 1", "unmount it"]}})
    monkeypatch.setattr(slurm_storage, "since", lambda _unit: "boot 1")
    monkeypatch.setattr(slurm_storage, "hidden", lambda _path: names)
    monkeypatch.setattr(slurm_storage, "write", lambda _files, **_options: None)
    params = {"mounts": [{**mount, "content": UNIT}], "files": {}, "start": True}
    module: Any = SimpleNamespace(check_mode=True, params=params)
    work = slurm_storage.Work(module)
    if obstacle:
        with pytest.raises(slurm_storage.StorageError, match=obstacle):
            work.units()
    else:
        work.units()
    assert [warning[: len(start)] for warning, start in zip(work.remarks, remarks, strict=True)] == remarks


def test_in_an_image_units_are_enabled_and_nothing_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_options: Any) -> Any:
        commands.append(command)
        return SimpleNamespace(status=0, message="", output="")

    data = tmp_path / "data"
    mount = {"path": str(data), "unit": "data.mount", "unit_file": f"{tmp_path}/data.mount", "type": "nfs"}
    params = {
        "mounts": [{**mount, "source": "server:/data", "content": UNIT}],
        "files": {mount["unit_file"]: UNIT},
        "start": False,
        "exports": [str(tmp_path / "export")],
        "homes": [{"path": str(tmp_path / "home"), "uid": 0, "gid": 0}],
        "packages": [],
        "digest": "d",
    }
    monkeypatch.setattr(slurm_storage, "run", run)
    monkeypatch.setattr(slurm_storage, "UNITS", str(tmp_path))
    monkeypatch.setattr(slurm_storage, "hidden", lambda _path: ["a file of the build"])
    monkeypatch.setattr(mount_record, "PATH", str(tmp_path / "record"))
    written: list[str] = []
    monkeypatch.setattr(slurm_storage, "write", lambda files, **_options: written.extend(file.path for file in files))
    module: Any = SimpleNamespace(check_mode=False, params=params)
    result = slurm_storage.Work(module).run()
    assert result["changed"]
    assert mount["unit_file"] in written
    assert commands == [["env", "SYSTEMD_OFFLINE=1", "systemctl", "enable", "--quiet", "data.mount"]]
    assert mount_record.read()["plan"] == mount_record.INCOMPLETE
    assert not (tmp_path / "export").exists()
    assert not (tmp_path / "home").exists()
    # Where the root is read-only, a boot cannot make it.
    assert data.is_dir()
