# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conditions and values of the table of defaults (defaults.py) that follow from the cluster."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from ...cluster.machine_types import gres_kinds
from ...cluster.storage_key import has_automounts
from ...configuration.meaning import minutes_in
from ...configuration.parameters import runs_all_scripts
from ...language.hostlist import expand
from ..known.host_paths import DATABASE_CA, MAIL_PROGRAM
from ..known.own_scripts import own_health_option
from ..known.whole_cluster import scratch, state_directory
from . import jwt_keys, slurmctld_metrics
from .default_records import Condition, Follows, Target
from .slurm_accounting import has_policy, preempts


def site_value(target: Target, key: str, default: Any = None) -> Any:
    """The site's own value of a parameter of slurm.conf, whose keys Slurm compares without case."""
    return next((value for name, value in target.host["slurm_conf"].items() if name.lower() == key.lower()), default)


def has_other_scripts(target: Target) -> bool:
    """Whether Prolog or Epilog has a program of the site or of enroot."""
    return target.holds(ENROOT) or any(site_value(target, name) for name in ("Prolog", "Epilog"))


def can_have_gpu_scripts(target: Target) -> bool:
    """Whether slurm-prolog and slurm-epilog can run for jobs with GPUs."""
    return (
        "gpu" in target.of_nodes.get("GresTypes", ())
        and target.platform.sends_scripts
        and (not target.release or runs_all_scripts(target.release) or not has_other_scripts(target))
    )


def health_moments(target: Target) -> Collection[str]:
    """When the health check sees the GPUs of jobs. Clusters of the first generation have no such moments."""
    return own_health_option(target.host, "slurm_health_at_jobs", ()) if target.generation > 1 else ()


# -- conditions -------------------------------------------------------------------------------------------------------

DATABASE = Condition("`database`", lambda target: bool(target.host["slurm_database"]))
DATABASE_SERVER = Condition("`database_server`", lambda target: bool(target.host["slurm_database_server"]))
POLICY = Condition("`database` and a policy", lambda target: target.holds(DATABASE) and has_policy(target.host))
METRICS = Condition(
    "`monitoring`, Slurm 25.11 and later, with `PrivateData` 26.05 and later",
    lambda target: slurmctld_metrics.source_of(target.host, target.release) != "program",
)
METRICS_TOKENS = Condition(
    "`monitoring` and `PrivateData`, Slurm 26.05 and later",
    lambda target: slurmctld_metrics.source_of(target.host, target.release) == "pages with tokens",
)
METRICS_PLUGIN = Condition(
    "`monitoring` and `PrivateData`, Slurm 26.05 and later, without AuthAltTypes",
    lambda target: target.holds(METRICS_TOKENS) and not slurmctld_metrics.has_other_tokens(target.host),
)
REST = Condition("`rest`", lambda target: bool(target.host["slurm_rest"]))
PREEMPTION = Condition(
    "`database` and a QOS that preempts", lambda target: target.holds(POLICY) and preempts(target.host)
)
STRICT = Condition("`profile: strict`", lambda target: bool(target.host["slurm_profile"] == "strict"))
STRICT_TRIGGERS = Condition(
    "`profile: strict`, Slurm 23.11 and later",
    lambda target: target.holds(STRICT) and (not target.release or target.release >= "23.11"),
)
PRIVATE_TMP = Condition("`private_tmp`", lambda target: bool(target.host["slurm_private_tmp"]))
JOB_CONTAINERS = Condition(
    "`private_tmp`, before Slurm 25.11", lambda target: target.holds(PRIVATE_TMP) and not target.platform.namespaces
)
NAMESPACES = Condition(
    "`private_tmp`, Slurm 25.11 and later", lambda target: target.holds(PRIVATE_TMP) and target.platform.namespaces
)
AUTOMOUNTS = Condition(
    "`private_tmp`, and `storage` of the type autofs, Slurm 23.02 and later",
    lambda target: (
        target.holds(PRIVATE_TMP)
        and has_automounts(target.host["slurm_storage"])
        and (not target.release or target.release >= "23.02")
    ),
)
ENROOT = Condition("`enroot`", lambda target: "enroot" in target.host["slurm_containers"])
PROLOGS = Condition("`prologs`", lambda target: bool(target.host["slurm_prologs"]))
EPILOGS = Condition("`epilogs`", lambda target: bool(target.host["slurm_epilogs"]))
GPU_MAP = Condition(
    "`monitoring` and machine types with GPUs, Slurm 23.11 and later",
    lambda target: bool(target.host.get("slurm_monitoring")) and can_have_gpu_scripts(target),
)
HEALTH_PROLOG = Condition(
    "`slurm_health_at_jobs` with prolog and machine types with GPUs, Slurm 23.11 and later",
    lambda target: "prolog" in health_moments(target) and can_have_gpu_scripts(target),
)
HEALTH_EPILOG = Condition(
    "`slurm_health_at_jobs` with epilog and machine types with GPUs, Slurm 23.11 and later",
    lambda target: "epilog" in health_moments(target) and can_have_gpu_scripts(target),
)
PROLOG_PROGRAM = Condition(
    f"{PROLOGS.text}, or {GPU_MAP.text}", lambda target: target.holds(PROLOGS) or target.holds(GPU_MAP)
)
EPILOG_PROGRAM = Condition(
    f"{EPILOGS.text}, or {GPU_MAP.text}", lambda target: target.holds(EPILOGS) or target.holds(GPU_MAP)
)
HEALTH_PROLOG_ALONE = Condition(
    HEALTH_PROLOG.text, lambda target: target.holds(HEALTH_PROLOG) and not target.holds(PROLOG_PROGRAM)
)
HEALTH_EPILOG_ALONE = Condition(
    HEALTH_EPILOG.text, lambda target: target.holds(HEALTH_EPILOG) and not target.holds(EPILOG_PROGRAM)
)
HEALTH_WITHOUT_PROLOGS = Condition(
    HEALTH_PROLOG.text, lambda target: target.holds(HEALTH_PROLOG) and not target.holds(PROLOGS)
)
NODES = Condition("nodes", lambda target: "DefMemPerCPU" in target.of_nodes)
GRES = Condition("machine types with `gres`", lambda target: "GresTypes" in target.of_nodes)
REBOOTS = Condition("`RebootProgram`", lambda target: site_value(target, "RebootProgram", "") is not None)
GPUS = Condition(
    "`database` and machine types with GPUs",
    lambda target: target.holds(DATABASE) and "gpu" in target.of_nodes.get("GresTypes", ()),
)


