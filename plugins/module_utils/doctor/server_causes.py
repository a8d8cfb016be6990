# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be wrong with the controllers and the database host, in the form of `causes`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import log_reasons
from .causes import CLOCK, UNMASK, name_masked
from .evidence import NO_FACTS, ClusterEvidence, ServerEvidence

DATABASES = ("mariadb", "mysql")
"""Units of databases; the second is often another name of the first."""

OLDER_FILES = "exec-condition"
"""systemd's Result of a slurmctld whose ExecCondition (role slurmctld) has found older files (systemd.exec(5))."""

MANY_MESSAGES = 5000
"""For a slurmdbd that answers: half of Slurm's least MaxDBDMsgs. It takes 1,000 at a time (slurmdbd_agent.c)."""

NAMED = 10
"""Jobs that are named."""


@dataclass(frozen=True)
class ServerCase:
    """A controller or the database host, with the evidence about it."""

    name: str
    server: ServerEvidence
    cluster: ClusterEvidence
    duties: tuple[str, ...] = ()
    """The daemons that it should run: slurmctld, slurmdbd, database."""

    def last_error(self, unit: str) -> str:
        """Why a daemon does not run, as far as its log says, as `: LINE`; empty without an error."""
        daemon = self.server.daemons.get(unit)
        # The errors of a daemon that was stopped are old.
        log = daemon.log if daemon and (daemon.failed or daemon.runs) else ()
        found = log_reasons.read(log)
        if found:
            return f": {found[1]} ({found[0].means[:-1]})"
        return f": {log[-1]}" if log else ""

    def is_up(self, unit: str) -> bool:
        return unit in self.server.daemons and self.server.daemons[unit].runs

    def is_masked(self, unit: str) -> bool:
        """Whether systemd refuses to start a unit that does not run, which is a cause of its own."""
        return unit in self.server.daemons and self.server.daemons[unit].masked and not self.is_up(unit)

    @property
    def primary(self) -> str:
        """The first controller."""
        return next(iter(self.cluster.controllers), "")


@dataclass(frozen=True)
class ServerCause:
    """A row of the table."""

    name: str
    means: str
    test: Callable[[ServerCase], str]
    remedy: str


def _unreached(case: ServerCase) -> str:
    error = case.server.unreached.strip().split("\n")[0]
    return error if not error or error.startswith(NO_FACTS) else f"the host cannot be reached: {error}"


def _down(unit: str) -> Callable[[ServerCase], str]:
    def test(case: ServerCase) -> str:
        wanted = unit in case.duties and not case.server.unreached and not case.is_masked(unit)
        return f"{unit} does not run{case.last_error(unit)}" if wanted and not case.is_up(unit) else ""

    return test


def _older_files(case: ServerCase) -> str:
    daemon = case.server.daemons.get("slurmctld")
    older = "slurmctld" in case.duties and daemon and not daemon.runs and daemon.result == OLDER_FILES
    return "slurmctld does not start, because its files are older than those in force" if older else ""


def _slurmctld_down(case: ServerCase) -> str:
    return "" if _older_files(case) else _down("slurmctld")(case)


def _database(case: ServerCase) -> str:
    if "database" not in case.duties or case.server.unreached:
        return ""
    there = [unit for unit in DATABASES if unit in case.server.daemons]
    # A database of another origin has another name, or is on another host; then only slurmdbd's log tells.
    if not there or any(case.is_up(unit) for unit in there) or case.is_masked(there[0]):
        return ""
    return f"{there[0]} does not run{case.last_error(there[0])}"


def _silent(case: ServerCase) -> str:
    if "slurmctld" not in case.duties or not case.is_up("slurmctld"):
        return ""
    return "slurmctld runs, but does not answer" if not case.cluster.controllers.get(case.name, True) else ""


def _standby(case: ServerCase) -> str:
    other = case.cluster.serving
    takes = other and case.primary == case.name and other != case.name
    return f"{other} serves in the place of {case.name}" if takes else ""


