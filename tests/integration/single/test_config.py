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
from lab import Lab, Run, with_cluster

HOST = "single"
FILES = "cat /etc/slurm/slurm.conf /etc/slurm/gres.conf /etc/slurm/cgroup.conf"
TASK = "gpucluster.slurm.slurmctld : Apply Slurm's configuration"
SLURMD = "gpucluster.slurm.slurmd : Run slurmd with its settings"


@pytest.fixture(scope="module", name="job")
def job_that_runs_all_the_time(lab: Lab) -> Iterator[str]:
    """The number of a job with a GPU, which nothing here may end."""
    job = lab.command(HOST, "sbatch --parsable --gres=gpu:1 --output=/dev/null --wrap 'sleep 3600'")
    lab.wait_for(HOST, f"squeue -h -j {job} -o %T", "RUNNING")
    yield job
    state = lab.host(HOST).run(f"squeue -h -j {job} -o '%T %r'").stdout.strip()
    booked = lab.host(HOST).run(f"sacct -nPX -j {job} -o State").stdout.strip()
    restored = lab.playbook("site", "--tags=controller,compute")
    lab.host(HOST).run(f"scancel {job}")
    assert (state, booked, restored.rc, restored.failed) == ("RUNNING None", "RUNNING", 0, {})


def changed(lab: Lab, directory: Path, slurm_conf: dict[str, Any], **machine: Any) -> Lab:
    """The lab with other parameters, and other hardware.

    The parameters are a variable, since the cluster file refuses wrong ones by itself.
    """
    cluster = yaml.safe_load(lab.inventory.read_text())
    for keys in cluster["hardware"].values():
        keys.update(machine)
    return with_cluster(lab, directory, cluster, slurm_conf=slurm_conf)


def apply(lab: Lab, directory: Path, slurm_conf: dict[str, Any], *arguments: str, **machine: Any) -> Run:
    """Run stage controller with them."""
    return changed(lab, directory, slurm_conf, **machine).playbook("site", "--tags=controller", "--diff", *arguments)


def result(run: Run) -> dict[str, Any]:
    """What the module has returned."""
    return next(result for _host, task, result in run.results if task == TASK)


@pytest.mark.parametrize(
    ("slurm_conf", "words"),
    [
        ({"KilWait": 30}, "slurm.conf: KilWait: unknown to Slurm, did you mean 'KillWait'?"),
        ({"KillWait": "soon"}, "slurm.conf: KillWait: found 'soon'"),
        # Plugins may be a site's own: a second slurmctld tells.
        ({"SchedulerType": "sched/none"}, "slurmctld does not start with these files: "),
        ({"TopologyPlugin": "topology/tree"}, "slurmctld does not start with these files: "),
    ],
)
@pytest.mark.usefixtures("job")
def test_what_slurm_would_refuse_is_not_written(
    lab: Lab, slurm_conf: dict[str, Any], words: str, tmp_path: Path
) -> None:
    before = lab.command(HOST, FILES)
    run = apply(lab, tmp_path, slurm_conf)
    assert run.rc == 2
    assert words in str(run.failed[HOST])
    assert lab.command(HOST, FILES) == before


@pytest.mark.usefixtures("job")
def test_a_change_is_planned_then_applied(lab: Lab, tmp_path: Path) -> None:
    before = lab.command(HOST, FILES)
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
    plan = apply(lab, tmp_path, slurm_conf, "--check")
    assert (plan.rc, plan.failed) == (0, {})
    assert sorted(result(plan)["plan"], key=str) == sorted(expected, key=str)
    assert lab.command(HOST, FILES) == before

    applied = apply(lab, tmp_path, slurm_conf)
    assert (applied.rc, applied.failed) == (0, {})
    assert (result(applied)["plan"], result(applied)["actions"]) == (result(plan)["plan"], ["reconfigure"])
    lab.wait_for(HOST, "scontrol show config", "KillWait                = 77 sec")
    assert apply(lab, tmp_path, slurm_conf).changed == {}


def test_what_would_end_the_job_is_refused_and_names_it(lab: Lab, job: str, tmp_path: Path) -> None:
    before = lab.command(HOST, FILES)
    other: list[dict[str, Any]] = [{"gres": []}, {"cores_per_socket": 1}]
    for machine in other:
        run = apply(lab, tmp_path, {}, **machine)
        assert run.rc == 2
        assert f"ENDS JOBS {job}" in str(run.failed[HOST])
        assert lab.command(HOST, FILES) == before


@pytest.mark.usefixtures("job")
def test_a_full_disk_changes_nothing(lab: Lab, tmp_path: Path) -> None:
    before = lab.command(HOST, FILES)
    fill = (
        "cp -a /etc/slurm /run/slurm-copy && mount -t tmpfs -o size=64k,mode=755 full /etc/slurm && "
        "cp -a /run/slurm-copy/. /etc/slurm/ && dd if=/dev/zero of=/etc/slurm/ballast bs=4k status=none; true"
    )
    lab.command(HOST, fill)
    try:
        run = apply(lab, tmp_path, {"KillWait": 78})
        assert run.rc == 2
        assert "No space left" in str(run.failed[HOST])
        assert lab.command(HOST, FILES) == before
        assert ".tmp" not in lab.command(HOST, "ls -A /etc/slurm")
    finally:
        lab.command(HOST, "umount /etc/slurm && rm -rf /run/slurm-copy")


