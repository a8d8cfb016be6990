# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of jobs, and those that only look like them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.host.job_processes import (
    JobStep,
    Process,
    ancestors,
    belongs_to_job,
    jobs_of_processes,
    processes,
    served_jobs,
    served_steps,
    step_of_cgroup,
    strays,
)

USER = 5001
SESSION = "0::/user.slice/user-5001.slice/session-3.scope"
SCOPE = "/system.slice/slurmstepd.scope"
SLUID = "sEKNKTV3WPV500"
ROOT = (0, 0, 0, 0)


class Host:
    """The kernel's files about the processes of a host (proc(5))."""

    def __init__(self, directory: Path, first: str = "0::/init.scope") -> None:
        self.directory = directory
        self.proc = directory / "proc"
        self.proc.mkdir()
        self.program("sbin/slurmstepd")
        self.program("bin/sleep")
        self.add(1, 0, uids=ROOT, cgroups=first)

    def program(self, name: str, mode: int = 0o755) -> None:
        """A program of the host."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(mode)

    def add(  # pylint: disable=too-many-positional-arguments
        self,
        pid: int,
        parent: int = 1,
        uids: tuple[int, ...] = (USER,) * 4,
        cgroups: str = SESSION,
        exe: str = "bin/sleep",
        name: str = "python3",
        title: str = "",
        state: str = "S (sleeping)\nThreads:\t1",
    ) -> None:
        """A process."""
        directory = self.proc / str(pid)
        directory.mkdir()
        shown = "\t".join(map(str, uids))
        (directory / "status").write_text(f"Name:\t{name}\nState:\t{state}\nPPid:\t{parent}\nUid:\t{shown}\n")
        (directory / "cgroup").write_text(f"{cgroups}\n")
        (directory / "cmdline").write_text(f"{title or name}\0")
        (directory / "exe").symlink_to(self.directory / exe)

    def slurmstepd(self, pid: int, step: str, cgroups: str = SESSION, uids: tuple[int, ...] = ROOT) -> None:
        """Slurm's own slurmstepd for a step, such as 7.batch."""
        self.add(pid, 1, uids, cgroups, "sbin/slurmstepd", "slurmstepd", f"slurmstepd: [{step}]")

    @property
    def of_jobs(self) -> list[int]:
        """The processes of the user that belong to jobs."""
        running = processes(str(self.proc))
        return sorted(pid for pid in running if USER in running[pid].uids and belongs_to_job(pid, running))


