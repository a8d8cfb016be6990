# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases as texts for people."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..acceptance.quick_level import MeasuringPlan, result
from ..language.formatting import visible
from .case_evidence import FORMAT, SavedEvidence, vendor_text
from .cases import NodeCase, to_json
from .measured_node import NodeMeasuring


def moment(when: float) -> str:
    """A time in words, on the clock of this host."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))


def case_table(cases: Sequence[NodeCase], proposals: Mapping[int, str]) -> list[str]:
    """A line for each case. proposals: what would be done next, by number."""
    rows = [("case", "node", "opened", "state", "finding", "next")]
    for case in cases:
        following = proposals.get(case.number) or case.why or "-"
        rows.append((str(case.number), case.node, moment(case.opened), case.state, case.finding, visible(following)))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip() for row in rows]


def case_history(case: NodeCase) -> list[str]:
    """What has happened, a line each."""
    states = [*case.reached, (case.state, case.since)]
    return [f"{moment(when)}  {state}" for state, when in states]


def case_document(case: NodeCase, evidence: SavedEvidence | None) -> dict[str, Any]:
    """All about a case for other programs, as roles/slurm_repair/files/case.schema.json has it."""
    return {"format": FORMAT, "case": to_json(case), "evidence": asdict(evidence) if evidence else None}


def case_text(case: NodeCase, evidence: SavedEvidence | None, proposal: str) -> str:
    """All about a case."""
    lines = [
        f"Case {case.number} of node {case.node}: {case.state}",
        f"{case.finding}: {visible(case.text)}",
        *([f"Held by {case.held}"] if case.held else []),
        *([f"Why: {visible(case.why)}"] if case.why else []),
        *([f"Next: {visible(proposal)}"] if proposal else []),
        "",
        *case_history(case),
        "",
    ]
    if not evidence:
        return "\n".join([*lines, "No evidence is saved.", ""])
    jobs = [" ".join(map(visible, job.values())) for job in evidence.jobs]
    lines += ["Jobs on the node:", *(f"  {job}" for job in jobs or ["none"]), ""]
    if not evidence.node:
        return "\n".join([*lines, "The node has sent no evidence.", ""])
    return "\n".join([*lines, vendor_text(evidence.node, case_history(case), moment(evidence.node.taken))])


def measuring_lines(measuring: NodeMeasuring, plan: MeasuringPlan) -> list[str]:
    """What a measurement has shown."""
    shown = result(plan, measuring.node, measuring.outputs)
    lines = [*shown.values, *(f"not measured: {line}" for line in shown.missed), *measuring.why]
    return [*map(visible, lines), f"{measuring.node}: {measuring.verdict}"]
