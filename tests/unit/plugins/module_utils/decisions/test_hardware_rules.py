# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role hardware."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import hardware
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.host_paths import KEPT_CONF
from plain_host import PlainHost, cluster

PROLOG = {"Prolog": "/opt/prolog"}
MACHINE = {
    "cpus": 2,
    "boards": 1,
    "sockets_per_board": 1,
    "cores_per_socket": 2,
    "threads_per_core": 1,
    "real_memory": 2000,
    "cpuless_memory": 0,
    "tmp_disk": 1000,
    "device_files": [],
    "gpus": [],
}


def answered(play: list[str], **variables: Any) -> dict[str, PlainHost]:
    """The hosts of a small cluster, whose facts Ansible has; those of the play are n1 and n2."""
    hosts: dict[str, PlainHost] = cluster(
        **{"ansible_play_hosts": play, "ansible_play_hosts_all": ["n1", "n2"], **variables}
    )
    for host in hosts.values():
        host.set(ansible_facts={"slurm_host": host.facts, "slurm_hardware": dict(MACHINE)})
    return hosts


def measure(host: PlainHost, **facts: Any) -> None:
    """Let a host have other hardware."""
    host["ansible_facts"]["slurm_hardware"].update(facts)


def planned(hosts: dict[str, PlainHost], *steps: tuple[str, str | None]) -> None:
    """Let the plan of the run have these changes: what, and its value before; a configuration is in force."""
    hosts["head"].say(files={KEPT_CONF: "0" * 64})
    hosts["head"].set(__slurmctld_planned={"plan": [{"what": what, "before": before} for what, before in steps]})


def test_a_node_with_less_than_declared_is_left_out() -> None:
    hosts = answered(["n1", "n2"])
    assert hardware.registration(hosts["n1"]) == hardware.Registration([], [], {})
    measure(hosts["n2"], real_memory=1900)
    found = hardware.registration(hosts["n1"])
    (why,) = found.left_out.pop("n2")
    assert why.startswith("n2 would become INVAL: RealMemory 2000 configured, 1900 present")
    assert found == hardware.Registration([], [], {})


@pytest.mark.parametrize(
    ("what", "before", "stops"),
    [
        ("NodeName=n[1-2] RealMemory", "1900", True),
        ("NodeName=n1 RealMemory", "1900", False),
        ("NodeName=n2", None, False),
        ("gres.conf NodeName=n[1-2] Name=gpu File", "/dev/nvidia0", True),
        ("PartitionName=n2 State", "UP", False),
        ("slurm.conf KillWait", "30", False),
    ],
)
def test_a_change_for_which_slurm_would_refuse_nodes_stops_the_run(what: str, before: str | None, stops: bool) -> None:
    """The node may be in service, with jobs: it would become INVAL when the change comes into force."""
    hosts = answered(["n1", "n2"])
    planned(hosts, (what, before))
    measure(hosts["n2"], real_memory=1900)
    found = hardware.registration(hosts["n1"])
    assert (bool(found.refused), [*found.left_out]) == (stops, [] if stops else ["n2"])


def test_a_controller_that_slurm_would_refuse_stops_the_run() -> None:
    hosts = answered(["n1", "n2"], slurm_controllers=["head", "n2"])
    measure(hosts["n2"], real_memory=1900)
    found = hardware.registration(hosts["n1"])
    assert (len(found.refused), found.left_out) == (1, {})


@pytest.mark.parametrize(
    ("what", "stops"), [("slurm.conf KillWait", False), ("slurm.conf Prolog", True), ("slurm.conf Epilog", False)]
)
def test_a_node_that_has_lost_a_program_is_left_out(what: str, stops: bool) -> None:
    """If the configuration in force does not name it yet, the first job would drain each node without it."""
    hosts = answered(["n1", "n2"], slurm_conf=PROLOG)
    planned(hosts, (what, None))
    hosts["n2"].say(programs={"/opt/prolog": "does not exist"})
    found = hardware.registration(hosts["n1"])
    assert (bool(found.refused), [*found.left_out]) == (stops, [] if stops else ["n2"])


def test_a_login_host_that_has_lost_a_program_stops_the_run() -> None:
    """The play has the nodes alone, and this host would go on."""
    hosts = answered(["n1"], slurm_conf=PROLOG)
    planned(hosts)
    hosts["head"].say(programs={"/opt/prolog": "does not exist"})
    assert hardware.registration(hosts["n1"]).refused == ["slurm.conf Prolog: /opt/prolog does not exist on head"]


