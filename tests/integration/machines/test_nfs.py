# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NFS, which needs a kernel of its own: the exports, a mount by them, two clients that write within a second, quotas.

The machine is the server. Its two clients are network namespaces of the machine with addresses of their own, which the
kernel's NFS client treats as two hosts. The cluster file has them as login hosts, which the runs leave out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Run, with_cluster

HOST = "vm1"
CLIENTS = {"client0": "10.99.1.1", "client1": "10.99.1.2", "client2": "10.99.2.2"}
"""client0 is the machine itself, as the server sees it by the address that it asks."""
EXPORTED: dict[str, Any] = {"path": "/data", "type": "nfs", "server": HOST, "export": "/srv/data"}
AGAIN: dict[str, Any] = {
    "path": "/again",
    "type": "nfs",
    "source": "10.99.1.1:/srv/data",
    "options": ["hard"],
    "hosts": HOST,
}

DISK: dict[str, Any] = {
    "path": "/srv/home",
    "type": "xfs",
    "source": "/srv/disk",
    "options": ["loop", "uquota"],
    "hosts": HOST,
    "packages": [{"name": "xfsprogs"}],
}
LIMITED: dict[str, Any] = {"path": "/home2", "type": "nfs", "server": HOST, "export": "/srv/home", "homes": True}
ERIN = {"name": "erin", "uid": 5101, "gid": 5102, "home": "/home2/erin"}

NAMESPACES = """
# The lab's file for networkd is for all interfaces.
mkdir -p /run/systemd/network
printf '[Match]\\nName=v[12]\\n[Link]\\nUnmanaged=yes\\n' >/run/systemd/network/05-unmanaged.network
networkctl reload
for n in 1 2; do
  ip netns add c$n
  ip link add v$n type veth peer name e$n netns c$n
  ip addr add 10.99.$n.1/24 dev v$n; ip link set v$n up
  ip -n c$n addr add 10.99.$n.2/24 dev e$n; ip -n c$n link set e$n up; ip -n c$n link set lo up
  # The name by which the server knows a client; hosts have theirs from their host names.
  ip netns exec c$n sh -c "echo client$n >/sys/fs/nfs/net/nfs_client/identifier"
done
"""
ROUNDS = """
import json, os, sys, time
paths = sys.argv[1:3]
stale, times = 0, []
for number in range(100):
    start = time.monotonic()
    writer, reader = paths[number % 2], paths[(number + 1) % 2]
    text = f"{number:04d}"
    with open(f"{writer}/file", "w") as file:
        file.write(text)
    with open(f"{reader}/file") as file:
        stale += file.read() != text
    times.append(time.monotonic() - start)
print(json.dumps({"stale": stale, "longest": max(times), "mean": sum(times) / len(times)}))
"""


def stored(lab: Lab, directory: Path, *storage: dict[str, Any]) -> Run:
    """A run of the stage with this storage, on the machine alone."""
    cluster = {**lab.cluster, "storage": list(storage), "login": ",".join([HOST, *CLIENTS]), "addresses": CLIENTS}
    cluster["users"] = [ERIN]
    other = with_cluster(lab, directory, cluster)
    return other.playbook("site", "--tags=storage", f"--limit={HOST}")


