# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role storage: what a host does for the storage of the cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..known.run_host import RunHost


@dataclass(frozen=True)
class StorageOptions:
    """Options of the module slurm_storage. A host without a plan loses its mounts."""

    digest: str
    mounts: list[dict[str, Any]]
    files: dict[str, str]
    exports: list[str]
    homes: list[dict[str, Any]]
    packages: list[str]
    """Names of packages."""


def plan(host: RunHost, plans: Mapping[str, Any]) -> dict[str, Any]:
    """What this host does, of the plans of all hosts; empty if that is nothing."""
    if host.name not in plans["hosts"]:
        return {}
    found: dict[str, Any] = plans["plans"][plans["hosts"][host.name]]
    return found


def own_plan(host: RunHost) -> dict[str, Any]:
    """What this host does."""
    return plan(host, host.shared("storage_plans"))


def unfinished_plan(host: RunHost) -> dict[str, Any]:
    """What this host does; empty if that holds already."""
    plan_of_host = own_plan(host)
    return plan_of_host if host.facts["storage"] != plan_of_host.get("digest", "") else {}


def packages(host: RunHost) -> list[dict[str, str]]:
    """The packages of the file systems, for the module slurm_packages."""
    found: list[dict[str, str]] = own_plan(host).get("packages", [])
    return found


def copied_packages(host: RunHost) -> list[str]:
    """Those packages that are files on the control host."""
    return [package["file"] for package in packages(host) if "file" in package]


def options(host: RunHost) -> StorageOptions:
    """What the module slurm_storage does on the host."""
    found = own_plan(host)
    return StorageOptions(
        digest=found.get("digest", ""),
        mounts=found.get("mounts", []),
        files=found.get("files", {}),
        exports=found.get("exports", []),
        homes=found.get("homes", []),
        packages=[_without_version(package["name"]) for package in packages(host) if "name" in package],
    )


def _without_version(package: str) -> str:
    """The name of a package, which may have a version, a release or an architecture behind it (apt-get(8))."""
    return re.sub("[=:/].*$", "", package)
