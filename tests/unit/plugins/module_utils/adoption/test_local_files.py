# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of Slurm that only nodes have: in the cluster file, or named; never dropped."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.local_files import (
    merge,
    node_differences,
    node_file_errors,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.adoption.survey import adopted
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import gres_lines

VERSION = "24.11.5"

# A cluster of a person who has gres.conf on each node, as they published it.
GRES_ON_NODES = """ClusterName=Lab
SlurmctldHost=head(10.87.0.2)
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
GresTypes=gpu
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=head
ReturnToService=1
PrologFlags=Alloc
Prolog=/etc/slurm/prolog.sh
NodeName=gpu1 NodeAddr=10.87.0.3 CPUs=2 RealMemory=2000 Gres=gpu:2
PartitionName=gpu Nodes=gpu1 Default=YES
"""
CONF = "ClusterName=c\nSlurmctldHost=ctl\nNodeName=n[1-2] CPUs=2 RealMemory=100\nPartitionName=p Nodes=ALL\n"
CONTROLLER = {"slurm.conf": CONF}
DEFAULTS: dict[str, dict[str, Any]] = {"slurm.conf": {"KillWait": 30}, "cgroup.conf": {"ConstrainCores": True}}


def own_of(files: dict[str, str], conf: str = CONF) -> dict[str, Any]:
    """The answer of a node with files next to its slurm.conf."""
    return {"files": {"slurm.conf": conf, **files}, "directory": "/etc/slurm"}


