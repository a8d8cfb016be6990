# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of a unit."""

from __future__ import annotations

from ..client.commands import run


def read_journal_end(unit: str, lines: int) -> str:
    """The last lines of a unit in the journal, without times; empty if there are none."""
    # On a busy host the reason why a daemon has just ended is not in the journal yet.
    run(["journalctl", "--sync"], seconds=10)
    return run(["journalctl", "--no-pager", "--output=cat", f"--lines={lines}", f"--unit={unit}"]).output
