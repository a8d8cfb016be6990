# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state directory of several controllers: its mount, and whether it is the same directory on all of them."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller import state_save_location
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.state_save_location import (
    StateDirectoryError,
    as_user,
    mount_of,
    read_directory,
    remove,
    state_directory_errors,
    unseen,
    write,
)

ME = os.getuid()
KEY = "slurm_conf.StateSaveLocation"

# A host with two disks, NFS, a directory of the first disk that is mounted once more, and automounts: of autofs, below
# which file systems are mounted (/auto), and of systemd, on which one is mounted (/srv/state).
MOUNTINFO = r"""20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
21 20 0:21 / /proc rw,nosuid shared:2 - proc proc rw
30 20 8:16 / /data rw,relatime shared:3 - xfs /dev/sdb rw
31 20 0:50 / /shared rw,relatime shared:4 - nfs4 nfs1:/export/shared rw,vers=4.2
32 20 8:1 /srv/private /state rw,relatime shared:1 - ext4 /dev/sda1 rw
33 20 0:60 / /auto rw,relatime shared:5 - autofs /etc/auto.misc rw,fd=5,indirect
34 33 0:61 /slurm /auto/slurm rw,relatime shared:6 master:7 propagate_from:2 - nfs nfs1:/slurm rw
35 20 0:62 / /srv/state rw,relatime shared:8 - autofs systemd-1 rw,fd=51,direct
36 35 0:63 / /srv/state rw,relatime shared:9 - nfs4 nfs1:/state rw
37 20 0:64 / /with\040a\134blank rw - tmpfs none rw
"""


@pytest.mark.parametrize(
    ("number", "mount"),
    [
        (20, {"point": "/", "type": "ext4", "source": "/dev/sda1", "root": True, "guard": "/", "automount": False}),
        (30, {"point": "/data", "type": "xfs", "source": "/dev/sdb", "root": False, "guard": "/data"}),
        (31, {"point": "/shared", "type": "nfs4", "source": "nfs1:/export/shared", "root": False}),
        (32, {"point": "/state", "type": "ext4", "root": True}),
        (33, {"point": "/auto", "type": "autofs", "guard": "/auto", "automount": True, "root": False}),
        (34, {"point": "/auto/slurm", "type": "nfs", "guard": "/auto", "automount": True, "root": False}),
        (36, {"point": "/srv/state", "type": "nfs4", "guard": "/srv/state", "automount": True}),
        (37, {"point": "/with a\\blank", "type": "tmpfs", "guard": "/with a\\blank", "automount": False}),
    ],
)
def test_where_a_directory_is_mounted(number: int, mount: dict[str, Any]) -> None:
    assert mount_of(MOUNTINFO, number, root=20).items() >= mount.items()


def test_parts_of_one_device_that_the_root_does_not_show_are_no_part_of_it() -> None:
    """Containers and btrfs: the root is one directory of a device, and another one of them is mounted elsewhere."""
    mountinfo = "1 0 8:1 /images/a / rw - ext4 /dev/sda1 rw\n2 1 8:1 /volumes/home /home rw - ext4 /dev/sda1 rw\n"
    assert not mount_of(mountinfo, 2, root=1)["root"]
    mountinfo = mountinfo.replace("/volumes/home", "/images/a/home")
    assert mount_of(mountinfo, 2, root=1)["root"]
    mountinfo = mountinfo.replace("/images/a/home", "/images/another")
    assert not mount_of(mountinfo, 2, root=1)["root"]


def test_two_exports_of_a_server_may_have_one_device() -> None:
    """The kernel has one superblock for them; a host without a disk has its root on such an export."""
    mountinfo = "1 0 0:40 / / rw - nfs4 nfs1:/root/head rw\n2 1 0:40 / /state rw - nfs4 nfs1:/state rw\n"
    assert not mount_of(mountinfo, 2, root=1)["root"]


def test_a_directory_of_this_machine(tmp_path: Path) -> None:
    found = read_directory(str(tmp_path))
    assert (found["inode"], found["owner"]) == (tmp_path.stat().st_ino, ME)
    assert tmp_path.is_relative_to(found["mount"]["point"])
    assert read_directory("/proc/")["mount"] | {"source": ""} == {
        "point": "/proc", "type": "proc", "source": "", "root": False, "guard": "/proc", "automount": False
    }  # fmt: skip


def test_a_directory_that_is_not_there_would_be_on_the_mount_above_it(tmp_path: Path) -> None:
    found = read_directory(str(tmp_path / "a/b/"))
    assert (found["inode"], found["owner"]) == (None, None)
    assert found["mount"] == read_directory(str(tmp_path))["mount"]


