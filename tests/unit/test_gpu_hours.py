# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm-gpu-hours with a real Prometheus that has known loads, and stand-ins for sacct and sacctmgr."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.client import environment
from gpu_accounting import Accounting, Values, minutes, prometheus
from programs import load

pytestmark = pytest.mark.once

HOUR, DAY = 3600, 86400
MODEL = "NVIDIA H100 80GB HBM3"
GIB = 1024**3
START = 1770714000
"""2026-02-10 at 10:00 in Berlin."""
NOBODY = "http://127.0.0.1:9"
"""No Prometheus."""


class Controller:
    """A controller that serves, with its program and the records of slurmdbd."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.program: ModuleType = load("metrics.slurm_gpu_hours")
        self.directory = directory
        programs = directory / "bin"
        programs.mkdir()
        self.accounting = Accounting(directory, programs)
        monkeypatch.setitem(environment.ENVIRONMENT, "PATH", f"{programs}:{os.environ['PATH']}")
        monkeypatch.setattr(self.program, "SETTINGS", str(directory / "metrics.json"))
        monkeypatch.setattr(self.program, "STATE", str(directory / "state/gpu-hours.json"))
        monkeypatch.setattr(self.program, "TEXTFILES", str(directory))
        self.serve()

    def serve(self, serving: int = 1, waiting: int = 0, now: float = START) -> None:
        """What slurm-metrics has written."""
        path = self.directory / "slurm.prom"
        text = (
            f'slurm_controller_serving{{controller="c1",place="0"}} {serving}\nslurm_dbd_agent_queue_size {waiting}\n'
        )
        path.write_text(text)
        os.utime(path, (now, now))

    def lines(self, server: str, now: float, waiting: int = 0) -> int:
        """Run it as the timer does."""
        self.serve(waiting=waiting, now=now)
        return int(self.program.lines(server, now))

    @property
    def state(self) -> dict[str, int]:
        """What it has kept."""
        found: dict[str, int] = json.loads((self.directory / "state/gpu-hours.json").read_text())
        return found

    def report(self, server: str, *arguments: str) -> Any:
        """A report as JSON."""
        options = self.program.parse_arguments(["report", "--json", *arguments], date(2026, 2, 20))
        return json.loads(self.program.report_text(server, options, START + 30 * DAY))


@pytest.fixture(name="controller")
def _controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Controller]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield Controller(tmp_path, monkeypatch)
    monkeypatch.undo()
    time.tzset()


def on_gpu(
    job: int, gpu: str, values: Mapping[str, Values], node: str = "n1", shared: int = 0, **labels: str
) -> dict[str, Values]:
    """The series of a job on a GPU."""
    own = {"user": "ann", "account": "physics", "partition": "gpu", **labels}
    found = {}
    for name, samples in values.items():
        all_labels = {"instance": node, "job": "node", "gpu": gpu, "slurmjobid": str(job), **own}
        if name.startswith("slurm_job"):
            all_labels |= {"gpu_type": MODEL, "shared": str(shared)}
        text = ",".join(f'{label}="{value}"' for label, value in all_labels.items())
        found[f"{name}{{{text}}}"] = samples
    return found


def loaded(start: int, end: int, used: float | None, memory: float = 12, share: float = 1) -> dict[str, Values]:
    """A GPU of a job that is in use to a constant part."""
    found: dict[str, Values] = {
        "gpucluster_job_gpu_share": minutes(start, end, share),
        "slurm_job_memory_usage_gpu": minutes(start, end, memory * GIB),
        "slurm_job_memory_total_gpu": minutes(start, end, 80 * GIB),
    }
    if used is None:
        return found
    seconds = [(when, float(when - start)) for when, _value in minutes(start, end, 0)]
    return {
        **found,
        "gpucluster_job_gpu_measured_seconds_total": seconds,
        "gpucluster_job_gpu_busy_seconds_total": [(when, value * used / 100) for when, value in seconds],
    }


# -- the line --------------------------------------------------------------------------------------------------------


def test_lines_of_known_loads(controller: Controller, tmp_path: Path) -> None:
    """Each kind of job gets a line that says what its GPUs did, with two calls of sacct and one query."""
    add, end = controller.accounting.add, START + 8 * HOUR
    add(7, START, end, "billing=8,cpu=8,gres/gpu:h100=2,gres/gpu=2,mem=1G,node=1")
    add(8, START, end, "cpu=1,gres/gpu=1,node=1")
    add(9, START + HOUR, START + HOUR + 20, "cpu=1,gres/gpu=1")
    add(10, START, end, "cpu=1,gres/gpu=1")
    add(11, START, end, "cpu=1,gres/gpu:a100_1g.10gb=1,gres/gpu=1")
    add(12, START, end, "cpu=1,gres/gpu=2")
    add(13, START, end, "cpu=4,node=1")
    add(14, START, end, "cpu=4,gres/gpu=1", comment="the site's")
    add(15, START, end, "cpu=4,gres/gpu=1")
    series = {
        **on_gpu(7, "0", loaded(START, end, 6)),
        **on_gpu(7, "1", loaded(START, end, 0, memory=2)),
        **on_gpu(8, "2", loaded(START, end, 0.4)),
        **on_gpu(11, "3.7", loaded(START, end, None)),
        **on_gpu(12, "4", loaded(START, START + 4 * HOUR, 50)),
        **on_gpu(15, "5", loaded(START, end, 90, share=0.5), shared=1),
    }
    with prometheus(tmp_path, series) as server:
        assert controller.lines(server, end + 200) == 0
    found = {name.split()[0]: text for name, text in controller.accounting.comments().items()}
    assert found == {
        "7": "gpus: used 3 % of 8 h on 2 GPUs (h100), memory 12 of 80 GiB",
        "8": f"gpus: used under 1 % of 8 h on 1 GPU ({MODEL}), memory 12 of 80 GiB",
        "9": "",
        "10": "gpus: not measured, 8 h on 1 GPU",
        "11": "gpus: 8 h on 1 GPU (a100_1g.10gb), use not measured, memory 12 of 80 GiB",
        "12": f"gpus: used 50 % of 8 h on 2 GPUs ({MODEL}), memory 12 of 80 GiB, 1 of 2 GPUs measured, "
        "measured in 50 % of the time",
        "13": "",
        "14": "the site's",
        "15": f"gpus: used 90 % of 8 h on 1 GPU ({MODEL}), memory 12 of 80 GiB, shared with other jobs",
    }
    assert controller.accounting.count_calls("sacct") == 2
    assert (controller.state["written"], controller.state["until"]) == (6, end + 80)


def test_a_job_too_short_for_a_sample_says_so(controller: Controller, tmp_path: Path) -> None:
    controller.accounting.add(9, START, START + 20, "cpu=1,gres/gpu=1")
    with prometheus(tmp_path, on_gpu(7, "0", loaded(START, START + HOUR, 6))) as server:
        assert controller.lines(server, START + 200) == 0
    assert controller.accounting.comments() == {f"9 {START}": "gpus: too short for a sample, 20 s on 1 GPU"}


def test_errors_of_the_gpus_are_said(controller: Controller, tmp_path: Path) -> None:
    """The last error ends the job, and is read after its end. Each is named once, whichever GPU had it."""
    add, end = controller.accounting.add, START + HOUR
    add(7, START, end, "gres/gpu:h100=2,gres/gpu=2")
    add(8, START, START + 20, "gres/gpu=1")
    late: list[tuple[float, float]] = [(end + 30, 2), (end + 90, 2)]
    series = on_gpu(7, "0", loaded(START, end, 6))
    for gpu, xid, values in (("0", "31", late), ("1", "31", late), ("0", "119", minutes(START, end, 1))):
        series |= on_gpu(7, gpu, {"gpucluster_job_gpu_errors": values}, xid=xid)
    series |= on_gpu(8, "2", {"gpucluster_job_gpu_errors": [(START + 45, 1)]}, xid="63")
    with prometheus(tmp_path, series) as server:
        assert controller.lines(server, end + 200) == 0
    found = {name.split()[0]: text.partition("; ")[2] for name, text in controller.accounting.comments().items()}
    assert found == {
        "7": "errors of the GPUs: Xid 31 (GPU memory page fault, the program's), Xid 119 (GSP RPC timeout, the node's)",
        "8": "errors of the GPUs: Xid 63 (A row of memory was remapped)",
    }


def test_what_was_not_measured_is_said(controller: Controller, tmp_path: Path) -> None:
    """Samples that ended, a job with less than a minute of them, one with a bit more, and one whose end is scraped
    after it."""
    add, end = controller.accounting.add, START + 4 * HOUR
    add(7, START, end, "gres/gpu=1")
    add(8, START, START + 90, "gres/gpu=1")
    add(9, START, START + 90, "gres/gpu=1")
    add(10, START, end, "gres/gpu=1")
    counters = ("gpucluster_job_gpu_measured_seconds_total", "gpucluster_job_gpu_busy_seconds_total")
    found = loaded(START, end, 50)
    for name in counters:
        found[name] = [
            (when, min(value, value * 0 + (3600 if "measured" in name else 1800))) for when, value in found[name]
        ]
    series = on_gpu(7, "0", found)
    for job, seconds in ((8, 55.0), (9, 60.0)):
        short: dict[str, Values] = {"gpucluster_job_gpu_share": [(START + 17, 1)]}
        short |= dict(zip(counters, ([(START + 137, seconds)], [(START + 137, seconds / 2)])))
        series |= on_gpu(job, str(job), short)
    series |= on_gpu(10, "1", {**loaded(START, end, None), **dict.fromkeys(counters, minutes(START, end, 0))})
    with prometheus(tmp_path, series) as server:
        assert controller.lines(server, end + 200) == 0
        assert controller.accounting.comments()[f"7 {START}"].endswith(", measured in 25 % of the time")
        assert controller.accounting.comments()[f"10 {START}"].endswith(", use not measured, memory 12 of 80 GiB")
        (tmp_path / "state/gpu-hours.json").unlink()
        assert controller.lines(server, START + 300) == 0
    found_lines = {name.split()[0]: text for name, text in controller.accounting.comments().items()}
    assert found_lines["8"] == "gpus: too short for a sample, 90 s on 1 GPU"
    assert found_lines["9"] == "gpus: used 50 % of 90 s on 1 GPU"


def test_runs_of_one_number_have_their_own_lines(controller: Controller, tmp_path: Path) -> None:
    """Requeued jobs, an array whose last task has the number of the array, and a heterogeneous job."""
    add, second, end = controller.accounting.add, START + HOUR + 60, START + 2 * HOUR
    add(7, START, START + HOUR, "gres/gpu=1")
    add(7, 0, None, "", eligible=second)
    add(8, START, START + HOUR, "gres/gpu=1")
    add(8, second, end, "gres/gpu=1")
    add(21, START, end, "gres/gpu=1", name="20_1")
    add(20, START, end, "gres/gpu=1", name="20_2")
    add(30, START, end, "gres/gpu=1", name="30+0")
    add(31, START, end, "gres/gpu=1", name="30+1")
    first = on_gpu(8, "0", loaded(START, START + HOUR, 10))
    again = on_gpu(8, "0", loaded(second, end, 80), node="n2")
    series = {**first, **again}
    for place, (job, used) in enumerate([(21, 21), (20, 22), (30, 30), (31, 31)]):
        series |= on_gpu(job, str(place + 1), loaded(START, end, used))
    with prometheus(tmp_path, series) as server:
        assert controller.lines(server, START + HOUR + 200) == 0
        first_line = controller.accounting.comments()
        assert controller.lines(server, end + 200) == 0
    # The newest record of a job is not that of the run which has ended, and slurmdbd would change it.
    assert {*first_line.values()} == {""}
    percentages = {name: text.split()[2] for name, text in controller.accounting.comments().items() if text}
    assert percentages == {
        f"8 {second}": "80",
        f"20_1 {START}": "21",
        f"20_2 {START}": "22",
        f"30+0 {START}": "30",
        f"30+1 {START}": "31",
    }


def test_missed_scrapes_and_a_reboot_do_not_change_the_share(controller: Controller, tmp_path: Path) -> None:
    end = START + 5 * HOUR
    controller.accounting.add(7, START, end, "gres/gpu=2")
    values = {name: [one for i, one in enumerate(samples) if i % 7] for name, samples in loaded(START, end, 30).items()}
    # The second node has rebooted: Slurm ends the job later.
    other = loaded(START, START + 4 * HOUR, 60)
    with prometheus(tmp_path, {**on_gpu(7, "0", values), **on_gpu(7, "0", other, node="n2")}) as server:
        controller.lines(server, end + 200)
    assert controller.accounting.comments()[f"7 {START}"].startswith("gpus: used 45 % of 5 h on 2 GPUs")


# -- what does not answer --------------------------------------------------------------------------------------------


def test_without_prometheus_jobs_wait_for_a_day(controller: Controller, tmp_path: Path) -> None:
    end = START + HOUR
    controller.accounting.add(7, START, end, "gres/gpu=1")
    for after in (200, 2 * HOUR, 23 * HOUR):
        assert controller.lines(NOBODY, end + after) == 1
        assert (controller.state["dropped"], controller.accounting.comments()) == (0, {f"7 {START}": ""})
    assert "gpucluster_gpu_lines_success 0\n" in (controller.directory / "gpu-hours.prom").read_text()
    with prometheus(tmp_path, on_gpu(7, "0", loaded(START, end, 50))) as server:
        assert controller.lines(server, end + 23 * HOUR) == 0
    assert controller.accounting.comments()[f"7 {START}"].startswith("gpus: used 50 %")


def test_then_they_are_dropped_and_counted_once(controller: Controller) -> None:
    for number, minute in ((7, 0), (8, 5), (9, 90)):
        controller.accounting.add(number, START, START + HOUR + 60 * minute, "gres/gpu=1")
    begin = START + HOUR + 200
    assert controller.lines(NOBODY, begin) == 1
    counts = []
    for minute in range(0, 120, 4):
        controller.lines(NOBODY, begin + DAY + 60 * minute)
        counts.append(controller.state["dropped"])
    assert (counts[0], counts[1], counts[10], counts[-1]) == (1, 2, 2, 3)


def test_nothing_is_lost_while_slurmdbd_is_down(controller: Controller, tmp_path: Path) -> None:
    end = START + HOUR
    with prometheus(tmp_path, on_gpu(7, "0", loaded(START, end, 50))) as server:
        assert controller.lines(server, START) == 0
        (tmp_path / "slurmdbd-down").touch()
        for after in range(200, 3 * HOUR, 600):
            assert controller.lines(server, end + after) == 1
        (tmp_path / "slurmdbd-down").unlink()
        # slurmctld sends its messages, and the record of the job is among the last.
        assert controller.lines(server, end + 3 * HOUR, waiting=5000) == 0
        controller.accounting.add(7, START, end, "gres/gpu=1")
        assert controller.lines(server, end + 3 * HOUR + 60) == 0
    assert controller.accounting.comments()[f"7 {START}"].startswith("gpus: used 50 %")


def test_a_record_that_cannot_be_changed_is_tried_again_and_counted(controller: Controller, tmp_path: Path) -> None:
    end = START + HOUR
    controller.accounting.add(7, START, end, "gres/gpu=1")
    (tmp_path / "bin/sacctmgr").write_text(f"#!/bin/sh\necho sacctmgr >>{tmp_path}/calls; exit 1\n")
    with prometheus(tmp_path, on_gpu(7, "0", loaded(START, end, 50))) as server:
        assert [controller.lines(server, end + after) for after in (200, 260, 900)] == [1, 1, 1]
        assert controller.accounting.count_calls("sacctmgr") == 3
        controller.lines(server, end + 1100)
        assert controller.lines(server, end + 1200) == 0
    assert (controller.state["dropped"], controller.state["written"]) == (1, 0)


def test_more_jobs_than_fit_into_a_run(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is over after the first two jobs; the next run goes on with the third."""
    program = controller.program
    monkeypatch.setattr(program, "AT_ONCE", 2)
    monkeypatch.setattr(program, "write", lambda _job, _text: True)
    for number in range(7, 12):
        controller.accounting.add(number, START, START + HOUR + number, "gres/gpu=1")
    real = program.write_batches

    def write_first(server: str, jobs: Any, state: Any, _stop: float, now: float) -> Any:
        times = iter([0.0, 10.0])
        with monkeypatch.context() as patch:
            patch.setattr(program.time, "monotonic", lambda: next(times))
            patch.setattr(program, "measured", lambda _server, batch, _now: [program.Measured() for _job in batch])
            return real(server, jobs, state, 5.0, now)

    monkeypatch.setattr(program, "write_batches", write_first)
    assert controller.lines(NOBODY, START + 2 * HOUR) == 1
    assert (controller.state["written"], controller.state["until"]) == (2, START + HOUR + 9)


