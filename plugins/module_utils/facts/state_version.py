# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The version of what this collection keeps on a host: the names and forms of the files in its directory.

Role base writes it, and each run that changes hosts reads it first. docs/design/new-version.md says when it rises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..hardware.sysfs import Tree
from ..people.messages import host_lines

FILE = "/var/lib/gpucluster-slurm/version"

VERSION = 1
"""The version that this collection writes. It reads this one, and hosts without one, whose files are the same."""

TEXT = f"{VERSION}\n"
"""The content of the file."""


def read(tree: Tree) -> int:
    """The version of a host; 0 without one, as collections before it and a damaged file leave it."""
    found = re.fullmatch("[0-9]{1,9}", tree.text(FILE) or "")
    return int(found[0]) if found else 0


def newer_state_lines(versions: Mapping[str, int], known: int = VERSION) -> list[str]:
    """Why this collection must not touch hosts that a newer one has changed, as lines; nothing if there are none.

    Args:
        versions: the fact `state_version` by host.
        known: the newest version that is known.
    """
    newer = {
        host: [f"found {version}, allowed: up to {known}"] for host, version in versions.items() if version > known
    }
    if not newer:
        return []
    return [
        f"Nothing was changed, because a newer version of this collection has changed hosts of this run ({FILE}):",
        *host_lines(newer),
        "Run that version, or a later one (ansible-galaxy collection list gpucluster.slurm shows the installed ones).",
    ]
