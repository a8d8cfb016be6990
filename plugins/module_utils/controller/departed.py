# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that have left the cluster, and that nobody has cleaned yet.

A host that is no longer in the cluster file cannot be reached by a run. So the controller keeps the names of all hosts
that it has ever had, until a person confirms that those that left are cleaned.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ansible_collections.gpucluster.slurm.plugins.module_utils.controller.host import text
from ansible_collections.gpucluster.slurm.plugins.module_utils.files import File, write
from ansible_collections.gpucluster.slurm.plugins.module_utils.hostlist import fold


def recorded(path: str) -> list[str]:
    """The names in the file; none if it does not exist."""
    return (text(path) or "").split()


def record(path: str, names: Iterable[str]) -> None:
    """Write the names to the file, a line each. Raises FileError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write([File(path, "".join(f"{name}\n" for name in names).encode())])


def known_hosts(before: Iterable[str], present: Iterable[str], cleaned: Iterable[str]) -> tuple[list[str], list[str]]:
    """The names to keep, and those of them that have left the cluster.

    Args:
        before: hosts that the cluster has had.
        present: hosts that it has.
        cleaned: hosts that a person has cleaned. Those that the cluster has are kept all the same.
    """
    here = dict.fromkeys(present)
    forgotten = {*cleaned}
    gone = [name for name in dict.fromkeys(before) if name not in here and name not in forgotten]
    return [*here, *gone], gone


def remarks(gone: Iterable[str]) -> list[str]:
    """What to do about hosts that have left, in words."""
    names = fold([*gone])
    if not names:
        return []
    return [
        f"{names}: no longer in the cluster, and still with the munge key, and perhaps with a slurmd that runs. Clean "
        "these hosts by hand (docs/admin/operations.md, Hosts that leave), and confirm it with "
        f"-e slurmctld_cleaned_hosts='{names}'"
    ]
