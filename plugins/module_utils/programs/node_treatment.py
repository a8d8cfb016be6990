# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Mends a node for a case of slurm-repair, as its health check was told to.

usage: slurm-treatment begin WHAT KEY   start a treatment (clean, mount or reset), if it has not begun before
       slurm-treatment run WHAT KEY     carry it out
       slurm-treatment end              start what was stopped, also after a kill, and report

`begin` starts a unit of systemd, of which the other two are the commands.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..client.commands import output, run
from ..client.scontrol import own_node
from ..health.finding_table import CLEAN, MOUNT, RESET
from ..host.json_files import read_record
from ..host.locks import locked
from ..language.errors import CollectionError
from ..repair.node_treatments import (
    NodeTreatmentError,
    TreatmentState,
    check_drained,
    check_no_jobs,
    health_mounts,
    keep_state,
    load_state,
    make_room,
    mount_again,
    reset_gpus,
    stop_units,
)
from ..repair.report_transport import PROGRAM

SETTINGS = "/etc/gpucluster-slurm/health.json"
HEALTH = "/usr/local/sbin/slurm-health"
UNIT = "slurm-treatment"
SLURMD = "slurmd.service"
LOCK_SECONDS = 60.0
"""How long a run of the health check is waited for."""
HEALTH_SECONDS = 120.0


def begin(what: str, key: str) -> int:
    """Start a treatment, if it has not begun before, nor another one runs."""
    former = load_state()
    if former and (former.key == key or not former.is_over):
        return 0
    ends = [
        f"--property=ExecStopPost={PROGRAM} end",
        "--property=TimeoutStopSec=10min",
        "--property=RuntimeMaxSec=20min",
    ]
    output(["systemd-run", f"--unit={UNIT}", "--collect", "--quiet", *ends, PROGRAM, "run", what, key])
    return 0


def carry_out(what: str, key: str) -> int:
    """Carry a treatment out. What becomes of it is in STATE."""
    if what not in TREATMENTS:
        raise NodeTreatmentError(f"found {what}, allowed: {', '.join(TREATMENTS)}")
    if (former := load_state()) and former.key == key:
        return 0
    keep_state(TreatmentState(key))
    try:
        # A health check that asks the driver would hinder a reset.
        with locked("health", LOCK_SECONDS):
            treat(what, int(key.partition("-")[0]))
        error = ""
    except (CollectionError, OSError, ValueError) as failure:
        error = str(failure)
        print(error, file=sys.stderr)
    keep_state(replace(load_state() or TreatmentState(key), error=error))
    return 1 if error else 0


def treat(what: str, number: int) -> None:
    """Carry out a treatment for a case, if the node is free. Raises CollectionError."""
    check_drained(own_node(), number)
    check_no_jobs()
    stop_units([SLURMD], will_stop)
    # Without slurmd, scontrol has no configuration.
    check_no_jobs()
    TREATMENTS[what]()


def will_stop(unit: str) -> None:
    """Note a unit that is about to be stopped."""
    if state := load_state():
        keep_state(replace(state, stopped=(*state.stopped, unit)))


def end() -> int:
    """Start what was stopped, and let the health check report."""
    state = load_state()
    if not state or state.is_over:
        return 0
    # slurmd comes last, since it may ask the driver.
    errors = [
        answer.message for unit in reversed(state.stopped) if (answer := run(["systemctl", "start", unit])).status
    ]
    if errors:
        print(*errors, sep="\n", file=sys.stderr)
    keep_state(replace(state, is_over=True, error=state.error or "; ".join(errors)))
    run([HEALTH], seconds=HEALTH_SECONDS)
    return 0


def mount() -> None:
    """Mount the file systems again that the health check sees."""
    mount_again(health_mounts(read_record(SETTINGS).get("environment", {})))


TREATMENTS: Mapping[str, Callable[[], None]] = {
    CLEAN: make_room,
    MOUNT: mount,
    RESET: lambda: reset_gpus(will_stop),
}

COMMANDS: Mapping[str, tuple[int, Callable[..., int]]] = {"begin": (2, begin), "run": (2, carry_out), "end": (0, end)}
"""The number of arguments of each command, and what does it."""


def main(words: Sequence[str] | None = None) -> int:
    """Do what the arguments say. Returns the exit status."""
    os.umask(0o077)
    name, *arguments = [*(sys.argv[1:] if words is None else words)] or [""]
    count, command = COMMANDS.get(name, (-1, lambda: 2))
    if count != len(arguments):
        print((__doc__ or "").partition("\n\n")[2].rstrip())
        return 0 if name in ("-h", "--help") else 2
    try:
        return command(*arguments)
    except (CollectionError, OSError) as error:
        print(f"slurm-treatment: {error}", file=sys.stderr)
        return 1
