# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# pylint: disable=ansible-bad-function # a program prints, and runs commands without a module
"""Starts, stops and asks the machine of a node.

usage: slurm-machine state NODE   print on or off
       slurm-machine start NODE   switch it on
       slurm-machine stop NODE    ask its operating system to end
       slurm-machine off NODE     switch it off at once

A node in service, or with jobs, is not stopped.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Sequence

from ..client.commands import CommandsUntil
from ..client.scontrol import node_record
from ..host.json_files import read_settings
from ..host.timeout_call import call_with_timeout
from ..language.errors import CollectionError
from ..machines.ipmi_machine import IpmiMachine
from ..machines.machine_orders import OFF, ORDERS, STATE, STOP, carry_out, refusal
from ..machines.machine_settings import (
    BY_IPMI,
    BY_REDFISH,
    SECONDS,
    SETTINGS,
    MachineError,
    MachineSettings,
    node_name,
    settings_from_json,
)
from ..machines.program_machine import ProgramMachine, environment
from ..machines.redfish_machine import redfish_machine
from ..repair.node_hands import jobs_on_nodes
from ..repair.node_views import node_view


def become(user: str) -> None:
    """Go on as Slurm's user, who may read the password: neither a library nor a program of the site needs root."""
    owner = pwd.getpwnam(user)
    if os.geteuid() == 0 != owner.pw_uid:
        os.setgroups([])
        os.setgid(owner.pw_gid)
        os.setuid(owner.pw_uid)
        os.environ.update(HOME=owner.pw_dir, USER=user, LOGNAME=user)
        os.chdir("/")


def check_quiet(node: str) -> None:
    """Ask slurmctld whether a node may stop. Raises CollectionError with the reason if not."""
    record = node_record(node)
    if not record:
        raise MachineError("found no such node, allowed: a node of Slurm")
    if why := refusal(node_view(record, None, jobs_on_nodes([node])[node].all)):
        raise MachineError(why)


def tell(order: str, settings: MachineSettings, node: str) -> str:
    """Carry out an order; returns the state before it. Raises CollectionError."""
    if settings.by == BY_REDFISH:

        def work() -> str:
            with redfish_machine(settings, node) as machine:
                return carry_out(order, machine)

        # The library's own limits are those of a part of an answer. It also writes warnings, which go nowhere there.
        return str(call_with_timeout(work, SECONDS, (MachineError,)))
    if settings.by == BY_IPMI:
        return carry_out(order, IpmiMachine(settings, node, CommandsUntil(SECONDS)))
    return carry_out(order, ProgramMachine(node, CommandsUntil(SECONDS, environment(settings))))


def main(words: Sequence[str] | None = None) -> int:
    """Do what the arguments say. Returns the exit status."""
    arguments = [*(sys.argv[1:] if words is None else words)]
    if len(arguments) != 2 or arguments[0] not in ORDERS:
        print((__doc__ or "").partition("\n\n")[2].rstrip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    order, node = arguments
    try:
        settings = settings_from_json(read_settings(SETTINGS))
        become(settings.slurm_user)
        node_name(node)
        if order in (STOP, OFF):
            check_quiet(node)
        state = tell(order, settings, node)
    except (CollectionError, OSError, KeyError, ValueError) as error:
        print(f"slurm-machine: {node[:80]}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    if order == STATE:
        print(state)
    return 0