def test_another_shape_of_the_same_cpus_is_odd() -> None:
    hosts = answered(["n1", "n2"])
    measure(hosts["n1"], sockets_per_board=2, cores_per_socket=1)
    found = hardware.registration(hosts["n1"])
    assert (len(found.odd), found.refused, found.left_out) == (1, [], {})


def test_hosts_that_have_left_the_play_are_not_compared() -> None:
    hosts = answered(["n1"])
    measure(hosts["n2"], real_memory=1900)
    assert hardware.registration(hosts["n1"]) == hardware.Registration([], [], {})


def test_gpus_that_a_run_would_change_are_not_compared_in_check_mode() -> None:
    hosts = answered(["n2", "n1"], nvidia_mig_pending=["n2"], ansible_check_mode=True)
    assert hardware.measured_hosts(hosts["n1"]) == ["n1"]
    assert hardware.measured_hosts(hosts["n1"].set(ansible_check_mode=False)) == ["n1", "n2"]


def test_programs_of_a_new_configuration_that_a_host_lacks_are_refused() -> None:
    hosts = answered(["n1", "n2"], slurm_conf=PROLOG)
    hosts["n2"].say(programs={"/opt/prolog": "does not exist"})
    measure(hosts["n1"], real_memory=1900)
    found = hardware.registration(hosts["n1"])
    assert found.refused == ["slurm.conf Prolog: /opt/prolog does not exist on n2"]
    assert [*found.left_out] == ["n1"]


def test_a_host_that_the_run_leaves_out_lacks_no_program() -> None:
    hosts = answered(["n1"], slurm_conf=PROLOG)
    hosts["n2"].say(programs={"/opt/prolog": "does not exist"})
    hosts["n2"].set(ansible_facts={})
    assert hardware.registration(hosts["n1"]).refused == []


def test_the_answers_may_come_from_elsewhere() -> None:
    """One comparison for all hosts needs no variables of each host."""
    hosts = cluster(slurm_conf=PROLOG)
    answers = {"n1": {"slurm_host": hosts["n1"].facts, "slurm_hardware": {**MACHINE, "cpus": 1}}}
    found = hardware.registration_findings(hosts["head"], answers, ["n1"])
    assert [each.text[:20] for each in found.hardware] == ["n1 would become INVA"]


@pytest.mark.parametrize(
    ("value", "parameters"),
    [("l3cache_as_socket", ["l3cache_as_socket"]), (["a", "b"], ["a", "b"]), (None, [])],
)
def test_a_node_is_measured_with_the_parameters_of_its_slurmd(value: Any, parameters: list[str]) -> None:
    host = cluster(slurm_conf={"SlurmdParameters": value})["n1"]
    assert hardware.measurement(host).slurmd_parameters == parameters
    assert hardware.measurement(cluster()["n1"]) == hardware.Measurement([], [], "/tmp")


def test_device_files_are_those_of_all_machine_types_once() -> None:
    machines = {
        "a": {"gres": [{"name": "gpu", "file": "/dev/nvidia[0-1]"}, {"name": "shard", "count": 4}]},
        "b": {"gres": [{"name": "gpu", "file": "/dev/nvidia0"}, {"name": "gpu", "file": "/dev/nvidia[0-1]"}]},
        "c": {},
    }
    found = hardware.measurement(cluster(slurm_hardware_types=machines)["n1"])
    assert found.device_files == ["/dev/nvidia[0-1]", "/dev/nvidia0"]


def test_hosts_that_were_not_reached_keep_their_entry() -> None:
    hosts = answered(["n1"])
    known = {
        "hardware": {"m": {**MACHINE, "sockets": 1, "real_memory": 900}},
        "nodes": [{"hosts": "n2", "hardware": "m"}],
    }
    found = hardware.discovery(hosts["n1"], known)
    assert {node["hosts"]: node["hardware"] for node in found.nodes} == {"n1": "2c-2g", "n2": "m"}
    assert found.remarks[-1] == "Hosts that were not measured keep their entry: n2"


def test_names_of_declared_types_are_not_given_to_measured_ones() -> None:
    hosts = answered(["n1", "n2"], slurm_hardware_types={"2c-2g": {}})
    assert [*hardware.discovery(hosts["n1"], {}).hardware] == ["2c-2g-2"]
    found = hardware.discovery(hosts["n1"], {"hardware": None, "nodes": []})
    assert ([*found.hardware], found.remarks) == (["2c-2g-2"], [])