def test_a_link_leads_to_the_mount_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc")
    assert read_directory(str(tmp_path / "link"))["mount"]["point"] == "/proc"


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(NotADirectoryError):
        read_directory(str(tmp_path / "state"))


@pytest.mark.parametrize("path", ["state", "./state", ""])
def test_a_relative_path_leads_nowhere(path: str) -> None:
    with pytest.raises(StateDirectoryError, match="is not an absolute path"):
        read_directory(path)


def test_a_file_is_seen_in_the_same_directory_by_another_path_alone(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "same").symlink_to("one")
    name = write(str(tmp_path / "one"))
    assert unseen(str(tmp_path / "same"), [name], seconds=0) == []
    assert unseen(str(tmp_path / "other"), [name], seconds=0) == [name]
    remove(str(tmp_path / "same"), [name])
    remove(str(tmp_path / "same"), [name])  # somebody else has done so
    assert [*(tmp_path / "one").iterdir()] == []


def test_each_file_has_a_name_of_its_own(tmp_path: Path) -> None:
    assert write(str(tmp_path)) != write(str(tmp_path))


def test_a_file_with_another_content_is_not_the_one(tmp_path: Path) -> None:
    name = write(str(tmp_path))
    (tmp_path / name).write_text("")
    assert unseen(str(tmp_path), [name], seconds=0) == [name]


