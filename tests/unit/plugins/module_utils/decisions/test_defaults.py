# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of defaults."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.render import slurm_conf as lines
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.schema import NEWEST_GENERATION
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration import parameters
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions import defaults, generations, slurm_conf
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.default_records import (
    ALWAYS,
    FIRST,
    LAST,
    OPTION,
    SET,
    Default,
)
from plain_host import cluster

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


def parameters_of(release: str = "24.11", **variables: Any) -> dict[str, str]:
    """The parameters of slurm.conf before the nodes, as Slurm reads them."""
    text = lines(*slurm_conf.layers(cluster(**variables)["head"], release))
    return {name: value for name, _equals, value in (line.partition("=") for line in text.splitlines())}


def test_the_schema_knows_the_newest_generation() -> None:
    assert max(row.generation for row in defaults.DEFAULTS) == NEWEST_GENERATION


def test_a_cluster_keeps_its_generation() -> None:
    assert "ResumeTimeout" not in parameters_of()
    assert parameters_of(slurm_defaults=2)["ResumeTimeout"] == "600"
    assert parameters_of(slurm_defaults=2, slurm_conf={"resumetimeout": 90})["ResumeTimeout"] == "90"


def test_a_node_that_slurm_does_not_reboot_needs_no_time_for_it() -> None:
    assert "ResumeTimeout" not in parameters_of(slurm_defaults=2, slurm_conf={"rebootprogram": None})


def test_the_newest_generation_is_shown_with_both_values_and_the_reason() -> None:
    (line,) = [line for line in generations.differences(cluster()["head"]) if "ResumeTimeout" in line]
    assert line.startswith("slurm.conf ResumeTimeout: not set -> 600 with defaults: 2. With Slurm's 60 s, a server")
    own = cluster(slurm_conf={"resumetimeout": 90})["head"]
    assert [line for line in generations.differences(own) if "ResumeTimeout" in line] == []
    assert generations.differences(cluster(slurm_defaults=2)["head"]) == []
