# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurm_config decides; what it does to a cluster is shown in tests/integration."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.change_plan import steps
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import Change
from ansible_collections.gpucluster.slurm.plugins.module_utils.daemons import (
    DAEMONS,
    ConfigError,
    Daemon,
    Slurmctld,
    those_up,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.trial import trial_conf
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_config

CONF = """
ClusterName=demo
StateSaveLocation=/var/spool/slurmctld  KillWait=30
SuspendProgram=/sbin/off
SlurmctldPrimaryOnProg=/sbin/move-the-address
AccountingStorageType=accounting_storage/slurmdbd
NodeName=n[1-2] NodeAddr=10.0.0.[1-2] Port=6818 RealMemory=1000 Reason="a b"
PartitionName=p Nodes=ALL QOS=high AllowQos=high,normal
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
        "slurmdbd.conf": "DbdHost=head\nInclude /etc/slurm/storage.conf\n",
    }
    refused, ignored = slurm_config.judge(files, "24.11.5")
    assert [problem.partition(" unknown")[0].partition(" found")[0] for problem in refused] == [
        "slurm.conf: KilWait:",
        "slurm.conf: MinJobAge:",
        "slurm.conf: NodeName=n1: RealMemry:",
    ]
    assert ignored == []


@pytest.mark.parametrize(
    ("included", "what"),
    [
        ("NodeName=n1 NodeAddr=10.0.0.1 RealMemry=1", "slurm.conf: NodeName=n1: RealMemry: unknown to Slurm"),
        (
            "NodeName=n1 NodeAddr=10.0.0.1",
            "slurm.conf: PartitionName=p: Nodes: found 'n2', allowed: nodes of slurm.conf",
        ),
    ],
)
def test_files_are_judged_with_what_they_include(tmp_path: Path, included: str, what: str) -> None:
    (tmp_path / "nodes.conf").write_text(f"{included}\n")
    files = {"slurm.conf": "Include nodes.conf\nPartitionName=p Nodes=n[1-2]\n"}
    params = {"directory": str(tmp_path), "files": files, "patience": 1}
    module: Any = SimpleNamespace(params=params, check_mode=True, get_bin_path=lambda _name: None)
    with pytest.raises(ConfigError) as error:  # Slurm itself is not asked where the files are wrong already
        slurm_config.validate(module, Slurmctld(module), "24.11")
    assert str(error.value).startswith(what)


class Answers:
    """What a daemon answers, for the functions that decide."""

    def __init__(self, name: str, answers: bool, active: bool) -> None:
        self.name, self.reconfigures = name, DAEMONS[name].reconfigures
        self.answers, self.active = (lambda: answers), (lambda: active)


@pytest.mark.parametrize(
    ("daemon", "key", "answers", "active", "action"),
    [
        ("slurmctld", "KillWait", True, True, "reconfigure"),
        ("slurmctld", "SlurmctldPort", True, True, "restart"),
        ("slurmctld", "KillWait", False, True, "restart"),
        ("slurmctld", "KillWait", False, False, "start"),
        ("slurmdbd", "DebugLevel", True, True, "restart"),
    ],
)
def test_what_a_daemon_needs(daemon: str, key: str, answers: bool, active: bool, action: str) -> None:
    file = DAEMONS[daemon].conf
    plan = steps([Change(file, "", key, "1", "2")], [], "24.11.5")
    assert slurm_config.action_for(cast(Daemon, Answers(daemon, answers, active)), plan) == action


@pytest.mark.parametrize(
    ("state", "reason", "up"),
    [
        ("idle", "none", True),
        ("drained", "a person", True),
        ("mixed", "none", True),
        ("down", "none", False),
        ("idle*", "none", False),
        ("inval", "Low RealMemory (reported:3661 < 100.00% of configured:3700)", False),
        ("drained", "Low RealMemory (reported:3661 < 100.00% of configured:3700)", False),
        ("drained", "gres/gpu count reported lower than configured (1 < 2)", False),
    ],
)
def test_nodes_that_can_have_jobs(state: str, reason: str, up: bool) -> None:
    assert those_up({"n1": (state, reason)}) == ({"n1"} if up else set())