def test_a_file_that_appears_late_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system may show it after a moment."""
    (tmp_path / "late").mkdir()
    name = write(str(tmp_path))
    monkeypatch.setattr(time, "sleep", lambda _seconds: (tmp_path / name).rename(tmp_path / "late" / name))
    assert unseen(str(tmp_path / "late"), [name], seconds=60) == []


def test_what_a_killed_run_has_left_goes_with_a_later_one(tmp_path: Path) -> None:
    killed, running = write(str(tmp_path)), write(str(tmp_path))
    (tmp_path / "job_state").touch()
    (tmp_path / ".gpucluster-slurm-notes").touch()
    for name in (killed, "job_state", ".gpucluster-slurm-notes"):
        os.utime(tmp_path / name, (0, 0))
    name = write(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {running, name, "job_state", ".gpucluster-slurm-notes"}


@pytest.mark.parametrize("name", ["/etc/passwd", "../job_state", "job_state", ".gpucluster-slurm-", ""])
def test_no_other_file_is_read_or_removed(tmp_path: Path, name: str) -> None:
    for function in (remove, unseen):
        with pytest.raises(StateDirectoryError, match="is not the name of a test file of this check"):
            function(str(tmp_path), [name])


def test_work_is_done_by_a_process_of_its_own() -> None:
    assert as_user(ME, lambda: {"pid": os.getpid()})["pid"] != os.getpid()


@pytest.mark.skipif(ME != 0, reason="only root can become another user")
def test_work_is_done_as_the_user(tmp_path: Path) -> None:
    def who() -> dict[str, Any]:
        return {"ids": [os.getresuid(), os.getresgid()], "groups": os.getgroups()}

    assert as_user(64030, who) == {"ids": [[64030] * 3] * 2, "groups": [64030]}
    tmp_path.chmod(0o700)
    with pytest.raises(StateDirectoryError, match="Permission denied"):
        as_user(64030, lambda: read_directory(str(tmp_path)))


@pytest.mark.skipif(ME != 0, reason="only root can become another user")
def test_the_user_need_not_be_able_to_read_the_library_of_python() -> None:
    """The library of the tests can be in the home of root; modules that are imported late would be missing."""
    with tempfile.TemporaryDirectory() as directory:
        os.chown(directory, 64030, 64030)

        def check() -> dict[str, Any]:
            name = write(directory)
            missing = unseen(directory, [name])
            remove(directory, [name])
            return {**read_directory(directory), "missing": missing}

        assert as_user(64030, check).items() >= {"owner": 64030, "missing": []}.items()
        assert os.listdir(directory) == []


def test_an_error_of_the_system_is_reported() -> None:
    with pytest.raises(StateDirectoryError, match=r"No such file or directory: '/missing/\.gpu"):
        as_user(ME, lambda: {"file": write("/missing")})


def test_a_mistake_in_the_program_is_reported() -> None:
    with pytest.raises(StateDirectoryError, match="ZeroDivisionError: division by zero"):
        as_user(ME, lambda: {"x": 1 / 0})


def test_a_file_system_that_does_not_answer_is_not_waited_for() -> None:
    def hang() -> dict[str, Any]:
        time.sleep(60)
        return {}

    started = time.monotonic()
    with pytest.raises(StateDirectoryError, match=r"no answer within 0\.2 s"):
        as_user(ME, hang, seconds=0.2)
    assert time.monotonic() - started < 10


HOME = {"point": "/home", "type": "nfs4", "source": "nfs1:/home", "root": False, "guard": "/home", "automount": False}
DISK = {"point": "/", "type": "ext4", "source": "/dev/sda1", "root": True, "guard": "/", "automount": False}
PRIVATE = {**HOME, "point": "/home/state", "type": "tmpfs", "source": "none"}
AUTOFS = {**HOME, "type": "autofs", "source": "/etc/auto.home", "automount": True}
A, B, C = (f".gpucluster-slurm-{digit * 16}" for digit in "abc")
PATH = "/home/state"


def one(file: str = "", mount: dict[str, Any] | None = None, inode: int | None = 5, error: str = "") -> dict[str, Any]:
    """The answer of a controller; the default of `mount` is HOME."""
    return {"mount": mount or HOME, "inode": inode, "file": file, "error": error}


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ({"h1": one(A), "h2": one(B)}, {"h1": [], "h2": []}),
        ({"h1": one(A), "h2": one(B, inode=6)}, {"h1": [], "h2": []}),
        ({"h1": one(A)}, {"h1": []}),
        ({"h1": one(inode=None), "h2": one(inode=None)}, {}),
        ({"h1": one(), "h2": one()}, {}),
        ({}, {}),
    ],
    ids=["checked", "inodes decide nothing then", "alone", "not created yet", "check mode", "none"],
)
def test_no_error(written: dict[str, Any], seen: dict[str, Any]) -> None:
    answers = {host: {"missing": missing, "error": ""} for host, missing in seen.items()}
    assert state_directory_errors(written, answers, PATH) == []


BOTH = "h1 has it on /home (nfs4, nfs1:/home)"


@pytest.mark.parametrize(
    ("written", "seen", "error"),
    [
        (
            {"h1": one(A), "h2": one(mount=DISK), "h3": one(mount=DISK)},
            {"h1": []},
            "found /home/state, which is a directory of the root file system on h[2-3]; allowed: a directory of a file"
            " system that all controllers mount. Is it mounted there?",
        ),
        (
            {"h1": one(A), "h2": one(mount=AUTOFS, inode=None)},
            {"h1": []},
            "found /home/state, which is on an automount without its file system on h2; see the log of the automounter",
        ),
        (
            {"h1": one(A), "h2": one(error="no answer within 20 s")},
            {"h1": []},
            "found /home/state, which slurm cannot use on h2: no answer within 20 s",
        ),
        (
            {"h1": one(A), "h2": one(inode=None)},
            {"h1": []},
            "found /home/state, which is not one directory: h1 has it, and h2 does not; "
            f"{BOTH}, h2 has it on /home (nfs4, nfs1:/home)",
        ),
        (
            {"h1": one(A), "h2": one(inode=6)},
            {"h1": []},
            "found /home/state, which is not one directory: slurm owns it on h1, and not on h2; "
            f"{BOTH}, h2 has it on /home (nfs4, nfs1:/home)",
        ),
        (
            {"h1": one(), "h2": one(mount=PRIVATE, inode=1)},
            {},
            "found /home/state, which is not one directory: its inode is 5 on h1 and 1 on h2; "
            f"{BOTH}, h2 has it on /home/state (tmpfs, none)",
        ),
        (
            {"h1": one(A), "h2": one(B, mount=PRIVATE)},
            {"h1": [B], "h2": [A]},
            "found /home/state, which is not one directory: h1 does not see the file of h2, h2 does not see the file"
            f" of h1; {BOTH}, h2 has it on /home/state (tmpfs, none)",
        ),
        (
            {"h1": one(A), "h2": one(B), "h3": one(C)},
            {"h1": [B, C], "h2": [A], "h3": []},
            "found /home/state, which is not one directory: h1 does not see the file of h[2-3], h2 does not see the"
            f" file of h1; {BOTH}, h2 has it on /home (nfs4, nfs1:/home), h3 has it on /home (nfs4, nfs1:/home)",
        ),
    ],
    ids=["root", "automount", "error", "not there", "owner", "check mode", "private", "three"],
)
def test_what_is_refused(written: dict[str, Any], seen: dict[str, Any], error: str) -> None:
    answers = {host: {"missing": missing, "error": ""} for host, missing in seen.items()}
    assert state_directory_errors(written, answers, PATH) == [f"{KEY}: {error}"]


def test_an_error_while_the_files_are_read_is_reported() -> None:
    answers = {"h1": {"missing": [], "error": "Stale file handle"}, "h2": {"missing": [A], "error": ""}}
    assert state_directory_errors({"h1": one(A), "h2": one(B)}, answers, PATH) == [
        f"{KEY}: found /home/state, which slurm cannot use on h1: Stale file handle"
    ]


def test_the_timeout_is_longer_than_the_time_that_a_file_may_take() -> None:
    assert state_save_location.TIMEOUT > state_save_location.VISIBLE
