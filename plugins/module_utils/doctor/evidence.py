# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor knows about a cluster: nodes as Slurm shows them, and facts about their hosts and the servers.

The defaults are those of a healthy node on a healthy host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, TypeVar

from ..client import drains
from ..results.fact_records import MANY, Cpus, Gpus, HostName, Line, Mib, Most, Pattern, Port, Text

NOT_IN_INVENTORY = "the inventory has no such host"
"""Why there are no facts about a host that the inventory does not have."""

NO_FACTS = "facts about the host could not be gathered: "
"""Beginning of the reason if the host was reached."""

SILENT = frozenset(("NOT_RESPONDING", "UNKNOWN"))
"""States of a node that does not answer slurmctld."""

SICK = SILENT | {"DOWN", "DRAIN", "FAIL", "FAILING", "INVAL", "INVALID_REG", "ERROR"}
"""States of a node of which somebody should know why."""

KILLED = ("signal", "oom-kill")
"""systemd's results of a daemon that something else has ended."""


@dataclass(frozen=True)
class SlurmNode:
    """A node as slurmctld knows it, and what the controller finds out about it: one of those of slurm_doctor_info."""

    name: HostName
    states: Annotated[tuple[Annotated[str, Pattern("[A-Z_]+")], ...], Most(32)] = ("IDLE",)
    """Its state and the flags of it, as in `scontrol show node`; `*` is NOT_RESPONDING."""
    reason: Text = ""
    user: Line = ""
    """Who has set the reason."""
    since: Line = ""
    address: Line = ""
    """NodeAddr."""
    addresses: Annotated[tuple[Annotated[str, Pattern("[0-9a-f.:%a-z]+", 64)], ...], Most(64)] = ()
    """The IP addresses to which the controller resolves it; none if it cannot."""
    port: Port = 6818
    cpus: Cpus = 1
    real_memory: Mib = 1
    """MiB with which it must register at least."""
    gpus: Gpus = 0
    """GPUs in its Gres, without MIG instances and shards."""
    device_files: tuple[Line, ...] = ()
    """Its device files in gres.conf."""
    closed: Line = ""
    """Why slurmd's port takes no connection from the controller; empty if it does."""
    unanswered: Line = ""
    """Why slurmd gives the controller no answer, although its port takes connections; empty if it does."""
    jobs: Annotated[tuple[Annotated[str, Pattern("[0-9]+")], ...], Most(MANY)] = ()
    """The numbers of the jobs that it runs."""
    log: Annotated[tuple[Line, ...], Most(64)] = ()
    """The last errors about it in slurmctld's log."""

    @property
    def owner(self) -> str:
        """Who has drained the node or has set it down; empty for a node in service."""
        out = {*self.states} & {"DOWN", "DRAIN", "FAIL", "FAILING"}
        return drains.owner(self.reason, self.user) if out and self.reason else "Slurm" if out else ""

    @property
    def own_reason(self) -> str:
        """The first reason, without those that Slurm has appended."""
        return self.reason.partition(drains.APPENDED)[0]

    @property
    def asleep(self) -> bool:
        """Whether nobody expects it to answer."""
        return bool({*self.states} & drains.ASLEEP)

    @property
    def sick(self) -> bool:
        """Whether it is to be examined. A node that boots on demand is not."""
        if self.asleep or {*self.states} & drains.NO_TIMEOUT:
            return False
        return bool({*self.states} & SICK or self.closed or self.unanswered or self.log)


@dataclass(frozen=True)
class DaemonState:
    """A unit of systemd, and the last lines of its daemon's log."""

    active: str = "active"
    """systemd's ActiveState; empty if the host has no such unit."""
    enabled: bool = True
    """Whether it starts at boot."""
    result: str = "success"
    """Why it has ended, as systemd names it, such as oom-kill."""
    log: tuple[str, ...] = ()
    """Its last errors, the newest one last."""
    down_seconds: float = 0
    """For how long it has not run; 0 if it runs, or if nobody knows."""
    masked: bool = False
    """Whether systemd refuses to start it, and so nobody can before it is unmasked."""

    @property
    def runs(self) -> bool:
        return self.active in ("active", "reloading")

    @property
    def failed(self) -> bool:
        """Whether it does not start, or has ended by itself. Its log has the reason then."""
        return not self.runs and (self.active == "activating" or self.result not in ("", "success", *KILLED))

    @property
    def startable(self) -> bool:
        """Whether it starts at boot, and was only stopped or killed."""
        return self.enabled and not self.masked and self.active in ("inactive", "failed") and not self.failed


