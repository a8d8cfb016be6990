# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""slurm-metrics: writes series about Slurm and about this host into files that node-exporter reads.

`slurm-metrics cluster` runs on each controller and asks slurmctld with four commands, however many nodes and jobs there
are. `slurm-metrics host` runs on each host. docs/design/metrics.md lists the series.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ...client.commands import CommandsUntil
from ...client.slurm_records import IN_SECONDS, integer
from ...host.json_files import read_settings
from ...host.locks import locked
from ...host.replacing import remove, replace
from ...language.errors import CollectionError
from ...language.formatting import short
from ...language.series import Series
from .metric_host import measure_host
from .metric_jobs import (
    JOBS,
    MetricJob,
    add_jobs,
    add_queue,
    add_up,
    add_users_and_accounts,
    count_job_states,
    read_jobs,
)
from .metric_nodes import NODES, SHOWN, MetricNode, add_faults, add_nodes, count_node_states, read_nodes

SETTINGS = "/etc/gpucluster-slurm/metrics.json"
"""What the role knows of this host: its controllers, StateSaveLocation, daemons, keys."""

DIRECTORY = "/var/lib/prometheus/node-exporter"
"""The directory of node-exporter's textfile collector."""

CLUSTER_FILE, HOST_FILE = "slurm.prom", "gpucluster.prom"

DEADLINE = 40
"""Seconds for all commands of a run together. The timer starts a run each 60 s."""

GPUS_SINCE = (26, 5)
"""The first release whose endpoint has series of GPUs."""

ENVIRONMENT = {**IN_SECONDS, "LC_ALL": "C"}
"""apt-cache takes twice as long with a locale of UTF-8."""


class MetricsError(CollectionError):
    """What went wrong, in one line."""


# -- partitions ------------------------------------------------------------------------------------------------------

PARTITION_NAMES = {"completing": "cg", "noresp": "no_resp", "reboot_req": "reboot_requested"}
"""Slurm has other names for some states in the series of partitions."""


def group_by_partition(
    nodes: Iterable[MetricNode], jobs: Iterable[MetricJob]
) -> dict[str, tuple[list[MetricNode], list[MetricJob]]]:
    """The nodes and jobs of each partition with nodes. A job keeps the name of a partition that is gone."""
    groups: dict[str, tuple[list[MetricNode], list[MetricJob]]] = {}
    for node in nodes:
        for name in node.partitions:
            groups.setdefault(name, ([], []))[0].append(node)
    for job in jobs:
        if job.partition in groups:
            groups[job.partition][1].append(job)
    return groups


def add_gpus(series: Series, nodes: Sequence[MetricNode], jobs: Sequence[MetricJob]) -> None:
    """Slurm's series of GPUs."""
    for node in nodes:
        series.add_all("slurm_node_", {"gpus": node.gpus, "gpus_alloc": node.gpus_alloc}, node=node.name)
    series.add("slurm_jobs_gpus_alloc", sum(job.gpus for job in jobs if job.allocated))
    for name, (members, own) in group_by_partition(nodes, jobs).items():
        values = {
            "gpus": sum(node.gpus for node in members),
            "jobs_gpus_alloc": sum(job.gpus for job in own if job.allocated),
        }
        series.add_all("slurm_partition_", values, partition=name)


def add_partitions(series: Series, nodes: Sequence[MetricNode], jobs: Sequence[MetricJob]) -> None:
    """Slurm's series of partitions, except those of GPUs."""
    groups = group_by_partition(nodes, jobs)
    series.add("slurm_partitions", len(groups))
    for name, (members, own) in groups.items():
        states = count_node_states(members)
        values: dict[str, float] = {
            "cpus": sum(node.cpus for node in members),
            "nodes": len(members),
            **{f"nodes_{PARTITION_NAMES.get(state, state)}": count for state, count in states.items()},
            "nodes_cpus_alloc": sum(node.cpus_alloc for node in members),
            "nodes_cpus_efctv": sum(node.cpus_effective for node in members),
            "nodes_cpus_idle": sum(node.cpus_effective - node.cpus_alloc for node in members),
            "nodes_mem_alloc": sum(node.memory_alloc for node in members),
            "nodes_mem_avail": sum(node.memory - node.memory_reserved for node in members),
            "nodes_mem_free": sum(node.memory_free for node in members),
            "nodes_mem_tot": sum(node.memory for node in members),
            # Slurm counts the waiting tasks of an array once here.
            "jobs": sum("finished" not in job.states or job.state == "COMPLETING" for job in own),
            **{f"jobs_{state}": count for state, count in count_job_states(own).items()},
            **{f"jobs_{what}": value for what, value in add_up(own).items()},
        }
        series.add_all("slurm_partition_", values, partition=name)


