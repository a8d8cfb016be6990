# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The release of a cluster, and the hosts that would mix releases."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.parameter_tables.releases import RELEASES
from ansible_collections.gpucluster.slurm.plugins.module_utils.configuration.release_order import (
    protocol_of_state,
    reads,
    release_of_protocol,
    release_order,
)

OLD, NEW = 10752, 11520
"""The protocol versions of 24.11 and 26.05, as slurmctld 24.11 and 26.05 say them ("got 11520 need <= 10752")."""


def host(installed: str = "", candidate: str = "", state: int = 0) -> dict[str, Any]:
    return {"installed": installed, "candidate": candidate, "state_protocol": state}


def order(known: dict[str, str] | None = None, /, **hosts: dict[str, Any]) -> dict[str, Any]:
    """The judgement of a cluster with the controllers c1 and c2 and the database host db."""
    return release_order(hosts, ["c1", "c2"], "db", known=known)


def test_protocol_versions() -> None:
    assert (release_of_protocol(OLD), release_of_protocol(NEW)) == ("24.11", "26.05")
    assert release_of_protocol(38 << 8) == RELEASES[0]
    assert release_of_protocol(46 << 8) == "newer than 26.05"
    assert release_of_protocol(30 << 8) == "older than 22.05"


def test_the_head_of_a_state() -> None:
    word = b"PROTOCOL_VERSION\0"
    head = struct.pack(">I", len(word)) + word + struct.pack(">HQ", NEW, 1767225600)
    assert protocol_of_state(head) == NEW
    assert [protocol_of_state(head[:length]) for length in (0, 3, 22)] == [0, 0, 0]
    assert protocol_of_state(b"something else" * 5) == 0


@pytest.mark.parametrize(
    ("version", "protocol", "expected"),
    [
        ("24.11.5", NEW, False),
        ("26.05.5", NEW, True),
        ("26.05.5", OLD, True),
        ("26.05.5", 46 << 8, False),
        ("24.11.5", 0, True),
        ("27.05.0", NEW, True),
    ],
)
def test_an_earlier_release_does_not_read_what_a_later_one_wrote(version: str, protocol: int, expected: bool) -> None:
    assert reads(version, protocol) == expected


def test_a_new_cluster_gets_one_release() -> None:
    bare = host(candidate="24.11.5-4")
    found = order(c1=bare, db=bare, n1=bare)
    assert (found["release"], found["errors"], found["unasked"]) == ("24.11", {}, False)
    found = order(c1=bare, db=host(candidate="26.05.5-1"), n1=bare)
    assert found["errors"].keys() == found["serving_errors"].keys() == {"db"}
    assert "would install Slurm 26.05.5-1, and the cluster has Slurm 24.11 (24.11.5-4 is offered to c1" in str(found)
    assert order()["errors"] == {}


@pytest.mark.parametrize("name", ["c1", "db", "n1", "login"])
def test_a_host_installed_anew_gets_the_release_of_the_cluster(name: str) -> None:
    """Such a host installed Slurm 24.11 before, and slurmdbd or slurmctld of this release damaged the cluster."""
    hosts = {"c1": host("26.05.5"), "c2": host("26.05.5"), "db": host("26.05.5"), "n1": host("26.05.5")}
    found = order(**{**hosts, name: host(candidate="24.11.5-4")})
    assert found["release"] == "26.05"
    assert found["offered"] == [*found["errors"]] == [name]
    assert [*found["serving_errors"]] == ([name] if name in ("c1", "db") else [])
    assert "slurm_packages" in found["errors"][name]
    assert "gpucluster.slurm.upgrade" not in found["errors"][name]
    assert order(**{**hosts, name: host(candidate="26.05.4-2")})["errors"] == {}


def test_a_state_tells_the_release_of_a_lost_controller() -> None:
    """Its disk is lost, and the state on shared storage is not."""
    found = order(c1=host(candidate="24.11.5-4", state=NEW), db=host("26.05.5"))
    assert (found["release"], found["source"]) == ("26.05", "the state of slurmctld on c1")
    assert [*found["serving_errors"]] == ["c1"]
    # It was installed by hand meanwhile.
    assert "could not read the state" in order(c1=host("24.11.5", state=NEW), db=host("26.05.5"))["errors"]["c1"]
    # The state of the release before is read by a later one.
    assert order(c1=host("26.05.5", state=OLD), db=host("26.05.5"))["errors"] == {}


def test_a_later_release_comes_by_an_upgrade_only() -> None:
    found = order(c1=host("24.11.5"), db=host("24.11.5"), n1=host(candidate="26.05.5-1"))
    assert "gpucluster.slurm.upgrade then brings the whole cluster" in found["errors"]["n1"]


@pytest.mark.parametrize(
    ("hosts", "wrong"),
    [
        ({"c1": "26.05.5", "db": "26.05.5", "n1": "24.11.5"}, ""),
        ({"c1": "26.05.5", "db": "26.05.5", "n1": "23.11.4"}, "takes daemons of 24.11, 25.05, 25.11 only"),
        ({"c1": "24.11.5", "db": "24.11.5", "n1": "26.05.5"}, "does not understand daemons and commands of a later"),
        ({"c1": "24.11.5", "db": "26.05.5"}, ""),
        ({"c1": "26.05.5", "db": "24.11.5"}, "slurmdbd of an earlier release damages the database"),
        ({"c1": "26.05.5", "c2": "24.11.5", "db": "26.05.5"}, "could not read the state"),
        ({"c1": "26.05.5", "db": "26.05.5", "n1": "9.9.9"}, ""),
    ],
    ids=[
        "a node left out of an upgrade",
        "too old",
        "a later node",
        "slurmdbd first",
        "slurmdbd",
        "standby",
        "unknown",
    ],
)
def test_the_order_of_releases_that_are_there(hosts: dict[str, str], wrong: str) -> None:
    found = order(**{name: host(version) for name, version in hosts.items()})
    assert len(found["errors"]) == (1 if wrong else 0)
    assert wrong in str(found["errors"])


def test_only_a_controller_outside_of_the_run_knows_the_release() -> None:
    found = order(n1=host(candidate="24.11.5-4"))
    assert (found["unasked"], found["errors"]) == (True, {})
    assert not order(n1=host("24.11.5"))["unasked"]
    known = {"release": "26.05.5-1", "source": "the backup in /srv/backup"}
    found = order(known, n1=host(candidate="24.11.5-4"))
    assert (found["unasked"], found["source"]) == (False, "the backup in /srv/backup")
    assert [*found["errors"]] == ["n1"]


def test_a_backup_of_a_later_release_is_not_put_into_an_earlier_one() -> None:
    known = {"release": "26.05.5-1", "source": "the backup in /srv/backup"}
    bare = host(candidate="24.11.5-4")
    assert order(known, c1=bare, db=bare)["errors"].keys() == {"c1", "db"}
    installed = order(known, c1=host("24.11.5"), db=host("24.11.5"))
    assert installed["errors"].keys() == {"c1", "db"}
    # A later Slurm converts what is in the backup.
    earlier = {**known, "release": "24.11.5-4"}
    assert order(earlier, c1=host("26.05.5"), db=host("26.05.5"))["errors"] == {}


def test_packages_that_are_files() -> None:
    found = release_order({"c1": host("26.05.5"), "n1": host()}, ["c1"], files="25.11.2-1")
    assert (found["offered"], [*found["errors"]]) == ([], ["n1"])
