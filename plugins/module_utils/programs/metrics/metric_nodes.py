# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The series of slurm-metrics about nodes, from `scontrol show nodes`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...client.drains import ASLEEP, NO_TIMEOUT, beginnings, cause
from ...client.scontrol import Record, reason_of, records
from ...client.slurm_records import gpus, integer, listed, states
from ...health.finding_table import of_drain
from ...language.series import Series

NODES = ("scontrol", "--all", "--future", "--details", "--oneliner", "show", "nodes")
"""Shows nodes without a partition as well, which sinfo leaves out, and each node once."""

BASE_STATES = {
    "FUTURE": "future",
    "DOWN": "down",
    "MIXED": "mixed",
    "ALLOCATED": "alloc",
    "IDLE": "idle",
    "UNKNOWN": "unknown",
}
"""Slurm's name of the series by the state of a node; each node has one of them (`statistics_get_nodes` in
`src/slurmctld/statistics.c`). A drained node without jobs is idle there."""

FLAGS = {
    "COMPLETING": "completing",
    "BLOCKED": "blocked",
    "CLOUD": "cloud",
    "DYNAMIC_FUTURE": "dyn_future",
    "DYNAMIC_NORM": "dyn_normal",
    "EXTERNAL": "external",
    "FAIL": "fail",
    "INVALID_REG": "invalid_reg",
    "MAINTENANCE": "maint",
    "NOT_RESPONDING": "noresp",
    "PLANNED": "planned",
    "POWER_DOWN": "power_down",
    "POWER_UP": "power_up",
    "POWERED_DOWN": "powered_down",
    "REBOOT_ISSUED": "reboot_issued",
    "REBOOT_REQUESTED": "reboot_req",
    "RESERVED": "resv",
}
"""The same by flag. slurm_nodes_powering_up is not written: slurmctld shows the nodes that power down under it."""

PARTITION_NAMES = {"completing": "cg", "noresp": "no_resp", "reboot_req": "reboot_requested"}
"""Slurm has other names for some states in the series of partitions."""

PLANNED_OUTAGES = (("power", ASLEEP), ("reboot", NO_TIMEOUT), ("maintenance", frozenset(("MAINTENANCE",))))
"""Why nobody is to be called for a node, by its states and flags: power saving, a reboot that Slurm has ordered, a
reservation with the flag MAINT. The first reason counts: a node that boots answers nobody, also in a maintenance."""

BOOT_FAILED = beginnings("reboot-timeout")
"""Reasons of nodes that did not come back. Slurm shows the first of them as POWERED_DOWN
(`src/slurmctld/power_save.c`)."""

SHOWN_STATES = (
    ("DRAIN", "drain"),
    ("FAIL", "fail"),
    ("DOWN", "down"),
    ("ALLOCATED", "alloc"),
    ("COMPLETING", "comp"),
    ("MIXED", "mix"),
    ("RESERVED", "resv"),
    ("BLOCKED", ""),
    ("PLANNED", ""),
    ("IDLE", "idle"),
)
"""Names of dashboard 4323 by state or flag, in the order in which sinfo chooses the word that it shows. It has none for
some words."""

SHOWN = ("alloc", "comp", "down", "drain", "err", "fail", "idle", "maint", "mix", "resv")
"""All of them. Prometheus takes none of these from slurmctld (`prometheus.yml.j2`), for which a drained, reserved or
maintained node is idle as well."""


