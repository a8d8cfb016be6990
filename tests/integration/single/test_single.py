# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller, database and compute node on one machine."""

from __future__ import annotations

import json
import time
from urllib.request import urlopen

from lab import Lab

SERIES = {
    *(f"slurm_nodes_{state}" for state in ("alloc", "comp", "down", "drain", "err", "fail", "idle", "maint", "mix")),
    *(f"slurm_queue_{state}" for state in ("cancelled", "completed", "completing", "failed", "node_fail", "pending")),
    *(f"slurm_queue_{state}" for state in ("preempted", "running", "suspended", "timeout")),
    *(f"slurm_scheduler_{name}" for name in ("threads", "queue_size", "last_cycle", "mean_cycle")),
    *(f"slurm_scheduler_backfill_{name}" for name in ("last_cycle", "mean_cycle", "depth_mean")),
}
"""The series of dashboard 4323."""


def test_a_user_runs_a_job_with_the_gpu(lab: Lab) -> None:
    job = "runuser -u alice -- timeout 180 srun --gres=gpu:1 sh -c 'hostname; echo $CUDA_VISIBLE_DEVICES'"
    assert lab.command("single", job).split() == ["single", "0"]
    assert "alice|COMPLETED" in lab.wait_for("single", "sacct -nPXu alice -o User,State", "COMPLETED")


def test_only_the_daemons_that_it_needs_run(lab: Lab) -> None:
    assert (
        lab.command("single", "systemctl is-active munge mariadb slurmdbd slurmctld slurmd").split() == ["active"] * 5
    )
    assert lab.host("single").run("systemctl cat sackd").rc != 0


def test_daemons_that_are_killed_start_again(lab: Lab) -> None:
    daemons = "munge mariadb slurmdbd slurmctld slurmd"
    lab.command("single", f"for daemon in {daemons}; do systemctl kill --kill-whom=main --signal=KILL $daemon; done")
    lab.wait_for("single", f"systemctl is-active {daemons} | grep --count '^active'", "5", seconds=60)
    # slurmctld has lost the events that it had not saved yet, such as the end of a job; new jobs run.
    lab.wait_for("single", "timeout 60 srun hostname", "single")


def test_nothing_failed(lab: Lab) -> None:
    assert lab.command("single", "systemctl --failed --no-legend --plain") == ""


def test_prometheus_has_the_series_of_common_dashboards(lab: Lab) -> None:
    """It is the last test, since the first values come within two minutes."""
    until = time.monotonic() + 130
    found: set[str] = set()
    while found != SERIES and time.monotonic() < until:
        with urlopen(
            "http://10.213.7.40:9090/api/v1/query?query=%7B__name__%3D~%22slurm_.%2B%22%7D", timeout=10
        ) as answer:
            found = {series["metric"]["__name__"] for series in json.load(answer)["data"]["result"]} & SERIES
        time.sleep(1)
    assert found == SERIES
    assert lab.command("single", "systemctl --failed --no-legend --plain") == ""
