# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The owners of drains: who has taken a node out of service, and why, by the beginning of the node's reason.

Nobody resumes what another one has drained. docs/admin/operations.md has the same table. The health check is a program
of its own on the nodes, and roles have their reasons as variables; a unit test compares them with this module.
"""

from __future__ import annotations

HEALTH = "health check "
ROLLING = "gpucluster.slurm rolling: "
ACCEPT = "gpucluster.slurm accept: "
LEAVING = "gpucluster.slurm remove_nodes: "
RESET = "gpucluster.slurm reset: "
REPAIR = "gpucluster.slurm repair: "
MIG = "gpucluster.slurm: other MIG instances"
DRIVER = "gpucluster.slurm: NVIDIA driver"

MEASURES = "repair-"
"""The reservation in which repair measures a node is named by this and the node, which is in service meanwhile."""

OWNERS = {
    HEALTH: "the health check",
    ROLLING: "rolling",
    ACCEPT: "accept",
    LEAVING: "remove_nodes",
    RESET: "reset",
    REPAIR: "repair",
    MIG: "MIG",
    DRIVER: "the NVIDIA driver",
}
"""Owner by the beginning of the reason."""

APPENDED = " : "
"""Separator before a reason that Slurm appends (`set_node_reason` in `src/slurmctld/node_mgr.c`)."""

REBOOTED = "Node unexpectedly rebooted"
"""Slurm's reason for a node that comes back with another boot time (`validate_node_specs` there)."""

KILL_FAILED = "Kill task failed"
"""Slurm's reason for a node on which a task does not end (`src/slurmd/slurmstepd/step_terminate_monitor.c`)."""

OF_SLURM = (
    "Not responding",
    REBOOTED,
    KILL_FAILED,
    "Prolog error",
    "Prolog/Epilog failure",
    "Epilog error",
    "batch job complete failure",
    "Duplicate jobid",
    "reboot ",
    "Reboot ASAP",
    "ResumeTimeout reached",
    "Reported active features",
    "SlurmdSpoolDir is full",
    "gres/",
    "Low ",
    "Invalid ",
)
"""Beginnings of the reasons that Slurm gives by itself."""

CAUSES = {
    HEALTH: "health-check",
    ROLLING: "rolling",
    ACCEPT: "accept",
    REPAIR: "repair",
    MIG: "mig",
    DRIVER: "driver",
    REBOOTED: "rebooted",
    KILL_FAILED: "kill-task-failed-untracked",
    "Prolog error": "prolog-error",
    "Prolog/Epilog failure": "prolog-error",
    "Epilog error": "epilog-error",
    "batch job complete failure": "batch-failure",
    "Duplicate jobid": "duplicate-jobid",
    "Low ": "refused",
    "gres/": "refused",
    "reboot timed out": "reboot-timeout",
    "ResumeTimeout reached": "reboot-timeout",
    "Reboot ASAP": "reboot-waits",
    "reboot requested": "reboot-waits",
    "reboot issued": "reboot-waits",
    "reboot complete": "reboot-waits",
    "Reported active features": "features",
}
"""doctor's word for the cause by the beginning of the reason, where that tells it."""

ASLEEP = frozenset(("FUTURE", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP"))
"""States of a node that is not meant to answer: it is not built yet, or power saving has it."""

NO_TIMEOUT = frozenset(("REBOOT_ISSUED",))
"""States of a node that does not answer because it boots as it was asked to."""

SLURM = "Slurm"
"""The owner of what slurmctld drains by itself."""

SLURM_USERS = ("slurm",)
"""Users of slurmctld. What it sets by itself has its user; with root, only the reason tells it from a person."""


def owner(reason: str, user: str = "") -> str:
    """Who has drained a node or set it down: an owner of the table, `Slurm`, or `a person`.

    Args:
        reason: the reason, without user and time.
        user: the user who has set it, if known.
    """
    found = next((name for prefix, name in OWNERS.items() if reason.startswith(prefix)), "")
    if found:
        return found
    return SLURM if user in SLURM_USERS or reason.startswith(OF_SLURM) else "a person"


def cause(reason: str, user: str) -> str:
    """doctor's word for the cause of a drain, as far as the reason tells; see `owner`."""
    found = next((word for beginning, word in CAUSES.items() if reason.startswith(beginning)), "")
    return found or ("person" if reason and owner(reason, user) == "a person" else "unknown")


def beginnings(cause: str) -> tuple[str, ...]:
    """The beginnings of reasons that tell a cause."""
    return tuple(beginning for beginning, word in CAUSES.items() if word == cause)


def is_only(prefix: str, reason: str) -> bool:
    """Whether a reason is of this owner, and nobody has appended another one; a reboot is no reason of its own."""
    first, _separator, second = reason.partition(APPENDED)
    return first.startswith(prefix.rstrip()) and second in ("", REBOOTED)
