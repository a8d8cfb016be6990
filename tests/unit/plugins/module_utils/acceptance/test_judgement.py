# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is named by the results of an acceptance run, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.baseline import BaselineEntry, proposed
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.catalog import TESTS
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.judgement import (
    Judgement,
    Options,
    judge,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.measurements import MeasuredValue
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.pairs import schedule
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.published import PublishedMachine

GIB = 2**30
GOOD = [480.0, 481.0, 479.0, 482.0, 478.0, 480.5, 479.5, 481.5]


def value(test: str, number: float, *nodes: str, job: int = 1, **others: Any) -> MeasuredValue:
    base = MeasuredValue(test, number, TESTS[test].unit, nodes, None, None, "", "h100", "580.1", "", job, float(job))
    return replace(base, **others)


def on_nodes(numbers: Sequence[float], test: str = "stream", **others: Any) -> list[MeasuredValue]:
    return [value(test, number, f"n{place}", **others) for place, number in enumerate(numbers)]


def three_jobs(numbers: Sequence[float], test: str = "stream", **others: Any) -> list[MeasuredValue]:
    return [each for job in (1, 2, 3) for each in on_nodes(numbers, test, job=job, **others)]


def entry(test: str = "stream", floor: float = 456.0, **others: Any) -> BaselineEntry:
    base = BaselineEntry("h100", "", "", test, 1, None, 480.0, 1.0, floor, TESTS[test].unit, 16, "2026-11-28")
    return replace(base, **others)


def texts(judgement: Judgement) -> list[str]:
    return [f"{','.join(each.nodes)} {each.gpu}: {each.text}" for each in judgement.findings]


# -- checks ----------------------------------------------------------------------------------------------------------


def test_a_broken_check_names_its_node_and_gpu_at_once() -> None:
    checks = [
        value("gpu_count", 0.0, "n1", text="7 of 8 GPUs"),
        value("gpu_ecc", 0.0, "n2", gpu=3, text="2 uncorrected errors"),
        value("gpu_ecc", 1.0, "n2", gpu=4),
        value("gpu_xid", 0.0, "n3"),
    ]
    found = judge(checks)
    assert texts(found) == [
        "n1 None: number of GPUs: 7 of 8 GPUs",
        "n2 3: uncorrected ECC errors: 2 uncorrected errors",
        "n3 None: Xid errors in the kernel's messages: not as it should be",
    ]
    assert [each.kind for each in found.findings] == ["node", "gpu", "node"]
    assert found.named == ["n1", "n2", "n3"]
    assert {each.source for each in found.findings} == {"check"}


def test_the_last_result_of_a_check_counts() -> None:
    checks = [value("gpu_ecc", 1.0, "n1", gpu=0, job=2), value("gpu_ecc", 0.0, "n1", gpu=0, job=1)]
    assert judge(checks) == Judgement()


# -- nodes and GPUs --------------------------------------------------------------------------------------------------


def test_equal_nodes_are_not_named() -> None:
    assert judge(on_nodes(GOOD)) == Judgement()


def test_a_slow_node_is_measured_again_before_it_is_named() -> None:
    numbers = [*GOOD[:7], 430.0]
    first = judge(on_nodes(numbers))
    assert (first.findings, first.again) == ([], {"stream": ["n7"]})
    # The controls are those nearest to the median: an extreme value would be less so the next time.
    assert first.controls == {"stream": ["n0", "n6", "n2", "n5", "n1", "n4", "n3"]}
    controls = [each for each in three_jobs(numbers) if each.nodes != ("n7",)]
    second = [*controls, value("stream", 430.0, "n7"), value("stream", 431.0, "n7", job=2)]
    assert (judge(second).findings, judge(second).again) == ([], {"stream": ["n7"]})
    found = judge([*second, value("stream", 429.0, "n7", job=3)])
    assert (found.named, found.again) == (["n7"], {})
    assert texts(found) == [
        "n7 None: memory bandwidth (STREAM Triad): 429.0 GB/s, 10.6 % less than the median of 8 nodes, 479.8"
    ]
    (finding,) = found.findings
    assert (finding.kind, finding.source, finding.value, finding.expected) == ("node", "peers", 429.0, 479.75)


def test_a_node_that_was_slow_once_is_not_named() -> None:
    values = [*on_nodes([*GOOD[:7], 430.0]), value("stream", 480.0, "n7", job=2)]
    assert judge(values).findings == []
    assert judge(values).again == {}


def test_fewer_jobs_can_be_asked_for() -> None:
    """With peers alone it takes as many as they show to be needed."""
    assert judge(on_nodes([*GOOD[:7], 430.0]), [entry()], Options(jobs=1)).named == ["n7"]
    assert judge(on_nodes([*GOOD[:7], 430.0]), options=Options(jobs=1)).named == []
    assert judge(on_nodes([*GOOD[:7] * 40, 430.0]), options=Options(jobs=1)).again == {"stream": ["n280"]}


def test_a_single_node_is_judged_by_its_floor() -> None:
    """As before it returns after a repair."""
    assert judge([value("stream", 430.0, "n1", job=job) for job in (1, 2, 3)], [entry()]).named == ["n1"]
    assert judge([value("stream", 470.0, "n1")], [entry()]).findings == []


def test_repetitions_in_a_job_are_no_further_jobs() -> None:
    values = on_nodes([*GOOD[:7], 430.0]) + [value("stream", 430.0, "n7") for _ in range(9)]
    assert judge(values).again == {"stream": ["n7"]}


def test_a_faster_node_is_no_fault_and_makes_no_other_one_guilty() -> None:
    assert judge(three_jobs([*GOOD[:5], 700.0, 720.0, 710.0])).findings == []


def test_a_small_difference_is_none_however_equal_the_others_are() -> None:
    assert judge(three_jobs([480.0] * 7 + [460.0])).findings == []
    assert judge(three_jobs([480.0] * 7 + [450.0])).named == ["n7"]


def test_uneven_values_name_nobody_and_a_note_says_so() -> None:
    found = judge(three_jobs([300.0, 350.0, 400.0, 450.0, 500.0, 550.0, 600.0, 650.0]))
    assert found.findings == []
    assert found.notes[0].startswith("stream (h100): the values of 8 nodes differ so much that one has to be worse by ")


def test_several_slow_nodes_are_named_as_long_as_most_are_good() -> None:
    assert judge(three_jobs([*GOOD[:5], 430.0, 300.0, 410.0])).named == ["n5", "n6", "n7"]


def test_half_of_the_nodes_cannot_be_named_without_a_baseline() -> None:
    numbers = [480.0, 430.0, 431.0, 429.0]
    assert judge(three_jobs(numbers)).findings == []
    assert judge(three_jobs(numbers), [entry()]).named == ["n1", "n2", "n3"]


def test_too_few_nodes_are_not_compared() -> None:
    numbers = [480.0, 480.0, 300.0]
    found = judge(three_jobs(numbers))
    assert found.findings == []
    assert found.notes == [
        "stream (h100): 3 nodes, and 4 are needed for a comparison, since of fewer one cannot say which are as they "
        "should be"
    ]
    found = judge(three_jobs(numbers), [entry()])
    assert found.named == ["n2"]
    assert found.notes[0].endswith("; judged by baseline alone")


def test_nodes_of_another_kind_are_not_compared() -> None:
    others = [each for job in (1, 2, 3) for each in on_nodes([300.0] * 4, job=job)]
    others = [replace(each, nodes=(f"old{each.nodes[0]}",), hardware="v100") for each in others]
    assert judge([*three_jobs(GOOD), *others]).findings == []


@pytest.mark.parametrize("left", [0.9, 0.8])
@pytest.mark.parametrize(
    ("test", "good"),
    [("stream", 480.0), ("gpu_memory_bandwidth", 3000.0), ("gpu_matrix", 700.0), ("host_to_gpu", 55.0)],
)
def test_a_node_with_another_driver_is_compared_with_the_others(test: str, good: float, left: float) -> None:
    """Three nodes have the same branch: without the fourth there would be no comparison at all."""
    gpu = None if test == "stream" else 0
    others = three_jobs([good, good * 1.001, good * 0.999], test, gpu=gpu)
    slow = [value(test, good * left, "n8", gpu=gpu, job=job, driver="575.1") for job in range(1, 7)]
    found = judge([*others, *slow])
    assert found.named == ["n8"]
    assert found.notes[0] == (
        "n8 (h100): branch 575 of NVIDIA's driver, and 580 on n[0-2]: their values are compared with each other"
    )
    # The branch of the slow one gets no floor from it.
    assert [each.driver for each in proposed([], [*others, *slow], "2026-11-29", found.named)] == []


def test_a_floor_holds_for_its_driver_alone() -> None:
    gpus = three_jobs([3000.0] * 4, "gpu_memory_bandwidth", gpu=0)
    odd = [value("gpu_memory_bandwidth", 2950.0, "n8", gpu=0, job=job, driver="575.1") for job in (1, 2, 3)]
    floor = entry("gpu_memory_bandwidth", 2990.0, driver="580", median=3000.0)
    assert judge([*gpus, *odd], [floor]).findings == []
    assert judge([*gpus, *odd], [replace(floor, driver="575")]).named == ["n8"]


def test_a_slow_node_with_another_driver_is_found_by_pairs() -> None:
    names = [f"n{number}" for number in range(6)]
    pairs = [
        value(
            "network_rdma",
            300.0 if "n5" in pair else 390.0,
            *pair,
            job=job,
            driver="575.1" if "n5" in pair else "580.1",
        )
        for job, planned in enumerate(schedule(names, 5, 1), 1)
        for pair in planned
    ]
    assert judge(pairs).named == ["n5"]


@pytest.mark.parametrize(
    ("ports", "said"),
    [
        (["mlx5_3/1"] * 5, "which are fast with others, slowest over mlx5_3/1, down to 97.5 Gb/s"),
        (["mlx5_3/1"] * 4 + ["mlx5_0/1"], "which are fast with others, down to 97.5 Gb/s"),
        ([""] * 5, "which are fast with others, down to 97.5 Gb/s"),
    ],
)
def test_a_node_with_a_slow_port_is_named_with_it(ports: list[str], said: str) -> None:
    """If it is the same port with all partners. Among fast pairs some port is the slowest, too."""
    names, left = [f"n{number}" for number in range(6)], [*ports]
    pairs = [
        value("network_rdma", 97.5, *pair, job=job, text=left.pop())
        if "n5" in pair
        else value("network_rdma", 390.0, *pair, job=job, text=f"mlx5_{job}/1")
        for job, planned in enumerate(schedule(names, 5, 1), 1)
        for pair in planned
    ]
    (found,) = judge(pairs).findings
    assert (found.nodes, said in found.text) == (("n5",), True)


def test_a_published_figure_holds_for_each_driver() -> None:
    machines = {"h100": PublishedMachine("h100", 8)}
    slow = [value("host_to_gpu", 40.0, "n8", gpu=0, job=job, driver="575.1") for job in (1, 2, 3)]
    assert judge(slow, options=Options(machines=machines)).named == ["n8"]


def test_what_is_worse_and_within_the_tolerance_is_noted_with_the_tolerance() -> None:
    disks = [*on_nodes([500.0] * 7, "disk_read_local"), value("disk_read_local", 450.0, "n7")]
    assert judge(disks).findings == []
    assert judge(disks).notes == [
        "disk_read_local (h100): n7 up to 10.0 % worse than the median, 500.0; what is more than 15 % worse is named"
    ]


def test_good_nodes_that_are_slow_now_and_then_ask_for_more_jobs() -> None:
    values = [*on_nodes([*GOOD[:6], 430.0, 430.0]), *on_nodes([*GOOD[:6], 480.0, 430.0], job=2)]
    third = [*values, *on_nodes([*GOOD[:6], 480.0, 430.0], job=3)]
    assert (judge(third).findings, judge(third).again) == ([], {"stream": ["n7"]})
    later = [value("stream", 430.0, "n7", job=job) for job in (4, 5)]
    assert judge([*third, *later]).named == ["n7"]


def test_if_good_nodes_are_often_slow_nobody_is_named() -> None:
    values = [
        value("stream", 430.0 if place == 7 or (place < 12 and (place + job) % 2) else 480.0, f"n{place}", job=job)
        for job in range(1, 7)
        for place in range(16)
    ]
    found = judge(values)
    assert (found.findings, found.again) == ([], {})
    assert "stream (h100): good nodes were slow in some jobs as well: too noisy to name all" in found.notes


def test_a_shared_file_system_that_is_slower_later_is_nobodys_fault() -> None:
    test = "disk_write_shared"
    first = on_nodes([1000.0, 1010.0, 990.0, 1005.0, 995.0, 700.0], test)
    later = [
        value(test, number * 0.5, f"n{place}", job=job)
        for job in (2, 3)
        for place, number in enumerate([1000.0, 1010.0, 990.0, 1005.0, 995.0, 960.0])
    ]
    assert judge([*first, *later]).findings == []
    slow = [replace(each, value=350.0) if each.nodes == ("n5",) else each for each in later]
    assert judge([*first, *slow]).named == ["n5"]


def test_noise_between_the_jobs_of_good_nodes_widens_the_limit() -> None:
    """Four equal first values say little of the noise; the same nodes in the next jobs say more."""
    first = on_nodes([100.0, 100.0, 100.0, 100.0, 93.0])
    later = [
        value("stream", number, f"n{place}", job=job)
        for job, numbers in ((2, (104.0, 96.0, 103.0, 97.0, 93.0)), (3, (97.0, 104.0, 96.0, 103.0, 92.0)))
        for place, number in enumerate(numbers)
    ]
    assert judge([*first, *later]).findings == []


def test_less_is_better_where_the_catalog_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TESTS, "stream", replace(TESTS["stream"], higher=False))
    found = judge(three_jobs([10.0, 10.1, 9.9, 10.0, 9.0, 12.0]))
    assert found.named == ["n5"]
    assert "12 GB/s, 20.0 % more than the median of 6 nodes, 10" in found.findings[0].text


