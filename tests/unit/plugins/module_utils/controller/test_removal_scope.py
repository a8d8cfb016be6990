# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A removal of nodes brings nothing else into force."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.removal_scope import beyond_removal

CONF = """\
ClusterName=demo
KillWait=30
GresTypes=gpu
AccountingStorageTRES=gres/gpu,gres/gpu:h100
SuspendExcNodes=n[1-2]
NodeName=n[1-3] RealMemory=1000 Weight=1
NodeName=g1 RealMemory=1000 Gres=gpu:h100:8
NodeSet=fast Nodes=n[2-3]
PartitionName=all Nodes=ALL Default=YES
PartitionName=p Nodes=n[1-2],g1 MaxTime=60
"""
GRES = "NodeName=g1 Name=gpu Type=h100 File=/dev/nvidia[0-7]\nNodeName=n1 Name=gpu File=/dev/nvidia0\n"
TREE = "SwitchName=s1 Nodes=n[1-3]\nSwitchName=s2 Nodes=g1\nSwitchName=top Switches=s[1-2]\n"
WITHOUT_N2 = (
    CONF.replace("NodeName=n[1-3]", "NodeName=n[1,3]")
    .replace("NodeSet=fast Nodes=n[2-3]", "NodeSet=fast Nodes=n3")
    .replace("Nodes=n[1-2],g1", "Nodes=n1,g1")
    .replace("SuspendExcNodes=n[1-2]", "SuspendExcNodes=n1")
)


def beyond(leaving: str, conf: str, gres: str = GRES, tree: str = TREE, **others: str) -> list[str]:
    """What a change from the files above would change besides the nodes."""
    old = {"slurm.conf": CONF, "gres.conf": GRES, "topology.conf": TREE}
    more = {name.replace("_", "."): text for name, text in others.items()}
    return beyond_removal(old, {"slurm.conf": conf, "gres.conf": gres, "topology.conf": tree, **more}, leaving.split())


@pytest.mark.parametrize(
    ("leaving", "conf", "gres", "tree"),
    [
        ("n2", WITHOUT_N2, GRES, TREE.replace("n[1-3]", "n[1,3]")),
        ("n2 n9", WITHOUT_N2, GRES, TREE.replace("n[1-3]", "n1,n3")),
        # The run before was killed after this change.
        ("n9", CONF, GRES, TREE),
        (
            "g1",
            CONF.replace("NodeName=g1 RealMemory=1000 Gres=gpu:h100:8\n", "").replace(",g1", ""),
            GRES.split("\n")[1] + "\n",
            TREE.replace("SwitchName=s2 Nodes=g1\n", "").replace("s[1-2]", "s1"),
        ),
        # What slurm.conf says of the GPUs goes with the last one.
        (
            "g1",
            CONF.replace("NodeName=g1 RealMemory=1000 Gres=gpu:h100:8\n", "")
            .replace(",g1", "")
            .replace("AccountingStorageTRES=gres/gpu,gres/gpu:h100", "AccountingStorageTRES=gres/gpu"),
            GRES.split("\n")[1] + "\n",
            TREE.replace("SwitchName=s2 Nodes=g1\n", "").replace("s[1-2]", "s1"),
        ),
    ],
)
def test_what_follows_from_the_removal_is_not_beyond_it(leaving: str, conf: str, gres: str, tree: str) -> None:
    assert beyond(leaving, conf, gres, tree) == []


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("KillWait=30", "KillWait=60", "slurm.conf KillWait"),
        ("KillWait=30", "KillWait=30\nJobSubmitPlugins=lua", "slurm.conf JobSubmitPlugins"),
        ("KillWait=30\n", "", "slurm.conf KillWait"),
        ("MaxTime=60", "MaxTime=10", "PartitionName=p MaxTime"),
        ("MaxTime=60", "MaxTime=60 AllowAccounts=x", "PartitionName=p AllowAccounts"),
        ("Nodes=n1,g1", "Nodes=n[1,3],g1", "PartitionName=p Nodes"),
        ("Nodes=n1,g1", "Nodes=g1", "PartitionName=p Nodes"),
        ("Default=YES\n", "Default=YES\nPartitionName=new Nodes=ALL\n", "PartitionName=new"),
        ("PartitionName=p Nodes=n1,g1 MaxTime=60\n", "", "PartitionName=p"),
        ("RealMemory=1000 Weight=1", "RealMemory=1000 Weight=9", "NodeName=n[1,3] Weight"),
        ("NodeName=n[1,3]", "NodeName=n1", "NodeName=n3"),
        ("NodeName=n[1,3]", "NodeName=n[1,3-4]", "NodeName=n4"),
        ("NodeSet=fast Nodes=n3", "NodeSet=fast Nodes=n1", "slurm.conf NodeSet=fast"),
        ("SuspendExcNodes=n1\n", "SuspendExcNodes=n3\n", "slurm.conf SuspendExcNodes"),
        ("gres/gpu,gres/gpu:h100", "gres/gpu,gres/gpu:a100", "slurm.conf AccountingStorageTRES"),
    ],
)
def test_what_else_slurm_conf_has_is_named(before: str, after: str, what: str) -> None:
    assert before in WITHOUT_N2
    found = beyond("n2", WITHOUT_N2.replace(before, after), tree=TREE.replace("n[1-3]", "n[1,3]"))
    assert len(found) == 1
    assert found[0].startswith(what)


def test_what_other_files_have_is_named() -> None:
    tree = TREE.replace("n[1-3]", "n[1,3]")
    assert beyond("n2", WITHOUT_N2, GRES.replace("nvidia0", "nvidia1"), tree)[0].startswith("gres.conf n1")
    assert beyond("n2", WITHOUT_N2, GRES, tree.replace("s2", "s9"))[0].startswith("topology.conf")
    assert beyond("n2", WITHOUT_N2, GRES, tree, cgroup_conf="ConstrainCores=no\n")[0].startswith("cgroup.conf")
    assert beyond("n2", WITHOUT_N2, GRES, tree, job_submit_lua="return 0\n")[0].startswith("job.submit.lua")


def test_a_node_that_was_added_to_another_partition_is_named_once() -> None:
    text = WITHOUT_N2.replace("Nodes=n1,g1", "Nodes=n[1,3],g1")
    assert beyond("n2", text, tree=TREE.replace("n[1-3]", "n[1,3]")) == [
        "PartitionName=p Nodes  n[1-2],g1 -> n[1,3],g1"
    ]
