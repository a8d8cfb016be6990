# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The actions that changes of Slurm's configuration need, and the jobs that they end.

The tables of parameters have the actions that a change needs. The jobs that it ends follow from `_sync_jobs_to_conf` in
`src/slurmctld/read_config.c`: jobs on nodes that are removed or have other sockets, cores or threads, those with
generic resources on nodes whose generic resources changed, those in partitions that are gone, and pending jobs that ask
for a removed node by its name. Shorter times end jobs as well; `parameter_tables/times.py` has them. So do PrologFlags
with which slurmd waits for slurmctld.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..configuration import parameters
from ..configuration.conf_file import Configuration, ConfigurationChange
from ..configuration.equivalence import other_resources
from ..configuration.meaning import by_key
from ..configuration.parameter_tables.choices import PROLOG_AT_ALLOCATION
from ..configuration.parameter_tables.times import ENDS_JOBS, LEAST, EndingTime
from ..configuration.parameter_values import Span, whole_number, words
from ..language.formatting import align_columns
from ..language.hostlist import expand, fold

_SHAPE = {"sockets", "socketsperboard", "boards", "corespersocket", "threadspercore", "cpus", "procs"}

_SHARED = {"communicationparameters", "hashplugin", "port", "slurmctldport", "slurmdport", "slurmuser", "tlstype"}
"""Keys after whose change slurmctld and a slurmd do not understand each other until both are restarted."""


@dataclass(frozen=True)
class JobPlacement:
    """A job that has not ended, from squeue."""

    number: str
    partition: str
    """One, or several of a pending job."""
    nodes: frozenset[str]
    """Its nodes; empty while it is pending."""
    gres: bool
    """Whether it has asked for generic resources."""
    traits: frozenset[str] = frozenset()
    """Any of TRAITS."""
    seconds: int = 0
    """The time since its start."""
    required: frozenset[str] = frozenset()
    """The nodes that it asks for by name."""


TRAITS = frozenset({"configuring", "interactive", "overdue", "reserved"})
"""What some jobs are (`parameter_tables/times.py`)."""


@dataclass(frozen=True)
class Step:
    """A change, with its actions and the jobs that it ends."""

    change: ConfigurationChange
    needs: parameters.Needs
    ends: tuple[str, ...]
    """Numbers of the jobs that would end."""
    least: int = 0
    """The least value of a time that would end none of them; 0: there is no such value."""

    @property
    def what(self) -> str:
        """The name of the change: `slurm.conf KillWait`, `NodeName=compute[01-02] Weight`, `PartitionName=gpu`."""
        change = self.change
        subject = f"{change.file}={change.subject}" if change.file in ("NodeName", "PartitionName") else change.file
        own = change.key == change.file
        subject = f"{change.file} {change.subject}" if change.file == "gres.conf" else subject
        return subject.strip() if own else f"{subject} {change.key}"

    @property
    def action(self) -> str:
        """Its actions as text."""
        actions = [f"restart {', '.join(self.needs.restart)}"] if self.needs.restart else []
        actions += ["reconfigure"] if self.needs.reconfigure else []
        actions += (
            [{"nodes": "no job on these nodes", "cluster": "no job at all"}[self.needs.idle]] if self.needs.idle else []
        )
        actions += [f"ends no job from {self.least} on"] if self.least else []
        return ", ".join(actions) or "nothing"


def steps(
    changes: Iterable[ConfigurationChange],
    jobs: Sequence[JobPlacement],
    version: str,
    wanted: Configuration | None = None,
    in_force: Collection[ConfigurationChange] = (),
) -> list[Step]:
    """The actions that each change needs with a version of Slurm, and the jobs that it would end.

    Args:
        changes: the changes.
        jobs: all jobs that have not ended.
        version: such as 24.11.5.
        wanted: the configuration with all of them, for times that depend on other times.
        in_force: those whose result is in force, so that only the files change.
    """
    result = []
    changes = [*changes]
    for change in changes:
        if change in in_force or change in _renamed(changes):
            result.append(Step(change, parameters.Needs(True, (), ""), ()))
            continue
        needs = _needs(change.file, change.key, version)
        ends = tuple(job.number for job in _find_ended_jobs(change, needs, jobs, version))
        least, late = _find_ended_by_time(change, jobs, version, wanted or Configuration())
        result.append(Step(change, needs, ends or late, least if late else 0))
    return result


