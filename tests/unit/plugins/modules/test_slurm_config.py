# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurm_config decides; what it does to a cluster is shown in tests/integration."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.change_plan import steps
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import Change
from ansible_collections.gpucluster.slurm.plugins.module_utils.trial import trial_conf
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_config

CONF = """
ClusterName=demo
StateSaveLocation=/var/spool/slurmctld  KillWait=30
SuspendProgram=/sbin/off
SlurmctldPrimaryOnProg=/sbin/move-the-address
AccountingStorageType=accounting_storage/slurmdbd
NodeName=n[1-2] NodeAddr=10.0.0.[1-2] Port=6818 RealMemory=1000 Reason="a b"
PartitionName=p Nodes=ALL
"""


def test_the_second_slurmctld_reaches_nothing_and_runs_nothing() -> None:
    found = trial_conf(CONF, "/run/x").splitlines()
    assert found[:2] == ["StateSaveLocation=/run/x/state", "SlurmctldPidFile=/run/x/pid"]
    assert [line for line in found[4:] if line] == [
        "ClusterName=demo",
        "KillWait=30",
        'NodeName=n[1-2] RealMemory=1000 Reason="a b" NodeAddr=127.0.0.1 Port=1',
        "PartitionName=p Nodes=ALL",
    ]


def test_every_problem_is_told() -> None:
    files = {
        "slurm.conf": "KilWait=1\nMinJobAge=x\nNodeName=n1 RealMemry=1\n",
        "gres.conf": "NodeName=n1 Name=gpu File=/dev/a\nNodeName=n1 Name=gpu File=/dev/b\n",
        "own.conf": "anything\n",
    }
    refused, ignored = slurm_config.judge(files, "24.11.5")
    assert [problem.partition(" unknown")[0].partition(" found")[0] for problem in refused] == [
        "slurm.conf: KilWait:",
        "slurm.conf: MinJobAge:",
        "slurm.conf: NodeName=n1: RealMemry:",
    ]
    assert ignored == []


@pytest.mark.parametrize(
    ("key", "answers", "active", "action"),
    [
        ("KillWait", True, True, "reconfigure"),
        ("SlurmctldPort", True, True, "restart"),
        ("KillWait", False, True, "restart"),
        ("KillWait", False, False, "start"),
    ],
)
def test_what_slurmctld_needs(key: str, answers: bool, active: bool, action: str) -> None:
    plan = steps([Change("slurm.conf", "", key, "1", "2")], [], "24.11.5")
    assert slurm_config.action_for(plan, answers, active) == action


@pytest.mark.parametrize(
    ("state", "lost"),
    [("idle", False), ("drained", False), ("mixed", False), ("down", True), ("idle*", True), ("inval", True)],
)
def test_nodes_that_cannot_have_jobs(state: str, lost: bool) -> None:
    assert bool(slurm_config.LOST.match(state)) == lost