def test_a_standby_writes_nothing(controller: Controller, tmp_path: Path) -> None:
    controller.accounting.add(7, START, START + HOUR, "gres/gpu=1")
    (tmp_path / "gpu-hours.prom").write_text("old\n")
    controller.serve(serving=0, now=START + 2 * HOUR)
    assert controller.program.lines(NOBODY, START + 2 * HOUR) == 0
    controller.serve(now=START + 2 * HOUR - 400)  # slurm-metrics does not run any more
    assert controller.program.lines(NOBODY, START + 2 * HOUR) == 0
    assert controller.accounting.count_calls("sacct") == 0
    assert not (tmp_path / "gpu-hours.prom").exists()


def test_no_link_of_the_user_of_node_exporter_is_followed(controller: Controller, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / ".gpu-hours.prom.new").symlink_to(victim)
    assert controller.lines(NOBODY, START) == 0
    assert victim.read_text() == "kept"
    written = tmp_path / "gpu-hours.prom"
    assert not written.is_symlink()
    assert written.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "state/gpu-hours.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("serving", [0, 1])
def test_no_link_in_place_of_its_directory_is_followed(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving: int
) -> None:
    """Its parent belongs to the user of node-exporter. A standby removes its file, which must not be one of root."""
    victim = tmp_path / "of-root"
    victim.mkdir()
    for name in ("gpu-hours.prom", ".gpu-hours.prom.new"):
        (victim / name).write_text("of root")
    controller.serve(serving=serving, now=START)
    shutil.copy2(tmp_path / "slurm.prom", victim)
    (tmp_path / "link").symlink_to(victim)
    tmp_path.chmod(0o777)
    monkeypatch.setattr(controller.program, "TEXTFILES", str(tmp_path / "link"))
    with suppress(OSError):
        controller.program.lines(NOBODY, START)
    assert (victim / "gpu-hours.prom").read_text() == "of root"
    assert (victim / ".gpu-hours.prom.new").read_text() == "of root"