# -- names of other dashboards --------------------------------------------------------------------------------------

QUEUE = {
    **{name: name for name in ("cancelled", "completed", "completing", "failed", "pending", "preempted", "running")},
    **{name: name for name in ("suspended", "timeout")},
    "node_fail": "node_failed",
}
"""The names of dashboard 4323 for jobs, and Slurm's."""

SCHEDULER = {
    "threads": "server_thread_cnt",
    "queue_size": "agent_queue_size",
    "last_cycle": "schedule_cycle_last",
    "mean_cycle": "sched_mean_cycle",
    "backfill_last_cycle": "bf_cycle_last",
    "backfill_mean_cycle": "bf_mean_cycle",
    "backfill_depth_mean": "bf_depth_mean",
}
"""The same for slurmctld. Cycles are in microseconds."""


def add_names(series: Series, nodes: Sequence[MetricNode], jobs: Sequence[MetricJob], sdiag: Mapping[str, int]) -> None:
    """The series of prometheus-slurm-exporter, which dashboards such as 4323 and those of DeepOps want.

    They mean what sinfo and squeue show: a node has one state, and each task of an array counts.
    """
    shown = Counter(node.shown for node in nodes)
    series.add_all("slurm_nodes_", {name: shown[name] for name in SHOWN})
    for name, (members, _own) in group_by_partition(nodes, []).items():
        idle = sum(node.shown == "idle" for node in members)
        series.add("slurm_partition_nodes_shown_idle", idle, partition=name)
    tasks: Counter[str] = Counter()
    for job in jobs:
        for state in job.states:
            tasks[state] += job.tasks
    series.add_all("slurm_queue_", {name: tasks[state] for name, state in QUEUE.items()})
    series.add_all("slurm_scheduler_", {name: sdiag[value] for name, value in SCHEDULER.items()})
    _add_units(series, "slurm_cpus_", [(node.cpus, node.cpus_alloc, node.out) for node in nodes])
    _add_units(series, "slurm_gpus_", [(node.gpus, node.gpus_alloc, node.out) for node in nodes])


def _add_units(series: Series, prefix: str, units: Sequence[tuple[int, int, bool]]) -> None:
    """CPUs or GPUs: the number that each node has, how many of them are allocated, and whether the node is out."""
    total, alloc = sum(unit[0] for unit in units), sum(unit[1] for unit in units)
    other = sum(number - used for number, used, out in units if out)
    series.add_all(prefix, {"total": total, "alloc": alloc, "other": other, "idle": total - alloc - other})


# -- slurmctld -------------------------------------------------------------------------------------------------------

HEAD, MAIN, BACKFILL = "", "Main schedule statistics", "Backfilling stats"

