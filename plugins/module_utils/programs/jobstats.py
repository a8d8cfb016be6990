# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Show what a job used: time, processors, memory, GPUs.

usage: jobstats JOB         JOB is a number, a task of an array such as 7_2, or a part of a job such as 7+1
       jobstats --json JOB  the same as JSON for programs

Slurm's accounting has the values, also long after the job; it shows those of the last run of a job that was requeued.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..client import slurm_records, user_commands
from ..client.slurm_records import UNITS, amount, tres
from ..client.user_commands import SlurmError, not_understood
from ..language.formatting import visible
from .standard_output import write

SECONDS = 30
"""How long sacct may take."""

CHANGING = ("SACCT_", "SLURM_BITSTR_LEN")
"""Variables of the user that would change an answer."""

FIELDS = (
    *("JobID", "User", "Account", "Partition", "State", "ExitCode", "Start", "End", "ElapsedRaw", "TimelimitRaw"),
    *("NodeList", "AllocCPUS", "TotalCPU", "AllocTRES", "TRESUsageInTot", "AdminComment"),
)
"""Fields of sacct. The last one is a text of administrators."""

PREFIX = "gpus: "
"""How the line begins that the cluster writes about the GPUs of a job (role slurm_metrics)."""

LATE = 600
"""Seconds after the end of a job in which the line can still come."""

JOB = re.compile(r"\d+(_\d+|\+\d+)?")

# -- sacct -----------------------------------------------------------------------------------------------------------


JobReport = dict[str, Any]
"""A job, as `jobstats --json` prints it."""


def ask(job: str) -> str:
    """The records of a job and of its steps. Raises SlurmError."""
    command = ["sacct", f"--jobs={job}", "--noheader", "--parsable2", "--noconvert", f"--format={','.join(FIELDS)}"]
    output = user_commands.ask(command, SECONDS, CHANGING)
    if output.strip() and not any(records(output)):
        raise not_understood(command)
    return output


def records(output: str) -> Iterator[dict[str, str]]:
    """The records in an answer of sacct. Further lines of a comment are left out."""
    for line in output.split("\n"):
        values = line.split("|", len(FIELDS) - 1)
        if len(values) == len(FIELDS) and JOB.match(values[0]):
            yield dict(zip(FIELDS, values))


def jobs(output: str, now: float) -> list[JobReport]:
    """The jobs in an answer of sacct, each with what its steps used."""
    found: dict[str, JobReport] = {}
    memory: dict[str, int] = {}
    for record in records(output):
        name, _dot, step = record["JobID"].partition(".")
        if step:
            used = int(amount(tres(record["TRESUsageInTot"]).get("mem", "")))
            memory[name] = max(memory.get(name, 0), used)
        else:
            found[name] = job_of(record, now)
    for name, job in found.items():
        job["memory_used_bytes"] = memory.get(name) or None
    return [*found.values()]


def job_of(record: Mapping[str, str], now: float) -> JobReport:
    """A job without its steps."""
    resources = tres(record["AllocTRES"])
    start, end = number(record["Start"]), number(record["End"])
    cpus, elapsed, limit = (number(record[name]) or 0 for name in ("AllocCPUS", "ElapsedRaw", "TimelimitRaw"))
    busy = seconds(record["TotalCPU"])
    comment = record["AdminComment"]
    gpus = number(resources.get("gres/gpu", "")) or 0
    return {
        "job": record["JobID"],
        "user": record["User"],
        "account": record["Account"],
        "partition": record["Partition"],
        "state": record["State"],
        "exit_code": record["ExitCode"],
        "start": start,
        "end": end,
        "elapsed_seconds": elapsed,
        "time_limit_seconds": 60 * limit or None,
        "nodes": record["NodeList"],
        "cpus": cpus,
        # Slurm sums up the steps when they end. Without a plugin that measures (JobAcctGatherType) there is no value.
        "cpu_seconds": busy if end and busy else None,
        "memory_bytes": int(amount(resources.get("mem", ""))) or None,
        "memory_used_bytes": None,
        "gpus": gpus,
        "gpu_use": comment[len(PREFIX) :].strip() if comment.startswith(PREFIX) else None,
        "gpu_use_may_come": bool(gpus and not comment and (not end or now - end < LATE)),
    }


def number(text: str) -> int | None:
    """A whole number; None for `Unknown`, `UNLIMITED` and the like."""
    return int(text) if text.isdigit() else None


