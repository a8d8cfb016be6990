# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of different compute nodes at the same time, from two control hosts, of which one is killed: the same end."""

from __future__ import annotations

import json

import pytest
from lab import Lab, LiveRun
from test_killed import SLURMD, on_another_control_host, state

ONE, TWO = "compute01", "compute02"
LIMITS = "/etc/systemd/system/munge.service.d/gpucluster-slurm.conf"
ADM2 = ("unshare", "--uts", "sh", "-c", 'hostname adm2; exec "$@"', "sh")

pytestmark = pytest.mark.rare


def start(lab: Lab, node: str, *before: str) -> LiveRun:
    return lab.start("site", f"--limit={node}", before=before)


def runs_with_lock(lab: Lab) -> list[str]:
    """The nodes of the runs that share the lock."""
    return sorted(
        each["nodes"] for each in json.loads(lab.command(lab.controller, "cat /run/gpucluster-slurm/run.shared"))
    )


@pytest.mark.parametrize(
    "task", ["Run munge with its key", "Run slurmd with its settings", "Wait until the nodes are up"]
)
def test_a_slice_that_is_killed_beside_another_one_is_completed(lab: Lab, task: str) -> None:
    expected = state(lab)
    for node in (ONE, TWO):
        lab.command(node, f"echo >>{SLURMD}; head -c 1024 /dev/urandom >/etc/munge/munge.key")
    killed, other = start(lab, ONE), start(lab, TWO, *ADM2)
    other.wait_for_task("Run munge with its key")
    killed.wait_for_task(task)
    killed.kill()
    assert runs_with_lock(lab) == [ONE, TWO]
    # The other one goes on, and nobody may join it.
    both = lab.playbook("site", f"--limit={TWO}")
    assert f"root on adm2 has been running site.yml on {TWO} since" in str(both.failed)
    ended = other.finish()
    assert (ended.rc, ended.failed) == (0, {})
    elsewhere = on_another_control_host(lab, f"--limit={ONE}")
    assert f"running site.yml on {ONE} since" in str(elsewhere.failed)
    again = lab.playbook("site", f"--limit={ONE}")
    assert (again.rc, again.failed) == (0, {})
    assert state(lab) == expected
    lab.command(lab.controller, "test ! -e /run/gpucluster-slurm/run && test ! -e /run/gpucluster-slurm/run.shared")
    whole = lab.playbook("site")
    assert (whole.rc, whole.result["state"]) == (0, "ok")
