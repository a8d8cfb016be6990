# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The owners of drains, here, in the roles, in the health check and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils import drains

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("reason", "user", "owner"),
    [
        ("health check gpu: missing", "root", "the health check"),
        ("gpucluster.slurm rolling: to be changed", "root", "rolling"),
        ("gpucluster.slurm remove_nodes: leaves the cluster", "root", "remove_nodes"),
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


def test_the_health_check_has_the_same_words() -> None:
    program = (ROOT / "roles/slurm_health/files/health.py").read_text()
    assert f'PREFIX = "{drains.HEALTH}"' in program
    assert f'APPENDED = "{drains.APPENDED}"' in program


@pytest.mark.parametrize(
    ("role", "variable", "reason"),
    [
        ("nvidia_mig", "__nvidia_mig_reason", drains.MIG),
        ("nvidia_driver", "__nvidia_driver_reason", drains.DRIVER),
    ],
)
def test_roles_have_the_same_reasons(role: str, variable: str, reason: str) -> None:
    assert yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text())[variable] == reason


def test_the_documentation_has_the_same_table() -> None:
    text = (ROOT / "docs/admin/operations.md").read_text().partition("## Drained nodes")[2]
    table = dict(re.findall(r"^\| ([^|]+) \| `([^`]+)`", text, re.MULTILINE))
    assert table == {owner: prefix.strip() for prefix, owner in drains.OWNERS.items()}
