# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way from one release of Slurm to another, and the plan of an upgrade from what its hosts have."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..language.hostlist import fold
from .parameter_tables.releases import CONVERTS_WITHIN, DATABASE_COLUMNS, RELEASES, TAKES_THREE_BEFORE

VERSION = re.compile(r"(?:\d+:)?(\d+\.\d+)\.(\d+)")
"""Slurm's part of the version of a package: release and patch release."""


def takes(release: str) -> Sequence[str]:
    """The releases whose state and database a release takes."""
    number = RELEASES.index(release)
    return RELEASES[max(0, number - (3 if release >= TAKES_THREE_BEFORE else 2)) : number]


def hops(present: str, target: str) -> list[str]:
    """The releases to install one after another, `present` not among them; as few as possible."""
    path, reached = list[str](), present
    while reached != target:
        nexts = [release for release in RELEASES if release <= target and reached in takes(release)]
        reached = nexts[-1]
        path.append(reached)
    return path


def parts(version: str) -> tuple[str, int]:
    """Release and patch release of the version of a package; an empty release if it is none of Slurm's."""
    match = VERSION.match(version)
    return (match[1], int(match[2])) if match else ("", 0)


def converts_database(present: str, target: str) -> bool:
    """Whether slurmdbd of a version converts the database of another one; also if that is not known."""
    (before, old), (release, new) = parts(present), parts(target)
    return before != release or old < CONVERTS_WITHIN.get(release, 0) <= new


def tables_release(release: str) -> str:
    """The release that made the tables of slurmdbd's database as this one has them."""
    return max((changed for changed in DATABASE_COLUMNS if changed <= release), default=RELEASES[0])


def database_release(columns: Collection[str]) -> str:
    """The same for the slurmdbd that started last with a database, by the columns of its tables of jobs and
    associations; empty without such tables."""
    if not columns:
        return ""
    return max((release for release, column in DATABASE_COLUMNS.items() if column in columns), default=RELEASES[0])


def upgrade_plan(hosts: Mapping[str, Mapping[str, Any]], package: str, files: str = "") -> dict[str, Any]:
    """The plan of an upgrade.

    Args:
        hosts: by name, the facts of each host (`packages` and `candidates`, versions by package; `interrupted`). A host
            that went down while dpkg changed its packages has none.
        package: the package whose version is that of all others.
        files: the version of the packages, if they are files.

    Returns:
        `from` and `to`, the versions of the packages; `release`, that of `to`; `hosts`, those that change; `errors`,
        why there can be no upgrade.
    """
    installed = {
        name: host["packages"].get(package, "")
        for name, host in hosts.items()
        if package in host["packages"] or host["interrupted"]
    }
    offered = _by_version({name: files or hosts[name]["candidates"].get(package, "") for name in installed})
    if len(offered) == 1:
        (target,) = offered
        return _plan_upgrade_to(target, installed)
    errors = []
    if offered:
        versions = "; ".join(f"{version or 'none'} on {fold(names)}" for version, names in offered.items())
        errors = [f"the hosts do not agree on one version of Slurm that apt offers: {versions}"]
    return {"from": "", "to": "", "release": "", "hosts": [], "errors": errors}


def _plan_upgrade_to(target: str, installed: Mapping[str, str]) -> dict[str, Any]:
    """The plan of an upgrade to a version, by the version that each host has."""
    hosts_of = _by_version(installed)
    before = [version for version in hosts_of if version not in ("", target)]
    return {
        "from": min(before, key=parts, default=target),
        "to": target,
        "release": parts(target)[0],
        "hosts": [name for name, version in installed.items() if version != target],
        "errors": [text for version in before for text in _errors(version, target, fold(hosts_of[version]))],
    }


def _by_version(versions: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of hosts by their version, the most frequent one first."""
    names_by_version: dict[str, list[str]] = {}
    for name, version in versions.items():
        names_by_version.setdefault(version, []).append(name)
    return dict(sorted(names_by_version.items(), key=lambda entry: -len(entry[1])))


def _errors(version: str, target: str, hosts: str) -> list[str]:
    """Why hosts cannot go from one version to another."""
    (present, _patch), (release, _new_patch) = parts(version), parts(target)
    if unknown := [name for name in (present, release) if name not in RELEASES]:
        known = ", ".join(RELEASES)
        return [f"{hosts}: from Slurm {version} to {target}: unknown release {unknown[0]}, allowed: {known}"]
    if parts(target) < parts(version):
        return [
            f"{hosts}: from Slurm {version} to {target} would be a downgrade: Slurm does not read the state and the "
            "database of a later release"
        ]
    path = hops(present, release)
    if len(path) > 1:
        return [
            f"{hosts}: Slurm {release} takes the state and the database of {' and '.join(takes(release))} only, so "
            f"from {present} it takes {len(path)} upgrades, each a run of its own: {' -> '.join([present, *path])}. "
            f"Offer the hosts packages of {path[0]} first"
        ]
    return []
