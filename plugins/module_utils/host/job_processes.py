# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes of a host belong to jobs, by facts that no user can choose.

A user chooses the name of a process, its arguments, its environment and the file that it runs. So a process is Slurm's
own slurmstepd only if it runs a file of this name as root, and the cgroup of a job counts only where Slurm makes it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

_JOB_V2 = r"(?:job_(?P<number>[0-9]+)|(?P<sluid>s[0-9A-HJKMNP-TV-Z]{13}))"
"""The directory of a job: Slurm 26.05 names it by the SLUID, unless cgroup.conf has CgroupJobIdPaths=yes.

`cgroup_p_step_create` in src/plugins/cgroup/v2/cgroup_v2.c; the letters are those of src/common/sluid.c.
"""

_V2 = re.compile(
    rf"/(?!user\.slice/)(?:[^/]+\.slice/)+(?:[^/]+_)?slurmstepd\.scope/{_JOB_V2}(?:/step_(?P<step>[^/]+))?(?:/|$)"
)
"""A cgroup of a job with cgroup v2, below the cgroup of the host's first process.

`_set_int_cg_ns` in src/plugins/cgroup/v2/cgroup_v2.c: CgroupSlice and the scope, with the node's name if a host has
several slurmds. Slices of systemd are within each other. A user can make such directories only in the user's own slice,
or below a service, which is no slice.
"""

_V1 = re.compile(r"/slurm[^/]*/uid_[0-9]+/job_(?P<number>[0-9]+)(?:/step_(?P<step>[^/]+))?(?:/|$)")
"""A cgroup of a job with cgroup v1, below the cgroup of the host's first process (src/plugins/cgroup/v1/xcgroup.c)."""

_TITLE = re.compile(r"slurmstepd: \[(?P<job>[0-9]+|s[0-9A-Z]{13})(?:_[0-9]+)?(?:\+[0-9]+)?\.(?P<step>[^\] +]+)")
"""The title of a slurmstepd (`_set_job_log_prefix` in src/slurmd/slurmstepd/slurmstepd.c)."""

_PROGRAM = re.compile(r"slurmstepd[\w.+-]*")
"""The name of slurmstepd's file; that of Debian's packages is slurmstepd-wlm."""

FIRST_USER = 1000
"""The lowest id of a user (login.defs(5), UID_MIN). Services have lower ones."""

_EXTERN = "extern"
"""The step that has the logins of a job's user (pam_slurm_adopt)."""


class JobStep(NamedTuple):
    """A step of a job."""

    job: str
    """The number of the job, or its SLUID."""
    step: str
    """Such as 0, batch or extern; empty for the job itself."""


@dataclass(frozen=True)
class Process:
    """A process of a host."""

    name: str
    """For people only: a user chooses it."""
    parent: int
    uids: tuple[int, ...]
    """The real, effective, saved and file system id of its user."""
    cgroups: str
    """/proc/PID/cgroup."""
    root_slurmstepd: bool = False
    """Whether it is Slurm's own slurmstepd."""
    title: str = ""
    """The arguments of a slurmstepd."""
    stopped: bool = False
    """Whether a signal has stopped it."""


def processes(proc: str = "/proc") -> dict[int, Process]:
    """All processes of a host, by their ids, without those that have ended.

    proc: the directory of the kernel's files about processes (proc(5)).
    """
    found = {}
    for entry in filter(str.isdecimal, os.listdir(proc)):
        with suppress(OSError, KeyError):  # it has ended meanwhile
            status = dict(line.partition(":")[::2] for line in _text(f"{proc}/{entry}/status").split("\n"))
            cgroups = _text(f"{proc}/{entry}/cgroup")
            state = status["State"].split()[0]
            if state in ("Z", "X") and int(status.get("Threads", "0")) < 2:
                continue  # the others are those of which only the first thread has ended
            uids = tuple(map(int, status["Uid"].split()))
            genuine = _runs_slurmstepd_as_root(f"{proc}/{entry}/exe", uids)
            title = _text(f"{proc}/{entry}/cmdline").replace("\0", " ") if genuine else ""
            name, parent = status["Name"].strip(), int(status["PPid"])
            found[int(entry)] = Process(name, parent, uids, cgroups, genuine, title, state == "T")
    return found


