# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of site.yml that `--limit` restricts to compute nodes: it shares the run lock with runs of other nodes."""

from __future__ import annotations

from ...cluster.keys import SERVERS
from ..known.run_host import RunHost
from ..known.whole_cluster import hosts_of_key

STOPPED_CONTROLLER = "slurm_needs_stopped_controller"
"""Stage `controller` changes the hosts of this group, whatever else they are."""


def nodes(host: RunHost) -> list[str]:
    """The compute nodes that this run changes, and nothing else; none if one of its hosts has another duty.

    A host that was not reached counts as well: its duty is a reason for the changes of others.
    """
    servers = {name for key in SERVERS for name in hosts_of_key(host, key)}
    nodes_alone = {*host.members("slurm_compute")} - servers - file_servers(host) - {*host.members(STOPPED_CONTROLLER)}
    return host.play_hosts if nodes_alone.issuperset(host.all_play_hosts) else []


def file_servers(host: RunHost) -> set[str]:
    """The hosts that export a part of the storage."""
    plans = host.shared("storage_plans")
    return {name for name, number in plans["hosts"].items() if plans["plans"][number]["exports"]}
