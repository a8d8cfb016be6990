# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The causes of sick nodes: a test of each over the evidence, what it means, and the remedy.

`make docs` writes the tables of docs/admin/doctor.md from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..client import drains
from . import log_reasons
from .evidence import NO_FACTS, NOT_IN_INVENTORY, SICK, SILENT, ClusterEvidence, DaemonState, HostEvidence, SlurmNode

CLOCK = 30
"""Seconds between two clocks that are named. munge refuses a credential that is older than 300 s."""

RESUME, START_SLURMD, START_MUNGE = "resume", "start slurmd", "start munge"
"""Repairs that lose nothing."""

MEASURE = "measure it (accept.yml -e accept_level=quick --limit CONTROLLER,NODE)"
"""How an administrator sees that a repair of hardware has helped. accept.yml measures nodes in service alone."""


@dataclass(frozen=True)
class Case:
    """A node with the evidence about it."""

    node: SlurmNode
    host: HostEvidence
    cluster: ClusterEvidence

    @property
    def reached(self) -> bool:
        return not self.host.unreached

    @property
    def clock_offset(self) -> float:
        """Seconds by which the host's clock is ahead of the controller's."""
        return self.host.clock_offset - self.cluster.clock_offset

    def line(self, pattern: str) -> str:
        """The newest line that matches in the logs of slurmd and slurmctld, as `: LINE`; empty without one."""
        lines = [*self.node.log, *self.host.slurmd.log]
        return next((f": {line}" for line in reversed(lines) if re.search(pattern, line, re.IGNORECASE)), "")


@dataclass(frozen=True)
class Cause:
    """A row of a table: why a node can be sick."""

    name: str
    means: str
    """For the documentation."""
    test: Callable[[Case], str]
    """The cause with its evidence, empty if it is another one."""
    remedy: str
    repair: str = ""
    """What doctor_repair does: RESUME, START_SLURMD, START_MUNGE, or nothing."""


# -- tests -----------------------------------------------------------------------------------------------------------


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


REFUSED = re.compile(r"refused|denied|host key|too many authentication|identification|kex_exchange|no matching", re.I)
"""Messages of ssh about a host that is up."""


def _first(text: str) -> str:
    return text.strip().split("\n")[0].strip()


def _not_in_inventory(case: Case) -> str:
    return case.host.unreached if case.host.unreached == NOT_IN_INVENTORY else ""


def _facts_failed(case: Case) -> str:
    return _first(case.host.unreached) if case.host.unreached.startswith(NO_FACTS) else ""


def _ssh_refused(case: Case) -> str:
    error = case.host.unreached
    if not error or _not_in_inventory(case) or _facts_failed(case):
        return ""
    alive = not case.node.closed or REFUSED.search(error) or "refused" in case.node.closed
    return f"the host is up, but ssh fails: {_first(error)}" if alive else ""


def _host_down(case: Case) -> str:
    error = case.host.unreached
    if not error or _not_in_inventory(case) or _facts_failed(case) or _ssh_refused(case):
        return ""
    return f"the host does not answer (ssh: {_first(error)}; slurmd's port: {case.node.closed})"


def _munged(case: Case) -> str:
    return _stopped("munged", case.host.munge)


def _masked(case: Case) -> str:
    units = {"munge": case.host.munge, "slurmd": case.host.slurmd}
    return name_masked([name for name, daemon in units.items() if daemon.masked and not daemon.runs])


def name_masked(units: list[str]) -> str:
    """What is wrong with units that systemd does not start; empty without one."""
    return f"masked, so that nothing starts it: {', '.join(units)}" if units else ""


def _stopped(name: str, daemon: DaemonState) -> str:
    """What is wrong with a daemon that does not run, with the last line of its log. A masked one is `_masked`."""
    if daemon.runs or daemon.masked:
        return ""
    if not daemon.active:
        return f"{name} is not installed"
    how = {"exit-code": "its start failed", "oom-kill": "the kernel killed it for memory", "signal": "it was killed"}
    why = how.get(daemon.result, "it was stopped")
    why = f"{why}, and it does not start at boot" if not daemon.enabled else why
    return f"{name} does not run ({why})" + (f": {daemon.log[-1]}" if daemon.log and daemon.failed else "")


