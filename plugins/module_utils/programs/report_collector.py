# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Collects what the page shows, as JSON (docs/design/report.md has its keys).

It asks with a few commands of Slurm, however many nodes and jobs there are. It needs no Jinja2, so that report.yml can
send it to any controller.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import re
import secrets
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any

from ..client import scontrol, slurm_records
from ..client.commands import CommandsUntil
from ..client.scontrol import Record
from ..client.slurm_records import WAITING, integer, listed
from ..host import replacing
from ..language.errors import CollectionError
from .report_pages.report_texts import fold

VERSION = 1
"""Of the form of the data."""

SETTINGS = Path("/etc/gpucluster-slurm/report.json")
"""What the role knows: doctor's words, the name of the host, the user of the collection's jobs."""

STATE = Path("/var/lib/gpucluster-slurm/report")
"""What report.yml and the roles validate and accept have left, and the use of whole days."""

BACKUP = Path("/var/lib/gpucluster-slurm/backup/status.json")
"""The record of the last backup, by role backup."""

MAINTENANCE = Path("/var/lib/gpucluster-slurm/maintenance-message.json")
"""The message of the playbook maintenance, and its reservation."""

GPU_HOURS = "/usr/local/sbin/slurm-gpu-hours"
"""A program of role slurm_metrics, on controllers."""

REPAIR = "/usr/local/sbin/slurm-repair"
"""A program of role slurm_repair, on controllers."""

DEADLINE = 120
"""Seconds for all commands together. The timer starts a run each 5 minutes."""

DAYS = 30
"""Whole days of the use."""

KEPT_SECONDS = 3600
"""How long the use is kept. slurmdbd sums up once an hour, and the days are whole ones."""

PARTS = (
    *("cluster", "release", "private", "controllers", "nodes", "drains", "jobs", "maintenance", "usage"),
    *("hosts", "versions", "updates", "backup", "validation", "acceptance"),
)
"""The keys of the data that can be null, apart from the alerts and the cases, which need a key of the cluster."""

OF_SLURMCTLD = PARTS[:8]

MOST_BYTES = 8 * 2**20
"""Of Prometheus' answer about alerts."""

RUNS = 50
"""Runs of accept.yml, the newest ones."""

Row = dict[str, Any]


class CollectError(CollectionError):
    """Why a part could not be had, in one line."""


# -- values ----------------------------------------------------------------------------------------------------------


def read_time(text: str) -> str | None:
    """Seconds since the epoch as ISO 8601 with the offset of this host; None for N/A, Unknown and 0."""
    return show_time(int(text)) if text.isdecimal() and int(text) else None


