# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of role access."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.host import access
from plain_host import PlainHost, cluster

HOST_BASED = {"between_nodes": "host_based", "login_limits": {"TasksMax": 400}}
SSHD = "/etc/ssh/sshd_config.d/10-gpucluster-slurm-access.conf"
PENALTIES = "/etc/ssh/sshd_config.d/10-gpucluster-slurm-penalties.conf"
SLICE = "/etc/systemd/system/user-.slice.d/50-gpucluster-slurm.conf"


def hosts_with(plan: dict[str, Any], **variables: Any) -> dict[str, PlainHost]:
    hosts: dict[str, PlainHost] = cluster(slurm_access=plan, **variables)
    return hosts


def test_without_a_plan_a_host_has_nothing_to_do() -> None:
    host = hosts_with({})["n1"].say(sshd="job", files={SSHD: "0" * 64})
    assert access.texts(host) == {}
    assert access.packages(host) == []
    assert access.compared_files(host) == []
    assert not access.differs(host, {})


def test_a_compute_node_lets_users_with_jobs_in() -> None:
    hosts = hosts_with({"administrators": ["ops"]})
    found = access.options(hosts["n1"])
    assert (found.who, found.administrators) == ("job", ["ops"])
    assert [file["path"] for file in found.files] == [
        "/etc/ssh/ssh_known_hosts2",
        "/etc/security/gpucluster-slurm-access.conf",
        SSHD,
        PENALTIES,
    ]
    assert "('jobs', True)" in found.files[2]["content"]
    assert "/etc/ssh/shosts.equiv" in found.absent
    assert SSHD not in found.absent, "two names have one path"
    assert access.packages(hosts["n1"]) == ["libpam-slurm-adopt"]


def test_members_of_the_administrators_are_those_that_the_run_makes() -> None:
    user = {"groups": [], "state": "present"}
    users = [
        {**user, "name": "first", "gid": 4100, "groups": ["ops"]},
        {**user, "name": "primary", "gid": 4200},
        {**user, "name": "own", "gid": 4102},
        {**user, "name": "gone", "gid": 4200, "state": "absent"},
        {**user, "name": "other", "gid": 4104},
    ]
    people = {"source": "list", "groups": [{"name": "ops", "gid": 4200}], "users": users}
    hosts = hosts_with({"administrators": ["ops", "own"]}, slurm_people=people)
    assert access.options(hosts["n1"]).members == ["first", "primary", "own"]
    assert access.options(hosts_with({})["n1"]).members == []


def test_a_login_host_has_limits_and_a_message() -> None:
    hosts = hosts_with(HOST_BASED)
    found = access.options(hosts["login"])
    content = {file["path"]: file["content"] for file in found.files}
    assert found.who == "all"
    assert "{'TasksMax': '400'}" in content[SLICE]
    assert "/usr/local/lib/gpucluster-slurm/login-message" in content
    assert access.packages(hosts["login"]) == ["bash-completion"]


def test_a_login_host_with_a_further_task_has_half_of_the_limits() -> None:
    hosts = hosts_with(HOST_BASED)
    hosts["login"].set(group_names=["slurm_controller", "slurm_login"])
    found = access.options(hosts["login"])
    assert "{'TasksMax': '200'}" in next(file["content"] for file in found.files if file["path"] == SLICE)


def test_an_older_sshd_has_no_penalties() -> None:
    hosts = hosts_with({"compute": "job"})
    rendered = access.texts(hosts["head"])
    assert "penalties" in access.names(hosts["n1"], rendered)
    hosts["n1"].say(distribution="debian 12")
    assert "penalties" not in access.names(hosts["n1"], rendered)
    assert PENALTIES in access.options(hosts["n1"]).absent


def test_without_a_controller_the_file_of_known_hosts_stays() -> None:
    hosts = hosts_with({"compute": "all"}, ansible_play_hosts=["n1", "n2"])
    rendered = access.texts(hosts["n1"])
    assert "known_hosts" not in rendered
    found = access.options(hosts["n1"])
    assert found.files == []
    assert "/etc/ssh/ssh_known_hosts2" not in found.absent


def test_a_text_that_says_nothing_is_no_file() -> None:
    hosts = hosts_with({"compute": "job"})
    rendered = access.texts(hosts["head"])
    del rendered["penalties"]
    assert "penalties" not in access.names(hosts["n1"], rendered)


def test_keys_are_those_of_hosts_that_have_answered() -> None:
    hosts = hosts_with({"compute": "all"})
    hosts["n1"].say(host_key="ssh-ed25519 AAAA")
    hosts["n2"].set(__slurm_facts={"unreachable": True})
    assert access.host_keys(hosts["head"]) == {"head": "", "login": "", "n1": "ssh-ed25519 AAAA", "n2": ""}


def unchanged_host(plan: dict[str, Any]) -> tuple[PlainHost, dict[str, str]]:
    """A compute node that is as wanted, and the digests of all texts."""
    hosts = hosts_with(plan)
    digests = access.text_digests(access.texts(hosts["head"]))
    host = hosts["n1"]
    return host.say(sshd=access.parts(host)["who"], files=access.wanted_files(host, digests)), digests


def test_a_host_differs_if_it_lacks_a_file_or_has_another() -> None:
    host, digests = unchanged_host({"compute": "job"})
    assert not access.differs(host, digests)
    files = host.facts["files"]
    assert access.differs(host.say(files={**files, SSHD: "0" * 64}), digests)
    assert access.differs(host.say(files={path: files[path] for path in files if path != SSHD}), digests)
    assert access.differs(host.say(files=files, sshd="all"), digests)


def test_a_host_differs_if_it_has_too_much() -> None:
    host, digests = unchanged_host({"compute": "all"})
    files = host.facts["files"]
    assert access.differs(host.say(files={**files, SSHD: "0" * 64}), digests)
    assert access.differs(host.say(files={**files, access.UNCONFIRMED: "0" * 64}), digests), (
        "a change without its check"
    )


def test_files_of_the_site_make_no_difference() -> None:
    host, digests = unchanged_host({"compute": "all"})
    files = host.facts["files"]
    assert not access.differs(host.say(files={**files, "/etc/ssh/shosts.equiv": "0" * 64, "/etc/x": "1"}), digests)


def test_administrators_pass_without_a_job_and_need_a_key_of_their_own() -> None:
    plan = {"administrators": ["ops", "sudo"], **HOST_BASED}
    rendered = access.texts(hosts_with(plan)["head"])
    assert "['root', '(ops)', '(sudo)']" in rendered["administrators"]
    assert "['root', 'sudo', 'admin', 'wheel', 'ops']" in rendered["sshd"]
    assert "('host_based', True)" in rendered["sshd"]
    assert "('host_based', False)" in access.texts(hosts_with({"compute": "all"})["head"])["sshd"]


def test_users_come_from_login_hosts_and_nodes() -> None:
    rendered = access.texts(hosts_with(HOST_BASED)["head"])
    assert "['login', 'n1', 'n2']" in rendered["shosts"]
