# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Saves what this host holds of a Slurm cluster with restic, proves a backup, and puts back what is lost.

It prints its result as JSON. The reason of a failure is one line on standard error.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import datetime
from pathlib import Path
from typing import IO, Any

ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
"""Variables on which the answers of commands depend."""
OF_A_SITE = (
    *("HOME", "TZ", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Variables that a command has from its host. Others change answers, such as SQUEUE_USERS."""

CONF = Path(os.environ.get("SLURM_BACKUP_CONF", "/etc/gpucluster-slurm/backup"))
WORK = Path("/var/lib/gpucluster-slurm/backup")
STATUS = WORK / "status.json"
UNFINISHED = WORK / "restore-unfinished"
"""It is there from the moment when a restore has put data back until its playbook has started the daemons with them."""
ENDED = WORK / "ended-jobs.json"
"""The jobs of a state that was put back which have ended before the loss, until slurmctld has ended them as well."""
REPLACED = WORK / "replaced-keys.json"
"""The ids of the keys of the repository that a change of the password has replaced, until they are removed."""
STAGING = WORK / "staging"
SCRATCH = WORK / "scratch"
CACHE = Path("/var/cache/gpucluster-slurm/restic")
LOCKS = Path("/run/gpucluster-slurm/locks")
"""The directory of the collection's locks (`host/locks.py`): root's, since who can open a lock can hold it."""
DATADIR = Path("/var/lib/mysql")
KEPT = Path("/var/lib/gpucluster-slurm")
ETC = Path("/etc/slurm")

DUMP = "slurm_database.sql"
COMPLETED = b"-- Dump completed"
"""The last line of a dump of mariadb-dump begins with this."""

RELEASE = re.compile(r"(?:\d+:)?(\d+\.\d+)\.")
"""The release in the version of a package of Slurm."""

VERSION_TAG = "slurm="
"""A tag of each snapshot: the version of Slurm's packages on the host that was saved."""

CLUSTER_TAG = "cluster="
"""A tag of each snapshot: the name of the cluster. Several clusters can share a repository."""

NEEDED = ("clustername", "job_state", "node_state")
"""Files of StateSaveLocation that each slurmctld has after its first minute."""

KEPT_NAMES = ("good", "files", "hosts", "slurmd", "former")
"""What the collection keeps on a controller about the files in force."""

LOCKED = 900
"""Seconds to wait for another slurm-backup on this host."""

PATIENCE = 900
"""Seconds to wait for the lock of the repository, which the other hosts of the cluster hold during their backups."""

FIRST_PATIENCE = 60
"""Seconds to wait for the repository, which another host makes."""

WRONG_PASSWORD = "wrong password or no key found"
"""What restic says if no key of the repository has the password."""

CHECKED = 7 * 24 * 3600
"""Seconds between two checks of the repository."""

TAKEN = (4, 7)
"""States in the database of a job that was cancelled, or that slurmctld has missed on its node (`slurm/slurm.h`)."""

WRITTEN = 10
"""Seconds after which slurmctld has written a change of its jobs (`SAVE_MAX_WAIT` in `src/slurmctld/state_save.c`)."""

ALIVE = ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED")
"""States in which a job has steps on nodes, so that slurmctld takes it back."""

STARTED = ("RUNNING", "SUSPENDED", "STOPPED")
"""Those in which it had begun and slurmctld had not ended it."""


class BackupError(Exception):
    """What went wrong, in one line."""


# -- pure parts ------------------------------------------------------------------------------------------------------


def first_words(output: str) -> str:
    """The line of an output that names the error: that of restic's Fatal, or else the last one."""
    lines = [line.strip() for line in output.split("\n") if line.strip()]
    lines = [_message(line) for line in lines]
    fatal = next((line for line in lines if line.startswith("Fatal: ")), "")
    return (fatal.removeprefix("Fatal: ") or (lines[-1] if lines else "no reason given"))[:500]


def _message(line: str) -> str:
    """The message in a line; with --json, restic 0.17 and later write it as JSON."""
    try:
        return str(json.loads(line).get("message", line)) if line.startswith("{") else line
    except ValueError:
        return line


def is_missing(output: str) -> bool:
    """Whether restic says that there is no repository. A wrong password or a refused connection is something else."""
    return "Is there a repository at the following location" in output or "repository does not exist" in output


def is_locked(output: str) -> bool:
    """Whether restic has not started because another one works with the repository."""
    return "unable to create lock" in output or "already locked" in output


def environment(text: str) -> dict[str, str]:
    """The variables in a file of NAME=value; empty lines and comments are left out.

    A value may be in quotes, of which one pair is removed. Nothing is escaped.
    """
    found = {}
    for line in text.split("\n"):
        name, equals, value = line.strip().partition("=")
        if equals and re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            quoted = re.fullmatch(r"""(["'])(.*)\1""", value.strip())
            found[name] = quoted[2] if quoted else value.strip()
    return found


def cluster_of(snapshot: Mapping[str, Any]) -> str:
    """The cluster that a snapshot is of; empty for one that version 0.1 of this collection has made."""
    tags = [tag for tag in snapshot.get("tags") or [] if tag.startswith(CLUSTER_TAG)]
    return str(tags[0].removeprefix(CLUSTER_TAG)) if tags else ""


def newest(snapshots: Iterable[Mapping[str, Any]], part: str) -> list[dict[str, Any]]:
    """The snapshots of a part, the newest first."""
    return sorted((dict(one) for one in snapshots if part in (one.get("tags") or [])), key=_time, reverse=True)


def _time(snapshot: Mapping[str, Any]) -> float:
    return seconds_of(str(snapshot["time"]))


def seconds_of(when: str) -> float:
    """Seconds since the epoch of a time of restic, such as 2026-01-31T02:03:04.123456789+01:00."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?\d*(Z|[+-]\d\d:\d\d)", when)
    if not match:
        raise BackupError(f"restic returned the time {when[:40]!r}")
    whole = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00"))
    return whole.timestamp() + float(match[2] or 0)


def shown_time(seconds: float) -> str:
    """A time as people read it."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds))


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


def jobs_of(squeue: str) -> list[dict[str, Any]]:
    """The jobs in lines of `squeue --format=%A|%i|%T|%u|%N`."""
    rows = (line.split("|", 4) for line in squeue.split("\n"))
    return [
        {"id": int(row[0]), "name": row[1], "state": row[2], "user": row[3], "nodes": row[4]}
        for row in rows
        if len(row) == 5 and row[0].isdigit()
    ]


def compared(running: Mapping[str, Mapping[str, str]], saved: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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
    there = {str(job) for job in nodes} | {_whole(alive[job]) for job in nodes if job in alive}
    ended: dict[str, list[str]] = {}
    for saved_job in saved:
        name = _whole(saved_job["name"])
        if saved_job["state"] in STARTED and not {str(saved_job["id"]), name} & there:
            ended.setdefault(name, []).append(str(saved_job["nodes"]))
    return {
        "kept": sorted(nodes.keys() & alive.keys()),
        "lost": {str(job): sorted(nodes[job]) for job in unknown if job not in over},
        "reported": [job for job in unknown if job in over],
        "ended": {name: ",".join(hostlists) for name, hostlists in ended.items()},
        "used": sorted(nodes),
    }


def _whole(name: str) -> str:
    """The name of the job that a part belongs to."""
    return name.partition("+")[0]


def words_of_jobs(found: Mapping[str, Any]) -> list[str]:
    """What becomes of the jobs of a comparison, a line each."""
    lost = [f"{job} on {', '.join(nodes)}" for job, nodes in found["lost"].items()]
    lines = {
        "jobs that run and are taken back": listed(found["kept"]),
        "jobs that run and that slurmctld ends, since the backup does not have them as running": "; ".join(lost),
        "jobs that have ended unknown to the backup; slurmstepd waits to report it": listed(found["reported"]),
    }
    return [f"{what}: {which}" for what, which in lines.items() if which]


def words_of_records(found: Mapping[str, Any]) -> list[str]:
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


def different_counts(restored: Mapping[str, int], bounds: Sequence[Mapping[str, int]]) -> list[str]:
    """Tables of a restored database with another number of rows than the live one had before and after the dump."""
    wrong = []
    for table in sorted({*restored, *(table for bound in bounds for table in bound)}):
        allowed = [bound.get(table, 0) for bound in bounds]
        if not min(allowed) <= restored.get(table, 0) <= max(allowed):
            span = f"{min(allowed)} to {max(allowed)}" if min(allowed) != max(allowed) else str(allowed[0])
            wrong.append(f"{table} has {restored.get(table, 0)} rows, and the live one had {span}")
    return wrong


def rows_in_words(found: Mapping[str, int]) -> str:
    """Numbers of rows by table."""
    return ", ".join(f"{table} {rows}" for table, rows in sorted(found.items()))


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


# -- files -----------------------------------------------------------------------------------------------------------


def opener(mode: int) -> Callable[[str, int], int]:
    """The option `opener` of open(): a file that it makes has this mode."""
    return lambda path, flags: os.open(path, flags, mode)


# -- programs --------------------------------------------------------------------------------------------------------


def own_environment() -> dict[str, str]:
    """The environment of each command."""
    return {**{name: os.environ[name] for name in OF_A_SITE if name in os.environ}, **ENVIRONMENT}


def output_of(command: Sequence[str], seconds: float | None = None) -> str:
    """What a command prints. Raises BackupError with its words if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=own_environment())
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackupError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise BackupError(f"{command[0]}: {first_words(done.stderr or done.stdout)}")
    return done.stdout


def piped(source: Sequence[str], sink: Sequence[str], environment: Mapping[str, str]) -> str:
    """Give the output of a command that writes or reads a dump to another one; what that one prints.

    If the first one fails, or its output has no end, the second one is interrupted before it sees the end of its input.

    Raises:
        BackupError: one of them has failed, with its words.
    """
    with (
        tempfile.TemporaryFile() as words,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(source, stdout=subprocess.PIPE, stderr=words, env=environment) as reader,
        subprocess.Popen(sink, stdin=subprocess.PIPE, stdout=output, stderr=complaints, env=environment) as writer,
    ):
        assert reader.stdout
        assert writer.stdin
        tail, taken = b"", True
        try:
            while block := reader.stdout.read(1 << 20):
                writer.stdin.write(block)
                writer.stdin.flush()
                tail = (tail + block)[-4096:]
        except BrokenPipeError:
            taken = False
            reader.kill()
        if taken and (reader.wait() or COMPLETED not in tail):
            interrupt(writer)
            raise BackupError(f"{source[0]}: {first_words(_content(words) or 'the dump has no end')}")
        with suppress(BrokenPipeError):
            writer.stdin.close()
        if writer.wait() or not taken:
            raise BackupError(f"{sink[0]}: {first_words(_content(complaints))}")
        return _content(output)


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """End a process: restic removes its lock meanwhile, and saves nothing."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def sql(query: str) -> list[list[str]]:
    """The rows of a query to MariaDB, as root of this host."""
    rows = output_of(["mariadb", "--batch", "--skip-column-names", f"--execute={query}"])
    return [line.split("\t") for line in rows.split("\n") if line]


def tables(database: str) -> list[str]:
    """The tables of a database; nothing where there is none."""
    query = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}'"
    return [row[0] for row in sql(query)]


def counts(database: str) -> dict[str, int]:
    """The rows of the tables that people miss first: clusters, accounts, users, associations, jobs and steps."""
    wanted = re.compile(r"(cluster|acct|user|qos)_table|.+_(assoc|job|step)_table")
    found = {}
    for table in filter(wanted.fullmatch, tables(database)):
        ((number,),) = sql(f"SELECT COUNT(*) FROM `{database}`.`{table}`")
        found[table] = int(number)
    return found


class Repository:
    """The repository of restic that the settings name."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        given = CONF / "environment"
        self.target = str(settings["target"])
        self.cluster = str(settings["cluster"])
        self.environment = {
            **own_environment(),
            **(environment(given.read_text(encoding="utf-8")) if given.exists() else {}),
            "RESTIC_REPOSITORY": self.target,
            "RESTIC_PASSWORD_FILE": str(CONF / "password"),
            "RESTIC_CACHE_DIR": str(CACHE),
        }

    def run(self, *arguments: str, allowed: Sequence[int] = (0,)) -> str:
        """The output of restic, which waits for its lock. Raises BackupError."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                done = subprocess.run(
                    ["restic", *arguments],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                )
            except OSError as error:
                raise BackupError(f"restic: {error}") from error
            if done.returncode in allowed:
                return done.stdout
            if not is_locked(done.stderr) or time.monotonic() > deadline:
                raise BackupError(f"restic {arguments[0]} in {self.target}: {first_words(done.stderr)}")
            time.sleep(5)

    def open(self, may_make: bool, since: str, patience: float = 0) -> None:
        """Prove that the repository is there with this key. It is made if there never was one (`since` is empty)."""
        done = subprocess.run(
            ["restic", "cat", "config"], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode == 0:
            self.run("unlock")  # removes the locks of hosts and processes that are no more
            return
        if is_locked(done.stderr):
            return
        if not is_missing(done.stderr):
            raise BackupError(f"{self.target}: {first_words(done.stderr)}")
        if patience > 0 and not since:
            time.sleep(5)
            self.open(may_make, since, patience - 5)
            return
        if since or not may_make:
            had = f"; it had backups until {since}" if since else ""
            raise BackupError(f"{self.target} has no repository of restic{had}. Is its file system mounted?")
        self.run("init")

    def with_password(self, file: Path) -> Repository:
        """The same repository, opened with the password in another file."""
        other = copy(self)
        other.environment = {**self.environment, "RESTIC_PASSWORD_FILE": str(file)}
        return other

    def opens(self) -> bool:
        """Whether the password opens the repository. Raises BackupError if that is not known."""
        try:
            self.run("cat", "config")
        except BackupError as error:
            if WRONG_PASSWORD in str(error):
                return False
            raise
        return True

    def keys(self) -> dict[str, bool]:
        """The ids of the keys of the repository, and whether each is that of the password."""
        return {str(row["id"]): bool(row["current"]) for row in json.loads(self.run("key", "list", "--json"))}

    def all_snapshots(self) -> list[dict[str, Any]]:
        """The snapshots of all clusters that share the repository."""
        return [dict(one) for one in json.loads(self.run("snapshots", "--json") or "[]") or []]

    def snapshots(self) -> list[dict[str, Any]]:
        """The snapshots of this cluster, and those that do not name one."""
        return [one for one in self.all_snapshots() if cluster_of(one) in ("", self.cluster)]

    def newest(self, part: str) -> dict[str, Any]:
        """The newest snapshot of a part. Raises BackupError if there is none."""
        found = newest(self.snapshots(), part)
        if not found:
            raise BackupError(f"{self.target} has no backup of the {part}")
        return found[0]

    def save(self, part: str, settings: Mapping[str, Any], *paths: str) -> dict[str, Any]:
        """Save paths as a snapshot of a part; its row in the result."""
        return self._row(part, self.run("backup", "--json", *labels(part, settings), *paths))

    def save_stream(self, part: str, settings: Mapping[str, Any], command: Sequence[str]) -> dict[str, Any]:
        """Save the output of a command, whose end must be that of a dump. If it fails, there is no snapshot."""
        arguments = ["backup", "--json", *labels(part, settings), "--stdin", f"--stdin-filename={DUMP}"]
        return self._row(part, piped(command, ["restic", *arguments], self.environment))

    def _row(self, part: str, output: str) -> dict[str, Any]:
        lines = [line for line in output.split("\n") if '"summary"' in line]
        summary: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        return {
            "part": part,
            "snapshot": str(summary.get("snapshot_id", ""))[:8],
            "bytes": int(summary.get("total_bytes_processed", 0)),
            "added_bytes": int(summary.get("data_added", 0)),
            "seconds": round(float(summary.get("total_duration", 0)), 1),
        }


# -- status ----------------------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """A file of JSON; empty where there is none."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return {}


def open_lock() -> int:
    """Open the lock, in a directory that only root can enter. Raises OSError, BackupError."""
    LOCKS.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        LOCKS.mkdir(mode=0o700)
    directory = os.open(LOCKS, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(directory).st_uid != os.geteuid():
            raise BackupError(f"{LOCKS} does not belong to root; remove it")
        os.fchmod(directory, 0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        return os.open("backup", flags, 0o600, dir_fd=directory)
    finally:
        os.close(directory)


def holder(lock: int) -> str:
    """The process that holds the lock, with its command, by the locks of its open files (proc(5), fdinfo)."""
    held = re.compile(rf"^lock:.*:{os.fstat(lock).st_ino} ", re.MULTILINE)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for opened in (process / "fd").iterdir():
                if os.readlink(opened) == f"{LOCKS}/backup" and held.search(
                    (process / "fdinfo" / opened.name).read_text(encoding="utf-8")
                ):
                    command = (process / "cmdline").read_text(encoding="utf-8", errors="replace")
                    return f"process {process.name} ({command.replace(chr(0), ' ').strip()})"
    return "another process"


@contextmanager
def alone(seconds: float) -> Iterator[None]:
    """Wait for another slurm-backup on this host. Raises BackupError, which names it, if it has not ended in time."""
    lock, deadline = open_lock(), time.monotonic() + seconds
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise BackupError(f"{holder(lock)} has not ended in {seconds:g} s; wait for it") from None
                time.sleep(0.1)
        yield
    finally:
        os.close(lock)


def write_json(path: Path, value: Mapping[str, Any], mode: int = 0o644) -> None:
    """Replace a file of JSON in one step."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with open(new, "w", encoding="utf-8", opener=opener(mode)) as file:
        file.write(json.dumps(value, indent=1) + "\n")
    new.rename(path)


def serves(settings: Mapping[str, Any]) -> bool:
    """Whether this host has the state to save: it is the only controller, or the one that serves."""
    if not settings["state"] or len(settings["controllers"]) < 2:
        return bool(settings["state"])
    try:
        ping = output_of(["scontrol", "ping"], seconds=60)
    except BackupError:
        ping = ""
    up = re.findall(r"^Slurmctld\(\w+\) at (\S+) is UP", ping, re.MULTILINE)
    # The first that answers serves, because the primary takes control back when it starts.
    return up[:1] == [settings["host"]] if up else settings["host"] == settings["controllers"][0]


# -- backup ----------------------------------------------------------------------------------------------------------


def save_database(repository: Repository, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dump the database without stopping anything, and count its rows before and after that."""
    name = str(settings["database"])
    before = counts(name)
    if not before:
        raise BackupError(f"the database {name} has no tables of slurmdbd")
    command = ["mariadb-dump", "--single-transaction", "--quick", "--no-tablespaces", name]
    row = repository.save_stream("database", settings, command)
    return {**row, "counts": [before, counts(name)]}


def save_archive(repository: Repository, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Save the files of old records."""
    return repository.save("archive", settings, str(settings["archive"]))


def jobs_now() -> list[dict[str, Any]]:
    """The jobs that slurmctld has. Raises BackupError if it does not answer."""
    squeue = ["squeue", "--all", "--noheader", "--states=all", "--array", "--format=%A|%i|%T|%u|%N"]
    return jobs_of(output_of(squeue, seconds=120))


def listed_jobs() -> list[dict[str, Any]]:
    """The same for a backup. A state is also saved while slurmctld is down; then no job counts as running."""
    try:
        return jobs_now()
    except BackupError as error:
        print(f"slurm-backup: the backup has no list of jobs: {error}", file=sys.stderr)
        return []


def save_controller(repository: Repository, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Save the state of slurmctld, the configuration in force, and what the control host has of the cluster."""
    shutil.rmtree(STAGING, ignore_errors=True)
    STAGING.mkdir(parents=True, mode=0o700)
    try:
        # Before the state: a job that starts between the two is in the state only, and restore takes it for lost. A job
        # of the list that the state has not as running yet would be worse.
        jobs = listed_jobs()
        if jobs:
            time.sleep(WRITTEN)
        copy_state(Path(settings["state"]), STAGING / "state")
        shutil.copytree(ETC, STAGING / "etc", symlinks=True)
        (STAGING / "kept").mkdir(mode=0o700)
        for name in KEPT_NAMES:
            source = KEPT / name
            if source.is_dir():
                shutil.copytree(source, STAGING / "kept" / name, symlinks=True)
            else:
                copy_file(source, STAGING / "kept" / name)
        copy_file(Path("/etc/munge/munge.key"), STAGING / "munge.key")
        copy_file(CONF / "control.tar", STAGING / "control.tar")
        write_json(
            STAGING / "manifest.json",
            {
                "cluster": settings["cluster"],
                "host": settings["host"],
                "time": int(time.time()),
                "jobs": jobs,
                "next_job_id": job_id_of((STAGING / "state/job_state").read_bytes())[1],
                "packages": versions(),
            },
        )
        return repository.save("controller", settings, str(STAGING))
    finally:
        shutil.rmtree(STAGING, ignore_errors=True)


def versions() -> dict[str, str]:
    """The installed packages that a cluster consists of, with their versions."""
    listing = output_of(["dpkg-query", "--show", "--showformat=${Package} ${Version} ${db:Status-Status}\n"])
    rows = [row for row in map(str.split, listing.split("\n")) if len(row) == 3 and row[2] == "installed"]
    return {row[0]: row[1] for row in rows if re.match("slurm|munge|mariadb|sackd|restic", row[0])}


def labels(part: str, settings: Mapping[str, Any]) -> list[str]:
    """What restic notes of a snapshot of a part: its host, the part, the cluster and the version of Slurm."""
    version = versions().get(settings["slurm_package"], "")
    tags = [part, f"{CLUSTER_TAG}{settings['cluster']}", *([f"{VERSION_TAG}{version}"] if version else [])]
    return [f"--host={settings['host']}", *(f"--tag={tag}" for tag in tags)]


def retain(repository: Repository, settings: Mapping[str, Any], status: dict[str, Any]) -> None:
    """Forget what is older than the settings keep, and check the repository each week.

    What other clusters keep there is theirs. Without them, snapshots of version 0.1, which name no cluster, go as well.
    """
    shared = any(cluster_of(one) not in ("", repository.cluster) for one in repository.all_snapshots())
    own = [f"--tag={CLUSTER_TAG}{repository.cluster}"] if shared else []
    keep = [f"--keep-{name}={number}" for name, number in settings["keep"].items()]
    # Each part has paths of its own, and its tags change with the version of Slurm.
    repository.run("forget", "--group-by=paths", *own, "--prune", *keep)
    if time.time() - float(status.get("checked", 0)) > CHECKED:
        repository.run("check")
        status["checked"] = int(time.time())


def backup(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Save everything that this host holds. A part that fails does not prevent the others."""
    status = read_json(STATUS)
    rows: list[dict[str, Any]] = []
    errors: list[str] = []

    def attempt(part: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (BackupError, OSError) as error:
            errors.append(f"{part}: {error}")

    try:
        is_serving = serves(settings)
        parts: list[tuple[str, Callable[[Repository, Mapping[str, Any]], dict[str, Any]]]] = []
        if settings["database"]:
            parts.append(("database", save_database))
        if settings["archive"] and Path(settings["archive"]).is_dir():
            parts.append(("archive", save_archive))
        if is_serving:
            parts.append(("controller", save_controller))
        repository = Repository(settings)
        # Two hosts that made it at the same time would damage it, so one makes it, and the others wait.
        may_make = bool(settings["prunes"])
        repository.open(may_make, str(status.get("succeeded_shown", "")), 0 if may_make else FIRST_PATIENCE)
        for part, save in parts:
            attempt(part, lambda save=save: rows.append(save(repository, settings)))  # type: ignore[misc]
        if settings["prunes"] and not errors:
            attempt("retention", lambda: retain(repository, settings, status))
    except (BackupError, OSError) as error:
        errors.append(str(error))
    now = int(time.time())
    status.update(error="; ".join(errors), tried=now)
    if errors:
        status.update(failed=now)
    else:
        version = versions().get(settings["slurm_package"], "")
        status.update(succeeded=now, succeeded_shown=shown_time(now), slurm=version)
    status["parts"] = {**status.get("parts", {}), **{row["part"]: {**row, "time": now} for row in rows}}
    write_json(STATUS, status)
    if errors:
        raise BackupError("; ".join(errors))
    return {"host": settings["host"], "saved": rows, "skipped": "" if parts else "another controller serves"}


def first(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Make a backup, unless one was made with the present settings."""
    written = max(path.stat().st_mtime for path in CONF.iterdir() if path.name != "control.tar")
    return {} if float(read_json(STATUS).get("succeeded", 0)) >= int(written) else backup(settings)


def renew(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Make a backup, unless the last good one is of the release of Slurm that this host has."""
    saved, present = (
        RELEASE.match(version)
        for version in (read_json(STATUS).get("slurm", ""), versions().get(settings["slurm_package"], ""))
    )
    return {} if not present or (saved and saved[1] == present[1]) else backup(settings)


# -- another password ------------------------------------------------------------------------------------------------


@contextmanager
def new_password() -> Iterator[Path]:
    """A file with the password on standard input, which nobody else can read. Raises BackupError without one."""
    password = sys.stdin.read().strip()
    if not password:
        raise BackupError("standard input has no password")
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:  # mode 0600
        file.write(f"{password}\n")
        file.flush()
        yield Path(file.name)


def add_key(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Let the password on standard input open the repository as well, prove it, and note the key that it replaces.

    The note comes first: a run that is killed after it leaves a key too much, which the next change removes.
    """
    present = Repository(settings)
    present.open(False, "")
    with new_password() as file:
        new = present.with_password(file)
        if new.opens():
            return {"added": False}
        current = [key for key, is_current in present.keys().items() if is_current]
        write_json(REPLACED, {"keys": [*dict.fromkeys([*read_json(REPLACED).get("keys", []), *current])]}, 0o600)
        present.run("key", "add", f"--new-password-file={file}")
        if not new.opens():
            raise BackupError(f"{present.target} has a new key, and the new password does not open it")
    return {"added": True}


def prove_key(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Prove that this host has the password on standard input, and that it opens the repository."""
    with new_password() as file:
        if (CONF / "password").read_text(encoding="utf-8").strip() != file.read_text(encoding="utf-8").strip():
            raise BackupError(f"{settings['host']} has another password in {CONF / 'password'}")
    repository = Repository(settings)
    if not repository.opens():
        raise BackupError(f"{repository.target}: {WRONG_PASSWORD}")
    return {"opens": True}


def remove_keys(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the keys that others have replaced, unless another cluster has backups there, whose key it may be."""
    replaced = read_json(REPLACED).get("keys", [])
    repository = Repository(settings)
    keys = repository.keys()
    found = [key for key in replaced if key in keys and not keys[key]]
    clusters = {cluster_of(one) for one in repository.all_snapshots()} - {"", repository.cluster} if found else set()
    if not clusters:
        for key in found:
            repository.run("key", "remove", key)
    REPLACED.unlink(missing_ok=True)
    return {"removed": [] if clusters else found, "left": found if clusters else [], "clusters": sorted(clusters)}


# -- proof -----------------------------------------------------------------------------------------------------------


def load_database(repository: Repository, snapshot: str, database: str) -> None:
    """Load a dump into a new database of this name; one that a killed run has left is removed first."""
    sql(f"DROP DATABASE IF EXISTS `{database}`; CREATE DATABASE `{database}`")
    piped(["restic", "dump", snapshot, f"/{DUMP}"], ["mariadb", database], repository.environment)


def verify_database(repository: Repository, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Load the newest dump into a scratch database and compare its rows with those of the live one."""
    start, scratch = time.monotonic(), f"{settings['database']}_verify"
    snapshot = repository.newest("database")
    try:
        load_database(repository, snapshot["id"], scratch)
        restored = counts(scratch)
    finally:
        sql(f"DROP DATABASE IF EXISTS `{scratch}`")
    noted = read_json(STATUS).get("parts", {}).get("database", {})
    # The counts of the time of the backup. Without them, the rows can be fewer than now, and not none.
    live = counts(str(settings["database"]))
    same = snapshot["id"].startswith(noted.get("snapshot") or "?")
    bounds = noted["counts"] if same else [{table: min(rows, 1) for table, rows in live.items()}, {**live, **restored}]
    wrong = different_counts(restored, bounds)
    if wrong:
        raise BackupError(f"snapshot {snapshot['short_id']} of the database: {'; '.join(wrong)}")
    return _proved("database", snapshot, start, {"restored": restored, "live": live})


def restored_files(repository: Repository, snapshot: str, scratch: Path) -> Path:
    """Restore a snapshot of the controller into a scratch directory; the directory of its content."""
    if scratch.is_dir() and not scratch.is_symlink():
        shutil.rmtree(scratch, ignore_errors=True)
    else:  # rmtree would wait for the writer of a FIFO
        scratch.unlink(missing_ok=True)
    scratch.mkdir(parents=True, mode=0o700)
    repository.run("restore", snapshot, f"--target={scratch}")
    return scratch / str(STAGING).lstrip("/")


def verify_controller(repository: Repository, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Restore the newest backup of the controller into a scratch directory, and read what a start would need."""
    start = time.monotonic()
    snapshot = repository.newest("controller")
    try:
        content = restored_files(repository, snapshot["id"], SCRATCH)
        manifest = check_controller(content, str(settings["cluster"]))
        found = {"jobs": len(manifest["jobs"]), "next_job_id": job_id_of((content / "state/job_state").read_bytes())[1]}
    finally:
        shutil.rmtree(SCRATCH, ignore_errors=True)
    return _proved("controller", snapshot, start, found)


def check_controller(content: Path, cluster: str) -> dict[str, Any]:
    """The manifest of a restored backup of the controller. Raises BackupError if something is missing."""
    missing = [
        name for name in ["manifest.json", *(f"state/{name}" for name in NEEDED)] if not (content / name).is_file()
    ]
    if missing:
        raise BackupError(f"the backup of the controller has no {', '.join(missing)}")
    manifest = read_json(content / "manifest.json")
    named = (content / "state/clustername").read_text(encoding="utf-8").split("\n")[0].strip()
    if cluster not in (manifest.get("cluster"), named):
        raise BackupError(f"the backup is one of the cluster {manifest.get('cluster')}, and this cluster is {cluster}")
    job_id_of((content / "state/job_state").read_bytes())
    return manifest


def _proved(part: str, snapshot: Mapping[str, Any], start: float, found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "part": part,
        "snapshot": snapshot["short_id"],
        "time": shown_time(_time(snapshot)),
        "seconds": round(time.monotonic() - start, 1),
        **found,
    }


def verify(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Prove the newest backup of what this host holds."""
    repository = Repository(settings)
    repository.open(False, "")
    rows = [verify_database(repository, settings)] if settings["database"] else []
    if serves(settings):
        rows.append(verify_controller(repository, settings))
    return {"host": settings["host"], "verified": rows}


# -- restore ---------------------------------------------------------------------------------------------------------


def has_database(name: str) -> bool:
    """Whether this host has tables of slurmdbd, also if MariaDB does not run."""
    try:
        return bool(tables(name))
    except BackupError:
        return any((DATADIR / name).glob("*.ibd"))


def has_state(path: str) -> bool:
    """Whether StateSaveLocation has a complete state."""
    return (Path(path) / NEEDED[0]).exists()


def look(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What this host should hold, whether it is there, and the newest backups."""
    repository = Repository(settings)
    repository.open(False, "")
    snapshots = repository.snapshots()
    found = {part: newest(snapshots, part)[:1] for part in ("database", "archive", "controller")}
    return {
        "unfinished": UNFINISHED.exists(),
        "present": {
            **({"database": has_database(settings["database"])} if settings["database"] else {}),
            **({"controller": has_state(settings["state"])} if settings["state"] else {}),
        },
        "backups": {
            part: {
                "snapshot": rows[0]["short_id"],
                "time": shown_time(_time(rows[0])),
                "seconds": int(_time(rows[0])),
                "host": rows[0]["hostname"],
                "slurm": version_of(rows[0], repository, settings),
            }
            for part, rows in found.items()
            if rows
        },
    }


def version_of(snapshot: Mapping[str, Any], repository: Repository, settings: Mapping[str, Any]) -> str:
    """The version of Slurm that a snapshot is of; empty if it is not known.

    Snapshots of version 0.1 of this collection have no tag with it. Then that of the newest backup of the controller
    serves.
    """
    tags = [tag for tag in snapshot.get("tags") or [] if tag.startswith(VERSION_TAG)]
    if tags:
        return str(tags[0].removeprefix(VERSION_TAG))
    try:
        return str(manifest_of(repository)["packages"].get(settings["slurm_package"], ""))
    except BackupError:
        return ""


def manifest_of(repository: Repository) -> dict[str, Any]:
    """The manifest of the newest backup of the controller."""
    snapshot = repository.newest("controller")
    return dict(json.loads(repository.run("dump", snapshot["id"], f"{STAGING}/manifest.json")))


def control(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The archive of the control host's files, in base64."""
    repository = Repository(settings)
    snapshot = repository.newest("controller")
    command = ["restic", "dump", snapshot["id"], f"{STAGING}/control.tar"]
    done = subprocess.run(command, env=repository.environment, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        raise BackupError(f"restic dump {snapshot['short_id']}: {first_words(done.stderr.decode(errors='replace'))}")
    return {"archive": base64.b64encode(done.stdout).decode()}


def jobs(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Compare the jobs on nodes, from standard input as {NODE: {ID: WHAT IS LEFT}}, with those of the newest backup."""
    manifest = manifest_of(Repository(settings))
    found = compared(json.load(sys.stdin), manifest["jobs"])
    return {
        "time": shown_time(manifest["time"]),
        "age": max(0, int(time.time() - manifest["time"])),
        "next_job_id": manifest["next_job_id"],
        **found,
        "words": words_of_jobs(found),
    }


def since(settings: Mapping[str, Any], seconds: int, next_job_id: int) -> dict[str, Any]:
    """What the database has of jobs after a backup: those with higher ids, and those that ended since.

    The records of those that ended are kept until the restore ends (`return_records`).
    """
    name, cluster = str(settings["database"]), str(settings["cluster"])
    table = f"`{name}`.`{cluster}_job_table`"
    if f"{cluster}_job_table" not in tables(name):
        return {"submitted": [], "ended": [], "words": []}

    def ids(where: str) -> list[int]:
        return [int(row[0]) for row in sql(f"SELECT DISTINCT id_job FROM {table} WHERE {where} ORDER BY id_job")]

    over = f"id_job < {next_job_id} AND time_end >= {seconds - WRITTEN}"
    found = {
        "submitted": ids(f"id_job >= {next_job_id} AND time_submit >= {seconds - WRITTEN}"),
        "ended": ids(over),
    }
    kept, steps = f"`{name}_ended`", f"`{name}`.`{cluster}_step_table`"
    sql(
        f"CREATE DATABASE IF NOT EXISTS {kept};"
        f"CREATE TABLE IF NOT EXISTS {kept}.job AS SELECT * FROM {table} WHERE {over};"
        f"CREATE TABLE IF NOT EXISTS {kept}.step AS SELECT step.* FROM {steps} step JOIN {kept}.job USING (job_db_inx)"
    )
    return {**found, "words": words_of_records(found)}


def return_records(settings: Mapping[str, Any]) -> None:
    """Give jobs that ended before the loss their records of then, in place of later ones (`end_jobs`)."""
    name, prefix = str(settings["database"]), f"`{settings['database']}`.`{settings['cluster']}"
    kept, jobs_table = f"`{name}_ended`", f"{prefix}_job_table`"
    if not tables(f"{name}_ended"):
        return
    taken = f"SELECT job_db_inx FROM {jobs_table} WHERE state IN {TAKEN}"
    for table, rows in ((f"{prefix}_step_table`", "step"), (jobs_table, "job")):
        sql(f"REPLACE INTO {table} SELECT * FROM {kept}.{rows} WHERE job_db_inx IN ({taken})")
    sql(f"DROP DATABASE {kept}")


def restore_database(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Put the newest dump back: into a scratch database first, then in one step under its name."""
    start, name = time.monotonic(), str(settings["database"])
    scratch = f"{name}_restoring"
    if tables(name):
        raise BackupError(
            f"{settings['host']} has the database {name} ({rows_in_words(counts(name))}), which is not overwritten"
        )
    repository = Repository(settings)
    snapshot = repository.newest("database")
    load_database(repository, snapshot["id"], scratch)
    restored = counts(scratch)
    moves = [f"`{scratch}`.`{table}` TO `{name}`.`{table}`" for table in tables(scratch)]
    sql(f"CREATE DATABASE IF NOT EXISTS `{name}`; RENAME TABLE {', '.join(moves)}; DROP DATABASE `{scratch}`")
    row = _proved("database", snapshot, start, {"restored": restored})
    row["words"] = f"the database is back as of {row['time']}, after {row['seconds']} s: {rows_in_words(restored)}"
    if newest(repository.snapshots(), "archive"):
        archive = repository.newest("archive")
        repository.run("restore", archive["id"], "--target=/", f"--include={settings['archive']}")
    return row


def restore_state(settings: Mapping[str, Any], next_job_id: int, ended: Sequence[str]) -> dict[str, Any]:
    """Put the newest state back, next to its place first. Its file clustername, which comes last, makes it complete.

    Args:
        settings: those of the host.
        next_job_id: the next job id; 0 for that of the state.
        ended: the jobs of the state that have ended.
    """
    start, place = time.monotonic(), Path(settings["state"])
    if has_state(settings["state"]):
        raise BackupError(f"{settings['host']} has a state in {place}, which is not overwritten")
    repository = Repository(settings)
    snapshot = repository.newest("controller")
    scratch = place / RESTORING
    try:
        content = restored_files(repository, snapshot["id"], scratch)
        manifest = check_controller(content, str(settings["cluster"]))
        state = content / "state/job_state"
        saved = state.read_bytes()
        patched = with_job_id(saved, next_job_id or job_id_of(saved)[1])
        with open(state, "wb", opener=opener(0o600)) as file:
            file.write(patched)
        for source, directory in ((content / "kept", KEPT), (content / "etc", ETC)):
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            for name in os.listdir(source):
                if not (directory / name).exists():
                    shutil.move(source / name, directory / name)
        same_owner(content / "state", place)
        write_json(ENDED, {"jobs": [*ended]})
        put_in_place(content / "state", place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    found = {"jobs": len(manifest["jobs"]), "next_job_id": job_id_of(patched)[1], "packages": manifest["packages"]}
    row = _proved("controller", snapshot, start, found)
    what = f"{row['jobs']} jobs, and the next job has the id {row['next_job_id']}"
    row["words"] = f"the state of slurmctld is back as of {row['time']}, after {row['seconds']} s: {what}"
    return row


def end_jobs(_settings: Mapping[str, Any]) -> dict[str, Any]:
    """Let slurmctld end the jobs that have ended, before it misses their batch scripts and requeues them.

    It does that 20 seconds after its start at the earliest (`_purge_missing_jobs` in `src/slurmctld/job_mgr.c`), to
    begin two minutes later. A job that it has requeued after a run was killed is ended as well.
    """
    names = [str(name) for name in read_json(ENDED).get("jobs", [])]
    for begin in range(0, len(names), 500):
        with suppress(BackupError):  # it is known below what has become of them
            output_of(["scancel", "--quiet", *names[begin : begin + 500]], seconds=120)
    left = {_whole(job["name"]) for job in jobs_now() if job["state"] in (*STARTED, "PENDING")} if names else set()
    if left.intersection(names):
        raise BackupError(f"slurmctld has not ended these jobs: {listed(sorted(left.intersection(names)))}")
    ENDED.unlink(missing_ok=True)
    return {"ended": names}


WORK_OF: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "run": backup,
    "first": first,
    "renew": renew,
    "verify": verify,
    "look": look,
    "control": control,
    "jobs": jobs,
    "add-key": add_key,
    "prove-key": prove_key,
    "end-jobs": end_jobs,
    "remove-keys": remove_keys,
}
"""The commands that take no arguments."""


# -- command line ----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="slurm-backup", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="save what this host holds")
    commands.add_parser("first", help="save it, unless that was done with the present settings")
    commands.add_parser("renew", help="save it, unless that was done with the present release of Slurm")
    commands.add_parser("verify", help="prove the newest backup of what this host holds")
    commands.add_parser("look", help="show what is there, and the newest backups")
    commands.add_parser("control", help="print the files of the control host")
    commands.add_parser("jobs", help="compare jobs on nodes with the newest backup")
    after = commands.add_parser("since", help="show what the database has of jobs after a backup")
    after.add_argument("seconds", type=int)
    after.add_argument("next_job_id", type=int)
    put_back = commands.add_parser("restore", help="put back the database or the state of slurmctld")
    put_back.add_argument("part", choices=["database", "controller"])
    put_back.add_argument("--next-job-id", type=int, default=0)
    put_back.add_argument("--ended", nargs="*", default=[], help="the jobs of the state that have ended")
    commands.add_parser("end-jobs", help="end the jobs of a state that was put back which have ended")
    commands.add_parser("add-key", help="let the password on standard input open the repository as well")
    commands.add_parser("prove-key", help="prove that this host works with the password on standard input")
    commands.add_parser("remove-keys", help="remove the keys of the repository that another one has replaced")
    commands.add_parser("finish", help="note that the daemons run with what was put back")
    given = parser.parse_args(arguments)
    os.umask(0o022)  # that of a person or of a playbook may be any, and others read what is put back
    try:
        settings = read_json(CONF / "settings.json")
        if not settings:
            raise BackupError(f"{CONF / 'settings.json'} is missing; site.yml writes it")
        with alone(LOCKED):
            # restic would make the directory above it as well, with mode 0700.
            CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
            if given.command == "since":
                result = since(settings, given.seconds, given.next_job_id)
            elif given.command == "restore":
                UNFINISHED.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                with open(UNFINISHED, "w", encoding="utf-8", opener=opener(0o600)):
                    pass  # an empty file
                if given.part == "database":
                    result = restore_database(settings)
                else:
                    result = restore_state(settings, given.next_job_id, given.ended)
            elif given.command == "finish":
                if settings.get("database"):
                    return_records(settings)
                UNFINISHED.unlink(missing_ok=True)
                result = {}
            else:
                result = WORK_OF[given.command](settings)
    except (BackupError, OSError, ValueError) as error:
        print(f"slurm-backup: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