def test_a_controller_that_takes_over_begins_an_hour_ago(controller: Controller, tmp_path: Path) -> None:
    controller.accounting.add(6, START, START + 60, "gres/gpu=1")
    controller.accounting.add(7, START, START + 3 * HOUR, "gres/gpu=1")
    with prometheus(tmp_path, on_gpu(7, "0", loaded(START, START + 3 * HOUR, 50))) as server:
        assert controller.lines(server, START + 4 * HOUR) == 0
    assert [text[:12] for text in controller.accounting.comments().values()] == ["", "gpus: used 5"]


# -- the report ------------------------------------------------------------------------------------------------------


def rounded(report: Mapping[str, Any], by: str) -> dict[str, Any]:
    """Allocated, used and unmeasured hours."""
    names = ("allocated_hours", "used_hours", "unmeasured_hours")
    return {row[by]: (row[names[0]], row[names[1]], row[names[2]]) for row in report["rows"]}


def test_the_report_of_known_loads_is_right_within_two_percent(controller: Controller, tmp_path: Path) -> None:
    """The series go through the rules. Scrapes are missed, a node reboots, and a job runs over midnight."""
    add, midnight = controller.accounting.add, START + 14 * HOUR
    add(7, START, START + 10 * HOUR, "gres/gpu=2")  # 40 % and 0 %
    add(8, midnight - 2 * HOUR, midnight + 4 * HOUR, "gres/gpu=1", user="bob")  # 75 %
    add(9, START, START + 6 * HOUR, "gres/gpu=1", user="cyd", account="bio")  # its node reboots
    add(10, START, START + 2 * HOUR, "gres/gpu=1", user="dan", account="bio")  # MIG
    add(11, START - HOUR, None, "gres/gpu=4", user="eve", account="bio", elapsed=30 * DAY + HOUR)  # not measured
    add(12, START, START + HOUR, "cpu=4,gres/shard=1", user="dan", account="bio")
    gappy = {
        name: [one for i, one in enumerate(samples) if i % 20]
        for name, samples in loaded(START, START + 10 * HOUR, 40).items()
    }
    up = [(when, 0 if when % 1200 == (START + 17) % 1200 else 1) for when, _v in minutes(START, midnight + 5 * HOUR, 1)]
    # Of the same user and account, MIG instances and GPUs without samples.
    add(13, START, START + 5 * HOUR, "gres/gpu=2", user="fay", account="bio")
    series = {
        **on_gpu(13, "0", loaded(START, START + 5 * HOUR, 80), node="n4", user="fay", account="bio"),
        **on_gpu(13, "1.7", loaded(START, START + 5 * HOUR, None), node="n4", user="fay", account="bio"),
        **on_gpu(7, "0", gappy),
        **on_gpu(7, "1", loaded(START, START + 10 * HOUR, 0)),
        **on_gpu(8, "0", loaded(midnight - 2 * HOUR, midnight + 4 * HOUR, 75), node="n2", user="bob"),
        **on_gpu(9, "1", loaded(START, START + 6 * HOUR, 20), node="n3", user="cyd", account="bio"),
        **on_gpu(10, "2.7", loaded(START, START + 2 * HOUR, None), node="n2", user="dan", account="bio"),
        'up{instance="n1",job="node"}': up,
        'up{instance="n2",job="node"}': minutes(START, midnight + 5 * HOUR, 1),
        'up{instance="n3",job="node"}': [
            *minutes(START, START + 6 * HOUR, 1),
            *minutes(START + 6 * HOUR, START + 7 * HOUR, 0),
            *minutes(START + 7 * HOUR, midnight + 5 * HOUR, 1),
        ],
    }
    with prometheus(tmp_path, series, (START, midnight + 5 * HOUR)) as server:
        days = ("--from", "2026-02-10", "--to", "2026-02-11")
        by_user = controller.report(server, *days, "--by", "user")
        by_day = controller.report(server, *days, "--by", "day")
        only_one = controller.report(server, "--from", "2026-02-11", "--to", "2026-02-11", "--by", "account,user")
    near = pytest.approx
    found = rounded(by_user, "user")
    assert found["ann"] == (20, near(4, rel=0.02), 0)
    assert found["bob"] == (6, near(4.5, rel=0.02), 0)
    assert found["cyd"] == (6, near(1.2, rel=0.02), 0)
    assert found["dan"] == (2, 0, 2)
    assert found["fay"] == (10, near(4, rel=0.02), 5)
    assert found["eve"] == (4 * 39, 0, 4 * 39)
    assert by_user["jobs_with_parts"] == 1
    days_found = rounded(by_day, "day")
    assert days_found["2026-02-10"][:2] == (20 + 2 + 6 + 2 + 10 + 60, near(4 + 1.5 + 1.2 + 4, rel=0.02))
    assert days_found["2026-02-11"][:2] == (4 + 96, near(3, rel=0.02))
    assert [(row["account"], row["user"]) for row in only_one["rows"]] == [("bio", "eve"), ("physics", "bob")]


