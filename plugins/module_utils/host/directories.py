# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories of root and of services: owner and mode as wanted, on a path that no other user can change.

Each part of a path is opened by itself and never through a symbolic link of somebody else, as systemd does
it ("unsafe path transition", chase() in src/basic/chase.c). A link of root, such as /var/spool/slurmctld -> /data, is a
decision of an administrator, and is followed.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .options import option, several, switch

OPTION = several(
    "Directories of root and of services, whose owner and mode are compared. No other user may be able to change "
    "their paths. A symbolic link is followed if it belongs to root. A symbolic link of another user, a directory "
    "above in which other users can write, and a directory that another user has made are errors.",
    "dict",
    options={
        "path": option("Path of the directory.", "path", required=True),
        "owner": option(
            "User who owns the directory, by name. Its group is that of the user. With the empty value, any owner and "
            "mode is right with which other users cannot write there, and nothing is changed.",
            default="",
        ),
        "owner_id": option(
            "Id of a user O(directories[].owner) who does not exist yet, and of the group of this user. Without it, "
            "what belongs to this id belongs to a stranger.",
            "int",
            default=0,
        ),
        "mode": option("Permissions of the directory, in octal.", default="0755"),
        "make": switch("Whether the directory is made if it is missing.", default=True),
        "closed": switch(
            "Whether nothing in the directory may belong to an ordinary user. That is one with an id of 1000 or more "
            "who owns none of the directories."
        ),
        "file": switch("Whether it is a file with one name, which is never made."),
    },
)
"""The option of a module for directories."""

ORDINARY = 1000
"""The first id of people and their groups (UID_MIN and GID_MIN in login.defs(5))."""

MISSING = "missing"

_LINKS = 40
"""Symbolic links on a path, as the kernel allows them (path_resolution(7))."""
_SHOWN = 3
_LENGTH = 100
_OPEN = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW


class DirectoryError(OSError):
    """A path that another user can change, or something else than a directory. All modules report an OSError."""


@dataclass(frozen=True)
class Directory:
    """A directory as it is wanted, or a file, which is compared only. The options of the modules have the same names.

    Without an owner, the administrator chooses owner and mode, and only the path is examined. owner_id: the id that the
    run gives to an owner who does not exist yet, with a group of the same id. A file system can outlive its host, and
    then has files of this id.
    """

    path: str
    owner: str = ""
    mode: str = "0755"
    make: bool = True
    closed: bool = False
    file: bool = False
    owner_id: int = 0

    @property
    def ids(self) -> tuple[int, int] | None:
        """Ids of the owner and his group; None if there is no such user, and his id is not known."""
        try:
            user = pwd.getpwnam(self.owner)
        except KeyError:
            return (self.owner_id, self.owner_id) if self.owner_id else None
        return user.pw_uid, user.pw_gid

    @property
    def wanted(self) -> str:
        """Owner, group and mode, as `described` has those of a directory that is there."""
        ids = self.ids
        group = group_name(ids[1]) if ids and ids[1] != self.owner_id else self.owner
        return f"{self.owner}:{group} {int(self.mode, 8):04o}"


def from_options(wanted: Iterable[Mapping[str, Any]]) -> list[Directory]:
    """Directories by OPTION, those above others first.

    Raises DirectoryError for a relative path, or a mode that is not octal.
    """
    found = [Directory(**options) for options in wanted]
    for directory in found:
        if not os.path.isabs(directory.path):
            raise DirectoryError(f"path: found {directory.path!r}, allowed: an absolute path")
        if not directory.mode.isdigit() or len(directory.mode) not in (3, 4) or {*directory.mode} & {"8", "9"}:
            raise DirectoryError(f"mode: found {directory.mode!r}, allowed: octal digits such as 0755")
    return sorted(found, key=lambda directory: directory.path)


# -- texts -----------------------------------------------------------------------------------------------------------


