# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about limits and times: what counts and enforces limits, and times that others depend on (`cross_checks`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..configuration.meaning import is_yes
from ..configuration.parameter_tables.times import LEAST
from ..configuration.parameter_values import whole_number
from ..configuration.parameters import FILES, IGNORED, REFUSED
from ..language.hostlist import fold
from .configured_cluster import ConfiguredCluster, Finding, suggest

# -- accounting ------------------------------------------------------------------------------------------------------

_TRES = ("billing", "cpu", "energy", "fs/disk", "mem", "node", "pages", "vmem")
"""TRES that are also counted without a database (`_init_tres` in `src/slurmctld/controller.c`)."""

_TRES_KINDS = ("bb/", "fs/", "gres/", "ic/", "license/")
"""Other TRES that can be counted."""

_NEEDS_SLURMDBD = ("AccountingStorageEnforce", "PriorityWeightAge", "PriorityWeightFairshare")
"""Settings that slurmctld removes without a database (`main` there, `init` in priority_multifactor.c)."""


def check_counted_resources(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Counted resources that do not exist, or that need a database."""
    gres_types = {*cluster.list_of("GresTypes")}
    for word in cluster.list_of("AccountingStorageTRES"):
        tres = word.lower()
        name = word.partition("/")[2].partition(":")[0]
        if tres in _TRES:
            continue
        if not tres.startswith(_TRES_KINDS):
            what = (
                f"found {word!r}, allowed: {', '.join((*_TRES, *_TRES_KINDS))}{suggest(word, (*_TRES, *_TRES_KINDS))}"
            )
            yield Finding("slurm.conf", "AccountingStorageTRES", what, REFUSED)
        elif not cluster.slurmdbd:
            what = f"found {word!r}, which needs AccountingStorageType=accounting_storage/slurmdbd"
            yield Finding("slurm.conf", "AccountingStorageTRES", f"{what}, allowed: {', '.join(_TRES)}", REFUSED)
        elif tres.startswith("gres/") and name not in gres_types | {"gpumem", "gpuutil"}:
            allowed = ", ".join(f"gres/{known}" for known in sorted(gres_types)) or "none without GresTypes"
            what = f"found {word!r}, allowed: {allowed}{suggest(name, gres_types)}"
            yield Finding("slurm.conf", "AccountingStorageTRES", what, IGNORED)


def check_database(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Settings that need a database, and a database without its host."""
    for key in _NEEDS_SLURMDBD:
        value = cluster.get(key)
        if value not in ("", "0") and not cluster.slurmdbd:
            what = f"found {value!r}, allowed: with AccountingStorageType=accounting_storage/slurmdbd"
            yield Finding("slurm.conf", key, what, IGNORED)
    if cluster.get("AccountingStorageType").lower().endswith("/slurmdbd") and not cluster.get("AccountingStorageHost"):
        yield Finding("slurm.conf", "AccountingStorageHost", "missing: Slurm uses localhost", IGNORED)


# -- memory and cores ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Confinement:
    """What keeps jobs to their cores and memory (`cgroup_memcg_job_confinement` in `src/interfaces/cgroup.c`)."""

    by_cgroup: bool
    """Whether TaskPlugin has task/cgroup, without which the parameters of cgroup.conf do nothing."""
    constrained: tuple[str, ...]
    """The parameters of cgroup.conf that are on."""

    @property
    def cores(self) -> bool:
        """Whether jobs are kept to their cores."""
        return self.by_cgroup and "ConstrainCores" in self.constrained

    @property
    def memory(self) -> bool:
        """Whether jobs are kept to their memory."""
        return self.by_cgroup and not {"ConstrainRAMSpace", "ConstrainSwapSpace"}.isdisjoint(self.constrained)


def _read_confinement(cluster: ConfiguredCluster) -> _Confinement:
    keys = ("ConstrainCores", "ConstrainDevices", "ConstrainRAMSpace", "ConstrainSwapSpace")
    constrained = tuple(key for key in keys if is_yes(cluster.get(key, file="cgroup.conf")))
    return _Confinement("cgroup" in cluster.get("TaskPlugin"), constrained)


def check_confinement(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Parameters of cgroup.conf without the plugin that obeys them, and a second plugin that ends jobs for memory."""
    confinement = _read_confinement(cluster)
    for key in () if confinement.by_cgroup else confinement.constrained:
        yield Finding("cgroup.conf", key, "found 'YES', allowed: with TaskPlugin=task/cgroup", IGNORED)
    killed = "overmemorykill" in map(str.lower, cluster.list_of("JobAcctGatherParams"))
    if confinement.memory and killed:  # `read_slurm_conf`
        what = "found 'OverMemoryKill', allowed: without ConstrainRAMSpace and ConstrainSwapSpace in cgroup.conf"
        yield Finding("slurm.conf", "JobAcctGatherParams", what, REFUSED)


def check_reserved_parts(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Memory and cores of nodes that are kept from jobs, without what keeps jobs from them."""
    confinement = _read_confinement(cluster)
    enforced_by = {
        "MemSpecLimit": ("ConstrainRAMSpace", confinement.memory),  # `_memory_spec_init` in slurmd.c
        "CoreSpecCount": ("ConstrainCores", confinement.cores),
        "CPUSpecList": ("ConstrainCores", confinement.cores),
    }
    for key, (needed, enforced) in enforced_by.items():
        names = [name for name, values in cluster.nodes.items() if values.get(key.lower(), "0") != "0"]
        if names and not enforced:
            what = f"nothing keeps jobs from it without TaskPlugin=task/cgroup and {needed} in cgroup.conf"
            yield Finding(f"slurm.conf: NodeName={fold(names)}", key, what, IGNORED)


_DEFAULT_MEMORY = ("DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode")


def _find_memory_settings(cluster: ConfiguredCluster) -> Iterator[tuple[str, str, str]]:
    """The settings that have a meaning only where memory is a resource: place, key and value, which may be empty."""
    confinement = _read_confinement(cluster)
    for key in _DEFAULT_MEMORY:
        yield "slurm.conf", key, cluster.get(key)
    for name, values in cluster.partitions.items():
        if "memory" not in values.get("selecttypeparameters", "").lower():
            for key in _DEFAULT_MEMORY:
                yield f"slurm.conf: PartitionName={name}", key, values.get(key.lower(), "")
    nodes_by_limit: dict[str, list[str]] = {}
    for name, values in cluster.nodes.items() if confinement.memory else ():
        nodes_by_limit.setdefault(values.get("memspeclimit", ""), []).append(name)
    for limit, names in nodes_by_limit.items():
        yield f"slurm.conf: NodeName={fold(names)}", "MemSpecLimit", limit
    for key in confinement.constrained:
        if key.endswith("Space"):
            yield "cgroup.conf", key, "YES"


def check_memory_settings(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Settings about memory where memory is no resource.

    `CR_*_Memory must be set in slurm.conf for this parameter to take any effect` (cgroup.conf(5), ConstrainRAMSpace).
    The meaning of memory to a release without SelectTypeParameters is not checked: 22.05 and 24.11 differ.
    """
    select = cluster.get("SelectTypeParameters")
    if not select or "memory" in select.lower():
        return
    for place, key, value in _find_memory_settings(cluster):
        if value not in ("", "0"):
            what = f"found {value!r}, but memory is no resource, allowed: with CR_Core_Memory, found {select!r}"
            yield Finding(place, key, what, IGNORED)


# -- times -----------------------------------------------------------------------------------------------------------

_TOO_SHORT = {
    "messagetimeout": "messages fail before their connection does",
    "slurmdtimeout": "nodes are set down with their jobs if they answer later",
    "unkillablesteptimeout": "nodes are drained if a step ends late",
}
"""What happens below the least times of `parameter_tables/times.py`."""


def check_times(cluster: ConfiguredCluster) -> Iterator[Finding]:
    """Times that are short for other times."""
    for key, (factor, other, default) in LEAST.items():
        value, least = cluster.get(key), factor * whole_number(cluster.get(other, str(default)))
        lowest = 1 if key == "slurmdtimeout" else 0  # of which 0 is no limit
        if value and lowest <= whole_number(value) < least:
            rule = f"{least} or more, {factor} x {other}" if factor > 1 else f"{least} or more, the {other}"
            what = f"found {value!r}, allowed: {rule}: {_TOO_SHORT[key]}"
            yield Finding("slurm.conf", FILES["slurm.conf"][key].name, what, IGNORED)


RULES = (
    check_counted_resources,
    check_database,
    check_confinement,
    check_reserved_parts,
    check_memory_settings,
    check_times,
)
