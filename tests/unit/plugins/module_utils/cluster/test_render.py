# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From data to lines of Slurm's files. One case is read by Slurm's own parser."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster import render

T4 = {
    "sockets": 1,
    "cores_per_socket": 1,
    "threads_per_core": 1,
    "real_memory": 3661,
    "gres": [{"name": "gpu", "type": "t4", "file": "/dev/nvidia[0-1]"}],
}
CPU = {"sockets": 2, "cores_per_socket": 4, "threads_per_core": 2, "real_memory": 32100}
HARDWARE: dict[str, dict[str, Any]] = {
    "t4": T4,
    "cpu": CPU,
    "boards": {**CPU, "boards": 2, "tmp_disk": 100, "Features": ["a", "b"], "Weight": 2, "MemSpecLimit": 100},
    "mixed": {
        **CPU,
        "gres": [
            {"name": "gpu", "type": "h100", "file": "/dev/nvidia[0-3]", "cores": "0-3"},
            {"name": "gpu", "type": "h100", "file": "/dev/nvidia[4-7]", "cores": "4-7"},
            {"name": "licence", "count": 5, "flags": ["CountOnly"]},
        ],
    },
}
T4_LINE = "Sockets=1 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=3661 Gres=gpu:t4:2"
CPU_LINE = "Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=32100"

NODE_LINES: list[tuple[list[dict[str, Any]], list[str]]] = [
    ([], []),
    (
        [{"hosts": "compute[01-02]", "hardware": "t4", "address": "10.182.0.[2-3]"}],
        [f"NodeName=compute[01-02] NodeAddr=10.182.0.[2-3] {T4_LINE}"],
    ),
    # Equal nodes are one line, where the first of them stood.
    (
        [
            {"hosts": "a1", "hardware": "t4", "address": "10.0.0.1"},
            {"hosts": "b1", "hardware": "cpu"},
            {"hosts": "a[2-3]", "hardware": "t4", "address": "10.0.0.2,10.0.1.1"},
        ],
        [f"NodeName=a[1-3] NodeAddr=10.0.0.[1-2],10.0.1.1 {T4_LINE}", f"NodeName=b1 {CPU_LINE}"],
    ),
    # Nor can nodes of two entries with a port for each node.
    (
        [
            {"hosts": "a[1-2]", "hardware": "cpu", "Port": "[7001-7002]"},
            {"hosts": "b[1-2]", "hardware": "cpu", "Port": "[7001-7002]"},
        ],
        [f"NodeName={name}[1-2] {CPU_LINE} Port=[7001-7002]" for name in "ab"],
    ),
    # Nodes with and without an address cannot share a line.
    (
        [{"hosts": "a1", "hardware": "cpu", "address": "10.0.0.1"}, {"hosts": "a2", "hardware": "cpu"}],
        [f"NodeName=a1 NodeAddr=10.0.0.1 {CPU_LINE}", f"NodeName=a2 {CPU_LINE}"],
    ),
    (
        [{"hosts": "c1", "hardware": "boards", "Weight": 7, "Port": "[6818-6819]", "Reason": "a b"}],
        [
            "NodeName=c1 Boards=2 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=32100 TmpDisk=100 "
            'Features=a,b Weight=7 MemSpecLimit=100 Port=[6818-6819] Reason="a b"'
        ],
    ),
    ([{"hosts": "d1", "hardware": "mixed"}], [f"NodeName=d1 {CPU_LINE} Gres=gpu:h100:8,licence:5"]),
]


@pytest.mark.parametrize(("nodes", "lines"), NODE_LINES)
def test_node_lines(nodes: list[dict[str, Any]], lines: list[str]) -> None:
    assert render.node_lines(nodes, HARDWARE).splitlines() == lines


def test_ten_thousand_equal_nodes_are_one_line() -> None:
    nodes = [{"hosts": f"n{i:05d}", "hardware": "cpu"} for i in range(10_000)]
    assert render.node_lines(nodes, HARDWARE) == f"NodeName=n[00000-09999] {CPU_LINE}\n"


def test_gres_lines() -> None:
    nodes = [
        {"hosts": "a1", "hardware": "t4"},
        {"hosts": "d[1-2]", "hardware": "mixed"},
        {"hosts": "a2", "hardware": "t4"},
    ]
    assert render.gres_lines(nodes, HARDWARE).splitlines() == [
        "NodeName=a[1-2] Name=gpu Type=t4 File=/dev/nvidia[0-1]",
        "NodeName=d[1-2] Name=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-3",
        "NodeName=d[1-2] Name=gpu Type=h100 File=/dev/nvidia[4-7] Cores=4-7",
        "NodeName=d[1-2] Name=licence Count=5 Flags=CountOnly",
    ]


