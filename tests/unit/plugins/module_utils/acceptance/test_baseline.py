# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reviewed baseline: its file, which entries hold, and what a run proposes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import yaml
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.baseline import (
    HISTORY,
    BaselineEntry,
    BaselineError,
    Conditions,
    baseline_file,
    comparable,
    conditions_of,
    proposed,
    read_baseline,
    trend,
    unused,
    written,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.measurements import MeasuredValue

GIB = 2**30
ENTRY: dict[str, Any] = {
    "hardware": "h100",
    "driver": "580",
    "image": "",
    "test": "all_reduce_pair",
    "nodes": 2,
    "size": 16 * GIB,
    "median": 391.2,
    "spread": 1.1,
    "floor": 372,
    "unit": "GB/s",
    "values": 16,
    "measured": "2026-11-28",
}


def value(node: str, number: float, test: str = "stream", job: int = 1, **others: Any) -> MeasuredValue:
    base = MeasuredValue(test, number, "GB/s", (node,), None, None, "", "h100", "580.159.04", "", job, float(job))
    return replace(base, **others)


def values(numbers: Sequence[float], **others: Any) -> list[MeasuredValue]:
    return [value(f"n{place}", number, **others) for place, number in enumerate(numbers)]


def read(*entries: Any) -> list[BaselineEntry]:
    return read_baseline(list(entries), "my.baseline.yml")


# -- the file --------------------------------------------------------------------------------------------------------


def test_it_lies_next_to_the_cluster_file() -> None:
    assert baseline_file("/etc/my.cluster.yml") == "/etc/my.baseline.yml"
    assert baseline_file("my.cluster.yaml") == "my.baseline.yaml"


def test_it_is_read_as_a_person_writes_it() -> None:
    """YAML reads 580 as a number and the day as a date; driver, image and size can be left out."""
    text = """
    - {hardware: h100, driver: 580, image: "", test: all_reduce_pair, nodes: 2, size: 17179869184, median: 391.2,
       spread: 1.1, floor: 372, unit: GB/s, values: 16, measured: 2026-11-28}
    - {hardware: cpu, test: stream, nodes: 1, median: 480, spread: 0, floor: 450, unit: GB/s, values: 4,
       measured: 2026-11-28, history: [[2026-11-27, 479]]}
    """
    first, second = read_baseline(yaml.safe_load(text), "my.baseline.yml")
    assert first == read(ENTRY)[0]
    assert (second.driver, second.size, second.history) == ("", None, (("2026-11-27", 479.0),))


def test_what_is_written_is_read_again() -> None:
    (entry,) = read({**ENTRY, "history": [["2026-11-27", 390.0]]})
    assert read(written(entry)) == [entry]
    assert "history" not in written(replace(entry, history=()))


def test_an_empty_file_has_no_entries() -> None:
    assert read_baseline(None, "my.baseline.yml") == []


WRONG = [
    ({"flor": 1}, "[0]: found the key 'flor', allowed: hardware, driver"),
    ({"test": "all_reduce_pairs"}, "[0].test: found 'all_reduce_pairs', allowed: gpu_memory_bandwidth"),
    ({"test": "gpu_ecc"}, "[0].test: found 'gpu_ecc', allowed: gpu_memory_bandwidth"),
    ({"hardware": ""}, "[0].hardware: found '', allowed: a machine type"),
    ({"driver": "new"}, "[0].driver: found 'new', allowed: the branch of a driver such as '580', or an empty text"),
    ({"nodes": 3}, "[0].nodes: found 3, allowed: 2 for all_reduce_pair"),
    ({"size": "16G"}, "[0].size: found '16G', allowed: bytes, or null"),
    ({"median": float("nan")}, "[0].median: found nan, allowed: a number above 0, up to 1e+12"),
    ({"floor": 0}, "[0].floor: found 0, allowed: a number above 0, up to 1e+12"),
    ({"floor": 400}, "[0].floor: found 400, allowed: above 0 and at most the median, 391.2"),
    ({"spread": -1}, "[0].spread: found -1, allowed: a number from 0"),
    ({"unit": "Gb/s"}, "[0].unit: found 'Gb/s', allowed: GB/s, the unit of all_reduce_pair"),
    ({"values": True}, "[0].values: found True, allowed: a whole number above 0"),
    ({"measured": "yesterday"}, "[0].measured: found 'yesterday', allowed: a day such as 2026-11-28"),
    ({"history": [["2026-11-27"]]}, "[0].history: found [['2026-11-27']], allowed: a list of up to 12 days"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[str(change)[:40] for change, _message in WRONG])
def test_a_mistake_gives_one_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BaselineError) as raised:
        read({**ENTRY, **change})
    assert str(raised.value).startswith(f"my.baseline.yml: {message}")
    assert "\n" not in str(raised.value)


def test_the_probable_name_is_said() -> None:
    for change, meant in (({"flor": 1}, "floor"), ({"test": "all_reduce_pairs"}, "all_reduce_pair")):
        with pytest.raises(BaselineError, match=f"did you mean {meant}\\?"):
            read({**ENTRY, **change})


def test_each_entry_is_checked() -> None:
    with pytest.raises(BaselineError) as raised:
        read({**ENTRY, "floor": 0}, 5, {**ENTRY, "size": 8 * GIB}, ENTRY, ENTRY, {"test": "stream"})
    assert [line.partition(": ")[2][:22] for line in str(raised.value).split("\n")] == [
        "[0].floor: found 0, al",
        "[1]: found 5, allowed:",
        "[4]: is the same as [3",
        "[5]: hardware is missi",
        *["[5]: nodes is missing"],
        "[5]: median is missing",
        "[5]: spread is missing",
        "[5]: floor is missing",
        "[5]: unit is missing",
        "[5]: values is missing",
        "[5]: measured is missi",
    ]
    with pytest.raises(BaselineError, match="allowed: a list of up to"):
        read_baseline({"baseline": []}, "my.baseline.yml")


# -- which entries hold ----------------------------------------------------------------------------------------------


def test_driver_and_image_count_only_where_they_matter() -> None:
    assert conditions_of(value("n1", 1.0, image="torch")) == Conditions("h100", "", "", "stream", 1, None)
    gpu = value("n1", 1.0, "gpu_matrix", gpu=0, image="torch")
    assert conditions_of(gpu) == Conditions("h100", "580", "torch", "gpu_matrix", 1, None)


def test_the_largest_size_counts_and_repetitions_are_one_value() -> None:
    measured = [
        value("n1", 100.0, size=GIB),
        value("n1", 380.0, size=8 * GIB),
        value("n1", 390.0, size=8 * GIB),
        value("n1", 100.0, size=8 * GIB),
        value("n1", 370.0, size=8 * GIB, job=2),
    ]
    ((conditions, own),) = comparable(measured).items()
    assert conditions.size == 8 * GIB
    assert [(each.value, each.job) for each in own] == [(380.0, 1), (370.0, 2)]


def test_a_node_that_prints_a_larger_size_escapes_no_comparison() -> None:
    measured = [*values([480.0] * 4, size=GIB), value("n0", 999.0, size=2**49)]
    assert [conditions.size for conditions in comparable(measured)] == [GIB]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hardware": "h200"}, "hardware h200 and is not used for hardware h100"),
        ({"driver": "575"}, "driver 575 and is not used for driver 580"),
        ({"image": "torch"}, "image torch and is not used for image none"),
        ({"size": 8 * GIB}, f"size {8 * GIB} and is not used for size {16 * GIB}"),
    ],
)
def test_a_baseline_of_something_else_is_not_used(change: dict[str, Any], said: str) -> None:
    (wanted,) = (entry.conditions for entry in read(ENTRY))
    assert unused(read({**ENTRY, **change}), [wanted]) == [f"all_reduce_pair: the baseline is of {said}"]
    assert unused(read({**ENTRY, **change}, ENTRY), [wanted]) == []
    assert unused(read({**ENTRY, "test": "all_gather_pair"}), [wanted]) == []


