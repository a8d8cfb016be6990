# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collects what the page shows, as JSON (docs/design/report.md has its keys).

It asks with a few commands of Slurm, however many nodes and jobs there are. It is one file with Python's library alone,
so that report.yml can run it on a controller without leaving anything there.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any

VERSION = 1
"""Of the form of the data."""

SETTINGS = Path("/etc/gpucluster-slurm/report.json")
"""What the role knows: doctor's words, the name of the host, the user of the collection's jobs."""

STATE = Path("/var/lib/gpucluster-slurm/report")
"""What report.yml and the roles validate and accept have left, and the use of whole days."""

BACKUP = Path("/var/lib/gpucluster-slurm/backup/status.json")
"""The record of the last backup, by role backup."""

MAINTENANCE = Path("/var/lib/gpucluster-slurm/maintenance.json")
"""The message of the playbook maintenance, and its reservation."""

GPU_HOURS = "/usr/local/sbin/slurm-gpu-hours"
"""A program of role slurm_metrics, on controllers."""

DEADLINE = 120
"""Seconds for all commands together. The timer starts a run each 5 minutes."""

PATIENCE = 60
"""Seconds for one command."""

DAYS = 30
"""Whole days of the use."""

KEPT_SECONDS = 3600
"""How long the use is kept. slurmdbd sums up once an hour, and the days are whole ones."""

PARTS = (
    *("cluster", "release", "private", "controllers", "nodes", "drains", "jobs", "maintenance", "usage"),
    *("hosts", "versions", "updates", "backup", "validation", "acceptance"),
)
"""The keys of the data that can be null, apart from the alerts, which need a Prometheus."""

OF_SLURMCTLD = PARTS[:8]

MOST_BYTES = 8 * 2**20
"""Of Prometheus' answer about alerts."""

RUNS = 50
"""Runs of accept.yml, the newest ones."""

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "SLURM_TIME_FORMAT": "%s",
    # squeue shortens lists of array tasks without it.
    "SLURM_BITSTR_LEN": "0",
}
"""The environment of all commands. Variables such as SQUEUE_STATES would change their output."""

Row = dict[str, Any]


class CollectError(Exception):
    """Why a part could not be had, in one line."""


# -- commands --------------------------------------------------------------------------------------------------------


class Commands:
    """Runs commands, all of them until one deadline."""

    def __init__(self, seconds: float = DEADLINE) -> None:
        self._deadline = time.monotonic() + seconds

    def run(self, *command: str) -> str:
        """The output of a command.

        Raises:
            CollectError: it failed or did not end in time.
        """
        seconds = max(0.0, min(PATIENCE, self._deadline - time.monotonic()))
        try:
            # Its own process group, so that its children end as well.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
                start_new_session=True,
            )
        except OSError as error:
            raise CollectError(f"{command[0]}: {error.strerror}") from error
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            raise CollectError(f"{command[0]} gave no answer in {seconds:.0f} s") from None
        if process.returncode:
            reason = errors.decode(errors="replace").strip().split("\n")[-1]
            raise CollectError(f"{command[0]} ended with {process.returncode}: {reason[:300]}")
        return output.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a command. The kernel may not be able to end one that waits for a file server, so nobody waits for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=1)


# -- values ----------------------------------------------------------------------------------------------------------


def read_integer(text: str) -> int:
    """A number; 0 for N/A."""
    return int(text) if text.isdecimal() else 0


def read_time(text: str) -> str | None:
    """Seconds since the epoch as ISO 8601 with the offset of this host; None for N/A, Unknown and 0."""
    return show_time(int(text)) if text.isdecimal() and int(text) else None


