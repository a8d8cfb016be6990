# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of slurm.conf while a node is silent, and jobs run on the other nodes."""

from __future__ import annotations

import time
from pathlib import Path

from lab import Lab, container, podman, with_cluster

SILENT, OTHER = "pnode2", "pnode1"


def test_a_silent_node_does_not_keep_slurm_conf_from_coming_into_force(lab: Lab, tmp_path: Path) -> None:
    lab.wait_until_idle(lab.controller, SILENT)
    job = lab.command(lab.controller, f"cd / && sbatch --parsable -o /dev/null -w {OTHER} --wrap 'sleep 600'")
    cluster = {**lab.cluster, "slurm_conf": {**lab.cluster.get("slurm_conf", {}), "KillWait": 47}}
    changed = with_cluster(lab, tmp_path, cluster)
    live = changed.start("site", "--skip-tags=validate")
    live.wait_for_task("Acquire the run lock")
    podman("pause", container(SILENT))
    try:
        live.wait_for_task("Apply Slurm's configuration")
        began = time.monotonic()
        next(live.tasks())
        print(f"\nthe change took {time.monotonic() - began:.0f} s")
        run = live.finish()
        print(f"the run ended {time.monotonic() - began:.0f} s after it began: {run.rc}, {run.failed}")
        assert {*run.failed} == {SILENT}
        assert "= 47" in lab.command(lab.controller, "scontrol show config | grep KillWait")
        assert lab.command(lab.controller, f"squeue -h -j {job} -o %T") == "RUNNING"
        began = time.monotonic()
        again = changed.playbook("site", "--skip-tags=validate", f"--limit=all:!{SILENT}")
        print(f"without the node: {time.monotonic() - began:.0f} s, {again.rc}, {again.changed}")
        assert (again.rc, again.failed) == (0, {})
    finally:
        podman("unpause", container(SILENT))
    lab.wait_until_idle(lab.controller, SILENT)
    assert "= 47" in lab.command(SILENT, "timeout 30 scontrol show config | grep KillWait")
    whole = changed.playbook("site", "--skip-tags=validate")
    assert (whole.rc, whole.failed) == (0, {})
    lab.command(lab.controller, f"scancel {job}")
    back = lab.playbook("site", "--skip-tags=validate")
    assert back.rc == 0, back.failed
