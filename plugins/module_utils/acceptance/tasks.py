# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which jobs measure what: those of the first round, and those that the judgement asks for in a later one.

The same nodes and results give tasks of the same names, so that a run that was killed makes only what is missing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..jobs.batch import Job
from ..language.hostlist import expand, fold
from .catalog import TESTS, Scope, of_level
from .judgement import Judgement
from .measurements import Asked, MeasuredValue, read_lines
from .pairs import schedule

PROGRAM = "/usr/local/lib/gpucluster-slurm/slurm-accept"

PAIR_ROUNDS = {"quick": 0, "medium": 3, "long": 3}
"""Partners of each node in the first round."""

MOST_ROUNDS = 8
"""Rounds of a run: the first one, and those that find out whose fault it is. Few nodes need the most."""

START = 900
"""Seconds of a job besides its tests: for prologs, the download of an image, programs that a slow node runs."""

SLOW = 5
"""How many times longer than usual a test may take."""

DIAGNOSES = ("dcgm_1", "dcgm_2", "dcgm_3")

MISSED = "not measured: "
"""How the line of a test begins for which slurm-accept has no result."""


@dataclass(frozen=True)
class NodePlace:
    """A node, and what its jobs depend on."""

    name: str
    hardware: str
    gpus: int
    """GPUs as Slurm counts them, which can be MIG instances."""
    partition: str
    account: str = ""
    qos: str = ""
    cards: int = 0
    """Physical GPUs."""

    @property
    def whole(self) -> bool:
        """Whether jobs get whole GPUs."""
        return self.gpus == self.cards


@dataclass(frozen=True)
class Site:
    """What the site has for measuring."""

    image: str = ""
    runtime: str = ""
    nccl_tests: str = ""
    profile: str = ""
    """A file that a job of several nodes sources before it starts anything."""
    disk: str = ""
    shared: str = ""
    xids: str = ""
    directory: str = ""
    """Where jobs write on their first node."""


@dataclass(frozen=True)
class Task:
    """What one job measures."""

    name: str
    what: str
    """`node`, `pair` or `many`."""
    nodes: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def seconds(self) -> int:
        """How long it takes, about."""
        return sum(TESTS[test].seconds for test in self.tests)


def tests_of(place: NodePlace, level: str, site: Site) -> list[str]:
    """The tests of a level for a node. MIG instances are checked, and not measured: they are no GPUs to compare."""
    names = possible_tests(level, site, place.cards)
    return [name for name in names if place.whole or not TESTS[name].container]


def possible_tests(level: str, site: Site, gpus: int) -> list[str]:
    """The tests of a level that a node with so many GPUs can have. Of dcgmi's levels the highest has the others."""
    names = [test.name for test in of_level(level) if _is_possible(test.name, site, gpus)]
    diagnoses = [name for name in names if name in DIAGNOSES]
    return [name for name in names if name not in diagnoses[:-1]]


def _is_possible(name: str, site: Site, gpus: int) -> bool:
    test = TESTS[name]
    if gpus < max(test.gpus, int(name.startswith("gpu_"))):
        return False
    if name.startswith("disk_"):
        return bool(site.shared if name.endswith("_shared") else site.disk)
    if name.startswith("all_"):
        return bool(site.nccl_tests or (site.image and name.startswith("all_reduce")))
    # Whether a node has nvbandwidth is seen there.
    return not test.container or bool(site.image) or "nvbandwidth" in test.programs


def without_means(level: str, site: Site, places: Iterable[NodePlace]) -> list[str]:
    """The tests of a level that nodes could have if the site named an image or nccl-tests."""
    gpus = max((place.cards for place in places if place.whole), default=0)
    everything = Site(image="x", nccl_tests="x", disk="x")
    possible = possible_tests(level, site, gpus)
    return [name for name in possible_tests(level, everything, gpus) if name not in possible and name[:5] != "disk_"]


def of_scope(tests: Iterable[str], *scopes: Scope) -> tuple[str, ...]:
    """Those of these tests that are about such a thing."""
    return tuple(test for test in tests if TESTS[test].scope in scopes)


# -- rounds ----------------------------------------------------------------------------------------------------------


def first_tasks(places: Sequence[NodePlace], level: str, site: Site) -> list[Task]:
    """The first round: each node by itself, pairs of nodes of one kind, all nodes of a kind together."""
    tasks = []
    for place in places:
        tests = of_scope(tests_of(place, level, site), Scope.NODE, Scope.GPU)
        tasks.append(Task(f"1/node/{place.name}", "node", (place.name,), tests))
    for kind in kinds(places):
        names = [place.name for place in kind]
        possible = tests_of(kind[0], level, site)
        for pairs in schedule(names, PAIR_ROUNDS[level], seed=0):
            tasks += [_pair_task(1, pair, of_scope(possible, Scope.PAIR)) for pair in pairs]
        if len(names) > 2:
            tasks.append(Task(f"1/many/{fold(names)}", "many", tuple(names), of_scope(possible, Scope.MANY)))
    return [task for task in tasks if task.tests]


def _pair_task(number: int, pair: Sequence[str], tests: tuple[str, ...]) -> Task:
    return Task(f"{number}/pair/{'+'.join(pair)}", "pair", tuple(pair), tests)


