# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `firewall` of the cluster file, and the rules of each host that follow from it."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.firewall_plans import (
    firewall_plans,
    names_to_resolve,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.cluster.model import (
    Document,
    ModelError,
    load,
    model_errors,
)

SLURM = ["controllers", "database", "login", "compute"]
USERS = ["controllers", "login", "compute"]


def problems(firewall: Any, **more: Any) -> list[str]:
    """What is wrong with a cluster file that has this key."""
    file = {
        "plugin": "gpucluster.slurm.cluster",
        "name": "x",
        "controllers": "head",
        "login": "login1",
        "hardware": {"a": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1900}},
        "nodes": [{"hosts": "n[1-2]", "hardware": "a", "address": "10.0.0.[1-2]"}],
        "addresses": {"head": "10.0.0.8", "login1": "10.0.0.9"},
        "partitions": [{"name": "p", "nodes": "ALL"}],
        "firewall": firewall,
        **more,
    }
    try:
        load(Document("x.cluster.yml", file))
    except ModelError as error:
        return [problem.removeprefix("x.cluster.yml: ") for problem in error.problems]
    return []


@pytest.mark.parametrize(
    "firewall",
    [
        {},
        {"ssh": ["any"]},
        {"ssh": ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1"], "ssh_port": 2222, "compute_networks": ["10.9.0.0/16"]},
        {"ssh": ["any"], "open": [{"hosts": "login", "ports": "443,8000-8100", "from": ["any"]}]},
        {"ssh": ["admin.Example.org"], "open": [{"hosts": "login", "ports": 443, "from": ["xn--e1a.example.org"]}]},
        {
            "ssh": ["any"],
            "open": [{"hosts": "head,compute", "ports": 53, "protocol": "udp", "from": ["all", "10.1.1.1"]}],
        },
    ],
)
def test_what_a_site_can_say(firewall: Any) -> None:
    assert problems(firewall) == []


@pytest.mark.parametrize(
    ("firewall", "problem"),
    [
        ({"open": []}, "firewall.ssh: missing"),
        ({"ssh": []}, "firewall.ssh: found [], allowed: at least one of any, an address, a network"),
        ({"ssh": ["anyone"]}, "firewall.ssh: found ['anyone'], 'anyone' is no address or network"),
        ({"ssh": ["10.0.0.1/8"]}, "has host bits set"),
        *(
            ({"ssh": [name]}, f"found ['{name}'], '{name}' is no address or network")
            for name in ("10.0.0.256", "1.2.3", "a..b", "-a.example.org", "a.example.org.", f"{'a' * 64}.example.org")
        ),
        (
            {"ssh": ["any"], "compute_networks": ["ib.example.org"]},
            "'ib.example.org' is no address or network",
        ),
        ({"ssh": ["any"], "ssh_port": 70000}, "allowed: a whole number from 1 to 65535"),
        (
            {"ssh": ["any"], "compute_networks": ["any"]},
            "firewall.compute_networks: found ['any'], 'any' is no address",
        ),
        *(
            (
                {"ssh": ["any"], "compute_networks": [place]},
                f"firewall.compute_networks: found ['{place}'], '{place}' is every address, allowed: networks",
            )
            for place in ("0.0.0.0/0", "::/0")
        ),
        ({"ssh": ["fe80::1%eth0"]}, "firewall.ssh: found ['fe80::1%eth0'], 'fe80::1%eth0' has an interface, which no"),
        *(
            (
                {"ssh": ["any"], "ssh_port": port},
                f"firewall.ssh_port: found '{port}' on {host}, where {name} is {port}, allowed: another port",
            )
            for port, host, name in ((6818, "n1", "SlurmdPort"), (6817, "head", "SlurmctldPort"))
        ),
        ({"ssh": ["any"], "opens": []}, "firewall.opens: unknown key, did you mean 'open'?"),
        ({"ssh": ["any"], "open": [{"hosts": "login", "ports": "443"}]}, "firewall.open[0].from: missing"),
        (
            {"ssh": ["any"], "open": [{"hosts": "logn1", "ports": "443", "from": ["any"]}]},
            "firewall.open[0].hosts: found 'logn1', unknown host, did you mean 'login1'?",
        ),
        (
            {"ssh": ["any"], "open": [{"hosts": "login", "ports": "0-80", "from": ["any"]}]},
            "firewall.open[0].ports: found '0-80', allowed: ports from 1 to 65535",
        ),
        ({"ssh": ["any"], "open": [{"hosts": "login", "ports": "90-80", "from": ["any"]}]}, "allowed: ports from 1"),
        (
            {"ssh": ["any"], "open": [{"hosts": "login", "ports": "53", "protocol": "upd", "from": ["any"]}]},
            "did you mean 'udp'?",
        ),
    ],
)
def test_what_is_refused(firewall: Any, problem: str) -> None:
    (found,) = problems(firewall)
    assert problem in found


def test_a_name_is_an_address_of_a_host() -> None:
    assert problems({"ssh": ["any"]}, addresses={"head": "head.example.org"}) == []
    variables = {
        "slurm_cluster_name": "x",
        "slurm_controllers": ["head"],
        "slurm_nodes": [{"hosts": "n1", "hardware": "detected"}],
        "slurm_partitions": [{"name": "p", "nodes": "ALL"}],
        "slurm_addresses": [],
        "slurm_firewall": {"ssh": ["any"], "open": [{"hosts": "db", "ports": 53, "from": ["any"]}]},
    }
    assert model_errors({**variables, "slurm_database": "db"}, ["head", "n1"]) == []
    (found,) = model_errors(variables, ["head", "n1", "of_others"])
    assert found.startswith("slurm_firewall.open[0].hosts: found 'db', unknown host")


@pytest.mark.parametrize("value", [None, "", "many"])
def test_srun_needs_a_range_of_ports(value: Any) -> None:
    (found,) = [
        text for text in problems({"ssh": ["any"]}, slurm_conf={"SrunPortRange": value}) if "with firewall" in text
    ]
    assert found.startswith("slurm_conf.SrunPortRange: found ")


# -- the rules -------------------------------------------------------------------------------------------------------

MEMBERS = {
    "all": ["head", "spare", "db", "files", "reg", "login1", "n1", "n2"],
    "controllers": ["head", "spare"],
    "login": ["login1"],
    "compute": ["n1", "n2"],
}
VARIABLES: dict[str, Any] = {
    "slurm_controllers": ["head", "spare"],
    "slurm_database": "db",
    "slurm_registry": "reg",
    "slurm_nodes": [{"hosts": "n[1-2]"}],
    "slurm_conf": {"SrunPortRange": "60001-63000"},
    "slurmdbd_conf": {},
    "registry_port": 5000,
    "slurm_storage": [{"path": "/home", "type": "nfs", "server": "files", "hosts": "login,compute"}],
    "slurm_addresses": [
        {"hosts": "head,spare,db,files,reg,login1", "address": "10.0.0.[1-6]"},
        {"hosts": "n[1-2]", "address": "10.0.1.[1-2]"},
    ],
}


def plan(host: str, firewall: dict[str, Any] | None = None, **variables: Any) -> dict[str, Any]:
    """The plan of a host."""
    found = firewall_plans({"ssh": ["10.9.0.0/16"], **(firewall or {})}, MEMBERS, {**VARIABLES, **variables})
    return dict(found["plans"][found["hosts"][host]])


def rules(host: str, *arguments: Any, **variables: Any) -> dict[str, tuple[list[str], str]]:
    """Who may connect to which ports of a host, by what listens there."""
    of_host = plan(host, *arguments, **variables)
    found = [*of_host["rules"], *of_host["all_ports"]]
    assert len({rule["what"] for rule in found}) == len(found)
    return {rule["what"]: (rule["sources"], rule["ports"]) for rule in found}


def test_without_keys_no_host_has_rules() -> None:
    assert firewall_plans({}, MEMBERS, {**VARIABLES, "slurm_registry": ""}) == {"plans": [], "hosts": {}}


def test_the_table_of_who_speaks_to_whom() -> None:
    ssh = {"ssh": (["ssh"], "22")}
    users = {"ssh between hosts": (USERS, "22")}
    srun = {"srun": (["controllers", "compute"], "60001-63000")}
    assert rules("head") == {**ssh, "slurmctld": (SLURM, "6817"), **srun}
    assert rules("spare") == rules("head")
    assert rules("db") == {**ssh, "slurmdbd": (SLURM, "6819")}
    assert rules("files") == {**ssh, "NFS": (["nfs_clients"], "2049")}
    assert rules("reg") == {**ssh, "registry": (SLURM, "5000")}
    assert rules("login1") == {**ssh, **users, "sackd": (["controllers"], "6818"), **srun}
    assert rules("n1") == {**ssh, **users, "slurmd": (USERS, "6818"), **srun, "compute nodes": (["compute"], "")}
    assert rules("n1") == rules("n2")


@pytest.mark.parametrize(("report", "more"), [({}, []), ({"host": "login1"}, ["report"]), ({"host": "head"}, [])])
def test_the_page_asks_prometheus_for_alerts(report: dict[str, Any], more: list[str]) -> None:
    of: dict[str, Any] = {"slurm_monitoring": {"host": "db"}, "slurm_report": report, "slurm_report_port": 443}
    assert rules("db", **of)["Prometheus"] == (["controllers", *more], "9090")
    assert plan("db", **of)["sets"].get("report") == ({"ip": ["10.0.0.6"]} if more else None)


def test_the_ports_are_those_of_the_files() -> None:
    conf = {
        "slurmctldport": "7000-7003",
        "SlurmdPort": 7818,
        "AccountingStoragePort": 7819,
        "SrunPortRange": "50000-51000",
    }
    assert rules("head", slurm_conf=conf)["slurmctld"][1] == "7000-7003"
    assert rules("login1", slurm_conf=conf)["sackd"][1] == "7818"
    assert rules("login1", slurm_conf=conf)["srun"][1] == "50000-51000"
    assert rules("n1", slurm_conf=conf)["slurmd"][1] == "7818"
    assert rules("db", slurm_conf=conf, slurmdbd_conf=None)["slurmdbd"][1] == "7819"
    assert rules("db", slurmdbd_conf={"DbdPort": 7820})["slurmdbd"][1] == "7820"
    assert rules("n2", slurm_nodes=[{"hosts": "n[1-2]", "Port": "[7001-7002]"}])["slurmd"][1] == "7002"
    assert rules("head", {"ssh_port": 2222})["ssh"][1] == "2222"


def test_a_host_with_several_duties_has_the_rules_of_each() -> None:
    members = {**MEMBERS, "all": ["head"], "controllers": ["head"], "login": ["head"], "compute": ["head"]}
    of = {
        "slurm_controllers": ["head"],
        "slurm_database": "head",
        "slurm_registry": "",
        "slurm_nodes": [{"hosts": "head"}],
    }
    found = firewall_plans({"ssh": ["any"]}, members, {**VARIABLES, **of, "slurm_storage": []})
    names = [rule["what"] for rule in found["plans"][0]["rules"]]
    assert names == ["ssh", "ssh between hosts", "slurmctld", "slurmdbd", "slurmd", "srun"]
    assert [rule["what"] for rule in found["plans"][0]["all_ports"]] == ["compute nodes"]


def test_what_a_site_opens() -> None:
    opened = [
        {"hosts": "login", "ports": "443", "from": ["any"]},
        {"hosts": "n2,head", "ports": "9100", "from": ["controllers", "192.0.2.7"]},
        {"hosts": "all", "ports": "123", "protocol": "udp", "from": ["all"]},
    ]
    assert rules("login1", {"open": opened})["open[0]"] == (["any"], "443")
    assert rules("n2", {"open": opened})["open[1]"] == (["controllers", "open_1"], "9100")
    assert {"open[0]", "open[1]"}.isdisjoint(rules("n1", {"open": opened}))
    found = plan("n1", {"open": opened})
    assert found["rules"][-1]["protocol"] == "udp"
    assert plan("n2", {"open": opened})["sets"]["open_1"] == {"ip": ["192.0.2.7"]}


def test_compute_nodes_have_further_networks() -> None:
    found = plan("n1", {"compute_networks": ["10.8.0.0/16", "fd00::/8"]})
    assert found["sets"]["compute_networks"] == {"ip": ["10.8.0.0/16"], "ip6": ["fd00::/8"]}
    assert found["all_ports"][0]["sources"] == ["compute", "compute_networks"]
    assert "compute_networks" not in plan("login1", {"compute_networks": ["10.8.0.0/16"]})["sets"]


NAMES = {
    "login.example.org": ["192.0.2.6", "2001:db8::6", "fe80::6%eth0"],
    "n2": ["10.0.1.2", "127.0.1.1"],
    "admin.example.org": ["198.51.100.9", "198.51.100.7"],
}
NAMED: list[dict[str, str]] = [
    {"hosts": "head,spare,db,files,reg,login1", "address": "10.0.0.[1-5],login.example.org"},
    {"hosts": "n1", "address": "10.0.1.1"},
]


def test_nodes_report_to_controllers() -> None:
    assert rules("head", slurm_repair={"mode": "observe"})["slurm-repair"] == (["compute"], "6830")
    assert "slurm-repair" not in rules("n1", slurm_repair={"mode": "observe"})
    assert "slurm-repair" not in rules("head")


def plan_with_names(host: str, resolved: dict[str, list[str]], **variables: Any) -> dict[str, Any]:
    """The plan of a host of a cluster with names for addresses: that of a host, a host without one, and in ssh."""
    firewall = {"ssh": ["10.9.0.0/16", "admin.example.org"]}
    variables = {**VARIABLES, "slurm_addresses": NAMED, **variables}
    assert set(names_to_resolve(firewall, MEMBERS, variables)) <= {*NAMES, "readers.example.org"}
    found = firewall_plans(firewall, MEMBERS, variables, resolved=resolved)
    return dict(found["plans"][found["hosts"][host]])


def test_a_name_has_all_of_its_addresses() -> None:
    found = plan_with_names("head", NAMES)
    assert found["sets"]["login"] == {"ip": ["192.0.2.6"], "ip6": ["2001:db8::6"]}
    assert found["sets"]["compute"] == {"ip": ["10.0.1.1-10.0.1.2"]}
    assert found["sets"]["ssh"]["ip"] == found["ssh"] == ["10.9.0.0/16", "198.51.100.7", "198.51.100.9"]


def test_another_answer_of_dns_is_another_plan() -> None:
    digest = plan_with_names("head", NAMES)["digest"]
    assert plan_with_names("head", {name: found[::-1] for name, found in NAMES.items()})["digest"] == digest
    assert plan_with_names("head", {**NAMES, "admin.example.org": ["198.51.100.8"]})["digest"] != digest
    assert plan_with_names("head", {**NAMES, "n2": ["10.0.1.3"]})["digest"] != digest


def test_names_are_resolved_where_rules_need_them() -> None:
    assert names_to_resolve({}, MEMBERS, {**VARIABLES, "slurm_addresses": NAMED}) == []
    monitoring = {"host": "db", "readers": ["readers.example.org", "10.7.0.0/16"]}
    of: dict[str, Any] = {**VARIABLES, "slurm_monitoring": monitoring}
    assert names_to_resolve({}, MEMBERS, of) == ["readers.example.org"]
    found = firewall_plans({}, MEMBERS, of, resolved={"readers.example.org": ["10.0.1.1"]})
    assert found["plans"][found["hosts"]["n1"]]["sets"]["readers"] == {"ip": ["10.0.1.1", "10.7.0.0/16"]}
    # Users of a host that servers trust are kept from the servers.
    of_n1, of_n2 = (found["plans"][found["hosts"][host]]["private_everywhere"] for host in ("n1", "n2"))
    assert (of_n1, of_n2) == ("9100,9090,9093", "")


def test_names_without_an_address_are_one_error() -> None:
    expected = (
        "firewall: the control host finds no IP address of n2,admin.example.org "
        "(127.0.1.1, fe80::2%eth0 is none for other hosts), allowed: names that it can resolve"
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        plan_with_names("head", {"n2": ["127.0.1.1", "fe80::2%eth0"], "login.example.org": ["192.0.2.6"]})


def test_nodes_that_no_play_changes_are_compute_nodes() -> None:
    """Those of `unmanaged`, and nodes with State CLOUD, are in no group of the inventory."""
    of: dict[str, Any] = {"slurm_nodes": [{"hosts": "n[1-2]"}, {"hosts": "old1"}]}
    addresses = [*VARIABLES["slurm_addresses"], {"hosts": "old1", "address": "10.0.1.9"}]
    found = plan("head", slurm_addresses=addresses, **of)
    assert found["sets"]["compute"] == {"ip": ["10.0.1.1-10.0.1.2", "10.0.1.9"]}
    with pytest.raises(ValueError, match="firewall: the control host finds no IP address of old1, allowed: names"):
        plan("head", **of)


def test_addresses_are_folded_by_version() -> None:
    addresses = [{"hosts": "head,spare,n[1-2]", "address": "10.0.0.1,10.0.0.3,10.0.255.255,10.1.0.0"}]
    addresses.append({"hosts": "login1,db,files,reg", "address": "fd00::9,fd00::7,10.2.0.[1-2]"})
    found = plan("head", slurm_addresses=addresses)["sets"]
    assert found["controllers"] == {"ip": ["10.0.0.1", "10.0.0.3"]}
    assert found["compute"] == {"ip": ["10.0.255.255-10.1.0.0"]}
    assert found["login"] == {"ip6": ["fd00::9"]}


def test_who_comes_by_ssh() -> None:
    assert plan("head")["ssh"] == ["10.9.0.0/16"]
    assert plan("login1")["ssh"] == ["10.9.0.0/16", "10.0.0.1-10.0.0.2", "10.0.0.6", "10.0.1.1-10.0.1.2"]
    assert plan("login1", {"ssh": ["any"]})["ssh"] == ["any"]
    assert plan("login1", {"ssh_port": 2222})["ssh_port"] == 2222


def test_a_digest_names_the_rules_and_their_template() -> None:
    firewall = {"ssh": ["10.9.0.0/16"]}
    first = firewall_plans(firewall, MEMBERS, VARIABLES, "x")["plans"]
    assert first == firewall_plans(firewall, MEMBERS, VARIABLES, "x")["plans"]
    other = firewall_plans(firewall, MEMBERS, VARIABLES, "y")["plans"]
    assert {one["digest"] for one in first}.isdisjoint(one["digest"] for one in other)
    moved = [VARIABLES["slurm_addresses"][0], {"hosts": "n[1-2]", "address": "10.0.1.[3-4]"}]
    assert plan("head", slurm_addresses=moved)["digest"] != plan("head")["digest"]
    assert plan("files", slurm_storage=[])["digest"] != plan("files")["digest"]


def seconds_of_plans(blocks: int) -> float:
    """Processor time of the plans of a cluster with 250 nodes in each block of addresses, all ports of slurmd apart."""
    count = 250 * blocks
    nodes = [f"n{number:05}" for number in range(count)]
    hostlist = f"n[00000-{count - 1:05}]"
    members = {**MEMBERS, "all": [*MEMBERS["all"], *nodes], "compute": nodes}
    folded = ",".join(f"10.1.{block}.[0-249]" for block in range(blocks))
    addresses = [*VARIABLES["slurm_addresses"], {"hosts": hostlist, "address": folded}]
    ports = f"[1001-{1000 + count}]"
    variables = {**VARIABLES, "slurm_nodes": [{"hosts": hostlist, "Port": ports}], "slurm_addresses": addresses}
    started = time.process_time()
    found = firewall_plans({"ssh": ["any"]}, members, variables)
    assert len(found["hosts"]) == count + len(MEMBERS["all"])
    return time.process_time() - started


def test_plans_grow_with_the_number_of_nodes_and_not_with_its_square() -> None:
    assert seconds_of_plans(40) < 40 * seconds_of_plans(4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SlurmctldPort", 65536),
        ("SlurmctldPort", "65530-65540"),
        ("SlurmdPort", 0),
        ("SlurmdPort", 65536),
        ("AccountingStoragePort", 0),
        ("SrunPortRange", "60000-70000"),
        ("SrunPortRange", "0-9"),
    ],
)
def test_ports_that_cannot_be(name: str, value: Any) -> None:
    """Slurm cuts off what does not fit into 16 bits."""
    found = problems({}, slurm_conf={name: value}, database="head")
    assert found == [f"slurm_conf.{name}: found '{value}', allowed: ports from 1 to 65535"]
