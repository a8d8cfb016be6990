# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the files of a cluster to its cluster file, and the check that it means the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.meaning_check import compare
from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.translation import Adoption, adopt
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, ModelError, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.sources import SourceError

DEFAULTS = {
    "slurm.conf": ["EnforcePartLimits", "MailProg", "SelectTypeParameters", "SlurmdTimeout", "StateSaveLocation"],
    "cgroup.conf": ["ConstrainCores"],
}
LEAST = "ClusterName=c\nSlurmctldHost=head\nNodeName=n[1-2] RealMemory=100\nPartitionName=p Nodes=n[1-2]\n"
ALWAYS = "slurm.conf SlurmctldParameters: nothing -> enable_configless: the other hosts get their files from slurmctld"

SITE = {
    "slurm.conf": r"""
# An old cluster
ClusterName=Old  KillWait=0x1e
ControlMachine=head
ControlAddr=10.0.0.1
BackupController=spare
StateSaveLocation=/shared/state
MailProg=/bin/mail   # not the collection's
SlurmctldParameters=enable_configless,idle_on_node_suspend
SelectType=select/linear
GresTypes=gpu,nic
NodeSet=fast Feature=x
DownNodes=n2 State=DOWN Reason="a broken fan"
Prolog=/a\#b
Include %c-nodes.conf
PartitionName=DEFAULT MaxTime=3-0 ExclusiveUser=YES
PartitionName=a Nodes=fast,m1 Default=YES
PartitionName=DEFAULT MaxTime=2-0 AllowAccounts=x,y
PartitionName=b Nodes=ALL Default=YES Shared=NO Priority=5
""",
    "old-nodes.conf": """NodeName=DEFAULT CPUs=16 CoresPerSocket=4 RealMemory=1000 Feature=y
NodeName=n[1-2] ThreadsPerCore=2 Gres=gpu:h100:2,nic:no_consume:1 \\
  Features=x,z Weight=0x10 NodeAddr=10.1.0.[1-2]
NodeName=DEFAULT CPUs=8 ThreadsPerCore=2 Sockets=2
NodeName=m[1-2] State=UNKNOWN Port=[7001-7002]
NodeName=o1 Procs=3 Sockets=1 CoresPerSocket=1 MemSpecLimit=10
""",
    "gres.conf": """AutoDetect=off
NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia0 Cores=0-3
NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia1 Cores=0-3
NodeName=n2 Name=gpu Type=h100 File=/dev/nvidia[0-1]
""",
    "cgroup.conf": "ConstrainCores=no\nAllowedRAMSpace=95.5\n",
    "plugstack.conf": "include plugstack.d/*.conf\noptional /opt/b.so\n",
    "plugstack.d/a.conf": "required /opt/a.so x=1 y=2\n",
    "topology.conf": "SwitchName=s1 Nodes=n[1-2]\nInclude more.conf\n",
    "more.conf": "SwitchName=s2 Nodes=m[1-2],o1\n",
    "job_submit.lua": "-- ours\n",
}


def adopted(files: Mapping[str, str], version: str = "24.11.5") -> Adoption:
    """The result, whose cluster file has to be valid."""
    result = adopt(files, DEFAULTS, version)
    assert result.problems == []
    return result


def differences(files: Mapping[str, str], version: str = "24.11.5") -> list[str]:
    """The differences of the result, which all have reasons."""
    found = compare(files, adopted(files, version), DEFAULTS, version).differences
    assert [str(difference) for difference in found if not difference.reason] == []
    return [str(difference) for difference in found]


def comments(files: Mapping[str, str], version: str = "24.11.5") -> list[str]:
    """The comments on the result."""
    return [str(comment) for comment in adopted(files, version).comments]


