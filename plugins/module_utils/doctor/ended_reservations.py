# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that waited for a reservation until its end: Slurm then removes the reservation, and holds the jobs for ever.

Their state is RESV_DEL_HOLD, which stays after a release, and the reason does not.
"""

from __future__ import annotations

import re

from ..client.commands import run

SQUEUE = ["squeue", "--all", "--noheader", "--states=RESV_DEL_HOLD", "--format=%A|%r"]

HELD = re.compile(r"^(\d+)\|Reservation (\S+) was deleted$", re.MULTILINE)


def find_held_jobs() -> dict[str, list[str]]:
    """The numbers of the jobs that are held, by their reservation."""
    found: dict[str, list[str]] = {}
    for job, name in dict.fromkeys(HELD.findall(run(SQUEUE).output)):
        found.setdefault(name, []).append(job)
    return found
