# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role maintenance: the options, the reservation, the message at logins, mails and the report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from ...accounting.limits import name_of
from ...cluster.keys import hosts_in
from ...language.errors import CollectionError
from ...language.formatting import limited, short, shown
from ...language.hostlist import expand, fold
from ...language.spelling import nearest
from ...maintenance.mails import nodes_for_people
from ...maintenance.window import NAME, minutes, moment
from ..known import registered
from ..known.host_paths import KEPT_DIR
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.whole_cluster import profile, slurm_user
from ..values.mail import SETTINGS

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import MaintenanceTimes

MESSAGE_FILE = "/etc/update-motd.d/60-gpucluster-maintenance"
"""A script that pam_motd of Debian and Ubuntu runs at each login.

A text in /etc/motd.d would still be shown after the end; the script knows the end, and is silent then by itself.
"""

NOTE_FILE = f"{KEPT_DIR}/maintenance-message.json"
"""The message for the page about the cluster. Slurm 22.05 has no comment of a reservation, and slurmdbd of later
releases writes a comment into its statements of SQL as it is."""

MOST_LINES, MOST_CHARACTERS = 10, 1000
"""The size of a message of the site."""


# -- the options -----------------------------------------------------------------------------------------------------


def ends(host: RunHost) -> bool:
    """Whether this run ends the maintenance."""
    return host.flag("maintenance", "maintenance_end")


def errors(host: RunHost) -> list[str]:
    """The errors in the options that the control host can see."""
    return limited([*_time_errors(host), *_node_errors(host), *_text_errors(host), *_name_errors(host)])


def hours(host: RunHost) -> float:
    """The length, 0 without one."""
    return float(host["maintenance_hours"] or 0)


def _time_errors(host: RunHost) -> Iterator[str]:
    start = str(host["maintenance_start"])
    if ends(host):
        if start or hours(host):
            yield "maintenance_end: found true, together with maintenance_start or maintenance_hours: leave these out"
        return
    if not start:
        more = "; maintenance_end=true ends a maintenance"
        yield f"maintenance_start: missing, allowed: a date and time such as 2026-12-01T08:00{more}"
    if not hours(host):
        yield "maintenance_hours: missing or 0, allowed: a number of hours such as 8 or 0.5"
    try:
        if hours(host):
            minutes(hours(host))
        if start:
            moment(start, timezone.utc)  # a controller knows its zone; here only the form is read
    except CollectionError as error:
        yield str(error)


def all_nodes(host: RunHost) -> list[str]:
    """The names of all nodes of the cluster."""
    return [name for entry in host["slurm_nodes"] for name in expand(str(entry["hosts"]))]


def nodes(host: RunHost) -> str:
    """The nodes as Slurm takes them: a hostlist, or ALL, to which Slurm adds new nodes by itself."""
    given = str(host["maintenance_nodes"])
    if given.upper() == "ALL":
        return "ALL"
    names = {*expand(given)}
    return fold([name for name in all_nodes(host) if name in names])


def _node_errors(host: RunHost) -> Iterator[str]:
    given = str(host["maintenance_nodes"])
    if given.upper() == "ALL":
        return
    known = all_nodes(host)
    try:
        names = expand(given)
    except ValueError as error:
        yield f"maintenance_nodes: found {shown(given)}: {error}"
        return
    if not names:
        yield "maintenance_nodes: found nothing, allowed: ALL or a hostlist such as gpu[01-04]"
    if unknown := [name for name in names if name not in {*known}]:
        near = nearest(unknown[0], known)
        meant = f", did you mean {near!r}?" if near else ""
        yield f"maintenance_nodes: found {short(fold(unknown))}, allowed: ALL or nodes of the cluster{meant}"


def _text_errors(host: RunHost) -> Iterator[str]:
    if lost := host.get("_raw_params"):
        # Ansible cuts `-e NAME=VALUE` at blanks, and keeps the rest as this variable (`load_extra_vars`).
        way_out = "-e '{maintenance_message: TEXT WITH BLANKS}'"
        yield f"-e: found {shown(str(lost))} without a name, since Ansible ends a value at a blank; write {way_out}"
    message = str(host["maintenance_message"])
    lines = message.split("\n")
    if len(lines) > MOST_LINES or len(message) > MOST_CHARACTERS or not all(line.isprintable() for line in lines):
        yield (
            f"maintenance_message: found {shown(message)}, allowed: at most {MOST_LINES} lines with {MOST_CHARACTERS} "
            "printable characters"
        )
    yield from filter(None, map(_user_error, host["maintenance_users"]))