# -- a proposal ------------------------------------------------------------------------------------------------------


def test_a_run_proposes_median_spread_and_floor() -> None:
    (entry,) = proposed([], values([478.0, 480.0, 482.0, 481.0, 479.0]), "2026-11-28")
    assert (entry.hardware, entry.driver, entry.test, entry.nodes) == ("h100", "", "stream", 1)
    assert (entry.median, entry.values, entry.measured, entry.history) == (480.0, 5, "2026-11-28", ())
    assert 0 < entry.spread < 5
    assert entry.floor == 456.0
    assert read(written(entry)) == [entry]


def test_uneven_values_give_a_lower_floor_that_is_above_0() -> None:
    (entry,) = proposed([], values([100.0, 480.0, 20.0, 960.0, 300.0, 700.0]), "2026-11-28")
    assert 0 < entry.floor < 100
    assert read(written(entry)) == [entry]


def test_a_few_values_propose_nothing() -> None:
    assert proposed([], values([480.0] * 3), "2026-11-28") == []


def test_nodes_without_a_machine_type_propose_nothing() -> None:
    assert proposed([], values([480.0] * 5, hardware=""), "2026-11-28") == []


def test_what_is_named_is_no_measure() -> None:
    numbers = [480.0, 480.0, 480.0, 480.0, 300.0]
    (entry,) = proposed([], values(numbers), "2026-11-28", left_out=["n4"])
    assert (entry.values, entry.floor) == (4, 456.0)


