# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a command on a controller, and writes what it and slurmctld have used meanwhile, and what slurmctld was asked.

usage: measured COMMAND...
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

RECORD = Path("/run/measured.json")
"""Of the last command."""


def questions() -> dict[str, int]:
    """How many questions of commands slurmctld has answered, by their type in sdiag's table; not those of sdiag."""
    text = subprocess.run(["sdiag"], stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    table = text.partition("by message type")[2].partition("\n\n")[0]
    counts = re.findall(r"^\s*(REQUEST_\w+)\s*\(.*count:(\d+)", table, re.MULTILINE)
    return {name: int(count) for name, count in counts if name != "REQUEST_STATS_INFO" and "_COMPLETE_" not in name}


def slurmctld() -> tuple[int, float, float]:
    """The number of slurmctld's process, its seconds of processor time, and its memory in MiB."""
    show = ["systemctl", "show", "--property=MainPID", "--value", "slurmctld"]
    number = int(subprocess.run(show, stdout=subprocess.PIPE, text=True, check=True).stdout)
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    memory = re.search(r"VmRSS:\s*(\d+)", Path(f"/proc/{number}/status").read_text())
    ticks = int(fields[11]) + int(fields[12])
    return number, ticks / os.sysconf("SC_CLK_TCK"), int(memory[1]) / 1024 if memory else 0


def main() -> int:
    """Returns the exit status of the command."""
    asked, (process, used, _memory), begin = questions(), slurmctld(), time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = subprocess.call(sys.argv[1:])
    usage, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begin
    process_after, used_after, memory = slurmctld()
    processor = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
    counts = {name: count - asked.get(name, 0) for name, count in questions().items()}
    record = {
        "seconds": seconds,
        "processor": processor,
        "memory": usage.ru_maxrss / 1024,
        # A reconfigure begins another process.
        "slurmctld_processor": used_after - (used if process_after == process else 0),
        "slurmctld_memory": memory,
        "questions": {name: count for name, count in counts.items() if count},
    }
    RECORD.write_text(json.dumps(record))
    return status


if __name__ == "__main__":
    sys.exit(main())