def show_time(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 with the offset of this host."""
    return datetime.fromtimestamp(int(seconds)).astimezone().isoformat()


def read_limit(text: str) -> int | None:
    """Seconds of a time limit such as 1-02:03:04 or 30:00; None for UNLIMITED and others without a number."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def read_fields(line: str) -> dict[str, str]:
    """The fields NAME=VALUE of a line of scontrol. Persons write texts behind the others, which may look like them."""
    fields: dict[str, str] = {}
    for name, value in re.findall(r"(?:^| )(\w+)=(\S*)", line):
        fields.setdefault(name, "" if value == "(null)" else value)
    return fields


def listed(text: str) -> list[str]:
    """The entries of a list with commas."""
    return [entry for entry in text.split(",") if entry]


GPUS = re.compile(
    r"(?:^|,)(?:gres[:/])?gpu(?::(?!\d+(?:[,=(]|$))(\(null\)|[^:=,()]+))?(?::no_consume)?[:=](\d+)(?:\([^)]*\))?(?=,|$)"
)
"""Type and number of GPUs in GRES (`gpu:h100:8(S:0-1)`, `gres:gpu:2`) and TRES (`gres/gpu:h100=8`, `gres/gpu=8`)."""


def read_gpus(text: str) -> Counter[str]:
    """The numbers of GPUs by type; the type is empty where Slurm does not say it."""
    found: Counter[str] = Counter()
    for kind, number in GPUS.findall(text):
        found["" if kind == "(null)" else kind] += int(number)
    return found


SHARES = re.compile(
    r"(?:^|,)(?:gres[:/])?(shard|mps)(?::(?!\d+(?:[,=(]|$))(\(null\)|[^:=,()]+))?(?::no_consume)?[:=](\d+)"
    r"(?:\(([^)]*)\))?(?=,|$)"
)
"""Kind, type and number of shares of GPUs, and which GPUs they are of: `shard:h100:3(1/2,2/2,0/2)`, before Slurm 24.05
`shard:h100:2(IDX:0-1)`, and in TRES `gres/shard=3`."""


def read_shared(text: str) -> Counter[str]:
    """The numbers of GPUs of which jobs have shares, by type, in GresUsed."""
    found: Counter[str] = Counter()
    for _kind, kind, number, detail in SHARES.findall(text):
        used = [share.partition("/")[0] for share in detail.split(",")]
        # Before Slurm 24.05 the number is that of the GPUs.
        gpus = sum(share.isdecimal() and int(share) > 0 for share in used) if "/" in detail else int(number)
        found["" if kind == "(null)" else kind] += gpus
    return found


def fold(names: Iterable[str]) -> str:
    """Host names as a hostlist: names with the same text around their last number are one entry."""
    numbers: dict[tuple[str, str, int], list[int]] = {}
    for name in dict.fromkeys(names):
        match = re.fullmatch(r"(.*?)(\d+)(\D*)", name)
        if match is None:
            numbers[name, "", -1] = []
            continue
        width = len(match[2])
        # 9 and 10 are n[9-10], and 09 and 10 are n[09-10]: without a leading zero the width does not count.
        numbers.setdefault((match[1], match[3], width if match[2].startswith("0") else 0), []).append(int(match[2]))
    return ",".join(_show_range(*key, values) for key, values in numbers.items())


def _show_range(before: str, after: str, width: int, values: list[int]) -> str:
    if width < 0:
        return before
    spans: list[list[int]] = []
    for value in sorted(values):
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    texts = [f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}" for first, last in spans]
    whole = ",".join(texts)
    return f"{before}{whole}{after}" if len(values) == 1 else f"{before}[{whole}]{after}"


# -- slurmctld -------------------------------------------------------------------------------------------------------

CONFIG = ("scontrol", "show", "config")
"""Also says which controllers answer, in its last lines."""

PING = re.compile(r"^Slurmctld\(\w+\) at (\S+) is (UP|DOWN)", re.MULTILINE)


def read_config(text: str) -> dict[str, str]:
    """The parameters in force, by name."""
    found = re.findall(r"^([\w\[\]]+)\s*= (.*)$", text, re.MULTILINE)
    return {name: "" if value == "(null)" else value.strip() for name, value in found}


def read_controllers(config: Mapping[str, str], text: str) -> list[Row]:
    """The controllers, the primary first. The first one that answers serves: clients ask them in this order."""
    names = [value.partition("(")[0] for name, value in config.items() if re.fullmatch(r"SlurmctldHost\[\d+\]", name)]
    said = {name: state == "UP" for name, state in PING.findall(text)}
    rows = [{"name": name, "place": place, "answers": said.get(name, False)} for place, name in enumerate(names)]
    serving = next((row["place"] for row in rows if row["answers"]), None)
    return [{**row, "serves": row["place"] == serving} for row in rows]


NODES = ("scontrol", "--all", "--details", "--oneliner", "show", "nodes")
"""Shows nodes without a partition as well, which sinfo leaves out, and each node once."""

REASON = re.compile(
    r" Reason=(.*?)(?: \[([^\[\]]*)@(\d+)\](?= {8}| (?:Comment|Extra|InstanceId|InstanceType|ReservationName)=|$)|$)"
)
"""The reason of a node; who has set it, and when, if that is known: at its end, since a person's words may look alike.

Behind it are its further lines, after eight blanks, and other fields."""

OUT_OF_SERVICE = {"DOWN", "DRAIN", "FAIL", "ERROR"}


def node_lines(text: str) -> list[str]:
    """The lines of nodes. Reasons can have further lines."""
    return [line for line in text.split("\n") if line.startswith("NodeName=")]


def read_node(line: str) -> Row:
    """A node."""
    fields = read_fields(line)
    used = read_gpus(fields.get("GresUsed", "")) + read_shared(fields.get("GresUsed", ""))
    return {
        "name": fields["NodeName"],
        "state": fields["State"],
        "partitions": listed(fields.get("Partitions", "")),
        "cpus": read_integer(fields["CPUTot"]),
        "cpus_allocated": read_integer(fields["CPUAlloc"]),
        "memory": read_integer(fields["RealMemory"]),
        "memory_allocated": read_integer(fields["AllocMem"]),
        "gpus": [
            {"type": kind, "count": count, "allocated": min(count, used[kind])}
            for kind, count in read_gpus(fields["Gres"]).items()
        ],
        "features": listed(fields.get("ActiveFeatures", "")),
    }


def read_drains(lines: Iterable[str], causes: Mapping[str, Any]) -> list[Row]:
    """The nodes that are drained, failing or down, together where all of it is equal."""
    together: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        fields, reason = read_fields(line), REASON.search(line)
        if {part.rstrip("*$~#!%@^-") for part in fields["State"].split("+")} & OUT_OF_SERVICE:
            text, user, since = (reason[1], reason[2] or "", reason[3] or "") if reason else ("", "", "")
            together.setdefault((fields["State"], since, user, text), []).append(fields["NodeName"])
    return [
        {
            "nodes": fold(names),
            "state": state,
            "since": read_time(since),
            "by": user,
            "reason": text,
            **find_cause(text, user, causes),
        }
        for (state, since, user, text), names in together.items()
    ]


def find_cause(reason: str, user: str, causes: Mapping[str, Any]) -> Row:
    """Doctor's cause, meaning and remedy of a reason; empty texts without doctor's words."""
    found = next((row["cause"] for row in causes.get("reasons", ()) if reason.startswith(row["beginning"])), "")
    by_slurm = not reason or user in causes.get("slurm_users", ())
    name = found or ("unknown" if by_slurm else "person")
    words = causes.get("words", {}).get(name)
    return {"cause": name if words else "", **(words or {"meaning": "", "remedy": ""})}


# -- jobs ------------------------------------------------------------------------------------------------------------

FIELD = "\x1f"
"""Between the fields of a job. No field but the last has it."""

JOB_FIELDS = (
    *("JobArrayID", "ArrayTaskID", "UserName", "Account", "Partition", "State", "Reason", "SubmitTime", "StartTime"),
    *("TimeLimit", "NodeList", "NumCPUs", "PriorityLong", "tres-alloc", "tres-per-job", "tres-per-node"),
    *("tres-per-socket", "tres-per-task", "Name"),
)

WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "EXPEDITING"}
"""States of jobs that have not started."""

