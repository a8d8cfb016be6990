# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage: mounts appear where they are named, are repaired, and are never taken from jobs or users.

The containers' kernel has no NFS. bindfs, a FUSE file system, stands in for a file system of a server: when its process
is stopped, the mount hangs as that of a lost server does. Scenario machines has NFS.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Run, with_cluster

SHARED = {
    "path": "/data",
    "type": "fuse.bindfs",
    "source": "/srv/shared",
    "options": ["nosuid"],
    "hosts": "pnode[1-2]",
    "packages": [{"name": "bindfs"}],
}
SCRATCH = {
    "path": "/scratch",
    "type": "tmpfs",
    "options": ["size=1g", "mode=1777"],
    "hosts": "compute",
    "scratch": True,
}
HOMES = {"path": "/srv/homes", "type": "tmpfs", "options": ["size=8m"], "hosts": "pnode[1-2]", "homes": True}
ERIN = {"name": "erin", "uid": 5101, "gid": 5102, "home": "/srv/homes/erin"}
UNIT = "/etc/systemd/system/data.mount"
NOTE = "/var/lib/gpucluster-slurm/storage"
MOUNT = "Mount, and make homes"


def stored(lab: Lab, directory: Path, *storage: dict[str, Any]) -> Lab:
    """The lab with this storage and a user whose home is on it."""
    return with_cluster(lab, directory, {**lab.cluster, "storage": list(storage), "users": [ERIN]})


def applied(lab: Lab, *arguments: str) -> Run:
    """A run of the stage."""
    run = lab.playbook("site", "--tags=storage", *arguments)
    assert (run.rc, run.failed) == (0, {})
    return run


def warnings(run: Run) -> list[str]:
    """What the run leaves to a person."""
    return [text for _host, _task, result in run.results for text in result.get("remarks", [])]


def mounted(lab: Lab, path: str = "/data") -> list[str]:
    """The nodes that have a mount, without a question to its file system."""
    return [node for node in nodes(lab) if lab.host(node).run(f"grep -q ' {path} ' /proc/self/mountinfo").rc == 0]


def nodes(lab: Lab) -> list[str]:
    """The two hosts that are compute nodes only."""
    return list(lab.nodes[-2:])


def reason(lab: Lab, node: str) -> str:
    """State and reason of a node after a health check."""
    lab.host(node).run("/usr/local/sbin/slurm-health")
    return str(lab.command(lab.controller, f"sinfo -h -N -n {node} -o '%T %E' | head -n 1"))


