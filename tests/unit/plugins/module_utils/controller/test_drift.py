# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparison with recorded output of slurmctld of three releases, with `data/drift.conf` and a slurmd for c1."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.conf_file import changes, read
from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.drift import differences, in_force

DATA = Path(__file__).parent / "data"
CONF = (DATA / "drift.conf").read_text()
RELEASES = ("22.05", "24.11", "26.05")


def shown(release: str) -> list[str]:
    """The configuration, the nodes and the partitions."""
    return re.split(r"^--- \w+\n", (DATA / f"drift-{release}.txt").read_text(), flags=re.M)


def compared(conf: str, release: str = "24.11", shows: tuple[str, str] = ("", "")) -> list[str]:
    """The differences, after a change of what is shown."""
    config, nodes, partitions = (text.replace(*shows) if shows[0] else text for text in shown(release))
    return differences(read({"slurm.conf": conf}), config, nodes, partitions, release)


@pytest.mark.parametrize("release", RELEASES)
def test_what_slurm_has_read_is_no_difference(release: str) -> None:
    assert compared(CONF, release) == []


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("line", "instead", "difference"),
    [
        ("KillWait=0x1e", "KillWait=60", "slurm.conf KillWait: the file has 60, slurmctld 30 sec"),
        ("SuspendTime=-1", "SuspendTime=300", "slurm.conf SuspendTime: the file has 300, slurmctld INFINITE"),
        (
            "PriorityMaxAge=14-0",
            "PriorityMaxAge=1-0",
            "slurm.conf PriorityMaxAge: the file has 1-0, slurmctld 14-00:00:00",
        ),
        ("DebugFlags=net,gres", "DebugFlags=net", "slurm.conf DebugFlags: the file has net, slurmctld Gres,Network"),
        ("SlurmctldDebug=3", "SlurmctldDebug=debug", "slurm.conf SlurmctldDebug: the file has debug, slurmctld info"),
        (
            "HalfLife=UNLIMITED",
            "HalfLife=0",
            "slurm.conf PriorityDecayHalfLife: the file has 0, slurmctld 49710-06:27:16",
        ),
        ("DefMemPerCPU=10 ", "DefMemPerCPU=0 ", "PartitionName=few DefMemPerCPU: the file has 0, slurmctld 10"),
        ("Prolog=/bin/true", "Prolog=/bin/false", "slurm.conf Prolog: the file has /bin/false, slurmctld /bin/true"),
        ("=DEFAULT CPUs=4", "=DEFAULT CPUs=2", "NodeName=c[1-4] CPUs: the file has 2, slurmctld 4"),
        (" RealMemory=1000", "", "NodeName=c[1-2] RealMemory: the file has 1, slurmctld 1000"),
        ("Feature=b,a", "Feature=b", "NodeName=c[1-2] Features: the file has b, slurmctld b,a"),
        ("Gres=gpu:t4:2", "Gres=gpu:t4:1", "NodeName=c1 Gres: the file has gpu:t4:1, slurmctld gpu:t4:2(S:0-1)"),
        ("Gres=gpu:t4:2", "Gres=gpu:v100:2", "NodeName=c2 Gres: the file has gpu:v100:2, slurmctld gpu:t4:2"),
        ("Weight=0x10", "Weight=5", "NodeName=c[1-2] Weight: the file has 5, slurmctld 16"),
        ("MemSpecLimit=100", "MemSpecLimit=0", "NodeName=c[1-2] MemSpecLimit: the file has 0, slurmctld 100"),
        ("Port=[7001-7002]", "Port=[7001,7003]", "NodeName=c2 Port: the file has 7003, slurmctld 7002"),
        ("SlurmdPort=6818", "SlurmdPort=6819", "slurm.conf SlurmdPort: the file has 6819, slurmctld 6818"),
        ("127.0.0.[4-5]", "127.0.0.[4,6]", "NodeName=c4 NodeAddr: the file has 127.0.0.6, slurmctld 127.0.0.5"),
        ("MaxTime=2-0", "MaxTime=3-0", "PartitionName=all MaxTime: the file has 3-0, slurmctld 2-00:00:00"),
        ("MaxTime=2-0 ", "", "PartitionName=few MaxTime: the file has UNLIMITED, slurmctld 2-00:00:00"),
        ("DenyAccounts=lab", "", "PartitionName=all DenyAccounts: the file has nothing, slurmctld lab"),
        ("Nodes=fast,c4", "Nodes=fast,c3", "PartitionName=fast Nodes: only the file has c3"),
        ("Hidden=YES ", "", "PartitionName=fast Hidden: the file has NO, slurmctld YES"),
        (
            "DefMemPerNode=500",
            "DefMemPerCPU=500",
            "PartitionName=fast DefMemPerCPU: the file has 500, slurmctld DefMemPerNode=500",
        ),
        (" Default=YES", "", "PartitionName=all Default: the file has NO, slurmctld YES"),
        ("PartitionName=few ", "PartitionName=many ", "PartitionName=many: slurmctld does not have it"),
        ("NodeName=c[3-4]", "NodeName=d[3-4]", "NodeName=d[3-4]: slurmctld does not have it"),
        ("NodeName=c[3-4]", "NodeName=d[3-4]", "NodeName=c[3-4]: the file does not have it, slurmctld has"),
    ],
)
def test_another_value_is_a_difference(line: str, instead: str, difference: str, release: str) -> None:
    assert line in CONF
    assert difference in compared(CONF.replace(line, instead), release)


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("SlurmctldHost=head(127.0.0.1)", "SlurmctldHost=localhost(127.0.0.1)"),
        ("KillWait=0x1e", "KillWait=036"),
        ("SlurmUser=root", "SlurmUser=0"),
        ("MaxJobCount=10k", "MaxJobCount=10240"),
        ("PriorityMaxAge=14-0", "PriorityMaxAge=20160"),
        ("DebugFlags=net,gres", "DebugFlags=Gres,NETWORK"),
        ("PrologFlags=contain,serial", "PrologFlags=Alloc,Contain,Serial"),
        ("TaskPlugin=affinity", "TaskPlugin=task/affinity"),
        ("Feature=b,a", "Features=a,b"),
        ("Gres=gpu:t4:2", "Gres=gpu:t4:1,gpu:t4:1"),
        ("Gres=gpu:t4:2", "Gres=gpu:2"),
        ("CPUs=4 Sockets=2 CoresPerSocket=2", "Procs=4 Boards=1 Sockets=2 CoresPerSocket=2"),
        ("Nodes=fast,c4", "Nodes=c[1-2],c4"),
        ("MaxTime=90", "MaxTime=1:30:00"),
        ("State=DOWN", "State=UP"),
        ("ThreadsPerCore=1", "ThreadsPerCore=0"),
        ("MaxJobCount=10k", "MaxJobCount=10k\nMinJobAge=1\nSchedulerTimeSlice=4"),
        ("Weight=0x10", "Weight=0x10 BcastAddr=10.0.0.[1-2]"),
        ("NodeSet=fast Nodes=c[1-2]", "NodeSet=fast Feature=b"),
        ("OverSubscribe=FORCE", "Shared=FORCE:4"),
    ],
)
def test_the_same_setting_written_otherwise_is_no_difference(line: str, same: str) -> None:
    assert line in CONF
    assert compared(CONF.replace(line, same)) == []