def _munge_key(case: Case) -> str:
    wrong = re.search(r"invalid credential|invalid message authentication|replay.*key", case.host.munge_error, re.I)
    return f"munged has another key than the controller ({_first(case.host.munge_error)})" if wrong else ""


def _clock(case: Case) -> str:
    refused = re.search(r"expired|rewound", case.host.munge_error, re.IGNORECASE)
    if abs(case.clock_offset) < CLOCK and not refused:
        return ""
    error = f"; munge: {_first(case.host.munge_error)}" if refused else ""
    if abs(case.clock_offset) < CLOCK:
        return f"munged's clock differs from the host's clock{error}"
    where = "ahead of" if case.clock_offset > 0 else "behind"
    return f"the clock is {abs(case.clock_offset):.0f} s {where} the controller's{error}"


def _munge_other(case: Case) -> str:
    known = not case.host.munge.runs or _munge_key(case) or _clock(case)
    return (
        ""
        if known or not case.host.munge_error
        else f"munged refuses the controller's credential: {_first(case.host.munge_error)}"
    )


def _by_log(reason: log_reasons.LogReason) -> Callable[[Case], str]:
    def test(case: Case) -> str:
        if not case.host.slurmd.failed:
            return ""
        found = log_reasons.read(case.host.slurmd.log)
        return f"slurmd does not start: {found[1]}" if found and found[0] is reason else ""

    return test


def _slurmd_failed(case: Case) -> str:
    daemon = case.host.slurmd
    if not daemon.failed or log_reasons.read(daemon.log):
        return ""
    return f"slurmd does not start: {daemon.log[-1] if daemon.log else 'its log has no reason'}"


def _slurmd_stopped(case: Case) -> str:
    return "" if case.host.slurmd.failed else _stopped("slurmd", case.host.slurmd)


def _slurmd_deaf(case: Case) -> str:
    return "slurmd runs, but does not listen on its port" if case.host.slurmd.runs and not case.host.listens else ""


def _address(case: Case) -> str:
    resolved, own = {*case.node.addresses}, {*case.host.addresses}
    if not resolved or not own or resolved & own or all(each.startswith("127.") for each in resolved):
        return ""
    return f"the controller resolves the node to {', '.join(sorted(resolved))}, which is not an address of the host"


def _no_address(case: Case) -> str:
    return "" if case.node.addresses else f"the controller cannot resolve {case.node.address or case.node.name}"


def _unresolved(case: Case) -> str:
    return f"the host cannot resolve {', '.join(case.host.unresolved)}" if case.host.unresolved else ""


def _node_port(case: Case) -> str:
    host, closed = case.host, case.node.closed
    if not closed or not host.slurmd.runs or not host.listens or _address(case) or _no_address(case):
        return ""
    return f"slurmd listens on port {case.node.port}, but the controller cannot connect ({closed})"


def _controller_port(case: Case) -> str:
    wrong = {name: why for name, why in case.host.closed.items() if case.cluster.controllers.get(name, True)}
    wrong = {name: why for name, why in wrong.items() if name not in case.host.unresolved}
    return "the host cannot connect to slurmctld: " + ", ".join(map(" ".join, wrong.items())) if wrong else ""


def _newer(case: Case) -> str:
    own, others = case.host.version, case.cluster.version
    newer = own and others and _release(own) > _release(others)
    return f"slurmd {own} is newer than slurmctld {others}" if newer else ""


def _slurm_conf(case: Case) -> str:
    own, others = case.host.slurm_conf, case.cluster.slurm_conf
    return "slurmd reads another slurm.conf than slurmctld" if own and others and own != others else ""


def _ids(case: Case) -> str:
    own, others, user = case.host.slurm_uid, case.cluster.slurm_uid, case.cluster.slurm_user
    if others is None or own == others:
        return ""
    return (
        f"user {user} has the id {own}, and {others} on the controller"
        if own is not None
        else f"the host has no user {user}"
    )


def _cgroup(case: Case) -> str:
    plugin, own = case.cluster.cgroup_plugin.rpartition("/")[2], case.host.cgroup
    wrong = plugin in ("v1", "v2") and own in ("v1", "v2") and plugin != own
    return f"the host has cgroup {own}, and CgroupPlugin is {case.cluster.cgroup_plugin}" if wrong else ""


