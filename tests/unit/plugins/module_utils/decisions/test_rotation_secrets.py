# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which other secrets change, on which hosts, and what is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.daemons import slurmdbd
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.playbooks import rotation_secrets
from ansible_collections.gpucluster.slurm.plugins.module_utils.decisions.run import questions
from plain_host import DATABASE_SERVER, GROUPS, PlainHost, cluster

pytestmark = pytest.mark.once

WHOLE: dict[str, Any] = {
    "slurm_rest": {"host": "login"},
    "slurm_backup": {"target": "/b"},
    "slurm_registry": "login",
    "registry_upstream": "https://other",
    "registry_upstream_username": "cache",
    "registry_upstream_password": "s3cret",
    "groups": {**GROUPS, "slurm_rest": ["login"], "slurm_registry": ["login"]},
}


def head(rotate: str, **variables: Any) -> PlainHost:
    return cluster(**{**WHOLE, "rotate": rotate, **variables})["head"]


def used(rotate: str, **variables: Any) -> dict[str, list[str]]:
    """The steps with hosts."""
    return {step: hosts for step, hosts in rotation_secrets.steps(head(rotate, **variables)).items() if hosts}


def test_only_hosts_with_the_secret_take_part() -> None:
    assert used("database") == {"database": ["head"], "backup": ["head"], "first": ["head"]}
    assert used("database", slurm_backup={}) == {"database": ["head"], "first": ["head"]}
    assert used("jwt") == {"tokens": ["head", "login"], "rest": ["login"], "backup": ["head"], "first": ["head"]}
    assert used("registry") == {"registry": ["login"], "backup": ["head"]}
    assert used("backup") == {"backup": ["head"], "first": ["head"], "key": ["head"]}
    # The backup has the files of the control host.
    assert used("munge") == {"backup": ["head"]}
    assert used("munge", slurm_backup={}) == {}
    two = {"slurm_database": "login", "slurm_controllers": ["head", "n1"]}
    assert used("backup", **two) == {"backup": ["login", "head", "n1"], "first": ["head"], "key": ["login"]}


def test_all_daemons_that_check_tokens_get_the_new_key_in_one_task(tmp_path: Path) -> None:
    (tmp_path / "jwt_hs256.key").write_bytes(b"k" * 64)
    hosts = cluster(**{**WHOLE, "rotate": "jwt", "slurm_secrets_dir": str(tmp_path)})
    services = {name: rotation_secrets.token_services(host) for name, host in hosts.items()}
    assert {name: found for name, found in services.items() if found} == {
        "head": ["slurmdbd", "slurmctld"],
        "login": ["slurm-rest-auth"],
    }
    two = cluster(**{**WHOLE, "rotate": "jwt", "slurm_controllers": ["head", "n1"], "slurm_database": "n1"})
    daemons = {name: rotation_secrets.token_daemons(host) for name, host in two.items()}
    assert {name: found.first for name, found in daemons.items()} == {
        "head": ["slurmctld"],
        "login": ["slurm-rest-auth"],
        "n1": ["slurmdbd"],
        "n2": [],
    }
    assert [name for name, found in daemons.items() if found.standby] == ["n1"]
    assert [*daemons["n1"].files] == ["slurmdbd", "slurmctld"]
    for service in services["head"]:
        (file,) = rotation_secrets.token_daemons(hosts["head"]).files[service]
        assert (file["path"], file["mode"]) == ("/etc/gpucluster-slurm/jwt_hs256.key", "0400")
    pages = {"slurm_monitoring": {"host": "n1"}, "slurm_profile": "strict", "slurm_rest": {}}
    hosts = cluster(**{**WHOLE, **pages, "rotate": "jwt"})
    hosts["head"].say(slurm_version="26.05.3")
    assert rotation_secrets.token_services(hosts["head"]) == ["slurmctld"]
    (file,) = rotation_secrets.token_daemons(hosts["head"]).files["slurmctld"]
    assert file["path"] == "/etc/gpucluster-slurm/slurmctld_http.key"


def test_a_check_foretells_the_hosts_that_change() -> None:
    def foretold(rotate: str, **variables: Any) -> list[str]:
        hosts = cluster(**{**WHOLE, "rotate": rotate, "ansible_check_mode": True, **variables})
        return [name for name, host in hosts.items() if rotation_secrets.would_change(host)]

    assert foretold("munge") == ["head", "login", "n1", "n2"]
    assert foretold("jwt") == ["head", "login"]
    assert foretold("database", slurm_backup={}) == ["head"]
    assert foretold("munge", ansible_check_mode=False) == []


def test_a_check_chooses_no_hosts() -> None:
    assert {"host": "login", "group": "slurm_rotates_rest"} in rotation_secrets.groups(head("jwt"))
    assert rotation_secrets.groups(head("jwt", ansible_check_mode=True)) == []


def test_new_secrets_of_the_control_host() -> None:
    def made(rotate: str, **variables: Any) -> list[str]:
        return [Path(one["path"]).name for one in rotation_secrets.new_secrets(head(rotate, **variables))]

    assert made("jwt,database,registry,backup") == ["jwt_hs256.key", "slurmdbd_storage_pass", "backup_password.next"]
    assert made("munge") == []
    (backup,) = rotation_secrets.new_secrets(head("backup"))
    assert backup["stays"]