_OF_NODES = ("cgroup.conf", "job_container.conf", "mpi.conf", "plugstack.conf")
"""Files, besides gres.conf, that have their effect on nodes alone."""


def without_reach(
    found: Iterable[Step], old: Configuration, new: Configuration, managed: Collection[str]
) -> list[Step]:
    """The steps of the first change of a cluster of another origin, whose nodes may read files of their own.

    A node that no playbook changes yet does not get the files of the controller before it is taken over: a change of
    its resources, and one of a file of nodes where there is no other node, restarts no slurmd and ends no job.

    Args:
        found: the steps.
        old, new: the configurations.
        managed: the hosts that playbooks change.
    """
    others = {name for name, pairs in new.nodes.items() if name not in managed and _is_there(by_key(pairs))}

    def is_out_of_reach(change: ConfigurationChange) -> bool:
        if change.file == "gres.conf":
            return others.issuperset(expand(change.subject) or other_resources(old, new))
        return change.file in _OF_NODES and {*new.nodes} == others

    result = []
    for step in found:
        if is_out_of_reach(step.change):
            restart = tuple(daemon for daemon in step.needs.restart if daemon != "slurmd")
            step = replace(step, needs=parameters.Needs(True, restart, ""), ends=())
        result.append(step)
    return result


def _is_there(values: Mapping[str, str]) -> bool:
    """Whether a node is a machine that runs, by its parameters."""
    return values.get("state", "").upper() not in ("CLOUD", "FUTURE")


_NAMESPACES = ("jobcontainertype", "namespacetype")
"""Names of one parameter in releases before and after 25.11: the plugin that gives each job a /tmp of its own."""


def _renamed(changes: Sequence[ConfigurationChange]) -> list[ConfigurationChange]:
    """The changes to a new name of a parameter that keep its plugin: job_container/tmpfs to namespace/tmpfs."""
    renamed = [change for change in changes if change.file == "slurm.conf" and change.key.lower() in _NAMESPACES]
    before = {change.before.rpartition("/")[2] for change in renamed if change.before}
    after = {change.after.rpartition("/")[2] for change in renamed if change.after}
    return renamed if len(renamed) == len(_NAMESPACES) and before == after else []


@functools.cache
def _needs(file: str, key: str, version: str) -> parameters.Needs:
    """The actions that a change of a key needs; lines such as `NodeSet=fast` are settings, too."""
    return parameters.needs(file, key.partition("=")[0], version)


def _find_ended_jobs(
    change: ConfigurationChange, needs: parameters.Needs, jobs: Sequence[JobPlacement], version: str
) -> Iterable[JobPlacement]:
    """The jobs that a change would end."""
    running = [job for job in jobs if job.nodes]
    if change.file == "slurm.conf" and change.key.lower() == "prologflags":
        begins = _at_allocation(change.after, version) and not _at_allocation(change.before, version)
        return [job for job in running if begins and _may_begin_on_a_node(job)]
    if _removes(change, "PartitionName"):
        return [job for job in jobs if change.subject in job.partition.split(",")]
    if change.file in ("NodeName", "gres.conf") and needs.idle != "cluster":
        return _find_ended_on_nodes(change, jobs)
    return running if needs.idle else ()


def _find_ended_on_nodes(change: ConfigurationChange, jobs: Iterable[JobPlacement]) -> Iterable[JobPlacement]:
    """The jobs that a change of nodes, or of their generic resources, would end."""
    key = change.key.lower()
    nodes = frozenset(expand(change.subject))
    running = (job for job in jobs if job.nodes)
    if _removes(change, "NodeName"):
        return [job for job in jobs if (job.nodes | job.required) & nodes]
    if change.file == "gres.conf" or key == "gres":
        return [job for job in running if job.gres and (not nodes or job.nodes & nodes)]
    return [job for job in running if key in _SHAPE and job.nodes & nodes]


