# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role remove_nodes: which hosts are clean after a removal, and what the run says."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import host_packages
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import access, unattended_changes
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.unchanged_hosts import digest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.whole_cluster import with_leaving
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import remove_nodes
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import preparation
from ansible_collections.gpucluster.slurm.plugins.module_utils.facts import state_version
from plain_host import GROUPS, PlainHost, cluster

DONE: dict[str, Any] = {"changed": True, "plan": []}
AWAY = {"unreachable": True, "msg": "No route"}


def removal(**variables: Any) -> dict[str, PlainHost]:
    """The hosts of a cluster that n1 and n2 leave."""
    groups = {**GROUPS, "slurm_leaving": ["n1", "n2"], "slurm_compute": []}
    shared = {"groups": groups, "slurm_cluster_file": "/cluster/x.cluster.yml", **variables}
    hosts: dict[str, PlainHost] = cluster(**shared)
    return hosts


def cleaned(**variables: Any) -> dict[str, PlainHost]:
    """The same, after both hosts were cleaned."""
    hosts = removal(**variables)
    for name in ("n1", "n2"):
        hosts[name].set(
            __remove_nodes_compared={"changed": False}, __remove_nodes_cleaned=DONE, ansible_host=f"10.0.0.{name[1]}"
        )
    return hosts


def test_without_the_group_no_node_leaves() -> None:
    assert remove_nodes.leaving(cluster()["head"]) == []


def test_any_host_knows_the_nodes_and_their_file() -> None:
    head = removal()["head"]
    assert remove_nodes.nodes(head) == "n[1-2]"
    assert remove_nodes.cluster_file(head) == "/cluster/x.cluster.yml"


def test_all_hosts_are_clean() -> None:
    head = cleaned()["head"]
    assert remove_nodes.statistics(head) == {"removed": ["n1", "n2"], "cleaned": ["n1", "n2"], "not_cleaned": []}
    assert remove_nodes.unreached(head) == remove_nodes.failure(head) == ""
    assert remove_nodes.end_options(head) == remove_nodes.EndOptions("n[1-2]", "n[1-2]", {})


def test_a_host_that_is_away_leaves_with_its_address() -> None:
    hosts = cleaned()
    hosts["n2"].set(__remove_nodes_compared=AWAY, __remove_nodes_cleaned=AWAY)
    assert remove_nodes.unreached(hosts["head"]) == "n2"
    assert remove_nodes.end_options(hosts["head"]) == remove_nodes.EndOptions("n[1-2]", "n1", {"n2": "10.0.0.2"})
    assert remove_nodes.failure(hosts["head"]) == ""


def test_a_host_that_no_task_has_reached_is_not_clean() -> None:
    hosts = removal()
    assert remove_nodes.unreached(hosts["head"]) == ""
    assert remove_nodes.end_options(hosts["head"]).addresses == {"n1": "", "n2": ""}


def test_a_host_on_which_a_step_has_failed_is_not_clean() -> None:
    hosts = cleaned()
    hosts["n1"].set(__remove_nodes_error="Unmount: busy")
    assert remove_nodes.statistics(hosts["head"])["not_cleaned"] == ["n1"]
    assert remove_nodes.failure(hosts["head"]) == (
        "Slurm does not have n[1-2] any more, and not all hosts are clean: n1: Unmount: busy. Run again when this is "
        "repaired"
    )


def test_the_report_names_what_is_left_to_do() -> None:
    hosts = cleaned()
    hosts["n1"].set(__remove_nodes_storage={"remarks": ["unmount /a"]})
    hosts["n2"].set(__remove_nodes_cleaned=AWAY, __remove_nodes_storage={"skipped": True})
    assert remove_nodes.report(hosts["head"]) == [
        "Slurm does not have n[1-2] any more",
        "Cleaned: n1. These stay there: packages (Slurm's are held), accounts, logs, homes, data on local disks, "
        "MIG instances",
        "Not cleaned: n2. They still have the munge key: clean them by hand (docs/admin/nodes.md), or rotate the key. "
        "Each run of site.yml names them until you confirm it",
        "unmount /a",
        "/cluster/x.cluster.yml still names n[1-2]: change it as shown above, or run again with -e "
        "remove_nodes_write=true. Otherwise the next run of site.yml makes them nodes again",
    ]


def test_a_message_is_shown_once() -> None:
    hosts = cleaned(remove_nodes_write="yes")
    for name in ("n1", "n2"):
        hosts[name].set(__remove_nodes_storage={"remarks": ["unmount /a"]})
    assert remove_nodes.report(hosts["head"])[2:] == ["unmount /a"]


def test_check_mode_says_what_would_be() -> None:
    removed, clean, *_rest = remove_nodes.report(cleaned(ansible_check_mode=True)["head"])
    assert removed == "Slurm would not have n[1-2] any more"
    assert clean.startswith("To be cleaned: n[1-2]. These stay there")


def test_a_host_loses_the_keys_and_its_part_of_the_hosts_file() -> None:
    n1 = removal()["n1"]
    found = remove_nodes.cleanup(n1)
    assert "/etc/munge/munge.key" in found.secrets
    assert found.parts == [{"path": "/etc/hosts", "marker": "# {mark} gpucluster.slurm x"}]
    assert remove_nodes.access_files(n1) == [*dict.fromkeys(access.PATHS.values())]