def _memory(case: Case) -> str:
    low = case.host.memory < case.node.real_memory
    return f"the host has {case.host.memory} of {case.node.real_memory} MiB of RealMemory" if low else ""


def _cpus(case: Case) -> str:
    return f"the host has {case.host.cpus} of {case.node.cpus} CPUs" if case.host.cpus < case.node.cpus else ""


def _driver_mismatch(case: Case) -> str:
    wrong = "version mismatch" in case.host.nvidia_error.lower()
    return (
        f"the NVIDIA driver is another version than its libraries ({_first(case.host.nvidia_error)})" if wrong else ""
    )


def _driver(case: Case) -> str:
    error = case.host.nvidia_error
    wrong = error and case.node.gpus and not _driver_mismatch(case)
    return f"the NVIDIA driver does not work ({_first(error)})" if wrong else ""


def _gpus(case: Case) -> str:
    found, wanted = case.host.nvidia_gpus, case.node.gpus
    lost = found is not None and not case.host.nvidia_error and found < wanted
    return f"the NVIDIA driver finds {found} of {wanted} GPUs" if lost else ""


def _gpu_files(case: Case) -> str:
    return f"device files are missing: {', '.join(case.host.missing_files)}" if case.host.missing_files else ""


def _xid(case: Case) -> str:
    return f"the NVIDIA driver reports an error of a GPU: {case.host.xids[-1]}" if case.host.xids else ""


def _full(case: Case) -> str:
    return "; ".join(case.host.full)


def _unmounted(case: Case) -> str:
    return f"file systems are not mounted: {', '.join(case.host.unmounted)}" if case.host.unmounted else ""


def _hanging(case: Case) -> str:
    return f"file systems do not answer: {', '.join(case.host.hanging)}" if case.host.hanging else ""


def _left(case: Case) -> str:
    blames = case.node.reason.startswith(KILL) or "COMPLETING" in case.node.states
    return f"processes of ended jobs are left: {', '.join(case.host.left)}" if blames and case.host.left else ""


OF_UNREACHED_HOSTS = (
    Cause(
        "not-in-inventory",
        "Slurm has the node, and the inventory does not.",
        _not_in_inventory,
        "Add the host to the cluster file, or remove the node from Slurm.",
    ),
    Cause(
        "host-down",
        "The host answers neither ssh nor on slurmd's port.",
        _host_down,
        "Check the power, the network and the console of the host.",
    ),
    Cause(
        "ssh-refused",
        "The host is up, but the control host cannot log in.",
        _ssh_refused,
        "Repair the login first (ssh HOST), then run doctor again.",
    ),
    Cause(
        "look-failed",
        "The host was reached, but facts about it could not be gathered.",
        _facts_failed,
        "Check sudo and Python on the host (ansible HOST -m ping --become), then run doctor again.",
    ),
)
"""Causes of a host that could not be examined."""

UNMASK = "Find out who has masked the unit, and why; then run systemctl unmask UNIT, and site.yml, which starts it."
"""Until then, each start fails."""