def hosts_of(conf: str, own: dict[str, Any], files: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """The results of a controller and of nodes with files of their own."""
    hosts: dict[str, Any] = {
        "ctl": {
            "__adopt_files": {
                "files": {"slurm.conf": conf, **(files or {})},
                "version": VERSION,
                "user_id": 64030,
                "drift": [],
            }
            | {"package": "slurmctld"},
            "__new_cluster_processes": {"stdout": "7 /usr/sbin/slurmctld"},
        }
    }
    for name, answer in own.items():
        hosts[name] = {"__adopt_own": answer, "__new_cluster_processes": {"stdout": "8 /usr/sbin/slurmd"}}
    return {**hosts, **more}


def adopted_of(conf: str, own: dict[str, Any], files: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """The cluster file and what is said about it; nothing in it is wrong."""
    hosts = hosts_of(conf, own, files, **more)
    found = adopted(hosts, [*hosts], "ctl", DEFAULTS)
    assert (found["errors"], found["unexplained"]) == ([], [])
    return found


def test_resources_of_each_node_are_in_the_cluster_file() -> None:
    own = {"gpu1": own_of({"gres.conf": "Name=gpu File=/dev/nvidia[0-1]\n", "cgroup.conf": "ConstrainDevices=no\n"})}
    found = adopted_of(GRES_ON_NODES, own)
    (machine,) = found["cluster"]["hardware"].values()
    assert machine["gres"] == [{"name": "gpu", "file": "/dev/nvidia[0-1]"}]
    assert "gres.conf: changed: the lines of gpu1 come from the nodes' own files" in found["comments"]
    variables = load(Document("the cluster file", found["cluster"])).variables
    lines = gres_lines(variables["slurm_nodes"], variables["slurm_hardware_types"])
    rendered = {"slurm.conf": GRES_ON_NODES, "gres.conf": lines, "cgroup.conf": ""}
    assert node_differences(own["gpu1"]["files"], "gpu1", {"slurm.conf": GRES_ON_NODES}, rendered, VERSION) == []


def test_nodes_can_have_different_resources() -> None:
    conf = CONF.replace("RealMemory=100", "RealMemory=100 Gres=gpu:2")
    gres = {"n1": "Name=gpu File=/dev/nvidia[0-1]\n", "n2": "Name=gpu File=/dev/nvidia0,/dev/nvidia7\n"}
    found = adopted_of(conf, {node: own_of({"gres.conf": text}, conf) for node, text in gres.items()})
    files = {
        node["hosts"]: found["cluster"]["hardware"][node["hardware"]]["gres"] for node in found["cluster"]["nodes"]
    }
    assert files == {
        "n1": [{"name": "gpu", "file": "/dev/nvidia[0-1]"}],
        "n2": [{"name": "gpu", "file": "/dev/nvidia[0,7]"}],
    }


def test_a_gres_conf_that_agrees_changes_nothing() -> None:
    conf = CONF.replace("RealMemory=100", "RealMemory=100 Gres=gpu:2")
    there = {"gres.conf": "NodeName=n[1-2] Name=gpu File=/dev/nvidia[0-1]\n"}
    one = own_of({"gres.conf": "# mine\nName=gpu File=/dev/nvidia0\nName=gpu File=/dev/nvidia1\n"}, conf)
    assert merge({"slurm.conf": conf, **there}, {"n1": one}, [], VERSION).files["gres.conf"] == there["gres.conf"]
    assert merge({"slurm.conf": conf, **there}, {"n1": one}, [], VERSION).comments == []


CONFINED = {
    "cgroup.conf": "CgroupPlugin=autodetect\nConstrainCores=yes\nConstrainDevices=yes\n",
    "plugstack.conf": "include plugstack.conf.d/*.conf\n",
    "plugstack.conf.d/x.conf": "required /opt/site/spank_x.so level=2\n",
    "helpers.conf": "# boot\nFeature=nps1\nHelper=/opt/nps\n",
}


def test_a_file_that_all_nodes_have_becomes_that_of_the_cluster() -> None:
    other = {**CONFINED, "cgroup.conf": "ConstrainDevices=YES # in other words\nConstrainCores=YES\n"}
    found = adopted_of(CONF, {"n1": own_of(CONFINED), "n2": own_of(other)})
    cluster = found["cluster"]
    assert cluster["cgroup_conf"] == {"CgroupPlugin": "autodetect", "ConstrainCores": "yes", "ConstrainDevices": "yes"}
    assert cluster["plugstack"] == [{"plugin": "/opt/site/spank_x.so", "arguments": ["level=2"], "required": True}]
    assert cluster["slurm_files"] == {"helpers.conf": CONFINED["helpers.conf"]}
    assert "cgroup.conf: changed: it comes from n[1-2]; the controller has none" in found["comments"]


@pytest.mark.parametrize(
    "others",
    [
        {"n2": {"__adopt_own": own_of({}), "__new_cluster_processes": {"stdout": "8 /usr/sbin/slurmd"}}},
        {"n2": {"__new_cluster_processes": {"stdout": "8 /usr/sbin/slurmd --conf-server ctl"}}},
        {},
    ],
    ids=["without-the-file", "fetches", "not-reached"],
)
def test_a_file_of_some_nodes_is_named(others: dict[str, Any]) -> None:
    found = adopted_of(CONF, {"n1": own_of(CONFINED)}, **others)
    assert "plugstack" not in found["cluster"]
    assert found["cluster"]["cgroup_conf"] == {"ConstrainCores": None}
    named = [comment for comment in found["comments"] if comment.startswith("n1:/etc/slurm/")]
    assert [comment.partition(":")[2].partition(":")[0] for comment in named] == [
        "/etc/slurm/cgroup.conf",
        "/etc/slurm/helpers.conf",
        "/etc/slurm/plugstack.conf",
    ]
    assert "ConstrainDevices: found 'yes', the cluster has nothing" in named[0]


def test_a_file_of_the_controller_alone_is_named() -> None:
    found = adopted_of(CONF, {"n1": own_of({}), "n2": own_of({})}, {"plugstack.conf": "required /opt/login.so\n"})
    message = "plugstack.conf: n[1-2] have no such file: a take-over gives them that of the controller"
    assert message in found["comments"]


def test_the_files_of_a_node_that_were_not_read_are_named() -> None:
    found = adopted_of(CONF, {"n1": {"msg": "Slurm's configuration cannot be read: no"}})
    assert any(message.startswith("n1: its own files were not read") for message in found["remarks"])


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("cgroup.conf", "ConstrainRAMSpace=yes\n", "ConstrainRAMSpace: found 'yes', the cluster has nothing"),
        ("cgroup.conf", "OfNoRelease=yes\n", "OfNoRelease: found 'yes', the cluster has nothing"),
        ("plugstack.conf", "optional /opt/a.so\n", "/opt/a.so: found 'optional /opt/a.so', the cluster has nothing"),
        ("job_container.conf", "BasePath=/nvme\n", "BasePath: found '/nvme', the cluster has nothing"),
        ("mpi.conf", "PMIxDebug=1\n", "PMIxDebug: found '1', the cluster has nothing"),
        (
            "acct_gather.conf",
            "ProfileInfluxDBPass=secret\n",
            "ProfileInfluxDBPass: its value differs from that in the cluster",
        ),
        ("oci.conf", "RunTimeRun=x\n", "its text differs from that in the cluster"),
        ("helpers.conf", "Feature=a Helper=/b\n", "its text differs from that in the cluster"),
        ("cli_filter.lua", "return 0\n", "its text differs from that in the cluster"),
    ],
)
def test_a_node_is_not_taken_over_if_its_file_says_something_else(file: str, text: str, message: str) -> None:
    (error,) = node_file_errors(own_of({file: text}), "n1", CONTROLLER, CONTROLLER, VERSION)
    assert error.startswith(f"n1: /etc/slurm/{file}: {message}")
    assert "secret" not in error
    assert "or put n1 into unmanaged. Nothing was changed on n1." in error
    same = {**CONTROLLER, file: text}
    assert node_file_errors(own_of({file: text}), "n1", CONTROLLER, same, VERSION) == []


