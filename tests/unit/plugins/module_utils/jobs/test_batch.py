# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs: the answers of squeue and sacct are recorded from clusters with Slurm 22.05 and 24.11."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.jobs import batch
from ansible_collections.gpucluster.slurm.plugins.module_utils.jobs.batch import JobRecord

SUBMITTED = "2026-11-21T13:18:30"

SQUEUE_22_05 = """\
5|N/A|CANCELLED|15|0:01|2026-11-21T13:18:30|devc22|None|
7|N/A|CANCELLED|0|0:00|2026-11-21T13:18:30||BeginTime|
1|2|COMPLETED|0|0:00|2026-11-21T13:18:30|devc22|None|
2|N/A|FAILED|768|0:00|2026-11-21T13:18:30|devc22|NonZeroExitCode|
3|N/A|OUT_OF_MEMORY|253|0:00|2026-11-21T13:18:30|devc22|OutOfMemory|
4|N/A|TIMEOUT|15|1:08|2026-11-21T13:18:30|devc22|TimeLimit|
"""

SQUEUE_24_11 = """\
2|N/A|COMPLETED|0:0|0:00|2026-11-21T13:09:34|devc|None|
1|N/A|FAILED|3:0|0:00|2026-11-21T13:09:34|devc|NonZeroExitCode|
6|N/A|PENDING|0:0|0:00|2026-11-21T13:09:34||ReqNodeNotAvail, May be reserved for other job|
3|0|PENDING|0:0|0:00|2026-11-21T13:09:34||Resources|
"""

SACCT_24_11 = """\
15|OUT_OF_MEMORY|0:125|0|2026-11-21T13:16:25|devc
19|CANCELLED by 0|0:0|16|2026-11-21T13:16:25|devc
18|CANCELLED by 0|0:0|0|2026-11-21T13:16:25|None assigned
20_1|COMPLETED|0:0|0|2026-11-21T13:16:25|devc
3_[0-3]|PENDING|0:0|0|2026-11-21T13:09:34|None assigned
"""


def test_squeue_22_05() -> None:
    assert batch.parse_squeue(SQUEUE_22_05) == [
        JobRecord(5, "", "CANCELLED", "0:15", 1, SUBMITTED, "devc22", ""),
        JobRecord(7, "", "CANCELLED", "0:0", 0, SUBMITTED, "", "BeginTime"),
        JobRecord(1, "2", "COMPLETED", "0:0", 0, SUBMITTED, "devc22", ""),
        JobRecord(2, "", "FAILED", "3:0", 0, SUBMITTED, "devc22", "NonZeroExitCode"),
        JobRecord(3, "", "OUT_OF_MEMORY", "0:125", 0, SUBMITTED, "devc22", "OutOfMemory"),
        JobRecord(4, "", "TIMEOUT", "0:15", 68, SUBMITTED, "devc22", "TimeLimit"),
    ]


def test_squeue_24_11() -> None:
    at = "2026-11-21T13:09:34"
    assert batch.parse_squeue(SQUEUE_24_11) == [
        JobRecord(2, "", "COMPLETED", "0:0", 0, at, "devc", ""),
        JobRecord(1, "", "FAILED", "3:0", 0, at, "devc", "NonZeroExitCode"),
        JobRecord(6, "", "PENDING", "0:0", 0, at, "", "ReqNodeNotAvail, May be reserved for other job"),
        JobRecord(3, "0", "PENDING", "0:0", 0, at, "", "Resources"),
    ]


def test_sacct() -> None:
    at = "2026-11-21T13:16:25"
    assert batch.parse_sacct(SACCT_24_11) == [
        JobRecord(15, "", "OUT_OF_MEMORY", "0:125", 0, at, "devc"),
        JobRecord(19, "", "CANCELLED", "0:0", 16, at, "devc"),
        JobRecord(18, "", "CANCELLED", "0:0", 0, at, ""),
        JobRecord(20, "1", "COMPLETED", "0:0", 0, at, "devc"),
        JobRecord(3, "[0-3]", "PENDING", "0:0", 0, "2026-11-21T13:09:34", ""),
    ]


@pytest.mark.parametrize(
    ("text", "seconds"), [("0:07", 7), ("12:34", 754), ("1:00:01", 3601), ("2-01:00:00", 176400), ("INVALID", 0)]
)
def test_elapsed(text: str, seconds: int) -> None:
    assert batch.parse_squeue(f"1|N/A|RUNNING|0:0|{text}|{SUBMITTED}|n1|None|")[0].elapsed == seconds


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (
            "sbatch: error: Batch job submission failed: Node count specification invalid\n",
            "Node count specification invalid",
        ),
        (
            "sbatch: error: Memory specification can not be satisfied\n"
            "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
            "Memory specification can not be satisfied; Requested node configuration is not available",
        ),
        ("sbatch: fatal: Unable to process configuration file\n", "Unable to process configuration file"),
    ],
)
def test_refusal(stderr: str, reason: str) -> None:
    assert batch.refusal(stderr) == reason


def test_sbatch_arguments() -> None:
    job = {
        "name": "a",
        "memory": "64",
        "cpus_per_task": 2,
        "nodes": None,
        "options": {"exclusive": True, "comment": "two words", "requeue": False, "output": None},
    }
    assert batch.sbatch_arguments(job) == [
        "sbatch",
        "--parsable",
        "--job-name=a",
        "--cpus-per-task=2",
        "--mem=64",
        "--exclusive",
        "--comment=two words",
    ]