def test_a_cluster_of_many_shapes() -> None:
    cluster = adopted(SITE).cluster
    assert {key: cluster[key] for key in ("name", "controllers", "addresses")} == {
        "name": "old",
        "controllers": "head,spare",
        "addresses": {"head": "10.0.0.1"},
    }
    shape = {"sockets": 2, "cores_per_socket": 4, "threads_per_core": 2, "real_memory": 1000}
    others = {"Gres": "nic:no_consume:1"}
    gpus = {"name": "gpu", "type": "h100"}
    assert cluster["hardware"] == {
        "2xh100-16c-1g": {
            **shape,
            "gres": [{**gpus, "cores": "0-3", "file": "/dev/nvidia[0-1]"}],
            **others,
        },
        "2xh100-16c-1g-2": {**shape, "gres": [{**gpus, "file": "/dev/nvidia[0-1]"}], **others},
        "16c-1g": {**shape, "cpus": 8},
        "2c-1g": {"sockets": 1, "cores_per_socket": 1, "threads_per_core": 2, "real_memory": 1000},
    }
    features = {"Features": "x,z", "Weight": "0x10"}
    assert cluster["nodes"] == [
        {"hosts": "n1", "hardware": "2xh100-16c-1g", "address": "10.1.0.1", **features},
        {"hosts": "n2", "hardware": "2xh100-16c-1g-2", "address": "10.1.0.2", **features},
        {"hosts": "m[1-2]", "hardware": "16c-1g", "Port": "[7001-7002]", "Feature": "y", "State": "UNKNOWN"},
        {"hosts": "o1", "hardware": "2c-1g", "Feature": "y", "MemSpecLimit": 10},
    ]
    assert cluster["partitions"] == [
        {"name": "a", "nodes": "fast,m1", "MaxTime": "3-0"},
        {
            "name": "b",
            "nodes": "ALL",
            "default": True,
            "MaxTime": "2-0",
            "AllowAccounts": "x,y",
            "Shared": "NO",
            "Priority": 5,
        },
    ]
    assert cluster["slurm_conf"] == {
        "KillWait": "0x1e",
        "StateSaveLocation": "/shared/state",
        "MailProg": "/bin/mail",
        "SlurmctldParameters": "enable_configless,idle_on_node_suspend",
        "SelectType": "select/linear",
        "NodeSet": {"NodeSet": "fast", "Feature": "x"},
        "DownNodes": {"DownNodes": "n2", "State": "DOWN", "Reason": "a broken fan"},
        "Prolog": "/a#b",
        # What the collection would set.
        "EnforcePartLimits": None,
        "SelectTypeParameters": None,
        "SlurmdTimeout": 300,
        "DefMemPerCPU": None,
    }
    assert cluster["cgroup_conf"] == {"ConstrainCores": "no", "AllowedRAMSpace": "95.5"}
    assert cluster["plugstack"] == [
        {"plugin": "/opt/a.so", "arguments": ["x=1", "y=2"], "required": True},
        {"plugin": "/opt/b.so"},
    ]
    assert cluster["slurm_files"] == {
        "topology.conf": "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=m[1-2],o1\n",
        "job_submit.lua": "-- ours\n",
    }


def test_it_means_the_same() -> None:
    """Also what Slurm itself corrects, which is said otherwise."""
    found = compare(SITE, adopted(SITE), DEFAULTS, "24.11.5")
    assert (found.parameters, found.nodes, found.partitions) == (19, 5, 2)
    assert found.differences == []
    assert comments(SITE) == [
        "old-nodes.conf:6: NodeName=o1 Procs: left out: Slurm uses CPUs",
        "old-nodes.conf:2: NodeName=n[1-2] Gres: kept: nic:no_consume:1 stays in Slurm's notation: the collection "
        "neither measures nor validates it",
        "old-nodes.conf:4: NodeName=o1 CPUs: changed: found 8, which fits no sockets, cores or threads: Slurm uses 2",
        "slurm.conf:17: PartitionName=a Default: left out: the last of several is the default, b",
    ]


def edited(**texts: tuple[str, str]) -> dict[str, str]:
    """The site's files with a replacement in some."""
    files = dict(SITE)
    for name, (before, after) in texts.items():
        file = {"slurm": "slurm.conf", "nodes": "old-nodes.conf", "gres": "gres.conf", "cgroup": "cgroup.conf"}[name]
        assert before in files[file]
        files[file] = files[file].replace(before, after)
    return files


