# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Proves a backup, and puts back what is lost."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ...client.environment import own_environment
from ...host import replacing
from . import backup_host
from .backup_host import BackupError, Result, Settings, first_words, output_of, read_json, shown_time, write_json
from .restic_repository import VERSION_TAG, Repository, Snapshot, newest, snapshot_time
from .save_parts import WRITTEN, serves
from .saved_database import (
    counts,
    different_counts,
    has_database,
    is_of_others,
    load_database,
    rows_in_words,
    sql,
    tables,
)
from .saved_state import (
    NEEDED,
    RESTORING,
    STARTED,
    compared,
    has_state,
    job_id_of,
    jobs_now,
    listed,
    put_in_place,
    same_owner,
    whole_job,
    with_job_id,
    words_of_jobs,
    words_of_records,
)


def verify_database(repository: Repository, settings: Settings) -> Result:
    """Load the newest dump into a scratch database and compare its rows with those of the live one."""
    start, scratch = time.monotonic(), f"{settings['database']}_verify"
    snapshot = repository.newest("database")
    try:
        load_database(repository, snapshot["id"], scratch)
        restored = counts(scratch)
    finally:
        sql(f"DROP DATABASE IF EXISTS `{scratch}`")
    backup = read_json(backup_host.STATUS).get("parts", {}).get("database", {})
    # The counts of the time of the backup. Without them, the rows can be fewer than now, and not none.
    live = counts(str(settings["database"]))
    same = snapshot["id"].startswith(backup.get("snapshot") or "?")
    bounds = backup["counts"] if same else [{table: min(rows, 1) for table, rows in live.items()}, {**live, **restored}]
    wrong = different_counts(restored, bounds)
    if wrong:
        raise BackupError(f"snapshot {snapshot['short_id']} of the database: {'; '.join(wrong)}")
    return proved("database", snapshot, start, {"restored": restored, "live": live})


def restored_files(repository: Repository, snapshot: str, scratch: Path) -> Path:
    """Restore a snapshot of the controller into a scratch directory; the directory of its content."""
    if scratch.is_dir() and not scratch.is_symlink():
        shutil.rmtree(scratch, ignore_errors=True)
    else:  # rmtree would wait for the writer of a FIFO
        scratch.unlink(missing_ok=True)
    scratch.mkdir(parents=True, mode=0o700)
    repository.run("restore", snapshot, f"--target={scratch}")
    return scratch / str(backup_host.STAGING).lstrip("/")


def verify_controller(repository: Repository, settings: Settings) -> Result:
    """Restore the newest backup of the controller into a scratch directory, and read what a start would need."""
    start = time.monotonic()
    snapshot = repository.newest("controller")
    try:
        content = restored_files(repository, snapshot["id"], backup_host.SCRATCH)
        manifest = check_controller(content, str(settings["cluster"]))
        found = {"jobs": len(manifest["jobs"]), "next_job_id": job_id_of((content / "state/job_state").read_bytes())[1]}
    finally:
        shutil.rmtree(backup_host.SCRATCH, ignore_errors=True)
    return proved("controller", snapshot, start, found)


def check_controller(content: Path, cluster: str) -> Result:
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


def proved(part: str, snapshot: Snapshot, start: float, found: Result) -> Result:
    return {
        "part": part,
        "snapshot": snapshot["short_id"],
        "time": shown_time(snapshot_time(snapshot)),
        "seconds": round(time.monotonic() - start, 1),
        **found,
    }


def verify(settings: Settings) -> Result:
    """Prove the newest backup of what this host holds."""
    repository = Repository(settings)
    repository.open(False, "")
    has_scratch = settings["database"] and not is_of_others()
    rows = [verify_database(repository, settings)] if has_scratch else []
    if serves(settings):
        rows.append(verify_controller(repository, settings))
    return {"host": settings["host"], "verified": rows}


# -- restore ---------------------------------------------------------------------------------------------------------


TAKEN = (4, 7)
"""States in the database of a job that was cancelled, or that slurmctld has missed on its node (`slurm/slurm.h`)."""


def look(settings: Settings) -> Result:
    """What this host should hold, whether it is there, and the newest backups."""
    repository = Repository(settings)
    repository.open(False, "")
    snapshots = repository.snapshots()
    found = {part: newest(snapshots, part)[:1] for part in ("database", "archive", "controller")}
    return {
        "unfinished": backup_host.UNFINISHED.exists(),
        "present": {
            **({"database": is_of_others() or has_database(settings["database"])} if settings["database"] else {}),
            **({"controller": has_state(settings["state"])} if settings["state"] else {}),
        },
        "backups": {
            part: {
                "snapshot": rows[0]["short_id"],
                "time": shown_time(snapshot_time(rows[0])),
                "seconds": int(snapshot_time(rows[0])),
                "host": rows[0]["hostname"],
                "slurm": version_of(rows[0], repository, settings),
            }
            for part, rows in found.items()
            if rows
        },
    }


def version_of(snapshot: Snapshot, repository: Repository, settings: Settings) -> str:
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


