# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of roles storage and nfs_server."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import host_packages
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import nfs_server, storage
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.whole_cluster import all_storage_plans
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run.comparison import refused_server
from plain_host import PlainHost, cluster

SCRATCH = {"path": "/data", "type": "lustre", "source": "mds@tcp:/data", "hosts": "compute"}
SERVED = {"path": "/srv/share", "type": "nfs", "server": "head", "export": "/srv/share", "hosts": "all"}
ADDRESSES = [
    {"hosts": "head", "address": "10.0.1.1"},
    {"hosts": "login", "address": "10.0.1.2"},
    {"hosts": "n[1-2]", "address": "10.0.0.[1-2]"},
]


def hosts_with(*entries: dict[str, Any]) -> dict[str, PlainHost]:
    hosts: dict[str, PlainHost] = cluster(slurm_storage=[*entries], slurm_addresses=ADDRESSES)
    return hosts


def test_a_host_without_storage_loses_what_it_had() -> None:
    host = hosts_with(SCRATCH)["login"]
    assert storage.options(host) == storage.StorageOptions("", [], {}, [], [], [])
    assert storage.packages(host) == []


def test_a_host_mounts_what_its_plan_has() -> None:
    hosts = hosts_with(SCRATCH)
    found = storage.options(hosts["n1"])
    assert [mount["path"] for mount in found.mounts] == ["/data"]
    assert found.digest == storage.plan(hosts["n1"], all_storage_plans(hosts["head"]))["digest"]


def test_a_host_gets_its_plan() -> None:
    assert storage.options(hosts_with(SCRATCH)["n1"]).mounts


def test_packages_are_names_with_versions_or_files() -> None:
    packages = [{"name": "lustre-client=2.15"}, {"file": "own.deb"}, {"name": "tools:amd64"}]
    host = hosts_with({**SCRATCH, "packages": packages})["n1"]
    assert [*packages] == storage.packages(host)
    assert storage.copied_packages(host) == ["own.deb"]
    assert storage.options(host).packages == ["lustre-client", "tools"]


HIDDEN = {"names": ["admin"], "more": 0, "homes": {"admin": "/data/admin"}}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (
            HIDDEN,
            "/data has files that the mount would hide: admin. Give admin a home on the disk of the host "
            "(sudo cp -a /data/admin /var/local/admin && sudo sed -i.before 's|:/data/admin:|:/var/local/admin:|' "
            "/etc/passwd), log in again, and remove /data/admin",
        ),
        (
            {"names": ["a", "b"], "more": 3, "homes": {}},
            "/data has files that the mount would hide: a, b and 3 more. Move them to the storage or elsewhere, or "
            "mount it on another path",
        ),
        # The homes of the people of the cluster belong on the storage.
        (
            {"names": ["alice"], "more": 0, "homes": {"alice": "/data/alice"}},
            "/data has files that the mount would hide: alice. Move them to the storage or elsewhere, or mount it on "
            "another path",
        ),
    ],
)
def test_files_that_a_mount_would_hide_are_found_before_anything_is_changed(found: dict[str, Any], says: str) -> None:
    people = {"source": "list", "users": [{"name": "alice", "uid": 2001, "home": "/data/alice"}]}
    host = cluster(slurm_storage=[SCRATCH], slurm_addresses=ADDRESSES, slurm_people=people)["n1"]
    assert storage.mount_units(host) == {"/data": "/etc/systemd/system/data.mount"}
    assert storage.objections(host.say(hidden={"/data": found})) == [says]
    empty = {"names": [], "more": 0, "homes": {}}  # no host says it that has this collection
    assert storage.objections(host.say(hidden={"/data": empty}))
    assert storage.objections(host.say(storage=storage.own_plan(host)["digest"])) == []


def test_a_home_and_other_files_have_a_remedy_each() -> None:
    host = hosts_with(SCRATCH)["n1"].say(hidden={"/data": {**HIDDEN, "names": ["admin", "lost"]}})
    (says,) = storage.objections(host)
    assert says.endswith(
        "and remove /data/admin; move the others to the storage or elsewhere, or mount it on another path"
    )


def test_a_server_without_nfsd_is_refused_and_the_run_stops_for_it() -> None:
    hosts = hosts_with(SERVED)
    assert (nfs_server.filesystems(hosts["head"]), nfs_server.filesystems(hosts["n1"])) == (["nfsd"], [])
    assert (
        nfs_server.objections(hosts["head"]) == nfs_server.objections(hosts["n1"].say(lacks_filesystems=["nfsd"])) == []
    )
    (objection,) = nfs_server.objections(hosts["head"].say(lacks_filesystems=["nfsd"]))
    assert objection.startswith("the kernel has no nfsd, so the host cannot export /srv/share by NFS: boot a kernel")
    assert refused_server(hosts["n1"], {"head": [objection]}) == (
        f"Nothing was changed. head, which is to export /srv/share: {objection}"
    )
    assert refused_server(hosts["n1"], {"login": ["the disk is full"]}) == ""
    hosts["head"].say(storage=storage.own_plan(hosts["head"])["digest"])
    assert refused_server(hosts["n1"], {"head": ["the disk is full"]}) == "", "the others have it mounted"


def test_a_server_exports_to_the_hosts_that_mount() -> None:
    hosts = hosts_with(SERVED)
    (exports,) = nfs_server.exports(hosts["head"])
    assert exports["path"] == "/etc/exports.d/gpucluster-slurm.exports"
    assert "10.0.0.1" in exports["content"]
    (settings,) = nfs_server.settings(hosts["head"])
    assert settings["path"] == "/etc/nfs.conf.d/gpucluster-slurm.conf"
    assert "[nfsd]" in settings["content"]
    assert host_packages.lacks_package(hosts["head"], "nfs_server")
    assert not host_packages.lacks_package(hosts["head"].say(packages={"nfs-kernel-server": "1"}), "nfs_server")