@pytest.mark.parametrize(
    ("files", "difference"),
    [
        (edited(slurm=("KillWait=0x1e", "KillWait=31")), "slurm.conf KillWait: 31 -> 0x1e"),
        (edited(slurm=("KillWait=0x1e", "")), "slurm.conf KillWait: nothing -> 0x1e"),
        (edited(slurm=("MailProg=/bin/mail", "")), "slurm.conf MailProg: nothing -> /bin/mail"),
        (edited(slurm=("/shared/state", "/var/spool")), "slurm.conf StateSaveLocation: /var/spool -> /shared/state"),
        (edited(slurm=("10.0.0.1", "10.0.0.2")), "SlurmctldHost: head(10.0.0.2) spare -> head(10.0.0.1) spare"),
        (edited(slurm=("Include %c", "ClusterName=OLD2\nInclude old")), "ClusterName: OLD2 -> old"),
        (edited(slurm=("State=DOWN", "State=DRAIN")), "slurm.conf DownNodes=n2: State=DRAIN Reason=a broken fan -> "),
        (edited(slurm=("gpu,nic", "gpu,nic,mps")), "slurm.conf GresTypes: gpu,nic,mps -> gpu,nic"),
        (edited(nodes=("h100:2", "h100:1")), "NodeName=n1 Gres: "),
        (edited(nodes=("no_consume:1", "1")), "NodeName=n2 Gres: "),
        (edited(nodes=("Sockets=2", "Sockets=1 CoresPerSocket=8")), "NodeName=m[1-2] sockets: 1 -> 2"),
        (edited(nodes=("CPUs=8 Thr", "CPUs=16 Thr")), "NodeName=m[1-2] cpus: 16 -> 8"),
        (edited(nodes=("RealMemory=1000", "RealMemory=999")), "RealMemory: 999 -> 1000"),
        (edited(nodes=("Features=x,z", "Features=x")), "NodeName=n[1-2] Features: x -> x,z"),
        (edited(nodes=("Weight=0x10", "Weight=17")), "NodeName=n[1-2] Weight: 17 -> 0x10"),
        (edited(nodes=("NodeAddr=10.1.0.[1-2]", "")), "NodeName=n1 NodeAddr: n1 -> 10.1.0.1"),
        (edited(nodes=("[7001-7002]", "[7001,7003]")), "NodeName=m2 Port: 7003 -> 7002"),
        (edited(nodes=("State=UNKNOWN", "State=DRAIN")), "NodeName=m[1-2] State: DRAIN -> UNKNOWN"),
        (edited(nodes=("m[1-2] State", "m[1-3] NodeAddr=a[1-3] State")), "NodeName=m3 NodeName: m3 -> nothing"),
        (edited(gres=("/dev/nvidia1 Cores=0-3", "/dev/nvidia1 Cores=4-7")), "NodeName=n1 Gres: "),
        (edited(gres=("AutoDetect=off", "AutoDetect=nvml")), "NodeName=n2 Gres: "),
        (edited(slurm=("Nodes=fast,m1", "Nodes=n[1-2]")), "PartitionName=a Nodes: n[1-2] -> fast,m1"),
        (edited(slurm=("Nodes=ALL Default=YES", "Nodes=ALL")), "PartitionName=b Default: NO -> YES"),
        (edited(slurm=("MaxTime=2-0", "MaxTime=2-1")), "PartitionName=b MaxTime: 2-1 -> 2-0"),
        (edited(slurm=("Shared=NO", "Shared=EXCLUSIVE")), "PartitionName=b OverSubscribe: EXCLUSIVE -> NO"),
        (edited(slurm=("AllowAccounts=x,y", "")), "PartitionName=b AllowAccounts: "),
        (edited(cgroup=("95.5", "95")), "cgroup.conf AllowedRAMSpace: 95 -> 95.5"),
        ({**SITE, "plugstack.conf": "optional /opt/b.so\n"}, "plugstack.conf /opt/a.so: nothing -> required /opt/a.so"),
        (
            {**SITE, "plugstack.d/a.conf": "required /opt/a.so x=1\n"},
            "plugstack.conf /opt/a.so: required /opt/a.so x=1",
        ),
        ({**SITE, "more.conf": "SwitchName=s2 Nodes=o1\n"}, "topology.conf topology.conf: "),
        ({**SITE, "job_submit.lua": "-- theirs\n"}, "job_submit.lua job_submit.lua: "),
    ],
)
def test_the_check_finds_what_differs(files: dict[str, str], difference: str) -> None:
    """The cluster file of other files does not mean the same."""
    found = compare(files, adopted(SITE), DEFAULTS, "24.11.5").differences
    assert any(difference in str(one) for one in found), [str(one) for one in found]