LONGEST_ID = 60
"""Characters of an id with its list of array tasks."""


def jobs_command(end: str) -> list[str]:
    """The command for all jobs that have not ended.

    Args:
        end: what is behind each job. A user can give a job any name, so it must be a text that nobody can guess.
    """
    # A width of 0 shows a field as it is.
    fields = [f"{name}:0{FIELD}" for name in JOB_FIELDS[:-1]]
    return ["squeue", "--all", "--noheader", f"--Format={','.join(fields)},{JOB_FIELDS[-1]}:0{end}"]


def read_jobs(text: str, end: str) -> list[Row]:
    """The jobs, from the output of jobs_command."""
    records = (record.removeprefix("\n").split(FIELD, len(JOB_FIELDS) - 1) for record in text.split(end))
    return [read_job(dict(zip(JOB_FIELDS, record))) for record in records if len(record) == len(JOB_FIELDS)]


def read_job(fields: Mapping[str, str]) -> Row:
    """A job, or the tasks of an array that have not started."""
    state, start = fields["State"], read_time(fields["StartTime"])
    waits = state in WAITING
    return {
        "id": shorten_id(fields["JobArrayID"]),
        "array_tasks": count_tasks(fields["ArrayTaskID"]) if waits else 1,
        "user": fields["UserName"],
        "account": fields["Account"].replace("(null)", ""),
        "partition": fields["Partition"],
        "name": fields["Name"],
        "state": state,
        "reason": "" if fields["Reason"] == "None" else fields["Reason"],
        "submit": read_time(fields["SubmitTime"]),
        "start": None if waits else start,
        "expected_start": start if waits else None,
        "time_limit": read_limit(fields["TimeLimit"]),
        "nodes": fields["NodeList"].replace("(null)", ""),
        "cpus": read_integer(fields["NumCPUs"]),
        "gpus": gpus_of_job(fields),
        "shares": shares_of_job(fields),
        "priority": read_integer(fields["PriorityLong"]),
    }


