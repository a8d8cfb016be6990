# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that a maintenance concerns."""

from __future__ import annotations

import math

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.maintenance import jobs_in_the_way
from ansible_collections.gpucluster.slurm.plugins.module_utils.maintenance.jobs_in_the_way import (
    Concerned,
    concerned,
    jobs_of,
    partitions_of,
    report,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.maintenance.window import NAME, MaintenanceWindow

NOW = 1_796_000_000
HOUR = 3600
WINDOW = MaintenanceWindow(NOW + 10 * HOUR, NOW + 18 * HOUR)
PARTITIONS = partitions_of(
    [
        {"PartitionName": "gpu", "Nodes": "n[1-2]", "MaxTime": "UNLIMITED"},
        {"PartitionName": "cpu", "Nodes": "n[3-4]", "MaxTime": "1-00:00:00"},
        {"PartitionName": "short", "Nodes": "n[1-4]", "MaxTime": "04:00:00"},
        {"PartitionName": "empty", "Nodes": "", "MaxTime": "UNLIMITED"},
    ]
)


def running(job: str, left: str, nodes: str = "n1", state: str = "RUNNING", reservation: str = "(null)") -> str:
    return f"{job}|{state}|alice|gpu|2-00:00:00|{left}|{reservation}||{nodes}"


def queued(job: str, limit: str, partition: str = "gpu", requested: str = "", user: str = "bob") -> str:
    return f"{job}|PENDING|{user}|{partition}|{limit}|{limit}|(null)|{requested}|"


def found(*lines: str, nodes: str = "", window: MaintenanceWindow = WINDOW, now: int = NOW) -> Concerned:
    reserved = frozenset(nodes.split()) if nodes else None
    return concerned(jobs_of("\n".join([*lines, ""])), PARTITIONS, reserved, window, now)


def names(*lines: str, nodes: str = "") -> tuple[list[str], list[str]]:
    concerned_jobs = found(*lines, nodes=nodes)
    return [job.job for job in concerned_jobs.running], [job.job for job in concerned_jobs.waiting]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:00:00", 26 * HOUR),
        ("10:00:00", 10 * HOUR),
        ("5:00", 300),
        ("0:30", 30),
        *((text, math.inf) for text in ("UNLIMITED", "NOT_SET", "INVALID", "")),
    ],
)
def test_times_of_squeue(text: str, seconds: float) -> None:
    assert jobs_in_the_way.duration(text) == seconds


def test_running_jobs_reach_into_it_by_the_time_that_they_have_left() -> None:
    lines = [
        running("1", "10:00:00"),
        running("2", "10:00:01"),
        running("3", "1-00:00:00", state="SUSPENDED"),
        running("4", "UNLIMITED"),
        running("5", "INVALID"),
        running("6", "11:00:00", reservation=NAME),
    ]
    jobs = found(*lines).running
    assert [(job.job, job.end and job.end - NOW) for job in jobs] == [
        ("2", 10 * HOUR + 1),
        ("3", 24 * HOUR),
        ("4", None),
        ("5", None),
    ]


def test_queued_jobs_wait_if_their_limit_reaches_into_it() -> None:
    lines = [
        queued("1", "10:00:00"),
        queued("2", "10:00:01"),
        queued("3_[4-99%2]", "UNLIMITED"),
        queued("4", "NOT_SET", "short"),
        queued("5", "NOT_SET", "cpu"),
        queued("6", "12:00:00", "gpu,cpu"),
    ]
    assert names(*lines) == ([], ["2", "3_[4-99%2]", "5", "6"])


def test_only_jobs_that_cannot_go_elsewhere_wait_for_a_part_of_the_nodes() -> None:
    lines = [
        queued("1", "12:00:00", "gpu"),
        queued("2", "12:00:00", "cpu"),
        queued("3", "12:00:00", "gpu,cpu"),
        queued("4", "12:00:00", "short", requested="n2,n3"),
        queued("5", "12:00:00", "short", requested="n[3-4]"),
        queued("6", "12:00:00", "unknown"),
        running("7", "12:00:00", nodes="n[2-3]"),
        running("8", "12:00:00", nodes="n3"),
    ]
    assert names(*lines, nodes="n1 n2") == (["7"], ["1", "4"])


def test_after_its_start_all_queued_jobs_wait() -> None:
    begun = MaintenanceWindow(NOW - HOUR, NOW + HOUR)
    assert [job.job for job in found(queued("1", "0:30"), window=begun).waiting] == ["1"]


def test_users_are_those_with_jobs_on_its_nodes() -> None:
    lines = [
        queued("1", "0:30", "gpu,cpu", user="carol"),
        queued("2", "12:00:00", "cpu", user="dave"),
        running("3", "0:10"),
    ]
    assert found(*lines, nodes="n1").users == {"alice", "carol"}
    assert found(*lines).users == {"alice", "carol", "dave"}


def test_lines_that_are_no_jobs_are_left_out() -> None:
    assert jobs_of("slurm_load_jobs error\n\n") == []


def test_the_report_names_jobs_and_what_loses_nothing() -> None:
    text = "\n".join(report(found(running("1", "12:00:00"), running("2", "11:00:00"), queued("3", "12:00:00"))))
    assert "2 running jobs reach into it. Slurm does not end running jobs" in text
    assert "1 queued job will not start before it, and waits for its end:" in text
    assert text.index("2    alice") < text.index("1    alice")
    assert "scancel" not in text
    assert report(Concerned()) == ["No running job reaches into it, and no queued job waits for its end."]


def test_after_its_start_nothing_can_begin_before() -> None:
    text = "\n".join(report(found(running("1", "12:00:00"), queued("3", "12:00:00")), begun=True))
    assert "1 queued job waits for its end:" in text
    assert "begin later" not in text
    assert "before" not in text


def test_a_job_without_a_limit_has_no_end_to_begin_after() -> None:
    assert "one has no time limit" in "\n".join(report(found(running("1", "UNLIMITED"))))


def test_of_many_jobs_the_first_are_shown() -> None:
    lines = report(found(*(queued(str(number), "12:00:00") for number in range(1000))))
    assert lines[1].startswith("1000 queued jobs will not start")
    assert "    and 980 more" in lines
    assert len(lines) < 30


def test_texts_of_users_cannot_change_a_terminal() -> None:
    assert "\x1b" not in "".join(report(found(queued("1", "12:00:00", user="\x1b[2Jeve"))))