NODE = "NodeName=c4 "


@pytest.mark.parametrize(
    ("file", "shows"),
    [
        (("", ""), ("State=UNKNOWN", "State=DOWN+DRAIN")),
        (("", ""), ("State=UP", "State=DRAIN")),
        (("", ""), (NODE, f"NodeName=x1 State=IDLE+DYNAMIC_NORM \n{NODE}")),
        (("c[3-4]", "c[3-4] State=CLOUD"), ("127.0.0.5", "10.0.0.5")),
        (
            ("GresTypes=gpu", "GresTypes=gpu\nNodeFeaturesPlugins=helpers"),
            ("AvailableFeatures=b,a", "AvailableFeatures=b"),
        ),
        (("=KeepPartState", "=KeepPartInfo"), ("MaxTime=01:30:00", "MaxTime=02:00:00")),
        (("GresTypes=gpu", "GresTypes=gpu\nInclude more.conf"), (NODE, f"NodeName=c5 State=IDLE \n{NODE}")),
    ],
)
def test_what_changes_by_itself_is_no_difference(file: tuple[str, str], shows: tuple[str, str]) -> None:
    assert file[0] in CONF
    assert any(shows[0] in text for text in shown("24.11"))
    found = compared(CONF.replace(*file) if file[0] else CONF, shows=shows)
    assert [line for line in found if not line.startswith("slurm.conf")] == []


