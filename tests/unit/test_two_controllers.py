# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real plays on a cluster with two controllers, of which the first one does not answer ssh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from standing_hosts import Hosts, honest
from test_hostile_hosts import cluster, recap

pytestmark = pytest.mark.once

MOUNT = {"point": "/x", "guard": "/x", "automount": False, "root": False, "type": "nfs", "source": "s:/x"}
STATES = {"head": "does not answer", "spare": "serves"}


def two_controllers(directory: Path, **others: dict[str, Any]) -> Hosts:
    """The hosts, with those of other names; spare serves."""
    answers = honest("spare")
    answers["slurm_host_facts"]["ansible_facts"]["slurm_host"]["serving_controller"] = "spare"
    answers["slurm_state_directory"] = {
        "file": "",
        "error": "",
        "mount": MOUNT,
        "inode": 7,
        "owner": None,
        "missing": [],
    }
    answers["slurm_run"] = {"others": [], "shared": False, "controllers": STATES}
    answers["slurm_config"] |= {"serial": "7 24.11.5", "actions": ["reconfigure"]}
    named = {"controllers": "head,spare", "slurm_conf": {"StateSaveLocation": "/x"}, "login": ",".join(others)}
    wanted = {**cluster("n1"), **{key: value for key, value in named.items() if value}}
    hosts = Hosts(directory, wanted, {"head": {}, "spare": answers, "n1": honest("n1"), **others})
    ssh = directory / "ssh"
    ssh.write_text("#!/bin/sh\nexit 255\n")
    ssh.chmod(0o755)
    (directory / "host_vars").mkdir()
    dead = {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh)}
    (directory / "host_vars/head.yml").write_text(yaml.safe_dump(dead))
    return hosts


@pytest.mark.parametrize("playbook", ["validate", "warm_up"])
def test_jobs_are_submitted_by_the_controller_that_answers(tmp_path: Path, playbook: str) -> None:
    """It has no login host. The run names the other one, and does not succeed."""
    hosts = two_controllers(tmp_path / "site")
    run = hosts.run(f"gpucluster.slurm.{playbook}")
    assert (run.returncode, recap(run).get("head")) == (4, "unreachable"), run.stdout
    assert "spare" in recap(run)
    # The cluster has no prologs to run.
    assert bool(hosts.asked("spare", "slurm_job")) is (playbook == "validate")


def test_a_run_works_with_the_controller_that_serves_and_says_so(tmp_path: Path) -> None:
    """`old` was a controller before: its slurmctld is stopped."""
    old = honest("old")
    found = [{"name": "x", "file": "/etc/slurm/slurm.conf", "by": "slurmctld"}]
    old["slurm_host_facts"]["ansible_facts"]["slurm_host"]["clusters"] = {"found": found, "daemons": []}
    old["slurm_host_cleanup"] = {"plan": [], "diff": []}
    hosts = two_controllers(tmp_path / "site", old=old)
    run = hosts.run("gpucluster.slurm.site", "--tags=controller")
    assert (run.returncode, recap(run)["head"], recap(run)["spare"]) == (4, "unreachable", "ok"), run.stdout
    assert "The controller spare serves in place of head; slurmctld does not answer on head. Run" in run.stdout
    assert "slurm.conf" in hosts.asked("spare", "slurm_config")
    assert "ExecCondition=" in hosts.asked("spare", "slurm_service")
    assert "slurmctld" in hosts.asked("old", "slurm_host_cleanup")
