# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of programs, replaced at once, in directories that may belong to another user.

That user can put a link, a FIFO or another directory in the place of a file or of the directory. None is followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


@contextmanager
def opened_directory(path: str) -> Iterator[int]:
    """A directory, which is no link, except one that only root can have made or can replace. Raises OSError."""
    above = os.stat(os.path.dirname(path))
    of_root = above.st_uid == 0 and not above.st_mode & 0o022
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | (0 if of_root else os.O_NOFOLLOW))
    try:
        yield directory
    finally:
        os.close(directory)


def replace(
    path: str, content: bytes, mode: int = 0o644, ids: tuple[int, int] = (-1, -1), synced: bool = False
) -> None:
    """Replace a file at once. Its directory must be there.

    Args:
        path: its path.
        content: what it has afterwards.
        mode: its permissions.
        ids: its user and its group; -1: those of this process.
        synced: whether the content is on the disk before it replaces the file, which takes long.

    Raises OSError: nothing has changed.
    """
    parent, name = os.path.split(path)
    new = f".{name}.new"
    with opened_directory(parent) as directory:
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=directory)
        with os.fdopen(os.open(new, _NEW, 0o600, dir_fd=directory), "wb") as file:
            file.write(content)
            if ids != (-1, -1):
                os.fchown(file.fileno(), *ids)
            os.fchmod(file.fileno(), mode)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
        if synced:
            os.fsync(directory)


def remove(path: str) -> None:
    """Remove a file, if it is there. Raises OSError."""
    parent, name = os.path.split(path)
    with suppress(FileNotFoundError), opened_directory(parent) as directory:
        os.unlink(name, dir_fd=directory)


def read_with_status(path: str) -> tuple[bytes, os.stat_result]:
    """The content of a file that is no link, for which nobody waits, and what is known of it. Raises OSError."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(), os.fstat(file.fileno())


def read(path: str) -> bytes:
    """The content of such a file."""
    return read_with_status(path)[0]