def test_a_value_of_the_collection_is_a_difference() -> None:
    """The check knows which values the collection sets."""
    result = adopted(SITE)
    del result.cluster["slurm_conf"]["EnforcePartLimits"]
    del result.cluster["slurm_conf"]["DefMemPerCPU"]
    found = [str(one) for one in compare(SITE, result, DEFAULTS, "24.11.5").differences]
    assert found == [
        "slurm.conf EnforcePartLimits: nothing -> a value of the collection: no reason is known",
        "slurm.conf DefMemPerCPU: nothing -> 62: no reason is known",
    ]


@pytest.mark.parametrize(
    ("text", "version", "comment", "difference"),
    [
        (
            "CacheGroups=0\n",
            "24.11.5",
            "slurm.conf:5: CacheGroups: left out: Slurm has no such parameter",
            "slurm.conf CacheGroups: 0 -> nothing: slurm.conf:5: Slurm has no such parameter",
        ),
        (
            "AccountingStoreJobComment=YES\n",
            "24.11.5",
            "slurm.conf:5: AccountingStoreJobComment: left out: Slurm 24.11 refuses it, use "
            "AccountingStoreFlags=job_comment",
            "slurm.conf AccountingStoreJobComment: YES -> nothing: slurm.conf:5: Slurm 24.11 refuses it",
        ),
        (
            "KillWait=1\nKillWait=2\n",
            "24.11.5",
            "slurm.conf:5: KillWait: left out: slurm.conf:6 sets it again, and Slurm uses the last",
            "",
        ),
        (
            "NodeName=DEFAULT Foo=1\nNodeName=m[1-2] RealMemory=1\n",
            "24.11.5",
            "slurm.conf:5: NodeName=m[1-2] Foo: left out: Slurm has no such parameter",
            "NodeName=m[1-2] foo: 1 -> nothing: slurm.conf:5: Slurm has no such parameter",
        ),
        (
            "NodeName=m1 RealMemory=9 CPUs=7 CoresPerSocket=2\n",
            "24.11.5",
            "slurm.conf:5: NodeName=m1 CPUs: changed: found 7, which fits no sockets, cores or threads: Slurm uses 2",
            "",
        ),
        (
            "NodeName=m1\n",
            "24.11.5",
            "slurm.conf:5: NodeName=m1 RealMemory: changed: missing: Slurm takes 1 MiB, and so does the cluster file; "
            "measure it with the playbook discover",
            "",
        ),
        (
            "NodeName=m[1-2] RealMemory=9 NodeHostname=h[1-2]\n",
            "24.11.5",
            "slurm.conf:5: NodeName=m[1-2] NodeHostname: left out: a node is named as its host",
            "NodeName=m2 NodeHostname: h2 -> m2: slurm.conf:5: a node is named as its host",
        ),
        (
            "NodeName=m1 RealMemory=9 MemSpecLimit=9\n",
            "24.11.5",
            "slurm.conf:5: NodeName=m1 MemSpecLimit: left out: Slurm ignores it: found 9, allowed: a number below 9, "
            "the real_memory of the hardware",
            "NodeName=m1 MemSpecLimit: 9 -> nothing: slurm.conf:5: Slurm ignores it",
        ),
        (
            "NodeName=m1 RealMemory=9 CPUs=4 CoreSpecCount=8\n",
            "24.11.5",
            "slurm.conf:5: NodeName=m1 CoreSpecCount: changed: Slurm uses 1: found 8, allowed: a number below 4",
            "NodeName=m1 CoreSpecCount: 8 -> 1: slurm.conf:5: Slurm uses 1",
        ),
        (
            "NodeName=m1 RealMemory=9 CPUs=4 CoreSpecCount=2 CPUSpecList=0-1\n",
            "24.11.5",
            "slurm.conf:5: NodeName=m1 CoreSpecCount: left out: Slurm ignores it: Slurm ignores it where CPUSpecList ",
            "NodeName=m1 CoreSpecCount: 2 -> nothing: slurm.conf:5: Slurm ignores it",
        ),
        (
            "NodeName=m1 RealMemory=9 Gres=gpu:2\n",
            "24.11.5",
            "slurm.conf: GresTypes: changed: gpu of the nodes is added, which Slurm has ignored",
            "slurm.conf GresTypes: nothing -> gpu: slurm.conf: gpu of the nodes is added, which Slurm has ignored",
        ),
        (
            "PartitionName=q Nodes=n1,zz,n1 Foo=1\n",
            "24.11.5",
            "slurm.conf:5: PartitionName=q Nodes: left out: zz are no nodes",
            "PartitionName=q foo: 1 -> nothing: slurm.conf:5: Slurm has no such parameter",
        ),
        (
            "PartitionName=_q Nodes=n1\n",
            "24.11.5",
            "slurm.conf:5: PartitionName=_q PartitionName: left out: found '_q', allowed: letters, digits,",
            "PartitionName=_q PartitionName: _q -> nothing: slurm.conf:5: found '_q', allowed: letters, digits,",
        ),
        (
            "FrontendName=f1\n",
            "23.11",
            "slurm.conf:5: FrontendName: left out: the collection does not support front ends",
            "slurm.conf FrontendName: f1 -> nothing: slurm.conf:5: the collection does not support front ends",
        ),
        (
            "AccountingStorageType=accounting_storage/slurmdbd\n",
            "24.11.5",
            "slurm.conf:5: AccountingStorageType: kept: slurmdbd and its database stay as they are; the key database "
            "would let site.yml manage them",
            "",
        ),
        (
            "NodeName=head RealMemory=9 NodeAddr=10.0.0.1\n",
            "24.11.5",
            "slurm.conf:5: SlurmctldHost: changed: head gets the address of its node, 10.0.0.1, not its name: ",
            "slurm.conf SlurmctldHost: head -> head(10.0.0.1): slurm.conf:5: head gets the address of its node",
        ),
        (
            "NodeName=head.example.org RealMemory=9\n",
            "24.11.5",
            "slurm.conf: SlurmctldHost: changed: head becomes head.example.org, the name of its node: a host has one "
            "name",
            "slurm.conf SlurmctldHost: head -> head.example.org: slurm.conf: head becomes head.example.org",
        ),
        (
            "NodeName=DEFAULT CPUs=4\nNodeName=m[1-2] RealMemory=9 Procs=2\n",
            "24.11.5",
            "slurm.conf:6: NodeName=m[1-2] Procs: left out: Slurm uses CPUs",
            "",
        ),
        (
            "PartitionName=DEFAULT Shared=YES\nPartitionName=q Nodes=n1 OverSubscribe=NO Priority=3 PriorityTier=7\n",
            "24.11.5",
            "slurm.conf:5: PartitionName=q Shared: left out: Slurm uses OverSubscribe",
            "",
        ),
        (
            "NodeName=m1 RealMemory=0\n",
            "24.11.5",
            "slurm.conf:5: NodeName=m1 RealMemory: changed: found 0, and the cluster file has 1; measure it with ",
            "NodeName=m1 RealMemory: 0 -> 1: slurm.conf:5: found 0",
        ),
        (
            "SlurmdSpoolDir=/var/spool/slurm\nStateSaveLocation=/var/spool//slurm/\n",
            "24.11.5",
            "slurm.conf: SlurmdSpoolDir: kept: StateSaveLocation is the same directory; a new cluster would have two",
            "",
        ),
        ("MailProg={{x}}\n", "24.11.5", "slurm.conf:5: MailProg: left out: found '{{x}}', templates are not ", " -> "),
    ],
)
def test_what_the_cluster_file_cannot_say_has_a_comment(text: str, version: str, comment: str, difference: str) -> None:
    files = {"slurm.conf": LEAST + text}
    assert any(found.startswith(comment) for found in comments(files, version)), comments(files, version)
    found = differences(files, version)
    assert found.pop(next(i for i, line in enumerate(found) if "enable_configless" in line)) == ALWAYS
    assert any(difference in one for one in found) if difference else found == [], found