@pytest.fixture(name="host")
def host_with_cgroup_v2(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize("job", ["job_7", SLUID])
def test_a_job_with_cgroup_v2(host: Host, job: str) -> None:
    """job_N is the directory of releases before 26.05, and of CgroupJobIdPaths=yes."""
    own = f"0::{SCOPE}/{job}"
    host.add(10, 1, ROOT, f"0::{SCOPE}/system", "sbin/slurmstepd", "slurmstepd", "/usr/sbin/slurmstepd infinity")
    host.slurmstepd(20, "7.batch", f"{own}/step_batch/slurm")
    host.slurmstepd(21, "7.extern", f"{own}/step_extern/slurm")
    host.add(30, 20, cgroups=f"{own}/step_batch/user/task_0")
    host.add(31, 1, cgroups=f"{own}/step_batch/user/task_0")  # of a parent that has ended
    host.add(32, 1, cgroups=f"{own}/step_0/user/task_special/mine")
    host.add(33, 21, cgroups=f"{own}/step_extern/user/task_special")
    host.add(40, 1, cgroups=f"{own}/step_extern/user/task_special")  # a login
    host.add(41, 40, cgroups=f"{own}/step_extern/user/task_special", name="slurmstepd", title="slurmstepd: [7.0]")
    host.add(42, 1, cgroups=f"{own}/step_extern/user/task_special/job_1/step_0/user")
    assert host.of_jobs == [30, 31, 32, 33]
    running = processes(str(host.proc))
    assert served_steps(running) == [JobStep("7", "batch"), JobStep("7", "extern")]
    assert set(jobs_of_processes(running).values()) == {"7"}
    assert set(jobs_of_processes(running)) == {20, 21, 30, 31, 32, 33, 40, 41, 42}


def test_a_job_with_cgroup_v1(tmp_path: Path) -> None:
    host = Host(tmp_path, "5:freezer:/\n4:memory:/init.scope\n1:name=systemd:/init.scope\n0::/init.scope")
    host.slurmstepd(20, "7.0", "5:freezer:/slurm/uid_5001/job_7/step_0\n4:memory:/system.slice/slurmd.service")
    host.add(30, 1, cgroups=f"5:freezer:/slurm/uid_5001/job_7/step_0\n{SESSION}")
    host.add(31, 1, cgroups=f"{SESSION}\n4:memory:/slurm_n1/uid_5001/job_7/step_batch/task_0")
    host.add(40, 1, cgroups=f"5:freezer:/slurm/uid_5001/job_7/step_extern/task_0\n{SESSION}")
    host.add(41, 1, cgroups="1:name=systemd:/slurm/uid_5001/job_7/step_0")
    host.add(42, 1, cgroups="4:memory:/user.slice/user-5001.slice/slurm/uid_5001/job_7/step_0")
    assert host.of_jobs == [30, 31]
    assert jobs_of_processes(processes(str(host.proc))) == dict.fromkeys((20, 30, 31, 40), "7")


def test_a_host_that_is_a_container(tmp_path: Path) -> None:
    host = Host(tmp_path, "0::/machine.slice/libpod-1.scope/init.scope\n3:freezer:/libpod-1")
    host.add(30, cgroups=f"0::/machine.slice/libpod-1.scope{SCOPE}/job_7/step_0/user/task_0")
    host.add(31, cgroups="3:freezer:/libpod-1/slurm/uid_5001/job_7/step_0/task_0")
    host.add(40, cgroups=f"0::/machine.slice/libpod-1.scope/user.slice/x.service{SCOPE}/job_7/step_0/user/task_0")
    assert host.of_jobs == [30, 31]


@pytest.mark.parametrize("scope", ["/n1_slurmstepd.scope", "/a.slice/a-b.slice/slurmstepd.scope"])
def test_other_places_of_slurms_scope(host: Host, scope: str) -> None:
    """Several slurmds on a host, and CgroupSlice of cgroup.conf."""
    path = f"/system.slice{scope}" if "slice" not in scope else scope
    host.add(30, cgroups=f"0::{path}/job_7/step_0/user/task_0")
    assert host.of_jobs == [30]


@pytest.mark.parametrize(
    "cgroup",
    [
        "/user.slice/user-5001.slice/user@5001.service/job_5/step_0",
        f"/user.slice/user-5001.slice/user@5001.service{SCOPE}/job_5/step_0/user/task_0",
        "/user.slice/user-5001.slice/slurmstepd.scope/job_5/step_0/user/task_0",
        "/user.slice/slurmstepd.scope/job_5/step_0/user/task_0",
        f"/user.slice/user-5001.slice/user@5001.service/app.slice/slurmstepd.scope/{SLUID}/step_0/user/task_0",
        f"/system.slice/mine.service{SCOPE}/job_5/step_0/user/task_0",
        "/user.slice/user-5001.slice/user@5001.service/slurm/uid_5001/job_5/step_0",
        f"{SCOPE}/system",
        f"{SCOPE}/sEKNKTV3WPV50/step_0/user",
        f"{SCOPE}/not_job_5/step_0/user",
    ],
)
def test_cgroups_that_are_not_slurms(host: Host, cgroup: str) -> None:
    host.add(30, cgroups=f"0::{cgroup}")
    assert host.of_jobs == []
    assert jobs_of_processes(processes(str(host.proc))) == {}


def test_names_that_a_user_chooses(host: Host) -> None:
    """The name (prctl), the arguments, and the file that is run; also a file that gives root's id for a moment."""
    host.program("home/slurmstepd")
    host.program("home/su/slurmstepd", 0o4755)
    host.program("home/slurmstepd-wlm")
    title = "slurmstepd: [9.batch]"
    host.add(30, name="slurmstepd")
    host.add(31, title=title)
    host.add(32, exe="home/slurmstepd", name="slurmstepd", title=title)
    host.add(33, exe="sbin/slurmstepd", name="slurmstepd", title=title)
    host.add(34, uids=(USER, 0, 0, 0), exe="home/su/slurmstepd", name="slurmstepd", title=title)  # hard link to su
    host.add(35, uids=(0, 0, 0, USER), exe="home/su/slurmstepd", name="slurmstepd", title=title)  # such as sudo
    host.add(36, uids=ROOT, name="sudo", title=title)
    host.add(37, exe="home/slurmstepd-wlm", name="slurmstepd", title=title)
    for child, parent in enumerate(range(30, 38), 40):
        host.add(child, parent)
    assert host.of_jobs == []
    assert served_steps(processes(str(host.proc))) == []
    assert jobs_of_processes(processes(str(host.proc))) == {}


def test_without_cgroups_the_children_of_slurmstepd_are_known(host: Host) -> None:
    """ProctrackType=proctrack/linuxproc. A process whose parents have all ended is none of the children any more."""
    service = "0::/system.slice/slurmd.service"
    host.slurmstepd(20, "7.0+1", service)
    host.slurmstepd(21, "8.extern stepmgr", service, uids=(0, USER, 0, USER))
    host.slurmstepd(22, "9.0", service, uids=(USER, USER, 0, USER))
    host.add(30, 20, cgroups=service)
    host.add(31, 30, cgroups=service, name="slurmstepd")
    host.add(32, 1, cgroups=service)
    host.add(33, 22, cgroups=service)
    host.add(34, 22, cgroups=service, exe="sbin/slurmstepd")  # a task before it runs its program
    assert host.of_jobs == [21, 22, 30, 31, 33, 34]
    assert served_jobs(processes(str(host.proc))) == {"7": "runs", "8": "open", "9": "runs"}
    assert JobStep("8", "extern") in served_steps(processes(str(host.proc)))


@pytest.mark.parametrize("name", ["slurmstepd-wlm", "slurmstepd (deleted)", "slurmstepd-wlm (deleted)"])
def test_other_files_of_slurmstepd(host: Host, name: str) -> None:
    """That of Debian's packages, and those that an upgrade has replaced while a job runs."""
    host.program(f"sbin/{name}")
    host.add(20, 1, ROOT, exe=f"sbin/{name}", title="slurmstepd: [7.0]")
    host.add(30, 20)
    assert host.of_jobs == [30]
    assert served_jobs(processes(str(host.proc))) == {"7": "runs"}


@pytest.mark.parametrize("job", ["job_7", SLUID])
def test_a_slurmstepd_that_only_waits_to_report_an_end_is_no_running_job(host: Host, job: str) -> None:
    """The step extern has a process of Slurm, and maybe logins, for as long as slurmctld has not ended the job."""
    own = f"0::{SCOPE}/{job}"
    host.slurmstepd(20, "7.extern", f"{own}/step_extern/slurm")
    host.add(30, 20, ROOT, cgroups=f"{own}/step_extern/user/task_special")
    assert served_jobs(processes(str(host.proc))) == {"7": "open"}
    host.slurmstepd(21, "7.batch", f"{own}/step_batch/slurm")
    assert served_jobs(processes(str(host.proc))) == {"7": "reports"}
    host.slurmstepd(22, "7.0", f"{own}/step_0/slurm")
    host.add(32, 1, cgroups=f"{own}/step_0/user/task_0")
    assert served_jobs(processes(str(host.proc))) == {"7": "runs"}


def test_a_slurmstepd_that_only_waits_with_cgroup_v1(tmp_path: Path) -> None:
    host = Host(tmp_path, "6:freezer:/\n0::/")
    for pid, step in ((20, "extern"), (21, "batch")):
        host.slurmstepd(pid, f"7.{step}", "6:freezer:/slurm_n1/uid_0/job_7\n0::/system.slice/slurmd.service")
    host.add(30, 20, ROOT, cgroups="6:freezer:/slurm_n1/uid_0/job_7/step_extern\n0::/")
    assert served_jobs(processes(str(host.proc))) == {"7": "reports"}
    host.add(31, 21, cgroups="6:freezer:/slurm_n1/uid_0/job_7/step_batch\n0::/")
    assert served_jobs(processes(str(host.proc))) == {"7": "runs"}


def test_a_job_that_nobody_serves_has_its_sluid_only(host: Host) -> None:
    host.slurmstepd(20, "8.0", f"0::{SCOPE}/sEKNKTV3WPV501/step_0/slurm")
    host.add(30, cgroups=f"0::{SCOPE}/{SLUID}/step_0/user/task_0")
    host.add(31, cgroups=f"0::{SCOPE}/sEKNKTV3WPV501/step_0/user/task_0")
    assert jobs_of_processes(processes(str(host.proc))) == {20: "8", 30: SLUID, 31: "8"}


def test_only_what_has_ended_is_left_out(host: Host) -> None:
    """A program can end its first thread alone, and has the state of a process that has ended then."""
    host.add(30, state="Z (zombie)\nThreads:\t1")
    host.add(31, state="Z (zombie)\nThreads:\t2")
    host.add(32, state="X (dead)")
    assert [pid for pid in processes(str(host.proc)) if pid >= 30] == [31]


def test_a_process_without_the_first_one() -> None:
    """A user who sees only own processes (hidepid of proc(5))."""
    assert step_of_cgroup(Process("x", 1, ROOT, f"0::{SCOPE}/job_7/step_0/user\n"), None) == JobStep("7", "0")


def test_this_process_is_found_with_its_ancestors() -> None:
    running = processes()
    found = [*ancestors(os.getpid(), running)]
    assert found[0] == running[os.getpid()]
    assert running[os.getppid()] in found
    assert os.getuid() in found[0].uids


PRETENDED = 66999001
"""A job that no scenario has: the processes of their containers are those of this machine as well."""

SCRIPT = """
import ctypes, subprocess
ctypes.CDLL(None).prctl(15, b"slurmstepd")
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture(name="pretender")
def process_that_is_called_slurmstepd() -> Iterator[tuple[int, int]]:
    """A process of nobody with the name and title of slurmstepd, and its child."""
    arguments = [f"slurmstepd: [{PRETENDED}.batch]", "-c", SCRIPT]
    process = subprocess.Popen(arguments, executable=sys.executable, user=65534, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    child = int(process.stdout.readline())
    yield process.pid, child
    os.kill(child, signal.SIGKILL)
    process.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the rights of another user")
def test_a_real_process_that_is_called_slurmstepd(pretender: tuple[int, int]) -> None:
    running = processes()
    pid, child = pretender
    assert (running[pid].name, running[child].parent) == ("slurmstepd", pid)
    assert [belongs_to_job(each, running) for each in pretender] == [False, False]
    assert str(PRETENDED) not in served_jobs(running)
    assert not {*pretender} & {*jobs_of_processes(running)}


def test_processes_of_users_that_belong_to_no_job(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.add(10, cgroups=f"0::{SCOPE}/job_7/step_0/user/task_0")
    host.add(11, cgroups=f"0::{SCOPE}/job_7/step_extern/user/task_special")
    host.add(12, cgroups="0::/system.slice/docker-0a1b.scope")
    host.add(13, uids=(998,) * 4, cgroups="0::/system.slice/nvidia-dcgm.service")
    host.add(14)
    assert strays([10, 11, 12, 13, 14, 99], str(host.proc)) == [12, 14]
    assert strays([], str(tmp_path / "missing")) == []
