# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Slurm's MailProg: makes a mail of the subject and the variables that slurmctld gives, and sends it with msmtp."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from ..client.commands import run

MSMTPRC = "/etc/gpucluster-slurm/mail/msmtprc"

SECONDS = 600
"""Time limit of msmtp, which waits 30 s for each answer of the relay (msmtprc.j2)."""

LINES = {
    "Job": "SLURM_JOB_ID",
    "Name": "SLURM_JOB_NAME",
    "Cluster": "SLURM_CLUSTER_NAME",
    "Partition": "SLURM_JOB_PARTITION",
    "Nodes": "SLURM_JOB_NODELIST",
    "State": "SLURM_JOB_STATE",
    "Exit status": "SLURM_JOB_EXIT_CODE2",
    "Directory": "SLURM_JOB_WORK_DIR",
}
"""The lines of a mail, with the variables of slurmctld (`job_common_env_vars` in src/slurmctld/job_scheduler.c)."""

MARK = "# jobstats\n"
"""A line of msmtp's settings if the users' hosts have jobstats (role job_tools)."""


def one_line(text: str) -> str:
    """A text without controls. A job's name can have any character, and a newline would begin another header."""
    return "".join(character if character.isprintable() else " " for character in text)


def message(subject: str, address: str, sender: str, variables: Mapping[str, str], hint: str = "") -> EmailMessage:
    """The mail. hint: a line at its end."""
    mail = EmailMessage()
    mail["From"] = sender
    mail["To"] = one_line(address)
    mail["Subject"] = one_line(subject)
    mail["Date"] = formatdate()
    mail["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2])
    # No answers of out-of-office programs (RFC 3834).
    mail["Auto-Submitted"] = "auto-generated"
    given = {title: one_line(variables[name]) for title, name in LINES.items() if variables.get(name)}
    text = "".join(f"{title + ':':<13}{value}\n" for title, value in given.items()) or f"{subject}\n"
    mail.set_content(text + hint, cte="quoted-printable")  # not every relay takes 8 bits
    return mail


def hint_in(conf: str, variables: Mapping[str, str]) -> str:
    """How a user sees what a job used that has ended. What its GPUs did is known some minutes later."""
    ended = variables.get("SLURM_JOB_EXIT_CODE2") and variables.get("SLURM_JOB_ID", "").isdigit()
    return f"\nWhat it used: jobstats {variables['SLURM_JOB_ID']}\n" if ended and MARK in conf else ""


def sender_in(conf: str) -> str:
    """The address that msmtp sends from."""
    return next(line.split()[1] for line in conf.split("\n") if line.startswith("from "))


def main() -> int:
    """Send the mail. Returns the exit status of msmtp."""
    if len(sys.argv) != 4 or sys.argv[1] != "-s":
        print("usage: mail -s SUBJECT ADDRESS", file=sys.stderr)
        return 2
    subject, address = sys.argv[2:]
    with open(MSMTPRC, encoding="utf-8") as file:
        conf = file.read()
    hint = hint_in(conf, os.environ)
    mail = message(subject, address, sender_in(conf), os.environ, hint)
    answer = run(["msmtp", f"--file={MSMTPRC}", "--", address], stdin=mail.as_bytes().decode(), seconds=SECONDS)
    print(answer.errors or answer.output, end="", file=sys.stderr)
    return answer.status