def partition_values(target: Target, key: str) -> list[Any]:
    """What the site has set for a parameter of its partitions."""
    return [
        value
        for partition in target.host["slurm_partitions"]
        for name, value in partition.items()
        if name.lower() == key.lower() and value is not None
    ]


def is_billed(target: Target) -> bool:
    """Whether the collection weighs what jobs use. A site that weighs or tracks resources itself knows better."""
    own = partition_values(target, "TRESBillingWeights") or site_value(target, "AccountingStorageTRES", "") != ""
    return target.holds(GPUS) and not own and bool(target.weights)


NO_OTHER_LIST = Condition(
    "`database`, no `JobCompType` of the site",
    lambda target: target.holds(DATABASE) and site_value(target, "JobCompType", "") == "",
)
BILLED = Condition("`database`, partitions with GPUs, none with weights of the site", is_billed)
PARTITION_FACTORS = Condition(
    "`database` and a partition with `PriorityJobFactor`",
    lambda target: target.holds(DATABASE) and bool(partition_values(target, "PriorityJobFactor")),
)

# -- values -----------------------------------------------------------------------------------------------------------


def kept_limits(target: Target) -> str | None:
    """The limits of a user's login that a job does not get; Slurm reads only one of the two parameters."""
    own = "PropagateResourceLimits" in target.host["slurm_conf"]
    return None if own or target.holds(STRICT) else "MEMLOCK"


def versions_of_ip(target: Target) -> str | None:
    """The options of CommunicationParameters that change the versions of IP; None without one."""
    given = target.host["slurm_conf"].get("CommunicationParameters") or []
    text = ",".join(map(str, given)) if isinstance(given, list) else str(given)
    return ",".join(option for option in text.split(",") if re.match("(?i)(EnableIPv6|DisableIPv4)$", option)) or None


