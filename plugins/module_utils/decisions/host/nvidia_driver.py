# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role nvidia_driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...client.drains import DRIVER
from ...cluster.render import host_addresses
from ...formats.written import written
from ...gpu.nvidia.driver_platforms import driver_platforms
from ...language.hostlist import expand, fold
from ..known import image, registered
from ..known.host_paths import NVIDIA_FILES
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, plain_file

if TYPE_CHECKING:
    from ....plugin_utils.results.module_results import DriverResult

MODULES_FILE, OPTIONS_FILE = NVIDIA_FILES


DRAIN_REASON = DRIVER
"""Why the role drains a node. By it the role knows a node that it has drained."""


def platforms(_host: RunHost) -> dict[str, dict[str, dict[str, Any]]]:
    """The packages of each platform and source, for the module nvidia_driver."""
    return driver_platforms()


# -- the driver ------------------------------------------------------------------------------------------------------


def found(host: RunHost) -> DriverResult:
    """The answer of the module nvidia_driver at the beginning; empty before it."""
    return registered.NVIDIA_DRIVER_PLAN.seen(host)


def present(host: RunHost) -> DriverResult:
    """The present state of the host: as found, or after the installation or the reboot."""
    done = registered.NVIDIA_DRIVER_DONE.seen(host)
    return done if done and not done.get("skipped") else found(host)


def managed_hosts(host: RunHost) -> list[str]:
    """The hosts of the play with a driver to manage."""
    plans = {name: found(host.of(name)) for name in host.play_hosts}
    return [name for name, plan in plans.items() if plan and not plan["reason"]]


def left_alone(host: RunHost) -> str:
    """The hosts of the play that get no driver, by reason.

    It is one message: a line for each of thousands of nodes without a GPU would hide the others.
    """
    names: dict[str, list[str]] = {}
    for name in host.play_hosts:
        if reason := found(host.of(name)).get("reason"):
            names.setdefault(reason, []).append(name)
    reasons = sorted(names, key=str.lower)
    return "; ".join(f"Role nvidia_driver installs no driver on {fold(names[reason])}: {reason}" for reason in reasons)


def may_drain(host: RunHost) -> bool:
    """Whether the role asks the controller to drain a node.

    Without a controller there is no Slurm and no job. In check mode Slurm may not be installed on the controller yet.
    """
    asked = registered.NVIDIA_DRIVER_ASKED.seen(host)
    return bool(host["slurm_controllers"]) and (not host.check_mode or asked.get("rc", 1) == 0)


def has_drained(host: RunHost) -> bool:
    """Whether this role has drained the node, in this run or in an earlier one, as sinfo lists it ("gpu01|reason").

    Only whole lines are compared: the reasons of other nodes may be anything, also of several lines.
    """
    if found(host)["reason"]:
        return False
    asked, drained = registered.NVIDIA_DRIVER_ASKED.seen(host), registered.NVIDIA_DRIVER_DRAINED.seen(host)
    listed = f"{host.name}|{DRAIN_REASON}" in asked.get("stdout_lines", [])
    return listed or bool(drained and not drained.get("skipped"))


def needs_change(host: RunHost) -> bool:
    """Whether the driver is not as wanted, or this role has drained the node."""
    plan = found(host)
    return bool(plan["pending"] or plan["reboot"]) or has_drained(host)


def needs_reboot(host: RunHost) -> bool:
    """Whether the role reboots the host."""
    return host.flag("nvidia_driver", "nvidia_driver_reboot") and bool(present(host)["reboot"])


def resumes(host: RunHost) -> bool:
    """Whether the node, which this role has drained, is resumed."""
    done = host.flag("nvidia_driver", "nvidia_driver_reboot") or not found(host)["disruptive"]
    return has_drained(host) and not present(host)["reboot"] and done


def messages(host: RunHost) -> list[str]:
    """The message to the administrator at the end."""
    plan, now = found(host), present(host)
    lines = list(now["remarks"])
    if host.flag("nvidia_driver", "nvidia_driver_reboot") or not (plan["disruptive"] or now["reboot"]):
        return lines
    if plan["disruptive"]:
        lines.append(
            f"The driver is not changed, since jobs may be using it. To be installed: {' '.join(plan['packages'])}"
        )
    return [
        *lines,
        *now["reboot"],
        "Set nvidia_driver_reboot=true to drain the node, wait for its jobs and reboot it.",
    ]


# -- kernel modules --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModuleFiles:
    """The files of further kernel modules."""

    files: list[HostFile]
    """Modules that are loaded at boot, and options of modules."""
    left: list[str]
    """Files of an earlier run with nothing to write any more."""
    needed: bool
    """Whether there is anything to do."""


def module_files(host: RunHost) -> ModuleFiles:
    """The files of further kernel modules."""
    files = []
    if host["nvidia_driver_kernel_modules"]:
        files.append(plain_file(MODULES_FILE, host.text("nvidia_driver", "modules-load.conf.j2")))
    if options := host["nvidia_driver_module_options"]:
        lines = {module: written(value, "modprobe") for module, value in options.items()}
        files.append(plain_file(OPTIONS_FILE, host.text("nvidia_driver", "modprobe.conf.j2", options=lines)))
    there = host.facts["files"] if host.answer() else {}
    wanted = [entry["path"] for entry in files]
    left = [path for path in NVIDIA_FILES if path in there and path not in wanted]
    return ModuleFiles(files, left, bool(files or left))


def loads_modules(host: RunHost) -> bool:
    """Whether modules are loaded now: not where the next boot does it."""
    return not image.builds(host) and not (found(host) and present(host)["reboot"])


# -- NVLink domains --------------------------------------------------------------------------------------------------


def domain(host: RunHost) -> list[str]:
    """The hosts of the NVLink domain of this host."""
    return expand(host["nvidia_driver_imex_nodes"])


def domain_objections(host: RunHost) -> list[str]:
    """Why a domain is refused: it lacks this host, or has hosts that nobody knows."""
    hosts = domain(host)
    own = [] if host.name in hosts else [f"without {host.name}, allowed: a hostlist with this host"]
    known = {*host["groups"]["all"]}
    unknown = [
        f"unknown host {name}, allowed: hosts of the inventory" for name in dict.fromkeys(hosts) if name not in known
    ]
    found_text = f"nvidia_driver_imex_nodes: found {host['nvidia_driver_imex_nodes']}"
    return [f"{found_text}, {reason}" for reason in own + unknown]


def imex_files(host: RunHost) -> list[HostFile]:
    """The file of nvidia-imex with the addresses of the domain.

    A restart ends the programs that share memory over NVLink, so a node with jobs keeps its daemon until a later run.
    """
    jobs = registered.NVIDIA_DRIVER_IMEX_JOBS.of(host)
    is_idle = image.builds(host) or (jobs["rc"] == 0 and not jobs["stdout"].strip())
    return [{"path": "/etc/nvidia-imex/nodes_config.cfg", "content": domain_text(host), "loaded": is_idle}]


def domain_text(host: RunHost) -> str:
    """The addresses of the hosts of the domain, a line each. A host without an address has its name."""
    hosts = domain(host)
    addresses = {entry["name"]: entry["address"] for entry in host_addresses(host["slurm_addresses"], hosts)}
    return "".join(f"{addresses.get(name, name)}\n" for name in hosts)
