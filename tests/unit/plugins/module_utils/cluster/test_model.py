# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster file: the inventory that it gives, and every possible error in it."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import schema
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.keys import KEYS, SERVERS
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import (
    DeclaredCluster,
    Document,
    ModelError,
    hardware_file,
    load,
    model_errors,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.setting_checks import check_state_location
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameters import SITE_FILES
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.formatting import MESSAGE
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from ansible_collections.gpucluster.slurm.plugins.plugin_utils.documents import read

GUIDE = """
plugin: gpucluster.slurm.cluster
name: hpc-demo-cluster
controllers: head
database: head
login: login1
registry: images1
hardware:
  e2-standard-4: {sockets: 1, cores_per_socket: 2, threads_per_core: 2, real_memory: 15990}
  n1-t4:
    {sockets: 1, cores_per_socket: 1, threads_per_core: 1, real_memory: 3661,
     gres: [{name: gpu, type: t4, file: "/dev/nvidia[0-1]"}]}
nodes:
  - {hosts: head, hardware: e2-standard-4, address: 10.182.0.4}
  - {hosts: "compute[01-02]", hardware: n1-t4, address: "10.182.0.[2-3]", Weight: 2}
partitions:
  - {name: cpu, nodes: head, default: true}
  - {name: gpu-all, nodes: "compute[01-02]", MaxTime: "2-00:00:00", AllowAccounts: [vision]}
  - {name: all, nodes: ALL}
addresses: {login1: 10.182.0.9}
slurm_conf: {UnkillableStepTimeout: 240, KillWait: null}
cgroup_conf: {ConstrainCores: true}
"""


def load_text(text: str, measured: str | None = None) -> DeclaredCluster:
    """Load a cluster file and its hardware file from texts."""
    return load(
        read("my.cluster.yml", text.encode()),
        read("my.hardware.yml", measured.encode()) if measured is not None else None,
    )


def problems(text: str, measured: str | None = None) -> list[str]:
    """All errors in a cluster file."""
    with pytest.raises(ModelError) as error:
        load_text(text, measured)
    assert str(error.value) == "\n".join(error.value.problems)
    return error.value.problems


def changed(**keys: Any) -> str:
    """The guide's cluster file with other values for some keys; None takes a key away."""
    data = {**yaml.safe_load(GUIDE), **keys}
    return yaml.safe_dump({key: value for key, value in data.items() if value is not None}, sort_keys=False)


def test_groups() -> None:
    compute = ["compute01", "compute02"]
    assert load_text(GUIDE).groups == {
        **{key.group: [] for key in SERVERS},
        "slurm_controller": ["head"],
        "slurm_database": ["head"],
        "slurm_login": ["login1"],
        "slurm_registry": ["images1"],
        "slurm_compute": ["head", *compute],
        "hardware_e2_standard_4": ["head"],
        "hardware_n1_t4": compute,
        "partition_cpu": ["head"],
        "partition_gpu_all": compute,
        "partition_all": ["head", *compute],
    }


def test_nodes_that_no_play_changes() -> None:
    """They are in Slurm's files, but no hosts of the cluster."""
    nodes = [*yaml.safe_load(GUIDE)["nodes"], {"hosts": "c[1-2]", "hardware": "n1-t4", "State": "CLOUD"}]
    cluster = load_text(changed(nodes=nodes, unmanaged="compute02"))
    assert cluster.groups["slurm_compute"] == ["head", "compute01"]
    assert cluster.groups["partition_all"] == ["head", "compute01", "compute02", "c1", "c2"]
    assert [node["hosts"] for node in cluster.variables["slurm_nodes"]][-1] == "c[1-2]"
    with pytest.raises(ModelError, match=r"unmanaged: found 'compute3', unknown node, did you mean 'compute0\d'?"):
        load_text(changed(unmanaged="compute3"))


def test_a_policy_for_a_database_that_is_not_managed() -> None:
    conf = {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageHost": "db"}
    cluster = load_text(changed(database=None, slurm_conf=conf, accounting={"accounts": ["vision"]}))
    assert cluster.variables["slurm_accounting_accounts"]


def test_addresses() -> None:
    assert load_text(GUIDE).addresses == {
        "head": "10.182.0.4",
        "compute01": "10.182.0.2",
        "compute02": "10.182.0.3",
        "login1": "10.182.0.9",
    }


def test_a_profile_is_one_of_two() -> None:
    assert load_text(f"{GUIDE}profile: strict\n").variables["slurm_profile"] == "strict"
    with pytest.raises(ModelError, match="profile: found 'strikt', allowed: standard, strict"):
        load_text(f"{GUIDE}profile: strikt\n")


def test_variables() -> None:
    """A key that the file does not have has the default of role slurm. That of plugstack is the site's own."""
    file = yaml.safe_load(GUIDE)
    assert load_text(GUIDE).variables == {
        **{key.variable.name: key.variable_default for key in KEYS if key.variable and not key.variable.of_site},
        "slurm_cluster_name": "hpc-demo-cluster",
        "slurm_controllers": ["head"],
        "slurm_database": "head",
        "slurm_registry": "images1",
        "slurm_packages": "distribution",
        "slurm_addresses": [
            {"hosts": "head", "address": "10.182.0.4"},
            {"hosts": "compute[01-02]", "address": "10.182.0.[2-3]"},
            {"hosts": "login1", "address": "10.182.0.9"},
        ],
        "slurm_hardware_types": file["hardware"],
        "slurm_nodes": file["nodes"],
        "slurm_partitions": file["partitions"],
        "slurm_conf": {"UnkillableStepTimeout": 240, "KillWait": None},
        "slurm_cgroup_conf": {"ConstrainCores": True},
    }


def test_least_cluster() -> None:
    """No database, login hosts, registry, addresses, settings: their groups are there, and empty."""
    cluster = load_text(
        """
        plugin: gpucluster.slurm.cluster
        name: least
        controllers: head
        hardware: {a: {sockets: 1, cores_per_socket: 1, threads_per_core: 1, real_memory: 1000}}
        nodes: [{hosts: n1, hardware: a}]
        partitions: [{name: p, nodes: n1}]
        """
    )
    assert [cluster.groups[f"slurm_{name}"] for name in ("database", "login", "registry")] == [[], [], []]
    assert cluster.addresses == {}
    assert cluster.variables["slurm_database"] == cluster.variables["slurm_registry"] == ""


def test_several_controllers_share_their_state() -> None:
    text = changed(controllers="head[1-2]", slurm_conf={"StateSaveLocation": "/shared"})
    assert load_text(text).variables["slurm_controllers"] == ["head1", "head2"]


def test_nodesets() -> None:
    conf = {"NodeSet": [{"NodeSet": "fast", "Feature": "h100"}], "DownNodes": {"DownNodes": "head", "State": "DOWN"}}
    assert load_text(changed(slurm_conf=conf)).variables["slurm_conf"] == conf


@pytest.mark.parametrize(
    ("nodes", "members"),
    [
        ("fast", ["compute01", "compute02"]),
        ("head,fast", ["head", "compute01", "compute02"]),
        ("own", ["head"]),
        ("both", ["compute01", "compute02", "head"]),
        ("all", ["head", "compute01", "compute02"]),
        ("everything", ["head", "compute01", "compute02"]),
        ("feature{t4}", ["compute01", "compute02"]),
        ("switch{s1}", []),
        ("head,switch{s1}", ["head"]),
        ("dynamic", []),
        ("", []),
    ],
)
def test_nodes_of_partitions(nodes: str, members: list[str]) -> None:
    """`nodespec_to_hostlist`: names, node sets by nodes or by a feature, functions, all in any case, or none."""
    hardware = yaml.safe_load(GUIDE)["hardware"]
    hardware["n1-t4"]["Features"] = ["t4", "turing"]
    sets = [
        {"NodeSet": "fast", "Feature": "t4"},
        {"NodeSet": "own", "Nodes": "head"},
        {"NodeSet": "both", "Feature": "turing", "Nodes": "head"},
        {"NodeSet": "everything", "Nodes": "all"},
        {"NodeSet": "dynamic", "Feature": "cloud"},
    ]
    text = changed(hardware=hardware, slurm_conf={"NodeSet": sets}, partitions=[{"name": "p", "nodes": nodes}])
    cluster = load_text(text)
    assert cluster.groups["partition_p"] == members
    assert model_errors(cluster.variables, {host for hosts in cluster.groups.values() for host in hosts}) == []


def test_the_features_of_a_node_replace_those_of_its_hardware() -> None:
    hardware = yaml.safe_load(GUIDE)["hardware"]
    hardware["n1-t4"]["Feature"] = "t4"
    nodes = yaml.safe_load(GUIDE)["nodes"]
    nodes[0]["Feature"] = "t4,head"
    nodes[1]["Feature"] = "none"
    conf = {"NodeSet": {"NodeSet": "fast", "Feature": "t4"}}
    text = changed(hardware=hardware, nodes=nodes, slurm_conf=conf, partitions=[{"name": "p", "nodes": "fast"}])
    assert load_text(text).groups["partition_p"] == ["head"]


def test_a_cluster_of_dynamic_nodes() -> None:
    conf = {"MaxNodeCount": 10, "NodeSet": {"NodeSet": "cloud", "Feature": "cloud"}}
    text = changed(nodes=[], hardware=None, slurm_conf=conf, partitions=[{"name": "p", "nodes": "cloud"}])
    assert load_text(text).groups["partition_p"] == []


def test_names_of_partitions_whose_groups_would_be_equal() -> None:
    """Ansible's groups have letters, digits and underscores; Slurm tells `gpu-all`, `gpu_all` and `gpu+all` apart."""
    names = ("gpu-all", "gpu+all", "gpu_all")
    entries = [{"name": name, "nodes": node} for name, node in zip(names, ("head", "compute01", "compute02"))]
    groups = load_text(changed(partitions=entries)).groups
    assert groups["partition_gpu_all"] == ["compute02"]
    assert groups["partition_gpu_all_"] == ["head"]
    assert groups["partition_gpu_all__"] == ["compute01"]


DETECTED_NODES: list[dict[str, Any]] = [
    {"hosts": "head", "hardware": "e2-standard-4"},
    {"hosts": "g[1-5]", "hardware": "detected", "address": "10.0.0.[1-5]", "Weight": 9},
]
DETECTED = changed(nodes=DETECTED_NODES, partitions=[{"name": "all", "nodes": "ALL"}])


def test_hardware_that_is_not_measured_yet() -> None:
    cluster = load_text(DETECTED)
    assert cluster.variables["slurm_nodes"][1] == DETECTED_NODES[1]
    assert cluster.groups["hardware_detected"] == ["g1", "g2", "g3", "g4", "g5"]
    assert cluster.addresses["g5"] == "10.0.0.5"


def test_hardware_that_is_measured() -> None:
    """An entry is split by machine type; a node without a measurement stays `detected`; strange nodes do no harm."""
    machine = {"sockets": 2, "cores_per_socket": 8, "threads_per_core": 1, "real_memory": 64000}
    measured = {
        "hardware": {"new-a": machine, "new-b": machine},
        "nodes": [{"hosts": "g1,g3,old7", "hardware": "new-a"}, {"hosts": "g[2,5]", "hardware": "new-b"}],
    }
    cluster = load_text(DETECTED, yaml.safe_dump(measured))
    assert cluster.variables["slurm_nodes"][1:] == [
        {"hosts": "g[1,3]", "hardware": "new-a", "address": "10.0.0.[1,3]", "Weight": 9},
        {"hosts": "g[2,5]", "hardware": "new-b", "address": "10.0.0.[2,5]", "Weight": 9},
        {"hosts": "g4", "hardware": "detected", "address": "10.0.0.4", "Weight": 9},
    ]
    assert set(cluster.variables["slurm_hardware_types"]) == {"e2-standard-4", "n1-t4", "new-a", "new-b"}
    assert cluster.groups["hardware_detected"] == ["g1", "g2", "g3", "g4", "g5"]
    assert cluster.groups["hardware_new_a"] == ["g1", "g3"]


@pytest.mark.parametrize(
    ("cluster_file", "expected"),
    [
        ("/x/my.cluster.yml", "/x/my.hardware.yml"),
        ("cluster.yml", "hardware.yml"),
        ("/cluster.yml/big-cluster.yaml", "/cluster.yml/big-hardware.yaml"),
    ],
)
def test_hardware_file(cluster_file: str, expected: str) -> None:
    assert hardware_file(cluster_file) == expected


NODE_KEYS = "hosts, hardware, address and the parameters of a NodeName line"
MACHINE_KEYS = (
    "sockets, cores_per_socket, threads_per_core, real_memory, boards, cpus, tmp_disk, gres, "
    "gres_conf, fabric and the parameters of a NodeName line"
)
MACHINE = {"sockets": 1, "cores_per_socket": 1, "threads_per_core": 1, "real_memory": 1000}
PORT = {"device": "mlx5_[0,2]", "link": "InfiniBand", "rate": 400}


def nodes(*entries: Any) -> str:
    """The guide's file with further node entries."""
    return changed(nodes=[*yaml.safe_load(GUIDE)["nodes"], *entries])


def hardware(**entries: Any) -> str:
    """The guide's file with further machine types."""
    return changed(hardware={**yaml.safe_load(GUIDE)["hardware"], **entries})


def gres(*entries: Any) -> str:
    """The guide's file with a machine type with generic resources."""
    return hardware(a={**MACHINE, "gres": list(entries)})


def partitions(*entries: Any) -> str:
    """The guide's file with further partitions."""
    return changed(partitions=[*yaml.safe_load(GUIDE)["partitions"], *entries])


FILES = f"{', '.join(SITE_FILES)}, scripts that Prolog and Epilog of slurm_conf name without a path"

# Wrong files: each file, and all problems that are found, each without the name of the file.
WRONG: dict[str, tuple[str, list[str]]] = {
    "empty": ("", [f"found None, allowed: a mapping with {', '.join(key.name for key in KEYS)}"]),
    "no mapping": ("[a]", [f"found ['a'], allowed: a mapping with {', '.join(key.name for key in KEYS)}"]),
    "no YAML": ("a: [", ["line 2: cannot be read as YAML: did not find expected node content"]),
    "vault": (
        "a: !vault x",
        ["line 1: a: found 'x' with the tag '!vault', allowed: no tag; write a text in quotes"],
    ),
    "other plugin": (
        changed(plugin="constructed"),
        ["plugin: found 'constructed', allowed: gpucluster.slurm.cluster"],
    ),
    "missing keys": (
        changed(name=None, controllers=None, nodes=None, partitions=None),
        ["controllers: missing", "name: missing", "nodes: missing", "partitions: missing"],
    ),
    "unknown key": (
        changed(hardwear={}),
        [f"hardwear: unknown key, did you mean 'hardware'? allowed: {', '.join(key.name for key in KEYS)}"],
    ),
    "unknown key, none near": (
        changed(xyz=1),
        # Those of Ansible, such as keyed_groups, are allowed and not offered.
        [f"xyz: unknown key, allowed: {', '.join(key.name for key in KEYS)}"],
    ),
    "key twice": (
        GUIDE + "name: b\nlogin: login1\n",
        ["name: is given twice, in lines 3 and 23", "login: is given twice, in lines 6 and 24"],
    ),
    "time as number": (
        GUIDE.replace('"2-00:00:00"', "12:00:00"),
        ["partitions[1].MaxTime: found 12:00:00, which YAML reads as a number to the base 60: write it in quotes"],
    ),
    "wrong types": (
        changed(name=True, controllers=["head"], slurm_conf="KillWait=3", addresses=None, login=None),
        [
            "name: found True, allowed: a text; YAML reads it as a boolean, so write it in quotes",
            "controllers: found ['head'], allowed: a text",
            "slurm_conf: found 'KillWait=3', allowed: a mapping, key: value",
        ],
    ),
    "upper case name": (
        changed(name="HPC"),
        ["name: found 'HPC', allowed: lower case letters, digits, '.', '-' and '_', such as hpc-demo"],
    ),
    "bad hostlist": (
        changed(controllers="head[1-"),
        ["controllers: found 'head[1-', bad hostlist 'head[1-': its brackets do not match"],
    ),
    "bad host": (
        changed(controllers="he;ad"),
        ["controllers: found 'he;ad', 'he;ad' is not a host name, allowed: a hostlist such as compute[01-16]"],
    ),
    "host twice in a list": (
        changed(controllers="head,head"),
        ["controllers: found 'head,head', head is listed twice"],
    ),
    "two databases": (changed(database="db[1-2]"), ["database: found 'db[1-2]', allowed: the name of one host"]),
    "a host with a blank": (changed(database="db "), ["database: found 'db ', allowed: the name of one host"]),
    "ports that collide": (
        changed(
            slurm_conf={"SlurmdPort": 22, "SlurmctldPort": 6819},
            nodes=[{"hosts": "head", "hardware": "e2-standard-4", "Port": 3306}, *yaml.safe_load(GUIDE)["nodes"][1:]],
        ),
        [
            "slurm_conf.AccountingStoragePort: found '6819' on head, where SlurmctldPort is 6819, "
            "allowed: another port",
            "slurm_conf.SlurmdPort: found '22' on compute01, where ssh is 22, allowed: another port",
            "nodes[0].Port: found '3306' on head, where MariaDB is 3306, allowed: another port",
        ],
    ),
    "template": (
        changed(name="{{ x }}"),
        ["name: found '{{ x }}', templates are not evaluated here; set the variable in group_vars instead"],
    ),
    "state not shared": (
        changed(controllers="head[1-2]"),
        [
            "slurm_conf.StateSaveLocation: missing: 2 controllers share their state, "
            "so name a directory that all of them mount"
        ],
    ),
    "state in a relative path": (
        changed(slurm_conf={"StateSaveLocation": "state"}),
        ["slurm_conf.StateSaveLocation: found 'state', allowed: an absolute path such as /shared/slurm"],
    ),
    "node: unknown key": (
        nodes({"hosts": "a", "hardwear": "n1-t4"}),
        [
            f"nodes[2].hardwear: unknown key, did you mean 'hardware'? allowed: {NODE_KEYS}",
            "nodes[2].hardware: missing",
        ],
    ),
    "node: Slurm parameter misspelt": (
        nodes({"hosts": "a", "hardware": "n1-t4", "weight": 1, "MemSpecLimits": 3}),
        [
            f"nodes[2].MemSpecLimits: unknown key, did you mean 'MemSpecLimit'? allowed: {NODE_KEYS}",
            f"nodes[2].weight: unknown key, did you mean 'Weight'? allowed: {NODE_KEYS}",
        ],
    ),
    "node: derived parameter": (
        nodes({"hosts": "a", "hardware": "n1-t4", "NodeAddr": "1.2.3.4", "gres": "gpu:2"}),
        [
            "nodes[2].NodeAddr: Slurm's NodeAddr is derived from address: set that",
            "nodes[2].gres: Slurm's gres is derived from gres of its hardware: set that",
        ],
    ),
    "node: no mapping": (nodes("a"), [f"nodes[2]: found 'a', allowed: a mapping with {NODE_KEYS}"]),
    "node: parameter of a wrong type": (
        nodes({"hosts": "a", "hardware": "n1-t4", "Weight": {"a": 1}, "Reason": "a\nb"}),
        [
            "nodes[2].Reason: found 'a\\nb', 'a\\nb' "
            "is not a valid value in a Slurm configuration: it has more than one line",
            "nodes[2].Weight: found {'a': 1}, allowed: a value, or a list of values",
        ],
    ),
    "node twice": (
        nodes({"hosts": "compute[02-03]", "hardware": "n1-t4"}),
        ["nodes[2].hosts: compute02 is defined twice, first in nodes[1]"],
    ),
    "hosts that Slurm calls by one name": (
        changed(
            controllers="demo.login",
            database="demo.login",
            login="head.example.org",
            nodes=[
                {"hosts": "head", "hardware": "e2-standard-4"},
                {"hosts": "demo.compute[01-02]", "hardware": "n1-t4"},
                {"hosts": "n1.a.org,n2.a.org", "hardware": "n1-t4"},
            ],
            partitions=[],
            addresses=None,
        ),
        [
            f"{key}: found '{first}' and '{second}', Slurm calls both hosts '{label}', the part before the first dot, "
            f"allowed: host names that differ before it{example}"
            for key, first, second, label, example in (
                ("nodes[1].hosts", "demo.compute01", "demo.compute02", "demo", ", such as compute02"),
                ("controllers", "demo.compute01", "demo.login", "demo", ", such as login"),
                ("database", "demo.compute01", "demo.login", "demo", ", such as login"),
                ("login", "head", "head.example.org", "head", ""),
            )
        ],
    ),
    "wrong files": (
        changed(
            slurm_conf={"Prolog": ["first.sh", "/opt/second"]},
            slurm_files={
                "topology.conf": "a\nb\0c",
                "topolgy.conf": "",
                "slurm.conf": "",
                "mpi.conf": {"a": 1},
                "first.sh": "",
                "second": "",
            },
        ),
        [
            "slurm_files.topology.conf: line 2: found a NUL, where Slurm ends the text, allowed: a text without it",
            f"slurm_files.topolgy.conf: unknown file, did you mean 'topology.conf'? allowed: {FILES}",
            "slurm_files.slurm.conf: is derived from slurm_conf: set that",
            "slurm_files.mpi.conf: found {'a': 1}, allowed: the text of the file",
            "slurm_files.first.sh: is empty, allowed: #! and the path of an interpreter, such as #!/bin/bash, as the "
            "first bytes",
            f"slurm_files.second: unknown file, allowed: {FILES}",
        ],
    ),
    "node: unknown machine type": (
        nodes({"hosts": "a", "hardware": "n1-t8"}),
        [
            "nodes[2].hardware: found 'n1-t8', unknown machine type, did you mean 'n1-t4'? "
            "allowed: e2-standard-4, n1-t4, detected"
        ],
    ),
    "address list too long": (
        nodes({"hosts": "a[1-2]", "hardware": "n1-t4", "address": "10.0.0.[1-3]"}),
        ["nodes[2].address: found 3 for 2 hosts, allowed: one address for each host"],
    ),
    "address twice": (
        nodes({"hosts": "a", "hardware": "n1-t4", "address": "10.182.0.4"}),
        ["nodes[2].address: 10.182.0.4 is the address of head already"],
    ),
    "bad address": (
        nodes({"hosts": "a", "hardware": "n1-t4", "address": "10.0.0.1/8"}),
        [
            "nodes[2].address: found '10.0.0.1/8', '10.0.0.1/8' is not a host name, "
            "allowed: a list of addresses such as 10.1.0.[1-16]"
        ],
    ),
    "no IP address": (
        nodes({"hosts": "a[1-2]", "hardware": "n1-t4", "address": "10.0.0.[255-256]"}),
        ["nodes[2].address: found '10.0.0.[255-256]', '10.0.0.256' does not appear to be an IPv4 or IPv6 address"],
    ),
    "long value": (
        changed(slurm_conf=["KillWait=30"] * 20),
        [f"slurm_conf: found {str(['KillWait=30'] * 20)[:77]}..., allowed: a mapping, key: value"],
    ),
    "address of a host that is none": (
        changed(addresses={"login1": "10.0.0.1", "logn2": "10.0.0.2"}),
        [
            "addresses.logn2: found 'logn2', unknown host, did you mean 'login1'? "
            f"allowed: the hosts of {', '.join(key.name for key in SERVERS)} and nodes"
        ],
    ),
    "second address": (
        changed(addresses={"head": "10.0.0.1"}),
        ["addresses.head: head has an address already, 10.182.0.4"],
    ),
    "machine: missing key": (
        hardware(a={"sockets": 1, "cores_per_socket": 1}),
        ["hardware.a.real_memory: missing", "hardware.a.threads_per_core: missing"],
    ),
    "machine: wrong type": (
        hardware(a={**MACHINE, "sockets": "two", "real_memory": 0, "gres": "gpu:2"}),
        [
            "hardware.a.sockets: found 'two', allowed: a whole number from 1",
            "hardware.a.real_memory: found 0, allowed: a whole number from 1",
            "hardware.a.gres: found 'gpu:2', allowed: a list",
        ],
    ),
    "machine: derived parameter": (
        hardware(a={**MACHINE, "CPUs": 4}),
        [
            "hardware.a.CPUs: Slurm's CPUs is derived from cpus, or sockets, cores_per_socket and threads_per_core: "
            "set that"
        ],
    ),
    "machine: unknown key": (
        hardware(a={**MACHINE, "Wieght": 4}),
        [f"hardware.a.Wieght: unknown key, did you mean 'Weight'? allowed: {MACHINE_KEYS}"],
    ),
    "fabric: unknown key": (
        hardware(a={**MACHINE, "fabric": {"port": []}}),
        [
            "hardware.a.fabric.port: unknown key, did you mean 'ports'? allowed: ports",
            "hardware.a.fabric.ports: missing",
        ],
    ),
    "fabric: not a list": (
        hardware(a={**MACHINE, "fabric": {"ports": PORT}}),
        [f"hardware.a.fabric.ports: found {PORT}, allowed: a list"],
    ),
    "port: nothing": (
        hardware(a={**MACHINE, "fabric": {"ports": [{"device": "mlx5_0"}]}}),
        ["hardware.a.fabric.ports[0].link: missing", "hardware.a.fabric.ports[0].rate: missing"],
    ),
    "port: wrong values": (
        hardware(a={**MACHINE, "fabric": {"ports": [{"device": "/dev/x", "port": 0, "link": "IB", "rate": "400G"}]}}),
        [
            "hardware.a.fabric.ports[0].device: found '/dev/x', allowed: adapters in /sys/class/infiniband such as "
            "mlx5_[0-3]",
            "hardware.a.fabric.ports[0].port: found 0, allowed: a whole number from 1",
            "hardware.a.fabric.ports[0].link: found 'IB', allowed: InfiniBand, Ethernet",
            "hardware.a.fabric.ports[0].rate: found '400G', allowed: a whole number from 1",
        ],
    ),
    "port: twice": (
        hardware(a={**MACHINE, "fabric": {"ports": [PORT, {**PORT, "device": "mlx5_[2-3]"}]}}),
        ["hardware.a.fabric.ports[1].device: found mlx5_2/1, which is listed twice"],
    ),
    "machine: boards": (
        hardware(a={**MACHINE, "boards": 2}),
        ["hardware.a.sockets: found 1, allowed: a multiple of boards, 2"],
    ),
    "machine named detected": (
        hardware(detected=MACHINE),
        ["hardware.detected: 'detected' stands for hardware that is measured, choose another name"],
    ),
    "machine: bad name": (
        hardware(**{"a b": MACHINE}),
        ["hardware.a b: found 'a b', allowed: letters, digits, '.', '-' and '_'"],
    ),
    "gres: unknown key": (
        gres({"name": "gpu", "File": "/dev/nvidia0"}),
        [
            "hardware.a.gres[0].File: unknown key, did you mean 'file'? "
            "allowed: name, type, file, count, cores, links, flags, autodetect, mig"
        ],
    ),
    "gres: count of files": (
        gres({"name": "gpu", "file": "/dev/nvidia[0-3]", "count": 8}),
        ["hardware.a.gres[0].count: found 8, but '/dev/nvidia[0-3]' are 4 files"],
    ),
    "gres: typed and untyped": (
        gres({"name": "gpu", "type": "t4", "file": "/dev/nvidia0"}, {"name": "gpu", "file": "/dev/nvidia1"}),
        ["hardware.a.gres[1].type: either all or none of the 'gpu' of a machine have 'type'"],
    ),
    "gres: file twice": (
        gres({"name": "gpu", "file": "/dev/nvidia[0-3]"}, {"name": "gpu", "file": "/dev/nvidia[2-4]"}),
        ["hardware.a.gres[1].file: /dev/nvidia[2-3] is in another entry already"],
    ),
    "partition: unknown node": (
        partitions({"name": "p", "nodes": "compute[01-04]"}),
        [
            "partitions[3].nodes: found 'compute[03-04]', unknown node, did you mean 'compute02'? "
            "allowed: ALL, head,compute[01-02]"
        ],
    ),
    "partition: wrong node entry is no further problem": (
        changed(
            nodes=[{"hosts": "head[", "hardware": "n1-t4"}], addresses={}, partitions=[{"name": "p", "nodes": "head"}]
        ),
        ["nodes[0].hosts: found 'head[', bad hostlist 'head[': its brackets do not match"],
    ),
    "two defaults": (
        partitions({"name": "p", "nodes": "head", "default": True}),
        ["partitions[3].default: partitions[0] is the default already, allowed: one"],
    ),
    "partition twice": (
        partitions({"name": "cpu", "nodes": "head"}),
        ["partitions[3].name: 'cpu' is defined twice, first in partitions[0]"],
    ),
    "partition: bad name": (
        partitions({"name": "Default", "nodes": "head"}),
        ["partitions[3].name: found 'Default', allowed: any other name, since this one means something else to Slurm"],
    ),
    "partition: keys": (
        partitions({"name": "p", "nodes": "head", "maxtime": 1, "Default": True, "default": "maybe"}),
        [
            "partitions[3].Default: Slurm's Default is derived from default: set that",
            "partitions[3].maxtime: unknown key, did you mean 'MaxTime'? "
            "allowed: name, nodes, default and the parameters of a PartitionName line",
            "partitions[3].default: found 'maybe', allowed: true or false",
        ],
    ),
    "partition: defaults for each GPU, without one": (
        partitions({"name": "p", "nodes": "head", "DefCPUPerGPU": "auto"}),
        [
            "partitions[3].DefCPUPerGPU: found auto, allowed: a number, "
            "since no node of this partition is known to have GPUs"
        ],
    ),
    "slurm_conf: keys": (
        changed(slurm_conf={"ClusterName": "x", "KilWait": 3, "Nope": None, "nodename": "x"}),
        [
            "slurm_conf.ClusterName: Slurm's ClusterName is derived from name: set that",
            "slurm_conf.KilWait: unknown key, did you mean 'KillWait'? allowed: the parameters of slurm.conf",
            "slurm_conf.nodename: Slurm's nodename is derived from nodes: set that",
            "slurm_conf.Nope: unknown key, allowed: the parameters of slurm.conf",
        ],
    ),
    "slurm_conf: values that no release takes": (
        changed(
            slurm_conf={
                "KillWait": "30s",
                "UsePAM": True,
                "PrologFlags": ["Contain", "RunInJob"],
                "Prolog": ["/a", "/b"],
                "SlurmdDebug": "loud",
            },
        ),
        [
            "slurm_conf.KillWait: found '30s', allowed: a whole number from 0 to 65535, or UNLIMITED",
            "slurm_conf.SlurmdDebug: found 'loud', "
            "allowed: quiet, fatal, error, info, verbose, debug, debug2, debug3, debug4, debug5, or 0 to 9",
        ],
    ),
    "slurm_conf: lines": (
        changed(slurm_conf={"NodeSet": "fast"}),
        ["slurm_conf.NodeSet: found 'fast', allowed: a mapping that starts with NodeSet, and has Feature and Nodes"],
    ),
    "slurm_conf: keys of lines": (
        changed(
            slurm_conf={
                "NodeSet": [{"NodeSet": "a", "Featur": "x"}],
                "DownNodes": [{"DownNodes": "head", "Reason": ["a", True]}],
                "PowerAction": {"NodeSet": "a"},
            }
        ),
        [
            "slurm_conf.DownNodes: found [{'DownNodes': 'head', 'Reason': ['a', True]}], Reason: ['a', True] is not a "
            "valid value in a Slurm configuration: write each element in quotes",
            "slurm_conf.NodeSet: found [{'NodeSet': 'a', 'Featur': 'x'}], unknown key, did you mean 'Feature'? "
            "allowed: Feature, NodeSet, Nodes",
            "slurm_conf.PowerAction: found {'NodeSet': 'a'}, "
            "allowed: a mapping that starts with PowerAction, and has Location and Program",
        ],
    ),
    "slurm_conf: no text": (
        changed(
            slurm_conf={
                "GpuFreqDef": 'a "b"',
                "LaunchParameters": ["test_exec", True],
                "MailDomain": True,
                "Prolog": [True],
                "SlurmctldTimeout": "\u0663",
            }
        ),
        [
            "slurm_conf.GpuFreqDef: found 'a \"b\"', 'a \"b\"' is not a valid value in a Slurm configuration: "
            "it has quotes and would have to be quoted",
            "slurm_conf.LaunchParameters: found ['test_exec', True], ['test_exec', True] is not a valid value in a "
            "Slurm configuration: write each element in quotes",
            "slurm_conf.MailDomain: found True, allowed: a text; YAML reads it as a boolean, so write it in quotes",
            "slurm_conf.Prolog: found [True], [True] is not a valid value in a Slurm configuration: "
            "write each element in quotes",
            "slurm_conf.SlurmctldTimeout: found '\u0663', allowed: a whole number from 0 to 65535, or UNLIMITED",
        ],
    ),
    "slurm_conf: a boolean in the place of a keyword or a number": (
        changed(
            partitions=[{"name": "long", "nodes": "ALL", "PreemptMode": False, "OverSubscribe": False, "Hidden": True}],
            slurm_conf={"SelectType": True, "JobRequeue": True, "PriorityFavorSmall": True},
            cgroup_conf={"CgroupPlugin": False},
        ),
        [
            "slurm_conf.JobRequeue: found True, allowed: a whole number from 0 to 65535, or UNLIMITED",
            "slurm_conf.SelectType: found True, Slurm does not come with 'YES', allowed: cons_tres, linear",
            "partitions[0].PreemptMode: found False, 'NO' is unknown, allowed: cancel, cluster, gang, off, on, "
            "priority, requeue, suspend, within; YAML reads it as a boolean, so write it in quotes",
            "cgroup_conf.CgroupPlugin: found False, Slurm does not come with 'NO', allowed: autodetect, disabled, v1, "
            "v2",
        ],
    ),
    "a boolean whose text Slurm reads as a keyword": (
        GUIDE.replace('MaxTime: "2-00:00:00"', "PreemptMode: OFF"),
        ["partitions[1].PreemptMode: found OFF, which YAML reads as false: write it in quotes"],
    ),
    "a boolean, where neither it nor its text is right": (
        GUIDE.replace('MaxTime: "2-00:00:00"', "MaxTime: OFF"),
        [
            "partitions[1].MaxTime: found 'OFF', allowed: minutes, minutes:seconds, hours:minutes:seconds, days-hours "
            "and so on, or UNLIMITED"
        ],
    ),
    "a boolean as it is written, where its text is as wrong": (
        changed(slurm_conf={"PreemptMode": False}),
        [
            "slurm_conf.PreemptMode: found False, 'NO' is unknown, allowed: cancel, cluster, gang, off, on, "
            "priority, requeue, suspend, within"
        ],
    ),
    "a boolean, where its text is wrong": (
        GUIDE.replace('MaxTime: "2-00:00:00"', "Hidden: OFF"),
        ["partitions[1].Hidden: found OFF, which YAML reads as false: write false"],
    ),
    "a number, where its text is as right": (
        GUIDE.replace('MaxTime: "2-00:00:00"', "MaxNodes: 010"),
        ["partitions[1].MaxNodes: found 010, which YAML reads as the number 8: write 8, or a text in quotes"],
    ),
    "numbers that Slurm cannot keep": (
        hardware(
            a={**MACHINE, "sockets": 70000},
            b={**MACHINE, "tmp_disk": 2**64, "real_memory": 2**64},
            c={**MACHINE, "sockets": 256, "cores_per_socket": 256},
            d={**MACHINE, "gres": [{"name": "fpga", "count": 2**63}]},
        ),
        [
            "hardware.a.sockets: found 70000, allowed: a whole number from 1 to 65535",
            f"hardware.b.real_memory: found {2**64}, allowed: a whole number from 1 to {2**64 - 1}",
            f"hardware.b.tmp_disk: found {2**64}, allowed: a whole number from 1 to 4294967295",
            "hardware.c: found 65536 CPUs, allowed: up to 65535",
            f"hardware.d.gres[0].count: found {2**63}, allowed: a whole number from 1 to {2**63 - 2}",
        ],
    ),
    "ports of nodes": (
        nodes(
            {"hosts": "c0", "hardware": "e2-standard-4", "Port": "x"},
            {"hosts": "c1", "hardware": "e2-standard-4", "Port": 70000},
            {"hosts": "c2", "hardware": "e2-standard-4", "Port": ""},
            {"hosts": "c[3-4]", "hardware": "e2-standard-4", "Port": "7000-7001"},
        ),
        [
            "nodes[2].Port: found 'x', allowed: a port from 1 to 65535, or one for each node such as 7000-7003",
            "nodes[3].Port: found 70000, allowed: a port from 1 to 65535, or one for each node such as 7000-7003",
        ],
    ),
    "cgroup_conf": (
        changed(cgroup_conf={"ConstrainCore": True}),
        [
            "cgroup_conf.ConstrainCore: unknown key, did you mean 'ConstrainCores'? "
            "allowed: the parameters of cgroup.conf"
        ],
    ),
    "specialized resources": (
        nodes(
            {"hosts": "c0", "hardware": "e2-standard-4", "MemSpecLimit": 15990, "CoreSpecCount": 2},
            {"hosts": "c1", "hardware": "e2-standard-4", "CPUSpecList": "0-4", "CoreSpecCount": 1},
            {"hosts": "c2", "hardware": "e2-standard-4", "CPUSpecList": "x"},
            {"hosts": "c3", "hardware": "e2-standard-4", "CPUSpecList": "0-3", "MemSpecLimit": 15989},
        ),
        [
            "nodes[2].MemSpecLimit: found 15990, allowed: a number below 15990, the real_memory of the hardware",
            "nodes[2].CoreSpecCount: found 2, allowed: a number below 2, the cores of the hardware",
            "nodes[3].CPUSpecList: found '0-4', allowed: indexes of CPUs from 0 to 3, such as 0-1",
            "nodes[3].CoreSpecCount: Slurm ignores it where CPUSpecList is set: leave one of the two out",
            "nodes[4].CPUSpecList: found 'x', allowed: indexes of CPUs from 0 to 3, such as 0-1",
        ],
    ),
    "accounting": (
        changed(
            accounting={
                "qso": [],
                "accounts": [{"name": "a", "Parent": "b"}, {"name": "b", "Parent": "a", "GrpTRS": 1}, "vision"],
                "users": [{"name": "u"}],
                "reservations": [{"name": "r", "Node": "ALL", "Duration": "long"}, "s"],
            }
        ),
        [
            "accounting.qso: unknown key, did you mean 'qos'? "
            "allowed: limits, qos, accounts, users, reservations, purge",
            "accounting: account b: GrpTRS: unknown to Slurm, did you mean 'GrpTRES'?",
            "accounting: user u: has no account; name its DefaultAccount, or accounts",
            "accounting: account a: is its own ancestor: a in b in a",
            "accounting: account b: is its own ancestor: b in a in b",
            "accounting.reservations[0]: Node: unknown to Slurm, did you mean 'Nodes'?",
            "accounting.reservations[0]: Duration: found 'long', allowed: a time such as 1-12:00:00 (in quotes), "
            "or minutes",
            "accounting.reservations[1]: allowed: a mapping with name and parameters of a reservation",
        ],
    ),
    "accounting that is all": (
        changed(
            accounting={"accounts": ["a"], "users": [{"name": "u", "DefaultAccount": "b"}], "purge": True},
            partitions=[{"name": "all", "nodes": "ALL", "QOS": "hihg"}],
        ),
        [
            "accounting: user u in b: account: 'b' is unknown",
            "accounting: partition all: QOS: 'hihg' is unknown",
        ],
    ),
    "accounting without a database": (
        changed(database=None, accounting={"accounts": ["vision"]}),
        ["accounting: needs a database"],
    ),
    "a node set that is none": (
        changed(
            slurm_conf={"NodeSet": {"NodeSet": "fast", "Nodes": "compute09"}},
            partitions=[
                {"name": "a", "nodes": "fats"},
                {"name": "b", "nodes": "fast"},
                {"name": "c", "nodes": "blocks{b1}"},
            ],
        ),
        [
            "partitions[2].nodes: found 'blocks{b1}', unknown function, did you mean 'block'? "
            "allowed: block, blockwith, feature, switch, switchwith",
            "partitions[0].nodes: found 'fats', unknown node, did you mean 'fast'? "
            "allowed: ALL, fast, head,compute[01-02]",
            "partitions[1].nodes: found 'compute09', unknown node, did you mean 'compute02'? "
            "allowed: ALL, fast, head,compute[01-02]",
        ],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong(case: str) -> None:
    text, expected = WRONG[case]
    assert problems(text) == [f"my.cluster.yml: {problem}" for problem in expected]


# The cases that an inventory without a cluster file cannot have, or that Ansible does not let a rule see.
FILE_ONLY = {
    "empty": "the file as a whole",
    "no mapping": "the file as a whole",
    "no YAML": "Ansible reads the files of a plain inventory",
    "vault": "Ansible reads the files of a plain inventory",
    "other plugin": "a key that only the plugin has",
    "unknown key": "a variable that no role has may be of anybody",
    "unknown key, none near": "a variable that no role has may be of anybody",
    "key twice": "Ansible warns of it by itself",
    "time as number": "a variable has the number alone",
    "a boolean whose text Slurm reads as a keyword": "a variable has the boolean alone",
    "a boolean, where neither it nor its text is right": "a variable has the value alone",
    "a boolean as it is written, where its text is as wrong": "a variable has the value alone",
    "a boolean, where its text is wrong": "a variable has the value alone",
    "a number, where its text is as right": "a variable has the value alone",
    "bad hostlist": "slurm_controllers are names of hosts",
    "template": "Ansible evaluates variables",
    "one group for two names": "the groups are made by the plugin",
    "address of a host that is none": "its key has another form, below",
    "second address": "its key has another form, below",
}
# Likewise single problems of the other cases.
IN_A_FILE = {
    "controllers: found ['head'], allowed: a text": "the variable is a list",
    "nodes: missing": "the variable has a default",
    "partitions: missing": "the variable has a default, which preflight refuses",
    "accounting.qso: unknown key, did you mean 'qos'? allowed: limits, qos, accounts, users, reservations, purge": (
        "a variable that no role has may be of anybody"
    ),
    "login: found 'head' and 'head.example.org', Slurm calls both hosts 'head', the part before the first dot, "
    "allowed: host names that differ before it": "login hosts are a group, and no variable",
}


def variables_of(text: str) -> dict[str, Any]:
    """The variables of a plain inventory that says the same as a cluster file."""
    file = yaml.safe_load(text)
    accounting = {f"slurm_accounting_{key}": value for key, value in file.pop("accounting", {}).items()}
    names = {
        **{
            key: f"slurm_{key}" for key in ("controllers", "database", "registry", "nodes", "partitions", "cgroup_conf")
        },
        "name": "slurm_cluster_name",
        "storage": "slurm_storage",
        "hardware": "slurm_hardware_types",
        "slurm_conf": "slurm_conf",
        "slurm_files": "slurm_files",
    }
    variables = {variable: file[key] for key, variable in names.items() if key in file}
    if isinstance(file.get("controllers"), str):
        variables["slurm_controllers"] = expand(file["controllers"])
    addresses = [{"hosts": hosts, "address": address} for hosts, address in file.get("addresses", {}).items()]
    return {**variables, **accounting, "slurm_addresses": addresses}


def in_variables(problem: str) -> str:
    """A problem of the cluster file, as it is for the variables."""
    for pattern, replacement in {
        r"^accounting\.reservations": "slurm_accounting_reservations",
        r"^accounting:": "slurm_accounting_*:",
        r"^(hardware|cgroup_conf|name|controllers|database|nodes|partitions)\b": r"slurm_\1",
        r"\b(first in |allowed: |see )(nodes|partitions|hardware)([\[.])": r"\1slurm_\2\3",
        r"(: |and )(partitions\[\d+\]) is": r"\1slurm_\2 is",
        r"(derived from (?:.*)?)\b(name|nodes|hardware)\b": r"\1slurm_\2",
        r"slurm_name\b": "slurm_cluster_name",
        r"^slurm_conf\.AccountingStoragePort": "slurmdbd_conf.DbdPort",
        r"slurm_hardware\b": "slurm_hardware_types",
    }.items():
        problem = re.sub(pattern, replacement, problem)
    return problem


def test_the_guide_as_variables_is_right() -> None:
    assert model_errors(variables_of(GUIDE), ["head", "login1"]) == []


def test_what_the_plugin_makes_of_a_right_file_is_right() -> None:
    accounting = {"accounts": ["vision"], "users": [{"name": "u", "DefaultAccount": "vision"}]}
    cluster = load_text(changed(accounting=accounting))
    assert model_errors(cluster.variables, [*cluster.addresses]) == []


def test_what_slurm_would_refuse_or_misread_is_refused_with_the_other_errors() -> None:
    """It takes a SuspendTime that is no number for 0, and slurmctld does not start with a wrong topology.conf."""
    topology = "# comment\nSwitchName=s1 Nodes=h[041-08]\n"
    with pytest.raises(ModelError) as error:
        load_text(changed(slurm_conf={"SuspendTime": "soon"}, slurm_files={"topology.conf": topology}, database="x["))
    assert {problem.removeprefix("my.cluster.yml: ").partition(":")[0] for problem in error.value.problems} == {
        "database",
        "slurm_conf.SuspendTime",
        "slurm_files.topology.conf",
    }
    for value in (600, "INFINITE", "-1"):
        load_text(changed(slurm_conf={"SuspendTime": value}))


def test_what_a_program_or_another_file_has_is_no_key() -> None:
    with pytest.raises(ModelError) as error:
        load_text(changed(topology={}, gpus=2, qos=[], slurmdbd_conf={}, slurm_conff={}))
    assert [problem.removeprefix("my.cluster.yml: ") for problem in error.value.problems] == [
        "gpus: unknown key: a machine type has them, such as hardware.NAME.gres",
        "qos: unknown key: it is in accounting: accounting.qos",
        f"slurm_conff: unknown key, did you mean 'slurm_conf'? allowed: {', '.join(key.name for key in KEYS)}",
        "slurmdbd_conf: is a variable, no key: set it in group_vars/slurm_cluster.yml, in the directory of this file",
        "topology: unknown key: write the text of topology.conf or topology.yaml in slurm_files",
    ]


@pytest.mark.parametrize("case", [case for case in WRONG if case not in FILE_ONLY])
def test_wrong_variables_are_checked_as_a_wrong_file(case: str) -> None:
    text, expected = WRONG[case]
    assert model_errors(variables_of(text), ["head", "login1"]) == [
        in_variables(problem) for problem in expected if problem not in IN_A_FILE
    ]


def test_a_variable_does_not_say_how_its_boolean_was_written() -> None:
    """It may have been `off`."""
    assert model_errors(variables_of(changed(slurm_conf={"PreemptMode": False})), ["head", "login1"]) == [
        "slurm_conf.PreemptMode: found False, 'NO' is unknown, allowed: cancel, cluster, gang, off, on, "
        "priority, requeue, suspend, within; YAML reads it as a boolean, so write it in quotes"
    ]


def test_wrong_addresses_in_variables() -> None:
    """An inventory may repeat the address of a node, and its other hosts have addresses as well."""
    addresses = [
        {"hosts": "store1", "address": "10.0.0.9"},
        {"hosts": "compute[01-02]", "address": "10.182.0.[2-3]"},
        {"hosts": "logn2", "address": "10.0.0.2"},
        {"hosts": "head", "address": "10.0.0.1"},
        {"hosts": "head"},
        "head",
    ]
    found = model_errors({**variables_of(GUIDE), "slurm_addresses": addresses}, ["head", "login1", "store1"])
    assert found == [
        "slurm_addresses[4].address: missing",
        "slurm_addresses[5]: found 'head', allowed: a mapping with hosts, address",
        "slurm_addresses[2]: found 'logn2', unknown host, did you mean 'login1'? "
        "allowed: the hosts of the inventory and of slurm_nodes",
        "slurm_addresses[3]: head has an address already, 10.182.0.4",
        "slurm_addresses[4]: found 0 for 1 hosts, allowed: one address for each host",
    ]


def test_memory_is_set_aside_also_where_it_is_no_resource() -> None:
    """slurmd keeps to MemSpecLimit with CR_Core, too; the cross-checks of the files say what jobs may take."""
    nodes = [{"hosts": "head", "hardware": "e2-standard-4", "MemSpecLimit": 1}]
    conf = {"SelectTypeParameters": "CR_Core"}
    text = changed(nodes=nodes, partitions=[{"name": "p", "nodes": "ALL"}], addresses=None, slurm_conf=conf)
    assert load_text(text).variables["slurm_nodes"] == nodes


def test_a_cluster_with_a_dot_in_its_name() -> None:
    assert load_text(changed(name="hpc.demo")).variables["slurm_cluster_name"] == "hpc.demo"


def test_several_nodes_of_one_host() -> None:
    """Two slurmd on a host have one address and ports of their own."""
    hardware = yaml.safe_load(GUIDE)["hardware"]
    nodes = [
        {"hosts": "head", "hardware": "n1-t4", "address": "10.0.0.1", "Port": 6900},
        {"hosts": "n[1-2]", "hardware": "n1-t4", "address": "10.0.0.1,10.0.0.1", "Port": "[6901-6902]"},
    ]
    text = changed(hardware=hardware, nodes=nodes, partitions=[{"name": "p", "nodes": "ALL"}])
    assert load_text(text).addresses == {**dict.fromkeys(("head", "n1", "n2"), "10.0.0.1"), "login1": "10.182.0.9"}


@pytest.mark.parametrize(
    ("options", "node_address", "login_address", "wrong"),
    [
        (None, "fd00::1", "10.0.0.1", "nodes[0].address: found 'fd00::1', {6}"),
        (["NoAddrCache"], "10.0.0.1", "fd00::2", "addresses.login1: found 'fd00::2', {6}"),
        ("NoAddrCache,EnableIPv6", "fd00::1", "10.0.0.1", ""),
        (["enableipv6"], "FD00::1", "fd00::2", ""),
        ("EnableIPv6,DisableIPv4", "fd00::1", "login.example", ""),
        ("EnableIPv6,DisableIPv4", "fd00::1", "10.0.0.1", "addresses.login1: found '10.0.0.1', {4}"),
    ],
)
def test_addresses_that_slurm_does_not_use(options: Any, node_address: str, login_address: str, wrong: str) -> None:
    """Slurm asks the resolver for the kinds of addresses that CommunicationParameters allows (`xgetaddrinfo`)."""
    text = changed(
        nodes=[{"hosts": "head", "hardware": "n1-t4", "address": node_address}],
        partitions=[{"name": "p", "nodes": "ALL"}],
        addresses={"login1": login_address},
        slurm_conf={"CommunicationParameters": options} if options else {},
    )
    if not wrong:
        load_text(text)
        return
    kinds = {
        "{6}": "an IPv6 address, allowed: IPv4 addresses, or EnableIPv6 in slurm_conf.CommunicationParameters",
        "{4}": "an IPv4 address, allowed: IPv6 addresses, since slurm_conf.CommunicationParameters has DisableIPv4",
    }
    assert problems(text) == [f"my.cluster.yml: {wrong.replace(wrong[-3:], kinds[wrong[-3:]])}"]


def test_problems_of_the_hardware_file_name_it() -> None:
    measured = {
        "hardware": {"a": {**MACHINE, "sockets": 0}, "n1-t4": MACHINE},
        "nodes": [{"hosts": "g1", "hardware": "b"}, {"hosts": "g[1-2]", "hardware": "a", "Weight": 1}],
    }
    assert problems(DETECTED, yaml.safe_dump(measured)) == [
        "my.hardware.yml: hardware.a.sockets: found 0, allowed: a whole number from 1",
        "my.hardware.yml: nodes[1].Weight: unknown key, allowed: hosts, hardware",
        "my.hardware.yml: nodes[1].hosts: g1 is defined twice, first in nodes[0]",
        "my.hardware.yml: nodes[0].hardware: found 'b', unknown machine type, allowed: a, n1-t4",
        "my.cluster.yml: hardware.n1-t4: is in my.hardware.yml too: give it another name",
    ]


def test_documents_that_were_not_read_are_wrong_too() -> None:
    with pytest.raises(ModelError, match=r"^a.cluster.yml: x: is bad\n"):
        load(Document("a.cluster.yml", {}, [("x", "is bad")]))


MISSING = "missing: 2 controllers share their state, so name a directory that all of them mount"


@pytest.mark.parametrize(
    ("slurm_conf", "controllers", "error"),
    [
        ({}, 1, ""),
        ({"StateSaveLocation": None}, 1, ""),
        ({"StateSaveLocation": "/var/lib/slurm/slurmctld"}, 1, ""),
        ({"StateSaveLocation": "/shared/slurm"}, 3, ""),
        ({"StateSaveLocation": "state"}, 1, "found 'state', allowed: an absolute path such as /shared/slurm"),
        ({"StateSaveLocation": "./state"}, 2, "found './state', allowed: an absolute path such as /shared/slurm"),
        ({"StateSaveLocation": ""}, 1, "found '', allowed: an absolute path such as /shared/slurm"),
        ({"StateSaveLocation": ["/a"]}, 1, "found ['/a'], allowed: an absolute path such as /shared/slurm"),
        ({}, 2, MISSING),
        ({"StateSaveLocation": None}, 2, MISSING),
    ],
)
def test_the_path_of_the_state_is_absolute(slurm_conf: dict[str, Any], controllers: int, error: str) -> None:
    problems: list[str] = []
    check_state_location(schema.Checker("", problems), slurm_conf, controllers)
    assert problems == ([f"slurm_conf.StateSaveLocation: {error}"] if error else [])


@pytest.mark.parametrize("addresses", [True, {"hosts": "head"}, "head"])
def test_addresses_that_are_no_list(addresses: Any) -> None:
    variables = {**variables_of(GUIDE), "slurm_addresses": addresses}
    assert model_errors(variables, ["head", "login1"]) == [f"slurm_addresses: found {addresses!r}, allowed: a list"]


def test_a_mistake_in_the_addresses_of_many_hosts_is_one_message() -> None:
    hosts, addresses = "gpu-[1-2000]", "10.1.[0-7].[1-250]"
    nodes = [{"hosts": "gpu[1-2000]", "hardware": "e2-standard-4"}]
    text = changed(
        nodes=nodes, partitions=[{"name": "p", "nodes": "ALL"}], controllers="gpu1", database=None, login=None
    )
    start = time.process_time()
    assert problems(
        text.replace("login1: 10.182.0.9", f"'{hosts}': '{addresses}'").replace("registry: images1", "")
    ) == [
        f"my.cluster.yml: addresses.{hosts}: found '{hosts}', unknown host, did you mean 'gpu1'? "
        f"allowed: the hosts of {', '.join(key.name for key in SERVERS)} and nodes"
    ]
    assert time.process_time() - start < 2


def test_addresses_that_many_hosts_have_already_are_one_message() -> None:
    addresses = {"compute[01-02]": "10.182.0.[12-13]", "images1,login1": "10.182.0.[2-3]"}
    assert problems(changed(addresses=addresses)) == [
        "my.cluster.yml: addresses.compute[01-02]: compute[01-02] have addresses already, 10.182.0.[2-3]",
        "my.cluster.yml: addresses.images1,login1: 10.182.0.[2-3] are the addresses of compute[01-02] already",
    ]


def test_more_nodes_than_slurm_allows() -> None:
    nodes = [{"hosts": f"{name}[1-60000]", "hardware": "e2-standard-4"} for name in "abcdefgh"]
    start = time.process_time()
    found = problems(changed(nodes=nodes, addresses={}, controllers="a1", database="a1", login="a1"))
    assert "my.cluster.yml: nodes: found 480000 hosts, allowed: up to 65536" in found
    assert time.process_time() - start < 5


LONG = "x" * 100_000


@pytest.mark.parametrize(
    "keys",
    [
        {LONG: 1},
        {"name": LONG},
        {"controllers": LONG},
        {"controllers": f"n[{LONG}]"},
        {"login": [LONG]},
        {"nodes": {LONG: LONG}},
        {"hardware": {LONG: {}}},
        {"partitions": [{"name": LONG, "nodes": LONG}]},
        {"addresses": {LONG: LONG}},
        {"slurm_conf": {"KillWait": LONG, LONG: 1}},
        {"slurm_conf": {"DebugFlags": [LONG, LONG]}},
        {"accounting": {"qos": LONG, "accounts": [{"name": f"{LONG} "}], "users": [{"name": LONG, LONG: 1}]}},
        {"accounting": {"reservations": [{"name": "r", LONG: 1, "Duration": LONG, "Nodes": f"n[{LONG}"}]}},
    ],
    ids=range(13),
)
def test_messages_about_long_values_are_short(keys: dict[str, Any]) -> None:
    found = problems(changed(**keys))
    assert max(map(len, found)) <= MESSAGE


def test_very_many_problems_are_shown_in_part() -> None:
    nodes = [{"hosts": f"n{i}", "hardware": "e2-standard-4", "Wait": 1} for i in range(1000)]
    with pytest.raises(ModelError, match=r"\nand \d+ more problems$") as error:
        load_text(changed(nodes=nodes))
    assert len(str(error.value).splitlines()) == 101


def test_spank_plugins() -> None:
    entries = [{"plugin": "a.so", "arguments": ["x=1"], "required": True}]
    assert load_text(changed(plugstack=entries)).variables["slurm_plugstack"] == entries
    assert "slurm_plugstack" not in load_text(GUIDE).variables  # it may be in group_vars
    assert problems(changed(plugstack=[{"plugin": "a.so"}, {"plugin": "a.so"}, {"argument": 1}])) == [
        "my.cluster.yml: plugstack[2].argument: unknown key, did you mean 'arguments'? "
        "allowed: plugin, arguments, required",
        "my.cluster.yml: plugstack[2].plugin: missing",
        "my.cluster.yml: plugstack: a.so is listed twice, and would run twice",
    ]
