# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role accept: what is measured on which nodes, and what the results mean."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from difflib import unified_diff
from statistics import median
from typing import TYPE_CHECKING, Any

from ..host.slurm_health import measuring_program
from ..known import registered
from ..known.shipped_files import HostFile

try:
    import yaml
except ImportError:  # on a host, which does not decide
    yaml = None  # type: ignore[assignment]

from ...acceptance import runs, tasks
from ...acceptance.baseline import (
    Conditions,
    conditions_of,
    proposed,
    read_baseline,
    trend,
    written,
)
from ...acceptance.catalog import TESTS, Scope
from ...acceptance.judgement import Judgement, Options, judge
from ...acceptance.measurements import MeasuredValue
from ...acceptance.published import published_floor
from ...acceptance.tasks import NodePlace, Output, Task
from ...client import drains
from ...language.formatting import align_columns
from ...language.hostlist import expand, fold
from ..known.run_host import RunHost
from ..servers.node_measuring import all_places, baseline, baseline_path, packages_of, published_machines, site

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import AcceptanceOutput

REASON = 180
"""Characters of a drain's reason."""

# -- what is measured -------------------------------------------------------------------------------------------------


def level(host: RunHost) -> str:
    """How much is measured: what the administrator chooses, and of nodes of a rolling change what it chooses."""
    return str(registered.ACCEPT_LEVEL.get(host) or host["accept_level"])


def places(host: RunHost) -> list[NodePlace]:
    """The nodes of this run that are in a partition."""
    names = registered.ACCEPT_NAMES.get(host) or host.play_hosts
    return [place for place in all_places(host) if place.name in names]


def nodes(host: RunHost) -> str:
    """The nodes that the run may measure, as a hostlist."""
    return fold([place.name for place in places(host)])


def change(host: RunHost) -> str:
    """The checksum of what is measured: a run with another one begins anew."""
    nodes_or_change = registered.ROLLING_DIGEST.get(host) or host.get("ansible_limit")
    parts = [level(host), asdict(site(host)), str(nodes_or_change or "")]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def budget(host: RunHost) -> dict[str, Any]:
    """How many nodes with jobs are waited for at the same time, by partition; empty if such nodes are left out."""
    given = host["accept_budget"]
    return given if isinstance(given, dict) else {"*": given} if given else {}


def packages(host: RunHost) -> list[dict[str, str]]:
    """Packages of the distribution for the tests of this level."""
    return [{"name": name} for name in packages_of(host, level(host))]


def files(_host: RunHost) -> list[HostFile]:
    """The program that measures."""
    return measuring_program()


# -- rounds -----------------------------------------------------------------------------------------------------------


def taken(host: RunHost) -> list[NodePlace]:
    """The nodes that the controller has chosen."""
    names = {*expand(registered.ACCEPT_BEGUN.of(host)["taken"])}
    return [place for place in places(host) if place.name in names]


def outputs(host: RunHost) -> list[AcceptanceOutput]:
    """What all jobs so far have printed."""
    stored = registered.ACCEPT_STORED.seen(host)
    return (stored if "outputs" in stored else registered.ACCEPT_BEGUN.of(host))["outputs"]


def output(host: RunHost, before: int = 0) -> Output:
    """The values so far; before: only those of earlier rounds than this one."""
    kinds = {place.name: place.hardware for place in places(host)}
    return tasks.read_outputs(
        (one for one in outputs(host) if not before or tasks.round_of(one["task"]) < before), kinds
    )


def round_number(host: RunHost) -> int:
    """The number of this round, from 1."""
    return int(registered.ACCEPT_ROUNDS.get(host) or 0) + 1


def round_tasks(host: RunHost) -> list[Task]:
    """The tasks of this round."""
    number = round_number(host)
    if number == 1:
        return tasks.first_tasks(taken(host), level(host), site(host))
    return tasks.next_tasks(number, judgement(host, number), taken(host))


def wanted(host: RunHost) -> list[dict[str, Any]]:
    """The tasks of this round as the module slurm_acceptance takes them."""
    known, means = {place.name: place for place in places(host)}, site(host)
    return [
        {"name": task.name, "nodes": fold([*task.nodes]), "job": tasks.job_of(task, known, means)}
        for task in round_tasks(host)
    ]


