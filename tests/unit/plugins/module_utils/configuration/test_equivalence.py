# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which differences of two configurations are differences for Slurm."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import changes, read
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.equivalence import differing

HEAD = "ClusterName=x\nSlurmctldHost=ctl\n"

CASES: dict[str, tuple[dict[str, str], dict[str, str], list[str]]] = {
    "old names of the controllers, and the case of the cluster's name": (
        {"slurm.conf": "ClusterName=X\nControlMachine=ctl\nControlAddr=10.0.0.1\nBackupController=b\n"},
        {"slurm.conf": "ClusterName=x\nSlurmctldHost=ctl(10.0.0.1)\nSlurmctldHost=b\n"},
        [],
    ),
    "another controller": (
        {"slurm.conf": "ClusterName=x\nControlMachine=ctl\n"},
        {"slurm.conf": "ClusterName=x\nSlurmctldHost=other\n"},
        ["SlurmctldHost", "ControlMachine"],
    ),
    "other spellings of values, and a default": (
        {"slurm.conf": HEAD + "KillWait=0x1e\nDebugFlags=backfill,Gres\nTaskPlugin=task/cgroup,task/affinity\n"},
        {
            "slurm.conf": HEAD
            + "KillWait=30\nDebugFlags=Gres,Backfill\nTaskPlugin=task/affinity,task/cgroup\nSlurmdTimeout=300\n"
        },
        [],
    ),
    "other values": (
        {"slurm.conf": HEAD + "KillWait=30\nSlurmdTimeout=100\n"},
        {"slurm.conf": HEAD + "KillWait=60\n"},
        ["KillWait", "SlurmdTimeout"],
    ),
    "a node by its CPUs, and by sockets": (
        {"slurm.conf": HEAD + "NodeName=n[1-2] CPUs=4 Feature=a,b\n"},
        {
            "slurm.conf": HEAD
            + "NodeName=n[1-2] Sockets=4 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=1 Features=b,a\n"
        },
        [],
    ),
    "a node with other cores": (
        {"slurm.conf": HEAD + "NodeName=n1 CPUs=4\n"},
        {"slurm.conf": HEAD + "NodeName=n1 Sockets=2 CoresPerSocket=2 ThreadsPerCore=1\n"},
        ["Sockets", "CoresPerSocket", "ThreadsPerCore", "CPUs"],
    ),
    "GPUs in one line, and in one for each": (
        {
            "slurm.conf": HEAD + "NodeName=n1 CPUs=4 Gres=gpu:a:1,gpu:a:1\n",
            "gres.conf": "Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=a File=/dev/nvidia1\n",
        },
        {
            "slurm.conf": HEAD + "NodeName=n1 CPUs=4 Gres=gpu:a:2\n",
            "gres.conf": "NodeName=n1 Name=gpu Type=a File=/dev/nvidia[0-1]\n",
        },
        [],
    ),
    "one GPU less": (
        {"slurm.conf": HEAD + "NodeName=n1 CPUs=4 Gres=gpu:2\n", "gres.conf": "Name=gpu File=/dev/nvidia[0-1]\n"},
        {"slurm.conf": HEAD + "NodeName=n1 CPUs=4 Gres=gpu:1\n", "gres.conf": "Name=gpu File=/dev/nvidia0\n"},
        ["Gres", "Name"],
    ),
    "the nodes of a partition, and a node set": (
        {
            "slurm.conf": HEAD
            + "NodeName=n[1-3] CPUs=1 Feature=f\nNodeSet=s Feature=f\nPartitionName=p Nodes=n1,n2,n3 Default=yes\n"
            "PartitionName=q Nodes=s\n"
        },
        {
            "slurm.conf": HEAD
            + "NodeName=n[1-3] CPUs=1 Feature=f\nNodeSet=s Feature=f\nPartitionName=p Nodes=n[1-3] Default=YES\n"
            "PartitionName=q Nodes=n[1-3] MaxTime=UNLIMITED\n"
        },
        [],
    ),
    "a partition that is new, and one with fewer nodes": (
        {"slurm.conf": HEAD + "NodeName=n[1-3] CPUs=1\nPartitionName=p Nodes=n[1-3]\n"},
        {"slurm.conf": HEAD + "NodeName=n[1-3] CPUs=1\nPartitionName=p Nodes=n1\nPartitionName=q Nodes=n1\n"},
        ["Nodes", "PartitionName"],
    ),
}


@pytest.mark.parametrize(("before", "after", "keys"), CASES.values(), ids=CASES)
def test_changes_that_keep_the_meaning_are_none(before: dict[str, str], after: dict[str, str], keys: list[str]) -> None:
    old, new = read(before), read(after)
    assert sorted(change.key for change in differing(changes(old, new), old, new, "24.11")) == sorted(keys)
