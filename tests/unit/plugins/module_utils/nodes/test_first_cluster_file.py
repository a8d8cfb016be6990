# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first cluster file: which host gets which part, by which name and address, and which host is left out."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import Document, load
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import comparison
from ansible_collections.gpucluster.slurm.plugins.module_utils.nodes.first_cluster_file import (
    MOST_SECONDS,
    choice_errors,
    new_cluster,
)
from standing_hosts import HARDWARE

PLATFORMS = ["debian 13"]
NOTHING = {"name": "x", "controllers": "", "database": "", "login": "", "compute": "", "state_directory": ""}
GPU = {**HARDWARE["gpus"][0], "mig": []}


def host(
    hostname: str,
    gpus: int = 0,
    addresses: str = "",
    processes: tuple[int, str] = (1, ""),
    ansible_host: str = "",
    memory: int = 2000,
    offset: float = 0.0,
    **facts: Any,
) -> dict[str, Any]:
    """The variables of a host. processes: how pgrep ended, and what it said."""
    found = {
        "distribution": "debian 13",
        "hostname": hostname,
        "slurm_version": "",
        "packages": {},
        "paths": {},
        "directories": {"differ": {}, "refused": []},
        "free_mib": {"/var/lib": 50000},
        "read_only": [],
        **facts,
    }
    hardware = {
        **HARDWARE,
        "real_memory": memory,
        "gpus": [{**GPU, "minor": number, "cores": ""} for number in range(gpus)],
    }
    return {
        "ansible_host": ansible_host,
        "__new_cluster_facts": {
            "clock_offset": offset,
            "ansible_facts": {"slurm_host": found, "slurm_hardware": hardware},
        },
        "__new_cluster_processes": {"rc": processes[0], "stdout": processes[1]},
        "__new_cluster_addresses": {"rc": 0, "stdout": addresses},
    }


def make(hosts: dict[str, Any], **choices: str) -> dict[str, Any]:
    """The result, whose cluster loads unless there are errors."""
    result = new_cluster(hosts, [*hosts], {**NOTHING, **choices}, PLATFORMS)
    if not result["errors"]:
        load(Document("x.cluster.yml", result["cluster"]))
    return result


def parts(hosts: dict[str, Any], **choices: str) -> tuple[str, str, str, str]:
    """Controller, database, login hosts and nodes."""
    cluster = make(hosts, **choices)["cluster"]
    return (
        *(cluster[key] for key in ("controllers", "database", "login")),
        ",".join(n["hosts"] for n in cluster["nodes"]),
    )


def test_the_first_host_without_gpus_is_the_controller() -> None:
    hosts = {"g1": host("g1", 2), "a": host("a"), "b": host("b"), "g2": host("g2", 2)}
    assert parts(hosts) == ("a", "a", "a", "g[1-2],b")
    assert [(part["name"], part["nodes"], part.get("default")) for part in make(hosts)["cluster"]["partitions"]] == [
        ("gpu", "g[1-2]", True),
        ("cpu", "b", None),
    ]


def test_all_hosts_with_gpus_and_a_single_host() -> None:
    assert parts({"g1": host("g1", 2), "g2": host("g2", 2)}) == ("g1", "g1", "g1", "g2")
    assert parts({"g1": host("g1", 2)}) == ("g1", "g1", "g1", "g1")


def test_choices_win() -> None:
    hosts = {name: host(name) for name in ("a", "b", "c", "d")}
    assert parts(hosts, controllers="b", database="c", login="d") == ("b", "c", "d", "a")
    assert parts(hosts, compute="a") == ("b", "b", "b", "a")
    assert parts(hosts, compute="a,b,c,d") == ("a", "a", "a", "a,b,c,d")


def test_equal_machines_are_one_type() -> None:
    hosts = {"a": host("a"), "n1": host("n1", 2), "n2": host("n2", 2, memory=1995), "n3": host("n3", 2, memory=4000)}
    cluster = make(hosts)["cluster"]
    assert [node["hosts"] for node in cluster["nodes"]] == ["n[1-2]", "n3"]
    assert len(cluster["hardware"]) == 2


def test_hosts_without_an_address_have_an_entry_of_their_own() -> None:
    hosts = {"c": host("c"), "n1": host("n1"), "n2": host("n2", addresses="10.0.0.2")}
    cluster = make(hosts, controllers="c")["cluster"]
    assert [(node["hosts"], node.get("address")) for node in cluster["nodes"]] == [("n2", "10.0.0.2"), ("n1", None)]
    assert [part["nodes"] for part in cluster["partitions"]] == ["n[1-2]"]


def test_an_ip_in_the_inventory_becomes_the_address_of_the_host_name() -> None:
    hosts = {
        "10.0.0.1": host("head", addresses="10.0.0.1 172.17.0.1"),
        "10.0.0.2": host("n1.x.org", addresses="10.0.0.2"),
    }
    cluster = make(hosts)["cluster"]
    assert cluster["controllers"] == "head"
    assert cluster["addresses"] == {"head": "10.0.0.1"}
    assert [(node["hosts"], node["address"]) for node in cluster["nodes"]] == [("n1", "10.0.0.2")]


