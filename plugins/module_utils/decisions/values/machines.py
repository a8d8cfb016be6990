# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program slurm-machine on the controllers, with its settings: the key `machines`."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

from ...cluster.machines_key import IPMI, REDFISH, single_addresses
from ...machines.machine_settings import CA, PASSWORD, PROGRAM, SETTINGS
from ..known import secret_sources
from ..known.platform_tables import DISTRIBUTION_PACKAGES
from ..known.program_files import library
from ..known.public_files import public_content
from ..known.run_host import RunHost
from ..known.shipped_files import HostFile, unloaded
from ..known.whole_cluster import is_controller, slurm_user

COMMAND = "/usr/local/sbin/slurm-machine"

EVERY_FILE = (COMMAND, SETTINGS, PASSWORD, CA, PROGRAM)
"""What a controller can have, apart from the library."""


def packages(host: RunHost) -> list[str]:
    """The packages by which the controllers speak to BMCs."""
    names = {IPMI: "ipmi", REDFISH: "redfish"}
    name = names.get(host["slurm_machines"].get("by", ""), "")
    return list(DISTRIBUTION_PACKAGES[name]) if name and is_controller(host) else []


def has_password(host: RunHost) -> bool:
    """Whether the controllers log in to BMCs, or a program of the site does."""
    return "user" in host["slurm_machines"]


def files(host: RunHost) -> list[HostFile]:
    """The program with all that it reads, for slurm_service; empty without slurm_machines."""
    key = host["slurm_machines"]
    if not key:
        return []
    found: list[HostFile] = [
        *library("slurm-machine", {COMMAND: "programs.slurm_machine"}),
        {"path": SETTINGS, "content": f"{json.dumps(settings(host), indent=4, sort_keys=True)}\n"},
    ]
    if "ca" in key:
        found.append({"path": CA, "content": _named(host, "ca", "certificate")})
    if "program" in key:
        # root runs it as Slurm's user, and Slurm's user cannot change it.
        found.append({"path": PROGRAM, "content": _named(host, "program", "program"), "mode": "0755"})
    return unloaded([*found, password(host)] if has_password(host) else found)


def absent(host: RunHost) -> list[str]:
    """Those of the files that the cluster does not have."""
    key = host["slurm_machines"]
    parts = {PASSWORD: "user", CA: "ca", PROGRAM: "program"}
    return [path for path in EVERY_FILE if not key or (path in parts and parts[path] not in key)]


def settings(host: RunHost) -> dict[str, Any]:
    """What the program knows (`MachineSettings`)."""
    key = host["slurm_machines"]
    return {
        "by": key["by"],
        "slurm_user": slurm_user(host),
        "address": key.get("address", ""),
        "addresses": single_addresses(key),
        "user": key.get("user", ""),
        "has_ca": "ca" in key,
        "verify": key.get("verify", True),
    }


def password(host: RunHost) -> HostFile:
    """The password of the BMCs.

    Raises:
        ValueError: the control host does not have it.
    """
    content = secret_sources.secret(host, secret_sources.MACHINES)
    if content is None:
        raise ValueError(f"slurm_machines: {secret_sources.path(host, secret_sources.MACHINES)} is missing")
    secret = base64.b64encode(content).decode()
    return {"path": PASSWORD, "secret": secret, "owner": slurm_user(host), "mode": "0400"}


def _named(host: RunHost, part: str, kind: str) -> str:
    """The text of a file that the key names."""
    path = os.path.join(host["slurm_cluster_dir"], host["slurm_machines"][part])
    return public_content(host, f"slurm_machines.{part}", path, kind)
