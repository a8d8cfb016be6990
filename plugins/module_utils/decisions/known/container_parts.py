# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm's configuration names for all hosts, by the role that installs it: jobs fail on a host that lacks it."""

from __future__ import annotations

from . import registered
from .host_paths import CONF_DIR, ENROOT_PROLOG, PYXIS_PLUGIN
from .run_host import RunHost

PARTS = {"enroot": ENROOT_PROLOG, "pyxis": PYXIS_PLUGIN}

SEARCH = [
    *("grep", "--no-filename", "--fixed-strings"),
    *(f"--regexp={path}" for path in PARTS.values()),
    *(f"{CONF_DIR}/slurm.conf", f"{CONF_DIR}/plugstack.conf"),
]
"""The command that shows the lines of the configuration with one of the parts."""


def left_out(host: RunHost, limited: list[str]) -> list[str]:
    """The hosts that get the parts, but not in this run, which writes the configuration.

    Args:
        limited: the hosts of --limit.
    """
    if "ansible_limit" not in host or not {"all", "controller"} & {*host["ansible_run_tags"]}:
        return []
    wanted = {*host.members("slurm_compute"), *host.members("slurm_login")}
    return sorted(wanted.difference(limited), key=str.lower)


def newly_named(host: RunHost) -> list[str]:
    """The roles whose part the configuration would name for the first time."""
    named = registered.SLURMCTLD_NAMED.of(host)["stdout"]
    return [role for role, path in PARTS.items() if role in host["slurm_containers"] and path not in named]