def test_a_file_that_is_none_of_slurm() -> None:
    files = {"slurm.conf": LEAST, "old": "x\n"}
    assert comments(files) == ["old: old: left out: Slurm reads no file of this name next to slurm.conf"]


def test_a_file_that_the_release_does_not_read() -> None:
    files = {"slurm.conf": LEAST, "topology.yaml": "- topology: x\n"}
    assert comments(files) == [
        "topology.yaml: topology.yaml: left out: Slurm 24.11 does not have it, 25.05 and later do",
    ]
    assert any("topology.yaml topology.yaml: its text -> nothing: " in one for one in differences(files))
    assert adopted(files, "25.05").cluster["slurm_files"] == {"topology.yaml": "- topology: x\n"}


def test_the_password_of_a_plugin_is_not_shown() -> None:
    files = {"slurm.conf": f"{LEAST}JobCompPass=secret\n"}
    other = adopted({"slurm.conf": LEAST})
    (found,) = [one for one in compare(files, other, DEFAULTS, "24.11.5").differences if one.key == "JobCompPass"]
    assert str(found) == "slurm.conf JobCompPass: its value: no reason is known"


@pytest.mark.parametrize(
    ("files", "problems"),
    [
        ({}, ["slurm.conf: missing, or it has no lines"]),
        ({"slurm.conf": "# nothing\n"}, ["slurm.conf: missing, or it has no lines"]),
        (
            {"slurm.conf": "KillWait=1\n"},
            [
                "slurm.conf: ClusterName: missing, allowed: lower case letters, digits, '.', '-' and '_', such as ",
                "slurm.conf: SlurmctldHost: missing",
            ],
        ),
        (
            {"slurm.conf": "ClusterName=a+b\nSlurmctldHost=h\n"},
            ["slurm.conf:1: ClusterName: found 'a+b', allowed: lower case letters, digits, '.', '-' and '_', such as "],
        ),
        (
            {"slurm.conf": "Include a.conf\nInclude b.conf\n", "a.conf": "Include a.conf\nwhat\n"},
            [
                "a.conf: line 1: Include: found 'a.conf', which includes itself",
                "a.conf: line 2: found 'what', allowed: Key=value",
                "slurm.conf: line 2: Include: found 'b.conf', which was not found",
            ],
        ),
        ({"slurm.conf": f"{LEAST}NodeName=a[1\n"}, ["slurm.conf: NodeName=a[1: bad hostlist"]),
    ],
)
def test_what_slurm_would_not_read_either(files: dict[str, str], problems: list[str]) -> None:
    with pytest.raises(SourceError) as error:
        adopt(files, DEFAULTS, "24.11.5")
    assert len(error.value.problems) == len(problems), error.value.problems
    for found, problem in zip(error.value.problems, problems):
        assert found.startswith(problem), found


