# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of modules on a host, by which a service is known to be as the last run has left it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from .run_host import RunHost


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
