# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role nfs_server. Its packages and its files are in the plan for the storage (cluster/storage_key.py)."""

from __future__ import annotations

from ...cluster.storage_key import EXPORTS, NFS_CONF_FILE
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from .storage import own_plan


def filesystems(host: RunHost) -> list[str]:
    """What the kernel of a server has to have."""
    return ["nfsd"] if own_plan(host).get("exports") else []


def objections(host: RunHost) -> list[str]:
    """Why the host cannot export file systems."""
    lacks = {*filesystems(host)} & {*host.facts["lacks_filesystems"]}
    return [
        f"the kernel has no {name}, so the host cannot export {', '.join(own_plan(host)['exports'])} by NFS: boot a "
        "kernel that has it, as Debian's linux-image-amd64 (after an upgrade of the kernel, reboot), or name another "
        "server in the key storage"
        for name in lacks
    ]


def settings(host: RunHost) -> list[HostFile]:
    """The settings of the server, which it has from its first start on: version 4 alone."""
    return [_file(host, NFS_CONF_FILE)]


def exports(host: RunHost) -> list[HostFile]:
    """The file of the exports."""
    return [_file(host, EXPORTS)]


def _file(host: RunHost, path: str) -> HostFile:
    return {"path": path, "content": own_plan(host)["files"][path]}
