# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A round: cases are opened, and each comes one step further.

What a case becomes is written before its step is done. So a program that is killed at any moment, or its successor on
another controller, goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from .brakes import Fleet, Rules, brake, treatments_left
from .case_states import Around, NodeView, next_case
from .cases import Fault, NodeCase, opened


class CaseStore(Protocol):
    """Where cases are kept."""

    def read(self) -> list[NodeCase]:
        """All cases."""

    def write(self, case: NodeCase) -> None:
        """Keep a case. It is on the disk when this returns."""


Look = Callable[[NodeCase], NodeView]
"""What is seen of the node of a case."""


def one_round(
    store: CaseStore,
    faults: Mapping[str, Sequence[Fault]],
    look: Look,
    carry_out: Callable[[NodeCase], None],
    rules: Rules,
    fleet: Fleet,
    now: float,
) -> None:
    """Open the cases of new faults, and bring all cases one step further.

    Args:
        store: the cases.
        faults: by node, what drains it, or would if not so many nodes were drained for the same.
        look: asks for what is seen of a case's node.
        carry_out: does the step of a case.
        rules: the key `repair`.
        fleet: the cluster.
        now: seconds since 1970.
    """
    cases = {case.number: case for case in store.read()}
    known = {case.node for case in cases.values() if case.is_open}
    for node in sorted({*faults} - known):
        case = opened(max(cases, default=0) + 1, node, faults[node], now)
        store.write(case)
        cases[case.number] = case
    for number, case in sorted(cases.items()):
        if not case.is_open:
            continue
        others = [*cases.values()]
        around = Around(rules, treatments_left(case.node, others, rules, now), brake(case, others, rules, fleet))
        after = next_case(case, look(case), around, now)
        if after == case:
            continue
        store.write(after)
        cases[number] = after
        if after.step and (after.step, after.begun) != (case.step, case.begun):
            carry_out(after)