def _text(path: str) -> str:
    """The content of a file. Raises OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _runs_slurmstepd_as_root(exe: str, uids: Sequence[int]) -> bool:
    """Whether a process is Slurm's own slurmstepd.

    slurmstepd has the effective id of the job's user for moments, and its real id for the moment in which it opens a
    terminal; then root is its saved id (src/slurmd/common/privileges.c, src/slurmd/slurmstepd/io.c). A user gets such
    ids by a file with the setuid bit only, such as a hard link to su that is called slurmstepd.

    Args:
        exe: the link to the file that the process runs, which may have been replaced by an upgrade.
        uids: the real, effective, saved and file system id of its user.
    """
    real, _effective, saved, *_rest = uids
    if 0 not in (real, saved):
        return False
    try:
        name = os.path.basename(os.readlink(exe)).removesuffix(" (deleted)")
        return bool(_PROGRAM.fullmatch(name)) and not os.stat(exe).st_mode & stat.S_ISUID
    except OSError:  # a thread of the kernel, or it has ended
        return False


def ancestors(pid: int, running: Mapping[int, Process]) -> Iterator[Process]:
    """A process and those that have started it, the nearest first."""
    seen = set()
    while pid in running and pid not in seen:
        seen.add(pid)
        yield running[pid]
        pid = running[pid].parent


def step_of_cgroup(process: Process, first: Process | None) -> JobStep | None:
    """The step in whose cgroup a process is; None if it is in no cgroup of Slurm.

    Args:
        process: the process.
        first: process 1 of the host. Its cgroup is the one in which a container has all of its cgroups.
    """
    roots = dict(_paths(first)) if first else {}
    for controllers, path in _paths(process):
        root = re.sub(r"(^|/)init\.scope$", "", roots.get(controllers, "")).rstrip("/")
        if controllers.startswith("name=") or not path.startswith(f"{root}/"):
            continue
        if match := (_V1 if controllers else _V2).match(path[len(root) :]):
            parts = match.groupdict()
            return JobStep(parts["number"] or parts["sluid"], parts["step"] or "")
    return None


def _paths(process: Process) -> Iterator[tuple[str, str]]:
    """The controllers and paths of /proc/PID/cgroup (cgroups(7)); cgroup v2 has no controllers there."""
    for line in filter(None, process.cgroups.split("\n")):
        _number, controllers, path = line.split(":", 2)
        yield controllers, path


def step_of_title(process: Process) -> JobStep | None:
    """The step that a slurmstepd serves; None for other processes, and for the slurmstepd that keeps the scope."""
    match = _TITLE.match(process.title) if process.root_slurmstepd else None
    return JobStep(match["job"], match["step"]) if match else None


def belongs_to_job(pid: int, running: Mapping[int, Process]) -> bool:
    """Whether a process is one of a job, rather than one of a session.

    The logins that pam_slurm_adopt has put into the step extern are sessions. The own processes of this step are
    children of slurmstepd. Without proctrack/cgroup, only the children of slurmstepd are known.
    """
    step = step_of_cgroup(running[pid], running.get(1))
    if step and step.step not in ("", _EXTERN):
        return True
    return any(one.root_slurmstepd for one in ancestors(pid, running))


def strays(pids: Collection[int], proc: str = "/proc") -> list[int]:
    """Which processes are of users, and of no job or login of Slurm: a container engine's, or what has left its job.

    proc: as for processes().
    """
    running = processes(proc) if pids else {}
    places = jobs_of_processes(running)
    return [
        pid
        for pid in pids
        if pid in running
        and min(running[pid].uids) >= FIRST_USER
        and pid not in places
        and not belongs_to_job(pid, running)
    ]


def served_steps(running: Mapping[int, Process]) -> list[JobStep]:
    """The steps of jobs that have a slurmstepd on the host, in order."""
    return sorted({step for process in running.values() if (step := step_of_title(process))})


def served_jobs(running: Mapping[int, Process]) -> dict[str, str]:
    """The jobs that have a slurmstepd on the host, by number, in order, each with what is left of it there.

    runs: processes. reports: none; slurmstepd waits until slurmctld takes its report of the end, and goes on waiting
    while there is no slurmctld. open: the step extern alone, as on the other nodes of a job, or in an allocation
    without a step.
    """
    steps, working = served_steps(running), steps_with_tasks(running)
    found = {}
    for job in sorted({step.job for step in steps if step.job.isdecimal()}, key=int):
        own = {step for step in [*steps, *working] if step.job == job and step.step != _EXTERN}
        found[job] = "runs" if own & working else "reports" if own else "open"
    return found


def steps_with_tasks(running: Mapping[int, Process]) -> set[JobStep]:
    """The steps of jobs that have other processes than slurmstepd, by their cgroup and by what has started them."""
    found = set()
    for pid, job in jobs_of_processes(running).items():
        place = step_of_cgroup(running[pid], running.get(1))
        if place and not running[pid].root_slurmstepd:
            found.add(JobStep(job, place.step))
    for pid, process in running.items():
        starter = next((one for one in ancestors(pid, running) if one.root_slurmstepd), None)
        if starter and not process.root_slurmstepd and (step := step_of_title(starter)):
            found.add(step)
    return found


def jobs_of_processes(running: Mapping[int, Process]) -> dict[int, str]:
    """The jobs of processes, by the ids of those that are in a cgroup of Slurm or are a slurmstepd.

    A job is a number. It is the SLUID if the cgroup has this name and no slurmstepd tells the number, so that nobody
    serves this job. So it is after a requeue, which gives the job a new SLUID (`job_record_set_sluid` in
    src/common/job_record.c).
    """
    places = {pid: step_of_cgroup(process, running.get(1)) for pid, process in running.items()}
    titles = {pid: step for pid, process in running.items() if (step := step_of_title(process))}
    numbers = {place.job: titles[pid].job for pid, place in places.items() if place and pid in titles}
    found = {pid: numbers.get(place.job, place.job) for pid, place in places.items() if place}
    return {**found, **{pid: step.job for pid, step in titles.items()}}
