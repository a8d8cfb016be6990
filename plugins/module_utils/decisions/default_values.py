# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Conditions and values of the table of defaults (defaults.py) that follow from the cluster."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.machine_types import gres_kinds
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.cluster import scratch, state_directory
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.default_records import (
    Condition,
    Follows,
    Target,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.paths import MAIL_PROGRAM
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.slurm_accounting import has_policy, preempts


def site_value(target: Target, key: str, default: Any = None) -> Any:
    """The site's own value of a parameter of slurm.conf, whose keys Slurm compares without case."""
    return next((value for name, value in target.host["slurm_conf"].items() if name.lower() == key.lower()), default)


# -- conditions -------------------------------------------------------------------------------------------------------

DATABASE = Condition("`database`", lambda target: bool(target.host["slurm_database"]))
POLICY = Condition("`database` and a policy", lambda target: target.holds(DATABASE) and has_policy(target.host))
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
ENROOT = Condition("`enroot`", lambda target: "enroot" in target.host["slurm_containers"])
PROLOGS = Condition("`prologs`", lambda target: bool(target.host["slurm_prologs"]))
EPILOGS = Condition("`epilogs`", lambda target: bool(target.host["slurm_epilogs"]))
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


def of_nodes(text: str, name: str) -> Follows:
    """A parameter that follows from the nodes."""
    return Follows(text, lambda target: target.of_nodes[name])


def pid_file(daemon: str) -> Follows:
    """The PID file of a daemon."""
    return Follows(
        f"`{daemon}.pid` in the unit's RuntimeDirectory",
        lambda target: f"{target.platform.run_dirs[daemon]}/{daemon}.pid",
    )


def mail_domain(target: Target) -> Any:
    """The domain of the users' addresses; None without mail."""
    return target.host["slurm_mail"].get("domain")


def tracked_gpus(target: Target) -> list[str]:
    """GPUs of any type, and each type that a machine type has, MIG instances among them."""
    machines = target.host["slurm_hardware_types"]
    used = {str(node["hardware"]) for node in target.host["slurm_nodes"]}
    types = {
        kind
        for name in used
        for gres in machines[name].get("gres") or ()
        if gres.get("name") == "gpu"
        for kind, _count in gres_kinds(gres)
        if kind
    }
    return ["gres/gpu", *(f"gres/gpu:{kind}" for kind in sorted(types))]


WEIGHTS = Follows("`CPU=1`, and for a GPU and its memory the CPUs of its share", lambda target: target.weights)
TRACKED_GPUS = Follows("`gres/gpu`, and `gres/gpu:TYPE` of each type of the machine types", tracked_gpus)
STATE_DIRECTORY = Follows("`/var/lib/slurm/slurmctld`", lambda target: state_directory(target.host))
SCRATCH = Follows("the `path` of the storage with `scratch`", lambda target: scratch(target.host) or None)
MAIL = Follows(
    f"`{MAIL_PROGRAM}` with `mail`, else `/usr/bin/true`",
    lambda target: MAIL_PROGRAM if target.host["slurm_mail"] else "/usr/bin/true",
)
MAIL_DOMAIN = Follows("`mail.domain`", mail_domain)
KEPT_LIMITS = Follows("`MEMLOCK`; none with `PropagateResourceLimits`", kept_limits)
VERSIONS_OF_IP = Follows("its options EnableIPv6 and DisableIPv4 in slurm.conf", versions_of_ip)
BUFFER_POOL = Follows("a quarter of the memory", lambda target: f"{buffer_pool_mib(target.host.facts['memory_mib'])}M")