# -- GPUs ------------------------------------------------------------------------------------------------------------


def gpus(nodes: int, slow: dict[tuple[int, int], float], each: int = 8) -> list[MeasuredValue]:
    return [
        value("gpu_memory_bandwidth", slow.get((node, gpu), 3000.0 + gpu), f"n{node}", gpu=gpu, job=job)
        for job in (1, 2, 3)
        for node in range(nodes)
        for gpu in range(each)
    ]


def test_a_slow_gpu_is_named_also_on_a_single_node() -> None:
    for nodes in (1, 4):
        found = judge(gpus(nodes, {(0, 5): 2600.0}))
        (finding,) = found.findings
        assert (finding.kind, finding.nodes, finding.gpu) == ("gpu", ("n0",), 5)
        assert found.named == ["n0"]


def test_a_node_is_named_once_if_most_of_its_gpus_are_slow() -> None:
    found = judge(gpus(4, {(2, gpu): 2600.0 - gpu for gpu in range(6)}))
    (finding,) = found.findings
    assert (finding.kind, finding.nodes, finding.gpu, finding.value) == ("node", ("n2",), None, 2595.0)
    assert finding.text == (
        "memory bandwidth of the GPU: 6 of 8 GPUs, down to 2595.0 GB/s, 13.6 % less than the median of 32 GPUs, 3003.0"
    )


