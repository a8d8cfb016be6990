# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor knows about a cluster: nodes as Slurm shows them, and facts about their hosts and the servers.

These records are the answers of the modules, the bounds by which the control host checks them, and what the causes
test. The defaults are those of a healthy node on a healthy host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from ..client import drains

if TYPE_CHECKING:
    from ...plugin_utils.results.fact_records import (
        MANY,
        MOST_HOSTS,
        ChecksumOrEmpty,
        Cpus,
        Empty,
        FewLines,
        Gpus,
        HostName,
        JobNumbers,
        Line,
        Mib,
        Most,
        NodeOptions,
        Number32,
        Pattern,
        Port,
        Seconds,
        Text,
        Word,
    )

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

Of = TypeVar("Of", bound="DaemonState | SlurmNode | NodeFacts | ServerFacts | ClusterFacts | ServerAnswer")


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

    active: Annotated[str, Pattern("[a-z]*")] = "active"
    """systemd's ActiveState; empty if the host has no such unit."""
    enabled: bool = True
    """Whether it starts at boot."""
    result: Annotated[str, Pattern("[a-z-]*")] = "success"
    """Why it has ended, as systemd names it, such as oom-kill."""
    log: FewLines = ()
    """Its last errors, the newest one last."""
    down_seconds: Seconds = 0
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
class NodeFacts:
    """The answer of the module slurm_doctor_node_info: facts about a node's host."""

    version: Line = ""
    """The version of its slurmd."""
    slurmd: DaemonState = DaemonState()
    munge: DaemonState = DaemonState()
    munge_error: Line = ""
    """Why its munged does not take a credential of the controller."""
    slurm_uid: Number32 | None = None
    """The id of SlurmUser; None if there is no such user."""
    slurm_conf: ChecksumOrEmpty = ""
    """Checksum of the slurm.conf that slurmd reads; empty if it has none."""
    cpus: Cpus = 1 << 20
    memory: Mib = 1 << 40
    """MiB."""
    full: FewLines = ()
    """Directories in which nothing can be written, with the reason."""
    unmounted: Sequence[Line] = ()
    """Mount points of its fstab and of its units on which nothing is mounted."""
    hanging: Sequence[Line] = ()
    """Mount points that do not answer."""
    missing_files: Sequence[Line] = ()
    """Device files of gres.conf that are not there."""
    nvidia_error: Line = ""
    """The error of nvidia-smi."""
    nvidia_gpus: Gpus | None = None
    """GPUs that nvidia-smi lists; None if it is not installed."""
    xids: FewLines = ()
    """Errors of NVIDIA's driver in the kernel's messages."""
    cgroup: Annotated[str, Pattern("v1|v2")] = ""
    """The version of cgroups that the host has: v1 or v2."""
    listens: bool = True
    """Whether a process listens on slurmd's port."""
    addresses: Sequence[Annotated[str, Pattern("[0-9a-f.:]+", 64)]] = ()
    """Its own IP addresses."""
    unresolved: Sequence[Line] = ()
    """Controllers whose names it cannot resolve."""
    closed: Mapping[Line, Line] = field(default_factory=dict)
    """Why slurmctld's port takes no connection from this host, by controller."""
    left: Sequence[Line] = ()
    """Processes of jobs that no longer run here."""
    booted: Line = ""
    """When it has booted."""


@dataclass(frozen=True)
class HostEvidence(NodeFacts):
    """What is known about a node's host."""

    unreached: str = ""
    """Why it could not be examined: the message of ssh or Ansible. Then nothing else is known."""
    clock_offset: float = 0
    """Seconds by which its clock is ahead of the control host's, at least."""


@dataclass(frozen=True)
class ServerFacts:
    """Facts about a controller or the database host."""

    daemons: Annotated[Mapping[Word, DaemonState], Most(16)] = field(default_factory=dict)
    """The units that the host has, by name."""
    full: FewLines = ()
    old_keys: Annotated[Mapping[Word, Number32], Most(16)] = field(default_factory=dict)
    """Its secrets that are older than the site allows, with their days."""


@dataclass(frozen=True)
class ServerEvidence(ServerFacts):
    """What is known about a controller or the database host."""

    unreached: str = ""
    clock_offset: float = 0


@dataclass(frozen=True)
class ClusterFacts:
    """What a controller says about the cluster."""

    answers: bool = True
    """Whether the host serves, and answers. Without it nothing else is known."""
    serving: Line = ""
    controllers: Annotated[Mapping[Line, bool], Most(64)] = field(default_factory=dict)
    """Whether each slurmctld answers a ping, the primary one first."""
    version: Line = ""
    slurm_user: Line = "slurm"
    slurm_uid: Number32 | None = None
    slurm_conf: ChecksumOrEmpty = ""
    cgroup_plugin: Line = ""
    """CgroupPlugin, such as cgroup/v1; empty or autodetect if slurmd chooses."""
    proctrack: Line = ""
    return_to_service: Line = ""
    slurmdbd_error: Text = ""
    """Why slurmdbd does not answer; empty if it does, or if the cluster has none."""
    messages_waiting: Number32 = 0
    """The messages for slurmdbd that wait in slurmctld."""
    messages_limit: Number32 = 0
    """How many may wait (MaxDBDMsgs); 0 if it is not known."""
    messages_discarded: Line = ""
    """The last line of slurmctld's log about messages that it has discarded."""
    full_queue_ends_slurmctld: bool = False
    """Whether slurmctld ends at the limit instead of discarding messages."""
    runaway_jobs: JobNumbers = ()
    """The numbers of jobs without an end in the database that slurmctld does not know."""
    ended_reservations: Annotated[Mapping[Line, JobNumbers], Most(MANY)] = field(default_factory=dict)
    """The numbers of jobs that are held, by the reservation for which they waited until its end."""


@dataclass(frozen=True)
class ClusterEvidence(ClusterFacts):
    """What is known about the cluster."""

    clock_offset: float = 0
    """Seconds by which the controller's clock is ahead of the control host's, at least."""


@dataclass(frozen=True)
class ServerAnswer(ServerFacts):
    """The answer of the module slurm_doctor_info. Names of nodes become hosts of the play."""

    cluster: ClusterFacts = ClusterFacts()
    nodes: Annotated[Sequence[SlurmNode], Most(MOST_HOSTS)] = ()
    node_options: NodeOptions | Empty = field(default_factory=lambda: cast("Empty", {}))


def complete(kind: type[Of], **facts: Any) -> Of:
    """The answer of a host to all questions of a kind. Raises TypeError: a fact is missing, or is not of this kind."""
    if missing := {each.name for each in fields(kind)} - facts.keys():
        raise TypeError(f"{kind.__name__} has facts that nobody has asked for: {', '.join(sorted(missing))}")
    return kind(**facts)


def typed(kind: type[Of], answer: Mapping[str, Any]) -> Of:
    """Evidence of a kind, from the result of a module whose form has been checked; other keys are left out."""
    given = [each for each in fields(kind) if each.name in answer]
    return kind(**{each.name: _value(str(each.type), answer[each.name]) for each in given})


def _value(kind: str, value: Any) -> Any:
    """The value of a field; kind: its type as it is written."""
    if kind == "DaemonState":
        return typed(DaemonState, value)
    if "DaemonState" in kind:
        return {unit: typed(DaemonState, state) for unit, state in value.items()}
    return tuple(value) if isinstance(value, list) else value