@pytest.fixture(scope="module", name="site")
def storage_of_the_tests(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab with storage, until the last test; then it has none."""
    site = stored(lab, tmp_path_factory.mktemp("storage"), SHARED, SCRATCH, HOMES)
    for node in nodes(lab):
        lab.command(node, "mkdir -p /srv/shared && chmod 1777 /srv/shared")
    yield site
    for node in nodes(lab):
        lab.host(node).run("pkill -CONT bindfs; pkill -u alice")
    run = lab.playbook("site", "--tags=storage,controller,compute")
    assert (run.rc, run.failed, mounted(lab)) == (0, {}, [])


def test_check_mode_predicts_the_mounts(site: Lab) -> None:
    run = applied(site, "--check", "--diff")
    assert {host for host, tasks in run.changed.items() if MOUNT in str(tasks)} >= {*nodes(site)}
    assert mounted(site) == []
    for node in nodes(site):
        site.command(node, f"test ! -e {UNIT} && test ! -e {NOTE}")


def test_a_mount_is_on_the_hosts_that_it_names(site: Lab) -> None:
    run = site.playbook("site", "--tags=storage,controller,compute")
    assert (run.rc, run.failed) == (0, {})
    assert mounted(site) == nodes(site)
    assert mounted(site, "/scratch") == nodes(site)
    for node in nodes(site):
        assert "nosuid" in site.command(node, "findmnt -no OPTIONS /data")
        assert site.command(node, "systemctl is-enabled data.mount") == "enabled"
        assert site.command(node, "systemctl show -P After slurmd").split().count("data.mount") == 1
        assert reason(site, node).startswith("idle")
    assert "data.mount" not in site.command(site.controller, "ls /etc/systemd/system")
    assert site.command(site.controller, "scontrol show config | grep TmpFS").endswith("/scratch")


def test_the_second_run_has_nothing_to_do(site: Lab) -> None:
    run = applied(site)
    assert run.changed == {}
    assert [task for _host, task, _result in run.results if "torage" in task or MOUNT in task] == []


def test_homes_are_made_once(site: Lab) -> None:
    for node in nodes(site):
        assert (
            site.command(node, "stat -c '%u:%g %a' /srv/homes/erin /srv/homes/erin/.bashrc")
            == "5101:5102 700\n5101:5102 644"
        )
    node = nodes(site)[0]
    site.command(node, "touch /srv/homes/erin/thesis && chmod 755 /srv/homes/erin && mkdir /srv/homes/other")
    assert applied(site).changed == {}  # another entry in the directory is read, and nothing is changed
    assert site.command(node, "stat -c %a /srv/homes/erin && ls /srv/homes/erin") == "755\nthesis"
    site.command(node, "chown 5199 /srv/homes/erin && rmdir /srv/homes/other")
    assert warnings(applied(site)) == ["/srv/homes/erin belongs to uid 5199, and in the cluster file to uid 5101"]
    site.command(node, "rm -r /srv/homes/erin")
    assert [*applied(site).changed] == [node]
    assert site.command(node, "stat -c '%u %a' /srv/homes/erin") == "5101 700"


def test_a_missing_mount_drains_the_node_and_the_next_run_makes_it(site: Lab) -> None:
    node = nodes(site)[0]
    site.command(node, "systemctl stop data.mount")
    assert reason(site, node) == "drained health check filesystems: /data is not mounted"
    assert [*applied(site).changed] == [node]
    assert mounted(site) == nodes(site)
    assert reason(site, node).startswith("idle")


def test_a_mount_that_has_failed_is_tried_again(site: Lab) -> None:
    node = nodes(site)[0]
    site.command(node, "systemctl stop data.mount && mv /srv/shared /srv/lost")
    assert site.host(node).run("systemctl start data.mount").rc != 0
    run = site.playbook("site", "--tags=storage")
    assert "/data cannot be mounted from /srv/shared" in str(run.failed[node])
    site.command(node, "mv /srv/lost /srv/shared")
    site.wait_for(node, "grep ' /data ' /proc/self/mountinfo", "/data", 120)
    assert mounted(site) == nodes(site)


def test_a_hung_mount_blocks_neither_the_run_nor_the_health_check(site: Lab) -> None:
    node = nodes(site)[0]
    site.command(node, "pkill -STOP bindfs")
    try:
        start = time.monotonic()
        assert reason(site, node) == "drained health check filesystems: no answer in 20 s: /data"
        assert time.monotonic() - start < 45
        run = applied(site)
        assert run.changed == {}
        # A change of the unit does not ask the file system, either.
        site.command(node, f"sed -i 's/^Description=.*/Description=x/' {UNIT}")
        assert [*applied(site).changed] == [node]
    finally:
        site.command(node, "pkill -CONT bindfs")
    site.wait_for(node, "/usr/local/sbin/slurm-health && echo well", "well", 60)
    assert reason(site, node).startswith("idle")


def test_a_run_that_was_killed_is_completed(site: Lab) -> None:
    node = nodes(site)[0]
    site.command(node, f"umount /data /scratch && rm {UNIT} && systemctl daemon-reload")
    run = site.start("site", "--tags=storage")
    run.wait_for_task(MOUNT)
    run.kill()
    applied(site)
    assert mounted(site) == mounted(site, "/scratch") == nodes(site)
    assert applied(site).changed == {}


def test_files_are_not_hidden(site: Lab, tmp_path: Path) -> None:
    node = nodes(site)[0]
    site.command(node, "mkdir -p /opt/full && touch /opt/full/results")
    other = stored(site, tmp_path, SHARED, SCRATCH, HOMES, {"path": "/opt/full", "type": "tmpfs", "hosts": node})
    run = other.playbook("site", "--tags=storage")
    assert "/opt/full has files that the mount would hide: results" in str(run.failed[node])
    site.command(node, "test ! -e /etc/systemd/system/opt-full.mount && rm -r /opt/full")


def test_a_package_may_be_a_file(site: Lab, tmp_path: Path) -> None:
    node = nodes(site)[0]
    package = tmp_path / "squashfuse.deb"
    package.write_bytes(
        site.script(node, "cd /tmp && apt-get download squashfuse >/dev/null && cat squashfuse_*.deb", b"")
    )
    extra = {"path": "/opt/extra", "type": "tmpfs", "hosts": node, "packages": [{"file": package.name}]}
    other = stored(site, tmp_path, SHARED, SCRATCH, HOMES, extra)
    assert {*applied(other).changed} == {node}
    assert site.command(node, "dpkg-query --show --showformat='${db:Status-Status}' squashfuse") == "installed"
    assert mounted(site, "/opt/extra") == [node]
    assert applied(other).changed == {}
    assert ({*applied(site).changed}, mounted(site, "/opt/extra")) == ({node}, [])


def test_a_change_of_a_mounted_file_system_waits_for_a_person(site: Lab, tmp_path: Path) -> None:
    node = nodes(site)[0]
    changed = stored(site, tmp_path, {**SHARED, "options": ["noexec"]}, SCRATCH, HOMES)
    run = applied(changed)
    assert len(warnings(run)) == len(nodes(site))
    assert "/data stays mounted as it was" in warnings(run)[0]
    assert "systemctl restart 'data.mount'" in warnings(run)[0]
    assert "noexec" not in site.command(node, "findmnt -no OPTIONS /data")
    again = applied(changed, f"--limit={node},{site.controller}")
    assert (again.changed, len(warnings(again))) == ({}, 1)  # said until it is done
    for each in nodes(site):
        site.command(each, "systemctl restart data.mount")
    assert warnings(applied(changed)) == []
    assert "noexec" in site.command(node, "findmnt -no OPTIONS /data")


def test_an_entry_that_left_is_unmounted_when_nobody_is_there(site: Lab, tmp_path: Path) -> None:
    node, other = nodes(site)
    site.command(node, "systemd-run --quiet --uid=alice --unit=alice-works sleep 1000")
    without = stored(site, tmp_path, SCRATCH, HOMES)
    run = applied(without)
    assert [text.partition(":")[0] for text in warnings(run)] == [
        "/data stays mounted, although the cluster file no longer has it"
    ]
    assert mounted(site) == [node]
    site.command(other, f"test ! -e {UNIT}")
    site.command(node, "systemctl stop alice-works")
    assert warnings(applied(without)) == []
    assert mounted(site) == []
    for each in nodes(site):  # also before stage compute writes the settings of the health check again
        assert reason(site, each).startswith("idle")
