# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the answers of all hosts together tell a run."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.host_paths import KEPT_CONF
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import comparison
from plain_host import PlainHost, cluster

KEY = "/cluster/secrets/x/munge.key"
OTHER = {"found": [{"name": "y", "file": "/etc/slurm/slurm.conf", "by": "slurmd"}], "daemons": ["slurmd"]}


def compared(hosts: dict[str, PlainHost], **variables: Any) -> comparison.HostComparison:
    """The comparison in a run in which every host has decided for itself."""
    for host in hosts.values():
        host.set(**variables)
    return comparison.compare(hosts["head"])


def hosts_of(found: comparison.HostComparison, group: str) -> list[str]:
    """The hosts that the comparison puts into a group."""
    return [entry["name"] for entry in found.work if group in entry["groups"]]


def run(**variables: Any) -> dict[str, PlainHost]:
    """A cluster whose control host has the munge key, and whose hosts need nothing by their own answers."""
    hosts: dict[str, PlainHost] = cluster({KEY: b"key"}, munge_key_file=KEY, base_manage_hosts_file=True, **variables)
    for host in hosts.values():
        host["__slurm_facts"].update(objections=[], stages=[])
    return hosts


def test_a_run_without_anything_special_goes_on() -> None:
    found = compared(run())
    assert (found.stop, found.remarks, found.refused, found.open_questions) == ("", [], {}, [])
    assert found.serving_controller == "head"
    assert hosts_of(found, "slurm_needs_validation") == ["head", "login"]


def test_a_host_of_another_cluster_stops_the_run() -> None:
    hosts = run()
    hosts["n2"].say(clusters=OTHER)
    found = compared(hosts)
    assert "n2: cluster y: slurmd runs with /etc/slurm/slurm.conf" in found.stop
    assert hosts_of(found, "slurm_unsuitable") == ["head"]


def test_the_controller_that_says_so_serves() -> None:
    hosts = run(slurm_controllers=["head", "login"])
    hosts["login"].say(serving_controller="login")
    assert compared(hosts).serving_controller == "login"
    hosts["head"].say(serving_controller="head")
    assert compared(hosts).serving_controller == "head"
    hosts["head"].say(serving_controller="stranger")
    assert compared(hosts).serving_controller == "login"


def test_a_standby_whose_slurmctld_a_killed_run_has_stopped_goes_on_without_the_primary() -> None:
    """Nobody serves: the run that was killed had stopped slurmctld for an upgrade. The primary is dead."""
    hosts = run(slurm_controllers=["head", "login"], ansible_play_hosts=["login", "n1", "n2"])
    assert compared(hosts).stop.startswith("Nothing was changed: the controller head was not reached by this run, and")
    hosts["login"].say(files={KEPT_CONF: "0" * 64})
    assert compared(hosts).serving_controller == "login"
    # One that runs takes over by itself, or the primary serves where the run does not reach it.
    own = {"name": "x", "file": "/etc/slurm/slurm.conf", "by": "slurmctld"}
    hosts["login"].say(clusters={"found": [own], "daemons": []})
    assert compared(hosts).stop.startswith("Nothing was changed: the controller head was not reached by this run, and")


def test_a_controller_that_serves_and_gives_no_facts_is_not_called_away() -> None:
    hosts = run(slurm_controllers=["head", "login"], ansible_play_hosts=["login", "n1", "n2"])
    hosts["login"].say(serving_controller="head")
    hosts["head"].set(__slurm_facts={"unreachable": True, "msg": "ssh: connect to host head port 22\nmore"})
    assert compared(hosts).stop.startswith(
        "Nothing was changed: head, which serves as login says, was not reached by this run (ssh: connect to host head "
        "port 22), and the other hosts depend on it. Run again when"
    )
    hosts["head"].set(__slurm_facts={"failed": True, "msg": "No space left on device"})
    found = compared(hosts)
    assert "head, which serves as login says, gave no facts (No space left on device), and" in found.stop
    assert found.remarks == ["Hosts that gave no facts are left out of this run: head"]