def test_partition_lines() -> None:
    partitions: list[dict[str, Any]] = [
        {"name": "cpu", "nodes": "head", "default": True},
        {
            "name": "gpu",
            "nodes": "n1,n2",
            "default": False,
            "MaxTime": "2-00:00:00",
            "AllowAccounts": ["a", "b"],
            "QOS": None,
        },
        {"name": "all", "nodes": "ALL", "Hidden": True},
        {"name": "cloud", "nodes": ""},
        {"name": "rack", "nodes": "n1,switch{s1,s2},n2"},
    ]
    assert render.partition_lines(partitions).splitlines() == [
        "PartitionName=cpu Nodes=head Default=YES",
        "PartitionName=gpu Nodes=n[1-2] Default=NO MaxTime=2-00:00:00 AllowAccounts=a,b",
        "PartitionName=all Nodes=ALL Hidden=YES",
        "PartitionName=cloud",
        "PartitionName=rack Nodes=n[1-2],switch{s1,s2}",
    ]


SLURM_CONF: list[tuple[list[dict[str, Any] | None], list[str]]] = [
    ([{}], []),
    ([{"KillWait": 30, "UsePAM": False}], ["KillWait=30", "UsePAM=NO"]),
    # A later layer wins, without regard to case; the key stays where and as it was.
    ([{"KillWait": 30, "UsePAM": True}, None, {"killwait": 5}], ["KillWait=5", "UsePAM=YES"]),
    ([{"KillWait": 30, "UsePAM": True}, {"KILLWAIT": None}], ["UsePAM=YES"]),
    ([{"KillWait": 30}, {"KillWait": None}, {"KillWait": 9}], ["KillWait=9"]),
    ([{"TaskPlugin": ["task/affinity", "task/cgroup"]}], ["TaskPlugin=task/affinity,task/cgroup"]),
    ([{"SlurmctldHost": ["h1(10.0.0.1)", "h2"]}], ["SlurmctldHost=h1(10.0.0.1)", "SlurmctldHost=h2"]),
    ([{"slurmctldhost": "h1"}], ["slurmctldhost=h1"]),
    ([{"NodeSet": [{"NodeSet": "a", "Feature": "x"}, {"NodeSet": "b", "Nodes": "n1"}]}],
     ["NodeSet=a Feature=x", "NodeSet=b Nodes=n1"]),
    ([{"DownNodes": {"DownNodes": "n1", "State": "DOWN", "Reason": "no power"}}],
     ['DownNodes=n1 State=DOWN Reason="no power"']),
    # Quotes, comments, escapes.
    ([{"A": "", "B": "x y", "C": "a#b", "D": "a\\b", "E": 'a"b', "F": "x #y"}],
     ['A=""', 'B="x y"', "C=a\\#b", "D=a\\\\b", 'E=a"b', 'F="x \\#y"']),
]  # fmt: skip


@pytest.mark.parametrize(("layers", "lines"), SLURM_CONF)
def test_slurm_conf(layers: list[dict[str, Any] | None], lines: list[str]) -> None:
    assert render.slurm_conf(*layers).splitlines() == lines


NODE_PARAMETERS = [
    ([], {}),
    (["cpu"], {"DefMemPerCPU": 2006}),
    (["cpu", "t4", "mixed"], {"GresTypes": ["gpu", "licence"], "DefMemPerCPU": 2006}),
    # Jobs cannot use the memory that MemSpecLimit reserves.
    (["boards"], {"DefMemPerCPU": 2000}),
]


@pytest.mark.parametrize(("types", "parameters"), NODE_PARAMETERS)
def test_node_parameters(types: list[str], parameters: dict[str, Any]) -> None:
    nodes = [{"hosts": f"n{i}", "hardware": name} for i, name in enumerate(types)]
    assert render.node_parameters(nodes, HARDWARE) == parameters


def test_host_addresses() -> None:
    entries = [{"hosts": "n[1-2]", "address": "10.0.0.[9-10]"}, {"hosts": "head", "address": "fd00::1"}]
    assert render.host_addresses(entries) == [
        {"name": "n1", "address": "10.0.0.9"},
        {"name": "n2", "address": "10.0.0.10"},
        {"name": "head", "address": "fd00::1"},
    ]
    assert render.host_addresses(entries, ["head", "n2", "other"]) == [
        {"name": "n2", "address": "10.0.0.10"},
        {"name": "head", "address": "fd00::1"},
    ]


