# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The database server of a site, which the collection does not manage (the key `database_server`)."""

from __future__ import annotations

import os

from .host_paths import DATABASE_CA
from .run_host import RunHost
from .shipped_files import HostFile


def has_server(host: RunHost) -> bool:
    """Whether slurmdbd on this host uses such a server."""
    return host.name == host["slurm_database"] and bool(host["slurm_database_server"])


def certificate_files(host: RunHost) -> list[HostFile]:
    """The file with which this host checks the server; none without TLS."""
    if not has_server(host) or not (name := host["slurm_database_server"].get("ca")):
        return []
    content = host.content(os.path.join(host["slurm_cluster_dir"], name)) or b""
    return [{"path": DATABASE_CA, "content": content.decode("ascii", "ignore")}]