@dataclass(frozen=True)
class MetricNode:
    """A node, as `scontrol show nodes` has it. Memory is in MiB."""

    name: str
    state: str
    flags: frozenset[str]
    partitions: tuple[str, ...]
    cpus: int
    cpus_effective: int
    cpus_alloc: int
    memory: int
    memory_reserved: int
    memory_alloc: int
    memory_free: int
    gpus: int
    gpus_alloc: int
    reason: str
    user: str
    since: int
    """Unix time of the reason; 0 without one."""

    @property
    def draining(self) -> bool:
        """Whether it is drained and has jobs."""
        return "DRAIN" in self.flags and self.state in ("ALLOCATED", "MIXED")

    @property
    def planned_outage(self) -> str:
        """Why nobody is to be called for it; empty if there is no such reason."""
        if self.state == "DOWN" and self.reason.startswith(BOOT_FAILED):
            return ""
        words = {self.state, *self.flags}
        return next((why for why, states in PLANNED_OUTAGES if words & states), "")

    @property
    def shown(self) -> str:
        """The word of sinfo for it, as dashboard 4323 has it: one only (`node_state_string` in
        `src/common/slurm_protocol_defs.c`). Empty for a word that has no series there."""
        words = {self.state, *self.flags}
        if "INVALID_REG" in words:
            return "err"
        if "MAINTENANCE" in words and not words & {"DRAIN", "ALLOCATED", "DOWN", "MIXED"}:
            return "maint"
        if words & {"REBOOT_REQUESTED", "REBOOT_ISSUED"} and not words & {"ALLOCATED", "MIXED"}:
            return ""
        if self.state != "IDLE" or words & {"NOT_RESPONDING", *ASLEEP}:
            words -= {"RESERVED", "BLOCKED", "PLANNED"}
        return next((name for word, name in SHOWN_STATES if word in words), "")

    @property
    def out(self) -> bool:
        """Whether sinfo counts what is free of it as `other`, not as idle."""
        return self.state == "DOWN" or "DRAIN" in self.flags

    @property
    def states(self) -> list[str]:
        """The ends of the names of Slurm's series that count it."""
        names = [BASE_STATES[self.state]] if self.state in BASE_STATES else []
        names += [name for flag, name in FLAGS.items() if flag in self.flags]
        if "DRAIN" in self.flags:
            names += ["draining"] if self.draining else ["drain", "drained"]
        return names


STATES = (*BASE_STATES.values(), *FLAGS.values(), "draining", "drain", "drained")


def read_nodes(text: str) -> list[MetricNode]:
    """The nodes, from the output of NODES."""
    return [_read_node(record) for record in records(text) if "NodeName" in record]


def _read_node(record: Record) -> MetricNode:
    state, *flags = states(record["State"])
    reason = reason_of(record)
    return MetricNode(
        name=record["NodeName"],
        state=state,
        flags=frozenset(flags),
        partitions=tuple(listed(record.get("Partitions", ""))),
        cpus=integer(record["CPUTot"]),
        cpus_effective=integer(record["CPUEfctv"]),
        cpus_alloc=integer(record["CPUAlloc"]),
        memory=integer(record["RealMemory"]),
        memory_reserved=integer(record.get("MemSpecLimit", "")),
        memory_alloc=integer(record["AllocMem"]),
        memory_free=integer(record["FreeMem"]),
        gpus=sum(gpus(record["Gres"]).values()),
        gpus_alloc=sum(gpus(record.get("GresUsed", "")).values()),
        reason=reason.text,
        user=reason.user,
        since=integer(reason.since),
    )


def add_nodes(series: Series, nodes: Sequence[MetricNode]) -> None:
    """Slurm's series of nodes, except those of GPUs and those of SHOWN. Series with `bytes` in their names are in
    MiB."""
    for node in nodes:
        values = {
            "cpus": node.cpus,
            "cpus_alloc": node.cpus_alloc,
            "cpus_effective": node.cpus_effective,
            "cpus_idle": node.cpus_effective - node.cpus_alloc,
            "memory_alloc_bytes": node.memory_alloc,
            "memory_effective_bytes": node.memory - node.memory_reserved,
            "memory_free_bytes": node.memory_free,
            "memory_bytes": node.memory,
        }
        series.add_all("slurm_node_", values, node=node.name)
    series.add("slurm_nodes", len(nodes))
    series.add_all(
        "slurm_nodes_", {state: count for state, count in count_node_states(nodes).items() if state not in SHOWN}
    )


def count_node_states(nodes: Iterable[MetricNode]) -> dict[str, int]:
    counted = Counter(state for node in nodes for state in node.states)
    return {state: counted[state] for state in STATES}


# -- drained nodes ---------------------------------------------------------------------------------------------------


def add_faults(series: Series, nodes: Iterable[MetricNode]) -> None:
    """Our series of drained nodes, of nodes that are down, and of silent ones; and for which nobody is to be called."""
    for node in nodes:
        why, outage = cause(node.reason, node.user), node.planned_outage
        if outage:
            series.add("slurm_node_planned_outage", 1, node=node.name, why=outage)
        if "DRAIN" in node.flags:
            finding = of_drain(node.reason)
            label = {"finding": finding.name} if finding else {}
            series.add("slurm_node_drain_since_seconds", node.since, node=node.name, cause=why, **label)
        if outage in ("power", "reboot"):
            continue  # it is not meant to answer
        if node.state == "DOWN":
            series.add("slurm_node_down", 1, node=node.name, cause=why, reason=node.reason)
        if "NOT_RESPONDING" in node.flags:
            series.add("slurm_node_not_responding", 1, node=node.name)
