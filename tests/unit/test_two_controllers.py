# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real plays on a cluster with two controllers, of which the first one does not answer ssh."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from standing_hosts import Hosts, honest
from test_hostile_hosts import cluster, recap

pytestmark = pytest.mark.once


@pytest.mark.parametrize("playbook", ["validate", "warm_up"])
def test_jobs_are_submitted_by_the_controller_that_answers(tmp_path: Path, playbook: str) -> None:
    """It has no login host. The run names the other one, and does not succeed."""
    two = {**cluster("n1"), "controllers": "head,spare", "slurm_conf": {"StateSaveLocation": "/shared/x"}}
    hosts = Hosts(tmp_path / "site", two, {"head": {}, "spare": honest("spare"), "n1": {}})
    (hosts.directory / "host_vars").mkdir()
    ssh = hosts.directory / "ssh"
    ssh.write_text("#!/bin/sh\nexit 255\n")
    ssh.chmod(0o755)
    dead = {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh)}
    (hosts.directory / "host_vars/head.yml").write_text(yaml.safe_dump(dead))
    run = hosts.run(f"gpucluster.slurm.{playbook}")
    assert (run.returncode, recap(run).get("head")) == (4, "unreachable"), run.stdout
    assert "spare" in recap(run)
    # The cluster has no prologs to run.
    assert bool(hosts.asked("spare", "slurm_job")) is (playbook == "validate")
