# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of the management controllers of machines (BMC): a name or an IP address, and perhaps a port."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import NamedTuple

HOST = "{host}"
"""In an address, it becomes the name of the node."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PARTS = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::([0-9]{1,5}))?")


class BmcAddress(NamedTuple):
    """Where a BMC listens."""

    name: str
    """A name or an IP address, without brackets."""
    port: int | None = None

    @property
    def in_url(self) -> str:
        """The address as a URL has it."""
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{name}:{self.port}" if self.port is not None else name


def parse_address(text: str) -> BmcAddress:
    """The parts of an address. With a port, an IPv6 address has brackets. Raises ValueError."""
    if text.count(":") > 1 and not text.startswith("["):
        return BmcAddress(_ip6(text))
    found = _PARTS.fullmatch(text)
    port = int(found[3]) if found and found[3] else None
    if not found or port == 0 or (port or 0) > 65535:
        raise ValueError(f"{text!r} is no address")
    if found[1] is not None:
        return BmcAddress(_ip6(found[1]), port)
    if not _NAME.fullmatch(found[2]):
        raise ValueError(f"{text!r} is no address")
    return BmcAddress(found[2], port)


def _ip6(text: str) -> str:
    try:
        IPv6Address(text)
    except AddressValueError as error:
        raise ValueError(f"{text!r} is no address") from error
    return text
