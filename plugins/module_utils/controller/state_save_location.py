# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""StateSaveLocation of several controllers: its mount on a host, and the check that all have the same directory.

A slurmctld that takes over reads the jobs from the files that the other one has written there (slurm.conf(5)). With a
directory of its own, since a mount is missing, it starts without error and knows no job.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..host.files import named_in_errors
from ..host.mounts.mountinfo import mounts as all_mounts
from ..host.timeout_call import Answer, TimeoutCallError, call_with_timeout
from ..language.errors import CollectionError
from ..language.hostlist import fold

KEY = "slurm_conf.StateSaveLocation"

VISIBLE = 5.0
"""Seconds that a file may take to be seen on another host. NFS asks the server for a name that it has never asked for;
other file systems may answer from a cache for a second."""

TIMEOUT = 20.0
"""Seconds after which a file system is one that does not answer. A process that waits for a lost server of NFS cannot
be ended, and one that waits for it waits as long."""

LEFT_OVER = 600
"""Seconds after which a test file is that of a run that was killed. A check takes a few."""

_PREFIX = ".gpucluster-slurm-"
_NAME = re.compile(re.escape(_PREFIX) + "[0-9a-f]{16}")


_Answer = Mapping[str, Any]
"""The result of the module slurm_state_directory."""


class StateDirectoryError(CollectionError):
    """Why a directory cannot be used."""


# -- where it is mounted ---------------------------------------------------------------------------------------------


def _within(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top.rstrip('/')}/")


def mount_of(mountinfo: str, number: int, root: int) -> Answer:
    """The mount of a directory, as the module slurm_state_directory documents it.

    Args:
        mountinfo: the content of /proc/self/mountinfo.
        number: the number of the directory's mount there.
        root: that of the mount of /.
    """
    mounts = {mount.number: mount for mount in all_mounts(mountinfo)}
    mount, top = mounts[number], mounts[root]
    # What an automount mounts comes and goes; the automount stays, and nothing can be created on it.
    automount, above = None, mounts.get(number)
    while above and not automount:
        automount = above if above.type == "autofs" else None
        above = mounts.get(above.parent) if above.parent != above.number else None
    return {
        "point": mount.point,
        "type": mount.type,
        "source": mount.source,
        # Also where a directory of / is mounted once more. Two exports of an NFS server may have one device.
        "root": (mount.device, mount.source) == (top.device, top.source) and _within(mount.root, top.root),
        "guard": (automount or mount).point,
        "automount": automount is not None,
    }


def _mount_number(descriptor: int) -> int:
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="utf-8") as file:
        return int(dict(line.split(":") for line in file)["mnt_id"])


def read_directory(path: str) -> Answer:
    """The mount of a directory, and its inode and owner, which are None where it is not there: then it is the mount
    that it would be created on.

    Raises:
        OSError: it is no directory, or may not be reached.
        StateDirectoryError: its path is relative.
    """
    if not path.startswith("/"):
        raise StateDirectoryError(f"{path!r} is not an absolute path")
    wanted = place = path.rstrip("/") or "/"
    # These flags mount what an automount has unmounted, and need no right to read the directory (path_resolution(7)).
    flags = os.O_PATH | os.O_DIRECTORY
    while True:
        try:
            descriptor = os.open(place, flags)
            break
        except FileNotFoundError:
            place = os.path.dirname(place)
    root = os.open("/", flags)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            mount = mount_of(file.read(), _mount_number(descriptor), _mount_number(root))
        status = os.fstat(descriptor) if place == wanted else None
    finally:
        os.close(descriptor)
        os.close(root)
    return {"mount": mount, "inode": status and status.st_ino, "owner": status and status.st_uid}


# -- whether it is one -----------------------------------------------------------------------------------------------


def write(path: str) -> str:
    """Write a file that only this call has written into a directory, and give its name.

    Files that runs which were killed have left go. Raises OSError.
    """
    name = _PREFIX + os.urandom(8).hex()
    place = os.path.join(path, name)
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with named_in_errors(place), os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(name)
        file.flush()
        os.fsync(descriptor)
        now = os.fstat(descriptor).st_mtime  # of the server's clock, as those of the other files
    with os.scandir(path) as entries:
        others = [entry.path for entry in entries if _NAME.fullmatch(entry.name)]
    for other in others:
        with suppress(FileNotFoundError):  # another controller may be faster
            if os.stat(other).st_mtime < now - LEFT_OVER:
                os.unlink(other)
    return name


