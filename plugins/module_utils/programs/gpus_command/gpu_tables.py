# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reports as text for people."""

from __future__ import annotations

import textwrap
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

Report = dict[str, Any]
"""An answer of `gpus --json`, or a part of it (README.md of role job_tools)."""


def visible(text: str) -> str:
    """A text without characters that control a terminal: they are written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut(text: str, width: int) -> str:
    """A text of at most so many characters: the middle is left out, since names differ at both ends."""
    if len(text) <= width:
        return text
    tail = (width - 2) // 2
    return text[: width - 2 - tail] + ".." + text[len(text) - tail :]


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int, right: Sequence[str] = ()) -> list[str]:
    """Lines of a table that fits a width: the widest columns are cut. right: headers of columns with numbers."""
    cells = [list(header), *([visible(cell) for cell in row] for row in rows)]
    widths = [min(width, max(map(len, column))) for column in zip(*cells)]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > 4:
        widest = widths.index(max(widths))
        widths[widest] -= 1
    lines = []
    for row in cells:
        parts = [
            cut(cell, size).rjust(size) if name in right else cut(cell, size).ljust(size)
            for name, cell, size in zip(header, row, widths)
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def name_type(kind: str, name: str) -> str:
    """The name of a type of GPUs, or of shares of them."""
    return (name or "gpu") if kind == "gpu" else f"{name} {kind}".strip()


@cache
def name_clock(seconds: int | None, now: int) -> str:
    """The time of day, with the day if it is not today."""
    if seconds is None:
        return "unknown"
    there, here = time.localtime(seconds), time.localtime(now)
    return time.strftime("%H:%M" if there[:3] == here[:3] else "%-d %b %H:%M", there)


def name_duration(seconds: int | None) -> str:
    """A duration as Slurm's options take it: 2:00:00, 1-0:00:00."""
    if seconds is None:
        return "no limit"
    days, rest = divmod(seconds, 86400)
    return (f"{days}-" if days else "") + f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"


def name_wanted(gpus: Sequence[Report]) -> str:
    """The GPUs that a job wants."""
    return ", ".join(f"{gpu['count']} {name_type(gpu['kind'], gpu['type'])}" for gpu in gpus) or "no GPU"


def name_indices(gpu: Report) -> str:
    """Which GPUs a job has on each node."""
    indices = gpu["indices"]
    if indices is None:
        return "?"
    ranges: list[list[int]] = []
    for index in indices:
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def show_types(types: list[Report], width: int) -> list[str]:
    """The table of types and partitions."""
    columns = ("total", "used", "free", "unavailable")
    rows = []
    for kind in types:
        name, parts = name_type(kind["kind"], kind["type"]), kind["partitions"]
        if [part["total"] for part in parts] != [kind["total"]]:
            rows.append([name, "*", *(str(kind[column]) for column in columns)])
        rows += [[name, part["name"], *(str(part[column]) for column in columns)] for part in parts]
    if not rows:
        return ["Slurm shows no nodes with GPUs."]
    header = ("TYPE", "PARTITION", "TOTAL", "USED", "FREE", "UNAVAIL")
    return table(header, rows, width, header[2:])


def show_jobs(report: Report, width: int) -> list[str]:
    """The table of jobs that have GPUs."""
    now, rows = report["time"], []
    for job in report["jobs"]:
        for gpu in job["gpus"]:
            nodes = ",".join(gpu["nodes"][:3]) + (f",+{len(gpu['nodes']) - 3}" if len(gpu["nodes"]) > 3 else "")
            left = "-" if job["left"] is None else name_duration(job["left"])
            kind, number = name_type(gpu["kind"], gpu["type"]), str(gpu["count"])
            since = name_clock(job["since"], now)
            row = [job["user"], job["account"], job["job"], nodes, kind, number, name_indices(gpu), since, left]
            rows.append(row)
    rows += [
        ["others", "", "", "", name_type(gpu["kind"], gpu["type"]), str(gpu["count"]), "", "", ""]
        for gpu in report["others"]
    ]
    if not rows:
        return []
    header = ("USER", "ACCOUNT", "JOB", "NODES", "TYPE", "N", "GPU", "SINCE", "LEFT")
    return ["", *table(header, rows, width, ("N", "LEFT"))]


def show_waiting(report: Report, width: int) -> list[str]:
    """The table of waiting jobs, with the reason below each."""
    rows = []
    for job in report["waiting"]:
        limit, start = name_duration(job["time_limit"]), name_clock(job["start"], report["time"])
        rows.append([job["job"], name_wanted(job["gpus"]), job["partition"], limit, start])
    if not rows:
        return []
    header, *lines = table(("WAITING", "WANTS", "PARTITION", "TIME", "START"), rows, width, ("TIME",))
    reasons = (cut(f"  {visible(job['explanation'])}", width) for job in report["waiting"])
    return ["", header, *(line for pair in zip(lines, reasons) for line in pair)]


