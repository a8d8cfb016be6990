# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether hosts belong to another cluster than that of the cluster file."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts.hosts_of_others import cluster_objections

CONF = "/etc/slurm/slurm.conf"
CACHE = "/run/slurm/conf/slurm.conf"
STATE_DIRECTORY = "/var/lib/slurm/slurmctld"
STATE = f"{STATE_DIRECTORY}/clustername"
TABLE = "/var/lib/mysql/slurm_acct_db/b_job_table.ibd"
FILES = {"slurmctld": CONF, "slurmd": CACHE, "sackd": CACHE, "conf": CONF, "state": STATE, "mark": "/etc/hosts"}


def host(*names: str, daemons: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fact of a host, by `NAME by WORD`."""
    found = []
    for text in names:
        name, by = text.split(" by ")
        found.append({"name": name, "by": by, "file": FILES.get(by, TABLE.replace("b_job", f"{name}_job"))})
    return {"found": found, "daemons": list(daemons)}


def objections(hosts: dict[str, Any], adopted: bool = True) -> list[str]:
    """The lines for hosts of the cluster a, whose controller is ctl and whose database host is db."""
    return cluster_objections(hosts, "a", ["ctl"], "db", STATE_DIRECTORY, adopted)


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("bare", host()),
        ("node", host("a by slurmd", "a by mark")),
        ("ctl", host("a by slurmctld", "a by state", "a by database")),
        ("db", host("a by database", "a by mark")),
        # A database that several clusters share, and one that a cluster has lost.
        ("db", host("b by database", "a by database", daemons=())),
        ("db", host("a by mark")),
        # A host that has moved from b to a may have files of b that nothing reads.
        ("node", host("a by slurmd", "b by mark", "b by state", "b by database")),
        ("node", host("a by conf", "b by conf", "b by mark")),
        ("login", host("b by mark", "a by mark")),
        # After adopt, the daemons of the cluster go on.
        ("ctl", host("a by slurmctld", "a by state", "a by database", daemons=("slurmctld", "slurmdbd"))),
        ("node", host("a by slurmd", daemons=("slurmd",))),
    ],
)
def test_hosts_that_are_taken(name: str, fact: dict[str, Any]) -> None:
    assert objections({name: fact}) == []


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("node", host("b by slurmd")),
        ("node", host("b by conf")),
        ("login", host("b by mark")),
        ("login", host("b by sackd", "a by mark")),
        ("other", host("b by state")),
        ("other", host("b by database")),
        # A daemon of b still runs.
        ("node", host("a by slurmd", "b by slurmctld")),
        # A run of a collection that did not check it has written /etc/hosts.
        ("node", host("b by conf", "b by mark", "a by mark")),
        # slurmctld would not start, and slurmdbd would begin anew in the database of another cluster.
        ("ctl", host("a by conf", "b by state")),
        ("db", host("a by conf", "b by database")),
    ],
)
def test_hosts_of_another_cluster(name: str, fact: dict[str, Any]) -> None:
    first, line, *ways = objections({name: fact})
    assert first.startswith("Nothing was changed, because the cluster file is that of a (slurm_cluster_name)")
    assert line.startswith(f"{name}: cluster b: ")
    assert any("gpucluster.slurm.adopt" in way for way in ways)


def test_the_files_and_the_ways_out_are_named() -> None:
    lines = objections(
        {
            "ctl": host("b by slurmctld", "b by slurmd", "b by state", "b by database", "c by mark"),
            "n1": host("b by slurmd"),
            "n2": host("b by slurmd"),
            "n3": host("a by slurmd"),
        }
    )
    assert lines[1:] == [
        f"n[1-2]: cluster b: slurmd runs with {CACHE}",
        f"ctl: cluster b: slurmctld runs with {CONF}, slurmd runs with {CACHE}, the name is in {STATE} and {TABLE}; "
        "cluster c: the name is in /etc/hosts",
        "If the cluster file or the inventory is the wrong one, give the right one (-i).",
        "To manage b and c, if installed by other means: gpucluster.slurm.adopt writes the cluster file.",
        "To move a host to a, take it out of b and c first, with gpucluster.slurm.remove_nodes and the other cluster "
        "file, or by hand (docs/admin/operations.md, A host of another cluster).",
        f"{STATE_DIRECTORY} has the jobs of b. If nobody needs b any more, and its slurmctld is stopped on all hosts, "
        "move the whole directory away. With clustername alone moved, slurmctld would read these jobs.",
        "The accounting of b is in the database there: give a another database host, or save the database "
        "(mariadb-dump) before you remove it.",
    ]


@pytest.mark.parametrize(
    ("name", "fact", "adopted", "text"),
    [
        ("db", host("a by database", daemons=("slurmdbd",)), True, "slurmdbd runs here, and this collection"),
        ("node", host(daemons=("sackd", "slurmd")), True, "sackd and slurmd of a cluster whose files were not found"),
        ("ctl", host("a by slurmctld", daemons=("slurmctld",)), False, "slurmctld of a cluster of the same name, a,"),
    ],
)
def test_daemons_that_were_installed_by_other_means(name: str, fact: Any, adopted: bool, text: str) -> None:
    _first, line, _file, way = objections({name: fact}, adopted)
    assert line.startswith(f"{name}: {text}")
    assert "gpucluster.slurm.adopt" in way


def test_many_hosts_are_one_line() -> None:
    lines = objections({f"n{number:04}": host("b by slurmd", "b by mark") for number in range(2000)})
    assert lines[1] == f"n[0000-1999]: cluster b: slurmd runs with {CACHE}, the name is in /etc/hosts"
    assert len(lines) == 5
