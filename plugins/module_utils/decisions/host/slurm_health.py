# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurm_health."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...acceptance.tasks import PROGRAM as MEASURES
from ...cluster.repair_key import treats
from ...configuration.ports import REPAIR
from ...nodes.health import health_environment
from ...repair.report_transport import PROGRAM as TREATMENT_PROGRAM
from ..known import registered
from ..known.host_paths import HEALTH_PROGRAM, LIB_DIR
from ..known.program_files import library
from ..known.public_files import public_content
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.unchanged_hosts import changed_hosts, record_digests
from ..known.whole_cluster import slurm_user, tmp_fs

ROLE = Path(__file__).parents[4] / "roles/slurm_health"

DIRECTORY = "/etc/gpucluster-slurm"
CHECKS = f"{DIRECTORY}/health.d"
SETTINGS = f"{DIRECTORY}/health.json"

BUILT_IN = ("gpu_errors", "kernel", "ports")
"""Checks that the program does itself (programs/health_check.py)."""

MARK = "# Managed by gpucluster.slurm (role slurm_health): changes here are overwritten."
"""It tells the files of this role from files of others, which stay."""


def is_used(host: RunHost) -> bool:
    """Whether slurmd runs the program of this role. A site can have another one."""
    return bool(host["slurm_conf"].get("HealthCheckProgram", HEALTH_PROGRAM) == HEALTH_PROGRAM)


def objections(host: RunHost) -> list[str]:
    """Why checks of the site would not run: the program of this role accepts no such names of checks."""
    misnamed = [
        name
        for name in host.option("slurm_health", "slurm_health_own_checks")
        if not re.match(r"^[A-Za-z0-9_-]+$", name)
    ]
    if not misnamed:
        return []
    found = ", ".join(misnamed)
    return [f"slurm_health_own_checks: found {found}, allowed as names: letters, digits, '-' and '_'"]


def writable(host: RunHost) -> list[str]:
    """Directories to which slurmd and jobs write."""
    directories = [host["slurm_conf"].get("SlurmdSpoolDir", f"{LIB_DIR}/slurmd"), tmp_fs(host)]
    return [path for path in directories if "%" not in path]


def files(host: RunHost) -> list[HostFile]:
    """The program and its checks. They are the same on all hosts.

    A check of the site replaces one of the role with the same name.
    """
    own = host.option("slurm_health", "slurm_health_own_checks")
    chosen = host.option("slurm_health", "slurm_health_checks")
    checks = [name for name in chosen if name not in own and name not in BUILT_IN]
    return [
        *program(host),
        *(role_check(name) for name in checks),
        *(own_check(host, name, file) for name, file in own.items()),
        *(measuring_program() if host["slurm_repair"] else ()),
    ]


def program(host: RunHost) -> list[HostFile]:
    """The program that runs the checks, and the one that mends the node, with the key `repair`."""
    mends = {TREATMENT_PROGRAM: "programs.node_treatment"} if host["slurm_repair"] else {}
    return library("slurm-health", {HEALTH_PROGRAM: "programs.health_check", **mends}, MARK)


def measuring_program() -> list[HostFile]:
    """The program that measures a node, for jobs of slurm-repair and of accept.yml."""
    return library("slurm-accept", {MEASURES: "programs.accept.accept_command"})


def role_check(name: str) -> HostFile:
    """A check of this role, with the mark after its first line."""
    first, *lines = (ROLE / "files/checks" / name).read_text(encoding="utf-8").rstrip().split("\n")
    return {"path": f"{CHECKS}/{name}", "mode": "0755", "content": "\n".join([first, MARK, *lines, ""])}


def own_check(host: RunHost, name: str, file: str) -> HostFile:
    """A check of the site. It may be any program, so the mark is at its end, after each of its bytes.

    Raises:
        ValueError: the control host does not have the file, or it has a secret.
    """
    text = public_content(host, f"slurm_health_own_checks.{name}", file, "script")
    return {"path": f"{CHECKS}/{name}", "content": f"{text}\n{MARK}\n", "mode": "0755"}


