# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits on GPUs in whole nodes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.whole_nodes import (
    describe_limits,
    gpus_of_nodes,
    in_nodes,
)

HARDWARE: dict[str, Any] = {
    "hgx": {"gres": [{"name": "gpu", "type": "H100", "file": "/dev/nvidia[0-7]"}]},
    "dgx": {"gres": [{"name": "gpu", "type": "h200", "count": 8}, {"name": "shard", "count": 16}]},
    "small": {"gres": [{"name": "gpu", "type": "a100", "count": 1, "mig": {"1g.10gb": 7}}]},
    "cpu": {},
    "spare": {"gres": [{"name": "gpu", "count": 99}]},
}
NODES = [{"hosts": f"n{i}", "hardware": name} for i, name in enumerate(("hgx", "dgx", "small", "cpu"))]
MACHINES = gpus_of_nodes(NODES, HARDWARE)


def test_machine_types_of_nodes_have_gpus() -> None:
    assert {name: dict(counts) for name, counts in MACHINES.items()} == {
        "hgx": {"gres/gpu": 8, "gres/gpu:h100": 8},
        "dgx": {"gres/gpu": 8, "gres/gpu:h200": 8},
        "small": {"gres/gpu": 7, "gres/gpu:a100_1g.10gb": 7},
    }


@pytest.mark.parametrize(
    ("resource", "count", "text"),
    [
        ("gres/gpu:h100", 8, "1 node of hgx (8 GPUs)"),
        ("gres/gpu:h100", 20, "2 nodes of hgx (8 GPUs each) and 4 GPUs"),
        ("gres/gpu:h100", 9, "1 node of hgx (8 GPUs) and 1 GPU"),
        ("gres/gpu:h100", 7, "less than 1 node of hgx (8 GPUs)"),
        ("gres/gpu:t4", 8, ""),
        ("gres/gpu", 16, "2 nodes of small (7 GPUs each) and 2 GPUs, or 2 nodes of hgx or dgx (8 GPUs each)"),
    ],
)
def test_gpus_are_nodes(resource: str, count: int, text: str) -> None:
    assert in_nodes(resource, count, MACHINES) == text


def test_only_limits_that_are_set_and_count_gpus_are_described() -> None:
    def change(what: str, after: str | None) -> dict[str, Any]:
        return {"what": what, "before": None, "after": after}

    users = [change(f"user u{i} in vision MaxTRESPerJob", "gres/gpu:h100=8") for i in range(300)]
    plan = [
        change("account vision", "vision"),
        change("account vision GrpTRES", "cpu=9,gres/gpu:h100=16"),
        change("account vision GrpTRESMins", "gres/gpu:h100=60"),
        change("account other GrpTRES", ""),
        change("account gone", None),
        change("qos none MaxTRESPerUser", "gres/gpu:h100=0"),
        *users,
    ]
    assert describe_limits(plan, MACHINES) == [
        "account vision: GrpTRES gres/gpu:h100=16: 2 nodes of hgx (8 GPUs each)",
        "user u0 in vision, user u1 in vision, user u2 in vision and 297 more: MaxTRESPerJob gres/gpu:h100=8: "
        "1 node of hgx (8 GPUs)",
    ]
    assert describe_limits(plan, {}) == []
