# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""GPU hours: what jobs had by Slurm's accounting, and how much of it they used by the series of Prometheus.

`lines` writes a line about the GPUs of each job that has ended into its AdminComment; a timer starts it each minute on
the controllers. `report` sums up hours. docs/design/gpu_hours.md has why.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from ...client import slurm_records
from ...client.commands import CommandError, output
from ...health.finding_table import JOB, named
from ...host.json_files import read_record, read_settings
from ...host.replacing import remove, replace
from ...language.errors import CollectionError
from ...language.series import Series

SETTINGS = "/etc/gpucluster-slurm/metrics.json"
STATE = "/var/lib/gpucluster-slurm/gpu-hours.json"
TEXTFILES = "/var/lib/prometheus/node-exporter"
SLURM_FILE, OWN_FILE = "slurm.prom", "gpu-hours.prom"
HELP = {
    "gpucluster_gpu_lines_total": "Lines about the GPUs of jobs that were written.",
    "gpucluster_gpu_lines_dropped_total": "Lines that could not be written for a day.",
    "gpucluster_gpu_lines_until_seconds": "Jobs that ended before have their line.",
    "gpucluster_gpu_lines_success": "Whether the last run has written all lines.",
}

SACCT_SECONDS, SACCTMGR_SECONDS, PROMETHEUS_SECONDS = 120, 20, 60
RUN_SECONDS = 45
"""After so long a run of `lines` leaves the rest to the next one."""

LEAST_SECONDS = 60
"""Seconds of a GPU that have to be measured for a figure of its use; a sample counts for five."""
SCRAPE = 60
"""Prometheus' interval."""
DELAY = 120
"""After so long Prometheus has the last values of a job that has ended."""
OVERLAP = 900
"""So much earlier than the last run a record can have reached slurmdbd late."""
DAY = 86400
FIRST = 3600
"""How far the first run looks back, also after a takeover."""
WAITING = 100
"""Messages for slurmdbd with which records of jobs that ended long ago may be missing."""
AT_ONCE = 50
"""Runs of jobs in one query."""

PREFIX = "gpus: "
ENDED = "BF,CA,CD,DL,F,NF,OOM,PR,TO"
"""The states of jobs that have ended. A run with state RQ (requeued) is followed by another one of its job."""
FIELDS = "JobID,JobIDRaw,Start,End,ElapsedRaw,User,Account,Partition,AllocTRES,AdminComment"
SACCT = ("sacct", "--allusers", "--allocations", "--noheader", "--parsable2", f"--format={FIELDS}")
GROUPS = ("user", "account", "partition", "day")


class PrometheusError(CollectionError):
    """Prometheus does not answer as expected."""


# -- Slurm's accounting ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GpuJob:
    """One run of a job, as accounting has it."""

    name: str
    """As users write it, such as 7, 7_2 or 7+1."""
    number: str
    """The number of its own, which a task of an array has as well."""
    start: int
    end: int
    elapsed: int
    """Seconds, without those in which it was suspended."""
    user: str
    account: str
    partition: str
    gpus: int
    kind: str
    """The type of its GPUs in Slurm; empty if they have none or several."""
    parts: bool
    """Whether it had parts of GPUs alone (shard, MPS)."""
    comment: str


def sacct(*options: str) -> str:
    """What sacct says of jobs. Raises CommandError."""
    return output([*SACCT, *options], SACCT_SECONDS, {"SLURM_TIME_FORMAT": "%s"})


def jobs_of(states: str, begin: int, end: int, now: int) -> list[GpuJob]:
    """The runs of jobs with one of some states between two times. Those with state R have run between them.

    now: the end of those that still run.
    """
    times = [f"--state={states}", f"--starttime=uts{begin}", f"--endtime=uts{end}"]
    return list(parse_jobs(sacct("--duplicates", *times), now))