@pytest.fixture(scope="module", name="served")
def clients_of_the_machine(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The machine exports and mounts, and has two clients with a mount each; afterwards it has none of them."""
    directory = tmp_path_factory.mktemp("storage")
    lab.command(HOST, "modprobe nfs")
    lab.command(HOST, NAMESPACES)
    run = stored(lab, directory, EXPORTED)
    assert (run.rc, run.failed) == (0, {})
    lab.command(HOST, "chmod 1777 /srv/data")
    for n in (1, 2):
        mount = f"mount -t nfs -o hard 10.99.{n}.1:/srv/data /mnt/c{n}"
        lab.command(HOST, f"mkdir -p /mnt/c{n} && timeout 120 nsenter --net=/run/netns/c{n} {mount}")
    yield directory
    lab.command(HOST, "umount /mnt/c1 /mnt/c2")
    run = lab.playbook("site", "--tags=storage")
    assert (run.rc, run.failed) == (0, {})
    lab.command(HOST, "ip netns delete c1 && ip netns delete c2")


@pytest.mark.usefixtures("served")
def test_the_exports_have_exactly_the_clients(lab: Lab) -> None:
    exported = lab.command(HOST, "exportfs -s")
    clients = {word for line in exported.split("\n") for word in [line.split()[1].partition("(")[0]]}
    assert clients == {"10.99.1.1", "10.99.1.2", "10.99.2.2"}
    assert "root_squash" in exported
    assert "-3" in lab.command(HOST, "cat /proc/fs/nfsd/versions").split()
    # Its own export by a bind mount.
    assert lab.command(HOST, "findmnt -no SOURCE /data").endswith("[/srv/data]")
    refused = lab.host(HOST).run(
        "mkdir -p /mnt/x; timeout 60 mount -t nfs -o hard,retry=0 10.213.8.51:/srv/data /mnt/x"
    )
    assert refused.rc != 0


def test_the_machine_mounts_by_nfs(lab: Lab, served: Path) -> None:
    run = stored(lab, served, EXPORTED, AGAIN)
    assert (run.rc, run.failed) == (0, {})
    assert lab.command(HOST, "findmnt -no FSTYPE,SOURCE /again").split() == ["nfs4", "10.99.1.1:/srv/data"]
    assert "hard" in lab.command(HOST, "findmnt -no OPTIONS /again")
    again = stored(lab, served, EXPORTED, AGAIN)
    assert again.changed == {}


@pytest.mark.usefixtures("served")
def test_two_clients_that_write_within_a_second_see_each_other(lab: Lab) -> None:
    """Close-to-open consistency, by the server's counter of changes. Sizes are equal, and times nearly so."""
    said = lab.script(HOST, "runuser -u admin -- python3 - /mnt/c1 /mnt/c2", ROUNDS.encode())
    found = json.loads(said)
    assert found["stale"] == 0
    assert found["mean"] < 1


def test_clients_have_the_homes_and_quotas_of_the_server(lab: Lab, served: Path) -> None:
    """With the commands of docs/admin/storage.md: a limit for each user, and another one for one user."""
    lab.command(HOST, "apt-get update --quiet=2 && apt-get install --quiet=2 --yes --no-install-recommends xfsprogs")
    lab.command(HOST, "truncate --size=400M /srv/disk && mkfs.xfs -q /srv/disk")
    run = stored(lab, served, EXPORTED, DISK, LIMITED)
    assert (run.rc, run.failed) == (0, {})
    lab.command(HOST, "chmod 1777 /srv/home")
    lab.command(HOST, "xfs_quota -x -c 'limit -d bhard=20m' /srv/home")
    lab.command(HOST, "xfs_quota -x -c 'limit bhard=40m admin' /srv/home")
    mount = "mount -t nfs -o hard 10.99.1.1:/srv/home /mnt/limited"
    lab.command(HOST, f"mkdir -p /mnt/limited && timeout 120 nsenter --net=/run/netns/c1 {mount}")
    try:
        assert lab.command(HOST, "stat --format='%u:%g %a' /mnt/limited/erin") == "5101:5102 700"
        for user, status in (("alice", 1), ("admin", 0)):
            write = f"dd if=/dev/zero of=/mnt/limited/{user} bs=1M count=30 conv=fsync"
            found = lab.host(HOST).run(f"runuser -u {user} -- timeout 300 {write}")
            assert (found.rc, "Disk quota exceeded" in found.stderr) == (status, bool(status)), found
        assert stored(lab, served, EXPORTED, DISK, LIMITED).changed == {}, "runs leave quotas as they are"
    finally:
        lab.command(HOST, "umount /mnt/limited")