@pytest.mark.parametrize(
    ("slurm_conf", "words"),
    [
        ({}, "scontrol reconfigure: "),
        ({"SlurmctldPidFile": "/run/slurmctld/other.pid"}, "fatal: open /nowhere/log: No such file"),
    ],
    ids=["reconfigure", "restart"],
)
@pytest.mark.usefixtures("job")
def test_a_slurmctld_that_does_not_come_back_is_rolled_back(
    lab: Lab, slurm_conf: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """The second slurmctld, which must not write where the first one does, cannot know that there is no such place."""
    before = lab.command(HOST, FILES)
    run = apply(lab, tmp_path, {"KillWait": 79, "JobCompLoc": "/nowhere/log", **slurm_conf})
    assert run.rc == 2
    assert words in str(run.failed[HOST])
    assert "Rolled back: the old files are in force again." in str(run.failed[HOST])
    assert lab.command(HOST, FILES) == before
    assert "KillWait                = 79 sec" not in lab.command(HOST, "scontrol show config")


@pytest.mark.parametrize(
    ("slurm_conf", "needs", "tasks"),
    [
        ({"SrunProlog": "/bin/true"}, "nothing", [TASK]),
        ({"KillWait": 33}, "reconfigure", [TASK]),
        ({"SlurmctldPidFile": "/run/slurmctld/other.pid"}, "restart slurmctld", [TASK]),
        ({"SlurmdPort": 6918}, "restart slurmctld, slurmd", [TASK, SLURMD]),
        ({}, "restart slurmctld, slurmd", [TASK, SLURMD]),
    ],
    ids=["nothing", "reconfigure", "slurmctld", "slurmd", "slurmd again"],
)
def test_a_change_of_each_class(
    lab: Lab, job: str, slurm_conf: dict[str, Any], needs: str, tasks: list[str], tmp_path: Path
) -> None:
    site = changed(lab, tmp_path, slurm_conf)
    plan = site.playbook("site", "--tags=controller,compute", "--check")
    run = site.playbook("site", "--tags=controller,compute")
    assert (run.rc, run.changed, run.failed) == (0, {HOST: tasks}, {})
    assert plan.changed == run.changed
    assert needs in [step["needs"] for step in result(plan)["plan"]]
    assert lab.command(HOST, "timeout 180 srun hostname") == HOST
    assert lab.command(HOST, f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"
    again = site.playbook("site", "--tags=controller,compute")
    assert (again.rc, again.changed) == (0, {})


def test_what_needs_a_cluster_without_jobs_is_refused_and_names_the_job(lab: Lab, job: str, tmp_path: Path) -> None:
    before = lab.command(HOST, FILES)
    run = apply(lab, tmp_path, {"JobAcctGatherType": "jobacct_gather/linux"})
    assert run.rc == 2
    assert f"no job at all  ENDS JOBS {job}" in str(run.failed[HOST])
    assert lab.command(HOST, FILES) == before


@pytest.mark.usefixtures("job")
def test_a_connection_that_is_lost_does_not_leave_half_a_change(lab: Lab, tmp_path: Path) -> None:
    lost = "until grep -q KillWait=82 /etc/slurm/slurm.conf; do sleep 0.02; done; pkill -KILL sshd-session"
    lab.command(HOST, f"systemd-run --collect --quiet sh -c '{lost}'")
    run = apply(lab, tmp_path, {"KillWait": 82})
    assert "Data could not be sent to remote host" in str(run.failed[HOST])
    lab.wait_for(HOST, "scontrol show config", "KillWait                = 82 sec")
    assert apply(lab, tmp_path, {"KillWait": 82}).changed == {}


@pytest.mark.usefixtures("job")
def test_a_run_that_was_killed_is_finished_by_the_next(lab: Lab, tmp_path: Path) -> None:
    live = changed(lab, tmp_path, {"KillWait": 80}).start("site", "--tags=controller")
    live.wait_for_task("Apply Slurm's configuration")
    live.kill()
    run = apply(lab, tmp_path, {"KillWait": 80})
    assert run.rc == 0 or "another run" in str(run.failed)
    assert apply(lab, tmp_path, {"KillWait": 80}).rc == 0
    lab.wait_for(HOST, "scontrol show config", "KillWait                = 80 sec")


@pytest.mark.usefixtures("job")
def test_two_runs_at_once_do_not_meet(lab: Lab, tmp_path: Path) -> None:
    lock = "flock /run/gpucluster-slurm/slurm_config.lock sleep infinity"
    lab.command(HOST, f"systemd-run --collect --unit=other-run {lock}")
    try:
        run = apply(lab, tmp_path, {"KillWait": 81})
    finally:
        lab.command(HOST, "systemctl stop other-run")
    assert "another run is applying a configuration on this host" in str(run.failed[HOST])