def newest_of(jobs: Sequence[GpuJob]) -> list[GpuJob]:
    """Those runs that are the last of their job. Of a requeued job, sacctmgr changes the newest record alone."""
    answer = sacct(f"--jobs={','.join(job.name for job in jobs)}")
    last = {(job.name, job.start) for job in parse_jobs(answer, 0)}
    return [job for job in jobs if (job.name, job.start) in last]


def parse_jobs(answer: str, now: int) -> Iterator[GpuJob]:
    """The jobs in an answer of sacct that have started. Further lines of a comment are left out."""
    count = FIELDS.count(",")
    for line in answer.split("\n"):
        values = line.split("|", count)
        if len(values) <= count or not (values[1].isdigit() and values[2].isdigit() and values[4].isdigit()):
            continue
        name, number, start, end, elapsed, user, account, partition, tres, comment = values
        gpus, kind, parts = gpus_of(tres)
        stop = int(end) if end.isdigit() else now
        yield GpuJob(name, number, int(start), stop, int(elapsed), user, account, partition, gpus, kind, parts, comment)


def gpus_of(tres: str) -> tuple[int, str, bool]:
    """The number of GPUs in AllocTRES, their type, and whether there are parts of GPUs alone."""
    found = slurm_records.gpus(tres)
    kinds = [kind for kind in found if kind]
    typed = sum(found[kind] for kind in kinds)
    gpus = found.get("", typed)
    parts = not gpus and any(each.kind != "gpu" for each in slurm_records.gres(tres))
    return gpus, kinds[0] if len(kinds) == 1 and typed == gpus else "", parts


# -- Prometheus ------------------------------------------------------------------------------------------------------

Value = tuple[Mapping[str, str], float]


