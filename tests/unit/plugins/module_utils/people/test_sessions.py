# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of users that end, and those of jobs that do not."""

from __future__ import annotations

import os
import subprocess

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.people import sessions
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.sessions import Process, ancestors, outside_jobs


def process(name: str, parent: int, uid: int = 5001, cgroup: str = "0::/user.slice") -> Process:
    """A process."""
    return Process(name, parent, frozenset([uid]), cgroup)


def test_processes_of_jobs_stay() -> None:
    running = {
        1: process("systemd", 0, 0),
        20: process("slurmstepd", 1, 0),
        21: process("python", 20),
        22: process("orphan", 1, cgroup="0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"),
        23: process("orphan", 1, cgroup="9:memory:/slurm/uid_5001/job_7/step_batch/task_0\n0::/x"),
        30: process("sshd-session", 1, 0),
        31: process("sshd-session", 30),
        32: process("bash", 31),
        33: process("sshd-session", 1, cgroup="9:memory:/slurm/uid_5001/job_7/step_extern/task_0\n0::/x"),
        34: process("bash", 33, cgroup="0::/system.slice/slurmstepd.scope/job_7/step_extern"),
        35: process("sleep", 20, cgroup="0::/system.slice/slurmstepd.scope/job_7/step_extern/user/task_special"),
        40: process("bash", 1, 5002),
        50: process("nohup", 1),
    }
    assert outside_jobs([5001], running) == [31, 32, 33, 34, 50]
    assert outside_jobs([5003], running) == []


def test_this_process_is_found_with_its_ancestors() -> None:
    running = sessions.processes()
    found = [*ancestors(os.getpid(), running)]
    assert found[0] == running[os.getpid()]
    assert running[os.getppid()] in found
    assert os.getuid() in found[0].uids


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the rights of another user")
def test_processes_end_even_if_they_do_not_want_to() -> None:
    uid = 987_654
    script = "trap '' TERM; echo ready; while :; do sleep 1; done"
    child = subprocess.Popen(["sh", "-c", script], user=uid, stdout=subprocess.PIPE)
    assert child.stdout
    child.stdout.readline()
    told: list[str] = []
    assert sessions.end({uid: "nobody-here"}, told.append) == 0
    assert told == ["nobody-here"]
    assert child.wait() == -9
    assert sessions.end({uid: "nobody-here"}, told.append) == 0
    assert told == ["nobody-here"]
