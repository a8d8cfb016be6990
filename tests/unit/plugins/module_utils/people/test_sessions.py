# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of users that end, and those of jobs that do not."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.job_processes import Process
from ansible_collections.gpucluster.slurm.plugins.module_utils.people import sessions
from ansible_collections.gpucluster.slurm.plugins.module_utils.people.sessions import outside_jobs


def process(name: str, parent: int, uid: int = 5001, cgroups: str = "0::/user.slice", own: bool = False) -> Process:
    """A process. own: whether it is Slurm's slurmstepd."""
    return Process(name, parent, (uid,) * 4, cgroups, own)


def test_processes_of_jobs_stay() -> None:
    running = {
        1: process("systemd", 0, 0, "0::/init.scope"),
        20: process("slurmstepd", 1, 0, own=True),
        21: process("python", 20),
        22: process("orphan", 1, cgroups="0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0"),
        31: process("slurmstepd", 1),
        32: process("bash", 31),
        33: process("sshd-session", 1, cgroups="9:memory:/slurm/uid_5001/job_7/step_extern/task_0\n0::/x"),
        40: process("bash", 1, 5002),
    }
    assert outside_jobs([5001], running) == [31, 32, 33]
    assert outside_jobs([5003], running) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the rights of another user")
def test_processes_end_even_if_they_do_not_want_to() -> None:
    uid = 987_654
    script = "trap '' TERM; printf slurmstepd >/proc/$$/comm; echo ready; while :; do sleep 1; done"
    child = subprocess.Popen(
        ["slurmstepd: [9.0]", "-c", script], executable="/bin/sh", user=uid, stdout=subprocess.PIPE
    )
    assert child.stdout
    child.stdout.readline()
    told: list[str] = []
    assert sessions.end({uid: "nobody-here"}, told.append) == 0
    assert told == ["nobody-here"]
    assert child.wait() == -9
    assert sessions.end({uid: "nobody-here"}, told.append) == 0
    assert told == ["nobody-here"]


FIRST_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the rights of another user")
def test_a_process_whose_first_thread_has_ended_ends_as_well() -> None:
    """The kernel shows it as a zombie."""
    uid = 987_655
    arguments = [os.path.realpath("/usr/bin/python3"), "-c", FIRST_THREAD_ENDS]
    child = subprocess.Popen(arguments, user=uid, stdout=subprocess.PIPE)
    assert child.stdout
    child.stdout.readline()
    while "Z" not in Path(f"/proc/{child.pid}/stat").read_text().split():
        time.sleep(0.01)
    assert sessions.end({uid: "nobody-here"}, lambda _name: None) == 0
    assert child.wait(5) in (-9, -15)