def show_time(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 with the offset of this host."""
    return datetime.fromtimestamp(int(seconds)).astimezone().isoformat()


# -- slurmctld -------------------------------------------------------------------------------------------------------

CONFIG = ("scontrol", "show", "config")
"""Also says which controllers answer, in its last lines."""


def read_config(text: str) -> dict[str, str]:
    """The parameters in force, by name."""
    found = re.findall(r"^([\w\[\]]+)\s*= (.*)$", text, re.MULTILINE)
    return {name: "" if value == "(null)" else value.strip() for name, value in found}


def read_controllers(config: Mapping[str, str], text: str) -> list[Row]:
    """The controllers, the primary first. The first one that answers serves: clients ask them in this order."""
    names = [value.partition("(")[0] for name, value in config.items() if re.fullmatch(r"SlurmctldHost\[\d+\]", name)]
    said = scontrol.controllers(text)
    rows = [{"name": name, "place": place, "answers": said.get(name, False)} for place, name in enumerate(names)]
    serving = next((row["place"] for row in rows if row["answers"]), None)
    return [{**row, "serves": row["place"] == serving} for row in rows]


NODES = ("scontrol", "--all", "--details", "--oneliner", "show", "nodes")
"""Shows nodes without a partition as well, which sinfo leaves out, and each node once."""

OUT_OF_SERVICE = {"DOWN", "DRAIN", "FAIL", "ERROR"}


def read_nodes(text: str) -> list[Record]:
    """The records of nodes. Reasons can have further lines."""
    return [record for record in scontrol.records(text) if "NodeName" in record]


def read_node(fields: Record) -> Row:
    """A node."""
    used = slurm_records.gpus(fields.get("GresUsed", "")) + slurm_records.shared(fields.get("GresUsed", ""))
    return {
        "name": fields["NodeName"],
        "state": fields["State"],
        "partitions": listed(fields.get("Partitions", "")),
        "cpus": integer(fields["CPUTot"]),
        "cpus_allocated": integer(fields["CPUAlloc"]),
        "memory": integer(fields["RealMemory"]),
        "memory_allocated": integer(fields["AllocMem"]),
        "gpus": [
            {"type": kind, "count": count, "allocated": min(count, used[kind])}
            for kind, count in slurm_records.gpus(fields["Gres"]).items()
        ],
        "features": listed(fields.get("ActiveFeatures", "")),
    }


def read_drains(nodes: Iterable[Record], causes: Mapping[str, Any]) -> list[Row]:
    """The nodes that are drained, failing or down, together where all of it is equal."""
    together: dict[tuple[str, ...], list[str]] = {}
    for fields in nodes:
        if not OUT_OF_SERVICE.isdisjoint(slurm_records.states(fields["State"])):
            reason = scontrol.reason_of(fields)
            key = (fields["State"], reason.since, reason.user, reason.text)
            together.setdefault(key, []).append(fields["NodeName"])
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

JOB_FIELDS = (
    *("JobArrayID", "ArrayTaskID", "UserName", "Account", "Partition", "State", "Reason", "SubmitTime", "StartTime"),
    *("TimeLimit", "NodeList", "NumCPUs", "PriorityLong", "tres-alloc", "tres-per-job", "tres-per-node"),
    *("tres-per-socket", "tres-per-task", "Name"),
)

LONGEST_ID = 60
"""Characters of an id with its list of array tasks."""


def read_job(fields: Mapping[str, str]) -> Row:
    """A job, or the tasks of an array that have not started."""
    state, start = fields["State"], read_time(fields["StartTime"])
    waits = state in WAITING
    return {
        "id": shorten_id(fields["JobArrayID"]),
        "array_tasks": slurm_records.tasks(fields["ArrayTaskID"]) if waits else 1,
        "user": fields["UserName"],
        "account": fields["Account"].replace("(null)", ""),
        "partition": fields["Partition"],
        "name": fields["Name"],
        "state": state,
        "reason": "" if fields["Reason"] == "None" else fields["Reason"],
        "submit": read_time(fields["SubmitTime"]),
        "start": None if waits else start,
        "expected_start": start if waits else None,
        "time_limit": slurm_records.seconds(fields["TimeLimit"]),
        "nodes": fields["NodeList"].replace("(null)", ""),
        "cpus": integer(fields["NumCPUs"]),
        "gpus": gpus_of_job(fields),
        "shares": shares_of_job(fields),
        "priority": integer(fields["PriorityLong"]),
    }


def gpus_of_job(fields: Mapping[str, str]) -> list[Row]:
    """The GPUs of a job. Their type is in tres-alloc only if Slurm accounts for it; the job may have asked for it."""
    if "gres/gpu" not in fields["tres-alloc"]:
        return []
    counted = slurm_records.gpus(fields["tres-alloc"])
    whole = max(counted.pop("", 0), sum(counted.values()))
    if not counted:
        texts = (fields[name] for name in JOB_FIELDS if name.startswith("tres-per-"))
        asked = {kind for text in texts for kind in slurm_records.gpus(text)}
        counted[asked.pop() if len(asked) == 1 else ""] = whole
    elif whole > sum(counted.values()):
        counted[""] = whole - sum(counted.values())
    return [{"type": kind, "count": count} for kind, count in counted.items() if count]


def shares_of_job(fields: Mapping[str, str]) -> list[Row]:
    """The shares of GPUs (`shard`, `mps`) of a job: what Slurm accounts for, or else what the job has asked for."""
    times = {"tres-per-node": integer(slurm_records.tres(fields["tres-alloc"]).get("node", "")) or 1}
    found: Counter[tuple[str, str]] = Counter()
    for name in ("tres-alloc", "tres-per-job", "tres-per-node"):
        if not found:
            for gres in slurm_records.gres(fields[name]):
                if gres.kind != "gpu":
                    found[gres.kind, gres.type] += gres.number * times.get(name, 1)
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
        for fields in scontrol.records(line)
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
        row[key] = round(row[key] + integer(seconds) / 3600, 2)


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


# -- cases -----------------------------------------------------------------------------------------------------------


def read_cases(text: str) -> list[Row]:
    """The open cases of nodes that fail, from `slurm-repair list --json`."""
    texts = ("node", "state", "finding", "text", "next", "why", "held")
    return [
        {
            "number": int(row["number"]),
            **{key: str(row[key]) for key in texts},
            "opened": show_time(row["opened"]),
            "since": show_time(row["since"]),
        }
        for row in json.loads(text)
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


# -- all together ----------------------------------------------------------------------------------------------------


class Collection:
    """The data, part by part. A part that cannot be had is null, and is named with the reason."""

    def __init__(self, settings: Mapping[str, Any], commands: CommandsUntil, now: float) -> None:
        self.settings, self.commands, self.now = settings, commands, now
        self.missing: list[Row] = []
        self.data: Row = {"version": VERSION, "made": show_time(now), "interval": settings.get("interval")}
        self.data |= dict.fromkeys((*PARTS, "alerts", "cases"))

    def attempt(self, part: str, make: Callable[[], Any]) -> Any:
        """What a function returns; None if it fails, and the reason is added to `missing`."""
        try:
            return make()
        except CollectionError as error:
            self.lack(part, str(error))
        except (LookupError, TypeError, ValueError, AttributeError, OSError) as error:
            self.lack(part, f"an answer was not understood: {type(error).__name__}: {error}"[:300])
        return None

    def lack(self, part: str, why: str) -> None:
        """Record why a part is missing."""
        self.missing.append({"part": part, "why": why})

    def collect(self, hosts: Path | None) -> Row:
        """All of it."""
        config = self.ask_slurmctld()
        if config is not None:
            self.data["usage"] = self.attempt("usage", lambda: self.usage(config))
        prometheus = self.settings.get("prometheus")
        if prometheus:
            self.data["alerts"] = self.attempt("alerts", lambda: read_alerts(ask_alerts(prometheus)))
        if self.settings.get("cases"):
            self.data["cases"] = self.attempt(
                "cases", lambda: read_cases(self.commands.output(REPAIR, "list", "--json"))
            )
        self.data["links"] = self.settings.get("links") or []
        self.add_files(hosts)
        return {**self.data, "missing": self.missing}

    def ask_slurmctld(self) -> dict[str, str] | None:
        """What slurmctld says; returns the configuration in force, None if slurmctld does not answer."""
        text = self.attempt(CONFIG[0], lambda: self.commands.output(*CONFIG))
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
        run = self.commands.output
        left = self.attempt("maintenance", lambda: read_json(MAINTENANCE))
        self.data["maintenance"] = self.attempt("maintenance", lambda: read_maintenance(run(*RESERVATIONS), left))
        return config

    def add_nodes(self) -> None:
        """The nodes, and those that are out of service."""
        nodes = self.attempt("nodes", lambda: read_nodes(self.commands.output(*NODES)))
        if nodes is None:
            self.lack("drains", self.missing[-1]["why"])
            return
        causes = self.settings.get("causes") or {}
        self.data["nodes"] = self.attempt("nodes", lambda: [read_node(node) for node in nodes])
        self.data["drains"] = self.attempt("drains", lambda: read_drains(nodes, causes))

    def jobs(self) -> list[Row]:
        """The jobs that have not ended."""
        end = f"\x1e{secrets.token_hex(8)}"
        text = self.commands.output(*slurm_records.squeue(JOB_FIELDS, end))
        return [read_job(fields) for fields in slurm_records.jobs(text, JOB_FIELDS, end)]

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
            replacing.replace(str(path), json.dumps({"of": of, "asked": self.now, "usage": usage}).encode(), 0o600)
        return usage

    def ask_usage(self, days: Sequence[date], has_gpus: bool, knows_idle: bool) -> Row:
        """The use of whole days.

        Raises:
            CollectError: sreport does not answer. The rest of it may be missing.
        """
        run = self.commands.output
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
        return read_idle(self.commands.output(GPU_HOURS, "report", *options))

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


def collect(settings: Mapping[str, Any], hosts: Path | None = None) -> Row:
    """The data.

    Args:
        settings: those of the role: `causes` (doctor's words), `host` (the name of this host in the inventory),
            `job_user` (whose jobs are no work of users, and are left out of their table), `interval` (seconds between
            two pages), `keep` (whether the use is kept in a file), `prometheus` (its address), `links` (for
            administrators), `cases` (whether this host keeps cases of nodes that fail).
        hosts: the file that report.yml has left.
    """
    return Collection(settings, CommandsUntil(DEADLINE, slurm_records.IN_SECONDS), time.time()).collect(hosts)


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