MEASURED = (
    *OF_UNREACHED_HOSTS,
    Cause("full", "A file system of slurmd is full.", _full, "Make room in the file system (df, du)."),
    Cause("masked", "systemd refuses to start munged or slurmd, since somebody has masked the unit.", _masked, UNMASK),
    Cause(
        "munged",
        "munged does not run, so that slurmd can authenticate nothing.",
        _munged,
        "Start munge and read its log (journalctl -u munge).",
        START_MUNGE,
    ),
    Cause(
        "munge-key",
        "The host has another munge key than the controller.",
        _munge_key,
        "Give the host the key of the cluster (site.yml, --tags base).",
    ),
    Cause(
        "clock",
        "The clock differs from the controller's, so that munge refuses credentials.",
        _clock,
        "Correct the clock and its synchronization (timedatectl, chronyc tracking).",
    ),
    Cause(
        "munge-error",
        "munged refuses credentials for another reason.",
        _munge_other,
        "Read the log of munge on the host (journalctl -u munge).",
    ),
    *(
        Cause(f"slurmd-{reason.cause}", f"slurmd does not start. {reason.means}", _by_log(reason), reason.remedy)
        for reason in log_reasons.LOG_REASONS
        if reason.cause not in ("state", "state-release", "queue-full", "database-lost")
    ),
    Cause(
        "slurmd-failed",
        "slurmd does not start, for a reason that doctor does not know.",
        _slurmd_failed,
        "Read the log of slurmd (journalctl -u slurmd), or start it by hand (slurmd -D -vvv).",
    ),
    Cause(
        "slurmd-stopped",
        "slurmd was stopped, was killed or is not installed.",
        _slurmd_stopped,
        "Start slurmd (systemctl start slurmd).",
        START_SLURMD,
    ),
    Cause(
        "slurmd-deaf",
        "slurmd runs but does not listen on its port, because it hangs or is still starting.",
        _slurmd_deaf,
        "Wait a minute, then read the log of slurmd and restart it; jobs survive this.",
    ),
    Cause(
        "no-address",
        "The controller cannot resolve the address of the node.",
        _no_address,
        "Add the name to the hosts file or DNS of the controller, or set the address in the cluster file.",
    ),
    Cause(
        "wrong-address",
        "The address of the node in Slurm is that of another host.",
        _address,
        "Correct the address in the cluster file, or the hosts file of the controller (site.yml).",
    ),
    Cause(
        "controller-unknown",
        "The host cannot resolve the name of a controller.",
        _unresolved,
        "Repair the hosts file or DNS of the host (site.yml, --tags base).",
    ),
    Cause(
        "slurmd-port-closed",
        "Something between controller and host refuses connections to slurmd.",
        _node_port,
        "Open the port of slurmd for the controllers in the firewall of the host.",
    ),
    Cause(
        "slurmctld-port-closed",
        "Something between host and controller refuses connections to slurmctld.",
        _controller_port,
        "Open the port of slurmctld for this host, in the firewalls of both.",
    ),
    Cause(
        "slurmd-newer",
        "slurmd has a newer release than slurmctld, which Slurm does not support.",
        _newer,
        "Upgrade the controller first (upgrade.yml), or install the controller's release on the host.",
    ),
    Cause(
        "slurm-conf",
        "slurmd uses another slurm.conf than slurmctld.",
        _slurm_conf,
        "Remove the host's own slurm.conf, or copy the controller's, and restart slurmd (site.yml, --tags compute).",
    ),
    Cause(
        "user-ids",
        "SlurmUser has another id than on the controller.",
        _ids,
        "Give the user the same id on all hosts; site.yml names the conflict.",
    ),
    Cause(
        "cgroup-version",
        "The host has another version of cgroups than cgroup.conf says.",
        _cgroup,
        "Boot the host with this version (systemd.unified_cgroup_hierarchy), or set CgroupPlugin=autodetect.",
    ),
    Cause(
        "memory",
        "The host has less memory than RealMemory.",
        _memory,
        "Look for a failed DIMM (dmidecode -t memory), or lower real_memory (discover.yml).",
    ),
    Cause(
        "cpus",
        "The host has fewer CPUs than the node.",
        _cpus,
        "Check the firmware's settings for cores and threads, or correct the machine type (discover.yml).",
    ),
    Cause(
        "nvidia-versions",
        "The loaded NVIDIA driver is not the one of the installed libraries.",
        _driver_mismatch,
        "Reboot the node (rolling.yml with rolling_reboot), so that the new driver is loaded.",
    ),
    Cause(
        "nvidia-driver",
        "The NVIDIA driver is not loaded or does not answer.",
        _driver,
        "Check the driver (dkms status, dmesg), then run site.yml with --tags compute, or reboot the node.",
    ),
    Cause(
        "gpu-lost",
        "The NVIDIA driver finds fewer GPUs than the node has in Slurm.",
        _gpus,
        "Look for the GPU (lspci, dmesg), reset or reseat it, or correct the gres of the machine type. "
        f"After the repair, {MEASURE}.",
    ),
    Cause(
        "gpu-files",
        "Device files of gres.conf are missing.",
        _gpu_files,
        "Load the driver of the device (nvidia-smi), or correct the gres of the machine type.",
    ),
    Cause(
        "xid",
        "The kernel's messages have errors of a GPU (Xid).",
        _xid,
        "docs/admin/findings.md has what mends it; slurm-health --list on the node shows all. "
        f"When the node is back, {MEASURE}.",
    ),
    Cause(
        "not-mounted",
        "A file system that the host should have is not mounted.",
        _unmounted,
        "Mount it, and find out why it was not mounted (systemctl status, the file server).",
    ),
    Cause(
        "mount-hangs",
        "A file system does not answer.",
        _hanging,
        "Check the file server and the network; a mount that stays stale needs a reboot.",
    ),
    Cause(
        "processes-left",
        "Processes of an ended job do not end, often because they wait for a disk or a GPU.",
        _left,
        "Find out what they wait for (ps -o pid,stat,wchan); if nothing ends them, reboot the node.",
    ),
)
"""Causes that are found on the host or between the hosts. All that apply are named, causes before their effects."""