def _removes(change: ConfigurationChange, kind: str) -> bool:
    """Whether a change removes a node or a partition."""
    return change.file == kind and change.key.lower() == kind.lower() and change.after is None


def _may_begin_on_a_node(job: JobPlacement) -> bool:
    """Whether the first step of a running job may be still to come on one of its nodes."""
    return len(job.nodes) > 1 or "interactive" in job.traits


def _at_allocation(flags: str | None, version: str) -> bool:
    """Whether slurmd waits for slurmctld's message to run the prolog, before the first step of a job on a node.

    A job that started without such PrologFlags never gets it: the first step on a node, as of an srun in a job of
    several nodes or in an salloc, fails after two times MessageTimeout; the job is requeued and held, and the node is
    drained (`_wait_for_request_launch_prolog` in `src/slurmd/slurmd/req.c`).
    """
    release = parameters.release_of(version)
    meant = {word for word, releases in words(PROLOG_AT_ALLOCATION).items() if release in releases}
    return not meant.isdisjoint((flags or "").lower().split(","))


def _find_ended_by_time(
    change: ConfigurationChange, jobs: Iterable[JobPlacement], version: str, wanted: Configuration
) -> tuple[int, tuple[str, ...]]:
    """The least time that would end no job, and the numbers of the jobs that a shorter time can end."""
    key = change.key.lower()
    time = ENDS_JOBS.get(change.file, {}).get(key)
    if time is None or parameters.release_of(version) not in Span.parse(time.releases):
        return 0, ()
    partition = change.subject if change.file == "PartitionName" else ""
    unset = wanted.settings.get(("slurm.conf", key), ("", ""))[1] if partition else ""
    before, after = _time(change.before or unset, time), _time(change.after or unset, time)
    least = 0 if partition else least_time(wanted, key)
    if after >= before or (least and after >= least):
        return 0, ()
    reached = [job for job in jobs if partition in ("", job.partition)]
    return least, tuple(job.number for job in reached if _is(job, time.jobs, before))


def _is(job: JobPlacement, kind: str, before: float) -> bool:
    """Whether a job runs and is of a kind of EndingTime.jobs; the time was `before`."""
    if not job.nodes:
        return False
    if kind == "starting":
        return job.seconds < before + 10  # up to which `_purge_missing_jobs` adds of MessageTimeout
    return kind == "running" or kind in job.traits


def _time(value: str, time: EndingTime) -> float:
    """A value of a time as a number; empty: the file does not have it."""
    if value.upper() in (time.endless, "UNLIMITED", "INFINITE"):
        return math.inf
    return whole_number(value) if value and whole_number(value) >= 0 else time.default


def least_time(wanted: Configuration, key: str) -> int:
    """The least that a time of slurm.conf should be; 0 for one without such a rule."""
    factor, other, default = LEAST.get(key, (0, "", 0))
    value = wanted.settings.get(("slurm.conf", other.lower()), ("", ""))[1]
    return factor * (whole_number(value) if value else default)


def parts_daemons(found: Iterable[Step]) -> bool:
    """Whether slurmctld cannot reach the nodes with the changes until each slurmd is restarted."""
    return any(step.change.key.lower() in _SHARED for step in found)


def read_at_start(configuration: Configuration, daemon: str, version: str) -> str:
    """The settings that a daemon reads from the files only when it starts, and a digest of node lines.

    It differs if and only if a change needs a restart of the daemon.
    """

    def kept(file: str, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(key, value) for key, value in pairs if daemon in _needs(file, key, version).restart]

    settings = [
        f"{key}={value}"
        for (file, _name), pair in sorted(configuration.settings.items())
        for key, value in kept(file, [pair])
    ]
    lines = {pairs: kept("NodeName", pairs) for pairs in set(configuration.nodes.values())}
    own = kept("NodeName", [("NodeName", "")])
    nodes = sorted((name, lines[pairs]) for name, pairs in configuration.nodes.items() if own or lines[pairs])
    gres = sorted(configuration.gres.items()) if kept("gres.conf", [("Name", "")]) else []
    digest = hashlib.sha256(repr((nodes, gres)).encode()).hexdigest()[:16]
    return "\n".join([*settings, f"nodes {digest}"] if nodes or gres else settings)


