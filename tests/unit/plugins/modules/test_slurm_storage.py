# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why slurm_storage unmounts nothing; tests/integration/people has the mounts."""

from __future__ import annotations

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.job_processes import Process
from ansible_collections.gpucluster.slurm.plugins.modules import slurm_storage

ROOT = (0,) * 4


def test_a_job_and_processes_of_users_keep_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slurmstepd that keeps Slurm's scope of cgroup v2 serves no job, and neither does one of a service user."""
    running = {
        1: Process("systemd", 0, ROOT, ""),
        2: Process("slurmstepd", 1, ROOT, "", True, "/usr/sbin/slurmstepd infinity"),
        3: Process("slurmstepd", 1, (990,) * 4, "", False),
    }
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.setattr(slurm_storage, "processes", lambda: running)
    assert slurm_storage.users() == []
    running[4] = Process("slurmstepd", 1, ROOT, "", True, "slurmstepd: [7.0]")
    running[5] = Process("bash", 1, (5001,) * 4, "")
    assert slurm_storage.users() == ["a job", "uid 5001"]