def seconds(text: str) -> float:
    """A time such as `1-02:03:04` or `02:03.456`; 0 if there is none."""
    whole, _point, fraction = text.partition(".")
    return (slurm_records.seconds(whole) or 0) + float(f"0.{fraction or 0}")


# -- what is shown ---------------------------------------------------------------------------------------------------


def rows(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines about a job: titles and texts."""
    code = f" (exit status {job['exit_code'].split(':')[0]})" if job["end"] and job["exit_code"] else ""
    yield "Job", job["job"]
    yield "State", f"{job['state']}{code}"
    yield "User", f"{job['user']}, account {job['account']}, partition {job['partition']}"
    if not job["start"]:
        yield "Ran", "not yet" if not job["end"] else "never"
        return
    until = moment(job["end"]) if job["end"] else "now"
    limit = f" of {duration(job['time_limit_seconds'])}" if job["time_limit_seconds"] else ""
    yield "Ran", f"{moment(job['start'])} to {until}, {duration(job['elapsed_seconds'])}{limit}"
    yield "Nodes", job["nodes"]
    yield "CPUs", cpu_text(job)
    yield "Memory", memory_text(job)
    if job["gpus"] or job["gpu_use"]:
        yield "GPUs", gpu_text(job)


def cpu_text(job: Mapping[str, Any]) -> str:
    """How much of the processors was used."""
    had = f"{job['cpus']} CPUs" if job["cpus"] != 1 else "1 CPU"
    if job["cpu_seconds"] is None:
        return f"{had}, use {'not measured' if job['end'] else 'is known at the end'}"
    return f"{100 * job['cpu_seconds'] / max(1, job['cpus'] * job['elapsed_seconds']):.0f} % of {had}"


def memory_text(job: Mapping[str, Any]) -> str:
    """How much of the memory was used."""
    had = job["memory_bytes"]
    if job["memory_used_bytes"] is None:
        return f"of {size(had)}, use {'not measured' if job['end'] else 'is known at the end'}" if had else "unknown"
    used = size(job["memory_used_bytes"])
    return f"{used} of {size(had)} ({100 * job['memory_used_bytes'] / had:.0f} %)" if had else used


def gpu_text(job: Mapping[str, Any]) -> str:
    """How much of the GPUs was used."""
    if job["gpu_use"]:
        return str(job["gpu_use"])
    had = f"{job['gpus']} GPU{'s' if job['gpus'] > 1 else ''}"
    return f"{had}; use is known some minutes after the end" if job["gpu_use_may_come"] else f"{had}; use is not known"


def moment(when: int) -> str:
    """A time here."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))


def duration(span: int) -> str:
    """A time in one unit."""
    if span < 120:
        return f"{span} s"
    return f"{span / 60:.0f} min" if span < 2 * 3600 else f"{span / 3600:.1f} h".replace(".0 h", " h")


def size(count: int) -> str:
    """Bytes as people read them."""
    unit = "GiB" if count >= 1024**3 else "MiB"
    return f"{count / UNITS[unit[0]]:.1f} {unit}"


def text(found: Iterable[Mapping[str, Any]]) -> str:
    """All jobs. Controls of a terminal are visible."""
    parts = ("".join(f"{title:<8} {value}\n" for title, value in rows(job)) for job in found)
    return visible("\n".join(parts))


def answer(arguments: Sequence[str]) -> int:
    """Answer the command line. Returns the exit status."""
    words = [word for word in arguments if word != "--json"]
    if words in (["--help"], ["-h"]):
        return say(f"{(__doc__ or '').strip()}\n")
    if len(words) != 1 or not JOB.fullmatch(words[0]):
        print("usage: jobstats [--json] JOB, such as jobstats 7 (see jobstats --help)", file=sys.stderr)
        return 2
    try:
        found = jobs(ask(words[0]), time.time())
        if not found:
            raise SlurmError(f"accounting has no job {words[0]} that Slurm shows to you")
    except SlurmError as error:
        print(f"jobstats: {error}", file=sys.stderr)
        return 1
    return say(f"{json.dumps(found, indent=4)}\n" if "--json" in arguments else text(found))


def say(output: str) -> int:
    """Print a text. Returns the exit status."""
    problem = write(output)
    if problem:
        print(f"jobstats: {problem}", file=sys.stderr)
    return 1 if problem else 0


def main() -> int:
    """Returns the exit status."""
    for end in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(end, signal.SIG_DFL)
    return answer(sys.argv[1:])
