# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that a program of the site starts, stops and asks."""

from __future__ import annotations

from ..client.commands import CommandsUntil
from .machine_orders import IS_OFF, IS_ON, OFF, START, STATE, STOP
from .machine_settings import PASSWORD, PROGRAM, MachineError, MachineSettings

_WORDS = {START: START, STOP: STOP, OFF: STOP}


def environment(settings: MachineSettings) -> dict[str, str]:
    """The variables of the program."""
    return {"MACHINE_USER": settings.user, "MACHINE_PASSWORD_FILE": PASSWORD} if settings.user else {}


class ProgramMachine:
    """The machine of a node."""

    def __init__(self, node: str, commands: CommandsUntil) -> None:
        """commands: they have the variables of the program."""
        self._node = node
        self._commands = commands

    def state(self) -> str:
        """Whether it is on. Raises CollectionError."""
        said = self._commands.output(PROGRAM, STATE, self._node).strip()
        if said not in (IS_ON, IS_OFF):
            raise MachineError(f"{PROGRAM} {STATE}: found {said[:80]!r}, allowed: {IS_ON} or {IS_OFF}")
        return said

    def change(self, order: str) -> None:
        """Carry out an order. Raises CollectionError."""
        self._commands.output(PROGRAM, _WORDS[order], self._node)
