# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the dashboards for Grafana.    usage: python tests/tools/dashboards.py [--check]

They answer an administrator's questions; grafana.py makes Grafana's JSON of them. With --check nothing is written, and
the exit status is 1 if a file is not current.
"""

from __future__ import annotations

import re
from pathlib import Path

from generated_files import json_text, run
from grafana import (
    BROKEN,
    PLAIN,
    WRONG,
    Dashboard,
    Panel,
    Query,
    Variable,
    bars,
    dashboard_json,
    graph,
    row,
    stat,
    table,
)

FILES = Path(__file__).parents[2] / "roles/slurm_metrics/files/dashboards"
DAY = 86400
NODE, PARTITION = '{node=~"$host"}', '{partition=~"$partition"}'
HOST = 'instance=~"$host"'


def served(series: str, *labels: str) -> str:
    """A series of slurmctld, whichever controller serves: for a minute after a takeover two of them may have values."""
    return f"max by ({', '.join(labels)}) ({series})" if labels else f"max({series})"


def counted(expression: str) -> str:
    """How many series there are, 0 if there is none."""
    return f"count({expression}) or vector(0)"


def highest(expression: str) -> str:
    """The series that are highest at the end of the time that is shown: nobody can read a graph of 2,000 hosts."""
    at_end = re.sub(r"\}(\[[^]]*\])?", r"\g<0> @ end()", expression)
    return f"{expression} and topk(10, {at_end})"


# The cluster.

AWAY = (
    "(slurm_node_drain_since_seconds or slurm_node_down == 1 or slurm_node_not_responding == 1"
    ' or slurm_node_planned_outage{why!="power"})'
)
FREE = served("slurm_node_gpus - slurm_node_gpus_alloc", "node")
GPUS = (
    Query(f"sum({served('slurm_node_gpus_alloc', 'node')})", "allocated", "blue"),
    Query(f"sum({FREE} unless on (node) {AWAY}) or vector(0)", "idle", "green"),
    Query(f"sum({FREE} and on (node) {AWAY}) or vector(0)", "unavailable", steps=WRONG),
)
NODES = (
    Query(served("slurm_nodes_alloc"), "allocated", "blue"),
    Query(served("slurm_nodes_mix"), "mixed", "purple"),
    Query(served("slurm_nodes_idle"), "idle", "green"),
    Query(f"{served('slurm_nodes_resv')} + {served('slurm_nodes_maint')}", "reserved or in maintenance"),
    Query(served("slurm_nodes_drain"), "drained", steps=WRONG),
    Query(served("slurm_nodes_down"), "down", steps=BROKEN),
)
STATES = (
    "As [sinfo](https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES) shows them: a drained, reserved or "
    "maintained node is not idle."
)
SDIAG = "[sdiag](https://slurm.schedmd.com/sdiag.html)"

CLUSTER = Dashboard(
    "cluster",
    "Slurm: cluster",
    "GPUs and nodes in use, what is unavailable and why, slurmctld, and the upkeep of the hosts.",
    6,
    (),
    (
        row(
            4,
            stat(
                "GPUs",
                "Unavailable are GPUs without a job on nodes that are drained, down, silent or in a maintenance.",
                *GPUS,
                Query(f"sum({served('slurm_node_gpus', 'node')})", "all"),
            ),
            stat("Nodes", STATES, *NODES),
            stat(
                "Jobs",
                "Each element of a waiting job array counts.",
                Query(served("slurm_jobs_running"), "running", "blue"),
                Query(served("slurm_jobs_pending"), "pending"),
            ),
            stat(
                "Controllers",
                "A standby serves while the primary does not answer (docs/admin/failures.md).",
                Query(served("slurm_controller_serving", "controller"), "{{controller}}"),
                texts=(("standby", "text"), ("serves", "green")),
            ),
            widths=(8, 8, 4, 4),
        ),
        row(
            8,
            graph("GPUs over time", "Together they are all GPUs.", *GPUS, stacked=True),
            graph("Nodes by state", STATES, *NODES),
        ),
        row(
            7,
            table(
                "Drained nodes",
                "The causes are those of `doctor.yml`, which names the remedy (docs/admin/doctor.md). `sinfo -R` has "
                "the reasons.",
                Query(f"1000 * {served('slurm_node_drain_since_seconds', 'node', 'cause')}", "Since"),
                unit="dateTimeFromNow",
                labels={"node": "Node", "cause": "Cause"},
                nothing="No node is drained",
            ),
            table(
                "Nodes that are down",
                "Without those that are powered off or boot by order.",
                Query(served("slurm_node_down", "node", "cause", "reason")),
                labels={"node": "Node", "cause": "Cause", "reason": "Reason"},
                nothing="No node is down",
            ),
            table(
                "Alerts",
                "Those that are firing, if any; docs/admin/alerts.md has what they mean and what to do.",
                Query('count by (alertname, severity, cause, node, instance) (ALERTS{alertstate="firing"})'),
                labels={
                    "alertname": "Alert",
                    "severity": "Severity",
                    "cause": "Cause",
                    "node": "Node",
                    "instance": "Host",
                },
            ),
        ),
        row(
            7,
            graph(
                "Scheduling cycles",
                f"The last and the mean one. slurmctld answers slowly during a cycle of seconds ({SDIAG}).",
                Query(served("slurm_schedule_cycle_last"), "main", "blue"),
                Query(served("slurm_sched_mean_cycle"), "main, mean", "purple"),
                Query(served("slurm_bf_cycle_last"), "backfill", "orange"),
                Query(served("slurm_bf_mean_cycle"), "backfill, mean", "yellow"),
                unit="µs",
            ),
            graph(
                "Time to answer",
                "Of one `scontrol ping`, and of all commands of `slurm-metrics cluster`.",
                Query(served("slurm_ping_seconds"), "ping", "blue"),
                Query(served("slurm_metrics_cluster_seconds"), "slurm-metrics", "purple"),
                unit="s",
            ),
            graph(
                "Threads and messages",
                "slurmctld has up to 256 threads. Messages wait for nodes that do not answer.",
                Query(served("slurm_server_thread_cnt"), "threads", "blue"),
                Query(served("slurm_agent_queue_size"), "messages", "orange"),
            ),
            graph(
                "Messages for slurmdbd",
                "At MaxDBDMsgs slurmctld discards records of jobs (docs/admin/failures.md).",
                Query(
                    f"{served('slurm_dbd_agent_queue_size')} / {served('slurm_dbd_agent_queue_limit')}",
                    "part of MaxDBDMsgs",
                    "orange",
                ),
                unit="percentunit",
            ),
            title="slurmctld",
        ),
        row(
            5,
            table(
                "Daemons that do not run",
                "`doctor.yml` says why (docs/admin/doctor.md).",
                Query("gpucluster_daemon_up == 0"),
                labels={"instance": "Host", "daemon": "Daemon"},
                nothing="All daemons run",
            ),
            stat(
                "Hosts with updates",
                "`rolling.yml` installs them (docs/admin/rolling.md).",
                Query(counted('gpucluster_updates_pending{kind="security"} > 0'), "security", steps=WRONG),
                Query(counted('gpucluster_updates_pending{kind="other"} > 0'), "other"),
            ),
            stat(
                "Age of the last backup",
                "Of each host that saves (docs/admin/recovery.md).",
                Query(
                    "time() - max by (instance) (gpucluster_backup_last_seconds)",
                    "{{instance}}",
                    steps=(*PLAIN, ("orange", 2 * DAY)),
                ),
                unit="s",
                nothing="No host saves",
            ),
            stat(
                "Age of keys",
                "Of the oldest copy of each key.",
                Query(
                    "time() - min by (key) (gpucluster_key_time_seconds)",
                    "{{key}}",
                    steps=(*PLAIN, ("orange", 365 * DAY)),
                ),
                unit="s",
            ),
            title="Upkeep",
        ),
    ),
)

# The hosts.

CPU = 'mode="idle"'
WIRED = 'device!~"lo|veth.*|docker.*|podman.*|cni.*|virbr.*"'
KEPT = 'fstype!~"tmpfs|ramfs|squashfs"'
TEN = "The ten highest of the chosen hosts now."


def chosen(series: str, *matchers: str) -> str:
    """A series of the chosen hosts."""
    return f"{series}{{{', '.join((HOST, *matchers))}}}"


def rate(series: str, *matchers: str) -> str:
    """By how much a series of the chosen hosts grows in a second."""
    return f"rate({chosen(series, *matchers)}[$__rate_interval])"


def of_node(series: str) -> str:
    """A series of slurmctld for each chosen node."""
    return served(series + NODE, "node")


UP = chosen("up", 'job="node"')


def by_host(title: str, description: str, expression: str, unit: str) -> Panel:
    """A graph of the highest hosts."""
    return graph(title, f"{description} {TEN}".strip(), Query(highest(expression), "{{instance}}"), unit=unit)


HOSTS = Dashboard(
    "nodes",
    "Slurm: nodes",
    "Load, memory, disks, network and clocks of the hosts, and what Slurm has allocated on the nodes.",
    6,
    (Variable("host", "Host", "node_uname_info", "instance"),),
    (
        row(
            4,
            stat(
                "Hosts",
                "A host does not answer if Prometheus cannot read its node-exporter.",
                Query(counted(f"{UP} == 1"), "answer", "green"),
                Query(counted(f"{UP} == 0"), "do not answer", steps=BROKEN),
                Query(
                    counted(f"count by (instance) ({chosen('gpucluster_daemon_up')} == 0)"),
                    "lack a daemon",
                    steps=WRONG,
                ),
            ),
            stat(
                "Nodes in Slurm",
                STATES,
                Query(f"count({of_node('slurm_node_cpus')})", "all"),
                Query(counted(of_node("slurm_node_drain_since_seconds")), "drained", steps=WRONG),
                Query(counted(f"{of_node('slurm_node_not_responding')} == 1"), "do not respond", steps=BROKEN),
            ),
        ),
        row(
            8,
            by_host("CPUs in use", "", f"1 - avg by (instance) ({rate('node_cpu_seconds_total', CPU)})", "percentunit"),
            by_host(
                "Load for each CPU",
                "Above 1, processes wait.",
                f"{chosen('node_load5')} / on (instance) count by (instance) ({chosen('node_cpu_seconds_total', CPU)})",
                "short",
            ),
            by_host(
                "Memory in use",
                "Without what the kernel can give back.",
                f"1 - {chosen('node_memory_MemAvailable_bytes')} / {chosen('node_memory_MemTotal_bytes')}",
                "percentunit",
            ),
            title="Busiest hosts",
        ),
        row(
            8,
            by_host(
                "Network, received",
                "",
                f"sum by (instance) ({rate('node_network_receive_bytes_total', WIRED)})",
                "Bps",
            ),
            by_host(
                "Network, sent",
                "",
                f"sum by (instance) ({rate('node_network_transmit_bytes_total', WIRED)})",
                "Bps",
            ),
            by_host(
                "InfiniBand",
                "Received and sent by all ports of a host.",
                f"sum by (instance) ({rate('node_infiniband_port_data_received_bytes_total')}"
                f" + {rate('node_infiniband_port_data_transmitted_bytes_total')})",
                "Bps",
            ),
        ),
        row(
            8,
            bars(
                "Fullest file systems",
                f"Disks and network mounts. {TEN}",
                Query(
                    f"topk(10, 1 - {chosen('node_filesystem_avail_bytes', KEPT)}"
                    f" / {chosen('node_filesystem_size_bytes', KEPT)})",
                    "{{instance}} {{mountpoint}}",
                ),
                unit="percentunit",
            ),
            by_host(
                "Disks in use",
                "How much of the time the busiest disk of a host works.",
                f"max by (instance) ({rate('node_disk_io_time_seconds_total')})",
                "percentunit",
            ),
            by_host(
                "Offset of the clock",
                "From 5 minutes on munge refuses credentials (docs/admin/failures.md).",
                f"abs({chosen('node_timex_offset_seconds')})",
                "s",
            ),
        ),
        row(
            10,
            table(
                "Nodes",
                "What running and suspended jobs have.",
                Query(of_node("slurm_node_gpus"), "GPUs"),
                Query(of_node("slurm_node_gpus_alloc"), "GPUs allocated"),
                Query(of_node("slurm_node_cpus"), "CPUs"),
                Query(of_node("slurm_node_cpus_alloc"), "CPUs allocated"),
                labels={"node": "Node"},
            ),
            title="Allocated by Slurm",
        ),
    ),
)

# The queue.

WITHOUT = "Only with users_and_accounts: true of the key monitoring"


def in_an_hour(series: str) -> str:
    """What a number of sdiag has grown by; slurmctld sets it to 0 at midnight and when it starts."""
    return f"round(sum(increase({series}[1h])))"


def of_partition(series: str) -> str:
    """A series of slurmctld for each chosen partition."""
    return served(series + PARTITION, "partition")


def by_partition(title: str, description: str, series: str) -> Panel:
    """A graph with a line for each partition."""
    return graph(title, description, Query(of_partition(series), "{{partition}}"))


def by_person(title: str, series: str, label: str) -> Panel:
    """A graph of the users or accounts that have most."""
    query = Query(highest(served(series + "{}", label)), f"{{{{{label}}}}}")
    return graph(title, f"The ten highest now. {WITHOUT} (docs/admin/monitoring.md).", query, nothing=WITHOUT)


QUEUE = Dashboard(
    "queue",
    "Slurm: queue and users",
    "Jobs by state and partition, how many start and end, and whose they are.",
    24,
    (Variable("partition", "Partition", "slurm_partition_nodes", "partition"),),
    (
        row(
            4,
            stat(
                "Jobs now",
                "Those that could start wait for resources or for jobs with a higher priority, and not for a limit, a "
                "dependency, a time or a person.",
                Query(served("slurm_jobs_running"), "running", "blue"),
                Query(served("slurm_jobs_pending"), "pending"),
                Query(served("slurm_jobs_hold"), "held"),
                Query(served("slurm_jobs_could_start"), "could start"),
            ),
            stat(
                "Jobs in the last hour",
                f"As counted by {SDIAG}.",
                Query(in_an_hour("slurm_sdiag_jobs_submitted"), "submitted"),
                Query(in_an_hour("slurm_sdiag_jobs_started"), "started"),
                Query(in_an_hour("slurm_sdiag_jobs_completed"), "completed"),
                Query(in_an_hour("slurm_sdiag_jobs_failed"), "failed"),
            ),
        ),
        row(
            8,
            graph(
                "Jobs by state",
                "Without those that have ended.",
                Query(served("slurm_jobs_running"), "running", "blue"),
                Query(served("slurm_jobs_suspended"), "suspended", "purple"),
                Query(served("slurm_jobs_pending"), "pending", "yellow"),
                stacked=True,
            ),
            graph(
                "Jobs in an hour",
                f"In the hour before, as counted by {SDIAG}.",
                Query(in_an_hour("slurm_sdiag_jobs_submitted"), "submitted", "yellow"),
                Query(in_an_hour("slurm_sdiag_jobs_started"), "started", "blue"),
                Query(in_an_hour("slurm_sdiag_jobs_completed"), "completed", "green"),
                Query(in_an_hour("slurm_sdiag_jobs_failed"), "failed", "red"),
            ),
        ),
        row(
            8,
            by_partition(
                "Pending jobs",
                "A job for several partitions counts in the first of them.",
                "slurm_partition_jobs_pending",
            ),
            by_partition("Running jobs", "In the partition in which they run.", "slurm_partition_jobs_running"),
            by_partition("Allocated GPUs", "Of running and suspended jobs.", "slurm_partition_jobs_gpus_alloc"),
            title="Partitions",
        ),
        row(
            7,
            table(
                "Partitions now",
                STATES,
                Query(of_partition("slurm_partition_nodes"), "Nodes"),
                Query(of_partition("slurm_partition_nodes_shown_idle"), "Idle"),
                Query(of_partition("slurm_partition_nodes_drained"), "Drained"),
                Query(of_partition("slurm_partition_gpus"), "GPUs"),
                Query(of_partition("slurm_partition_jobs_gpus_alloc"), "GPUs allocated"),
                Query(of_partition("slurm_partition_jobs_running"), "Running jobs"),
                Query(of_partition("slurm_partition_jobs_pending"), "Pending jobs"),
                labels={"partition": "Partition"},
            ),
        ),
        row(
            8,
            by_person("Running jobs of users", "slurm_user_jobs_running", "username"),
            by_person("Pending jobs of users", "slurm_user_jobs_pending", "username"),
            by_person("Running jobs of accounts", "slurm_account_jobs_running", "account"),
            by_person("Allocated GPUs of accounts", "slurm_account_jobs_gpus_alloc", "account"),
            title="Users and accounts",
        ),
    ),
)

# GPUs and the jobs on them.

OF_JOBS = "user_account_partition:gpus_"
ALLOCATED, MEASURED, USED = (f"{OF_JOBS}{name}:sum" for name in ("allocated", "measured", "used"))
JOB_LABELS = "slurmjobid, user, account, partition"
BY_FAULT = 'reason=~"hw_.*|sw_thermal_slowdown"'
"""Not by the power limit of a GPU under full load."""
BY_RULES = "GPUs with several jobs count once (docs/admin/gpu-hours.md)."


def gpu_hours(record: str) -> str:
    """GPU hours of the last week by user and account: a rule has a value each minute."""
    return f"sum by (user, account) (sum_over_time({record}[7d])) / 60"


NEEDS = "Series have DCGM's names; slurm-gpu-metrics (Slurm 23.11 and later) or dcgm-exporter has to write them."


def by_gpu(title: str, description: str, series: str, unit: str) -> Panel:
    """A graph of the highest GPUs."""
    query = Query(highest(f"max by (instance, gpu) ({chosen(series)})"), "{{instance}} {{gpu}}")
    return graph(
        title, f"{description} {TEN} {NEEDS}".strip(), query, unit=unit, nothing="No values: see the description"
    )


GPU_USE = Dashboard(
    "gpus",
    "Slurm: GPUs",
    "What jobs do with the GPUs that they have, whose GPUs are idle, and GPUs in trouble.",
    24,
    (Variable("host", "Host", "gpucluster_gpu_allocated", "instance"),),
    (
        row(
            4,
            stat(
                "GPUs of jobs",
                f"Used is the sum of their utilization. {BY_RULES}",
                Query(f"sum({ALLOCATED}) or vector(0)", "allocated", "blue"),
                Query(f"sum({USED}) or vector(0)", "used", "green"),
            ),
            stat(
                "Used part",
                "Of the GPUs whose utilization is known; MIG instances have none.",
                Query(f"sum({USED}) / sum({MEASURED})", "now", "green"),
                unit="percentunit",
                nothing="No job has GPUs",
            ),
            stat(
                "GPUs in trouble",
                f"Alerts say what to do (docs/admin/alerts.md). {NEEDS}",
                Query(counted(f"{chosen('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL')} > 0"), "memory errors", steps=BROKEN),
                Query(
                    counted(f"count by (instance, gpu) ({chosen('gpucluster_gpu_slowed', BY_FAULT)} == 1)"),
                    "slowed",
                    steps=WRONG,
                ),
                Query(counted(f"{chosen('gpucluster_gpu_query_hanging')} == 1"), "nvidia-smi hangs", steps=BROKEN),
            ),
        ),
        row(
            8,
            graph(
                "Allocated and used GPUs",
                BY_RULES,
                Query(f"sum({ALLOCATED})", "allocated", "blue"),
                Query(f"sum({USED})", "used", "green"),
            ),
            graph(
                "Idle GPUs of users",
                "Allocated and not used. The ten highest now.",
                Query(highest(f"sum by (user) ({MEASURED}{{}}) - sum by (user) ({USED}{{}})"), "{{user}}"),
            ),
        ),
        row(
            8,
            table(
                "GPU hours of the last week",
                "`slurm-gpu-hours report` has exact hours by Slurm's accounting (docs/admin/gpu-hours.md).",
                Query(gpu_hours(ALLOCATED), "Allocated"),
                Query(gpu_hours(MEASURED), "Measured"),
                Query(gpu_hours(USED), "Used"),
                labels={"user": "User", "account": "Account"},
            ),
            table(
                "Jobs with idle GPUs",
                "No sample of half an hour has seen a kernel on these GPUs. `jobstats` shows a job after its end.",
                Query(
                    f"count by ({JOB_LABELS}) (increase(gpucluster_job_gpu_busy_seconds_total[30m]) == 0"
                    " and increase(gpucluster_job_gpu_measured_seconds_total[30m]) > 900 and gpucluster_job_gpu_share)",
                    "Idle GPUs",
                ),
                labels={"slurmjobid": "Job", "user": "User", "account": "Account", "partition": "Partition"},
                nothing="No GPU of a job is idle",
            ),
            title="Users and jobs",
        ),
        row(
            8,
            by_gpu("Utilization", "The part of the time in which a kernel ran.", "DCGM_FI_DEV_GPU_UTIL", "percent"),
            by_gpu("GPU memory in use", "", "DCGM_FI_DEV_FB_USED", "mbytes"),
            title="Highest GPUs",
        ),
        row(
            8,
            by_gpu("Temperature", "", "DCGM_FI_DEV_GPU_TEMP", "celsius"),
            by_gpu("Power", "", "DCGM_FI_DEV_POWER_USAGE", "watt"),
        ),
    ),
)

DASHBOARDS = (CLUSTER, HOSTS, QUEUE, GPU_USE)


def files() -> dict[Path, str]:
    """The files and their texts."""
    return {FILES / f"{board.name}.json": json_text(dashboard_json(board)) for board in DASHBOARDS}


if __name__ == "__main__":
    run(files())