def _paths_of_test_files(path: str, names: Sequence[str]) -> list[str]:
    """The paths of test files. The names come from another host: StateDirectoryError if one is something else."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise StateDirectoryError(f"{name!r} is not the name of a test file of this check")
    return [os.path.join(path, name) for name in names]


def unseen(path: str, names: Sequence[str], seconds: float = VISIBLE) -> list[str]:
    """Those of the files that others have written into a directory which are not in it after `seconds`.

    Raises OSError, and StateDirectoryError.
    """
    files = dict(zip(names, _paths_of_test_files(path, names)))
    deadline = time.monotonic() + seconds
    while True:
        files = {name: file for name, file in files.items() if not _holds(file, name)}
        if not files or time.monotonic() > deadline:
            return [*files]
        time.sleep(0.5)


def _holds(file: str, text: str) -> bool:
    """Whether a file has this content."""
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.read(len(text) + 1) == text
    except FileNotFoundError:
        return False


def remove(path: str, names: Sequence[str]) -> None:
    """Remove files that `write` has written. Raises OSError, and StateDirectoryError."""
    for file in _paths_of_test_files(path, names):
        with suppress(FileNotFoundError):  # another run may have taken it for one that was left
            os.unlink(file)


def state_directory_errors(written: Mapping[str, _Answer], seen: Mapping[str, _Answer], path: str) -> list[str]:
    """Why controllers cannot keep their state in a directory; empty if they can, as far as it was shown.

    Without any file, in check mode or before slurm owns the directory, the inodes decide: they are equal on all hosts
    of a shared file system, and may be so by chance on others.

    Args:
        written: the results of the module slurm_state_directory with `write`, by host. seen: its results with `see`, by
        host.
        path: the directory.
    """
    found = f"{KEY}: found {path}, which"
    failed = {host: answer["error"] for answers in (written, seen) for host, answer in answers.items()}
    if any(failed.values()):
        return [f"{found} slurm cannot use on {host}: {error}" for host, error in failed.items() if error]
    on_root = _those(written, lambda answer: bool(answer["mount"]["root"]))
    if on_root:
        return [
            f"{found} is a directory of the root file system on {on_root}; allowed: a directory of a file system that"
            " all controllers mount. Is it mounted there?"
        ]
    waiting = _those(written, lambda answer: answer["mount"]["type"] == "autofs")
    if waiting:
        return [f"{found} is on an automount without its file system on {waiting}; see the log of the automounter"]
    why = _difference(written, seen)
    places = ", ".join(
        "{host} has it on {point} ({type}, {source})".format(host=host, **answer["mount"])
        for host, answer in written.items()
    )
    return [f"{found} is not one directory: {why}; {places}"] if why else []


def _those(answers: Mapping[str, _Answer], attribute: Callable[[_Answer], bool]) -> str:
    """The hosts whose answers have an attribute, folded."""
    return fold([host for host, answer in answers.items() if attribute(answer)])


def _difference(written: Mapping[str, _Answer], seen: Mapping[str, _Answer]) -> str:
    """The differences between the directories of hosts; empty if none were found."""
    inodes = {host: answer["inode"] for host, answer in written.items()}
    writers = {answer["file"]: host for host, answer in written.items() if answer["file"]}
    if None in inodes.values() and {*inodes.values()} != {None}:
        without = _those(written, lambda answer: answer["inode"] is None)
        return f"{_those(written, lambda answer: answer['inode'] is not None)} has it, and {without} does not"
    if not writers:
        each = " and ".join(f"{inode} on {host}" for host, inode in inodes.items())
        return f"its inode is {each}" if len({*inodes.values()}) > 1 else ""
    if len(writers) < len(written):
        others = _those(written, lambda answer: not answer["file"])
        return f"slurm owns it on {fold([*writers.values()])}, and not on {others}"
    return ", ".join(
        f"{host} does not see the file of {fold([writers[name] for name in answer['missing']])}"
        for host, answer in seen.items()
        if answer["missing"]
    )


# -- as the user slurm -----------------------------------------------------------------------------------------------


def as_user(user_id: int, work: Callable[[], Answer], seconds: float = TIMEOUT) -> Answer:
    """The result of `work` in a process of its own, with the rights of a user, which need not exist yet.

    root has less of them than slurm where a server of NFS takes root for nobody (`root_squash` in exports(5)). `work`
    imports nothing, encodings other than UTF-8 included: the user may be unable to read Python's library.

    Raises:
        StateDirectoryError: it has failed, or has not ended after `seconds`.
    """

    def work_of_user() -> Answer:
        if os.geteuid() == 0:
            _become(user_id)
        return work()

    try:
        result: Answer = call_with_timeout(work_of_user, seconds, (OSError, StateDirectoryError))
    except TimeoutCallError as error:
        raise StateDirectoryError(str(error)) from None
    return result


def _become(user_id: int) -> None:
    """Give up root's rights for those of a user; one that is not there yet has the group of its own number."""
    try:
        user = pwd.getpwuid(user_id)
    except KeyError:
        os.setgroups([user_id])
        os.setgid(user_id)
    else:
        os.initgroups(user.pw_name, user.pw_gid)
        os.setgid(user.pw_gid)
    os.setuid(user_id)
