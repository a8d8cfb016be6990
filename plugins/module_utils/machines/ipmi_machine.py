# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine whose BMC speaks IPMI 2.0, by ipmitool.

Without its option -C, ipmitool uses the best cipher suite that the BMC has. It waits 20 s for a BMC that is silent.
"""

from __future__ import annotations

import re

from ..client.commands import CommandsUntil
from .machine_orders import OFF, START, STOP
from .machine_settings import PASSWORD, MachineError, MachineSettings

PORT = 623

_WORDS = {START: "on", STOP: "soft", OFF: "off"}


class IpmiMachine:
    """The machine of a node."""

    def __init__(self, settings: MachineSettings, node: str, commands: CommandsUntil) -> None:
        address = settings.address_of(node)
        port = str(PORT if address.port is None else address.port)
        # Without -L, ipmitool asks for the rights of an administrator, and power needs those of an operator.
        self._command = ["ipmitool", "-I", "lanplus", "-L", "OPERATOR", "-H", address.name, "-p", port]
        # Other users see the arguments of a command, so the password is in a file.
        self._command += ["-U", settings.user, "-f", PASSWORD, "chassis", "power"]
        self._commands = commands

    def state(self) -> str:
        """Whether it is on. Raises CollectionError."""
        said = self._commands.output(*self._command, "status")
        found = re.search(r"^Chassis Power is (on|off)$", said, re.MULTILINE)
        if not found:
            raise MachineError(f"ipmitool: found {said.strip()[:80]!r}, allowed: Chassis Power is on, or off")
        return found[1]

    def change(self, order: str) -> None:
        """Carry out an order. Raises CollectionError."""
        self._commands.output(*self._command, _WORDS[order])