SDIAG = {
    (HEAD, "Server thread count"): "server_thread_cnt",
    (HEAD, "Agent queue size"): "agent_queue_size",
    (HEAD, "Agent count"): "agent_cnt",
    (HEAD, "Agent thread count"): "agent_thread_cnt",
    (HEAD, "DBD Agent queue size"): "slurmdbd_queue_size",
    (HEAD, "Jobs submitted"): "sdiag_jobs_submitted",
    (HEAD, "Jobs started"): "sdiag_jobs_started",
    (HEAD, "Jobs completed"): "sdiag_jobs_completed",
    (HEAD, "Jobs canceled"): "sdiag_jobs_canceled",
    (HEAD, "Jobs failed"): "sdiag_jobs_failed",
    (HEAD, "Jobs pending"): "sdiag_jobs_pending",
    (HEAD, "Jobs running"): "sdiag_jobs_running",
    (MAIN, "Last cycle"): "schedule_cycle_last",
    (MAIN, "Max cycle"): "schedule_cycle_max",
    (MAIN, "Total cycles"): "schedule_cycle_cnt",
    (MAIN, "Mean cycle"): "sched_mean_cycle",
    (MAIN, "Mean depth cycle"): "sched_mean_depth_cycle",
    (MAIN, "Last queue length"): "schedule_queue_len",
    (BACKFILL, "Total backfilled jobs (since last slurm start)"): "backfilled_jobs",
    (BACKFILL, "Total backfilled jobs (since last stats cycle start)"): "last_backfilled_jobs",
    (BACKFILL, "Total backfilled heterogeneous job components"): "backfilled_het_jobs",
    (BACKFILL, "Total cycles"): "bf_cycle_cnt",
    (BACKFILL, "Last cycle"): "bf_cycle_last",
    (BACKFILL, "Max cycle"): "bf_cycle_max",
    (BACKFILL, "Mean cycle"): "bf_mean_cycle",
    (BACKFILL, "Last depth cycle"): "bf_last_depth",
    (BACKFILL, "Last depth cycle (try sched)"): "bf_last_depth_try",
    (BACKFILL, "Depth Mean"): "bf_depth_mean",
    (BACKFILL, "Depth Mean (try depth)"): "bf_try_depth_mean",
    (BACKFILL, "Last queue length"): "bf_queue_len",
    (BACKFILL, "Queue length mean"): "bf_queue_len_mean",
    (BACKFILL, "Last table size"): "bf_table_size",
    (BACKFILL, "Mean table size"): "bf_mean_table_sz",
}
"""The end of the name of Slurm's series by the section and the title in sdiag's output. Cycles are in microseconds."""


def read_sdiag(text: str) -> dict[str, int]:
    """The values of slurmctld by the end of the name of Slurm's series. sdiag leaves out means of nothing: 0."""
    found = dict.fromkeys(SDIAG.values(), 0)
    section = HEAD
    for line in text.split("\n"):
        section = next((title for title in (MAIN, BACKFILL) if line.startswith(title)), section)
        match = re.fullmatch(r"\t?([^:]+):\s*(\d+)", line)
        if match and (section, match[1]) in SDIAG:
            found[SDIAG[section, match[1]]] = int(match[2])
    if f"\n{MAIN}" not in text:
        raise MetricsError("sdiag gave an answer without statistics")
    return found


def read_config(text: str) -> dict[str, str]:
    """The parameters in force, from `scontrol show config`."""
    return dict(re.findall(r"^(\w+)\s*= (.*)$", text, re.MULTILINE))


def read_release(config: Mapping[str, str]) -> tuple[int, ...]:
    """The release of slurmctld, such as (26, 5)."""
    return tuple(map(int, re.findall(r"\d+", config.get("SLURM_VERSION", ""))[:2]))


def find_serving_place(commands: CommandsUntil, controllers: Sequence[str], state_directory: str) -> int:
    """The place in SlurmctldHost of the controller that serves, or has served last.

    With several controllers, the one that serves writes its place into StateSaveLocation each 30 s at least
    (`src/slurmctld/heartbeat.c`). A server of NFS may take root for nobody, so the owner of the directory reads it.
    """
    if len(controllers) < 2:
        return 0
    script = 'exec setpriv --reuid="$(stat -c %u "$1")" --clear-groups od -A n -t x1 "$1/heartbeat"'
    heartbeat = bytes.fromhex("".join(commands.output("sh", "-c", script, "sh", state_directory).split()))
    if len(heartbeat) != 16:
        raise MetricsError(f"{state_directory}/heartbeat has {len(heartbeat)} bytes")
    return int(struct.unpack(">QQ", heartbeat)[1])


def gather(series: Series, commands: CommandsUntil, settings: Mapping[str, Any], everything: bool) -> None:
    """Ask slurmctld, and add all series that need its answers. Raises CollectionError."""
    begin = time.monotonic()
    config = read_config(commands.output("scontrol", "show", "config"))
    series.add("slurm_ping_seconds", time.monotonic() - begin)
    _add_serving(series, settings, serves=True)
    sdiag = read_sdiag(commands.output("sdiag"))
    nodes, jobs = read_nodes(commands.output(*NODES)), read_jobs(commands.output(*JOBS))
    series.add("slurm_dbd_agent_queue_size", sdiag["slurmdbd_queue_size"])
    series.add("slurm_dbd_agent_queue_limit", integer(config.get("MaxDBDMsgs", "")))
    add_faults(series, nodes)
    add_queue(series, jobs)
    add_names(series, nodes, jobs, sdiag)
    if everything:
        add_nodes(series, nodes)
        add_jobs(series, jobs)
        add_partitions(series, nodes, jobs)
        series.add_all("slurm_", sdiag)
    if everything or read_release(config) < GPUS_SINCE:
        add_gpus(series, nodes, jobs)
    if settings["users_and_accounts"]:
        add_users_and_accounts(series, jobs)
    if settings.get("repair"):
        add_cases(series, json.loads(commands.output("slurm-repair", "count")))


