# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values that the collection gives to parameters of slurm.conf and cgroup.conf.

They are those of Slurm's guides where they are right, and more that a GPU cluster needs. `slurm_conf` and
`slurm_cgroup_conf` can override each. slurm.conf has them in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import node_parameters
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.cluster import (
    SRUN_PORTS,
    scratch,
    state_directory,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.paths import (
    HEALTH_PROGRAM,
    LIB_DIR,
    LOG_DIR,
    MAIL_PROGRAM,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.platforms import Release
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run_host import RunHost

Following = Callable[[RunHost, Release], Any]
"""A value that follows from the variables of the cluster and the release of Slurm; None: no such parameter."""


def own(value: str) -> Following:
    """A path or port range of this collection. A cluster that is taken over keeps its own."""
    return lambda _host, _release: value


def _mail_program(host: RunHost, _release: Release) -> str:
    """Slurm sends no mail without slurm_mail.

    Slurm's default, /bin/mail, is missing on most hosts, and slurmctld logs an error about that at each start.
    """
    return MAIL_PROGRAM if host["slurm_mail"] else "/usr/bin/true"


def _kept_limits(host: RunHost, _release: Release) -> str | None:
    """The limits of a user's login on the host of submission that are not those of the job.

    A small one for locked memory (ulimit -l) ends programs that use RDMA, MPI among them. Slurm reads only one of the
    two parameters.
    """
    return None if "PropagateResourceLimits" in host["slurm_conf"] else "MEMLOCK"


def _accounted_resources(host: RunHost, _release: Release) -> str | None:
    """GPUs are accounted where there are any."""
    derived = node_parameters(host["slurm_nodes"], host["slurm_hardware_types"])
    return "gres/gpu" if "gpu" in derived.get("GresTypes", ()) else None


SLURM_CONF: Mapping[str, Any] = {
    "AuthType": "auth/munge",
    "SlurmUser": "slurm",
    "StateSaveLocation": lambda host, _release: state_directory(host),
    "TmpFS": lambda host, _release: scratch(host) or None,
    "SlurmdSpoolDir": own(f"{LIB_DIR}/slurmd"),
    "SlurmctldPidFile": lambda _host, release: f"{release.run_dirs['slurmctld']}/slurmctld.pid",
    "SlurmdPidFile": lambda _host, release: f"{release.run_dirs['slurmd']}/slurmd.pid",
    "SlurmctldLogFile": own(f"{LOG_DIR}/slurmctld.log"),
    "SlurmdLogFile": own(f"{LOG_DIR}/slurmd.log"),
    "SrunPortRange": own(SRUN_PORTS),
    "MailProg": _mail_program,
    "MailDomain": lambda host, _release: host["slurm_mail"].get("domain"),
    "RebootProgram": "/usr/sbin/reboot",
    # Each job has a step on all its nodes, to which pam_slurm_adopt can add processes that Slurm has not started.
    "PrologFlags": "contain",
    "ProctrackType": "proctrack/cgroup",
    "TaskPlugin": ["task/affinity", "task/cgroup"],
    "SelectType": "select/cons_tres",
    # Whole cores: with CR_CPU two jobs would share a core where ThreadsPerCore > 1.
    "SelectTypeParameters": "CR_Core_Memory",
    "SchedulerType": "sched/backfill",
    # Slurm refuses a job that can never run when it is submitted.
    "EnforcePartLimits": "ALL",
    "PropagateResourceLimitsExcept": _kept_limits,
    "ReturnToService": 1,
    "InactiveLimit": 0,
    "KillWait": 30,
    "MinJobAge": 300,
    "SlurmctldTimeout": 120,
    "SlurmdTimeout": 300,
    "UnkillableStepTimeout": 240,
    # CYCLE spreads the checks over the interval; otherwise thousands of nodes would report to slurmctld at once.
    "HealthCheckProgram": own(HEALTH_PROGRAM),
    "HealthCheckInterval": 300,
    "HealthCheckNodeState": ["ANY", "CYCLE"],
    "JobAcctGatherType": "jobacct_gather/cgroup",
    "JobAcctGatherFrequency": 30,
    "JobCompType": "jobcomp/filetxt",
    "JobCompLoc": own(f"{LOG_DIR}/job_completions"),
}

ACCOUNTING: Mapping[str, Any] = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageHost": lambda host, _release: host["slurm_database"],
    "AccountingStorageTRES": _accounted_resources,
    # Fair share gives priority to users and accounts that used less than their share in the last weeks; age prevents
    # starvation; QOS outweighs both.
    "PriorityType": "priority/multifactor",
    "PriorityDecayHalfLife": "7-0",
    "PriorityMaxAge": "7-0",
    "PriorityWeightAge": 1000,
    "PriorityWeightFairshare": 10000,
    "PriorityWeightQOS": 100000,
}
"""With a database."""

ENFORCED = ("associations", "limits", "qos", "safe")
"""With a policy, Slurm enforces its limits: a job needs an account, and starts only if they allow it to finish."""

CGROUP_CONF: Mapping[str, bool] = {
    "ConstrainCores": True,
    "ConstrainDevices": True,
    "ConstrainRAMSpace": True,
    "ConstrainSwapSpace": True,
}


def values(table: Mapping[str, Any], host: RunHost, release: Release) -> dict[str, Any]:
    """A table with the values of this cluster."""
    return {name: value(host, release) if callable(value) else value for name, value in table.items()}


def fixed(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table with the values that all clusters have, and None for those that differ."""
    return {name: None if callable(value) else value for name, value in table.items()}


def recommended(_host: RunHost) -> dict[str, dict[str, Any]]:
    """The parameters that the collection sets, by file, as `fixed`: for clusters that are taken over."""
    return {"slurm.conf": fixed(SLURM_CONF), "cgroup.conf": fixed(CGROUP_CONF)}
