# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of slurm.conf."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import (
    host_addresses,
    node_lines,
    node_parameters,
    partition_lines,
    slurm_conf,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions import slurm_conf_defaults
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.cluster import profile
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.paths import ENROOT_EPILOG, ENROOT_PROLOG
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.platform import slurm_release
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.platforms import NEWEST, RELEASES
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run_host import RunHost
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.slurm_accounting import has_policy, preempts


def text(host: RunHost, release: str = "") -> str:
    """slurm.conf of the cluster.

    Args:
        release: of the Slurm that will read it, such as 24.11; that of the host if it is empty.
    """
    nodes, hardware = host["slurm_nodes"], host["slurm_hardware_types"]
    return host.text(
        "slurmctld",
        "slurm.conf.j2",
        cluster=host["slurm_cluster_name"],
        controllers=controllers(host),
        parameters=slurm_conf(*layers(host, release or own_release(host))),
        nodes=node_lines(nodes, hardware),
        partitions=partition_lines(host["slurm_partitions"], nodes, hardware, host["slurm_conf"]),
    )


def own_release(host: RunHost) -> str:
    """The release of Slurm on the host; empty before it has answered."""
    return slurm_release(host) if host.answer() else ""


def layers(host: RunHost, release: str) -> Iterator[dict[str, Any]]:
    """The parameters, of which later ones replace earlier ones. A release that is not known yet is the newest one."""
    platform = RELEASES.get(release, RELEASES[NEWEST])
    database = bool(host["slurm_database"])
    yield slurm_conf_defaults.values(slurm_conf_defaults.SLURM_CONF, host, platform)
    yield node_parameters(host["slurm_nodes"], host["slurm_hardware_types"])
    if database:
        yield slurm_conf_defaults.values(slurm_conf_defaults.ACCOUNTING, host, platform)
    if database and has_policy(host):
        yield enforcement(host)
    if host["slurm_private_tmp"]:
        yield dict(platform.private_tmp)
    yield dict(profile(host).slurm_conf)
    yield host["slurm_conf"]
    yield job_programs(host)
    if host["slurm_prologs"]:
        yield {"SchedulerParameters": scheduler_parameters(host)}
    yield {"SlurmctldParameters": slurmctld_parameters(host, release)}


def controllers(host: RunHost) -> list[str]:
    """The controllers as SlurmctldHost has them: NAME or NAME(ADDRESS)."""
    names = host["slurm_controllers"]
    addresses = {entry["name"]: entry["address"] for entry in host_addresses(host["slurm_addresses"], names)}
    return [f"{name}({addresses[name]})" if name in addresses else str(name) for name in names]


def enforcement(host: RunHost) -> dict[str, Any]:
    """What Slurm does for a policy. A QOS that preempts others puts their jobs back into the queue."""
    preempting = preempts(host)
    return {
        "AccountingStorageEnforce": list(slurm_conf_defaults.ENFORCED),
        "PreemptType": "preempt/qos" if preempting else None,
        "PreemptMode": "REQUEUE" if preempting else None,
    }


def job_programs(host: RunHost) -> dict[str, list[Any]]:
    """What runs before and after a job on its nodes: a site's own programs, then those of the collection.

    slurmctld sends programs without a path to the nodes.
    """
    enroot = "enroot" in host["slurm_containers"]
    added = {
        "Prolog": [ENROOT_PROLOG] * enroot + ["slurm-prolog"] * bool(host["slurm_prologs"]),
        "Epilog": [ENROOT_EPILOG] * enroot + ["slurm-epilog"] * bool(host["slurm_epilogs"]),
    }
    return {name: [*elements(host["slurm_conf"].get(name)), *own] for name, own in added.items() if own}


def scheduler_parameters(host: RunHost) -> list[str]:
    """A job whose prolog has failed on a node starts on others, which Slurm does only with this word."""
    return distinct([*words(host["slurm_conf"].get("SchedulerParameters") or None), "nohold_on_prolog_fail"])


def slurmctld_parameters(host: RunHost, release: str) -> list[str]:
    """The other hosts need configless mode, so it is added to a site's own parameters.

    So are the words of the profile, which Slurm has since 23.11.
    """
    of_profile = profile(host).slurmctld_parameters if not release or release >= "23.11" else ()
    return distinct(["enable_configless", *of_profile, *words(host["slurm_conf"].get("SlurmctldParameters"))])


def elements(value: Any) -> list[Any]:
    """The elements of a value that may be a list, of lists as well, without nulls."""
    if isinstance(value, list):
        return [element for part in value for element in elements(part)]
    return [] if value in (None, "None", "null") else [value]


def words(value: Any) -> list[str]:
    """The words of a parameter that is a list or a text with commas."""
    return ",".join(map(str, elements(value))).split(",")


def distinct(found: Iterable[str]) -> list[str]:
    """Words without empty ones, each once; Slurm compares them without case."""
    known: dict[str, str] = {}
    for word in filter(None, found):
        known.setdefault(word.lower(), word)
    return [*known.values()]


def text_with_qos(host: RunHost) -> str:
    """slurm.conf if it can name a QOS, which has to exist before slurmctld starts; else an empty text."""
    if not host["slurm_database"]:
        return ""
    conf = text(host)
    return conf if re.search("QOS=", conf, re.IGNORECASE) else ""
