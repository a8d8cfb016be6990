# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For how long GPUs are in use, by samples of slurm-gpu-metrics: loads whose truth is known, and what is not measured.

The clock and nvidia-smi are stand-ins where the times of samples matter.
"""

from __future__ import annotations

import json
import math
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.locks import LockError
from ansible_collections.gpucluster.slurm.plugins.module_utils.programs.metrics import (
    gpu_calls,
    gpu_jobs,
    slurm_gpu_metrics,
)
from gpu_nodes import MODEL, Node, only

pytestmark = pytest.mark.once

PAGE = (Path(__file__).parents[2] / "docs/admin/gpu-hours.md").read_text()
ALERTS = (Path(__file__).parents[2] / "roles/slurm_metrics/files/rules/alerts.yml").read_text()


class EndError(Exception):
    """The time of a simulation is over."""


class Clock:
    """A clock that sleeping moves, in place of module time."""

    def __init__(self, end: float) -> None:
        self.now, self.end = 0.0, end

    def monotonic(self) -> float:
        """Seconds since boot."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.now += seconds
        if self.now > self.end:
            raise EndError

    def time(self) -> float:
        """Seconds since 1970."""
        return self.now


@pytest.fixture(name="samples")
def _samples(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Iterator[tuple[float, float]]]:
    """The times of samples of so many seconds, and the seconds that each counts for, where a call takes `took`."""

    def samples(seconds: float, took: float = 0.0) -> Iterator[tuple[float, float]]:
        clock, found = Clock(seconds), []

        def take(length: float) -> float:
            found.append((clock.now, length))
            clock.now += took
            return float(slurm_gpu_metrics.span_after(took))

        monkeypatch.setattr(slurm_gpu_metrics, "time", clock)
        monkeypatch.setattr(slurm_gpu_metrics, "locked_sample", take)
        with pytest.raises(EndError):
            slurm_gpu_metrics.sample()
        return iter(found)

    return samples


class Load:
    """A GPU that computes for a part of each period."""

    def __init__(self, rng: random.Random, period: float, part: float) -> None:
        self.period, self.part, self.phase = period, part, rng.random() * period
        self.window = rng.choice((1 / 6, 1.0))

    def busy(self, until: float) -> float:
        """Seconds in which it has computed."""
        whole, rest = divmod(until + self.phase, self.period)
        first = min(self.phase, self.part * self.period)
        return whole * self.part * self.period + min(rest, self.part * self.period) - first

    def shown(self, when: float) -> int:
        """utilization.gpu: of a window that has just ended, in whole percent."""
        return int(100 * (self.busy(when) - self.busy(when - self.window)) / self.window + 1e-9)


def measure(load: Load, samples: Iterator[tuple[float, float]]) -> tuple[float, float]:
    """Busy and measured seconds by samples."""
    job = gpu_jobs.RecordedJob("7", {"start": "1"}, 0)
    state = gpu_calls.GpuState()
    for when, length in samples:
        slurm_gpu_metrics.count(state, {"0": [job]}, {"0": load.shown(when)}, length, when)
    use = state.use["7 0"]
    return use["busy"], use["measured"]


# -- loads -----------------------------------------------------------------------------------------------------------


def stated(seconds: float) -> float:
    """The error that the page states, in percentage points."""
    return 100 / math.sqrt(seconds / slurm_gpu_metrics.SAMPLE_SECONDS)


def test_the_page_states_the_error_and_the_resolution() -> None:
    for text, seconds in (("10 minutes", 600), ("an hour", 3600), ("8 hours", 8 * 3600)):
        points = f"{stated(seconds):.1f}".removesuffix(".0")
        assert re.search(rf"{points} (percentage )?points after {text}", PAGE), (points, text)
    assert f"each {slurm_gpu_metrics.SAMPLE_SECONDS:.0f} s" in PAGE


def test_the_stated_error_holds_for_200_loads(samples: Any) -> None:
    """Periods of 1 s to 10 min; in at least 95 of 100 loads, whatever the window of the driver is."""
    rng = random.Random(70)
    random.seed(1)
    errors = []
    for _load in range(200):
        period, seconds = math.exp(rng.uniform(0, math.log(600))), rng.choice((600, 600, 1800, 3600))
        load = Load(rng, period, rng.choice((0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)))
        busy, measured = measure(load, samples(seconds))
        assert measured == pytest.approx(seconds, abs=slurm_gpu_metrics.SAMPLE_SECONDS)
        errors.append(abs(100 * busy / measured - 100 * load.busy(seconds) / seconds) / stated(seconds))
    assert sum(error <= 1 for error in errors) >= 190
    assert max(errors) < 2