def ask(server: str, expression: str, when: float) -> list[Value]:
    """The values of an expression at a time. Raises PrometheusError."""
    data = urllib.parse.urlencode({"query": expression, "time": f"{when:.3f}"}).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{server}/api/v1/query", data, PROMETHEUS_SECONDS) as answer:
            result = json.load(answer)["data"]["result"]
        return [(value["metric"], float(value["value"][1])) for value in result]
    except urllib.error.HTTPError as error:
        said = error.read(300).decode(errors="replace")
        raise PrometheusError(f"{server}: {error}: {said}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PrometheusError(f"{server}: {error}") from error


@dataclass
class Measured:
    """What the series say of a run of a job. What they do not have is None."""

    gpus: float | None = None
    """GPUs whose use was measured, or those of which there is anything if there are none."""
    seconds: float | None = None
    """Seconds of all of them for which their use was measured."""
    samples: float | None = None
    """Scrapes of all GPUs that the job had."""
    share: float | None = None
    """The least share of a GPU."""
    utilization: float | None = None
    """The mean in percent, where each GPU counts as much as another one."""
    memory: float | None = None
    """The most that was in use on one GPU, in bytes."""
    total: float | None = None
    """All memory of the GPU, in bytes."""
    model: str = ""
    errors: dict[str, float] = field(default_factory=dict)
    """How many errors its GPUs have had, by Xid."""


def expressions(job: GpuJob) -> dict[str, str]:
    """What is asked about a run of a job, by field of Measured. The times tell the runs of a requeued job apart."""
    span = f'{{slurmjobid="{job.number}"}}[{max(1, job.end - job.start)}s] @ {job.end}'
    # The last seconds of a job are written and read after its end.
    late = f'{{slurmjobid="{job.number}"}}[{max(1, job.end - job.start) + DELAY}s] @ {job.end + DELAY}'
    share = f"gpucluster_job_gpu_share{span}"
    busy, seconds = (f"last_over_time(gpucluster_job_gpu_{name}_seconds_total{late})" for name in ("busy", "measured"))
    return {
        "gpus": f"(count({seconds} > 0) or count(group by (instance, gpu) (count_over_time({share}))))",
        "seconds": f"sum({seconds})",
        "samples": f"sum(count_over_time({share}))",
        "share": f"min(min_over_time({share}))",
        "utilization": f"avg(100 * {busy} / ({seconds} > 0))",
        "memory": f"topk(1, max by (gpu_type) (max_over_time(slurm_job_memory_usage_gpu{span})))",
        "errors": f"sum by (xid) (last_over_time(gpucluster_job_gpu_errors{late}))",
        "total": f"max(max_over_time(slurm_job_memory_total_gpu{span}))",
    }


def measured(server: str, jobs: Sequence[GpuJob], now: float) -> list[Measured]:
    """What the series say of runs of jobs, in their order. Raises PrometheusError."""
    terms = (
        f'label_replace(label_replace({text}, "run", "{place}", "", ""), "field", "{name}", "", "")'
        for place, job in enumerate(jobs)
        for name, text in expressions(job).items()
    )
    found = [Measured() for _job in jobs]
    for labels, value in ask(server, "\nor ".join(terms), now):
        one = found[int(labels["run"])]
        if labels["field"] == "errors":
            one.errors[labels["xid"]] = value
        else:
            setattr(one, labels["field"], value)
        one.model = one.model or labels.get("gpu_type", "")
    return found


# -- the line --------------------------------------------------------------------------------------------------------


def line(job: GpuJob, of: Measured) -> str:
    """What is said about the GPUs of a job."""
    errors = [xid_text(int(xid)) for xid in sorted(of.errors, key=int)]
    return use_text(job, of) + (f"; errors of the GPUs: {', '.join(errors)}" if errors else "")


def xid_text(number: int) -> str:
    """An Xid for the user of the job."""
    finding = named(f"xid-{number}")
    fault = "the program's" if finding.kind == JOB else "the node's" if finding.drains else ""
    return f"Xid {number} ({finding.means.rstrip('.')}{f', {fault}' if fault else ''})"


def use_text(job: GpuJob, of: Measured) -> str:
    """What is said about their use."""
    gpus = f"{job.gpus} GPU{'s' if job.gpus > 1 else ''}"
    kind = re.sub(r"[^\w .:-]", "", job.kind or of.model)
    had = f"{duration(job.elapsed)} on {gpus}" + (f" ({kind})" if kind else "")
    known = of.samples if of.utilization is None else (of.seconds or 0) >= LEAST_SECONDS * (of.gpus or 1)
    if not known:
        short = job.end - job.start < 3 * SCRAPE
        return f"{PREFIX}{'too short for a sample' if short else 'not measured'}, {had}"
    parts = [f"used {percent(of.utilization)} of {had}" if of.utilization is not None else f"{had}, use not measured"]
    if of.memory is not None and of.total:
        parts.append(f"memory {of.memory / 1024**3:.0f} of {of.total / 1024**3:.0f} GiB")
    if of.share is not None and of.share < 1:
        parts.append("shared with other jobs")
    if of.gpus and of.gpus < job.gpus:
        parts.append(f"{of.gpus:.0f} of {gpus} measured")
    seconds = (of.samples or 0) * SCRAPE if of.utilization is None else of.seconds or 0
    covered = seconds / max(1, (job.end - job.start) * (of.gpus or 1))
    if covered < 0.8 and job.end - job.start > 10 * SCRAPE:
        parts.append(f"measured in {100 * covered:.0f} % of the time")
    return PREFIX + ", ".join(parts)


def percent(value: float) -> str:
    """A utilization. One that is not 0 is not shown as 0."""
    return "under 1 %" if 0 < value < 0.95 else f"{value:.0f} %"


def duration(seconds: int) -> str:
    """A time in one unit, in which it has two digits if possible."""
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.0f} h" if hours >= 10 or hours % 1 < 0.05 else f"{hours:.1f} h"


