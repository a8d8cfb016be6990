# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""jobstats of role job_tools, with a stand-in for sacct whose lines have the form of sacct of 24.11."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from programs import StandIn, load

pytestmark = pytest.mark.once

START, END = 1770714000, 1770742800
LINE = "gpus: used 3 % of 8 h on 2 GPUs (h100), memory 12 of 80 GiB"
JOB = (
    f"7|ann|physics|gpu|COMPLETED|0:0|{START}|{END}|28800|1440|n1|8|1-09:16:48|"
    f"billing=8,cpu=8,gres/gpu:h100=2,gres/gpu=2,mem=16G,node=1||{LINE}\n"
    f"7.batch||physics||COMPLETED|0:0|{START}|{END}|28800||n1|8|00:10.500|cpu=8,mem=16G,node=1|"
    "cpu=00:00:10,energy=0,fs/disk=2332,mem=3435973836,pages=0,vmem=0|\n"
    f"7.extern||physics||COMPLETED|0:0|{START}|{END}|28800||n1|8|00:00.001|cpu=8,mem=16G,node=1|"
    "cpu=00:00:00,mem=102400|\n"
)


@pytest.fixture(name="jobstats")
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The program, at a place with a time of its own."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield load("jobstats")
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(name="sacct")
def _sacct(stand_in: StandIn, tmp_path: Path) -> Path:
    """The answer of sacct, in a file."""
    path = tmp_path / "answer"
    stand_in("sacct", f'echo "$@" >{tmp_path}/arguments; env >{tmp_path}/environment; cat {path}')
    return path


