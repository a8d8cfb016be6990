# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last runs of accept.yml as the page about the cluster shows them: part `acceptance` of docs/design/report.md.

Everything in them has a limit, so that the record of a large cluster stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from ..language.formatting import short
from ..language.hostlist import fold
from .baseline import BaselineEntry, comparable, unit_medians
from .catalog import TESTS
from .measurements import MeasuredValue

MOST_RUNS = 50
MOST_NAMES = 100
MOST_FINDINGS = 100
MOST_VALUES = 100
LONGEST_FINDING = 300
"""Characters."""


Row = dict[str, Any]
"""A run, or a part of it, as it is kept."""


def run_of(
    result: Mapping[str, Any],
    faults: Sequence[str],
    values: Iterable[MeasuredValue],
    baseline: Iterable[BaselineEntry],
    finished: str,
) -> Row:
    """A run as it is kept.

    Args:
        result: what the playbook returns: `ok`, `level`, `measured`, `left`, `named`.
        faults: what is wrong, a line each.
        values: the values of the run.
        baseline: the reviewed one.
        finished: the time, in ISO 8601 and UTC, so that texts have the order of times.
    """
    return {
        "finished": finished,
        "ok": result["ok"],
        "level": result["level"],
        "measured": len(result["measured"]),
        "left": len(result["left"]),
        "named": len(result["named"]),
        "names": fold(result["named"][:MOST_NAMES]),
        "faults": len(faults),
        "findings": [short(fault, LONGEST_FINDING) for fault in faults[:MOST_FINDINGS]],
        "values": medians(values, baseline)[:MOST_VALUES],
    }


def medians(values: Iterable[MeasuredValue], baseline: Iterable[BaselineEntry]) -> list[Row]:
    """The median of each test and machine type at its largest size, in the order of the catalog."""
    known = {entry.conditions: entry.median for entry in baseline}
    order = list(TESTS)
    found = []
    for conditions, own in comparable(value for value in values if not TESTS[value.test].is_check).items():
        test, numbers = TESTS[conditions.test], unit_medians(own)
        found.append(
            {
                "test": test.name,
                "meaning": test.meaning,
                "hardware": conditions.hardware,
                "nodes": conditions.nodes,
                "size": conditions.size,
                "driver": conditions.driver,
                "image": conditions.image,
                "values": len(numbers),
                "median": float(f"{median(numbers):.5g}"),
                "unit": test.unit,
                "baseline": known.get(conditions),
                "tolerance": test.tolerance,
                "higher": test.higher,
            }
        )
    return sorted(found, key=lambda row: (order.index(row["test"]), row["hardware"], row["nodes"], row["driver"]))


def kept(record: Mapping[str, Any], run: Mapping[str, Any]) -> Row:
    """The record of runs with a further one, the newest first. Of an earlier run the findings are not kept."""
    found = record.get("runs")
    former = [{**one, "findings": []} for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return {"runs": [run, *former][:MOST_RUNS]}
