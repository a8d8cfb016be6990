# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurm_client."""

from __future__ import annotations

from dataclasses import dataclass

from ..known import image
from ..known.daemon_records import is_unchanged, options_digest
from ..known.host_paths import CONF_DIR
from ..known.platform import platform
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.whole_cluster import conf_servers


@dataclass(frozen=True)
class SackdService:
    """Options of slurm_service for sackd."""

    files: list[HostFile]
    servers: list[str]
    absent: list[str]
    """Commands would read this file instead of the configuration that sackd fetches."""
    digest: str
    unchanged: bool
    """Whether the host has sackd as the last run has left it."""


def service(host: RunHost) -> SackdService:
    """How sackd runs on this host."""
    files = unit_files(host)
    digest = options_digest(files)
    return SackdService(
        files, conf_servers(host), [f"{CONF_DIR}/slurm.conf"], digest, is_unchanged(host, "sackd", digest)
    )


def unit_files(host: RunHost) -> list[HostFile]:
    """The settings of sackd's unit."""
    settings = host.text("slurm_client", "sackd.service.j2", servers=",".join(conf_servers(host)))
    return [{"path": "/etc/systemd/system/sackd.service.d/gpucluster-slurm.conf", "content": settings}]


def has_conf(host: RunHost) -> bool:
    """Whether the host has the configuration from slurmctld or slurmd; if not, sackd fetches it."""
    return host.within("slurm_controller", "slurm_compute")


def wants_sackd(host: RunHost) -> bool:
    """Whether sackd runs on this host."""
    return not has_conf(host) and platform(host).sackd


def wants_copy(host: RunHost) -> bool:
    """Whether the host gets a copy of the configuration, since its release of Slurm has no sackd.

    The controllers have it, so an image does not.
    """
    return not has_conf(host) and not platform(host).sackd and not image.builds(host)
