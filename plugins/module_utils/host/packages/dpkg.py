# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of a host, from the answer of dpkg."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

JOURNAL = "/var/lib/dpkg/updates"
"""dpkg's journal: it is empty unless an installation was interrupted (dpkg's source, lib/dpkg/dbmodify.c)."""

QUERY = (
    "dpkg-query",
    "--show",
    "--showformat=${Package} ${db:Status-Status} ${db:Status-Want} ${source:Package} ${Version}\\n",
)
"""Asks for the state of all packages, or of those whose names follow."""

BROKEN_QUERY = ("dpkg-query", "--show", "--showformat=${db:Status-Eflag} ${binary:Package}=${Version}\\n")
"""Asks for the packages that dpkg can only install again."""


@dataclass(frozen=True)
class Package:
    """An installed package."""

    version: str
    source: str
    """The name of its source package."""
    held: bool
    """Whether apt must not change it (`apt-mark hold`)."""


def installed(listing: str) -> dict[str, Package]:
    """The installed packages by name, from the answer to QUERY."""
    rows = (line.split() for line in listing.split("\n"))
    return {
        name: Package(version, source, want == "hold")
        for name, status, want, source, version in (row for row in rows if len(row) == 5)
        if status == "installed"
    }


def unheld(packages: Mapping[str, Package], sources: Collection[str]) -> list[str]:
    """The names of the packages from these source packages that are not held."""
    return sorted(name for name, package in packages.items() if package.source in sources and not package.held)


def broken(listing: str) -> list[str]:
    """The packages that were being unpacked when dpkg was killed, as NAME=VERSION, from the answer to BROKEN_QUERY."""
    rows = (line.split() for line in listing.split("\n"))
    return [row[1] for row in rows if len(row) == 2 and row[0] == "reinstreq"]