ON_A_NODE = LEAST.replace("SlurmctldHost=head", "SlurmctldHost=n1")
TEMPORARY = ", which all programs of a host have, and which is emptied; a new cluster would have another directory"
SYSTEM = ", which the system needs; a new cluster would have another directory"
SLURM = ", which Slurm has; a new cluster would have another directory"
OTHERS = ", which is for others as well; a new cluster would have another directory"
SPELLED = "; a new cluster would have an absolute path"
OF_A_LINE: list[tuple[str, dict[str, str]]] = [
    (
        "StateSaveLocation",
        {"/tmp/slurm": TEMPORARY, "/tmp": TEMPORARY, "/etc/slurm/state": SYSTEM, "/root/slurm": SYSTEM, "/srv": OTHERS}
        | {
            "/usr/local/slurm": SYSTEM,
            "/run/slurm": SYSTEM,
            "/var/log/slurm": SLURM,
            "/srv/../x": SPELLED,
            "/": SPELLED,
        },
    ),
    (
        "SlurmdSpoolDir",
        {
            "/tmp/slurm": TEMPORARY,
            "/usr/x": SYSTEM,
            "/var/spool": SYSTEM,
            "/var/log/slurm/%n": SLURM,
            "/a/../b": SPELLED,
        },
    ),
    *(
        (log, {"/tmp/x": TEMPORARY, "/run/x": SYSTEM, "/var/log/../x": SPELLED, "x.log": SPELLED})
        for log in ("SlurmctldLogFile", "SlurmdLogFile", "SlurmSchedLogFile")
    ),
    *((pid, {"/etc/x.pid": SYSTEM, "x.pid": SPELLED}) for pid in ("SlurmctldPidFile", "SlurmdPidFile")),
    ("TmpFS", {"/var": SYSTEM, "tmp": SPELLED}),
    ("SrunPortRange", {"6000-6817": " on head, where SlurmctldPort is 6817; a new cluster would have another port"}),
]
KEPT_VALUES = [
    *(
        (f"{LEAST}{key}={value}\n", f"slurm_conf.{key}", f"slurm.conf:5: {key}: kept: found '{value}'{why}")
        for key, values in OF_A_LINE
        for value, why in values.items()
    ),
    (
        f"{ON_A_NODE}SlurmdSpoolDir=/var/spool/slurm\nStateSaveLocation=/var/spool/slurm/\n",
        "slurm_conf.SlurmdSpoolDir",
        "slurm.conf:5: SlurmdSpoolDir: kept: found '/var/spool/slurm', with Slurm's StateSaveLocation; a new cluster ",
    ),
    (
        f"{LEAST}JobCompType=jobcomp/filetxt\nJobCompLoc=/tmp/jobs\n",
        "slurm_conf.JobCompLoc",
        f"slurm.conf:6: JobCompLoc: kept: found '/tmp/jobs'{TEMPORARY}",
    ),
    (
        f"{LEAST}NodeName=m[1-2] RealMemory=9 NodeAddr=fd00::[1-2]\n",
        "nodes.address",
        "slurm.conf:5: NodeAddr: kept: found 'fd00::1', an IPv6 address; a new cluster would have IPv4 addresses, or ",
    ),
]


