# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mounts, the record of a host, homes, and work that does not wait for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.mounts import homes, mount_record
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.mounts.mountinfo import mounted, mounts
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.timeout_call import (
    TimeoutCallError,
    call_with_timeout,
)

MOUNTINFO = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:40 / /home rw shared:2 - nfs4 files:/srv/home rw,vers=4.2,hard
41 22 0:41 / /a\\040b rw - fuse.bindfs /srv/x\\134y rw
42 22 0:42 / /home ro - tmpfs over ro
"""


def test_mounts_of_the_kernel() -> None:
    found = {mount.point: mount for mount in mounts(MOUNTINFO)}
    assert (found["/home"].type, found["/home"].source) == ("tmpfs", "over")
    assert (found["/a b"].type, found["/a b"].source) == ("fuse.bindfs", "/srv/x\\y")
    assert "/" in mounted()


def test_work_in_time() -> None:
    assert call_with_timeout(lambda: {"pid": os.getpid()}, 30)["pid"] != os.getpid()
    with pytest.raises(TimeoutCallError, match=r"^\[Errno 2\] No such file"):
        call_with_timeout(lambda: os.listdir("/missing"), 30)
    with pytest.raises(TimeoutCallError, match="ZeroDivisionError"):
        call_with_timeout(lambda: 1 / 0, 30)


def test_work_that_hangs_is_left(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(TimeoutCallError, match=r"no answer within 0.2 s"):
        call_with_timeout((tmp_path / "fifo").read_text, 0.2)


@pytest.fixture(name="record")
def a_record_that_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The record of a host on which everything is as the last run has left it."""
    monkeypatch.setattr(mount_record, "PATH", str(tmp_path / "record"))
    monkeypatch.setattr(mount_record, "ETAB", str(tmp_path / "etab"))
    (tmp_path / "etab").write_text("/srv/home\t10.0.0.2(rw)\n")
    (tmp_path / "unit").write_text("x")
    (tmp_path / "home").mkdir()
    held = {
        "plan": "0" * 64,
        "files": {str(tmp_path / "unit"): mount_record.checksum(str(tmp_path / "unit"))},
        "mounts": ["/"],
        "homes": {str(tmp_path / "home"): mount_record.changed(str(tmp_path / "home"))},
        "packages": ["nfs-common"],
        "exports": ["/srv/home"],
        "pending": {},
    }
    mount_record.keep(held)
    return held


def test_a_record_that_holds(record: dict[str, Any], tmp_path: Path) -> None:
    assert mount_record.state(["nfs-common", "bash"]) == record["plan"]
    (tmp_path / "record").unlink()
    assert mount_record.state([]) == ""


@pytest.mark.parametrize("what", ["file", "mount", "home", "package", "export", "pending", "broken", "older"])
def test_a_record_that_does_not_hold(record: dict[str, Any], tmp_path: Path, what: str) -> None:
    installed = ["nfs-common"]
    if what == "file":
        (tmp_path / "unit").write_text("y")
    elif what == "mount":
        mount_record.keep({**record, "mounts": ["/", "/nothing/is/here"]})
    elif what == "home":
        (tmp_path / "home/new").mkdir()
    elif what == "package":
        installed = []
    elif what == "export":
        (tmp_path / "etab").unlink()
    elif what == "pending":
        mount_record.keep({**record, "pending": {"home.mount": ["boot", "stays mounted"]}})
    elif what == "broken":
        (tmp_path / "record").write_text('{"plan":')
    else:
        mount_record.keep({"plan": "0"})
    assert mount_record.state(installed) == mount_record.INCOMPLETE


def home(path: Path) -> dict[str, Any]:
    """A home of this test's user."""
    return {"path": str(path), "uid": os.getuid(), "gid": os.getgid()}


def test_homes_are_made_from_the_skeleton(tmp_path: Path) -> None:
    skel = tmp_path / "skel"
    (skel / ".config").mkdir(parents=True)
    skel.chmod(0o755)
    (skel / ".config/x").write_text("x")
    (skel / "link").symlink_to("/nowhere")
    there, wanted = home(tmp_path / "homes/there"), home(tmp_path / "homes/a/alice")
    (tmp_path / "homes/there").mkdir(parents=True, mode=0o755)
    (tmp_path / "homes/a").mkdir()
    (tmp_path / "homes/a/.gpucluster-slurm-alice").mkdir()  # of a run that was killed
    assert homes.missing([there, wanted]) == [wanted]
    homes.make([wanted], str(skel))
    made = tmp_path / "homes/a/alice"
    assert made.stat().st_mode & 0o7777 == 0o700
    assert ((made / ".config/x").read_text(), (made / "link").is_symlink()) == ("x", True)
    assert sorted(path.name for path in made.parent.iterdir()) == ["alice"]
    assert homes.missing([there, wanted]) == []
    assert homes.of_others([there, home(tmp_path / "none")]) == []
    assert homes.of_others([{**there, "uid": 7}]) == [
        f"{tmp_path}/homes/there belongs to uid {os.getuid()}, and in the cluster file to uid 7"
    ]


def test_the_time_of_homes(tmp_path: Path) -> None:
    wanted = [home(tmp_path / f"u{i}") for i in range(300)]
    start = time.monotonic()
    homes.make(wanted)
    assert time.monotonic() - start < 30
    assert homes.missing(wanted) == []
