# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What slurm-machine knows of the machines of nodes, as site.yml has left it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..formats.bmc_address import HOST, BmcAddress, parse_address
from ..language.errors import CollectionError

DIRECTORY = "/etc/gpucluster-slurm/machines"
SETTINGS = f"{DIRECTORY}/machines.json"
PASSWORD = f"{DIRECTORY}/password"
CA = f"{DIRECTORY}/ca.pem"
PROGRAM = f"{DIRECTORY}/program"

BY_IPMI, BY_REDFISH, BY_PROGRAM = "ipmi", "redfish", "program"
"""Values of `machines.by`."""

SECONDS = 60.0
"""The time that a machine has for an answer, in all."""

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


class MachineError(CollectionError):
    """Why a machine cannot be started, stopped or asked, in one line."""


@dataclass(frozen=True)
class MachineSettings:
    """The key `machines` as the controllers need it."""

    by: str
    slurm_user: str
    """Who owns the password."""
    address: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Those of single nodes."""
    user: str = ""
    has_ca: bool = False
    verify: bool = True

    def address_of(self, node: str) -> BmcAddress:
        """Where the BMC of a node listens."""
        return parse_address(self.addresses.get(node) or self.address.replace(HOST, node))


def settings_from_json(content: Mapping[str, Any]) -> MachineSettings:
    """The settings in a file. Raises MachineError."""
    try:
        return MachineSettings(**content)
    except TypeError as error:
        raise MachineError(f"{SETTINGS}: {error}; run site.yml") from error


def node_name(text: str) -> str:
    """The name of a node, which becomes part of an address and an argument of a program. Raises MachineError."""
    if not _NODE.fullmatch(text):
        raise MachineError(f"found {text[:80]!r}, allowed: the name of a node")
    return text


def password() -> str:
    """The password with which the controllers log in. Raises MachineError."""
    try:
        return Path(PASSWORD).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise MachineError(f"{PASSWORD}: {getattr(error, 'strerror', '') or 'no text'}") from error
