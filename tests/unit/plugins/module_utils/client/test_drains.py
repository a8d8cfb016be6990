# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The owners of drains, here, in the roles, in the health check and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import drains
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import nvidia_driver, nvidia_mig

ROOT = Path(__file__).parents[5]


@pytest.mark.parametrize(
    ("reason", "user", "owner"),
    [
        ("health check gpu: missing", "root", "the health check"),
        ("gpucluster.slurm rolling: to be changed", "root", "rolling"),
        ("gpucluster.slurm accept: stream 59 GB/s", "root", "accept"),
        ("gpucluster.slurm remove_nodes: leaves the cluster", "root", "remove_nodes"),
        ("gpucluster.slurm repair: xid-79", "slurm", "repair"),
        ("gpucluster.slurm: other MIG instances", "root", "MIG"),
        ("gpucluster.slurm: NVIDIA driver", "root", "the NVIDIA driver"),
        ("Kill task failed", "root", "Slurm"),
        ("anything", "slurm", "Slurm"),
        ("bad DIMM", "alice", "a person"),
        ("", "", "a person"),
    ],
)
def test_owners(reason: str, user: str, owner: str) -> None:
    assert drains.owner(reason, user) == owner


def test_a_second_reason_has_another_owner() -> None:
    assert drains.is_only(drains.ROLLING, f"{drains.ROLLING}to be changed")
    assert drains.is_only(drains.ROLLING, f"{drains.ROLLING}to be changed : {drains.REBOOTED}")
    assert not drains.is_only(drains.ROLLING, f"{drains.ROLLING}to be changed : bad DIMM")
    assert not drains.is_only(drains.ROLLING, "bad DIMM")


def test_roles_drain_with_these_reasons() -> None:
    assert (nvidia_mig.DRAIN_REASON, nvidia_driver.DRAIN_REASON) == (drains.MIG, drains.DRIVER)


def test_the_documentation_has_the_same_table() -> None:
    text = (ROOT / "docs/admin/operations.md").read_text().partition("## Drained nodes")[2]
    table = dict(re.findall(r"^\| ([^|]+) \| `([^`]+)`", text, re.MULTILINE))
    assert table == {owner: prefix.strip() for prefix, owner in drains.OWNERS.items()}
