# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last runs, for the page about the cluster: what is kept of a run, and how much of it at most."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance import runs
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.baseline import proposed
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.measurements import MeasuredValue

TIME = "2026-11-28T10:00:00+00:00"
RESULT: dict[str, Any] = {
    "ok": False,
    "level": "medium",
    "measured": ["n1", "n2", "n3"],
    "left": {"n4": "drained"},
    "named": ["n2", "n3"],
}


def value(node: str, number: float, test: str = "stream", job: int = 1, **others: Any) -> MeasuredValue:
    base = MeasuredValue(test, number, "GB/s", (node,), None, None, "", "h100", "580.159.04", "", job, float(job))
    return replace(base, **others)


def test_what_is_kept_of_a_run() -> None:
    values = [value("n1", 100), value("n2", 101.23456), value("n3", 60)]
    found = runs.run_of(RESULT, ["n2: slow", "n3: slow"], values, [], TIME)
    (row,) = found.pop("values")
    assert found == {
        "finished": TIME,
        "ok": False,
        "level": "medium",
        "measured": 3,
        "left": 1,
        "named": 2,
        "names": "n[2-3]",
        "faults": 2,
        "findings": ["n2: slow", "n3: slow"],
    }
    assert row == {
        "test": "stream",
        "meaning": "memory bandwidth (STREAM Triad)",
        "hardware": "h100",
        "nodes": 1,
        "size": None,
        "driver": "",
        "image": "",
        "values": 3,
        "median": 100,
        "unit": "GB/s",
        "baseline": None,
        "tolerance": 0.05,
        "higher": True,
    }


def test_a_node_that_was_measured_again_has_one_vote() -> None:
    values = [value("n1", 100), value("n2", 90), value("n3", 60), value("n3", 61, job=2), value("n3", 62, job=3)]
    (row,) = runs.medians(values, [])
    assert (row["median"], row["values"]) == (90, 3)


def test_the_largest_size_counts_and_checks_have_no_median() -> None:
    pairs = [
        value(f"n{number}", number * size, "all_reduce_pair", nodes=(f"n{number}", "n9"), size=size)
        for number in (1, 2, 3)
        for size in (8, 1024)
    ]
    checks = [value("n1", 1, "gpu_ecc", unit="ok")]
    (row,) = runs.medians([*pairs, *checks], [])
    assert (row["size"], row["median"], row["nodes"], row["driver"]) == (1024, 2048, 2, "580")


def test_the_baseline_is_that_of_the_same_conditions() -> None:
    values = [value(f"n{number}", 100 + number) for number in range(5)]
    baseline = proposed([], values, "2026-11-28")
    assert [row["baseline"] for row in runs.medians(values, baseline)] == [102]
    other = [replace(each, hardware="a100") for each in values]
    assert [row["baseline"] for row in runs.medians([*values, *other], baseline)] == [None, 102]


def test_tests_have_the_order_of_the_catalog() -> None:
    values = [value("n1", 1, test) for test in ("disk_read_local", "stream", "dgemm")]
    assert [row["test"] for row in runs.medians(values, [])] == ["stream", "dgemm", "disk_read_local"]


def test_a_run_of_a_large_cluster_is_short() -> None:
    names = [f"node{number * 7919 % 99991}x" for number in range(2000)]
    values = [value(name, 100, hardware=f"kind{place}") for place, name in enumerate(names)]
    found = runs.run_of({**RESULT, "named": names}, ["x" * 5000] * 2000, values, [], TIME)
    assert (found["named"], found["faults"]) == (2000, 2000)
    assert (len(found["findings"]), len(found["findings"][0]), len(found["values"])) == (100, 300, 100)
    record: dict[str, Any] = {}
    for _run in range(60):
        record = runs.kept(record, found)
    assert len(record["runs"]) == 50
    assert len(json.dumps(record)) < 2 * 2**20


def test_earlier_runs_are_kept_without_findings() -> None:
    first = runs.run_of(RESULT, ["n2: slow"], [value("n1", 100)], [], TIME)
    second = {**first, "finished": "2026-11-29T10:00:00+00:00"}
    assert runs.kept(runs.kept({}, first), second) == {"runs": [second, {**first, "findings": []}]}


def test_a_record_of_something_else_is_begun_anew() -> None:
    run = runs.run_of(RESULT, [], [], [], TIME)
    for record in ({}, {"runs": None}, {"runs": "x"}, {"runs": [None, "x"]}):
        assert runs.kept(record, run) == {"runs": [run]}
