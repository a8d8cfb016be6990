# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""The repository of restic that has the backups, and its password."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

from ...client.commands import Answer, run
from ...client.environment import own_environment
from . import backup_host
from .backup_host import BackupError, Result, Settings, first_words, output_of, read_json, write_json

DUMP = "slurm_database.sql"

COMPLETED = b"-- Dump completed"
"""The last line of a dump of mariadb-dump begins with this."""

VERSION_TAG = "slurm="
"""A tag of each snapshot: the version of Slurm's packages on the host that was saved."""

CLUSTER_TAG = "cluster="
"""A tag of each snapshot: the name of the cluster. Several clusters can share a repository."""

LONGEST_WAIT = 900
"""Seconds to wait for the lock of the repository, which the other hosts of the cluster hold during their backups."""

WRONG_PASSWORD = "wrong password or no key found"
"""What restic says if no key of the repository has the password."""


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


Snapshot = Mapping[str, Any]
"""A snapshot as restic lists it."""


def cluster_of(snapshot: Snapshot) -> str:
    """The cluster that a snapshot is of; empty for one that version 0.1 of this collection has made."""
    tags = [tag for tag in snapshot.get("tags") or [] if tag.startswith(CLUSTER_TAG)]
    return str(tags[0].removeprefix(CLUSTER_TAG)) if tags else ""


def newest(snapshots: Iterable[Snapshot], part: str) -> list[Snapshot]:
    """The snapshots of a part, the newest first."""
    return sorted((dict(one) for one in snapshots if part in (one.get("tags") or [])), key=snapshot_time, reverse=True)


def snapshot_time(snapshot: Snapshot) -> float:
    """When a snapshot was made, in seconds since the epoch."""
    return seconds_of(str(snapshot["time"]))


