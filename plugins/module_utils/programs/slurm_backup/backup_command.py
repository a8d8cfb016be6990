# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Saves what this host holds of a Slurm cluster with restic, proves a backup, and puts back what is lost.

It prints its result as JSON. The reason of a failure is one line on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping

from ...host import replacing
from ...host.json_files import read_settings
from ...host.locks import locked
from ...language.errors import CollectionError
from . import backup_host
from .backup_host import Result, Settings
from .restic_repository import add_key, prove_key, remove_keys
from .restore_parts import control, end_jobs, jobs, look, restore_database, restore_state, return_records, since, verify
from .save_parts import backup, first, renew

LOCKED = 900
"""Seconds to wait for another slurm-backup on this host."""

WORK_OF: Mapping[str, Callable[[Settings], Result]] = {
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


def main() -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(prog="slurm-backup", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, work in WORK_OF.items():
        commands.add_parser(name, help=(work.__doc__ or "").partition("\n")[0])
    after = commands.add_parser("since", help="show what the database has of jobs after a backup")
    after.add_argument("seconds", type=int)
    after.add_argument("next_job_id", type=int)
    put_back = commands.add_parser("restore", help="put back the database or the state of slurmctld")
    put_back.add_argument("part", choices=["database", "controller"])
    put_back.add_argument("--next-job-id", type=int, default=0)
    put_back.add_argument("--ended", nargs="*", default=[], help="the jobs of the state that have ended")
    commands.add_parser("finish", help="record that the daemons run with what was put back")
    given = parser.parse_args()
    os.umask(0o022)  # that of a person or of a playbook may be any, and others read what is put back
    try:
        settings = read_settings(f"{backup_host.CONF}/settings.json")
        with locked("backup", LOCKED):
            # restic would make the directory above it as well, with mode 0700.
            backup_host.CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
            if given.command == "since":
                result = since(settings, given.seconds, given.next_job_id)
            elif given.command == "restore":
                backup_host.UNFINISHED.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                replacing.replace(str(backup_host.UNFINISHED), b"", 0o600)
                if given.part == "database":
                    result = restore_database(settings)
                else:
                    result = restore_state(settings, given.next_job_id, given.ended)
            elif given.command == "finish":
                if settings.get("database"):
                    return_records(settings)
                backup_host.UNFINISHED.unlink(missing_ok=True)
                result = {}
            else:
                result = WORK_OF[given.command](settings)
    except (CollectionError, OSError, ValueError) as error:
        print(f"slurm-backup: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0
