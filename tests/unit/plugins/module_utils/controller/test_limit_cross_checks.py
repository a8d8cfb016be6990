# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule about limits and times, with the messages of real daemons that refuse the same files."""

from __future__ import annotations

import pytest
from cross_check_verdicts import ignored, refused, right, verdict

# -- times -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (
            "SlurmdTimeout=29",
            "SlurmdTimeout: found '29', allowed: 30 or more, 3 x MessageTimeout: nodes are set down with their jobs if"
            " they answer later",
        ),
        (
            "MessageTimeout=60\nUnkillableStepTimeout=240",
            "UnkillableStepTimeout: found '240', allowed: 300 or more, 5 x MessageTimeout: nodes are drained if a step"
            " ends late",
        ),
        (
            "MessageTimeout=1",
            "MessageTimeout: found '1', allowed: 2 or more, the TCPTimeout: messages fail before their connection does",
        ),
    ],
)
def test_times_that_are_short_for_other_times(settings: str, what: str) -> None:
    assert ignored(f"{settings}\n") == f"slurm.conf: {what}"


@pytest.mark.parametrize(
    "settings", ["SlurmdTimeout=0", "SlurmdTimeout=30", "SlurmdTimeout=INFINITE", "UnkillableStepTimeout=50"]
)
def test_times_that_are_long_enough(settings: str) -> None:
    assert right(f"{settings}\n")


# -- accounting ------------------------------------------------------------------------------------------------------

SLURMDBD = "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=db\n"


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        # fatal: slurmdbd is required to run with TRES gres/gpu
        (
            "GresTypes=gpu\nAccountingStorageTRES=CPU,gres/gpu",
            "found 'gres/gpu', which needs AccountingStorageType=accounting_storage/slurmdbd, "
            "allowed: billing, cpu, energy, fs/disk, mem, node, pages, vmem",
        ),
        # fatal: Unknown tres type 'gers/gpu'
        (
            SLURMDBD + "AccountingStorageTRES=gers/gpu",
            "found 'gers/gpu', allowed: billing, cpu, energy, fs/disk, mem, node, pages, vmem, bb/, fs/, gres/, ic/, "
            "license/, did you mean 'gres/'?",
        ),
    ],
)
def test_resources_that_slurmctld_does_not_count(lines: str, what: str) -> None:
    assert refused(f"{lines}\n") == f"slurm.conf: AccountingStorageTRES: {what}"


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (
            SLURMDBD + "GresTypes=gpu\nAccountingStorageTRES=gres/gpu,gres/gpuutil,gres/gup",
            "AccountingStorageTRES: found 'gres/gup', allowed: gres/gpu, did you mean 'gpu'?",
        ),
        (
            "AccountingStorageEnforce=limits",
            "AccountingStorageEnforce: found 'limits', allowed: with AccountingStorageType=accounting_storage/slurmdbd",
        ),
        (
            "PriorityType=priority/multifactor\nPriorityWeightFairshare=100\nPriorityWeightAge=0",
            "PriorityWeightFairshare: found '100', allowed: with AccountingStorageType=accounting_storage/slurmdbd",
        ),
        (
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost: missing: Slurm uses localhost",
        ),
    ],
)
def test_accounting_that_does_nothing(lines: str, what: str) -> None:
    assert ignored(f"{lines}\n") == f"slurm.conf: {what}"


def test_accounting_that_works() -> None:
    more = "AccountingStorageEnforce=limits\nAccountingStorageTRES=gres/gpu:h100,license/x,fs/lustre\nGresTypes=gpu\n"
    assert right(f"{SLURMDBD}{more}PriorityWeightAge=1\n")
    assert right("AccountingStorageTRES=CPU,Mem,FS/Disk\n")


# -- memory and cores ------------------------------------------------------------------------------------------------

RESERVE = "NodeName=n[1-2] NodeAddr=10.0.0.[1-2] RealMemory=1000 MemSpecLimit=100 CoreSpecCount=1\n"
CGROUP = "ConstrainCores=yes\nConstrainRAMSpace=yes\n"