def test_each_controller_that_was_reached_records_which_hosts_are_clean() -> None:
    """Another one may serve when a later run names the others."""
    two: dict[str, Any] = {"slurm_controllers": ["head", "n1"], "__slurm_run": {"serving_controller": "n1"}}
    assert remove_nodes.recording_controllers(cluster(**two)["n2"]) == ["head", "n1"]
    assert remove_nodes.recording_controllers(cluster(**two, ansible_play_hosts=["n1", "n2"])["n2"]) == ["n1"]
    assert remove_nodes.recording_controllers(cluster(ansible_play_hosts=["n1"])["n1"]) == ["head"]


# -- other changes of the cluster file -------------------------------------------------------------------------------

NODES: list[dict[str, Any]] = [{"hosts": "n1", "hardware": "m"}, {"hosts": "n2", "hardware": "m"}]
ADDRESSES = [{"hosts": name, "address": f"10.0.0.{i}"} for i, name in enumerate(GROUPS["slurm_cluster"])]
STAY = ["head", "login", "n1"]
ACCESS = {"administrators": ["admin"], "compute": "administrators", "between_nodes": "none", "login_limits": {}}
FIREWALL = {"ssh": ["10.0.0.0/8"], "ssh_port": 22, "compute_networks": [], "open": []}


def leaving_n2(**variables: Any) -> dict[str, PlainHost]:
    """A cluster that n2 leaves, whose file has these variables."""
    groups = {name: [host for host in members if host != "n2"] for name, members in GROUPS.items()}
    shared = {
        "slurm_access": ACCESS,
        "slurm_addresses": ADDRESSES[:-1],
        "slurm_firewall": FIREWALL,
        "slurm_nodes": NODES[:1],
        "slurm_variables_before": {"slurm_addresses": ADDRESSES, "slurm_nodes": NODES},
        "slurm_groups_before": {name: GROUPS[name] for name in ("slurm_cluster", "slurm_compute")},
        "base_packages": [],
        "base_time_service": "",
        "munge_key_file": "",
        "ansible_play_hosts": STAY,
        "ansible_play_hosts_all": STAY,
        "groups": {**groups, "slurm_leaving": ["n2"]},
    }
    hosts: dict[str, PlainHost] = cluster(**{**shared, **variables})
    return hosts


def apply(wanted: PlainHost, host: PlainHost) -> None:
    """Let a host be as the cluster file of another one says."""
    digests, files = wanted.shared("digests"), wanted.shared("access_texts")
    host.say(
        firewall=wanted.shared("firewall_digests")[host.name],
        applied={"slurm_health": wanted.shared("health_digests")[host.name]} if host.name == "n1" else {},
        packages=dict.fromkeys(host_packages.wanted_packages(wanted), "1"),
        part=digests["hosts"],
        sshd=access.parts(wanted)["who"],
        state_version=state_version.VERSION,
        users={"munge": 1, "slurm": 2},
        files={
            preparation.USERS_FILE: digests["users"],
            preparation.DIRECTORIES_FILE: digests["directories"],
            **{path: digest(text) for path, text in unattended_changes.files(wanted).items()},
            **access.wanted_files(wanted, access.text_digests(files)),
        },
    )


def converged(removed: tuple[str, ...] = (), **variables: Any) -> dict[str, PlainHost]:
    """Hosts that are as a cluster file says, those of `removed` without n2; these variables have changed since."""
    hosts, before = leaving_n2(), leaving_n2(**variables)
    for name in STAY:
        apply(hosts[name] if name in removed else with_leaving(hosts[name]), before[name])
    return before


@pytest.mark.parametrize("removed", [(), ("head",), ("head", "login", "n1")])
def test_a_removal_alone_is_no_other_change(removed: tuple[str, ...]) -> None:
    """Nor is what a run that was killed has done of it."""
    hosts = converged(removed)
    assert remove_nodes.other_changes(hosts["head"]) == []
    assert preparation.is_needed(hosts["login"]) == ("login" not in removed)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"slurm_firewall": {**FIREWALL, "ssh": ["any"]}}, "firewall: head,login,n1"),
        ({"base_extra_packages": ["htop"]}, "packages, users or files of the system: head,login,n1"),
        ({"slurm_access": {**ACCESS, "compute": "all"}}, "access: n1"),
        ({"slurm_storage": [{"path": "/x", "type": "tmpfs", "hosts": "login"}]}, "storage: login"),
        ({"slurm_health_mounts": ["/x"]}, "health check: n1"),
    ],
)
def test_other_changes_are_named(variables: dict[str, Any], named: str) -> None:
    assert remove_nodes.other_changes(converged(**variables)["login"]) == [named]
    assert remove_nodes.other_changes(converged(("login", "n1"), **variables)["login"]) == [named]


def test_a_record_that_a_boot_has_ended_is_no_change() -> None:
    hosts = converged()
    hosts["n1"].say(applied={})
    assert remove_nodes.other_changes(hosts["head"]) == []
