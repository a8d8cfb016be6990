# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reservations that have ended while jobs wait for them: such a job never starts.

Slurm removes an ended reservation only when no job has it (`job_resv_check` in src/slurmctld/reservation.c).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from ansible_collections.gpucluster.slurm.plugins.module_utils.client import scontrol
from ansible_collections.gpucluster.slurm.plugins.module_utils.client.slurm_commands import run

SQUEUE = ["squeue", "--all", "--noheader", "--states=PENDING", "--format=%v|%A"]


def find_ended_reservations(now: datetime) -> dict[str, list[str]]:
    """The jobs that wait, by the ended reservation. The jobs are asked for only if there is one."""
    ended = select_ended(scontrol.show("reservation"), now)
    return group_waiting(ended, run(SQUEUE).output) if ended else {}


def select_ended(records: Iterable[scontrol.Record], now: datetime) -> list[str]:
    """The reservations that have ended, by their records."""
    found = []
    for record in records:
        with suppress(ValueError):
            if datetime.fromisoformat(record.get("EndTime", "")) < now:
                found.append(record["ReservationName"])
    return found


def group_waiting(names: Iterable[str], listing: str) -> dict[str, list[str]]:
    """The jobs that wait, by these reservations, from lines of SQUEUE; a job may name several reservations."""
    found: dict[str, list[str]] = {}
    for line in filter(None, listing.split("\n")):
        reservations, _bar, job = line.rpartition("|")
        if {*reservations.split(",")} <= {*names}:
            found.setdefault(reservations, []).append(job)
    return {name: list(dict.fromkeys(jobs)) for name, jobs in found.items()}
