# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The distribution's Prometheus, on the controller of a cluster with the key `monitoring`."""

from __future__ import annotations

from dashboard_4323 import wait_for_series
from lab import Lab


def test_prometheus_has_the_series_of_common_dashboards(lab: Lab) -> None:
    (address,) = (node["address"] for node in lab.cluster["nodes"] if node["hosts"] == lab.controller)
    wait_for_series(address)
    assert lab.command(lab.controller, "systemctl --failed --no-legend --plain") == ""
