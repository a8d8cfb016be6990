# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages that wait in slurmctld for slurmdbd, and those that it has discarded.

From `src/plugins/accounting_storage/slurmdbd/slurmdbd_agent.c` of 22.05 to 26.05. With MaxDBDMsgs - 1 messages,
slurmctld discards the starts and ends of steps; until 24.05 it then discards the starts of jobs. With MaxDBDMsgs
messages, it discards each new one. With `max_dbd_msg_action=exit` it saves them and ends instead.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from ..client.commands import run
from ..language.formatting import short, visible
from .daemon_facts import LENGTH

DISCARDED = re.compile(
    r"^.*(?:purge [1-9]\d* (?:step|job start) records|agent queue is full \(\d+\), discarding).*$", re.M
)


SECONDS = 60
"""For an answer of sdiag: slurmctld may be busy with its messages."""

PAUSES = (0, *[1] * 9)
"""Seconds before each question: the queue of a busy slurmctld is empty now and then."""


def count_waiting() -> int | None:
    """The messages that wait, the least number of some seconds; None if slurmctld does not tell."""
    waiting = None
    for pause in PAUSES:
        time.sleep(pause)
        now = read_waiting(run(["sdiag"], seconds=SECONDS).output)
        waiting = now if waiting is None else waiting if now is None else min(now, waiting)
        if not waiting:
            break
    return waiting


def read_waiting(sdiag: str) -> int | None:
    """The messages that wait, from the output of sdiag; None if it has no number."""
    found = re.search(r"^DBD Agent queue size:\s*(\d+)\s*$", sdiag, re.MULTILINE)
    return int(found[1]) if found else None


def read_limit(conf: Mapping[str, str]) -> int:
    """MaxDBDMsgs in force; 0 if it is not known. slurmctld shows its own value where slurm.conf has none."""
    value = conf.get("maxdbdmsgs", "")
    return int(value) if value.isdecimal() else 0


def find_discarded(log: str) -> str:
    """The last line of slurmctld's log that tells of discarded messages; empty without one."""
    lines = DISCARDED.findall(log)
    return short(visible(lines[-1]), LENGTH) if lines else ""


def ends_slurmctld(conf: Mapping[str, str]) -> bool:
    """Whether slurmctld ends when MaxDBDMsgs messages wait."""
    return "max_dbd_msg_action=exit" in conf.get("slurmctldparameters", "").lower()
