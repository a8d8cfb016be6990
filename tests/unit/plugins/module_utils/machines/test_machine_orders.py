# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machines are told, and when they may be stopped."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.machines.machine_orders import (
    OFF,
    START,
    STATE,
    STOP,
    carry_out,
    refusal,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.repair.case_states import NodeView


class Switch:
    """A machine that notes what it is told."""

    def __init__(self, state: str) -> None:
        self.now = state
        self.told: list[str] = []

    def state(self) -> str:
        return self.now

    def change(self, order: str) -> None:
        self.told.append(order)


@pytest.mark.parametrize(
    ("order", "state", "told"),
    [
        (STATE, "on", []),
        (START, "off", [START]),
        (START, "on", []),
        (STOP, "on", [STOP]),
        (STOP, "off", []),
        (OFF, "on", [OFF]),
        (OFF, "off", []),
    ],
)
def test_a_machine_is_told_what_changes_it(order: str, state: str, told: list[str]) -> None:
    machine = Switch(state)
    assert carry_out(order, machine) == state
    assert machine.told == told


def view(*states: str, jobs: int = 0) -> NodeView:
    return NodeView(states=frozenset(states), jobs=frozenset(range(1, jobs + 1)))


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (view("IDLE", "DRAIN"), ""),
        (view("DOWN", "NOT_RESPONDING"), ""),
        (view("IDLE"), "it is in service: drain it first"),
        (view("MIXED"), "it is in service: drain it first"),
        (view("MIXED", "DRAIN", jobs=2), "it has 2 jobs: 1, 2"),
        (view("DOWN", jobs=7), "it has 7 jobs: 1, 2, 3, 4, 5, ..."),
        (view("IDLE", "COMPLETING", "DRAIN"), "its state is COMPLETING"),
    ],
)
def test_a_node_stops_without_jobs_and_out_of_service(node: NodeView, why: str) -> None:
    assert refusal(node) == why