def gpus_of_job(fields: Mapping[str, str]) -> list[Row]:
    """The GPUs of a job. Their type is in tres-alloc only if Slurm accounts for it; the job may have asked for it."""
    if "gres/gpu" not in fields["tres-alloc"]:
        return []
    counted = read_gpus(fields["tres-alloc"])
    whole = max(counted.pop("", 0), sum(counted.values()))
    if not counted:
        asked = {kind for name in JOB_FIELDS if name.startswith("tres-per-") for kind in read_gpus(fields[name])}
        counted[asked.pop() if len(asked) == 1 else ""] = whole
    elif whole > sum(counted.values()):
        counted[""] = whole - sum(counted.values())
    return [{"type": kind, "count": count} for kind, count in counted.items() if count]


def shares_of_job(fields: Mapping[str, str]) -> list[Row]:
    """The shares of GPUs (`shard`, `mps`) of a job: what Slurm accounts for, or else what the job has asked for."""
    nodes = re.search(r"(?:^|,)node=(\d+)", fields["tres-alloc"])
    times = {"tres-per-node": int(nodes[1]) if nodes else 1}
    found: Counter[tuple[str, str]] = Counter()
    for name in ("tres-alloc", "tres-per-job", "tres-per-node"):
        if not found:
            for kind, gpu, number, _detail in SHARES.findall(fields[name]):
                found[kind, gpu] += int(number) * times.get(name, 1)
    # TRES have a sum besides the numbers of types.
    typed = {kind for kind, gpu in found if gpu}
    return [
        {"kind": kind, "type": gpu, "count": count}
        for (kind, gpu), count in found.items()
        if count and (gpu or kind not in typed)
    ]


def shorten_id(text: str) -> str:
    """An id whose list of array tasks ends with `...` if it is long."""
    return text if len(text) <= LONGEST_ID else f"{text[:LONGEST_ID].rpartition(',')[0]},...]"


def count_tasks(text: str) -> int:
    """The number of tasks in a list such as `1-9:2,20%4`; 1 for a job without tasks."""
    count = 0
    for first, last, step in re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text.partition("%")[0]):
        count += (int(last or first) - int(first)) // int(step or 1) + 1
    return max(1, count)


# -- maintenance -----------------------------------------------------------------------------------------------------

RESERVATIONS = ("scontrol", "--oneliner", "show", "reservation")