def show_free(report: Report, width: int) -> list[str]:
    """The table of free GPUs: nodes with the same number are together."""
    groups: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    for row in report["nodes"]:
        groups[name_type(row["kind"], row["type"]), row["free"], ",".join(row["partitions"])].append(row["node"])
    rows = [
        [kind, str(free), str(len(nodes)), ",".join(nodes), partitions]
        for (kind, free, partitions), nodes in sorted(groups.items(), key=lambda item: (item[0][0], -item[0][1]))
    ]
    header = ("TYPE", "FREE EACH", "NODES", "NAMES", "PARTITIONS")
    return table(header, rows, width, header[1:3]) if rows else ["No such GPU is free."]


def show_sooner(sooner: Report) -> str:
    """A change of a job's options."""
    if "time_limit" in sooner:
        return f"with --time={name_duration(sooner['time_limit'])} or less it fits before the next planned job"
    one = sooner["count"] == 1
    return f"{sooner['count']} {sooner['type'] or ('GPU' if one else 'GPUs')} {'is' if one else 'are'} free now"


def show_why(report: Report, width: int) -> list[str]:
    """Sentences about jobs."""
    lines = []
    for job in report["jobs"]:
        if "reason" not in job:
            lines.append(f"Job {job['job']} of {job['user']} does not wait: {job['state']}.")
            continue
        wants = f"{name_wanted(job['gpus'])}, {job['nodes']} node{'s' * (job['nodes'] > 1)}"
        lines.append(
            f"Job {job['job']} of {job['user']} waits in {job['partition']} since "
            f"{name_clock(job['submitted'], report['time'])}."
        )
        lines.append(f"  Wants:   {wants}, --time {name_duration(job['time_limit'])}")
        lines.append(f"  Reason:  {job['explanation']}")
        if job["explanation"] != job["reason"]:
            lines.append(f"           ({job['reason']})")
        for limit in job["limits"]:
            used = (
                ""
                if limit["used"] is None
                else f", of which {limit['used']} {'is' if limit['used'] == '1' else 'are'} used"
            )
            lines.append(f"  Limit:   {limit['of']}: {limit['name']}={limit['value']}{used}")
        for each in job["maintenance"]:
            start, end = (name_clock(each[key], report["time"]) for key in ("start", "end"))
            begun = each["start"] <= report["time"]
            lines.append(f"  Maint.:  {each['name']} {f'until {end}' if begun else f'from {start} to {end}'}")
            if each["time_limit"]:
                limit = name_duration(each["time_limit"])
                lines.append(f"  Sooner:  with --time={limit} or less it ends before the maintenance")
        if job["start"] is None:
            lines.append("  Start:   Slurm has not planned it yet")
        else:
            lines.append(f"  Start:   {name_clock(job['start'], report['time'])}, as Slurm expects now")
        lines += [f"  Sooner:  {show_sooner(sooner)}" for sooner in job["sooner"]]
    indent = " " * 11
    return [part for line in lines for part in textwrap.wrap(visible(line), width, subsequent_indent=indent)]


def show_quota(report: Report, width: int) -> list[str]:
    """The table of limits, and a sentence about the next job in each account."""
    lines = [f"No limits on GPUs hold for {report['user']}."]
    if report["quotas"]:
        rows = [
            [
                quota["of"],
                f"{quota['name']} {quota['resource']}",
                *("-" if quota[key] is None else str(quota[key]) for key in ("limit", "used", "left")),
            ]
            for quota in report["quotas"]
        ]
        header = ("OF", "LIMIT", "MAX", "USED", "LEFT")
        lines = table(header, rows, width, header[2:])
    if report["hidden"]:
        lines += ["", f"Slurm does not show you the limits of account {', '.join(report['hidden'])}."]
    for job in report["next"]:
        gpus = f"{job['gpus']} GPU{'s' * (job['gpus'] != 1)}"
        lines += ["", f"A job of {gpus} in account {job['account']}, QOS {job['qos']}, partition {job['partition']}:"]
        lines.append(f"  {show_next(job)}")
    return [part for line in lines for part in (textwrap.wrap(visible(line), width, subsequent_indent="  ") or [""])]


def show_next(job: Report) -> str:
    """What the next job would wait for."""
    limit = job["limit"]
    if limit is None:
        return "could start now, as far as limits on GPUs go"
    name = f"{limit['name']} {limit['resource']}"
    if job["never"]:
        return f"never starts: {limit['of']} has {name}={limit['limit']}"
    if "Mins" in limit["name"]:
        return f"waits for {limit['of']}: {limit['used']} of {limit['limit']} GPU minutes are used ({name})"
    by = [f"{job['used_by']} job{'s' * (job['used_by'] != 1)}"] if job["used_by"] else []
    by += ["jobs of others"] if job["unseen"] else []
    used = f"in use by {' and '.join(by)}" if by else "in use"
    text = f"waits for {limit['of']}: {limit['used']} of {limit['limit']} GPUs are {used} ({name})"
    if job["wait"] is None:
        return text
    return f"{text}; by the jobs' time limits, enough are free in {name_duration(job['wait'])}"
