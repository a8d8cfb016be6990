# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine can be told, and when it may not be told that: a pure part, which knows no protocol."""

from __future__ import annotations

from typing import Protocol

from ..repair.case_states import BUSY, NodeView

STATE, START, STOP, OFF = "state", "start", "stop", "off"
ORDERS = (STATE, START, STOP, OFF)

IS_ON, IS_OFF = "on", "off"
"""The states of a machine."""

WANTED = {START: IS_ON, STOP: IS_OFF, OFF: IS_OFF}
"""The state after an order."""

_NAMED = 5
"""Jobs that a refusal names."""


class NodeMachine(Protocol):
    """The machine of a node."""

    def state(self) -> str:
        """IS_ON or IS_OFF. Raises CollectionError."""

    def change(self, order: str) -> None:
        """Carry out START, STOP or OFF. Raises CollectionError."""


def carry_out(order: str, machine: NodeMachine) -> str:
    """Carry out an order; returns the state before it. What is as it should be is left alone: some BMCs refuse that."""
    found = machine.state()
    if order != STATE and found != WANTED[order]:
        machine.change(order)
    return found


def refusal(view: NodeView) -> str:
    """Why the machine of a node may not be stopped; empty if no job is lost."""
    if view.is_quiet:
        return ""
    if view.in_service:
        return "it is in service: drain it first"
    if view.jobs:
        first = ", ".join(str(job) for job in sorted(view.jobs)[:_NAMED])
        return f"it has {len(view.jobs)} jobs: {first}{', ...' if len(view.jobs) > _NAMED else ''}"
    return f"its state is {'+'.join(sorted(view.states & BUSY))}"