def test_a_key_in_free_text_is_none() -> None:
    assert compared(CONF, shows=("AveWatts=0", "AveWatts=0 Reason=see Weight=1 Gres=none")) == []


def test_a_version_before_the_first_one_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"21\.08"):
        differences(read({}), "", "", "", "21.08")


def test_ten_thousand_nodes() -> None:
    config, nodes, _partitions = shown("24.11")
    line = next(line for line in nodes.splitlines() if line.startswith("NodeName=c2 "))
    line = re.sub(r"\bPort=\d+", "", line).replace("=c2 ", "=NAME ").replace("127.0.0.3", "NAME")
    many = "\n".join(line.replace("NAME", f"n{number:05}") for number in range(10000))
    file = re.sub(r"(?m)^(NodeName=[cf]|PartitionName).*\n", "", CONF)
    file += "NodeName=n[00000-09999] RealMemory=1000 Gres=gpu:t4:2 Feature=a,b Weight=16 MemSpecLimit=100\n"
    configuration = read({"slurm.conf": file})
    start = time.process_time()
    assert differences(configuration, config, many, "", "24.11.5") == []
    assert time.process_time() - start < 5
    assert differences(configuration, config, many.replace("Weight=16", "Weight=1"), "", "24.11.5") == [
        "NodeName=n[00000-09999] Weight: the file has 16, slurmctld 1"
    ]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("right", "edited"),
    [
        ("KillWait=0x1e", "KillWait=60"),
        ("SlurmdPort=6818", "SlurmdPort=6819"),
        ("=DEFAULT CPUs=4", "=DEFAULT CPUs=2"),
        ("Gres=gpu:t4:2", "Gres=gpu:t4:1"),
        ("MaxTime=2-0", "MaxTime=3-0"),
        ("KillWait=0x1e", ""),
        ("NodeName=c[3-4]", "NodeName=d[3-4]"),
        ("PartitionName=few ", "PartitionName=many "),
    ],
)
def test_an_edit_that_slurmctld_has_not_loaded_is_no_change_of_it(release: str, right: str, edited: str) -> None:
    good, by_hand = read({"slurm.conf": CONF}), read({"slurm.conf": CONF.replace(right, edited)})
    repair, edit = changes(by_hand, good), changes(good, by_hand)
    assert repair
    assert edit
    config, nodes, partitions = shown(release)
    nodes_of_partitions = {change for change in repair if change.key == "Nodes"}  # other nodes have other names
    assert in_force(repair, config, nodes, partitions, release) >= {*repair} - nodes_of_partitions
    assert not in_force(edit, config, nodes, partitions, release)


def test_what_slurmctld_does_not_show_is_not_known() -> None:
    old = {"slurm.conf": "JobCompPass=a\nKillWait=30\n", "cgroup.conf": "CgroupPlugin=cgroup/v1\n"}
    new = {"slurm.conf": "JobCompPass=b\nKillWait=30\n", "cgroup.conf": "CgroupPlugin=cgroup/v2\n"}
    config, nodes, partitions = shown("24.11")
    found = changes(read(old), read(new))
    assert len(found) == 2
    assert in_force(found, config, nodes, partitions, "24.11") == set()


