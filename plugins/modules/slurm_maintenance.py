#!/usr/bin/python

# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a maintenance on a controller, other than its reservation."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_maintenance
short_description: Find the jobs that a maintenance concerns, and mail their users
description:
  - Steps of the playbook C(gpucluster.slurm.maintenance), on a controller. M(gpucluster.slurm.slurm_reservation) makes
    the reservation.
  - Who has got which mail is kept in C(/var/lib/gpucluster-slurm/maintenance.json), so that each user gets one for
    each change.
extends_documentation_fragment: [gpucluster.slurm.changing, gpucluster.slurm.arguments.slurm_maintenance]
"""

EXAMPLES = r"""
- name: Find the jobs that a maintenance concerns
  gpucluster.slurm.slurm_maintenance: {step: look, start: "2026-12-01T08:00", hours: 8}
"""

RETURN = r"""# plugin_utils/results has the types of what internal modules return."""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..module_utils.client.commands import output
from ..module_utils.client.scontrol import show
from ..module_utils.host.files import File, write
from ..module_utils.host.json_files import read_record
from ..module_utils.host.module_run import Params, run_module
from ..module_utils.host.options import option
from ..module_utils.language.formatting import message as one_line
from ..module_utils.language.hostlist import expand
from ..module_utils.maintenance import jobs_in_the_way, mails
from ..module_utils.maintenance.jobs_in_the_way import SHOWN, Concerned, ConcernedJob
from ..module_utils.maintenance.mails import Announcement, Mail, MailRecord
from ..module_utils.maintenance.window import MaintenanceWindow, clock, present, time_of_slurm, wanted_window

if TYPE_CHECKING:
    from ..plugin_utils.results.module_results import (
        MaintenanceJob,
        MaintenanceJobs,
        MaintenanceResult,
        MaintenanceTimes,
    )

RECORD = "/var/lib/gpucluster-slurm/maintenance.json"

MAIL_SECONDS = 60
"""msmtp ends by itself 30 s after the relay has fallen silent."""

FAILURES = 3
"""Mails in a row that fail before no more are tried: the relay is away, and there may be thousands of users."""


def take_step(params: Params, check_mode: bool) -> MaintenanceResult:
    """The module's result. Raises MaintenanceError, CommandError, FileError and OSError."""
    now = int(time.time())
    absent = params["state"] == "absent"
    there = present(show("reservation"))
    window = there if absent else wanted_window(params["start"], params["hours"], now, there)
    found = Concerned() if absent or window is None else concerned_jobs(params["nodes"], window, now)
    begun = bool(window and window.start <= now)
    result: MaintenanceResult = {
        "changed": False,
        "diff": [],
        "window": described(window) if window else {},
        "begun": begun,
        "running": counted(found.running),
        "waiting": counted(found.waiting),
        "table": [] if absent else jobs_in_the_way.report(found, begun),
        "sent": [],
        "unsent": {},
    }
    if params["step"] == "mail":
        post = Post(params, check_mode, now)
        due = post.due(absent, window, found)
        result["sent"], result["unsent"] = post.send(due)
        result["changed"] = bool(result["sent"])
        result["diff"] = [{"before": "", "after": f"mail to {user}\n"} for user in result["sent"]]
    return result


def concerned_jobs(nodes: str, window: MaintenanceWindow, now: int) -> Concerned:
    """The jobs that concern a maintenance of these nodes. Raises CommandError."""
    reserved = None if nodes.upper() == "ALL" else frozenset(expand(nodes))
    partitions = jobs_in_the_way.partitions_of(show("partition"))
    jobs = jobs_in_the_way.jobs_of(output(jobs_in_the_way.SQUEUE))
    return jobs_in_the_way.concerned(jobs, partitions, reserved, window, now)


def described(window: MaintenanceWindow) -> MaintenanceTimes:
    """A window as the module returns it."""
    return {
        "start": window.start,
        "end": window.end,
        "start_time": time_of_slurm(window.start),
        "end_time": time_of_slurm(window.end),
        "start_shown": clock(window.start),
        "end_shown": clock(window.end),
    }


def counted(jobs: Sequence[ConcernedJob]) -> MaintenanceJobs:
    """Jobs as the module returns them."""
    return {"count": len(jobs), "jobs": [returned(job) for job in jobs[:SHOWN]]}


def returned(job: ConcernedJob) -> MaintenanceJob:
    """A job as the module returns it."""
    return {"job": job.job, "user": job.user, "partition": job.partition, "limit": job.limit, "end": job.end}


