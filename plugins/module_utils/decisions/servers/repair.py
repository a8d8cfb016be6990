# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurm_repair: the program with cases of nodes that fail, on the controllers."""

from __future__ import annotations

import json
from typing import Any

from ...acceptance.quick_level import plan_to_json
from ...configuration.ports import REPAIR
from ..known.program_files import library
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, unloaded
from ..known.whole_cluster import is_controller, slurm_user, state_directory
from .node_measuring import plan

ROLE = "slurm_repair"
PROGRAM = "/usr/local/sbin/slurm-repair"
SETTINGS = "/etc/gpucluster-slurm/repair.json"
PLAN = "/etc/gpucluster-slurm/measuring.json"
UNITS = "/etc/systemd/system"


def is_used(host: RunHost) -> bool:
    """Whether the host is a controller of a cluster with the key `repair`."""
    return bool(host["slurm_repair"]) and is_controller(host)


def socket_files(host: RunHost) -> list[HostFile]:
    """The files of the socket, with what it starts."""
    return [_unit(host, "slurm-repair.socket", port=REPAIR), *unloaded(_shared_files(host))]


def timer_files(host: RunHost) -> list[HostFile]:
    """The files of the timer, with what it starts."""
    return [
        _unit(host, "slurm-repair.timer"),
        *unloaded([_unit(host, "slurm-repair.service", program=PROGRAM)]),
    ]


def _shared_files(host: RunHost) -> list[HostFile]:
    """The program, its settings and the service of a connection."""
    return [
        *library("slurm-repair", {PROGRAM: "programs.slurm_repair"}),
        _json(SETTINGS, settings(host)),
        _json(PLAN, plan_to_json(plan(host))),
        _unit(host, "slurm-repair@.service", program=PROGRAM),
    ]


def settings(host: RunHost) -> dict[str, Any]:
    """What the program knows of the cluster and of this host.

    The cases are in slurmctld's directory, which all controllers share, so that another one goes on.
    """
    key = host["slurm_repair"]
    quiet = key.get("quiet_hours", "")
    return {
        "cluster": host["slurm_cluster_name"],
        "controllers": [*host["slurm_controllers"]],
        "controller": host.name.partition(".")[0],
        "job_user": host.option("accept", "accept_user"),
        "directory": f"{state_directory(host)}/repair",
        "machines": bool(host["slurm_machines"]),
        "least_nodes": key.get("least_nodes", {}),
        "mail": key.get("mail", ""),
        "mail_domain": host["slurm_mail"].get("domain", ""),
        "mode": key["mode"],
        "port": REPAIR,
        "quiet_hours": [int(hour) for hour in quiet.split("-")] if quiet else [],
        "user": slurm_user(host),
    }


def _json(path: str, content: dict[str, Any]) -> HostFile:
    return {"path": path, "content": f"{json.dumps(content, indent=4, sort_keys=True)}\n"}


def _unit(host: RunHost, name: str, **values: Any) -> HostFile:
    return {"path": f"{UNITS}/{name}", "content": host.text(ROLE, f"{name}.j2", **values)}