@pytest.mark.parametrize(("conf", "key", "comment"), KEPT_VALUES)
def test_a_value_that_a_new_cluster_could_not_have_is_kept_and_named(conf: str, key: str, comment: str) -> None:
    files = {"slurm.conf": conf}
    found = adopted(files)
    assert found.cluster["taken_over"] == [key]
    (text,) = map(str, found.comments)
    assert text.startswith(comment)
    # The value is what slurm.conf has: the state is not moved.
    assert differences(files) == [ALWAYS]
    # The cluster file is refused without its list.
    with pytest.raises(ModelError) as error:
        load(Document("x", {name: value for name, value in found.cluster.items() if name != "taken_over"}))
    assert all(problem.startswith("x: ") and ", allowed: " in problem for problem in error.value.problems)


def test_values_that_a_new_cluster_can_have_too() -> None:
    """Case 23 on a controller that is no node; Slurm's own default of StateSaveLocation; the whole disk as TmpFS."""
    for text in ("SlurmdSpoolDir=/a/b\nStateSaveLocation=/a/b\n", "StateSaveLocation=/var/spool\n", "TmpFS=/\n"):
        assert "taken_over" not in adopted({"slurm.conf": LEAST + text}).cluster


ANOTHER_PROGRAM = (
    "hosts of which another program chooses the one that serves, while site.yml would start slurmctld on each"
)