def test_a_single_gpu_has_a_baseline_alone() -> None:
    found = judge(gpus(1, {}, each=1))
    assert found.notes == [
        "gpu_memory_bandwidth (h100): 1 GPUs, and 4 are needed for a comparison, since of fewer one cannot say which "
        "are as they should be"
    ]


# -- the largest size, floors ----------------------------------------------------------------------------------------


def test_the_largest_size_counts_and_no_average() -> None:
    small = three_jobs([200.0] * 8, "all_reduce_node", size=GIB)
    large = three_jobs([460.0] * 7 + [400.0], "all_reduce_node", size=16 * GIB)
    found = judge([*small, *large])
    assert found.named == ["n7"]
    assert "400.0 GB/s at 16 GiB, 13.0 % less" in found.findings[0].text
    slow_when_small = three_jobs([200.0] * 7 + [100.0], "all_reduce_node", size=GIB)
    good = three_jobs([460.0] * 8, "all_reduce_node", size=16 * GIB)
    assert judge([*slow_when_small, *good]).findings == []


def test_who_did_not_reach_the_largest_size_is_said() -> None:
    small = on_nodes([200.0] * 8, "all_reduce_node", size=GIB)
    large = on_nodes([460.0] * 6, "all_reduce_node", size=16 * GIB)
    assert judge([*small, *large]).notes == ["all_reduce_node: n[6-7] did not reach the largest size, 16 GiB"]