def test_an_unfinished_change_of_the_backup_is_named() -> None:
    hosts = cluster({"/cluster/secrets/x/backup_password.next": b"n"}, **{**WHOLE, "rotate": "backup"})
    assert "An earlier run has not ended" in rotation_secrets.announcement(hosts["head"])[-1]
    assert "earlier" not in rotation_secrets.announcement(head("backup"))[-1]


@pytest.mark.parametrize(
    ("rotate", "variables", "error"),
    [
        ("jwt", {"slurm_rest": {}}, "the cluster has no key of tokens"),
        ("database", {"slurm_database": ""}, "the cluster file has no database"),
        ("database", {"slurm_database_server": DATABASE_SERVER}, "others run the database server db.x.org: let its"),
        ("database", {"slurmdbd_storage_pass_file": "/p"}, "slurmdbd_storage_pass_file: found '/p', allowed: the file"),
        ("registry", {"slurm_registry": ""}, "the cluster file has no registry"),
        ("registry", {"registry_upstream_password": ""}, "missing: registry_upstream_password. The registry has"),
        ("backup", {"slurm_backup": {}}, "the cluster file has no backup"),
        ("backup", {"backup_password_file": "/p"}, "backup_password_file: found '/p', allowed"),
    ],
)
def test_what_cannot_change_is_refused(rotate: str, variables: dict[str, Any], error: str) -> None:
    (found,) = rotation_secrets.errors(head(f"munge,{rotate}", **variables))
    assert found.startswith(f"rotate={rotate}: {error}")
    assert rotation_secrets.errors(head("munge", **variables)) == []


def test_a_file_that_the_site_has_encrypted_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jwt_hs256.key").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    (error,) = rotation_secrets.errors(head("jwt,database", slurm_secrets_dir=str(tmp_path)))
    assert "jwt_hs256.key is encrypted with ansible-vault" in error


def test_a_host_that_needs_the_secret_must_be_in_the_run() -> None:
    host = head("jwt", ansible_play_hosts=["head", "n1"])
    (error,) = rotation_secrets.objections(host)
    assert error == "login needs a new secret, and is not in this run: it is outside of --limit, or failed"


def test_other_changes_of_slurmdbd_are_refused_with_a_new_password() -> None:
    host = head("database", __slurm_rotates=True)
    path = "/etc/slurm/slurmdbd.conf"
    assert path in questions.files(host)
    host.say(files={path: hashlib.sha256(slurmdbd.conf(host).encode()).hexdigest()})
    assert rotation_secrets.objections(host) == []
    (error,) = rotation_secrets.objections(host.set(slurmdbd_conf={"PurgeJobAfter": "13months"}))
    assert error == "rotate=database: the cluster file has changes that are not in force: run site.yml first"
    assert path not in questions.files(head("jwt"))


def test_a_registry_that_has_the_password_has_nothing_to_prove() -> None:
    hosts = cluster(**{**WHOLE, "rotate": "registry"})
    hosts["login"].set(__registry_compared={"files": ["/etc/docker/registry/upstream.env"], "actions": []})
    assert rotation_secrets.objections(hosts["head"]) == []
    hosts["login"].set(__registry_compared={"files": [], "actions": []})
    (error,) = rotation_secrets.objections(hosts["head"])
    assert "login has this registry_upstream_password already" in error


def test_the_plan_names_what_ends() -> None:
    lines = "\n".join(rotation_secrets.announcement(head("jwt,database,registry,backup")))
    assert "slurmdbd on head, slurmctld on head, slurm-rest-auth on login restart within seconds" in lines
    assert "All tokens of users end at once" in lines
    assert "Prometheus" not in lines
    pages = {"slurm_monitoring": {"host": "n1"}, "slurm_profile": "strict", "slurm_rest": {}}
    hosts = cluster(**{**WHOLE, **pages, "rotate": "jwt"})
    hosts["head"].say(slurm_version="26.05.3")
    lines = "\n".join(rotation_secrets.announcement(hosts["head"]))
    assert "The token of Prometheus ends; n1 gets a new one in this run" in lines
    assert "users" not in lines


def test_a_key_that_another_cluster_may_have_is_named() -> None:
    said = '{"removed": [], "left": ["0123456789ab"], "clusters": ["other"]}'
    host = head("backup", __rotation_removed={"stdout": said})
    (line,) = rotation_secrets.backup_remarks(host)
    assert "keeps the key 01234567 of the previous password, since other has backups there" in line
    assert rotation_secrets.backup_remarks(head("backup", __rotation_removed={"stdout": '{"left": []}'})) == []


def test_the_registry_behind_is_asked_with_the_account_on_standard_input() -> None:
    host = cluster(**{**WHOLE, "rotate": "registry"})["login"]
    proof = rotation_secrets.registry_proof(host)
    *_python, program, url = proof["argv"]
    assert ("def prove(" in program, url) == (True, "https://other")
    assert proof["stdin"] == '{"username": "cache", "password": "s3cret"}'
