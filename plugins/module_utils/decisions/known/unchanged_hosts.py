# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts are as modules have left them, by the records that their facts have (host/applied_state.py)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from ...cluster.schema import plain


def digest(text: str) -> str:
    """The checksum of a text, as hosts say it of their files (SHA-256)."""
    return sha256(text.encode()).hexdigest()


def common_text(common: Any) -> str:
    """The options that are equal on all hosts, as the checksums have them."""
    return json.dumps(plain(common), sort_keys=True)


def record_digest(common: str, *own: Any) -> str:
    """The checksum of the options of a module on one host (SHA-256).

    Args:
        common: the text of the options that are equal on all hosts (common_text).
        own: options that the host has for itself; None for one that it has not.
    """
    return sha256(json.dumps([common, *own], sort_keys=True).encode()).hexdigest()


def record_digests(hosts: Iterable[str], common: Any, *own: Mapping[str, Any]) -> dict[str, str]:
    """The checksums of the options of a module on each of these hosts, by host (SHA-256).

    Args:
        common: the options that are equal on all hosts, of types that JSON has.
        own: options that a host has for itself, by host. A host that one of them lacks has none there.
    """
    text = common_text(common)
    maps = [plain(values) for values in own]
    return {host: record_digest(text, *(values.get(host) for values in maps)) for host in map(str, hosts)}


def changed_hosts(found: Mapping[str, Mapping[str, str]], wanted: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The hosts with work for a module.

    Args:
        found: the checksums of the records that hold, by host and name of the record.
        wanted: the checksums of the modules' options now (record_digests), by name of the record and host. A host
            that is not in them has no work.
    """
    return [
        host
        for host, records in found.items()
        if any(host in digests and records.get(name) != digests[host] for name, digests in wanted.items())
    ]
