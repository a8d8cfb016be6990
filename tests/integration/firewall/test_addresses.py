# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names in the lists of the firewall, and further addresses of hosts.

The control host resolves names by a file that each run sees as its /etc/hosts, a stand-in for DNS.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab import Lab, Run, with_cluster

NODE, OTHER = "fw-node1", "fw-node2"
TABLE = "nft --stateless list table inet gpucluster_slurm"
FURTHER = [{"hosts": NODE, "names": f"{NODE}-ib", "address": "10.213.7.228"}]
WITH_HOSTS_FILE = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"')


@pytest.fixture(name="named")
def lab_with_names(lab: Lab, tmp_path: Path) -> Lab:
    """The lab with a name in each list, and a further name of a node."""
    firewall: dict[str, Any] = {**lab.cluster["firewall"], "ssh": ["desk.cluster.example"]}
    firewall["open"] = [{"hosts": "login", "ports": 8443, "from": ["portal.cluster.example"]}]
    return with_cluster(
        lab, tmp_path, {**lab.cluster, "firewall": firewall, "further_addresses": FURTHER}, registry_tls=False
    )


def site(lab: Lab, tmp_path: Path, answers: str) -> Run:
    """A run of site.yml on a control host with these answers of DNS."""
    hosts = tmp_path / "hosts"
    hosts.write_text(Path("/etc/hosts").read_text() + answers)
    arguments = ("--skip-tags=validate",)
    return lab.start("site", *arguments, before=(*WITH_HOSTS_FILE, str(hosts))).finish()


def test_names_are_resolved_once_and_a_changed_answer_is_a_change(named: Lab, tmp_path: Path) -> None:
    desk = "10.213.7.1 desk.cluster.example\n"
    refused = site(named, tmp_path, desk)
    assert refused.rc != 0
    assert "the control host finds no IP address of portal.cluster.example" in str(refused.failed)
    assert not refused.changed
    run = site(named, tmp_path, f"{desk}10.213.7.224 portal.cluster.example\n")
    assert (run.rc, run.failed) == (0, {}), run.failed
    assert "10.213.7.224" in named.command("fw-login", TABLE)
    again = site(named, tmp_path, f"{desk}10.213.7.224 portal.cluster.example\n")
    assert (again.rc, again.failed, again.changed) == (0, {}, {})
    moved = site(named, tmp_path, f"{desk}10.213.7.229 portal.cluster.example\n")
    assert (moved.rc, moved.failed) == (0, {}), moved.failed
    assert "fw-login" in moved.changed
    table = named.command("fw-login", TABLE)
    assert "10.213.7.229" in table
    assert "10.213.7.224" not in table


def test_a_further_address_is_one_of_the_host(named: Lab) -> None:
    """A connection from it passes, and others know its name."""
    assert "10.213.7.228" in named.command(OTHER, TABLE)
    assert named.command(OTHER, f"getent hosts {NODE}-ib").split() == ["10.213.7.228", f"{NODE}-ib"]
    named.command(NODE, "ip address add 10.213.7.228/24 dev eth0")
    ask = "socket.create_connection(('fw-node2', 6818), 10, source_address=('10.213.7.228', 0))"
    named.command(NODE, f'python3 -c "import socket; {ask}"')
    named.command(NODE, "ip address delete 10.213.7.228/24 dev eth0")


def test_the_cluster_has_its_own_rules_again(lab: Lab) -> None:
    """For the tests of the other files."""
    run = lab.playbook("site", "--skip-tags=validate")
    assert (run.rc, run.failed) == (0, {}), run.failed
    assert "10.213.7.228" not in lab.command(OTHER, TABLE)