def goes_on(host: RunHost) -> bool:
    """Whether another round follows, after the one that has just been counted."""
    return round_number(host) <= tasks.MOST_ROUNDS and bool(round_tasks(host))


def read_here(host: RunHost) -> list[int]:
    """The jobs whose outputs are on this node."""
    return list((registered.ACCEPT_STEP.of(host).get("reads") or {}).get(host.name, []))


def read_outputs(host: RunHost) -> list[dict[str, Any]]:
    """What the nodes have read: the output of a job is on one of its nodes. A node that was lost has said nothing."""
    reads = registered.ACCEPT_STEP.of(host)["reads"]
    answers = registered.ACCEPT_READ.by_host(host, {*reads} & {*host.play_hosts})
    said: dict[int, list[tuple[str, str]]] = {}
    for name, jobs in reads.items():
        outputs_here = answers[name].get("outputs") or [] if name in answers else []
        texts = {one["job"]: (one["text"], one["why"]) for one in outputs_here}
        lost = ("", f"{name} was not reached, and may have its output")
        for job in jobs:
            said.setdefault(job, []).append(texts.get(job, lost))
    # The first text, or else the last reason.
    best = {job: next((one for one in found if one[0]), found[-1]) for job, found in said.items()}
    return [{"job": job, "text": text, "why": why} for job, (text, why) in best.items()]


