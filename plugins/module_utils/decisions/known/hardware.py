# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role hardware."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...cluster.programs import ProgramError, program_errors, programs
from ...language.hostlist import expand, fold
from ...nodes.discovery import discover
from ...nodes.registration import MachineDifference, find_differences
from . import registered
from .host_paths import KEPT_CONF
from .own_scripts import site_scripts
from .run_host import RunHost
from .whole_cluster import serving_controller, tmp_fs

WITH_PROGRAMS = ("slurm_compute", "slurm_controller", "slurm_login")
"""Groups of hosts on which Slurm runs programs of slurm.conf."""


@dataclass(frozen=True)
class Measurement:
    """Options with which a compute node is measured as its slurmd measures it."""

    slurmd_parameters: list[Any]
    device_files: list[str]
    """Those of all machine types, which are few; a selection for each host would cost time for each host."""
    tmp_fs: str


@dataclass(frozen=True)
class Registration:
    """What the measured hardware means for Slurm, a line for each finding."""

    odd: list[str]
    """Differences that Slurm accepts."""
    refused: list[str]
    """Why the run stops: with the change of this run Slurm would refuse nodes, or could not run a program."""
    left_out: dict[str, list[str]]
    """Why nodes are left out, by node: their own faults, which this run does not bring about."""


@dataclass(frozen=True)
class Findings:
    """What the answers of hosts mean for Slurm."""

    hardware: list[MachineDifference]
    programs: list[ProgramError]


@dataclass(frozen=True)
class Discovery:
    """The content of the hardware file."""

    hardware: dict[str, Any]
    nodes: list[dict[str, Any]]
    remarks: list[str]


def measurement(host: RunHost) -> Measurement:
    """How a compute node is measured."""
    parameters = host["slurm_conf"].get("SlurmdParameters", [])
    if not isinstance(parameters, list):
        parameters = [parameters]
    entries = [entry for machine in host["slurm_hardware_types"].values() for entry in machine.get("gres") or []]
    return Measurement(
        slurmd_parameters=[parameter for parameter in parameters if parameter is not None],
        device_files=list(dict.fromkeys(entry["file"] for entry in entries if "file" in entry)),
        tmp_fs=tmp_fs(host),
    )


def registration(host: RunHost) -> Registration:
    """Whether Slurm accepts the compute nodes of this play, and can run its programs on all hosts.

    A node with a fault of its own is left out. The run stops if its own change of the configuration is what Slurm would
    refuse nodes for, since these may be in service, and if a host that is no node of this play has the fault.
    """
    names = dict.fromkeys([*host.members("slurm_cluster"), *host.play_hosts])
    answers = {name: host.of(name).get("ansible_facts") or {} for name in names}
    found = registration_findings(host, answers, measured_hosts(host))
    own = {*host.play_hosts} - {*host["slurm_controllers"]}
    refused: list[str] = []
    left_out: dict[str, list[str]] = {}
    causes = [(each.text, each.hosts, _changes_nodes(host, each.hosts)) for each in found.hardware if not each.accepted]
    causes += [(each.text, each.hosts, _changes_program(host, each.what)) for each in found.programs]
    for text, hosts, of_this_run in causes:
        if of_this_run or not hosts or not own.issuperset(hosts):
            refused.append(text)
        else:
            for name in hosts:
                left_out.setdefault(name, []).append(text)
    return Registration([each.text for each in found.hardware if each.accepted], refused, left_out)


def _planned(host: RunHost) -> list[Mapping[str, Any]]:
    """The changes of the configuration by the plan of this run (role slurmctld)."""
    return list(registered.SLURMCTLD_PLANNED.seen(host.of(serving_controller(host))).get("plan") or [])


def _changes_nodes(host: RunHost, names: Iterable[str]) -> bool:
    """Whether this run changes what the configuration in force says of one of these nodes, or of GPUs."""
    for step in _planned(host):
        kind, _is, rest = step["what"].partition("=")
        if step["before"] is None:  # a node that is new
            continue
        if kind.startswith("gres.conf"):
            return True
        if kind == "NodeName" and not {*names}.isdisjoint(expand(rest.partition(" ")[0])):
            return True
    return False


def _changes_program(host: RunHost, what: str) -> bool:
    """Whether the configuration in force does not name this program yet; of a script it is not known."""
    controller = host.of(serving_controller(host)).facts_or_none
    bare = controller is not None and KEPT_CONF not in controller["files"]
    keys = {f"slurm.conf {key}" for key in what.partition(":")[0].removeprefix("slurm.conf ").split(", ")}
    changed = any(step["what"] in keys for step in _planned(host))
    return bare or changed or not what.startswith("slurm.conf ")


def registration_findings(
    cluster: RunHost, answers: Mapping[str, Mapping[str, Any]], measured: Iterable[str]
) -> Findings:
    """What the answers of hosts mean for Slurm.

    The first job would drain a node without its prolog, so missing programs of slurm.conf are found as well.

    Args:
        cluster: any host, for the shared variables and the groups.
        answers: the facts `slurm_host` and `slurm_hardware` of each host that has answered, by name. The run does not
            ask the hosts that it leaves out.
        measured: the hosts whose hardware counts.
    """
    conf, scripts = cluster["slurm_conf"], site_scripts(cluster)
    machines = {name: answers[name]["slurm_hardware"] for name in measured}
    found = find_differences(machines, cluster["slurm_nodes"], cluster["slurm_hardware_types"], conf)
    checked: dict[str, Any] = {}
    if scripts or programs(conf, WITH_PROGRAMS):
        facts = {name: answers.get(name, {}).get("slurm_host") or {} for name in cluster.members("slurm_cluster")}
        checked = {name: own for name, own in facts.items() if "programs" in own}
    unprepared = cluster.members("slurm_needs_packages")
    return Findings(found, program_errors(conf, checked, unprepared, scripts))


def measured_hosts(host: RunHost) -> list[str]:
    """The hosts of this play whose hardware is known.

    Hosts that could not be reached have left the play already. In check mode the GPUs of hosts that role nvidia_mig
    would have changed are not known.
    """
    unknown = host.get("nvidia_mig_pending", []) if host.check_mode else []
    return sorted((name for name in host.play_hosts if name not in unknown), key=str.lower)


def discovery(host: RunHost, known: Mapping[str, Any]) -> Discovery:
    """The hardware file, brought up to date.

    Args:
        host: any measured host.
        known: the file as it is; empty if there is none.
    """
    declared = host["slurm_hardware_types"].keys() - (known.get("hardware") or {})
    found = discover(
        {name: host.of(name)["ansible_facts"]["slurm_hardware"] for name in measured_hosts(host)},
        known,
        host.members("slurm_compute"),
        declared,
        host["slurm_nodes"],
        host.flag("hardware", "hardware_remove_gres"),
    )
    return Discovery(found["hardware"], found["nodes"], found["notes"] + not_measured(host))


def not_measured(host: RunHost) -> list[str]:
    """The message about hosts that were not reached."""
    names = sorted((name for name in host.all_play_hosts if name not in host.play_hosts), key=str.lower)
    return [f"Hosts that were not measured keep their entry: {fold(names)}"] if names else []
