# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role first_boot."""

from __future__ import annotations

import json
from typing import Any

from ...configuration.release_order import protocol_of_release
from ...configuration.upgrade import takes
from ..known.platform_tables import RELEASES
from ..known.program_files import library
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile
from ..known.whole_cluster import conf_servers
from .slurm_client import wants_sackd

ROLE = "first_boot"
MARK = "# Managed by gpucluster.slurm (role first_boot): changes here are overwritten."
PROGRAM = "/usr/local/sbin/slurm-first-boot"
SETTINGS = "/etc/gpucluster-slurm/first-boot.json"
ENVIRONMENT = "/run/gpucluster-slurm/first-boot.env"
UNITS = "/etc/systemd/system"


def daemon(host: RunHost) -> str:
    """The daemon that fetches the configuration of Slurm on this host; empty without one."""
    if host.within("slurm_compute"):
        return "slurmd"
    return "sackd" if wants_sackd(host) else ""


def settings(host: RunHost) -> dict[str, Any]:
    """What the program has to know about the cluster."""
    servers = conf_servers(host)
    return {
        "cluster": host["slurm_cluster_name"],
        "daemon": daemon(host),
        "servers": servers,
        "port": int(servers[0].rpartition(":")[2]),
        "tls": host["slurm_conf"].get("TLSType", "tls/none") != "tls/none",
        "key_command": host.option(ROLE, "first_boot_key_command"),
        "protocols": {release: protocol_of_release(release) for release in RELEASES},
        "takes": {release: list(takes(release)) for release in RELEASES},
    }


def files(host: RunHost) -> list[HostFile]:
    """The program, its settings and its units.

    No unit has to be enabled: munge and the daemon require the service.
    """
    name = daemon(host)
    waiting = ["munge.service", *([f"{name}.service"] if name else [])]
    check = ["slurm-first-boot-check.service"] if name else []
    own = {"daemon": name, "program": PROGRAM}
    return [
        *library("slurm-first-boot", {PROGRAM: "programs.image_first_boot"}, MARK),
        {"path": SETTINGS, "content": json.dumps(settings(host), indent=1) + "\n", "mode": "0600"},
        unit(
            host, "slurm-first-boot.service", "first-boot.service.j2", **own, before=waiting, wanted=[*waiting, *check]
        ),
        *(unit(host, path, "first-boot-check.service.j2", **own) for path in check),
        *(
            unit(
                host,
                f"{path}.d/gpucluster-first-boot.conf",
                "first-boot.conf.j2",
                environment="" if path == "munge.service" else ENVIRONMENT,
            )
            for path in waiting
        ),
    ]


def unit(host: RunHost, path: str, template: str, **variables: Any) -> HostFile:
    """A file of systemd's units."""
    return {"path": f"{UNITS}/{path}", "content": host.text(ROLE, template, **variables)}
