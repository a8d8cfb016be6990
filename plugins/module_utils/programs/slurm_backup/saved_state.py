# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies of StateSaveLocation, in which user slurm can put links."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from .backup_host import BackupError

NEEDED = ("clustername", "job_state", "node_state")
"""Files of StateSaveLocation that each slurmctld has after its first minute."""


def copy_state(source: Path, target: Path) -> None:
    """Copy StateSaveLocation while slurmctld writes there. Raises BackupError if a needed file is missing.

    slurmctld replaces each file by renames, so a copy of a file is whole, but for a moment a name can be missing. The
    file of jobs is copied before their scripts: a script too much does no harm, and a job without its script fails.
    No link is followed, since the directory belongs to user slurm, who would get any file of root with a restore.
    """
    target.mkdir(mode=0o700, parents=True)
    for attempt in range(5):
        for name in NEEDED:
            if not (target / name).exists():
                copy_file(source / name, target / name, follow=False)
        if all((target / name).exists() for name in NEEDED):
            break
        time.sleep(attempt)
    for directory, _directories, names in os.walk(source):
        inside = Path(directory).relative_to(source)
        if inside.parts[:1] == (RESTORING,):
            continue
        (target / inside).mkdir(mode=0o700, exist_ok=True)
        same_owner(Path(directory), target / inside)
        for name in names:
            if not name.endswith((".new", ".lock")) and not (target / inside / name).exists():
                copy_file(Path(directory) / name, target / inside / name, follow=False)
    missing = [name for name in NEEDED if not (target / name).exists() or not (target / name).stat().st_size]
    if missing:
        raise BackupError(f"{source} has no {', '.join(missing)}: slurmctld has not written its state there")


RESTORING = ".restoring"
"""The directory below StateSaveLocation into which a backup is restored."""


def same_owner(source: Path, target: Path) -> None:
    """Give a file or directory the owner and mode of another one."""
    try:
        status = source.stat()
        os.chown(target, status.st_uid, status.st_gid)
        os.chmod(target, status.st_mode & 0o7777)
    except FileNotFoundError:
        pass


def copy_file(source: Path, target: Path, follow: bool = True) -> None:
    """Copy a regular file with its owner, if it is there. `follow`: also the file that a link leads to."""
    try:
        if source.is_file() and (follow or not source.is_symlink()):
            shutil.copy2(source, target, follow_symlinks=follow)
            same_owner(source, target)
    except FileNotFoundError:
        target.unlink(missing_ok=True)


def put_in_place(source: Path, target: Path) -> None:
    """Move the entries of a directory into another one of the same file system, clustername last: it is the mark."""
    for name in sorted(os.listdir(source), key=lambda name: (name == NEEDED[0], name)):
        present = target / name
        if present.is_dir() and not present.is_symlink():
            shutil.rmtree(present)
        os.rename(source / name, present)


def has_state(path: str) -> bool:
    """Whether StateSaveLocation has a complete state."""
    return (Path(path) / NEEDED[0]).exists()
