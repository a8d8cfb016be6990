# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The paths of slurm-backup, and what its modules have in common."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...client.commands import run
from ...host import replacing
from ...host.json_files import read_record
from ...language.errors import CollectionError

CONF = Path("/etc/gpucluster-slurm/backup")
WORK = Path("/var/lib/gpucluster-slurm/backup")
STATUS = WORK / "status.json"
UNFINISHED = WORK / "restore-unfinished"
"""It is there from the moment when a restore has put data back until its playbook has started the daemons with them."""
ENDED = WORK / "ended-jobs.json"
"""The jobs of a state that was put back which have ended before the loss, until slurmctld has ended them as well."""
REPLACED = WORK / "replaced-keys.json"
"""The ids of the keys of the repository that a change of the password has replaced, until they are removed."""
CLIENT = CONF / "database.cnf"
"""Options of MariaDB's programs for a database server of others, which alone has this file."""

STAGING = WORK / "staging"
SCRATCH = WORK / "scratch"
CACHE = Path("/var/cache/gpucluster-slurm/restic")
DATADIR = Path("/var/lib/mysql")
KEPT = Path("/var/lib/gpucluster-slurm")
ETC = Path("/etc/slurm")


Settings = Mapping[str, Any]
"""The settings of this host, `settings.json` in CONF."""

Result = dict[str, Any]
"""What slurm-backup prints or keeps as JSON, or a part of it."""


class BackupError(CollectionError):
    """What went wrong, in one line."""


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


def shown_time(seconds: float) -> str:
    """A time as people read it."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds))


def output_of(command: Sequence[str], seconds: float | None = None) -> str:
    """What a command prints. Raises BackupError with its words if it fails."""
    answer = run(command, seconds=seconds)
    if answer.status:
        raise BackupError(f"{command[0]}: {first_words(answer.errors or answer.output)}")
    return answer.output


def read_json(path: Path) -> Result:
    """A file of JSON; empty where there is none."""
    return read_record(str(path))


def write_json(path: Path, value: Mapping[str, Any], mode: int = 0o644) -> None:
    """Replace a file of JSON in one step."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    replacing.replace(str(path), f"{json.dumps(value, indent=1)}\n".encode(), mode)
