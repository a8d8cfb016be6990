# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each rule about generic resources, with the messages of real daemons that refuse the same files."""

from __future__ import annotations

import pytest
from cross_check_verdicts import GPU, ignored, refused, right, verdict


@pytest.mark.parametrize(
    ("gres", "lines"),
    [
        ("gpu:2", "NodeName=n[1-2] Name=gpu File=/dev/nvidia[0-1]"),
        ("gpu:h100:2(S:0-1)", "NodeName=n[1-2] Name=gpu Type=h100 File=/dev/nvidia[0-1] Cores=0-3"),
        ("gpu:a:1,gpu:b:1", "Name=gpu Type=a File=/dev/x\nName=gpu Type=b File=/dev/y"),
        ("gpu:no_consume:1", "NodeName=n[1-2] Name=gpu MultipleFiles=/dev/x,/dev/y"),
        ("gpu", "Name=gpu File=/dev/nvidia[0-7]"),
        ("gpu:8", "AutoDetect=nvml"),
        ("gpu:8", "NodeName=n[1-2] AutoDetect=nvidia"),
    ],
)
def test_generic_resources_that_go_together(gres: str, lines: str) -> None:
    assert right(f"{GPU}{gres}\n", gres_conf=f"{lines}\n")


def test_other_generic_resources_need_no_files() -> None:
    conf = (
        "GresTypes=gpu,shard,tape\nNodeName=n1 NodeAddr=10.0.0.1 Gres=gpu:2,shard:8,tape:2K\nNodeName=n2 NodeAddr=::2\n"
    )
    gpus = "NodeName=n1 Name=gpu File=/dev/nvidia[0-1]\nNodeName=n1 Name=shard Count=8\n"
    assert right(conf, gres_conf=gpus)
    assert right(conf, gres_conf=f"{gpus}Name=tape\n")


@pytest.mark.parametrize(
    ("gres", "lines", "what"),
    [
        # The node becomes INVAL: gres/gpu count reported lower than configured (2 < 3).
        ("gpu:3", "Name=gpu File=/dev/nvidia[0-1]", "found 'gpu:3', allowed: up to 2, the files in gres.conf"),
        ("gpu:2", "Name=gpu Count=2", "found 'gpu:2', allowed: up to 0, the files in gres.conf"),
        ("gpu:2", "AutoDetect=off", "found 'gpu:2', allowed: up to 0, the files in gres.conf"),
        (
            "gpu:h100:2",
            "Name=gpu Type=h1000 File=/dev/nvidia[0-1]",
            "found 'gpu:h100:2', allowed: up to 0, the files in gres.conf, did you mean 'h1000'?",
        ),
        # gres/gpu type (H100) reported but not configured
        (
            "gpu:h100:1",
            "Name=gpu Type=H100 File=/dev/nvidia0",
            "found 'gpu:h100:1', allowed: up to 0, the files in gres.conf, did you mean 'H100'?",
        ),
        ("gpu:h100:1", "Name=gpu File=/dev/nvidia0", "found 'gpu:h100:1', allowed: up to 0, the files in gres.conf"),
        # slurmd: fatal: Some gpu GRES in slurm.conf have a type while others do not
        (
            "gpu:1,gpu:a:1",
            "AutoDetect=nvml",
            "found 'gpu:1,gpu:a:1', allowed: all or none of the gpu with a type",
        ),
    ],
)
def test_generic_resources_that_slurm_refuses(gres: str, lines: str, what: str) -> None:
    assert refused(f"{GPU}{gres}\n", gres_conf=f"{lines}\n") == f"slurm.conf: NodeName=n[1-2]: Gres: {what}"