def test_a_node_that_prints_a_larger_size_is_compared_nevertheless() -> None:
    slow = three_jobs([460.0] * 7 + [300.0], "all_reduce_node", size=16 * GIB)
    lies = [value("all_reduce_node", 999.0, "n7", size=2**49)]
    assert judge([*slow, *lies]).named == ["n7"]


def test_a_floor_names_what_all_share() -> None:
    found = judge(three_jobs([430.0] * 8), [entry()])
    assert len(found.named) == 8
    assert found.findings[0].text == (
        "memory bandwidth (STREAM Triad): 430.0 GB/s, 10.4 % less than the baseline of 2026-11-28: floor 456.0, "
        "median 480.0"
    )
    assert found.findings[0].source == "baseline"


def test_a_floor_needs_the_jobs_as_well() -> None:
    assert judge(on_nodes([430.0] * 8), [entry()]).findings == []
    assert len(judge(on_nodes([430.0] * 8), [entry()]).again["stream"]) == 8


def test_a_baseline_of_another_machine_type_is_not_used_and_named() -> None:
    found = judge(three_jobs([430.0] * 8), [entry(hardware="h200")])
    assert found.findings == []
    assert found.notes == ["stream: the baseline is of hardware h200 and is not used for hardware h100"]


def test_a_published_figure_names_with_its_source() -> None:
    options = Options(machines={"h100": PublishedMachine("h100", 8)})
    values = three_jobs([440.0] * 8, "all_reduce_node", size=16 * GIB)
    found = judge(values, options=options)
    assert len(found.named) == 8
    assert found.findings[0].source == "published"
    assert "a published figure: 460.0 (Azure/azurehpc-health-checks, conf/nd96isr_h100_v5.conf)" in texts(found)[0]
    other = [replace(each, size=8 * GIB) for each in values]
    assert judge(other, options=options).findings == []
    assert judge(values).findings == []


