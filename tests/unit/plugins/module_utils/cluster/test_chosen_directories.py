# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directories in which a site wants files of daemons."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.chosen_directories import chosen_directories

CONF = {
    "StateSaveLocation": "/data/state",
    "SlurmctldLogFile": "/data/log/slurmctld.log",
    "SlurmctldPidFile": "/data/run/slurmctld.pid",
    "SlurmdSpoolDir": "/local/spool",
    "SlurmdLogFile": "/var/log/slurmd.%n.log",
    "JobCompLoc": "http://jobs.example.org/x",
    "SlurmSchedLogFile": None,
}


@pytest.mark.parametrize(
    ("groups", "target", "paths"),
    [
        (["slurm_controller"], "/srv/backup", ["/data/log", "/data/run", "/data/state", "/srv/backup"]),
        (["slurm_compute"], "", ["/local/spool", "/var/log"]),
        (["slurm_database"], "rest:https://backup.example.org/", ["/data/archive", "/data/log"]),
        (["slurm_login"], "", []),
    ],
)
def test_directories_of_the_daemons_of_a_host(groups: list[str], target: str, paths: list[str]) -> None:
    slurmdbd = {"ArchiveDir": "/data/archive", "LogFile": "/data/log/slurmdbd.log"}
    assert chosen_directories(CONF, slurmdbd, groups, target) == [{"path": path} for path in paths]