def buffer_pool_mib(memory_mib: int) -> int:
    """A quarter of the memory, rounded to GiB; below 2 GiB, to 128 MiB.

    A kernel update changes MemTotal a little, and the rounding prevents a restart of the database.
    """
    quarter = memory_mib // 4
    step = 1024 if quarter >= 2048 else 128
    return max(round(quarter / step), 1) * step


def of_variable(text: str, name: str) -> Follows:
    """The value of a shared variable."""
    return Follows(text, lambda target: target.host[name])


def of_server(part: str) -> Follows:
    """A part of `database_server`."""
    return Follows(f"`database_server.{part}`", lambda target: target.host["slurm_database_server"][part])


def of_nodes(text: str, name: str) -> Follows:
    """A parameter that follows from the nodes."""
    return Follows(text, lambda target: target.of_nodes[name])


def pid_file(daemon: str) -> Follows:
    """The PID file of a daemon."""
    return Follows(
        f"`{daemon}.pid` in the unit's RuntimeDirectory",
        lambda target: f"{target.platform.run_dirs[daemon]}/{daemon}.pid",
    )


def server_parameters(target: Target) -> str | None:
    """How slurmdbd checks the database server; None without TLS."""
    return f"SSL_CA={DATABASE_CA}" if target.host["slurm_database_server"].get("ca") else None


def mail_domain(target: Target) -> Any:
    """The domain of the users' addresses; None without mail."""
    return target.host["slurm_mail"].get("domain")


def tracked_gpus(target: Target) -> list[str]:
    """GPUs of any type, each type that a machine type has, MIG instances among them, and shares of GPUs."""
    machines = target.host["slurm_hardware_types"]
    used = {str(node["hardware"]) for node in target.host["slurm_nodes"]}
    resources = [gres for name in used for gres in machines[name].get("gres") or ()]
    gpus = [gres for gres in resources if gres.get("name") == "gpu"]
    types = {kind for gres in gpus for kind, _count in gres_kinds(gres) if kind}
    shares = {str(gres.get("name")) for gres in resources} & {"mps", "shard"}
    return ["gres/gpu", *(f"gres/gpu:{kind}" for kind in sorted(types)), *(f"gres/{name}" for name in sorted(shares))]


DAY = 24 * 60
"""Minutes, and Slurm's own bf_window."""

LONGEST_WINDOW = 30 * DAY
"""Slurm's limit of bf_window (MAX_BACKFILL_WINDOW)."""

WINDOW_WITHOUT_LIMIT = 7 * DAY
"""For a partition whose jobs have no limit of time."""


def window_minutes(target: Target) -> int:
    """The longest time limit of a job in any partition, as far as the scheduler has to plan."""
    limits = []
    for partition in target.host["slurm_partitions"]:
        limit = next((value for name, value in partition.items() if name.lower() == "maxtime"), None)
        minutes = minutes_in(str(limit).lower())
        limits.append(WINDOW_WITHOUT_LIMIT if minutes < 0 else min(minutes, LONGEST_WINDOW))
    return max(limits, default=0)


def backfill_window(target: Target) -> str | None:
    """The option bf_window; None if Slurm's own is long enough."""
    minutes = window_minutes(target)
    return f"bf_window={minutes}" if minutes > DAY else None


def backfill_resolution(target: Target) -> str | None:
    """The option bf_resolution, in proportion to bf_window, so that the scheduler has no more steps than before."""
    minutes = window_minutes(target)
    return f"bf_resolution={60 * -(-minutes // DAY)}" if minutes > DAY else None


OWN_JOB_COUNT, MOST_JOBS = 10_000, 200_000
"""Slurm's own MaxJobCount, and one with which slurmctld is still fast (slurm.conf(5))."""


