# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A removal of nodes brings nothing else into force: slurm_config compares the whole cluster file with the files."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import read
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.daemons import ConfigError
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_config

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


def without_n2(text: str) -> str:
    """A file as remove_nodes writes it."""
    return text.replace("n[1-3]", "n[1,3]").replace("n[2-3]", "n3").replace("n[1-2]", "n1")


WITHOUT_N2, TREE_WITHOUT_N2 = without_n2(CONF), without_n2(TREE)


def files(conf: str, gres: str = GRES, tree: str = TREE, **others: str) -> dict[str, str]:
    """Slurm's files."""
    more = {name.replace("_conf", ".conf"): text for name, text in others.items()}
    return {"slurm.conf": conf, "gres.conf": gres, "topology.conf": tree, **more}


PRESENT = files(CONF)


def beyond(whole: dict[str, str], present: dict[str, str] | None = None, edited: dict[str, str] | None = None) -> str:
    """What a removal of n2 is refused for, by the files of the whole cluster file; without the columns' blanks."""
    wanted = {name: without_n2(text) for name, text in whole.items()}
    old = read(PRESENT if present is None else present)
    found = slurm_config.Present("/etc/slurm", {}, [], old, None if edited is None else read(edited), False, [])
    plan = slurm_config.Plan(slurm_config.Wanted(wanted, {}), found, [], read(wanted), "24.11.5", "", [])
    try:
        slurm_config.check_removal(plan, read(whole), ["n2"])
    except ConfigError as error:
        return "\n".join(" ".join(line.split()) for line in str(error).split("\n")[1:])
    return ""


@pytest.mark.parametrize(
    ("present", "edited"),
    [
        (PRESENT, None),
        # Other order and comments.
        (files(f"# a comment\n{CONF}"), None),
        # The run before was killed while it wrote its files, and after the change.
        (PRESENT, files(WITHOUT_N2, tree=TREE_WITHOUT_N2)),
        (files(WITHOUT_N2, tree=TREE_WITHOUT_N2), None),
    ],
)
def test_a_cluster_file_that_is_in_force_can_lose_nodes(present: dict[str, str], edited: dict[str, str] | None) -> None:
    assert beyond(PRESENT, present, edited) == ""


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("KillWait=30", "KillWait=60", "slurm.conf KillWait 30 -> 60"),
        ("KillWait=30", "KillWait=30\nJobSubmitPlugins=lua", "slurm.conf JobSubmitPlugins (none) -> lua"),
        ("KillWait=30\n", "", "slurm.conf KillWait 30 -> (none)"),
        ("MaxTime=60", "MaxTime=10", "PartitionName=p MaxTime"),
        ("MaxTime=60", "MaxTime=60 AllowAccounts=x", "PartitionName=p AllowAccounts"),
        ("Nodes=n[1-2],g1", "Nodes=n[1-3],g1", "PartitionName=p Nodes"),
        ("Nodes=n[1-2],g1", "Nodes=g1", "PartitionName=p Nodes"),
        ("Default=YES\n", "Default=YES\nPartitionName=new Nodes=ALL\n", "PartitionName=new"),
        ("PartitionName=p Nodes=n[1-2],g1 MaxTime=60\n", "", "PartitionName=p"),
        ("RealMemory=1000 Weight=1", "RealMemory=1000 Weight=9", "NodeName=n[1-3] Weight"),
        ("NodeName=n[1-3]", "NodeName=n[1-2]", "NodeName=n3"),
        ("NodeName=n[1-3]", "NodeName=n[1-4]", "NodeName=n4"),
        ("NodeSet=fast Nodes=n[2-3]", "NodeSet=fast Nodes=n1", "slurm.conf NodeSet=fast"),
        ("SuspendExcNodes=n[1-2]\n", "SuspendExcNodes=n3\n", "slurm.conf SuspendExcNodes"),
        ("gres/gpu,gres/gpu:h100", "gres/gpu,gres/gpu:a100", "slurm.conf AccountingStorageTRES"),
    ],
)
def test_what_else_slurm_conf_has_is_named(before: str, after: str, what: str) -> None:
    assert before in CONF
    found = beyond(files(CONF.replace(before, after)))
    assert found.startswith(what)
    assert "\n" not in found


@pytest.mark.parametrize(
    ("whole", "what"),
    [
        (files(CONF, gres=GRES.replace("nvidia0", "nvidia1")), "gres.conf n1"),
        (files(CONF, tree=TREE.replace("s2", "s9")), "topology.conf"),
        (files(CONF, cgroup_conf="ConstrainCores=no\n"), "cgroup.conf"),
        (files(CONF) | {"job_submit.lua": "return 0\n"}, "job_submit.lua"),
        ({name: text for name, text in files(CONF).items() if name != "topology.conf"}, "topology.conf"),
    ],
)
def test_what_other_files_have_is_named(whole: dict[str, str], what: str) -> None:
    assert beyond(whole).startswith(what)


def test_what_a_killed_run_has_left_is_named_with_the_nodes_gone() -> None:
    gone = files(WITHOUT_N2, tree=TREE_WITHOUT_N2)
    assert beyond(files(CONF.replace("KillWait=30", "KillWait=60")), gone).startswith("slurm.conf KillWait 30 -> 60")


def test_an_edit_by_hand_is_named() -> None:
    assert beyond(PRESENT, edited=files(CONF.replace("KillWait=30", "KillWait=5"))).startswith("slurm.conf KillWait")


def test_nodes_that_stay_after_a_refused_change_are_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "gpucluster.slurm remove_nodes: leaves the cluster"
    nodes = [
        {"NodeName": "n1", "State": "IDLE+DRAIN", "Reason": ours},
        {"NodeName": "n2", "State": "IDLE+DRAIN", "Reason": "broken fan"},
        {"NodeName": "n3", "State": "IDLE+DRAIN", "Reason": ours},
    ]
    commands: list[list[str]] = []
    monkeypatch.setattr(slurm_config, "show", lambda _what: [{"Partitions": "all", **node} for node in nodes])
    monkeypatch.setattr(slurm_config, "run", commands.append)
    assert slurm_config.resume_leaving(["n1", "n2", "n9"]) == "\nResumed: n1"
    assert [command[2:4] for command in commands] == [["NodeName=n1", "State=RESUME"]]
    assert slurm_config.resume_leaving([]) == ""
