# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last backup of a host, by the record that slurm-backup of role backup writes."""

from __future__ import annotations

import json
import time

STATUS = "/var/lib/gpucluster-slurm/backup/status.json"


def problem(status: str | None, hours: int, now: float) -> str:
    """What is wrong with the last backup, as text of printable characters; empty if nothing is."""
    try:
        record = json.loads(status or "{}")
        succeeded, tried, error = (
            int(record.get("succeeded", 0)),
            int(record.get("tried", 0)),
            str(record.get("error", "")),
        )
    except (AttributeError, TypeError, ValueError):
        return f"the record of the last backup cannot be read ({STATUS})"
    age = (
        f"the last good backup is {max(0, int(now - succeeded)) // 3600} hours old" if succeeded else "it has no backup"
    )
    if error:
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(tried))
        message = "".join(char if " " <= char <= "~" else "?" for char in error)
        return f"the backup of {when} has failed, and {age}: {message}"[:1000]
    if not succeeded:
        return age
    return f"{age}, and {hours} are allowed" if now - succeeded > hours * 3600 else ""
