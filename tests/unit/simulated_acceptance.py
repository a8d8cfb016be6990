# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated acceptance runs, with noise from recorded ones: a unit test makes a few, tests/benchmark 10,000.

A value is what the kind reaches, times the fault, times the noise of the unit (it stays, as that of a chip), times the
noise of the job. Both noises are drawn from the recorded runs, so their tails are those of a real machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from pathlib import Path
from statistics import median

from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.baseline import BaselineEntry, proposed
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.catalog import TESTS
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.judgement import Judgement, Options, judge
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.measurements import MeasuredValue
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.pairs import Pair, pair_of, schedule
from ansible_collections.gpucluster.slurm.plugins.module_utils.acceptance.spread import robust_spread

RUNS = Path(__file__).parent / "recorded/acceptance/runs.jsonl"

ROUNDS = 8
"""Rounds after the first one."""

NODE, GPU, PAIR = "stream", "gpu_memory_bandwidth", "all_reduce_pair"
"""The simulated tests."""

REACHED = {NODE: 480.0, GPU: 3050.0, PAIR: 391.0}


def recorded_noise(path: Path = RUNS) -> dict[str, list[float]]:
    """What jobs of three repetitions would have measured, by test, as logarithms of the ratio to their median.

    The three follow each other, so that what disturbed one run may have disturbed the next ones as well.
    """
    runs: dict[str, list[float]] = {}
    for line in path.read_text().split("\n"):
        if line:
            run = json.loads(line)
            runs.setdefault(run["test"], []).append(run["value"])
    jobs = {test: [median(three) for three in zip(values, values[1:], values[2:])] for test, values in runs.items()}
    return {test: [log(value / median(values)) for value in values] for test, values in jobs.items()}


def scaled(noise: Sequence[float], spread: float) -> list[float]:
    """The same shape and tails with another standard deviation."""
    now = robust_spread(noise)
    return [spread / now * value for value in noise]


@dataclass
class SimulatedCluster:
    """Equal nodes, of which some have faults."""

    nodes: int
    noise: Sequence[float]
    seed: int
    gpus: int = 2
    slow_nodes: Mapping[str, float] = field(default_factory=dict)
    """What is left of CPU and memory: 0.9."""
    slow_gpus: Mapping[tuple[str, int], float] = field(default_factory=dict)
    slow_links: Mapping[str, float] = field(default_factory=dict)
    """The network of a node."""
    slow_switch: tuple[frozenset[str], float] = (frozenset(), 1.0)
    """Nodes behind a switch whose uplinks are slow."""
    slow_paths: Mapping[Pair, float] = field(default_factory=dict)
    other_driver: str = ""
    """A node with another branch of the driver."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.names = [f"n{number:03d}" for number in range(self.nodes)]
        # What lasts and is far from the others is a fault, and not noise.
        most = 2.5 * robust_spread(self.noise)
        self.lasting = [value for value in self.noise if abs(value) <= most]
        self.units: dict[tuple[str, ...], float] = {}
        self.job = 0

    def _noise(self) -> float:
        return exp(0.7 * self.random.choice(self.noise))

    def _value(self, test: str, nodes: tuple[str, ...], gpu: int | None, left: float, job: int) -> MeasuredValue:
        unit = (test, *nodes, str(gpu))
        if unit not in self.units:
            self.units[unit] = exp(0.7 * self.random.choice(self.lasting))
        value = REACHED[test] * left * self.units[unit] * self._noise()
        driver = "575.57.08" if self.other_driver in nodes else "580.159.04"
        return MeasuredValue(test, value, TESTS[test].unit, nodes, gpu, None, "", "h100", driver, "", job, float(job))

    def measure(self, test: str, names: Sequence[str]) -> list[MeasuredValue]:
        """The values of a job on each of these nodes."""
        self.job += 1
        if test == NODE:
            return [self._value(test, (name,), None, self.slow_nodes.get(name, 1.0), self.job) for name in names]
        return [
            self._value(test, (name,), gpu, self.slow_gpus.get((name, gpu), 1.0), self.job)
            for name in names
            for gpu in range(self.gpus)
        ]

    def measure_pairs(self, pairs: Sequence[Pair]) -> list[MeasuredValue]:
        """The values of a job on each pair."""
        self.job += 1
        behind, left = self.slow_switch
        values = []
        for one, other in pairs:
            between = left if (one in behind) != (other in behind) else 1.0
            links = (self.slow_links.get(one, 1.0), self.slow_links.get(other, 1.0))
            path = self.slow_paths.get(pair_of(one, other), 1.0)
            values.append(self._value(PAIR, (one, other), None, min(between, path, *links), self.job))
        return values


def run(
    cluster: SimulatedCluster,
    tests: Sequence[str] = (NODE, GPU, PAIR),
    baseline: Sequence[BaselineEntry] = (),
    rounds: int = 3,
    switches: Mapping[str, str] | None = None,
) -> Judgement:
    """An acceptance run as accept.yml makes it: all nodes, then again whatever the judgement wants to know."""
    values: list[MeasuredValue] = []
    for test in tests:
        if test == PAIR:
            for pairs in schedule(cluster.names, rounds, cluster.seed):
                values += cluster.measure_pairs(pairs)
        else:
            values += cluster.measure(test, cluster.names)
    result = judge(values, baseline, Options(), switches)
    for _ in range(ROUNDS):
        if not result.again and not result.pairs:
            break
        for test, names in result.again.items():
            values += cluster.measure(test, [*names, *result.controls.get(test, ())])
        for planned in result.pairs.values():
            values += cluster.measure_pairs(planned)
        result = judge(values, baseline, Options(), switches)
    return result


def baseline_of(noise: Sequence[float]) -> list[BaselineEntry]:
    """A baseline that a person has taken from a run of 32 healthy nodes with this noise."""
    cluster = SimulatedCluster(32, noise, seed=-1)
    values = [*cluster.measure(NODE, cluster.names), *cluster.measure(GPU, cluster.names)]
    for pairs in schedule(cluster.names, 3, 0):
        values += cluster.measure_pairs(pairs)
    return proposed([], values, "2026-11-28")
