# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key repair with another release of Slurm: a node that fails has a case, and is treated in mode reboot.

Scenario containers has the details of mode observe. Stand-ins: nodes reboot as in reboots.py, and the fault is a check
that hangs until the node boots.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from lab import Lab, with_cluster
from measured_nodes import measure_a_drained_node
from reboots import power, write_stand_ins

HEALTH = "/usr/local/sbin/slurm-health"
CHECK = "/etc/gpucluster-slurm/health.d/broken"


@pytest.fixture(autouse=True)
def only_with_the_key(lab: Lab) -> None:
    # Scenario slurm-22.05 runs these files as well, and its cluster file has no key repair.
    if lab.host(lab.controller).run("which slurm-repair").rc:
        pytest.skip("the cluster of this release has no key repair")


@pytest.fixture(name="mode_reboot")
def mode_of_the_cluster(lab: Lab, tmp_path: Path) -> Iterator[None]:
    """The cluster file has mode reboot for a test."""
    tags = "--tags=compute,repair"
    treating = with_cluster(lab, tmp_path, {**lab.cluster, "repair": {"mode": "reboot"}})
    assert treating.playbook("site", tags).rc == 0
    yield
    assert lab.playbook("site", tags).rc == 0


def write_check(lab: Lab, node: str, script: str) -> None:
    lab.script(node, f"cat >{CHECK}.new && chmod 755 {CHECK}.new && mv {CHECK}.new {CHECK}", script.encode())


def cases(lab: Lab) -> list[list[str]]:
    """The open cases after three rounds, by their columns."""
    for _round in range(3):
        lab.command(lab.controller, "slurm-repair round")
    lines = lab.command(lab.controller, "slurm-repair list").split("\n")[1:]
    return [line.split(maxsplit=6) for line in lines]


def test_a_node_that_fails_has_a_case(lab: Lab) -> None:
    node = lab.nodes[-1]
    write_check(lab, node, "#!/bin/sh\necho X; exit 1\n")
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
    said = measure_a_drained_node(lab, lab.controller, lab.controller)
    assert said.endswith(f"{lab.controller}: passed\n")
    assert "not measured: stream" in said
    lab.wait_until_idle(lab.controller, lab.controller)


@pytest.mark.usefixtures("mode_reboot")
def test_a_node_that_fails_is_booted_and_measured_before_a_job_starts_there(lab: Lab) -> None:
    node, controller = lab.nodes[-1], lab.controller
    write_stand_ins(lab, node)
    write_check(lab, node, "#!/bin/sh\n[ ! -e /run/broken ] || sleep 600\n")
    lab.command(node, "touch /run/broken")
    try:
        lab.host(node).run(HEALTH)
        job = lab.command(controller, f"sbatch --parsable --nodelist={node} --output=/dev/null --wrap=true").strip()
        with power(node) as booted:
            states = rounds_until(lab, "returned")
        assert booted == [node]
        assert states == ["found", "saved", "drained", "treated", "booted", "measured", "returned"]
        lab.wait_for(controller, f"timeout 60 sacct -n -X -j {job} -o State", "COMPLETED", 90)
        started = lab.command(controller, f"SLURM_TIME_FORMAT=%s sacct -n -X -j {job} -o Start").strip()
        closed = lab.command(controller, f"slurm-repair show --json {number_of_the_last(lab)}")
        assert int(started) >= int(float(closed.partition('"since": ')[2].partition(",")[0])) - 60
    finally:
        lab.command(node, f"rm -f {CHECK} /run/broken; {HEALTH}")
    lab.wait_until_idle(controller, node)


def number_of_the_last(lab: Lab) -> str:
    return str(lab.command(lab.controller, "slurm-repair list --all").rstrip().split("\n")[-1].split()[0])


def rounds_until(lab: Lab, state: str, seconds: float = 300) -> list[str]:
    """Let rounds follow each other until the last case is in a state. Returns its states."""
    until = time.monotonic() + seconds
    while True:
        lab.command(lab.controller, "slurm-repair round")
        shown = lab.command(lab.controller, f"slurm-repair show {number_of_the_last(lab)}")
        if f": {state}\n" in shown.partition("\n")[0] + "\n":
            break
        assert time.monotonic() < until, shown
        with suppress(RuntimeError):  # the node boots
            # slurmd runs the health check each five minutes.
            lab.host(lab.nodes[-1]).run(f"systemctl is-active --quiet slurmd && {HEALTH}")
    history = shown.split("\n\n")[1]
    return [line.split()[-1] for line in history.split("\n")]