def kinds(places: Iterable[NodePlace]) -> list[list[NodePlace]]:
    """Nodes that can be in one job and are alike: of one machine type, in one partition."""
    found: dict[tuple[str, str], list[NodePlace]] = {}
    for place in places:
        found.setdefault((place.hardware, place.partition), []).append(place)
    return [*found.values()]


def next_tasks(number: int, judgement: Judgement, places: Iterable[NodePlace]) -> list[Task]:
    """The tasks of a later round: what was slow, together with controls, and the pairs that tell whose fault it is."""
    known = {place.name for place in places}
    tests: dict[str, list[str]] = {}
    for wanted in (judgement.again, judgement.controls):
        for test, names in wanted.items():
            for name in names:
                tests.setdefault(name, []).append(test)
    pairs: dict[tuple[str, str], list[str]] = {}
    for test, several in judgement.pairs.items():
        for pair in several:
            pairs.setdefault(pair, []).append(test)
    tasks = [
        Task(f"{number}/node/{name}", "node", (name,), tuple(dict.fromkeys(tests[name]))) for name in sorted(tests)
    ]
    tasks += [_pair_task(number, pair, tuple(pairs[pair])) for pair in sorted(pairs)]
    return [task for task in tasks if {*task.nodes} <= known]


def round_of(name: str) -> int:
    """The round of a task."""
    return int(name.partition("/")[0])


# -- jobs ------------------------------------------------------------------------------------------------------------


def job_of(task: Task, places: Mapping[str, NodePlace], site: Site) -> Job:
    """The batch job of a task, as `sbatch_arguments` takes it: it has its nodes for itself."""
    first = places[task.nodes[0]]
    gres = {"gres": f"gpu:{first.gpus}"} if first.gpus else {}
    limits = {key: value for key, value in (("account", first.account), ("qos", first.qos)) if value}
    # Several nodes need a task for each GPU, so that nccl-tests has its slots.
    tasks = max(1, first.gpus) if task.what != "node" else 1
    return {
        "name": f"accept-{task.what}",
        "partition": first.partition,
        "nodelist": fold([*task.nodes]),
        "nodes": str(len(task.nodes)),
        "memory": "0",
        "time": str(-(-(START + SLOW * task.seconds) // 60)),
        "output": f"{site.directory}/%j.out",
        "script": script(task, first, site),
        "options": {"exclusive": True, "ntasks-per-node": tasks, "chdir": "/", "error": f"{site.directory}/%j.err"},
        **gres,
        **limits,
    }


def command(task: Task, first: NodePlace, site: Site) -> str:
    """The command that measures, for a shell."""
    words = [PROGRAM, task.what, f"--tests={','.join(task.tests)}", f"--nodes={','.join(task.nodes)}"]
    words += [f"--gpus={first.cards}", f"--hardware={first.hardware}"]
    options = {
        "xids": site.xids if first.gpus else "",
        "disk": site.disk,
        "shared": site.shared,
        "image": site.image if first.gpus else "",
        "runtime": site.runtime if first.gpus else "",
        "nccl-tests": site.nccl_tests if first.gpus else "",
    }
    return shlex.join([*words, *(f"--{name}={value}" for name, value in options.items() if value)])


def script(task: Task, first: NodePlace, site: Site) -> str:
    """The batch script of a task."""
    profile = [f". {shlex.quote(site.profile)}"] if site.profile and len(task.nodes) > 1 else []
    return "\n".join(["#!/bin/bash", *profile, f"exec {command(task, first, site)}", ""])


# -- what jobs have printed ------------------------------------------------------------------------------------------


@dataclass
class Output:
    """What all jobs so far have shown."""

    values: list[MeasuredValue] = field(default_factory=list)
    missed: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """By test and reason, the nodes."""
    errors: list[str] = field(default_factory=list)


def read_outputs(outputs: Iterable[Mapping[str, Any]], hardware: Mapping[str, str]) -> Output:
    """The values in the outputs of jobs.

    Args:
        outputs: records of the module slurm_acceptance: `task`, `job`, `nodes` (a hostlist), `text`, `why`.
        hardware: the machine type of each node.
    """
    found = Output()
    for output in outputs:
        nodes = expand(output["nodes"])
        asked = Asked(job=output["job"], nodes={name: hardware.get(name, "") for name in nodes})
        reading = read_lines(output["text"], asked, f"job {output['job']} on {output['nodes']}")
        found.values += reading.values
        found.errors += reading.errors
        found.errors += [f"{output['nodes']}: {output['why']}"] if output["why"] else []
        for line in output["text"].split("\n"):
            if line.startswith(MISSED):
                test, _colon, why = line[len(MISSED) :].partition(": ")
                if test in TESTS:
                    found.missed.setdefault(test, {}).setdefault(why[:300], []).extend(nodes)
    return found


def missed_lines(missed: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    """A line for each reason why tests have no result."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for test, why in missed.items():
        for reason, nodes in why.items():
            reasons.setdefault((reason, fold(sorted({*nodes}))), []).append(test)
    return [f"{', '.join(tests)} on {nodes}: {reason}" for (reason, nodes), tests in reasons.items()]