def user_name(number: int) -> str:
    """The name of a user; the number where there is no such user."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def group_name(number: int) -> str:
    """The name of a group; the number where there is no such group."""
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _described(status: os.stat_result) -> str:
    return f"{user_name(status.st_uid)}:{group_name(status.st_gid)} {stat.S_IMODE(status.st_mode):04o}"


def _shown(path: str) -> str:
    """A path as one short line of ASCII: users choose names."""
    text = ascii(path)[1:-1]
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}..."


# -- paths -----------------------------------------------------------------------------------------------------------


class _Path:
    """The way to a directory, part by part, with the directory above its last part open."""

    def __init__(self, path: str, owners: frozenset[int], repaired: frozenset[tuple[int, int]]) -> None:
        self.path, self.owners, self.repaired = path, owners, repaired
        self.here, self.above = "/", os.open("/", _OPEN)
        self.status = os.fstat(self.above)
        self._rest = _parts(path)
        self._links = 0

    def close(self) -> None:
        """Close the directory that is open."""
        os.close(self.above)

    def _refuse(self, what: str, allowed: str) -> DirectoryError:
        of = "" if _shown(self.path) == what.partition(" ")[0] else f" (on the path of {_shown(self.path)})"
        return DirectoryError(f"{what}{of}, allowed: {allowed}")

    def _enter(self, name: str) -> None:
        """Open the directory of a part of the path. Raises OSError."""
        descriptor = os.open(name, _OPEN, dir_fd=self.above)
        os.close(self.above)
        self.above, self.status = descriptor, os.fstat(descriptor)
        self.here = os.path.normpath(os.path.join(self.here, name))

    def _check(self) -> None:
        """Raises DirectoryError if another user can change what is in the directory that is open."""
        status, shown = self.status, _shown(self.here)
        if (status.st_dev, status.st_ino) in self.repaired:
            return
        if status.st_uid not in self.owners:
            raise self._refuse(
                f"{shown} belongs to {user_name(status.st_uid)}, who could replace what is in it",
                # Others go on to enter it.
                f"a directory of root (chown root {shown})"
                if status.st_mode & stat.S_IXOTH
                else "a directory of root that the daemons can enter",
            )
        if not status.st_mode & stat.S_ISVTX and _writable_by_others(status, self.owners):
            raise self._refuse(
                f"{shown} is {_described(status)}, so that other users could replace what is in it",
                f"a directory in which they cannot write (chmod go-w {shown})",
            )

    def last(self) -> tuple[str, os.stat_result | None]:
        """The name of the last part in `above`, and its status; None if it or a directory above it is missing.

        Parts that are missing stay in `missing`. Raises DirectoryError, OSError.
        """
        while True:
            self._check()
            if not self._rest:
                return ".", self.status
            name = self._rest.pop(0)
            try:
                status = os.stat(name, dir_fd=self.above, follow_symlinks=False)
            except FileNotFoundError:
                return name, None
            if stat.S_ISLNK(status.st_mode):
                self._follow(name, status)
            elif not self._rest:
                return name, status
            else:
                try:
                    self._enter(name)
                except NotADirectoryError:
                    raise self._refuse(f"{_shown(os.path.join(self.here, name))} is a file", "a directory") from None

    def _follow(self, name: str, status: os.stat_result) -> None:
        """Replace a part of the path by what a symbolic link has. Raises DirectoryError."""
        link = _shown(os.path.join(self.here, name))
        if status.st_uid != 0:
            raise self._refuse(
                f"{link} is a symbolic link of {user_name(status.st_uid)}", "a directory, or a link of root; remove it"
            )
        self._links += 1
        if self._links > _LINKS:
            raise self._refuse(f"{link} is a symbolic link that leads to itself", "a directory")
        target = os.readlink(name, dir_fd=self.above)
        if target.startswith("/"):
            os.close(self.above)
            self.here, self.above = "/", os.open("/", _OPEN)
            self.status = os.fstat(self.above)
        self._rest = [*_parts(target), *self._rest]

    def make(self, name: str) -> str:
        """Make the missing parts of the path, enter all but the last, and give its name. Raises OSError."""
        for part in self._rest:
            os.mkdir(name, 0o755, dir_fd=self.above)
            self._enter(name)
            name = part
        os.mkdir(name, 0o700, dir_fd=self.above)
        return name


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _writable_by_others(status: os.stat_result, owners: Iterable[int]) -> bool:
    """Whether users that are neither root nor services can write."""
    by_group = bool(status.st_mode & stat.S_IWGRP) and status.st_gid >= ORDINARY
    return bool(status.st_mode & stat.S_IWOTH) or (by_group and status.st_gid not in _groups(owners))


def _groups(owners: Iterable[int]) -> set[int]:
    """The groups of users."""
    found = set()
    for owner in owners:
        with suppress(KeyError):
            found.add(pwd.getpwuid(owner).pw_gid)
    return found


# -- comparison and repair -------------------------------------------------------------------------------------------


class Directories:
    """Directories of a host, compared with the wanted ones.

    differ: owner, group and mode, or MISSING, of those that are to be created or repaired, by path.
    refused: why nothing may be created or changed, a sentence for each reason.
    """

    def __init__(self, wanted: Sequence[Directory], others: Directories | None = None) -> None:
        """Compare the directories. A path that root may not enter, on a file server, is not judged.

        others: directories that are repaired before these, and whose owners are trusted here as well.

        Raises OSError.
        """
        self.wanted = wanted
        self.differ: dict[str, str] = {}
        self.refused: list[str] = []
        owners = frozenset(ids[0] for directory in wanted if (ids := directory.ids))
        self._owners: frozenset[int] = owners | (others._owners if others else {0})
        self._repaired: frozenset[tuple[int, int]] = others._repaired if others else frozenset()
        for directory in wanted:
            reason = self._reason(directory)
            if reason and reason not in self.refused:
                self.refused.append(reason)

    def _reason(self, directory: Directory) -> str:
        """Compare one directory; the reason to refuse it, or nothing. Raises OSError."""
        try:
            self._compare_directory(directory)
        except DirectoryError as error:
            return str(error)
        except PermissionError:
            pass
        return ""

    def _compare_directory(self, directory: Directory) -> None:
        """Compare one directory. Raises DirectoryError, OSError."""
        path = _Path(directory.path, self._owners, self._repaired)
        try:
            name, status = path.last()
            if status is None:
                if directory.owner and directory.make and not directory.file:
                    self.differ[directory.path] = MISSING
                return
            self._check_kind(directory, path, status)
            self._compare(directory, status)
            if not directory.file and (directory.closed or self._was_open(directory, status)):
                opened = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=path.above)
                try:
                    self._check_content(directory, opened)
                finally:
                    os.close(opened)
        finally:
            path.close()

    def _is_open(self, status: os.stat_result) -> bool:
        """Whether other users than root and services can write in a directory."""
        return _writable_by_others(status, self._owners) or status.st_uid not in self._owners

    def _was_open(self, directory: Directory, status: os.stat_result) -> bool:
        """Whether users could write in a directory that shall be closed to them."""
        return bool(directory.owner) and self._is_open(status) and not int(directory.mode, 8) & stat.S_IWOTH

    def _check_kind(self, directory: Directory, path: _Path, status: os.stat_result) -> None:
        """Raises DirectoryError if there is something else, or something that a user created before root did."""
        right: Callable[[int], bool] = stat.S_ISREG if directory.file else stat.S_ISDIR
        shown, owner = _shown(directory.path), user_name(status.st_uid)
        if not right(status.st_mode) or (directory.file and status.st_nlink != 1):
            kind = "a file with one name" if directory.file else "a directory"
            raise DirectoryError(f"{shown}: found something else of {owner}, allowed: {kind}; remove what is there")
        if status.st_uid not in self._owners and _writable_by_others(path.status, self._owners):
            raise DirectoryError(
                f"{shown} belongs to {owner}, who created it before root did, allowed: a directory of root or of a "
                "service; check what is in it, and remove it"
            )

    def _compare(self, directory: Directory, status: os.stat_result) -> None:
        """Compare the owner and mode of what is there. Raises DirectoryError."""
        if directory.owner:
            found = (status.st_uid, status.st_gid), stat.S_IMODE(status.st_mode)
            if found != (directory.ids, int(directory.mode, 8)):
                self.differ[directory.path] = _described(status)
            self._repaired |= {(status.st_dev, status.st_ino)}
        elif self._is_open(status) and not status.st_mode & stat.S_ISVTX:
            shown = _shown(directory.path)
            # A daemon of another host may use it now, and would stop.
            owner = "" if status.st_uid in self._owners else ", and chown it to the user whose daemon writes there"
            raise DirectoryError(
                f"{shown} is {_described(status)}, so that other users could replace what is in it, allowed: a "
                f"directory of root or of a service in which they cannot write (chmod go-w {shown}{owner})"
            )

    def _check_content(self, directory: Directory, opened: int) -> None:
        """Raises DirectoryError if a directory has something of an ordinary user, OSError.

        Directories that are wanted themselves are judged by themselves.
        """
        found = []
        known = {wanted.path for wanted in self.wanted if wanted.owner}
        with os.scandir(opened) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    owner = entry.stat(follow_symlinks=False).st_uid
                    of_user = owner >= ORDINARY and owner not in self._owners
                    if of_user and os.path.join(directory.path, entry.name) not in known:
                        found.append(f"{_shown(entry.name)} of {user_name(owner)}")
                if len(found) > _SHOWN:
                    break
        if found:
            names = ", ".join([*found[:_SHOWN], *(["and others"] if len(found) > _SHOWN else [])])
            raise DirectoryError(
                f"{directory.path} has {names}, allowed: files of root or of a service, which read or run them. Close "
                f"the directory (chmod go-w {directory.path}), check what is there, remove it, and run again"
            )

    @property
    def diff(self) -> list[dict[str, str]]:
        """What `repair` changes."""
        return [
            {
                "before_header": directory.path,
                "after_header": directory.path,
                "before": f"{self.differ[directory.path]}\n",
                "after": f"{directory.wanted}\n",
            }
            for directory in self.wanted
            if directory.path in self.differ
        ]

    def check(self) -> None:
        """Raises DirectoryError with all reasons why nothing may be created or changed."""
        if self.refused:
            raise DirectoryError("; ".join(self.refused))

    def repair(self) -> None:
        """Make and correct the directories that differ. Raises DirectoryError, OSError.

        Nothing is opened that another user could have put there since the comparison.
        """
        self.check()
        for directory in self.wanted:
            if directory.path in self.differ:
                self._repair(directory)

    def _repair(self, directory: Directory) -> None:
        ids = directory.ids
        if ids is None:
            raise DirectoryError(f"{directory.path}: there is no user {directory.owner}")
        path = _Path(directory.path, self._owners | {ids[0]}, frozenset())
        try:
            name, status = path.last()
            if status is None:
                name = path.make(name)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | (0 if directory.file else os.O_DIRECTORY)
            opened = os.open(name, flags, dir_fd=path.above)
            try:
                status = os.fstat(opened)
                self._check_kind(directory, path, status)
                os.fchown(opened, *ids)
                os.fchmod(opened, int(directory.mode, 8))
                if not directory.file and self._was_open(directory, status):
                    self._check_content(directory, opened)  # a user may have been there since the comparison
            finally:
                os.close(opened)
        finally:
            path.close()
