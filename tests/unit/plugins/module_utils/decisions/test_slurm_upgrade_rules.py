# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurm_upgrade."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import slurm_upgrade
from plain_host import DATABASE_SERVER, GROUPS, PlainHost, cluster

PLAN: dict[str, Any] = {
    "from": "24.11.5-4",
    "to": "26.05.1-1",
    "release": "26.05",
    "hosts": ["head", "login", "n1", "n2"],
    "errors": [],
    "converts": True,
    "absent": [],
    "unpacked": "/var/lib/gpucluster-slurm/upgrade/26.05.1-1",
    "state_copy": "/var/lib/gpucluster-slurm/upgrade/StateSaveLocation-before-26.05.1-1.tar",
}
URL = "https://x.example.org/slurm-smd_26.05.1-1_amd64.deb"
FILES: dict[str, Any] = {
    "files": [{"url": URL, "sha256": "0" * 64}, {"file": "debs/slurm-smd-slurmd_26.05.1-1_amd64.deb"}]
}


def hosts(plan: dict[str, Any] | None = None, **variables: Any) -> dict[str, PlainHost]:
    """A cluster that has the plan of an upgrade."""
    found: dict[str, PlainHost] = cluster(__slurm_upgrade_plan=PLAN | (plan or {}), **variables)
    return found


def test_the_packages_that_hosts_are_offered_are_the_target() -> None:
    found = cluster(slurm_packages="schedmd", ansible_play_hosts=["head", "n1"])
    for host in found.values():
        host.say(packages={"slurm-smd": "24.11.5-4"}, candidates={"slurm-smd": "25.05.1-1"})
    plan = slurm_upgrade.plan(found["head"])
    assert (plan["from"], plan["to"], plan["hosts"]) == ("24.11.5-4", "25.05.1-1", ["head", "n1"])
    found["n1"].set(slurm_packages=FILES)
    assert slurm_upgrade.plan(found["n1"])["to"] == "26.05.1-1"


@pytest.mark.parametrize(
    ("present", "offered", "converts"),
    [
        ("24.11.5-4", "24.11.5-4+deb13u1", False),
        ("24.11.5-4", "24.11.7-1", False),
        ("24.11.5-4", "25.05.1-1", True),
        ("23.11.4-1.2ubuntu5", "23.11.4-1.2ubuntu5.1", False),
        ("23.11.4-1", "23.11.11-1", True),
        ("23.11.5-1", "23.11.11-1", False),
    ],
)
def test_a_patch_release_converts_no_database(present: str, offered: str, converts: bool) -> None:
    found = cluster(ansible_play_hosts=["head", "n1"])
    for host in found.values():
        host.say(packages={"slurm-wlm-basic-plugins": present}, candidates={"slurm-wlm-basic-plugins": offered})
    assert slurm_upgrade.plan(found["head"])["converts"] == converts
    # The database has been converted, and a node has not been upgraded yet.
    found["head"].say(packages={"slurm-wlm-basic-plugins": offered})
    assert not slurm_upgrade.plan(found["n1"])["converts"]
    # A run was killed while it converted.
    found["head"].say(files={"/var/lib/gpucluster-slurm/upgrade/state.json": "x"})
    assert slurm_upgrade.plan(found["n1"])["converts"]


def test_a_database_whose_version_nobody_knows_is_converted() -> None:
    found = cluster(ansible_play_hosts=["head", "n1"])
    for name, packages in {"head": {}, "n1": {"slurm-wlm-basic-plugins": "24.11.5-4"}}.items():
        newer = {"slurm-wlm-basic-plugins": "24.11.5-4+deb13u1"}
        found[name].say(packages=packages, candidates=newer, interrupted=not packages)
    plan = slurm_upgrade.plan(found["n1"])
    assert (plan["hosts"], plan["converts"]) == (["head", "n1"], True)


def test_a_patch_release_stops_slurmdbd_like_the_other_daemons() -> None:
    patch = {"from": "24.11.5-4", "to": "24.11.5-4+deb13u1", "release": "24.11", "converts": False}
    found = hosts(patch, groups=GROUPS | {"slurm_upgrades_database": ["head"]}, slurm_plugstack=[{"plugin": "a.so"}])
    host = found["head"].say(slurm_version="24.11.5")
    assert slurm_upgrade.daemons(host) == ["slurmctld", "slurmdbd"]
    assert (slurm_upgrade.changes_release(host), slurm_upgrade.changes_release(hosts()["head"])) == (False, True)
    assert slurm_upgrade.stages(host) == ["packages", "database", "controllers"]
    assert slurm_upgrade.announcement(host) == (
        "Slurm 24.11.5-4 -> 24.11.5-4+deb13u1 on head,login,n[1-2], which has the same protocols, state and database"
    )
    assert slurm_upgrade.report(host) == (
        "The packages are on the hosts, and slurmctld 24.11.5-4+deb13u1 starts with the configuration."
    )


