# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-ins for the commands that the program slurm-report asks.

What scontrol says of nodes and of the configuration, and the values of jobs, are recorded answers of Slurm 22.05.8,
24.11.5 and 26.05.5 (recorded/README.md). The rest is written as Slurm's source prints it in these releases:
reservations as `slurm_sprint_reservation_info` in `src/api/reservation_info.c`, tables with `|` as `print_fields_str`
in `src/common/print_fields.c`, separators of squeue as `_parse_long_token` in `src/squeue/opts.c`.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from programs import PROGRAMS, StandIn

RECORDED = Path(__file__).parent / "recorded"
RELEASES = sorted(path.name for path in (RECORDED / "metrics").iterdir())

ACCOUNTS = (
    "physics||cpu|7200\n"
    "physics|alice|cpu|7200\n"
    "physics|alice|gres/gpu|3600\n"
    "chemistry|bob|cpu|1800\n"
    "chemistry|bob|gres/gpu|0\n"
)
DAY = "cpu|36000\ngres/gpu|7200\n"
SHARES = " root||1.000000\n  root|root|1.000000\n physics||\n  physics|alice|0.750000\n  chemistry|bob|\n"
RESERVATIONS = (
    "ReservationName=week StartTime=1795900000 EndTime=1795903600 Duration=01:00:00 Nodes=gpu[01-02] NodeCnt=2"
    " CoreCnt=16 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES TRES=cpu=16 Users=root Groups=(null)"
    " Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null)"
    " MaxStartDelay=(null) Comment=new switch, Flags=no\n"
    "ReservationName=class StartTime=1795900000 EndTime=1795903600 Duration=01:00:00 Nodes=gpu01 NodeCnt=1 CoreCnt=8"
    " Features=(null) PartitionName=(null) Flags=SPEC_NODES TRES=cpu=8 Users=alice Groups=(null) Accounts=(null)"
    " Licenses=(null) State=INACTIVE BurstBuffer=(null) MaxStartDelay=(null)\n"
)


def program(name: str = "report_collector") -> ModuleType:
    """A module of the program."""
    return importlib.import_module(f"{PROGRAMS}.{name}")


def config(release: str, **values: str) -> str:
    """The recorded configuration in force, with other values of some parameters."""
    lines = (RECORDED / "metrics" / release / "config.txt").read_text().split("\n")
    found = [
        f"{name.ljust(23)} = {values[name.strip()]}" if name.strip() in values else line
        for line in lines
        for name in [line.partition("=")[0]]
    ]
    return "\n".join(found)


def jobs(release: str) -> list[dict[str, str]]:
    """The recorded jobs, by the names of squeue's fields, with fields that were not asked then."""
    names = (
        *("JobID", "JobArrayID", "UserName", "UserID", "Account", "Partition", "QOS", "State", "NumNodes", "NumTasks"),
        *("SubmitTime", "StartTime", "TimeLeft", "TimeLimit", "NodeList", "tres-alloc", "tres-per-job"),
        *("tres-per-node", "tres-per-socket", "tres-per-task", "Reason"),
    )
    rows = (RECORDED / "gpus" / release / "jobs").read_text().split("\n")
    found = [dict(zip(names, (cell.strip() for cell in row.split("|")))) for row in rows if row]
    return [with_other_fields(row) for row in found]


def with_other_fields(row: Mapping[str, str]) -> dict[str, str]:
    """A job with the fields that follow from the recorded ones, a priority and a name."""
    tasks = row["JobArrayID"].partition("_[")[2].rstrip("]") or "N/A"
    cpus = row["tres-alloc"].partition("cpu=")[2].partition(",")[0]
    return {**row, "ArrayTaskID": tasks, "NumCPUs": cpus, "PriorityLong": "4294901760", "Name": f"job {row['JobID']}"}


SQUEUE = """exec {python} -c '
import json, sys
fields = [field.partition(":0") for field in sys.argv[1].partition("=")[2].split(",")]
for row in json.load(open("{rows}")):
    print("".join(row[name] + suffix for name, _width, suffix in fields))
' "$3"
"""


def put_commands(put: StandIn, directory: Path, release: str, texts: Mapping[str, str] | None = None) -> None:
    """Put all commands into PATH.

    Args:
        put: the fixture `stand_in`.
        directory: one for the texts of the answers.
        release: a release of Slurm with recorded answers.
        texts: other answers: `config`, `nodes`, `squeue` (JSON of jobs), `reservations`, `accounts`, `day`, `shares`.
    """
    answers = {
        "config": config(release, AccountingStorageType="accounting_storage/slurmdbd"),
        "nodes": (RECORDED / "gpus" / release / "nodes").read_text(),
        "squeue": json.dumps(jobs(release)),
        "reservations": RESERVATIONS,
        "accounts": ACCOUNTS,
        "day": DAY,
        "shares": SHARES,
        **(texts or {}),
    }
    for name, text in answers.items():
        (directory / name).write_text(text)
    put(
        "scontrol",
        f'case "$*" in *nodes) cat {directory}/nodes;; *config) cat {directory}/config;; '
        f"*) cat {directory}/reservations;; esac",
    )
    put("squeue", SQUEUE.format(python=sys.executable, rows=directory / "squeue"))
    put("sreport", f'case "$*" in *ByUser*) cat {directory}/accounts;; *) cat {directory}/day;; esac')
    put("sshare", f"cat {directory}/shares")
