# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The release of Slurm that a cluster has, and the hosts whose release does not fit it.

slurmdbd has the same release as slurmctld or a later one, and slurmctld the same as slurmd and the commands or a later
one (https://slurm.schedmd.com/upgrades.html). An earlier daemon cannot read the state of a later slurmctld, and an
earlier slurmdbd removes columns from the tables of a later one. So each host gets the release of its cluster.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .parameter_tables.releases import FIRST_PROTOCOL, RELEASES
from .upgrade import parts, takes

PACKAGE_SOURCE = (
    "Give the host packages of Slurm {release}, as the other hosts have them: slurm_packages (the key packages of the "
    "cluster file), or the files in /etc/apt/sources.list.d of the host (apt-cache policy shows what apt offers)"
)


JOB_STATE = "job_state"
"""The file of StateSaveLocation that has the jobs."""

HEAD = 64
"""Bytes at the start of JOB_STATE that have its version."""


def protocol_of_state(head: bytes) -> int:
    """The protocol version of the slurmctld that wrote a file JOB_STATE, from its first bytes; 0 if it is none.

    It begins with the length of a word and the word PROTOCOL_VERSION, then it has 16 bits of the version
    (`dump_all_job_state` in `src/slurmctld/job_mgr.c`).
    """
    word = b"PROTOCOL_VERSION\0"
    start = struct.pack(">I", len(word)) + word
    complete = head.startswith(start) and len(head) >= len(start) + 2
    return int(struct.unpack_from(">H", head, len(start))[0]) if complete else 0


def reads(version: str, protocol: int) -> bool:
    """Whether a version of Slurm reads the state or the database of a release with this protocol version.

    An unknown version may read everything: its release is for others to judge. 0: there is nothing to read.
    """
    release = parts(version)[0]
    if not protocol or release not in RELEASES:
        return True
    return _rank(release_of_protocol(protocol)) <= _rank(release)


def release_of_protocol(number: int) -> str:
    """The release with a protocol version, such as 24.11 for 10752.

    An unknown number is named, so that it is a release of no table: `newer than 26.05`.
    """
    place = (number >> 8) - FIRST_PROTOCOL
    if place < 0:
        return f"older than {RELEASES[0]}"
    return RELEASES[place] if place < len(RELEASES) else f"newer than {RELEASES[-1]}"


def protocol_of_release(release: str) -> int:
    """The protocol version of one of RELEASES, such as 10752 for 24.11."""
    return (FIRST_PROTOCOL + RELEASES.index(release)) << 8


def _rank(release: str) -> int:
    """The place of a release in their order; -1 for one that is older than all of the tables, or is none."""
    if release in RELEASES:
        return RELEASES.index(release)
    return len(RELEASES) if release.startswith("newer") or release > RELEASES[-1] else -1


@dataclass(frozen=True)
class Evidence:
    """A release, and what shows that the cluster has it."""

    release: str
    source: str


@dataclass(frozen=True)
class _HostRelease:
    name: str
    installed: str
    """The version of the programs that the host has; empty without Slurm."""
    candidate: str
    """The version that would be installed; empty if the host has Slurm, or if it is not known."""
    state: str
    """The release whose slurmctld wrote StateSaveLocation last; empty without a state."""

    @classmethod
    def of(cls, name: str, slurm: Mapping[str, Any], files: str) -> _HostRelease:
        """That of a host, by its fact `slurm` and the version of Slurm's packages if they are files."""
        return cls(
            name,
            installed=str(slurm["installed"]),
            candidate="" if slurm["installed"] else files or str(slurm["candidate"]),
            state=release_of_protocol(slurm["state_protocol"]) if slurm["state_protocol"] else "",
        )

    @property
    def release(self) -> str:
        """The release of the installed programs; empty without Slurm."""
        return parts(self.installed)[0]


def release_order(
    facts: Mapping[str, Mapping[str, Any]],
    controllers: Sequence[str],
    database: str = "",
    files: str = "",
    known: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The release of a cluster, and the hosts that do not fit it.

    Args:
        facts: by name, the fact `slurm` of each host that was reached: `installed` and `candidate`, versions, and
            `state_protocol`, the protocol version of the state in StateSaveLocation (0: none).
        controllers: the names of the controllers.
        database: the host of slurmdbd; empty without one.
        files: the version of Slurm's packages if they are files; then apt is not asked.
        known: `release` and `source`: the cluster's release if it is known from elsewhere, such as from a backup.

    Returns:
        `release` and `source`: the cluster's release and what shows it, both empty if nothing does.
        `errors`: by host, why its release does not fit.
        `serving_errors`: those of the controllers and of the database host, without which no host may be changed.
        `offered`: the hosts to which apt offers another release. Its lists may be old, so it is asked again.
        `unasked`: whether a host would get Slurm, and nothing but a controller outside of this run knows the release.
    """
    hosts = {name: _HostRelease.of(name, slurm, files) for name, slurm in facts.items()}
    cluster = _cluster_release(hosts, controllers, database, known or {})
    serving = [*controllers, database]
    errors = {
        name: error
        for name, host in hosts.items()
        if (error := _error(host, cluster, name in controllers, name == database))
    }
    return {
        "release": cluster.release,
        "source": cluster.source,
        "errors": errors,
        "serving_errors": {name: error for name, error in errors.items() if name in serving},
        "offered": [name for name in errors if hosts[name].candidate and not files],
        "unasked": not (known or hosts.keys() & {*controllers}) and any(host.candidate for host in hosts.values()),
    }


def _cluster_release(
    hosts: Mapping[str, _HostRelease], controllers: Sequence[str], database: str, known: Mapping[str, str]
) -> Evidence:
    """The release of the cluster, from the best evidence that there is.

    That is what the controllers have, of which the latest counts: a reinstalled controller can have an earlier one.
    Then follow what is known from elsewhere, slurmdbd, the other hosts, and at last, for a cluster that is not
    there yet, what the primary controller would get.
    """
    present = [hosts[name] for name in controllers if name in hosts]
    releases = _installed(present)
    releases += [Evidence(host.state, f"the state of slurmctld on {host.name}") for host in present if host.state]
    if known:
        releases.append(Evidence(parts(known["release"])[0] or known["release"], known["source"]))
    releases = releases or _installed([hosts[database]] if database in hosts else []) or _installed(hosts.values())
    if not releases and present and present[0].candidate:
        candidate = present[0].candidate
        source = f"{candidate} is offered to {present[0].name}, the primary controller"
        releases = [Evidence(parts(candidate)[0], source)]
    return max(releases, key=lambda evidence: _rank(evidence.release), default=Evidence("", ""))


def _installed(hosts: Any) -> list[Evidence]:
    """The releases that hosts have."""
    return [Evidence(host.release, f"{host.installed} on {host.name}") for host in hosts if host.release]


def _error(host: _HostRelease, cluster: Evidence, is_controller: bool, is_database: bool) -> str:
    """Why the release of a host does not fit the cluster; empty if it does."""
    if not cluster.release:
        return ""
    wanted = PACKAGE_SOURCE.format(release=cluster.release)
    has = f"the cluster has Slurm {cluster.release} ({cluster.source})"
    if host.candidate:
        if parts(host.candidate)[0] == cluster.release:
            return ""
        later = _rank(parts(host.candidate)[0]) > _rank(cluster.release)
        way = "; gpucluster.slurm.upgrade then brings the whole cluster to a later release" if later else ""
        return f"this run would install Slurm {host.candidate}, and {has}. {wanted}{way}"
    release = host.release
    if release not in RELEASES or release == cluster.release:
        return ""
    found = f"the host has Slurm {host.installed}, and {has}"
    upgrade = f"{wanted}, and run gpucluster.slurm.upgrade"
    if is_database:
        # slurmdbd may be later for a while, as between two stages of an upgrade.
        fits = _rank(release) > _rank(cluster.release) and cluster.release in takes(release)
        return "" if fits else f"{found}; slurmdbd of an earlier release damages the database. {upgrade}"
    if is_controller:
        return f"{found}; this slurmctld could not read the state of the cluster. {upgrade}"
    if _rank(release) > _rank(cluster.release):
        return f"{found}; slurmctld does not understand daemons and commands of a later release. {wanted}"
    if cluster.release in RELEASES and release not in takes(cluster.release):
        return f"{found}, which takes daemons of {', '.join(takes(cluster.release))} only. {upgrade}"
    return ""
