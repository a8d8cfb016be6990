# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role nvidia_driver."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import nvidia_driver
from plain_host import PlainHost, cluster

OPTIONS: dict[str, Any] = {
    "nvidia_driver_reboot": False,
    "nvidia_driver_kernel_modules": [],
    "nvidia_driver_module_options": {},
}


def answer(**differs: Any) -> dict[str, Any]:
    """What the module says of a driver that is as wanted."""
    return {"reason": "", "pending": False, "disruptive": False, "reboot": [], "remarks": [], "packages": []} | differs


def node(plan: dict[str, Any], **variables: Any) -> PlainHost:
    """The node n1 with this answer of the module."""
    return cluster(**OPTIONS | variables)["n1"].set(__nvidia_driver_plan=plan)


def test_hosts_without_a_driver_are_named_once_by_reason() -> None:
    hosts = cluster(**OPTIONS)
    for name, reason in {"n1": "no NVIDIA GPU on PCI", "n2": "no NVIDIA GPU on PCI", "login": "a container"}.items():
        hosts[name].set(__nvidia_driver_plan=answer(reason=reason))
    hosts["head"].set(__nvidia_driver_plan=answer())
    expected = (
        "Role nvidia_driver installs no driver on login: a container; "
        "Role nvidia_driver installs no driver on n[1-2]: no NVIDIA GPU on PCI"
    )
    assert nvidia_driver.left_alone(hosts["n1"]) == expected
    assert nvidia_driver.managed_hosts(hosts["n1"]) == ["head"]
    assert nvidia_driver.left_alone(cluster(**OPTIONS)["n1"]) == ""


@pytest.mark.parametrize(
    ("listed", "drained", "expected"),
    [
        pytest.param([], None, False, id="nobody"),
        pytest.param(["n1|gpucluster.slurm: NVIDIA driver"], None, True, id="an earlier run"),
        pytest.param(["n1|gpucluster.slurm: NVIDIA driver, says a person"], None, False, id="other words"),
        pytest.param(["n2|gpucluster.slurm: NVIDIA driver"], None, False, id="another node"),
        pytest.param([], {"changed": True}, True, id="this run"),
        pytest.param([], {"skipped": True}, False, id="not in check mode"),
    ],
)
def test_only_what_the_role_has_drained_is_resumed(
    listed: list[str], drained: dict[str, Any] | None, expected: bool
) -> None:
    host = node(answer()).set(__nvidia_driver_asked={"rc": 0, "stdout_lines": listed})
    if drained is not None:
        host.set(__nvidia_driver_drained=drained)
    assert nvidia_driver.has_drained(host) == nvidia_driver.resumes(host) == expected
    assert nvidia_driver.needs_change(host) == expected
    assert not nvidia_driver.has_drained(host.set(__nvidia_driver_plan=answer(reason="no NVIDIA GPU on PCI")))


def test_a_node_stays_drained_while_its_driver_needs_a_reboot() -> None:
    host = node(answer(reboot=["nouveau is loaded"]), nvidia_driver_reboot="yes")
    host.set(__nvidia_driver_drained={"changed": True})
    assert nvidia_driver.needs_reboot(host)
    assert not nvidia_driver.resumes(host)
    host.set(__nvidia_driver_done=answer())
    assert not nvidia_driver.needs_reboot(host)
    assert nvidia_driver.resumes(host)
    host.set(__nvidia_driver_done={"skipped": True})
    assert nvidia_driver.needs_reboot(host)


def test_without_leave_to_reboot_the_run_says_what_it_has_not_done() -> None:
    plan = answer(disruptive=True, packages=["a", "b"], reboot=["nouveau is loaded"], remarks=["one"])
    assert nvidia_driver.messages(node(plan)) == [
        "one",
        "The driver is not changed, since jobs may be using it. To be installed: a b",
        "nouveau is loaded",
        "Set nvidia_driver_reboot=true to drain the node, wait for its jobs and reboot it.",
    ]
    assert nvidia_driver.messages(node(plan, nvidia_driver_reboot=True)) == ["one"]
    assert nvidia_driver.messages(node(answer(remarks=["one"]))) == ["one"]


def test_check_mode_drains_only_where_slurm_answers() -> None:
    host = node(answer())
    assert nvidia_driver.may_drain(host)
    host.set(ansible_check_mode=True)
    assert not nvidia_driver.may_drain(host)
    assert nvidia_driver.may_drain(host.set(__nvidia_driver_asked={"rc": 0}))
    assert not nvidia_driver.may_drain(host.set(slurm_controllers=[]))


def test_a_file_of_modules_that_has_nothing_any_more_is_removed() -> None:
    first, second = "/etc/modules-load.d/gpucluster-nvidia.conf", "/etc/modprobe.d/gpucluster-nvidia.conf"
    host = node(answer(), nvidia_driver_module_options={"nvidia": "a=1"}).say(files={first: "0", second: "0"})
    wanted = nvidia_driver.module_files(host)
    assert ([entry["path"] for entry in wanted.files], wanted.left) == ([second], [first])
    assert "{'nvidia': 'a=1'}" in wanted.files[0]["content"]
    assert not nvidia_driver.module_files(node(answer())).needed
    # Before the hosts were asked, nothing is known of such files.
    assert not nvidia_driver.module_files(node(answer()).set(__slurm_facts=None)).needed


def test_an_option_of_a_module_that_no_line_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="found a newline"):
        nvidia_driver.module_files(node(answer(), nvidia_driver_module_options={"nvidia": "a=1\nb"}))


def test_modules_are_loaded_at_the_next_boot_if_there_is_one() -> None:
    assert nvidia_driver.loads_modules(cluster(**OPTIONS)["n1"])
    assert nvidia_driver.loads_modules(node(answer()))
    assert not nvidia_driver.loads_modules(node(answer(reboot=["nouveau is loaded"])))


@pytest.mark.parametrize(
    ("jobs", "loaded"),
    [
        ({"rc": 0, "stdout": "\n"}, True),
        ({"rc": 0, "stdout": "12"}, False),
        ({"rc": 1, "stdout": ""}, False),
    ],
)
def test_a_node_with_jobs_keeps_its_imex_daemon(jobs: dict[str, Any], loaded: bool) -> None:
    addresses = [{"hosts": "n1", "address": "10.0.0.1"}]
    host = node(answer(), nvidia_driver_imex_nodes="n[1-2]", slurm_addresses=addresses)
    (entry,) = nvidia_driver.imex_files(host.set(__nvidia_driver_imex_jobs=jobs))
    assert (entry["content"], entry["loaded"]) == ("10.0.0.1\nn2\n", loaded)


def test_a_domain_has_this_host_and_hosts_of_the_inventory() -> None:
    assert nvidia_driver.domain_objections(node(answer(), nvidia_driver_imex_nodes="n[1-2]")) == []
    assert nvidia_driver.domain_objections(node(answer(), nvidia_driver_imex_nodes="n[2-3]")) == [
        "nvidia_driver_imex_nodes: found n[2-3], without n1, allowed: a hostlist with this host",
        "nvidia_driver_imex_nodes: found n[2-3], unknown host n3, allowed: hosts of the inventory",
    ]