class Post:
    """The mails of a maintenance, and the record of those that were sent."""

    def __init__(self, params: Params, check_mode: bool, now: int) -> None:
        """Read the record."""
        self.params, self.check_mode, self.now = params, check_mode, now
        self.record = MailRecord.of(read_record(RECORD), now)
        self.digest = ""

    def due(self, absent: bool, window: MaintenanceWindow | None, found: Concerned) -> list[Mail]:
        """The mails to send now; none without a sender."""
        if absent or window is None:
            return mails.endings(self.params["cluster"], self.record, self.now) if self.params["sender"] else []
        nodes, text = self.params["nodes"], self.params["text"]
        announcement = Announcement(self.params["cluster"], window, nodes, text)
        self.digest = announcement.digest
        due = mails.announcements(announcement, found, self.record) if self.params["sender"] else []
        self.record.window, self.record.nodes = window, nodes
        return due

    def send(self, due: Sequence[Mail]) -> tuple[list[str], dict[str, str]]:
        """Send mails and record each, so that a run that is killed repeats one at most.

        Returns the users who have got one, and why others have not.
        """
        sent: list[str] = []
        unsent: dict[str, str] = {}
        in_a_row = 0
        for mail in due:
            to = mails.address(mail.user, self.params["domain"])
            if not to:
                unsent[mail.user] = "this name is no address"
                continue
            error = self._post(mail, to) if in_a_row < FAILURES else f"not tried after {FAILURES} failures"
            in_a_row = in_a_row + 1 if error else 0
            if error:
                unsent[mail.user] = error
                continue
            sent.append(mail.user)
            if self.digest:
                self.record.users[mail.user] = self.digest
            else:
                self.record.users.pop(mail.user, None)
            self._keep()
        if not self.digest and not unsent:
            self.record.users.clear()
            self._keep()
        return sent, unsent

    def _keep(self) -> None:
        """Write the record; remove one without users."""
        if self.check_mode:
            return
        if self.record.users:
            write([File(RECORD, f"{json.dumps(self.record.kept(), indent=1)}\n".encode(), mode=0o600)])
        elif os.path.exists(RECORD):
            os.unlink(RECORD)

    def _post(self, mail: Mail, to: str) -> str:
        """Send one mail; returns why that was not possible."""
        if self.check_mode:
            return ""
        # The recipient is in the mail: no text of a user is an argument of a command.
        command = ["runuser", "-u", self.params["mail_user"], "--", "msmtp", f"--file={self.params['settings']}"]
        command.append("--read-recipients")
        return run_mailer(command, mails.message_of(mail, to, self.params["sender"]))


def run_mailer(command: Sequence[str], mail: bytes) -> str:
    """Run a mailer with a mail as its input; returns its error."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    try:
        # The module's run_command has no limit of time.
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            command, input=mail, env=environment, timeout=MAIL_SECONDS, capture_output=True, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {MAIL_SECONDS} s"
    except OSError as error:
        return f"{command[0]}: {error.strerror or error}"
    message = one_line(done.stderr.decode(errors="replace").strip())
    return (message or f"exit status {done.returncode}") if done.returncode else ""


ARGUMENTS = {
    "step": option(
        "V(look) checks the time against the present reservation, and finds jobs. It changes nothing.\n"
        "V(mail) sends the mails that are due. A mail that could not be sent is due again in the next run.",
        choices=["look", "mail"],
        required=True,
    ),
    "state": option(
        "Whether there is to be a maintenance. With V(absent), V(mail) tells all who have got a mail.",
        choices=["present", "absent"],
        default="present",
    ),
    "hours": option("Its length.", "float", default=0),
    "nodes": option("Its nodes, a hostlist, or V(ALL).", default="ALL"),
    "settings": option("The settings of msmtp(1).", "path", default=""),
    "mail_user": option("The user who may read them, and who sends the mails.", default="root"),
    "start": option("Its start, as the option C(maintenance_start) of the playbook.", default=""),
    "cluster": option("Name of the cluster, for mails.", default=""),
    "text": option("A text of the site in the mails.", default=""),
    "sender": option(
        "The address that mails come from. Without one, none are sent, and users count as not told.", default=""
    ),
    "domain": option("The domain of users' addresses.", default=""),
}


def main() -> None:
    """Run the module."""
    run_module(lambda module: take_step(module.params, module.check_mode), ARGUMENTS)


if __name__ == "__main__":
    main()
