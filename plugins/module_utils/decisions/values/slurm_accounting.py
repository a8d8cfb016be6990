# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurm_accounting, and what its policy means for slurm.conf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...cluster.whole_nodes import describe_limits, gpus_of_nodes
from ...jobs.validation import validation_jobs
from ..known import registered
from ..known.run_host import RunHost
from ..known.whole_cluster import profile

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import PlannedChange, PolicyResult

POLICY = ("slurm_accounting_limits", "slurm_accounting_qos", "slurm_accounting_accounts", "slurm_accounting_users")


def has_policy(host: RunHost) -> bool:
    """Whether there is anything to apply. An empty policy with purge would remove everything."""
    return any(host.option("slurm_accounting", name) for name in POLICY)


def needs_own_user(host: RunHost) -> bool:
    """Whether slurmdbd has to know the user of the collection's jobs.

    With PrivateData, which profile strict sets, a user without an association sees no job, not even an own one
    (`as_mysql_jobacct_process_get_jobs` in src/plugins/accounting_storage/mysql/as_mysql_jobacct_process.c).
    """
    return bool(host["slurm_database"]) and profile(host).job_user != "root"


def is_applied(host: RunHost) -> bool:
    """Whether the module has anything to apply."""
    return has_policy(host) or needs_own_user(host)


def purges(host: RunHost) -> bool:
    """Whether what the policy lacks is removed: never by an empty policy."""
    return host.flag("slurm_accounting", "slurm_accounting_purge") and has_policy(host)


def preempts(host: RunHost) -> bool:
    """Whether jobs of a QOS preempt those of another one."""
    qos = host.option("slurm_accounting", "slurm_accounting_qos")
    return any(isinstance(entry, dict) and "Preempt" in entry for entry in qos)


def users(host: RunHost) -> list[dict[str, Any]]:
    """The users of the policy, and the user of role validate.

    Some partitions allow some accounts only. Role validate runs jobs of its user there, too, so that user gets these
    accounts. Slurm knows root without them.
    """
    given: list[dict[str, Any]] = host.option("slurm_accounting", "slurm_accounting_users")
    user, accounts = profile(host).job_user, accounts_of_jobs(host)
    if user in [entry.get("name") for entry in given] or not (accounts or user != "root"):
        return given
    return [*given, {"name": user, "DefaultAccount": "root", "accounts": accounts}]


def accounts_of_jobs(host: RunHost) -> list[str]:
    """The accounts that the jobs of role validate need."""
    jobs = validation_jobs(
        host["slurm_partitions"],
        host["slurm_nodes"],
        host["slurm_hardware_types"],
        host["slurm_conf"],
        host["slurm_cgroup_conf"],
    )
    # Slurm compares names without case.
    accounts: dict[str, str] = {}
    for job in jobs:
        if "account" in job:
            accounts.setdefault(str(job["account"]).lower(), job["account"])
    return [*accounts.values()]


def reservations(host: RunHost) -> list[dict[str, Any]]:
    """Options of the module slurm_reservation for each reservation; `state` only if it is given."""
    options = []
    for entry in host["slurm_accounting_reservations"]:
        parameters = {key: value for key, value in entry.items() if key not in ("name", "state")}
        state = {"state": entry["state"]} if "state" in entry else {}
        options.append({"name": entry["name"], "parameters": parameters, **state})
    return options


def changes(host: RunHost, answer: Mapping[str, Any]) -> bool:
    """Whether the module changes something. In check mode its plan has what stage controller has foretold as well."""
    foretold = registered.SLURMCTLD_ADDITIONS.seen(host).get("plan") or [] if host.check_mode else []
    return bool(answer.get("changed")) and any(change not in foretold for change in answer["plan"])


def _runs(host: RunHost) -> list[PolicyResult]:
    """What has changed the policy. Stage controller adds before slurm.conf; in check mode the last run shows it."""
    first = [] if host.check_mode else [registered.SLURMCTLD_ADDITIONS.seen(host)]
    return [*first, registered.SLURM_ACCOUNTING_RUN.seen(host)]


def plan(host: RunHost) -> list[PlannedChange]:
    """The changes, for programs."""
    return [change for run in _runs(host) for change in run.get("plan") or []]


def _in_nodes(host: RunHost) -> list[str]:
    """The changed limits on GPUs in whole nodes. A run that changes no limit says nothing of them."""
    changes = plan(host)
    return describe_limits(changes, gpus_of_nodes(host["slurm_nodes"], host["slurm_hardware_types"])) if changes else []


def report(host: RunHost) -> list[str]:
    """Lines about the changes, with limits in whole nodes, and about what stays; empty without any."""
    done = registered.SLURM_ACCOUNTING_RUN.seen(host)
    lines = [line for run in _runs(host) for line in run.get("table") or []]
    lines += [f"in nodes: {line}" for line in _in_nodes(host)]
    lines += [f"stays: {kept}" for kept in done.get("kept") or []]
    refused = [f"slurmctld would refuse: {line}" for line in done.get("refused") or []]
    return [*(["This changes:", *lines] if lines else []), *refused]