# -- Slurm's reports ------------------------------------------------------------------------------------------------

KILL_UNTRACKED = "kill-task-failed-untracked"
(KILL,) = drains.beginnings(KILL_UNTRACKED)
REFUSED_REASONS = drains.beginnings("refused")


@dataclass(frozen=True)
class Says:
    """A test for the beginning of Slurm's reason, which is shown with the newest line of a log that matches `log`.

    A node can keep the reason of an earlier drain, so it must be in the state that the reason is for.
    """

    beginnings: tuple[str, ...]
    log: str
    but: str
    state: str

    def __call__(self, case: Case) -> str:
        if not case.node.reason.startswith(self.beginnings) or self.state not in case.node.states:
            return ""
        return f"{case.node.own_reason}{self.but and f', {self.but}'}{case.line(self.log) if self.log else ''}"


def _says(*beginnings: str, log: str = "", but: str = "", state: str = "DRAIN") -> Says:
    return Says(beginnings, log, but, state)


def _kill(case: Case) -> str:
    return _says(KILL, but="and no process of an ended job is left")(case) if case.reached else ""


def _kill_untracked(case: Case) -> str:
    """Without cgroups nobody can tell that nothing is left."""
    return _says(KILL)(case) if "cgroup" not in case.cluster.proctrack else ""


def _refused_before(case: Case) -> str:
    """Slurm has refused the registration, and the host has now what the node has."""
    refused = case.node.reason.startswith(REFUSED_REASONS)
    drained = "DRAIN" in case.node.states and not {*case.node.states} & {"INVALID_REG", "INVAL"}
    if not refused or not drained or not case.reached:
        return ""
    return f"{case.node.own_reason}; the host has now registered with enough"


def _refused(case: Case) -> str:
    refused = case.node.reason.startswith(REFUSED_REASONS) or {*case.node.states} & {"INVALID_REG", "INVAL"}
    why = case.node.own_reason or "Slurm has refused the registration"
    return f"{why}{case.line('config|gres|count|socket|memory')}" if refused else ""


def _spool(case: Case) -> str:
    return _says("SlurmdSpoolDir is full", but="and it has space now")(case) if case.reached else ""


def _silent(case: Case) -> str:
    if not case.reached or not (case.node.unanswered or {*case.node.states} & SILENT):
        return ""
    why = case.node.unanswered and f" ({case.node.unanswered})"
    line = case.line("not responding|error")
    return f"slurmd runs and accepts connections, but slurmctld has no answer from it{why}{line}"


def _back(case: Case) -> str:
    back = case.node.reason.startswith("Not responding") and "DOWN" in case.node.states and case.reached
    if not back or {*case.node.states} & SILENT:
        return ""
    value = case.cluster.return_to_service
    if value == "0":
        return "slurmd answers again, and ReturnToService is 0"
    return f"slurmd answers again, and has not registered yet{value and f' (ReturnToService is {value})'}"


def _rebooted(case: Case) -> str:
    """The reason of an earlier drain can hide it, but not the line in slurmctld's log."""
    said = _says(drains.REBOOTED, state="DOWN")(case)
    logged = "DOWN" in case.node.states and not {*case.node.states} & SILENT and case.line("unexpectedly rebooted")
    booted = f"; it booted at {case.host.booted}" if case.host.booted else ""
    return f"{drains.REBOOTED}{booted}" if said or logged else ""