def environments(host: RunHost) -> dict[str, dict[str, str]]:
    """The part of the environment of the checks that follows from the nodes of the cluster file, by host."""
    return health_environment(host["slurm_nodes"], host["slurm_hardware_types"], host["slurm_conf"])


def settings(host: RunHost, environment: Mapping[str, str]) -> HostFile:
    """The file with the settings of the program; environment: what environments() has for this host."""
    own = {
        "HEALTH_MOUNTS": " ".join(host.option("slurm_health", "slurm_health_mounts")),
        "HEALTH_UNITS": "/etc/systemd/system",
        "HEALTH_WRITABLE": " ".join(writable(host)),
        "HEALTH_DISK_FREE": str(host.option("slurm_health", "slurm_health_disk_free")),
    }
    content = {
        "limit": host.option("slurm_health", "slurm_health_limit"),
        "environment": {**environment, **own},
        "built_in": [name for name in BUILT_IN if name in host.option("slurm_health", "slurm_health_checks")],
        "shared_percent": host.option("slurm_health", "slurm_health_shared_percent"),
        "xids": host.option("slurm_health", "slurm_health_xids"),
        **reports(host),
    }
    text = json.dumps(content, indent=4, sort_keys=True)
    return {"path": SETTINGS, "content": f"{text}\n"}


def reports(host: RunHost) -> dict[str, Any]:
    """Where the program sends what it has found, with the key `repair`."""
    if not host["slurm_repair"]:
        return {}
    to = {"controllers": [*host["slurm_controllers"]], "port": REPAIR, "reader": slurm_user(host)}
    return {"repair": {**to, "treats": treats(host["slurm_repair"])}}


@dataclass(frozen=True)
class HealthCheck:
    """Options of slurm_files."""

    files: list[HostFile]
    purge: str
    """The directory of the checks, from which checks of this role that are not wanted are removed."""
    digest: str


def wanted(host: RunHost) -> HealthCheck:
    """The health check of this host."""
    if registered.SLURM_RUN.name not in host:
        # A role that is used alone. The comparison of hosts by site.yml knows nothing of variables of its play.
        return HealthCheck([*files(host), settings(host, environments(host)[host.name])], CHECKS, "")
    environment = host.shared("health_environments")[host.name]
    return HealthCheck([*host.shared("health_files"), settings(host, environment)], CHECKS, digest(host))


def common(host: RunHost) -> list[Any]:
    """What is equal on all hosts in the checksums: files, directories and the defaults of the role."""
    defaults = (ROLE / "defaults/main.yml").read_text(encoding="utf-8").rstrip()
    return [files(host), writable(host), defaults, reports(host)]


def given(host: RunHost, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The variables of this role that hosts have for themselves, by host. A host can have some of its own."""
    others = {name: host.of(name) for name in names}
    return {
        name: {variable: other[variable] for variable in other if variable.startswith("slurm_health_")}
        for name, other in others.items()
    }


def digests(host: RunHost) -> dict[str, str]:
    """The checksums of the options, by host; empty if the role does nothing."""
    hosts = list(dict.fromkeys([*host.members("slurm_compute"), *host.play_hosts]))
    if not hosts or not is_used(host):
        return {}
    first = host.of(hosts[0])
    return record_digests(hosts, common(first), environments(first), given(first, hosts))


def digest(host: RunHost) -> str:
    """The checksum of the options on this host; empty if there is none."""
    return str(host.shared("health_digests").get(host.name, ""))


def hosts_with_work(host: RunHost, records: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The hosts whose health checks are not those of the last run.

    Args:
        host: any host.
        records: by compute node, the checksums that modules have recorded there.
    """
    return changed_hosts(records, {"slurm_health": host.shared("health_digests")})
