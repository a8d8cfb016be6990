# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurmd."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import slurmd
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.host_paths import KEPT_SLURMD
from plain_host import PlainHost, cluster
from standing_hosts import GRES

MACHINE = {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 2000}
WITH_MIG: dict[str, Any] = {
    "slurm_hardware_types": {"m": {**MACHINE, "gres": [GRES]}, "plain": MACHINE},
    "slurm_nodes": [{"hosts": "n1", "hardware": "m"}, {"hosts": "n2", "hardware": "plain"}],
}


def converged(**variables: Any) -> dict[str, PlainHost]:
    """The hosts of a cluster whose nodes are as the last run has left them."""
    hosts: dict[str, PlainHost] = cluster(ansible_play_hosts=["n1", "n2"], **variables)
    hosts["head"].say(out_of_service="", files={KEPT_SLURMD: "0" * 64})
    for name in ("n1", "n2"):
        mig = name == "n1" and "slurm_hardware_types" in variables
        record = slurmd.digest(slurmd.common(hosts[name], "0" * 64), mig, controller=False)
        hosts[name].say(applied={"slurmd": record})
    return hosts


def with_work(hosts: dict[str, PlainHost]) -> list[str]:
    """The nodes with work."""
    return slurmd.hosts_with_work(hosts["n1"], {name: hosts[name].facts["applied"] for name in ("n1", "n2")})


@pytest.mark.parametrize("variables", [{}, WITH_MIG], ids=["plain", "mig"])
def test_a_converged_node_has_no_work(variables: dict[str, Any]) -> None:
    assert with_work(converged(**variables)) == []


def test_a_node_has_work_if_its_record_is_another_one() -> None:
    hosts = converged()
    hosts["n2"].say(applied={"slurmd": "1" * 64})
    assert with_work(hosts) == ["n2"]


def test_a_node_has_work_if_slurm_does_not_count_on_it() -> None:
    hosts = converged()
    hosts["head"].say(out_of_service="n[2-3]")
    assert with_work(hosts) == ["n2"]


@pytest.mark.parametrize("group", slurmd.CHANGING_GROUPS)
def test_a_node_has_work_after_an_earlier_stage(group: str) -> None:
    hosts = converged()
    hosts["n1"]["groups"][group] = ["n2", "login"]
    assert with_work(hosts) == ["n2"]


def test_a_node_has_work_if_its_gpus_have_changed() -> None:
    hosts = converged()
    hosts["n1"]["groups"].update(slurm_needs_driver=["n1", "n2"], slurm_needs_mig=["n1"])
    assert with_work(hosts) == []
    hosts["n2"].set(__nvidia_driver_done={"changed": True})
    assert with_work(hosts) == ["n2"]
    hosts["n1"].set(nvidia_mig_pending=["n1"])
    assert with_work(hosts) == ["n1", "n2"]


@pytest.mark.parametrize(
    "facts", [{"out_of_service": None}, {"files": {}}], ids=["no answer of Slurm", "no values of an earlier run"]
)
def test_all_nodes_have_work_if_the_controller_does_not_say_enough(facts: dict[str, Any]) -> None:
    hosts = converged()
    hosts["head"].say(**facts)
    assert with_work(hosts) == ["n1", "n2"]


def test_all_nodes_have_work_if_the_controller_was_not_reached_or_has_changed_its_files() -> None:
    hosts = converged()
    hosts["head"].set(__slurmctld_config={"changed": True})
    assert with_work(hosts) == ["n1", "n2"]
    hosts = converged()
    hosts["head"].set(__slurm_facts={"unreachable": True})
    assert with_work(hosts) == ["n1", "n2"]


def test_the_digest_is_the_same_before_and_after_the_question() -> None:
    """The facts have the checksum of the values, and role slurmd asks for their text."""
    hosts = cluster()
    seen = hashlib.sha256(b"A=1\n").hexdigest()
    hosts["head"].say(files={KEPT_SLURMD: seen})
    before = slurmd.digest(slurmd.common(hosts["n1"], slurmd.values_checksum(hosts["n1"])), mig=False, controller=False)
    hosts["head"].say(files={})
    assert slurmd.service(hosts["n1"].set(__slurmd_read_at_start="A=1\n")).digest == before