SAID = (
    Cause(
        "rebooted",
        "The node rebooted unexpectedly, so that its jobs are lost.",
        _rebooted,
        "Find out why (last -x, the kernel's messages, the board's event log), then resume the node.",
    ),
    Cause(
        KILL_UNTRACKED,
        "Processes of a job did not end in time, and it is not known whether any is left.",
        _kill_untracked,
        "Look for processes of ended jobs (ps), then resume the node.",
    ),
    Cause(
        "kill-task-failed",
        "Processes of a job did not end in time, and have ended since.",
        _kill,
        "Resume the node; raise UnkillableStepTimeout if this happens often.",
        RESUME,
    ),
    Cause(
        "prolog-error",
        "The prolog of a job has failed on the node.",
        _says(*drains.beginnings("prolog-error"), log="prolog"),
        "Run the prolog by hand on the node, correct it, then resume the node.",
    ),
    Cause(
        "epilog-error",
        "The epilog of a job has failed on the node.",
        _says(*drains.beginnings("epilog-error"), log="epilog"),
        "Run the epilog by hand on the node, correct it, then resume the node.",
    ),
    Cause(
        "batch-failure",
        "slurmd could not start a batch job.",
        _says(*drains.beginnings("batch-failure"), log="error|fatal"),
        "Read the log of slurmd for the job (spool directory, home, plugins), then resume the node.",
    ),
    Cause(
        "duplicate-jobid",
        "The node still had a job of the same number, as after a lost StateSaveLocation.",
        _says(*drains.beginnings("duplicate-jobid"), log="duplicate"),
        "Look for old steps on the node (scontrol listpids), end them, then resume the node; set FirstJobId.",
    ),
    Cause(
        "spool-was-full",
        "SlurmdSpoolDir was full, and has space again.",
        _spool,
        "Find what filled it, then resume the node.",
        RESUME,
    ),
    Cause(
        "registered-since",
        "Slurm had refused the node for less memory, CPUs or GPUs, and the host has enough now.",
        _refused_before,
        "Resume the node.",
        RESUME,
    ),
    Cause(
        "refused",
        "Slurm refuses the registration of the node, because the host has less than the node.",
        _refused,
        "Compare the host with its machine type (discover.yml --check), then resume the node.",
    ),
    Cause(
        "reboot-timeout",
        "The node did not come back within ResumeTimeout after a reboot that Slurm had asked for.",
        _says(*drains.beginnings("reboot-timeout"), state="DOWN"),
        "Check the console; raise ResumeTimeout if the boot takes longer, then resume the node.",
    ),
    Cause(
        "reboot-waits",
        "The node reboots as soon as its jobs have ended.",
        _says(*drains.beginnings("reboot-waits")),
        "Wait, or take the reboot back (scontrol cancel_reboot).",
    ),
    Cause(
        "features",
        "slurmd reports other features than the node has.",
        _says(*drains.beginnings("features")),
        "Compare the features of the node with those that its plugin reports, then resume the node.",
    ),
    Cause(
        "silent",
        "slurmctld has no answer from a slurmd that runs.",
        _silent,
        "Wait for the next ping (SlurmdTimeout / 3), then read the logs of both daemons; a restart of slurmd is safe.",
    ),
    Cause(
        "back",
        "The node was down because it did not answer, and answers again.",
        _back,
        "Find out why it was away, then resume the node.",
    ),
)
"""What Slurm's reasons and states mean. The first that applies is named, if nothing was measured."""


def _owned(owner: str) -> Callable[[Case], str]:
    return lambda case: f"drained by {owner} ({case.node.reason})" if case.node.owner == owner else ""


def _cable(case: Case) -> str:
    """What the health check says of a network port (health/finding_table.py)."""
    found = case.node.reason.removeprefix(drains.HEALTH)
    is_port = case.node.owner == drains.OWNERS[drains.HEALTH] and found.startswith("port-")
    return found.partition(": ")[2] or found if is_port else ""


def _other_check(case: Case) -> str:
    return "" if _cable(case) else _owned(drains.OWNERS[drains.HEALTH])(case)


def _person(case: Case) -> str:
    if case.node.owner != "a person":
        return ""
    return f"drained by {case.node.user or 'a person'} ({case.node.reason or 'without a reason'})"


