# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""People of a directory: slapd on the controller, and sssd on all hosts, by the commands of docs/admin/people.md. Their
ids are compared before a change.

The directory is gone after the tests, so that other tests of the scenario find hosts with local users only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.language.hostlist import expand
from documents import run_as_typed
from lab import ROOT, Lab, Run, with_cluster

ASK = "Read the ids of the users of the directory"
SUFFIX = "dc=nodomain"  # that of Debian's package on a host without a domain
USERS = {"ulla": 7001, "veit": 7002}
TOP = f"""\
dn: {SUFFIX}
objectClass: dcObject
objectClass: organization
dc: nodomain
o: lab
"""
ENTRY = """
dn: uid={name},{suffix}
objectClass: account
objectClass: posixAccount
uid: {name}
cn: {name}
uidNumber: {uid}
gidNumber: {uid}
homeDirectory: /home/{name}
loginShell: /bin/bash
"""
SSSD = f"""\
[sssd]
domains = lab

[domain/lab]
id_provider = ldap
auth_provider = none
ldap_uri = ldap://{{address}}
ldap_search_base = {SUFFIX}
ldap_id_use_start_tls = false

[nss]
memcache_timeout = 0
"""
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends"
REMOVE = "DEBIAN_FRONTEND=noninteractive apt-get purge --quiet=2 --yes"


def hosts(lab: Lab) -> list[str]:
    """All hosts."""
    return list(dict.fromkeys([lab.controller, *expand(lab.cluster["login"]), *lab.nodes]))


def know(lab: Lab, host: str) -> None:
    """Wait until a host knows the users."""
    lab.wait_for(host, "timeout 30 getent passwd ulla veit | wc -l", "2", 60)


@pytest.fixture(name="site", scope="module")
def site_with_a_directory(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The lab with slapd and sssd, and with the users of the directory in the policy."""
    (account,) = lab.cluster["accounting"]["accounts"]
    users = [{"name": name, "DefaultAccount": account["name"]} for name in USERS]
    cluster = {**lab.cluster, "people": "directory", "accounting": {**lab.cluster["accounting"], "users": users}}
    lab.command(lab.controller, f"{INSTALL} slapd")
    entries = TOP + "".join(ENTRY.format(name=name, suffix=SUFFIX, uid=uid) for name, uid in USERS.items())
    add = f"rm -f /var/lib/ldap/* && runuser -u openldap -- slapadd -b {SUFFIX}"
    lab.script(
        lab.controller, f"systemctl stop slapd && {add} && systemctl enable --now --quiet slapd", entries.encode()
    )
    address = lab.command(lab.controller, "hostname --ip-address").split()[0]
    directory = tmp_path_factory.mktemp("directory")
    site = with_cluster(lab, directory, cluster)
    (directory / "sssd.conf").write_text(SSSD.format(address=address))
    page = (ROOT / "docs/admin/people.md").read_text()

    def join(host: str) -> None:
        """Make a host know the users of the directory. Who logs in to it is looked up in its own groups alone."""
        lab.command(host, "sed -i '/^initgroups:/d; $a initgroups: files' /etc/nsswitch.conf")
        know(lab, host)

    def leave(host: str) -> None:
        """Take it back."""
        lab.command(host, f"{REMOVE} sssd-common libnss-sss libpam-sss && rm -rf /etc/sssd")
        lab.command(host, "sed -i '/^initgroups:/d' /etc/nsswitch.conf")

    for command in re.findall(r"^    (ansible slurm_cluster .*)", page, re.MULTILINE):
        run_as_typed(site, command.replace("my.cluster.yml", site.inventory.name), directory)
    with ThreadPoolExecutor() as pool:
        list(pool.map(join, hosts(lab)))
        yield site
        list(pool.map(leave, hosts(lab)))
    lab.command(lab.controller, "systemctl disable --now --quiet slapd")


def compared(site: Lab, *arguments: str) -> Run:
    """A run of the comparison."""
    return site.playbook("site", "--tags=people", *arguments)


def said(run: Run) -> list[str]:
    """What the run says of users whom hosts do not know."""
    return [
        text
        for _host, task, result in run.results
        if task.endswith("Show users whom hosts do not know")
        for text in result.get("msg", [])
    ]


def failures(run: Run) -> str:
    """The only failure of a run."""
    ((text,),) = {tuple(texts) for texts in run.failed.values()}
    return str(text)


def test_equal_ids_cost_no_task_and_the_users_run_jobs(site: Lab) -> None:
    run = site.playbook("site", "--tags=people,policy")
    assert (run.rc, run.failed, run.warnings) == (0, {}, [])
    assert [task for _host, task, _result in run.results if ASK in task] == []
    for host in hosts(site):
        site.command(host, "grep -E '^(ulla|veit):' /etc/passwd /etc/group", rc=1)
    for node in site.nodes[-2:]:
        srun = f"cd /tmp && runuser -u ulla -- timeout 60 srun --nodelist={node} --mem=100 id --user --name"
        assert site.command(expand(site.cluster["login"])[-1], srun) == "ulla"


def test_a_user_whom_a_host_does_not_know_is_named(site: Lab) -> None:
    node = site.nodes[-1]
    site.command(node, "systemctl stop sssd")
    run = compared(site)
    assert (run.rc, run.failed) == (0, {})
    assert said(run) == [f"{node}: users of the policy who do not exist: ulla, veit"]
    # slurmctld sends the ids of a job's user (disable_send_gids, slurm.conf(5)).
    srun = f"cd /tmp && runuser -u ulla -- timeout 60 srun --nodelist={node} --mem=100 id --user"
    assert site.command(expand(site.cluster["login"])[-1], srun) == str(USERS["ulla"])
    site.command(node, "systemctl start sssd")
    know(site, node)


def test_a_directory_that_does_not_answer_stops_no_run(site: Lab) -> None:
    node = site.nodes[-1]
    site.command(node, "pkill -STOP sssd_nss")
    try:
        run = compared(site)
        assert (run.rc, run.failed) == (0, {})
        assert said(run) == [f"{node}: the directory did not answer, so ids were not compared"]
    finally:
        site.command(node, "pkill -CONT sssd_nss")


def test_other_ids_on_a_host_are_refused_before_any_change(site: Lab) -> None:
    node = site.nodes[-1]
    site.command(node, "echo ulla:x:8001:8001::/home/ulla:/bin/sh >>/etc/passwd")
    for arguments in ([], ["--check"]):
        run = site.playbook("site", "--tags=base,people", *arguments)
        assert (run.rc != 0, run.changed) == (True, {})
        text = failures(run)
        first, _comma, second = text.partition(", and ")
        assert "user ulla has uid 7001 and gid 7001 on " in first
        assert {*expand(first.rpartition(" on ")[2])} == {*hosts(site)} - {node}
        assert second.startswith(f"uid 8001 and gid 8001 on {node}\n")
        assert "veit" not in text
    site.command(node, "sed -i /^ulla:/d /etc/passwd")
    assert compared(site).rc == 0