def test_nodes_with_mig_and_controllers_have_digests_of_their_own() -> None:
    digests = {
        slurmd.digest("text", mig=mig, controller=controller) for mig in (False, True) for controller in (False, True)
    }
    assert len(digests) == 4


def test_the_options_of_slurmd() -> None:
    hosts = cluster(__slurmd_read_at_start="", slurm_controllers=["head", "n2"], **WITH_MIG)
    one, two = (slurmd.service(hosts[name]) for name in ("n1", "n2"))
    assert one.files[0]["content"].endswith(slurmd.MIG_LINE)
    assert slurmd.MIG_LINE not in two.files[0]["content"]
    assert one.absent == ["/etc/slurm/slurm.conf"]
    assert two.absent == [], "slurmctld reads it"
    assert one.servers == ["head:6817", "n2:6817"]
    assert one.running_with == [
        ["--conf-server", "head:6817,n2:6817"],
        ["--conf-server", "head,n2"],
        ["--conf-server=head:6817,n2:6817"],
        ["--conf-server=head,n2"],
    ]


def test_slurmd_starts_again_for_plugins_and_in_check_mode_for_mig() -> None:
    hosts = cluster(__slurmd_read_at_start="", nvidia_mig_pending=["n2"])
    assert not slurmd.service(hosts["n2"]).stale
    assert slurmd.service(hosts["n2"].set(ansible_check_mode=True)).stale
    hosts = cluster(__slurmd_read_at_start="", **WITH_MIG)
    assert slurmd.service(hosts["n1"]).stale, "the host lacks the plugin that finds its GPUs"
    assert not slurmd.service(hosts["n1"].say(packages={"slurm-wlm-nvml-plugin": "1"})).stale


def test_values_come_from_role_slurmctld_or_from_the_controller() -> None:
    hosts = cluster()
    assert slurmd.asks_for_values(hosts["n1"])
    assert slurmd.read_at_start(hosts["n1"].set(__slurmd_asked={"stdout": "A=1"})) == "A=1"
    hosts["head"].set(__slurmctld_config={"read_at_start": ""})
    assert not slurmd.asks_for_values(hosts["n1"])
    assert slurmd.read_at_start(hosts["n1"]) == ""


@pytest.mark.parametrize("state", ["idle*", "down", "down*", "unknown", "inval", "future"])
def test_a_node_that_is_not_up(state: str) -> None:
    lines = ["n1 idle none", f"n2 {state} Not responding"]
    hosts = cluster(ansible_play_hosts=["n1", "n2"], __slurmd_states={"stdout_lines": lines})
    assert not slurmd.are_up(hosts["n1"], "\n".join(lines))
    assert slurmd.node_check(hosts["n1"]).up
    assert slurmd.node_check(hosts["n2"]) == slurmd.NodeCheck(up=False, lines=lines[1:], drained="")


@pytest.mark.parametrize("state", ["idle", "mixed", "allocated", "drained", "draining"])
def test_a_node_that_is_up(state: str) -> None:
    host = cluster()["n1"]
    assert slurmd.are_up(host, f"n1 {state} none\nn2 idle down")


def test_the_first_host_shows_drained_nodes_by_their_reasons() -> None:
    """sinfo has a line for each partition of a node."""
    lines = ["n1 drained new DIMMs", "n1 drained new DIMMs", "n2 draining New DIMMs", "n3 fail burnt", "n4 idle none"]
    hosts = cluster(ansible_play_hosts=["n1", "n2"], __slurmd_states={"stdout_lines": lines})
    assert slurmd.node_check(hosts["n1"]).drained == "n3 (burnt); n[1-2] (new DIMMs)"
    assert slurmd.node_check(hosts["n2"]).drained == ""


def test_a_failure_of_the_first_nodes_is_reported_with_their_errors() -> None:
    hosts = cluster(ansible_play_hosts=["n1", "n2"])
    hosts["n1"].set(__slurmd_outcome="n1: no")
    assert slurmd.started_hosts(hosts["n1"]) == ["n2"], "a node that has failed is not asked again"
    hosts["n2"].set(__slurmd_outcome="")
    hosts["n1"]["groups"]["slurm_needs_previous"] = ["n1", "n2"]
    head, *errors = slurmd.first_nodes_failure(hosts["n1"])
    assert (
        "The change is undone, since slurmd does not start with it. Slurmd was restarted on no other node than n[1-2]."
        in head
    )
    assert errors == ["n1: no"]
