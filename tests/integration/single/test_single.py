# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller, database and compute node on one machine."""

from __future__ import annotations

from lab import Lab


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