def write(job: GpuJob, text: str) -> bool:
    """Write a line into the last record of a job. Returns whether it is there.

    The name of a task of an array is that with `_`, since the number of the array is that of all its tasks; times say
    nothing more with a number (`setup_job_cond_limits` in `as_mysql_jobacct_process.c`).
    """
    command = ["sacctmgr", "-i", "modify", "job", "where", f"jobid={job.name}", "set", f"AdminComment={text}"]
    try:
        return "Nothing modified" not in output(command, SACCTMGR_SECONDS)
    except CommandError as error:
        print(f"job {job.name}: {error}", file=sys.stderr)
        return False


# -- the timer -------------------------------------------------------------------------------------------------------


@dataclass
class LinesState:
    """What is kept between two runs of `lines`."""

    until: int = 0
    """Jobs that ended before have their line, as far as they get one."""
    written: int = 0
    dropped: int = 0
    """Jobs whose line could not be written for a day."""

    @classmethod
    def load(cls) -> LinesState:
        """What the last run has kept. A file that is not understood counts as none."""
        try:
            return cls(**read_record(STATE))
        except TypeError:
            return cls()


def slurm_values(now: float) -> dict[str, float]:
    """The values of slurm.prom by name, without labels; none if slurm-metrics has not written it for five minutes."""
    try:
        with open(f"{TEXTFILES}/{SLURM_FILE}", encoding="utf-8") as file:
            if now - os.fstat(file.fileno()).st_mtime > 300:
                return {}
            text = file.read()
    except OSError:
        return {}
    found = re.findall(r"^(slurm_controller_serving|slurm_dbd_agent_queue_size)(?:\{.*\})? (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def write_lines(server: str, state: LinesState, waiting: float, now: float) -> bool:
    """Write the lines of jobs that have ended, and record how far this has come. Returns whether all were written.

    waiting: the messages that wait for slurmdbd. Raises CollectionError if slurmdbd or Prometheus does not answer.
    """
    stop, last = time.monotonic() + RUN_SECONDS, int(now) - DELAY
    begin, oldest = state.until or last - FIRST, last - DAY
    jobs = [job for job in jobs_of(ENDED, begin - OVERLAP, last, last) if wants_line(job)]
    state.dropped += sum(begin <= job.end < oldest for job in jobs)
    state.until = max(begin, oldest)
    failed, rest = write_batches(server, [job for job in jobs if job.end >= oldest], state, stop, now)
    if waiting <= WAITING:
        state.until = max(state.until, min([last, *(job.end for job in rest)]))
    # The next run asks for the others again.
    state.dropped += sum(job.end < state.until - OVERLAP for job in failed)
    return not failed and not rest


def wants_line(job: GpuJob) -> bool:
    """Whether a job gets a line: it had GPUs, and nobody has written anything there."""
    return bool(job.gpus) and job.elapsed > 0 and not job.comment.strip()


def write_batches(
    server: str, jobs: Sequence[GpuJob], state: LinesState, stop: float, now: float
) -> tuple[list[GpuJob], list[GpuJob]]:
    """Write the lines of jobs, the oldest first. Returns those of which it failed, and those for which time was short.

    Raises CollectionError if Prometheus does not answer.
    """
    rest, failed = sorted(jobs, key=lambda job: job.end), []
    while rest and time.monotonic() < stop:
        batch, rest = newest_of(rest[:AT_ONCE]), rest[AT_ONCE:]
        texts = [line(job, found) for job, found in zip(batch, measured(server, batch, now))] if batch else []
        written = [write(job, text) for job, text in zip(batch, texts)]
        state.written += sum(written)
        failed += [job for job, done in zip(batch, written) if not done]
    return failed, rest


def series(state: LinesState, success: bool) -> str:
    """The text for node-exporter."""
    found = Series(HELP)
    found.add("gpucluster_gpu_lines_total", state.written)
    found.add("gpucluster_gpu_lines_dropped_total", state.dropped)
    found.add("gpucluster_gpu_lines_until_seconds", state.until)
    found.add("gpucluster_gpu_lines_success", success)
    return found.text()


def lines(server: str, now: float) -> int:
    """Write the lines if this controller serves. Returns the exit status."""
    values = slurm_values(now)
    if values.get("slurm_controller_serving") != 1:
        remove(f"{TEXTFILES}/{OWN_FILE}")
        return 0
    state, success = LinesState.load(), False
    try:
        success = write_lines(server, state, values.get("slurm_dbd_agent_queue_size", 0), now)
    except CollectionError as error:
        print(error, file=sys.stderr)
    os.makedirs(os.path.dirname(STATE), mode=0o755, exist_ok=True)
    replace(STATE, json.dumps(vars(state)).encode(), 0o600)
    replace(f"{TEXTFILES}/{OWN_FILE}", series(state, success).encode())
    return 0 if success else 1


# -- the report ------------------------------------------------------------------------------------------------------

Key = tuple[str, str, str, str]
"""User, account, partition and day."""


@dataclass
class Hours:
    """GPU hours."""

    allocated: float = 0
    used: float = 0
    unmeasured: float = 0
    """Those of the allocated ones of which nobody knows how much was used."""

    @property
    def idle(self) -> float:
        """Allocated and not used."""
        return self.allocated - self.used - self.unmeasured


@dataclass
class GpuReport:
    """The hours of some days, and how many jobs with parts of GPUs are not in them."""

    hours: dict[Key, Hours] = field(default_factory=dict)
    parts: int = 0


def midnight(day: date) -> int:
    """When a day begins here."""
    return int(datetime(day.year, day.month, day.day).timestamp())


def days_of(first: date, last: date) -> list[date]:
    """All days from one to another."""
    return [first + timedelta(count) for count in range((last - first).days + 1)]


def allocated(jobs: Iterable[GpuJob], days: Sequence[date]) -> GpuReport:
    """The hours that jobs had GPUs, on each of some days. A suspension is spread over the run."""
    report = GpuReport()
    spans = [(day.isoformat(), midnight(day), midnight(day + timedelta(1))) for day in days]
    for job in jobs:
        report.parts += job.parts
        ran = job.elapsed / max(1, job.end - job.start)
        for day, begin, end in spans:
            seconds = min(job.end, end) - max(job.start, begin)
            if job.gpus and seconds > 0:
                hours = report.hours.setdefault((job.user, job.account, job.partition, day), Hours())
                hours.allocated += job.gpus * seconds * ran / 3600
    return report


def add_used(server: str, report: GpuReport, days: Sequence[date], now: float) -> None:
    """Add what was used of the hours. Raises CollectionError."""
    for day in days:
        begin, end = midnight(day), min(midnight(day + timedelta(1)), int(now))
        if end <= begin:
            continue
        sums = {}
        for name in ("used", "measured", "allocated"):
            found = ask(server, f"sum_over_time(user_account_partition:gpus_{name}:sum[{end - begin}s])", end)
            sums[name] = {
                (one.get("user", ""), one.get("account", ""), one.get("partition", "")): value for one, value in found
            }
        for key, hours in report.hours.items():
            if key[3] == day.isoformat():
                whole = sums["allocated"].get(key[:3], 0)
                hours.used = hours.allocated * sums["used"].get(key[:3], 0) / whole if whole else 0
                measured = sums["measured"].get(key[:3], 0) / whole if whole else 0
                hours.unmeasured = hours.allocated * (1 - measured)


def grouped(report: GpuReport, by: Sequence[str]) -> dict[tuple[str, ...], Hours]:
    """The hours by some of user, account, partition and day, in their order."""
    found: dict[tuple[str, ...], Hours] = {}
    for key, hours in sorted(report.hours.items()):
        of = found.setdefault(tuple(key[GROUPS.index(name)] for name in by), Hours())
        of.allocated += hours.allocated
        of.used += hours.used
        of.unmeasured += hours.unmeasured
    return dict(sorted(found.items()))


def table(groups: Mapping[tuple[str, ...], Hours], by: Sequence[str], parts: int) -> str:
    """The report for people."""
    head = [*by, "allocated", "used", "idle", "unmeasured", "used %"]
    rows = [[*key, *figures(hours)] for key, hours in groups.items()]
    whole = Hours()
    for hours in groups.values():
        whole.allocated += hours.allocated
        whole.used += hours.used
        whole.unmeasured += hours.unmeasured
    rows.append(["all", *[""] * (len(by) - 1), *figures(whole)])
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    text = "".join(
        "  ".join(
            cell.ljust(width) if i < len(by) else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        + "\n"
        for row in [head, *rows]
    )
    return text + (f"{parts} jobs with parts of GPUs (shard, MPS) are not in it.\n" if parts else "")


def figures(hours: Hours) -> list[str]:
    """The cells of a row."""
    known = hours.allocated - hours.unmeasured
    share = f"{100 * hours.used / known:.0f}" if known > 0 else "-"
    return [f"{value:.1f}" for value in (hours.allocated, hours.used, hours.idle, hours.unmeasured)] + [share]


def report_text(server: str, options: argparse.Namespace, now: float) -> str:
    """The report as a table or as JSON. Raises CollectionError."""
    days = days_of(options.first, options.last)
    jobs = jobs_of("R", midnight(days[0]), midnight(days[-1] + timedelta(1)), int(now))
    report = allocated(jobs, days)
    add_used(server, report, days, now)
    groups = grouped(report, options.by)
    if not options.json:
        return table(groups, options.by, report.parts)
    rows = [
        {
            **dict(zip(options.by, key)),
            "allocated_hours": round(hours.allocated, 3),
            "used_hours": round(hours.used, 3),
            "idle_hours": round(hours.idle, 3),
            "unmeasured_hours": round(hours.unmeasured, 3),
        }
        for key, hours in groups.items()
    ]
    span = {"from": days[0].isoformat(), "to": days[-1].isoformat(), "by": options.by}
    return json.dumps({**span, "rows": rows, "jobs_with_parts": report.parts}, indent=4) + "\n"


# -- the command -----------------------------------------------------------------------------------------------------


def day_of(text: str) -> date:
    """A day such as 2026-02-28."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day such as 2026-02-28") from None


def groups_of(text: str) -> list[str]:
    """Names with commas of what the report sums by."""
    names = list(dict.fromkeys(text.split(",")))
    if strange := [name for name in names if name not in GROUPS]:
        raise argparse.ArgumentTypeError(f"{strange[0]!r} is none of {', '.join(GROUPS)}")
    return names


def parse_arguments(arguments: Sequence[str] | None, today: date) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="slurm-gpu-hours", description="GPU hours of jobs, and how much was used.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("lines", help="write a line about the GPUs of each job that has ended")
    own = commands.add_parser("report", help="show GPU hours, by default of the last seven whole days")
    own.add_argument("--from", dest="first", type=day_of, metavar="DAY", default=today - timedelta(7))
    own.add_argument("--to", dest="last", type=day_of, metavar="DAY", default=today - timedelta(1))
    own.add_argument("--by", type=groups_of, metavar="user,account,partition,day", default=["account", "user"])
    own.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.command == "report" and options.first > options.last:
        own.error(f"--from {options.first} is after --to {options.last}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    os.umask(0o022)  # that of a person may be any, and node-exporter reads the file
    now = time.time()
    options = parse_arguments(arguments, date.fromtimestamp(now))
    try:
        server = read_settings(SETTINGS)["prometheus"]
        if options.command == "lines":
            return lines(server, now)
        sys.stdout.write(report_text(server, options, now))
    except (CollectionError, OSError) as error:
        print(f"slurm-gpu-hours: {error}", file=sys.stderr)
        return 1
    return 0