def test_reserves_that_are_enforced() -> None:
    conf = f"TaskPlugin=task/affinity,task/cgroup\nSelectTypeParameters=CR_Core_Memory\nDefMemPerCPU=1\n{RESERVE}"
    assert right(conf, cgroup_conf=CGROUP)


def test_reserves_that_nothing_enforces() -> None:
    without = "nothing keeps jobs from it without TaskPlugin=task/cgroup and"
    assert verdict(RESERVE) == (
        [],
        [
            f"slurm.conf: NodeName=n[1-2]: MemSpecLimit: {without} ConstrainRAMSpace in cgroup.conf",
            f"slurm.conf: NodeName=n[1-2]: CoreSpecCount: {without} ConstrainCores in cgroup.conf",
        ],
    )


def test_limits_without_their_plugin() -> None:
    what = "cgroup.conf: ConstrainDevices: found 'YES', allowed: with TaskPlugin=task/cgroup"
    assert ignored("TaskPlugin=task/affinity\n", cgroup_conf="ConstrainDevices=yes\nConstrainCores=no\n") == what


def test_memory_that_is_no_resource() -> None:
    conf = "TaskPlugin=task/cgroup\nSelectTypeParameters=CR_Core\nDefMemPerCPU=100\n"
    partitions = (
        "PartitionName=p DefMemPerNode=9\nPartitionName=q DefMemPerNode=9 SelectTypeParameters=CR_Core_Memory\n"
    )
    what = "but memory is no resource, allowed: with CR_Core_Memory, found 'CR_Core'"
    assert verdict(conf + partitions, cgroup_conf="ConstrainRAMSpace=yes\n") == (
        [],
        [
            f"slurm.conf: DefMemPerCPU: found '100', {what}",
            f"slurm.conf: PartitionName=p: DefMemPerNode: found '9', {what}",
            f"cgroup.conf: ConstrainRAMSpace: found 'YES', {what}",
        ],
    )


def test_memory_that_two_enforce() -> None:
    # fatal: Jobs memory is being constrained by both TaskPlugin cgroup and JobAcctGather plugin
    conf = "TaskPlugin=task/cgroup\nJobAcctGatherParams=OverMemoryKill\n"
    what = "found 'OverMemoryKill', allowed: without ConstrainRAMSpace and ConstrainSwapSpace in cgroup.conf"
    assert refused(conf, cgroup_conf=CGROUP) == f"slurm.conf: JobAcctGatherParams: {what}"


def test_words_that_only_resemble_another() -> None:
    """Slurm compares OverMemoryKill as a whole word, in any case; of TaskPlugin it searches for `cgroup`."""
    memory = "SelectTypeParameters=CR_Core_Memory\nTaskPlugin=affinity,cgroup\n"
    assert right(f"{memory}JobAcctGatherParams=NoOverMemoryKill,UsePss\n", cgroup_conf=CGROUP)
    assert "OverMemoryKill" in refused(f"{memory}JobAcctGatherParams=UsePss,overmemorykill\n", cgroup_conf=CGROUP)


def test_a_reserve_of_memory_that_is_no_resource() -> None:
    """slurmd keeps to MemSpecLimit (`_memory_spec_init`), but jobs may take all memory of the node."""
    reserve = RESERVE.replace(" CoreSpecCount=1", "")
    conf = f"TaskPlugin=task/cgroup\nSelectTypeParameters=CR_Core\n{reserve}"
    what = "found '100', but memory is no resource, allowed: with CR_Core_Memory, found 'CR_Core'"
    assert verdict(conf, cgroup_conf="ConstrainCores=yes\nConstrainSwapSpace=no\nConstrainRAMSpace=yes\n") == (
        [],
        [
            f"slurm.conf: NodeName=n[1-2]: MemSpecLimit: {what}",
            f"cgroup.conf: ConstrainRAMSpace: {what.replace('100', 'YES')}",
        ],
    )
