# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that have no end in the database and that slurmctld does not know (runaway jobs, sacctmgr(1)).

`sacctmgr show runawayjobs` is not asked, because it only seems to read: it ends the jobs in the database, asks, and
takes this back unless the answer is yes (`sacctmgr_list_runaway_jobs` in src/sacctmgr/runaway_job_functions.c).
"""

from __future__ import annotations

from ..client.commands import Answer, run

SACCT = ["sacct", "--allusers", "--allocations", "--local", "--noheader", "--parsable2", "--format=JobIDRaw"]
SACCT += ["--state=PENDING,RUNNING,SUSPENDED"]
"""The jobs that have not ended now, as the database has them (sacct(1), "DEFAULT TIME WINDOW")."""

SQUEUE = ["squeue", "--all", "--states=all", "--noheader", "--format=%A"]
"""The jobs that slurmctld knows, also those that have ended since MinJobAge."""

SECONDS = 60


def find_runaway_jobs(waiting: int | None) -> list[str]:
    """The numbers of these jobs, as far as they can be known: none while messages wait in slurmctld for slurmdbd.

    The database is asked first, so that a job that begins or ends meanwhile is known to slurmctld.
    """
    return compare_jobs(run(SACCT, seconds=SECONDS), run(SQUEUE, seconds=SECONDS)) if waiting == 0 else []


def compare_jobs(database: Answer, slurmctld: Answer) -> list[str]:
    """The numbers that only the first of two answers has; none if one of the two has failed."""
    if database.status or slurmctld.status:
        return []
    lost = {*database.output.split()} - {*slurmctld.output.split()}
    return sorted(filter(str.isdecimal, lost), key=int)
