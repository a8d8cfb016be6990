# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start a second slurmctld for a moment, to find out whether it starts with new files.

Slurm has no test of its own: its parser does not check whether plugins, partitions and nodes agree with each other.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence

from ..configuration.conf_file import lines, table_of, value_text
from ..host.files import write_new
from ..language.errors import CollectionError

# Seconds in which slurmctld starts or refuses the files.
TIMEOUT = 60
# Settings that a second slurmctld must not have: accounting, state and logs of the first one, programs that it would
# run.
LEFT_OUT = {
    "accountingstorageenforce",
    "accountingstoragetres",
    "accountingstoragetype",
    "allowqos",  # without accounting there are no QOS, and slurmctld 26.05 ends where a partition names one
    "authalttypes",  # with a plugin and a key that the run installs after the plan
    "denyqos",
    "epilogslurmctld",
    "jobcomptype",
    "mailprog",
    "metricsauthusers",  # likewise
    "priorityflags",  # slurmctld 24.11 dies of NO_FAIR_TREE without accounting
    "prologslurmctld",
    "qos",
    "rebootprogram",
    "resumefailprogram",
    "resumeprogram",
    "slurmctldhttpauthparameters",  # likewise
    "slurmctldlogfile",
    "slurmctldparameters",
    "slurmctldpidfile",
    "slurmctldport",
    "slurmctldprimaryoffprog",
    "slurmctldprimaryonprog",
    "slurmctldsyslogdebug",
    "statesavelocation",
    "suspendprogram",
    "suspendtime",
    "tresbillingweights",  # without accountingstoragetres no GPU is tracked, and slurmctld ends where one has a weight
}

# slurmctld's messages when it serves, and when it waits for a missing file, for a minute, before it exits.
STARTED = "Running as primary controller"
WAITING = "cannot stat file"
# The time, or the name of the daemon, with which each line begins.
PREFIX = re.compile(r"^\[[^\]]*\] |^slurmctld: ")
# Its errors because it has no accounting and no state.
OWN_ERRORS = re.compile(r"used with SlurmDBD|information gathered, but not stored|state file|state save file")


def short_name(host: str) -> str:
    """The name of a host without its domain; of SlurmctldHost also without the address."""
    return host.partition("(")[0].partition(".")[0]


class TrialError(CollectionError):
    """The message of a slurmctld that did not start."""


STATE = "gpucluster-trial-state"
PID_FILE = "gpucluster-trial-pid"
"""Names that a site's own files in the directory of slurm.conf do not have."""


def trial_conf(text: str, directory: str) -> str:
    """slurm.conf for a second slurmctld, which must not reach any node: it knows no jobs, so it could end all of them.

    It is the only controller. As the second one it would wait for the first.
    """
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    result = [
        f"StateSaveLocation={directory}/{STATE}",
        f"SlurmctldPidFile={directory}/{PID_FILE}",
        f"SlurmctldPort={port}",
        "MailProg=/bin/true",
    ]
    host = short_name(socket.gethostname())
    all_lines = [*lines("slurm.conf", text)]
    alone = any(_is_controller(pair, host) for pairs in all_lines for pair in pairs)
    for pairs in all_lines:
        if alone and pairs[0][0].lower() == "slurmctldhost" and not _is_controller(pairs[0], host):
            continue
        kept = [pair for pair in pairs if pair[0].lower() not in LEFT_OUT]
        if table_of("slurm.conf", pairs) == "NodeName":
            kept = [pair for pair in kept if pair[0].lower() not in ("nodeaddr", "nodehostname", "port", "bcastaddr")]
            kept += [("NodeAddr", "127.0.0.1"), ("Port", "1")]
        result.append(" ".join(f"{key}={value_text(value)}" for key, value in kept))
    return "\n".join(result) + "\n"


def _is_controller(pair: tuple[str, str], host: str) -> bool:
    """Whether a pair of slurm.conf names a host as a controller."""
    return pair[0].lower() == "slurmctldhost" and short_name(pair[1]) == host


def start_on_trial(directory: str, user: str) -> None:
    """Start a second slurmctld with the files, until it runs or refuses them.

    Raises: TrialError: it refuses them; with its message.
    """
    path = os.path.join(directory, "slurm.conf")
    with open(path, encoding="utf-8") as file:
        text = trial_conf(file.read(), directory)
    write_new(path, text.encode(), 0o644)
    os.mkdir(os.path.join(directory, STATE), mode=0o700)
    shutil.chown(os.path.join(directory, STATE), user, user)
    shutil.chown(directory, user, user)
    command = ["timeout", "--signal=KILL", str(TIMEOUT), "slurmctld", "-D", "-c", "-f", path]
    said: list[str] = []
    with subprocess.Popen(  # pylint: disable=ansible-bad-function
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            for line in process.stdout or ():
                if STARTED in line:
                    return
                said.append(PREFIX.sub("", line.strip()).replace(f"{directory}/", ""))
                if WAITING in line:
                    break
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    raise TrialError(f"slurmctld does not start with these files: {cause(said)}")


def cause(said: Sequence[str]) -> str:
    """The errors that ended slurmctld, or its last lines, if none is an error."""
    return errors_in(said) or "; ".join(said[-3:])


def errors_in(log: Sequence[str]) -> str:
    """The line of a log that ended a daemon, and the errors next before it; empty if none is an error.

    The line that ends it begins with `fatal` (`src/common/log.c`).
    """
    lines = [PREFIX.sub("", line) for line in reversed(log)]
    errors = [line for line in lines if re.match("fatal|error", line) and not OWN_ERRORS.search(line)]
    errors.sort(key=lambda line: not line.startswith("fatal"))
    return "; ".join(errors[:4])
