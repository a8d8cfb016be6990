# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key repair with another release of Slurm: a node that fails has a case. Scenario containers has the details."""

from __future__ import annotations

import pytest
from lab import Lab
from measured_nodes import measure_a_drained_node

HEALTH = "/usr/local/sbin/slurm-health"
CHECK = "/etc/gpucluster-slurm/health.d/broken"


def cases(lab: Lab) -> list[list[str]]:
    """The open cases after three rounds, by their columns."""
    for _round in range(3):
        lab.command(lab.controller, "slurm-repair round")
    lines = lab.command(lab.controller, "slurm-repair list").split("\n")[1:]
    return [line.split(maxsplit=6) for line in lines]


def test_a_node_that_fails_has_a_case(lab: Lab) -> None:
    if lab.host(lab.controller).run("which slurm-repair").rc:
        pytest.skip("the cluster of this release has no key repair")
    node = lab.nodes[-1]
    lab.script(
        node, f"cat >{CHECK}.new && chmod 755 {CHECK}.new && mv {CHECK}.new {CHECK}", b"#!/bin/sh\necho X; exit 1\n"
    )
    try:
        lab.host(node).run(HEALTH)
        ((_number, _node, _day, _time, state, finding, following),) = cases(lab)
        assert (state, finding, following) == ("saved", "check-of-site", "check-of-site: person")
        assert f"Node {node.partition('.')[0]}" in lab.command(lab.controller, "slurm-repair show 1")
    finally:
        lab.command(node, f"rm {CHECK}; {HEALTH}")
    lab.wait_until_idle(lab.controller, node)
    assert cases(lab) == []


def test_a_drained_node_is_measured_without_a_control_host(lab: Lab) -> None:
    if lab.host(lab.controller).run("which slurm-repair").rc:
        pytest.skip("the cluster of this release has no key repair")
    said = measure_a_drained_node(lab, lab.controller, lab.controller)
    assert said.endswith(f"{lab.controller}: passed\n")
    assert "not measured: stream" in said
    lab.wait_until_idle(lab.controller, lab.controller)
