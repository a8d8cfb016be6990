# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access to a real Slurm for the checks: a shell script runs on the system with Slurm, with files from this machine."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Callable, Mapping

# Runs a shell script with this input, and gives its output.
Runner = Callable[[str, bytes], str]


def archive(files: Mapping[str, str | bytes]) -> bytes:
    """A tar archive of files by path."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def in_root(root: str) -> Runner:
    """Run scripts in a root directory that chroot(8) enters, as root, in separate network and process namespaces.

    Processes that the script leaves behind end with it.
    """
    # Names are resolved only where there is an address besides those of the host itself.
    network = "ip link set lo up && ip address add 192.0.2.1 dev lo"
    mounts = f"mount -t proc proc '{root}/proc' && mount --rbind /sys '{root}/sys' && mount --bind /dev '{root}/dev'"
    enter = f"{network} && {mounts} && exec chroot '{root}' sh -c \"$0\""
    space = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation=slave"]

    def run(script: str, data: bytes) -> str:
        command = [*space, "sh", "-c", enter, script]
        return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout.decode()

    return run
