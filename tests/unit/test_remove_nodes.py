# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What remove_nodes removes from a host, in addition to the paths that the other roles write."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.host_paths import SCRIPTS_DIR
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import remove_nodes
from plain_host import cluster
from standing_hosts import Hosts
from test_stopped_runs import cluster as cluster_file
from test_stopped_runs import standing

ROOT = Path(__file__).parents[2]
CLEANUP = remove_nodes.cleanup(cluster()["n1"])

SERVERS = (
    "backup",
    "mariadb",
    "nfs_server",
    "registry",
    "report_server",
    "rest",
    "slurm_report",
    "slurmctld",
    "slurmdbd",
    "slurmrestd",
)
"""Roles of hosts that cannot leave, and the names of their rules."""

STAYS = (
    "/etc/apt/keyrings/*",  # packages stay, so their source does
    "/etc/apt/preferences.d/*",
    "/etc/apt/sources.list.d/*",
    "/etc/ssh/sshd_config.d/gpucluster-people.conf",  # users do not come in by keys of their own
    "/etc/security/gpucluster-slurm-access.conf",  # slurm_access removes these four, and checks it
    "/etc/ssh/*-gpucluster-slurm-access.conf",
    "/etc/ssh/*.d/*gpucluster-slurm-access.conf",
    "/etc/ssh/sshd_config.d/10-gpucluster-slurm-penalties.conf",
    "/etc/systemd/system/user-.slice.d/50-gpucluster-slurm.conf",
)

PATH = r"/(?:etc|usr/local)/[A-Za-z0-9_./@-]*gpucluster[A-Za-z0-9_./@-]*"

PATHS = sorted(
    {
        path
        for file in ROOT.glob("roles/*/*/**/*.yml")
        if file.relative_to(ROOT).parts[1] not in (*SERVERS, "remove_nodes")
        for path in re.findall(PATH, file.read_text())
    }
    | {
        path
        for file in ROOT.glob("plugins/module_utils/decisions/*/*.py")
        if file.stem not in (*SERVERS, "remove_nodes", "host_directories")
        for path in re.findall(PATH, file.read_text())
    }
)


def test_the_scripts_have_one_directory() -> None:
    assert SCRIPTS_DIR in CLEANUP.directories


@pytest.mark.parametrize("path", PATHS)
def test_each_path_of_a_role_is_removed_or_stays_for_a_reason(path: str) -> None:
    inside = (*CLEANUP.directories,)
    assert any(fnmatch(path, pattern) for pattern in (*CLEANUP.files, *STAYS)) or path.startswith(inside)


# -- a run on stand-ins for hosts --------------------------------------------------------------------------------------


@pytest.mark.once
def test_a_removal_refuses_what_hosts_that_stay_lack(tmp_path: Path) -> None:
    """They lack everything here, so that site.yml has not run."""
    hosts = standing(["head", "n1", "n2", "n3"])
    for answers in hosts.values():
        answers["slurm_host_cleanup"] = {"plan": [], "diff": {"before": "", "after": ""}}
    there = Hosts(tmp_path / "site", cluster_file(), hosts)
    run = there.run("gpucluster.slurm.remove_nodes", "-e", "remove_nodes=n3")
    said = " ".join(run.stdout.split())
    assert run.returncode != 0
    assert "The run would change more than the removal of these nodes needs." in said, run.stdout
    assert "packages, users or files of the system: head,n[1-2]" in said
    assert not there.asked("head", "slurm_removal")
    assert '"state": "ended"' in there.asked("head", "slurm_run")