def read_maintenance(text: str, left: Any = None) -> list[Row]:
    """The reservations with the flag MAINT. Releases before 23.02 have no comments.

    left: the message that the playbook maintenance has left, with the name of its reservation.
    """
    messages = {left["name"]: str(left["message"])} if left else {}
    return [
        {
            "name": fields["ReservationName"],
            "start": read_time(fields["StartTime"]),
            "end": read_time(fields["EndTime"]),
            "nodes": fields.get("Nodes", ""),
            "message": messages.get(fields["ReservationName"]) or line.partition(" Comment=")[2].strip(),
        }
        for line in text.split("\n")
        if line.startswith("ReservationName=")
        for fields in [read_fields(line)]
        if "MAINT" in fields.get("Flags", "").split(",")
    ]


# -- use -------------------------------------------------------------------------------------------------------------

SREPORT = ("sreport", "--noheader", "--parsable2", "-t", "Seconds", "--tres=cpu,gres/gpu", "cluster")
SSHARE = ("sshare", "--all", "--noheader", "--parsable2", "--format=Account,User,FairShare")
HOURS = {"cpu": "cpu_hours", "gres/gpu": "gpu_hours"}
"""Keys of the data by the names of TRES."""


def days_until(today: date) -> list[date]:
    """The whole days before a day."""
    return [today - timedelta(count) for count in range(DAYS, 0, -1)]


def span(first: date, last: date) -> list[str]:
    """Options of sreport for whole days."""
    return [f"Start={first.isoformat()}", f"End={(last + timedelta(1)).isoformat()}"]


def no_hours(has_gpus: bool) -> Row:
    """The hours of nothing."""
    return {"cpu_hours": 0.0, "gpu_hours": 0.0 if has_gpus else None, "idle_gpu_hours": None}


def add_hours(row: Row, tres: str, seconds: str) -> None:
    """Add what sreport says of one TRES."""
    key = HOURS.get(tres)
    if key and row[key] is not None:
        row[key] = round(row[key] + read_integer(seconds) / 3600, 2)


def read_users(text: str, has_gpus: bool) -> dict[tuple[str, str], Row]:
    """The use of each account and user. The sums of accounts have no user."""
    users: dict[tuple[str, str], Row] = {}
    for account, user, tres, seconds in split_rows(text, 4):
        if user:
            add_hours(users.setdefault((account, user), no_hours(has_gpus)), tres, seconds)
    return users


def split_rows(text: str, columns: int) -> Iterator[list[str]]:
    """The rows of a table with `|`, without those that have another number of columns."""
    rows = ([cell.strip() for cell in line.split("|")] for line in text.split("\n"))
    return (row for row in rows if len(row) == columns)


def read_day(text: str, has_gpus: bool) -> Row:
    """The use of one day."""
    row = no_hours(has_gpus)
    for tres, seconds in split_rows(text, 2):
        add_hours(row, tres, seconds)
    return row


def read_fairshares(text: str) -> dict[tuple[str, str], float]:
    """The fairshare of each user of an account."""
    found = {}
    for account, user, share in split_rows(text, 3):
        if user and re.fullmatch(r"\d+\.\d+", share):
            found[account, user] = float(share)
    return found


Idle = dict[tuple[str, ...], float]


def read_idle(text: str) -> Idle:
    """Idle GPU hours by (account, user) and by (day,), from the report of slurm-gpu-hours by account, user and day."""
    found: dict[tuple[str, ...], float] = defaultdict(float)
    for row in json.loads(text)["rows"]:
        for key in ((str(row["account"]), str(row["user"])), (str(row["day"]),)):
            found[key] += float(row["idle_hours"])
    return dict(found)


# -- alerts ----------------------------------------------------------------------------------------------------------


def ask_alerts(prometheus: str) -> Any:
    """What Prometheus says of alerts.

    Raises:
        CollectError: it does not answer.
    """
    # Without the proxies of the environment: it is a host of the cluster.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{prometheus}/api/v1/alerts", timeout=10) as answer:
            return json.loads(answer.read(MOST_BYTES))
    except (OSError, ValueError, HTTPException) as error:
        raise CollectError(f"{prometheus} does not answer: {error}"[:300]) from error