def _user_error(user: Any) -> str:
    """Why this is no name of a user; empty if it is one."""
    try:
        name_of(user)
    except ValueError as error:
        return f"maintenance_users: found {shown(user)}, allowed: {error}"
    return ""


def _name_errors(host: RunHost) -> Iterator[str]:
    for name in host["slurm_controllers"]:
        entries = host.of(name).get("slurm_accounting_reservations") or []
        if any(entry.get("name") == NAME for entry in entries):
            yield f"accounting.reservations: found {NAME}, which playbook maintenance has: give it another name"
            return


# -- the hosts -------------------------------------------------------------------------------------------------------


def controller(host: RunHost) -> str:
    """The first controller that has answered; empty if none has.

    slurmctld need not run on it: scontrol asks the one that serves.
    """
    reached = host.members("slurm_needs_maintenance")
    return next((name for name in host["slurm_controllers"] if name in reached), "")


def is_login(host: RunHost) -> bool:
    """Whether users log in to this host."""
    return host.name in host.members("slurm_login")


# -- what is done ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reservation:
    """Options of the module slurm_reservation."""

    name: str
    state: str
    parameters: dict[str, Any]


def reservation(host: RunHost) -> Reservation:
    """The reservation.

    Slurm lets MAINT overlap every other reservation, those of the cluster file included, in either order
    (`_resv_overlap` in src/slurmctld/reservation.c). IGNORE_JOBS, since running jobs would else have it refused. Start
    and end instead of a length, since Slurm keeps the end if only the start of such a reservation changes.
    """
    if ends(host):
        return Reservation(NAME, "absent", {})
    window = _window(host)
    users = dict.fromkeys(["root", profile(host).job_user, *map(str, host["maintenance_users"])])
    parameters = {
        "StartTime": window["start_time"],
        "EndTime": window["end_time"],
        "Nodes": nodes(host),
        "Users": [*users],
        "Flags": ["MAINT", "IGNORE_JOBS"],
    }
    return Reservation(NAME, "present", parameters)


def is_on_page(host: RunHost) -> bool:
    """Whether the page about the cluster can be made on the host: that of the key `report`, and without it one of the
    controllers."""
    return host.name in host["slurm_controllers"] or host.name == hosts_in(host["slurm_report"])


def message_paths(host: RunHost) -> list[str]:
    """The files with the message; none on a host that has no use for it."""
    return [*([MESSAGE_FILE] if is_login(host) else []), *([NOTE_FILE] if is_on_page(host) else [])]


def message_files(host: RunHost) -> list[HostFile]:
    """The same with their content, for slurm_files."""
    text = json.dumps({"name": NAME, "message": host["maintenance_message"]}) + "\n"
    note: HostFile = {"path": NOTE_FILE, "content": text, "mode": "0600"}
    return [*([message_script(host)] if is_login(host) else []), *([note] if is_on_page(host) else [])]


def message_script(host: RunHost) -> HostFile:
    """The script with the message. Every text in it is quoted for the shell."""
    window = _window(host)
    nodes_shown = nodes_for_people(short(nodes(host), 200))
    lines = str(host["maintenance_message"]).split("\n") if host["maintenance_message"] else []
    content = host.text(
        "maintenance",
        "message.sh.j2",
        start=window["start"],
        end=window["end"],
        cluster=quote(str(host["slurm_cluster_name"])),
        nodes=quote(nodes_shown),
        lines=[quote(line) for line in lines],
    )
    return {"path": MESSAGE_FILE, "content": content, "mode": "0755"}


def sends(host: RunHost) -> bool:
    """Whether users get mails."""
    return bool(host["slurm_mail"]) and host.flag("maintenance", "maintenance_mail")