def seconds_of(when: str) -> float:
    """Seconds since the epoch of a time of restic, such as 2026-01-31T02:03:04.123456789+01:00."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?\d*(Z|[+-]\d\d:\d\d)", when)
    if not match:
        raise BackupError(f"restic returned the time {when[:40]!r}")
    whole = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00"))
    return whole.timestamp() + float(match[2] or 0)


def piped(source: Sequence[str], sink: Sequence[str], environment: Mapping[str, str]) -> str:
    """Give the output of a command that writes or reads a dump to another one; what that one prints.

    If the first one fails, or its output has no end, the second one is interrupted before it sees the end of its input.

    Raises:
        BackupError: one of them has failed, with its words.
    """
    variables = {**own_environment(), **environment}
    with (
        tempfile.TemporaryFile() as words,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(source, stdout=subprocess.PIPE, stderr=words, env=variables) as reader,
        subprocess.Popen(sink, stdin=subprocess.PIPE, stdout=output, stderr=complaints, env=variables) as writer,
    ):
        dump, saved = cast(IO[bytes], reader.stdout), cast(IO[bytes], writer.stdin)
        tail, taken = b"", True
        try:
            while block := dump.read(1 << 20):
                saved.write(block)
                saved.flush()
                tail = (tail + block)[-4096:]
        except BrokenPipeError:
            taken = False
            reader.kill()
        if taken and (reader.wait() or COMPLETED not in tail):
            interrupt(writer)
            raise BackupError(f"{source[0]}: {first_words(_content(words) or 'the dump has no end')}")
        with suppress(BrokenPipeError):
            saved.close()
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


class Repository:
    """The repository of restic that the settings name."""

    def __init__(self, settings: Settings) -> None:
        given = backup_host.CONF / "environment"
        self.target = str(settings["target"])
        self.cluster = str(settings["cluster"])
        self.environment = {
            **(environment(given.read_text(encoding="utf-8")) if given.exists() else {}),
            "RESTIC_REPOSITORY": self.target,
            "RESTIC_PASSWORD_FILE": str(backup_host.CONF / "password"),
            "RESTIC_CACHE_DIR": str(backup_host.CACHE),
        }

    def _answer(self, *arguments: str) -> Answer:
        return run(["restic", *arguments], seconds=None, environment=self.environment)

    def run(self, *arguments: str, allowed: Sequence[int] = (0,)) -> str:
        """The output of restic, which waits for its lock. Raises BackupError."""
        deadline = time.monotonic() + LONGEST_WAIT
        while True:
            answer = self._answer(*arguments)
            if answer.status in allowed:
                return answer.output
            if not is_locked(answer.errors) or time.monotonic() > deadline:
                raise BackupError(f"restic {arguments[0]} in {self.target}: {first_words(answer.errors)}")
            time.sleep(5)

    def open(self, may_make: bool, since: str, wait: float = 0) -> None:
        """Prove that the repository is there with this key. It is made if there never was one (`since` is empty)."""
        answer = self._answer("cat", "config")
        if answer.status == 0:
            self.run("unlock")  # removes the locks of hosts and processes that are no more
            return
        if is_locked(answer.errors):
            return
        if not is_missing(answer.errors):
            raise BackupError(f"{self.target}: {first_words(answer.errors)}")
        if wait > 0 and not since:
            time.sleep(5)
            self.open(may_make, since, wait - 5)
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

    def all_snapshots(self) -> list[Snapshot]:
        """The snapshots of all clusters that share the repository."""
        return [dict(one) for one in json.loads(self.run("snapshots", "--json") or "[]") or []]

    def snapshots(self) -> list[Snapshot]:
        """The snapshots of this cluster, and those that do not name one."""
        return [one for one in self.all_snapshots() if cluster_of(one) in ("", self.cluster)]

    def newest(self, part: str) -> Snapshot:
        """The newest snapshot of a part. Raises BackupError if there is none."""
        found = newest(self.snapshots(), part)
        if not found:
            raise BackupError(f"{self.target} has no backup of the {part}")
        return found[0]

    def save(self, part: str, settings: Settings, *paths: str) -> Result:
        """Save paths as a snapshot of a part; its row in the result."""
        return self._row(part, self.run("backup", "--json", *labels(part, settings), *paths))

    def save_stream(self, part: str, settings: Settings, command: Sequence[str]) -> Result:
        """Save the output of a command, whose end must be that of a dump. If it fails, there is no snapshot."""
        arguments = ["backup", "--json", *labels(part, settings), "--stdin", f"--stdin-filename={DUMP}"]
        return self._row(part, piped(command, ["restic", *arguments], self.environment))

    def _row(self, part: str, output: str) -> Result:
        lines = [line for line in output.split("\n") if '"summary"' in line]
        summary: Result = json.loads(lines[-1]) if lines else {}
        return {
            "part": part,
            "snapshot": str(summary.get("snapshot_id", ""))[:8],
            "bytes": int(summary.get("total_bytes_processed", 0)),
            "added_bytes": int(summary.get("data_added", 0)),
            "seconds": round(float(summary.get("total_duration", 0)), 1),
        }


def versions() -> dict[str, str]:
    """The installed packages that a cluster consists of, with their versions."""
    listing = output_of(["dpkg-query", "--show", "--showformat=${Package} ${Version} ${db:Status-Status}\n"])
    rows = [row for row in map(str.split, listing.split("\n")) if len(row) == 3 and row[2] == "installed"]
    return {row[0]: row[1] for row in rows if re.match("slurm|munge|mariadb|sackd|restic", row[0])}


def labels(part: str, settings: Settings) -> list[str]:
    """What restic records of a snapshot of a part: its host, the part, the cluster and the version of Slurm."""
    version = versions().get(settings["slurm_package"], "")
    tags = [part, f"{CLUSTER_TAG}{settings['cluster']}", *([f"{VERSION_TAG}{version}"] if version else [])]
    return [f"--host={settings['host']}", *(f"--tag={tag}" for tag in tags)]


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


def add_key(settings: Settings) -> Result:
    """Let the password on standard input open the repository as well, prove it, and record the key that it replaces.

    The record comes first: a run that is killed after it leaves a key too much, which the next change removes.
    """
    present = Repository(settings)
    present.open(False, "")
    with new_password() as file:
        new = present.with_password(file)
        if new.opens():
            return {"added": False}
        current = [key for key, is_current in present.keys().items() if is_current]
        replaced = read_json(backup_host.REPLACED).get("keys", [])
        write_json(backup_host.REPLACED, {"keys": [*dict.fromkeys([*replaced, *current])]}, 0o600)
        present.run("key", "add", f"--new-password-file={file}")
        if not new.opens():
            raise BackupError(f"{present.target} has a new key, and the new password does not open it")
    return {"added": True}


def prove_key(settings: Settings) -> Result:
    """Prove that this host has the password on standard input, and that it opens the repository."""
    with new_password() as file:
        own = backup_host.CONF / "password"
        if own.read_text(encoding="utf-8").strip() != file.read_text(encoding="utf-8").strip():
            raise BackupError(f"{settings['host']} has another password in {own}")
    repository = Repository(settings)
    if not repository.opens():
        raise BackupError(f"{repository.target}: {WRONG_PASSWORD}")
    return {"opens": True}


def remove_keys(settings: Settings) -> Result:
    """Remove the keys that others have replaced, unless another cluster has backups there, whose key it may be."""
    replaced = read_json(backup_host.REPLACED).get("keys", [])
    repository = Repository(settings)
    keys = repository.keys()
    found = [key for key in replaced if key in keys and not keys[key]]
    clusters = {cluster_of(one) for one in repository.all_snapshots()} - {"", repository.cluster} if found else set()
    if not clusters:
        for key in found:
            repository.run("key", "remove", key)
    backup_host.REPLACED.unlink(missing_ok=True)
    return {"removed": [] if clusters else found, "left": found if clusters else [], "clusters": sorted(clusters)}
