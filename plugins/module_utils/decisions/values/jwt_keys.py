# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of tokens (JWT): on the control host in slurm_secrets_dir, on hosts in /etc/gpucluster-slurm.

There are two. That of slurmctld's pages opens these alone (docs/design/metrics.md); with that of the key `rest`, one
can speak to Slurm as any user (docs/design/rest.md).
"""

from __future__ import annotations

import base64

from ..known import registered, secret_sources
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.whole_cluster import slurm_user

PAGES = secret_sources.PAGES
COMMANDS = secret_sources.COMMANDS


def wanted_files(host: RunHost, key: str) -> list[HostFile]:
    """The key on the hosts, for slurm_files; nothing in check mode, while no run has made the key."""
    return [file(host, key, slurm_user(host))] if secret_sources.is_known(host, key) else []


def host_path(key: str) -> str:
    """The file on hosts that has a key."""
    return f"/etc/gpucluster-slurm/{key}"


def file(host: RunHost, key: str, owner: str) -> HostFile:
    """A key for slurm_service; an empty one until the run has made it on the control host."""
    secret = base64.b64encode(secret_sources.secret(host, key) or b"").decode()
    return {"path": host_path(key), "secret": secret, "owner": owner, "mode": "0400"}


def known(host: RunHost) -> str:
    """The key that a host of this play has, in base64; empty if none has it.

    A control host without the key, such as another administrator's, gets it from there.
    """
    found = [registered.SLURM_TOKEN_KEY_PRESENT.seen(host.of(name)).get("content") for name in host.play_hosts]
    return next((content for content in found if content is not None), "")