ERRORS = [
    (lambda: render.node_lines([{"hardware": "cpu"}], HARDWARE), "{'hardware': 'cpu'} has no 'hosts'"),
    (lambda: render.node_lines([{"hosts": "n1", "hardware": "x"}], {"a": CPU}), "n1: unknown hardware 'x', known: a"),
    (
        lambda: render.node_lines([{"hosts": "n1", "hardware": "detected"}], {}),
        "the hardware of n1 is not known yet: run gpucluster.slurm.discover",
    ),
    (
        lambda: render.node_lines([{"hosts": "n[1-3]", "hardware": "cpu", "address": "10.0.0.[1-2]"}], HARDWARE),
        "'n[1-3]' has 3 hosts, but '10.0.0.[1-2]' has 2 addresses",
    ),
    (
        lambda: render.partition_lines([{"name": "p", "nodes": "n[1-"}]),
        "bad hostlist 'n[1-': its brackets do not match",
    ),
    (
        lambda: render.gres_lines(
            [{"hosts": "n1", "hardware": "x"}],
            {"x": {"gres": [{"name": "gpu", "autodetect": "nvml", "flags": "explicit", "mig": {"1g.5gb": 7}}]}},
        ),
        "{'name': 'gpu', 'autodetect': 'nvml', 'flags': 'explicit', 'mig': {'1g.5gb': 7}} has no 'type'",
    ),
    (
        lambda: render.slurm_conf({"Prolog": "a\nb"}),
        "'a\\nb' is not a valid value in a Slurm configuration: it has more than one line",
    ),
    (
        lambda: render.slurm_conf({"Prolog": 'a "b"'}),
        "'a \"b\"' is not a valid value in a Slurm configuration: it has quotes and would have to be quoted",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[message for _call, message in ERRORS])
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        call()
    assert str(error.value) == message


def test_slurm_reads_what_is_written(tmp_path: Path) -> None:
    program = shutil.which("scontrol")
    if not program:
        pytest.fail("scontrol is not installed: apt-get install slurm-client (make setup does it)")
    nodes = [
        {"hosts": "a[1-2]", "hardware": "t4", "address": "127.0.0.[1-2]"},
        {"hosts": "b1", "hardware": "boards", "Reason": "x # y"},
        {"hosts": "c1", "hardware": "mixed"},
    ]
    settings = {
        "ClusterName": "test",
        "SlurmctldHost": ["localhost"],
        "AuthInfo": "a \\ # b",
        "PrologFlags": ["Alloc", "X11"],
    }
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        render.slurm_conf(settings, render.node_parameters(nodes, HARDWARE))
        + render.node_lines(nodes, HARDWARE)
        + render.partition_lines([{"name": "p", "nodes": "ALL", "default": True, "MaxTime": "1-0"}])
    )
    # Any client reads the whole file before it does anything, and names what it does not understand.
    result = subprocess.run(
        [program, "show", "hostnames", "n1"],
        env={**os.environ, "SLURM_CONF": str(conf)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "n1\n", "")


def test_which_hosts_detect_their_gpus_by_a_method() -> None:
    detected: dict[str, Any] = {"name": "gpu", "type": "h100", "count": 6, "autodetect": "nvml"}
    hardware: dict[str, dict[str, Any]] = {
        "nvml": {"gres": [{"name": "nic"}, detected]},
        "rsmi": {"gres": [detected | {"autodetect": "rsmi"}]},
        "files": {"gres": [{"name": "gpu", "file": "/dev/nvidia0"}]},
        "none": {},
    }
    nodes = [{"hosts": f"{name}[1-2]", "hardware": name} for name in hardware]
    assert render.autodetect_hosts(nodes, hardware, "nvml") == ["nvml1", "nvml2"]


def test_which_hosts_have_mig() -> None:
    whole: dict[str, Any] = {"name": "gpu", "type": "h100", "count": 6}
    split: dict[str, Any] = {"name": "gpu", "type": "h100", "mig": {"1g.10gb": 7}}
    hardware: dict[str, dict[str, Any]] = {
        "both": {"gres": [whole, {"name": "nic"}, split]},
        "off": {"gres": [whole | {"mig": {}}]},
        "whole": {"gres": [whole]},
        "none": {},
    }
    nodes = [{"hosts": f"{name}[1-2]", "hardware": name} for name in hardware]
    both, off = [whole, split], [whole | {"mig": {}}]
    assert render.mig_gres(nodes, hardware) == {"both1": both, "both2": both, "off1": off, "off2": off}
