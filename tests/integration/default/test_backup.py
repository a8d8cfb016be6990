# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two controllers with their state on a file system that both have: the second one takes over and gives back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab import Lab, with_cluster

STATE = "/home/slurm-state"
STAGES = "--tags=base,controller,compute,login"


def two_controllers(lab: Lab, directory: Path, **slurm_conf: Any) -> Lab:
    """The lab with login1 as the second controller."""
    cluster = yaml.safe_load(lab.inventory.read_text())
    cluster["controllers"] = "head,login1"
    cluster["slurm_conf"] = {
        **cluster.get("slurm_conf", {}),
        "StateSaveLocation": STATE,
        "SlurmctldTimeout": 10,
        **slurm_conf,
    }
    return with_cluster(lab, directory, cluster)


@pytest.fixture(name="site")
def cluster_with_two_controllers(lab: Lab, tmp_path: Path) -> Iterator[Lab]:
    """It, set up, and afterwards the cluster of the lab again."""
    site = two_controllers(lab, tmp_path)
    try:
        run = site.playbook("site", STAGES)
        assert (run.rc, run.failed) == (0, {})
        yield site
    finally:
        lab.command("login1", "scancel --user=root; systemctl disable --now slurmctld; rm /etc/slurm/*.conf")
        lab.wait_for("head", 'jobs=$(squeue --noheader) && test -z "$jobs" && echo none', "none")
        restored = lab.playbook("site", STAGES)
        assert (restored.rc, restored.failed) == (0, {})
        lab.command("head", f"rm -r {STATE}")


def test_the_second_controller_takes_over_and_has_every_change(lab: Lab, site: Lab, tmp_path: Path) -> None:
    assert site.playbook("site", STAGES, "--check").changed == {}
    ping = lab.command("compute01", "scontrol ping")
    assert ping.splitlines() == ["Slurmctld(primary) at head is UP", "Slurmctld(backup) at login1 is UP"]
    job = lab.command("compute01", "sbatch --parsable --output=/dev/null --wrap 'sleep 900'")
    lab.wait_for("compute01", f"squeue -h -j {job} -o %T", "RUNNING")

    lab.command("head", "systemctl stop slurmctld")
    lab.wait_for("compute01", f"timeout 60 squeue -h -j {job} -o %T", "RUNNING")
    assert lab.command("compute02", "timeout 180 srun hostname") in ("compute01", "compute02")

    # A change while the second one serves: the first one comes back with it, and the second one has it as well.
    changed = two_controllers(lab, tmp_path, KillWait=44).playbook("site", STAGES)
    assert (changed.rc, changed.failed) == (0, {})
    both = "Slurmctld(primary) at head is UP\nSlurmctld(backup) at login1 is UP"
    lab.wait_for("compute01", "timeout 60 scontrol ping", both)
    lab.command("head", "systemctl stop slurmctld")
    lab.wait_for("compute01", "timeout 60 scontrol show config", "KillWait                = 44 sec")
    assert lab.command("compute01", f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"
    lab.command("head", "systemctl start slurmctld")
    lab.wait_for("compute01", "timeout 60 scontrol ping", "Slurmctld(primary) at head is UP")
    assert lab.command("compute01", f"squeue -h -j {job} -o '%T %r'") == "RUNNING None"
