# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values in records of Slurm's commands."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import slurm_records
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.scontrol import records


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:h100:4", [("gpu", "h100", 4, None)]),
        ("gpu:h100:4(S:0-1)", [("gpu", "h100", 4, None)]),
        ("gpu:4,shard:8", [("gpu", "", 4, None), ("shard", "", 8, None)]),
        ("gpu:a100:2(IDX:0-1),gpu:t4:2(IDX:2,5)", [("gpu", "a100", 2, (0, 1)), ("gpu", "t4", 2, (2, 5))]),
        ("gpu:(null):1(IDX:3)", [("gpu", "", 1, (3,))]),
        ("gpu:h100:0(IDX:N/A)", [("gpu", "h100", 0, ())]),
        ("shard:h100:3(0/2,2/2,1/2)", [("shard", "h100", 3, (1, 2))]),
        ("shard:h100:1(-/2,1/2)", [("shard", "h100", 1, (1,))]),
        ("mps:100(IDX:0)", [("mps", "", 100, (0,))]),
        ("mps:1K", [("mps", "", 1024, None)]),
        ("gpu(CNT:2)", [("gpu", "", 2, None)]),
        ("gpu:1g.10gb:7", [("gpu", "1g.10gb", 7, None)]),
        ("gres:gpu:h100:2", [("gpu", "h100", 2, None)]),
        ("gres/gpu", [("gpu", "", 1, None)]),
        ("gres/gpu:h100", [("gpu", "h100", 1, None)]),
        (
            "cpu=1,mem=2G,gres/gpu=2,gres/gpu:h100=2,gres/gpumem=5,license/gpu=3",
            [("gpu", "", 2, None), ("gpu", "h100", 2, None)],
        ),
        ("(null)", []),
        ("craynetwork:4", []),
    ],
)
def test_gres(text: str, found: list[tuple[str, str, int, Any]]) -> None:
    assert [(*each[:3], each.indices) for each in slurm_records.gres(text)] == found


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:h100:8(S:0-1)", {"h100": 8}),
        ("gpu:2", {"": 2}),
        ("gpu:a100:2,gpu:t4:2,shard:a100:8", {"a100": 2, "t4": 2}),
        ("gpu:(null):0(IDX:N/A)", {"": 0}),
        ("gpu:h100:2(IDX:0,3),mps:h100:0(IDX:N/A)", {"h100": 2}),
        ("cpu=1,gres/gpu=4,gres/gpu:h100=4", {"": 4, "h100": 4}),
        ("gres:gpu:h100:4", {"h100": 4}),
        ("gpu:1g.10gb:7", {"1g.10gb": 7}),
        ("(null)", {}),
    ],
)
def test_gpus_by_type(text: str, gpus: dict[str, int]) -> None:
    assert dict(slurm_records.gpus(text)) == gpus


@pytest.mark.parametrize(
    ("used", "gpus"),
    [
        ("gpu:h100:1(IDX:0),shard:h100:3(-/4,2/4,1/4,0/4)", {"h100": 2}),
        ("gpu:h100:1(IDX:0),shard:h100:2(IDX:2-3)", {"h100": 2}),
        ("gpu:h100:0(IDX:N/A),mps:h100:50(50/100,0/100)", {"h100": 1}),
        ("gpu:h100:4(IDX:0-3),shard:0", {}),
    ],
)
def test_gpus_of_which_jobs_have_shares(used: str, gpus: dict[str, int]) -> None:
    assert dict(slurm_records.shared(used)) == gpus


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("IDLE+DRAIN+NOT_RESPONDING", ("IDLE", "DRAIN", "NOT_RESPONDING")),
        ("DOWN*+DRAIN", ("DOWN", "DRAIN", "NOT_RESPONDING")),
        ("IDLE~", ("IDLE",)),
        ("DOWN*+NOT_RESPONDING", ("DOWN", "NOT_RESPONDING")),
    ],
)
def test_states_of_a_node(text: str, states: tuple[str, ...]) -> None:
    assert slurm_records.states(text) == states


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93784),
        ("1:00:00", 3600),
        ("02:03", 123),
        ("1795817210", 1795817210),
        *((text, None) for text in ("UNLIMITED", "Partition_Limit", "N/A", "")),
    ],
)
def test_seconds(text: str, seconds: int | None) -> None:
    assert slurm_records.seconds(text) == seconds


@pytest.mark.parametrize(("text", "mib"), [("100M", 100), ("1.50G", 1536), ("2T", 2097152), ("512K", 0.5), ("", 0)])
def test_amounts(text: str, mib: float) -> None:
    assert slurm_records.amount(text) == mib * 1024**2
    assert slurm_records.amount(text.rstrip("M"), "M") == mib * 1024**2


@pytest.mark.parametrize(
    ("text", "count"), [("N/A", 1), ("7", 1), ("1-30", 30), ("1-7:2,20%2", 5), ("0-9%4", 10), ("1,3,5,7,20%2", 5)]
)
def test_tasks_of_arrays(text: str, count: int) -> None:
    assert slurm_records.tasks(text) == count


def test_lists_that_are_too_long() -> None:
    assert slurm_records.ranges("0-2,7") == (0, 1, 2, 7)
    with pytest.raises(ValueError, match="has more than 1000000"):
        slurm_records.ranges("0-1000000")


def test_jobs_of_squeue() -> None:
    fields, end = ("JobID", "State", "Name"), "\x1eend"
    assert slurm_records.squeue(fields, end, "--states=all")[3:] == [
        "--states=all",
        "--Format=JobID:0\x1f,State:0\x1f,Name:0\x1eend",
    ]
    text = "".join(f"{row}{end}\n" for row in ("1\x1fPENDING\x1fa\nb\x1f", "2\x1fRUNNING"))
    assert slurm_records.jobs(text, fields, end) == [{"JobID": "1", "State": "PENDING", "Name": "a\nb\x1f"}]


def test_what_persons_write_is_no_value_of_a_node() -> None:
    found = records("NodeName=n1 Gres=gpu:(null):2 State=IDLE Comment=x State=DOWN\n        NodeName=n9 State=DOWN\n")
    assert found == [{"NodeName": "n1", "Gres": "gpu:(null):2", "State": "IDLE", "Comment": "x"}]
    (node,) = records("NodeName=n1 State=IDLE Owner=(null) Reason=x State=DOWN\n NodeName=n9 State=DOWN")
    assert (node["State"], node["Owner"], node["Reason"]) == ("IDLE", "", "x State=DOWN")
