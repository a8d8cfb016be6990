# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role rolling: what a rolling change does, on which nodes, and what is known about the nodes of a batch."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...jobs.validation import validation_jobs
from ...language.hostlist import fold
from ..known import registered
from ..known.host_paths import HEALTH_PROGRAM
from ..known.packages import APT_GET
from ..known.run_host import RunHost
from ..servers import node_measuring
from . import accept

DRIVER = re.compile(r"(lib)?nvidia-(?!container)|libcuda|cuda-drivers|linux-modules-nvidia|xserver-xorg-video-nvidia")
"""Packages of NVIDIA's driver: its libraries and its kernel module have one version."""

MOST_BATCHES = 100
"""A deep chain of includes ends with Python's limit of recursion."""

WINDOW = "gpucluster_rolling_window"
"""The reservation of all nodes of the run."""

CHECK_RESERVATION = "gpucluster_rolling"
"""The reservation of the module slurm_rolling for the jobs that check nodes."""

LEVEL = "quick"
"""The acceptance tests of nodes that return: those of one node alone, since the partners of others have jobs."""

WITHOUT_BASELINE = "checks and published figures decide, and other changed nodes, if there are four or more of a kind"


# -- the change -------------------------------------------------------------------------------------------------------


def wanted_packages(host: RunHost) -> list[str]:
    """The packages that the site names, or `security` alone, which may be a text."""
    value = host["rolling_packages"]
    return [value] if isinstance(value, str) and value else list(value)


def only_security(host: RunHost) -> bool:
    """Whether the nodes get the security updates of all of their packages, instead of packages by name."""
    return wanted_packages(host) == ["security"]


def targets(host: RunHost) -> list[str]:
    """The packages of this node as apt takes them: the security updates that it has found, or those of the site."""
    return security_updates(host) if only_security(host) else wanted_packages(host)


def security_updates(node: RunHost) -> list[str]:
    """The security updates that a node has found; none before it was asked."""
    return list(registered.ROLLING_UPDATES.seen(node).get("security") or [])


def installation(host: RunHost) -> list[str]:
    """The command that installs the packages, or newer ones: a security update has one version."""
    only = ["--only-upgrade", "--no-remove"] if only_security(host) else []
    return [*APT_GET, "--assume-yes", "install", *only, "--", *targets(host)]


def simulation(host: RunHost) -> list[str]:
    """The command that finds out whether apt can install the packages."""
    command, *options = installation(host)
    return [command, "--simulate", *options]


def task_file(host: RunHost) -> str:
    """The path of the tasks of the site; empty without any."""
    name = host["rolling_tasks"]
    return os.path.join(host["slurm_cluster_dir"], name) if name else ""


def reboots(host: RunHost) -> bool:
    """Whether the nodes are rebooted."""
    return host.flag("rolling", "rolling_reboot")


