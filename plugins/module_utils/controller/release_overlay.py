# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of packages that are unpacked in a directory, run in place of the installed ones.

In a mount namespace of their own, /usr is the directory's over the host's (overlayfs). So programs find their plugins
and libraries at the paths that they were built for, and no other process sees them.
"""

from __future__ import annotations

import ctypes
import os
import shlex
from collections.abc import Sequence

from ..client.commands import run
from ..language.errors import CollectionError

CLONE_NEWNS = 0x00020000  # linux/sched.h; os.unshare came with Python 3.12


class OverlayError(CollectionError):
    """Why the unpacked programs cannot be run."""


def mount(directory: str) -> list[str]:
    """The command that puts the directory over /usr, in the namespace that it runs in."""
    if not os.path.isdir(os.path.join(directory, "usr")):
        raise OverlayError(f"{directory} has no unpacked release of Slurm")
    return ["mount", "-t", "overlay", "-o", f"ro,lowerdir={directory}/usr:/usr", "overlay", "/usr"]


def enter(directory: str) -> None:
    """Let this process and its commands see the unpacked programs, until it ends. Raises OverlayError."""
    command = mount(directory)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OverlayError(f"unshare cannot create a mount namespace: {os.strerror(ctypes.get_errno())}")
    for each in (["mount", "--make-rprivate", "/"], command):
        answer = run(each)
        if answer.status:
            raise OverlayError(f"{' '.join(each)} failed: {answer.message}")


def wrap_command(directory: str, command: Sequence[str]) -> list[str]:
    """The command with which an unpacked program runs. Raises OverlayError."""
    script = f'{shlex.join(mount(directory))}; exec "$@"'
    return ["unshare", "--mount", "sh", "-ec", script, "sh", *command]