# -- pairs, many nodes -----------------------------------------------------------------------------------------------


def pair_values(nodes: int, slow: dict[str, float], rounds: int = 3, **others: Any) -> list[MeasuredValue]:
    names = [f"n{number}" for number in range(nodes)]
    return [
        value("all_reduce_pair", min(slow.get(name, 391.0) for name in pair), *pair, job=job, size=16 * GIB, **others)
        for job, pairs in enumerate(schedule(names, rounds, 1), 1)
        for pair in pairs
    ]


def test_the_guilty_node_of_slow_pairs_is_named() -> None:
    found = judge(pair_values(8, {"n3": 350.0}))
    (finding,) = found.findings
    assert (finding.kind, finding.nodes, finding.source) == ("node", ("n3",), "peers")
    assert finding.text.startswith("NCCL's bus bandwidth of all_reduce on two nodes: with each of n")
    assert finding.text.endswith("GB/s at 16 GiB, 10.5 % less than what fast pairs do, 391.0")
    assert found.named == ["n3"]


def test_suspects_are_paired_again_and_a_note_says_who() -> None:
    found = judge(pair_values(9, {"n3": 350.0}, rounds=1))
    assert found.findings == []
    (planned,) = found.pairs.values()
    assert any("n3" in pair for pair in planned)
    assert any("more pairs have to show whose fault it is: n" in note for note in found.notes)


def test_a_floor_names_pairs_where_most_nodes_are_slow() -> None:
    slow = dict.fromkeys(("n0", "n1", "n2", "n3", "n4"), 350.0)
    values = pair_values(8, slow, rounds=7)
    assert judge(values).named == []
    floor = entry("all_reduce_pair", 372.0, nodes=2, size=16 * GIB, driver="580", median=391.0)
    assert judge(values, [floor]).named == [*slow]


def test_a_slow_switch_is_a_group_and_nobody_is_named() -> None:
    values = [
        replace(each, value=350.0) if (each.nodes[0] in ("n0", "n1")) != (each.nodes[1] in ("n0", "n1")) else each
        for each in pair_values(8, {}, rounds=7)
    ]
    found = judge(values, switches={f"n{number}": f"leaf{number // 2}" for number in range(8)})
    (finding,) = found.findings
    assert (finding.kind, finding.nodes, found.named) == ("group", ("n0", "n1"), [])
    assert "these nodes, on leaf0, are fast with each other and slow with n[2-7]" in finding.text


def test_many_nodes_have_floors_alone_and_nobody_is_named() -> None:
    values = [value("all_reduce_many", 300.0, "n1", "n2", "n3", size=16 * GIB)]
    found = judge(values)
    assert found.findings == []
    assert found.notes == ["all_reduce_many (h100, 16 GiB): there is no baseline and no published figure for 3 nodes"]
    floor = entry("all_reduce_many", 372.0, nodes=3, size=16 * GIB, driver="580", median=391.0)
    found = judge(values, [floor])
    assert [(each.kind, each.nodes) for each in found.findings] == [("group", ("n1", "n2", "n3"))]
    assert found.named == []


def test_the_order_of_values_does_not_matter() -> None:
    values = [*three_jobs([*GOOD[:7], 430.0]), *pair_values(8, {"n3": 350.0}), *gpus(2, {(0, 1): 2500.0})]
    assert judge(values[::-1]) == judge(values)
