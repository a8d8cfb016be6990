# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of modules that several rules give, and the records on a host by which a service is known to be unchanged."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from .run_host import RunHost
from .shipped_files import HostFile


@dataclass(frozen=True)
class ServiceOptions:
    """Options of slurm_service."""

    files: list[HostFile]
    digest: str = ""
    absent: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    reload: list[str] = field(default_factory=list)
    proof: dict[str, Any] | None = None
    unchanged: bool = False
    """Whether the service is as the last run has left it."""


@dataclass(frozen=True)
class CleanupOptions:
    """Options of slurm_host_cleanup."""

    secrets: list[str]
    files: list[str]
    directories: list[str]
    services: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    empty_directories: list[str] = field(default_factory=list)
    parts: list[dict[str, str]] = field(default_factory=list)
    restored: dict[str, str] = field(default_factory=dict)
    added_packages: bool = False
    kept_packages: list[str] = field(default_factory=list)
    unpurged_packages: list[str] = field(default_factory=list)
    trees: list[str] = field(default_factory=list)
    spared: list[str] = field(default_factory=list)
    reload: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    """The settings that are removed of services which go on, as the site has installed them."""


def options_digest(options: Any) -> str:
    """The checksum of options of a module, of types that JSON has (SHA-256). The order of keys counts."""
    return hashlib.sha256(json.dumps(options).encode()).hexdigest()


def has_record(host: RunHost, name: str, digest: str) -> bool:
    """Whether the facts of a host have this record with this checksum."""
    records = host.facts["applied"]
    return records.get(name) == digest


def is_unchanged(host: RunHost, service: str, digest: str) -> bool:
    """Whether a service is as the last run has left it, and this run has not prepared its host anew."""
    return has_record(host, service, digest) and not host.within("slurm_needs_preparation")