def test_the_report_for_people(controller: Controller) -> None:
    hours = controller.program.Hours
    groups = {("physics", "ann"): hours(20, 4, 0), ("bio", "eve"): hours(3, 0, 3)}
    assert controller.program.table(groups, ["account", "user"], 2) == (
        "account  user  allocated  used  idle  unmeasured  used %\n"
        "physics  ann        20.0   4.0  16.0         0.0      20\n"
        "bio      eve         3.0   0.0   0.0         3.0       -\n"
        "all                 23.0   4.0  16.0         3.0      20\n"
        "2 jobs with parts of GPUs (shard, MPS) are not in it.\n"
    )


def test_a_suspended_job_has_the_hours_in_which_it_ran(controller: Controller) -> None:
    controller.accounting.add(7, START, START + 4 * HOUR, "gres/gpu=2", elapsed=HOUR)
    (job,) = controller.program.jobs_of("R", START, START + 5 * HOUR, 0)
    report = controller.program.allocated([job], [date(2026, 2, 10)])
    assert [hours.allocated for hours in report.hours.values()] == [2]


def test_days_have_the_length_that_they_have_here(controller: Controller) -> None:
    """On 2026-03-29 there is no hour from 2 to 3."""
    program = controller.program
    assert program.midnight(date(2026, 3, 30)) - program.midnight(date(2026, 3, 29)) == 23 * HOUR


