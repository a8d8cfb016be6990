# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directories in which a site wants files of Slurm's daemons and of backups."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

DIRECTORIES = {
    "slurm_compute": ("SlurmdSpoolDir",),
    "slurm_controller": ("StateSaveLocation",),
    "slurm_database": ("ArchiveDir",),
}
"""Parameters that are a directory, by the group of the hosts whose daemons use it."""

FILES = {
    "slurm_compute": ("SlurmdLogFile", "SlurmdPidFile"),
    "slurm_controller": ("JobCompLoc", "SlurmSchedLogFile", "SlurmctldLogFile", "SlurmctldPidFile"),
    "slurm_database": ("LogFile", "PidFile"),
}
"""Parameters that are a file."""


def chosen_directories(
    slurm_conf: Mapping[str, Any], slurmdbd_conf: Mapping[str, Any], groups: Collection[str], target: str = ""
) -> list[dict[str, str]]:
    """The directories in which daemons of a host, which start as root, make their files where a site has chosen it.

    A path with a part for the node, such as %n, is left out: slurmd replaces it (slurm.conf(5)). JobCompLoc may also be
    an URL, and a log may go to syslog. The result is for the option `directories` of the module slurm_host_facts.

    Args:
        slurm_conf: parameters of slurm.conf. slurmdbd_conf: those of slurmdbd.conf.
        groups: the groups of the host.
        target: where backups are kept; a path, or a service with which restic works.
    """
    settings = {**slurm_conf, **slurmdbd_conf}
    found = [target]
    for group in sorted({*groups} & {*DIRECTORIES}):
        found += [str(settings.get(name) or "") for name in DIRECTORIES[group]]
        found += [os.path.dirname(str(settings.get(name) or "")) for name in FILES[group]]
    paths = sorted({path for path in found if path.startswith("/") and "%" not in path})
    return [{"path": path} for path in paths]