@dataclass(frozen=True)
class HostEvidence:
    """Facts about a node's host."""

    unreached: str = ""
    """Why it could not be examined: the message of ssh or Ansible. Then nothing else is known."""
    version: str = ""
    """The version of its slurmd."""
    slurmd: DaemonState = DaemonState()
    munge: DaemonState = DaemonState()
    munge_error: str = ""
    """Why its munged does not take a credential of the controller."""
    clock_offset: float = 0
    """Seconds by which its clock is ahead of the control host's, at least."""
    slurm_uid: int | None = None
    """The id of SlurmUser; None if there is no such user."""
    slurm_conf: str = ""
    """Checksum of the slurm.conf that slurmd reads; empty if it has none."""
    cpus: int = 1 << 20
    memory: int = 1 << 40
    """MiB."""
    full: tuple[str, ...] = ()
    """Directories in which nothing can be written, with the reason."""
    unmounted: tuple[str, ...] = ()
    """Mount points of its fstab and of its units on which nothing is mounted."""
    hanging: tuple[str, ...] = ()
    """Mount points that do not answer."""
    missing_files: tuple[str, ...] = ()
    """Device files of gres.conf that are not there."""
    nvidia_error: str = ""
    """The error of nvidia-smi."""
    nvidia_gpus: int | None = None
    """GPUs that nvidia-smi lists; None if it is not installed."""
    xids: tuple[str, ...] = ()
    """Errors of NVIDIA's driver in the kernel's messages."""
    cgroup: str = ""
    """The version of cgroups that the host has: v1 or v2."""
    listens: bool = True
    """Whether a process listens on slurmd's port."""
    addresses: tuple[str, ...] = ()
    """Its own IP addresses."""
    unresolved: tuple[str, ...] = ()
    """Controllers whose names it cannot resolve."""
    closed: Mapping[str, str] = field(default_factory=dict)
    """Why slurmctld's port takes no connection from this host, by controller."""
    left: tuple[str, ...] = ()
    """Processes of jobs that no longer run here."""
    booted: str = ""
    """When it has booted."""


@dataclass(frozen=True)
class ServerEvidence:
    """A controller or the database host."""

    unreached: str = ""
    daemons: Mapping[str, DaemonState] = field(default_factory=dict)
    """The units that the host has, by name."""
    clock_offset: float = 0
    full: tuple[str, ...] = ()
    old_keys: Mapping[str, int] = field(default_factory=dict)
    """Its secrets that are older than the site allows, with their days."""


@dataclass(frozen=True)
class ClusterEvidence:
    """The answers of the serving controller."""

    answers: bool = True
    """Whether there is one. Without it nothing else is known."""
    serving: str = ""
    controllers: Mapping[str, bool] = field(default_factory=dict)
    """Whether each slurmctld answers a ping, the primary one first."""
    version: str = ""
    slurm_user: str = "slurm"
    slurm_uid: int | None = None
    slurm_conf: str = ""
    cgroup_plugin: str = ""
    """CgroupPlugin, such as cgroup/v1; empty or autodetect if slurmd chooses."""
    proctrack: str = ""
    return_to_service: str = ""
    slurmdbd_error: str = ""
    """Why slurmdbd does not answer; empty if it does, or if the cluster has none."""
    messages_waiting: int = 0
    """The messages for slurmdbd that wait in slurmctld."""
    messages_limit: int = 0
    """How many may wait (MaxDBDMsgs); 0 if it is not known."""
    messages_discarded: str = ""
    """The last line of slurmctld's log about messages that it has discarded."""
    full_queue_ends_slurmctld: bool = False
    """Whether slurmctld ends at the limit instead of discarding messages."""
    runaway_jobs: tuple[str, ...] = ()
    """The numbers of jobs without an end in the database that slurmctld does not know."""
    ended_reservations: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The numbers of jobs that are held, by the reservation for which they waited until its end."""
    clock_offset: float = 0


Of = TypeVar("Of", SlurmNode, HostEvidence, ServerEvidence, ClusterEvidence, DaemonState)


def typed(kind: type[Of], answer: Mapping[str, Any]) -> Of:
    """Evidence of a kind, from the result of a module whose form has been checked; other keys are left out."""
    values = {}
    for each in fields(kind):
        if each.name in answer:
            values[each.name] = _value(each.name, answer[each.name])
    return kind(**values)


def _value(name: str, value: Any) -> Any:
    if name in ("slurmd", "munge"):
        return typed(DaemonState, value)
    if name == "daemons":
        return {unit: typed(DaemonState, state) for unit, state in value.items()}
    return tuple(value) if isinstance(value, list) else value