def test_a_node_that_was_measured_often_counts_once() -> None:
    again = [value("n0", 400.0, job=number) for number in range(2, 9)]
    (entry,) = proposed([], [*values([480.0] * 4), *again], "2026-11-28")
    assert (entry.values, entry.median) == (4, 480.0)


def test_a_run_raises_a_floor_and_never_lowers_it() -> None:
    (first,) = proposed([], values([480.0] * 5), "2026-11-28")
    (better,) = proposed([first], values([490.0] * 5), "2026-11-29")
    assert (better.median, better.floor, better.history) == (490.0, 465.5, (("2026-11-28", 480.0),))
    (worse,) = proposed([better], values([470.0] * 5), "2026-11-30")
    assert (worse.median, worse.floor) == (470.0, 465.5)
    assert worse.history == (("2026-11-28", 480.0), ("2026-11-29", 490.0))
    (chosen,) = proposed([replace(first, floor=300.0)], values([480.0] * 5), "2026-11-29")
    assert chosen.floor == 456.0


def test_a_run_of_slow_nodes_changes_no_median() -> None:
    """Its median is under the floor, so that it would be no valid baseline."""
    (first,) = proposed([], values([480.0] * 5), "2026-11-28")
    (after,) = proposed([first], values([400.0] * 5), "2026-11-29")
    assert (after.median, after.floor, after.measured) == (480.0, 456.0, "2026-11-28")
    assert after.history == (("2026-11-28", 480.0), ("2026-11-29", 400.0))


def test_others_stay_as_they_are() -> None:
    old = read(ENTRY)
    found = proposed(old, values([480.0] * 4), "2026-11-29")
    assert [entry for entry in found if entry.test == "all_reduce_pair"] == old


def test_a_history_stays_small() -> None:
    entries: list[BaselineEntry] = []
    source = random.Random(1)
    for day in range(1, 29):
        for _again in range(2):
            numbers = [480 + source.random() for _ in range(5)]
            entries = proposed(entries, values(numbers), f"2026-11-{day:02d}")
    (entry,) = entries
    assert [day for day, _median in entry.history] == [f"2026-11-{day:02d}" for day in range(29 - HISTORY, 29)]
    assert read(written(entry)) == [entry]


def test_the_trend_is_since_the_first_run_that_is_known() -> None:
    (entry,) = read({**ENTRY, "median": 390.0, "history": [["2026-10-01", 400.0], ["2026-11-01", 395.0]]})
    assert trend(entry, 380.0) == "-5.0 % since 2026-10-01 (3 runs)"
    assert trend(read(ENTRY)[0], 391.2) == "+0.0 % since 2026-11-28 (1 run)"
