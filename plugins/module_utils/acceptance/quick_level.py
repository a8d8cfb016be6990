# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Level `quick` for one node, without a control host: what is measured next, and what it means.

The tests, the jobs and the judgement are those of accept.yml. Other nodes have jobs of users meanwhile, so that none
can be a control: a node is compared with the baseline and with published figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from ..language.hostlist import expand, fold
from .baseline import BaselineEntry, read_baseline, written
from .catalog import TESTS
from .judgement import AcceptanceFinding, Judgement, Options, judge
from .published import PublishedMachine
from .tasks import MOST_ROUNDS, NodePlace, Output, Site, Task, first_tasks, missed_lines, next_tasks, read_outputs

LEVEL = "quick"


@dataclass(frozen=True)
class MeasuringPlan:
    """What measuring depends on, apart from the node."""

    places: Mapping[str, NodePlace]
    """By node."""
    site: Site
    baseline: Sequence[BaselineEntry]
    machines: Mapping[str, PublishedMachine]
    """What is known of machine types, for published figures."""


def plan_to_json(plan: MeasuringPlan) -> dict[str, Any]:
    """The plan for a file. Nodes that are alike have one record."""
    alike: dict[NodePlace, list[str]] = {}
    for name, place in plan.places.items():
        alike.setdefault(replace(place, name=""), []).append(name)
    return {
        "places": [{**asdict(place), "name": fold(names)} for place, names in alike.items()],
        "site": asdict(plan.site),
        "baseline": [written(entry) for entry in plan.baseline],
        "machines": {name: asdict(machine) for name, machine in plan.machines.items()},
    }


def plan_from_json(content: Mapping[str, Any], file: str) -> MeasuringPlan:
    """The plan from a file. Raises BaselineError, TypeError or KeyError if it is none."""
    places = [NodePlace(**each) for each in content["places"]]
    return MeasuringPlan(
        places={name: replace(place, name=name) for place in places for name in expand(place.name)},
        site=Site(**content["site"]),
        baseline=read_baseline(content["baseline"], file),
        machines={name: PublishedMachine(**machine) for name, machine in content["machines"].items()},
    )


class QuickResult(NamedTuple):
    """What the measurements of a node mean."""

    faults: Sequence[str]
    """What is slow or broken, and jobs without a result, a line each."""
    values: Sequence[str]
    """What was measured, a line each."""
    missed: Sequence[str]
    """What was not measured, and why, a line each."""


def next_task(plan: MeasuringPlan, node: str, outputs: Sequence[Mapping[str, Any]]) -> Task | None:
    """What is measured next; None if the result is there.

    Args:
        plan: what measuring depends on.
        node: its name. One that is in no partition has no task.
        outputs: what the jobs have printed, in their order, as `read_outputs` takes it.
    """
    if node not in plan.places:
        return None
    if not outputs:
        return next(iter(first_tasks([plan.places[node]], LEVEL, plan.site)), None)
    found, judged = _judged(plan, node, outputs)
    if found.errors or judged.findings or len(outputs) >= MOST_ROUNDS:
        return None
    again = Judgement(again={test: names for test, names in judged.again.items() if node in names})
    return next(iter(next_tasks(len(outputs) + 1, again, [plan.places[node]])), None)


def result(plan: MeasuringPlan, node: str, outputs: Sequence[Mapping[str, Any]]) -> QuickResult:
    """What the jobs of a node have shown. Arguments as of `next_task`."""
    found, judged = _judged(plan, node, outputs)
    values = [
        f"{value.test}{_gpu(value.gpu)}: {value.value:g} {value.unit}"
        for value in found.values
        if not TESTS[value.test].is_check
    ]
    return QuickResult([*found.errors, *map(_fault, judged.findings)], values, missed_lines(found.missed))


def _judged(plan: MeasuringPlan, node: str, outputs: Iterable[Mapping[str, Any]]) -> tuple[Output, Judgement]:
    found = read_outputs(outputs, {name: place.hardware for name, place in plan.places.items() if name == node})
    return found, judge(found.values, plan.baseline, Options(machines=plan.machines))


def _fault(finding: AcceptanceFinding) -> str:
    return f"{finding.test}{_gpu(finding.gpu)}: {finding.text}"


def _gpu(index: int | None) -> str:
    return "" if index is None else f" of GPU {index}"