def read_alerts(answer: Any) -> list[Row]:
    """The alerts that fire."""
    return [
        {
            "name": alert["labels"]["alertname"],
            "severity": alert["labels"].get("severity", ""),
            # Go's times have more digits than Python reads.
            "since": re.sub(r"\.\d+", "", alert["activeAt"]),
            "text": alert["annotations"].get("summary") or alert["annotations"].get("description") or "",
        }
        for alert in answer["data"]["alerts"]
        if alert["state"] == "firing"
    ]


# -- files -----------------------------------------------------------------------------------------------------------


def read_json(path: Path) -> Any:
    """The content of a file of JSON; None without one.

    Raises:
        CollectError: it is no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CollectError(f"{path} cannot be read: {error}") from error


def read_backup(status: Any, host: str) -> Row:
    """The last backup of a host, from the record of slurm-backup."""
    succeeded, tried = (int(float(status.get(name, 0))) for name in ("succeeded", "tried"))
    error = str(status.get("error") or "")
    when = tried or succeeded
    return {
        "host": host,
        "finished": show_time(when) if when else None,
        "ok": bool(succeeded) and not error,
        "text": error or ("" if succeeded else "there is no backup yet"),
    }


VALIDATION = ("finished", "ok", "passed", "failed", "waiting")


def read_validation(found: Any) -> Row:
    """What role validate has left."""
    return {key: found[key] for key in VALIDATION}


def newest_runs(*parts: Any) -> list[Row]:
    """The newest runs of accept.yml in several lists. Their times are those of UTC, so the texts have their order."""
    runs = [run for part in parts if isinstance(part, list) for run in part if isinstance(run, dict)]
    found = {str(run.get("finished")): run for run in runs}
    return [found[time] for time in sorted(found, reverse=True)][:RUNS]


def replace(path: Path, text: str) -> None:
    """Replace a file in one step, for root alone."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    new.rename(path)


# -- all together ----------------------------------------------------------------------------------------------------


