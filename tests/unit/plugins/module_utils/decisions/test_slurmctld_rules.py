# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role slurmctld."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import slurmctld
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known import (
    container_parts,
    platform,
    platform_tables,
    state_directory,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.known.host_paths import (
    KEPT_CONF,
    KEPT_LIST,
    MAIL_PROGRAM,
)
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.values import mail, own_node_files, slurm_files
from plain_host import GROUPS, PlainHost, cluster

SECRETS = "/cluster/secrets/x"
RELAY = {"relay": "mail.example.org:587", "sender": "slurm@example.org", "tls": "starttls"}
CONTROLLERS = ["head", "n1"]
IN_FORCE = {
    "in_force": {"slurm.conf": "text"},
    "in_force_bytes": {"job_submit.so": "AAA="},
    "absent": ["topology.conf"],
    "read_at_start": "values",
    "listed": "list",
    "serial": "7 24.11.5",
    "kept_hosts": ["head", "n1", "gone"],
    "actions": [],
}


def answer(**more: Any) -> dict[str, Any]:
    """What a controller says about the state directory."""
    mount = {"guard": "/shared", "automount": False, "root": False, "type": "nfs", "source": "s:/x"}
    return {"file": "", "error": "", "mount": mount, **more}


def two(**variables: Any) -> dict[str, PlainHost]:
    """A cluster with two controllers, head, which serves, and n1."""
    hosts: dict[str, PlainHost] = cluster(
        slurm_controllers=CONTROLLERS, slurm_conf={"StateSaveLocation": "/shared/slurm"}, **variables
    )
    for name in CONTROLLERS:
        hosts[name].set(__slurmctld_state=answer())
    return hosts


def paths(host: PlainHost) -> list[str]:
    """The files of slurmctld on a controller."""
    return [entry["path"] for entry in slurmctld.service(host).files]


def test_a_single_controller_has_its_configuration_from_slurm_config() -> None:
    host = cluster()["head"]
    assert paths(host) == [
        "/etc/logrotate.d/gpucluster-slurm",
        "/etc/systemd/system/slurmctld.service.d/gpucluster-slurm.conf",
    ]
    assert state_directory.UNIT in slurmctld.service(host).absent


def test_a_controller_that_does_not_serve_gets_the_files_in_force() -> None:
    hosts = two()
    hosts["head"].set(__slurmctld_config=IN_FORCE)
    files = {entry["path"]: entry for entry in slurmctld.service(hosts["n1"]).files}
    assert files["/etc/slurm/slurm.conf"] == {"path": "/etc/slurm/slurm.conf", "content": "text"}
    assert files["/etc/slurm/job_submit.so"]["secret"] == "AAA="
    kept = files["/var/lib/gpucluster-slurm/good/slurm.conf"]
    assert (kept["mode"], kept["loaded"]) == ("0600", False)
    assert files["/var/lib/gpucluster-slurm/files"]["content"] == "list"
    assert files["/var/lib/gpucluster-slurm/serial"]["content"] == "7 24.11.5"
    assert files["/var/lib/gpucluster-slurm/hosts"]["content"] == "head\nn1\ngone\n"
    assert state_directory.UNIT in files
    assert slurmctld.service(hosts["n1"]).absent[0] == "/etc/slurm/topology.conf"
    assert "/etc/slurm/slurm.conf" not in paths(hosts["head"])


def test_the_first_controller_stops_a_standby_that_serves_which_starts_again() -> None:
    hosts = two()
    units = "/etc/systemd/system/slurmctld.service.d/gpucluster-slurm"
    hosts["head"].set(__slurmctld_config=IN_FORCE)
    files = {name: {entry["path"]: entry for entry in slurmctld.service_files(hosts[name])} for name in CONTROLLERS}
    program = "/usr/local/lib/gpucluster-slurm/take-control"
    assert files["head"][program]["mode"] == "0755"
    # The text of a template is its variables here.
    command = f"""('take_control', '{program} "/shared/slurm/heartbeat" "n1:6817"')"""
    assert command in files["head"][f"{units}-state.conf"]["content"]
    assert "('take_control', '')" in files["n1"][f"{units}-state.conf"]["content"]
    assert "('standby', False)" in files["head"][f"{units}.conf"]["content"]
    assert "('standby', True)" in files["n1"][f"{units}.conf"]["content"]
    assert program not in files["n1"]
    assert program in slurmctld.absent_files(hosts["n1"])
    assert program not in slurmctld.absent_files(hosts["head"])


def test_a_standby_of_another_origin_keeps_its_files_once() -> None:
    hosts = two()
    assert slurmctld.keeps_found_files(hosts["n1"])
    assert not slurmctld.keeps_found_files(hosts["head"])
    assert not slurmctld.keeps_found_files(hosts["n1"].say(files={KEPT_CONF: "0" * 64}))


def test_without_files_in_force_slurmctld_stays_as_it_is() -> None:
    hosts = two()
    assert not slurmctld.knows_configuration(hosts["n1"])
    assert not slurmctld.can_run(hosts["n1"])
    hosts["head"].set(__slurmctld_config=IN_FORCE)
    assert slurmctld.can_run(hosts["n1"])


def test_a_host_that_is_no_controller_any_more_loses_its_slurmctld() -> None:
    """It could take over. One that this collection has not installed is for a person."""
    own = {"name": "x", "file": "/etc/slurm/slurm.conf", "by": "slurmctld"}
    hosts = cluster()
    assert not slurmctld.was_controller(hosts["login"])
    hosts["login"].say(clusters={"found": [own], "daemons": []})
    assert slurmctld.was_controller(hosts["login"])
    unit, *files = slurmctld.stopped_files(hosts["login"])
    assert unit == "/etc/systemd/system/slurmctld.service.d/gpucluster-*"
    assert "/etc/slurm/slurm.conf" in files
    assert "/etc/slurm/slurmdbd.conf" not in files
    assert not slurmctld.was_controller(hosts["login"].set(slurm_controllers=["head", "login"]))
    hosts["login"].set(slurm_controllers=["head"]).say(clusters={"found": [own], "daemons": ["slurmctld"]})
    assert not slurmctld.was_controller(hosts["login"])


def test_a_controller_that_was_started_may_have_to_take_over() -> None:
    host = two()["n1"]
    assert not slurmctld.waits_for_control(host)
    assert not slurmctld.waits_for_control(host.set(__slurmctld_service={"actions": ["reload"]}))
    assert slurmctld.waits_for_control(host.set(__slurmctld_service={"actions": ["enable", "start"]}))
    assert not slurmctld.waits_for_control(cluster(__slurmctld_service={"actions": ["start"]})["head"])


def test_check_mode_does_not_show_a_service_that_slurm_config_starts() -> None:
    hosts = two(ansible_check_mode=True)
    hosts["head"].set(__slurmctld_config={**IN_FORCE, "actions": ["start"]})
    assert slurmctld.knows_configuration(hosts["head"])
    assert not slurmctld.can_run(hosts["head"])
    assert slurmctld.can_run(hosts["n1"])


def test_a_first_configuration_has_nothing_to_lose() -> None:
    host = cluster()["head"]
    assert not slurmctld.configuration_changes(host)
    host.say(files={"/var/lib/gpucluster-slurm/good/slurm.conf": "0" * 64})
    assert slurmctld.configuration_changes(host)


def test_the_checksum_follows_the_files_and_the_hosts() -> None:
    first = slurmctld.configuration_digest(cluster()["head"])
    assert slurmctld.configuration(cluster()["head"]).digest == first
    assert slurmctld.configuration_digest(cluster()["head"]) == first
    assert slurmctld.configuration_digest(cluster(slurm_conf={"KillWait": 60})["head"]) != first
    assert slurmctld.configuration_digest(cluster(groups={**GROUPS, "slurm_cluster": ["head"]})["head"]) != first
    assert slurmctld.configuration_digest(cluster(slurmctld_cleaned_hosts="n3")["head"]) != first


def test_the_checksum_of_a_password_has_a_salt() -> None:
    files = {f"{SECRETS}/mail_password": b"word", f"{SECRETS}/munge.key": b"one"}
    user = {**RELAY, "user": "u"}
    first = slurmctld.service_digest(cluster(files, slurm_mail=user)["head"])
    assert slurmctld.service_digest(cluster(files | {f"{SECRETS}/munge.key": b"two"}, slurm_mail=user)["head"]) != first
    without = [slurmctld.service_digest(cluster(keys, slurm_mail=RELAY)["head"]) for keys in (files, {})]
    assert without[0] == without[1]


def test_the_list_of_jobs_is_rotated_if_it_is_a_file() -> None:
    for place, path in (("/data/jobs", "/data/jobs"), ("tcp://x", "")):
        (rotation, _unit) = slurmctld.unit_files(cluster(slurm_conf={"JobCompLoc": place})["head"])
        assert f"('path', '{path}')" in rotation["content"]


def test_mail_leaves_no_file_behind() -> None:
    assert mail.absent(cluster()["head"]) == [MAIL_PROGRAM, mail.SETTINGS, mail.PASSWORD]
    assert mail.absent(cluster(slurm_mail=RELAY)["head"]) == [mail.PASSWORD]
    host = cluster({f"{SECRETS}/mail_password": b"word"}, slurm_mail={**RELAY, "user": "u"})["head"]
    assert mail.absent(host) == []
    assert mail.files(host)[-1] == {
        "path": mail.PASSWORD,
        "secret": "d29yZA==",
        "owner": "slurm",
        "mode": "0400",
        "loaded": False,
    }


def test_a_missing_password_is_named() -> None:
    with pytest.raises(ValueError, match=r"slurm_mail: /cluster/secrets/x/mail_password is missing"):
        mail.files(cluster(slurm_mail={**RELAY, "user": "u"})["head"])


def test_an_address_of_a_relay_has_brackets_in_the_cluster_file_only() -> None:
    text = mail.settings(cluster(slurm_mail={**RELAY, "relay": "[::1]:25"}, slurm_containers=["job_tools"])["head"])
    assert "('jobstats', True)" in text
    assert "('jobstats', False)" in mail.settings(cluster(slurm_mail=RELAY)["head"])
    assert "('host', '::1')" in text
    assert "('port', '25')" in text


def test_a_person_hears_once_that_slurm_sends_no_mail() -> None:
    host = cluster()["head"]
    assert mail.warnings(host) == [mail.NO_MAIL]
    host.say(files={"/var/lib/gpucluster-slurm/good/slurm.conf": "0" * 64})
    assert mail.warnings(host) == []
    host.set(__slurmctld_config={"plan": [{"what": "slurm.conf MailProg"}]})
    assert mail.warnings(host) == [mail.NO_MAIL]
    assert mail.warnings(host.set(slurm_conf={"MailProg": "/bin/mail"})) == []


def test_a_report_says_what_changes_or_what_is_remarked() -> None:
    host = cluster(slurm_mail=RELAY)["head"]
    assert slurmctld.report(host) == []
    assert not slurmctld.has_report(host)
    assert slurmctld.report(host.set(__slurmctld_config={"remarks": ["r"]})) == ["Warnings:", "r"]
    assert slurmctld.report(host.set(__slurmctld_config={"table": ["t"], "remarks": ["r"]})) == [
        "This changes:",
        "t",
        "r",
    ]
    assert slurmctld.has_report(host.set(__slurmctld_config={"unproven": ["n1"]}))


def test_the_first_node_of_each_kind_that_was_reached_tries_a_change() -> None:
    hosts = cluster()
    hosts["n1"].set(__slurm_facts={"unreachable": True})
    hosts["head"].set(__slurmctld_config={"unproven": ["n[1-2]", "n9"]})
    assert slurmctld.first_nodes(hosts["head"]) == ["n2"]


def test_a_node_that_is_refused_for_its_own_files_tries_no_change() -> None:
    """It would be taken for a lost one, which ends the run of all others."""
    hosts = cluster()
    hosts["n1"].set(__slurmctld_own_accepted={"failed": True})
    hosts["n2"].set(__slurmctld_own_accepted={"changed": False})
    hosts["head"].set(__slurmctld_config={"unproven": ["n[1-2]"]})
    assert slurmctld.first_nodes(hosts["head"]) == ["n2"]
    hosts["n2"].set(__slurmctld_own_accepted={"failed": True})
    assert slurmctld.first_nodes(hosts["head"]) == []


def test_all_nodes_get_their_previous_settings_if_the_change_fails_on_one() -> None:
    hosts = cluster(groups={**GROUPS, "slurm_needs_first_nodes": ["n1", "n2"]})
    assert slurmctld.first_nodes_result(hosts["head"]) == slurmctld.FirstNodes([], failed=False, lost="n[1-2]")
    hosts["n1"].set(__slurmd_outcome="")
    hosts["n2"].set(__slurmd_outcome="does not start")
    assert slurmctld.first_nodes_result(hosts["head"]) == slurmctld.FirstNodes(["n1", "n2"], failed=True, lost="")


def test_each_controller_checks_for_the_files_of_the_others() -> None:
    hosts = two()
    hosts["head"].set(__slurmctld_state=answer(file="a"))
    assert state_directory.files_of_others(hosts["n1"]) == ["a"]
    assert state_directory.files_of_others(hosts["head"]) == []


def test_a_directory_that_slurm_cannot_use_is_refused() -> None:
    hosts = two()
    hosts["n1"].set(__slurmctld_state=answer(error="Stale file handle"))
    (objection,) = state_directory.objections(hosts["head"])
    assert objection.endswith("which slurm cannot use on n1: Stale file handle")


def test_a_state_directory_of_others_gets_no_owner() -> None:
    host = cluster()["head"]
    for path, made in (("/shared/slurm", True), ("/var/spool", True), ("/tmp", False), ("/srv/../tmp", False)):
        assert state_directory.is_made(host.set(slurm_conf={"StateSaveLocation": path})) == made


def test_what_was_not_confirmed_is_reported() -> None:
    assert state_directory.unconfirmed_message(two()["head"]) == ""
    host = two(ansible_play_hosts=["head"], ansible_check_mode=True)["head"]
    assert state_directory.unconfirmed_message(host) == (
        "It is not confirmed that /shared/slurm is one directory on head,n1. Controllers outside of this run: n1. "
        "Check mode writes no file there and has only compared mounts and inodes."
    )


def test_a_directory_that_was_missing_is_checked_later() -> None:
    host = two()["head"]
    assert state_directory.needs_check(host)
    assert not state_directory.needs_check(host.set(__slurmctld_state=answer(file="a")))
    assert not state_directory.needs_check(cluster()["head"])


def test_hosts_outside_of_a_limit_lack_what_the_configuration_names() -> None:
    host = cluster(ansible_limit="n1", ansible_run_tags=["all"], slurm_containers=["enroot", "pyxis"])["head"]
    assert container_parts.left_out(host, ["n1"]) == ["login", "n2"]
    assert container_parts.left_out(host.set(ansible_run_tags=["compute"]), ["n1"]) == []
    named = host.set(__slurmctld_named={"stdout": "Prolog=/usr/local/lib/gpucluster-slurm/enroot-prolog"})
    assert container_parts.newly_named(named) == ["pyxis"]


def test_own_files_of_a_node_are_compared_with_those_that_it_will_fetch() -> None:
    hosts = cluster(ansible_run_tags=["compute"])
    host = hosts["n1"].set(
        __slurmctld_own={"files": {"cgroup.conf": "ConstrainCores=yes\n"}, "directory": "/etc/slurm"},
        __slurmctld_of_cluster={"results": [{"failed": True}, {"files": {}, "version": "24.11.5"}]},
    )
    assert own_node_files.are_in_play(host)
    assert own_node_files.to_fetch(host) == {}
    assert "cgroup.conf" in own_node_files.to_fetch(host.set(ansible_run_tags=["all"]))
    (objection,) = own_node_files.objections(host.set(__slurmctld_fetched={"cgroup.conf": "ConstrainCores=no\n"}))
    assert "Nothing was changed on n1." in objection


def test_nodes_without_own_files_need_no_comparison() -> None:
    hosts = cluster()
    for host in hosts.values():
        host.set(__slurmctld_own={"files": {}})
    assert not own_node_files.are_in_play(hosts["n1"])
    hosts["n2"].set(__slurmctld_own={"msg": "no answer"})
    assert own_node_files.are_in_play(hosts["n1"])


@pytest.mark.parametrize(
    ("states", "line"),
    [
        ({}, ""),
        ({"head": "serves", "n1": "stands by"}, "The controller head serves; n1 stands by."),
        ({"n1": "stands by", "head": "serves"}, "The controller head serves; n1 stands by."),
        (
            {"head": "serves", "n1": "does not answer"},
            "The controller head serves; slurmctld does not answer on n1.",
        ),
        (
            {"head": "does not answer", "n1": "serves", "n2": "stands by"},
            "The controller n1 serves in place of head; n2 stands by; slurmctld does not answer on head. Run "
            "gpucluster.slurm.site when head can be reached: it then takes control back.",
        ),
        (
            {"head": "does not answer", "n1": "stands by"},
            "No controller serves: run gpucluster.slurm.doctor. slurmctld does not answer on head.",
        ),
    ],
)
def test_the_last_lines_of_a_run_say_which_controller_serves(states: dict[str, str], line: str) -> None:
    assert slurmctld.serving_line(two(__slurm_run_ended={"controllers": states})["n1"]) == line
    assert slurmctld.serving_line(two()["n1"]) == ""


def test_of_several_controllers_all_are_compared_and_those_without_a_record_have_changed() -> None:
    head = cluster(slurm_controllers=CONTROLLERS)["head"]
    records = {"head": {"slurmctld": "as it was"}, "n1": {"munge": "another record"}}
    assert slurmctld.hosts_with_work(head, records) == CONTROLLERS
    assert slurmctld.changed_hosts(head, records) == ["n1"]
    assert slurmctld.changed_hosts(head, {"n1": records["n1"]}) == ["n1"]


REST = {"host": "login", "port": 6820, "max_token_lifespan": 86400}


@pytest.mark.parametrize(
    ("source", "installed", "tags", "leaving", "coming"),
    [
        ("distribution", (), ["all"], [], ["auth_jwt"]),
        ("distribution", (), ["base", "controller"], [], ["auth_jwt"]),
        # The stage that installs packages is not part of the run.
        ("distribution", (), ["controller"], [], []),
        # remove_nodes installs packages after its change.
        ("distribution", (), ["all"], ["n2"], []),
        # The package is there: what it does not have does not come.
        ("distribution", ("slurm-wlm-jwt-plugin",), ["all"], [], []),
        # SchedMD's package of the plugin is that of Slurm itself.
        ("schedmd", ("slurm-smd",), ["all"], [], []),
    ],
)
def test_plugins_come_with_the_packages_that_this_run_installs(
    source: str, installed: tuple[str, ...], tags: list[str], leaving: list[str], coming: list[str]
) -> None:
    packages: Any = "distribution" if source == "distribution" else {"files": ["x.deb"]}
    hosts = cluster(slurm_rest=REST, slurm_packages=packages, ansible_run_tags=tags)
    host = hosts["head"].set(groups={**GROUPS, "slurm_leaving": leaving} if leaving else GROUPS)
    host.facts["packages"].update(dict.fromkeys(installed, "24.11.5"))
    assert slurmctld.coming_plugins(host) == coming


def test_without_tokens_no_plugin_comes() -> None:
    assert slurmctld.coming_plugins(cluster()["head"]) == []


@pytest.mark.parametrize(
    ("conf", "head", "node"),
    [
        ({"JobCompType": "jobcomp/kafka"}, ["slurm-wlm-kafka-plugin"], []),
        ({"AuthAltTypes": ["auth/jwt"]}, ["slurm-wlm-jwt-plugin"], []),
        (
            {"AcctGatherEnergyType": "acct_gather_energy/gpu, acct_gather_energy/XCC"},
            ["slurm-wlm-ipmi-plugins"],
            ["slurm-wlm-ipmi-plugins"],
        ),
        ({"JobCompType": "jobcomp/script", "Epilog": "auth_jwt/x"}, [], []),
    ],
)
def test_a_plugin_of_slurm_conf_comes_to_all_hosts_whose_daemons_load_it(
    conf: dict[str, Any], head: list[str], node: list[str]
) -> None:
    hosts = cluster(slurm_conf=conf)
    assert [platform.configured_plugins(hosts[name]) for name in ("head", "n1", "login")] == [head, node, []]
    assert slurmctld.coming_plugins(hosts["head"]) == [
        plugin for name in head for plugin in platform_tables.PLUGINS_OF_PACKAGES[name]
    ]
    assert platform.configured_plugins(hosts["head"].extended(slurm_packages={"files": []})) == []


def test_plugins_come_with_packages_of_the_site_too() -> None:
    more = ["slurm-wlm-influxdb-plugin", "slurm-wlm-ipmi-plugins", "htop"]
    host = cluster(base_extra_packages=more)["head"].say(packages={"slurm-wlm-ipmi-plugins": "1"})
    assert slurmctld.coming_plugins(host) == ["acct_gather_profile_influxdb"]


@pytest.mark.parametrize(
    ("policy", "partition"),
    [
        ({"slurm_accounting_accounts": [{"name": "science"}]}, {}),
        ({"slurm_accounting_users": [{"name": "ann", "DefaultAccount": "science"}]}, {}),
        ({"slurm_accounting_limits": {"MaxJobs": 9}}, {}),
        ({"slurm_accounting_qos": [{"name": "fast"}]}, {"AllowQos": ["fast"]}),
    ],
)
def test_what_slurm_conf_will_enforce_is_in_the_database_before_it(
    policy: dict[str, Any], partition: dict[str, Any]
) -> None:
    """Between the two, slurmctld would refuse the jobs of every user."""
    partitions = [{"name": "all", "nodes": "n[1-2]", **partition}]
    given: dict[str, Any] = {f"slurm_accounting_{kind}": [] for kind in ("limits", "qos", "accounts", "users")}
    host = cluster(slurm_partitions=partitions, **given | policy)["head"]
    assert slurmctld.text_before_policy(host)
    assert slurmctld.text_before_policy(host.set(slurm_database="")) == ""


def test_without_a_policy_and_a_qos_nothing_is_to_be_there_before() -> None:
    assert slurmctld.text_before_policy(cluster()["head"]) == ""


def test_while_slurm_conf_stays_the_database_is_not_asked() -> None:
    host = cluster(slurm_accounting_accounts=[{"name": "science"}])["head"]
    host.say(files={KEPT_CONF: "1", KEPT_LIST: slurm_files.checksum(slurm_files.listed(slurm_files.files(host)))})
    assert slurmctld.text_before_policy(host) == ""
    assert slurmctld.text_before_policy(host.set(__slurmdbd_database={"changed": False})) == ""
    assert slurmctld.text_before_policy(host.set(__slurmdbd_database={"changed": True}))
    host.set(__slurmdbd_database={})
    assert slurmctld.text_before_policy(host.set(slurm_conf={"KillWait": 9}))


def test_a_cluster_is_registered_before_its_policy_is_enforced() -> None:
    host = cluster(__slurmctld_additions={"registered": False})["head"]
    assert not slurmctld.registers_first(host)  # nobody uses it yet
    host.say(files={KEPT_CONF: "1"})
    assert slurmctld.registers_first(host)
    assert not slurmctld.registers_first(host.set(ansible_check_mode=True))
    assert not slurmctld.registers_first(
        cluster(__slurmctld_additions={"registered": True})["head"].say(files={KEPT_CONF: "1"})
    )
    assert not slurmctld.registers_first(cluster()["head"].say(files={KEPT_CONF: "1"}))


def test_without_the_policy_slurm_conf_has_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"slurm.conf": "A=1\nAccountingStorageEnforce=qos,safe\nB=2\n", "gres.conf": ""}
    monkeypatch.setattr(slurm_files, "files", lambda _host: texts)
    assert slurmctld.files_before_policy(cluster()["head"]) == {"slurm.conf": "A=1\nB=2\n", "gres.conf": ""}
