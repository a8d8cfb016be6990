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
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.job_processes import Process
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
    assert outside_jobs([range(5001, 5002)], running) == [31, 32, 33]
    assert outside_jobs([range(5003, 5004)], running) == []


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


def test_processes_with_subordinate_ids_are_those_of_the_user(tmp_path: Path) -> None:
    """A container of a user without root's rights has a process with such an id, which needs no other process."""
    file = tmp_path / "subuid"
    file.write_text("carl:100000:65536\n5001:600000:10\ndana:200000:65536\nbroken\ncarl:x:y\n")
    ids = sessions.all_ids({5001: "carl"}, str(file))
    assert ids == [range(5001, 5002), range(100000, 165536), range(600000, 600010)]
    running = {
        1: process("systemd", 0, 0, "0::/init.scope"),
        20: process("slurmstepd", 1, 0, own=True),
        21: process("of a job", 20, 100005),
        31: process("left", 1, 100999),
        32: process("left", 1, 600009),
        33: process("other", 1, 200001),
    }
    assert outside_jobs(ids, running) == [31, 32]
    # 65534 is nobody's: ranges that somebody has set too low.
    running[34] = process("of another user", 1, 65534)
    assert outside_jobs([range(5001, 5002), range(65000, 66000)], running) == []
    assert sessions.all_ids({5001: "carl"}, str(tmp_path / "none")) == [range(5001, 5002)]


RACER = """
import os, time
print("ready", flush=True)
os.setsid()
end = time.monotonic() + 20
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    time.sleep(0.001)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the rights of another user")
def test_a_process_that_is_always_another_one_ends_as_well() -> None:
    """Each one starts the next one and ends, mostly before anybody has read its id."""
    uid = 987_656
    child = subprocess.Popen([os.path.realpath("/usr/bin/python3"), "-Sc", RACER], user=uid, stdout=subprocess.PIPE)
    assert child.stdout
    child.stdout.readline()
    child.wait()
    assert sessions.end({uid: "nobody-here"}, lambda _name: None) == 0
    child.stdout.read()  # all processes have it, and have ended
    states = subprocess.run(["ps", "-u", str(uid), "-o", "stat="], capture_output=True, text=True, check=False).stdout
    assert {state[0] for state in states.split()} <= {"Z"}


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the rights of another user")
def test_processes_of_jobs_go_on_and_stopped_ones_stay_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    uid = 987_657
    of_job, suspended, left = (subprocess.Popen(["/bin/sleep", "60"], user=uid) for _number in range(3))
    os.kill(suspended.pid, 19)
    monkeypatch.setattr(sessions, "belongs_to_job", lambda pid, _running: pid != left.pid)
    monkeypatch.setattr(sessions, "TIMEOUT", -1.0)  # at once
    assert sessions.end({uid: "nobody-here"}, lambda _name: None) == 0
    assert left.wait(5) == -9
    states = [Path(f"/proc/{one.pid}/stat").read_text().split()[2] for one in (of_job, suspended)]
    assert (states[0] in "RS", states[1]) == (True, "T")
    for one in (of_job, suspended):
        one.kill()
        one.wait()


def test_the_other_processes_of_a_user_who_runs_a_setuid_program_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    running = {1: process("systemd", 0, 0), 31: Process("x", 1, (5002, 5001, 5001, 5001), "0::/user.slice")}
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(sessions, "processes", lambda: running)
    monkeypatch.setattr(sessions, "_signal_all", lambda uid, number: signals.append((uid, number)))
    monkeypatch.setattr(sessions, "_signal", lambda pid, _number: running.pop(pid, None))
    assert sessions.end({5001: "carl"}, lambda _name: None) == 0
    assert signals == [(5001, 9)]