_ADDRESSES = {"nodeaddr", "nodehostname", "bcastaddr"}


def kinds(configuration: Configuration, nodes: Iterable[str]) -> list[str]:
    """Nodes of the configuration, a hostlist for those whose settings are equal except for their addresses."""
    names_by_kind: dict[frozenset[tuple[str, str]], list[str]] = {}
    for name in nodes:
        if (settings := configuration.nodes.get(name)) is not None:
            kind = frozenset((key.lower(), value) for key, value in settings if key.lower() not in _ADDRESSES)
            names_by_kind.setdefault(kind, []).append(name)
    return [fold(names) for names in names_by_kind.values()]


def removed_nodes(found: Iterable[Step]) -> set[str]:
    """The nodes that are no longer in the configuration."""
    changes = (step.change for step in found)
    gone = (change.subject for change in changes if change.key == change.file == "NodeName" and change.after is None)
    return {node for nodes in gone for node in expand(nodes)}


def remedy(found: Iterable[Step]) -> str:
    """What lets the jobs end, or keeps them, for a person: once for each kind of change."""
    return "; ".join(dict.fromkeys(_remedy(step) for step in found if step.ends))


def _remedy(step: Step) -> str:
    """What helps the jobs that one change would end. No node is drained for jobs that it would not spare."""
    change, jobs = step.change, "wait for these jobs"
    if _removes(change, "PartitionName"):
        return (
            f"let no job into the partition (scontrol update PartitionName={change.subject} State=DRAIN) and wait for "
            "its jobs, or move those that are pending (scontrol update JobId=JOB Partition=OTHER)"
        )
    if change.key.lower() in ENDS_JOBS.get(change.file, {}):
        longer = f"set {change.key} to {step.least} at least" if step.least else f"keep the longer {change.key}"
        return f"{longer}, or {jobs}"
    nodes = change.subject if change.file in ("NodeName", "gres.conf") else ""
    pending = " (one that is pending asks for a node by name: scontrol update JobId=JOB ReqNodeList=)"
    return f"drain {nodes or 'all nodes'} and {jobs}{pending if _removes(change, 'NodeName') else ''}"


def table(found: Iterable[Step], new_files: Collection[str] = ()) -> list[str]:
    """The plan, a line for each change: its name, old and new value, the action it needs, the jobs it would end.

    new_files: files of which nothing was there before. Each is one line, since all of it is new.
    """
    rows, added = [], dict[str, list[Step]]()
    for step in found:
        file = "slurm.conf" if step.change.file in ("NodeName", "PartitionName") else step.change.file
        if file in new_files and step.change.before is None and not step.ends:
            added.setdefault(file, []).append(step)
            continue
        before, after = (_shown(value) for value in (step.change.before, step.change.after))
        ends = f"ENDS JOBS {fold(list(step.ends))}" if step.ends else ""
        rows.append((step.what, f"{before} -> {after}", step.action, ends))
    return align_columns([*((file, "a new file", _join(steps).action, "") for file, steps in added.items()), *rows])


def _join(steps: Sequence[Step]) -> Step:
    """All changes of a new file as one, with the actions that any of them needs."""
    needs = [step.needs for step in steps]
    idle = next((each for each in ("cluster", "nodes") if each in {need.idle for need in needs}), "")
    restart = tuple(dict.fromkeys(daemon for need in needs for daemon in need.restart))
    return Step(steps[0].change, parameters.Needs(any(need.reconfigure for need in needs), restart, idle), ())


def _shown(value: str | None) -> str:
    """A value, cut where it is long."""
    if value is None:
        return "(none)"
    return value if len(value) <= 40 else f"{value[:37]}..."
