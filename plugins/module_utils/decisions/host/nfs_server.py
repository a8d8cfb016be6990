# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role nfs_server. Its packages and its files are in the plan for the storage (cluster/storage_key.py)."""

from __future__ import annotations

from ...cluster.storage_key import EXPORTS, NFS_CONF_FILE
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from .storage import own_plan


def settings(host: RunHost) -> list[HostFile]:
    """The settings of the server, which it has from its first start on: version 4 alone."""
    return [_file(host, NFS_CONF_FILE)]


def exports(host: RunHost) -> list[HostFile]:
    """The file of the exports."""
    return [_file(host, EXPORTS)]


def _file(host: RunHost, path: str) -> HostFile:
    return {"path": path, "content": own_plan(host)["files"][path]}