def _dbd_silent(case: ServerCase) -> str:
    error = case.cluster.slurmdbd_error
    here = "slurmdbd" in case.duties and case.is_up("slurmdbd")
    return f"slurmdbd runs, but does not answer: {error}{case.last_error('slurmdbd')}" if here and error else ""


def _messages_wait(case: ServerCase) -> str:
    cluster = case.cluster
    waiting, limit = cluster.messages_waiting, cluster.messages_limit
    stays = waiting >= MANY_MESSAGES or (waiting and cluster.slurmdbd_error)
    if "slurmdbd" not in case.duties or not stays:
        return ""
    then = "ends" if cluster.full_queue_ends_slurmctld else "discards those of steps, then each new one"
    down = [daemon.down_seconds for name, daemon in case.server.daemons.items() if name in ("slurmdbd", *DATABASES)]
    since = max(down, default=0)
    if limit and waiting >= limit - 1:
        when = f"this is the limit, and slurmctld {then}"
    elif limit and since:
        left = _duration((limit - waiting) * since / waiting)
        when = f"at the rate of the last {_duration(since)}, the limit is reached in {left}; slurmctld then {then}"
    else:
        when = f"at the limit slurmctld {then}"
    return f"{waiting}{f' of at most {limit}' if limit else ''} messages for slurmdbd wait in slurmctld; {when}"


def _duration(seconds: float) -> str:
    return f"{max(seconds / 60, 1):.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.0f} h"


def _messages_discarded(case: ServerCase) -> str:
    line = case.cluster.messages_discarded
    here = line and case.name == case.cluster.serving
    return f"slurmctld has discarded messages for slurmdbd: {line}" if here else ""


def _runaway_jobs(case: ServerCase) -> str:
    jobs = case.cluster.runaway_jobs
    if not jobs or case.name != case.cluster.serving:
        return ""
    shown = ", ".join(jobs[:NAMED]) + (f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else "")
    return f"jobs have no end in the database, and slurmctld does not know them: {shown}"


def _masked(case: ServerCase) -> str:
    has_database = "database" in case.duties and not any(case.is_up(unit) for unit in DATABASES)
    wanted = ["munge", *case.duties, *(DATABASES if has_database else ())]
    return name_masked([unit for unit in wanted if case.is_masked(unit)])


def _ended_reservations(case: ServerCase) -> str:
    found = case.cluster.ended_reservations
    if not found or case.name != case.cluster.serving:
        return ""
    return "jobs are held, since they waited for a reservation that has ended: " + "; ".join(
        f"{name}: {', '.join(jobs[:NAMED])}" for name, jobs in [*found.items()][:NAMED]
    )


def _munged(case: ServerCase) -> str:
    there = "munge" in case.server.daemons and not case.server.unreached and not case.is_masked("munge")
    return f"munged does not run{case.last_error('munge')}" if there and not case.is_up("munge") else ""


def _clock(case: ServerCase) -> str:
    seconds = case.server.clock_offset
    where = "ahead of" if seconds > 0 else "behind"
    return f"the clock is {abs(seconds):.0f} s {where} the control host's" if abs(seconds) >= CLOCK else ""


def _old_keys(case: ServerCase) -> str:
    ages = [f"{name} is {days} days old" for name, days in case.server.old_keys.items()]
    return f"secrets are old: {', '.join(ages)}" if ages else ""


MESSAGES_WAITING = ServerCause(
    "messages-waiting",
    "Messages with accounting records wait in slurmctld, because slurmdbd is away, is slow or cannot write.",
    _messages_wait,
    "Read slurmdbd's log, and start it and its database; slurmctld then sends all of them. Until then do not kill"
    " slurmctld: it saves them only when it is stopped (systemctl stop). MaxDBDMsgs in slurm_conf can be raised"
    " meanwhile; each message takes 16 KiB of its memory.",
)

