# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`gpus` on a cluster whose node box01 has GPUs and MIG instances, which are stand-ins (gpus.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from debs import as_user
from gpus import NODE
from lab import Lab

pytestmark = pytest.mark.usefixtures("equipped")

MIG = "h100_80gb_hbm3_1g.10gb"


def submit(lab: Lab, options: str, user: str = "alice") -> str:
    """A job of a user, by its number. It writes which GPUs Slurm has told it."""
    wrap = f"--wrap='echo $SLURM_JOB_GPUS >gpus-of-$SLURM_JOB_ID; sleep 300' --output=/dev/null {options}"
    return str(as_user(lab, f"sbatch --parsable --mem=100 {wrap}", user))


@pytest.fixture(scope="module", name="jobs")
def running_and_waiting(lab: Lab) -> Iterator[dict[str, str]]:
    """Jobs of alice and of bob that run, on both of the node's CPUs, and two of alice that wait."""
    lab.wait_until_idle("front", NODE)
    jobs = {
        "whole": submit(lab, f"-w {NODE} --gres=gpu:h100:2 --time=30"),
        "instance": submit(lab, f"-w {NODE} --gres=gpu:{MIG}:1", "bob"),
    }
    for job in jobs.values():
        lab.wait_for("front", f"squeue -h -j {job} -o %T", "RUNNING")
    jobs["next"] = submit(lab, f"-w {NODE} --gres=gpu:h100:6 --time=10")
    jobs["later"] = submit(lab, "--array=1-3 --gpus=h100:1 --begin=now+1hour")
    lab.wait_for("front", f"squeue -h -j {jobs['next']} -o %r", "Resources")
    lab.wait_for("front", f"squeue -h -j {jobs['later']} -o %r", "BeginTime")
    yield jobs
    lab.command("front", f"scancel {' '.join(jobs.values())}; rm -f /home/*/gpus-of-*")
    lab.wait_until_idle("front", NODE)


def report(lab: Lab, options: str = "", user: str = "alice") -> Any:
    """The answer for programs."""
    return json.loads(as_user(lab, f"gpus --json {options}", user))


def test_jobs_have_the_gpus_that_slurm_told_them(lab: Lab, jobs: dict[str, str]) -> None:
    found = {job["job"]: job for job in report(lab)["jobs"]}
    assert {*found} == {jobs["whole"], jobs["instance"]}
    (whole,), (instance,) = (found[jobs[name]]["gpus"] for name in ("whole", "instance"))
    told = lab.command("front", f"cat /home/alice/gpus-of-{jobs['whole']}")
    indices = [int(number) for number in told.split(",")]
    assert whole == {"kind": "gpu", "type": "h100", "count": 2, "nodes": [NODE], "indices": indices}
    assert (instance["type"], instance["count"], len(instance["indices"])) == (MIG, 1, 1)
    assert [found[jobs[name]]["user"] for name in ("whole", "instance")] == ["alice", "bob"]
    assert found[jobs["whole"]]["left"] in range(1500, 1801)


def test_what_is_used_and_what_is_free(lab: Lab, jobs: dict[str, str]) -> None:
    assert jobs
    answer = report(lab)
    counts = {kind["type"]: [kind[name] for name in ("total", "used", "free")] for kind in answer["types"]}
    assert counts == {"h100": [6, 2, 4], MIG: [8, 1, 7], "h100_80gb_hbm3_3g.40gb": [2, 0, 2]}
    assert answer["others"] == []
    (free,) = (node for node in report(lab, "--free")["nodes"] if node["type"] == "h100")
    assert (free["node"], free["free"], free["total"]) == (NODE, 4, 6)


def test_why_a_job_waits(lab: Lab, jobs: dict[str, str]) -> None:
    (waits,) = report(lab, f"--why {jobs['next']}")["jobs"]
    assert waits["reason"] == "Resources"
    assert waits["gpus"] == [{"kind": "gpu", "type": "h100", "count": 6}]
    assert {"type": "h100", "count": 4} in waits["sooner"]
    (waits,) = report(lab, f"--why {jobs['later']}_2")["jobs"]
    assert (waits["job"], waits["reason"]) == (f"{jobs['later']}_[1-3]", "BeginTime")
    said = as_user(lab, f"gpus --why {jobs['next']}")
    assert "Reason:  it is next, and waits for free resources" in said
    assert {job["job"] for job in report(lab)["waiting"]} == {jobs["next"], f"{jobs['later']}_[1-3]"}
    assert report(lab, user="bob")["waiting"] == []


def test_limits_of_accounts_have_values(lab: Lab, jobs: dict[str, str]) -> None:
    assert jobs
    lab.command("front", "sacctmgr -i modify account physics set GrpTRES=gres/gpu=3")
    try:
        job = submit(lab, f"-w {NODE} --gres=gpu:h100:1")
        lab.wait_for("front", f"squeue -h -j {job} -o %r", "AssocGrpGRES")
        (waits,) = report(lab, f"--why {job}")["jobs"]
        assert waits["limits"] == [
            {"of": "account physics", "name": "GrpTRES gres/gpu", "value": "3", "used": "3"},
        ]
        lab.command("front", f"scancel {job}")
    finally:
        lab.command("front", "sacctmgr -i modify account physics set GrpTRES=gres/gpu=-1")
