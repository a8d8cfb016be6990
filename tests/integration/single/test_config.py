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
from lab import Lab, Run

HOST = "single"
FILES = "cat /etc/slurm/slurm.conf /etc/slurm/gres.conf /etc/slurm/cgroup.conf"
TASK = "gpucluster.slurm.slurmctld : Apply Slurm's configuration"


@pytest.fixture(scope="module", name="job")
def job_that_runs_all_the_time(lab: Lab) -> Iterator[str]:
    """The number of a job with a GPU, which nothing here may end."""
    job = lab.command(HOST, "sbatch --parsable --gres=gpu:1 --output=/dev/null --wrap 'sleep 3600'")
    lab.wait_for(HOST, f"squeue -h -j {job} -o %T", "RUNNING")
    yield job
    assert lab.command(HOST, f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"
    restored = lab.playbook("site", "--tags=controller")
    lab.command(HOST, f"scancel {job}")
    assert (restored.rc, restored.failed) == (0, {})


def changed(lab: Lab, directory: Path, slurm_conf: dict[str, Any], **machine: Any) -> Lab:
    """The lab with other parameters, and other hardware.

    The parameters are a variable, since the cluster file refuses wrong ones by itself.
    """
    cluster = yaml.safe_load(lab.inventory.read_text())
    for keys in cluster["hardware"].values():
        keys.update(machine)
    (directory / "single.cluster.yml").write_text(yaml.safe_dump(cluster))
    variables = {"slurm_conf": slurm_conf, "slurm_secrets_dir": str(lab.inventory.parent / "secrets" / cluster["name"])}
    (directory / "group_vars").mkdir(exist_ok=True)
    (directory / "group_vars/slurm_cluster.yml").write_text(yaml.safe_dump(variables))
    return Lab(lab.scenario, directory / "single.cluster.yml")


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


@pytest.mark.usefixtures("job")
def test_a_slurmctld_that_does_not_take_it_is_rolled_back(lab: Lab, tmp_path: Path) -> None:
    """Scontrol has a stand-in that fails, as it does when slurmctld dies of its new files."""
    before = lab.command(HOST, FILES)
    stand_in = """cat >/usr/local/bin/scontrol <<'END'
#!/bin/sh
[ "$1" != reconfigure ] || { echo it is gone >&2; exit 1; }
exec /usr/bin/scontrol "$@"
END
chmod 755 /usr/local/bin/scontrol"""
    lab.command(HOST, stand_in)
    try:
        run = apply(lab, tmp_path, {"KillWait": 79})
    finally:
        lab.command(HOST, "rm /usr/local/bin/scontrol")
    assert run.rc == 2
    assert "it is gone" in str(run.failed[HOST])
    assert "Rolled back: the old files are in force again." in str(run.failed[HOST])
    assert lab.command(HOST, FILES) == before
    assert "KillWait                = 79" not in lab.command(HOST, "scontrol show config")


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
    lock = "flock /run/gpucluster-slurm/slurm_config.lock sleep 20"
    lab.command(HOST, f"systemd-run --collect --unit=other-run {lock}")
    try:
        run = apply(lab, tmp_path, {"KillWait": 81})
    finally:
        lab.command(HOST, "systemctl stop other-run")
    assert "another run is applying a configuration on this host" in str(run.failed[HOST])