class Collection:
    """The data, part by part. A part that cannot be had is null, and is named with the reason."""

    def __init__(self, settings: Mapping[str, Any], commands: Commands, now: float) -> None:
        self.settings, self.commands, self.now = settings, commands, now
        self.missing: list[Row] = []
        self.data: Row = {"version": VERSION, "made": show_time(now), "interval": settings.get("interval")}
        self.data |= dict.fromkeys((*PARTS, "alerts"))

    def attempt(self, part: str, make: Callable[[], Any]) -> Any:
        """What a function returns; None if it fails, and the reason is added to `missing`."""
        try:
            return make()
        except CollectError as error:
            self.lack(part, str(error))
        except (LookupError, TypeError, ValueError, AttributeError, OSError) as error:
            self.lack(part, f"an answer was not understood: {type(error).__name__}: {error}"[:300])
        return None

    def lack(self, part: str, why: str) -> None:
        """Note why a part is missing."""
        self.missing.append({"part": part, "why": why})

    def collect(self, hosts: Path | None) -> Row:
        """All of it."""
        config = self.ask_slurmctld()
        if config is not None:
            self.data["usage"] = self.attempt("usage", lambda: self.usage(config))
        prometheus = self.settings.get("prometheus")
        if prometheus:
            self.data["alerts"] = self.attempt("alerts", lambda: read_alerts(ask_alerts(prometheus)))
        self.data["links"] = self.settings.get("links") or []
        self.add_files(hosts)
        return {**self.data, "missing": self.missing}

    def ask_slurmctld(self) -> dict[str, str] | None:
        """What slurmctld says; returns the configuration in force, None if slurmctld does not answer."""
        text = self.attempt(CONFIG[0], lambda: self.commands.run(*CONFIG))
        if text is None:
            why = f"slurmctld does not answer: {self.missing.pop()['why']}"
            for part in (*OF_SLURMCTLD, "usage"):
                self.lack(part, why)
            return None
        config = read_config(text)
        private = config.get("PrivateData", "none")
        self.data |= {
            "cluster": config.get("ClusterName"),
            "release": config.get("SLURM_VERSION"),
            "private": [] if private in ("", "none") else listed(private),
            "controllers": read_controllers(config, text),
        }
        self.add_nodes()
        self.data["jobs"] = self.attempt("jobs", self.jobs)
        run = self.commands.run
        left = self.attempt("maintenance", lambda: read_json(MAINTENANCE))
        self.data["maintenance"] = self.attempt("maintenance", lambda: read_maintenance(run(*RESERVATIONS), left))
        return config

    def add_nodes(self) -> None:
        """The nodes, and those that are out of service."""
        lines = self.attempt("nodes", lambda: node_lines(self.commands.run(*NODES)))
        if lines is None:
            self.lack("drains", self.missing[-1]["why"])
            return
        causes = self.settings.get("causes") or {}
        self.data["nodes"] = self.attempt("nodes", lambda: [read_node(line) for line in lines])
        self.data["drains"] = self.attempt("drains", lambda: read_drains(lines, causes))

    def jobs(self) -> list[Row]:
        """The jobs that have not ended."""
        end = f"\x1e{secrets.token_hex(8)}"
        return read_jobs(self.commands.run(*jobs_command(end)), end)

    def usage(self, config: Mapping[str, str]) -> Row | None:
        """The use of the last whole days, from the file if it was asked a short while ago."""
        if not config.get("AccountingStorageType", "").endswith("slurmdbd"):
            raise CollectError("the cluster has no slurmdbd")
        has_gpus = "gres/gpu" in config.get("AccountingStorageTRES", "")
        knows_idle = has_gpus and Path(GPU_HOURS).exists()
        if has_gpus and not knows_idle:
            self.lack(
                "usage.idle_gpu_hours", "idle GPU hours are known on controllers of a cluster with the key monitoring"
            )
        days = days_until(date.fromtimestamp(self.now))
        keeps, path = bool(self.settings.get("keep")), STATE / "usage.json"
        of = [config.get("ClusterName"), days[-1].isoformat(), has_gpus, knows_idle]
        kept = self.attempt("usage", lambda: read_json(path)) if keeps else None
        if kept and kept.get("of") == of and 0 <= self.now - kept["asked"] < KEPT_SECONDS:
            usage: Row = kept["usage"]
            return usage
        before = len(self.missing)
        usage = self.ask_usage(days, has_gpus, knows_idle)
        if keeps and len(self.missing) == before:
            replace(path, json.dumps({"of": of, "asked": self.now, "usage": usage}))
        return usage

    def ask_usage(self, days: Sequence[date], has_gpus: bool, knows_idle: bool) -> Row:
        """The use of whole days.

        Raises:
            CollectError: sreport does not answer. The rest of it may be missing.
        """
        run = self.commands.run
        table = "format=Accounts,Login,TRESName,Used"
        users = read_users(run(*SREPORT, "AccountUtilizationByUser", *span(days[0], days[-1]), table), has_gpus)
        by_day = {
            day: read_day(run(*SREPORT, "Utilization", *span(day, day), "format=TRESName,Allocated"), has_gpus)
            for day in days
        }
        shares = self.attempt("usage.fairshare", lambda: read_fairshares(run(*SSHARE))) or {}
        idle = self.attempt("usage.idle_gpu_hours", lambda: self.ask_idle(days)) if knows_idle else None
        return {
            "since": midnight(days[0]),
            "until": midnight(days[-1] + timedelta(1)),
            "days": [
                {"day": day.isoformat(), **with_idle(row, idle, (day.isoformat(),))} for day, row in by_day.items()
            ],
            "users": [
                {"account": key[0], "user": key[1], **with_idle(row, idle, key), "fairshare": shares.get(key)}
                for key, row in sorted(users.items())
                if key[1] != self.settings.get("job_user")
            ],
        }

    def ask_idle(self, days: Sequence[date]) -> Idle:
        """Idle GPU hours.

        Raises:
            CollectError: Prometheus or slurmdbd does not answer.
        """
        options = [f"--from={days[0].isoformat()}", f"--to={days[-1].isoformat()}", "--by=account,user,day", "--json"]
        return read_idle(self.commands.run(GPU_HOURS, "report", *options))

    def add_files(self, hosts: Path | None) -> None:
        """What others have left on this host."""
        found = self.attempt("hosts", lambda: read_json(hosts)) if hosts else None
        add_hosts(self.data, found)
        if not found and not any(row["part"] == "hosts" for row in self.missing):
            self.lack("hosts", "the playbook gpucluster.slurm.report has not left its result here")
        self.add_own_backup()
        left = self.attempt("validation", lambda: read_json(STATE / "validation.json"))
        if left is not None:
            self.data["validation"] = self.attempt("validation", lambda: read_validation(left))
        elif not any(row["part"] == "validation" for row in self.missing):
            self.lack("validation", "no run of validate has left its result here")
        runs = self.attempt("acceptance", lambda: (read_json(STATE / "acceptance.json") or {"runs": []})["runs"])
        if runs is not None:
            self.data["acceptance"] = newest_runs(self.data["acceptance"], runs)

    def add_own_backup(self) -> None:
        """The last backup of this host, which is newer than what report.yml has found."""
        name = str(self.settings.get("host") or "")
        status = self.attempt("backup", lambda: read_json(BACKUP))
        own = self.attempt("backup", lambda: read_backup(status, name)) if status is not None else None
        if own:
            others = [row for row in self.data["backup"] or [] if row["host"] != name]
            self.data["backup"] = [*others, own]


