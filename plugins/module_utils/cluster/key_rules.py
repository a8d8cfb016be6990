# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of keys of the cluster file that follow from no type: each checks a value, and returns the variable's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from . import (
    access_key,
    backup_key,
    database_server_key,
    firewall_plans,
    job_scripts,
    machines_key,
    mail_key,
    monitoring_key,
    package_source,
    repair_key,
    report_key,
    rest_key,
    schema,
)
from .policy_checks import check_accounting
from .schema import Checker, Partition, Settings
from .setting_checks import check_files, check_plugstack, check_settings


@dataclass(frozen=True)
class OtherKeys:
    """What the rule of a key needs of the other keys."""

    slurm_conf: Settings
    slurm_files: Mapping[str, str]
    partitions: list[Partition]
    hardware: Collection[str]
    """The names of all machine types."""
    scripts: Mapping[str, str | ValueError | None]
    """The texts of files that are scripts, or why one cannot be read."""
    has_accounting: bool
    """Whether the cluster has a slurmdbd."""
    database: str
    """The host of slurmdbd, if it is one of the cluster."""


RULES: Mapping[str, Callable[[Checker, Any, OtherKeys], object]] = {
    "database_server": lambda checker, found, others: database_server_key.check(checker, found, others.database),
    "packages": lambda checker, found, _others: package_source.check(checker, found),
    "cgroup_conf": lambda checker, found, _others: check_settings(checker, schema.CGROUP_CONF, "cgroup_conf", found),
    "slurm_files": lambda checker, found, others: check_files(checker, found, others.slurm_conf),
    "plugstack": lambda checker, found, _others: check_plugstack(checker, found),
    "accounting": lambda checker, found, others: check_accounting(
        checker, found, others.partitions, others.has_accounting
    ),
    "monitoring": lambda checker, found, others: monitoring_key.check(checker, found, others.slurm_conf),
    "report": lambda checker, found, _others: report_key.check(checker, found),
    "rest": lambda checker, found, others: rest_key.check(checker, found, others.slurm_conf),
    "access": lambda checker, found, others: access_key.check(checker, found, others.slurm_conf),
    "backup": lambda checker, found, _others: backup_key.check(checker, found),
    "repair": lambda checker, found, others: repair_key.check(checker, found, _names(others.partitions)),
    "machines": lambda checker, found, _others: machines_key.check(checker, found),
    "mail": lambda checker, found, others: mail_key.check(checker, found, others.slurm_conf),
    "prologs": lambda checker, found, others: _check_scripts(checker, "prologs", found, others),
    "epilogs": lambda checker, found, others: _check_scripts(checker, "epilogs", found, others),
    "private_tmp": lambda checker, found, others: job_scripts.check_private_tmp(
        checker, found, others.slurm_conf, others.slurm_files
    ),
    "firewall": lambda checker, found, others: firewall_plans.check(checker, found, others.slurm_conf),
}
"""By key. `parts.py` and `model.py` have those of keys that these rules need, and of keys that need all of them."""


def _check_scripts(checker: Checker, key: str, found: list[Any], others: OtherKeys) -> list[job_scripts.ScriptEntry]:
    """The scripts of a stage of jobs."""
    known = {"partitions": _names(others.partitions), "hardware": others.hardware}
    return job_scripts.check(checker, key, found, known, others.slurm_conf, others.scripts)


def _names(partitions: list[Partition]) -> list[str]:
    """The names of partitions. One without a name has an error of its own."""
    return [partition["name"] for partition in partitions if "name" in partition]