@pytest.mark.parametrize(
    ("conf", "problem"),
    [
        (
            f"{LEAST}StateSaveLocation=a/b\n",
            "slurm.conf:5: StateSaveLocation: found 'a/b', which is below the directory",
        ),
        (f"{LEAST}SlurmdSpoolDir=~/b\n", "slurm.conf:5: SlurmdSpoolDir: found '~/b', which is below the directory in"),
        (
            LEAST.replace("SlurmctldHost=head", "ControlMachine=a,b\nControlAddr=10.0.0.1"),
            f"slurm.conf:2: ControlMachine: found 'a,b', {ANOTHER_PROGRAM}, allowed: one host",
        ),
        (
            LEAST.replace("SlurmctldHost=head", "SlurmctldHost=a\nSlurmctldHost=b,c(10.0.0.1)"),
            f"slurm.conf:3: SlurmctldHost: found 'b,c(10.0.0.1)', {ANOTHER_PROGRAM}, allowed: one host",
        ),
    ],
)
def test_what_could_lose_jobs_is_one_error_with_the_way(conf: str, problem: str) -> None:
    with pytest.raises(SourceError) as error:
        adopt({"slurm.conf": conf}, DEFAULTS, "24.11.5")
    (found,) = error.value.problems
    assert found.startswith(problem)
    assert "run again" in found


def test_what_the_model_refuses_is_told() -> None:
    """A person has to decide: here two slurmd of a host without ports of their own."""
    found = adopt({"slurm.conf": f"{LEAST}NodeName=m[1-2] NodeAddr=h\n"}, DEFAULTS, "24.11.5")
    assert found.problems == ["the cluster file: nodes[1].address: h is the address of m1 already"]


def test_a_large_cluster() -> None:
    """Equal nodes share an entry."""
    text = f"{LEAST}NodeName=g[0001-2000] NodeAddr=10.1.[0-19].[1-100] RealMemory=9 Gres=gpu:8 CPUs=4\n"
    text += "GresTypes=gpu\nPartitionName=g Nodes=g[0001-2000]\n"
    files = {"slurm.conf": text, "gres.conf": "NodeName=g[0001-2000] Name=gpu File=/dev/nvidia[0-7]\n"}
    cluster: dict[str, Any] = adopted(files).cluster
    assert [node["hosts"] for node in cluster["nodes"]] == ["n[1-2]", "g[0001-2000]"]
    assert differences(files) == [ALWAYS]


def test_only_a_newline_ends_a_line_of_a_kept_file() -> None:
    """Python takes more characters for ends of lines than Slurm."""
    text = "# \u2028Include more.conf\nSwitchName=s1 Nodes=n[1-2]"
    assert adopted({"slurm.conf": LEAST, "topology.conf": text}).cluster["slurm_files"] == {"topology.conf": text}


def test_the_other_names_of_parameters_are_read_as_slurm_reads_them() -> None:
    """Both sides of the comparison have one reading, so the values are named here."""
    text = (
        "NodeName=a1 CPUs=96 Sockets=2 CoresPerSocket=24 ThreadsPerCore=2 Procs=48 RealMemory=9 Feature=d Features=e\n"
    )
    files = {"slurm.conf": f"{LEAST}GresTypes=gpu\n{text.replace('RealMemory', 'Gres=gpu:1 RealMemory')}"}
    files["gres.conf"] = "NodeName=a1 Name=gpu File=/dev/nvidia0 Cores=0-23 CPUs=0-47\n"
    cluster = adopted(files).cluster
    node = next(node for node in cluster["nodes"] if node["hosts"] == "a1")
    machine = cluster["hardware"][node["hardware"]]
    assert ("cpus" in machine, node["Feature"], "Features" in node) == (False, "d", False)
    assert machine["gres"] == [{"name": "gpu", "file": "/dev/nvidia0", "cores": "0-23"}]
    assert "gres.conf:1: CPUs: left out: Slurm uses Cores" in comments(files)
    assert differences(files) == [ALWAYS]


@pytest.mark.parametrize(
    ("found", "written"),
    [
        ("/srv/state/", "/srv/state"),
        ("/srv//state", "/srv/state"),
        ("/srv/./state/.", "/srv/state"),
        ("/var/run/slurm", "/run/slurm"),
    ],
)
def test_a_path_has_one_spelling(found: str, written: str) -> None:
    """Another one is neither refused nor another directory, whose change would end jobs."""
    files = {"slurm.conf": f"{LEAST}SlurmdSpoolDir={found}\nCliFilterPlugins=lua\n"}
    assert adopted(files).cluster["slurm_conf"]["SlurmdSpoolDir"] == written
    assert differences(files) == [ALWAYS]