SERVER_CAUSES = (
    ServerCause(
        "server-unreached",
        "A controller or the database host cannot be reached, or facts about it could not be gathered.",
        _unreached,
        "Check the host and the login (ansible HOST -m ping --become), then run doctor again.",
    ),
    ServerCause(
        "server-full",
        "A file system of the daemons is full.",
        lambda case: "; ".join(case.server.full),
        "Make room in the file system (df, du) before slurmctld or the database loses data.",
    ),
    ServerCause(
        "server-clock",
        "The clock of a server differs from the control host's.",
        _clock,
        "Correct the clocks and their synchronization (timedatectl, chronyc tracking).",
    ),
    ServerCause(
        "server-masked",
        "systemd refuses to start a daemon of a server, since somebody has masked the unit.",
        _masked,
        f"{UNMASK} An upgrade of the database masks slurmdbd until its end: run upgrade.yml again, which unmasks it.",
    ),
    ServerCause(
        "server-munged",
        "munged does not run on a server, so that no daemon there can authenticate.",
        _munged,
        "Start munge and read its log (journalctl -u munge).",
    ),
    ServerCause(
        "database-down",
        "The database does not run.",
        _database,
        "Read its log (journalctl -u mariadb), start it; restore.yml puts back a lost one.",
    ),
    ServerCause(
        "slurmdbd-down",
        "slurmdbd does not run; slurmctld keeps up to MaxDBDMsgs messages with accounting records meanwhile.",
        _down("slurmdbd"),
        "Correct what its log says, then start it (systemctl start slurmdbd).",
    ),
    ServerCause(
        "slurmdbd-silent",
        "slurmdbd runs, but does not answer.",
        _dbd_silent,
        "Check the database, and read slurmdbd's log.",
    ),
    ServerCause(
        "slurmctld-down",
        "slurmctld does not run; jobs go on, none starts, and no node can be asked for its state.",
        _slurmctld_down,
        "Correct what its log says, then start it (systemctl start slurmctld).",
    ),
    ServerCause(
        "slurmctld-older-files",
        "A controller was away while the configuration or the release changed, and does not take control.",
        _older_files,
        "Run site.yml, or upgrade.yml after an upgrade: the controller gets the files in force, and starts.",
    ),
    ServerCause(
        "slurmctld-silent",
        "slurmctld runs, but does not answer.",
        _silent,
        "Read its log; on a busy cluster raise MessageTimeout, otherwise restart it: jobs survive this.",
    ),
    ServerCause(
        "slurmctld-standby",
        "A standby controller serves in the place of the primary.",
        _standby,
        "Run site.yml, which gives the primary the files in force and starts it: it takes control back by itself.",
    ),
    MESSAGES_WAITING,
    ServerCause(
        "messages-discarded",
        "slurmctld has discarded messages, because slurmdbd was away for too long; the database lacks steps and jobs.",
        _messages_discarded,
        "Start slurmdbd; then run sacctmgr show runawayjobs for jobs without an end. Reports have too little usage"
        " since the first such line of slurmctld's log. Raise MaxDBDMsgs if this can happen again.",
    ),
    ServerCause(
        "runaway-jobs",
        "The database has jobs that slurmctld has lost, as in a crash; they use resources in all reports, without end.",
        _runaway_jobs,
        "Run sacctmgr show runawayjobs, compare its list with squeue, and answer y: the jobs end in the database, and"
        " usage is computed again. Do not use --immediate: it ends them without a question.",
    ),
    ServerCause(
        "reservation-ended",
        "Jobs waited for a reservation until its end; Slurm has removed it, and holds them for ever.",
        _ended_reservations,
        "Their users can let them run without it (scontrol release NUMBER), or in another one before that (scontrol"
        " update JobId=NUMBER ReservationName=NAME), or cancel them.",
    ),
    ServerCause(
        "key-age",
        "A secret of the cluster is older than slurm_secret_max_age; whoever has read it once can still use it.",
        _old_keys,
        "Run rotate_keys.yml with -e rotate=, which says before what it touches; jwt for jwt and slurmctld_http, and"
        " the name of the secret for each other one.",
    ),
)
"""Causes before their effects, which go with them."""


def server_causes(case: ServerCase) -> list[tuple[ServerCause, str]]:
    """All that is wrong with a server."""
    return [(cause, text) for cause in SERVER_CAUSES if (text := cause.test(case))]
