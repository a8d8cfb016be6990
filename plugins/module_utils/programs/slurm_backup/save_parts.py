# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a backup of what this host holds."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ...client.scontrol import controllers
from . import backup_host
from .backup_host import BackupError, Result, Settings, output_of, read_json, shown_time, write_json
from .restic_repository import CLUSTER_TAG, Repository, cluster_of, versions
from .saved_database import client, counts
from .saved_state import copy_file, copy_state, job_id_of, listed_jobs

RELEASE = re.compile(r"(?:\d+:)?(\d+\.\d+)\.")
"""The release in the version of a package of Slurm."""

KEPT_NAMES = ("good", "files", "hosts", "slurmd", "former")
"""What the collection keeps on a controller about the files in force."""

FIRST_WAIT = 60
"""Seconds to wait for the repository, which another host makes."""

CHECKED = 7 * 24 * 3600
"""Seconds between two checks of the repository."""

WRITTEN = 10
"""Seconds after which slurmctld has written a change of its jobs (`SAVE_MAX_WAIT` in `src/slurmctld/state_save.c`)."""


def serves(settings: Settings) -> bool:
    """Whether this host has the state to save: it is the only controller, or the one that serves."""
    if not settings["state"] or len(settings["controllers"]) < 2:
        return bool(settings["state"])
    try:
        ping = output_of(["scontrol", "ping"], seconds=60)
    except BackupError:
        ping = ""
    up = [name for name, is_up in controllers(ping).items() if is_up]
    # The first that answers serves, because the primary takes control back when it starts.
    return up[:1] == [settings["host"]] if up else settings["host"] == settings["controllers"][0]


def save_database(repository: Repository, settings: Settings) -> Result:
    """Dump the database without stopping anything, and count its rows before and after that."""
    name = str(settings["database"])
    before = counts(name)
    if not before:
        raise BackupError(f"the database {name} has no tables of slurmdbd")
    command = [*client("mariadb-dump"), "--single-transaction", "--quick", "--no-tablespaces", name]
    row = repository.save_stream("database", settings, command)
    return {**row, "counts": [before, counts(name)]}


def save_archive(repository: Repository, settings: Settings) -> Result:
    """Save the files of old records."""
    return repository.save("archive", settings, str(settings["archive"]))


def save_controller(repository: Repository, settings: Settings) -> Result:
    """Save the state of slurmctld, the configuration in force, and what the control host has of the cluster."""
    shutil.rmtree(backup_host.STAGING, ignore_errors=True)
    backup_host.STAGING.mkdir(parents=True, mode=0o700)
    try:
        # Before the state: a job that starts between the two is in the state only, and restore takes it for lost. A job
        # of the list that the state has not as running yet would be worse.
        jobs = listed_jobs()
        if jobs:
            time.sleep(WRITTEN)
        copy_state(Path(settings["state"]), backup_host.STAGING / "state")
        shutil.copytree(backup_host.ETC, backup_host.STAGING / "etc", symlinks=True)
        (backup_host.STAGING / "kept").mkdir(mode=0o700)
        for name in KEPT_NAMES:
            source = backup_host.KEPT / name
            if source.is_dir():
                shutil.copytree(source, backup_host.STAGING / "kept" / name, symlinks=True)
            else:
                copy_file(source, backup_host.STAGING / "kept" / name)
        copy_file(Path("/etc/munge/munge.key"), backup_host.STAGING / "munge.key")
        copy_file(backup_host.CONF / "control.tar", backup_host.STAGING / "control.tar")
        write_json(
            backup_host.STAGING / "manifest.json",
            {
                "cluster": settings["cluster"],
                "host": settings["host"],
                "time": int(time.time()),
                "jobs": jobs,
                "next_job_id": job_id_of((backup_host.STAGING / "state/job_state").read_bytes())[1],
                "packages": versions(),
            },
        )
        return repository.save("controller", settings, str(backup_host.STAGING))
    finally:
        shutil.rmtree(backup_host.STAGING, ignore_errors=True)


def retain(repository: Repository, settings: Settings, status: Result) -> None:
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


def backup(settings: Settings) -> Result:
    """Save everything that this host holds. A part that fails does not prevent the others."""
    status = read_json(backup_host.STATUS)
    rows: list[Result] = []
    errors: list[str] = []

    def attempt(part: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (BackupError, OSError) as error:
            errors.append(f"{part}: {error}")

    try:
        is_serving = serves(settings)
        parts: list[tuple[str, Callable[[Repository, Settings], Result]]] = []
        if settings["database"]:
            parts.append(("database", save_database))
        if settings["archive"] and Path(settings["archive"]).is_dir():
            parts.append(("archive", save_archive))
        if is_serving:
            parts.append(("controller", save_controller))
        repository = Repository(settings)
        # Two hosts that made it at the same time would damage it, so one makes it, and the others wait.
        may_make = bool(settings["prunes"])
        repository.open(may_make, str(status.get("succeeded_shown", "")), 0 if may_make else FIRST_WAIT)
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
    write_json(backup_host.STATUS, status)
    if errors:
        raise BackupError("; ".join(errors))
    return {"host": settings["host"], "saved": rows, "skipped": "" if parts else "another controller serves"}


def first(settings: Settings) -> Result:
    """Make a backup, unless one was made with the present settings."""
    written = max(path.stat().st_mtime for path in backup_host.CONF.iterdir() if path.name != "control.tar")
    return {} if float(read_json(backup_host.STATUS).get("succeeded", 0)) >= int(written) else backup(settings)


def renew(settings: Settings) -> Result:
    """Make a backup, unless the last good one is of the release of Slurm that this host has."""
    saved, present = (
        RELEASE.match(version)
        for version in (read_json(backup_host.STATUS).get("slurm", ""), versions().get(settings["slurm_package"], ""))
    )
    return {} if not present or (saved and saved[1] == present[1]) else backup(settings)
