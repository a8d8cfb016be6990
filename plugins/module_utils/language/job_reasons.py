# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a job waits, in plain words. Slurm has the reasons in `src/common/job_state_reason.c`."""

from __future__ import annotations

import re

REASONS = {
    "None": "Slurm has not tried to start it yet",
    "Priority": "jobs with a higher priority come first",
    "Resources": "it is next, and waits for free resources",
    "Nodes": "its nodes are down, drained or kept for a higher partition",
    "ReqNodeNotAvail": "nodes that it could use are down, drained or reserved",
    "Dependency": "it waits for another job",
    "DependencyNeverSatisfied": "it waits for a job that did not end as it demands: it never starts",
    "BeginTime": "its --begin has not come yet",
    "JobHeldUser": "its owner holds it: scontrol release JOB",
    "JobHeldAdmin": "an administrator holds it",
    "JobHoldMaxRequeue": "it was requeued too often, and is held",
    "JobArrayTaskLimit": "as many tasks of its array run as its % allows",
    "Licenses": "all licenses that it wants are in use",
    "BurstBufferOperation": "an operation of its burst buffer failed",
    "BurstBufferResources": "the burst buffer has no room for it",
    "BurstBufferStageIn": "its burst buffer is being filled",
    "Reservation": "its reservation has not begun, or is full",
    **dict.fromkeys(("ReservationDeleted", "ReservationInvalid"), "its reservation is gone"),
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition starts no jobs",
    "PartitionNodeLimit": "it wants more, or fewer, nodes than its partition allows",
    "PartitionTimeLimit": "its --time is longer than its partition allows",
    "PartitionConfig": "its partition does not allow what it wants",
    "BadConstraints": "no nodes are as it demands",
    "Constraints": "no nodes that are up are as it demands",
    "InvalidAccount": "its account does not exist",
    "InvalidQOS": "its QOS does not exist, or is not for its account",
    "AccountNotAllowed": "its partition does not take its account",
    "QOSNotAllowed": "its partition does not take its QOS",
    **dict.fromkeys(("AssociationJobLimit", "AssociationResourceLimit"), "a limit of its account is reached"),
    "AssociationTimeLimit": "a limit of its account for time is reached",
    **dict.fromkeys(("QOSJobLimit", "QOSResourceLimit"), "a limit of its QOS is reached"),
    "QOSTimeLimit": "a limit of its QOS for time is reached",
    "AccountingPolicy": "a limit of accounting is reached",
    "QOSUsageThreshold": "its account has used too much of its share",
    "MaxPoweredUpNodes": "as many nodes are powered up as may be",
    "JobLaunchFailure": "its start failed",
    "NodeDown": "a node that it needs is down",
    "Cleaning": "an earlier run of it is still being cleaned up",
    "Prolog": "the prolog runs on its nodes",
    "SchedDefer": "Slurm starts no job at once that needs so many nodes",
    "NvidiaImexChannels": "all IMEX channels are in use",
    "DeadLine": "it cannot end before its --deadline",
    "MaxMemPerLimit": "it wants more memory than allowed",
}
NOT_PLANNED = 180 * 86400
"""Seconds after which a start is not expected: Slurm takes a job without a time limit to end in a year."""
LIMIT = re.compile(
    r"(Assoc|QOS)?(Grp|Max|Min)(Cpu|CPU|Memory|Mem|Node|GRES|SubmitJobs?|Jobs?|WallDuration|Wall|Billing|License|Energy"
    r"|BB|Unknown)(RunMinutes|RunMins|Minutes)?(Per(?:Job|Node|User|Account))?(?:Limit|NotSatisfied)?"
)
RESOURCES = {
    **dict.fromkeys(("Cpu", "CPU"), ("CPUs", "cpu")),
    **dict.fromkeys(("Mem", "Memory"), ("memory", "mem")),
    **dict.fromkeys(("Job", "Jobs"), ("jobs that run", "Jobs")),
    **dict.fromkeys(("SubmitJob", "SubmitJobs"), ("jobs", "SubmitJobs")),
    **dict.fromkeys(("Wall", "WallDuration"), ("time", "Wall")),
    "Node": ("nodes", "node"),
    "GRES": ("GPUs and other GRES", "gres/"),
    "Billing": ("billing units", "billing"),
    "License": ("licenses", "license/"),
    "Energy": ("energy", "energy"),
    "BB": ("burst buffers", "bb/"),
    "Unknown": ("a resource", ""),
}
"""What a reason's name has for a resource, in words, and how the names of limits and TRES begin."""


def explain(reason: str) -> str:
    """The reason of a job that waits, in plain words; as Slurm says it where there are none."""
    if reason.endswith("May be reserved for other job"):
        return "its nodes are kept for a job with a higher priority"
    if reason.endswith("Reserved for maintenance"):
        return "its nodes are reserved for a maintenance"
    word = re.split(r"[ ,]", reason, maxsplit=1)[0]
    if word in REASONS:
        return REASONS[word]
    found = LIMIT.fullmatch(word)
    if not found:
        return reason
    where, kind, resource, minutes, each = found.groups()
    whose = "its account" if where == "Assoc" else "its QOS"
    what = ("minutes of " if minutes else "") + RESOURCES[resource][0]
    if kind == "Min":
        return f"it wants less than {whose} demands: {what}"
    scope = {"PerUser": " for each user", "PerAccount": " for each account", "PerNode": " on a node"}.get(
        each or "", ""
    )
    return f"a limit of {whose} is reached: {what}{scope}"
