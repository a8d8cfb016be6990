# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node is measured without a control host: good nodes pass, slow ones fail after several jobs."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.baseline import BaselineEntry
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.catalog import TESTS
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.published import PublishedMachine
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.quick_level import (
    MeasuringPlan,
    next_task,
    plan_from_json,
    plan_to_json,
    result,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.tasks import MOST_ROUNDS, NodePlace, Site

# No part of ansible-core takes part.
pytestmark = pytest.mark.once


def entry(test: str) -> BaselineEntry:
    return BaselineEntry("m", "", "", test, 1, None, 100.0, 0.5, 95.0, TESTS[test].unit, 16, "2026-11-28")


PLAN = MeasuringPlan(
    places={
        **{name: NodePlace(name, "m", 0, "all") for name in ("n1", "n2", "n3")},
        "g1": NodePlace("g1", "g", 8, "gpu", account="ops", cards=8),
    },
    site=Site(disk="/tmp"),
    baseline=[entry("stream"), entry("dgemm")],
    machines={"g": PublishedMachine("h100", 8)},
)


def printed(job: int, tests: tuple[str, ...], slow: dict[str, float]) -> dict[str, Any]:
    """What a job on n1 sends, as the record of the measurement has it."""
    noise = random.Random(job)
    lines = []
    for name in tests:
        value = noise.gauss(100, 0.3) * slow.get(name, 1.0)
        one = {"test": name, "value": value, "unit": TESTS[name].unit, "nodes": ["n1"], "gpu": None, "size": None}
        more = {"text": "", "hardware": "m", "driver": "", "image": "", "job": job, "time": 1}
        lines.append(json.dumps(one | more))
    return {"task": "", "job": job, "nodes": "n1", "text": "\n".join(lines), "why": ""}


def measured(slow: dict[str, float]) -> list[dict[str, Any]]:
    """All jobs of a measurement of n1."""
    outputs: list[dict[str, Any]] = []
    while task := next_task(PLAN, "n1", outputs):
        outputs.append(printed(len(outputs) + 1, task.tests, slow))
    return outputs


def test_the_plan_comes_back_from_its_file() -> None:
    text = json.dumps(plan_to_json(PLAN))
    assert plan_from_json(json.loads(text), "measuring.json") == PLAN
    assert text.count('"hardware": "m"') == 3  # the nodes have one record, and the baseline two


def test_a_good_node_passes_after_one_job() -> None:
    outputs = measured({})
    assert len(outputs) == 1
    assert result(PLAN, "n1", outputs).faults == []
    assert [line.partition(":")[0] for line in result(PLAN, "n1", outputs).values] == [
        *("stream", "dgemm", "disk_write_local", "disk_read_local")
    ]


def test_a_slow_node_fails_after_three_jobs_of_the_slow_test_alone() -> None:
    outputs = measured({"stream": 0.8})
    assert len(outputs) == 3
    assert [output["text"].count("\n") for output in outputs] == [3, 0, 0]
    (fault,) = result(PLAN, "n1", outputs).faults
    assert fault.startswith("stream: memory bandwidth (STREAM Triad): 8")


def test_a_job_without_a_result_is_a_fault() -> None:
    outputs = [{"task": "", "job": 7, "nodes": "n1", "text": "", "why": "job 7 has ended as FAILED"}]
    assert next_task(PLAN, "n1", outputs) is None
    assert result(PLAN, "n1", outputs).faults == ["n1: job 7 has ended as FAILED"]


@pytest.mark.parametrize("seed", range(30))
def test_a_measurement_has_an_end(seed: int) -> None:
    choice = random.Random(seed)
    outputs: list[dict[str, Any]] = []
    while task := next_task(PLAN, "n1", outputs):
        slow = {test: choice.choice((1.0, 0.9)) for test in task.tests}
        outputs.append(printed(len(outputs) + 1, task.tests, slow))
        assert len(outputs) <= MOST_ROUNDS


def test_what_is_missing_is_said() -> None:
    lines = "not measured: stream: hpcc: not found\nnot measured: dgemm: hpcc: not found\n"
    shown = result(PLAN, "n1", [{"task": "", "job": 1, "nodes": "n1", "text": lines, "why": ""}])
    assert (shown.faults, shown.missed) == ([], ["stream, dgemm on n1: hpcc: not found"])