def add_cases(series: Series, counts: Mapping[str, Any]) -> None:
    """Add the cases of nodes that fail, from `slurm-repair count`."""
    for state, number in counts["by_state"].items():
        series.add("slurm_repair_cases", number, state=state)
    series.add("slurm_repair_returned_nodes", counts["returned"])
    series.add("slurm_repair_returned_seconds", counts["seconds"])


def _add_serving(series: Series, settings: Mapping[str, Any], *, serves: bool) -> None:
    own = find_place(settings["controllers"])
    series.add("slurm_controller_serving", serves, controller=settings["controllers"][own], place=str(own))


def find_place(controllers: Sequence[str]) -> int:
    """The place of this host among the controllers. Raises MetricsError if it is none."""
    name = os.uname().nodename.partition(".")[0]
    if name not in controllers:
        raise MetricsError(f"{name} is none of the controllers in {SETTINGS}")
    return controllers.index(name)


def measure_cluster(settings: Mapping[str, Any], everything: bool) -> tuple[Series, str]:
    """The series of the cluster, and what went wrong; a standby has one series only."""
    begin, commands, series, error = time.monotonic(), CommandsUntil(DEADLINE, ENVIRONMENT), Series(), ""
    _add_serving(series, settings, serves=False)
    try:
        place = find_serving_place(commands, settings["controllers"], settings["state_directory"])
        if place != find_place(settings["controllers"]):
            return series, ""
        gather(series, commands, settings, everything)
    except (CollectionError, KeyError, ValueError) as problem:
        error = f"{type(problem).__name__}: {problem}"
    series.add("slurm_metrics_cluster_seconds", time.monotonic() - begin)
    series.add("slurm_metrics_cluster_success", not error)
    return series, error


# -- command line ----------------------------------------------------------------------------------------------------


@contextmanager
def removed_on_failure(name: str) -> Iterator[None]:
    """Remove a file if it cannot be written anew: its values are not true any more."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            remove(f"{DIRECTORY}/{name}")
        raise


def run_cluster(everything: bool) -> list[str]:
    """Write the file of the cluster; the errors."""
    with removed_on_failure(CLUSTER_FILE):
        settings = read_settings(SETTINGS)
        series, error = measure_cluster(settings, everything or settings["all"])
        replace(f"{DIRECTORY}/{CLUSTER_FILE}", series.text().encode())
    return [error] if error else []


def run_host() -> list[str]:
    """Write the file of this host; the errors."""
    with removed_on_failure(HOST_FILE):
        series, errors = measure_host(read_settings(SETTINGS), CommandsUntil(DEADLINE, ENVIRONMENT))
        replace(f"{DIRECTORY}/{HOST_FILE}", series.text().encode())
    return errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; the exit status is 1 if something is not known."""
    parser = argparse.ArgumentParser(prog="slurm-metrics", description="Write series for node-exporter.")
    commands = parser.add_subparsers(dest="command", required=True)
    cluster = commands.add_parser("cluster", help="series of Slurm, on a controller")
    cluster.add_argument("--all", action="store_true", help="also those that slurmctld 25.11 and later have themselves")
    commands.add_parser("host", help="series of this host")
    chosen = parser.parse_args(arguments)
    os.umask(0o022)  # that of a person may be any, and node-exporter reads the files
    try:
        with locked(f"metrics-{chosen.command}", 0):
            errors = run_cluster(chosen.all) if chosen.command == "cluster" else run_host()
    except (CollectionError, OSError, ValueError, KeyError) as error:
        errors = [f"{type(error).__name__}: {error}"]
    for message in errors:
        print(f"slurm-metrics: {short(' '.join(message.split()), 500)}", file=sys.stderr)
    return 1 if errors else 0