@pytest.mark.parametrize(
    ("ansible_host", "addresses", "expected", "comment"),
    [
        ("10.0.0.1", "172.17.0.1 10.0.0.1 fd00::1", "10.0.0.1", ""),
        (
            "192.0.2.7",
            "10.0.0.1",
            "10.0.0.1",
            "has the address 10.0.0.1, and not 192.0.2.7, by which Ansible reaches it",
        ),
        ("", "10.0.0.1", "10.0.0.1", ""),
        ("", "10.0.0.1 10.1.0.1", None, "has 2 addresses (10.0.0.1, 10.1.0.1): the file names none"),
        ("", "", None, "its address is not known"),
        ("", "; rm -rf 10.0.0.1", "10.0.0.1", ""),
    ],
)
def test_addresses(ansible_host: str, addresses: str, expected: str | None, comment: str) -> None:
    result = make({"a": host("a", addresses=addresses, ansible_host=ansible_host)})
    assert result["cluster"]["nodes"][0].get("address") == expected
    comments = [line for line in result["remarks"] if "address" in line]
    assert bool(comments) == bool(comment)
    assert all(comment in line for line in comments)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"distribution": "rocky 9.5"}, "unknown platform rocky 9.5, allowed: debian 13"),
        ({"hostname": "z"}, "its host name is z"),
        ({"free_mib": {"/var/lib": 10}}, "10 MiB are free in /var/lib"),
        ({"read_only": ["/usr"]}, "/usr: the file system is read-only"),
        (
            {"paths": {"/etc/slurm/slurm.conf": "root:root 0644"}},
            "belongs to another cluster (there is /etc/slurm/slurm",
        ),
        ({"processes": (0, "5 /opt/slurm/sbin/slurmctld -D")}, "belongs to another cluster (slurmctld runs)"),
        ({"processes": (0, "5 slurmstepd: [7.batch]\n6 slurmstepd: [8.0]")}, "(2 jobs run)"),
        ({"processes": (0, "5 /usr/sbin/sackd --systemd")}, "(sackd runs)"),
        ({"slurm_version": "24.11.5", "processes": (2, "")}, "pgrep cannot tell whether it runs"),
        ({"offset": -99.0}, "its clock differs by 99 s"),
    ],
)
def test_hosts_that_are_left_out(found: dict[str, Any], reason: str) -> None:
    bad = host(**{"hostname": "bad", **found})
    result = make({"bad": bad, "a": host("a"), "b": host("b")})
    assert result["errors"] == []
    assert any(line.startswith("bad is left out: ") and reason in line for line in result["remarks"])
    assert "bad" not in str(result["cluster"])
    assert len(result["table"]) == 4


def test_munge_alone_and_a_stopped_slurm_are_no_cluster() -> None:
    there = host("a", processes=(0, "5 /usr/sbin/munged"), packages={"munge": "0.5.16-1"}, slurm_version="24.11.5")
    result = make({"a": there})
    assert result["errors"] == []
    assert "Slurm 24.11.5, munge 0.5.16-1 " in result["table"][1]
    assert "a: munge is installed already: site.yml replaces its key by that of this cluster" in result["remarks"]


def test_two_hosts_with_one_name() -> None:
    result = make({"10.0.0.1": host("a"), "10.0.0.2": host("a")})
    assert "10.0.0.2 is left out: has the host name a, as 10.0.0.1 has" in result["remarks"]


def test_no_host_can_be_used() -> None:
    away = {"__new_cluster_facts": {"no_answer": {"unreachable": True, "msg": "No route\n# name: evil"}}}
    result = new_cluster({"a": away}, ["a"], NOTHING, PLATFORMS)
    assert result["errors"] == ["no host can be used: the table has the reason for each of them"]
    assert result["table"][1].endswith("left out: unreachable: No route # name: evil")
    odd = new_cluster({"a": host("a", memory=0)}, ["a"], NOTHING, PLATFORMS)
    assert odd["errors"] == [
        "no host can be a compute node: the lines below the table say what is wrong with their hardware"
    ]


@pytest.mark.parametrize(
    ("choices", "error"),
    [
        ({"controllers": "a,b"}, "new_cluster_state_directory: missing: several controllers need a directory"),
        ({"database": "a,b"}, "new_cluster_database: found 2 hosts, allowed: one"),
        ({"login": "a,a"}, "new_cluster_login: a is listed twice"),
        ({"compute": "a[1-"}, "new_cluster_compute: found 'a[1-', "),
        ({"compute": "ab"}, "new_cluster_compute: found 'ab', unknown host"),
        ({"name": "X"}, "new_cluster_name: found 'X', allowed: "),
    ],
)
def test_wrong_choices(choices: dict[str, str], error: str) -> None:
    (found,) = choice_errors({**NOTHING, **choices}, ["a", "b"], [], [])
    assert found.startswith(error)


def test_standbys_are_controllers_and_login_hosts_and_the_primary_has_the_database() -> None:
    hosts = {name: host(name) for name in ("a", "b", "n1")}
    result = new_cluster(
        hosts, [*hosts], {**NOTHING, "controllers": "b,a", "state_directory": "/shared/slurm"}, PLATFORMS
    )
    assert result["errors"] == []
    cluster = result["cluster"]
    assert {key: cluster[key] for key in ("controllers", "database", "login", "slurm_conf")} == {
        "controllers": "b,a",
        "database": "b",
        "login": "b,a",
        "slurm_conf": {"StateSaveLocation": "/shared/slurm"},
    }
    model = load(Document("x", cluster))
    assert [*model.groups["slurm_compute"]] == ["n1"]


def test_right_choices() -> None:
    assert choice_errors({**NOTHING, "login": "a,b"}, ["a", "b"], ["new_cluster_login"], ["new_cluster_login"]) == []
    assert choice_errors(NOTHING, [], [], []) == ["the inventory has no hosts, allowed: -i host1,host2, or -i FILE"]


def test_the_clocks_have_the_limit_of_role_base() -> None:
    assert comparison.MOST_SECONDS == MOST_SECONDS