@pytest.mark.parametrize("period", [1, 2, 5, 10, 20, 30, 60, 120, 600])
@pytest.mark.parametrize("part", [0.25, 0.5])
def test_no_period_is_in_step_with_the_samples(samples: Any, period: float, part: float) -> None:
    """Also those that are multiples of the span, of the timer and of the scrapes."""
    random.seed(period)
    busy, measured = measure(Load(random.Random(2), period, part), samples(4 * 3600))
    assert 100 * busy / measured == pytest.approx(100 * part, abs=stated(4 * 3600) + 1)


def test_no_working_job_is_idle(samples: Any) -> None:
    """By the condition of the alert: a job that computes for 1 % of four hours or more, in any period."""
    (factor,) = {float(text) for text in re.findall(r"< (0\.\d+) \* increase\(gpucluster_job_gpu_measured", ALERTS)}
    rng = random.Random(3)
    random.seed(4)
    for _load in range(20):
        period = math.exp(rng.uniform(0, math.log(600)))
        busy, measured = measure(Load(rng, period, rng.choice((0.01, 0.02, 0.25))), samples(4 * 3600))
        assert busy > factor * measured


def test_a_slow_driver_is_asked_less_often_and_all_its_time_is_measured(samples: Any) -> None:
    """Its calls take at most a tenth of the time."""
    random.seed(5)
    found = list(samples(3600, took=2.0))
    assert len(found) == pytest.approx(3600 / 20, abs=3)
    assert sum(length for _when, length in found) == pytest.approx(3600, rel=0.01)


def test_what_a_call_takes_after_its_span_is_not_measured(samples: Any) -> None:
    random.seed(6)
    found = list(samples(3600, took=90.0))
    assert sum(length for _when, length in found) < 3600 - 20 * len(found)


# -- which job -------------------------------------------------------------------------------------------------------


@pytest.fixture(name="node")
def _node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


BUSY, MEASURED = "gpucluster_job_gpu_busy_seconds_total", "gpucluster_job_gpu_measured_seconds_total"


def state_of(node: Node) -> dict[str, Any]:
    """What the program has kept."""
    found: dict[str, Any] = json.loads((node.run / "gpu-state.json").read_text())
    return found


def counters(node: Node) -> dict[tuple[str, str], tuple[float, float]]:
    """Busy and measured seconds by job and GPU, as Prometheus sees them."""
    found = node.collect()
    pairs = {(one["slurmjobid"], one["gpu"]) for name, one, _value in found if name == MEASURED}
    return {
        (job, gpu): tuple(only(found, name, {"slurmjobid": job, "gpu": gpu}) for name in (BUSY, MEASURED))
        for job, gpu in pairs
    }


def test_seconds_of_jobs(node: Node) -> None:
    """Of two GPUs of a job, one of which it shares, and none of a GPU that nobody has."""
    node.have([MODEL] * 3, ["/dev/nvidia[0-2]"])
    node.collect()
    node.prolog(7, "0,1")
    node.prolog(8, "1")
    node.loads("0 40 1", "1 80 2", "2 90 1")
    for _sample in range(2):
        assert slurm_gpu_metrics.take_sample(5.0) >= 5.0
    assert counters(node) == {("7", "0"): (4, 10), ("7", "1"): (8, 10), ("8", "1"): (8, 10)}
    labels = {"user": "user7", "account": "physics", "partition": "gpu", "slurmjobid": "7", "gpu": "0"}
    assert only(node.collect(), BUSY, labels) == 4