def announcement(host: RunHost) -> list[str]:
    """What is measured, on which nodes, and how long it takes about."""
    first = tasks.first_tasks(taken(host), host["accept_level"], site(host))
    longest = dict.fromkeys((place.name for place in taken(host)), 0)
    for task in first:
        for name in task.nodes:
            longest[name] += task.seconds
    tests = list(dict.fromkeys(test for task in first for test in task.tests))
    lines = [f"nodes     {registered.ACCEPT_BEGUN.of(host)['taken'] or 'none'}"]
    lines += [f"left out  {name}: {why}" for name, why in registered.ACCEPT_BEGUN.of(host)["left"].items()]
    lines += [f"tests     {', '.join(tests) or 'none'}"]
    if without := tasks.without_means(host["accept_level"], site(host), places(host)):
        lines += [f"without   {', '.join(without)}: accept_container and accept_nccl_tests name nothing for them"]
    minutes = -(-max(longest.values(), default=0) // 60)
    return [*lines, f"time      about {minutes} minutes on each node, in {len(first)} jobs"]


# -- the judgement ----------------------------------------------------------------------------------------------------


def judgement(host: RunHost, before: int = 0) -> Judgement:
    """What the results mean; before: those of earlier rounds than this one."""
    options, switches = Options(machines=published_machines(host)), registered.ACCEPT_BEGUN.of(host).get("switches")
    return judge(output(host, before).values, baseline(host), options, switches)


def baseline_text(host: RunHost) -> str:
    """The baseline after this run, as the file has it."""
    found = proposed(baseline(host), output(host).values, date.today().isoformat(), judgement(host).named)
    lines = (yaml.safe_dump(written(entry), default_flow_style=True, width=10**6, sort_keys=False) for entry in found)
    return "".join(f"- {line}" for line in lines)


def baseline_change(host: RunHost) -> list[str]:
    """How the proposed baseline differs from the reviewed one, in lines of a diff; empty if it does not."""
    before, after = baseline(host), baseline_text(host)
    if read_baseline(yaml.safe_load(after), "the proposal") == before:
        return []
    old = (host.content(baseline_path(host)) or b"").decode()
    reviewed, wanted_now = ([line for line in text.split("\n") if line] for text in (old, after))
    return list(unified_diff(reviewed, wanted_now, "reviewed", "proposed", lineterm="", n=0))


@dataclass(frozen=True)
class Row:
    """All values of one kind."""

    test: str
    hardware: str
    nodes: int
    values: int
    median: float
    worst: float
    where: str
    """The nodes of the worst value."""
    unit: str
    trend: str


def by_conditions(host: RunHost) -> dict[Conditions, list[MeasuredValue]]:
    """The values that can be compared with each other."""
    groups: dict[Conditions, list[MeasuredValue]] = {}
    for value in output(host).values:
        if not TESTS[value.test].is_check:
            groups.setdefault(conditions_of(value), []).append(value)
    return groups


def rows(host: RunHost) -> list[Row]:
    """A row for each kind of value, with the baseline's trend."""
    known = {entry.conditions: entry for entry in baseline(host)}
    found = []
    for conditions, values in by_conditions(host).items():
        middle = median(value.value for value in values)
        pick = min if TESTS[conditions.test].higher else max
        worst = pick(values, key=lambda value: value.value)
        entry = known.get(conditions)
        found.append(
            Row(
                conditions.test,
                conditions.hardware,
                conditions.nodes,
                len(values),
                float(f"{middle:.5g}"),
                float(f"{worst.value:.5g}"),
                "+".join(worst.nodes) + ("" if worst.gpu is None else f" GPU {worst.gpu}"),
                worst.unit,
                trend(entry, middle) if entry else "",
            )
        )
    return found


def slow_pairs(host: RunHost) -> list[str]:
    """The tests in which pairs are under their floor as a whole, a line each. Nobody can tell then which node it is."""
    known, machines = {entry.conditions: entry for entry in baseline(host)}, published_machines(host)
    named = {finding.test for finding in judgement(host).findings}
    lines = []
    for conditions, values in by_conditions(host).items():
        test, middle = TESTS[conditions.test], median(value.value for value in values)
        figure = published_floor(machines, conditions.hardware, test.name, conditions.nodes, conditions.size)
        floors = [(figure.floor, figure.source)] if figure else []
        if entry := known.get(conditions):
            floors.append((entry.floor, f"the baseline of {entry.measured}"))
        over = [(floor, source) for floor, source in floors if middle < floor]
        if test.scope is Scope.PAIR and test.name not in named and over:
            names = fold(sorted({name for value in values for name in value.nodes}))
            lines.append(f"{names}: {test.meaning}: {middle:.5g} {test.unit}, under {over[0][0]:g} of {over[0][1]}")
    return lines


def result(host: RunHost) -> dict[str, Any]:
    """The evaluation of the run, for set_stats and the report."""
    found, judged = output(host), judgement(host)
    findings = [asdict(finding) for finding in judged.findings]
    slow = slow_pairs(host)
    undecided = {name for names in judged.again.values() for name in names}
    undecided |= {name for pairs in judged.pairs.values() for pair in pairs for name in pair}
    return {
        "ok": not (findings or slow or found.errors),
        "level": level(host),
        "measured": sorted({name for value in found.values for name in value.nodes}),
        "left": registered.ACCEPT_BEGUN.of(host)["left"],
        "named": judged.named,
        "findings": findings,
        "slow_pairs": slow,
        "undecided": sorted(undecided),
        "notes": judged.notes,
        "missed": tasks.missed_lines(found.missed),
        "errors": found.errors,
        "values": [asdict(row) for row in rows(host)],
    }


def table(host: RunHost) -> list[str]:
    """The result for a person, in lines."""
    said = result(host)
    heading = ["test", "machine", "nodes", "values", "median", "worst", "at", "unit", "trend"]
    cells = [[str(cell) or "-" for cell in asdict(row).values()] for row in rows(host)]
    lines = align_columns([heading, *cells]) if cells else []
    lines += [*map(describe, said["findings"]), *said["slow_pairs"]] or ["Nothing is slow or broken."]
    lines += (
        [f"undecided: {fold(said['undecided'])}: slow once, and not often enough to be named"]
        if said["undecided"]
        else []
    )
    lines += [f"failed: {error}" for error in said["errors"]]
    lines += [f"not measured: {line}" for line in said["missed"]]
    lines += [f"left out: {name}: {why}" for name, why in said["left"].items()]
    return lines + [f"note: {note}" for note in said["notes"]]


def describe(finding: Mapping[str, Any]) -> str:
    """A finding in one line."""
    gpu = "" if finding["gpu"] is None else f" GPU {finding['gpu']}"
    names = fold(finding["nodes"])
    between = f"the path between {' and '.join(finding['nodes'])}"
    what = between if finding["kind"] == "path" else names
    return f"{what}{gpu}: {finding['text']}"


def runs_path(host: RunHost) -> str:
    """Where this control host keeps the last runs, for the page about the cluster."""
    return f"{host.option('accept', 'accept_report_dir')}/acceptance-runs.json"


def runs_before(host: RunHost) -> dict[str, Any]:
    """The runs that this control host knows; empty without a file, or if it has something else."""
    try:
        found = json.loads(host.content(runs_path(host)) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def runs_kept(host: RunHost, finished: str) -> dict[str, Any]:
    """The runs that this control host knows, with this one.

    Args:
        host: any host of the play.
        finished: the time, in ISO 8601 and UTC.
    """
    said, found = result(host), output(host)
    faults = [*map(describe, said["findings"]), *said["slow_pairs"], *(f"failed: {error}" for error in said["errors"])]
    return runs.kept(runs_before(host), runs.run_of(said, faults, found.values, baseline(host), finished))


def last_run(host: RunHost) -> dict[str, Any]:
    """This run, as the task before has written it: with the same time on the control host and on the page."""
    run: dict[str, Any] = runs_before(host)["runs"][0]
    return run


def cases(host: RunHost) -> list[dict[str, str]]:
    """The test cases of JUnit: a test on a node, a pair or more, with its failure."""
    found, judged = output(host), judgement(host)
    wrong: dict[tuple[str, str], list[str]] = {}
    for finding in judged.findings:
        wrong.setdefault((finding.test, "+".join(finding.nodes)), []).append(describe(asdict(finding)))
    measured = dict.fromkeys((value.test, "+".join(value.nodes)) for value in found.values)
    rest = [key for key in wrong if key not in measured]
    listed = [
        {"test": test, "nodes": place, "failure": "; ".join(wrong.get((test, place), ()))}
        for test, place in [*measured, *rest]
    ]
    listed += [{"test": "pairs", "nodes": line.partition(":")[0], "failure": line} for line in slow_pairs(host)]
    return listed + [{"test": "job", "nodes": error.partition(":")[0], "failure": error} for error in found.errors]


def failure(host: RunHost) -> str:
    """What is wrong, in one line; empty if nothing is."""
    said = result(host)
    if said["ok"]:
        return ""
    parts = [f"named: {fold(said['named'])}"] if said["named"] else []
    others = sum(finding["kind"] in ("path", "group") for finding in said["findings"])
    parts += [f"{others} slow paths or groups"] if others else []
    parts += ["pairs are slow"] if said["slow_pairs"] else []
    parts += [f"{len(said['errors'])} jobs without a result"] if said["errors"] else []
    return f"{'; '.join(parts)}. The table above and {host['accept_report_dir']} say why."


# -- drains -----------------------------------------------------------------------------------------------------------


def faults(host: RunHost) -> dict[str, list[str]]:
    """What is slow or broken, by the node that is at fault, in the words of a drain's reason."""
    found: dict[str, list[str]] = {}
    for finding in judgement(host).findings:
        if finding.kind in ("node", "gpu"):
            gpu = "" if finding.gpu is None else f" of GPU {finding.gpu}"
            found.setdefault(finding.nodes[0], []).append(f"{finding.test}{gpu} {finding.text}")
    return found


def drained(host: RunHost) -> list[dict[str, str]]:
    """The named nodes with the reason of their drain, if the site wants it."""
    if not host.flag("accept", "accept_drain"):
        return []
    return [{"name": name, "reason": drain_reason(texts)} for name, texts in faults(host).items()]


def drain_reason(texts: Iterable[str]) -> str:
    """The reason of a drain, without characters with which Slurm separates reasons."""
    text = f"{drains.ACCEPT}{'; '.join(texts)}".replace(drains.APPENDED, ": ").replace('"', "'")
    return "".join(character for character in text if character.isprintable())[:REASON].rstrip()


# -- nodes of a rolling change ----------------------------------------------------------------------------------------


def node_errors(host: RunHost, names: Iterable[str]) -> dict[str, str]:
    """Why nodes do not return to service: their faults, and jobs without a result. Without an error a text is empty.

    A node that is in no partition is not measured.
    """
    found, left = faults(host), registered.ACCEPT_BEGUN.of(host)["left"]
    kinds = {place.name: place.hardware for place in places(host)}
    errors = {}
    for name in names:
        own = [one for one in outputs(host) if one["nodes"] == name]
        lost = [f"it was not measured: {left[name]}"] if name in left else tasks.read_outputs(own, kinds).errors
        errors[name] = "; ".join([*found.get(name, []), *lost])
    return errors
