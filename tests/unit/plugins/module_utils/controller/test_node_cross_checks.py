# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule about nodes and partitions, with the messages of real daemons that refuse the same files."""

from __future__ import annotations

import pytest
from cross_check_verdicts import NODES, PARTITION, ignored, refused, right, verdict


def test_nodes_and_partitions_that_go_together() -> None:
    sets = "NodeSet=fast Nodes=n1\nNodeSet=big Feature=big\n"
    assert right(NODES + sets + "PartitionName=p Nodes=fast,n2 Default=YES\nPartitionName=q Nodes=big Alternate=p\n")
    assert right(
        NODES + 'NodeSet=all Nodes=ALL\nPartitionName=p Nodes=all\nPartitionName=q\nPartitionName=r Nodes=""\n'
    )
    assert right(NODES)
    by_feature = "NodeName=n[1-2] NodeAddr=10.0.0.[1-2] Feature=a,big\nNodeSet=big Feature=big\n"
    functions = by_feature + "PartitionName=p Nodes=big,feature{a}\nPartitionName=q Nodes=switch{s1,s2},n1\n"
    assert right(functions)
    assert verdict(functions, version="24.05.8")[0][0] == (
        "slurm.conf: PartitionName=p: Nodes: found 'feature{a}', allowed: nodes and nodesets; "
        "Slurm 24.05 has no functions, 24.11 and later do"
    )


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        # fatal: Invalid node names in partition p
        (
            "PartitionName=p Nodes=n[2-4]",
            "PartitionName=p: Nodes: found 'n[3-4]', allowed: nodes of slurm.conf",
        ),
        ("PartitionName=p Nodes=ALL,n1", "PartitionName=p: Nodes: found 'ALL', allowed: nodes of slurm.conf"),
        (
            "PartitionName=p Nodes=N1",
            "PartitionName=p: Nodes: found 'N1', allowed: nodes of slurm.conf, did you mean 'n1'?",
        ),
        (
            "NodeSet=fast Nodes=n1\nPartitionName=p Nodes=fats",
            "PartitionName=p: Nodes: found 'fats', allowed: nodes and nodesets of slurm.conf, did you mean 'fast'?",
        ),
        (
            "NodeSet=s Nodes=n1,m9\nPartitionName=p Nodes=s",
            "PartitionName=p: Nodes: found 'm9', allowed: nodes and nodesets of slurm.conf",
        ),
        # A nodeset that is in another one, but before it.
        (
            "NodeSet=inner Nodes=n1\nNodeSet=outer Nodes=inner\nPartitionName=p Nodes=outer",
            "PartitionName=p: Nodes: found 'inner', allowed: nodes and nodesets of slurm.conf",
        ),
        # fatal: Duplicated NodeName n2 in the config file
        ("NodeName=n2 NodeAddr=10.0.0.9", "NodeName: found 'n2' more than once, allowed: one line for each"),
        # fatal: duplicate entry for partition p
        (PARTITION * 2, "PartitionName: found 'p' more than once, allowed: one line for each"),
    ],
)
def test_nodes_and_partitions_that_slurmctld_refuses(lines: str, what: str) -> None:
    assert refused(f"{NODES}{lines}\n").removeprefix("slurm.conf: ") == what


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (
            "PartitionName=p Default=YES\nPartitionName=q Default=YES",
            "PartitionName=p: Default: found on p, q, allowed: one; Slurm takes the last, 'q'",
        ),
        (
            "PartitionName=main\nPartitionName=q Alternate=mian",
            "PartitionName=q: Alternate: found 'mian', allowed: main, q, did you mean 'main'?",
        ),
        ("DownNodes=n[2-3] State=DOWN", "DownNodes: found 'n3', allowed: nodes of slurm.conf"),
    ],
)
def test_nodes_and_partitions_that_slurmctld_ignores(lines: str, what: str) -> None:
    assert ignored(f"{NODES}{lines}\n").removeprefix("slurm.conf: ") == what


def test_nodes_of_the_topology_that_do_not_exist() -> None:
    # error: WARNING: Invalid hostnames in switch configuration: n9
    topology = "SwitchName=s1 Nodes=n1,n9\nSwitchName=s2 Nodes=n2\nSwitchName=top Switches=s[1-2]\n"
    found = verdict("NodeName=n[1-2] NodeAddr=10.0.0.[1-2]\n", topology_conf=topology)
    assert found == ([], ["topology.conf: SwitchName=s1: Nodes: found 'n9', allowed: nodes of slurm.conf"])


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        ("MaxTime=0", "MaxTime: found '0', allowed: a time, or UNLIMITED"),
        ("MaxTime=00:00:00", "MaxTime: found '00:00:00', allowed: a time, or UNLIMITED"),
        ("MaxNodes=0", "MaxNodes: found '0', allowed: 1 or more, or UNLIMITED"),
        ("MaxCPUsPerNode=0", "MaxCPUsPerNode: found '0', allowed: 1 or more, or UNLIMITED"),
        ("MaxCPUsPerSocket=0", "MaxCPUsPerSocket: found '0', allowed: 1 or more, or UNLIMITED"),
    ],
)
def test_limits_of_a_partition_that_allow_no_job(setting: str, what: str) -> None:
    for lines in (
        f"{NODES}PartitionName=p Nodes=ALL {setting}\n",
        f"{NODES}PartitionName=DEFAULT {setting}\nPartitionName=p Nodes=ALL\n",
    ):
        assert refused(lines) == (
            f"slurm.conf: PartitionName=p: {what}; no job could start, for which there is State=DOWN"
        )


@pytest.mark.parametrize("setting", ["MaxTime=0:30", "MaxTime=UNLIMITED", "MaxTime=-1", "MaxNodes=1", "DefaultTime=0"])
def test_limits_of_a_partition_that_allow_jobs(setting: str) -> None:
    assert right(f"{NODES}PartitionName=p Nodes=ALL {setting}\n")
