# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of defaults."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import parameters
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions import defaults
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.default_records import (
    ALWAYS,
    FIRST,
    LAST,
    OPTION,
    SET,
    Default,
)

OF_SLURM = [row for row in defaults.DEFAULTS if row.file != defaults.MARIADB]


def test_each_row_has_a_reason_and_a_source() -> None:
    assert [row.key for row in defaults.DEFAULTS if not (row.reason.endswith((".", ";")) and row.source)] == []
    assert {row.place for row in defaults.DEFAULTS} <= {SET, FIRST, LAST, OPTION}


@pytest.mark.parametrize("row", OF_SLURM, ids=lambda row: f"{row.file} {row.key}")
def test_slurm_knows_each_parameter(row: Default) -> None:
    assert parameters.find(row.file, row.key) is not None


def test_a_parameter_is_written_in_one_way() -> None:
    spelled = {(row.file, row.key.lower()): row.key for row in defaults.DEFAULTS}
    assert [row.key for row in defaults.DEFAULTS if spelled[row.file, row.key.lower()] != row.key] == []


def test_a_generation_follows_the_one_that_it_replaces() -> None:
    known: dict[tuple[str, str], int] = {}
    for row in defaults.DEFAULTS:
        assert row.generation >= known.get((row.file, row.key), 1)
        known[row.file, row.key] = row.generation


def test_an_adopted_cluster_keeps_paths_of_its_own() -> None:
    found = defaults.fixed(defaults.SLURM)
    assert found["SlurmdLogFile"] is None
    assert found["KillWait"] == 30
    assert "PriorityType" not in found
    assert {row.key for row in defaults.DEFAULTS if row.of_collection and row.when is not ALWAYS} == set()