def manifest_of(repository: Repository) -> Result:
    """The manifest of the newest backup of the controller."""
    snapshot = repository.newest("controller")
    return dict(json.loads(repository.run("dump", snapshot["id"], f"{backup_host.STAGING}/manifest.json")))


def control(settings: Settings) -> Result:
    """The archive of the control host's files, in base64."""
    repository = Repository(settings)
    snapshot = repository.newest("controller")
    command = ["restic", "dump", snapshot["id"], f"{backup_host.STAGING}/control.tar"]
    environment = {**own_environment(), **repository.environment}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        raise BackupError(f"restic dump {snapshot['short_id']}: {first_words(done.stderr.decode(errors='replace'))}")
    return {"archive": base64.b64encode(done.stdout).decode()}


def jobs(settings: Settings) -> Result:
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


def since(settings: Settings, seconds: int, next_job_id: int) -> Result:
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
    found = {"submitted": ids(f"id_job >= {next_job_id} AND time_submit >= {seconds - WRITTEN}"), "ended": ids(over)}
    if is_of_others():
        return {**found, "words": words_of_records(found)}
    kept, steps = f"`{name}_ended`", f"`{name}`.`{cluster}_step_table`"
    sql(
        f"CREATE DATABASE IF NOT EXISTS {kept};"
        f"CREATE TABLE IF NOT EXISTS {kept}.job AS SELECT * FROM {table} WHERE {over};"
        f"CREATE TABLE IF NOT EXISTS {kept}.step AS SELECT step.* FROM {steps} step JOIN {kept}.job USING (job_db_inx)"
    )
    return {**found, "words": words_of_records(found)}


def return_records(settings: Settings) -> None:
    """Give jobs that ended before the loss their records of then, in place of later ones (`end_jobs`)."""
    name, prefix = str(settings["database"]), f"`{settings['database']}`.`{settings['cluster']}"
    kept, jobs_table = f"`{name}_ended`", f"{prefix}_job_table`"
    if is_of_others() or not tables(f"{name}_ended"):
        return
    taken = f"SELECT job_db_inx FROM {jobs_table} WHERE state IN {TAKEN}"
    for table, rows in ((f"{prefix}_step_table`", "step"), (jobs_table, "job")):
        sql(f"REPLACE INTO {table} SELECT * FROM {kept}.{rows} WHERE job_db_inx IN ({taken})")
    sql(f"DROP DATABASE {kept}")


def restore_database(settings: Settings) -> Result:
    """Put the newest dump back: into a scratch database first, then in one step under its name."""
    start, name = time.monotonic(), str(settings["database"])
    scratch = f"{name}_restoring"
    if is_of_others():
        raise BackupError("others run the database server, and restore its databases")
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
    row = proved("database", snapshot, start, {"restored": restored})
    row["words"] = f"the database is back as of {row['time']}, after {row['seconds']} s: {rows_in_words(restored)}"
    if newest(repository.snapshots(), "archive"):
        archive = repository.newest("archive")
        repository.run("restore", archive["id"], "--target=/", f"--include={settings['archive']}")
    return row


def restore_state(settings: Settings, next_job_id: int, ended: Sequence[str]) -> Result:
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
        saved, found = replacing.read_with_status(str(state))
        patched = with_job_id(saved, next_job_id or job_id_of(saved)[1])
        replacing.replace(str(state), patched, found.st_mode & 0o7777, (found.st_uid, found.st_gid))
        for source, directory in ((content / "kept", backup_host.KEPT), (content / "etc", backup_host.ETC)):
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            for name in os.listdir(source):
                if not (directory / name).exists():
                    shutil.move(source / name, directory / name)
        same_owner(content / "state", place)
        write_json(backup_host.ENDED, {"jobs": [*ended]})
        put_in_place(content / "state", place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    number = job_id_of(patched)[1]
    details = {"jobs": len(manifest["jobs"]), "next_job_id": number, "packages": manifest["packages"]}
    row = proved("controller", snapshot, start, details)
    what = f"{row['jobs']} jobs, and the next job has the id {row['next_job_id']}"
    row["words"] = f"the state of slurmctld is back as of {row['time']}, after {row['seconds']} s: {what}"
    return row


def end_jobs(_settings: Settings) -> Result:
    """Let slurmctld end the jobs that have ended, before it misses their batch scripts and requeues them.

    It does that 20 seconds after its start at the earliest (`_purge_missing_jobs` in `src/slurmctld/job_mgr.c`), to
    begin two minutes later. A job that it has requeued after a run was killed is ended as well.
    """
    names = [str(name) for name in read_json(backup_host.ENDED).get("jobs", [])]
    for begin in range(0, len(names), 500):
        with suppress(BackupError):  # it is known below what has become of them
            output_of(["scancel", "--quiet", *names[begin : begin + 500]], seconds=120)
    left = {whole_job(job["name"]) for job in jobs_now() if job["state"] in (*STARTED, "PENDING")} if names else set()
    if left.intersection(names):
        raise BackupError(f"slurmctld has not ended these jobs: {listed(sorted(left.intersection(names)))}")
    backup_host.ENDED.unlink(missing_ok=True)
    return {"ended": names}
