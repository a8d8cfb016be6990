# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether hosts belong to another cluster than that of the cluster file, by their fact `clusters`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..people.messages import host_lines
from .clusters import CONF, DAEMONS, DATABASE, MARK, STATE

Finding = Mapping[str, str]
"""A name of a cluster with its `file` and `by`, as module_utils/facts/clusters.py returns it."""

MOST_FILES = 4
"""Files that are named for a host."""


def cluster_objections(
    found: Mapping[str, Mapping[str, Any]],
    cluster: str,
    controllers: Collection[str] = (),
    database: str = "",
    state_directory: str = "",
    adopted: bool = True,
) -> list[str]:
    """Why site.yml must not touch these hosts, and the ways out, as lines; nothing if they are the cluster's.

    Args:
        found: the fact `clusters` by host.
        cluster: the name of the cluster in the cluster file.
        controllers: its controllers.
        database: its database host.
        state_directory: its StateSaveLocation.
        adopted: whether the control host has the munge key of the cluster. Playbook adopt fetches it, and so does
            site.yml for a cluster that it has installed.
    """
    state = os.path.join(state_directory, "clustername")
    said: dict[str, list[str]] = {}
    all_foreign: list[Finding] = []
    ways: dict[str, None] = {}
    for host, clusters in found.items():
        findings, unknown = list(clusters["found"]), set(clusters["daemons"])
        foreign = select_foreign(findings, cluster, state if host in controllers else "", host == database)
        if foreign:
            said[str(host)] = [_describe_clusters(foreign)]
            all_foreign += foreign
        elif host == database and "slurmdbd" in unknown:
            said[str(host)] = ["slurmdbd runs here, and this collection has not installed it"]
            ways[_LEAVE_DATABASE] = None
        elif unknown and not findings:
            said[str(host)] = [f"{_join(sorted(unknown))} of a cluster whose files were not found"]
            ways[_TAKE_OVER] = None
        elif "slurmctld" in unknown and not adopted:
            said[str(host)] = [f"slurmctld of a cluster of the same name, {cluster}, that was installed by other means"]
            ways[_TAKE_OVER] = None
    if not said:
        return []
    first = (
        f"Nothing was changed, because the cluster file is that of {cluster} (slurm_cluster_name), and hosts of this "
        "run belong to another cluster, or were installed by other means:"
    )
    return [first, *host_lines(said), _OTHER_FILE, *_list_ways(all_foreign, cluster), *ways]


def select_foreign(findings: Iterable[Finding], cluster: str, state: str, database: bool) -> list[Finding]:
    """Those findings for which a host belongs to another cluster; none if it is the cluster's, or nobody's.

    What runs counts most: a daemon of another cluster would lose its munge key. Where none runs, the configuration
    decides, and without one the other files do: a host that has moved to this cluster may have old files.

    Args:
        findings: what was found on the host.
        cluster: the name of this cluster.
        state: the file `clustername` that slurmctld will compare on this host; empty where it has no slurmctld.
        database: whether the host has the database of this cluster.
    """
    findings = list(findings)
    others = [finding for finding in findings if finding["name"] != cluster]
    if any(finding["by"] in DAEMONS for finding in others):
        return others
    # slurmctld does not start with the state of another cluster (`_verify_clustername` in src/slurmctld/controller.c).
    if any(finding["by"] == STATE and finding["file"] == state for finding in others):
        return others
    of_database = _names_by(findings, DATABASE)
    if database and of_database and cluster not in of_database:
        return others
    names = _names_by(findings, *DAEMONS, CONF) or {*_names(findings)}
    return [] if cluster in names else others


def _names_by(findings: Iterable[Finding], *sources: str) -> set[str]:
    """The names of clusters that were found by these."""
    return {finding["name"] for finding in findings if finding["by"] in sources}


_OTHER_FILE = "If the cluster file or the inventory is the wrong one, give the right one (-i)."
_TAKE_OVER = (
    "A cluster that was installed by other means is taken over with gpucluster.slurm.adopt, which writes its cluster "
    "file (docs/admin/adopt.md)."
)
_LEAVE_DATABASE = (
    "site.yml does not take over a slurmdbd that was installed by other means: leave the key database out of the "
    "cluster file, as gpucluster.slurm.adopt does (docs/admin/adopt.md)."
)


def _describe_clusters(foreign: list[Finding]) -> str:
    """Which clusters a host belongs to, with the files that say it."""
    texts = []
    for name in _names(foreign):
        of_name = [finding for finding in foreign if finding["name"] == name]
        running = [f"{found['by']} runs with {found['file']}" for found in of_name if found["by"] in DAEMONS]
        with_name = dict.fromkeys(found["file"] for found in of_name if found["by"] not in DAEMONS)
        files = [f"the name is in {_join([*with_name][:MOST_FILES])}"] if with_name else []
        texts.append(f"cluster {name}: {', '.join([*running, *files])}")
    return "; ".join(texts)


def _list_ways(foreign: list[Finding], cluster: str) -> list[str]:
    """What to do, for what was found. No advice ends a job or loses data of the other cluster."""
    if not foreign:
        return []
    names = _join(_names(foreign))
    ways = [f"To manage {names}, if installed by other means: gpucluster.slurm.adopt writes the cluster file."]
    if any(finding["by"] in (*DAEMONS, CONF, MARK) for finding in foreign):
        ways.append(
            f"To move a host to {cluster}, take it out of {names} first, with gpucluster.slurm.remove_nodes and the "
            "other cluster file, or by hand (docs/admin/operations.md, A host of another cluster)."
        )
    states = [finding for finding in foreign if finding["by"] == STATE]
    for file in dict.fromkeys(finding["file"] for finding in states):
        others = _join(_names(finding for finding in states if finding["file"] == file))
        ways.append(
            f"{os.path.dirname(file)} has the jobs of {others}. If nobody needs {others} any more, and its slurmctld "
            "is stopped on all hosts, move the whole directory away. With clustername alone moved, slurmctld would "
            "read these jobs."
        )
    databases = [finding for finding in foreign if finding["by"] == DATABASE]
    if databases:
        others = _join(_names(databases))
        ways.append(
            f"The accounting of {others} is in the database there: give {cluster} another database host, or save the "
            "database (mariadb-dump) before you remove it."
        )
    return ways


def _names(findings: Iterable[Finding]) -> list[str]:
    return [*dict.fromkeys(finding["name"] for finding in findings)]


def _join(names: Iterable[str]) -> str:
    """Names as a list of a sentence."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
