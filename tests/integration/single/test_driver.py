# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps before NVIDIA's driver is replaced or a node is rebooted, with a real job; scenario `driver` reboots."""

from __future__ import annotations

from pathlib import Path

import yaml
from lab import Lab, Run

NODE = "single"
REASON = "gpucluster.slurm: NVIDIA driver"
# Found before Slurm's own.
SQUEUE = "/usr/local/bin/squeue"


def parts(lab: Lab, directory: Path, *tasks: str, wait: int = 0) -> Run:
    """Run some files of the role's tasks, one after the other. It waits for jobs so many seconds, or asks once."""
    role = {"name": "gpucluster.slurm.nvidia_driver", "public": True}
    play = {
        "hosts": NODE,
        "become": True,
        "gather_facts": False,
        "vars": {"nvidia_driver_wait": wait},
        "tasks": [
            {"name": "Variables", "ansible.builtin.import_role": {"name": "gpucluster.slurm.slurm"}},
            *({"name": f"Part {file}", "ansible.builtin.import_role": {**role, "tasks_from": file}} for file in tasks),
        ],
    }
    (directory / "parts.yml").write_text(yaml.safe_dump([play]))
    return lab.playbook(str(directory / "parts.yml"))


def test_a_node_with_a_job_is_drained_and_not_touched_before_the_job_has_ended(lab: Lab, tmp_path: Path) -> None:
    job = lab.command(NODE, "sudo -u alice sbatch --parsable --output=/dev/null --chdir=/ --wrap 'sleep 3600'")
    lab.wait_for(NODE, f"squeue --noheader --jobs={job} --format=%T", "RUNNING")
    run = parts(lab, tmp_path, "drain")
    assert run.rc != 0
    assert f"{NODE} still has jobs after 0 s, and its driver is unchanged ({job})" in run.failed[NODE][0]
    assert lab.command(NODE, f"squeue --noheader --jobs={job} --format=%T") == "RUNNING"
    assert lab.command(NODE, "sinfo --noheader --format='%T %E'") == f"draining {REASON}"

    # The job ends when the role has seen it once more.
    squeue = f'#!/bin/sh\n/usr/bin/squeue "$@"\nscancel {job}\n'
    lab.script(NODE, f"cat >{SQUEUE}; chmod 755 {SQUEUE}", squeue.encode())
    try:
        run = parts(lab, tmp_path, "drain", "resume", wait=60)
    finally:
        lab.command(NODE, f"rm {SQUEUE}")
    assert (run.rc, run.changed) == (0, {NODE: ["gpucluster.slurm.nvidia_driver : Resume the node"]})
    (attempts,) = [result["attempts"] for _host, task, result in run.results if "Wait until the node has" in task]
    assert attempts > 1
    # Slurm shows `idle*` until it has heard from the node.
    lab.wait_until_idle(NODE, NODE)


def test_a_node_that_somebody_else_has_drained_stays_so(lab: Lab, tmp_path: Path) -> None:
    lab.command(NODE, f"scontrol update nodename={NODE} state=drain reason=fan")
    run = parts(lab, tmp_path, "drain", "resume")
    assert (run.rc, run.changed) == (0, {})
    assert lab.command(NODE, "sinfo --noheader --format='%T %E'") == "drained fan"
    lab.command(NODE, f"scontrol update nodename={NODE} state=resume")
