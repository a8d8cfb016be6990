# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Jobs and files of the state of slurmctld, in whose directory user slurm can put links."""

from __future__ import annotations

import os
import shutil
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from .backup_host import BackupError, Result, output_of

ALIVE = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED")
"""States in which a job has steps on nodes, so that slurmctld takes it back."""

STARTED = ("RUNNING", "SUSPENDED", "STOPPED")
"""Those in which it had begun and slurmctld had not ended it."""


def job_id_of(state: bytes) -> tuple[int, int]:
    """The offset and the value of the next job id in the file job_state.

    slurmctld writes: the length of a word and the word PROTOCOL_VERSION, 16 bits of the version, 64 bits of the time,
    then 32 bits of the id (`dump_all_job_state` in `src/slurmctld/job_mgr.c`).
    """
    if len(state) >= 4:
        (length,) = struct.unpack_from(">I", state)
        offset = 4 + length + 2 + 8
        if state[4 : 4 + length] == b"PROTOCOL_VERSION\0" and len(state) >= offset + 4:
            return offset, struct.unpack_from(">I", state, offset)[0]
    raise BackupError("job_state does not begin as a file of slurmctld")


def with_job_id(state: bytes, number: int) -> bytes:
    """The content of job_state with this next job id."""
    offset, _present = job_id_of(state)
    return state[:offset] + struct.pack(">I", number) + state[offset + 4 :]


class SavedJob(TypedDict):
    """A job in a backup."""

    id: int
    name: str
    state: str
    user: str
    nodes: str


def jobs_of(squeue: str) -> list[SavedJob]:
    """The jobs in lines of `squeue --format=%A|%i|%T|%u|%N`."""
    rows = (line.split("|", 4) for line in squeue.split("\n"))
    return [
        {"id": int(row[0]), "name": row[1], "state": row[2], "user": row[3], "nodes": row[4]}
        for row in rows
        if len(row) == 5 and row[0].isdigit()
    ]


def compared(running: Mapping[str, Mapping[str, str]], saved: Sequence[SavedJob]) -> Result:
    """Compare jobs on nodes, each with what is left of it there (`served_jobs`), with the jobs of a backup.

    kept: slurmctld takes them back. lost, with their nodes: slurmctld would end them, since the backup does not have
    them as running. reported: the same, but they have ended. ended, by the name that scancel takes, with their nodes:
    begun in the backup, and on no node that was asked. used: the numbers of all jobs on nodes.
    """
    alive = {int(job["id"]): str(job["name"]) for job in saved if job["state"] in ALIVE}
    nodes: dict[int, dict[str, str]] = {}
    for node, jobs in running.items():
        for job, left in jobs.items():
            nodes.setdefault(int(job), {})[node] = left
    over = {job for job, left in nodes.items() if "reports" in left.values() and "runs" not in left.values()}
    unknown = [job for job in sorted(nodes) if job not in alive]
    # The parts 7+0 and 7+1 of a job of several parts end together, and a step has the number of the first part.
    there = {str(job) for job in nodes} | {whole_job(alive[job]) for job in nodes if job in alive}
    ended: dict[str, list[str]] = {}
    for saved_job in saved:
        name = whole_job(saved_job["name"])
        if saved_job["state"] in STARTED and not {str(saved_job["id"]), name} & there:
            ended.setdefault(name, []).append(str(saved_job["nodes"]))
    return {
        "kept": sorted(nodes.keys() & alive.keys()),
        "lost": {str(job): sorted(nodes[job]) for job in unknown if job not in over},
        "reported": [job for job in unknown if job in over],
        "ended": {name: ",".join(hostlists) for name, hostlists in ended.items()},
        "used": sorted(nodes),
    }


def whole_job(name: str) -> str:
    """The name of the job that a part belongs to."""
    return name.partition("+")[0]


def words_of_jobs(found: Result) -> list[str]:
    """What becomes of the jobs of a comparison, a line each."""
    lost = [f"{job} on {', '.join(nodes)}" for job, nodes in found["lost"].items()]
    lines = {
        "jobs that run and are taken back": listed(found["kept"]),
        "jobs that run and that slurmctld ends, since the backup does not have them as running": "; ".join(lost),
        "jobs that have ended unknown to the backup; slurmstepd waits to report it": listed(found["reported"]),
    }
    return [f"{what}: {which}" for what, which in lines.items() if which]