@pytest.mark.parametrize(("tags", "stops"), [(["all"], True), (["base"], False), (["base", "compute"], True)])
def test_without_its_controller_a_run_does_what_needs_none(tags: list[str], stops: bool) -> None:
    hosts = run()
    found = compared(hosts, ansible_play_hosts=["login", "n1", "n2"], ansible_run_tags=tags)
    assert bool(found.stop) is stops
    assert found.remarks == ["Hosts that were not reached are left out of this run: head"]


def test_clocks_are_those_of_the_first_controller() -> None:
    hosts = run()
    for name, offset in {"head": 100.0, "login": 100.0, "n1": 71.0, "n2": 70.0}.items():
        hosts[name]["__slurm_facts"]["clock_offset"] = offset
    found = compared(hosts)
    assert found.refused.keys() == {"n2"}
    assert found.refused["n2"][0].startswith("the clock is 30 s behind that of head, allowed: less than 30 s")
    assert hosts_of(found, "slurm_unsuitable") == ["head"]


def test_own_objections_come_first_and_a_refused_host_has_no_work() -> None:
    hosts = run()
    hosts["login"]["__slurm_facts"].update(objections=["its name"], clock_offset=60.0)
    found = compared(hosts)
    assert found.refused["login"][0] == "its name"
    assert "60 s ahead of" in found.refused["login"][1]
    assert hosts_of(found, "slurm_needs_validation") == ["head"]
    assert hosts_of(found, "slurm_needs_munge") == ["head", "n1", "n2"]


def test_another_release_is_asked_again_before_the_host_is_refused() -> None:
    hosts = run()
    for name in ("head", "login", "n1"):
        hosts[name].say(slurm={"installed": "24.11.5", "candidate": "", "state_protocol": 0})
    hosts["n2"].say(slurm={"installed": "", "candidate": "26.05.1", "state_protocol": 0})
    found = compared(hosts)
    assert found.open_questions == ["lists"]
    assert found.release_order["offered"] == ["n2"]
    assert [entry["groups"] for entry in found.work] == [["slurm_open_questions"]]
    again = compared(hosts, __base_asked_again=True)
    assert (again.open_questions, again.stop) == ([], "")
    assert "this run would install Slurm 26.05.1" in again.refused["n2"][0]


def test_a_controller_of_another_release_stops_the_run() -> None:
    hosts = run(slurm_controllers=["head", "login"], __base_asked_again=True)
    hosts["head"].say(slurm={"installed": "24.11.5", "candidate": "", "state_protocol": 0})
    hosts["login"].say(slurm={"installed": "", "candidate": "22.05.8", "state_protocol": 0})
    assert compared(hosts).stop.startswith("Nothing was changed. login: this run would install Slurm 22.05.8")


def test_a_run_without_controllers_needs_the_nodes_in_force() -> None:
    nodes = ["n1", "n2"]
    hosts = run(ansible_play_hosts=nodes, ansible_play_hosts_all=nodes)
    for host in hosts.values():
        host.say(slurm={"installed": "24.11.5", "candidate": "", "state_protocol": 0})
    first = comparison.compare(hosts["n1"])
    assert first.open_questions == ["nodes"]
    lines = {"stdout_lines": ["NodeName=n[1,3] CPUs=2", "NodeName=x"]}
    found = comparison.compare(hosts["n1"].extended(__base_node_lines=lines, __base_asked_again=True))
    assert found.refused.keys() == {"n2"}
    assert "slurm.conf on head does not have this node" in found.refused["n2"][0]


def test_users_of_a_directory_are_compared() -> None:
    hosts = run(slurm_people={"source": "directory"}, slurm_accounting_users=[{"name": "b"}, {"name": "A"}])
    for host in hosts.values():
        host.say(directory={"checksum": "1", "unknown": 0})
    assert hosts_of(compared(hosts), "slurm_needs_directory") == []
    hosts["n1"].say(directory={"checksum": "2", "unknown": 0})
    found = compared(hosts)
    assert hosts_of(found, "slurm_needs_directory") == ["head", "n1"]
    assert found.directory_users == ["A", "b"]


def test_a_policy_is_work_of_the_serving_controller() -> None:
    hosts = run(slurm_controllers=["head", "login"], slurm_accounting_users=[{"name": "a"}])
    hosts["head"].say(serving_controller="login")
    assert hosts_of(compared(hosts), "slurm_needs_policy") == ["login"]