def mail_options(host: RunHost) -> dict[str, Any]:
    """Options of the module slurm_maintenance for mails."""
    mail = host["slurm_mail"] if sends(host) else {}
    return {
        "cluster": host["slurm_cluster_name"],
        "message": host["maintenance_message"],
        "sender": mail.get("sender", ""),
        "domain": mail.get("domain", ""),
        "settings": SETTINGS,
        "mail_user": slurm_user(host),
    }


# -- the report ------------------------------------------------------------------------------------------------------


def missing(host: RunHost) -> list[str]:
    """Controllers and login hosts on which this run has not done its work."""
    wanted = dict.fromkeys([*host["slurm_controllers"], *host.members("slurm_login")])
    silent = [name for name in host["slurm_controllers"] if name not in host.members("slurm_needs_maintenance")]
    return [
        name for name in wanted if name in silent or (name in host.members("slurm_login") and not _told(host, name))
    ]


def _window(host: RunHost) -> MaintenanceTimes:
    """The time of a maintenance that there is."""
    return cast("MaintenanceTimes", registered.MAINTENANCE_FOUND.of(host)["window"])


def _told(host: RunHost, name: str) -> bool:
    """Whether a login host has the message, or lacks it after the end."""
    done = registered.MAINTENANCE_MESSAGE.seen(host.of(name))
    return bool(done) and not done.get("failed") and not done.get("unreachable")


def state(host: RunHost) -> str:
    """What Slurm has after this run, or would have: `planned`, `active`, `ended`, or `none` if nothing was to end."""
    found = registered.MAINTENANCE_FOUND.of(host)
    if ends(host):
        return "ended" if found["window"] else "none"
    return "active" if found["begun"] else "planned"


def result(host: RunHost) -> dict[str, Any]:
    """What the playbook returns."""
    found, mails = registered.MAINTENANCE_FOUND.of(host), registered.MAINTENANCE_MAILS.seen(host)
    login = [name for name in host.members("slurm_login") if _told(host, name)]
    return {
        "state": state(host),
        "start": _universal(_window(host).get("start")),
        "end": _universal(_window(host).get("end")),
        "nodes": nodes(host),
        "running": found["running"],
        "waiting": found["waiting"],
        "messages": [] if ends(host) else login,
        "sent": mails.get("sent") or [],
        "unsent": mails.get("unsent") or {},
        "missing": missing(host),
    }


def _universal(seconds: int | None) -> str | None:
    """A Unix time in UTC, as a text."""
    return None if seconds is None else f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def report(host: RunHost) -> list[str]:
    """The lines at the end of a run."""
    done = result(host)
    lines = ["This run changes nothing (--check). Without it:"] if host.check_mode else []
    lines += _state_lines(host, done)
    lines += [f"Mails sent: {len(done['sent'])}"] if done["sent"] else []
    if done["unsent"]:
        lines.append(f"Mails not sent: {len(done['unsent'])}; the next run tries again")
        lines += [f"  {line}" for line in limited([f"{user}: {why}" for user, why in done["unsent"].items()])]
    if done["missing"]:
        lines.append(f"Not done on {fold(done['missing'])}, not reached or left out: run the same command again")
    return lines


SILENT = (
    "Alerts from the start to the end: none that these nodes are down, silent, drained or lack a daemon, nor about "
    "their clocks and metrics.",
    "Those about controllers, the database, disks and the hardware of GPUs go on (docs/admin/maintenance.md).",
)
"""What the maintenance silences (the series slurm_node_planned_outage, docs/design/metrics.md)."""


def _state_lines(host: RunHost, done: Mapping[str, Any]) -> list[str]:
    """The lines about the maintenance itself."""
    found = registered.MAINTENANCE_FOUND.of(host)
    window = _window(host)
    if done["state"] == "none":
        return ["Slurm has no reservation of a maintenance."]
    if done["state"] == "ended":
        return [f"The maintenance from {window['start_shown']} to {window['end_shown']} is ended."]
    return [
        f"Maintenance ({done['state']}) of nodes: {nodes_for_people(done['nodes'])}",
        f"  from {window['start_shown']}",
        f"  to   {window['end_shown']}",
        *found["table"],
        *([f"Message at logins: {fold(done['messages'])}"] if done["messages"] else []),
        *(SILENT if host["slurm_monitoring"] else ()),
    ]
