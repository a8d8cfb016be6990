# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reasons of daemons that have ended or do not start, by the lines of their logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class LogReason(NamedTuple):
    """Lines of a log, and what they mean. Those of releases 22.05 to 26.05 differ little."""

    cause: str
    pattern: re.Pattern[str]
    means: str
    remedy: str


def _reason(cause: str, pattern: str, means: str, remedy: str) -> LogReason:
    return LogReason(cause, re.compile(pattern, re.IGNORECASE), means, remedy)


LOG_REASONS = (
    _reason(
        "port-taken",
        r"unable to bind listen port|address already in use|already is listening on the ports",
        "Another process has the daemon's port.",
        "End the process that has the port (ss -ltnp), or give the daemon another port.",
    ),
    _reason(
        "host-name",
        r"unable to determine this slurmd's NodeName|node name.*not found|this host .* not a valid controller",
        "slurm.conf does not have the host's name.",
        "Correct the host name (hostnamectl), or the name in the cluster file.",
    ),
    _reason(
        "cgroup-plugin",
        r"cgroup namespace '\S*' not mounted|cgroup filesystem not mounted|unsupported cgroup version"
        r"|cannot create cgroup context|(?:no|find|load) .*cgroup/v\d|cgroup/v\d\S* .*(?:not|fail)"
        r"|controller \S+ is not enabled|unable to initialize cgroup|cgroup_v\d.*not found",
        "slurmd cannot use cgroups in the way that cgroup.conf says.",
        "Boot the host with the version of cgroups of CgroupPlugin, or set CgroupPlugin=autodetect.",
    ),
    _reason(
        "gres-file",
        r"can't stat gres\.conf file|waiting for gres\.conf file|not a valid character or block device",
        "A device file of gres.conf does not exist on the host.",
        "Load the driver of the device (nvidia-smi), or correct the gres of the machine type.",
    ),
    _reason(
        "plugin",
        r"plug_?stack|spank\S*: .*(?:fail|error|unable)|incompatible slurm plugin|plugin .* version"
        r"|couldn't find the specified plugin|cannot find .*plugin|couldn't load specified plugin",
        "A plugin is missing, or was built for another release of Slurm.",
        "Install the plugin for this release (site.yml, --tags containers,compute).",
    ),
    _reason(
        "state-release",
        r"can ?not recover .*incompatible|incompatible version, got \d+ need",
        "StateSaveLocation has the state of another release of Slurm, which this slurmctld does not read and has not "
        "changed; jobs go on.",
        "Give the host packages of the release that wrote the state, as the other hosts have it, then run site.yml.",
    ),
    _reason(
        "version",
        r"incompatible versions|protocol_version \d+ (?:not|less)|unsupported version|version mismatch",
        "The daemon has a release that the other daemons do not understand.",
        "Upgrade Slurm in the order slurmdbd, slurmctld, slurmd (upgrade.yml).",
    ),
    _reason(
        "disk-full",
        r"no space left on device",
        "A file system is full.",
        "Make room in the file system (df, du).",
    ),
    _reason(
        "slurm-user",
        r"invalid user for slurmuser|running \S+ as something other than user|unable to find user record",
        "The host has no user SlurmUser, or the daemon runs as another user.",
        "Give the host the users of the cluster (site.yml, --tags base).",
    ),
    _reason(
        "munge",
        r"munge encode failed|munge decode failed|failed to (?:access|connect).*munge|auth.munge.*(?:not|fail)",
        "The daemon cannot authenticate, because munged does not run or does not accept credentials.",
        "Start munged, then check its key and the clock.",
    ),
    _reason(
        "no-configuration",
        # Not "getaddrinfo() failed": slurmd resolves its own name as well, before it looks for it in slurm.conf.
        r"could not establish a configuration source|failed to (?:fetch|load) .*config|dns srv lookup failed"
        r"|slurm_set_addr: unable to resolve",
        "The daemon got its configuration from no controller.",
        "Check the network and the name resolution from the host to the controllers; slurmctld must answer.",
    ),
    _reason(
        "configuration",
        r"pars(?:e|ing) error|error parsing|unrecognized key|unable to process configuration|invalid .* in slurm\.conf",
        "The daemon does not accept its configuration.",
        "Correct the configuration (site.yml checks it before it is written).",
    ),
    _reason(
        "state",
        r"cluster ?name mismatch|invalid (?:job|node) data checkpoint|state save.*fail|mkdir\(\S+\): ",
        "slurmctld cannot use its state directory, or finds that of another cluster there.",
        "Check StateSaveLocation: its mount, its owner, and whose state it has; restore.yml puts back a lost one.",
    ),
    _reason(
        "queue-full",
        r"agent queue is full \(\d+\), not continuing",
        "MaxDBDMsgs messages wait for slurmdbd, and max_dbd_msg_action=exit ends slurmctld then.",
        "Start slurmdbd, or raise MaxDBDMsgs, then start slurmctld.",
    ),
    _reason(
        "database-lost",
        r"mysql.*(?:can't connect|connection refused|access denied|gone away|unknown database)|mysql_real_connect",
        "slurmdbd does not reach the database, or the database refuses it.",
        "Start the database and compare the password of slurmdbd.conf (site.yml, --tags database).",
    ),
)
"""The first reason that matches a line is that of the line."""


def read(log: Sequence[str]) -> tuple[LogReason, str] | None:
    """The reason in the newest line that has a known one, and that line. Lines before a fatal one do not count."""
    for line in reversed(log):
        found = next((reason for reason in LOG_REASONS if reason.pattern.search(line)), None)
        if found:
            return found, line
        if "fatal" in line:
            break
    return None