def test_the_script_is_as_given_and_a_command_gets_a_shell() -> None:
    assert batch.batch_script({"script": "#!/bin/bash\n#SBATCH -N2\n"}) == "#!/bin/bash\n#SBATCH -N2\n"
    assert batch.batch_script({"command": "hostname"}) == "#!/bin/sh\nhostname\n"


def test_updated_keeps_what_ended_and_notices_what_vanished() -> None:
    before = batch.updated(
        {}, [JobRecord(1, state="COMPLETED"), JobRecord(2, state="RUNNING"), JobRecord(9)], {1, 2, 3}
    )
    assert {key: record.state for key, record in before.items()} == {
        (1, ""): "COMPLETED",
        (2, ""): "RUNNING",
        (3, ""): batch.UNKNOWN,
    }
    after = batch.updated(before, [], {1, 2, 3})
    assert {key: record.state for key, record in after.items()} == {
        (1, ""): "COMPLETED",
        (2, ""): batch.UNKNOWN,
        (3, ""): batch.UNKNOWN,
    }


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["COMPLETED", "COMPLETED"], "COMPLETED"),
        (["COMPLETED", "FAILED"], "FAILED"),
        (["FAILED", "RUNNING", "PENDING"], "RUNNING"),
    ],
)
def test_an_array_is_as_its_first_task_that_did_not_complete(states: list[str], state: str) -> None:
    tasks = [JobRecord(1, str(task), state, elapsed=task, nodes=f"n{task % 2}") for task, state in enumerate(states)]
    array = batch.whole(tasks)
    assert (array.state, array.task, array.elapsed, array.nodes) == (state, "", len(states) - 1, "n0,n1")


SEEN = [
    JobRecord(1, "0", "COMPLETED", submitted=SUBMITTED),
    JobRecord(1, "1", "OUT_OF_MEMORY", submitted=SUBMITTED, reason="OutOfMemory"),
]


@pytest.mark.parametrize(
    "answer",
    [
        [],
        [JobRecord(1, "0", "COMPLETED", submitted=SUBMITTED)],
        [JobRecord(1, "[0-1]", "PENDING", submitted=SUBMITTED)],
        [JobRecord(1, "0", "COMPLETED", submitted=SUBMITTED), JobRecord(1, "1", "RUNNING", submitted=SUBMITTED)],
        # An older job had this number.
        [JobRecord(1, "0", "COMPLETED", submitted="2020"), JobRecord(1, "1", "COMPLETED", submitted="2020")],
    ],
)
def test_not_yet_in_accounting(answer: list[JobRecord]) -> None:
    assert batch.booked(SEEN, answer) is None


def test_in_accounting_with_the_reason_of_squeue() -> None:
    answer = [JobRecord(1, task, "OUT_OF_MEMORY", "0:125", submitted=SUBMITTED) for task in ("0", "1")]
    found = batch.booked(SEEN, answer)
    assert found
    assert [(record.exit_code, record.reason) for record in found] == [("0:125", ""), ("0:125", "OutOfMemory")]


def test_accounting_knows_a_job_that_squeue_never_showed() -> None:
    answer = [JobRecord(1, "", "COMPLETED", submitted=SUBMITTED)]
    assert batch.booked([JobRecord(1)], answer) == answer


FAILED = JobRecord(1, state="FAILED", exit_code="3:0", reason="NonZeroExitCode")
REFUSED = JobRecord(0, state="REFUSED", reason="Node count specification invalid")


@pytest.mark.parametrize(
    ("job", "record", "status", "message"),
    [
        ({}, JobRecord(1, state="COMPLETED"), "passed", ""),
        ({"expect": "FAILED"}, FAILED, "passed", ""),
        ({}, FAILED, "failed", "FAILED (exit code 3:0), expected COMPLETED: NonZeroExitCode"),
        ({"expect": "TIMEOUT"}, JobRecord(1, state="COMPLETED"), "failed", "COMPLETED, expected TIMEOUT"),
        ({"expect": "REFUSED", "expect_reason": "Node count"}, REFUSED, "passed", ""),
        (
            {"expect": "REFUSED", "expect_reason": "partition"},
            REFUSED,
            "failed",
            "REFUSED as expected, but Slurm's reason 'Node count specification invalid' does not match 'partition'",
        ),
        ({}, JobRecord(1, state="PENDING", reason="Resources"), "waiting", "has not started in 9 s: Resources"),
        ({}, JobRecord(1, state="RUNNING", nodes="n1"), "failed", "has not ended in 9 s: RUNNING on n1"),
        ({}, JobRecord(1), "failed", "squeue no longer shows it, and there is no accounting: its end is unknown"),
    ],
)
def test_status(job: dict[str, Any], record: JobRecord, status: str, message: str) -> None:
    assert batch.status_of(job, record, waited=9) == (status, message)


def test_sinfo() -> None:
    assert batch.parse_sinfo("n1|mixed|Unknown|none\nn2|drained|root|bad DIMM | slot 3\n") == {
        "n1": "mixed",
        "n2": "drained by a person (bad DIMM | slot 3)",
    }
