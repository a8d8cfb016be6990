# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the rules of cross_checks find in files, for tests of each kind of rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.configured_cluster import Host
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.cross_checks import cross_check, whole

# Some of what Debian 13 installs.
INSTALLED = frozenset(
    (
        *(f"accounting_storage_{name}" for name in ("mysql", "slurmdbd")),
        *(f"auth_{name}" for name in ("munge", "none", "slurm")),
        *(f"cred_{name}" for name in ("munge", "none")),
        *(f"jobacct_gather_{name}" for name in ("cgroup", "linux")),
        *(f"jobcomp_{name}" for name in ("filetxt", "script")),
        *(f"mpi_{name}" for name in ("pmi2", "pmix", "pmix_v5")),
        *(f"sched_{name}" for name in ("backfill", "builtin")),
        *(f"select_{name}" for name in ("cons_tres", "linear")),
        "job_submit_lua",
        "mcs_user",
        *(f"preempt_{name}" for name in ("partition_prio", "qos")),
        *(f"priority_{name}" for name in ("basic", "multifactor")),
    )
)

NODES = "NodeName=n[1-2] NodeAddr=10.0.0.[1-2]\n"
PARTITION = "PartitionName=p Nodes=ALL\n"
GPU = "GresTypes=gpu\nNodeName=n[1-2] NodeAddr=10.0.0.[1-2] Gres="


def verdict(
    slurm_conf: str,
    there: Mapping[str, str] | None = None,
    plugins: frozenset[str] | None = None,
    unresolved: tuple[str, ...] = (),
    started_as: str = "root",
    unwritable: tuple[tuple[str, str], ...] = (),
    version: str = "24.11.5",
    coming: frozenset[str] = frozenset(),
    **files: str,
) -> tuple[list[str], list[str]]:
    """The refused and the ignored settings; `gres_conf=` is the text of gres.conf."""
    texts = {"slurm.conf": slurm_conf, **{name.replace("_", "."): text for name, text in files.items()}}
    accounts = {"root": "root", "0": "root", "slurm": "slurm", "64030": "slurm", "munge": "munge", "nobody": "nobody"}
    host = Host(
        (there or {}).get,
        lambda _plugin_dir: None if plugins is None else plugins | coming,
        {*unresolved}.intersection,
        account=accounts.get,
        started_as={"slurmctld": started_as}.get,
        writes=lambda account, path: (account, path) not in unwritable,
    )
    texts, refusals, remarks = whole(texts, host)
    if refusals:
        return refusals, remarks
    refusals, more = cross_check(texts, host, version)
    return refusals, remarks + more


def refused(slurm_conf: str, **others: Any) -> str:
    """The only refused setting; nothing is ignored."""
    (text,), ignored = verdict(slurm_conf, **others)
    assert ignored == []
    return text


def ignored(slurm_conf: str, **others: Any) -> str:
    """The only ignored setting; nothing is refused."""
    refusals, (text,) = verdict(slurm_conf, **others)
    assert refusals == []
    return text


def right(slurm_conf: str, **others: Any) -> bool:
    """Whether nothing is refused and nothing is ignored."""
    return verdict(slurm_conf, **others) == ([], [])
