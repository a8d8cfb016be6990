# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of Slurm's parameters."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils import parameters, schema

TABLES = {
    "SLURM_CONF": parameters.SLURM_CONF,
    "NODE": parameters.NODE,
    "PARTITION": parameters.PARTITION,
    "CGROUP_CONF": parameters.CGROUP_CONF,
}


@pytest.mark.parametrize("table", TABLES)
def test_names_differ_by_more_than_case(table: str) -> None:
    """Slurm compares names without case, so that two spellings of one name would be two parameters here."""
    assert len({name.lower() for name in TABLES[table]}) == len(TABLES[table])


@pytest.mark.parametrize(
    ("table", "release", "name"),
    [
        ("SLURM_CONF", "22.05", "SlurmctldPlugstack"),
        ("SLURM_CONF", "24.11", "HashPlugin"),
        ("SLURM_CONF", "26.05", "MetricsType"),
        ("NODE", "24.11", "RestrictedCoresPerGPU"),
        ("NODE", "26.05", "GresConf"),
        ("PARTITION", "22.05", "PriorityJobFactor"),
        ("PARTITION", "24.11", "PowerDownOnIdle"),
        ("CGROUP_CONF", "22.05", "MinKmemSpace"),
        ("CGROUP_CONF", "26.05", "CgroupSlice"),
    ],
)
def test_every_release_is_there(table: str, release: str, name: str) -> None:
    assert name in TABLES[table], release


def test_repeated_keys_are_keys() -> None:
    assert parameters.LINES <= parameters.REPEATED <= parameters.SLURM_CONF


def test_what_the_model_makes_is_a_parameter() -> None:
    assert set(schema.HARDWARE.made) <= parameters.NODE
    assert set(schema.NODE.made) <= parameters.NODE
    assert set(schema.PARTITION.made) - {"Default", "Nodes"} == set()
    assert set(schema.SLURM_CONF.made) <= parameters.SLURM_CONF


@pytest.mark.parametrize(
    ("name", "expected"),
    [("KilWait", "KillWait"), ("KILLWAIT", "KillWait"), ("SlurmctlPort", "SlurmctldPort"), ("xyz", None)],
)
def test_nearest(name: str, expected: str | None) -> None:
    assert parameters.nearest(name, parameters.SLURM_CONF) == expected
