# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""StateSaveLocation as the cluster file gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEY = "slurm_conf.StateSaveLocation"


def error(slurm_conf: Mapping[str, Any], controllers: int) -> str:
    """What is wrong with StateSaveLocation as it is given, with its key; empty if nothing is.

    Args:
        slurm_conf: the parameters of slurm.conf that a site gives; None removes one.
        controllers: how many there are.
    """
    path = slurm_conf.get("StateSaveLocation")
    if path is None and controllers > 1:
        what = "share their state, so name a directory that all of them mount"
        return f"{KEY}: missing: {controllers} controllers {what}"
    # "Fully qualified pathname", slurm.conf(5); Slurm takes another one from wherever slurmctld was started.
    if path is not None and not str(path).startswith("/"):
        return f"{KEY}: found {path!r}, allowed: an absolute path such as /shared/slurm"
    return ""
