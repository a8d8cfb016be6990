# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role validate: the jobs that check a cluster or warm it up, and what their results mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...accounting.policy import closed_users, entities_of
from ...jobs import validation
from ...jobs.batch import ACCEPTED
from ...language.hostlist import expand, fold
from ..host import updates
from ..known import registered
from ..known.run_host import RunHost
from ..known.whole_cluster import profile
from ..run.preflight import policy_values

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import EndedJob

DOCTOR = "The playbook gpucluster.slurm.doctor finds the causes of faults of nodes."

PATIENCE = 45
"""Seconds."""


def user(host: RunHost) -> str:
    """Who submits the jobs of the collection."""
    return profile(host).job_user


def jobs(host: RunHost) -> list[dict[str, Any]]:
    """The jobs that check the cluster, and those that Slurm is asked about as a user of each account."""
    own = validation.validation_jobs(
        host["slurm_partitions"],
        host["slurm_nodes"],
        host["slurm_hardware_types"],
        host["slurm_conf"],
        host["slurm_cgroup_conf"],
        mpi_script(host),
    )
    return [*own, *account_jobs(policy_values(host), host["slurm_partitions"])]


def account_jobs(policy: Mapping[str, Any], partitions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A job for each account of a policy, of its first user who may have jobs, in a partition that allows it."""
    closed, users = closed_users(policy), dict[str, str]()
    for entity in entities_of(policy):
        if entity.kind == "association" and not entity.partition and entity.name not in closed:
            users.setdefault(entity.account, entity.name)
    allowed = [(str(partition["name"]), validation.find_restrictions(partition)) for partition in partitions]
    jobs = []
    for account, user in users.items():
        open_to = (name for name, asked in allowed if "qos" not in asked and asked.get("account", account) == account)
        if (partition := next(open_to, None)) is not None:
            job = {"name": f"account/{account}", "user": user, "account": account, "partition": partition}
            jobs.append({**job, "command": "true", "memory": str(validation.JOB_MEMORY), "expect": ACCEPTED})
    return jobs


def busy_timeout(host: RunHost) -> int:
    """Seconds for jobs that wait for others: longer than the interval of the backfill scheduler, bf_interval.

    Where a busy node is a failure, they have all of the time.
    """
    whole = int(host["validate_timeout"])
    return min(PATIENCE, whole) if "busy" in host["validate_may_wait"] else whole


def mpi_script(host: RunHost) -> str:
    """The batch script of the job mpi; empty without an MPI compiler."""
    compiler = host["validate_mpi"]
    return host.text("validate", "mpi.sh.j2", compiler=compiler) if compiler else ""


def result(host: RunHost) -> dict[str, Any]:
    """The evaluation of the jobs, and the pending updates, which do not count."""
    # Nodes that people have drained are no fault of a restore.
    drained = ["drained"] if "slurm_restores" in host["groups"] else []
    summary = validation.validation_summary(_finished(host), [*host["validate_may_wait"], *drained])
    return {**summary, "updates": updates.result(host)}


def table(host: RunHost) -> list[str]:
    """The table of the jobs that did not pass, the number of the others, and the pending updates, in lines."""
    jobs = _finished(host)
    left = [job for job in jobs if job["status"] != "passed"]
    lines = validation.validation_table(left) if left else []
    if passed := len(jobs) - len(left):
        lines.append(f"{passed} of {len(jobs)} jobs passed, as {host['validate_report_dir']}/validation.json has them")
    return [*lines, *updates.report(host)]


NO_RECORDS = (
    "The cluster has a database host, but slurmctld records no jobs there. Check AccountingStorageType in slurm.conf."
)


def failure(host: RunHost) -> str:
    """Which jobs have not ended as expected, or have no record in accounting, and what to do; empty if all is well."""
    found = result(host)
    if found["ok"]:
        recorded = registered.VALIDATE_RUN.of(host).get("accounting") or not host["slurm_database"]
        return "" if recorded else NO_RECORDS
    names = ", ".join(job["name"] for job in found["jobs"] if not job["ok"])
    text = f"These jobs did not end as expected: {names}. The table above and {host['validate_report_dir']} say why."
    return " ".join([text, *found["remedies"], DOCTOR] if found["remedies"] else [text])


def _finished(host: RunHost) -> list[EndedJob]:
    """The results of the jobs. A task that was skipped, or in check mode, has none."""
    return registered.VALIDATE_RUN.of(host).get("jobs") or []


# -- warm up ----------------------------------------------------------------------------------------------------------


def warm_up_jobs(host: RunHost) -> list[dict[str, Any]]:
    """The jobs that run the prologs on the nodes."""
    return validation.warm_up_jobs(
        host["slurm_partitions"],
        host["slurm_nodes"],
        host["slurm_hardware_types"],
        host["slurm_conf"],
        host["slurm_prologs"],
    )


def warm_up_table(host: RunHost) -> list[str]:
    """The table of these jobs, in lines; in check mode their names."""
    jobs_to_run = [job["name"] for job in warm_up_jobs(host)]
    return jobs_to_run if host.check_mode else validation.validation_table(_finished(host))


def cold_nodes(host: RunHost) -> str:
    """The nodes without such a job, as a hostlist."""
    warm = {name for job in warm_up_jobs(host) for name in expand(job["nodelist"])}
    nodes = [name for node in host["slurm_nodes"] for name in expand(node["hosts"])]
    return fold([name for name in dict.fromkeys(nodes) if name not in warm]) or "No node"


def warm_up_result(host: RunHost) -> dict[str, Any]:
    """The evaluation of these jobs."""
    return validation.validation_summary(_finished(host), [])


def warm_up_failures(host: RunHost) -> list[str]:
    """Why jobs have not run the prologs."""
    return [job["message"] for job in _finished(host) if job["status"] != "passed"]