def test_a_gres_conf_that_differs_stops_the_take_over() -> None:
    conf = CONF.replace("RealMemory=100", "RealMemory=100 Gres=gpu:2")
    own = own_of({"gres.conf": "Name=gpu File=/dev/nvidia[0-1]\n"}, conf)
    (error,) = node_file_errors(own, "n1", {"slurm.conf": conf}, {"slurm.conf": conf}, VERSION)
    assert "found 'Name=gpu File=/dev/nvidia[0-1]', the cluster has nothing" in error
    assert "(gres of its hardware)" in error
    without = conf.replace(" Gres=gpu:2", "")  # the node joins a cluster that did not have it
    new = {"slurm.conf": CONF.replace("n[1-2]", "n2")}
    assert node_file_errors(own, "n1", new, {"slurm.conf": conf}, VERSION) == [error]
    assert node_file_errors(own, "n1", {"slurm.conf": without}, {"slurm.conf": without}, VERSION) == []


def test_what_a_person_has_changed_since_stops_nothing() -> None:
    """A node that still has the file that was on all hosts, after a value of the cluster file was changed."""
    before = {**CONTROLLER, "cgroup.conf": "ConstrainCores=yes\n"}
    after = {**CONTROLLER, "cgroup.conf": "ConstrainCores=yes\nConstrainRAMSpace=yes\n"}
    assert node_file_errors(own_of({"cgroup.conf": "ConstrainCores=yes\n"}), "n1", before, after, VERSION) == []
    (error,) = node_file_errors(own_of({"cgroup.conf": "ConstrainCores=no\n"}), "n1", before, after, VERSION)
    assert "ConstrainCores: found 'no', the cluster has 'yes'" in error
    assert "ConstrainRAMSpace" not in error


def test_the_order_of_plugins_counts() -> None:
    mine = own_of({"plugstack.conf": "optional /opt/a.so\noptional /opt/b.so\n"})
    other = {**CONTROLLER, "plugstack.conf": "optional /opt/b.so\noptional /opt/a.so\n"}
    (error,) = node_file_errors(mine, "n1", CONTROLLER, other, VERSION)
    assert "the order of the plugins: found '/opt/a.so /opt/b.so', the cluster has '/opt/b.so /opt/a.so'" in error


def test_lines_of_a_node_alone_are_compared() -> None:
    text = "NodeName=n1 BasePath=/nvme\nNodeName=n2 BasePath=/ssd\n"
    cluster = {**CONTROLLER, "job_container.conf": text}
    own = own_of({"job_container.conf": "BasePath=/nvme\n"})
    assert node_file_errors(own, "n1", CONTROLLER, cluster, VERSION) == []
    assert len(node_file_errors(own, "n2", CONTROLLER, cluster, VERSION)) == 1


def test_a_file_that_slurm_cannot_read_is_an_error() -> None:
    own = own_of({"cgroup.conf": "Include more.conf\n"})
    (error,) = node_file_errors(own, "n1", CONTROLLER, CONTROLLER, VERSION)
    assert error == "n1: /etc/slurm/cgroup.conf: line 1: Include: found 'more.conf', which was not found"
    assert "left out: Slurm would not read it either" in merge(CONTROLLER, {"n1": own}, [], VERSION).comments[0]


def test_files_that_slurm_does_not_read_do_not_count() -> None:
    own = own_of({"namespace.yaml": "defaults: {}\n", "cgroup.conf": "CgroupAutomount=yes\n", "topology.conf": "x=1\n"})
    assert node_file_errors(own, "n1", CONTROLLER, CONTROLLER, VERSION) == []
    assert node_file_errors({"files": {}, "directory": ""}, "n1", CONTROLLER, CONTROLLER, VERSION) == []