def test_the_command(controller: Controller, capsys: pytest.CaptureFixture[str]) -> None:
    (controller.directory / "metrics.json").write_text(json.dumps({"prometheus": NOBODY}))
    assert controller.program.main(["report", "--from", "2026-02-10", "--to", "2026-02-10"]) == 1
    assert NOBODY in capsys.readouterr().err
    for wrong in (["--from", "x"], ["--by", "node"], ["--from", "2026-02-11", "--to", "2026-02-10"]):
        with pytest.raises(SystemExit):
            controller.program.main(["report", *wrong])


@pytest.mark.parametrize(
    ("tres", "expected"),
    [
        ("", (0, "", False)),
        ("billing=8,cpu=8,gres/gpu:h100=2,gres/gpu=2", (2, "h100", False)),
        ("gres/gpu:a100=1,gres/gpu:h100=2,gres/gpu=3", (3, "", False)),
        ("cpu=1,gres/gpu:h100=2", (2, "h100", False)),
        ("cpu=1,gres/shard=2", (0, "", True)),
        ("cpu=1,gres/gpu=1,gres/shard=2", (1, "", False)),
    ],
)
def test_gpus_in_the_resources_of_a_job(controller: Controller, tres: str, expected: tuple[int, str, bool]) -> None:
    assert controller.program.gpus_of(tres) == expected


def test_lines_of_comments_are_no_jobs(controller: Controller) -> None:
    output = "7|7|10|20|10|ann|physics|gpu|gres/gpu=1|two\nlines | and bars\n8|8|Unknown|30|0|ann|physics|gpu||\n"
    (job,) = controller.program.parse_jobs(output, 100)
    assert (job.number, job.comment) == ("7", "two")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (20, "20 s"),
        (180, "3 min"),
        (3600, "60 min"),
        (7200, "2 h"),
        (9000, "2.5 h"),
        (36000, "10 h"),
        (360000, "100 h"),
    ],
)
def test_durations(controller: Controller, seconds: int, text: str) -> None:
    assert controller.program.duration(seconds) == text
