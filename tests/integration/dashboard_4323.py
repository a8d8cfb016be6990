# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The series that Grafana's dashboard 4323 has, and those that a Prometheus has."""

from __future__ import annotations

import json
import time
import urllib.parse
from urllib.request import urlopen

SERIES = {
    *(f"slurm_nodes_{state}" for state in ("alloc", "comp", "down", "drain", "err", "fail", "idle", "maint", "mix")),
    *(f"slurm_queue_{state}" for state in ("cancelled", "completed", "completing", "failed", "node_fail", "pending")),
    *(f"slurm_queue_{state}" for state in ("preempted", "running", "suspended", "timeout")),
    *(f"slurm_scheduler_{name}" for name in ("threads", "queue_size", "last_cycle", "mean_cycle")),
    *(f"slurm_scheduler_backfill_{name}" for name in ("last_cycle", "mean_cycle", "depth_mean")),
}


def wait_for_series(address: str) -> None:
    """Return when Prometheus at an address has all of them: the first values come within two minutes."""
    query = urllib.parse.urlencode({"query": '{__name__=~"slurm_.+"}'})
    until = time.monotonic() + 150
    missing = SERIES
    while missing:
        assert time.monotonic() < until, f"Prometheus lacks {sorted(missing)}"
        time.sleep(1)
        with urlopen(f"http://{address}:9090/api/v1/query?{query}", timeout=10) as answer:
            found = {series["metric"]["__name__"] for series in json.load(answer)["data"]["result"]}
        missing = SERIES - found