def test_percentages_are_the_mean_of_the_last_minute(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.collect()
    node.prolog(7, "0")
    for text, now in (("0 90 1", 999), ("0 0 0", 1055), ("0 30 1", 1056), ("0 60 1", 1058)):
        node.loads(text)
        monkeypatch.setattr(time, "monotonic", lambda now=now: float(now))
        slurm_gpu_metrics.take_sample(5.0)
    monkeypatch.setattr(time, "monotonic", lambda: 1060.0)
    found = node.collect()
    assert only(found, "slurm_job_utilization_gpu", {"slurmjobid": "7"}) == 30
    assert only(found, "DCGM_FI_DEV_GPU_UTIL", {"gpu": "0"}) == 30
    # The next job has none of its samples.
    node.epilog(7)
    node.prolog(8, "0")
    slurm_gpu_metrics.take_sample(5.0)
    found = node.collect()
    assert only(found, "slurm_job_utilization_gpu", {"slurmjobid": "8"}) == 60
    assert only(found, "DCGM_FI_DEV_GPU_UTIL", {"gpu": "0"}) == 37.5


def test_a_job_that_has_ended_keeps_its_seconds_until_they_are_scraped(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.collect()
    node.prolog(7, "0")
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    slurm_gpu_metrics.take_sample(5.0)
    # The epilog is just at work.
    (node.run / "gpu-job-data/7").unlink()
    slurm_gpu_metrics.take_sample(5.0)
    assert node.map() == {"0": "7\n"}
    node.epilog(7)
    now += 95  # the timer, its random delay, and a scrape
    slurm_gpu_metrics.take_sample(5.0)
    assert counters(node) == {("7", "0"): (0, 5)}
    now += 10
    slurm_gpu_metrics.take_sample(5.0)
    assert counters(node) == {}


def test_a_job_that_was_requeued_begins_anew(node: Node) -> None:
    node.collect()
    node.prolog(7, "0")
    node.loads("0 50 1")
    slurm_gpu_metrics.take_sample(5.0)
    node.epilog(7)
    node.prolog(7, "0", SLURM_JOB_START_TIME="1764289999")
    slurm_gpu_metrics.take_sample(10.0)
    assert counters(node) == {("7", "0"): (5, 10)}


# -- what is not measured --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", ["exit 6", "echo 'No devices were found'", "echo '0, [N/A]'", "echo '0, [Unknown Error]'"]
)
def test_a_driver_that_says_nothing_has_not_measured(node: Node, answer: str) -> None:
    """The seconds stay as they were."""
    node.collect()
    node.prolog(7, "0")
    node.loads("0 50 1")
    slurm_gpu_metrics.take_sample(5.0)
    smi = (node.bin / "nvidia-smi").read_text()
    node.put("nvidia-smi", answer)
    slurm_gpu_metrics.take_sample(5.0)
    (node.bin / "nvidia-smi").write_text(smi)
    assert counters(node) == {("7", "0"): (2.5, 5)}


def test_failures_are_counted_and_a_call_that_hangs_is_the_only_one(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.collect()
    node.prolog(7, "0")
    node.put("nvidia-smi", f"echo run >>{node.directory}/runs; exit 9")
    slurm_gpu_metrics.take_sample(5.0)
    assert state_of(node)["failures"]["use"] == 1
    monkeypatch.setattr(gpu_calls.DriverCalls, "hangs", lambda _self: True)
    slurm_gpu_metrics.take_sample(5.0)
    assert (node.directory / "runs").read_text() == "run\n"
    assert state_of(node)["failures"]["use"] == 2


def test_mig_instances_are_not_measured_and_no_job_asks_nobody(node: Node) -> None:
    caps = "/dev/nvidia-caps/nvidia-cap"
    node.have([f"{MODEL}|3g.40gb 3g.40gb"], [f"/dev/nvidia0,{caps}{n},{caps}{n + 1}" for n in (12, 21)])
    path = node.root / "proc/driver/nvidia-caps/mig-minors"
    path.parent.mkdir(parents=True)
    path.write_text("gpu0/gi1/access 12\ngpu0/gi2/access 21\n")
    node.collect()
    node.put("nvidia-smi", f"echo run >>{node.directory}/runs")
    slurm_gpu_metrics.take_sample(5.0)
    node.prolog(7, "1")
    assert node.map() == {"0.2": "7\n"}
    slurm_gpu_metrics.take_sample(5.0)
    assert state_of(node)["use"] == {}
    assert not (node.directory / "runs").exists()


def test_it_ends_when_its_program_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, times = Clock(100), iter([1, 1, 1, 2])
    monkeypatch.setattr(slurm_gpu_metrics, "time", clock)
    monkeypatch.setattr(sys, "argv", ["/usr/local/sbin/slurm-gpu-metrics", "sample"])
    monkeypatch.setattr(slurm_gpu_metrics, "changed_at", lambda path: next(times) if str(path) == sys.argv[0] else 0)
    monkeypatch.setattr(slurm_gpu_metrics, "locked_sample", lambda _length: 5.0)
    slurm_gpu_metrics.sample()
    assert clock.now == 10


def test_a_lock_that_is_held_measures_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def held(_name: str, _seconds: float) -> Any:
        raise LockError("held")

    monkeypatch.setattr(slurm_gpu_metrics, "locked", held)
    assert slurm_gpu_metrics.locked_sample(5.0) == 5.0
    assert not (node.run / "gpu-state.json").exists()
