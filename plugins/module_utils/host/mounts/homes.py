# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Homes of users: created once, with the files of /etc/skel, and never changed afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

from ..directories import Directories, Directory

SKEL = "/etc/skel"
MODE = 0o700
_PREFIX = ".gpucluster-slurm-"


def missing(homes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The homes that are not there."""
    return [home for home in homes if not os.path.lexists(home["path"])]


def of_others(homes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The homes that belong to another user, as texts."""
    found = []
    for home in homes:
        try:
            owner = os.lstat(home["path"]).st_uid
        except FileNotFoundError:
            continue
        if owner != home["uid"]:
            found.append(f"{home['path']} belongs to uid {owner}, and in the cluster file to uid {home['uid']}")
    return found


def _remove(path: str) -> None:
    """Remove a directory, or what a user has put in its place: rmtree would wait for the writer of a FIFO."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)


def make(homes: Iterable[Mapping[str, Any]], skel: str = SKEL) -> None:
    """Create homes. Each is complete when it gets its name, so that a killed run leaves no half one.

    Raises OSError, and DirectoryError if another user can change the path: he would get what root gives away there.
    """
    for home in homes:
        above, name = os.path.split(home["path"])
        Directories([Directory(above)]).check()
        os.makedirs(above, mode=0o755, exist_ok=True)
        Directories([Directory(above)]).check()  # where all may make directories, somebody may have been faster
        part = os.path.join(above, f"{_PREFIX}{name}")
        _remove(part)  # of a run that was killed
        os.mkdir(part, 0o700)
        if os.path.isdir(skel):
            shutil.copytree(skel, part, symlinks=True, dirs_exist_ok=True)
        for directory, directories, files in os.walk(part):
            for entry in (*directories, *files):
                os.lchown(os.path.join(directory, entry), home["uid"], home["gid"])
        os.chmod(part, MODE)  # copytree has given it the mode of the skeleton
        os.chown(part, home["uid"], home["gid"])
        os.rename(part, home["path"])


def places(homes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The directories in which homes are."""
    return sorted({os.path.dirname(home["path"]) for home in homes})
