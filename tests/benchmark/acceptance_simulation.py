# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often the judgement of accept.yml names good nodes and misses bad ones: docs/design/acceptance.md.

usage: ANSIBLE_CONFIG=ansible.cfg python acceptance_simulation.py [HEALTHY SETS] [PROCESSES]
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from ansible.plugins.loader import init_plugin_loader

init_plugin_loader()
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from simulated_acceptance import (  # noqa: E402
    GPU,
    NODE,
    PAIR,
    SimulatedCluster,
    baseline_of,
    recorded_noise,
    robust_spread,
    run,
    scaled,
)

SPREADS = (0.003, 0.005, 0.01, 0.015, 0.02)
"""Standard deviations of values; the shape is that of the recorded runs."""

SIZES = (4, 5, 6, 8, 12, 16, 32, 64, 128, 256, 512)

Noises = dict[str, Sequence[float]]
Work = tuple[int, str, Sequence[float]]
HealthySet = tuple[str, str, int, bool]
BrokenSet = tuple[str, str, int, int, bool, int, int, int]


def noises() -> tuple[Noises, Noises, Noises]:
    """The noises by name: with another spread, the same of a machine that others disturb, and as recorded.

    A shape is that of a disturbed machine if more than one job in fifty is four spreads worse than the median.
    """
    own = recorded_noise()
    quiet: Noises = {}
    disturbed: Noises = {}
    for spread in SPREADS:
        for test, values in own.items():
            low = sum(value < -4 * robust_spread(values) for value in values)
            into = disturbed if low * 50 > len(values) else quiet
            into[f"{100 * spread:g} %|{test}"] = scaled(values, spread)
    return quiet, disturbed, {f"{test}, as recorded": values for test, values in own.items()}


def healthy(work: Work) -> HealthySet:
    """A healthy set: its noise, what was named, the nodes, whether with a baseline."""
    number, name, noise = work
    nodes = SIZES[number % len(SIZES)]
    with_baseline = number % 2 == 1
    cluster = SimulatedCluster(nodes, noise, seed=number, gpus=8 if nodes <= 16 else 2)
    result = run(cluster, baseline=baseline_of(noise) if with_baseline else ())
    kinds = "+".join(sorted({finding.kind for finding in result.findings}))
    return name.partition("|")[0], kinds, nodes, with_baseline


def _faulty(choice: random.Random, nodes: int) -> list[str]:
    count = choice.randint(1, 3)
    return choice.sample([f"n{each:03d}" for each in range(nodes)], min(count, nodes))


def broken(work: Work) -> BrokenSet:
    """A set with 1 to 3 faults of 10 %: noise, fault, nodes, faults, baseline; how many were named, missed, false."""
    number, name, noise = work
    choice = random.Random(number)
    fault = ("slow node", "slow GPU", "slow link", "slow switch")[number % 4]
    nodes = SIZES[number // 4 % len(SIZES)]
    with_baseline = bool(number // (4 * len(SIZES)) % 2)
    bad = _faulty(choice, nodes)
    baseline = baseline_of(noise) if with_baseline else ()
    gpus = 8 if nodes <= 16 else 2
    if fault == "slow node":
        cluster = SimulatedCluster(nodes, noise, number, slow_nodes=dict.fromkeys(bad, 0.9))
        result = run(cluster, (NODE,), baseline)
    elif fault == "slow GPU":
        cluster = SimulatedCluster(
            nodes, noise, number, gpus=gpus, slow_gpus={(node, choice.randrange(gpus)): 0.9 for node in bad}
        )
        result = run(cluster, (GPU,), baseline)
    elif fault == "slow link":
        cluster = SimulatedCluster(nodes, noise, number, slow_links=dict.fromkeys(bad, 0.9))
        result = run(cluster, (PAIR,), baseline)
    else:
        behind = cluster_half(choice, nodes)
        cluster = SimulatedCluster(nodes, noise, number, slow_switch=(frozenset(behind), 0.9))
        result = run(cluster, (PAIR,), baseline)
        groups = [finding for finding in result.findings if finding.kind == "group"]
        rest = {*cluster.names} - {*behind}
        found = any({*finding.nodes} in ({*behind}, rest) for finding in groups)
        return name.partition("|")[0], fault, nodes, 1, with_baseline, int(found), int(not found), len(result.named)
    named = {*result.named}
    return (
        name.partition("|")[0], fault, nodes, len(bad), with_baseline,
        len(named & {*bad}), len({*bad} - named), len(named - {*bad}),
    )  # fmt: skip


def cluster_half(choice: random.Random, nodes: int) -> list[str]:
    """Neighbours behind a switch: 2 to 16 of the nodes, at most half."""
    size = choice.randint(2, max(2, min(16, nodes // 2)))
    start = choice.randrange(nodes - size + 1)
    return [f"n{each:03d}" for each in range(start, start + size)]


def main() -> None:
    """Print the rates."""
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    kinds = dict(zip(("quiet", "disturbed", "recorded"), noises()))
    with ProcessPoolExecutor(processes) as pool:
        for title, noise in kinds.items():
            if not noise:
                continue
            items, number = [*noise.items()], sets if title == "quiet" else sets // 10
            # Sizes and faults repeat every 88 sets: the noise changes slower or faster, so that all combinations occur.
            work = [(each, *items[(each + each // 88) % len(items)]) for each in range(number)]
            print(f"{title}: healthy sets: noise, sets, of these with findings", flush=True)
            _print_healthy([*pool.map(healthy, work, chunksize=20)])
            work = [(each, *items[(each + each // 88) % len(items)]) for each in range(number * 2 // 5)]
            print(f"{title}: broken sets: noise, fault, baseline: named of all, good ones named", flush=True)
            _print_broken([*pool.map(broken, work, chunksize=20)])


def _print_healthy(results: Sequence[HealthySet]) -> None:
    totals: Counter[str] = Counter()
    found: Counter[tuple[str, str]] = Counter()
    places: Counter[tuple[str, str, int, bool]] = Counter()
    for noise, kinds, nodes, with_baseline in results:
        totals[noise] += 1
        if kinds:
            found[noise, kinds] += 1
            places[noise, kinds, nodes, with_baseline] += 1
    for noise, total in totals.items():
        print(f"  {noise:24} {total:6}", {kinds: many for (of, kinds), many in found.items() if of == noise})
    for place, many in sorted(places.items()):
        print("     ", *place, many)


def _print_broken(results: Sequence[BrokenSet]) -> None:
    named: Counter[tuple[str, str, str]] = Counter()
    missed: Counter[tuple[str, str, str]] = Counter()
    false: Counter[tuple[str, str, str]] = Counter()
    for noise, fault, nodes, faults, with_baseline, good, bad, wrong in results:
        how = "with baseline" if with_baseline else "without"
        if fault != "slow GPU" and faults * 2 >= nodes and not (with_baseline and nodes - faults > 1):
            how += ", half or more are bad"
        named[noise, fault, how] += good
        missed[noise, fault, how] += bad
        false[noise, fault, how] += wrong
    for key in sorted(named):
        total = named[key] + missed[key]
        print("  ", *key, f"{named[key]} of {total} ({100 * named[key] / total:.2f} %), false {false[key]}")


if __name__ == "__main__":
    main()
