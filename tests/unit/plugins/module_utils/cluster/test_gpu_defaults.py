# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DefCPUPerGPU and DefMemPerGPU by the hardware of a partition."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.gpu_defaults import with_gpu_defaults
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import partition_lines

CPU: dict[str, Any] = {"sockets": 1, "cores_per_socket": 8, "threads_per_core": 2, "real_memory": 32000}
H100 = {**CPU, "gres": [{"name": "gpu", "file": "/dev/nvidia[0-3]"}, {"name": "shard", "count": 16}]}
T4 = {**CPU, "gres": [{"name": "gpu", "type": "t4", "count": 1}, {"name": "gpu", "type": "a2", "count": 2}]}
MIG = {**CPU, "gres": [{"name": "gpu", "type": "h100", "count": 4, "mig": {"1g.10gb": 7}}]}
HARDWARE = {"cpu": CPU, "h100": H100, "t4": T4, "mig": MIG}


@pytest.mark.parametrize(
    ("nodes", "cpus", "memory"),
    [
        pytest.param([{"hosts": "n[1-2]", "hardware": "h100"}], 4, 8000, id="equal nodes"),
        pytest.param([{"hosts": "n1", "hardware": "h100"}, {"hosts": "n2", "hardware": "cpu"}], 4, 8000, id="no GPUs"),
        pytest.param([{"hosts": "n1", "hardware": "t4"}], 4, 10666, id="whole cores"),
        pytest.param(
            [{"hosts": "n1", "hardware": "h100"}, {"hosts": "n2", "hardware": "h100", "MemSpecLimit": 4000}],
            4,
            7000,
            id="the least of all nodes",
        ),
        pytest.param([{"hosts": "n1", "hardware": "h100", "CoreSpecCount": 1}], 2, 8000, id="cores for the system"),
        pytest.param([{"hosts": "n1", "hardware": "h100", "CPUSpecList": "0-3,8"}], 2, 8000, id="CPUs for the system"),
        pytest.param([{"hosts": "n1", "hardware": "mig"}], 1, 1142, id="more GPUs than CPUs"),
    ],
)
def test_a_job_gets_the_share_of_a_gpu(nodes: list[dict[str, Any]], cpus: int, memory: int) -> None:
    partition = {"name": "gpu", "nodes": "ALL", "DefCPUPerGPU": "auto", "DefMemPerGPU": "auto", "MaxTime": 60}
    expected = {**partition, "DefCPUPerGPU": cpus, "DefMemPerGPU": memory}
    assert with_gpu_defaults([partition], nodes, HARDWARE, {}) == [expected]
    assert partition["DefCPUPerGPU"] == "auto", "the variable of the inventory stays"


def test_other_partitions_stay_as_they_are() -> None:
    nodes = [{"hosts": "n1", "hardware": "h100"}, {"hosts": "n2", "hardware": "t4"}]
    settings = {"NodeSet": {"NodeSet": "fast", "Nodes": "n1"}}
    lines = partition_lines(
        [
            {"name": "a", "nodes": "fast", "DefCPUPerGPU": "auto", "DefMemPerGPU": 100},
            {"name": "b", "nodes": "ALL", "DefMemPerGPU": "auto"},
            {"name": "c", "nodes": "n2", "MaxCPUsPerNode": 4},
        ],
        nodes,
        HARDWARE,
        settings,
    )
    assert lines.splitlines() == [
        "PartitionName=a Nodes=fast DefCPUPerGPU=4 DefMemPerGPU=100",
        "PartitionName=b Nodes=ALL DefMemPerGPU=8000",
        "PartitionName=c Nodes=n2 MaxCPUsPerNode=4",
    ]


def test_a_partition_without_gpus_is_refused() -> None:
    nodes = [{"hosts": "n1", "hardware": "cpu"}]
    message = "partition p: DefMemPerGPU: found auto, allowed: a number, since no node of this partition is known"
    with pytest.raises(ValueError, match=message):
        with_gpu_defaults([{"name": "p", "nodes": "n1", "DefMemPerGPU": "auto"}], nodes, HARDWARE, {})
