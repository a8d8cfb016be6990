# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The series that dashboards use, by their source, and how their names are found in expressions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
DESIGN = ROOT / "docs/design/metrics.md"


def own_series() -> set[str]:
    """Those of this collection's program, from the page of their contract."""
    page = DESIGN.read_text().partition("## Series of our own")[2].partition("\n## ")[0]
    return set(re.findall(r"`((?:slurm|gpucluster)_[a-z_]+)(?:\{[^}]*\})?`", page))


def names(prefix: str, ends: str) -> set[str]:
    """Names with one beginning."""
    return {prefix + end for end in ends.split()}


# `src/plugins/metrics/openmetrics/openmetrics.c` of Slurm 26.05; 25.11 has all but those of GPUs, and before it
# `slurm-metrics cluster` writes them.
OF_SLURM = {
    "nodes": names("slurm_node_", "cpus cpus_alloc gpus gpus_alloc"),
    "jobs": names("slurm_jobs_", "hold pending running suspended"),
    "partitions": names("slurm_partition_", "gpus nodes nodes_drained")
    | names("slurm_partition_jobs_", "gpus_alloc pending running"),
    "scheduler": names("slurm_", "agent_queue_size bf_cycle_last bf_mean_cycle sched_mean_cycle schedule_cycle_last")
    | names("slurm_sdiag_jobs_", "completed failed started submitted")
    | {"slurm_server_thread_cnt"},
    "jobs-users-accts": names("slurm_user_jobs_", "pending running")
    | names("slurm_account_jobs_", "gpus_alloc running"),
}
"""By the page of slurmctld's endpoint."""

# Collectors that run by default, of version 1.5 in Debian 12 and later.
OF_NODE_EXPORTER = (
    names("node_", "cpu_seconds_total disk_io_time_seconds_total load5 timex_offset_seconds uname_info")
    | names("node_filesystem_", "avail_bytes size_bytes")
    | names("node_infiniband_port_data_", "received_bytes_total transmitted_bytes_total")
    | names("node_memory_", "MemAvailable_bytes MemTotal_bytes")
    | names("node_network_", "receive_bytes_total transmit_bytes_total")
)

OF_PROMETHEUS = {"ALERTS", "up"}

OF_GPUS = (
    names("DCGM_FI_DEV_", "ECC_DBE_VOL_TOTAL FB_USED GPU_TEMP GPU_UTIL POWER_USAGE")
    | names("gpucluster_gpu_", "allocated query_hanging slowed")
    | names("gpucluster_job_gpu_", "busy_seconds_total measured_seconds_total share")
)
"""Those of slurm-gpu-metrics (docs/design/gpu_use.md)."""

OF_RULES = {f"user_account_partition:gpus_{name}:sum" for name in ("allocated", "measured", "used")}
"""Those of rules/gpus.yml."""

OF_DASHBOARD_4323 = (
    names("slurm_nodes_", "alloc comp down drain err fail idle maint mix resv")
    | names("slurm_cpus_", "alloc idle other total")
    | names("slurm_gpus_", "alloc idle other total")
    | names(
        "slurm_queue_",
        "cancelled completed completing failed node_fail pending preempted running suspended timeout",
    )
    | names(
        "slurm_scheduler_",
        "threads queue_size last_cycle mean_cycle backfill_last_cycle backfill_mean_cycle backfill_depth_mean",
    )
)
"""The names that existing dashboards want, such as number 4323 of grafana.com and those of DeepOps."""


def known_series() -> Mapping[str, set[str]]:
    """All series by their source."""
    return {
        **{f"slurmctld, {page}": series for page, series in OF_SLURM.items()},
        "slurm-metrics": own_series() | OF_DASHBOARD_4323,
        "node-exporter": OF_NODE_EXPORTER,
        "Prometheus": OF_PROMETHEUS,
        "slurm-gpu-metrics": OF_GPUS,
        "rules": OF_RULES,
    }


NO_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|\{[^}]*\}|\[[^]]*\]|\b(?:by|on|without|ignoring)\s*\([^)]*\)')
WORDS = {"and", "or", "unless"}


def series_in(expression: str) -> set[str]:
    """The names of the series in an expression: the words that are no function, label, text or operator."""
    return set(re.findall(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()", NO_NAME.sub(" ", expression))) - WORDS