OF_HOSTS = ("hosts", "versions", "updates", "backup")
"""The parts of the data that report.yml makes."""


def add_hosts(data: Row, found: Any) -> None:
    """Add what report.yml has found."""
    if isinstance(found, Mapping):
        data.update({key: found[key] for key in (*OF_HOSTS, "validation") if key in found})
        if found.get("acceptance"):
            # Other control hosts know other runs.
            data["acceptance"] = newest_runs(data.get("acceptance"), found["acceptance"])


def with_idle(row: Row, idle: Idle | None, key: tuple[str, ...]) -> Row:
    """Hours with the idle ones, where these are known."""
    return row if idle is None else {**row, "idle_gpu_hours": round(idle.get(key, 0.0), 2)}


def midnight(day: date) -> str:
    """When a day begins here."""
    return show_time(datetime(day.year, day.month, day.day).timestamp())


def collect(settings: Mapping[str, Any], hosts: Path | None = None, commands: Commands | None = None) -> Row:
    """The data.

    Args:
        settings: those of the role: `causes` (doctor's words), `host` (the name of this host in the inventory),
            `job_user` (whose jobs are no work of users, and are left out of their table), `interval` (seconds between
            two pages), `keep` (whether the use is kept in a file), `prometheus` (its address), `links` (for
            administrators).
        hosts: the file that report.yml has left.
        commands: how commands are run.
    """
    return Collection(settings, commands or Commands(), time.time()).collect(hosts)


def read_settings(text: str | None) -> Mapping[str, Any]:
    """The settings, from an argument or from the file of the role; empty without both.

    Raises:
        CollectError: they are no JSON.
    """
    try:
        found = read_json(SETTINGS) if text is None else json.loads(text)
    except ValueError as error:
        raise CollectError(f"--settings: {error}") from error
    return found if isinstance(found, Mapping) else {}


def pack(data: Mapping[str, Any]) -> str:
    """The data as one line of printable characters."""
    return base64.b64encode(gzip.compress(json.dumps(data).encode())).decode()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the data. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="slurm-report collect", description="Print what the page shows, as JSON.")
    parser.add_argument("--hosts", type=Path, metavar="FILE", help="what the playbook report has left")
    parser.add_argument("--settings", metavar="JSON", help=f"in place of {SETTINGS}")
    parser.add_argument("--packed", action="store_true", help="print it packed (gzip and base64), in one line")
    options = parser.parse_args(arguments)
    try:
        data = collect(read_settings(options.settings), options.hosts)
    except CollectError as error:
        print(f"slurm-report: {error}", file=sys.stderr)
        return 1
    print(pack(data) if options.packed else json.dumps(data, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