def test_an_old_name_is_compared_with_the_new_one() -> None:
    """`read_slurm_conf` takes SbcastParameters where BcastParameters is not given, and shows it under the new name."""
    shown = "BcastParameters         = send_libs\n"

    def found(text: str) -> list[str]:
        return differences(read({"slurm.conf": text}), shown, "", "", "24.11.5")

    assert found("SbcastParameters=send_libs\n") == []
    assert found("SbcastParameters=none\nBcastParameters=send_libs\n") == []
    assert found("SbcastParameters=Compression=lz4\n") == [
        "slurm.conf SbcastParameters: the file has Compression=lz4, slurmctld send_libs"
    ]


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("24.11.5", False),
        ("25.11.0", False),
        ("25.11", False),
        ("25.11.1", True),
        ("25.11.12-1", True),
        ("26.05.3", True),
    ],
)
def test_which_factors_are_not_normalized_is_known_since_a_patch_release(version: str, known: bool) -> None:
    """`priority_flags_string` shows NO_NORMAL_ALL for one of them up to 25.11.0, and only for all since 25.11.1."""
    shown = "PriorityFlags           = NO_NORMAL_ALL\n"
    found = differences(read({"slurm.conf": "PriorityFlags=NO_NORMAL_TRES\n"}), shown, "", "", version)
    assert bool(found) == known


@pytest.mark.parametrize(
    ("file", "shown", "version", "known"),
    [
        # `select_type_param_string` shows these words since 24.05.4.
        ("SelectTypeParameters=CR_Core,LL_SHARED_GRES", "SelectTypeParameters=CR_CORE", "23.11.4", False),
        ("SelectTypeParameters=CR_Core,LL_SHARED_GRES", "SelectTypeParameters=CR_CORE", "24.05.3", False),
        ("SelectTypeParameters=CR_Core,LL_SHARED_GRES", "SelectTypeParameters=CR_CORE", "24.05.4", True),
        ("SelectTypeParameters=CR_Core,LL_SHARED_GRES", "SelectTypeParameters=CR_CORE", "24.05.10", True),
        # `_validate_and_set_defaults` finds the word iso8601 in iso8601_ms up to 23.11.4.
        ("LogTimeFormat=iso8601_ms", "LogTimeFormat=iso8601", "23.02.8", True),
        ("LogTimeFormat=iso8601_ms", "LogTimeFormat=iso8601", "23.11.4", False),
        ("LogTimeFormat=format_stderr", "LogTimeFormat=iso8601_ms,format_stderr", "23.11.4", False),
        ("LogTimeFormat=iso8601_ms", "LogTimeFormat=iso8601", "23.11.5", True),
    ],
)
def test_words_that_patch_releases_show(file: str, shown: str, version: str, known: bool) -> None:
    found = differences(read({"slurm.conf": f"{file}\n"}), shown.replace("=", " = ") + "\n", "", "", version)
    assert bool(found) == known


@pytest.mark.parametrize(("version", "known"), [("23.11.4", True), ("24.05.8", True), ("24.11.0", False)])
def test_gang_is_removed_from_a_partition_since_a_release(version: str, known: bool) -> None:
    """`_parse_partitionname` ignores GANG since 24.11."""
    shown = "PartitionName=p PreemptMode=OFF\n"
    found = differences(read({"slurm.conf": "PartitionName=p PreemptMode=GANG\n"}), "", "", shown, version)
    assert bool(found) == known


def test_members_that_slurmctld_finds_are_not_compared() -> None:
    """It knows the topology, and nodes get and lose features."""
    nodes = "NodeName=n1 State=IDLE\nNodeName=n2 State=IDLE\n"

    def found(partition: str) -> list[str]:
        text = (
            f"NodeName=n[1-2]\nNodeSet=big Feature=big\nNodeSet=two Nodes=n[1-2]\nPartitionName=p Nodes={partition}\n"
        )
        return differences(read({"slurm.conf": text}), "", nodes, "PartitionName=p Nodes=n1 State=UP\n", "24.11.5")

    assert found("switch{s1}") == found("big") == found("n1,feature{big}") == []
    assert found("two") == found("All") == ["PartitionName=p Nodes: only the file has n2"]


def test_the_name_of_the_cluster_is_shown_in_small_letters() -> None:
    says = read({"slurm.conf": "ClusterName=Lab-One\n"})
    assert differences(says, "ClusterName = lab-one\n", "", "", "24.11.5") == []
    other = differences(says, "ClusterName = lab-two\n", "", "", "24.11.5")
    assert other == ["slurm.conf ClusterName: the file has Lab-One, slurmctld lab-two"]