def job_count(target: Target) -> int:
    """Ten jobs for each CPU of the cluster, in steps of Slurm's own MaxJobCount."""
    hardware = target.host["slurm_hardware_types"]
    cpus = 0
    for node in target.host["slurm_nodes"]:
        machine = hardware[str(node["hardware"])]
        threads = int(machine["sockets"]) * int(machine["cores_per_socket"]) * int(machine["threads_per_core"])
        cpus += int(machine.get("cpus") or threads) * len(expand(node["hosts"]))
    return min(max(-(-cpus * 10 // OWN_JOB_COUNT), 1) * OWN_JOB_COUNT, MOST_JOBS)


def max_job_count(target: Target) -> int | None:
    """MaxJobCount; None if Slurm's own is enough."""
    count = job_count(target)
    return count if count > OWN_JOB_COUNT else None


def max_array_size(target: Target) -> int | None:
    """A tenth of MaxJobCount, as in Slurm's own values; None where one of the two is Slurm's or the site's."""
    count = max_job_count(target)
    return count // 10 + 1 if count and site_value(target, "MaxJobCount", "") == "" else None


WAITING_MESSAGES = 100_000
"""Messages that may wait in slurmctld for slurmdbd.

A job with one batch script has 7, and 2 more for each step of srun (Slurm 24.11), so these are 11,000 jobs or more: a
weekend without a database. Each has a buffer of 16 KiB (MAX_DBD_MSG_LEN): 1.6 GiB, which a controller of 4 GiB has.
"""


def max_dbd_msgs(target: Target) -> int | None:
    """MaxDBDMsgs; None if Slurm's own is enough: twice MaxJobCount, and four for each node."""
    own = site_value(target, "MaxJobCount", "")
    count = job_count(target) if own == "" else int(own) if str(own).isdecimal() else OWN_JOB_COUNT
    return WAITING_MESSAGES if 2 * count < WAITING_MESSAGES else None


def log_file_mib(pool_mib: int) -> int:
    """A quarter of the buffer pool, and no less than MariaDB's own value."""
    return max(pool_mib // 4, 96)


WINDOW = Follows("`bf_window`: the longest MaxTime; 7 days without a limit; 30 days at most", backfill_window)
RESOLUTION = Follows("`bf_resolution`: 60 s for each day of bf_window", backfill_resolution)
MAX_JOB_COUNT = Follows("ten for each CPU of the cluster, 10,000 to 200,000", max_job_count)
MAX_DBD_MSGS = Follows(
    f"{WAITING_MESSAGES:,}; none where Slurm's own is larger, with MaxJobCount from {WAITING_MESSAGES // 2:,} on",
    max_dbd_msgs,
)
MAX_ARRAY_SIZE = Follows("a tenth of MaxJobCount, and 1", max_array_size)
LOG_FILE = Follows(
    "a quarter of innodb_buffer_pool_size",
    lambda target: f"{log_file_mib(buffer_pool_mib(target.host.facts['memory_mib']))}M",
)
WEIGHTS = Follows("`CPU=1`, and for a GPU and its memory the CPUs of its share", lambda target: target.weights)
TRACKED_GPUS = Follows(
    "`gres/gpu`, `gres/gpu:TYPE` of each type of the machine types, and `gres/shard` or `gres/mps`", tracked_gpus
)
STATE_DIRECTORY = Follows("`/var/lib/slurm/slurmctld`", lambda target: state_directory(target.host))
SCRATCH = Follows("the `path` of the storage with `scratch`", lambda target: scratch(target.host) or None)
MAIL = Follows(
    f"`{MAIL_PROGRAM}` with `mail`, else `/usr/bin/true`",
    lambda target: MAIL_PROGRAM if target.host["slurm_mail"] else "/usr/bin/true",
)
SERVER_PARAMETERS = Follows("the file of `database_server.ca`", server_parameters)
MAIL_DOMAIN = Follows("`mail.domain`", mail_domain)
KEPT_LIMITS = Follows("`MEMLOCK`; none with `PropagateResourceLimits`", kept_limits)
VERSIONS_OF_IP = Follows("its options EnableIPv6 and DisableIPv4 in slurm.conf", versions_of_ip)
JWT_KEY = f"jwt_key={jwt_keys.host_path(jwt_keys.COMMANDS)}"
TOKENS = Follows(
    f"`{JWT_KEY}`, and `max_token_lifespan` of `rest`",
    lambda target: f"{JWT_KEY},max_token_lifespan={target.host['slurm_rest']['max_token_lifespan']}",
)
BUFFER_POOL = Follows("a quarter of the memory", lambda target: f"{buffer_pool_mib(target.host.facts['memory_mib'])}M")