@pytest.mark.parametrize(
    ("gres", "lines", "what"),
    [
        (
            "gup:1",
            "",
            "slurm.conf: NodeName=n[1-2]: Gres: found 'gup', allowed: gpu, the GresTypes, did you mean 'gpu'?",
        ),
        (
            "gpu:2",
            "Name=gpu Type=t4 File=/dev/nvidia[0-1]",
            "gres.conf: NodeName=n[1-2]: Type: found 't4', allowed: where Gres in slurm.conf has a type, found 'gpu:2'",
        ),
        (
            "gpu:1",
            "NodeName=n[1-2] Name=gpu File=/dev/nvidia[0-1]",
            "gres.conf: NodeName=n[1-2]: Name: found 'gpu:2', allowed: up to 1, the Gres in slurm.conf",
        ),
        (
            "gpu:1",
            "Name=gpu File=/dev/nvidia0\nName=fpga File=/dev/x",
            "gres.conf: Name: found 'fpga', allowed: gpu, the GresTypes",
        ),
        (
            "gpu:1",
            "NodeName=n[1-3] Name=gpu File=/dev/nvidia0",
            "gres.conf: NodeName: found 'n3', allowed: nodes of slurm.conf",
        ),
    ],
)
def test_generic_resources_that_slurm_ignores(gres: str, lines: str, what: str) -> None:
    assert ignored(f"{GPU}{gres}\n", gres_conf=f"{lines}\n") == what


def test_without_gres_conf_the_nodes_have_their_own() -> None:
    assert right(f"{GPU}gpu:8\n")
    assert right(f"{GPU}gpu:8\n", gres_conf="AutoDetect=nvml\n")
    assert verdict(f"{GPU}gpu:8\n", {"gres.conf": ""})[0] != []


def test_without_grestypes_there_are_no_generic_resources() -> None:
    what = "slurm.conf: NodeName=n1: Gres: found 'gpu', allowed: nothing, the GresTypes"
    assert ignored("NodeName=n1 NodeAddr=10.0.0.1 Gres=gpu:1\n") == what


MACHINE = (
    "NodeName=n[1-2] NodeAddr=10.0.0.[1-2] Sockets=4 CoresPerSocket=4 ThreadsPerCore=2 Gres=gpu:1\nGresTypes=gpu\n"
)


@pytest.mark.parametrize(
    ("cores", "version", "allowed"),
    [
        ("0-1", "24.05.8", ""),
        ("0-1", "24.11.0", "all 4 cores of a socket, such as 0-3, with Slurm 24.11"),
        ("0-3", "24.11.5", ""),
        ("0-7", "25.05.3", ""),
        ("0-5", "25.05.3", "all 4 cores of a socket, such as 0-3, with Slurm 25.05"),
        ("0-3", "26.05.5", ""),
        ("4,5,6-7", "26.05.5", ""),
        ("0-15", "26.05.5", ""),
        ("0-7", "25.11.0", "all 4 cores of one socket, such as 0-3, or all cores, 0-15, with Slurm 25.11"),
        ("0-2", "26.05.5", "all 4 cores of one socket, such as 0-3, or all cores, 0-15, with Slurm 26.05"),
    ],
)
def test_cores_of_generic_resources_by_release(cores: str, version: str, allowed: str) -> None:
    found = verdict(MACHINE, gres_conf=f"NodeName=n[1-2] Name=gpu File=/dev/zero Cores={cores}\n", version=version)
    text = f"gres.conf: NodeName=n[1-2]: Cores: found {cores!r}, allowed: {allowed}"
    assert found == ([text] if allowed else [], [])


@pytest.mark.parametrize(
    "machine", ["Boards=2 SocketsPerBoard=1 CoresPerSocket=2", "CPUs=8 CoresPerSocket=2 ThreadsPerCore=2"]
)
def test_all_cores_of_two_sockets(machine: str) -> None:
    nodes = f"NodeName=n1 NodeAddr=10.0.0.1 {machine} Gres=gpu:1\nGresTypes=gpu\n"
    lines = "Name=gpu File=/dev/zero Cores=0-3\nName=mps Count=100 Cores=0\n"
    assert verdict(nodes, gres_conf=lines, version="26.05.5")[0] == []