def test_a_killed_upgrade_of_one_host_keeps_a_copy_of_the_state() -> None:
    """Its packages are of the new release already, and its slurmctld has not started since."""
    continued = {"from": "26.05.1-1", "converts": True}
    assert slurm_upgrade.keeps_state(hosts(continued)["head"])
    assert not slurm_upgrade.keeps_state(hosts(continued | {"converts": False})["head"])


def test_the_plan_is_described() -> None:
    assert slurm_upgrade.announcement(hosts()["n1"]) == "Slurm 24.11.5-4 -> 26.05.1-1 on head,login,n[1-2]"
    assert slurm_upgrade.announcement(hosts({"hosts": []})["n1"]) == "Every host has Slurm 26.05.1-1"


REST = {"host": "login", "clients": [], "max_token_lifespan": 86400}

REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "errors of the plan": ({"errors": ["one", "two"]}, {}, "one; two"),
    "hosts that are left out": (
        {},
        {"slurm_controllers": ["head", "other"], "slurm_database": "db"},
        "other,db cannot be left out, by --limit or because it was not reached or is unsuitable: the database and the "
        "controllers are upgraded first and together",
    ),
    "a short timeout": (
        {},
        {"slurm_conf": {"SlurmdTimeout": "60"}},
        "slurm_conf SlurmdTimeout: found 60, allowed during an upgrade: 0, or 300 or more; slurmctld ends the jobs of "
        "a node whose slurmd is away for longer. Raise it, run gpucluster.slurm.site, and lower it after the upgrade",
    ),
    "pyxis of another release": (
        {},
        {"slurm_containers": ["pyxis"], "pyxis_packages": {"24.11": {}}},
        "pyxis_packages has no package for Slurm 26.05, and slurmd would not start with the plugin of another release; "
        "build pyxis for it, and add the package",
    ),
    "a new key rest": (
        {},
        {"slurm_rest": REST},
        "head was not configured with the key rest yet: run gpucluster.slurm.site first, or leave the key out until "
        "after the upgrade",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_upgrade_that_would_lose_something_is_refused(case: str) -> None:
    plan, variables, expected = REFUSED[case]
    assert slurm_upgrade.objections(hosts(plan, **variables)["n2"]) == [expected]


def test_a_cluster_that_has_the_key_rest_is_upgraded() -> None:
    found = hosts(slurm_rest=REST)
    found["head"].say(files={"/etc/gpucluster-slurm/jwt_hs256.key": "0" * 64})
    assert slurm_upgrade.objections(found["n2"]) == []


def two_controllers(**variables: Any) -> dict[str, PlainHost]:
    """head is dead, and n1 serves in its place. The last run of site.yml has numbered the files."""
    given = {
        "slurm_controllers": ["head", "n1"],
        "slurm_database": "",
        "ansible_play_hosts": ["login", "n1", "n2"],
        "__slurm_run": {"serving_controller": "n1"},
        "__slurm_upgrade_ping": {"stdout": PING.format(head="DOWN")},
    }
    found = hosts({"hosts": ["login", "n1", "n2"]}, **(given | variables))
    found["n1"].say(files={SERIAL: "0" * 64})
    return found


PING = "Slurmctld(primary) at head is {head}\nSlurmctld(backup) at n1 is UP\n"
SERIAL = "/var/lib/gpucluster-slurm/serial"


def test_either_of_two_controllers_may_serve_during_an_upgrade() -> None:
    everybody = GROUPS["all"]
    for serving, ping in (("head", "UP"), ("n1", "UP"), ("n1", "DOWN")):
        found = two_controllers(
            ansible_play_hosts=everybody,
            __slurm_run={"serving_controller": serving},
            __slurm_upgrade_ping={"stdout": PING.format(head=ping)},
        )
        assert slurm_upgrade.objections(found["n2"]) == []


def test_an_upgrade_goes_on_without_a_dead_controller() -> None:
    """The other one serves. What the upgrade needs of a controller is done there, and not on the first one."""
    found = two_controllers()
    assert slurm_upgrade.objections(found["n2"]) == []
    assert slurm_upgrade.asks_controllers(found["n1"])
    assert slurm_upgrade.stages(found["n1"]) == ["packages", "controllers", "first_nodes"]
    assert slurm_upgrade.unpacked(found["n1"]) == "/var/lib/gpucluster-slurm/upgrade/26.05.1-1"
    assert slurm_upgrade.keeps_state(found["n1"])
    assert slurm_upgrade.plan(found["n1"])["absent"] == ["head"]
    # The play that reports has only hosts that are upgraded.
    upgraded = two_controllers(ansible_play_hosts_all=["login", "n1", "n2"])["n1"]
    upgraded.set(__slurm_upgrade_plan=PLAN | {"absent": ["head"]})
    assert slurm_upgrade.report(upgraded).endswith(
        " head was not reached, and its slurmctld does not start with the previous release: run "
        "gpucluster.slurm.upgrade again when the host is back."
    )
    # The run after that: only the controller that was dead has the previous release.
    again = two_controllers(ansible_play_hosts=GROUPS["all"])
    for host in again.values():
        host.set(__slurm_upgrade_plan=PLAN | {"hosts": ["head"]})
    assert slurm_upgrade.stages(again["n1"]) == []
    assert slurm_upgrade.stages(again["head"]) == ["packages", "controllers"]
    assert not slurm_upgrade.keeps_state(again["head"])
    assert not slurm_upgrade.asks_controllers(again["n1"])


NOT_LEFT_OUT = (
    "head cannot be left out, by --limit or because it was not reached or is unsuitable: the database and the "
    "controllers are upgraded first and together"
)
ALIVE: dict[str, tuple[dict[str, Any], str]] = {
    "by --limit": ({"ansible_play_hosts_all": ["login", "n1", "n2"]}, NOT_LEFT_OUT),
    "with the database": ({"slurm_database": "head"}, NOT_LEFT_OUT),
    "while it serves": ({"__slurm_run": {"serving_controller": "head"}}, NOT_LEFT_OUT),
    "with a slurmctld that runs": (
        {"__slurm_upgrade_ping": {"stdout": PING.format(head="UP")}},
        "head was not reached, but its slurmctld answers n1, and would go on with the previous release: make the host "
        "reachable for Ansible, or stop slurmctld there",
    ),
    "without an answer": (
        {"__slurm_upgrade_ping": {}},
        "head was not reached, and n1 does not say whether its slurmctld answers (scontrol ping)",
    ),
}


@pytest.mark.parametrize("case", ALIVE)
def test_a_controller_that_may_be_alive_is_not_left_out(case: str) -> None:
    variables, expected = ALIVE[case]
    assert slurm_upgrade.objections(two_controllers(**variables)["n1"]) == [expected]


def test_a_controller_that_could_start_with_the_previous_release_is_not_left_out() -> None:
    found = two_controllers()
    found["n1"].say(files={})
    assert slurm_upgrade.objections(found["n1"]) == [
        "head was not reached, and its slurmctld could take control with the previous release when the host is back: "
        "run gpucluster.slurm.site with all controllers first, which prevents such a start"
    ]


@pytest.mark.parametrize("timeout", [0, "0", 300, "3600", None, "INFINITE", 1e400])
def test_a_long_timeout_is_no_objection(timeout: Any) -> None:
    assert slurm_upgrade.objections(hosts(slurm_conf={"SlurmdTimeout": timeout})["head"]) == []


def test_a_database_of_others_is_converted_by_their_leave() -> None:
    host = hosts(slurm_database_server=DATABASE_SERVER)["head"]
    (objection,) = slurm_upgrade.objections(host)
    assert objection.endswith(
        "converts the database acct of db.x.org when it starts, without a trial and a way back: let its administrator "
        "save it, and run again with -e backup_convert=true"
    )
    assert slurm_upgrade.objections(hosts(slurm_database_server=DATABASE_SERVER, backup_convert=True)["head"]) == []
    assert not slurm_upgrade.plan(host)["converts"]


def test_a_site_without_a_database_or_with_the_package_of_pyxis_is_upgraded() -> None:
    pyxis: dict[str, Any] = {"slurm_containers": ["pyxis"], "pyxis_packages": {"26.05": {"file": "p.deb"}}}
    host = hosts(slurm_database="", **pyxis)["n1"]
    assert slurm_upgrade.objections(host) == []
    assert slurm_upgrade.pyxis_package(host) == {"file": "p.deb"}


def test_each_host_has_its_stages() -> None:
    found = hosts()
    assert {name: slurm_upgrade.stages(host) for name, host in found.items()} == {
        "head": ["packages", "database", "controllers"],
        "login": ["packages", "clients"],
        "n1": ["packages", "nodes"],
        "n2": ["packages", "nodes"],
    }
    assert slurm_upgrade.stages(hosts({"hosts": []})["head"]) == []


def test_a_run_that_was_killed_goes_on_with_the_database() -> None:
    host = hosts({"hosts": []})["head"].say(files={"/var/lib/gpucluster-slurm/upgrade/state.json": "x"})
    assert slurm_upgrade.stages(host) == ["database", "controllers"]


def test_servers_with_slurmd_or_pyxis_are_the_first_nodes() -> None:
    host = hosts(slurm_controllers=["n1"], slurm_database="n1")["n1"]
    assert slurm_upgrade.stages(host) == ["packages", "database", "controllers", "first_nodes"]
    found = hosts(slurm_controllers=["login"], slurm_database="", slurm_containers=["pyxis"])
    assert slurm_upgrade.stages(found["login"]) == ["packages", "controllers", "first_nodes"]
    assert not slurm_upgrade.has_pyxis(found["head"])


@pytest.mark.parametrize(
    ("name", "release", "daemons"),
    [
        ("head", "24.11.5", ["slurmctld"]),
        ("n1", "24.11.5", ["slurmd"]),
        ("login", "24.11.5", ["sackd"]),
        ("login", "23.02.1", []),
    ],
)
def test_daemons_stop_before_their_packages_change(name: str, release: str, daemons: list[str]) -> None:
    assert slurm_upgrade.daemons(hosts()[name].say(slurm_version=release)) == daemons


def test_a_host_gets_the_files_of_the_packages_that_it_has() -> None:
    host = hosts(slurm_packages=FILES)["n1"]
    host.say(packages={"slurm-smd": "24.11.5-4", "slurm-smd-slurmd": "24.11.5-4", "slurm-smd-client": "24.11.5-4"})
    change = slurm_upgrade.packages(host)
    assert change.packages == [{"url": URL, "sha256": "0" * 64}, FILES["files"][1]]
    assert (change.version, change.hold) == ("26.05.1-1", ["slurm-smd"])
    assert slurm_upgrade.copied_files(host) == ["debs/slurm-smd-slurmd_26.05.1-1_amd64.deb"]
    assert slurm_upgrade.packages(host.set(slurm_packages="schedmd")).packages == []


def test_what_is_checked_before_is_unpacked_on_the_database_and_the_serving_controller() -> None:
    found = hosts(slurm_controllers=["n1", "n2"])
    assert [name for name, host in found.items() if slurm_upgrade.keeps_state(host)] == ["n1"]
    directory = "/var/lib/gpucluster-slurm/upgrade/26.05.1-1"
    unpacked = {name: slurm_upgrade.unpacked(host) for name, host in found.items()}
    assert unpacked == {"head": directory, "login": "", "n1": directory, "n2": ""}
    # A run that was killed may have had another serving controller.
    assert [name for name, host in found.items() if slurm_upgrade.serves_cluster(host)] == ["head", "n1", "n2"]


def test_the_report_says_how_long_the_conversion_takes() -> None:
    found = hosts(
        groups=GROUPS | {"slurm_upgrades_database": ["head"]},
        slurm_plugstack=[{"plugin": "a.so"}, {"plugin": "b.so"}],
        ansible_check_mode=True,
    )
    found["head"].set(__slurmdbd_conversion={"seconds": 0, "size": 33})
    assert slurm_upgrade.report(found["n1"]) == (
        "Check mode: the next run would upgrade. The packages are on the hosts, and slurmctld 26.05.1-1 starts with "
        "the configuration. A copy of the database (33 MiB) was converted; the conversion will take about 1 s. Until "
        "slurmdbd 26.05.1-1 opens its port, every failure restores the previous release. SPANK plugins of "
        "slurm_plugstack must be installed for Slurm 26.05: a.so, b.so"
    )
    assert slurm_upgrade.result(found["n1"]) == {
        "from": "24.11.5-4",
        "to": "26.05.1-1",
        "hosts": "head,login,n[1-2]",
        "conversion_seconds": 0,
    }


def test_a_cluster_without_a_database_converts_nothing() -> None:
    host = hosts(slurm_database="")["n1"]
    assert slurm_upgrade.report(host) == (
        "The packages are on the hosts, and slurmctld 26.05.1-1 starts with the configuration."
    )
    assert slurm_upgrade.result(host)["conversion_seconds"] == 0