def words_of_records(found: Result) -> list[str]:
    """What the database has of jobs that the backup does not have, a line each."""
    lines = {
        "jobs submitted since the backup, of which the database has records and slurmctld has none": found["submitted"],
        "jobs that ended since the backup; slurmctld starts those again that were pending in it": found["ended"],
    }
    return [f"{what}: {listed(which)}" for what, which in lines.items() if which]


def listed(jobs: Sequence[int | str]) -> str:
    """Job ids in words; of many, the first ones and their number."""
    more = f" and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else ""
    return ", ".join(map(str, jobs[:SHOWN])) + more


SHOWN = 50
"""Job ids that a line has."""


def jobs_now() -> list[SavedJob]:
    """The jobs that slurmctld has. Raises BackupError if it does not answer."""
    squeue = ["squeue", "--all", "--noheader", "--states=all", "--array", "--format=%A|%i|%T|%u|%N"]
    return jobs_of(output_of(squeue, seconds=120))


def listed_jobs() -> list[SavedJob]:
    """The same for a backup. A state is also saved while slurmctld is down; then no job counts as running."""
    try:
        return jobs_now()
    except BackupError as error:
        print(f"slurm-backup: the backup has no list of jobs: {error}", file=sys.stderr)
        return []


# -- files ------------------------------------------------------------------------------------------------------------

NEEDED = ("clustername", "job_state", "node_state")
"""Files of StateSaveLocation that each slurmctld has after its first minute."""


def copy_state(source: Path, target: Path) -> None:
    """Copy StateSaveLocation while slurmctld writes there. Raises BackupError if a needed file is missing.

    slurmctld replaces each file by renames, so a copy of a file is whole, but for a moment a name can be missing. The
    file of jobs is copied before their scripts: a script too much does no harm, and a job without its script fails.
    No link is followed, since the directory belongs to user slurm, who would get any file of root with a restore.
    """
    target.mkdir(mode=0o700, parents=True)
    for attempt in range(5):
        for name in NEEDED:
            if not (target / name).exists():
                copy_file(source / name, target / name, follow=False)
        if all((target / name).exists() for name in NEEDED):
            break
        time.sleep(attempt)
    for directory, _directories, names in os.walk(source):
        inside = Path(directory).relative_to(source)
        if inside.parts[:1] == (RESTORING,):
            continue
        (target / inside).mkdir(mode=0o700, exist_ok=True)
        same_owner(Path(directory), target / inside)
        for name in names:
            if not name.endswith((".new", ".lock")) and not (target / inside / name).exists():
                copy_file(Path(directory) / name, target / inside / name, follow=False)
    missing = [name for name in NEEDED if not (target / name).exists() or not (target / name).stat().st_size]
    if missing:
        raise BackupError(f"{source} has no {', '.join(missing)}: slurmctld has not written its state there")


RESTORING = ".restoring"
"""The directory below StateSaveLocation into which a backup is restored."""


def same_owner(source: Path, target: Path) -> None:
    """Give a file or directory the owner and mode of another one."""
    try:
        status = source.stat()
        os.chown(target, status.st_uid, status.st_gid)
        os.chmod(target, status.st_mode & 0o7777)
    except FileNotFoundError:
        pass


def copy_file(source: Path, target: Path, follow: bool = True) -> None:
    """Copy a regular file with its owner, if it is there. `follow`: also the file that a link leads to."""
    try:
        if source.is_file() and (follow or not source.is_symlink()):
            shutil.copy2(source, target, follow_symlinks=follow)
            same_owner(source, target)
    except FileNotFoundError:
        target.unlink(missing_ok=True)


def put_in_place(source: Path, target: Path) -> None:
    """Move the entries of a directory into another one of the same file system, clustername last: it is the mark."""
    for name in sorted(os.listdir(source), key=lambda name: (name == NEEDED[0], name)):
        present = target / name
        if present.is_dir() and not present.is_symlink():
            shutil.rmtree(present)
        os.rename(source / name, present)


def has_state(path: str) -> bool:
    """Whether StateSaveLocation has a complete state."""
    return (Path(path) / NEEDED[0]).exists()
