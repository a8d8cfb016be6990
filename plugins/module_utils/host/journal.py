# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of a unit, and why it did not start."""

from __future__ import annotations

from collections.abc import Sequence

from ..client.commands import run
from .applied_state import Unit, units

_REQUIREMENTS = ("Requires", "Requisite", "BindsTo")
"""Properties with the units without which systemd does not start another one (systemd.unit(5))."""


def read_journal_end(unit: str, lines: int) -> str:
    """The last lines of a unit in the journal, without times; empty if there are none."""
    # On a busy host the reason why a daemon has just ended is not in the journal yet.
    run(["journalctl", "--sync"], seconds=10)
    return _read(f"--unit={unit}", lines)


def read_start_failure(unit: str, said: str, lines: int) -> str:
    """The cause in the journal why a unit did not start.

    A unit whose dependency has failed has written nothing. The cause is in the journal of the units behind it.

    Args:
        unit: the unit.
        said: the message of systemctl.
        lines: how many lines of a unit that failed itself.
    """
    own = read_journal_end(unit, lines)
    if "dependency job" not in said:
        return own
    start = unit.removesuffix(".service")
    return "\n".join(_describe(name, found) for name, found in _behind([start], set()).items() if name != start) or own


def _behind(names: Sequence[str], seen: set[str]) -> dict[str, Unit]:
    """Those of the units, and of what they require, that do not run and wait for no other one, by name."""
    seen.update(names)
    behind = dict[str, Unit]()
    properties = ",".join(["Id", "ActiveState", "InvocationID", *_REQUIREMENTS])
    for name, unit in units(run(["systemctl", "show", f"--property={properties}", "--", *names]).output).items():
        if unit.get("ActiveState") != "active":
            required = {
                needed.removesuffix(".service") for key in _REQUIREMENTS for needed in unit.get(key, "").split()
            }
            further = sorted(required - seen)
            behind.update((_behind(further, seen) if further else {}) or {name: unit})
    return behind


def _describe(name: str, unit: Unit) -> str:
    """The state of a unit, and what its processes have written last."""
    state = "has failed" if unit["ActiveState"] == "failed" else f"is {unit['ActiveState']}"
    invocation = unit.get("InvocationID")
    written = invocation and (_read(f"_SYSTEMD_INVOCATION_ID={invocation}", 3) or read_journal_end(name, 1))
    lines = [line for line in (written or "").split("\n") if "dmesg(1)" not in line]
    text = " ".join(" ".join(lines).split())
    return f"{name} {state}: {text}" if text else f"{name} {state}"


def _read(match: str, lines: int) -> str:
    """The last lines of the journal that match."""
    return run(["journalctl", "--no-pager", "--output=cat", f"--lines={lines}", match]).output