OWNED = (
    Cause("person", "A person has drained the node.", _person, "Ask who has drained it."),
    Cause(
        "cable",
        "The health check has drained the node for a network port without a link, or with errors.",
        _cable,
        "Look at the cable, its modules and the port of the switch. The check resumes the node once the port is up; "
        "errors end with slurm-health --close on the node.",
    ),
    Cause(
        "health-check",
        "The health check has drained the node.",
        _other_check,
        f"Repair what the check names; it resumes the node by itself. After a repair of hardware, {MEASURE}.",
    ),
    Cause(
        "rolling",
        "A rolling change has drained the node, and has not returned it.",
        _owned(drains.OWNERS[drains.ROLLING]),
        "Repair what the reason names, then run rolling.yml again with the same options.",
    ),
    Cause(
        "accept",
        "accept.yml has found the node slow or broken, and has drained it.",
        _owned(drains.OWNERS[drains.ACCEPT]),
        f"Repair what the reason names, resume the node, and {MEASURE}.",
    ),
    Cause(
        "repair",
        "Repair has drained the node, to treat it.",
        _owned(drains.OWNERS[drains.REPAIR]),
        "Run slurm-repair show NODE on a controller: it tells what comes next, and whether a person is needed.",
    ),
    Cause(
        "mig",
        "site.yml has drained the node to change its MIG instances.",
        _owned(drains.OWNERS[drains.MIG]),
        "Run site.yml with --tags mig,compute.",
    ),
    Cause(
        "driver",
        "site.yml has drained the node to change its NVIDIA driver.",
        _owned(drains.OWNERS[drains.DRIVER]),
        "Run site.yml with --tags compute.",
    ),
)
"""Drains of others than Slurm. They are named together with what was measured."""

UNKNOWN = Cause(
    "unknown",
    "No cause was found.",
    lambda case: f"{case.node.reason or 'no reason'}{case.line('error|fatal')}",
    "Read the logs of slurmctld and slurmd for this node.",
)


def by_reason(reason: str, owner: str) -> Cause:
    """The cause of a drain or of a node that is down, as far as its reason tells, without facts about the host."""
    node = SlurmNode("", ("DOWN", "DRAIN"), reason, drains.SLURM_USERS[0] if owner == "Slurm" else "")
    case = Case(node, HostEvidence(unreached="not examined"), ClusterEvidence())
    return next((cause for cause in (*OWNED, *SAID) if cause.test(case)), UNKNOWN)


def reason_table() -> dict[str, Any]:
    """`by_reason` as data, for programs on hosts that have none of this package.

    `reasons` has the word of the cause by the beginning of a reason, the longest beginning first, `words` has the
    meaning and the remedy of each word. A reason without one of these beginnings is a person's, unless one of
    `slurm_users` has set it.
    """
    said = [text for cause in SAID if isinstance(cause.test, Says) for text in cause.test.beginnings]
    beginnings = sorted({*drains.OWNERS, *drains.OF_SLURM, *said}, key=lambda text: (-len(text), text))
    named = (*OWNED, *SAID, UNKNOWN)
    return {
        "reasons": [{"beginning": text, "cause": by_reason(text, drains.owner(text)).name} for text in beginnings],
        "words": {cause.name: {"meaning": cause.means, "remedy": cause.remedy} for cause in named},
        "slurm_users": [*drains.SLURM_USERS],
    }


def causes(case: Case) -> list[tuple[Cause, str]]:
    """The causes of a sick node, each with its evidence."""
    found = [(cause, text) for cause in OWNED if (text := cause.test(case))]
    if case.node.asleep:
        return []
    if not case.reached:
        # Nothing else is known, and the rest of the evidence has its defaults.
        return found + [(cause, text) for cause in OF_UNREACHED_HOSTS if (text := cause.test(case))]
    found += [(cause, text) for cause in MEASURED if (text := cause.test(case))]
    # A node in service that was examined because of its log or its port, and has nothing wrong, is well.
    if not found and (case.node.unanswered or {*case.node.states} & SICK):
        said = [(cause, text) for cause in SAID if (text := cause.test(case))]
        found = said[:1] or [(UNKNOWN, UNKNOWN.test(case))]
    return found