def change(host: RunHost) -> str:
    """The checksum of the change: a run with another one begins anew."""
    parts = [wanted_packages(host), reboots(host), _task_text(host)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _task_text(host: RunHost) -> str:
    """The tasks of the site; empty without any.

    Raises:
        ValueError: their file is missing.
    """
    path = task_file(host)
    content = host.content(path) if path else b""
    if content is None:
        raise ValueError(f"rolling_tasks: {path} is missing")
    return content.decode().rstrip()


def work(host: RunHost) -> str:
    """A text about what is done on each node; empty if that is nothing."""
    wanted, path = wanted_packages(host), task_file(host)
    steps = [f"packages {', '.join(wanted)}"] if wanted else []
    steps = ["security updates"] if only_security(host) else steps
    steps += [f"tasks of {path}"] if path else []
    steps += ["a reboot"] if reboots(host) else []
    return ", ".join(steps)


def objection(host: RunHost) -> str:
    """Why there is no such change; empty if there is."""
    path = task_file(host)
    if not work(host):
        return (
            "Nothing to do: set rolling_tasks (a file of tasks), rolling_packages (a list, or security) or "
            "rolling_reboot (true)"
        )
    if path and not Path(path).is_file():
        return f"rolling_tasks: found '{host['rolling_tasks']}', allowed: a file on the control host; {path} is none"
    return ""


def accepts(host: RunHost) -> bool:
    """Whether changed nodes are measured before they return."""
    return host.flag("rolling", "rolling_accept")


def users(host: RunHost) -> list[str]:
    """The users of the jobs that check nodes."""
    measures = [host.option("accept", "accept_user")] if accepts(host) else []
    return list(dict.fromkeys([host["rolling_user"], *measures]))


def budgets(host: RunHost) -> dict[str, Any]:
    """How many nodes of each partition may be out of service at the same time; `*` is for the other partitions."""
    budget = host["rolling_budget"]
    return budget if isinstance(budget, dict) else {"*": budget}


# -- the nodes --------------------------------------------------------------------------------------------------------


def kept_nodes(host: RunHost) -> list[str]:
    """Nodes of this play that serve the cluster. A run that needs them does not reboot them."""
    servers = (*host["slurm_controllers"], host["slurm_database"])
    return [name for name in host.play_hosts if name in servers] if reboots(host) else []


def changed_nodes(host: RunHost) -> list[str]:
    """The nodes that this run changes."""
    kept = kept_nodes(host)
    return [name for name in host.play_hosts if name not in kept]


def unchanged_nodes(host: RunHost) -> str | None:
    """The nodes without a security update, as a hostlist; None for a change whose nodes the record knows.

    A reboot and tasks of the site are for all nodes.
    """
    if not only_security(host) or reboots(host) or task_file(host):
        return None
    return fold([name for name in changed_nodes(host) if not security_updates(host.of(name))])


def driver_objection(host: RunHost) -> str:
    """Why security updates of NVIDIA's driver are refused without a reboot; empty if there are none.

    The new libraries do not work with the kernel module that is loaded, so the check of each node would fail.
    """
    if not only_security(host) or reboots(host):
        return ""
    nvidia = [name for name in changed_nodes(host) if any(map(DRIVER.match, security_updates(host.of(name))))]
    if not nvidia:
        return ""
    return (
        f"{fold(nvidia)}: security updates of NVIDIA's driver are pending, and the new libraries need the new kernel "
        "module. Run this again with -e rolling_reboot=true"
    )


def announcement(host: RunHost) -> str:
    """What is done on which nodes."""
    kept, unchanged = kept_nodes(host), unchanged_nodes(host)
    without = f"; without {fold(kept)}, which this run needs: reboot them by hand" if kept else ""
    nothing = f"; none for {unchanged}" if unchanged else ""
    return f"{work(host)}: on {fold(registered.ROLLING_NODES.of(host))}{without}{nothing}{_measurement(host)}"


def _measurement(host: RunHost) -> str:
    """That nodes are measured, and what judges them. Raises BaselineError, and ValueError if the file is no YAML."""
    if not accepts(host):
        return ""
    judges = (
        "" if node_measuring.baseline(host) else f", without {node_measuring.baseline_path(host)}: {WITHOUT_BASELINE}"
    )
    return f"; a node returns when it has passed the acceptance tests of level {LEVEL}{judges}"


def window(host: RunHost) -> dict[str, Any]:
    """The parameters of the reservation of the nodes, in which running jobs go on."""
    own = {
        "Nodes": fold(registered.ROLLING_NODES.of(host)),
        "Users": [host["rolling_user"]],
        "Flags": ["MAINT", "IGNORE_JOBS"],
    }
    return {**own, **host["rolling_window"]}


def health_program(host: RunHost) -> str:
    """The program that checks the health of a node; empty if the site wants none."""
    return str(host["slurm_conf"].get("HealthCheckProgram", HEALTH_PROGRAM) or "")


# -- a batch ----------------------------------------------------------------------------------------------------------


def goes_on(host: RunHost) -> bool:
    """Whether another batch follows."""
    return not registered.ROLLING_STEP.of(host)["over"] and int(registered.ROLLING_BATCHES.of(host)) < MOST_BATCHES


def results(host: RunHost) -> dict[str, str]:
    """The error of each node of the batch, empty after a good change.

    A node that was lost is no host of the play any more.
    """
    found = {}
    for name in registered.ROLLING_STEP.of(host)["ready"]:
        lost = name not in host.play_hosts
        found[name] = "it was not reached" if lost else registered.ROLLING_ERROR.get(host.of(name)) or ""
    return found


def check_jobs(host: RunHost) -> list[dict[str, Any]]:
    """A job on each node that is back, in its first partition, with all of its GPUs."""
    jobs: dict[str, dict[str, Any]] = {}
    every = validation_jobs(
        host["slurm_partitions"],
        host["slurm_nodes"],
        host["slurm_hardware_types"],
        host["slurm_conf"],
        host["slurm_cgroup_conf"],
    )
    for job in every:
        if job.get("nodelist") in registered.ROLLING_RESUMED.of(host)["ready"]:
            jobs.setdefault(job["nodelist"], job)
    return [*jobs.values()]


def job_results(host: RunHost) -> dict[str, str]:
    """The error of the job on each node that is back, empty after a good one and for a node in no partition."""
    nodes, jobs = registered.ROLLING_RESUMED.of(host)["ready"], check_jobs(host)
    run = registered.ROLLING_JOBS.seen(host)
    if not jobs:
        return dict.fromkeys(nodes, "")
    ended = run.get("jobs") or []
    failed = "" if ended else run.get("msg", "the job could not be submitted")
    found = zip((job["nodelist"] for job in jobs), (job["message"] for job in ended), strict=False)
    return dict.fromkeys(nodes, failed) | dict(found)


def measured_nodes(host: RunHost) -> list[str]:
    """The nodes of the batch on which the acceptance tests run: those whose job was good, if the site wants it."""
    return [name for name, why in job_results(host).items() if not why] if accepts(host) else []


def fresh_nodes(host: RunHost) -> list[str]:
    """Those of them that this run has changed, so that what was measured before does not count."""
    return [name for name in measured_nodes(host) if name not in registered.ROLLING_STEP.of(host)["changed_earlier"]]


def changes_here(host: RunHost) -> bool:
    """Whether this node of the batch is changed, and not checked alone since an earlier run has changed it."""
    return host.name not in registered.ROLLING_STEP.of(host)["changed_earlier"]


def check_results(host: RunHost) -> dict[str, str]:
    """The error of each node that is back, by its job and by the acceptance tests; empty for one that returns."""
    errors = job_results(host)
    if measured := measured_nodes(host):
        errors |= accept.node_errors(host.extended(__accept_names=registered.ROLLING_NODES.of(host)), measured)
    return errors


# -- the end ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BegunChange:
    """What this run has recorded at its beginning."""

    found: bool
    """Whether it has begun. The play of the end has other hosts, perhaps none of the nodes."""
    nodes: str = ""
    """A hostlist."""
    change: str = ""


def begun(host: RunHost) -> BegunChange:
    """The change that this run has begun, as the first node with these facts knows it."""
    for name in host.members("slurm_compute"):
        node = host.of(name)
        if registered.ROLLING_NODES.name in node:
            return BegunChange(True, fold(registered.ROLLING_NODES.of(node)), registered.ROLLING_DIGEST.of(node))
    return BegunChange(False)