def test_what_a_job_used(jobstats: ModuleType, sacct: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sacct.write_text(JOB)
    assert jobstats.answer(["7"]) == 0
    assert capsys.readouterr().out == (
        "Job      7\n"
        "State    COMPLETED (exit status 0)\n"
        "User     ann, account physics, partition gpu\n"
        "Ran      2026-02-10 10:00 to 2026-02-10 18:00, 8 h of 24 h\n"
        "Nodes    n1\n"
        "CPUs     52 % of 8 CPUs\n"
        "Memory   3.2 GiB of 16.0 GiB (20 %)\n"
        "GPUs     used 3 % of 8 h on 2 GPUs (h100), memory 12 of 80 GiB\n"
    )


def test_settings_of_the_user_for_sacct_change_nothing(
    jobstats: ModuleType, sacct: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACCT_FORMAT", "jobid")
    sacct.write_text(JOB)
    assert jobstats.answer(["7"]) == 0
    environment = (sacct.parent / "environment").read_text()
    assert "SACCT_FORMAT" not in environment
    assert "SLURM_TIME_FORMAT=%s\n" in environment
    assert "--jobs=7 " in (sacct.parent / "arguments").read_text()


def test_json(jobstats: ModuleType, sacct: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sacct.write_text(JOB)
    assert jobstats.answer(["--json", "7"]) == 0
    (job,) = json.loads(capsys.readouterr().out)
    assert job == {
        "job": "7",
        "user": "ann",
        "account": "physics",
        "partition": "gpu",
        "state": "COMPLETED",
        "exit_code": "0:0",
        "start": START,
        "end": END,
        "elapsed_seconds": 28800,
        "time_limit_seconds": 86400,
        "nodes": "n1",
        "cpus": 8,
        "cpu_seconds": 119808,
        "memory_bytes": 16 * 1024**3,
        "memory_used_bytes": 3435973836,
        "gpus": 2,
        "gpu_use": LINE[6:],
        "gpu_use_may_come": False,
    }


@pytest.mark.parametrize(
    ("end", "comment", "text"),
    [
        ("Unknown", "", "2 GPUs; use is known some minutes after the end"),
        (str(END - 60), "", "2 GPUs; use is known some minutes after the end"),
        (str(END - 3600), "", "2 GPUs; use is not known"),
        (str(END - 60), "a comment of the site", "2 GPUs; use is not known"),
    ],
)
def test_a_job_without_a_line(jobstats: ModuleType, end: str, comment: str, text: str) -> None:
    """It is not shown as one that used nothing."""
    line = f"7|ann|physics|gpu|RUNNING|0:0|{START}|{end}|60|1440|n1|8|00:00:00|cpu=8,gres/gpu=2,mem=16G||{comment}\n"
    shown = dict(jobstats.rows(jobstats.jobs(line, END)[0]))
    assert shown["GPUs"] == text
    # Nobody has measured the processors either.
    assert shown["CPUs"] == f"8 CPUs, use {'is known at the end' if end == 'Unknown' else 'not measured'}"


def test_a_running_job(jobstats: ModuleType) -> None:
    line = f"7|ann|physics|cpu|RUNNING|0:0|{START}|Unknown|60|UNLIMITED|n1|1|00:00:00|cpu=1,mem=500M||\n"
    shown = dict(jobstats.rows(jobstats.jobs(line, END)[0]))
    assert shown["State"] == "RUNNING"
    assert shown["Ran"] == "2026-02-10 10:00 to now, 60 s"
    assert shown["CPUs"] == "1 CPU, use is known at the end"
    assert shown["Memory"] == "of 500.0 MiB, use is known at the end"
    assert "GPUs" not in shown


def test_a_job_that_waits_and_one_that_was_cancelled_before_it_began(jobstats: ModuleType) -> None:
    waiting = "8|ann|physics|gpu|PENDING|0:0|Unknown|Unknown|0|1440|None assigned|1|00:00:00|||\n"
    assert dict(jobstats.rows(jobstats.jobs(waiting, END)[0]))["Ran"] == "not yet"
    cancelled = f"8|ann|physics|gpu|CANCELLED by 0|0:0|None|{END}|0|1440|None assigned|1|00:00:00|||\n"
    assert dict(jobstats.rows(jobstats.jobs(cancelled, END)[0]))["Ran"] == "never"


def test_tasks_of_an_array_and_strange_comments(jobstats: ModuleType) -> None:
    tasks = JOB.replace("7|ann", "7_1|ann", 1).replace("\n7.", "\n7_1.") + JOB.replace("7|ann", "7_2|ann", 1).replace(
        LINE, "two\nlines | and \x1b[31m"
    ).replace("\n7.", "\n7_2.")
    found = jobstats.jobs(tasks, END)
    assert [job["job"] for job in found] == ["7_1", "7_2"]
    assert [job["gpu_use"] for job in found] == [LINE[6:], None]
    assert "\x1b" not in jobstats.text([{**found[0], "state": "\x1b[31m"}])


def test_a_job_that_slurm_does_not_show(
    jobstats: ModuleType, sacct: Path, stand_in: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    sacct.write_text("")
    assert jobstats.answer(["9"]) == 1
    assert capsys.readouterr().err == "jobstats: accounting has no job 9 that Slurm shows to you\n"
    stand_in("sacct", "echo Slurm accounting storage is disabled >&2; exit 1")
    assert jobstats.answer(["9"]) == 1
    assert capsys.readouterr().err == "jobstats: Slurm accounting storage is disabled\n"


@pytest.mark.parametrize("arguments", [[], ["x"], ["7", "8"], ["--user", "7"], ["7;id"]])
def test_wrong_arguments(jobstats: ModuleType, sacct: Path, arguments: list[str]) -> None:
    assert jobstats.answer(arguments) == 2
    assert not sacct.exists()


def test_help(jobstats: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert jobstats.answer(["--help"]) == 0
    assert "usage: jobstats JOB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1-09:16:48", 119808), ("02:03:04", 7384), ("02:03.500", 123.5), ("", 0), ("INVALID", 0)],
)
def test_times_of_sacct(jobstats: ModuleType, text: str, expected: float) -> None:
    assert jobstats.seconds(text) == expected
