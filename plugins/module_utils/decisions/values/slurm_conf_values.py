# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of slurm.conf."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...accounting.policy import untracked_limits
from ...accounting.refusals import without_default_qos
from ...accounting.typed_limits import PassedLimit, describe_passed, find_passed
from ...cluster.keys import NEWEST_GENERATION
from ...cluster.render import host_addresses, node_lines, partition_lines, slurm_conf
from ..known.platform import slurm_release
from ..known.run_host import RunHost
from . import defaults


def text(host: RunHost, release: str = "") -> str:
    """slurm.conf of the cluster.

    Args:
        release: of the Slurm that will read it, such as 24.11; that of the host if it is empty.
    """
    nodes, hardware = host["slurm_nodes"], host["slurm_hardware_types"]
    release = release or own_release(host)
    partitions = defaults.with_defaults(host["slurm_partitions"], defaults.target(host, release))
    return host.text(
        "slurmctld",
        "slurm.conf.j2",
        cluster=host["slurm_cluster_name"],
        controllers=controllers(host),
        parameters=slurm_conf(*layers(host, release)),
        nodes=node_lines(nodes, hardware),
        partitions=partition_lines(partitions, nodes, hardware, host["slurm_conf"]),
    )


def own_release(host: RunHost) -> str:
    """The release of Slurm on the host; empty before it has answered."""
    return slurm_release(host) if host.answer() else ""


def layers(host: RunHost, release: str) -> Iterator[Mapping[str, Any]]:
    """The parameters, of which later ones replace earlier ones."""
    target = defaults.target(host, release)
    yield defaults.values(defaults.SLURM, target)
    yield host["slurm_conf"]
    yield defaults.joined_values(defaults.SLURM, target, host["slurm_conf"])


def controllers(host: RunHost) -> list[str]:
    """The controllers as SlurmctldHost has them: NAME or NAME(ADDRESS)."""
    names = host["slurm_controllers"]
    addresses = {entry["name"]: entry["address"] for entry in host_addresses(host["slurm_addresses"], names)}
    return [f"{name}({addresses[name]})" if name in addresses else str(name) for name in names]


def words_of(host: RunHost, key: str) -> list[str]:
    """The words of a parameter of slurm.conf that is a list, in small letters."""
    lines = slurm_conf(*layers(host, own_release(host))).split("\n")
    found = [line.partition("=")[2] for line in lines if re.match(f"{key}=", line, re.IGNORECASE)]
    return [word.lower() for text in found for word in text.split(",") if word]


def refused_defaults(host: RunHost, policy: Mapping[str, Any]) -> list[str]:
    """The accounts and users of a policy whose jobs slurmctld would refuse unless they name a QOS."""
    enforced = words_of(host, "AccountingStorageEnforce") if host["slurm_database"] else []
    return without_default_qos(policy, enforced)


def tracked_resources(host: RunHost) -> list[str]:
    """What slurm.conf tracks beyond Slurm's own resources; with GPUs also their memory and load."""
    resources = words_of(host, "AccountingStorageTRES")
    return [*resources, *(["gres/gpumem", "gres/gpuutil"] if "gres/gpu" in resources else [])]


def untracked_limit_errors(host: RunHost, policy: Mapping[str, Any]) -> list[str]:
    """The limits of a policy that slurmctld would not enforce, each with what a person can do."""
    if not host["slurm_database"]:
        return []
    way_out = "add it to AccountingStorageTRES in slurm_conf"
    if defaults.target(host, "").generation < NEWEST_GENERATION:
        way_out += f", or set `defaults: {NEWEST_GENERATION}`, which tracks each type of GPU"
    return [f"{limit}: {way_out}" for limit in untracked_limits(policy, tracked_resources(host))]


_DECIDE_NO_TYPE = (
    "all_partitions",
    "cray_aries",
    "defaults",
    "logging",
    "partition",
    "pbs",
    "require_timelimit",
    "throttle",
)
"""Slurm's own plugins for JobSubmitPlugins that make no job name a type."""


def passed_limits(host: RunHost, policy: Mapping[str, Any]) -> list[PassedLimit]:
    """The limits of a policy on types of GPUs that jobs pass which name no type.

    A site's own script or plugin can make them name one, as Slurm's documents advise. What it does is not known here.
    """
    plugins = {word.rpartition("/")[2] for word in words_of(host, "JobSubmitPlugins")}
    if not host["slurm_database"] or plugins - {*_DECIDE_NO_TYPE}:
        return []
    return [*find_passed(policy, tracked_resources(host))]


_NAME_A_TYPE = "set JobSubmitPlugins in slurm_conf with a script that makes jobs name a type"


def passed_limit_errors(host: RunHost, policy: Mapping[str, Any]) -> list[str]:
    """Those that a limit on GPUs of all types would complete, each with what a person can do."""
    way_out = f"add gres/gpu (GPUs of all types together), name gres/gpu alone, or {_NAME_A_TYPE}"
    return [
        f"{line}: {way_out}"
        for line in describe_passed(each for each in passed_limits(host, policy) if not each.closes)
    ]


def passed_limit_warnings(host: RunHost, policy: Mapping[str, Any]) -> list[str]:
    """Those that forbid a type. Refusing them would leave such a policy no number to write."""
    way_out = f"keep these GPUs in a partition with AllowAccounts or DenyAccounts, or {_NAME_A_TYPE}"
    return [
        f"{line}: {way_out}" for line in describe_passed(each for each in passed_limits(host, policy) if each.closes)
    ]


def text_with_qos(host: RunHost) -> str:
    """slurm.conf if it can name a QOS, which has to exist before slurmctld starts; else an empty text."""
    if not host["slurm_database"]:
        return ""
    conf = text(host)
    return conf if re.search(r"\b(Allow|Deny)?QOS=", conf, re.IGNORECASE) else ""
