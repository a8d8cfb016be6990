# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of Slurm's configuration while a job runs: planned, refused, applied, verified, rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import Lab, Run, with_hardware

FILES = "cat /etc/slurm/slurm.conf /etc/slurm/gres.conf /etc/slurm/cgroup.conf"
TASK = "gpucluster.slurm.slurmctld : Apply Slurm's configuration"


@pytest.fixture(scope="module", name="job")
def job_that_runs_all_the_time(lab: Lab) -> Iterator[str]:
    """The number of a job on compute01 with a GPU."""
    job = lab.command("login1", "sbatch --parsable -w compute01 --gres=gpu:1 --output=/dev/null --wrap 'sleep 3600'")
    lab.wait_for("login1", f"squeue -h -j {job} -o %T", "RUNNING")
    yield job
    assert lab.command("login1", f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"
    lab.command("login1", f"scancel {job}")
    restored = lab.playbook("site", "--tags=controller")
    assert (restored.rc, restored.failed) == (0, {})


def change(lab: Lab, directory: Path, slurm_conf: dict[str, Any], *arguments: str) -> Run:
    """Run stage controller with these parameters, as a variable: the cluster file would refuse wrong ones itself."""
    (directory / "group_vars").mkdir(exist_ok=True)
    variant = with_hardware(lab, directory, "compute02", {})
    (directory / "group_vars/slurm_cluster.yml").write_text(yaml.safe_dump({"slurm_conf": slurm_conf}))
    return variant.playbook("site", "--tags=controller", "--diff", *arguments)


def result(run: Run) -> dict[str, Any]:
    """What the module has returned."""
    return next(result for _host, task, result in run.results if task == TASK)


@pytest.mark.parametrize(
    ("slurm_conf", "words"),
    [
        ({"KilWait": 30}, "slurm.conf: KilWait: unknown to Slurm, did you mean 'KillWait'?"),
        ({"KillWait": "soon"}, "slurm.conf: KillWait: found 'soon'"),
        ({"SchedulerType": "sched/none"}, "slurm.conf: SchedulerType: found 'sched/none'"),
        ({"HashPlugin": "hash/none"}, "hash/none"),
    ],
)
@pytest.mark.usefixtures("job")
def test_what_slurm_would_refuse_is_not_written(
    lab: Lab, slurm_conf: dict[str, Any], words: str, tmp_path: Path
) -> None:
    before = lab.command("head", FILES)
    run = change(lab, tmp_path, slurm_conf)
    assert run.rc == 2
    assert words in str(run.failed["head"])
    assert lab.command("head", FILES) == before


@pytest.mark.usefixtures("job")
def test_a_change_is_planned_then_applied(lab: Lab, tmp_path: Path) -> None:
    before = lab.command("head", FILES)
    slurm_conf = {"KillWait": 77, "SchedulerParameters": ["bf_interval=20"]}
    expected = [
        {"what": "slurm.conf KillWait", "before": "30", "after": "77", "needs": "reconfigure", "ends": []},
        {
            "what": "slurm.conf SchedulerParameters",
            "before": None,
            "after": "bf_interval=20",
            "needs": "reconfigure",
            "ends": [],
        },
    ]
    plan = change(lab, tmp_path, slurm_conf, "--check")
    assert (plan.rc, plan.failed) == (0, {})
    assert sorted(result(plan)["plan"], key=str) == sorted(expected, key=str)
    assert lab.command("head", FILES) == before

    applied = change(lab, tmp_path, slurm_conf)
    assert (applied.rc, applied.failed) == (0, {})
    assert (result(applied)["plan"], result(applied)["actions"]) == (result(plan)["plan"], ["reconfigure"])
    lab.wait_for("head", "scontrol show config", "KillWait                = 77 sec")
    assert change(lab, tmp_path, slurm_conf).changed == {}


def test_what_would_end_the_job_is_refused_and_names_it(lab: Lab, job: str, tmp_path: Path) -> None:
    before = lab.command("head", FILES)
    one_gpu = {"gres": [{"name": "gpu", "type": "h100", "file": "/dev/nvidia0"}]}
    for hardware in (one_gpu, {"cores_per_socket": 1}):
        run = with_hardware(lab, tmp_path, "compute01", hardware).playbook("site", "--tags=controller")
        assert run.rc == 2
        assert f"ENDS JOBS {job}" in str(run.failed["head"])
        assert lab.command("head", FILES) == before


@pytest.mark.usefixtures("job")
def test_a_full_disk_changes_nothing(lab: Lab, tmp_path: Path) -> None:
    before = lab.command("head", FILES)
    fill = (
        "cp -a /etc/slurm /run/slurm-copy && mount -t tmpfs -o size=64k,mode=755 full /etc/slurm && "
        "cp -a /run/slurm-copy/. /etc/slurm/ && dd if=/dev/zero of=/etc/slurm/ballast bs=4k status=none; true"
    )
    lab.command("head", fill)
    try:
        run = change(lab, tmp_path, {"KillWait": 78})
        assert run.rc == 2
        assert "No space left" in str(run.failed["head"])
        assert lab.command("head", FILES) == before
        assert ".tmp" not in lab.command("head", "ls -A /etc/slurm")
    finally:
        lab.command("head", "umount /etc/slurm && rm -rf /run/slurm-copy")


@pytest.mark.usefixtures("job")
def test_a_slurmctld_that_does_not_take_it_is_rolled_back(lab: Lab, tmp_path: Path) -> None:
    """Scontrol has a stand-in that fails, as it does when slurmctld dies of its new files."""
    before = lab.command("head", FILES)
    stand_in = (
        'printf \'#!/bin/sh\\n[ "$1" = reconfigure ] && { echo it is gone >&2; exit 1; }; exec /usr/bin/scontrol "$@"\\n\''
        " >/usr/local/bin/scontrol; chmod 755 /usr/local/bin/scontrol"
    )
    lab.command("head", stand_in)
    try:
        run = change(lab, tmp_path, {"KillWait": 79})
    finally:
        lab.command("head", "rm /usr/local/bin/scontrol")
    assert run.rc == 2
    assert "it is gone" in str(run.failed["head"])
    assert "Rolled back: the old files are in force again." in str(run.failed["head"])
    assert lab.command("head", FILES) == before
    assert "KillWait                = 79" not in lab.command("head", "scontrol show config")


@pytest.mark.usefixtures("job")
def test_a_run_that_was_killed_is_finished_by_the_next(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    variant = with_hardware(lab, tmp_path, "compute02", {})
    (tmp_path / "group_vars/slurm_cluster.yml").write_text(yaml.safe_dump({"slurm_conf": {"KillWait": 80}}))
    live = variant.start("site", "--tags=controller")
    live.wait_for_task("Apply Slurm's configuration")
    live.kill()
    run = change(lab, tmp_path, {"KillWait": 80})
    assert run.rc == 0 or "another run" in str(run.failed)
    assert change(lab, tmp_path, {"KillWait": 80}).rc == 0
    lab.wait_for("head", "scontrol show config", "KillWait                = 80 sec")


@pytest.mark.usefixtures("job")
def test_two_runs_at_once_do_not_meet(lab: Lab, tmp_path: Path) -> None:
    lock = "flock /run/gpucluster-slurm/slurm_config.lock sleep 20"
    lab.command("head", f"systemd-run --collect --unit=other-run {lock}")
    try:
        run = change(lab, tmp_path, {"KillWait": 81})
    finally:
        lab.command("head", "systemctl stop other-run")
    assert "another run is applying a configuration on this host" in str(run.failed["head"])
